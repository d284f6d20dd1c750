//! Workers that race, die, freeze and give runs back.

use std::time::{Duration, Instant};

use super::runs::{claim, claim_as, decide_as, ended, open, pool, run, submit};
use super::server::{DEADLINE, LEASE, Server};
use crate::nats::*;
use crate::{FailureCause, Moment, RecordKind};
use loop_state::StopReason;
use tokio::sync::watch;

/// A process of a test.
#[derive(Clone)]
struct TestProcess {
    state: watch::Sender<ProcessState>,
    /// Whether the process ends when it gets a stop.
    obeys: bool,
}

#[derive(Clone, Debug, Default)]
struct ProcessState {
    kill_at: Vec<Moment>,
    stops: u32,
    kills: u32,
    is_gone: bool,
}

impl TestProcess {
    fn new(obeys: bool) -> Self {
        let state = watch::Sender::new(ProcessState::default());
        Self { state, obeys }
    }

    fn seen(&self) -> ProcessState {
        self.state.borrow().clone()
    }

    fn exit(&self) {
        self.state.send_modify(|state| state.is_gone = true);
    }
}

impl RunProcess for TestProcess {
    fn kill_at(&mut self, at: Moment) {
        self.state.send_modify(|state| state.kill_at.push(at));
    }

    fn stop(&mut self) {
        self.state.send_modify(|state| {
            state.stops += 1;
            state.is_gone |= self.obeys;
        });
    }

    fn kill(&mut self) {
        self.state.send_modify(|state| {
            state.kills += 1;
            state.is_gone = true;
        });
    }

    fn last_words(&self) -> String {
        "can't save\nexit status 1".into()
    }

    async fn gone(&mut self) {
        let mut state = self.state.subscribe();
        let _gone = state.wait_for(|state| state.is_gone).await;
    }
}

#[tokio::test]
async fn exactly_one_of_several_workers_claims_a_run() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let workers = (0..6).map(|_| {
        let address = server.address();
        tokio::spawn(async move {
            let fleet = super::server::connect(&address).await;
            let delivery = fleet.pull(&pool()).await.unwrap()?;
            match delivery.decide("racer").await.unwrap() {
                ClaimDecision::Claimed(claimed) => Some(claimed),
                _ => None,
            }
        })
    });
    let mut claims = Vec::new();
    for worker in workers.collect::<Vec<_>>() {
        claims.extend(worker.await.unwrap());
    }
    assert_eq!(claims.len(), 1);
    assert_eq!(claims[0].epoch(), 1);
}

#[tokio::test]
async fn run_of_a_dead_worker_is_taken_over_when_its_lease_ends() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let dead = super::server::connect(&server.address()).await;
    let first = claim(&dead).await;
    assert_eq!(first.epoch(), 1);
    let begun = Instant::now();
    drop((first, dead));
    let second = claim(&fleet).await;
    assert_eq!(second.epoch(), 2);
    let took = begun.elapsed();
    assert!(took > LEASE / 2, "taken over within the lease: {took:?}");
    assert!(took < DEADLINE, "{took:?}");
}

#[tokio::test]
async fn run_of_a_living_owner_is_left_alone() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let owner = claim(&fleet).await;
    // The owner answers probes, and its renewals are lost.
    owner.lease.end();
    let other = super::server::connect(&server.address()).await;
    let decision = decide_as(&other, "other").await.unwrap();
    assert!(matches!(decision, ClaimDecision::LeftAlone), "{decision:?}");
    let last = fleet.last(&run()).await.unwrap();
    assert_eq!(last.facts.epoch, owner.epoch());
}

#[tokio::test]
async fn run_of_a_dead_owner_goes_to_the_worker_with_the_older_connection() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    drop(claim(&fleet).await);
    // This connection is older than three seconds then.
    fleet.sleep_until(fleet.connected_at() + LEASE * 2).await;
    let young = super::server::connect(&server.address()).await;
    let begun = Instant::now();
    let returned = loop {
        assert!(begun.elapsed() < DEADLINE, "no delivery");
        if let Some(delivery) = young.pull(&pool()).await.unwrap() {
            break delivery.decide("young").await.unwrap();
        }
    };
    let ClaimDecision::Returned { until } = returned else {
        panic!("{returned:?}");
    };
    assert!(until > young.connected_at());
    let claimed = claim_as(&fleet, "old").await;
    assert_eq!(claimed.epoch(), 2);
    assert!(now() < until, "the younger worker was waited for");
}

#[tokio::test]
async fn transcripts_are_stored_when_their_stream_is_there_again() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let claimed = claim(&fleet).await;
    // A client can't tell a stream that has no leader from one that is missing.
    let stream = fleet.names.transcripts();
    fleet.context.delete_stream(stream).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("transcripts")).unwrap();
    std::fs::write(dir.path().join("transcripts/1-1.ndjson"), "text\n").unwrap();
    let upload = claimed.transcripts(dir.path().into()).unwrap();
    let created = async {
        let mut stored = fleet.transcripts(&run()).unwrap();
        assert!(stored.next().await.unwrap_err().is_usage());
        fleet.sleep_until(now() + LEASE).await;
        drop(server.fleet().await);
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < DEADLINE, "nothing is stored");
            if let Some(part) = stored.next().await.unwrap() {
                break part;
            }
            fleet.sleep_until(now() + Duration::from_millis(100)).await;
        }
    };
    let part = tokio::select! {
        part = created => part,
        why = upload.serve() => panic!("{why}"),
    };
    let StoredPart::Part { epoch, part } = part else {
        panic!("{part:?}");
    };
    assert_eq!(
        (epoch, part.position, &part.bytes[..]),
        (1, 0, &b"text\n"[..])
    );
}

#[tokio::test]
async fn renewals_move_the_kill_time_and_keep_the_run() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let claimed = claim(&fleet).await;
    let process = TestProcess::new(true);
    let supervised = tokio::spawn(claimed.supervise(process.clone(), std::future::pending()));
    let begun = Instant::now();
    let mut seen = process.state.subscribe();
    // For two leases, the server delivers the run to nobody else.
    while begun.elapsed() < 2 * LEASE {
        assert!(fleet.pull(&pool()).await.unwrap().is_none());
    }
    let moved = seen.wait_for(|state| state.kill_at.len() > 4);
    let moved = tokio::time::timeout(DEADLINE, moved)
        .await
        .unwrap()
        .unwrap();
    let times = moved.kill_at.clone();
    drop(moved);
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(process.seen().kills, 0);
    process.exit();
    // The process ended without an end of the run.
    let end = supervised.await.unwrap();
    assert!(matches!(end, SupervisionEnd::GivenBack(_)), "{end:?}");
}

#[tokio::test]
async fn process_is_killed_before_the_lease_ends_while_the_server_is_away() {
    let Some(mut server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let claimed = claim(&fleet).await;
    let process = TestProcess::new(true);
    let supervised = tokio::spawn(claimed.supervise(process.clone(), std::future::pending()));
    let mut state = process.state.subscribe();
    let renewed = state.wait_for(|state| state.kill_at.len() > 2);
    let renewed = tokio::time::timeout(DEADLINE, renewed).await.unwrap();
    drop(renewed.unwrap());
    server.kill();
    let end = tokio::time::timeout(DEADLINE, supervised).await.unwrap();
    assert!(matches!(end.unwrap(), SupervisionEnd::LeaseLost));
    let seen = process.seen();
    assert_eq!(seen.kills, 1);
    // The guard of a real process would have killed it at this time, without the worker.
    let last = seen.kill_at.last().unwrap();
    assert!(now() >= *last);
}

#[tokio::test]
async fn released_run_is_claimed_at_once() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let claimed = claim(&fleet).await;
    let process = TestProcess::new(true);
    let supervised = claimed.supervise(process.clone(), std::future::ready(()));
    let end = supervised.await;
    assert!(matches!(end, SupervisionEnd::HandedOver), "{end:?}");
    assert_eq!((process.seen().stops, process.seen().kills), (1, 0));
    let last = fleet.last(&run()).await.unwrap();
    assert_eq!(
        (last.facts.kind, last.facts.stalled),
        (RecordKind::Release, 0)
    );
    // The first request gets the run: it waits for a quarter of a lease at most.
    let delivery = fleet.pull(&pool()).await.unwrap().unwrap();
    let decision = delivery.decide("next").await.unwrap();
    let ClaimDecision::Claimed(next) = decision else {
        panic!("{decision:?}")
    };
    assert_eq!(next.epoch(), 2);
}

#[tokio::test]
async fn process_that_ignores_a_stop_is_killed_and_released() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let claimed = claim(&fleet).await;
    let process = TestProcess::new(false);
    let end = claimed
        .supervise(process.clone(), std::future::ready(()))
        .await;
    assert!(matches!(end, SupervisionEnd::HandedOver), "{end:?}");
    assert_eq!((process.seen().stops, process.seen().kills), (1, 1));
}

#[tokio::test]
async fn ended_run_is_acknowledged_and_never_delivered_again() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let claimed = claim(&fleet).await;
    let mut opened = open(&server, &claimed).await;
    let process = TestProcess::new(true);
    let supervised = tokio::spawn(claimed.supervise(process.clone(), std::future::pending()));
    opened.head.machine.end = Some(ended(&StopReason::AllIterationsRan));
    opened.journal.save(&opened.head).await.unwrap();
    process.exit();
    let SupervisionEnd::RunEnded(last) = supervised.await.unwrap() else {
        panic!("the run has ended")
    };
    let reason = last.summary.unwrap().reason;
    assert_eq!(reason, Some(StopReason::AllIterationsRan));
    let waited = fleet.wait(&run()).await.unwrap();
    assert!(waited.is_over());
    let begun = Instant::now();
    while begun.elapsed() < LEASE + Duration::from_millis(500) {
        assert!(fleet.pull(&pool()).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn run_is_parked_after_three_claims_without_an_iteration() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    for epoch in 1..=3 {
        let claimed = claim(&fleet).await;
        assert_eq!(claimed.epoch(), epoch);
    }
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < DEADLINE);
        if let Some(delivery) = fleet.pull(&pool()).await.unwrap() {
            let decision = delivery.decide("fourth").await.unwrap();
            assert!(matches!(decision, ClaimDecision::Over), "{decision:?}");
            break;
        }
    }
    let rows = fleet.runs().await.unwrap();
    assert_eq!(rows[0].state(), "parked");
    let failed = &rows[0].last.failed;
    let claims: Vec<_> = { failed.iter() }
        .map(|it| (it.epoch, it.worker.as_str(), it.cause))
        .collect();
    let no_answer = |epoch| (epoch, "worker", FailureCause::NoAnswer);
    assert_eq!(claims, [no_answer(1), no_answer(2), no_answer(3)]);
    assert!(failed.is_sorted_by_key(|it| it.at), "{failed:?}");
}

#[tokio::test]
async fn f11_worker_that_can_not_start_a_run_does_not_park_it_and_three_do() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    for _ in 0..5 {
        let claimed = claim_as(&fleet, "bad").await;
        let end = claimed.give_back_unstarted("no git").await;
        let SupervisionEnd::GivenBack(failed) = end else {
            panic!("{end:?}")
        };
        assert_eq!(
            (failed.worker.as_str(), failed.text.as_str()),
            ("bad", "no git")
        );
    }
    let last = fleet.last(&run()).await.unwrap();
    assert_eq!(last.facts.stalled, 0);
    assert_eq!(last.failed.len(), 1);
    // A process that ended before its first save was not started either.
    let claimed = claim_as(&fleet, "worse").await;
    let process = TestProcess::new(true);
    process.exit();
    let end = claimed.supervise(process, std::future::pending()).await;
    let SupervisionEnd::GivenBack(failed) = end else {
        panic!("{end:?}")
    };
    assert_eq!(failed.cause, FailureCause::Start);
    let claimed = claim_as(&fleet, "third").await;
    let end = claimed.give_back_unstarted("no space").await;
    assert!(matches!(end, SupervisionEnd::Parked(_)), "{end:?}");
    let last = fleet.last(&run()).await.unwrap();
    assert_eq!(last.facts.kind, RecordKind::Park);
    let workers: Vec<_> = { last.failed.iter() }
        .map(|it| it.worker.as_str())
        .collect();
    assert_eq!(workers, ["bad", "worse", "third"]);
    assert_eq!(last.failed[1].text, "can't save\nexit status 1");
}

#[tokio::test]
async fn f11_run_whose_process_fails_in_three_claims_is_parked_by_the_third() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    for nth in 1..=3 {
        let claimed = claim(&fleet).await;
        let mut opened = open(&server, &claimed).await;
        opened.journal.save(&opened.head).await.unwrap();
        let process = TestProcess::new(true);
        process.exit();
        let end = claimed.supervise(process, std::future::pending()).await;
        match end {
            SupervisionEnd::GivenBack(failed) if nth < 3 => {
                assert_eq!(failed.cause, FailureCause::Process);
            }
            SupervisionEnd::Parked(_) if nth == 3 => {}
            end => panic!("{nth}: {end:?}"),
        }
    }
    let last = fleet.last(&run()).await.unwrap();
    assert_eq!((last.facts.stalled, last.failed.len()), (3, 3));
}

#[tokio::test]
async fn completed_iteration_ends_the_row_of_failed_claims() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    drop(claim(&fleet).await);
    let claimed = claim(&fleet).await;
    assert_eq!(fleet.last(&run()).await.unwrap().failed.len(), 1);
    let mut opened = open(&server, &claimed).await;
    opened.journal.save(&opened.head).await.unwrap();
    assert_eq!(fleet.last(&run()).await.unwrap().failed.len(), 1);
    opened.head.machine.counts.iterations = 1;
    opened.journal.save(&opened.head).await.unwrap();
    opened.journal.save(&opened.head).await.unwrap();
    let last = fleet.last(&run()).await.unwrap();
    assert_eq!((last.facts.stalled, last.failed.len()), (0, 0));
}
