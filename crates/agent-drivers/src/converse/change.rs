//! A change of what may be done or of the model: the agent answers it between other lines, and maybe never.

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

    /// Tells what came of it, as soon as the agent is not asked any more. What nobody waits for any more is forgotten, and its `answer` taken too.
    pub(crate) fn tell(
        &mut self,
        is_asking: bool,
        answer: impl FnOnce() -> Option<Result<(), String>>,
    ) {
        let is_late = self.0.as_ref().is_some_and(oneshot::Sender::is_closed);
        if self.0.is_none() || is_asking && !is_late {
            return;
        }
        if let (Some(done), Some(answer)) = (self.0.take(), answer()) {
            let _nobody = done.send(answer.map_err(Error::refused));
        }
    }

    /// The agent has ended.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}
