//! A run of `rlm` at rest: all that is on disk of it, and who may take it.
//!
//! It keeps the project's private folder `.rlm`, the locks, the journal, the transcripts and the timeline, asks git, and takes a run elsewhere.
//! It must not know the loop that is live: it starts no agent, holds no rule of the loop, prints nothing and installs no signal handler.
//! It is a part of [`rlm`](https://docs.rs/rlm-loop) and promises nothing to other programs; `loop-runner` runs what is kept here.
//! Read [`state_dir`] first (every file below `.rlm` is hostile input), then [`git`], [`Project`], [`Settings`] and [`RunHead`] (what is saved),
//! [`journal`] (how it is written), [`Checkpoints`] and [`timeline`] (how it is read), [`locks`], [`WorkTree`] and [`holder`] (which process has the
//! run), and at last [`moving`] (export, import, fork) and removal.
//!
//! # Files
//!
//! All is in `.rlm` at the top of the project, private to the user (0700) and ignored by git.
//!
//! | | |
//! |---|---|
//! | `holder.json` | who works in the tree, for people; stays when nobody does |
//! | `runs/RUN/*.ckj`, `*.ckpt`, `epoch-*`, `LOCK` | the store; what is damaged is moved to its `quarantine/` |
//! | `runs/RUN/blobs/` | the last text of each prompt, without a checksum |
//! | `runs/RUN/transcripts/ITERATION-ATTEMPT.ndjson` | a [`Record`] a line, `.zst` once it is old: [`transcripts`], [`Records`] |
//! | `runs/RUN/control.sock` | while a process has the run; `loop-runner` makes it |
//! | `runs/RUN/scratch/`, `survivors` | what the agent of the moment needs, and what a guard found after the death of the run's process |
//! | `worktrees/` | working trees of a run's own |
//!
//! # Errors
//!
//! | | is | then |
//! |---|---|---|
//! | [`is_not_found`](Error::is_not_found) | no run of that name, or nothing was saved of it | make one |
//! | [`is_held`](Error::is_held) | another process works in the tree; the text names run and pid | wait, or stop it |
//! | [`is_moved`](Error::is_moved) | the run was exported and goes on elsewhere | there, or take it back |
//! | [`is_usage`](Error::is_usage) | settings, names or a prompt file that make no run; a name that is taken; also each that was moved | ask differently |
//! | none of them | a file can't be read or written, or a state is damaged beyond use: the text names it | [`Project::verify`] says what is left of the run |

// The modules in reading order; each takes from those above it:
//   deadline, processes         the wall clock and a shared deadline, the names of processes
//   state_dir                   files below `.rlm`, which an agent may have planted
//   run_id, error               the name of a run, and all messages
//   git                         git commands under a guard, the repository of a working tree, commits, bundles
//   project                     where runs and their files are
//   settings                    what a run was asked to do
//   programs                    which programs that starts
//   transcript, loss            what the agent said, and what a damage took
//   run_head, runs              what is saved of a run, and the runs of a project
//   journal                     how it is saved
//   checkpoints, timeline       the saves one by one, and all that happened
//   worktrees, space            working trees of runs' own, and the disk that all takes
//   survivors                   processes that a run left alive
//   locks, work_tree, holder    which process has a run
//   index                       which runs of the user are live, whatever their project
//   moving                      export, import, fork
//   removal                     `clean`
mod checkpoints;
pub mod deadline;
mod error;
pub mod git;
pub mod holder;
pub mod index;
pub mod journal;
pub mod locks;
pub mod loss;
pub mod moving;
pub mod processes;
mod programs;
mod project;
mod removal;
mod run_head;
mod run_id;
pub mod runs;
mod settings;
pub mod space;
pub mod state_dir;
pub mod survivors;
pub mod timeline;
pub mod transcript;
mod work_tree;
mod worktrees;

pub use checkpoints::{Checkpoints, Fate, Place, Progress, SavedState};
pub use deadline::timestamp;
pub use error::{Error, Mend};
pub use git::looks::{end_git, watch_git};
pub use git::tree::{Worktree, WorktreeState};
pub use loss::Loss;
pub use programs::{Program, ProgramKind};
pub use project::Project;
pub use removal::{KeepReason, RemovalRules};
pub use run_head::{Committed, Moved, RunHead, Uncommitted};
pub use run_id::RunId;
pub use runs::{RunEntry, RunState};
pub use settings::{Leftovers, MAX_PROMPT, PhaseSettings, PromptSource, Settings, read_prompt};
pub use space::{Space, TreeSpace};
pub use timeline::Timeline;
pub use transcript::{Record, Records, Removed, by_age, removed_transcripts, transcripts};
pub use work_tree::{Holder, WorkTree};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
