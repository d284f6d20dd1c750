//! The state of a server, which its tools, its transport and the owner of its process share: faults, and the reason of its end.

use std::sync::{Mutex, PoisonError};

use agent_subprocess::Exit;
use tokio::sync::watch;

use crate::text::{self, one_line};

/// The longest text of a server in a message, in characters.
pub(super) const MAX_TEXT: usize = 400;
/// The last lines of standard error in a message.
const LAST_LINES: usize = 5;

/// A server that runs, or has ended.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    /// Why the server must be ended.
    fault: watch::Sender<Option<Fault>>,
    /// The last line of standard output that is no message, or that answers no request.
    unexpected: Mutex<Option<String>>,
    end: watch::Sender<Option<End>>,
}

/// Why a server must be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It closed its output. Usually its exit follows.
    ClosedOutput,
    /// It closed its input.
    ClosedInput,
    /// Anything else, as the end of a sentence.
    Other(String),
}

/// Why a server doesn't run any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The connection has ended.
    Stopped,
    /// The reason, as a sentence without its end.
    Failed(String),
}

/// Why the owner ends the process.
#[derive(Debug)]
pub(super) enum Cause {
    Exited(Exit),
    Fault(Fault),
}

impl Server {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            fault: watch::Sender::new(None),
            unexpected: Mutex::new(None),
            end: watch::Sender::new(None),
        }
    }

    /// Lets the owner of the process end it. The first fault counts.
    pub(super) fn fail(&self, fault: Fault) {
        self.fault.send_if_modified(|known| {
            let is_first = known.is_none();
            if is_first {
                *known = Some(fault);
            }
            is_first
        });
    }

    /// Records the last line that is no message, or that answers no request; `None` after an expected message.
    pub(super) fn record_unexpected(&self, line: Option<&[u8]>) {
        let line = line.map(|line| one_line(&String::from_utf8_lossy(line), MAX_TEXT));
        *self
            .unexpected
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = line;
    }

    /// Records the end of the process tree.
    pub(super) fn record_end(&self, end: End) {
        self.end.send_replace(Some(end));
    }

    pub(super) fn end(&self) -> Option<End> {
        self.end.borrow().clone()
    }

    /// Waits until the server and its process tree have ended.
    pub(super) async fn ended(&self) -> End {
        let mut end = self.end.subscribe();
        let ended = end.wait_for(Option::is_some).await;
        // The sender lives as long as this value.
        ended
            .ok()
            .and_then(|end| end.clone())
            .unwrap_or(End::Stopped)
    }

    pub(super) async fn faulty(&self) -> Fault {
        let mut fault = self.fault.subscribe();
        let faulty = fault.wait_for(Option::is_some).await;
        let fault = faulty.ok().and_then(|fault| fault.clone());
        fault.unwrap_or(Fault::ClosedOutput)
    }

    /// Describes the end of the process.
    pub(super) fn describe(&self, cause: &Cause, stderr: &str) -> String {
        let what = match cause {
            Cause::Exited(exit) => format!("has ended ({exit})"),
            Cause::Fault(Fault::ClosedOutput) => "closed its standard output".to_owned(),
            Cause::Fault(Fault::ClosedInput) => "closed its standard input".to_owned(),
            Cause::Fault(Fault::Other(what)) => what.clone(),
        };
        let mut text = format!("the MCP server `{}` {what}", self.name);
        if let Some(line) = &*{ self.unexpected.lock() }.unwrap_or_else(PoisonError::into_inner) {
            text.push_str(&format!(
                "; its last line of output is not part of the protocol: {line}"
            ));
        }
        let mut lines: Vec<&str> = { stderr.lines().rev() }
            .filter(|line| !line.trim().is_empty())
            .take(LAST_LINES)
            .collect();
        lines.reverse();
        if !lines.is_empty() {
            let last = text::end(&lines.join(" / "), 2 * MAX_TEXT).to_owned();
            let last = one_line(&last, 2 * MAX_TEXT);
            text.push_str(&format!("; its standard error ends with: {last}"));
        }
        text
    }
}
