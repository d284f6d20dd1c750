//! Ending the agent: between turns and politely, or with everything that it started.

use super::AcpConnection;
use crate::converse::{Leaving, Stopping, stop};
use agent_duplex::{StopReport, StopStage};
use rustix::process::Signal;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) enum Means {
    /// To close the session, where the agent knows how to; with an answer the next means follows at once.
    CloseSession,
    CloseInput,
    Signal(Signal),
}

/// The means of ending the agent alone, and how long each is given.
static POLITELY: [(Means, Duration); 4] = [
    (Means::CloseSession, Duration::from_secs(2)),
    (Means::CloseInput, Duration::from_secs(2)),
    (Means::Signal(Signal::TERM), Duration::from_secs(2)),
    (Means::Signal(Signal::KILL), Duration::from_secs(2)),
];

impl AcpConnection {
    /// Ends the agent alone, in 8 s at most.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call goes on with the means that was used last.
    pub(super) async fn end_politely(&mut self) {
        while !self.over && self.stopped.is_none() {
            let is_waiting = |c: &Self| {
                c.leaving
                    .is_some_and(|l| !matches!(l.means(), Means::CloseSession))
                    || c.session.is_closing()
            };
            if let Some(leaving) = self.leaving
                && leaving.is_waiting()
                && is_waiting(self)
            {
                self.pump(leaving.until, |c| !is_waiting(c)).await;
                continue;
            }
            let Some(next) = Leaving::after(self.leaving, &POLITELY) else {
                return;
            };
            match next.means() {
                Means::CloseSession => {
                    let line = self.session.close();
                    if let Some(line) = line {
                        self.push(line);
                    }
                }
                Means::CloseInput => self.agent.close_stdin(),
                // Who can't be signalled is left to a stop.
                Means::Signal(signal) => drop(self.agent.signal_main(signal)),
            }
            self.leaving = Some(next);
        }
    }

    /// Ends everything: the turn by the agent's own means, so that its words are kept, then the agent and its tree.
    pub(super) async fn end(&mut self, budget: Duration) -> StopReport {
        let is_alive = !self.agent.has_exited();
        let stopping = Stopping::go_on(&mut self.stopping, budget, is_alive);
        self.session.leave();
        if stopping.was_alive && !self.frozen && self.ask_interrupt() {
            self.pump(stopping.polite_until, |c| !c.session.owes_turn())
                .await;
        }
        let stage = match self.agent.has_exited() {
            true => StopStage::Interrupt,
            false => StopStage::CloseInput,
        };
        let (left, done) = (stopping.left(), (stopping.was_alive, stage));
        stop(
            &mut self.agent,
            &self.setup.policy,
            left,
            done,
            &self.setup.program,
        )
        .await
    }

    /// Gives back what only a living agent needs: its session.
    pub(super) fn release(&mut self) {
        self.setup.lease.iter_mut().for_each(|lease| lease.idle());
    }
}
