//! Signals as a stack of scoped, acknowledged handlers with an escalation ladder that always ends.
//!
//! Ctrl-C means different things while a program streams, waits or saves, and none of them may cost the person the way out. Here
//! each scope pushes a [`Handler`]; a press goes to the topmost one as a [`Notice`], to be handled, declined or escalated. A second
//! press that meets an unanswered first begins the graceful shutdown, and any press after that ends the process, in whatever state
//! the program is.
//!
//! The README has a program with a menu, a service, and how this crate stands beside others; `examples/menu.rs` is the first in full.
//!
//! This crate draws no menu, reads no terminal and ends no child processes. It is not a general signal library: it knows `SIGINT`,
//! `SIGTERM`, `SIGHUP`, `SIGQUIT`, and `SIGTSTP` with `SIGCONT`.
//!
//! # Limits
//!
//! The hard exit runs no destructors and no `atexit` handlers, and flushes nothing: each of these can hang. It puts back the settings
//! of the terminal, but writes nothing to it.
//!
//! Unix. A process that is stopped, or hangs in the kernel, acts on a press when it runs again. Presses that come closer together than
//! the debounce (30 ms) count as one, and a `SIGINT` from an ancestor right after the terminal's is the same press, since terminals,
//! shells and package managers send one twice.
//!
//! # Theory of operation
//!
//! The [`ladder`] is a pure machine; time and events go in, effects come out. Whoever has an event (a signal, an injected press, an
//! answer) decides it there, under a lock that is never held while code of others runs.
//!
//! The signal handler takes no lock. It decides by one word, which it shares with the router (the side of the lock) and both change by compare-exchange: the
//! rung that the router has published, the presses that are posted and not yet decided, the time of the last one. Rung and posted
//! presses together say what the ladder will answer at the least, so the handler can end the process itself on the last rung, and
//! does, though no thread should ever run again. Otherwise it leaves the press with its time in a slot and wakes a thread.
//!
//! Three equal threads wait for that. Whoever wakes decides what was posted, in the order of the times at which it came, and then runs
//! wakers and hooks. At most two of them do so at a time, so that one is free for the next press. A fourth keeps the deadlines and
//! performs a hard exit that did not come by a signal; it runs no code of others, except the callback that was set for this. A detached
//! ladder has two threads: one for wakers, and that one. None of it needs an async runtime: `Builder::install` belongs at the top of
//! `main`. The `driver` feature puts a future in the place of all threads.
//!
//! The process ends by the signal itself, as shells expect: default action, sent to the ending thread, and `_exit` where that has no
//! effect, as for PID 1 of a container.
#![cfg_attr(docsrs, feature(doc_cfg))]

// The modules in reading order; each takes from those above it:
//   cause, clock           the small types of the public side
//   times                  of a press and of a shutdown
//   ladder                 the machine: every decision about a press, pure
//   atomic, word           the one word that the signal handler and the router share
//   sys, process           the operating system: unsafe calls; the process, its one set of signals and its end
//   catch                  the signal handler
//   state                  what is decided and not yet done, behind the router's lock
//   hooks, router, acting  what the program sets for the router, the lock, and what is done without it
//   interrupts, handler    the handles that a program holds
//   builder                the settings
//   installed, driver      a ladder that has the process's signals, or why not; a future in the place of all threads
//   start                  the ways to start one
mod acting;
mod atomic;
mod builder;
#[cfg_attr(
    not(feature = "signals"),
    expect(dead_code, reason = "only an install registers a handler")
)]
mod catch;
mod cause;
mod clock;
#[cfg(feature = "driver")]
mod driver;
mod handler;
mod hooks;
#[cfg(feature = "signals")]
mod installed;
mod interrupts;
pub mod ladder;
mod process;
mod router;
mod start;
mod state;
mod sys;
mod times;
mod word;
#[cfg(test)]
mod word_tests; // not within `word`, which the tests of the model checker compile too

pub use builder::Builder;
pub use cause::{Cause, PressSource};
#[cfg(feature = "test-util")]
pub use clock::ManualClock;
pub use clock::{Clock, SystemClock};
#[cfg(feature = "driver")]
pub use driver::Driver;
pub use handler::{Handler, Notice};
pub use hooks::HardExit;
#[cfg(feature = "signals")]
pub use installed::{Error, Installed};
pub use interrupts::{Injector, Interrupts};
pub use ladder::HandlerId;
pub use process::die_by;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
