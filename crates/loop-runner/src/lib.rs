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
//! # What its caller brings
//!
//! - *The guard*: [`agent_subprocess::guard::run_if_guard`] first in `main`. Where it was not called, and elsewhere than on Linux, an agent is in a
//!   process group only: a daemon of its may get away, a `kill -9` of this process leaves all of it running, and [`Outcome::proven`] is false.
//! - *The drivers*, by a [`DriverFactory`]: those of `agent-drivers`, each a feature of that crate.
//! - *Signals*, as messages: [`Control::Stop`] after the iteration or now, then [`Control::Abort`]. Agents are in sessions of their own, so that
//!   a Ctrl-C of the terminal reaches this process only.
//! - *A watcher* or none: the [`NewsReceiver`] may be dropped.
//!
//! The README has a whole program, and `examples/resume.rs` is one that ends by itself: a run that is stopped, and taken up again.
//!
//! # Errors
//!
//! What can go wrong with one iteration is no [`Error`]: the run goes on, or ends with a [`StopReason`](loop_state::StopReason). Of an error:
//!
//! | | is | then |
//! |---|---|---|
//! | [`is_not_found`](Error::is_not_found) | no run of that name, or nothing was saved of it | [`Runner::create`] |
//! | [`is_held`](Error::is_held) | somebody works in the tree; the text names run and pid | wait, or stop it through [`control`] |
//! | [`is_moved`](Error::is_moved) | the run was exported and goes on elsewhere | there, or [`Options::take_back`] |
//! | [`is_usage`](Error::is_usage) | settings, names or a prompt file that make no run; a name that is taken; also each that was moved | ask differently |
//! | none of them | a file can't be read or written, or a state is damaged beyond use: the text names it | mend that, and open the run again; [`Project::verify`] says what is left of it |
//!
//! # Files
//!
//! All is in `.rlm` at the top of the project, private to the user (0700) and ignored by git. `rlm` knows these runs as its own.
//!
//! | | |
//! |---|---|
//! | `holder.json` | who works in the tree, for people; stays when nobody does |
//! | `runs/RUN/*.ckj`, `*.ckpt`, `epoch-*`, `LOCK` | the store; what is damaged is moved to its `quarantine/` |
//! | `runs/RUN/blobs/` | the last text of each prompt, without a checksum |
//! | `runs/RUN/transcripts/ITERATION-ATTEMPT.ndjson` | a [`Record`] a line, `.zst` once it is old: [`transcripts`], [`Records`] |
//! | `runs/RUN/control.sock` | while a process has the run |
//! | `runs/RUN/scratch/`, `survivors` | what the agent of the moment needs, and what a guard found after the death of this process |
//! | `worktrees/` | working trees of a run's own |
//!
//! The agent, the gates and the check have `RLM_RUN_ID`, `RLM_PHASE`, `RLM_ITERATION` and `RLM_ATTEMPT` in their environment.
//!
//! # Limits
//!
//! One run at a time in a working tree; a process may have several, each in a tree of its own. Transcripts stop growing at 64 MiB each and say so. Older ones are compressed while the
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
mod locks;
mod loss;
mod mend;
pub mod moving;
mod news;
mod programs;
mod project;
mod prompt;
mod removal;
mod run_id;
mod runner;
mod runs;
mod settings;
mod shutdown;
mod space;
pub mod state_dir;
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
pub use mend::Mend;
pub use news::{Command, News, NewsReceiver};
pub use programs::{Program, ProgramKind};
pub use project::Project;
pub use run_id::RunId;
pub use runner::{DriverFactory, Options, Outcome, Reloaded, Resumption, Runner};
pub use runs::{Committed, Moved, RunEntry, RunHead, RunState, Uncommitted};
pub use settings::{Leftovers, Permissions, PhaseSettings, PromptSource, Settings};
pub use shutdown::{Awaited, Shutdown};
pub use space::{Space, TreeSpace};
pub use timeline::Timeline;
pub use transcript::{Record, Records, Removed, by_age, removed_transcripts, transcripts};
pub use view::{AgentView, View};
pub use work_tree::{Holder, WorkTree};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
