//! Appends to a real stream: fencing, lost answers, a restart, and large records.

use rlm_store::RunId;

use super::server::{DEADLINE, Proxy, Server, connect};
use crate::append::{AppendEnd, Appender};
use crate::nats::clock::now;
use crate::nats::fleet::Fleet;
use crate::nats::journal::{RunJournal, RunRecord};
use crate::{Progress, RecordKind};

fn run() -> RunId {
    "r1".parse().unwrap()
}

async fn journal(fleet: &Fleet) -> RunJournal {
    RunJournal::new(fleet, &run()).await.unwrap()
}

fn record(epoch: u64, kind: RecordKind, body: &[u8]) -> RunRecord {
    let mut record = RunRecord::new(epoch, kind, 0);
    record.body = body.into();
    record
}

async fn append(
    journal: &RunJournal,
    appender: &mut Appender,
    record: RunRecord,
) -> Result<u64, AppendEnd> {
    journal.append(appender, record, now() + DEADLINE).await
}

/// Returns the body of each record, in order.
async fn bodies(journal: &RunJournal) -> Vec<Vec<u8>> {
    let (mut bodies, mut seq) = (Vec::new(), 0);
    while let Some(next) = journal.next(seq + 1).await.unwrap() {
        seq = next.facts.seq;
        bodies.push(journal.body(next).await.unwrap());
    }
    bodies
}

const SAVE: RecordKind = RecordKind::Save(Progress::Working);

#[tokio::test]
async fn second_appender_fences_the_first() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let journal = journal(&fleet).await;
    let (mut one, mut two) = (Appender::new(0, 1), Appender::new(0, 2));
    let base = append(&journal, &mut one, record(1, RecordKind::Base, b"base")).await;
    let base = base.unwrap();
    // The second begins after the base, as a claimant that read it.
    two = Appender::new(base, two.epoch());
    let claim = append(&journal, &mut two, record(2, RecordKind::Claim, b"claim")).await;
    let refused = append(&journal, &mut one, record(1, SAVE, b"late")).await;
    assert_eq!(refused, Err(AppendEnd::Fenced { by: 2 }));
    let again = append(&journal, &mut one, record(1, SAVE, b"later")).await;
    assert_eq!(again, Err(AppendEnd::Fenced { by: 2 }));
    let next = append(&journal, &mut two, record(2, SAVE, b"save")).await;
    assert!(next.unwrap() > claim.unwrap());
    let stored = bodies(&journal).await;
    assert_eq!(stored, [&b"base"[..], b"claim", b"save"]);
}

#[tokio::test]
async fn exactly_one_of_many_racing_appends_is_stored() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let journal = journal(&fleet).await;
    let mut first = Appender::new(0, 0);
    let base = append(&journal, &mut first, record(0, RecordKind::Base, b"base")).await;
    let base = base.unwrap();
    let racers = (1..=12).map(|epoch: u64| {
        let journal = journal.clone();
        tokio::spawn(async move {
            let mut appender = Appender::new(base, epoch);
            let claim = record(epoch, RecordKind::Claim, &epoch.to_le_bytes());
            append(&journal, &mut appender, claim).await.map(|_| epoch)
        })
    });
    let mut winners = Vec::new();
    for racer in racers.collect::<Vec<_>>() {
        match racer.await.unwrap() {
            Ok(epoch) => winners.push(epoch),
            Err(end) => assert!(matches!(end, AppendEnd::Fenced { .. }), "{end:?}"),
        }
    }
    let [winner] = winners[..] else {
        panic!("{winners:?}")
    };
    let last = journal.last().await.unwrap().unwrap();
    assert_eq!(last.facts.epoch, winner);
    assert_eq!(bodies(&journal).await.len(), 2);
}

#[tokio::test]
async fn append_whose_answer_is_lost_is_stored_once() {
    let Some(server) = Server::start() else {
        return;
    };
    server.fleet().await;
    let proxy = Proxy::start(&server).await;
    let fleet = connect(&proxy.address()).await;
    let journal = journal(&fleet).await;
    let mut appender = Appender::new(0, 1);
    let base = append(&journal, &mut appender, record(1, RecordKind::Base, b"0")).await;
    let mut last = base.unwrap();
    for body in [b"1", b"2"] {
        proxy.lose_next_answer();
        let stored = append(&journal, &mut appender, record(1, SAVE, body)).await;
        let stored = stored.unwrap();
        assert!(proxy.has_lost());
        assert_eq!(stored, last + 1);
        last = stored;
    }
    assert_eq!(bodies(&journal).await, [b"0", b"1", b"2"]);
}

#[tokio::test]
async fn append_continues_after_a_restart_of_the_server() {
    let Some(mut server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let journal = journal(&fleet).await;
    let mut appender = Appender::new(0, 1);
    let base = append(&journal, &mut appender, record(1, RecordKind::Base, b"0")).await;
    base.unwrap();
    server.kill();
    let while_away = {
        let journal = journal.clone();
        tokio::spawn(async move {
            append(&journal, &mut appender, record(1, SAVE, b"1"))
                .await
                .unwrap();
            append(&journal, &mut appender, record(1, SAVE, b"2")).await
        })
    };
    // The append has begun before the server is back.
    while fleet.client.connection_state() == async_nats::connection::State::Connected {
        tokio::task::yield_now().await;
    }
    server.restart();
    while_away.await.unwrap().unwrap();
    assert_eq!(bodies(&journal).await, [b"0", b"1", b"2"]);
}

#[tokio::test]
async fn record_that_is_larger_than_a_message_becomes_an_object() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let journal = journal(&fleet).await;
    let mut appender = Appender::new(0, 1);
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    for body in [&b"small"[..], &large, &large] {
        let stored = append(&journal, &mut appender, record(1, SAVE, body)).await;
        stored.unwrap();
    }
    let stored = bodies(&journal).await;
    assert_eq!(stored, [&b"small"[..], &large, &large]);
    let last = journal.last().await.unwrap().unwrap();
    assert!(last.meta.object.is_some());
}

#[tokio::test]
async fn append_without_a_server_gives_up_in_time() {
    let Some(mut server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let journal = journal(&fleet).await;
    let mut appender = Appender::new(0, 1);
    server.kill();
    let until = now() + std::time::Duration::from_secs(1);
    let gone = journal.append(&mut appender, record(1, SAVE, b"1"), until);
    assert_eq!(gone.await, Err(AppendEnd::GaveUp));
    server.restart();
    let refused = append(&journal, &mut appender, record(1, SAVE, b"2")).await;
    assert_eq!(refused, Err(AppendEnd::GaveUp));
}
