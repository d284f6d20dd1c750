//! Limits of the system on this process (ulimits): a low limit gives a clear message instead of a signal or a panic.

use std::sync::{Arc, Mutex};

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Resource, getrlimit};

use crate::exit::Failure;

/// The minimum number of open files for a command that only reads.
const FILES: u64 = 16;
/// The minimum number of open files for a run.
const FILES_OF_RUN: u64 = 48;
/// The minimum address space for a run. Most of it stays empty: glibc reserves 64 MiB for each of the first threads, and then a small allocation fails.
const MEMORY_OF_RUN: u64 = 1 << 30;
/// The number of threads and programs that a run may have at the same time, besides those of its agent.
const THREADS: usize = 24;
/// A limit on processes that is at least this can't stop a run.
const MANY: u64 = 4096;
/// The errors that a limit can cause, by their numbers on Linux, with the limit.
const CAUSES: [(i32, Resource); 4] = [
    (27, Resource::Fsize),
    (24, Resource::Nofile),
    (12, Resource::As),
    (11, Resource::Nproc),
];

/// Makes a write beyond the limit of file sizes fail, instead of ending the process by SIGXFSZ.
///
/// The function blocks the signal and doesn't ignore it: child processes would inherit an ignored signal, but the signal mask of each child is reset
/// when the child starts.
pub(crate) fn block_file_size_signal() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    signals.thread_block().expect("this signal exists");
}

/// Returns an error if a limit is too low for any command.
pub(crate) fn check() -> Result<(), Failure> {
    need(Resource::Nofile, FILES)
}

/// Returns an error if a limit is too low for a run, or if threads can't be started.
pub(crate) fn check_for_run() -> Result<(), Failure> {
    need(Resource::Nofile, FILES_OF_RUN)?;
    need(Resource::As, MEMORY_OF_RUN)?;
    let is_limited = |what, below| getrlimit(what).current.is_some_and(|it| it < below);
    if !is_limited(Resource::Nproc, MANY) && !is_limited(Resource::As, u64::MAX) {
        return Ok(());
    }
    // The threads live until this function returns, so that all of them exist at the same time.
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    let mut started = Vec::new();
    for _ in 0..THREADS {
        let ended = Arc::clone(&ended);
        let wait = move || drop(ended.lock().map(|ended| ended.recv()));
        let thread = std::thread::Builder::new().spawn(wait);
        started.push(thread.map_err(|e| Failure::failed(format!("can't start a thread: {e}")))?);
    }
    drop(end);
    for thread in started {
        let _cannot_panic = thread.join();
    }
    Ok(())
}

fn need(what: Resource, least: u64) -> Result<(), Failure> {
    match getrlimit(what).current {
        Some(limit) if limit < least => Err(Failure::failed(format!(
            "the limit on {} is {}, but rlm needs at least {}: {}",
            name(what),
            shown(what, limit),
            shown(what, least),
            command(what, least),
        ))),
        _ => Ok(()),
    }
}

/// Adds to an error the limit that can have caused it, if such a limit is set.
pub(crate) fn explained(message: &str) -> String {
    let cause = CAUSES
        .into_iter()
        .find(|(number, _)| message.contains(&format!("(os error {number})")));
    let limit = cause.and_then(|(_, what)| Some((what, getrlimit(what).current?)));
    // EAGAIN has other causes too; a high limit on processes didn't cause it.
    let limit = limit.filter(|(what, limit)| *what != Resource::Nproc || *limit < MANY);
    match limit {
        Some((what, limit)) => format!(
            "{message}; the limit on {} is {}: see {}",
            name(what),
            shown(what, limit),
            option(what)
        ),
        None => message.to_owned(),
    }
}

fn name(what: Resource) -> &'static str {
    match what {
        Resource::Fsize => "the size of a file",
        Resource::Nofile => "open files",
        Resource::As => "memory",
        _ => "processes and threads of this user",
    }
}

fn option(what: Resource) -> &'static str {
    match what {
        Resource::Fsize => "ulimit -f",
        Resource::Nofile => "ulimit -n",
        Resource::As => "ulimit -v",
        _ => "ulimit -u",
    }
}

fn shown(what: Resource, limit: u64) -> String {
    match what {
        Resource::Fsize | Resource::As => format!("{} KiB", limit >> 10),
        _ => limit.to_string(),
    }
}

/// Returns the command that raises a limit to this value.
fn command(what: Resource, to: u64) -> String {
    let to = match what {
        Resource::As => to >> 10,
        _ => to,
    };
    format!("{} {to}", option(what))
}
