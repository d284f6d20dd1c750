//! The random actions of agents and callers.

use agent_duplex::scripted::Script;
use agent_duplex::{
    EndReason, Error, Event, InputPolicy, InputState, Mode, PermissionRequest, QueuedMessages,
    SessionChoice, ToolOutcome,
};
use proptest::prelude::*;

use crate::support::delta;

/// An action of an agent, correct or faulty.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Message,
    Begin,
    Own,
    Input(usize, InputState),
    Session(u8),
    Delta,
    Say,
    Tool,
    ToolDone,
    Ask,
    Polled,
    End(EndReason),
    Interrupted,
    Background(u32),
    Refuse(bool),
    Over,
    Panic,
}

/// An action of a caller.
#[derive(Clone, Debug)]
pub(super) enum TestAction {
    Send(u8),
    Accept(bool),
    Execute,
    Start(SessionChoice),
    Interrupt(QueuedMessages),
    Hold(bool),
    Read(u8),
    Yield(u8),
    Close,
    Freeze(bool),
    Answer,
    Leftovers,
    Stop,
}

/// The settings of the conversation.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) policy: InputPolicy,
    pub(super) resumes: bool,
    pub(super) mode: Mode,
    pub(super) restarts: Option<u32>,
    /// The number of appends before the store fails, if the conversation is stored.
    pub(super) kept: Option<usize>,
    pub(super) backlog: usize,
}

impl World {
    /// Returns whether a delivered message may be delivered again when a caller starts the next agent.
    pub(super) fn redelivers(&self) -> bool {
        self.restarts.is_none() && self.kept.is_none() && self.mode == Mode::Interactive
    }
}

pub(super) fn any_script() -> impl Strategy<Value = Vec<Step>> {
    let state = prop_oneof![
        Just(InputState::Queued),
        Just(InputState::InTurn),
        Just(InputState::Dropped("gone".into())),
    ];
    let reason = prop_oneof![
        6 => Just(EndReason::Completed),
        1 => Just(EndReason::Failed),
        1 => Just(EndReason::NotLoggedIn),
        1 => Just(EndReason::SessionNotFound),
    ];
    let step = prop_oneof![
        6 => Just(Step::Message),
        4 => Just(Step::Begin),
        1 => Just(Step::Own),
        4 => (0usize..4, state).prop_map(|(i, state)| Step::Input(i, state)),
        1 => (0u8..2).prop_map(Step::Session),
        5 => Just(Step::Delta),
        2 => Just(Step::Say),
        2 => Just(Step::Tool),
        2 => Just(Step::ToolDone),
        1 => Just(Step::Ask),
        2 => Just(Step::Polled),
        6 => reason.prop_map(Step::End),
        2 => Just(Step::Interrupted),
        2 => (0u32..2).prop_map(Step::Background),
        1 => any::<bool>().prop_map(Step::Refuse),
        1 => Just(Step::Over),
        1 => Just(Step::Panic),
    ];
    proptest::collection::vec(step, 0..25)
}

pub(super) fn any_deed() -> impl Strategy<Value = TestAction> {
    let session = prop_oneof![
        3 => Just(SessionChoice::Fresh),
        1 => Just(SessionChoice::Resume("0".into())),
        1 => Just(SessionChoice::Fork("0".into())),
    ];
    prop_oneof![
        6 => (0u8..3).prop_map(TestAction::Send),
        2 => any::<bool>().prop_map(TestAction::Accept),
        2 => Just(TestAction::Execute),
        3 => session.prop_map(TestAction::Start),
        1 => Just(TestAction::Interrupt(QueuedMessages::Keep)),
        1 => Just(TestAction::Interrupt(QueuedMessages::Drop)),
        2 => any::<bool>().prop_map(TestAction::Hold),
        4 => (1u8..9).prop_map(TestAction::Read),
        6 => (1u8..9).prop_map(TestAction::Yield),
        1 => Just(TestAction::Close),
        1 => any::<bool>().prop_map(TestAction::Freeze),
        1 => Just(TestAction::Answer),
        1 => Just(TestAction::Leftovers),
        1 => Just(TestAction::Stop),
    ]
}

pub(super) fn any_world() -> impl Strategy<Value = World> {
    let policy = prop_oneof![
        Just(InputPolicy::Push),
        Just(InputPolicy::Poll),
        Just(InputPolicy::AfterTurn)
    ];
    let mode = prop_oneof![3 => Just(Mode::Interactive), 1 => Just(Mode::OneShot)];
    let restarts = proptest::option::of(1u32..4);
    (policy, any::<bool>(), mode, restarts, 1usize..30).prop_map(
        |(policy, resumes, mode, restarts, backlog)| World {
            policy,
            resumes,
            mode,
            restarts,
            kept: None,
            backlog,
        },
    )
}

pub(super) fn script(steps: Vec<Step>) -> Script {
    let tool = || "t".to_owned();
    let script = Script::new();
    steps.into_iter().fold(script, |script, step| match step {
        Step::Message => script.message(),
        Step::Begin => script.begin(),
        Step::Own => script.observe(Event::TurnStarted { inputs: vec![] }),
        Step::Input(i, state) => script.make(move |messages| {
            let state = state.clone();
            let event = messages.get(i).map(|m| Event::Input { id: m.id, state });
            event.map(Into::into).unwrap_or_default()
        }),
        Step::Session(id) => script.session(&id.to_string()),
        Step::Delta => script.observe(delta("x")),
        Step::Say => script.report_message("x"),
        Step::Tool => script.observe(Event::ToolStarted {
            id: tool(),
            name: tool(),
            summary: tool(),
        }),
        Step::ToolDone => script.observe(Event::ToolFinished {
            id: tool(),
            outcome: ToolOutcome::Succeeded,
            text: tool(),
        }),
        Step::Ask => script.observe(Event::PermissionRequested(PermissionRequest {
            id: tool(),
            tool: tool(),
            summary: tool(),
            reason: tool(),
        })),
        Step::Polled => script.observe(Event::AcceptsMessages),
        Step::End(reason) => script.end(reason),
        Step::Interrupted => script.interrupted().end(EndReason::Interrupted),
        Step::Background(running) => script.observe(Event::BackgroundTasks(running)),
        Step::Refuse(refuses) => {
            let full: fn() -> Error = || Error::full("the agent");
            script.refuses(refuses.then_some(full))
        }
        Step::Over => script.ends(),
        Step::Panic => script.panics(),
    })
}
