//! The assets of a fleet, new runs, and the saves of a claimed run with its directory.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_drivers::AgentConfig;
use checkpoint_store::Seq;
use loop_state::{Head, RunEnd, StopCause, StopReason, Timestamp};
use rlm_store::journal::Journal;
use rlm_store::transfer::ReplicatedRun;
use rlm_store::{PhaseSettings, Project, PromptSource, RemoteMessage, RunHead, RunId, Settings};
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::server::{DEADLINE, LEASE, Server};
use crate::nats::record::{RunSummary, progress};
use crate::nats::*;
use crate::{Progress, RecordKind};

pub(super) fn run() -> RunId {
    "r1".parse().unwrap()
}

pub(super) fn pool() -> Pool {
    "main".parse().unwrap()
}

fn project() -> (TempDir, Project) {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    (dir, project)
}

/// Returns the end of a run.
pub(super) fn ended(reason: &StopReason) -> RunEnd {
    let at = Timestamp::from_millis(1);
    let end = serde_json::json!({"at": at, "reason": reason});
    serde_json::from_value(end).unwrap()
}

/// Creates a run with one save and one blob.
pub(super) async fn new_run() -> (RunHead, NewRun) {
    let (_dir, project) = project();
    let (mut journal, _) = Journal::open(&project, &run(), true).unwrap();
    let agent = AgentConfig::command(vec!["true".into()]);
    let mut phase = PhaseSettings::new("main", PromptSource::Stored("prompt-1".into()), agent);
    phase.check = Some("true".into());
    let settings = Settings::new(project.root().to_owned(), vec![phase]);
    let machine = Head::new(settings.rules()).unwrap();
    let mut head = RunHead::new(run(), machine, settings);
    head.prompts = vec!["prompt-1".into()];
    journal.put_blob("prompt-1", "Do it.").await.unwrap();
    journal.save(&head).await.unwrap();
    drop(journal);
    let new = NewRun {
        run: run(),
        pool: pool(),
        base: project.pack_state(&run(), Vec::new()).unwrap(),
        code: None,
        summary: RunSummary::of(&head),
    };
    (head, new)
}

/// Submits a run to a fleet.
pub(super) async fn submit(fleet: &Fleet) -> RunHead {
    let (head, new) = new_run().await;
    assert_eq!(fleet.submit(new).await.unwrap(), Submitted::New);
    head
}

/// Waits for a delivery, and decides about it. A worker that connected a moment ago waits and asks again.
pub(super) async fn decide_as(fleet: &Fleet, worker: &str) -> Result<ClaimDecision, Error> {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < DEADLINE, "no delivery");
        let Some(delivery) = fleet.pull(&pool()).await? else {
            continue;
        };
        match delivery.decide(worker).await? {
            ClaimDecision::Returned { until } => fleet.sleep_until(until).await,
            decision => return Ok(decision),
        }
    }
}

/// Claims the run as this worker.
pub(super) async fn claim_as(fleet: &Fleet, worker: &str) -> Box<Claimed> {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < DEADLINE, "no claim");
        if let ClaimDecision::Claimed(claimed) = decide_as(fleet, worker).await.unwrap() {
            return claimed;
        }
    }
}

/// Waits for the run, and claims it.
pub(super) async fn claim(fleet: &Fleet) -> Box<Claimed> {
    claim_as(fleet, "worker").await
}

/// The directory of a claimed run, with its journal and its head.
pub(super) struct Opened {
    pub(super) dir: TempDir,
    pub(super) project: Project,
    pub(super) journal: Journal,
    pub(super) head: RunHead,
    pub(super) parts: RunParts,
    /// The messages of other machines.
    pub(super) messages: mpsc::Receiver<RemoteMessage>,
}

/// Makes the directory of a claimed run, and opens it.
pub(super) async fn open(server: &Server, claimed: &Claimed) -> Opened {
    let parts = claimed.parts().await.unwrap();
    let (dir, project) = project();
    let records = parts.records.clone().into_iter().map(Ok);
    let from = ReplicatedRun {
        base: Cursor::new(parts.base.clone()),
        records,
        blobs: parts.blobs.clone(),
    };
    let epoch = claimed.epoch();
    let unpacked = project.unpack_claimed(&run(), epoch, from).unwrap();
    let start = ReplicaStart {
        fleet: FleetAddress::new(server.address(), "test"),
        run: run(),
        epoch,
        claim: claimed.seq(),
        newest: unpacked.seq.get(),
        base_commit: None,
        stored_blobs: parts.stored_blobs.clone(),
        applied: unpacked.head.last_request,
        resumed_at: parts.resumed_at,
        give_up: Duration::from_secs(30),
    };
    let (at, dir_run) = (project.clone(), run());
    let opened = tokio::task::spawn_blocking(move || {
        let (replica, messages) = NatsReplica::open(start, Box::new(|_, _| Ok(None))).unwrap();
        let replica = Arc::new(Mutex::new(replica));
        let (journal, loaded) = Journal::open_replicated(&at, &dir_run, replica).unwrap();
        (journal, loaded, messages)
    });
    let (journal, loaded, messages) = opened.await.unwrap();
    Opened {
        dir,
        project,
        journal,
        head: loaded.head.unwrap(),
        parts,
        messages,
    }
}

#[tokio::test]
async fn init_creates_the_assets_once() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let options = |lease: u64, pools: &[&str]| FleetOptions {
        replicas: 1,
        lease: Duration::from_secs(lease),
        pools: pools.iter().map(|name| name.parse().unwrap()).collect(),
    };
    let shown = |assets: Vec<Asset>| -> Vec<String> {
        let lines = assets
            .iter()
            .map(|it| format!("{}: {:?}", it.name, it.state));
        lines.collect()
    };
    let again = fleet.init(&options(2, &["main"])).await.unwrap();
    assert_eq!(
        shown(again),
        [
            "stream test-runs: Unchanged",
            "stream test-work: Unchanged",
            "stream test-requests: Unchanged",
            "stream test-transcripts: Unchanged",
            "stream test-settings: Unchanged",
            "stream test-spent: Unchanged",
            "consumer pool-main: Unchanged",
            "object store test-blobs: Unchanged"
        ]
    );
    let changed = fleet.init(&options(30, &["main", "big"])).await.unwrap();
    assert_eq!(
        shown(changed)[6..8],
        ["consumer pool-main: Changed", "consumer pool-big: Created"]
    );
    let lease = fleet.lease_of(&pool()).await.unwrap();
    assert_eq!(lease, Duration::from_secs(30));
    // A replica that lacks the newest records must not answer a read.
    for name in [
        "test-runs",
        "test-work",
        "test-requests",
        "test-spent",
        "OBJ_test-blobs",
    ] {
        let stream = fleet.context.get_stream(name).await.unwrap();
        assert!(!stream.cached_info().config.allow_direct, "{name}");
    }
    let short = fleet.init(&options(1, &["main"])).await.unwrap_err();
    assert!(short.is_usage(), "{short}");
    let unknown = fleet.lease_of(&"none".parse().unwrap()).await.unwrap_err();
    assert!(unknown.is_usage(), "{unknown}");
}

#[tokio::test]
async fn same_name_submitted_twice_is_one_run() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let ((_, one), (_, two)) = (new_run().await, new_run().await);
    let (one, two) = tokio::join!(fleet.submit(one), fleet.submit(two));
    let mut results = [one.unwrap(), two.unwrap()];
    results.sort_by_key(|it| *it == Submitted::Exists);
    assert_eq!(results, [Submitted::New, Submitted::Exists]);
    let big: Pool = "big".parse().unwrap();
    let more = FleetOptions {
        replicas: 1,
        lease: LEASE,
        pools: vec![big.clone()],
    };
    fleet.init(&more).await.unwrap();
    let (_, mut third) = new_run().await;
    third.pool = big.clone();
    assert_eq!(fleet.submit(third).await.unwrap(), Submitted::Exists);
    // In a second queue, the run would have a second lease.
    assert!(fleet.pull(&big).await.unwrap().is_none());
    let rows = fleet.runs().await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (rows[0].state(), rows[0].last.pool()),
        ("queued", Some("main"))
    );
    let _claimed = claim(&fleet).await;
    // There is no second message.
    assert!(fleet.pull(&pool()).await.unwrap().is_none());
    let none = fleet.last(&"other".parse().unwrap()).await.unwrap_err();
    assert!(none.is_not_found(), "{none}");
}

#[tokio::test]
async fn saves_and_blobs_of_a_claim_are_in_the_next_one() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let submitted = submit(&fleet).await;
    let first = claim(&fleet).await;
    let mut opened = open(&server, &first).await;
    assert_eq!(opened.head, submitted);
    opened.head.pause_reason = Some("claim 1".into());
    let large = "x".repeat(2 << 20);
    opened.journal.put_blob("prompt-2", &large).await.unwrap();
    opened.journal.save(&opened.head).await.unwrap();
    opened.head.machine.counts.iterations = 1;
    opened.journal.save(&opened.head).await.unwrap();
    let (head, records) = (opened.head.clone(), opened.parts.records.len());
    drop((opened.journal, opened.dir));
    // No release: the lease ends.
    drop(first);
    let second = claim(&fleet).await;
    assert_eq!(second.epoch(), 2);
    let opened = open(&server, &second).await;
    assert_eq!(opened.head, head);
    assert_eq!(opened.parts.records.len(), records + 2);
    assert!(opened.parts.newest > Seq::ZERO);
    let stored = opened.project.run_dir(&run()).join("blobs/prompt-2");
    assert_eq!(std::fs::read_to_string(stored).unwrap(), large);
    // The blobs that the fleet has are not appended again.
    let blobs: BTreeMap<_, _> = opened.parts.stored_blobs.clone();
    assert_eq!(blobs.keys().collect::<Vec<_>>(), ["prompt-1", "prompt-2"]);
    let last = fleet.last(&run()).await.unwrap();
    assert_eq!(last.facts.kind, RecordKind::Claim);
}

#[tokio::test]
async fn lease_of_a_claimed_run_does_not_change() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let claimed = claim(&fleet).await;
    let longer = FleetOptions {
        replicas: 1,
        lease: 2 * LEASE,
        pools: vec![pool()],
    };
    let refused = fleet.init(&longer).await.unwrap_err();
    assert!(refused.is_usage(), "{refused}");
    assert_eq!(fleet.lease_of(&pool()).await.unwrap(), LEASE);
    assert_eq!(claimed.lease(), LEASE);
}

#[tokio::test]
async fn save_of_an_iteration_that_is_not_committed_is_refused() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let claimed = claim(&fleet).await;
    let mut opened = open(&server, &claimed).await;
    let before = fleet.last(&run()).await.unwrap();
    opened.head.uncommitted = Some(rlm_store::Uncommitted {
        iterations: 1,
        reason: "no key to sign it".into(),
    });
    let refused = opened.journal.save(&opened.head).await.unwrap_err();
    assert!(
        refused.to_string().contains("no key to sign it"),
        "{refused}"
    );
    let after = fleet.last(&run()).await.unwrap();
    assert_eq!(before.facts.seq, after.facts.seq);
}

#[tokio::test]
async fn fenced_process_saves_nothing() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    submit(&fleet).await;
    let first = claim(&fleet).await;
    let mut frozen = open(&server, &first).await;
    // As a frozen worker: no renewal, and its process lives on.
    drop(first);
    let second = claim(&fleet).await;
    frozen.head.pause_reason = Some("too late".into());
    let refused = frozen.journal.save(&frozen.head).await.unwrap_err();
    assert!(refused.to_string().contains("2"), "{refused}");
    let last = fleet.last(&run()).await.unwrap();
    assert_eq!((last.facts.epoch, last.facts.kind), (2, RecordKind::Claim));
    // A process of the old claim can't even begin.
    let start = ReplicaStart {
        fleet: FleetAddress::new(server.address(), "test"),
        run: run(),
        epoch: 1,
        claim: second.seq() - 1,
        newest: 1,
        base_commit: None,
        stored_blobs: BTreeMap::new(),
        applied: 0,
        resumed_at: 0,
        give_up: Duration::from_secs(1),
    };
    let opened =
        tokio::task::spawn_blocking(|| NatsReplica::open(start, Box::new(|_, _| Ok(None))));
    let refused = opened.await.unwrap().unwrap_err();
    assert!(refused.is_fenced(), "{refused}");
}

#[tokio::test]
async fn stop_by_a_person_ends_the_run_and_a_stop_by_a_signal_does_not() {
    let (mut head, _) = new_run().await;
    let machine = &mut head.machine;
    assert_eq!(progress(machine, 0), Progress::Working);
    machine.counts.iterations = 1;
    assert_eq!(progress(machine, 0), Progress::IterationCompleted);
    assert_eq!(progress(machine, 1), Progress::Working);
    for (reason, expected) in [
        (StopReason::Stopped(StopCause::Person), Progress::RunEnded),
        (
            StopReason::Stopped(StopCause::Terminated),
            Progress::Working,
        ),
        (StopReason::Stopped(StopCause::HungUp), Progress::Working),
        (StopReason::AllIterationsRan, Progress::RunEnded),
        (StopReason::IterationLimit(3), Progress::RunEnded),
    ] {
        machine.end = Some(ended(&reason));
        assert_eq!(progress(machine, 1), expected, "{reason}");
    }
}

#[tokio::test]
async fn list_has_each_of_many_runs_with_its_last_record() {
    let Some(server) = Server::start() else {
        return;
    };
    let fleet = server.fleet().await;
    let (_, new) = new_run().await;
    // More than the reads that are under way at a time.
    let names = (0..100).map(|nth| format!("r{nth:04}").parse().unwrap());
    let names: Vec<RunId> = names.collect();
    for run in &names {
        let new = NewRun {
            run: run.clone(),
            pool: pool(),
            base: new.base.clone(),
            code: None,
            summary: new.summary.clone(),
        };
        fleet.submit(new).await.unwrap();
    }
    let delivery = fleet.pull(&pool()).await.unwrap().unwrap();
    let claimed = delivery.decide("worker").await.unwrap();
    let begun = Instant::now();
    let rows = fleet.runs().await.unwrap();
    println!("{} runs listed in {:?}", rows.len(), begun.elapsed());
    let listed: Vec<_> = rows.iter().map(|row| row.run.clone()).collect();
    assert_eq!(listed, names);
    let states: Vec<_> = rows.iter().map(RunRow::state).collect();
    assert_eq!(states[0], "running");
    assert!(
        states[1..].iter().all(|state| *state == "queued"),
        "{states:?}"
    );
    drop(claimed);
}
