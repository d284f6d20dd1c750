//! Runs an agent loop: the imperative shell around `loop-state`.
//!
//! The machine of `loop-state` says what must be done and in which order; this crate does it, with real files, real processes and a real agent,
//! and tells the machine what came of it. It is what `rlm` is made of, without a command line and without a screen.
//!
//! # What it is not for
//!
//! It holds no rules (they are the machine's), installs no signal handlers (it takes [`Control`] messages) and prints nothing (it sends [`News`]).
//!
//! # Theory of operation
//!
//! A [`Project`] is a working tree with its `.rlm` directory. [`WorkTree`] is the right to work in it: one at a time, held until the agent's whole
//! tree is gone, even when this process is killed. A [`Runner`] is one run taken by this process: everything that happens enters at one place, one
//! thing at a time, is stepped through the machine and answered by effects, each finished before the next is begun. *Save* is one of them, so what
//! is told is on disk.
//!
//! A run is a directory: the store with its head and events, blobs (the prompt), and a transcript of every attempt that is never overwritten. While
//! a process has the run there is a socket in it too, through which any program of the same user can look at it, interrupt, pause, steer and stop it, and change its limits: see
//! [`control`].
//!
//! `examples/resume.rs` is a whole program: a run that is stopped, and taken up again.
//!
//! # Limits
//!
//! One run a process and one at a time in a working tree. Transcripts stop growing at 64 MiB each and say so. Older ones are compressed while the
//! run goes on; those of a run may take [`Settings::max_transcripts`](field@Settings::max_transcripts) of disk, but for the newest eight and a beginning and an end of each.

mod agents;
mod check;
mod checkpoints;
mod claim;
mod clock;
pub mod control;
mod error;
mod git;
mod heartbeat;
mod hook;
mod hurry;
mod journal;
mod kept;
mod limit;
mod loss;
pub mod moving;
mod news;
mod project;
mod prompt;
mod removal;
mod run_id;
mod runner;
mod runs;
mod settings;
mod space;
mod survivors;
pub mod timeline;
mod transcript;
mod view;
mod work_tree;

pub use agents::{
    AcpOptions, AcpPreset, AgentSettings, ClaudeOptions, CodexOptions, Hidden, Start,
};
pub use checkpoints::{Checkpoints, Fate, Place, Progress, SavedState};
pub use control::Control;
pub use error::Error;
pub use git::looks::{end_git, watch_git};
pub use git::tree::{Worktree, WorktreeState};
pub use heartbeat::Beat;
pub use hook::{Happened, Hook, Moment, Telling};
pub use loss::Loss;
pub use news::{Command, News, NewsReceiver};
pub use project::Project;
pub use run_id::RunId;
pub use runner::{DriverFactory, Options, Outcome, Reloaded, Resumption, Runner};
pub use runs::{Committed, Moved, RunEntry, RunHead, RunState, Uncommitted};
pub use settings::{Leftovers, Permissions, PhaseSettings, PromptSource, Settings};
pub use space::{Space, TreeSpace};
pub use timeline::Timeline;
pub use transcript::{Record, Records, Removed, by_age, removed_transcripts, transcripts};
pub use view::{AgentView, View};
pub use work_tree::{Holder, WorkTree};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
