//! How a process begins to work on a run: it creates one, or opens a saved one.

use std::path::Path;

use cancellable_sleep::SleepGate;
use loop_runner::{Error, Runner, RunnerOptions};
use loop_state::{Request, ReviewDecision};
use rlm_store::transfer::{ExportOptions, ExportTarget, TransferProgress};
use rlm_store::{Project, WorkingTreeLock};

use crate::phases::{Agents, run_to_end, texts};

/// Creates the run `r1`, or opens it.
async fn begin(dir: &Path, is_new: bool, take_back: bool) -> Result<Runner, Error> {
    let project = Project::find(dir).unwrap();
    let (run, gate) = ("r1".parse().unwrap(), SleepGate::new());
    let work_tree = WorkingTreeLock::take(&project, &run, &gate).await.unwrap();
    let options = RunnerOptions {
        take_back,
        ..RunnerOptions::new(gate)
    };
    let begun = match is_new {
        true => Runner::create(work_tree, texts(), options).await,
        false => Runner::open(work_tree, options).await,
    };
    begun.map(|(runner, _events)| runner)
}

#[tokio::test]
async fn run_that_exists_is_not_created_again() {
    let (dir, agents) = (tempfile::tempdir().unwrap(), Agents::new());
    let exit = vec![Request::Review(ReviewDecision::Exit).into()];
    let (_, saved) = run_to_end(dir.path(), Some(texts()), true, &agents, exit).await;
    let refused = begin(dir.path(), true, false).await.unwrap_err();
    assert!(refused.is_usage(), "{refused}");
    let opened = begin(dir.path(), false, false).await.unwrap();
    assert_eq!(opened.head(), &saved);
}

#[tokio::test]
async fn run_that_was_created_and_never_ran_can_be_opened() {
    let dir = tempfile::tempdir().unwrap();
    let absent = begin(dir.path(), false, false).await.unwrap_err();
    assert!(absent.is_not_found(), "{absent}");
    let created = begin(dir.path(), true, false).await.unwrap();
    let head = created.head().clone();
    drop(created);
    let opened = begin(dir.path(), false, false).await.unwrap();
    assert_eq!(opened.head(), &head);
    drop(opened);
    let agents = Agents::new();
    let (_, end) = run_to_end(dir.path(), None, false, &agents, vec![]).await;
    assert_eq!(end.machine.counts.processes, 1);
}

#[tokio::test]
async fn transferred_run_is_opened_only_to_take_it_back() {
    let (dir, agents) = (tempfile::tempdir().unwrap(), Agents::new());
    let exit = vec![Request::Review(ReviewDecision::Exit).into()];
    run_to_end(dir.path(), Some(texts()), true, &agents, exit).await;
    let project = Project::find(dir.path()).unwrap();
    let how = ExportOptions {
        state_only: true,
        ..ExportOptions::default()
    };
    let (to, run) = (dir.path().join("archive"), "r1".parse().unwrap());
    let (to, gate) = (ExportTarget::File(to), SleepGate::new());
    let exported = project.export(&run, to, how, &gate, TransferProgress::default());
    exported.await.unwrap();
    let refused = begin(dir.path(), false, false).await.unwrap_err();
    assert!(refused.is_transferred(), "{refused}");
    begin(dir.path(), false, true).await.unwrap();
}
