//! Conversations that continue an earlier one from a file.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use agent_duplex::scripted::{Latch, Script, ScriptedCall, ScriptedDriver};
use agent_duplex::{
    Conversation, ConversationEvent, ConversationOptions, EndReason, Error, Event, Input,
    Lifecycle, MemoryPersistence, PersistedRecord, Persistence, QueuedMessages,
    RecoveredConversation, SessionChoice, SqlitePersistence,
};
use tempfile::TempDir;

use crate::support::{TestConversation, delta, restarting, resumable, soon};

fn file(path: &Path) -> SqlitePersistence {
    SqlitePersistence::open(path, "talk").expect("the file is valid")
}

fn answers() -> Script {
    let script = Script::new().session("s").message().begin();
    script.report_message("done").end(EndReason::Completed)
}

fn input(id: &str) -> Input {
    let mut input = Input::new(id);
    input.id = id.to_owned();
    input
}

#[tokio::test]
async fn l85a_x123e_conversation_continues_from_its_file() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    let driver = ScriptedDriver::new(resumable()).with_script(answers());
    let (mut talk, recovered) = TestConversation::stored(driver, restarting(), file(&path)).await;
    assert_eq!(recovered, Default::default());
    let mut receipts = Vec::new();
    for id in ["one", "two", "three"] {
        let receipt = soon(talk.conversation.accept(input(id))).await.unwrap();
        assert!(receipt.durable && !receipt.duplicate);
        talk.audit.accepted(&receipt);
        receipts.push(receipt);
        if id == "one" {
            talk.completed().await;
            soon(talk.conversation.pause_delivery(true)).await.unwrap();
        }
    }
    soon(talk.conversation.stop(Duration::ZERO)).await;
    talk.read_all().await;

    let driver = ScriptedDriver::new(resumable()).with_script(answers());
    let (mut talk, recovered) = TestConversation::stored(driver, restarting(), file(&path)).await;
    let waits: Vec<_> = recovered.pending.iter().map(|(r, _)| r.clone()).collect();
    assert_eq!(waits, receipts[1..]);
    assert_eq!(recovered.accepted, receipts);
    assert_eq!(recovered.session.as_deref(), Some("s"));
    assert_eq!((recovered.turns, recovered.messages), (1, 1));
    assert!(recovered.interrupted.is_empty());
    // The waiting inputs start the agent automatically, in its session, as the next turn.
    let what = talk
        .read_until(|what| matches!(what, ConversationEvent::Assigned(_)))
        .await;
    let ConversationEvent::Assigned(assignment) = what else {
        unreachable!()
    };
    assert_eq!(assignment.turn.to_string(), "2");
    assert_eq!(assignment.parent.unwrap().to_string(), "1");
    assert_eq!(assignment.inputs.len(), 2);
    assert_eq!(talk.completed().await.pending, 0);
    let again = soon(talk.conversation.accept(input("one"))).await.unwrap();
    assert!(again.duplicate);
    assert_eq!(again.id, receipts[0].id);
    assert!(talk.conversation.pending().is_empty());
    assert_eq!(talk.driver.messages(), ["two\n\nthree"]);
    assert_eq!(talk.driver.sessions(), [SessionChoice::Resume("s".into())]);
    soon(talk.conversation.stop(Duration::ZERO)).await;
    talk.read_all().await;
    assert_eq!(file(&path).recover().unwrap().messages, 2);
}

#[tokio::test]
async fn acknowledged_and_published_is_stored_first() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    let mut script = answers();
    for _ in 0..9 {
        script = script
            .message()
            .begin()
            .report_message("done")
            .end(EndReason::Completed);
    }
    let driver = ScriptedDriver::new(resumable()).with_script(script);
    let (mut talk, _) = TestConversation::stored(driver, restarting(), file(&path)).await;
    let reads = rusqlite::Connection::open(&path).unwrap();
    let count = |sql: &str| -> u64 {
        let count = reads.query_row(sql, [], |row| row.get::<_, i64>(0));
        count.unwrap().try_into().unwrap()
    };
    for number in 1..=10 {
        let receipt = soon(talk.conversation.accept(input(&number.to_string()))).await;
        assert_eq!(count("SELECT count(*) FROM input"), number);
        talk.audit.accepted(&receipt.unwrap());
        talk.read_until(|what| matches!(what, ConversationEvent::Assigned(_)))
            .await;
        assert_eq!(count("SELECT count(*) FROM turn"), number);
        talk.completed().await;
        let completed = "SELECT count(*) FROM turn WHERE reason = 'completed'";
        assert_eq!(count(completed), number);
    }
}

#[tokio::test]
async fn l100a_l100d_fenced_conversation_stops_and_its_turn_is_interrupted_once() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    let gate = Latch::new();
    let script = Script::new().message().begin().observe(delta("x"));
    let script = script.wait_for_latch(&gate).end(EndReason::Completed);
    let driver = ScriptedDriver::new(resumable()).with_script(script);
    let (mut talk, _) = TestConversation::stored(
        driver,
        ConversationOptions::default().with_manual_start(),
        file(&path),
    )
    .await;
    talk.send("go");
    talk.start().await;
    talk.observed(delta("x")).await;
    let driver = ScriptedDriver::new(resumable());
    let (later, recovered) = TestConversation::stored(
        driver,
        ConversationOptions::default().with_manual_start(),
        file(&path),
    )
    .await;
    assert_eq!(recovered.interrupted.len(), 1);
    assert!(recovered.pending.is_empty());
    gate.open();
    let end = talk.completed().await.end;
    assert_eq!(end.reason, EndReason::Failed);
    assert!(end.detail.contains("took over"), "{}", end.detail);
    talk.becomes(Lifecycle::Idle).await;
    let refused = talk.conversation.send(Input::new("more")).unwrap_err();
    assert!(refused.is_persistence(), "{refused}");
    let refused = soon(talk.conversation.accept(Input::new("more"))).await;
    assert!(refused.unwrap_err().is_persistence());
    soon(talk.conversation.stop(Duration::ZERO)).await;
    soon(later.conversation.accept(input("mine")))
        .await
        .unwrap();
    soon(later.conversation.stop(Duration::ZERO)).await;
    let recovered = file(&path).recover().unwrap();
    assert!(recovered.interrupted.is_empty());
    assert_eq!(recovered.pending.len(), 1);
}

#[tokio::test]
async fn l100b_unrecoverable_file_fails_the_open() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    let mut kept = file(&path);
    kept.recover().unwrap();
    let kept = file(&path);
    // The file is damaged after it was opened, so that the recovery fails.
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("DROP TABLE input").unwrap();
    let driver = ScriptedDriver::new(resumable());
    let options = ConversationOptions::default().with_manual_start();
    let opened =
        Conversation::open_with_primary(Box::new(driver.clone()), options, Box::new(kept)).await;
    assert!(opened.unwrap_err().is_persistence());
    assert!(driver.calls().is_empty());
    assert!(fs::exists(&path).unwrap());
}

#[tokio::test]
async fn dropped_input_stays_dropped() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    let gate = Latch::new();
    let driver = ScriptedDriver::new(resumable()).with_script(Script::new().connecting(&gate));
    let (talk, _) = TestConversation::stored(driver, restarting(), file(&path)).await;
    soon(talk.conversation.pause_delivery(true)).await.unwrap();
    let reads = rusqlite::Connection::open(&path).unwrap();
    for number in 1..=20 {
        if number == 11 {
            // The last ten inputs are dropped while an agent starts.
            let conversation = talk.conversation.clone();
            tokio::spawn(async move { conversation.start(SessionChoice::Fresh).await });
            let connects = |calls: &[ScriptedCall]| !calls.is_empty();
            soon(talk.driver.wait_for_calls(connects)).await;
        }
        let accepted = talk.conversation.accept(input(&number.to_string()));
        soon(accepted).await.unwrap();
        soon(talk.conversation.interrupt(QueuedMessages::Drop))
            .await
            .unwrap();
        let dropped = "SELECT count(*) FROM input WHERE dropped = 1";
        let dropped = reads.query_row(dropped, [], |row| row.get::<_, i64>(0));
        assert_eq!(dropped.unwrap(), number);
    }
    gate.open();
}

#[tokio::test]
async fn chosen_session_is_stored_once_its_agent_has_named_it() {
    let exists: fn() -> Error = || Error::start("it exists already", None);
    let created = || SessionChoice::Create("x".to_owned());
    for (script, expected) in [
        (Script::new().fails(exists), None),
        (Script::new().session("x"), Some("x")),
    ] {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("talks");
        let driver = ScriptedDriver::new(resumable()).with_script(script);
        let options = ConversationOptions::default().with_manual_start();
        let (mut talk, _) = TestConversation::stored(driver, options, file(&path)).await;
        let started = soon(talk.conversation.start(created())).await;
        assert_eq!(started.is_ok(), expected.is_some());
        if expected.is_some() {
            talk.read_until(|what| matches!(what, ConversationEvent::Observed(_)))
                .await;
        }
        soon(talk.conversation.stop(Duration::ZERO)).await;
        talk.read_all().await;
        let recovered = file(&path).recover().unwrap();
        assert_eq!(recovered.session.as_deref(), expected);
    }
}

#[tokio::test]
async fn stop_report_is_stored_first() {
    for _ in 0..10 {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("talks");
        let script = Script::new().message().begin().observe(delta("x"));
        let script = script.report_after_stop(Event::TurnCompleted(EndReason::Refused.into()));
        let driver = ScriptedDriver::new(resumable()).with_script(script);
        let (mut talk, _) = TestConversation::stored(driver, restarting(), file(&path)).await;
        let reads = rusqlite::Connection::open(&path).unwrap();
        talk.send("go");
        talk.observed(delta("x")).await;
        soon(talk.conversation.stop(Duration::ZERO)).await;
        let reason = reads.query_row("SELECT reason FROM turn", [], |row| row.get(0));
        assert_eq!(reason, Ok(Some("refused".to_owned())));
    }
}

#[tokio::test]
async fn l80c_repeated_input_returns_the_first_receipt() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    let options = ConversationOptions::default;
    let driver = ScriptedDriver::new(resumable());
    let (talk, _) = TestConversation::stored(driver.clone(), options(), file(&path)).await;
    let first = talk.conversation.send(input("a")).unwrap();
    let second = talk.conversation.send(input("a")).unwrap();
    assert!(second.duplicate);
    let again = soon(talk.conversation.accept(input("a"))).await.unwrap();
    assert_eq!((again.id, again.duplicate), (first.id, true));
    soon(talk.conversation.stop(Duration::ZERO)).await;
    let (talk, _) = TestConversation::stored(driver, options(), file(&path)).await;
    let again = soon(talk.conversation.accept(input("a"))).await.unwrap();
    assert_eq!((again.id, again.duplicate), (first.id, true));
}

const UNPOISONED: &str = "no holder of the lock panics";

/// A store that stores no message of the agent until it is opened.
#[derive(Clone, Debug, Default)]
struct SlowStore {
    stored: MemoryPersistence,
    is_open: Arc<(Mutex<bool>, Condvar)>,
}

impl SlowStore {
    fn open(&self) {
        *self.is_open.0.lock().expect(UNPOISONED) = true;
        self.is_open.1.notify_all();
    }
}

impl Persistence for SlowStore {
    fn recover(&mut self) -> Result<RecoveredConversation, Error> {
        self.stored.recover()
    }

    fn append(&mut self, records: &[PersistedRecord]) -> Result<(), Error> {
        let is_message = |record: &_| matches!(record, PersistedRecord::Message { .. });
        if records.iter().any(is_message) {
            let is_open = self.is_open.0.lock().expect(UNPOISONED);
            drop(
                self.is_open
                    .1
                    .wait_while(is_open, |open| !*open)
                    .expect(UNPOISONED),
            );
        }
        self.stored.append(records)
    }
}

#[tokio::test]
async fn readers_are_less_than_64_messages_ahead_of_the_store() {
    let many = 200;
    let mut script = Script::new().message().begin();
    for n in 0..many {
        script = script.report_message(&n.to_string());
    }
    let driver = ScriptedDriver::new(resumable()).with_script(script.end(EndReason::Completed));
    let store = SlowStore::default();
    let (mut talk, _) = TestConversation::stored(driver, restarting(), store.clone()).await;
    let mut ahead = talk.conversation.subscribe(10_000);
    talk.send("go");
    let first = Event::Message {
        text: "0".to_owned(),
        partial: false,
    };
    talk.observed(first).await;
    // The agent is always ready, so the conversation publishes all that it may, no matter how often it gets to run.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let mut messages = 0;
    while let Ok(Some(Ok(published))) = tokio::time::timeout(Duration::ZERO, ahead.next()).await {
        if let ConversationEvent::Observed(seen) = published.event {
            let is_message = |event: &&Event| matches!(event, Event::Message { .. });
            messages += seen.events.iter().filter(is_message).count();
        }
    }
    store.open();
    talk.completed().await;
    assert!(messages < 64, "{messages}");
    soon(talk.conversation.stop(Duration::ZERO)).await;
}
