//! Leftovers that are carried to the run's end: servers that an agent started for the attempts after it.

use std::collections::VecDeque;
use std::time::Duration;

use agent_duplex::{ProcessName, StopReport};
use rlm_store::deadline::{Hurried, Hurry};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::runner::parts::attempt;

/// The most attempts whose leftovers are carried at once: each costs a guard process.
pub(crate) const MOST: usize = 8;

/// The leftovers of the last attempts, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Kept(VecDeque<Attempt>);

#[derive(Debug)]
struct Attempt {
    /// Has the leftovers end. Dropping it ends them too.
    halt: Hurry,
    task: JoinHandle<(Vec<ProcessName>, StopReport)>,
}

impl Kept {
    /// Takes the connection of a finished attempt. When there are too many the oldest begins to end; returns those that have.
    ///
    /// They are not waited for, so that a press is heard meanwhile, unless they take so long that there are twice as many.
    pub(crate) async fn keep(
        &mut self,
        attempt: attempt::Attempt,
        budget: Duration,
    ) -> Vec<(Vec<ProcessName>, StopReport)> {
        let halt = Hurry::default();
        let task = tokio::spawn(carry(attempt, halt.hurried(), budget));
        self.0.push_back(Attempt { halt, task });
        let surplus = self.0.len().saturating_sub(MOST);
        let oldest = self.0.iter().take(surplus);
        oldest.for_each(|oldest| oldest.halt.within(budget));
        let mut ended = Vec::new();
        while self.0.len() > 2 * MOST || self.0.front().is_some_and(|it| it.task.is_finished()) {
            ended.extend(self.end_oldest(budget).await);
        }
        ended
    }

    /// Ends the leftovers of the oldest attempt, and returns which were alive and what became of them.
    pub(crate) async fn end_oldest(
        &mut self,
        budget: Duration,
    ) -> Option<(Vec<ProcessName>, StopReport)> {
        let oldest = self.0.pop_front()?;
        oldest.halt.within(budget);
        // A task that panicked has dropped its connection, which ends everything without a report.
        oldest.task.await.ok()
    }

    /// Returns what has each of them end.
    pub(crate) fn halts(&self) -> impl Iterator<Item = &Hurry> {
        self.0.iter().map(|attempt| &attempt.halt)
    }
}

/// Reads what the leftovers still print, so that none of them blocks, until they are to end.
async fn carry(
    mut attempt: attempt::Attempt,
    mut halted: Hurried,
    default: Duration,
) -> (Vec<ProcessName>, StopReport) {
    let mut speaks = true;
    let by = loop {
        tokio::select! {
            biased;
            by = halted.told() => break by.unwrap_or_else(|| Instant::now() + default),
            event = attempt.next(), if speaks => speaks = event.is_some(),
        }
    };
    let alive = attempt.conversation.leftovers().await;
    (
        alive,
        crate::hurry::stop(&mut halted, &attempt.conversation, by).await,
    )
}
