//! The harness of the end-to-end tests, a scripted agent and a scripted model server.
//!
//! For tests of this workspace that run the `rlm` binary as a user would: in a real git repository, with real child processes, real signals and, if
//! needed, a pseudo-terminal. Not for unit tests of a crate, and not published.
//!
//! # Theory of operation
//!
//! A [`Sandbox`] is a temporary directory with a repository, its own home and a random marker. Every process started through it has the marker in its
//! environment ([`MARKER_VARIABLE`]), so that [`Survivors`] finds exactly the remaining processes of a test, whatever their parents. The harness is a
//! child subreaper and acts as init for its test: it reaps the processes that it adopts. Every wait has a deadline: [`wait_for`] polls until then,
//! and names the awaited value in its panic.
//!
//! The [`agent`] is a program that follows a script, and records its starts and its signals. The [`model`] answers like the Anthropic Messages API,
//! so that a real agent CLI can run without an account or a network.
//!
//! # Platform
//!
//! Scans, reaping and the records' descriptors need Linux (`/proc`, `PR_SET_CHILD_SUBREAPER`).

#![expect(clippy::unwrap_used, reason = "in a harness, a panic is a failed test")]

// The modules in reading order. Each uses only those above it:
//   wait, effort, os, schema      polls with a deadline, the effort of a test, the steps before exec, the schemas of events
//   survivors, pty                the live processes of a test; a pseudo-terminal
//   sandbox, rlm                  the environment of a test, and a program in it
//   agent, model                  the scripted agent and the scripted model server
//   http, browser                 a small HTTP client, and a browser driven through it
//   nats                          NATS servers, and a proxy before them
//   picture, story                the picture of the README, and the text of a run
//   live                          real agent CLIs against the scripted model
pub mod agent;
pub mod browser;
mod effort;
pub mod http;
pub mod live;
pub mod model;
pub mod nats;
mod os;
pub mod picture;
mod pty;
mod rlm;
mod sandbox;
pub mod schema;
pub mod story;
mod survivors;
mod wait;

pub use effort::{Effort, seed};
pub use pty::Terminal;
pub use rlm::{Ended, Rlm, Running};
pub use sandbox::Sandbox;
pub use survivors::{MARKER_VARIABLE, Process, Survivors};
pub use wait::{poll_until, wait_for};
