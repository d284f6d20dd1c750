//! A supervisor for child processes and their whole process tree: a guard owns the tree, ends it in stages, and reports what is left.
//!
//! ```no_run
//! use agent_subprocess::{StopPolicy, TreeCommand};
//!
//! agent_subprocess::guard_before_main!(); // The program is also its own guard.
//!
//! #[tokio::main]
//! async fn main() -> Result<(), agent_subprocess::Error> {
//!     let mut tree = TreeCommand::new("bash").args(["-c", "setsid sleep 600 & echo hello"]).spawn().await?;
//!     while let Some(output) = tree.next_output().await {
//!         println!("{:?}: {}", output.stream, output.line.text()); // Stdout: hello
//!     }
//!     println!("{}", tree.wait().await); // exit status 0
//!     println!("{}", tree.stop(&StopPolicy::default()).await); // all processes ended: the `sleep` too
//!     Ok(())
//! }
//! ```
//!
//! Coding agents, build tools and shells start tools in sessions of their own, leave daemons behind, and have grandchildren that keep pipes open. This
//! crate starts such a program so that its whole process tree can be ended and reported, also when the host is killed.
//!
//! It doesn't cover containers, remote processes, an existing tmux server or `systemd-run`: the processes that these start are not descendants of the
//! program. The crate does not limit memory or processor time, and it is no sandbox. It knows no protocol: it passes lines or bytes.
//!
//! # Theory of operation
//! On Linux each program runs under a **guard**: a small single-threaded process that is session leader and child subreaper, spawns the program in a
//! session of its own, and waits. Every orphan of the process tree becomes a child of the guard. So the guard can kill its direct children, round
//! after round, until `wait` reports that it has none: this proves that the process tree is empty. One socket controls the guard. When that socket
//! closes because the host died, the guard ends the process tree by itself. The guard is the host's own executable, started again
//! ([`guard_before_main!`] or [`guard::run_if_guard`]), or a helper ([`guard::guard_program`]). A host that knows that it needs a program soon can
//! start the guard before ([`WarmGuard`]).
//!
//! Without a guard (outside Linux, or if the caller allows it by its [`Containment`]) the program gets a process group. A stop then walks the descendants
//! and sweeps by [`Marker`], and its [`StopReport`] states that this proves less.
//!
//! [`ProcessTree::stop`] goes through the stages of a [`StopPolicy`] in one budget. A program counts as ended when the guard has reaped its main process.
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

#[cfg(not(unix))]
compile_error!("agent-subprocess needs a Unix: Linux, or any other one with fewer guarantees");

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

// The modules in reading order; each uses only those above it:
//   process_name, plain_file         names of processes; files that only their owner reads, opened without following links
//   sweep_report                     the report of a sweep, and the file in which a guard leaves it
//   error, process, proc_fs, marker  errors; identity of a process by its start time; the marks that a sweep searches for
//   guard_protocol, exec_image, sys  protocol between host and guard; arguments of `execve`; system calls: all unsafe code
//   times                            the times in which a process tree ends
//   ancestry, childless              ancestors of a process; programs that start no other process
//   sweep                            processes that outlived host and guard
//   orphans                          the processes of a killed guard, if the host is their new parent
//   guard_executable, guard          the executable to start as a guard; the process that owns the process tree
//   tree_handle, group, guarded      the host's handle of a process tree: in a process group, or by a guard
//   lines, writer, output            the lines that the program reads and writes
//   stop, report, process_tree       the stages of a stop, and the running program
//   warm                             the guard of the next program, started ahead of time
//   builder, launch, complete        description and start of a program; the complete output of one
pub mod ancestry;
mod builder;
#[doc(hidden)] // only `rlm-store` starts such programs
pub mod childless;
mod complete;
mod error;
#[cfg(target_os = "linux")]
mod exec_image;
mod group;
pub mod guard;
mod guard_executable;
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
#[cfg(target_os = "linux")]
mod orphans;
mod output;
mod plain_file;
#[cfg(target_os = "linux")]
mod proc_fs;
mod process;
mod process_name;
mod process_tree;
mod report;
mod stop;
pub mod sweep;
mod sweep_report;
#[cfg(target_os = "linux")]
mod sys;
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "a guard needs Linux")
)]
mod times;
mod tree_handle;
mod warm;
mod writer;

pub use builder::{OutputMode, ProcessContext, StdinMode, TreeCommand};
pub use complete::CompleteOutput;
pub use error::Error;
pub use lines::Line;
#[doc(hidden)] // only `agent-drivers` splits lines of its own
pub use lines::Lines;
pub use marker::Marker;
pub use output::{Output, OutputLines, RawOutput, Stream};
#[doc(hidden)] // only `agent-drivers` writes such files
pub use plain_file::ScratchFile;
#[doc(hidden)] // only `agent-drivers` reads it
pub use process::ProcessStat;
pub use process::{Exit, ProcessId, Signal};
pub use process_name::ProcessName;
pub use process_tree::ProcessTree;
pub use report::StopReport;
pub use stop::{StopPolicy, StopStage};
pub use tree_handle::Containment;
pub use warm::WarmGuard;
pub use writer::Stdin;
#[doc(hidden)] // only `agent-drivers` and `agent-api` write lines with it
pub use writer::{LineWriter, WriteError};
