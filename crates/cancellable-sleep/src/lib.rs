//! A group of cancellable sleeps: one call ends all of them, and each sleep returns why it ended.
//!
//! A program may wait in several places: between two iterations, in a back-off, for a rate limit. It must be able to end all these
//! waits at once. Each waiting task must learn whether its time was up, the program ended the wait early, or the program shuts down.
//! A [`SleepGate`] is such a group of waits: every sleep returns a [`Wake`].
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use cancellable_sleep::{SleepGate, Wake};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let gate = SleepGate::new(); // one gate for the program, and a child for each group that wakes separately
//! let (polls, nights) = (gate.child(), gate.child());
//! let poll = tokio::spawn(polls.sleep(Duration::from_secs(300)));
//! let night = tokio::spawn(nights.sleep_until_wall(SystemTime::now() + Duration::from_secs(36_000)));
//! tokio::task::yield_now().await; // now both tasks sleep
//!
//! polls.wake_all(); // "poll now": the nightly job continues to sleep
//! assert_eq!(poll.await.unwrap(), Wake::Woken);
//! gate.shutdown(); // ends the sleeps of all groups
//! assert_eq!(night.await.unwrap(), Wake::Shutdown);
//! # }
//! ```
//!
//! This crate is not a timer, not a scheduler and not a general cancellation library: it uses tokio's timers and its
//! [`CancellationToken`]. It ends waits, and the work that you pass to [`SleepGate::run`].
//!
//! # Limits
//!
//! - Sleeps need a tokio runtime with its time driver; [`blocking_sleep`](SleepGate::blocking_sleep) needs no runtime.
//! - Durations are measured to the millisecond on tokio's monotonic clock, which on Linux stops while the machine is suspended. For a
//!   time of day, use [`sleep_until_wall`](SleepGate::sleep_until_wall). It reads the clock once a second, which costs one wake-up per
//!   second, and ends up to a second late after a suspend or a jump.
//! - `shutdown` and `wake_all` run the wakers of all sleepers in the caller; [`shutdown_in_batches`](SleepGate::shutdown_in_batches)
//!   doesn't.
//! - [`wake_all`](SleepGate::wake_all) reaches only present sleeps. It doesn't reach a task that is at work, and later sleeps don't see
//!   it. If a "poll now" must not be lost, put a `tokio::sync::Notify` beside the gate, because it stores the permit of `notify_one`
//!   until a task takes the permit: `select! { why = gate.sleep(delay) => …, () = request.notified() => … }`.
//! - Each sleep takes the gate's lock for a moment when it begins and when it ends. A gate works well with a million sleepers, but is not made for
//!   a million new sleeps per second.
//!
//! # A loop with a back-off
//!
//! ```
//! use std::time::Duration;
//! use cancellable_sleep::{SleepGate, Wake};
//!
//! # async fn request() -> Result<u32, &'static str> { Ok(1) }
//! /// Tries until the request succeeds; returns `None` if the program shuts down before.
//! async fn stubborn(gate: &SleepGate) -> Option<u32> {
//!     let mut delay = Duration::from_secs(1);
//!     loop {
//!         match request().await {
//!             Ok(answer) => return Some(answer),
//!             Err(_) => match gate.sleep(delay).await {
//!                 Wake::Elapsed => delay = (delay * 2).min(Duration::from_secs(60)),
//!                 Wake::Woken => delay = Duration::from_secs(1), // "try now": begin with short waits again
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
//! # Comparison
//!
//! | | wakes all | a sleep that begins later | gives the reason | can wake again |
//! |---|---|---|---|---|
//! | `select! { sleep, token.cancelled() }` | yes | ends at once | if you code it, each time | no: a token is cancelled once |
//! | `token.run_until_cancelled(sleep)` | yes | ends at once | `None` or `Some` | no |
//! | `select! { sleep, notify.notified() }` | yes | **isn't woken** | if you code it | yes |
//! | tokio-graceful-shutdown | yes | ends at once | as for a token, which it provides | no |
//! | a sleep at a gate | yes | ends at once | [`Wake`] | yes |
//!
//! For a single wait that only a shutdown ends early, `select!` with a token is enough. `tokio-graceful-shutdown` starts, supervises and stops
//! the parts of a service, which this crate doesn't; a gate can be made from its token. Use a gate if there are many waits, if "end
//! this wait" and "shut down" differ, if threads wait too, or if tasks wait for a time of day. A gate needs less memory than the `select!`: see
//! below.
//!
//! # Theory of operation
//!
//! A gate consists of a cancellation token, which is sticky, and a list with the wakers of all present sleeps. One listener per gate waits for
//! the token. When the token is cancelled, the listener removes the wakers from the list and calls them.
//! [`wake_all`](SleepGate::wake_all) does the same, but doesn't cancel the token. A sleep whose waker is gone checks the token to find
//! the reason. A sleep stores its waker before it checks the token, and the token is cancelled before the wakers are removed. So no
//! wake-up is lost, and the number that `wake_all` returns is exact. If several reasons apply in the same poll, shutdown wins over
//! `wake_all`, and `wake_all` wins over the elapsed time.
//!
//! No lock is held while a waker is cloned, dropped or called. The panic of a waker is caught, and all other sleeps are woken. A
//! sleep is identified by the address of its pinned future, so [`Sleep`] is only one pointer larger than tokio's timer. That is smaller than
//! the structure that `select!` makes of a timer and a token, because each such structure contains its own waiter for the token. The list needs about
//! 50 bytes per sleep.
//!
//! # With backon
//!
//! With the feature `backon` a gate is a `backon::Sleeper` and a `backon::BlockingSleeper`, so a back-off ends at shutdown. backon
//! discards the [`Wake`]: `wake_all` causes an early try, and [`is_shutdown`](SleepGate::is_shutdown) shows afterwards whether a
//! shutdown ended the sleep. After a sleep, backon continues without a check of the gate, so use both of these:
//!
//! - `when`: without it, backon makes all remaining tries without a pause, and never ends if their number has no limit. With it, backon
//!   makes at most one more try.
//! - [`run`](SleepGate::run) at a child gate around the whole retry: at shutdown it also ends a try in progress. It is a child gate, so that
//!   `wake_all` causes an early try and doesn't end the retry.
//!
#![cfg_attr(feature = "backon", doc = "```")]
#![cfg_attr(not(feature = "backon"), doc = "```ignore")]
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
//! let answer = gate.child().run(retry).await; // `Err`: shutdown came first
//! # assert!(answer.is_err());
//! # }
//! ```
//!
//! If the reason matters, let backon compute only the delays, which needs no feature of this crate:
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
//! The README has a main loop with signals, and `examples/poller.rs` combines all of this.
#![cfg_attr(docsrs, feature(doc_cfg))]

// The modules in reading order; each uses those above it:
//   wall_clock         the time of day: its source, and the next time to check it
//   sleeper            one sleeper at a gate, the list of all sleepers, and the reason why a sleep ended
//   sleep, blocking    the future of a sleep; the sleep of a thread
//   run                work that a gate ends early
//   batches            wakes many sleepers, all at once or in batches
//   gate               the public handle: each kind of wait, intervals, and backon's sleeper
mod batches;
mod blocking;
mod gate;
mod run;
mod sleep;
mod sleeper;
mod wall_clock;

pub use gate::{Interval, SleepGate};
pub use sleep::Sleep;
pub use sleeper::Wake;
pub use tokio_util::sync::CancellationToken;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
