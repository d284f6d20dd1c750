//! Runs an agent loop: the imperative shell around `loop-state`.
//!
//! The machine of `loop-state` decides what happens next in a run; this crate does it, with real files, real processes and a real agent, and reports
//! the results to the machine. It is `rlm` without a command line and without a screen.
//!
//! # Outside this crate
//!
//! This crate has no rules of a run (the machine has them; ARCHITECTURE.md names the few small decisions that are left here). It installs no signal
//! handlers: the caller sends [`RunControl`] messages. It prints nothing: it sends [`RunEvent`].
//!
//! # Theory of operation
//!
//! The crate `rlm-store` defines the saved state of a run and who may work on it: a [`Project`](rlm_store::Project), a
//! [`WorkingTreeLock`](rlm_store::WorkingTreeLock) (the right to work in a working tree), and saved [`Settings`](rlm_store::Settings). A [`Runner`]
//! is one run that this process works on. Every machine input arrives in one place, one at a time. The machine answers each input with effects, and
//! the runner finishes each effect before it begins the next. *Save* is one of the effects, so everything that the run reports is on disk.
//!
//! While a process works on the run, the run's directory has a socket. Through it, any program of the same user can read the status, interrupt,
//! pause, steer and stop the run, and change its limits: see [`control`].
//!
//! # The caller's part
//!
//! - *The guard*: write [`agent_subprocess::guard_before_main!`], or call [`agent_subprocess::guard::run_if_guard`] first in `main`. Without this call, and outside Linux, an agent has only a process
//!   group: a daemon that it starts can escape, all its processes survive a `kill -9` of this process, and [`RunOutcome::proven`] is false.
//! - *The drivers*, through a [`DriverFactory`]: [`drivers`] makes those that the settings name.
//! - *Signals*, as messages: [`RunControl::Stop`] after the iteration or now, then [`Request::Abort`](loop_state::Request::Abort). Agents run in
//!   their own sessions, so a Ctrl-C of the terminal reaches only this process.
//! - *A sleep gate*, in [`RunnerOptions`]: the run sleeps under it, so a shutdown of the program wakes and stops the run. A program without a sleep
//!   gate passes a new one.
//! - *Items*, optional: a program or a driver of its own saves its progress within an iteration with [`IterationItems`].
//! - *A watcher*, optional: the caller may drop the [`RunEventReceiver`].
//!
//! The README has a complete program. `examples/resume.rs` stops a run and resumes it.
//!
//! # Errors
//!
//! A failure in one iteration is not an [`Error`]: the run continues, or ends with a [`StopReason`](loop_state::StopReason). Errors of the saved
//! state are those of [`rlm_store::Error`], with the same predicates:
//!
//! | | means | then |
//! |---|---|---|
//! | [`is_not_found`](Error::is_not_found) | no run has this name, or the run has no saved state | [`Runner::create`] |
//! | [`is_held`](Error::is_held) | another process works in the working tree; the text names run and pid | wait, or stop it through [`control`] |
//! | [`is_transferred`](Error::is_transferred) | the run was transferred and continues elsewhere | continue there, or [`RunnerOptions::take_back`] |
//! | [`is_usage`](Error::is_usage) | invalid settings, names or prompt file; a name that is taken; also true for each transferred run | change the request |
//! | none of them | a file can't be read or written, or the state is too damaged to use: the text names it | fix that, and open the run again |
//!
//! The agent, the required checks and the check have `RLM_RUN_ID`, `RLM_PHASE`, `RLM_ITERATION` and `RLM_ATTEMPT` in their environment. A program
//! that calls [`set_program_name`] has its own names there, and its own state directory instead of `.rlm`.
//!
//! # Limits
//!
//! Only one run at a time can work in a working tree; a process can work on several runs, each in its own working tree. A transcript stops growing at
//! 64 MiB and records that it did. The run compresses older transcripts meanwhile. The transcripts of a run may use
//! [`Settings::max_transcripts`](field@rlm_store::Settings::max_transcripts) of disk space, not counting the newest eight transcripts and the
//! beginning and end of each other one.

// The modules in reading order; each uses only those above it:
//   error, clock                              the errors, and the clock of a run
//   options                                   the options of a run, and its outcome
//   stop_progress, view                       the waits of a stop, and the view of a live run
//   run_event, recent_events, event_channel   the run events, the last of them, and the channel to the watcher
//   history                                   the events from before a watcher attached, from the journal and the transcripts
//   countdown, heartbeat                      the countdown of a stop; the time of the loop's last pass, and the file that shows it
//   check, hook                               the loop's own commands: required checks, check; the channels of notifications
//   items                                     the items that a program saves in an iteration
//   keep_awake                                the program that keeps the computer awake
//   prompt                                    the prompt of an agent
//   deadline                                  stops an agent by a shared deadline
//   control                                   the control socket: requests and responses; it doesn't know the runner
//   runner                                    the run and its parts
mod check;
mod clock;
pub mod control;
mod countdown;
mod deadline;
mod error;
mod event_channel;
mod heartbeat;
mod history;
mod hook;
mod items;
mod keep_awake;
mod options;
mod prompt;
mod recent_events;
mod run_event;
mod runner;
mod stop_progress;
mod view;

pub use control::request_queue::RunControl;
pub use error::Error;
pub use event_channel::{RunEventReceiver, WaitingOutput};
pub use heartbeat::HeartbeatContext;
pub use history::events_before;
pub use hook::{Hook, HookEvent, HookEventKind, HookFunction, HookInput, HookTarget, deliver_once};
pub use items::IterationItems;
pub use options::{RunClaim, RunOutcome, RunnerOptions};
pub use run_event::RunEvent;
pub use runner::preview::ResumePreview;
pub use runner::{DriverFactory, Reloaded, Runner, drivers};
pub use stop_progress::{Awaited, StopProgress};
pub use view::{AgentView, SteerDelivery, View};

// A program needs these crates too; this saves it their versions.
pub use rlm_store::{ItemError, ProgramNameError, set_program_name};
pub use {agent_drivers, agent_duplex, agent_subprocess, cancellable_sleep, loop_state, rlm_store};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
