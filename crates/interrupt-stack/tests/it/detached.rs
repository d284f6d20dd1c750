//! Tests of the ladder with its threads and without signals: injected presses, a manual clock, and an exit that calls back. Each press scope is tried
//! with each kind of press.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use interrupt_stack::{
    Builder, Cause, HardExit, Injector, Installed, Interrupts, ManualClock, Notice, PressSource,
};

use crate::{DEADLINE, wait_for};

mod wakers;

/// A ladder as a user of the crate tests it: no signals, a manual clock, and an exit that calls back.
struct Rig {
    interrupts: Interrupts,
    injector: Injector,
    clock: Arc<ManualClock>,
    exits: mpsc::Receiver<Cause>,
}

impl Rig {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(configure: impl FnOnce(Builder) -> Builder) -> Self {
        let (clock, (sender, exits)) = (Arc::new(ManualClock::new()), mpsc::channel());
        let hard_exit = HardExit::Callback(Box::new(move |cause| sender.send(cause).unwrap()));
        let interrupts = configure(
            Interrupts::builder()
                .clock(clock.clone())
                .hard_exit(hard_exit),
        )
        .detached();
        Self {
            injector: interrupts.injector(),
            interrupts,
            clock,
            exits,
        }
    }

    /// Presses once, after the debounce.
    fn press(&self) {
        self.clock.advance(Duration::from_millis(60));
        self.injector.press(PressSource::Injected);
    }

    fn exit(&self) -> Cause {
        self.exits.recv_timeout(DEADLINE).expect("a hard exit")
    }
}

/// Returns the output of the future, or fails the test at the time limit.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("the future is ready in time")
}

#[tokio::test]
async fn j27a_press_without_handlers_begins_shutdown() {
    let rig = Rig::new();
    let (token, early) = (rig.interrupts.token(), rig.interrupts.shutdown_cause());
    assert_eq!(
        (rig.interrupts.cause(), token.is_cancelled()),
        (None, false)
    );
    rig.press();
    assert_eq!(rig.interrupts.cause(), Some(Cause::Press));
    assert_eq!(soon(early).await, Cause::Press);
    soon(token.cancelled()).await;
    assert!(rig.exits.try_recv().is_err(), "graceful");
    assert_eq!(
        soon(rig.interrupts.shutdown_cause()).await,
        Cause::Press,
        "the cause is sticky"
    );
}

#[tokio::test]
async fn j28a_j28b_innermost_handler_gets_the_press() {
    let rig = Rig::new();
    let mut outer = rig.interrupts.push("run");
    let mut inner = rig.interrupts.push("menu");
    rig.press();
    assert!(outer.try_take().is_none());
    let notice = soon(inner.notified()).await;
    assert_eq!(
        (notice.handler(), notice.presses(), notice.source()),
        (inner.id(), 1, PressSource::Injected)
    );
    notice.handled();
    drop(inner);
    rig.press();
    let notice = soon(outer.notified()).await;
    assert_eq!(
        (outer.name(), notice.presses(), notice.handler()),
        ("run", 2, outer.id())
    );
    notice.handled();
    assert_eq!(rig.interrupts.cause(), None);
}

#[test]
fn j29_handlers_leave_in_any_order_even_unwinding() {
    let rig = Rig::new();
    let mut bottom = rig.interrupts.push("bottom");
    let middle = rig.interrupts.push("middle");
    let interrupts = rig.interrupts.clone();
    let panicked = std::thread::spawn(move || {
        let _top = interrupts.push("top");
        drop(middle);
        std::panic::resume_unwind(Box::new("as a panic does"));
    });
    assert!(panicked.join().is_err());
    rig.press();
    bottom.try_take().expect("the only one left").handled();

    // A notice that is dropped in a panic leaves its press counted.
    rig.press();
    let notice = bottom.try_take().unwrap();
    let panicked = std::thread::spawn(move || {
        let _notice = notice;
        std::panic::resume_unwind(Box::new("as a panic does"));
    });
    assert!(panicked.join().is_err());
    rig.press();
    assert_eq!(rig.interrupts.cause(), Some(Cause::Press));
}

#[test]
fn j30a_j30b_second_press_skips_the_handlers() {
    let rig = Rig::new();
    let mut menu = rig.interrupts.push("menu");
    rig.press();
    rig.press();
    assert_eq!(rig.interrupts.cause(), Some(Cause::Press));
    assert!(menu.try_take().is_none());
}

#[test]
fn j31_j32a_answered_press_does_not_escalate_through_the_router() {
    let rig = Rig::new();
    let mut menu = rig.interrupts.push("menu");
    for n in 1..=8 {
        rig.press();
        let notice = menu.try_take().expect("a first press each time");
        assert_eq!(notice.presses(), n);
        notice.handled();
    }
    assert_eq!(
        (rig.interrupts.presses(), rig.interrupts.cause()),
        (8, None)
    );
}

#[test]
fn j33a_press_after_shutdown_began_is_a_hard_exit() {
    for cause in [
        Cause::Press,
        Cause::Terminate,
        Cause::Hangup,
        Cause::Requested(1),
    ] {
        let rig = Rig::new();
        rig.injector.terminate(cause);
        rig.injector.terminate(Cause::Terminate);
        rig.injector.terminate(Cause::Hangup);
        rig.press();
        assert_eq!(rig.exit(), Cause::Press);
        assert_eq!(rig.interrupts.cause(), Some(cause));
        rig.press();
        assert_eq!(
            rig.exit(),
            Cause::Press,
            "again, because the callback did not end the process"
        );
        assert!(rig.exits.try_recv().is_err());
    }
}

#[test]
fn j34a_j34b_declined_press_reaches_every_handler_once() {
    let rig = Rig::new();
    let mut stack: Vec<_> = ["process", "run", "turn", "menu"]
        .map(|name| rig.interrupts.push(name))
        .into();
    rig.press();
    while let Some(mut handler) = stack.pop() {
        assert_eq!(rig.interrupts.cause(), None);
        let notice = handler.try_take().expect("this handler has the notice");
        assert!(
            handler.try_take().is_none()
                && stack.iter_mut().all(|below| below.try_take().is_none())
        );
        notice.decline();
    }
    assert_eq!(rig.interrupts.cause(), Some(Cause::Press));
}

/// A trait that a cloneable type implements twice, so that a call of `check` is ambiguous and doesn't compile.
trait IsClonedByNobody<Twice> {
    fn check() {}
}

impl<T> IsClonedByNobody<()> for T {}
impl<T: Clone> IsClonedByNobody<u8> for T {}

#[test]
fn j34c_every_answer_consumes_the_notice() {
    let answers: [fn(Notice); 3] = [Notice::handled, Notice::decline, Notice::escalate];
    <Notice as IsClonedByNobody<_>>::check();
    for answer in answers {
        let rig = Rig::new();
        let mut menu = rig.interrupts.push("menu");
        rig.press();
        answer(menu.try_take().unwrap());
        assert!(menu.try_take().is_none(), "a notice is handed out once");
    }
}

#[test]
fn j35_decline_works_after_the_guard_was_dropped() {
    let rig = Rig::new();
    let mut run = rig.interrupts.push("run");
    let mut menu = rig.interrupts.push("menu");
    rig.press();
    let notice = menu.try_take().unwrap();
    drop(menu);
    let mut above = rig.interrupts.push("above");
    notice.decline();
    assert!(above.try_take().is_none());
    run.try_take().unwrap().escalate();
    assert_eq!(rig.interrupts.cause(), Some(Cause::Press));
}

#[test]
fn j36_dropped_notice_leaves_the_press_counted() {
    for (passed, cause) in [(1900, Some(Cause::Press)), (2000, None)] {
        let rig = Rig::new();
        let mut menu = rig.interrupts.push("menu");
        rig.press();
        drop(menu.try_take().unwrap());
        rig.clock.advance(Duration::from_millis(passed));
        rig.press();
        assert_eq!(rig.interrupts.cause(), cause, "after {passed} ms");
    }
}

#[tokio::test]
async fn j37a_j37d_j37e_untaken_notice_wakes_the_handler_below() {
    let rig = Rig::new();
    let mut run = rig.interrupts.push("run");
    let _busy = rig.interrupts.push("busy");
    let task = tokio::spawn(async move {
        let notice = run.notified().await;
        (run, notice.presses())
    });
    rig.press();
    rig.clock.advance(Duration::from_secs(1));
    rig.interrupts.tick();
    let (_run, presses) = soon(task).await.unwrap();
    assert_eq!((presses, rig.interrupts.presses()), (1, 1));
    rig.clock.advance(Duration::from_secs(600));
    rig.interrupts.tick();
    assert_eq!(rig.interrupts.cause(), None, "time alone never shuts down");
}

#[test]
fn j37b_untaken_press_is_reported_at_each_handler_and_a_taken_one_is_not() {
    let (sender, reports) = mpsc::channel();
    let rig = Rig::with(|builder| builder.on_notice_timeout(move || sender.send(()).unwrap()));
    let mut run = rig.interrupts.push("run");
    let busy = rig.interrupts.push("busy");
    let second = Duration::from_secs(1);
    rig.press();
    for _ in ["busy", "run"] {
        assert!(reports.try_recv().is_err());
        rig.clock.advance(second);
        rig.interrupts.tick();
        assert_eq!(reports.recv_timeout(DEADLINE), Ok(()));
    }
    run.try_take().expect("a late take works").handled();
    drop(busy);
    rig.press();
    let notice = run.try_take().unwrap();
    rig.clock.advance(60 * second);
    rig.interrupts.tick();
    notice.handled();
    drop((rig, run));
    assert!(reports.recv_timeout(DEADLINE).is_err(), "once at each");
}

/// On the system clock, the router's own thread keeps the deadline.
#[test]
fn j37a_take_timeout_needs_no_further_event() {
    let interrupts = Interrupts::builder()
        .take_timeout(Duration::from_millis(20))
        .detached();
    let mut run = interrupts.push("run");
    let _busy = interrupts.push("busy");
    let bell = Arc::new(Count::default());
    let waker = Waker::from(bell.clone());
    let mut wait = pin!(run.notified());
    assert!(
        wait.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    interrupts.injector().press(PressSource::RawByte);
    wait_for("the wake of the handler below", || bell.0.load(Relaxed) > 0);
    let Poll::Ready(notice) = wait.poll(&mut Context::from_waker(&waker)) else {
        panic!("a notice waits")
    };
    notice.handled();
}

#[tokio::test]
async fn j38a_j38b_notice_of_a_dropped_handler_goes_to_the_next() {
    let rig = Rig::new();
    let mut run = rig.interrupts.push("run");
    let menu = rig.interrupts.push("menu");
    rig.press();
    drop(menu);
    soon(run.notified()).await.handled();
    rig.press();
    drop(run);
    assert_eq!(soon(rig.interrupts.shutdown_cause()).await, Cause::Press);
}

#[test]
fn j50_clock_source_and_exit_are_injected() {
    let rig = Rig::with(|builder| {
        builder
            .shutdown_deadline(Some(Duration::from_secs(8)))
            .cooldown(Duration::ZERO)
    });
    let mut menu = rig.interrupts.push("menu");
    for _ in 0..10_000 {
        rig.injector.press(PressSource::Signal);
    }
    assert_eq!(
        rig.interrupts.presses(),
        1,
        "a storm within the debounce is one press"
    );
    drop(menu.try_take().unwrap());
    rig.press();
    menu.try_take().expect("no cooldown").escalate();
    rig.clock.advance(Duration::from_millis(7_999));
    rig.interrupts.tick();
    assert!(rig.exits.try_recv().is_err());
    rig.clock.advance(Duration::from_millis(1));
    rig.interrupts.tick();
    assert_eq!(rig.exit(), Cause::Press);
}

#[test]
fn w20_cooldown_and_deadline_can_be_changed_after_the_start() {
    let rig = Rig::new();
    rig.interrupts.set_cooldown(Duration::ZERO);
    let deadline = Duration::from_secs(8);
    rig.interrupts.set_shutdown_deadline(Some(deadline));
    let mut menu = rig.interrupts.push("menu");
    rig.press();
    drop(menu.try_take().unwrap());
    rig.press();
    // With the default cooldown the second press would have begun the shutdown.
    menu.try_take().expect("no cooldown").escalate();
    assert!(rig.exits.try_recv().is_err());
    rig.clock.advance(deadline);
    rig.interrupts.tick();
    assert_eq!(rig.exit(), Cause::Press);
}

#[test]
fn debounce_can_be_changed_after_the_start() {
    let rig = Rig::new();
    for (debounce, presses) in [(Duration::from_secs(60), 1), (Duration::ZERO, 3)] {
        rig.interrupts.set_debounce(debounce);
        rig.injector.press(PressSource::Injected);
        rig.injector.press(PressSource::Injected);
        assert_eq!(rig.interrupts.presses(), presses);
    }
}

#[test]
fn clock_saturates_and_continues() {
    let rig = Rig::new();
    for too_far in [Duration::MAX, Duration::from_secs(i64::MAX as u64)] {
        let advance = AssertUnwindSafe(|| rig.clock.advance(too_far));
        catch_unwind(advance).expect_err("the documentation promises a panic");
    }
    rig.press();
    assert_eq!(rig.interrupts.cause(), Some(Cause::Press));
}

#[test]
fn j42b_quit_starts_no_cleanup_beside_the_exit() {
    for _ in 0..200 {
        let (sender, exits) = mpsc::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let state = Mutex::new((sender, wait));
        let interrupts = Interrupts::builder()
            .hard_exit(HardExit::Callback(Box::new(move |cause| {
                let state = state.lock().unwrap();
                state.0.send(cause).unwrap();
                assert!(state.1.recv().is_err(), "the test drops the sender");
            })))
            .detached();
        let token = interrupts.token();
        interrupts.injector().terminate(Cause::Quit);
        assert_eq!(exits.recv_timeout(DEADLINE), Ok(Cause::Quit));
        assert!(!token.is_cancelled());
        drop(go_on);
        wait_for("shutdown after an exit that did not end anything", || {
            token.is_cancelled()
        });
    }
}

#[test]
fn shutdown_deadline_needs_no_further_event() {
    let (sender, exits) = mpsc::channel();
    let sender = Mutex::new(sender);
    let interrupts = Interrupts::builder()
        .shutdown_deadline(Some(Duration::from_millis(20)))
        .hard_exit(HardExit::Callback(Box::new(move |cause| {
            sender.lock().unwrap().send(cause).unwrap()
        })))
        .detached();
    interrupts.injector().terminate(Cause::Hangup);
    assert_eq!(exits.recv_timeout(DEADLINE), Ok(Cause::Hangup));
}

#[tokio::test]
async fn dropped_wait_loses_no_notice() {
    let rig = Rig::new();
    let mut menu = rig.interrupts.push("menu");
    for _ in 0..50 {
        let mut wait = Box::pin(menu.notified());
        let first = poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await;
        assert!(first.is_pending());
        rig.press();
        drop(wait);
        soon(menu.notified()).await.handled();
    }
    assert_eq!(rig.interrupts.presses(), 50);
}

#[test]
fn threads_end_with_the_last_handle() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let count = Arc::new(AtomicUsize::new(0));
    let dropped = Dropped(count.clone());
    let interrupts = Interrupts::builder()
        .hard_exit(HardExit::Callback(Box::new(move |_| _ = &dropped)))
        .detached();
    let (handler, injector) = (interrupts.push("run"), interrupts.injector());
    drop(interrupts);
    drop(handler);
    injector.terminate(Cause::Requested(1));
    assert_eq!(count.load(Relaxed), 0);
    drop(injector);
    wait_for("the end of both threads", || count.load(Relaxed) == 1);
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn causes_map_to_their_signals() {
    for cause in [Cause::Press, Cause::Terminate, Cause::Hangup, Cause::Quit] {
        assert_eq!(
            cause.signal().map(|signal| 128 + signal),
            Some(cause.exit_code().into())
        );
    }
    assert_eq!(
        (
            Cause::Requested(1).signal(),
            Cause::Requested(1).exit_code()
        ),
        (None, 1)
    );
}

#[test]
fn types_are_send_and_sync() {
    fn check<T: Send + Sync + 'static>() {}
    check::<(
        Interrupts,
        Builder,
        Injector,
        Installed,
        Notice,
        interrupt_stack::Handler,
        interrupt_stack::Error,
    )>();
}
