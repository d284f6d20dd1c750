//! The shared parts of connections to agents that exchange lines of JSON.

mod exchange;
mod json;
mod link;
mod live;
mod process;
#[cfg(feature = "test-util")]
mod recording;
#[cfg(test)]
pub(crate) mod test_support;
mod timeouts;

use std::time::Duration;

use agent_duplex::{Error, PendingChange};
use tokio::sync::oneshot;
use tokio::time::timeout;

use process::{ProcessEvent, signal, stop, wait_for_event};
use timeouts::{EndSequence, EscalatingTimeout, StopState, TimeoutStep};

pub(crate) use exchange::Dialogue;
pub(crate) use json::{line, parse};
pub(crate) use link::{AgentLink, LineOutcome};
pub(crate) use live::DialogueConnection;
pub(crate) use process::last_line;
#[cfg(feature = "test-util")]
pub(crate) use recording::{recorded_death, recorded_events, recorded_line};
pub(crate) use timeouts::EndMethod;

/// The longest shown summary of a tool call, in characters.
pub(crate) const SUMMARY: usize = 400;
/// The longest reported result of a tool, in bytes.
const RESULT: usize = 4096;

/// The times in which the agent has to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) initialize: Duration,
    pub(crate) other_requests: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Timeouts {
            initialize: minute,
            other_requests: minute,
        }
    }
}

/// Truncates the result of a tool to its beginning.
pub(crate) fn truncate_result(mut text: String) -> String {
    let mut ends = (0..=RESULT.min(text.len())).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}

/// The caller that waits for the answer to a change; a newer change replaces a waiting one.
#[derive(Debug, Default)]
pub(crate) struct Change(Option<oneshot::Sender<Result<(), Error>>>);

impl Change {
    /// Returns the future for the answer, which fails after `limit`.
    pub(crate) fn begin(&mut self, limit: Duration) -> PendingChange {
        let (done, answer) = oneshot::channel();
        if let Some(older) = self.0.replace(done) {
            let what = "a newer change replaced this one before the agent answered";
            // Perhaps the caller has dropped its future.
            let _nobody = older.send(Err(Error::refused(what)));
        }
        Box::pin(async move {
            match timeout(limit, answer).await {
                Ok(answer) => {
                    answer.unwrap_or_else(|_| Err(Error::agent_gone("it ended before it answered")))
                }
                Err(_) => {
                    let what = format!("no answer within {} s", limit.as_secs());
                    Err(Error::refused(what))
                }
            }
        })
    }

    /// Sends the answer to the waiting caller once no request is pending. If the caller no longer waits, drops the change, and discards its `answer`
    /// too.
    pub(crate) fn resolve(
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

    /// Drops the change, because the agent has ended.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}
