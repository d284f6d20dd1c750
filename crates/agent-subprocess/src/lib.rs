//! Child processes that really stop.
//!
//! Coding agents start tools in sessions of their own, leave daemons behind, and have grandchildren that keep pipes open. This crate starts such a
//! program so that its whole process tree can be ended and reported, also when the host is killed.
//!
//! It doesn't cover containers, remote processes, an existing tmux server or `systemd-run`: the processes that these start are not descendants of the
//! agent. The crate does not limit memory or processor time, and it is no sandbox.
//!
//! The crate knows no agent protocol, no conversation and no loop. It passes lines; `agent-drivers` interprets them.
//!
//! # Theory of operation
//! On Linux each agent runs under a **guard**: a small single-threaded process that is session leader and child subreaper, spawns the agent in a
//! session of its own, and waits. Every orphan of the process tree becomes a child of the guard. So the guard can kill its direct children, round
//! after round, until `wait` reports that it has none: this proves that the process tree is empty. One socket controls the guard. When that socket
//! closes because the host died, the guard ends the process tree by itself. The guard is the host's own executable, started again
//! ([`guard::run_if_guard`]), or a helper ([`guard::guard_program`]).
//!
//! Without a guard (outside Linux, or if the host called neither function) the agent gets a process group. A stop then walks the descendants and
//! sweeps by [`Marker`], and its [`StopReport`] states that this proves less.
//!
//! [`Agent::stop`] goes through the stages of a [`StopPolicy`] in one budget. An agent counts as ended when the guard has reaped its main process.
//! The end of a stream does not count, so a process that keeps a pipe open cannot hang the host. If the guard itself is killed, the kernel kills the
//! main process too, and the host sweeps the rest. If guard and host are both killed, [`sweep::find`] and [`sweep::end`] find and end the rest later,
//! by the marker.
//!
//! `examples/tree.rs` leaves a daemon behind, names it and ends it.
//!
//! # What survives
//! | | with a guard | in a group, on Linux | in a group, elsewhere |
//! |---|---|---|---|
//! | a stop: children | nothing, proven | nothing | nothing |
//! | a stop: `setsid` children, daemons | nothing, proven | processes that left the group, lost their parent *and* cleared their environment | processes that left the group |
//! | a drop, also in a panic or after the runtime | nothing (the guard ends it) | processes that left the group | processes that left the group |
//! | `kill -9` of the host | nothing, 1.5 s later | everything, until a sweep | everything |
//! | `kill -9` of the guard | nothing that has the marker: the host sweeps | – | – |
//! | `kill -9` of both | all but the main process, until a sweep | – | – |
//! | SIGSTOP of the guard, then a stop, a drop or `kill -9` of the host | nothing, proven: the guard continues | – | – |
//! | a guard that does not answer a stop | nothing that has the marker: the host kills the guard and sweeps | – | – |
//! | a process of another user, or with a suspended tracer | that process, named in the report | that process, named | that process |
//!
//! A program that runs as the first process of a container has one more duty, see [`guard::run_if_init`].
//!
//! # Limits
//! One line: 16 MiB by default. Output read ahead: 4 MiB. Standard error kept: 64 KiB. Names in a report: 4096. Descriptors held: 16. All code runs
//! on tokio with I/O and time enabled.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

// The modules in reading order; each uses only those above it:
//   process, proc_fs, marker, error  identity of a process by its start time, the marks that a sweep searches for, errors
//   plain_file                       files that only their owner reads, opened without following links
//   guard_protocol, exec_image, sys  protocol between host and guard; arguments of `execve`; system calls: all unsafe code
//   times                            the times in which a process tree ends
//   ancestry, childless              ancestors of a process; programs that start no other process
//   sweep                            processes that outlived host and guard
//   guard                            the process that owns the process tree
//   tree_handle, group, guarded      the host's handle of a process tree: in a process group, or by a guard
//   lines, writer, output            the lines that the agent reads and writes
//   stop, report, agent              the stages of a stop, and the running agent
//   builder, launch                  description and start of an agent
mod agent;
pub mod ancestry;
mod builder;
pub mod childless;
mod error;
#[cfg(target_os = "linux")]
mod exec_image;
mod group;
pub mod guard;
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only a guard uses the protocol")
)]
mod guard_protocol;
#[cfg(target_os = "linux")]
mod guarded;
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
mod tree_handle;
mod writer;

pub use agent::Agent;
pub use builder::{AgentCommand, ProcessContext, StdinMode};
pub use error::Error;
pub use lines::{Line, Lines};
pub use marker::Marker;
pub use output::{Output, Stream};
pub use plain_file::ScratchFile;
pub use process::{Exit, ProcessId, ProcessName, ProcessStat, Signal};
pub use report::StopReport;
pub use stop::{Stage, StopPolicy};
pub use tree_handle::Containment;
pub use writer::{LineWriter, Stdin, WriteError};
