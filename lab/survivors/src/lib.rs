//! Scores a program that runs an agent in a loop: what is still alive after it was stopped?
//!
//! The program behind `cargo xtask survivors`. It takes any command that starts an agent, stops it in eight ways ([`Way`]) and counts, by kind
//! ([`Role`]), the processes that outlived the stop. `README.md` says how to score a tool of your own.
//!
//! Not a test of what a loop saves or resumes, nor of what the agent is sent.
//!
//! # Theory of operation
//!
//! Each [`run`](Plan::run) has a `Sandbox` of `rlm-tests`: a repository, a home and a random mark that every process started there carries in its
//! environment. The agent is scripted: it starts a child of each kind, says so in files, and works for ten minutes. Only when all of them were
//! seen alive is the tool stopped, so that a run can't be clean because nothing was there. Then `/proc` is scanned for the mark until nothing is
//! left or patience ends. The harness is a child subreaper: what lost its parent comes to it, is counted as long as it lives, and reaped when it
//! is dead. What a tool leaves is ended in the end, by pid, start time and mark.
//!
//! A run in which the agent did not come to work, or the tool did not go, is a verdict of its own ([`Verdict`]) and never a zero.
//!
//! # Modules in reading order
//!
//! `way` (the eight ways to stop), `plan` (what is tried how often), `run` (one run, from the start of the tool to the last process), `extra` (the
//! environment and arguments of a tool), `score` (what came of all runs), `table` (how it is printed), `progress` (a line a run).
//!
//! # Platform
//!
//! Linux (`/proc`, `PR_SET_CHILD_SUBREAPER`); git, bash and `/bin/sh` are needed.

mod extra;
mod plan;
mod run;
mod score;
mod table;
mod way;

pub use plan::{Moment, Plan};
pub use run::{Role, Survivor, Verdict};
pub use score::{Row, Run, Score, Spread};
pub use way::Way;
