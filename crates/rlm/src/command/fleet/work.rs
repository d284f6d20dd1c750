//! The process of a claimed run: opens the directory that the worker made, and runs it to its end. The worker starts this program for it.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use agent_subprocess::ProcessId;
use checkpoint_store::{Record, Replica, ReplicaError, Seq};
use loop_runner::{RunClaim, Runner, RunnerOptions};
use loop_state::RuleChange;
use rlm_fleet::nats::{NatsReplica, ReplicaStart};
use rlm_store::{Project, RunHead, RunReplica, WorkingTreeLock};
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
    /// The worker, which owns the claim.
    pub(super) worker: ProcessId,
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
    let replica = ReplicaOfWorker {
        replica,
        worker: spec.worker,
    };
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

/// A replica that gets a save only while the worker lives.
///
/// After SIGKILL of the worker, a guard ends all processes of the run with SIGTERM. If the agent ends first, this process sees an iteration that
/// failed. Without a save, the next owner does the iteration again.
#[derive(Debug)]
struct ReplicaOfWorker {
    replica: NatsReplica,
    worker: ProcessId,
}

/// Returns an error if the worker has ended.
fn require_alive(worker: ProcessId) -> Result<(), ReplicaError> {
    // Other systems don't know it, and have no guard that outlives the worker.
    if cfg!(target_os = "linux") && !worker.is_alive() {
        let why = format!("the worker (pid {}) has ended", worker.pid);
        return Err(ReplicaError::Unconfirmed(why.into()));
    }
    Ok(())
}

impl Replica for ReplicaOfWorker {
    fn newest(&self) -> Seq {
        self.replica.newest()
    }

    fn append(&mut self, record: &Record) -> Result<(), ReplicaError> {
        require_alive(self.worker)?;
        self.replica.append(record)
    }

    fn put_blob(&mut self, name: &str, bytes: &[u8]) -> Result<(), ReplicaError> {
        self.replica.put_blob(name, bytes)
    }
}

impl RunReplica for ReplicaOfWorker {
    fn epoch(&self) -> u64 {
        self.replica.epoch()
    }

    fn prepare(&mut self, head: &RunHead) -> Result<(), ReplicaError> {
        require_alive(self.worker)?;
        self.replica.prepare(head)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn f2_run_of_a_killed_worker_saves_nothing_more() {
        let mut worker = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let process = agent_subprocess::ancestry::process(worker.id()).unwrap();
        let while_it_lives = require_alive(process);
        worker.kill().unwrap();
        worker.wait().unwrap();
        while_it_lives.unwrap();
        let refused = require_alive(process).unwrap_err().to_string();
        assert!(refused.contains("has ended"), "{refused}");
    }
}
