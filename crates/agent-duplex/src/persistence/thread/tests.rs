//! Tests of the persistence thread with a store that waits for the test, so that the test controls which records are stored together.

use std::sync::{Arc, Mutex, mpsc};

use tokio::sync::oneshot;

use super::PersistenceThread;
use crate::{Error, PersistedRecord, Persistence, RecoveredConversation};

/// A store that waits for an instruction of the test before each append.
#[derive(Debug)]
struct ControlledStore {
    words: mpsc::Receiver<TestAction>,
    kept: Arc<Mutex<Vec<usize>>>,
}

#[derive(Debug)]
enum TestAction {
    Keep,
    Fail,
    Panic,
}

impl Persistence for ControlledStore {
    fn recover(&mut self) -> Result<RecoveredConversation, Error> {
        Ok(RecoveredConversation::default())
    }

    fn append(&mut self, records: &[PersistedRecord]) -> Result<(), Error> {
        self.kept.lock().unwrap().push(records.len());
        match self.words.recv().expect("the test sends an instruction") {
            TestAction::Keep => Ok(()),
            TestAction::Fail => Err(Error::persistence(
                "the disk is full; free some space",
                None,
            )),
            TestAction::Panic => panic!("on purpose"),
        }
    }
}

struct TestThread {
    keeper: Arc<PersistenceThread>,
    words: mpsc::Sender<TestAction>,
    kept: Arc<Mutex<Vec<usize>>>,
}

impl TestThread {
    async fn new() -> Self {
        let (words, told) = mpsc::channel();
        let thread = Arc::default();
        let persistence = ControlledStore {
            words: told,
            kept: Arc::clone(&thread),
        };
        let (keeper, _) = PersistenceThread::open(Box::new(persistence))
            .await
            .unwrap();
        Self {
            keeper,
            words,
            kept: thread,
        }
    }

    fn post(&self, records: usize) -> oneshot::Receiver<Result<(), Error>> {
        let (done, thread) = oneshot::channel();
        let records = vec![PersistedRecord::Session { id: None }; records];
        self.keeper
            .post(records, |result| done.send(result).unwrap());
        thread
    }
}

#[tokio::test]
async fn queued_records_are_stored_in_one_append() {
    let thread = TestThread::new().await;
    let first = thread.post(1);
    while thread.kept.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let rest: Vec<_> = (0..10).map(|_| thread.post(2)).collect();
    thread.words.send(TestAction::Keep).unwrap();
    thread.words.send(TestAction::Keep).unwrap();
    first.await.unwrap().unwrap();
    for one in rest {
        one.await.unwrap().unwrap();
    }
    // A post without records only waits for the posts before it.
    thread.post(0).await.unwrap().unwrap();
    assert_eq!(*thread.kept.lock().unwrap(), [1, 20]);
}

#[tokio::test]
async fn first_fault_answers_all_later_calls() {
    for (action, text) in [
        (TestAction::Fail, "the disk is full; free some space"),
        (TestAction::Panic, "panicked"),
    ] {
        let thread = TestThread::new().await;
        thread.words.send(action).unwrap();
        for _ in 0..3 {
            let fault = thread.post(1).await.unwrap().unwrap_err();
            assert!(fault.is_persistence());
            assert!(fault.to_string().contains(text), "{fault}");
        }
        assert_eq!(*thread.kept.lock().unwrap(), [1]);
    }
}

#[tokio::test]
async fn posted_records_are_stored_after_drop() {
    let thread = TestThread::new().await;
    let posted: Vec<_> = (0..3).map(|_| thread.post(1)).collect();
    drop(thread.keeper);
    for _ in 0..3 {
        // If the thread stores several posts at once, it needs fewer instructions and ends earlier. Then the last of these sends fail.
        let _gone = thread.words.send(TestAction::Keep);
    }
    for one in posted {
        one.await.unwrap().unwrap();
    }
    assert_eq!(thread.kept.lock().unwrap().iter().sum::<usize>(), 3);
}
