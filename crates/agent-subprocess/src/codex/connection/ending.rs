//! Ending the agent: between turns and politely, or with everything that it started.

use super::CodexConnection;
use crate::converse::{INTERRUPT, Leaving, Stopping, stop};
use agent_duplex::{StopReport, StopStage};
use rustix::process::Signal;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// Nothing is dropped so that its input may be closed: the end of a turn would be lost with that.
    Interrupt,
    CloseInput,
    Signal(Signal),
}

/// The means of ending the agent alone, and how long each is given.
static POLITELY: [(Means, Duration); 4] = [
    (Means::Interrupt, INTERRUPT),
    (Means::CloseInput, Duration::from_secs(5)),
    (Means::Signal(Signal::TERM), Duration::from_secs(2)),
    (Means::Signal(Signal::KILL), Duration::from_secs(2)),
];

impl CodexConnection {
    /// Ends the agent alone, in 12 s at most, and in the time of an exit if it obeys.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call goes on with the means that was used last.
    pub(super) async fn end_politely(&mut self) {
        self.session.leave();
        while !self.over && self.stopped.is_none() {
            if let Some(leaving) = self.leaving
                && leaving.is_waiting()
                && (leaving.means() != Means::Interrupt || self.is_busy())
            {
                let idle = leaving.means() == Means::Interrupt;
                self.pump(leaving.until, |c| idle && !c.is_busy()).await;
                continue;
            }
            let Some(next) = Leaving::after(self.leaving, &POLITELY) else {
                return;
            };
            match next.means() {
                Means::Interrupt => drop(self.ask_interrupt(true)),
                Means::CloseInput => self.agent.close_stdin(),
                // Who can't be signalled is left to a stop.
                Means::Signal(signal) => drop(self.agent.signal_main(signal)),
            }
            self.leaving = Some(next);
        }
    }

    fn is_busy(&self) -> bool {
        self.session.is_busy() || self.cleaning.is_some()
    }

    /// Ends everything: the turn by the agent's own means, so that its words are kept, then the agent and its tree.
    pub(super) async fn end(&mut self, budget: Duration) -> StopReport {
        let is_alive = !self.agent.has_exited();
        let stopping = Stopping::go_on(&mut self.stopping, budget, is_alive);
        self.session.leave();
        self.stop_cleaning();
        if stopping.was_alive && !self.frozen && self.ask_interrupt(true) {
            self.pump(stopping.polite_until, |c| !c.session.is_busy())
                .await;
        }
        let stage = match self.agent.has_exited() {
            true => StopStage::Interrupt,
            false => StopStage::CloseInput,
        };
        let (left, done) = (stopping.left(), (stopping.was_alive, stage));
        stop(&mut self.agent, &self.policy, left, done, &self.program).await
    }
}
