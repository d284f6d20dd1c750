//! Ending the agent: between turns and politely, or with everything that it started.

use super::CodexConnection;
use crate::converse::stop;
use agent_duplex::{StopReport, StopStage};
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::Instant;

/// How long a turn may take to end after an interrupt, in a stop.
const INTERRUPT: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// Nothing is dropped so that its input may be closed: the end of a turn would be lost with that.
    Interrupt,
    CloseInput,
    Signal(Signal),
}

/// The means of ending the agent alone, and how long each is given.
const POLITELY: [(Means, Duration); 4] = [
    (Means::Interrupt, INTERRUPT),
    (Means::CloseInput, Duration::from_secs(5)),
    (Means::Signal(Signal::TERM), Duration::from_secs(2)),
    (Means::Signal(Signal::KILL), Duration::from_secs(2)),
];

/// How far the end of the agent alone has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    /// The means that was used last, by its number.
    step: usize,
    until: Instant,
}

impl Leaving {
    /// Begins the time of the last means again.
    pub(super) fn renew(&mut self) {
        self.until = Instant::now() + POLITELY[self.step].1;
    }
}

impl CodexConnection {
    /// Ends the agent alone, in 12 s at most, and in the time of an exit if it obeys.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call goes on with the means that was used last.
    pub(super) async fn end_politely(&mut self) {
        self.session.leave();
        while !self.over && self.stopped.is_none() {
            if let Some(leaving) = self.leaving
                && Instant::now() < leaving.until
                && (POLITELY[leaving.step].0 != Means::Interrupt || self.is_busy())
            {
                let idle = POLITELY[leaving.step].0 == Means::Interrupt;
                self.pump(leaving.until, |c| idle && !c.is_busy()).await;
                continue;
            }
            let step = self.leaving.map_or(0, |leaving| leaving.step + 1);
            let Some((means, time)) = POLITELY.get(step) else {
                return;
            };
            match *means {
                Means::Interrupt => drop(self.ask_interrupt(true)),
                Means::CloseInput => self.agent.close_stdin(),
                // Who can't be signalled is left to a stop.
                Means::Signal(signal) => drop(self.agent.signal_main(signal)),
            }
            let until = Instant::now() + *time;
            self.leaving = Some(Leaving { step, until });
        }
    }

    fn is_busy(&self) -> bool {
        self.session.is_busy() || self.cleaning.is_some()
    }

    /// Ends everything: the turn by the agent's own means, so that its words are kept, then the agent and its tree.
    pub(super) async fn end(&mut self, budget: Duration) -> StopReport {
        let now = (Instant::now(), !self.agent.has_exited());
        let (start, was_alive) = *self.stopping.get_or_insert(now);
        self.session.leave();
        self.stop_cleaning();
        if was_alive && !self.frozen && self.ask_interrupt(true) {
            let until = start + INTERRUPT.min(budget / 3);
            self.pump(until, |c| !c.session.is_busy()).await;
        }
        let stage = match self.agent.has_exited() {
            true => StopStage::Interrupt,
            false => StopStage::CloseInput,
        };
        let left = budget.saturating_sub(start.elapsed());
        let done = (was_alive, stage);
        stop(&mut self.agent, &self.policy, left, done, &self.program).await
    }
}
