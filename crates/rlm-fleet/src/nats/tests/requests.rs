//! The requests of people to a run: with an owner, without one, and after its end.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use loop_state::{RuleChange, StopCause, StopReason};
use rlm_store::{RemoteMessage, RunId};

use super::runs::{Opened, claim, ended, open, pool, run, submit};
use super::server::{DEADLINE, Server, connect};
use crate::RecordKind;
use crate::nats::*;

static RUN: LazyLock<RunId> = LazyLock::new(run);
const WAIT: Duration = Duration::from_secs(5);

fn steer(text: &str) -> Vec<u8> {
    format!(r#"{{"v":1,"request":"steer","text":"{text}"}}"#).into()
}

fn stop() -> Vec<u8> {
    br#"{"v":1,"request":"stop"}"#.to_vec()
}

/// Waits for the next message to the run.
async fn next(opened: &mut Opened) -> RemoteMessage {
    let next = tokio::time::timeout(DEADLINE, opened.messages.recv());
    next.await.expect("no message").expect("the run is gone")
}

#[tokio::test]
async fn f6_owner_gets_a_request_and_its_sender_gets_the_responses() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let claimed = claim(&fleet).await;
    let mut opened = open(&server, &claimed).await;
    let person = connect(&server.address()).await;
    let sent = person.record_request(&RUN, steer("tabs"), WAIT);
    let (sent, message) = tokio::join!(sent, next(&mut opened));
    let mut sent = sent.unwrap();
    assert_eq!(sent.owner, OwnerState::Alive);
    assert_eq!(
        (message.number, message.line, message.wait),
        (Some(sent.number), steer("tabs"), WAIT)
    );
    for line in ["one", "two"] {
        message.to.send(line.into()).await.unwrap();
    }
    drop(message.to);
    assert_eq!(sent.next(DEADLINE).await.unwrap(), b"one");
    assert_eq!(sent.next(DEADLINE).await.unwrap(), b"two");
    assert_eq!(sent.next(DEADLINE).await, None);
    // A query is not recorded.
    let query = person.query(&RUN, b"status?".to_vec(), WAIT);
    let answer = async {
        let message = next(&mut opened).await;
        assert_eq!((message.number, &message.line[..]), (None, &b"status?"[..]));
        message.to.send(b"well".to_vec()).await.unwrap();
    };
    let (answered, ()) = tokio::join!(query, answer);
    assert_eq!(answered.unwrap().unwrap().0, b"well");
}

#[tokio::test]
async fn f6_request_without_an_owner_is_applied_once_by_the_next_owners() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let mut numbers = Vec::new();
    for text in ["one", "two", "three"] {
        let sent = fleet.record_request(&RUN, steer(text), WAIT).await.unwrap();
        assert_eq!(sent.owner, OwnerState::None);
        numbers.push(sent.number);
    }
    assert!(fleet.query(&RUN, steer("?"), WAIT).await.unwrap().is_none());
    let claimed = claim(&fleet).await;
    let mut opened = open(&server, &claimed).await;
    let first = next(&mut opened).await;
    assert_eq!((first.number, first.line), (Some(numbers[0]), steer("one")));
    // The first owner applies and saves one request, reads the next, and crashes.
    opened.head.last_request = numbers[0];
    opened.journal.save(&opened.head).await.unwrap();
    assert_eq!(next(&mut opened).await.number, Some(numbers[1]));
    drop((opened, claimed));
    let claimed = claim(&fleet).await;
    let mut opened = open(&server, &claimed).await;
    let rest = [next(&mut opened).await, next(&mut opened).await];
    let rest = rest.map(|message| (message.number, message.line));
    let expected = [
        (Some(numbers[1]), steer("two")),
        (Some(numbers[2]), steer("three")),
    ];
    assert_eq!(rest, expected);
    let none = fleet
        .record_request(&"other".parse().unwrap(), stop(), WAIT)
        .await;
    assert!(none.unwrap_err().is_not_found());
}

#[tokio::test]
async fn f12_requests_of_two_people_at_once_are_all_in_one_order() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let claimed = claim(&fleet).await;
    let mut opened = open(&server, &claimed).await;
    let people = ["ann", "bob"].map(|name| {
        let address = server.address();
        tokio::spawn(async move {
            let person = connect(&address).await;
            for index in 0..20 {
                let line = steer(&format!("{name} {index}"));
                person.record_request(&RUN, line, WAIT).await.unwrap();
            }
        })
    });
    let mut got = Vec::new();
    for _ in 0..40 {
        let message = next(&mut opened).await;
        got.push((message.number.unwrap(), message.line));
    }
    for person in people {
        person.await.unwrap();
    }
    assert!(got.is_sorted_by(|one, other| one.0 < other.0));
    let lines: BTreeSet<_> = got.into_iter().map(|(_, line)| line).collect();
    assert_eq!(lines.len(), 40);
}

#[tokio::test]
async fn response_goes_only_to_an_inbox() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let claimed = claim(&fleet).await;
    let mut opened = open(&server, &claimed).await;
    let records = fleet.last(&RUN).await.unwrap().facts.seq;
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Rlm-Reply", "test.run.r1");
    let subject = fleet.names.request(&RUN).unwrap();
    let sent = fleet
        .context
        .publish_with_headers(subject, headers, steer("x").into());
    sent.await.unwrap().await.unwrap();
    let sent = fleet.record_request(&RUN, steer("y"), WAIT);
    let (_, message) = tokio::join!(sent, next(&mut opened));
    assert!(message.to.is_closed());
    assert_eq!(fleet.last(&RUN).await.unwrap().facts.seq, records);
}

#[tokio::test]
async fn f6_stop_ends_a_queued_run_for_the_fleet() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let QueuedStop::Ended(last) = fleet.stop_queued(&RUN).await.unwrap() else {
        panic!("not ended");
    };
    let reason = last.summary.as_ref().unwrap().reason.clone();
    assert_eq!(reason, Some(StopReason::Stopped(StopCause::Person)));
    let delivery = fleet.pull(&pool()).await.unwrap().unwrap();
    let decided = delivery.decide("worker").await.unwrap();
    assert!(matches!(decided, ClaimDecision::Over), "{decided:?}");
    let again = fleet.stop_queued(&RUN).await.unwrap();
    assert!(matches!(again, QueuedStop::NotQueued(_)), "{again:?}");
    // A claimed run is not ended behind the back of its owner.
    fleet.resume(&RUN, &[]).await.unwrap();
    let claimed = claim(&fleet).await;
    let owned = fleet.stop_queued(&RUN).await.unwrap();
    assert!(matches!(owned, QueuedStop::NotQueued(_)), "{owned:?}");
    drop(claimed);
}

#[tokio::test]
async fn recorded_stop_ends_a_run_instead_of_starting_it() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    drop(claim(&fleet).await);
    // The owner is dead, so the next one has to decide.
    fleet
        .record_request(&RUN, steer("one"), WAIT)
        .await
        .unwrap();
    let sent = fleet.record_request(&RUN, stop(), WAIT).await.unwrap();
    let claimed = claim(&fleet).await;
    assert!(claimed.has_stop(0, 0).await.unwrap());
    assert!(!claimed.has_stop(sent.number, 0).await.unwrap());
    assert!(!claimed.has_stop(0, sent.number).await.unwrap());
    let last = claimed.end_stopped().await.unwrap();
    assert!(last.is_over());
    // After a resume, the stop is over, and the message is still there.
    fleet.resume(&RUN, &[]).await.unwrap();
    let claimed = claim(&fleet).await;
    let mut opened = open(&server, &claimed).await;
    assert_eq!(opened.parts.resumed_at, sent.number);
    assert!(!claimed.has_stop(0, opened.parts.resumed_at).await.unwrap());
    assert_eq!(next(&mut opened).await.line, steer("one"));
    let later = fleet.record_request(&RUN, stop(), WAIT);
    let (later, message) = tokio::join!(later, next(&mut opened));
    assert_eq!(message.number, Some(later.unwrap().number));
}

#[tokio::test]
async fn ended_run_is_resumed_with_changes_that_apply_once() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let claimed = claim(&fleet).await;
    let not_ended = fleet.resume(&RUN, &[]).await.unwrap_err();
    assert!(not_ended.is_usage(), "{not_ended}");
    let mut opened = open(&server, &claimed).await;
    assert!(opened.parts.taken_over);
    opened.head.machine.end = Some(ended(&StopReason::IterationLimit(1)));
    opened.journal.save(&opened.head).await.unwrap();
    drop((opened, claimed));
    let changes = [RuleChange::MaxIterations(Some(9))];
    fleet.resume(&RUN, &changes).await.unwrap();
    let last = fleet.last(&RUN).await.unwrap();
    assert_eq!(
        (last.facts.kind, last.facts.stalled),
        (RecordKind::Unpark, 0)
    );
    // The first owner crashes before its first save.
    let claimed = claim(&fleet).await;
    let opened = open(&server, &claimed).await;
    assert_eq!(
        (opened.parts.taken_over, &opened.parts.changes[..]),
        (false, &changes[..])
    );
    drop((opened, claimed));
    let claimed = claim(&fleet).await;
    let mut opened = open(&server, &claimed).await;
    assert_eq!(opened.parts.changes, changes);
    opened.head.machine.end = None;
    opened.journal.save(&opened.head).await.unwrap();
    drop((opened, claimed));
    let claimed = claim(&fleet).await;
    let mut opened = open(&server, &claimed).await;
    assert_eq!(
        (opened.parts.taken_over, opened.parts.changes.len()),
        (true, 0)
    );
    opened.head.machine.end = Some(ended(&StopReason::AllIterationsRan));
    opened.journal.save(&opened.head).await.unwrap();
    let done = fleet.resume(&RUN, &[]).await.unwrap_err();
    assert!(done.is_usage(), "{done}");
}

#[tokio::test]
async fn drain_reaches_a_worker_and_waits_for_its_end() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let none = fleet.drain("w1").await.unwrap_err();
    assert!(none.is_not_found(), "{none}");
    assert!(fleet.drain("w 1").await.unwrap_err().is_usage());
    let worker = connect(&server.address()).await;
    let mut requests = worker.drain_requests("w1").await.unwrap();
    let other = worker.drain_requests("w2").await.unwrap();
    let drained = async {
        // The server gets to know the worker a moment later.
        loop {
            match fleet.drain("w1").await {
                Err(e) if e.is_not_found() => tokio::task::yield_now().await,
                drained => return drained,
            }
        }
    };
    let (drained, ()) = tokio::join!(drained, async {
        requests.next().await;
        drop(requests);
    });
    drained.unwrap();
    drop(other);
}

#[tokio::test]
async fn f10_exported_run_is_claimed_only_after_its_return() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let mut head = submit(&fleet).await;
    let exported = fleet.export(&RUN, "laptop").await.unwrap();
    let again = fleet.export(&RUN, "laptop").await.unwrap();
    assert_eq!(again.epoch, exported.epoch);
    let other = fleet.export(&RUN, "desktop").await.unwrap_err();
    assert!(other.is_usage(), "{other}");
    let delivery = fleet.pull(&pool()).await.unwrap().unwrap();
    let decided = delivery.decide("worker").await.unwrap();
    assert!(matches!(decided, ClaimDecision::Over), "{decided:?}");
    head.pause_reason = Some("on the laptop".into());
    let returned = |epoch| ReturnedRun {
        head: &head,
        epoch,
        base: exported.parts.base.clone(),
        code: None,
    };
    let wrong = fleet.import(&RUN, returned(exported.epoch + 1)).await;
    assert!(wrong.unwrap_err().is_usage());
    let wrong = fleet.expects(&RUN, exported.epoch + 1).await;
    assert!(wrong.unwrap_err().is_usage());
    for _ in 0..2 {
        fleet.expects(&RUN, exported.epoch).await.unwrap();
        fleet.import(&RUN, returned(exported.epoch)).await.unwrap();
    }
    let claimed = claim(&fleet).await;
    assert_eq!(claimed.epoch(), exported.epoch + 2);
    let opened = open(&server, &claimed).await;
    assert_eq!(
        (opened.parts.records.len(), opened.parts.taken_over),
        (0, false)
    );
    let owned = fleet.export(&RUN, "laptop").await.unwrap_err();
    assert!(owned.is_usage(), "{owned}");
}
