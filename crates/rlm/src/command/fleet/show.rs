//! `rlm fleet ps`, `wait`, `fetch` and `remove`: the runs of a fleet, the end of one, its commits, and its removal.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use loop_state::Timestamp;
use rlm_fleet::nats::{Removed, RunRow, StoredRecord};
use rlm_fleet::{FailedClaim, FailureCause, RecordKind};
use rlm_store::{Project, RunId};
use rlm_text::escape::plain;
use rlm_text::money;
use serde_json::{Value, json};

use super::server::on_fleet;
use crate::args::{FleetFetchArgs, FleetPsArgs, FleetRemoveArgs, FleetWaitArgs};
use crate::exit::{Code, Failure};
use crate::session::Session;
use crate::{hint, output, render};

pub(crate) fn ps(args: &FleetPsArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin(true, false)?;
    let rows = on_fleet(&args.server, &session, async |fleet| fleet.runs().await)?;
    if rows.is_empty() && !args.json {
        let rlm = hint::program_command();
        anstream::eprintln!("the fleet has no run; to submit one: {rlm} fleet run --help");
    }
    for row in &rows {
        let shown = RowView::of(&row.run, &row.last, row.state());
        if !render::print(args.json, &shown) {
            break;
        }
    }
    Ok(Code::Done.into())
}

pub(crate) fn wait(args: &FleetWaitArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin(true, false)?;
    let last = on_fleet(&args.server, &session, async |fleet| {
        fleet.wait(&args.run).await
    })?;
    let (run, code) = (args.run.clone(), code_of(&last));
    let row = RunRow { run, last };
    let shown = RowView::of(&row.run, &row.last, row.state());
    render::print(args.json, &shown);
    if row.last.facts.kind == RecordKind::Park {
        let rlm = hint::program_command();
        anstream::eprintln!(
            "rlm: run {0} is parked, and no worker takes it; to continue it: {rlm} fleet resume {0}; its commits so far: {rlm} fleet fetch {0}",
            row.run
        );
    }
    Ok(code.into())
}

/// Returns the exit code of an ended run: that of the same run on one machine. A parked run counts as stuck.
pub(super) fn code_of(last: &StoredRecord) -> Code {
    let reason = last.summary.as_ref().and_then(|it| it.reason.as_ref());
    match (last.facts.kind, reason) {
        (RecordKind::Park, _) => Code::Stuck,
        (_, Some(reason)) => Code::of(reason),
        (_, None) => Code::Failed,
    }
}

pub(crate) fn fetch(directory: &Path, args: &FleetFetchArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin(true, false)?;
    let code = on_fleet(&args.server, &session, async |fleet| {
        fleet.code(&args.run).await
    })?;
    let Some(code) = code else {
        return Err(Failure::failed(format!(
            "run `{}` has no commits in the fleet",
            args.run
        )));
    };
    let (directory, branch) = (directory.to_owned(), format!("rlm/{}", args.run));
    let (commit, shown) = (code.commit.clone(), branch.clone());
    session.prepare(move || {
        let project = Project::find(&directory)?;
        Ok(project.fetch_bundles(&branch, &code.commits())?)
    })?;
    output::line(&format!("branch {shown} is at {commit}"));
    Ok(Code::Done.into())
}

pub(crate) fn remove(args: &FleetRemoveArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin(true, false)?;
    let removed = on_fleet(&args.server, &session, async |fleet| {
        fleet.remove(&args.run).await
    })?;
    let Removed { records, objects } = removed;
    let run = &args.run;
    output::line(&format!(
        "run {run} is removed: {records} records, and {objects} objects that only it used"
    ));
    Ok(Code::Done.into())
}

/// One run of a fleet, for people and programs.
#[derive(Debug, serde::Serialize)]
pub(super) struct RowView {
    run: RunId,
    state: &'static str,
    worker: Option<String>,
    pool: Option<String>,
    title: Option<String>,
    phase: Option<String>,
    iteration: u32,
    attempts: u64,
    usage: Value,
    commit: Option<String>,
    last_check: Value,
    reason: Option<String>,
    exit_code: Option<u8>,
    epoch: u64,
    /// The claims in a row that completed no iteration.
    failed_claims: Vec<FailedView>,
}

/// A claim that completed no iteration, for people and programs.
#[derive(Debug, serde::Serialize)]
struct FailedView {
    claim: u64,
    worker: String,
    at: String,
    cause: &'static str,
    text: String,
    #[serde(skip)]
    line: String,
}

impl FailedView {
    fn of(failed: &FailedClaim) -> Self {
        let at = u64::try_from(failed.at).unwrap_or_default();
        let at = rlm_text::time::utc(Timestamp::from_millis(at));
        let worker = plain(&failed.worker);
        let (claim, what) = (failed.epoch, describe(failed));
        Self {
            line: format!("claim {claim}, worker {worker}, {at}: {}", plain(&what)),
            claim,
            worker,
            at,
            cause: match failed.cause {
                FailureCause::Start => "start",
                FailureCause::Process => "process",
                FailureCause::NoAnswer => "no_answer",
            },
            text: failed.text.clone(),
        }
    }
}

/// Describes a failed claim in a line.
pub(super) fn describe(failed: &FailedClaim) -> String {
    let what = match failed.cause {
        FailureCause::Start => "the worker can't start the run",
        FailureCause::Process => "the process ended without an end of the run",
        FailureCause::NoAnswer => "no answer any more",
    };
    match failed.text.is_empty() {
        true => what.into(),
        false => format!("{what}: {}", failed.text.replace('\n', " | ")),
    }
}

impl RowView {
    pub(super) fn of(run: &RunId, last: &StoredRecord, state: &'static str) -> Self {
        let summary = last.summary.clone();
        let is_parked = last.facts.kind == RecordKind::Park;
        let reason = match (
            is_parked,
            summary.as_ref().and_then(|it| it.reason.as_ref()),
        ) {
            (true, _) => Some(why_parked(&last.failed).to_owned()),
            _ if state == "paused" => summary.as_ref().and_then(|it| it.paused.clone()),
            // Before its end, this is why an earlier worker stopped.
            (_, reason) => reason.filter(|_| last.is_over()).map(ToString::to_string),
        };
        let of = |value: Option<Value>| value.unwrap_or(Value::Null);
        Self {
            run: run.clone(),
            state,
            worker: last.worker().map(plain),
            pool: last.pool().map(plain),
            title: summary.as_ref().and_then(|it| it.title.clone()),
            phase: summary.as_ref().map(|it| it.phase.clone()),
            iteration: summary.as_ref().map_or(0, |it| it.iteration),
            attempts: summary.as_ref().map_or(0, |it| it.attempts),
            usage: of(summary.as_ref().map(|it| money::usage_json(it.usage))),
            commit: summary.as_ref().and_then(|it| it.commit.clone()),
            last_check: of(summary.as_ref().map(|it| json!(it.last_check))),
            reason,
            exit_code: last.is_over().then(|| code_of(last) as u8),
            epoch: last.facts.epoch,
            failed_claims: last.failed.iter().map(FailedView::of).collect(),
        }
    }
}

/// Returns why a run with these failed claims was parked.
fn why_parked(failed: &[FailedClaim]) -> &'static str {
    match failed.last() {
        Some(last) if last.cause == FailureCause::Start => "three workers can't start it",
        _ => "three claims in a row completed no iteration",
    }
}

impl fmt::Display for RowView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.run, self.state)?;
        if let Some(reason) = &self.reason {
            write!(f, ": {}", plain(reason))?;
        }
        write!(f, ", iteration {}", self.iteration)?;
        match &self.worker {
            Some(worker) if self.exit_code.is_none() => write!(f, ", worker {worker}")?,
            _ => {}
        }
        { self.failed_claims.iter() }.try_for_each(|failed| write!(f, "\n  {}", failed.line))
    }
}
