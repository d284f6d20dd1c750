//! Tests of the ledger alone, with fixed and with random steps. An audit checks all its events against the promises.

use std::fmt::Write as _;
use std::time::SystemTime;

use bytes::Bytes;
use proptest::prelude::*;
use uuid::Uuid;

use super::{Ledger, LedgerConfig, TurnStart};
use crate::scripted::ContractChecker;
use crate::{
    ConversationEvent, EndReason, Event, ExitStatus, Input, InputPolicy, InputState, Line, Message,
    Observation, PermissionRequest, RecoveredConversation, SessionChoice, Stream, ToolOutcome,
};

/// A ledger, its events, and the delivered messages.
struct TestLedger {
    ledger: Ledger,
    audit: ContractChecker,
    messages: Vec<Message>,
    names: Vec<Uuid>,
    lines: usize,
    text: String,
}

impl TestLedger {
    fn new() -> Self {
        let terms = LedgerConfig {
            capacity: 8,
            policy: InputPolicy::Push,
            can_resume: true,
            may_redeliver: true,
        };
        let mut ledger = Ledger::new(terms, RecoveredConversation::default());
        ledger.connected();
        Self {
            ledger,
            audit: ContractChecker::new(),
            messages: Vec::new(),
            names: Vec::new(),
            lines: 0,
            text: String::new(),
        }
    }

    fn accept(&mut self) {
        let id = Uuid::new_v4();
        let input = Input::new(format!("i{}", self.names.len()));
        let full = self.ledger.pending().count() >= 8;
        match self.ledger.accept(input, id, SystemTime::UNIX_EPOCH) {
            Ok(receipt) => {
                assert!(!full);
                self.audit.accepted(&receipt);
                self.names.push(id);
            }
            Err(e) => assert!(full && e.is_full()),
        }
    }

    fn deliver(&mut self, taken: bool) {
        let Some((message, _)) = self.ledger.next_message(Uuid::new_v4()) else {
            return;
        };
        if taken {
            self.messages.push(message);
            let events = self.ledger.delivered();
            self.check_events(&events);
        } else {
            self.ledger.not_delivered();
        }
    }

    fn report(&mut self, event: Event) {
        self.observe(event.into());
    }

    fn observe(&mut self, seen: Observation) {
        let events = self.ledger.observe(seen);
        self.check_events(&events);
    }

    fn end(&mut self) {
        let events = self.ledger.connection_ended(EndReason::Died.into());
        self.check_events(&events);
        assert!(!self.ledger.is_busy());
        assert_eq!(self.audit.running(), 0);
    }

    fn check_events(&mut self, events: &[ConversationEvent]) {
        for what in events {
            self.audit.observe(what);
            assert!(self.audit.running() <= 2);
            match what {
                ConversationEvent::Assigned(a) => {
                    let inputs = a.inputs.iter().map(|i| self.name(i.receipt));
                    let inputs = inputs.collect::<Vec<_>>().join(",");
                    let injected = if a.injected { " injected" } else { "" };
                    let parent = a.parent.map(|p| format!(" after {p}")).unwrap_or_default();
                    let turn = a.turn;
                    writeln!(self.text, "turn {turn}{parent}:{injected} [{inputs}]").unwrap();
                }
                ConversationEvent::Completed(c) => {
                    let (turn, end, pending) = (c.turn, &c.end, c.pending);
                    let exit = end.exit.map(|e| format!(" ({e})")).unwrap_or_default();
                    let reason = end.reason;
                    writeln!(
                        self.text,
                        "turn {turn} over: {reason}{exit}, {pending} pending"
                    )
                    .unwrap();
                }
                ConversationEvent::Observed(seen) => {
                    self.lines += usize::from(seen.raw.is_some());
                    for event in &seen.events {
                        let event = match event {
                            Event::Input { id, state } => format!("{} {state:?}", self.name(*id)),
                            event => format!("{event:?}"),
                        };
                        writeln!(self.text, "  {event}").unwrap();
                    }
                }
                ConversationEvent::Lifecycle(_) | ConversationEvent::ReplayTruncated => {
                    unreachable!()
                }
            }
        }
        let completed = events.iter().rev().find_map(|what| match what {
            ConversationEvent::Completed(completion) => Some(completion.pending),
            _ => None,
        });
        if let Some(pending) = completed {
            let promised = self.ledger.turn.as_ref();
            let promised = promised.filter(|turn| turn.start == TurnStart::No);
            let names = promised.iter().flat_map(|turn| &turn.messages);
            let ahead: usize = names.map(|parcel| parcel.names().len()).sum();
            assert_eq!(pending, self.audit.pending() + ahead);
        }
        assert_eq!(self.ledger.pending().count(), self.audit.pending());
    }

    fn name(&self, receipt: Uuid) -> String {
        let at = self.names.iter().position(|name| *name == receipt);
        format!("i{}", at.unwrap())
    }

    fn started(&mut self, messages: &[usize]) {
        let inputs = messages.iter().map(|i| self.messages[*i].id).collect();
        self.report(Event::TurnStarted { inputs });
    }

    fn input(&mut self, message: usize, state: InputState) {
        let id = self.messages[message].id;
        self.report(Event::Input { id, state });
    }

    fn over(&mut self) {
        self.report(Event::TurnCompleted(EndReason::Completed.into()));
    }
}

fn tool(id: &str) -> Event {
    Event::ToolStarted {
        id: id.into(),
        name: "Bash".into(),
        summary: String::new(),
    }
}

fn ask(id: &str) -> Event {
    Event::PermissionRequested(PermissionRequest {
        id: id.into(),
        tool: "Bash".into(),
        summary: String::new(),
        reason: String::new(),
    })
}

#[test]
fn l81b_inputs_belong_to_the_turn_that_took_them() {
    let mut book = TestLedger::new();
    (0..2).for_each(|_| book.accept());
    book.deliver(true);
    book.started(&[0]);
    (0..3).for_each(|_| book.accept());
    (0..3).for_each(|_| book.deliver(true));
    book.input(1, InputState::Queued);
    book.input(1, InputState::InTurn);
    book.accept();
    book.over();
    book.started(&[2, 3]);
    book.over();
    insta::assert_snapshot!(book.text, @r"
    turn 1: [i0,i1]
      i2 Queued
    turn 1: injected [i2]
      i2 InTurn
    turn 1 over: the turn was completed, 3 pending
    turn 2 after 1: [i3,i4]
    turn 2 over: the turn was completed, 1 pending
    ");
}

#[test]
fn l81c_turn_started_by_the_agent_precedes_the_promised_turn() {
    let mut book = TestLedger::new();
    book.accept();
    book.deliver(true);
    book.report(Event::TurnStarted { inputs: vec![] });
    book.report(tool("t"));
    book.input(0, InputState::Queued);
    book.over();
    book.report(Event::TextDelta("late".into()));
    book.over();
    book.started(&[0]);
    book.over();
    insta::assert_snapshot!(book.text, @r#"
    turn 1: [i0]
      ToolStarted { id: "t", name: "Bash", summary: "" }
    turn 2: []
      i0 Queued
      ToolFinished { id: "t", outcome: Interrupted, text: "" }
    turn 2 over: the turn was completed, 1 pending
    turn 1 over: the turn was completed, 0 pending
    "#);
}

#[test]
fn l81b_l81c_a_promised_turn_that_was_folded_into_another_ends_with_it() {
    let mut book = TestLedger::new();
    book.accept();
    book.deliver(true);
    book.input(0, InputState::Queued);
    book.report(Event::TurnStarted { inputs: vec![] });
    book.input(0, InputState::InTurn);
    book.over();
    insta::assert_snapshot!(book.text, @r"
    turn 1: [i0]
      i0 Queued
    turn 2: []
    turn 2: injected [i0]
      i0 InTurn
    turn 2 over: the turn was completed, 0 pending
    turn 1 over: the turn was completed, 0 pending
    ");
}

#[test]
fn l81c_completion_is_last_and_leaves_nothing_open() {
    let mut book = TestLedger::new();
    book.accept();
    book.deliver(true);
    book.started(&[0]);
    book.report(tool("t"));
    book.report(ask("a"));
    book.accept();
    book.deliver(true);
    let line = Line {
        bytes: Bytes::from_static(b"{}"),
        omitted: 0,
    };
    book.observe(Observation {
        raw: Some((Stream::Stdout, line)),
        events: vec![
            Event::TextDelta("early".into()),
            Event::TurnCompleted(EndReason::Completed.into()),
            Event::TextDelta("late".into()),
            Event::TurnCompleted(EndReason::Failed.into()),
            Event::ToolFinished {
                id: "t".into(),
                outcome: ToolOutcome::Succeeded,
                text: String::new(),
            },
        ],
    });
    assert_eq!(book.lines, 1);
    insta::assert_snapshot!(book.text, @r#"
    turn 1: [i0]
      ToolStarted { id: "t", name: "Bash", summary: "" }
      PermissionRequested(PermissionRequest { id: "a", tool: "Bash", summary: "", reason: "" })
      TextDelta("early")
      ToolFinished { id: "t", outcome: Interrupted, text: "" }
      PermissionWithdrawn { id: "a" }
    turn 1 over: the turn was completed, 1 pending
    "#);
}

#[test]
fn l93b_input_in_flight_is_not_lost() {
    let mut book = TestLedger::new();
    book.accept();
    assert!(book.ledger.next_message(Uuid::new_v4()).is_some());
    book.accept();
    assert!(book.ledger.next_message(Uuid::new_v4()).is_none());
    assert_eq!(book.ledger.pending().count(), 2);
    book.end();
}

#[test]
fn l91a_l91b_death_is_reported_with_status_and_requeues_untaken_inputs() {
    let mut book = TestLedger::new();
    (0..2).for_each(|_| book.accept());
    book.deliver(true);
    book.accept();
    book.deliver(true);
    book.accept();
    book.report(Event::Exited(ExitStatus::Signal(9)));
    book.end();
    let waiting: Vec<&str> = book.ledger.pending().map(|i| i.text.as_str()).collect();
    assert_eq!(waiting, ["i2", "i3"]);
    book.ledger.set_session(SessionChoice::Resume("s".into()));
    book.ledger.connected();
    book.deliver(true);
    insta::assert_snapshot!(book.text, @r"
    turn 1: [i0,i1]
      Exited(Signal(9))
    turn 1 over: the agent ended before its turn did (killed by signal 9), 2 pending
    turn 2 after 1: [i2,i3]
    ");
}

#[test]
fn dropped_message_cancels_its_turn() {
    let mut book = TestLedger::new();
    book.accept();
    book.deliver(true);
    book.accept();
    book.deliver(true);
    book.input(1, InputState::Dropped("interrupted".into()));
    book.input(0, InputState::Dropped("interrupted".into()));
    book.report(Event::TurnCompleted(EndReason::Interrupted.into()));
    insta::assert_snapshot!(book.text, @r#"
    turn 1: [i0]
      i1 Dropped("interrupted")
      i0 Dropped("interrupted")
    turn 1 over: the turn was interrupted, 0 pending
    "#);
}

#[derive(Clone, Debug)]
enum Op {
    Accept,
    HandOn(bool),
    Started(Vec<usize>),
    Input(usize, InputState),
    Say(Event),
    End(bool),
}

fn any_op() -> impl Strategy<Value = Op> {
    let id = || (0u8..3).prop_map(|i| i.to_string());
    let state = prop_oneof![
        Just(InputState::Queued),
        Just(InputState::InTurn),
        Just(InputState::Dropped("gone".into())),
    ];
    let reason = prop_oneof![Just(EndReason::Completed), Just(EndReason::Interrupted)];
    let event = prop_oneof![
        Just(Event::TextDelta("x".into())),
        id().prop_map(|id| tool(&id)),
        id().prop_map(|id| ask(&id)),
        id().prop_map(|id| Event::PermissionWithdrawn { id }),
        id().prop_map(|id| Event::ToolFinished {
            id,
            outcome: ToolOutcome::Succeeded,
            text: String::new(),
        }),
    ];
    prop_oneof![
        3 => Just(Op::Accept),
        3 => any::<bool>().prop_map(Op::HandOn),
        3 => proptest::collection::vec(0usize..9, 0..3).prop_map(Op::Started),
        3 => (0usize..9, state).prop_map(|(i, state)| Op::Input(i, state)),
        3 => reason.prop_map(|r| Op::Say(Event::TurnCompleted(r.into()))),
        4 => event.prop_map(Op::Say),
        1 => any::<bool>().prop_map(Op::End),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Checks the promises for any reports of a driver. Each turn starts before it ends, and ends once. Nothing is open after a turn. Each line is
    /// published once, and the counts are right. Every input is in a turn, was dropped by the agent, or waits, in the order of acceptance.
    #[test]
    fn l81a_l81c_l86a_p20a_ledger_keeps_its_invariants(ops in proptest::collection::vec(any_op(), 0..60)) {
        let mut book = TestLedger::new();
        let mut lines = 0;
        for op in ops {
            match op {
                Op::Accept => book.accept(),
                Op::HandOn(taken) => book.deliver(taken),
                Op::Started(of) => {
                    let of: Vec<usize> = of.into_iter().filter(|i| *i < book.messages.len()).collect();
                    book.started(&of);
                }
                Op::Input(i, state) if i < book.messages.len() => book.input(i, state),
                Op::Input(..) => {}
                Op::Say(event) => {
                    lines += 1;
                    let line = Line { bytes: Bytes::new(), omitted: 0 };
                    let raw = Some((Stream::Stdout, line));
                    book.observe(Observation { raw, events: vec![event] });
                }
                Op::End(resumed) => {
                    book.end();
                    let session = if resumed {
                        SessionChoice::Resume("s".into())
                    } else {
                        SessionChoice::Fresh
                    };
                    book.ledger.set_session(session);
                    book.ledger.connected();
                }
            }
            prop_assert_eq!(book.lines, lines);
            let waiting: Vec<&String> = book.ledger.pending().map(|input| &input.text).collect();
            prop_assert!(waiting.is_sorted_by_key(|text| text[1..].parse::<u32>().unwrap()));
        }
        book.end();
    }
}
