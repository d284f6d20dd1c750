//! Probes whose ladder has a driver instead of threads.

use std::time::Duration;

use interrupt_stack::{Builder, Handler, Installed, InterruptDriver, PressSource, die_by};
use tokio::runtime::Runtime;

use super::lines::{builder, line, park, ready, say};
use super::seats;

pub(super) fn run(name: &str) -> bool {
    match name {
        "driven" => driven(builder()),
        "driven, with deadline" => driven(limits(builder())),
        "driven, hung" => hung(builder()),
        "driven, hung, with deadline" => hung(limits(builder())),
        "driven, suspendable" => driven(
            builder()
                .on_suspend(|| say("suspends"))
                .on_resume(|| say("resumes")),
        ),
        "driver idle" => idle(),
        "driver dropped" => dropped(),
        "driver over" => over(),
        "driver unread" => unread(),
        _ => false,
    }
}

fn limits(builder: Builder) -> Builder {
    let limit = Duration::from_millis(100);
    builder.shutdown_deadline(Some(limit)).take_timeout(limit)
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn install(builder: Builder) -> (Installed, InterruptDriver, Runtime) {
    let before = threads();
    let (interrupts, driver) = builder.install_driven_scoped().unwrap();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    assert_eq!(threads(), before, "a driver has no thread");
    (interrupts, driver, runtime)
}

async fn answer(mut handler: Handler) {
    loop {
        let notice = handler.notified().await;
        say(&format!("{}: press {}", handler.name(), notice.presses()));
        notice.handled();
    }
}

/// Answers every press.
fn driven(builder: Builder) -> ! {
    let (interrupts, driver, runtime) = install(builder);
    let run = interrupts.push("run");
    seats::wait_for_the_foreground();
    let cause = runtime.block_on(async {
        tokio::spawn(driver);
        tokio::spawn(answer(run));
        tokio::task::yield_now().await;
        ready();
        interrupts.shutdown_cause().await
    });
    say(&format!("{cause:?} after {} presses", interrupts.presses()));
    die_by(cause)
}

/// Has a topmost handler that never takes its notice, a handler below that does, and a shutdown that never ends.
fn hung(builder: Builder) -> ! {
    let (interrupts, driver, runtime) = install(builder);
    let run = interrupts.push("run");
    let _busy = interrupts.push("busy");
    runtime.block_on(async {
        tokio::spawn(driver);
        tokio::spawn(answer(run));
        tokio::task::yield_now().await;
        ready();
        say(&format!("shutdown {:?}", interrupts.shutdown_cause().await));
        std::future::pending().await
    })
}

/// Gets more presses than the wake pipe has room for.
fn idle() -> ! {
    let (interrupts, _driver, _runtime) = install(builder().debounce(Duration::ZERO));
    ready();
    let (mut run, injector) = (interrupts.push("run"), interrupts.injector());
    for _ in 0..70_000 {
        injector.press(PressSource::Injected);
        run.try_take().unwrap().handled();
    }
    say("70000 presses");
    park()
}

/// Has no driver any more: the next call processes the earlier presses.
fn dropped() -> ! {
    let (interrupts, driver, runtime) = install(builder());
    let mut run = interrupts.push("run");
    let task = runtime.spawn(driver);
    runtime.block_on(tokio::task::yield_now());
    task.abort();
    runtime.block_on(task).unwrap_err();
    ready();
    loop {
        line();
        let notice = run.try_take().map(|notice| notice.presses());
        say(&format!("{notice:?}, {:?}", interrupts.cause()));
    }
}

/// Checks that the driver ends with the last handle.
fn over() -> ! {
    let (interrupts, driver, runtime) = install(builder());
    let injector = interrupts.injector();
    let task = runtime.spawn(driver);
    runtime.block_on(tokio::task::yield_now());
    drop(interrupts);
    runtime.block_on(tokio::task::yield_now());
    assert!(!task.is_finished());
    drop(injector);
    let end = async { tokio::time::timeout(crate::DEADLINE, task).await };
    runtime.block_on(end).unwrap().unwrap();
    ready();
    park()
}

/// Restores the signals while the ladder stays alive with an unread press.
fn unread() -> ! {
    let (interrupts, driver, _runtime) = install(builder());
    drop(driver);
    ready();
    line();
    let ladder = (*interrupts).clone();
    let unread = ladder.presses();
    drop(interrupts);
    say(&format!("{unread}, then {}", ladder.presses()));
    park()
}
