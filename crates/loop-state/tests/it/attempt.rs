//! Single decisions of an attempt.

use std::time::{Duration, Instant};

use loop_state::times::{INTERRUPTED_TURN, TURN_END_AFTER_INTERRUPT};
use loop_state::{
    AgentState, AgentTurnEnd, AskAnswer, AskPolicy, AttemptEffect, AttemptInput, AttemptMachine,
    AttemptOptions, Denial, Head, Machine, PauseAfter, Request, StepContext, Timestamp,
    TurnOutcome,
};

use crate::{at, rules};

const HOUR: Duration = Duration::from_secs(3600);
const BUDGET: Duration = Duration::from_secs(8);

struct Trace {
    machine: AttemptMachine,
    head: Head,
    now: Instant,
    budget: Duration,
}

fn options() -> AttemptOptions {
    AttemptOptions {
        parses_output: true,
        interruptible: true,
        steerable: true,
        task_timeout: HOUR,
        promise: Some("DONE".into()),
        fingerprint: None,
        asks: AskPolicy::Person,
        terminal: false,
    }
}

impl Trace {
    /// Creates an attempt whose agent runs.
    fn new() -> Self {
        let mut trace = Self::with(options());
        assert_eq!(trace.then(AttemptInput::Started), []);
        trace
    }

    /// Creates an attempt whose agent is being started.
    fn with(options: AttemptOptions) -> Self {
        let mut head = Head::new(rules(|_| {})).unwrap();
        head.session = Some("s".into());
        Self {
            machine: AttemptMachine::new(options),
            head,
            now: Instant::now(),
            budget: BUDGET,
        }
    }

    fn then(&mut self, input: AttemptInput) -> Vec<AttemptEffect> {
        let moment = StepContext {
            head: &self.head,
            now: self.now,
            at: Timestamp::from_millis(0),
            budget: self.budget,
            frozen: false,
        };
        self.machine.step(moment, input)
    }

    fn at_deadline(&mut self) -> Vec<AttemptEffect> {
        self.now = self.machine.deadline().unwrap();
        self.then(AttemptInput::TimePassed)
    }
}

fn turn_began(has_inputs: bool) -> AttemptInput {
    AttemptInput::TurnBegan {
        is_injected: false,
        has_inputs,
        steers: Vec::new(),
    }
}

fn tool_started() -> AttemptInput {
    let (id, activity) = ("1".into(), "Bash: make".into());
    AttemptInput::ToolStarted { id, activity }
}

fn tool_finished() -> AttemptInput {
    AttemptInput::ToolFinished("1".into())
}

fn turn_ended(how: AgentTurnEnd) -> AttemptInput {
    AttemptInput::TurnEnded {
        how,
        detail: String::new(),
        why: "why".into(),
        pending: false,
        exited: false,
    }
}

/// Returns the end of an interrupted turn while another message waits.
fn interrupted_for_another() -> AttemptInput {
    AttemptInput::TurnEnded {
        how: AgentTurnEnd::Interrupted,
        detail: String::new(),
        why: "why".into(),
        pending: true,
        exited: false,
    }
}

fn completed() -> AttemptInput {
    turn_ended(AgentTurnEnd::Completed)
}

fn message(text: &str) -> AttemptInput {
    let (text, partial) = (text.into(), false);
    AttemptInput::Message { text, partial }
}

/// Returns the outcomes that an attempt reports.
fn reports(effects: &[AttemptEffect]) -> Vec<&TurnOutcome> {
    let outcomes = effects.iter().filter_map(|effect| match effect {
        AttemptEffect::Report(outcome) => Some(outcome),
        _ => None,
    });
    outcomes.collect()
}

#[test]
fn x114c_ended_task_extends_the_wait_for_the_others() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::BackgroundTasks(2));
    assert_eq!(trace.machine.awaited_tasks(), None, "the turn is not over");
    let effects = trace.then(completed());
    assert!(effects.contains(&AttemptEffect::AwaitingTasks { tasks: 2 }));
    let first = trace.machine.deadline();
    assert_eq!(first, Some(trace.now + HOUR));
    trace.now += Duration::from_secs(60);
    for tasks in [3, 3] {
        trace.then(AttemptInput::BackgroundTasks(tasks));
        assert_eq!(
            trace.machine.deadline(),
            first,
            "only the end of a task extends the time"
        );
    }
    trace.then(AttemptInput::BackgroundTasks(2));
    assert_eq!(trace.machine.deadline(), Some(trace.now + HOUR));
    assert_eq!(
        trace.machine.deadline_while_suspended(),
        None,
        "the run is suspended"
    );
    assert_eq!(trace.machine.awaited_tasks(), Some(2));
    trace.then(turn_began(false));
    assert_eq!(
        trace.machine.awaited_tasks(),
        None,
        "a turn of the agent runs"
    );
    assert_eq!(reports(&trace.then(completed())), [] as [&TurnOutcome; 0]);
    trace.then(AttemptInput::BackgroundTasks(0));
    let effects = trace.then(AttemptInput::EventsProcessed);
    assert_eq!(reports(&effects), [&TurnOutcome::Completed]);
}

#[test]
fn silent_tasks_are_given_up_and_their_end_is_awaited() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::BackgroundTasks(1));
    trace.then(completed());
    assert_eq!(trace.at_deadline(), [AttemptEffect::Close { tasks: 1 }]);
    assert_eq!(trace.machine.agent(), AgentState::Closing);
    let effects = trace.then(AttemptInput::Closed);
    assert_eq!(reports(&effects), [&TurnOutcome::Completed]);
}

#[test]
fn dead_agent_blocks_nothing() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::BackgroundTasks(1));
    trace.then(completed());
    trace.then(AttemptInput::Exited);
    assert_eq!(trace.machine.awaited_tasks(), None);
    let effects = trace.then(AttemptInput::EventsProcessed);
    assert_eq!(reports(&effects), [&TurnOutcome::Completed]);

    // A stop can end its tree before the conversation ends.
    let mut trace = Trace::new();
    trace.then(AttemptInput::BackgroundTasks(1));
    trace.then(completed());
    let by = trace.now + BUDGET;
    let stop = AttemptInput::Stop {
        skip_interrupt: false,
    };
    assert_eq!(trace.then(stop), [AttemptEffect::End { by }]);
    let effects = trace.then(AttemptInput::TreeGone);
    assert_eq!(reports(&effects), [&TurnOutcome::Completed]);
}

#[test]
fn turn_before_one_started_by_the_agent_counts() {
    let own = [
        (AgentTurnEnd::Failed, "", TurnOutcome::Completed),
        (AgentTurnEnd::Completed, "DONE", TurnOutcome::PromiseMade),
    ];
    for (how, text, expected) in own {
        let mut trace = Trace::new();
        trace.then(AttemptInput::BackgroundTasks(1));
        trace.then(completed());
        trace.then(turn_began(false));
        trace.then(AttemptInput::BackgroundTasks(0));
        trace.then(message(text));
        let effects = trace.then(turn_ended(how));
        assert_eq!(reports(&effects), [&expected]);
    }
}

/// The agent's own turn doesn't replace the outcome of the turn before, and neither does a message that goes into a running turn.
#[test]
fn failure_counts_in_a_turn_that_somebody_requested() {
    for (is_injected, has_inputs, counts) in [
        (false, true, true),
        (false, false, false),
        (true, true, false),
    ] {
        let mut trace = Trace::new();
        trace.then(AttemptInput::BackgroundTasks(1));
        trace.then(completed());
        trace.then(AttemptInput::TurnBegan {
            is_injected,
            has_inputs,
            steers: Vec::new(),
        });
        trace.then(AttemptInput::BackgroundTasks(0));
        let effects = trace.then(turn_ended(AgentTurnEnd::Failed));
        let has_failed = matches!(reports(&effects)[..], [TurnOutcome::Failed(_)]);
        assert_eq!(has_failed, counts, "{effects:?}");
    }
}

#[test]
fn stopped_agent_gets_its_time_before_its_tree_is_ended() {
    let mut trace = Trace::new();
    let began = trace.now;
    let effects = trace.then(AttemptInput::Stop {
        skip_interrupt: false,
    });
    assert_eq!(effects, [AttemptEffect::Interrupt { drop_queued: true }]);
    assert_eq!(
        trace.machine.deadline(),
        Some(began + TURN_END_AFTER_INTERRUPT)
    );
    let by = began + BUDGET;
    assert_eq!(trace.at_deadline(), [AttemptEffect::End { by }]);
    assert_eq!(trace.then(AttemptInput::TreeGone), []);
    let died = turn_ended(AgentTurnEnd::Died);
    assert_eq!(reports(&trace.then(died)), [&TurnOutcome::Stopped]);
}

#[test]
fn short_stop_gives_half_of_its_time_to_the_turn() {
    let mut trace = Trace::new();
    trace.budget = Duration::from_secs(2);
    trace.then(AttemptInput::Stop {
        skip_interrupt: false,
    });
    let until = trace.now + Duration::from_secs(1);
    assert_eq!(trace.machine.deadline(), Some(until));
}

#[test]
fn an_abort_leaves_the_agent_no_time() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::Stop {
        skip_interrupt: false,
    });
    let by = trace.now + Duration::from_secs(1);
    trace.then(AttemptInput::Abort { by });
    assert_eq!(trace.at_deadline(), [AttemptEffect::End { by }]);
}

#[test]
fn a_turn_that_ignores_an_interrupt_is_ended_and_its_session_continues() {
    let mut trace = Trace::new();
    let began = trace.now;
    trace.then(AttemptInput::Interrupt);
    assert_eq!(trace.machine.deadline(), Some(began + INTERRUPTED_TURN));
    // A second press doesn't extend the time.
    trace.now += Duration::from_secs(1);
    trace.then(AttemptInput::Interrupt);
    assert_eq!(trace.machine.deadline(), Some(began + INTERRUPTED_TURN));
    let effects = trace.at_deadline();
    assert_eq!(effects[0], AttemptEffect::ReportInterruptOverdue);
    trace.then(turn_ended(AgentTurnEnd::Died));
    let effects = trace.then(AttemptInput::TreeGone);
    assert_eq!(reports(&effects), [&TurnOutcome::Interrupted]);
    let replace = true;
    assert_eq!(
        trace.then(AttemptInput::Continue),
        [
            AttemptEffect::Start {
                replace,
                session: "s".into()
            },
            AttemptEffect::SendContinue
        ]
    );
}

#[test]
fn interrupt_before_the_agent_runs_is_sent_when_it_runs() {
    let mut trace = Trace::new();
    trace.machine = AttemptMachine::new(options());
    assert_eq!(trace.then(AttemptInput::Interrupt), []);
    let drop_queued = false;
    assert_eq!(
        trace.then(AttemptInput::Started),
        [AttemptEffect::Interrupt { drop_queued }]
    );
    let by = trace.now + INTERRUPTED_TURN;
    assert_eq!(trace.machine.deadline(), Some(by));
}

#[test]
fn a_pause_interrupts_the_turn_when_the_last_tool_ends() {
    for pausing in [false, true] {
        let mut trace = Trace::new();
        trace.then(tool_started());
        let (id, activity) = ("2".into(), "Bash: ls".into());
        trace.then(AttemptInput::ToolStarted { id, activity });
        trace.then(AttemptInput::PauseAt(PauseAfter::Tool));
        trace.head.pausing = pausing;
        let first = AttemptInput::ToolFinished("2".into());
        assert_eq!(trace.then(first), []);
        let interrupts = trace.then(tool_finished()).len();
        assert_eq!(
            interrupts,
            usize::from(pausing),
            "a withdrawn pause interrupts nothing"
        );
        let by = pausing.then_some(trace.now + INTERRUPTED_TURN);
        assert_eq!(trace.machine.deadline(), by);
    }
}

#[test]
fn pause_at_a_tool_survives_an_interrupt_for_a_message() {
    let pause = AttemptInput::PauseAt(PauseAfter::Tool);
    let interrupt = AttemptInput::Interrupt;
    for requests in [[pause.clone(), interrupt.clone()], [interrupt, pause]] {
        let mut trace = Trace::new();
        trace.head.pausing = true;
        for request in requests {
            trace.then(request);
        }
        trace.then(tool_started());
        assert_eq!(
            trace.then(tool_finished()),
            [],
            "the turn is already being ended"
        );
        // The message gets its own turn.
        trace.then(interrupted_for_another());
        trace.then(tool_started());
        let drop_queued = false;
        assert_eq!(
            trace.then(tool_finished()),
            [AttemptEffect::Interrupt { drop_queued }]
        );
    }
}

#[test]
fn pause_at_a_tool_survives_the_turn_of_a_queued_message() {
    let mut trace = Trace::new();
    trace.head.pausing = true;
    trace.then(AttemptInput::PauseAt(PauseAfter::Tool));
    for _turn in 0..2 {
        trace.then(tool_started());
        let drop_queued = false;
        let interrupt = AttemptEffect::Interrupt { drop_queued };
        assert_eq!(trace.then(tool_finished()), [interrupt]);
        trace.then(interrupted_for_another());
    }
}

#[test]
fn turn_continues_with_waiting_messages_if_its_agent_runs() {
    for (how, exited, reported) in [
        (AgentTurnEnd::Completed, false, None),
        (AgentTurnEnd::Interrupted, false, None),
        (AgentTurnEnd::Completed, true, Some(&TurnOutcome::Completed)),
        (
            AgentTurnEnd::Interrupted,
            true,
            Some(&TurnOutcome::Interrupted),
        ),
    ] {
        let mut trace = Trace::new();
        trace.then(AttemptInput::Interrupt);
        let effects = trace.then(AttemptInput::TurnEnded {
            how,
            detail: String::new(),
            why: "why".into(),
            pending: true,
            exited,
        });
        assert_eq!(reports(&effects).first().copied(), reported, "{effects:?}");
        let is_reported = effects.contains(&AttemptEffect::ReportContinued);
        assert_eq!(is_reported, !exited && how == AgentTurnEnd::Interrupted);
    }
}

#[test]
fn failure_after_an_interrupt_is_a_failure() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::Interrupt);
    let effects = trace.then(turn_ended(AgentTurnEnd::Failed));
    assert!(matches!(reports(&effects)[..], [TurnOutcome::Failed(_)]));
}

#[test]
fn agent_stays_open_only_after_an_interrupt() {
    for (how, closes) in [
        (AgentTurnEnd::Completed, true),
        (AgentTurnEnd::Interrupted, false),
    ] {
        let mut trace = Trace::new();
        trace.then(AttemptInput::Interrupt);
        let effects = trace.then(turn_ended(how));
        let is_closed = effects.contains(&AttemptEffect::CloseWhenIdle);
        assert_eq!(is_closed, closes, "{effects:?}");
    }
}

#[test]
fn withdrawn_pause_at_a_tool_stays_withdrawn() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::PauseAt(PauseAfter::Tool));
    for pausing in [false, true] {
        trace.head.pausing = pausing;
        trace.then(tool_started());
        assert_eq!(trace.then(tool_finished()), []);
    }
}

#[test]
fn a_second_stop_gives_no_more_time() {
    let mut trace = Trace::new();
    let by = trace.now + BUDGET;
    trace.then(AttemptInput::Stop {
        skip_interrupt: false,
    });
    let until = trace.machine.deadline();
    trace.now += Duration::from_secs(1);
    trace.then(AttemptInput::Stop {
        skip_interrupt: false,
    });
    assert_eq!(trace.machine.deadline(), until);
    assert_eq!(trace.at_deadline(), [AttemptEffect::End { by }]);
}

#[test]
fn the_tree_of_a_turn_is_ended_before_a_long_wait() {
    let mut trace = Trace::new();
    let outcome = TurnOutcome::Transient("why".into());
    let effects = trace.then(turn_ended(AgentTurnEnd::ProtocolError));
    let by = trace.now + BUDGET;
    assert!(effects.contains(&AttemptEffect::End { by }));
    let effects = trace.then(AttemptInput::TreeGone);
    assert_eq!(reports(&effects), [&outcome]);
}

#[test]
fn a_stopped_agent_is_not_interrupted_for_a_person() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::Stop {
        skip_interrupt: false,
    });
    let until = trace.machine.deadline();
    assert_eq!(trace.then(AttemptInput::Interrupt), []);
    assert_eq!(trace.machine.deadline(), until);
}

#[test]
fn new_process_starts_without_state_of_the_previous() {
    let mut trace = Trace::new();
    trace.head.pausing = true;
    trace.then(AttemptInput::PauseAt(PauseAfter::Tool));
    trace.then(AttemptInput::BackgroundTasks(1));
    trace.then(AttemptInput::Interrupt);
    trace.then(tool_started());
    let died = turn_ended(AgentTurnEnd::Died);
    trace.then(AttemptInput::Exited);
    assert_eq!(reports(&trace.then(died)), [&TurnOutcome::Interrupted]);
    assert!(!trace.machine.is_busy(), "the tool has ended");
    trace.then(AttemptInput::Continue);
    trace.then(AttemptInput::Started);
    trace.then(tool_started());
    assert_eq!(trace.then(tool_finished()), [], "the pause had ended");
    assert_eq!(reports(&trace.then(completed())), [&TurnOutcome::Completed]);
}

#[test]
fn stop_reports_a_turn_that_could_not_begin() {
    let not_started =
        || AttemptInput::NotStarted(TurnOutcome::Failed("the conversation is over".into()));
    for tree_first in [true, false] {
        let mut trace = Trace::new();
        trace.then(AttemptInput::Interrupt);
        trace.then(turn_ended(AgentTurnEnd::Interrupted));
        trace.then(AttemptInput::Continue);
        trace.then(AttemptInput::Stop {
            skip_interrupt: true,
        });
        let (first, second) = match tree_first {
            true => (AttemptInput::TreeGone, not_started()),
            false => (not_started(), AttemptInput::TreeGone),
        };
        assert_eq!(reports(&trace.then(first)), [] as [&TurnOutcome; 0]);
        assert_eq!(reports(&trace.then(second)), [&TurnOutcome::Stopped]);
        assert_eq!(trace.then(not_started()), []);
    }
}

#[test]
fn closing_session_continues_nothing() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::BackgroundTasks(1));
    trace.then(completed());
    assert_eq!(trace.at_deadline(), [AttemptEffect::Close { tasks: 1 }]);
    assert_eq!(trace.then(AttemptInput::Continue), []);
    let effects = trace.then(AttemptInput::Closed);
    assert_eq!(reports(&effects), [&TurnOutcome::Completed]);
}

#[test]
fn suspended_time_moves_every_deadline() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::Stop {
        skip_interrupt: false,
    });
    let before = trace.machine.deadline().unwrap();
    trace.then(AttemptInput::Thawed(HOUR));
    assert_eq!(trace.machine.deadline(), Some(before + HOUR));
    let by = trace.now + HOUR + BUDGET;
    assert_eq!(trace.at_deadline(), [AttemptEffect::End { by }]);
}

#[test]
fn steers_count_as_read_when_the_agent_answers() {
    let mut trace = Trace::new();
    let began = AttemptInput::TurnBegan {
        is_injected: false,
        has_inputs: true,
        steers: vec![3, 4],
    };
    assert_eq!(trace.then(began), []);
    assert!(trace.machine.awaits_answer());
    assert_eq!(
        trace.then(AttemptInput::Answered),
        [
            AttemptEffect::ReportPrompted,
            AttemptEffect::ReportSteersSeen(vec![3, 4])
        ]
    );
    assert!(!trace.machine.awaits_answer());
    assert_eq!(trace.then(AttemptInput::Answered), []);

    // A later turn reads its messages at once.
    assert_eq!(trace.then(turn_began(true)), []);
    let began = AttemptInput::TurnBegan {
        is_injected: true,
        has_inputs: true,
        steers: vec![5],
    };
    let seen = AttemptEffect::ReportSteersSeen(vec![5]);
    assert_eq!(trace.then(began), [seen]);
}

/// The time of such a wait doesn't count as idle.
#[test]
fn agent_is_busy_while_its_tools_run_or_its_tasks_are_awaited() {
    let mut trace = Trace::new();
    trace.then(tool_started());
    assert!(trace.machine.is_busy());
    assert!(trace.machine.tools().eq(["Bash: make"]));
    trace.then(tool_finished());
    assert!(!trace.machine.is_busy());

    trace.then(AttemptInput::BackgroundTasks(1));
    assert!(!trace.machine.is_busy(), "the turn is not over");
    trace.then(completed());
    assert!(trace.machine.is_busy());
    trace.then(AttemptInput::BackgroundTasks(0));
    assert!(!trace.machine.is_busy());
}

/// Returns the outcome of the turn.
fn outcome(trace: &mut Trace, how: AgentTurnEnd) -> TurnOutcome {
    let effects = trace.then(turn_ended(how));
    let outcome = effects.into_iter().find_map(|effect| match effect {
        AttemptEffect::RecordTurnEnd { outcome, .. } => Some(outcome),
        _ => None,
    });
    outcome.unwrap()
}

#[test]
fn completion_promise_of_an_earlier_turn_does_not_count() {
    for (injected, expected) in [
        (true, TurnOutcome::PromiseMade),
        (false, TurnOutcome::Completed),
    ] {
        let mut trace = Trace::new();
        trace.then(message("DONE"));
        trace.then(AttemptInput::TurnBegan {
            is_injected: injected,
            has_inputs: true,
            steers: Vec::new(),
        });
        assert_eq!(outcome(&mut trace, AgentTurnEnd::Completed), expected);
    }
}

#[test]
fn output_is_the_answer_only_for_command_agents() {
    for (understands, expected) in [
        (true, TurnOutcome::Completed),
        (false, TurnOutcome::PromiseMade),
    ] {
        let mut trace = Trace::with(AttemptOptions {
            parses_output: understands,
            ..options()
        });
        trace.then(AttemptInput::Started);
        trace.then(AttemptInput::Line(b"DONE".to_vec()));
        assert_eq!(outcome(&mut trace, AgentTurnEnd::Completed), expected);
    }
}

#[test]
fn turn_waits_for_the_reported_rate_limit() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::Limited(Some(Timestamp::from_millis(5))));
    let expected = TurnOutcome::ServiceUnavailable {
        reset: Some(Timestamp::from_millis(5)),
        why: "why".into(),
    };
    assert_eq!(outcome(&mut trace, AgentTurnEnd::RateLimited), expected);
}

#[test]
fn result_of_a_completed_turn_is_reported_before_the_next_phase() {
    for (phases, how, is_said) in [
        (1, AgentTurnEnd::Completed, false),
        (2, AgentTurnEnd::Completed, true),
        (2, AgentTurnEnd::Failed, false),
    ] {
        let mut trace = Trace::new();
        let first = trace.head.rules.phases[0].clone();
        trace.head.rules.phases.resize(phases, first);
        trace.then(message("the plan"));
        let effects = trace.then(turn_ended(how));
        let said = AttemptEffect::ReportResult("the plan".into());
        assert_eq!(effects.contains(&said), is_said, "{phases} {how:?}");
        trace.head.phase = 1;
        trace.then(turn_began(true));
        trace.then(message("the plan"));
        let effects = trace.then(turn_ended(how));
        assert!(!effects.contains(&said), "{phases} {how:?}");
    }
}

#[test]
fn turn_without_changes_makes_no_progress_unless_it_was_stopped() {
    for (fingerprint, stop_requested, expected) in [
        (Some(1), false, vec![AttemptEffect::ReportNoProgress]),
        (Some(1), true, vec![]),
        (Some(2), false, vec![]),
        (None, false, vec![]),
    ] {
        let mut trace = Trace::with(AttemptOptions {
            fingerprint: Some(1),
            ..options()
        });
        trace.then(AttemptInput::Started);
        let effects = trace.then(completed());
        assert!(effects.contains(&AttemptEffect::ExamineWorkingTree));
        let looked = AttemptInput::WorkingTreeExamined {
            fingerprint,
            stop_requested,
        };
        assert_eq!(trace.then(looked), expected);
    }
    // A tool call counts as progress.
    let mut trace = Trace::new();
    trace.then(tool_started());
    trace.then(tool_finished());
    assert!(
        !trace
            .then(completed())
            .contains(&AttemptEffect::ExamineWorkingTree)
    );
}

#[test]
fn steer_delivery_depends_on_the_abilities_of_the_agent() {
    let send = AttemptEffect::Send {
        steer: 7,
        again: false,
    };
    let (delivered, next) = (
        AttemptEffect::SteerDelivered(7),
        AttemptEffect::NextPrompt(7),
    );
    for (interruptible, steerable, delivers, sent) in [
        (true, true, &send, &delivered),
        // The steer gets its own turn, unless it is too late for that.
        (true, false, &send, &next),
        (false, false, &next, &next),
    ] {
        let mut trace = Trace::with(AttemptOptions {
            interruptible,
            steerable,
            ..options()
        });
        trace.then(AttemptInput::Started);
        let deliver = AttemptInput::Deliver(7);
        assert_eq!(trace.then(deliver), std::slice::from_ref(delivers));
        if *delivers == send {
            let again = false;
            let report = AttemptInput::Sent { steer: 7, again };
            assert_eq!(trace.then(report), std::slice::from_ref(sent));
        }
    }
    let mut trace = Trace::new();
    trace.then(AttemptInput::Exited);
    let effects = trace.then(AttemptInput::Deliver(7));
    let next = std::slice::from_ref(&next);
    assert_eq!(effects, next, "the process has exited");
    assert_eq!(trace.then(AttemptInput::Dropped(7)), next);
    assert_eq!(AttemptMachine::absent(&AttemptInput::Deliver(7)), next);
}

/// Returns a run whose agent works and that has recorded these steers.
fn run_with_steers(texts: &[&str]) -> Head {
    let mut machine = Machine::new(rules(|_| {})).unwrap();
    machine.step(at(0, loop_state::MachineInput::Started));
    for text in texts {
        let (text, now) = ((*text).to_owned(), false);
        let request = Request::Steer { text, now };
        machine.step(at(1, loop_state::MachineInput::Requested(request)));
    }
    let mut head = machine.head().clone();
    head.session = Some("s".into());
    head
}

#[test]
fn interrupted_session_continues_with_unsent_messages() {
    let again = true;
    let send = |steer| AttemptEffect::Send { steer, again };
    for (sent, expected) in [
        (vec![], vec![send(1), send(2)]),
        (vec![1], vec![send(2)]),
        // The conversation delivers messages that were already sent.
        (vec![1, 2], vec![]),
    ] {
        let mut trace = Trace::new();
        trace.head = run_with_steers(&["one", "two"]);
        for steer in &sent {
            let (steer, again) = (*steer, false);
            trace.then(AttemptInput::Sent { steer, again });
        }
        trace.then(AttemptInput::Interrupt);
        trace.then(turn_ended(AgentTurnEnd::Interrupted));
        assert_eq!(trace.then(AttemptInput::Continue), expected, "{sent:?}");
        // A steer that continues the session is delivered to any agent.
        let report = AttemptInput::Sent { steer: 2, again };
        assert_eq!(trace.then(report), [AttemptEffect::SteerDelivered(2)]);
    }
    let mut trace = Trace::new();
    trace.then(AttemptInput::Interrupt);
    trace.then(turn_ended(AgentTurnEnd::Interrupted));
    let effects = trace.then(AttemptInput::Continue);
    assert_eq!(effects, [AttemptEffect::SendContinue]);
}

#[test]
fn replaced_conversation_has_no_sent_messages() {
    let mut trace = Trace::new();
    trace.head = run_with_steers(&["one"]);
    let (steer, again) = (1, false);
    trace.then(AttemptInput::Sent { steer, again });
    trace.then(AttemptInput::Interrupt);
    trace.at_deadline();
    trace.then(turn_ended(AgentTurnEnd::Died));
    trace.then(AttemptInput::TreeGone);
    let effects = trace.then(AttemptInput::Continue);
    let again = true;
    assert_eq!(effects[1], AttemptEffect::Send { steer, again });
}

#[test]
fn session_without_id_fails_if_its_agent_is_gone() {
    let mut trace = Trace::new();
    trace.head.session = None;
    trace.then(AttemptInput::Interrupt);
    trace.then(turn_ended(AgentTurnEnd::Interrupted));
    trace.then(AttemptInput::Exited);
    let effects = trace.then(AttemptInput::Continue);
    let why = "the agent has exited, and its session id is unknown";
    assert_eq!(
        effects,
        [AttemptEffect::Report(TurnOutcome::Failed(why.into()))]
    );
    let effects = AttemptMachine::absent(&AttemptInput::Continue);
    assert!(matches!(&reports(&effects)[..], [TurnOutcome::Failed(_)]));
    assert_eq!(AttemptMachine::absent(&AttemptInput::Interrupt), []);
}

#[test]
fn sent_message_survives_an_interrupt_of_a_background_wait() {
    for is_sent in [false, true] {
        let mut trace = Trace::new();
        trace.then(AttemptInput::BackgroundTasks(1));
        trace.then(completed());
        if is_sent {
            let (steer, again) = (1, false);
            trace.then(AttemptInput::Sent { steer, again });
        }
        let effects = trace.then(AttemptInput::Interrupt);
        let expected: &[_] = match is_sent {
            true => &[],
            false => &[&TurnOutcome::Interrupted],
        };
        assert_eq!(reports(&effects), expected);
    }
}

#[test]
fn message_that_a_turn_has_read_begins_no_other_turn() {
    for (read, outcome) in [(1, Some(&TurnOutcome::Interrupted)), (2, None)] {
        let mut trace = Trace::new();
        trace.then(AttemptInput::BackgroundTasks(1));
        trace.then(completed());
        let (steer, again) = (1, false);
        trace.then(AttemptInput::Sent { steer, again });
        trace.then(AttemptInput::TurnBegan {
            is_injected: false,
            has_inputs: true,
            steers: vec![read],
        });
        trace.then(completed());
        let effects = trace.then(AttemptInput::Interrupt);
        assert_eq!(reports(&effects).first().copied(), outcome, "{effects:?}");
    }
}

fn asked() -> AttemptInput {
    AttemptInput::Asked("1".into())
}

fn answer_of(effects: &[AttemptEffect]) -> &AskAnswer {
    let [AttemptEffect::AnswerAsk { ask, answer }] = effects else {
        panic!("the request is not answered: {effects:?}");
    };
    assert_eq!(ask, "1");
    answer
}

#[test]
fn permission_request_waits_only_if_the_run_is_attended() {
    for (asks, terminal, attended, expected) in [
        (AskPolicy::Person, false, true, None),
        (AskPolicy::Person, true, false, None),
        (
            AskPolicy::Person,
            false,
            false,
            Some(AskAnswer::Deny(Denial::Unattended)),
        ),
        (AskPolicy::Allow, true, true, Some(AskAnswer::Allow)),
        (
            AskPolicy::Deny,
            true,
            true,
            Some(AskAnswer::Deny(Denial::Policy)),
        ),
    ] {
        let mut trace = Trace::with(AttemptOptions {
            asks,
            terminal,
            ..options()
        });
        trace.then(AttemptInput::Started);
        trace.head.attended = attended;
        let effects = trace.then(asked());
        match &expected {
            Some(expected) => assert_eq!(answer_of(&effects), expected),
            None => assert_eq!(effects, [AttemptEffect::ShowAsk("1".into())]),
        }
        assert_eq!(trace.machine.is_asking("1"), expected.is_none());
        assert_eq!(trace.machine.is_busy(), expected.is_none());
    }
}

#[test]
fn last_detach_denies_open_requests_unless_the_terminal_is_attended() {
    for terminal in [false, true] {
        let mut trace = Trace::with(AttemptOptions {
            terminal,
            ..options()
        });
        trace.head.attended = true;
        trace.then(asked());
        assert_eq!(trace.then(AttemptInput::Attended(true)), []);
        let effects = trace.then(AttemptInput::Attended(false));
        match terminal {
            true => assert_eq!(effects, []),
            false => assert_eq!(answer_of(&effects), &AskAnswer::Deny(Denial::Left)),
        }
        assert_eq!(trace.machine.is_asking("1"), terminal);
    }
}

#[test]
fn a_request_for_permission_is_answered_once() {
    let answered = |allow| AttemptInput::AskAnswered {
        ask: "1".into(),
        allow,
        message: "not that".into(),
    };
    let mut trace = Trace::new();
    trace.head.attended = true;
    trace.then(asked());
    let denial = AskAnswer::Deny(Denial::Person("not that".into()));
    assert_eq!(answer_of(&trace.then(answered(false))), &denial);
    assert!(!trace.machine.is_busy());
    assert_eq!(trace.then(answered(true)), [AttemptEffect::RefuseAnswer]);
    trace.then(asked());
    trace.then(AttemptInput::AskWithdrawn("1".into()));
    assert_eq!(trace.then(answered(true)), [AttemptEffect::RefuseAnswer]);
    trace.then(asked());
    assert_eq!(answer_of(&trace.then(answered(true))), &AskAnswer::Allow);
    let absent = AttemptMachine::absent(&answered(true));
    assert_eq!(absent, [AttemptEffect::RefuseAnswer]);
}
