//! The control of a run: by messages from its own process, and through the control socket from other processes of the same user.
//!
//! The socket is `control.sock` in the run's directory (mode 0600, its directory 0700) while a process works on the run. A request is one line: a
//! JSON object with its version (`{"v":1,"request":"interrupt"}`). Each response is also one line, and reports further progress: *recorded* (on
//! disk), *delivered* (the agent has received it), *in effect*. [`ask`] sends a request; it fails at once if nothing listens. Each line of a run names
//! its program: if a client can't use a response of another version, its error names both versions.
//!
//! [`LiveRun::attach`] shows a run with one request: the run sends its last events, then each new event and each change of its view, and its end. A slow
//! viewer misses events and gets their number; the run never waits for a viewer.
//!
//! A process that an agent started may request the status, and nothing else: see `caller`.
//!
//! A run of a fleet gets the same lines from other machines. The fleet records a request under a number, and the run saves the number together with the
//! effect of the request, so that the request is applied once.
//!
//! A line has at most 1 MiB. The run serves 32 connections at once, and drops a peer that takes more than 5 s to send its request or to read. If more
//! than 32 peers have not sent their request yet, the run drops the oldest.

// The modules in reading order; each uses only those above it:
//   request_queue               the queue of requests, and their results
//   program                     the programs at the two ends, and their versions
//   protocol                    the lines of the socket
//   status, progress            the status and the view of a run; the progress of a request
//   socket_path, caller, peer   the path of the socket, the permission of a caller, the connection
//   connection, remote, server  the run's side
//   client, attached            the client's side, one connection
//   live_run, force_stop        the client's side, a live run; ending its process by force
//   health                      the health of a live run
use loop_state::{Request, Timestamp};

mod attached;
mod caller;
mod client;
mod connection;
mod force_stop;
mod health;
mod live_run;
mod peer;
mod program;
mod progress;
mod protocol;
mod remote;
pub(crate) mod request_queue;
mod server;
mod socket_path;
mod status;
#[cfg(test)]
mod tests;

pub use attached::AttachedRun;
pub use caller::{agent_of_this_process, refuse_agent};
#[cfg(test)]
pub(crate) use client::send;
pub use client::{Responses, ask};
pub use force_stop::{ForceCause, ForcedStop, StopOrForce};
pub use health::ProcessHealth;
pub use live_run::{AskOutcome, ConnectOutcome, LiveRun, ResponseLimits};
pub use protocol::{Activity, EndReport, Response, Status};
pub(crate) use protocol::{AttachMessage, ControlMessage, ControlQuery};
pub(crate) use request_queue::{QueuedRequest, ReplySender, RequestQueue, RunPosition};
pub(crate) use server::ControlSocket;

/// Returns the line with which another machine sends a request to a run of a fleet.
///
/// # Errors
///
/// The reason why a run would not accept the request.
pub fn request_line(request: &Request) -> Result<Vec<u8>, String> {
    let line = protocol::line(&ControlMessage::from(request.clone()));
    match protocol::parse_message(&line) {
        Ok(_) => Ok(line),
        Err(Response::Malformed { reason }) => Err(reason),
        Err(_) => Err("a run does not know this request".into()),
    }
}

/// Returns the line with which another machine asks for the status of a run of a fleet.
#[must_use]
pub fn status_line() -> Vec<u8> {
    protocol::line(&ControlMessage::from(ControlQuery::Status))
}

/// Parses a response line of a run of a fleet.
///
/// # Errors
///
/// The reason why the line is no response.
pub fn parse_response(line: &[u8]) -> Result<Response, String> {
    protocol::parse_response(line)
}

/// Returns the line with which another machine attaches to a run of a fleet, see [`AttachedRun::remote`].
#[must_use]
pub fn attach_line(attended: bool) -> Vec<u8> {
    protocol::line(&ControlMessage::from(ControlQuery::Attach { attended }))
}

/// Returns the time of the event in a line; `None` for all other lines.
#[must_use]
pub fn event_at(line: &[u8]) -> Option<Timestamp> {
    match serde_json::from_slice(line) {
        Ok(AttachMessage::Event { at, .. }) => Some(at),
        _ => None,
    }
}
