//! Probes that can't act on a press any more, each in one of the states of X103, with this crate or with `tokio::signal`.

use std::{
    io::{Write, stdout},
    sync::{Arc, Barrier, Mutex},
};

use interrupt_stack::{Handler, Interrupts};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
};

use super::lines::{builder, park, ready};
use super::seats;
use crate::audited;

/// The code that handles presses, as long as this value lives.
#[expect(dead_code, reason = "the fields are kept, not read")]
enum Listener {
    Ours(Interrupts, Handler),
    Tokio(Runtime),
}

/// Returns a ladder of this crate with a handler that never takes its notice, and without a shutdown deadline.
fn ours() -> Listener {
    let interrupts = builder().install().unwrap();
    let handler = interrupts.push("run");
    Listener::Ours(interrupts, handler)
}

fn multi_thread() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Starts a task that exits at the third press, as programs without this crate do. Returns when the task is ready for signals.
fn count_in(runtime: &Runtime) {
    let _guard = runtime.enter();
    let mut presses = signal(SignalKind::interrupt()).unwrap();
    runtime.spawn(async move {
        for n in 1..=3 {
            presses.recv().await;
            drop(writeln!(stdout(), "press {n}"));
        }
        exit(130);
    });
}

fn theirs() -> Listener {
    let runtime = multi_thread();
    count_in(&runtime);
    Listener::Tokio(runtime)
}

#[expect(clippy::disallowed_methods, reason = "the test shows that it may hang")]
fn exit(code: i32) -> ! {
    std::process::exit(code)
}

/// Enters the state with this name, after `"x103 "` or `"tokio "`.
pub(super) fn run(name: &str) -> bool {
    let (listen, state): (fn() -> Listener, _) = match name.split_once(' ') {
        Some(("x103", state)) => (ours, state),
        Some(("tokio", state)) => (theirs, state),
        _ => return false,
    };
    seats::wait_for_the_foreground();
    match state {
        "workers" => workers(listen()),
        "current thread" => current_thread(listen()),
        "runtime drop" => runtime_drop(listen()),
        "atexit" => atexit(listen()),
        "stdout" => stdout_full(listen()),
        "allocating" => allocating(listen()),
        #[cfg(feature = "driver")]
        "never driven" => never_driven(),
        #[cfg(feature = "driver")]
        "stuck driver" => stuck_driver(),
        _ => false,
    }
}

/// All workers of the runtime wait for each other's lock.
fn workers(listener: Listener) -> bool {
    let runtime = match &listener {
        Listener::Ours(..) => &multi_thread(),
        Listener::Tokio(runtime) => runtime,
    };
    let locks = Arc::new((Mutex::new(()), Mutex::new(()), Barrier::new(3)));
    for first in [true, false] {
        let locks = locks.clone();
        let (holds, held) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let (one, other) = if first {
                (&locks.0, &locks.1)
            } else {
                (&locks.1, &locks.0)
            };
            let guard = one.lock().unwrap();
            holds.send(()).unwrap();
            locks.2.wait();
            drop((other.lock().unwrap(), guard));
        });
        // A worker can take two waiting tasks at once, and the other worker can miss the second one, which then never starts.
        held.recv().unwrap();
    }
    locks.2.wait();
    seats::change_terminal();
    ready();
    runtime.block_on(std::future::pending())
}

/// A runtime with one thread, and a task that never yields.
fn current_thread(listener: Listener) -> bool {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    if let Listener::Tokio(_) = &listener {
        count_in(&runtime);
    }
    // `tokio::signal` uses this runtime instead of its own.
    let listener = match listener {
        Listener::Tokio(other) => {
            other.shutdown_background();
            None
        }
        ours => Some(ours),
    };
    runtime.block_on(async {
        tokio::task::yield_now().await;
        seats::change_terminal();
        ready();
        let mut rounds = 0_u64;
        while std::hint::black_box(listener.is_some() || rounds < u64::MAX) {
            rounds = rounds.wrapping_add(1);
            std::thread::yield_now(); // lets other processes run; the task still never yields
        }
    });
    true
}

/// `main` waits in the drop of a runtime for a blocking task.
fn runtime_drop(listener: Listener) -> bool {
    let (runtime, _listener) = match listener {
        Listener::Tokio(runtime) => (runtime, None),
        ours => (multi_thread(), Some(ours)),
    };
    let started = Arc::new(Barrier::new(2));
    let there = started.clone();
    runtime.spawn_blocking(move || {
        there.wait();
        park()
    });
    started.wait();
    seats::change_terminal();
    ready();
    drop(runtime);
    unreachable!("the task never ends")
}

/// `main` has returned, and an `atexit` handler hangs.
fn atexit(listener: Listener) -> bool {
    extern "C" fn hang() {
        ready();
        park()
    }
    audited::at_exit(hang);
    seats::change_terminal();
    std::mem::forget(listener); // keeps it alive, as a value in `main`
    exit(0)
}

/// No process reads the standard output. One thread hangs in the write with the lock, `main` waits for the lock.
fn stdout_full(listener: Listener) -> bool {
    let (_reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::stdio::dup2_stdout(&writer).unwrap();
    std::thread::spawn(|| stdout().write_all(&[b'x'; 1 << 20]));
    crate::wait_for("a full pipe", || {
        let mut fds = [PollFd::new(&writer, PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 0
    });
    seats::change_terminal();
    ready();
    drop(writeln!(stdout(), "done"));
    drop(listener);
    unreachable!("the write never ends")
}

/// The main thread, which the system prefers for signals, is nearly always in the allocator and holds its locks.
fn allocating(listener: Listener) -> bool {
    seats::change_terminal();
    ready();
    let mut kept = Vec::new();
    for size in [16, 300, 5_000, 50_000].into_iter().cycle() {
        kept.push(vec![0_u8; size]);
        if kept.len() == 100 {
            kept.clear();
            std::thread::yield_now(); // lets other processes run
        }
    }
    drop(listener);
    unreachable!("the loop never ends")
}

/// The router has no threads, and its driver is never polled.
#[cfg(feature = "driver")]
fn never_driven() -> bool {
    let (interrupts, _driver) = builder().install_driven().unwrap();
    let _handler = interrupts.push("run");
    seats::change_terminal();
    ready();
    park()
}

/// The driver was polled, and now its runtime is stuck.
#[cfg(feature = "driver")]
fn stuck_driver() -> bool {
    let (interrupts, driver) = builder().install_driven().unwrap();
    let _handler = interrupts.push("run");
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::spawn(driver);
        tokio::task::yield_now().await;
        seats::change_terminal();
        ready();
        park()
    })
}
