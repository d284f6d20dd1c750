//! Runs of a fleet: replicated saves, and the directory of a run for one claim.

use std::io::Cursor;
use std::path::Path;
use std::sync::{Arc, Mutex};

use agent_drivers::AgentConfig;
use cancellable_sleep::SleepGate;
use checkpoint_store::{Record, Replica, ReplicaError, Seq};
use loop_state::{Head, MachineInput, TimedInput, Timestamp};
use rlm_store::journal::Journal;
use rlm_store::transfer::{
    ExportOptions, ExportTarget, ReplicatedRun, TransferProgress, UnpackedRun,
};
use rlm_store::{
    Committed, Error, PhaseSettings, Project, PromptSource, RunHead, RunId, RunReplica, Settings,
};
use tempfile::TempDir;

/// The part of a replica that outlives its claims.
#[derive(Clone, Debug, Default)]
struct Stream {
    base: Vec<u8>,
    /// Each record after the base, with the commit that was reachable before it.
    records: Vec<(Vec<u8>, Option<String>)>,
    blobs: Vec<(String, Vec<u8>)>,
}

/// A replica in memory.
#[derive(Debug)]
struct MemoryReplica {
    stream: Arc<Mutex<Stream>>,
    epoch: u64,
    newest: Seq,
    reachable: Option<String>,
    /// Whether the next commit can't be published.
    loses_commit: bool,
}

impl MemoryReplica {
    fn new(stream: &Arc<Mutex<Stream>>, epoch: u64, newest: Seq) -> Arc<Mutex<Self>> {
        let stream = stream.clone();
        Arc::new(Mutex::new(Self {
            stream,
            epoch,
            newest,
            reachable: None,
            loses_commit: false,
        }))
    }
}

impl Replica for MemoryReplica {
    fn newest(&self) -> Seq {
        self.newest
    }

    fn append(&mut self, record: &Record) -> Result<(), ReplicaError> {
        let entry = (record.as_bytes().to_vec(), self.reachable.clone());
        self.stream.lock().unwrap().records.push(entry);
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

    fn prepare(&mut self, head: &RunHead) -> Result<(), ReplicaError> {
        if std::mem::take(&mut self.loses_commit) {
            return Err(ReplicaError::Unconfirmed("the remote is gone".into()));
        }
        self.reachable = head.committed.as_ref().map(|it| it.commit.clone());
        Ok(())
    }
}

fn event(at: u64) -> TimedInput {
    let (at, what) = (Timestamp::from_millis(at), MachineInput::Started);
    TimedInput { at, what }
}

fn run() -> RunId {
    "r1".parse().unwrap()
}

/// A project in a directory of its own.
fn project() -> (TempDir, Project) {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    (dir, project)
}

/// Submits a run with one save and one blob, and returns its head and its stream.
async fn submitted() -> (RunHead, Arc<Mutex<Stream>>) {
    let (_dir, project) = project();
    let (mut journal, _) = Journal::open(&project, &run(), true).unwrap();
    let agent = AgentConfig::command(vec![project.root().join("agent.sh").into()]);
    let mut phase = PhaseSettings::new("main", PromptSource::Stored("prompt-1".into()), agent);
    phase.check = Some("true".into());
    let settings = Settings::new(project.root().join("part"), vec![phase]);
    let machine = Head::new(settings.rules()).unwrap();
    let mut head = RunHead::new(run(), machine, settings);
    head.machine.session = Some("a session of this machine".into());
    head.prompts = vec!["prompt-1".into()];
    journal.put_blob("prompt-1", "Do it.").await.unwrap();
    journal.note(event(1));
    journal.save(&head).await.unwrap();
    drop(journal);
    let base = project.pack_state(&run(), Vec::new()).unwrap();
    let stream = Stream {
        base,
        ..Stream::default()
    };
    (head, Arc::new(Mutex::new(stream)))
}

/// Unpacks the run for a claim.
fn unpack(project: &Project, epoch: u64, stream: &Mutex<Stream>) -> Result<UnpackedRun, Error> {
    let Stream {
        base,
        records,
        blobs,
    } = stream.lock().unwrap().clone();
    let base = Cursor::new(base);
    let records = records
        .into_iter()
        .map(|(bytes, _)| Ok(Record::parse(bytes, "stream")?));
    let from = ReplicatedRun {
        base,
        records,
        blobs,
    };
    project.unpack_claimed(&run(), epoch, from)
}

/// Asserts that the project has no run, and no part of one.
fn assert_nothing_is_left(project: &Project) {
    assert_eq!(project.run_ids().unwrap(), []);
    let names = fs_err::read_dir(project.state_dir()).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left = names.find(|name| name != "runs" && name != ".gitignore");
    assert_eq!(left, None);
}

#[tokio::test]
async fn each_claim_continues_after_the_last_replicated_save() {
    let (mut head, stream) = submitted().await;
    for epoch in 1..=3 {
        let (_dir, project) = project();
        let unpacked = unpack(&project, epoch, &stream).unwrap();
        assert_eq!((unpacked.seq.get(), &unpacked.head), (epoch, &head));
        let replica = MemoryReplica::new(&stream, epoch, unpacked.seq);
        let (mut journal, loaded) =
            Journal::open_replicated(&project, &run(), replica.clone()).unwrap();
        assert_eq!(loaded.head, Some(head.clone()));
        assert_eq!(journal.epoch(), epoch);
        // The local epoch of the store is another one, and a save doesn't show it.
        head.pause_reason = Some(format!("claim {epoch}"));
        journal.note(event(epoch + 1));
        journal.save(&head).await.unwrap();
        assert_eq!(journal.epoch(), epoch);
        drop(journal);
        let timeline = project.state_at(&run(), rlm_store::StateSelector::Newest);
        assert_eq!(timeline.unwrap().head, head);
    }
    assert_eq!(stream.lock().unwrap().records.len(), 3);
}

#[tokio::test]
async fn phases_and_blobs_of_a_claim_are_in_the_next_one() {
    let (mut head, stream) = submitted().await;
    let (_dir, first) = project();
    let unpacked = unpack(&first, 1, &stream).unwrap();
    let replica = MemoryReplica::new(&stream, 1, unpacked.seq);
    let (mut journal, _) = Journal::open_replicated(&first, &run(), replica).unwrap();
    journal.put_blob("prompt-2", "Do it again.").await.unwrap();
    head.prompts = vec!["prompt-2".into()];
    journal
        .save_phase("main".into(), &head, None)
        .await
        .unwrap();
    drop(journal);
    let (_dir, second) = project();
    let unpacked = unpack(&second, 2, &stream).unwrap();
    assert_eq!(unpacked.head, head);
    assert_eq!(second.prompts(&head).unwrap(), ["Do it again."]);
    let phases = [&first, &second]
        .map(|project| checkpoint_store::reader::phases(project.run_dir(&run())).unwrap());
    assert_eq!(phases[0].len(), 1);
    assert_eq!(phases[0][0].id, phases[1][0].id);
}

#[tokio::test]
async fn directory_of_a_claim_can_not_be_opened_otherwise() {
    let (head, stream) = submitted().await;
    let (dir, project) = project();
    let unpacked = unpack(&project, 3, &stream).unwrap();
    let refused = Journal::open(&project, &run(), false).unwrap_err();
    assert!(refused.is_usage(), "{refused}");
    assert!(refused.to_string().contains("a fleet"), "{refused}");
    for epoch in [2, 4] {
        let replica = MemoryReplica::new(&stream, epoch, unpacked.seq);
        let refused = Journal::open_replicated(&project, &run(), replica).unwrap_err();
        let why = format!("was not made for claim {epoch}");
        assert!(refused.to_string().contains(&why), "{refused}");
    }
    let export = |copy: bool| {
        let how = ExportOptions {
            copy,
            state_only: true,
            ..ExportOptions::default()
        };
        let file = ExportTarget::File(dir.path().join("archive"));
        let (project, progress) = (&project, TransferProgress::default());
        async move {
            project
                .export(&run(), file, how, &SleepGate::new(), progress)
                .await
        }
    };
    let refused = export(false).await.unwrap_err();
    assert!(refused.to_string().contains("a fleet"), "{refused}");
    export(true).await.unwrap();
    let second = unpack(&project, 4, &stream).unwrap_err();
    assert!(second.is_usage(), "{second}");
    // The refused calls changed nothing.
    let replica = MemoryReplica::new(&stream, 3, unpacked.seq);
    let (_journal, loaded) = Journal::open_replicated(&project, &run(), replica).unwrap();
    assert_eq!(loaded.head, Some(head));
}

#[tokio::test]
async fn damaged_mark_refuses_the_directory() {
    let (_head, stream) = submitted().await;
    let (_dir, project) = project();
    let unpacked = unpack(&project, 1, &stream).unwrap();
    fs_err::write(project.run_dir(&run()).join("fleet.json"), "{").unwrap();
    Journal::open(&project, &run(), false).unwrap_err();
    let replica = MemoryReplica::new(&stream, 1, unpacked.seq);
    Journal::open_replicated(&project, &run(), replica).unwrap_err();
}

#[tokio::test]
async fn ordinary_directory_can_not_be_opened_for_a_claim() {
    let (_dir, project) = project();
    let (journal, _) = Journal::open(&project, &run(), true).unwrap();
    drop(journal);
    let stream = Arc::default();
    let replica = MemoryReplica::new(&stream, 1, Seq::ZERO);
    Journal::open_replicated(&project, &run(), replica).unwrap_err();
}

#[tokio::test]
async fn commit_is_reachable_before_a_record_names_it() {
    let (mut head, stream) = submitted().await;
    let (_dir, project) = project();
    let unpacked = unpack(&project, 1, &stream).unwrap();
    let replica = MemoryReplica::new(&stream, 1, unpacked.seq);
    let (mut journal, _) = Journal::open_replicated(&project, &run(), replica.clone()).unwrap();
    let commits = ["a".repeat(40), "b".repeat(40)];
    for commit in &commits {
        head.committed = Some(Committed {
            phase: 0,
            iteration: 1,
            attempt: 1,
            commit: commit.clone(),
        });
        journal.save(&head).await.unwrap();
    }
    let saved = |stream: &Mutex<Stream>| -> Vec<_> {
        let records = stream.lock().unwrap().records.clone();
        records
            .into_iter()
            .filter_map(|(_, commit)| commit)
            .collect()
    };
    assert_eq!(saved(&stream), commits);
    // Without the commit, nothing is saved, now and later.
    replica.lock().unwrap().loses_commit = true;
    for why in ["the remote is gone", "an earlier call"] {
        let failed = journal.save(&head).await.unwrap_err().to_string();
        assert!(failed.contains(why), "{failed}");
    }
    journal.put_blob("b", "text").await.unwrap_err();
    drop(journal);
    assert_eq!(saved(&stream), commits);
    let local = project.state_at(&run(), rlm_store::StateSelector::Newest);
    assert_eq!(local.unwrap().head.committed.unwrap().commit, commits[1]);
}

#[tokio::test]
async fn paths_move_with_the_run_from_machine_to_machine() {
    let (head, stream) = submitted().await;
    let submitted_at = head.settings.directory.parent().unwrap().to_owned();
    let mut from = submitted_at.clone();
    for epoch in 1..=2 {
        let (_dir, project) = project();
        let UnpackedRun {
            mut head,
            seq,
            root,
        } = unpack(&project, epoch, &stream).unwrap();
        assert_eq!(root, from);
        head.move_to(&project, &root);
        let settings = &head.settings;
        assert_eq!(settings.directory, project.root().join("part"));
        let agent = Path::new(&settings.phases[0].agent.program[0]).to_owned();
        assert_eq!(agent, project.root().join("agent.sh"));
        assert_eq!(head.machine.session, None);
        let replica = MemoryReplica::new(&stream, epoch, seq);
        let (mut journal, _) = Journal::open_replicated(&project, &run(), replica).unwrap();
        journal.save(&head).await.unwrap();
        from = project.root().to_owned();
    }
}

#[tokio::test]
async fn hostile_replica_leaves_nothing_behind() {
    let (head, stream) = submitted().await;
    let (_dir, worker) = project();
    let unpacked = unpack(&worker, 1, &stream).unwrap();
    let replica = MemoryReplica::new(&stream, 1, unpacked.seq);
    let (mut journal, _) = Journal::open_replicated(&worker, &run(), replica).unwrap();
    for _ in 0..3 {
        journal.save(&head).await.unwrap();
    }
    let mut other = head.clone();
    other.run = "r2".parse().unwrap();
    let whole = stream.lock().unwrap().clone();
    journal.save(&other).await.unwrap();
    let of_other_run = stream.lock().unwrap().clone();
    let (_dir, victim) = project();
    let refuse = |why: &str, change: &dyn Fn(&mut Stream)| {
        let mut changed = whole.clone();
        change(&mut changed);
        let refused = unpack(&victim, 2, &Mutex::new(changed)).unwrap_err();
        assert!(refused.to_string().contains(why), "{why}: {refused}");
        assert_nothing_is_left(&victim);
    };
    refuse("", &|it| drop(it.records.remove(1)));
    refuse("", &|it| it.records.swap(0, 1));
    refuse("", &|it| it.records[2].0[40] ^= 1);
    refuse("", &|it| drop(it.base.drain(60..)));
    refuse("", &|it| it.base.clear());
    refuse("", &|it| it.blobs.push(("../x".into(), Vec::new())));
    refuse("is of run `r2`", &|it| {
        it.records = of_other_run.records.clone()
    });
    assert_eq!(unpack(&victim, 2, &Mutex::new(whole)).unwrap().seq.get(), 4);
}

#[tokio::test]
async fn base_of_another_run_is_refused() {
    let (_head, stream) = submitted().await;
    let (_dir, victim) = project();
    let base = Cursor::new(stream.lock().unwrap().base.clone());
    let from = ReplicatedRun {
        base,
        records: [],
        blobs: Vec::new(),
    };
    let refused = victim.unpack_claimed(&"r2".parse().unwrap(), 1, from);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("its base is of run `r1`"), "{refused}");
    assert_nothing_is_left(&victim);
}
