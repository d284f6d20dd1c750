//! Sleeps that wake together and say why.
//!
//! A program that waits in several places (between two iterations, in a back-off, for a rate limit to pass) must be able to end all
//! of these waits at once, and each waiting task must learn whether its time was up, somebody cut the wait short, or the program is
//! shutting down. A [`SleepGate`] is one such group of waits: every sleep answers with a [`Wake`].
//!
//! This crate is not a timer, not a scheduler and not a general cancellation library: sleeping is tokio's, cancelling is
//! [`CancellationToken`]'s. It does not cancel work, it only ends waits.
//!
//! # Theory of operation
//!
//! A gate is a cancellation token (sticky: once shut down, every sleep answers [`Wake::Shutdown`] at once, without a timer) and a
//! bell (not sticky: [`SleepGate::wake_all`] ends the sleeps that are present and leaves the gate open). Each sleeper notes the
//! number of the kick that came before it. It listens to the bell before it compares numbers, so a kick between the check and the
//! park is never lost, and the number that `wake_all` returns is exact. Where several reasons hold in the same poll, shutdown beats
//! a kick and a kick beats the elapsed time.
//!
//! # Limits
//!
//! Sleeps need a tokio runtime with its time driver. Durations are measured on tokio's monotonic clock, which on Linux stands still
//! while the machine is suspended. Shutting down and kicking run the wakers of all sleepers in the caller.
//!
//! [`CancellationToken`]: tokio_util::sync::CancellationToken

mod bell;
mod gate;
mod wake;

pub use gate::SleepGate;
pub use wake::Wake;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
