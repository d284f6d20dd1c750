//! Tests of requests by name, and of waits that block a thread.

use std::{thread, time::Duration};

use interrupt_stack::{Cause, Handler, HardExit, Interrupts, PressSource};

use crate::DEADLINE;

fn detached() -> Interrupts {
    Interrupts::builder()
        .debounce(Duration::ZERO)
        .hard_exit(HardExit::Off)
        .detached()
}

#[test]
fn request_reaches_the_innermost_handler_of_its_name() {
    let interrupts = detached();
    let injector = interrupts.injector();
    assert!(!injector.interrupt("turn"), "no such handler");
    let mut outer = interrupts.push("turn");
    let mut inner = interrupts.push("turn");
    let mut menu = interrupts.push("menu");
    assert!(!injector.interrupt("tur"));
    assert!(injector.interrupt("turn"));
    assert!(injector.interrupt("turn"), "its request is open already");
    assert!(menu.try_take().is_none() && outer.try_take().is_none());
    let notice = inner.try_take().expect("the innermost");
    assert_eq!(
        (notice.source(), notice.presses(), notice.handler()),
        (PressSource::Request, 0, inner.id())
    );
    notice.handled();
    drop(inner);
    assert!(injector.interrupt("turn"));
    outer.try_take().expect("the remaining handler").decline();
    assert_eq!((interrupts.presses(), interrupts.cause()), (0, None));
    injector.press(PressSource::Injected);
    assert_eq!(menu.try_take().expect("a first press").presses(), 1);
}

#[test]
fn request_waits_for_an_open_notice_and_is_dropped_with_its_handler() {
    let interrupts = detached();
    let injector = interrupts.injector();
    let mut turn = interrupts.push("turn");
    let mut menu = interrupts.push("menu");
    injector.press(PressSource::Injected);
    let notice = menu.try_take().unwrap();
    assert!(injector.interrupt("turn"));
    assert!(turn.try_take().is_none(), "one notice at a time");
    notice.handled();
    turn.try_take().expect("the waiting request").handled();

    assert!(injector.interrupt("turn"));
    drop(turn);
    assert_eq!(interrupts.cause(), None, "a request isn't passed down");
    injector.press(PressSource::Injected);
    menu.try_take().expect("a first press").handled();
    injector.terminate(Cause::Requested(7));
    assert!(!injector.interrupt("menu"), "no request in shutdown");
}

#[test]
fn press_and_escalate_on_a_request_begin_shutdown() {
    for escalate in [false, true] {
        let interrupts = detached();
        let mut turn = interrupts.push("turn");
        assert!(interrupts.injector().interrupt("turn"));
        match escalate {
            true => turn.try_take().unwrap().escalate(),
            false => interrupts.injector().press(PressSource::RawByte),
        }
        assert_eq!(interrupts.cause(), Some(Cause::Press));
    }
}

#[tokio::test]
async fn request_wakes_its_handler() {
    let interrupts = detached();
    let mut turn = interrupts.push("turn");
    let _menu = interrupts.push("menu");
    let task = tokio::spawn(async move { turn.notified().await.source() });
    tokio::task::yield_now().await; // the task waits now
    assert!(interrupts.injector().interrupt("turn"));
    let source = tokio::time::timeout(DEADLINE, task)
        .await
        .expect("the task wakes in time");
    assert_eq!(source.unwrap(), PressSource::Request);
}

#[test]
fn thread_waits_for_a_press_without_a_runtime() {
    let interrupts = detached();
    let mut menu = interrupts.push("menu");
    assert!(menu.wait_timeout(Duration::ZERO).is_none());
    assert!(menu.wait_timeout(Duration::from_millis(20)).is_none());
    let injector = interrupts.injector();
    let (ready, go) = std::sync::mpsc::channel();
    let waits = thread::spawn(move || {
        for n in 1..=3 {
            ready.send(()).unwrap();
            let notice = match n {
                2 => menu.wait_timeout(DEADLINE),
                _ => menu.wait(),
            };
            let notice = notice.expect("a press");
            assert_eq!(notice.presses(), n);
            notice.handled();
        }
    });
    for _ in 0..3 {
        go.recv().unwrap();
        injector.press(PressSource::Injected);
    }
    waits.join().unwrap();
    assert_eq!(interrupts.cause(), None);
}

/// The wait ends whether shutdown begins before it or during it.
#[test]
fn wait_for_a_press_ends_with_shutdown() {
    for waits in [
        |menu: &mut Handler| menu.wait().is_none(),
        |menu: &mut Handler| menu.wait_timeout(Duration::MAX).is_none(),
    ] {
        let interrupts = detached();
        let mut menu = interrupts.push("menu");
        let (ready, go) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            ready.send(()).unwrap();
            waits(&mut menu) && waits(&mut menu)
        });
        go.recv().unwrap();
        interrupts.injector().terminate(Cause::Terminate);
        crate::wait_for("the end of the wait", || thread.is_finished());
        assert!(thread.join().unwrap());
    }
}

#[tokio::test]
async fn notified_stays_pending_in_shutdown() {
    let interrupts = detached();
    let mut menu = interrupts.push("menu");
    interrupts.injector().press(PressSource::Injected);
    interrupts.injector().press(PressSource::Injected);
    assert_eq!(interrupts.shutdown_cause().await, Cause::Press);
    tokio::select! {
        biased;
        _ = menu.notified() => panic!("there are no notices in shutdown"),
        () = tokio::task::yield_now() => assert!(menu.try_take().is_none()),
    }
}

#[test]
fn cause_has_a_readable_name() {
    let causes = [
        Cause::Press,
        Cause::Terminate,
        Cause::Hangup,
        Cause::Quit,
        Cause::Requested(3),
    ];
    assert_eq!(
        causes.map(|cause| cause.to_string()),
        ["Ctrl-C", "SIGTERM", "SIGHUP", "SIGQUIT", "the program"]
    );
}

#[test]
fn threads_wait_for_shutdown_without_a_runtime() {
    let interrupts = detached();
    assert_eq!(interrupts.wait_timeout(Duration::from_millis(20)), None);
    let waits = [0; 3].map(|_| {
        let interrupts = interrupts.clone();
        thread::spawn(move || interrupts.wait())
    });
    interrupts.injector().terminate(Cause::Hangup);
    for wait in waits {
        assert_eq!(wait.join().unwrap(), Cause::Hangup);
    }
    assert_eq!(
        interrupts.wait_timeout(Duration::MAX),
        Some(Cause::Hangup),
        "the cause is sticky"
    );
    assert_eq!(interrupts.wait(), Cause::Hangup);
}

/// The handler below wakes when time alone passes the notice down to it.
#[test]
fn thread_waits_for_a_notice_that_walks_down() {
    let interrupts = Interrupts::builder()
        .take_timeout(Duration::from_millis(20))
        .detached();
    let mut run = interrupts.push("run");
    let _busy = interrupts.push("busy");
    interrupts.injector().press(PressSource::Injected);
    let notice = run
        .wait_timeout(DEADLINE)
        .expect("the notice is passed down");
    assert_eq!(notice.handler(), run.id());
    notice.handled();
}
