//! What the drivers share whose agents converse over lines of JSON.

mod dialogue;
mod json;
mod link;
mod live;
#[cfg(test)]
pub(crate) mod odd;
mod patience;
mod process;

use std::time::Duration;

use agent_duplex::{Changing, Error};
use tokio::sync::oneshot;
use tokio::time::timeout;

use patience::{Impatience, Leaving, Patience, Stopping};
use process::{Seen, look, signal, stop};

pub(crate) use dialogue::Dialogue;
pub(crate) use json::{line, parse};
pub(crate) use link::{Heard, Link};
pub(crate) use live::Live;
pub(crate) use patience::Means;
pub(crate) use process::last_line;

/// How many characters of a call are shown.
pub(crate) const SUMMARY: usize = 400;
/// How many bytes of a tool's result are handed on.
const RESULT: usize = 4096;

/// How long the agent may take to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) initialize: Duration,
    pub(crate) others: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Timeouts {
            initialize: minute,
            others: minute,
        }
    }
}

/// Cuts what a tool returned to its beginning.
pub(crate) fn beginning(mut text: String) -> String {
    let mut ends = (0..=RESULT.min(text.len())).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}

/// The caller that waits for the answer to a change; a newer change replaces a waiting one.
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
