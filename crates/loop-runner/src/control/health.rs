//! The health of a live run, according to the responses of its process.

use std::time::{Duration, Instant};

use agent_subprocess::ProcessId;
use rlm_store::{Holder, Project, RunId};

use crate::control::client;
use crate::control::protocol::{ControlQuery, Response, Status};

/// The longest time since the last pass of a healthy run's loop. The loop makes a pass at least every 5 s.
const STALE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// The health of a live run, according to the responses of its process.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProcessHealth {
    /// The process responds, and its loop works.
    Responding(Box<Status>),
    /// The process responds, and its loop has made no pass for this time.
    LoopStuck(Box<Status>, Duration),
    /// The process is suspended, by Ctrl-Z or SIGSTOP. It responds after SIGCONT.
    Suspended(ProcessId),
    /// The process has not responded for this time.
    Unresponsive(Duration),
    /// The process responds, but it has another version of the program, and its response is not known here. The text names both versions.
    OtherVersion(String),
}

impl ProcessHealth {
    /// Sends a request to the process that works on the run, and waits for `timeout` at most. Blocks. `holder` is the result of
    /// [`Project::holder`].
    #[must_use]
    pub fn of(project: &Project, run: &RunId, holder: Option<&Holder>, timeout: Duration) -> Self {
        if let Some(holder) = holder.filter(|it| it.process.is_suspended()) {
            return Self::Suspended(holder.process);
        }
        let by = Instant::now() + timeout;
        loop {
            let left = by.saturating_duration_since(Instant::now());
            let response = client::send(&project.run_dir(run), ControlQuery::Status);
            match response.and_then(|mut responses| responses.next(left)) {
                Ok(Some(Response::Status(status))) => {
                    let age = Duration::from_millis(status.last_tick_ms);
                    return match age > STALE {
                        true => Self::LoopStuck(status, age),
                        false => Self::Responding(status),
                    };
                }
                // The run has just begun, or will create its socket again within seconds.
                Err(e) if e.is_not_running() && !left.is_zero() => std::thread::park_timeout(POLL),
                Ok(Some(Response::Busy)) if !left.is_zero() => std::thread::park_timeout(POLL),
                Err(e) if e.is_other_version() => return Self::OtherVersion(e.to_string()),
                _ => return Self::Unresponsive(timeout),
            }
        }
    }

    /// Returns the status, if the process responded.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Responding(status) | Self::LoopStuck(status, _) => Some(status),
            Self::Suspended(_) | Self::Unresponsive(_) | Self::OtherVersion(_) => None,
        }
    }
}
