//! Limits that the system sets on this process: each gives a sentence instead of a signal or a panic.

use std::sync::{Arc, Mutex};

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Resource, getrlimit};

use crate::exit::Failure;

/// The least number of open files with which a command that reads works.
const FILES: u64 = 16;
/// The least number of open files with which a run works.
const FILES_OF_RUN: u64 = 48;
/// The least address space with which a run works: most of it is stacks that stay empty.
const MEMORY_OF_RUN: u64 = 256 << 20;
/// The number of threads and programs that a run may have at once, beside those of its agent.
const THREADS: usize = 24;
/// A limit on processes from here on bounds nothing that a run needs.
const MANY: u64 = 4096;
/// Errors of the system that a limit can cause, by their numbers on Linux; and the limit.
const CAUSES: [(i32, Resource); 4] = [
    (27, Resource::Fsize),
    (24, Resource::Nofile),
    (12, Resource::As),
    (11, Resource::Nproc),
];

/// Has a write beyond the limit of file sizes fail instead of ending the process by SIGXFSZ.
///
/// The signal is blocked and not ignored, because programs that are started inherit what is ignored; the mask of a child is reset when it starts.
pub(crate) fn block_file_size_signal() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    signals.thread_block().expect("this signal exists");
}

/// Refuses limits with which no command works.
pub(crate) fn check() -> Result<(), Failure> {
    need(Resource::Nofile, FILES)
}

/// Refuses limits with which no run works, and sees whether threads can be started.
pub(crate) fn check_for_run() -> Result<(), Failure> {
    need(Resource::Nofile, FILES_OF_RUN)?;
    need(Resource::As, MEMORY_OF_RUN)?;
    let is_limited = |what, below| getrlimit(what).current.is_some_and(|it| it < below);
    if !is_limited(Resource::Nproc, MANY) && !is_limited(Resource::As, u64::MAX) {
        return Ok(());
    }
    // They live until this returns, so that all of them exist at once.
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    let mut started = Vec::new();
    for _ in 0..THREADS {
        let ended = Arc::clone(&ended);
        let wait = move || drop(ended.lock().map(|ended| ended.recv()));
        let thread = std::thread::Builder::new().spawn(wait);
        started
            .push(thread.map_err(|e| Failure::failed(format!("no thread can be started: {e}")))?);
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
            "the limit on {} is {}, and at least {} are needed: {}",
            name(what),
            shown(what, limit),
            shown(what, least),
            command(what, least),
        ))),
        _ => Ok(()),
    }
}

/// Names the limit behind an error of the system, if a limit is set that can have caused it.
pub(crate) fn explained(message: &str) -> String {
    let cause = CAUSES
        .into_iter()
        .find(|(number, _)| message.contains(&format!("(os error {number})")));
    let limit = cause.and_then(|(_, what)| Some((what, getrlimit(what).current?)));
    // The same number is also that of other things that are not there now.
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

/// The command that raises a limit to this much.
fn command(what: Resource, to: u64) -> String {
    let to = match what {
        Resource::As => to >> 10,
        _ => to,
    };
    format!("{} {to}", option(what))
}
