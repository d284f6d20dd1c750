//! `rlm fleet init` and `rlm fleet run`: create a fleet, and submit a run to it.

use std::path::Path;
use std::process::ExitCode;

use loop_runner::Runner;
use rlm_fleet::nats::{Asset, AssetState, FleetOptions, NewRun, RunSummary, Submitted};
use rlm_store::{Project, PromptSource, RunId, Settings, WorkingTreeLock};

use super::server::on_fleet;
use super::staged::StagedProject;
use crate::args::{FleetInitArgs, FleetRunArgs, RunArgs};
use crate::command::run::new_id;
use crate::config::{self, Layers};
use crate::exit::{Code, Failure};
use crate::session::{Session, refuse_nested};
use crate::{hint, output, resolve};

pub(crate) fn init(args: &FleetInitArgs) -> Result<ExitCode, Failure> {
    if ![1, 3].contains(&args.replicas) {
        return Err(Failure::usage("--replicas: expected 1 or 3"));
    }
    let pools = args.pools.iter().map(|name| name.parse());
    let options = FleetOptions {
        replicas: args.replicas,
        lease: args.lease,
        pools: pools.collect::<Result<_, _>>()?,
    };
    let session = Session::begin(true, false)?;
    let assets = on_fleet(&args.server, &session, async |fleet| {
        fleet.init(&options).await
    })?;
    for Asset { name, state } in assets {
        let state = match state {
            AssetState::Created => "created",
            AssetState::Changed => "changed",
            AssetState::Unchanged => "unchanged",
        };
        output::line(&format!("{name}: {state}"));
    }
    Ok(Code::Done.into())
}

pub(crate) fn execute(directory: &Path, args: FleetRunArgs) -> Result<ExitCode, Failure> {
    let FleetRunArgs { server, pool, run } = args;
    refuse_options_of_a_local_run(&run)?;
    let session = Session::begin(true, false)?;
    refuse_nested(run.nested)?;
    let (name, json) = (run.run_id.clone().unwrap_or_else(new_id), run.show.json);
    let pool = pool.parse()?;
    let directory = directory.to_owned();
    let (project, settings) = session.prepare(move || settings(&directory, run))?;
    let (commit, bundle) = session.prepare({
        let project = project.clone();
        move || code(&project)
    })?;
    let place = StagedProject::new()?;
    let saved = session.block_on(async {
        let staged = Project::find(&place.0)?;
        let lock = WorkingTreeLock::take(&staged, &name, &session.gate()).await?;
        let root = project.root().to_owned();
        let head = Runner::save_new(&lock, settings, root).await?;
        drop(lock);
        Ok::<_, loop_runner::Error>((staged, head))
    });
    let (staged, head) = saved?;
    let packed = name.clone();
    let base = session.prepare(move || Ok(staged.pack_state(&packed, Vec::new())?))?;
    let new = NewRun {
        run: name.clone(),
        pool,
        base,
        code: Some((commit, bundle)),
        summary: RunSummary::of(&head),
    };
    let submitted = on_fleet(&server, &session, async |fleet| fleet.submit(new).await);
    let submitted = submitted.map_err(|e| match e.is_unavailable() {
        // Under its name, it stays one run.
        true => Failure::failed(format!("{e}; to submit the same run: --run-id {name}")),
        false => e.into(),
    })?;
    report(&name, submitted, json)
}

fn report(run: &RunId, submitted: Submitted, json: bool) -> Result<ExitCode, Failure> {
    let rlm = hint::program_command();
    if submitted == Submitted::Exists {
        return Err(Failure::held(format!(
            "the fleet already has a run `{run}`, which stays as it is; to wait for it: {rlm} fleet wait {run}"
        )));
    }
    output::line(&match json {
        true => serde_json::json!({"run": run, "state": "queued"}).to_string(),
        false => format!(
            "run {run} is submitted\n  wait     {rlm} fleet wait {run}\n  list     {rlm} fleet ps\n  result   {rlm} fleet fetch {run}"
        ),
    });
    Ok(Code::Done.into())
}

/// Refuses the options of `rlm run` that have no effect in a fleet.
fn refuse_options_of_a_local_run(args: &RunArgs) -> Result<(), Failure> {
    let options = [
        (args.worktree.is_some(), "--worktree"),
        (args.resume_or_start, "--resume-or-start"),
        (args.dry_run, "--dry-run"),
        (args.show.detach || args.show.detached, "--detach"),
    ];
    match options.iter().find(|(is_given, _)| *is_given) {
        Some((_, name)) => Err(Failure::usage(format!(
            "{name} has no effect in a fleet: leave it out"
        ))),
        None => Ok(()),
    }
}

/// Returns the project, and the settings of the run. Its prompts are texts, because a worker may not have the files.
fn settings(directory: &Path, mut args: RunArgs) -> Result<(Project, Settings), Failure> {
    if let Some(goal) = args.goal.take() {
        args.config.prompt = Some(goal);
    }
    let project = Project::find(directory)?;
    project.refuse_tracked_state()?;
    let layers = Layers::read(project.root())?.with_environment(config::variable)?;
    let resolved = resolve::new_run(args, &layers, project.root(), project.directory())?;
    let mut settings = resolved.settings;
    settings.validate()?;
    for phase in &mut settings.phases {
        if let PromptSource::File(path) = &phase.prompt {
            phase.prompt = PromptSource::Text(rlm_store::read_prompt(path)?);
        }
    }
    // The successor of a worker continues from the last commit.
    settings.commit = true;
    Ok((project, settings))
}

/// Returns the current commit, and a bundle with its history.
pub(super) fn code(project: &Project) -> Result<(String, Vec<u8>), Failure> {
    let git = project.git();
    let usage = |why: &str| {
        Failure::usage(format!(
            "can't submit `{}`: {why}",
            project.tree().display()
        ))
    };
    if git.top().is_none() {
        return Err(usage("it is not a git repository: git init, and commit"));
    }
    let changes = git.query(&["status", "--porcelain"]);
    if changes.is_none_or(|changes| !changes.is_empty()) {
        return Err(usage(
            "workers get only what is committed: commit its files",
        ));
    }
    let commit = git.query(&["rev-parse", "--verify", "--quiet", "HEAD"]);
    let commit =
        commit.ok_or_else(|| usage("the repository has no commit yet: commit its files"))?;
    let bundle = project.bundle_commit(&commit, None)?;
    let bundle = bundle.ok_or_else(|| usage("its commit has no history"))?;
    Ok((commit, bundle))
}
