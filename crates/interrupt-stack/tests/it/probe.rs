//! The probes: this test binary, started again as a child process. An environment variable contains the name of the probe.

use std::{
    sync::Arc,
    task::{Context, Wake, Waker},
    time::Duration,
};

use interrupt_stack::{Cause, die_by};

#[cfg(feature = "driver")]
mod driven;
mod hello;
mod lines;
mod programs;
mod seats;
mod states;
#[cfg(feature = "tracing")]
mod traced;

use crate::child::VARIABLE;
use lines::{builder, line, park, ready, report, say};
use programs::hung;

#[test]
fn probe() {
    #[cfg(target_os = "linux")]
    if std::env::var_os(VARIABLE).is_some() {
        // A failed test leaves no probe behind.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .unwrap();
    }
    match std::env::var(VARIABLE).as_deref() {
        Err(_) => {} // an ordinary run of the tests
        Ok("graceful") => graceful(builder()),
        Ok("graceful, with ignored keys") => graceful(builder().catch_ignored_keys(true)),
        Ok("slow start") => slow_start(),
        #[cfg(target_os = "linux")]
        Ok("hello") => {
            std::thread::spawn(|| {
                crate::wait_for("the install", seats::catches_ctrl_c);
                ready();
            });
            hello::main().unwrap();
        }
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

fn graceful(builder: interrupt_stack::Builder) {
    let interrupts = builder.install().unwrap();
    seats::wait_for_the_foreground();
    ready();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let cause = runtime.block_on(interrupts.shutdown_cause());
    say(&format!(
        "cleanup {cause:?}, {} presses",
        interrupts.presses()
    ));
    die_by(cause);
}

fn slow_start() {
    let interrupts = builder().install().unwrap();
    ready();
    line(); // simulates a slow start: configuration, network, locks
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let cause = runtime.block_on(interrupts.shutdown_cause());
    say(&format!("cleanup {cause:?}"));
    die_by(cause);
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
    let mut cancelled = std::pin::pin!(interrupts.shutdown_cause());
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
        let interrupts = builder().install_scoped().unwrap();
        let second = builder().install().unwrap_err();
        assert!(second.is_already_installed(), "{second}");
        let handler = interrupts.push("run");
        ready();
        line();
        say(&format!("{} presses", interrupts.presses()));
        std::mem::forget(handler); // keeps the ladder alive: only the signals are restored
        drop(interrupts);
    }
    ready();
    park();
}
