//! The harness of the end-to-end tests, a scripted agent and a scripted model server.
//!
//! For tests of this workspace that run the `rlm` binary as a user would: in a real git repository, with real child processes, real signals
//! and, where it matters, a pseudo-terminal. Not for unit tests of a crate, and not published.
//!
//! # Theory of operation
//!
//! A [`Sandbox`] is a temporary folder with a repository, a home of its own and a random mark. Every process started through it carries the
//! mark in its environment ([`MARK_VARIABLE`]), so that [`Survivors`] finds all that is left of a test, and nothing else, whoever its parent
//! is by now. The harness is a child subreaper and plays init for its test: what it inherited is reaped when it is dead. Nothing waits
//! blindly: [`wait_for`] polls until a deadline and then says what it was waiting for.
//!
//! The [`agent`] is a program that does what a script tells it, and records how it was started and which signals it got. The [`model`]
//! answers as the Anthropic Messages API does, so that a real agent CLI can be driven without an account or a network.
//!
//! # Platform
//!
//! Scans, reaping and the records' descriptors need Linux (`/proc`, `PR_SET_CHILD_SUBREAPER`).

#![expect(
    clippy::unwrap_used,
    reason = "a harness: its panics are the failures of tests"
)]

// The modules in reading order; each takes from those above it:
//   wait, effort, os, schema      polls with a deadline, how much is tried, what happens before exec, the schema of events
//   survivors, pty                what is left of a test; a pseudo-terminal
//   sandbox, rlm                  the place of a test, and a program in it
//   agent, model                  the scripted agent and the scripted model server
//   picture, story                the picture of the README, and a run as it is told
//   live                          real agent CLIs against the scripted model
pub mod agent;
mod effort;
pub mod live;
pub mod model;
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
pub use survivors::{MARK_VARIABLE, Process, Survivors};
pub use wait::{poll_until, wait_for};
