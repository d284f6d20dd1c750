//! A stack of scoped handlers that answer Ctrl-C, and an escalation ladder that always leads to the end of the process.
//!
//! Ctrl-C means different things while a program streams, waits or saves, but it must always lead to an exit. With this crate, each
//! scope pushes a [`Handler`]. A press goes to the topmost handler as a [`Notice`], which the handler handles, declines or escalates.
//! If the first press is unanswered, a second press begins the graceful shutdown. Any later press ends the process, whatever its
//! threads do. Without a handler, the first press begins the shutdown:
//!
#![cfg_attr(feature = "signals", doc = "```no_run")]
#![cfg_attr(not(feature = "signals"), doc = "```ignore")]
//! use std::{error::Error, fs, time::Duration};
//!
//! use interrupt_stack::{Interrupts, die_by};
//!
//! fn main() -> Result<(), Box<dyn Error>> {
//!     let interrupts = Interrupts::builder().install()?; // first in `main`: catches Ctrl-C from now on
//!     let mut count = 0;
//!     while interrupts.wait_timeout(Duration::from_secs(1)).is_none() {
//!         count += 1; // the work, until Ctrl-C, `SIGTERM` or `SIGHUP`
//!     }
//!     fs::write("count", count.to_string())?; // the save; if it hangs, one more Ctrl-C ends the process
//!     die_by(interrupts.wait()) // the shell sees a death by Ctrl-C
//! }
//! ```
//!
//! The README has a program with a menu, a service, and a comparison with other crates; `examples/menu.rs` is the complete program
//! with the menu.
//!
//! This crate draws no menu, reads no terminal and ends no child processes. It is not a general signal library: it supports `SIGINT`,
//! `SIGTERM`, `SIGHUP`, `SIGQUIT`, and `SIGTSTP` with `SIGCONT`.
//!
//! # Limits
//!
//! The hard exit runs no destructors and no `atexit` handlers, and flushes nothing, because each of these can hang. It restores the
//! settings of the terminal, but writes nothing to it.
//!
//! Unix only. A process that is stopped, or hangs in the kernel, acts on a press when it runs again. Presses that are closer together
//! than the debounce (30 ms) count as one. A `SIGINT` that an ancestor sends right after the terminal's `SIGINT` is the same
//! press, because the terminal signals the whole job and a shell or package manager then forwards the signal.
//!
//! # Theory of operation
//!
//! The ladder is a pure state machine: time and events go in, effects come out. The thread that has an event (a signal, an
//! injected press, an answer) passes it to the ladder under a lock. That lock is never held while foreign code runs.
//!
//! The signal handler takes no lock. It decides from one atomic word, which it shares with the router (the code behind the lock). Both
//! change the word by compare-exchange. The word contains the stage that the router has published, the number of posted presses that
//! the router has not read yet, and the time of the last press. Stage and posted presses give a lower bound of the stage that the
//! ladder will reach. So at the last stage the handler can end the process itself, even if no other thread ever runs again. Otherwise
//! the handler stores the press with its time in a slot and wakes a thread. The handler is an action of `signal-hook-registry`, which also
//! serves `tokio::signal` and `signal-hook`: only there an action gets the sender of the signal (`siginfo`), which shows whether the
//! terminal or a parent sent it.
//!
//! Three equal threads wait for posts. A thread that wakes passes the posts to the ladder in the order of their times, and then runs
//! wakers and hooks. At most two of these threads run wakers and hooks at a time, so one is free for the next press. A fourth thread
//! keeps the deadlines and performs a hard exit that no signal caused. It runs no foreign code, except the callback for the hard exit.
//! A detached ladder has two threads: one for wakers, and one for deadlines. None of the threads needs an async runtime,
//! so call `Builder::install` at the top of `main`. The `driver` feature replaces all threads by a future.
//!
//! The process dies by the signal itself, as shells expect: the thread that ends the process restores the default action and sends
//! itself the signal. If that has no effect, as for PID 1 of a container, the thread calls `_exit`.
#![cfg_attr(docsrs, feature(doc_cfg))]

// The modules in reading order; each uses those above it:
//   cause, clock           small public types
//   times                  time limits of a press and of a shutdown
//   ladder                 the pure state machine, which makes every decision about a press
//   atomic, press_word     the atomic word that the signal handler and the router share
//   sys, process           the operating system: unsafe calls; the process, its one set of signals and its end
//   signal_catcher         the signal handler
//   state                  decided actions that are not performed yet, behind the router's lock
//   hooks, router, worker  the program's hooks, the lock, and the actions that run without the lock
//   interrupts, handler    the handles that a program holds
//   builder                the settings
//   installed, driver      a ladder with the signals of the process, and its errors; a future that replaces all threads
//   start                  the ways to start a ladder
#[cfg(not(unix))]
compile_error!(
    "interrupt-stack handles the signals of Unix and has no Windows support: use `ctrlc` or `tokio::signal` there"
);

#[cfg(unix)]
mod atomic;
#[cfg(unix)]
mod builder;
#[cfg(unix)]
mod cause;
#[cfg(unix)]
mod clock;
#[cfg(all(unix, feature = "driver"))]
mod driver;
#[cfg(unix)]
mod handler;
#[cfg(unix)]
mod hooks;
#[cfg(all(unix, feature = "signals"))]
mod installed;
#[cfg(unix)]
mod interrupts;
#[cfg(unix)]
#[doc(hidden)] // the crate's own tests explore it; it is no part of the API
pub mod ladder;
#[cfg(unix)]
mod press_word;
#[cfg(all(unix, test))]
mod press_word_tests; // outside of `press_word`, because the model checker's tests compile that file too
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod router;
#[cfg(unix)]
#[cfg_attr(
    not(feature = "signals"),
    expect(dead_code, reason = "only an install registers a handler")
)]
mod signal_catcher;
#[cfg(unix)]
mod start;
#[cfg(unix)]
mod state;
#[cfg(unix)]
mod sys;
#[cfg(unix)]
mod times;
#[cfg(unix)]
mod worker;

#[cfg(unix)]
pub use builder::Builder;
#[cfg(unix)]
pub use cause::{Cause, PressSource};
#[cfg(unix)]
pub use clock::Clock;
#[cfg(all(unix, feature = "test-util"))]
pub use clock::ManualClock;
#[cfg(all(unix, feature = "driver"))]
pub use driver::InterruptDriver;
#[cfg(unix)]
pub use handler::{Handler, Notice};
#[cfg(unix)]
pub use hooks::HardExit;
#[cfg(all(unix, feature = "signals"))]
pub use installed::{Error, Installed};
#[cfg(unix)]
pub use interrupts::{Injector, Interrupts};
#[cfg(unix)]
pub use ladder::HandlerId;
#[cfg(unix)]
pub use process::die_by;
#[cfg(all(unix, feature = "tokio-util"))]
pub use tokio_util::sync::CancellationToken;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
