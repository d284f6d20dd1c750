//! The process of a claimed run: opens the directory that the worker made, and runs it to its end. The worker starts this program for it.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use loop_runner::{RunClaim, Runner, RunnerOptions};
use loop_state::RuleChange;
use rlm_fleet::nats::{NatsReplica, ReplicaStart};
use rlm_store::{Project, WorkingTreeLock};
use rlm_terminal::PressActions;
use serde::{Deserialize, Serialize};

use super::budget_share;
use crate::exit::Failure;
use crate::observers::RunObservers;
use crate::render::Screen;
use crate::session::Session;

/// The largest description of a claimed run, in bytes.
const MAX_SPEC: u64 = 16 << 20;

/// The description of a claimed run, which the worker writes to the standard input of this process. It can have a password, so it is neither in the
/// arguments nor in the environment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WorkSpec {
    pub(super) start: ReplicaStart,
    /// The project that the worker made.
    pub(super) project: PathBuf,
    /// The top of the project on the machine that saved the run last.
    pub(super) root: PathBuf,
    /// Whether no person resumed the run since its last save.
    pub(super) taken_over: bool,
    /// The changes of rules with which a person resumed the run.
    pub(super) changes: Vec<RuleChange>,
}

pub(crate) fn execute() -> Result<ExitCode, Failure> {
    let session = Session::begin(true, false)?;
    let mut text = Vec::new();
    let read = std::io::stdin().take(MAX_SPEC).read_to_end(&mut text);
    read.map_err(|e| Failure::failed(format!("can't read the claim: {e}")))?;
    let spec: WorkSpec = serde_json::from_slice(&text)
        .map_err(|e| Failure::usage(format!("only a worker starts this command: {e}")))?;
    let (run, start) = (spec.start.run.clone(), spec.start.clone());
    let project = Project::find(&spec.project)?;
    let its = project.clone();
    let (replica, messages) = NatsReplica::open(
        spec.start,
        Box::new(move |commit, base| Ok(its.bundle_commit(commit, Some(base))?)),
    )?;
    let claim = RunClaim {
        replica: Arc::new(Mutex::new(replica)),
        root: spec.root,
        taken_over: spec.taken_over,
        changes: spec.changes,
    };
    let options = RunnerOptions {
        claim: Some(claim),
        ..session.options()
    };
    let (runner, events) = session.block_on(async {
        let work_tree = WorkingTreeLock::take(&project, &run, &session.gate()).await?;
        Runner::open(work_tree, options).await
    })?;
    let runner = runner.with_remote_messages(messages);
    let (screen, presses) = (Screen::new(false), PressActions::default());
    let observers = RunObservers::default();
    let gate = session.gate();
    session.run_to_end_beside(
        &project,
        runner,
        events,
        screen,
        presses,
        &observers,
        |view, control| budget_share::share(start, gate, view, control),
    )
}
