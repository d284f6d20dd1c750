//! Tests of foreign wakers, which hang or panic.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    task::{Context, Wake, Waker},
};

use interrupt_stack::Cause;

use super::{Rig, soon};
use crate::{DEADLINE, wait_for};

#[test]
fn blocked_waker_does_not_block_the_exit() {
    let rig = Rig::new();
    let gate = Arc::new((
        Mutex::new(false),
        std::sync::Condvar::new(),
        AtomicUsize::new(0),
    ));
    struct Block(Arc<(Mutex<bool>, std::sync::Condvar, AtomicUsize)>);
    impl Wake for Block {
        fn wake(self: Arc<Self>) {
            self.0.2.fetch_add(1, Relaxed);
            let open = self.0.0.lock().unwrap();
            drop(self.0.1.wait_while(open, |open| !*open).unwrap());
        }
    }
    let waker = Waker::from(Arc::new(Block(gate.clone())));
    let mut cancelled = pin!(rig.interrupts.shutdown_cause());
    assert!(
        cancelled
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    rig.press();
    wait_for("the waker", || gate.2.load(Relaxed) == 1);
    rig.press();
    assert_eq!(rig.exit(), Cause::Press);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
}

/// After shutdown has begun, a handler isn't woken for a press that it can no longer take.
#[tokio::test]
async fn blocked_waker_of_a_handler_does_not_hide_shutdown_from_others() {
    /// A waker that reports its call, and returns when the other end is gone.
    struct Block(mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>);
    impl Wake for Block {
        fn wake(self: Arc<Self>) {
            self.0.send(()).unwrap();
            self.1.lock().unwrap().recv().unwrap_err();
        }
    }
    let (calls, called) = mpsc::channel();
    let block = || {
        let (release, released) = mpsc::channel();
        let block = Block(calls.clone(), Mutex::new(released));
        (release, Waker::from(Arc::new(block)))
    };
    let rig = Rig::new();
    let mut first = rig.interrupts.push("first");
    let (release, waker) = block();
    let mut wait = Box::pin(first.notified());
    let polled = wait.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    rig.press();
    called.recv_timeout(DEADLINE).unwrap(); // the one thread that runs wakers is busy, and later finds all new events at once
    drop(wait);
    first.try_take().unwrap().handled();
    let mut second = rig.interrupts.push("second");
    let (_never, waker) = block();
    let mut wait = pin!(second.notified());
    let polled = wait.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    rig.press();
    rig.press();
    drop(release);
    assert_eq!(soon(rig.interrupts.shutdown_cause()).await, Cause::Press);
}

#[tokio::test]
async fn panicking_waker_does_not_silence_the_next() {
    #[derive(Default)]
    struct Panic(AtomicUsize);
    impl Wake for Panic {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
            std::panic::resume_unwind(Box::new("a foreign waker"));
        }
    }
    let rig = Rig::new();
    let (mut run, mut menu) = (rig.interrupts.push("run"), rig.interrupts.push("menu"));
    let bad = Arc::new(Panic::default());
    let waker = Waker::from(bad.clone());
    let mut wait = Box::pin(menu.notified());
    assert!(
        wait.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    rig.press();
    wait_for("the waker", || bad.0.load(Relaxed) == 1);
    drop(wait);
    let task = tokio::spawn(async move { run.notified().await.handled() });
    tokio::task::yield_now().await; // the task waits now, until it is woken
    drop(menu);
    soon(task).await.unwrap();
}
