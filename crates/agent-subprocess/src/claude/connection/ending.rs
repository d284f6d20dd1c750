//! Ending the agent: between turns and politely, or with everything that it started.

use super::ClaudeConnection;
use crate::converse::{Leaving, Stopping, stop};
use crate::session_locks::Lease;
use agent_duplex::{StopReport, StopStage};
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::timeout;

/// How long a request to end may take to get into the pipe before that is closed.
const WRITTEN: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
pub(super) enum Means {
    Ask,
    CloseInput,
    Signal(Signal),
}

/// The means of ending the agent alone, and how long each is given.
static POLITELY: [(Means, Duration); 4] = [
    (Means::Ask, Duration::from_secs(2)),
    (Means::CloseInput, Duration::from_secs(1)),
    (Means::Signal(Signal::TERM), Duration::from_secs(2)),
    (Means::Signal(Signal::KILL), Duration::from_secs(2)),
];

impl ClaudeConnection {
    /// Ends the agent alone, in 7 s at most.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call goes on with the means that was used last.
    pub(super) async fn end_politely(&mut self) {
        while !self.over && self.stopped.is_none() {
            if let Some(leaving) = self.leaving
                && leaving.is_waiting()
            {
                self.pump(leaving.until, |_| false).await;
                continue;
            }
            let Some(next) = Leaving::after(self.leaving, &POLITELY) else {
                return;
            };
            match next.means() {
                Means::Ask => {
                    let line = self.session.end_session();
                    self.push(line);
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
        if stopping.was_alive && !self.frozen && self.ask_interrupt(true) {
            self.pump(stopping.polite_until, |c| !c.session.owes_turn())
                .await;
        }
        let mut stage = StopStage::Interrupt;
        if !self.agent.has_exited() {
            stage = StopStage::CloseInput;
            let mut line = self.session.stop_tasks();
            line.extend(self.session.end_session());
            if let Ok(written) = self.writer.push(line) {
                // Written or not, its input is closed next.
                let _late = timeout(WRITTEN.min(budget / 16), written).await;
            }
        }
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

    /// Gives back what only a living agent needs: its private files, and its session.
    pub(super) fn release(&mut self) {
        self.setup.files.clear();
        self.setup.lease.iter_mut().for_each(Lease::idle);
    }
}
