//! Runs of a fleet: a claim opens the run in a new place, and each save waits for the replica.

use std::io::Cursor;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cancellable_sleep::SleepGate;
use checkpoint_store::{Record, Replica, ReplicaError, Seq};
use loop_runner::{Error, RunClaim, RunControl, RunOutcome, Runner, RunnerOptions};
use loop_state::{Request, StopReason, StopTiming};
use rlm_store::transfer::{ReplicatedRun, UnpackedRun};
use rlm_store::{Project, RunHead, RunId, RunReplica, WorkingTreeLock};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::phases::{Agents, texts};

/// Ten times the second in which a stop must begin.
const LIMIT: Duration = Duration::from_secs(10);

/// The part of a replica that outlives its claims.
#[derive(Clone, Debug, Default)]
struct Stream {
    base: Vec<u8>,
    records: Vec<Vec<u8>>,
    blobs: Vec<(String, Vec<u8>)>,
}

/// How far the record has come at which a [`MemoryReplica`] waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    Waits,
}

/// A replica in memory.
#[derive(Debug)]
struct MemoryReplica {
    stream: Arc<Mutex<Stream>>,
    epoch: u64,
    newest: Seq,
    /// The number of records after which another worker owns the run.
    fenced_after: usize,
    /// The number of records after which one waits for the gate.
    waits_after: usize,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

impl Replica for MemoryReplica {
    fn newest(&self) -> Seq {
        self.newest
    }

    fn append(&mut self, record: &Record) -> Result<(), ReplicaError> {
        let records = &mut self.stream.lock().unwrap().records;
        if records.len() == self.fenced_after {
            return Err(ReplicaError::Fenced { by: 9 });
        }
        if records.len() == self.waits_after {
            let (gate, changed) = &*self.gate;
            let mut state = gate.lock().unwrap();
            *state = Gate::Waits;
            while *state == Gate::Waits {
                state = changed.wait(state).unwrap();
            }
        }
        records.push(record.as_bytes().to_vec());
        self.newest = record.seq();
        Ok(())
    }

    fn put_blob(&mut self, name: &str, bytes: &[u8]) -> Result<(), ReplicaError> {
        let blobs = &mut self.stream.lock().unwrap().blobs;
        blobs.retain(|(stored, _)| stored != name);
        blobs.push((name.into(), bytes.to_vec()));
        Ok(())
    }
}

impl RunReplica for MemoryReplica {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn prepare(&mut self, _: &RunHead) -> Result<(), ReplicaError> {
        Ok(())
    }
}

fn run() -> RunId {
    "r1".parse().unwrap()
}

/// Creates a directory with a git repository that has one commit.
fn repository() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for arguments in ["init -q", "commit -q --allow-empty -m first"] {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=n", "-c", "user.email=n@localhost"]);
        let git = git.args(arguments.split(' ')).current_dir(dir.path());
        assert!(git.status().unwrap().success(), "git {arguments}");
    }
    dir
}

/// Creates a run of three phases that commits its work, and returns its stream without the project.
async fn submitted() -> Arc<Mutex<Stream>> {
    let dir = repository();
    let (project, gate) = (Project::find(dir.path()).unwrap(), SleepGate::new());
    let work_tree = WorkingTreeLock::take(&project, &run(), &gate)
        .await
        .unwrap();
    let mut settings = texts();
    settings.directory = project.root().to_owned();
    settings.commit = true;
    drop(
        Runner::create(work_tree, settings, RunnerOptions::new(gate))
            .await
            .unwrap(),
    );
    let base = project.pack_state(&run(), Vec::new()).unwrap();
    Arc::new(Mutex::new(Stream {
        base,
        ..Stream::default()
    }))
}

/// A run that a worker claimed, in a project of its own.
struct Claimed {
    _dir: TempDir,
    project: Project,
    runner: Runner,
    gate: Arc<(Mutex<Gate>, Condvar)>,
    agents: Agents,
}

impl Claimed {
    /// Unpacks the run, and opens it for a claim. `fenced_after` and `waits_after` are numbers of records.
    async fn open(
        stream: &Arc<Mutex<Stream>>,
        epoch: u64,
        fenced_after: usize,
        waits_after: usize,
    ) -> Self {
        let dir = repository();
        let project = Project::find(dir.path()).unwrap();
        let kept = stream.lock().unwrap().clone();
        let records = kept.records.into_iter();
        let from = ReplicatedRun {
            base: Cursor::new(kept.base),
            records: records.map(|bytes| Ok(Record::parse(bytes, "stream")?)),
            blobs: kept.blobs,
        };
        let UnpackedRun { seq, root, .. } = project.unpack_claimed(&run(), epoch, from).unwrap();
        let gate = Arc::new((Mutex::new(Gate::Open), Condvar::new()));
        let replica = MemoryReplica {
            stream: stream.clone(),
            epoch,
            newest: seq,
            fenced_after,
            waits_after,
            gate: gate.clone(),
        };
        let sleep = SleepGate::new();
        let work_tree = WorkingTreeLock::take(&project, &run(), &sleep)
            .await
            .unwrap();
        let replica = Arc::new(Mutex::new(replica));
        let options = RunnerOptions {
            claim: Some(RunClaim {
                replica,
                root,
                taken_over: false,
                changes: Vec::new(),
            }),
            ..RunnerOptions::new(sleep)
        };
        let (runner, _events) = Runner::open(work_tree, options).await.unwrap();
        Self {
            _dir: dir,
            project,
            runner,
            gate,
            agents: Agents::new(),
        }
    }

    async fn run(self) -> (Result<RunOutcome, Error>, Agents) {
        let (_control, requests) = mpsc::channel(1);
        let outcome = self.runner.run(self.agents.factory(), requests).await;
        (outcome, self.agents)
    }
}

/// Returns the number of prompts that all agents received.
fn prompts(agents: &Agents) -> usize {
    let phases = ["plan", "build", "check"].iter();
    phases.map(|phase| agents.told(phase).len()).sum()
}

#[tokio::test]
async fn claimed_run_ends_like_a_local_one() {
    let stream = submitted().await;
    let claimed = Claimed::open(&stream, 1, usize::MAX, usize::MAX).await;
    let root = claimed.project.root().to_owned();
    let (outcome, agents) = claimed.run().await;
    assert_eq!(outcome.unwrap().reason, StopReason::AllIterationsRan);
    assert_eq!(prompts(&agents), 4);
    // The replica alone has the whole run.
    let last = Claimed::open(&stream, 2, usize::MAX, usize::MAX).await;
    let saved = last.runner.head();
    let machine = &saved.machine;
    assert_eq!(machine.finished_phases.len(), 3);
    let reason = { machine.end.as_ref() }.map(|end| end.reason.clone());
    assert_eq!(reason, Some(StopReason::AllIterationsRan));
    assert_eq!(saved.settings.directory, last.project.root());
    assert_ne!(saved.settings.directory, root);
}

#[tokio::test]
async fn fenced_run_sends_its_agent_nothing_more() {
    for fenced_after in (1..).step_by(3) {
        let stream = submitted().await;
        let first = Claimed::open(&stream, 1, fenced_after, usize::MAX).await;
        let (ended, agents) = first.run().await;
        if ended.is_ok() {
            assert!(fenced_after > 8, "only {fenced_after} records");
            break;
        }
        assert_eq!(stream.lock().unwrap().records.len(), fenced_after);
        // Each prompt follows a save of its attempt, so a successor repeats at most the last one.
        let second = Claimed::open(&stream, 2, usize::MAX, usize::MAX).await;
        let begun = second.runner.head().machine.counts.attempts as usize;
        assert!(prompts(&agents) <= begun, "{fenced_after}");
        let (ended, again) = second.run().await;
        assert_eq!(ended.unwrap().reason, StopReason::AllIterationsRan);
        let all = prompts(&agents) + prompts(&again);
        assert!((4..=5).contains(&all), "{fenced_after}: {all} prompts");
    }
}

#[tokio::test]
async fn stop_begins_at_once_while_a_replica_is_away_and_hides_no_uncommitted_iteration() {
    for waits_after in 1.. {
        let stream = submitted().await;
        let claimed = Claimed::open(&stream, 1, usize::MAX, waits_after).await;
        let (control, requests) = mpsc::channel(1);
        let mut view = claimed.runner.watch();
        let factory = claimed.agents.factory();
        let mut running = tokio::spawn(claimed.runner.run(factory, requests));
        let (gate, changed) = &*claimed.gate;
        let is_waiting = async {
            while *gate.lock().unwrap() != Gate::Waits {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = is_waiting => {}
            outcome = &mut running => {
                assert_eq!(outcome.unwrap().unwrap().reason, StopReason::AllIterationsRan);
                assert!(waits_after > 8, "only {waits_after} records");
                break;
            }
        }
        let stop = Request::Stop {
            when: StopTiming::Now,
        };
        control.send(RunControl::from(stop)).await.unwrap();
        let seen = view.wait_for(|view| view.shutdown.is_some());
        let is_seen = timeout(LIMIT, seen).await.is_ok_and(|seen| seen.is_ok());
        assert!(is_seen, "{waits_after}: the stop waits for the save");
        *gate.lock().unwrap() = Gate::Open;
        changed.notify_all();
        running.await.unwrap().unwrap();
        // A replica refuses a complete iteration that is known to have no commit, so the next owner repeats it.
        let head = claimed.project.run(&run()).unwrap().head.unwrap();
        let committed = head.committed.map(|it| (it.phase, it.iteration));
        let mut iterations = [(0, 1), (1, 1), (1, 2), (2, 1)].into_iter();
        let committed = iterations.position(|it| Some(it) == committed);
        let committed = committed.map_or(0, |before| before + 1);
        let uncommitted = head.uncommitted.map_or(0, |it| it.iterations) as usize;
        let complete = head.machine.counts.iterations as usize;
        assert_eq!(committed + uncommitted, complete, "{waits_after}");
    }
}
