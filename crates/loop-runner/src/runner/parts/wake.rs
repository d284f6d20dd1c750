//! Waiting for what is heard of an agent.

use agent_duplex::{Primary, Published, StopReport};
use tokio::task::{JoinError, JoinHandle};

use crate::runner::parts::attempt::Attempt;

/// What was heard of an agent.
#[derive(Debug)]
pub(crate) enum Woken {
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

/// Waits for what a conversation publishes; `None` where it publishes nothing any more.
async fn published(primary: &mut Option<Primary>) -> Option<Option<Published>> {
    match primary {
        Some(primary) => Some(primary.next().await),
        None => None,
    }
}

impl Attempt {
    /// Waits for the next thing. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Published> {
        if self.first_words.is_some() {
            return self.first_words.take();
        }
        published(&mut self.primary).await.flatten()
    }

    /// Waits for the next thing, the start of the agent included. Cancel safe.
    pub(crate) async fn wake(&mut self) -> Woken {
        if let Some(first) = self.first_words.take() {
            return Woken::Published(Some(first));
        }
        let tasks = &mut self.tasks;
        let (starting, closing, ending) =
            (&mut tasks.starting, &mut tasks.closing, &mut tasks.ending);
        tokio::select! {
            biased;
            Some(started) = joined(starting) => {
                *starting = None;
                let lost = |e: JoinError| Err(agent_duplex::Error::gone(e.to_string()));
                Woken::Started(started.unwrap_or_else(lost))
            }
            Some(ended) = joined(ending) => {
                *ending = None;
                Woken::Ended(ended.ok())
            }
            Some(published) = published(&mut self.primary) => Woken::Published(published),
            // Last: the ends of the tasks and of their turn are told first.
            Some(_) = joined(closing) => {
                *closing = None;
                Woken::Closed
            }
        }
    }

    pub(crate) fn may_speak(&self) -> bool {
        self.primary.is_some() || !self.tasks.is_empty()
    }
}
