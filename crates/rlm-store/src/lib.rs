//! The saved state of `rlm` runs: all files of a run, and the right to work on it.
//!
//! This crate manages the project's private directory `.rlm`, the locks, the journal, the transcripts and the timeline, runs git, and transfers runs.
//! It does not depend on the live loop: it starts no agent, has no rules of the loop, prints nothing and installs no signal handler. It is a part of
//! [`rlm`](https://docs.rs/rlm-loop) and promises nothing to other programs; `loop-runner` executes the runs. Read [`state_dir`] first (every file
//! below `.rlm` is hostile input), then [`git`], [`Project`], [`Settings`] and [`RunHead`] (the saved values), [`journal`] (how they are written),
//! [`Checkpoints`] and [`timeline`] (how they are read), [`locks`], [`WorkingTreeLock`] and [`lock_holder`] (the process that works on a run), and
//! finally [`transfer`] (export, import, fork) and removal.
//!
//! # Files
//!
//! All files are in `.rlm` at the top of the project, private to the user (0700) and ignored by git.
//!
//! | | |
//! |---|---|
//! | `holder.json` | the process that works in the working tree, for people; the file stays after the process ends |
//! | `runs/RUN/*.ckj`, `*.ckpt`, `epoch-*`, `LOCK` | the store; damaged files are set aside in its `quarantine/` |
//! | `runs/RUN/blobs/` | the last text of each prompt, without a checksum |
//! | `runs/RUN/transcripts/ITERATION-ATTEMPT.ndjson` | one [`Record`] per line, `.zst` once it is old: [`transcripts`], [`Records`] |
//! | `runs/RUN/sessions/SESSION/` | the sessions of the agent of `rlm` itself, each one a store: [`sessions`] |
//! | `runs/RUN/fleet.json` | marks a worker's copy of a run of a fleet, and names the claim that it was made for |
//! | `runs/RUN/control.sock` | exists while a process works on the run; `loop-runner` creates it |
//! | `runs/RUN/scratch/`, `survivors` | private files of the current agent, and the report of a guard after the death of the run's process |
//! | `runs/RUN/snapshots/` | git objects of the working tree at the end of the last iteration, which `Git::changes_since` compares |
//! | `worktrees/` | the worktrees of runs |
//!
//! # Errors
//!
//! | | means | then |
//! |---|---|---|
//! | [`is_not_found`](Error::is_not_found) | no run has this name, or nothing was saved for it | create one |
//! | [`is_held`](Error::is_held) | another process works in the working tree; the text names run and pid | wait, or stop it |
//! | [`is_transferred`](Error::is_transferred) | the run was transferred and continues elsewhere | continue there, or take it back |
//! | [`is_usage`](Error::is_usage) | invalid settings, names or prompt file; a name that is taken; also every error with `is_transferred` | change the request |
//! | none of them | a file can't be read or written, or the state is too damaged to use: the text names it | [`Project::verify`] shows the damage |

// The modules in reading order; each uses only those above it:
//   program_name                            the name of this program, its state directory and its variables
//   deadline, processes, parallel           the wall clock and shared deadlines; the names of processes; work on many runs at once
//   state_dir                               files below `.rlm`, which an agent may have planted
//   run_id, error                           the name of a run, and all messages
//   git                                     git commands under a guard, the repository of a working tree, commits, bundles
//   project                                 where runs and their files are
//   settings                                the settings of a run
//   programs                                the programs that a run starts
//   transcript, data_loss                   the record of the agent, and the data loss after damage
//   saved_items                             what a program saved in the current iteration
//   notifications                           the last notifications of a run, and their acknowledgements
//   run_head, runs                          the saved head of a run, and the runs of a project
//   sessions                                the sessions that an agent keeps in the directory of its run
//   replica                                 the replica of a run of a fleet, and the mark of its directory
//   phase_facts, journal                    the facts of a finished phase, for people; the saves
//   checkpoints, timeline                   the list of saves, and all events
//   worktrees, disk_usage                   the worktrees of runs, and the disk usage
//   sweep                                   processes that a run left alive
//   locks, working_tree_lock, lock_holder   the process that works on a run
//   index                                   the user's live runs in all projects
//   transfer                                export, import, fork
//   removal                                 `clean`
mod checkpoints;
pub mod data_loss;
pub mod deadline;
pub mod disk_usage;
mod error;
pub mod git;
pub mod index;
pub mod journal;
pub mod lock_holder;
pub mod locks;
mod notifications;
mod parallel;
mod phase_facts;
pub mod processes;
mod program_name;
mod programs;
mod project;
mod removal;
mod replica;
mod run_head;
mod run_id;
pub mod runs;
mod saved_items;
pub mod sessions;
mod settings;
pub mod state_dir;
pub mod sweep;
pub mod timeline;
pub mod transcript;
pub mod transfer;
mod working_tree_lock;
mod worktree_result;
mod worktrees;

pub use checkpoints::{AttemptOutcome, AttemptRecord, Checkpoints, SavedState, StateSelector};
pub use data_loss::DataLoss;
pub use deadline::timestamp;
pub use disk_usage::{RunDiskUsage, WorktreeDiskUsage};
pub use error::{Error, Hint};
pub use git::processes::{stop_git_processes, track_git_processes};
pub use git::worktree::{Worktree, WorktreeStatus};
pub use notifications::{DeliveryResult, NotificationRecord, Notifications};
pub use parallel::in_parallel;
pub use phase_facts::PhaseFacts;
pub use program_name::{
    ProgramNameError, marker_variable, program_name, program_title, set_program_name,
    state_directory, variable,
};
pub use programs::{Program, ProgramKind};
pub use project::Project;
pub use removal::{KeepReason, RemovalRules};
pub use replica::{RemoteMessage, RunReplica};
pub use run_head::{Committed, RunHead, Transfer, Uncommitted};
pub use run_id::RunId;
pub use runs::{RunEntry, RunState};
pub use saved_items::{ItemError, MAX_ITEMS, SavedItems};
pub use settings::{Leftovers, MAX_PROMPT, PhaseSettings, PromptSource, Settings, read_prompt};
pub use timeline::Timeline;
pub use transcript::{
    ArrivedParts, Record, Records, RemovedTranscripts, TranscriptCopy, TranscriptPart,
    TranscriptWindow, UncopiedTranscripts, removed_transcripts, sorted_by_age, transcripts,
};
pub use working_tree_lock::{Holder, WorkingTreeLock};
pub use worktree_result::{Merged, WorktreeResult};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
