//! Exports and imports of runs.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use agent_drivers::AgentConfig;
use cancellable_sleep::SleepGate;
use checkpoint_store::{Options, Writer};
use loop_state::{
    CheckResult, Head, Machine, MachineInput, Request, ResumeOptions, TimedInput, Timestamp,
    TurnOutcome, UsageTotal,
};
use proptest::collection::vec;
use proptest::prelude::*;
use rlm_store::transfer::{ExportOptions, ExportTarget, ImportOptions, TransferProgress};
use rlm_store::{PhaseSettings, Project, PromptSource, RunHead, RunId, Settings};
use tempfile::TempDir;

fn machine_input() -> impl Strategy<Value = MachineInput> {
    let gate = |passed| {
        MachineInput::RequiredCheckEnded(match passed {
            true => CheckResult::Passed,
            false => CheckResult::Failed("no".into()),
        })
    };
    prop_oneof![
        4 => Just(MachineInput::TurnEnded(TurnOutcome::Completed)),
        4 => any::<bool>().prop_map(gate),
        2 => Just(MachineInput::LeftoversEnded(loop_state::ProcessTreeOutcome::default())),
        1 => "\\PC{0,20}".prop_map(|why| MachineInput::TurnEnded(TurnOutcome::Failed(why))),
        1 => Just(MachineInput::Resumed(ResumeOptions::default())),
        1 => "\\PC{1,20}".prop_map(|text| MachineInput::Requested(Request::Steer { text, now: false })),
        1 => (1..40u64).prop_map(|cost| MachineInput::UsageReported(UsageTotal { cost_microusd: cost, ..UsageTotal::default() })),
    ]
}

/// Saves a run with these inputs, and returns its head.
fn saved(project: &Project, run: &RunId, inputs: Vec<MachineInput>, transcript: &[u8]) -> RunHead {
    let agent = AgentConfig::command(vec!["agent".into()]);
    let mut phase = PhaseSettings::new("main", PromptSource::Text("Do it.".into()), agent);
    phase.required_checks = vec!["make lint".into()];
    phase.limits.max_iterations = Some(3);
    let settings = Settings::new(project.root(), vec![phase]);
    let mut machine = Machine::from(Head::new(settings.rules()).unwrap());
    let events = [MachineInput::Started].into_iter().chain(inputs);
    let events = (1..).zip(events).map(|(at, what)| {
        let at = Timestamp::from_millis(at);
        TimedInput { at, what }
    });
    let events: Vec<TimedInput> = events.collect();
    for event in &events {
        machine.step(event.clone());
    }
    let head = RunHead::new(run.clone(), machine.head().clone(), settings);
    let dir = project.run_dir(run);
    let options = Options {
        schema: "rlm-run".into(),
        ..Options::default()
    };
    let (mut writer, _) = Writer::<RunHead, TimedInput>::open(&dir, options).unwrap();
    writer.append(&head, &events).unwrap();
    let transcripts = dir.join("transcripts");
    fs_err::create_dir_all(&transcripts).unwrap();
    fs_err::write(transcripts.join("1-1.ndjson"), transcript).unwrap();
    head
}

/// Transfers the run to another project by one file.
async fn transfer_run(from: &Project, run: &RunId, to: &Project, archive: &Path) {
    let how = ExportOptions {
        state_only: true,
        ..ExportOptions::default()
    };
    let (gate, meter) = (SleepGate::new(), TransferProgress::default);
    let file = ExportTarget::File(archive.to_owned());
    from.export(run, file, how, &gate, meter()).await.unwrap();
    let read = Box::new(std::fs::File::open(archive).unwrap());
    let how = ImportOptions {
        run: None,
        default_run: "other".parse().unwrap(),
    };
    let imported = to.import(read, archive, how, &gate, meter()).await;
    assert!(!imported.unwrap().copy);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn exported_and_imported_run_is_the_same(
        inputs in vec(machine_input(), 0..30), transcript in vec(any::<u8>(), 0..200),
    ) {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let [from, to] = [&old, &new].map(|dir| Project::find(dir.path()).unwrap());
        let run: RunId = "r1".parse().unwrap();
        let mut expected = saved(&from, &run, inputs, &transcript);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(transfer_run(&from, &run, &to, &old.path().join("archive")));
        expected.machine = expected.machine.without_session();
        expected.settings.directory = to.root().to_owned();
        expected.transfers = 1;
        prop_assert_eq!(to.run(&run).unwrap().head, Ok(expected));
        let [before, after] = [&from, &to].map(|project| project.timeline(&run).unwrap());
        prop_assert_eq!(before.attempts, after.attempts);
        prop_assert_eq!(before.events, after.events);
        prop_assert_eq!(before.steers, after.steers);
        prop_assert_eq!(after.unknown, [""; 0]);
        let there = to.run_dir(&run).join("transcripts/1-1.ndjson");
        prop_assert_eq!(fs_err::read(there).unwrap(), transcript);
    }
}

/// The reader of an export that takes bytes until its first or second flush fails.
#[derive(Clone, Default)]
struct Reader {
    bytes: Arc<Mutex<Vec<u8>>>,
    flushes: usize,
    fails_at_flush: usize,
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushes += 1;
        match self.flushes < self.fails_at_flush {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

fn state_only() -> ExportOptions {
    ExportOptions {
        state_only: true,
        ..ExportOptions::default()
    }
}

/// Saves a run in a project of its own.
fn one_run() -> (TempDir, Project, RunId) {
    let dir = tempfile::tempdir().unwrap();
    let project = Project::find(dir.path()).unwrap();
    let run: RunId = "r1".parse().unwrap();
    saved(&project, &run, Vec::new(), b"x");
    (dir, project, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn run_stays_here_if_the_reader_of_its_export_is_gone() {
    for fails_at_flush in [1, 2] {
        let (_dir, project, run) = one_run();
        let reader = Reader {
            fails_at_flush,
            ..Reader::default()
        };
        let (gate, meter) = (SleepGate::new(), TransferProgress::default());
        let to = ExportTarget::Stream(Box::new(reader.clone()));
        let failed = project.export(&run, to, state_only(), &gate, meter).await;
        assert!(failed.unwrap_err().to_string().contains("standard output"));
        let head = project.run(&run).unwrap().head.unwrap();
        assert_eq!((head.transfer, head.transfers), (None, 0));
        if fails_at_flush == 1 {
            // The run is not marked as transferred yet, so the reader must not have a whole archive.
            let bytes = reader.bytes.lock().unwrap().clone();
            let new = tempfile::tempdir().unwrap();
            let there = Project::find(new.path()).unwrap();
            let how = ImportOptions {
                run: None,
                default_run: "other".parse().unwrap(),
            };
            let read = Box::new(io::Cursor::new(bytes));
            let (path, meter) = (Path::new("-"), TransferProgress::default());
            let imported = there.import(read, path, how, &gate, meter).await;
            assert!(imported.is_err(), "{imported:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_export_is_the_same_transfer() {
    let (dir, project, run) = one_run();
    for (name, repeat) in [("one", false), ("two", true)] {
        let how = ExportOptions {
            repeat,
            ..state_only()
        };
        let to = ExportTarget::File(dir.path().join(name));
        let (gate, meter) = (SleepGate::new(), TransferProgress::default());
        project.export(&run, to, how, &gate, meter).await.unwrap();
        assert_eq!(project.run(&run).unwrap().head.unwrap().transfers, 1);
    }
}

/// Saves a run whose agent keeps its session in the directory of the run. Returns a file of the session.
fn run_with_session(project: &Project, run: &RunId) -> std::path::PathBuf {
    let inputs = vec![
        MachineInput::SessionKnown("1-1".into()),
        MachineInput::PromptReceived,
        MachineInput::SessionSaved { position: 1 },
    ];
    saved(project, run, inputs, b"x");
    let session = project.run_dir(run).join("sessions/1-1");
    let (mut writer, _) = Writer::<u32, String>::open(&session, Options::default()).unwrap();
    writer.append(&1, &["a message".to_owned()]).unwrap();
    drop(writer);
    let mut files = fs_err::read_dir(session).unwrap();
    let journal = files.find(|file| {
        let path = file.as_ref().unwrap().path();
        path.extension().is_some_and(|kind| kind == "ckj")
    });
    journal.unwrap().unwrap().path()
}

#[tokio::test(flavor = "multi_thread")]
async fn a23_archive_has_the_session_of_the_run_and_no_other() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [from, to] = [&old, &new].map(|dir| Project::find(dir.path()).unwrap());
    let run: RunId = "r1".parse().unwrap();
    let journal = run_with_session(&from, &run);
    let other = from.run_dir(&run).join("sessions/2-1");
    drop(Writer::<u32, String>::open(&other, Options::default()).unwrap());
    transfer_run(&from, &run, &to, &old.path().join("archive")).await;
    let head = to.run(&run).unwrap().head.unwrap().machine;
    assert_eq!(head.session.as_deref(), Some("1-1"));
    let sessions = fs_err::read_dir(to.run_dir(&run).join("sessions")).unwrap();
    assert_eq!(sessions.count(), 1);
    assert!(head.has_prompt);
    let there = to.run_dir(&run).join("sessions/1-1");
    let there = there.join(journal.file_name().unwrap());
    assert_eq!(fs_err::read(there).unwrap(), fs_err::read(journal).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a23_run_with_a_damaged_session_is_imported_without_it() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [from, to] = [&old, &new].map(|dir| Project::find(dir.path()).unwrap());
    let run: RunId = "r1".parse().unwrap();
    let journal = run_with_session(&from, &run);
    fs_err::write(journal, [7; 4096]).unwrap();
    transfer_run(&from, &run, &to, &old.path().join("archive")).await;
    let head = to.run(&run).unwrap().head.unwrap().machine;
    assert_eq!((head.session, head.has_prompt), (None, false));
    assert!(!to.run_dir(&run).join("sessions").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn file_of_more_than_16_mib_is_transferred() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [from, to] = [&old, &new].map(|dir| Project::find(dir.path()).unwrap());
    let run: RunId = "r1".parse().unwrap();
    let transcript = vec![b'x'; 17 << 20];
    saved(&from, &run, Vec::new(), &transcript);
    transfer_run(&from, &run, &to, &old.path().join("archive")).await;
    let there = to.run_dir(&run).join("transcripts/1-1.ndjson");
    assert_eq!(fs_err::metadata(there).unwrap().len(), 17 << 20);
}
