//! The state of a run that decides which actions are possible and what the terminal shows.

use loop_runner::{AgentView, SteerDelivery, StopProgress, View};
use loop_state::{Head, IterationStep};

/// A run as the terminal sees it at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunSnapshot<'a> {
    pub(crate) head: &'a Head,
    pub(crate) agent: &'a AgentView,
    /// The stop in progress, if any.
    pub(crate) shutdown: Option<StopProgress>,
    /// Whether another process works on the run, and this one is attached to it.
    pub(crate) attached: bool,
}

impl<'a> RunSnapshot<'a> {
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
                .is_some_and(|stop| stop.when == loop_state::StopTiming::Now)
    }

    /// Whether the run waits for a person.
    pub(crate) fn awaits_person(&self) -> bool {
        self.head.awaits_person()
    }

    /// Whether a turn is in progress that can be interrupted without ending the agent.
    pub(crate) fn has_turn_to_end(&self) -> bool {
        let can = self.agent.alive && self.agent.interruptible;
        can && matches!(self.head.step, IterationStep::Turn { .. })
    }

    pub(crate) fn is_sleeping(&self) -> bool {
        matches!(
            self.head.step,
            IterationStep::Sleeping { .. } | IterationStep::Waiting { .. }
        )
    }

    /// Whether the run waits because of a rate limit or a transient failure.
    pub(crate) fn is_limited(&self) -> bool {
        matches!(self.head.step, IterationStep::Waiting { .. })
    }

    /// Returns when the agent gets a message that the person sends now.
    pub(crate) fn steer_delivery(&self) -> SteerDelivery {
        self.agent.steer_delivery(self.head)
    }
}
