//! What an attempt decides, in single steps.

use std::time::{Duration, Instant};

use loop_state::times::{INTERRUPTED_TURN, POLITE_STOP};
use loop_state::{
    AgentState, AttemptEffect, AttemptInput, AttemptMachine, Moment, PauseAfter, TurnEndKind,
    TurnOutcome,
};

const HOUR: Duration = Duration::from_secs(3600);
const BUDGET: Duration = Duration::from_secs(8);

struct Trace {
    machine: AttemptMachine,
    moment: Moment,
}

impl Trace {
    /// Begins an attempt whose agent runs.
    fn new() -> Self {
        let moment = Moment {
            now: Instant::now(),
            budget: BUDGET,
            frozen: false,
            pausing: false,
        };
        let machine = AttemptMachine::new(true, HOUR);
        let mut trace = Self { machine, moment };
        assert_eq!(trace.then(AttemptInput::Started), []);
        trace
    }

    fn then(&mut self, input: AttemptInput) -> Vec<AttemptEffect> {
        self.machine.step(self.moment, input)
    }

    fn at_deadline(&mut self) -> Vec<AttemptEffect> {
        self.moment.now = self.machine.deadline(false).unwrap();
        self.then(AttemptInput::Time)
    }
}

fn turn_began(has_inputs: bool) -> AttemptInput {
    AttemptInput::TurnBegan {
        injected: false,
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

fn turn_ended(how: TurnEndKind, outcome: TurnOutcome) -> AttemptInput {
    let (pending, exited) = (false, false);
    AttemptInput::TurnEnded {
        how,
        outcome,
        pending,
        exited,
    }
}

fn completed() -> AttemptInput {
    turn_ended(TurnEndKind::Completed, TurnOutcome::Completed)
}

/// Returns what an attempt reports of its turn.
fn reports(effects: &[AttemptEffect]) -> Vec<&TurnOutcome> {
    let outcomes = effects.iter().filter_map(|effect| match effect {
        AttemptEffect::Report(outcome) => Some(outcome),
        _ => None,
    });
    outcomes.collect()
}

#[test]
fn x114c_a_task_that_ends_gives_the_others_time() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::BackgroundTasks(2));
    assert_eq!(trace.machine.held_for(), None, "its turn is not over");
    let effects = trace.then(completed());
    assert!(effects.contains(&AttemptEffect::Holding { tasks: 2 }));
    let first = trace.machine.deadline(false);
    trace.moment.now += Duration::from_secs(60);
    trace.then(AttemptInput::BackgroundTasks(3));
    assert_eq!(
        trace.machine.deadline(false),
        first,
        "one more is no progress"
    );
    trace.then(AttemptInput::BackgroundTasks(2));
    assert_eq!(trace.machine.deadline(false), Some(trace.moment.now + HOUR));
    assert_eq!(trace.machine.deadline(true), None, "it is suspended");
    assert_eq!(trace.machine.held_for(), Some(2));
    trace.then(turn_began(false));
    assert_eq!(trace.machine.held_for(), None, "it works by itself");
    assert_eq!(reports(&trace.then(completed())), [] as [&TurnOutcome; 0]);
    trace.then(AttemptInput::BackgroundTasks(0));
    let effects = trace.then(AttemptInput::Heard);
    assert_eq!(reports(&effects), [&TurnOutcome::Completed]);
}

#[test]
fn tasks_of_which_nothing_comes_are_given_up_and_their_end_is_awaited() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::BackgroundTasks(1));
    trace.then(completed());
    assert_eq!(trace.at_deadline(), [AttemptEffect::Close { tasks: 1 }]);
    assert_eq!(trace.machine.agent(), AgentState::Closing);
    let effects = trace.then(AttemptInput::Closed);
    assert_eq!(reports(&effects), [&TurnOutcome::Completed]);
}

#[test]
fn an_agent_that_is_gone_holds_nothing() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::BackgroundTasks(1));
    trace.then(completed());
    trace.then(AttemptInput::Exited);
    assert_eq!(trace.machine.held_for(), None);
    let effects = trace.then(AttemptInput::Heard);
    assert_eq!(reports(&effects), [&TurnOutcome::Completed]);
}

#[test]
fn the_turn_before_one_that_the_agent_began_by_itself_counts() {
    let own = [
        (
            TurnEndKind::Failed,
            TurnOutcome::Failed("no".into()),
            TurnOutcome::Completed,
        ),
        (
            TurnEndKind::Completed,
            TurnOutcome::Claimed,
            TurnOutcome::Claimed,
        ),
    ];
    for (how, outcome, expected) in own {
        let mut trace = Trace::new();
        trace.then(AttemptInput::BackgroundTasks(1));
        trace.then(completed());
        trace.then(turn_began(false));
        trace.then(AttemptInput::BackgroundTasks(0));
        let effects = trace.then(turn_ended(how, outcome));
        assert_eq!(reports(&effects), [&expected]);
    }
}

#[test]
fn a_stopped_agent_has_its_time_and_then_its_tree_is_ended() {
    let mut trace = Trace::new();
    let began = trace.moment.now;
    let effects = trace.then(AttemptInput::Stop { at_once: false });
    assert_eq!(effects, [AttemptEffect::Interrupt { drop_queued: true }]);
    assert_eq!(trace.machine.deadline(false), Some(began + POLITE_STOP));
    let by = began + BUDGET;
    assert_eq!(trace.at_deadline(), [AttemptEffect::End { by }]);
    assert_eq!(trace.then(AttemptInput::TreeGone), []);
    let died = turn_ended(TurnEndKind::Died, TurnOutcome::Failed("gone".into()));
    assert_eq!(reports(&trace.then(died)), [&TurnOutcome::Stopped]);
}

#[test]
fn an_abort_leaves_the_agent_no_time() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::Stop { at_once: false });
    let by = trace.moment.now + Duration::from_secs(1);
    trace.then(AttemptInput::Abort { by });
    assert_eq!(trace.at_deadline(), [AttemptEffect::End { by }]);
}

#[test]
fn a_turn_that_ignores_an_interrupt_is_ended_and_its_session_continues() {
    let mut trace = Trace::new();
    let began = trace.moment.now;
    trace.then(AttemptInput::Interrupt { unread: false });
    assert_eq!(
        trace.machine.deadline(false),
        Some(began + INTERRUPTED_TURN)
    );
    // A second press does not give it more time.
    trace.moment.now += Duration::from_secs(1);
    trace.then(AttemptInput::Interrupt { unread: false });
    assert_eq!(
        trace.machine.deadline(false),
        Some(began + INTERRUPTED_TURN)
    );
    let effects = trace.at_deadline();
    assert_eq!(effects[0], AttemptEffect::InterruptOverdue);
    trace.then(turn_ended(
        TurnEndKind::Died,
        TurnOutcome::Failed("gone".into()),
    ));
    let effects = trace.then(AttemptInput::TreeGone);
    assert_eq!(reports(&effects), [&TurnOutcome::Interrupted]);
    let replace = true;
    assert_eq!(
        trace.then(AttemptInput::Continue),
        [AttemptEffect::Start { replace }, AttemptEffect::Continue]
    );
}

#[test]
fn an_interrupt_before_the_agent_runs_is_made_when_it_does() {
    let mut trace = Trace::new();
    trace.machine = AttemptMachine::new(true, HOUR);
    assert_eq!(trace.then(AttemptInput::Interrupt { unread: false }), []);
    let drop_queued = false;
    assert_eq!(
        trace.then(AttemptInput::Started),
        [AttemptEffect::Interrupt { drop_queued }]
    );
}

#[test]
fn a_pause_interrupts_the_turn_when_the_last_tool_ends() {
    for pausing in [false, true] {
        let mut trace = Trace::new();
        trace.then(tool_started());
        trace.then(AttemptInput::PauseAt(PauseAfter::Tool));
        trace.moment.pausing = pausing;
        let interrupts = trace.then(tool_finished()).len();
        assert_eq!(interrupts, usize::from(pausing), "a pause may be withdrawn");
    }
}

#[test]
fn a_pause_at_a_tool_outlives_an_interrupt_for_a_message() {
    let pause = AttemptInput::PauseAt(PauseAfter::Tool);
    let interrupt = AttemptInput::Interrupt { unread: true };
    for requests in [[pause.clone(), interrupt.clone()], [interrupt, pause]] {
        let mut trace = Trace::new();
        trace.moment.pausing = true;
        for request in requests {
            trace.then(request);
        }
        trace.then(tool_started());
        assert_eq!(
            trace.then(tool_finished()),
            [],
            "the turn is already to end"
        );
        // The message gets a turn of its own.
        trace.then(AttemptInput::TurnEnded {
            how: TurnEndKind::Interrupted,
            outcome: TurnOutcome::Failed("cut".into()),
            pending: true,
            exited: false,
        });
        trace.then(tool_started());
        let drop_queued = false;
        assert_eq!(
            trace.then(tool_finished()),
            [AttemptEffect::Interrupt { drop_queued }]
        );
    }
}

#[test]
fn a_pause_at_a_tool_outlives_the_turn_of_a_message_that_waited() {
    let mut trace = Trace::new();
    trace.moment.pausing = true;
    trace.then(AttemptInput::PauseAt(PauseAfter::Tool));
    for _turn in 0..2 {
        trace.then(tool_started());
        let drop_queued = false;
        let interrupt = AttemptEffect::Interrupt { drop_queued };
        assert_eq!(trace.then(tool_finished()), [interrupt]);
        trace.then(AttemptInput::TurnEnded {
            how: TurnEndKind::Interrupted,
            outcome: TurnOutcome::Failed("cut".into()),
            pending: true,
            exited: false,
        });
    }
}

#[test]
fn a_pause_at_a_tool_that_was_withdrawn_stays_withdrawn() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::PauseAt(PauseAfter::Tool));
    for pausing in [false, true] {
        trace.moment.pausing = pausing;
        trace.then(tool_started());
        assert_eq!(trace.then(tool_finished()), []);
    }
}

#[test]
fn a_second_stop_gives_no_more_time() {
    let mut trace = Trace::new();
    let by = trace.moment.now + BUDGET;
    trace.then(AttemptInput::Stop { at_once: false });
    let until = trace.machine.deadline(false);
    trace.moment.now += Duration::from_secs(1);
    trace.then(AttemptInput::Stop { at_once: false });
    assert_eq!(trace.machine.deadline(false), until);
    assert_eq!(trace.at_deadline(), [AttemptEffect::End { by }]);
}

#[test]
fn the_tree_of_a_turn_is_ended_before_a_long_wait() {
    let mut trace = Trace::new();
    let outcome = TurnOutcome::Transient("net".into());
    let effects = trace.then(turn_ended(TurnEndKind::Failed, outcome.clone()));
    let by = trace.moment.now + BUDGET;
    assert!(effects.contains(&AttemptEffect::End { by }));
    let effects = trace.then(AttemptInput::TreeGone);
    assert_eq!(reports(&effects), [&outcome]);
}

#[test]
fn a_stopped_agent_is_not_interrupted_for_a_person() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::Stop { at_once: false });
    let until = trace.machine.deadline(false);
    assert_eq!(trace.then(AttemptInput::Interrupt { unread: false }), []);
    assert_eq!(trace.machine.deadline(false), until);
}

#[test]
fn a_new_process_has_nothing_of_the_one_before_it() {
    let mut trace = Trace::new();
    trace.moment.pausing = true;
    trace.then(AttemptInput::PauseAt(PauseAfter::Tool));
    trace.then(AttemptInput::BackgroundTasks(1));
    trace.then(AttemptInput::Interrupt { unread: false });
    trace.then(tool_started());
    let died = turn_ended(TurnEndKind::Died, TurnOutcome::Failed("gone".into()));
    trace.then(AttemptInput::Exited);
    assert_eq!(reports(&trace.then(died)), [&TurnOutcome::Interrupted]);
    assert!(!trace.machine.is_busy(), "its tool is over");
    trace.then(AttemptInput::Continue);
    trace.then(AttemptInput::Started);
    trace.then(tool_started());
    assert_eq!(trace.then(tool_finished()), [], "the pause was over");
    assert_eq!(reports(&trace.then(completed())), [&TurnOutcome::Completed]);
}

#[test]
fn a_stop_reports_a_turn_that_could_not_begin_whether_its_tree_ended_before_or_after() {
    let not_started = || AttemptInput::NotStarted(TurnOutcome::Failed("it is over".into()));
    for tree_first in [true, false] {
        let mut trace = Trace::new();
        trace.then(AttemptInput::Interrupt { unread: false });
        trace.then(turn_ended(
            TurnEndKind::Interrupted,
            TurnOutcome::Interrupted,
        ));
        trace.then(AttemptInput::Continue);
        trace.then(AttemptInput::Stop { at_once: true });
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
fn a_session_that_is_being_closed_continues_nothing() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::BackgroundTasks(1));
    trace.then(AttemptInput::TurnEnded {
        how: TurnEndKind::Completed,
        outcome: TurnOutcome::Completed,
        pending: false,
        exited: false,
    });
    assert_eq!(trace.at_deadline(), [AttemptEffect::Close { tasks: 1 }]);
    assert_eq!(trace.then(AttemptInput::Continue), []);
    let effects = trace.then(AttemptInput::Closed);
    assert_eq!(reports(&effects), [&TurnOutcome::Completed]);
}

#[test]
fn suspended_time_moves_every_deadline() {
    let mut trace = Trace::new();
    trace.then(AttemptInput::Stop { at_once: false });
    let before = trace.machine.deadline(false).unwrap();
    trace.then(AttemptInput::Thawed(HOUR));
    assert_eq!(trace.machine.deadline(false), Some(before + HOUR));
    let by = trace.moment.now + HOUR + BUDGET;
    assert_eq!(trace.at_deadline(), [AttemptEffect::End { by }]);
}

#[test]
fn steers_count_as_read_when_the_agent_answers() {
    let mut trace = Trace::new();
    let began = AttemptInput::TurnBegan {
        injected: false,
        has_inputs: true,
        steers: vec![3, 4],
    };
    assert_eq!(trace.then(began), []);
    assert_eq!(
        trace.then(AttemptInput::Answered),
        [
            AttemptEffect::Prompted,
            AttemptEffect::SteersSeen(vec![3, 4])
        ]
    );
    assert_eq!(trace.then(AttemptInput::Answered), []);
}

#[test]
fn a_promise_of_an_earlier_turn_does_not_count() {
    let mut trace = Trace::new();
    let text = "DONE".to_owned();
    let partial = false;
    trace.then(AttemptInput::Message { text, partial });
    assert!(trace.machine.has_claimed("DONE"));
    let steers = Vec::new();
    // More messages for the same turn change nothing.
    trace.then(AttemptInput::TurnBegan {
        injected: true,
        has_inputs: true,
        steers,
    });
    assert!(trace.machine.has_claimed("DONE"));
    trace.then(turn_began(false));
    assert!(!trace.machine.has_claimed("DONE"));
    assert_eq!(trace.machine.take_result(), None);
}

#[test]
fn output_counts_as_the_answer_only_of_an_agent_whose_output_is_not_parsed() {
    for understands in [true, false] {
        let mut trace = Trace::new();
        trace.machine = AttemptMachine::new(understands, HOUR);
        trace.then(AttemptInput::Line(b"DONE".to_vec()));
        assert_eq!(trace.machine.has_claimed("DONE"), !understands);
    }
}
