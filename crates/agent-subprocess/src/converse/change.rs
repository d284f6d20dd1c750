use std::time::Duration;

use agent_duplex::{Changing, Error};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Whoever waits for the answer to a change; a newer change takes the place of one that waits.
#[derive(Debug, Default)]
pub(crate) struct Change(Option<oneshot::Sender<Result<(), Error>>>);

impl Change {
    /// Makes what the answer comes by, if it comes within `limit`.
    pub(crate) fn begin(&mut self, limit: Duration) -> Changing {
        let (done, answer) = oneshot::channel();
        if let Some(older) = self.0.replace(done) {
            let what = "another change was asked for before it answered this one";
            // Who asked may have stopped waiting.
            let _nobody = older.send(Err(Error::refused(what)));
        }
        Box::pin(async move {
            match timeout(limit, answer).await {
                Ok(answer) => {
                    answer.unwrap_or_else(|_| Err(Error::gone("it ended before it answered")))
                }
                Err(_) => {
                    let what = format!("it did not answer within {} s", limit.as_secs());
                    Err(Error::refused(what))
                }
            }
        })
    }

    /// Returns whether a change was asked for.
    pub(crate) fn is_begun(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether nobody waits for the answer any more.
    pub(crate) fn is_late(&self) -> bool {
        self.0.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Tells what came of it.
    pub(crate) fn answer(&mut self, answer: Result<(), String>) {
        if let Some(done) = self.0.take() {
            let _nobody = done.send(answer.map_err(Error::refused));
        }
    }

    /// The agent has ended.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}
