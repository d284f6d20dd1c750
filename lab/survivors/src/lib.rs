//! Scores a program that runs an agent in a loop: which processes are still alive after it was stopped?
//!
//! This is the program behind `cargo xtask survivors`. It takes any command that starts an agent, stops it in eight ways ([`StopMethod`]) and counts,
//! by kind ([`Role`]), the processes that survived the stop. `README.md` describes how to score your own tool.
//!
//! It does not test the state that a loop saves or resumes, nor the messages to the agent.
//!
//! # Theory of operation
//!
//! Each [`run`](Plan::run) has a `Sandbox` of `rlm-tests`: a repository, a home and a random marker. Every process that is started there has the
//! marker in its environment. The agent is scripted: it starts a child of each kind, records them in files, and works for ten minutes. The harness
//! stops the tool only after it has seen all of them alive, so that a run is never clean merely because there was no process. Then it scans `/proc`
//! for the marker until no process is left or the time limit ends. The harness is a child subreaper: it becomes the parent of all orphans, counts
//! them as long as they live, and reaps them when they are dead. At the end it kills all survivors, by pid, start time and marker.
//!
//! A run in which the agent did not begin to work, or the tool did not end, has its own result ([`RunResult`]) and is never a zero.
//!
//! # Modules in reading order
//!
//! `stop_method` (the eight ways to stop), `plan` (the stops and their number), `run` (one run, from the start of the tool to the end of the last
//! process), `added_files` (the files and processes that some ways add), `score` (the results of all runs), `table` (the output).
//!
//! # Platform
//!
//! Linux (`/proc`, `PR_SET_CHILD_SUBREAPER`); it needs git, bash and `/bin/sh`.

mod added_files;
mod plan;
mod run;
mod score;
mod stop_method;
mod table;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use plan::{Plan, StopMoment, quoted};
pub use run::{Role, RunResult, Survivor};
pub use score::{Row, Run, Score, TimeSpread};
pub use stop_method::StopMethod;

/// Returns a flag that SIGINT, SIGTERM and SIGHUP set from now on, instead of ending the program.
///
/// # Errors
///
/// An error if the system refuses a handler.
pub fn given_up_by_signal() -> io::Result<Arc<AtomicBool>> {
    let given_up = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::clone(&given_up))?;
    }
    Ok(given_up)
}
