//! The child's side of the tests with processes: this binary again, told by an environment variable what to be.

use std::{
    io::{Write, stdin},
    sync::Arc,
    task::{Context, Wake, Waker},
    time::Duration,
};

use interrupt_stack::{Builder, Cause, Interrupts, die_by};

#[cfg(feature = "driver")]
mod driven;
mod programs;
mod seats;
mod states;
#[cfg(feature = "tracing")]
mod traced;

pub(crate) const VARIABLE: &str = "INTERRUPT_STACK_PROBE";

fn say(line: &str) {
    // One write, so that two processes on a terminal do not mix their lines. Where nobody listens, nothing is to be done.
    drop(std::io::stderr().write_all(format!("probe: {line}\n").as_bytes()));
}

/// Says that signals may come, and to whom.
fn ready() {
    say(&format!("ready {}", std::process::id()));
}

fn park() -> ! {
    loop {
        std::thread::park();
    }
}

fn line() {
    stdin().read_line(&mut String::new()).unwrap();
}

/// Says each accepted press and the cause, from a thread that nothing blocks.
fn report(interrupts: &Interrupts) {
    let interrupts = interrupts.clone();
    std::thread::spawn(move || {
        let (mut presses, mut cause) = (0, None);
        loop {
            if interrupts.presses() > presses {
                presses += 1;
                say(&format!("press {presses}"));
            }
            if cause.is_none() && interrupts.cause().is_some() {
                cause = interrupts.cause();
                say(&format!("shutdown {:?}", cause.unwrap()));
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    });
}

fn builder() -> Builder {
    Interrupts::builder()
}

#[test]
fn probe() {
    #[cfg(target_os = "linux")]
    if std::env::var_os(VARIABLE).is_some() {
        // No test that fails leaves anything behind.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .unwrap();
    }
    match std::env::var(VARIABLE).as_deref() {
        Err(_) => {} // an ordinary run of the tests
        Ok("graceful") => graceful(),
        Ok("slow start") => slow_start(),
        Ok("hung") => hung(builder()),
        #[cfg(target_os = "linux")]
        Ok("hung, without descriptors") => {
            let interrupts = builder().install().unwrap();
            crate::audited::close_all();
            let _handler = interrupts.push("run");
            report(&interrupts);
            ready();
            park()
        }
        Ok("hung, with deadline") => {
            hung(builder().shutdown_deadline(Some(Duration::from_millis(100))))
        }
        Ok("blocked workers") => blocked_workers(),
        Ok("blocked current thread") => blocked_current_thread(),
        Ok("blocked runtime drop") => blocked_runtime_drop(),
        Ok("blocked waker") => blocked_waker(),
        Ok("installed twice") => installed_twice(),
        Ok("requested") => die_by(Cause::Requested(1)),
        Ok("seat") => seats::seat(),
        Ok("shell") => seats::shell(),
        Ok("loop") => seats::shell_loop(),
        #[cfg(feature = "driver")]
        Ok(other) if driven::run(other) => {}
        #[cfg(feature = "tracing")]
        Ok(other) if traced::run(other) => {}
        Ok(other) => assert!(
            programs::run(other) || states::run(other),
            "unknown probe {other}"
        ),
    }
}

fn graceful() {
    let interrupts = builder().install().unwrap();
    seats::wait_for_the_foreground();
    ready();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let cause = runtime.block_on(interrupts.cancelled());
    say(&format!(
        "cleanup {cause:?}, {} presses",
        interrupts.presses()
    ));
    die_by(cause);
}

fn slow_start() {
    let interrupts = builder().install().unwrap();
    ready();
    line(); // stands for everything slow: configuration, network, locks
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let cause = runtime.block_on(interrupts.cancelled());
    say(&format!("cleanup {cause:?}"));
    die_by(cause);
}

/// A handler that never takes, and a shutdown that never ends.
fn hung(builder: Builder) -> ! {
    let interrupts = builder.install().unwrap();
    let _handler = interrupts.push("run");
    report(&interrupts);
    seats::wait_for_the_foreground();
    seats::change_terminal();
    ready();
    park()
}

fn blocked_workers() {
    let interrupts = builder().install().unwrap();
    let mut handler = interrupts.push("run");
    report(&interrupts);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.spawn(async move { handler.notified().await.handled() });
    for _ in 0..2 {
        runtime.spawn(async { park() });
    }
    ready();
    runtime.block_on(async { park() });
}

fn blocked_current_thread() {
    let interrupts = builder().install().unwrap();
    let mut handler = interrupts.push("run");
    report(&interrupts);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async move {
        tokio::spawn(async move { handler.notified().await.handled() });
        ready();
        park();
    });
}

fn blocked_runtime_drop() {
    let interrupts = builder().install().unwrap();
    let _handler = interrupts.push("run");
    report(&interrupts);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let (started, wait) = std::sync::mpsc::channel();
    runtime.spawn_blocking(move || {
        started.send(()).unwrap();
        park()
    });
    wait.recv().unwrap();
    ready();
    drop(runtime);
}

fn blocked_waker() {
    struct Block;
    impl Wake for Block {
        fn wake(self: Arc<Self>) {
            park();
        }
    }
    let interrupts = builder().install().unwrap();
    let _handler = interrupts.push("run");
    report(&interrupts);
    let waker = Waker::from(Arc::new(Block));
    let mut cancelled = std::pin::pin!(interrupts.cancelled());
    assert!(
        cancelled
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    ready();
    park();
}

fn installed_twice() {
    for _ in 0..2 {
        let interrupts = builder().install().unwrap();
        let second = builder().install().unwrap_err();
        assert!(second.is_already_installed(), "{second}");
        let handler = interrupts.push("run");
        ready();
        line();
        say(&format!("{} presses", interrupts.presses()));
        std::mem::forget(handler); // and with it the ladder: only the signals are given back
        drop(interrupts);
    }
    ready();
    park();
}
