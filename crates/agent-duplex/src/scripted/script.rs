//! The steps of a scripted agent, and the functions to write them in a test; `connection.rs` plays them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::{
    Capabilities, EndReason, Error, Event, InputState, Message, Observation, ProcessName, TurnEnd,
};

/// A latch that a test opens once.
#[derive(Clone, Debug, Default)]
pub struct Latch(watch::Sender<bool>);

impl Latch {
    /// Creates a closed latch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens it for all waiting callers.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Waits until it is open.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn opened(&self) {
        let mut open = self.0.subscribe();
        // The sender lives as long as `self`.
        let _open = open.wait_for(|open| *open).await;
    }
}

/// The behaviour of one connection, step by step. After the last step the agent is idle until it is stopped.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub(super) steps: VecDeque<Step>,
    pub(super) connecting: Option<Latch>,
    pub(super) fails: Option<fn() -> Error>,
    pub(super) unready: Option<fn() -> Error>,
    pub(super) refuses: Option<fn() -> Error>,
    pub(super) closing: Option<Latch>,
    pub(super) stopping: Option<Latch>,
    pub(super) modelling: Option<Latch>,
    pub(super) hangs: Option<Latch>,
    pub(super) held_open: bool,
    pub(super) capabilities: Option<Capabilities>,
    pub(super) last_words: Vec<Observation>,
    pub(super) leftovers: Vec<ProcessName>,
}

type Make = Arc<dyn Fn(&[Message]) -> Observation + Send + Sync>;

#[derive(Clone)]
pub(super) enum Step {
    Emit(Observation),
    Make(Make),
    Begin,
    Message,
    Interrupted,
    Answered,
    Latch(Latch),
    Busy(Latch),
    Refuse(Option<fn() -> Error>),
    Panic,
    Over,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Emit(_) | Self::Make(_) | Self::Begin => "report",
            Self::Message => "wait for a message",
            Self::Interrupted => "wait for an interrupt",
            Self::Answered => "wait for an answer",
            Self::Latch(_) => "wait for a latch",
            Self::Busy(_) | Self::Refuse(_) => "change how messages are accepted",
            Self::Panic => "panic",
            Self::Over => "end",
        })
    }
}

impl Script {
    /// Creates an empty script: an agent that reports nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push_back(step);
        self
    }

    /// Reports this observation.
    #[must_use]
    pub fn observe(self, seen: impl Into<Observation>) -> Self {
        self.step(Step::Emit(seen.into()))
    }

    /// Reports an observation that is computed from the messages that this connection has got so far.
    #[must_use]
    pub fn make(self, make: impl Fn(&[Message]) -> Observation + Send + Sync + 'static) -> Self {
        self.step(Step::Make(Arc::new(make)))
    }

    /// Reports a whole piece of an answer.
    #[must_use]
    pub fn report_message(self, text: &str) -> Self {
        self.observe(Event::Message {
            text: text.to_owned(),
            partial: false,
        })
    }

    /// Reports the agent's own id of its session.
    #[must_use]
    pub fn session(self, id: &str) -> Self {
        self.observe(Event::Session { id: id.to_owned() })
    }

    /// Reports that a turn starts with the messages that were waited for since the last such step.
    #[must_use]
    pub fn begin(self) -> Self {
        self.step(Step::Begin)
    }

    /// Reports the new state of a message of this connection, by its number from 0.
    #[must_use]
    pub fn input(self, number: usize, state: InputState) -> Self {
        self.make(move |messages| {
            let id = messages[number].id;
            let state = state.clone();
            Event::Input { id, state }.into()
        })
    }

    /// Reports the end of a turn.
    #[must_use]
    pub fn end(self, reason: EndReason) -> Self {
        self.observe(Event::TurnCompleted(TurnEnd::from(reason)))
    }

    /// Waits for one more message.
    #[must_use]
    pub fn message(self) -> Self {
        self.step(Step::Message)
    }

    /// Waits for one more interrupt.
    #[must_use]
    pub fn interrupted(self) -> Self {
        self.step(Step::Interrupted)
    }

    /// Waits for one more answer.
    #[must_use]
    pub fn answered(self) -> Self {
        self.step(Step::Answered)
    }

    /// Waits until a latch is open.
    #[must_use]
    pub fn wait_for_latch(self, latch: &Latch) -> Self {
        self.step(Step::Latch(latch.clone()))
    }

    /// Ends the output, like an agent that is gone.
    #[must_use]
    pub fn ends(self) -> Self {
        self.step(Step::Over)
    }

    /// Has these capabilities once it runs, instead of those of its driver.
    #[must_use]
    pub fn agent_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = Some(capabilities);
        self
    }

    /// Fails to open its connection.
    #[must_use]
    pub fn fails(mut self, with: fn() -> Error) -> Self {
        self.fails = Some(with);
        self
    }

    /// Lists a leftover process with this pid and name.
    #[must_use]
    pub fn leaves_process(mut self, pid: u32, name: &str) -> Self {
        let name = name.to_owned();
        self.leftovers.push(ProcessName { pid, name });
        self
    }
}

#[doc(hidden)] // faults of a driver, for the tests of this project
impl Script {
    /// From here on, accepts a message only when a latch is open; `send` waits for it.
    #[must_use]
    pub fn busy(self, latch: &Latch) -> Self {
        self.step(Step::Busy(latch.clone()))
    }

    /// From here on, rejects each message with this error; `None` accepts messages again.
    #[must_use]
    pub fn refuses(self, with: Option<fn() -> Error>) -> Self {
        self.step(Step::Refuse(with))
    }

    /// Panics in the driver.
    #[must_use]
    pub fn panics(self) -> Self {
        self.step(Step::Panic)
    }

    /// Accepts messages even after its end, like a pipe that another process keeps open.
    #[must_use]
    pub fn accepts_after_end(mut self) -> Self {
        self.held_open = true;
        self
    }

    /// Opens its connection only when a latch is open.
    #[must_use]
    pub fn connecting(mut self, gate: &Latch) -> Self {
        self.connecting = Some(gate.clone());
        self
    }

    /// Opens its connection, and then reports that the agent did not start.
    #[must_use]
    pub fn fails_after_connect(mut self, with: fn() -> Error) -> Self {
        self.unready = Some(with);
        self
    }

    /// Rejects all messages, from the beginning.
    #[must_use]
    pub fn refuses_all_messages(mut self, with: fn() -> Error) -> Self {
        self.refuses = Some(with);
        self
    }

    /// Finishes a close only when a latch is open.
    #[must_use]
    pub fn delays_close(mut self, gate: &Latch) -> Self {
        self.closing = Some(gate.clone());
        self
    }

    /// Answers a change of its model only when the latch is open.
    #[must_use]
    pub fn delays_model_change(mut self, gate: &Latch) -> Self {
        self.modelling = Some(gate.clone());
        self
    }

    /// Finishes a stop only when a latch is open, or the budget is used up.
    #[must_use]
    pub fn delays_stop(mut self, gate: &Latch) -> Self {
        self.stopping = Some(gate.clone());
        self
    }

    /// Finishes a stop only when a latch is open, and ignores the budget.
    #[must_use]
    pub fn ignores_stop_budget(mut self, gate: &Latch) -> Self {
        self.hangs = Some(gate.clone());
        self
    }

    /// Reports this observation after the agent was stopped.
    #[must_use]
    pub fn report_after_stop(mut self, seen: impl Into<Observation>) -> Self {
        self.last_words.push(seen.into());
        self
    }
}
