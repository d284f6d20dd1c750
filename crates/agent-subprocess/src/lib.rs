//! Child processes that really stop.
//!
//! Coding agents start tools in sessions of their own, leave daemons behind and let grandchildren hold their pipes. This
//! crate starts such a program so that everything below it can be ended and accounted for, also when the host is killed.
//!
//! It is not for containers, remote processes, an existing tmux server or `systemd-run`: what another process starts on
//! our behalf is not below us. It does not limit memory or processor time, and it does not sandbox.
//!
//! It knows no protocol of an agent, no conversation and no loop: it moves lines, and `agent-drivers` says what they mean.
//!
//! # Theory of operation
//! On Linux each agent runs under a **guard**: a small single-threaded process that is session leader and child
//! subreaper, spawns the agent in a session of its own, and waits. Orphans anywhere in the tree become its children, so
//! that it can kill direct children round by round until `wait` says that there are none, which proves the tree empty.
//! It obeys one socket; when that closes because the host died, it ends the tree by itself. The guard is the host's own
//! executable, started again ([`guard::run_if_guard`]), or a helper ([`guard::guard_program`]).
//!
//! Without a guard (elsewhere than on Linux, or if neither was called) the agent gets a process group; a stop walks the
//! descendants and sweeps by [`Marker`], and its [`StopReport`] says that this proves less.
//!
//! [`Agent::stop`] goes through the stages of a [`StopPolicy`] in one budget. The end of an agent is what the guard saw
//! of its main process, never the end of a stream, so that somebody who holds a pipe cannot hang the host. Should the
//! guard itself be killed, the main process dies with it and the host sweeps the rest; should both be killed,
//! [`sweep::find`] and [`sweep::end`] do that later, by the marker.
//!
//! `examples/tree.rs` leaves a daemon behind, names it and ends it.
//!
//! # What survives what
//! | | with a guard | in a group, on Linux | in a group, elsewhere |
//! |---|---|---|---|
//! | a stop: children | nothing, proven | nothing | nothing |
//! | a stop: `setsid` children, daemons | nothing, proven | who left the group, lost its parent *and* its environment | whoever left the group |
//! | a drop, also in a panic or after the runtime | nothing (the guard ends it) | whoever left the group | whoever left the group |
//! | `kill -9` of the host | nothing, 1.5 s later | everything, until a sweep | everything |
//! | `kill -9` of the guard | nothing marked: the host sweeps | – | – |
//! | `kill -9` of both | all but the main process, until a sweep | – | – |
//! | SIGSTOP of the guard, then a stop, a drop or `kill -9` of the host | nothing, proven: the guard goes on | – | – |
//! | a guard that does not answer a stop | nothing marked: the guard is killed, the host sweeps | – | – |
//! | another user's process, a stopped tracer's | it, named in the report | it, named | it |
//!
//! As the first process of a container a program has one more duty, see [`guard::run_if_init`].
//!
//! # Limits
//! One line 16 MiB by default, 4 MiB of output read ahead, 64 KiB of standard error kept, 4096 names in a report, 16
//! descriptors held. Everything runs on tokio with I/O and time enabled.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

// The modules in reading order; each takes from those above it:
//   process, proc_fs, marker, error  a process by its start time, the marks by which it is found again, what can fail
//   plain_file                       files that nobody else planted, or reads
//   wire, image, sys                 what host and guard say; what the agent becomes; system calls: all unsafe code
//   times                            in which a process tree is ended
//   ancestry, childless              whose child somebody is; programs that start none
//   sweep                            what outlived host and guard
//   guard                            the process that owns the tree
//   keeper, group, guarded           the host's hold on a tree: in a process group, or by a guard
//   lines, writer, output            lines out and in
//   stop, report, agent              the stages of a stop, and the running agent
//   builder, launch                  how an agent is described and started
mod agent;
pub mod ancestry;
mod builder;
pub mod childless;
mod error;
mod group;
pub mod guard;
#[cfg(target_os = "linux")]
mod guarded;
#[cfg(target_os = "linux")]
mod image;
mod keeper;
mod launch;
mod lines;
mod marker;
mod output;
mod plain_file;
#[cfg(target_os = "linux")]
mod proc_fs;
mod process;
mod report;
mod stop;
pub mod sweep;
#[cfg(target_os = "linux")]
mod sys;
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "a guard needs Linux")
)]
mod times;
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only a guard is spoken to in frames")
)]
mod wire;
mod writer;

pub use agent::Agent;
pub use builder::{AgentCommand, Context, StdinMode};
pub use error::Error;
pub use keeper::Containment;
pub use lines::{Line, Lines};
pub use marker::Marker;
pub use output::{Output, Stream};
pub use plain_file::ScratchFile;
pub use process::{Exit, ProcessId, ProcessName, ProcessStat, Signal};
pub use report::StopReport;
pub use stop::{Stage, StopPolicy};
pub use writer::{LineWriter, Stdin, Unwritten};
