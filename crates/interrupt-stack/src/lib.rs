//! Signals as a stack of scoped, acknowledged handlers with an escalation ladder that always ends.
//!
//! Ctrl-C means different things while a program streams, waits or saves, and none of them may cost the person the way out. Here
//! each scope pushes a [`Handler`]; a press goes to the topmost one as a [`Notice`], to be handled, declined or escalated. A second
//! press that meets an unanswered first begins the graceful shutdown, and any press after that ends the process, in whatever state
//! the program is.
//!
//! This crate draws no menu, reads no terminal and ends no child processes. It is not a general signal library: it knows `SIGINT`,
//! `SIGTERM`, `SIGHUP` and `SIGQUIT`.
//!
//! # Theory of operation
//!
//! The [`ladder`] is a pure machine; time and events go in, effects come out. Whoever has an event (a signal, an injected press, an
//! answer) decides it there, under a lock that is never held while code of others runs. Two threads act on what was decided: one
//! keeps the deadlines and performs the hard exit, the other runs wakers, so that neither a blocked runtime nor a slow waker can
//! stand between a press and its effect. A third reads signals, when there are any to read. None of this needs an async runtime:
//! [`Builder::install`] belongs at the top of `main`.
//!
//! The hard exit ends the process by the signal itself, as shells expect, and does so with `SIGKILL`-like disregard for destructors,
//! `atexit` handlers and buffers: each of these can hang.
//!
//! # Limits
//!
//! Unix. A process that is stopped, or whose threads get no processor time at all, acts on a press when it runs again. Presses that
//! come closer together than the debounce (50 ms) count as one, since terminals, shells and package managers send one press twice.

mod acting;
mod builder;
#[cfg_attr(
    not(feature = "signals"),
    expect(dead_code, reason = "only an install registers a handler")
)]
mod catch;
mod cause;
mod clock;
mod die;
#[cfg(feature = "driver")]
mod driver;
#[cfg(feature = "signals")]
mod error;
mod handler;
mod inbox;
#[cfg(feature = "signals")]
mod installed;
mod interrupts;
pub mod ladder;
mod router;
mod state;
mod sys;
mod terminal;
#[cfg(feature = "tracing")]
mod trace;
mod word;

/// What `word` is made of; a model checker includes the file beside atomics of its own.
use std::sync::atomic;

pub use builder::{Builder, HardExit};
pub use cause::{Cause, PressSource};
#[cfg(feature = "test-util")]
pub use clock::ManualClock;
pub use clock::{Clock, SystemClock};
pub use die::die_by;
#[cfg(feature = "driver")]
pub use driver::Driver;
#[cfg(feature = "signals")]
pub use error::Error;
pub use handler::{Handler, Notice};
#[cfg(feature = "signals")]
pub use installed::Installed;
pub use interrupts::{Injector, Interrupts};
pub use ladder::HandlerId;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
