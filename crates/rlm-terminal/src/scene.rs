//! The state of a run that decides which actions are possible and what the terminal shows.

use loop_runner::{AgentView, Shutdown, View};
use loop_state::{Head, Step};

/// A run as the terminal sees it at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) head: &'a Head,
    pub(crate) agent: &'a AgentView,
    /// The stop in progress, if any.
    pub(crate) shutdown: Option<Shutdown>,
    /// Whether another process works on the run, and this one is attached to it.
    pub(crate) attached: bool,
}

impl<'a> Scene<'a> {
    pub(crate) fn of(view: &'a View, attached: bool) -> Self {
        Self {
            head: &view.head,
            agent: &view.agent,
            shutdown: view.shutdown,
            attached,
        }
    }

    /// Whether the run has ended or is stopping.
    pub(crate) fn is_ending(&self) -> bool {
        self.head.end.is_some()
            || self.shutdown.is_some()
            || self
                .head
                .stopping
                .is_some_and(|stop| stop.when == loop_state::When::Now)
    }

    /// Whether the run waits for a person.
    pub(crate) fn waits(&self) -> bool {
        self.head.is_waiting()
    }

    /// Whether a turn is in progress that can be interrupted without ending the agent.
    pub(crate) fn has_turn_to_end(&self) -> bool {
        let can = self.agent.alive && self.agent.interruptible;
        can && matches!(self.head.step, Step::Turn { .. })
    }

    pub(crate) fn sleeps(&self) -> bool {
        matches!(self.head.step, Step::Sleeping { .. } | Step::Waiting { .. })
    }

    /// Whether the run waits for the service of its agent.
    pub(crate) fn is_limited(&self) -> bool {
        matches!(self.head.step, Step::Waiting { .. })
    }

    /// Whether an agent is live that accepts a steer now.
    pub(crate) fn hears(&self) -> bool {
        self.agent.steerable
            && matches!(self.head.step, Step::Turn { .. } | Step::Interrupted { .. })
    }
}
