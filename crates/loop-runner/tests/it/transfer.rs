//! Exports of runs, and the errors that prevent an export.

use std::io::{self, Write};
use std::path::Path;

use cancellable_sleep::SleepGate;
use rlm_store::transfer::{ExportOptions, ExportTarget, Exported, TransferProgress};
use rlm_store::{Error, Hint, Project, RunId};

use crate::phases::{Agents, run_to_end, texts};

async fn export(dir: &Path, to: ExportTarget, again: bool) -> Result<Exported, Error> {
    let project = Project::find(dir).unwrap();
    let how = ExportOptions {
        state_only: true,
        repeat: again,
        ..ExportOptions::default()
    };
    let run: RunId = "r1".parse().unwrap();
    let gate = SleepGate::new();
    let exported = project.export(&run, to, how, &gate, TransferProgress::default());
    exported.await
}

/// Returns where the run was transferred, and the number of transfers.
fn transfer_of(dir: &Path) -> (Option<String>, u32) {
    let project = Project::find(dir).unwrap();
    let head = project.run(&"r1".parse().unwrap()).unwrap().head.unwrap();
    (head.transfer.map(|moved| moved.to), head.transfers)
}

/// A pipe that fails once the run is marked as transferred.
#[derive(Default)]
struct Breaks {
    is_marked: bool,
}

impl Write for Breaks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.is_marked {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.is_marked = true;
        Ok(())
    }
}

#[tokio::test]
async fn x112f_failed_repeated_export_keeps_the_previous_transfer() {
    let (dir, agents) = (tempfile::tempdir().unwrap(), Agents::new());
    run_to_end(dir.path(), Some(texts()), false, &agents, vec![]).await;
    let broken = || ExportTarget::Stream(Box::new(Breaks::default()));
    export(dir.path(), broken(), false).await.unwrap_err();
    assert_eq!(transfer_of(dir.path()), (None, 0));
    let first = dir.path().join("first");
    export(dir.path(), ExportTarget::File(first.clone()), false)
        .await
        .unwrap();
    let first_transfer = transfer_of(dir.path());
    assert_eq!(first_transfer, (Some(first.display().to_string()), 1));
    let refused = export(dir.path(), broken(), false).await.unwrap_err();
    assert!(refused.is_transferred(), "{refused}");
    export(dir.path(), broken(), true).await.unwrap_err();
    assert_eq!(transfer_of(dir.path()), first_transfer);
    // A second export is the same transfer.
    let second = dir.path().join("second");
    export(dir.path(), ExportTarget::File(second.clone()), true)
        .await
        .unwrap();
    assert_eq!(
        transfer_of(dir.path()),
        (Some(second.display().to_string()), 1)
    );
}

#[tokio::test]
async fn x112g_damaged_store_is_not_exported() {
    let (dir, agents) = (tempfile::tempdir().unwrap(), Agents::new());
    run_to_end(dir.path(), Some(texts()), false, &agents, vec![]).await;
    let files = fs_err::read_dir(dir.path().join(".rlm/runs/r1")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let mut journals: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|end| end == "ckj"))
        .collect();
    journals.sort();
    let mut bytes = fs_err::read(&journals[0]).unwrap();
    // Data after the end of the file is preallocated space.
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[used / 2] ^= 1;
    fs_err::write(&journals[0], bytes).unwrap();
    let project = Project::find(dir.path()).unwrap();
    let entry = project.run(&"r1".parse().unwrap()).unwrap();
    assert!(entry.loss.is_none() && entry.head.is_ok(), "{entry:?}");
    let file = dir.path().join("file");
    let refused = export(dir.path(), ExportTarget::File(file.clone()), false)
        .await
        .unwrap_err();
    let said = refused.to_string();
    for words in ["is damaged", "progress-", "see the safe next steps"] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(refused.hint(), Some(Hint::Verify("r1".parse().unwrap())));
    assert!(!file.exists());
    assert_eq!(transfer_of(dir.path()), (None, 0));
}
