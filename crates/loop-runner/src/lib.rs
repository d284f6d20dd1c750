//! Runs an agent loop: the imperative shell around `loop-state`.
//!
//! The machine of `loop-state` says what must be done and in which order; this crate does it, with real files, real processes and a real agent,
//! and tells the machine what came of it. It is what `rlm` is made of, without a command line and without a screen.
//!
//! # What it is not for
//!
//! It holds no rules of a run (they are the machine's; ARCHITECTURE.md names the few small decisions that are left here), installs no signal handlers (it takes [`Control`] messages) and prints nothing (it sends [`News`]).
//!
//! # Theory of operation
//!
//! What a run is on disk, and who may take it, is `rlm-store`: a [`Project`](rlm_store::Project), a [`WorkTree`](rlm_store::WorkTree) (the right to work in
//! it), saved [`Settings`](rlm_store::Settings). A [`Runner`] is one run taken by this process: everything that happens enters at one place, one
//! thing at a time, is stepped through the machine and answered by effects, each finished before the next is begun. *Save* is one of them, so what
//! is told is on disk.
//!
//! While a process has the run there is a socket in its directory, through which any program of the same user can look at it, interrupt, pause, steer and
//! stop it, and change its limits: see [`control`].
//!
//! # What its caller brings
//!
//! - *The guard*: [`agent_subprocess::guard::run_if_guard`] first in `main`. Where it was not called, and elsewhere than on Linux, an agent is in a
//!   process group only: a daemon of its may get away, a `kill -9` of this process leaves all of it running, and [`Outcome::proven`] is false.
//! - *The drivers*, by a [`DriverFactory`]: those of `agent-drivers`.
//! - *Signals*, as messages: [`Control::Stop`] after the iteration or now, then [`Request::Abort`](loop_state::Request::Abort). Agents are in sessions of their own, so that
//!   a Ctrl-C of the terminal reaches this process only.
//! - *A gate*, in [`Options`]: the run's waits for work hang on it, so that a shutdown of the program wakes and stops the run. A program that has none
//!   passes a new one.
//! - *A watcher* or none: the [`NewsReceiver`] may be dropped.
//!
//! The README has a whole program, and `examples/resume.rs` is one that ends by itself: a run that is stopped, and taken up again.
//!
//! # Errors
//!
//! What can go wrong with one iteration is no [`Error`]: the run goes on, or ends with a [`StopReason`](loop_state::StopReason). Errors of what is saved are
//! those of [`rlm_store::Error`], with the same predicates:
//!
//! | | is | then |
//! |---|---|---|
//! | [`is_not_found`](Error::is_not_found) | no run of that name, or nothing was saved of it | [`Runner::create`] |
//! | [`is_held`](Error::is_held) | another process works in the tree; the text names run and pid | wait, or stop it through [`control`] |
//! | [`is_moved`](Error::is_moved) | the run was exported and goes on elsewhere | there, or [`Options::take_back`] |
//! | [`is_usage`](Error::is_usage) | settings, names or a prompt file that make no run; a name that is taken; also each that was moved | ask differently |
//! | none of them | a file can't be read or written, or a state is damaged beyond use: the text names it | fix that, and open the run again |
//!
//! The agent, the gates and the check have `RLM_RUN_ID`, `RLM_PHASE`, `RLM_ITERATION` and `RLM_ATTEMPT` in their environment.
//!
//! # Limits
//!
//! One run at a time in a working tree; a process may have several, each in a tree of its own. Transcripts stop growing at 64 MiB each and say so. Older ones
//! are compressed while the run goes on; those of a run may take
//! [`Settings::max_transcripts`](field@rlm_store::Settings::max_transcripts) of disk, but for the newest eight and a beginning and an end of each.

// The modules in reading order; each takes from those above it:
//   error, clock           why there is no run, what time it is for one
//   options                how a run is carried out, and how it ended
//   shutdown, view         what a stop waits for, and what others see of a live run
//   news, recent, feed     what a run tells, the last of it, the channel to its watcher
//   history                the events from before a watcher attached, from the journal and the transcripts
//   countdown, heartbeat   what is left of a stop; when the loop turned last, and the file that says so
//   check, hook            the commands of the loop's own: gates, check, notify command
//   prompt                 what an agent is told
//   hurry                  the end of an agent by a deadline that may move earlier
//   control                the socket: what others want of the run, and what they are told; it knows no runner
//   runner                 the run: its parts, and what it does with them
mod check;
mod clock;
pub mod control;
mod countdown;
mod error;
mod feed;
mod heartbeat;
mod history;
mod hook;
mod hurry;
mod news;
mod options;
mod prompt;
mod recent;
mod runner;
mod shutdown;
mod view;

pub use control::Control;
pub use error::Error;
pub use feed::NewsReceiver;
pub use heartbeat::Beat;
pub use history::events_before;
pub use hook::{Happened, Hook, Moment, Telling};
pub use news::News;
pub use options::{Options, Outcome};
pub use runner::preview::Resumption;
pub use runner::{DriverFactory, Reloaded, Runner};
pub use shutdown::{Awaited, Shutdown};
pub use view::{AgentView, View};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
