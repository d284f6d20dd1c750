//! Waiting for what is heard of an agent.

use agent_duplex::{Published, StopReport};
use tokio::task::{JoinError, JoinHandle};

use crate::runner::attempt::Attempt;

/// What was heard of an agent.
#[derive(Debug)]
pub(super) enum Woken {
    /// It was started, or could not be.
    Started(Result<(), agent_duplex::Error>),
    /// It was closed though it has something in the background.
    Closed,
    /// Its tree was ended; `None` when that came to no end of its own.
    Ended(Option<StopReport>),
    /// What its conversation tells; `None` when that is over.
    Published(Option<Published>),
}

/// Waits for a task that may not be there.
async fn joined<T>(task: &mut Option<JoinHandle<T>>) -> Option<Result<T, JoinError>> {
    match task {
        Some(task) => Some(task.await),
        None => None,
    }
}

impl Attempt {
    /// Waits for the next thing. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Published> {
        if self.first_words.is_some() {
            return self.first_words.take();
        }
        self.primary.next().await
    }

    /// Waits for the next thing, the start of the agent included. Cancel safe.
    pub(super) async fn wake(&mut self) -> Woken {
        if let Some(first) = self.first_words.take() {
            return Woken::Published(Some(first));
        }
        let (starting, closing, ending) = (&mut self.starting, &mut self.closing, &mut self.ending);
        tokio::select! {
            biased;
            Some(started) = joined(starting) => {
                self.starting = None;
                let lost = |e: JoinError| Err(agent_duplex::Error::gone(e.to_string()));
                Woken::Started(started.unwrap_or_else(lost))
            }
            Some(ended) = joined(ending) => {
                self.ending = None;
                Woken::Ended(ended.ok())
            }
            published = self.primary.next(), if !self.over => Woken::Published(published),
            // Last: the ends of the tasks and of their turn are told first.
            Some(_) = joined(closing) => {
                self.closing = None;
                Woken::Closed
            }
        }
    }

    pub(crate) fn may_speak(&self) -> bool {
        !self.over || self.closing.is_some() || self.ending.is_some() || self.starting.is_some()
    }
}
