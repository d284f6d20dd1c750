//! Sleeps that wake together and say why.
//!
//! A program that waits in several places (between two iterations, in a back-off, for a rate limit to pass) must be able to end all
//! of these waits at once, and each waiting task must learn whether its time was up, somebody cut the wait short, or the program is
//! shutting down. A [`SleepGate`] is one such group of waits: every sleep answers with a [`Wake`].
//!
//! This crate is not a timer, not a scheduler and not a general cancellation library: sleeping is tokio's, cancelling is
//! `CancellationToken`'s. It does not cancel work, it only ends waits.
//!
//! # Limits
//!
//! - Sleeps need a tokio runtime with its time driver; [`blocking_sleep`](SleepGate::blocking_sleep) needs none.
//! - Durations are measured on tokio's monotonic clock, which on Linux stands still while the machine is suspended, to the
//!   millisecond. Who waits for a time of day takes [`sleep_until_wall`](SleepGate::sleep_until_wall), which looks at the clock once
//!   a second: it costs a wake-up a second, and ends up to a second late after a suspend or a jump.
//! - Shutting down and kicking run the wakers of all sleepers in the caller, unless it is done
//!   [in batches](SleepGate::shutdown_in_batches).
//! - A kick reaches those who sleep now; in the middle of work it finds nobody, and is not remembered. For a "poll now" that must not
//!   be lost put a `tokio::sync::Notify` beside the gate, whose `notify_one` stays until it is taken:
//!   `select! { why = gate.sleep(delay) => …, () = wish.notified() => … }`.
//! - Beginning and ending a sleep takes the gate's lock for a moment. A million sleepers at one gate are fine, a million sleeps a
//!   second are not what it is for.
//!
//! # A loop with a back-off
//!
//! ```
//! use std::time::Duration;
//! use cancellable_sleep::{SleepGate, Wake};
//!
//! # async fn request() -> Result<u32, &'static str> { Ok(1) }
//! /// Tries until it works; `None` where the program is shut down instead.
//! async fn stubborn(gate: &SleepGate) -> Option<u32> {
//!     let mut delay = Duration::from_secs(1);
//!     loop {
//!         match request().await {
//!             Ok(answer) => return Some(answer),
//!             Err(_) => match gate.sleep(delay).await {
//!                 Wake::Elapsed => delay = (delay * 2).min(Duration::from_secs(60)),
//!                 Wake::Kicked => delay = Duration::from_secs(1), // somebody knows that it is worth a try
//!                 Wake::Shutdown => return None,
//!             },
//!         }
//!     }
//! }
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # assert_eq!(stubborn(&SleepGate::new()).await, Some(1));
//! # }
//! ```
//!
//! # Beside what you may know
//!
//! | | wakes all | a late sleeper | says why | can wake again |
//! |---|---|---|---|---|
//! | `select! { sleep, token.cancelled() }` | yes | ends at once | as you write it, each time | no: a token is cancelled once |
//! | `token.run_until_cancelled(sleep)` | yes | ends at once | `None` or `Some` | no |
//! | `select! { sleep, notify.notified() }` | yes | **sleeps on** | as you write it | yes |
//! | tokio-graceful-shutdown | yes | ends at once | as above: it hands out a token | no |
//! | a sleep at a gate | yes | ends at once | [`Wake`] | yes |
//!
//! One wait that ends on shutdown only is well served by `select!` with a token. `tokio-graceful-shutdown` starts, supervises and
//! stops the parts of a service, which this crate doesn't: a gate can be made from its token. A gate pays off where there are many
//! waits, where "cut short" and "shut down" differ, and where threads or times of day wait beside tasks. It needs less memory than
//! the `select!`: see below.
//!
//! # Theory of operation
//!
//! A gate is a cancellation token, which is sticky, and a roster of the wakers of those who sleep. One listener per gate waits for
//! the token, and takes the wakers off the roster when it is cancelled, by whomever; a kick takes them off as well and leaves the
//! token alone. A sleeper whose waker is gone asks the token which it was. It leaves its waker before it asks, and whoever cancels
//! does so before the wakers are taken, so no wake is lost, and the number that [`wake_all`](SleepGate::wake_all) returns is exact.
//! Where several reasons hold in the same poll, shutdown beats a kick and a kick beats the elapsed time.
//!
//! No lock is held while a waker is cloned, dropped or called, and a waker that panics is contained: everybody else is woken. A
//! sleeper is known by the address of its pinned future, so [`Sleep`] is as large as tokio's timer and one pointer: smaller than the
//! structure that `select!` makes of a timer and a token, which has a waiter of its own. The roster needs some 50 bytes beside it.
//!
//! # With backon
//!
//! With the feature `backon` a gate is a `backon::Sleeper` and a `backon::BlockingSleeper`, so a back-off ends at shutdown. backon
//! throws the [`Wake`] away: a kick is an early try, and whether it was shutdown is what [`is_shutdown`](SleepGate::is_shutdown)
//! says afterwards. It asks nobody whether to go on after a sleep, so tell it by both of these:
//!
//! - `when`: without it, it uses up all its tries without a pause, and where their number has no limit it never ends. With it, it
//!   tries once more at most.
//! - the token around it, which ends a try that is under way.
//!
#![cfg_attr(all(feature = "backon", feature = "tokio-util"), doc = "```")]
#![cfg_attr(
    not(all(feature = "backon", feature = "tokio-util")),
    doc = "```ignore"
)]
//! use backon::{ExponentialBuilder, Retryable};
//! use cancellable_sleep::SleepGate;
//!
//! # async fn request() -> Result<u32, &'static str> { Err("overloaded") }
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let gate = SleepGate::new();
//! # gate.shutdown();
//! let retry = request
//!     .retry(ExponentialBuilder::default())
//!     .when(|_| !gate.is_shutdown())
//!     .sleep(gate.clone());
//! let answer = gate.token().run_until_cancelled(retry).await; // `None`: shutdown came first
//! # assert!(answer.is_none());
//! # }
//! ```
//!
//! Where the reason matters, let backon say only how long to wait, which needs no feature of this crate:
//!
#![cfg_attr(feature = "backon", doc = "```")]
#![cfg_attr(not(feature = "backon"), doc = "```ignore")]
//! use backon::{BackoffBuilder, ExponentialBuilder};
//! use cancellable_sleep::{SleepGate, Wake};
//!
//! # async fn request() -> Result<u32, &'static str> { Err("overloaded") }
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # let gate = SleepGate::new();
//! # gate.shutdown();
//! for delay in ExponentialBuilder::default().build() {
//!     if request().await.is_ok() || gate.sleep(delay).await == Wake::Shutdown {
//!         break;
//!     }
//! }
//! # }
//! ```
//!
//! The README has a main loop with signals, and `examples/poller.rs` shows all of it together.
#![cfg_attr(docsrs, feature(doc_cfg))]

// The modules in reading order; each takes from those above it:
//   wall               the time of day: where it comes from, and when to look again
//   seat               one sleeper at a gate, the roster of all, and why a sleep ended
//   sleep, blocking    the future of a sleep; the same on a thread
//   batches            waking many sleepers a few at a time
//   gate               what callers hold: each kind of wait, a beat of sleeps, and backon's sleeper
mod batches;
mod blocking;
mod gate;
mod seat;
mod sleep;
mod wall;

pub use gate::{Interval, SleepGate};
pub use seat::Wake;
pub use sleep::Sleep;

#[cfg(all(doctest, feature = "tokio-util"))]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
