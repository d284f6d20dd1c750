//! Futures that are dropped at each of their points, with a disk that can be held up.

use std::future::Future;
use std::pin::pin;
use std::sync::Condvar;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::*;
use crate::test_disk::{Call, TestDisk};
use crate::{Meta, reader};

type Log = AsyncWriter<u64, u64>;

/// Holds up, or fails, the syncs of saves.
#[derive(Debug, Default)]
struct Gate {
    /// Whether syncs wait, how many of the next ones fail, and how many came.
    state: Mutex<(bool, usize, usize)>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, closed: bool, failures: usize) {
        *self.state.lock().unwrap() = (closed, failures, 0);
        self.changed.notify_all();
    }

    /// Waits until a save is held up.
    fn wait_until_held(&self) {
        wait_for("a save is held up", || self.state.lock().unwrap().2 > 0);
    }

    fn pass(&self) -> std::io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.2 += 1;
        while state.0 {
            state = self.changed.wait(state).unwrap();
        }
        match state.1.checked_sub(1) {
            None => Ok(()),
            Some(left) => {
                state.1 = left;
                Err(std::io::ErrorKind::StorageFull.into())
            }
        }
    }
}

struct Place {
    _root: tempfile::TempDir,
    path: PathBuf,
    gate: Arc<Gate>,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("s");
        Self {
            _root: root,
            path,
            gate: Arc::default(),
        }
    }

    fn open(&self) -> (Log, Loaded<u64, u64>) {
        let gate = self.gate.clone();
        let hook = move |call| match call {
            Call::SyncData => gate.pass(),
            _ => Ok(()),
        };
        let disk = TestDisk::open(&self.path, 0, hook);
        wait(Log::open_on(disk, self.path.clone(), Options::default())).unwrap()
    }

    fn load(&self) -> (u64, Vec<u64>) {
        let loaded = reader::load::<u64, u64>(&self.path).unwrap();
        assert!(loaded.report.is_sound());
        (loaded.head.unwrap_or_default(), loaded.events)
    }
}

/// Runs a future to its end without any runtime.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(future)
}

/// Polls until the future is ready or was polled so often.
fn poll<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..times {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
    }
    None
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn d11_a_future_that_is_dropped_before_its_first_poll_does_nothing() {
    let place = Place::new();
    let (writer, _) = place.open();
    drop(writer.append(&1, &[1]));
    drop(writer.save_phase("p", &1, Meta::default()));
    wait(writer.append(&2, &[2])).unwrap();
    wait(writer.close()).unwrap();
    assert_eq!(place.load(), (2, vec![2]));
}

#[test]
fn d11_a_future_that_is_dropped_while_the_queue_is_full_does_nothing() {
    let place = Place::new();
    let (writer, _) = place.open();
    place.gate.set(true, 0);
    let mut n = 0;
    // One is in the hands of the thread or taken together by it, the others wait.
    assert_eq!(poll(writer.append(&1, &[1]), 1).map(drop), None);
    place.gate.wait_until_held();
    for queued in 2..=QUEUE as u64 + 1 {
        assert!(poll(writer.append(&queued, &[queued]), 1).is_none());
        n = queued;
    }
    for _ in 0..3 {
        assert!(
            poll(writer.append(&99, &[99]), 3).is_none(),
            "there is no room"
        );
    }
    assert_eq!(writer.last_durable(), Seq::ZERO);
    place.gate.set(false, 0);
    wait(writer.close()).unwrap();
    assert_eq!(place.load(), (n, (1..=n).collect()), "no 99");
}

/// Dropped after it was queued: it is done all the same, and nothing older comes after it.
#[test]
fn d11_a_queued_save_is_done_whoever_waits_and_never_after_a_newer_one() {
    for polls in 1..4 {
        let place = Place::new();
        let (writer, _) = place.open();
        place.gate.set(true, 0);
        assert!(poll(writer.append(&1, &[1]), polls).is_none());
        assert!(poll(writer.append(&2, &[2]), polls).is_none());
        place.gate.set(false, 0);
        wait(writer.append(&3, &[3])).unwrap();
        assert_eq!(place.load(), (3, vec![1, 2, 3]));
        assert!(writer.last_durable() > Seq::ZERO);
        wait(writer.save_phase("p", &4, Meta::default())).unwrap();
        drop(writer);
        let (writer, loaded) = place.open();
        assert_eq!((loaded.head, loaded.events), (Some(4), vec![1, 2, 3]));
        drop(writer);
    }
}

/// Saves that wait become one: one frame, one number.
#[test]
fn d11_saves_that_wait_are_written_together() {
    let place = Place::new();
    let (writer, _) = place.open();
    place.gate.set(true, 0);
    assert!(poll(writer.append(&1, &[1]), 1).is_none());
    place.gate.wait_until_held();
    for n in 2..=9 {
        assert!(poll(writer.append(&n, &[n]), 1).is_none());
    }
    place.gate.set(false, 0);
    let tenth = wait(writer.append(&10, &[10])).unwrap();
    assert!(tenth <= Seq::new(3), "{tenth}");
    assert_eq!(writer.last_durable(), tenth);
    assert_eq!(place.load(), (10, (1..=10).collect()));
}

/// A failure that nobody waited for is told by the next call, and what was queued behind
/// it is not done: there would be a gap.
#[test]
fn d11_a_failure_is_not_lost_with_its_future_and_leaves_no_gap() {
    let place = Place::new();
    let (writer, _) = place.open();
    wait(writer.append(&1, &[1])).unwrap();
    // Both tries of the second save fail.
    place.gate.set(true, 2);
    assert!(poll(writer.append(&2, &[2]), 1).is_none());
    place.gate.wait_until_held();
    assert!(poll(writer.append(&3, &[3]), 1).is_none());
    assert!(poll(writer.put_blob("b", vec![1]), 1).is_none());
    place.gate.set(false, 2);
    wait_for("the failure is known", || {
        writer.shared.status().untold.is_some()
    });
    wait_for("the queue is empty", || {
        writer.jobs.as_ref().unwrap().capacity() == QUEUE
    });
    let err = wait(writer.append(&4, &[4])).unwrap_err();
    assert!(
        err.is_untried() && err.to_string().contains("full"),
        "{err}"
    );
    // What failed may be on disk or not; what was behind it is not.
    let (head, events) = place.load();
    assert!(events == [1] || events == [1, 2], "{events:?}");
    assert_eq!(head as usize, events.len());
    assert!(reader::blob(&place.path, "b").unwrap_err().is_not_found());
    // The caller knows now, and saves what was lost once more.
    wait(writer.append(&4, &[2, 3, 4])).unwrap();
    assert_eq!(place.load(), (4, vec![1, 2, 3, 4]));
    wait(writer.close()).unwrap();
}

/// A caller that looks late at its own failure does not take a later one for told.
#[test]
fn d11_a_failure_outlives_the_telling_of_an_earlier_one() {
    let place = Place::new();
    let (writer, _) = place.open();
    let failed = |times| writer.shared.status().failures == times;
    place.gate.set(true, 2);
    let mut late = pin!(writer.append(&1, &[1]));
    assert!(poll(late.as_mut(), 1).is_none());
    place.gate.set(false, 2);
    wait_for("the first failure", || failed(1));
    assert!(wait(writer.append(&2, &[2])).unwrap_err().is_untried());

    place.gate.set(true, 2);
    assert!(poll(writer.append(&3, &[3]), 1).is_none());
    place.gate.set(false, 2);
    wait_for("the second failure", || failed(2));
    assert!(wait(late).unwrap_err().is_full());
    assert!(wait(writer.append(&4, &[4])).unwrap_err().is_untried());
    wait(writer.append(&5, &[3, 4, 5])).unwrap();
}

#[test]
fn d11_close_tells_the_failure_that_nobody_was_told() {
    let place = Place::new();
    let (writer, _) = place.open();
    wait(writer.append(&1, &[1])).unwrap();
    place.gate.set(true, 2);
    assert!(poll(writer.append(&2, &[2]), 1).is_none());
    place.gate.set(false, 2);
    let err = wait(writer.close()).unwrap_err();
    assert!(err.to_string().contains("full"), "{err}");
}

/// Dropping everything in the middle of a save: what is on disk is one of the states, and
/// the store can be opened at once.
#[test]
fn d11_dropping_the_writer_waits_for_what_is_queued() {
    let place = Place::new();
    let (writer, _) = place.open();
    for n in 1..=5 {
        assert!(poll(writer.append(&n, &[n]), 1).is_none_or(|saved| saved.is_ok()));
    }
    drop(writer);
    let (_, loaded) = place.open();
    assert_eq!((loaded.head, loaded.events), (Some(5), vec![1, 2, 3, 4, 5]));
}

#[test]
fn d11_dropping_the_future_that_opens_lets_the_store_go() {
    let place = Place::new();
    for polls in 0..3 {
        drop(poll(Log::open(&place.path, Options::default()), polls));
    }
    let mut opened = None;
    wait_for("the lock is free", || {
        opened = wait(Log::open(&place.path, Options::default())).ok();
        opened.is_some()
    });
    let (writer, _) = opened.unwrap();
    wait(writer.append(&1, &[1])).unwrap();
    let err = wait(Log::open(&place.path, Options::default())).unwrap_err();
    assert!(err.is_locked());
}

/// The runtime ends while saves are under way, and another task panics.
#[test]
fn d11_acknowledged_saves_survive_the_end_of_the_runtime() {
    let place = Place::new();
    let acknowledged = Arc::new(Mutex::new(0));
    let (path, told) = (place.path.clone(), acknowledged.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.spawn(async move {
        let (writer, _) = Log::open(path, Options::default()).await.unwrap();
        for n in 1.. {
            writer.append(&n, &[n]).await.unwrap();
            *told.lock().unwrap() = n;
        }
    });
    let panicking = runtime.spawn(async { panic!("on purpose") });
    assert!(wait(panicking).is_err());
    wait_for("saves", || *acknowledged.lock().unwrap() > 20);
    drop(runtime);
    let last = *acknowledged.lock().unwrap();
    let (head, events) = place.load();
    assert!(head >= last, "{head} of {last}");
    assert_eq!(events, (1..=head).collect::<Vec<_>>());
}

/// The executor's only thread goes on while a large value is encoded, compressed and synced.
#[test]
fn c68_a_large_save_does_not_block_the_executor() {
    let place = Place::new();
    wait(async {
        let opened = AsyncWriter::<String, u64>::open(&place.path, Options::default()).await;
        let (writer, _) = opened.unwrap();
        let head = "a line of a transcript\n".repeat(50_000_000 / 23);
        let mut save = pin!(writer.append_owned(head, Vec::new()));
        let mut ticks = 0;
        let mut context = Context::from_waker(Waker::noop());
        while save.as_mut().poll(&mut context).is_pending() {
            ticks += 1;
            tokio::task::yield_now().await;
        }
        assert!(ticks > 100, "the executor got {ticks} turns meanwhile");
    });
}

/// The failure is known to the writer before its caller can go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_was_told_does_not_refuse_the_next_call() {
    let root = tempfile::tempdir().unwrap();
    let disk = TestDisk::open(&root.path().join("s"), 0, |_| Ok(()));
    let path = root.path().join("s");
    let (writer, _) = AsyncWriter::<u64, u64>::open_on(disk, path, Options::default())
        .await
        .unwrap();
    for n in 1..500 {
        assert!(writer.truncate_to(Seq::new(9999)).await.is_err());
        writer.append(&n, &[n]).await.unwrap();
    }
    writer.close().await.unwrap();
}
