//! Leftovers that are carried to the run's end: servers that an agent started for the attempts after it.

use std::collections::VecDeque;
use std::time::Duration;

use agent_duplex::{ProcessName, StopReport};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The most attempts whose leftovers are carried at once: each costs a guard process.
pub(crate) const MOST: usize = 8;

/// The leftovers of the last attempts, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Kept(VecDeque<Attempt>);

#[derive(Debug)]
struct Attempt {
    /// Told how long the leftovers may take to end. Dropping it ends them too.
    halt: Option<oneshot::Sender<Duration>>,
    task: JoinHandle<(Vec<ProcessName>, StopReport)>,
}

impl Kept {
    /// Takes the connection of a finished attempt, and returns the oldest one's end when there are too many.
    pub(crate) async fn keep(
        &mut self,
        attempt: crate::runner::Attempt,
        budget: Duration,
    ) -> Option<(Vec<ProcessName>, StopReport)> {
        let (halt, halted) = oneshot::channel();
        let task = tokio::spawn(carry(attempt, halted, budget));
        let halt = Some(halt);
        self.0.push_back(Attempt { halt, task });
        if self.0.len() > MOST {
            self.end_oldest(budget).await
        } else {
            None
        }
    }

    /// Ends the leftovers of the oldest attempt, and returns which were alive and what became of them.
    pub(crate) async fn end_oldest(
        &mut self,
        budget: Duration,
    ) -> Option<(Vec<ProcessName>, StopReport)> {
        let mut oldest = self.0.pop_front()?;
        oldest.halt(budget);
        // A task that panicked has dropped its connection, which ends everything without a report.
        oldest.task.await.ok()
    }

    /// Has all of them begin to end, so that ending them one after the other takes no longer than the slowest.
    pub(crate) fn halt_all(&mut self, budget: Duration) {
        self.0.iter_mut().for_each(|attempt| attempt.halt(budget));
    }
}

impl Attempt {
    fn halt(&mut self, budget: Duration) {
        if let Some(halt) = self.halt.take() {
            // A task that is over needs no telling.
            let _over = halt.send(budget);
        }
    }
}

/// Reads what the leftovers still print, so that none of them blocks, until they are to end.
async fn carry(
    mut attempt: crate::runner::Attempt,
    mut halted: oneshot::Receiver<Duration>,
    default: Duration,
) -> (Vec<ProcessName>, StopReport) {
    let mut speaks = true;
    let budget = loop {
        tokio::select! {
            biased;
            budget = &mut halted => break budget.unwrap_or(default),
            event = attempt.next(), if speaks => speaks = event.is_some(),
        }
    };
    let alive = attempt.conversation.leftovers().await;
    (alive, attempt.conversation.stop(budget).await)
}
