//! `rlm run`: starts a new run, or with `--resume-or-start` continues an existing one.

mod candidate;
mod ended_run;
mod login;

use std::path::Path;
use std::process::ExitCode;

use loop_runner::Runner;
use rlm_store::{Project, RunId, Settings, WorkingTreeLock};

use candidate::ResumeCandidate;

use crate::args::RunArgs;
use crate::command::{resume, screen};
use crate::config::{self, Layers, WatchedConfig};
use crate::detach;
use crate::exit::{Code, Failure};
use crate::programs;
use crate::render::{Configuration, DryRun, RunStart, Screen, StartedPrograms, print};
use crate::resolve;
use crate::resolve::Resolved;
use crate::session::{Session, refuse_nested};

pub(crate) fn execute(directory: &Path, mut args: RunArgs) -> Result<ExitCode, Failure> {
    if args.show.detach {
        return detach::start();
    }
    if let Some(goal) = args.goal.take() {
        args.config.prompt = Some(goal);
    }
    let session = Session::begin(args.show.no_input, args.show.detached)?;
    refuse_nested(args.nested)?;
    if args.resume_or_start {
        let what = std::mem::take(&mut args.config);
        let looked = session.prepare(candidate::find(directory, args.run_id.clone(), what))?;
        let (found, what) = looked;
        args.config = what;
        match found {
            ResumeCandidate::None => {}
            ResumeCandidate::Ended(over) => return Ok(over.print(&screen(&args.show))),
            ResumeCandidate::Resumable(run) => {
                return resume::restart(session, directory, args, &run);
            }
        }
    }
    start(session, directory, args)
}

/// Starts a new run.
pub(crate) fn start(
    session: Session,
    directory: &Path,
    args: RunArgs,
) -> Result<ExitCode, Failure> {
    if args.dry_run {
        return dry_run(&session, directory, args);
    }
    let screen = screen(&args.show);
    let directory = directory.to_owned();
    let run = args.run_id.clone().unwrap_or_else(new_id);
    let name = run.clone();
    let (project, resolved, own, words) = session.prepare(move || {
        let project = Project::find(&directory)?;
        project.refuse_tracked_state()?;
        let layers = Layers::read(project.root())?.with_environment(config::variable)?;
        let own = match &args.worktree {
            Some(named) => Some(named.clone().unwrap_or_else(|| name.clone())),
            None => layers
                .run()
                .config()
                .worktree
                .unwrap_or_default()
                .then(|| name.clone()),
        };
        let words = args.agent_command.clone();
        let resolved = resolve::new_run(args, &layers, project.root(), project.directory())?;
        resolved.settings.validate()?;
        Ok((project, resolved, own, words))
    })?;
    if resolved.settings.first_check {
        session.block_on(login::check(&resolved.settings))?;
    }
    let name = run.clone();
    let (project, resolved, beginning) = session.prepare(move || {
        let mut resolved = resolved;
        // Show only the programs of the file: the user typed the others, but the file came with the project.
        let shown = programs::of_project(&resolved.layers, &words, &project);
        let runs = project.runs()?.into_iter();
        let others: Vec<RunId> = runs
            .filter(|run| run.is_resumable())
            .map(|run| run.id)
            .collect();
        let settings = &mut resolved.settings;
        let (project, left_behind) = match own {
            Some(own) => own_tree(project, &own, &name, settings)?,
            None => {
                settings.worktree = project.worktree();
                (project, 0)
            }
        };
        let starts = StartedPrograms {
            all: programs::all(&resolved.settings, &resolved.watchers),
            shown,
            changes: Vec::new(),
        };
        let beginning = RunStart::New {
            others,
            uncommitted_files: left_behind,
            starts,
        };
        Ok((project, resolved, beginning))
    })?;
    begin(session, screen, &project, run, resolved, &beginning)
}

/// Shows the settings of a new run without starting it.
fn dry_run(session: &Session, directory: &Path, args: RunArgs) -> Result<ExitCode, Failure> {
    let (json, directory) = (args.show.json, directory.to_owned());
    let run = args.run_id.clone().unwrap_or_else(new_id);
    let (project, resolved, configuration, starts) = session.prepare(move || {
        let project = Project::find(&directory)?;
        project.refuse_tracked_state()?;
        let layers = Layers::read(project.root())?.with_environment(config::variable)?;
        let words = args.agent_command.clone();
        let resolved = resolve::new_run(args, &layers, project.root(), project.directory())?;
        resolved.settings.validate()?;
        let configuration = Configuration::of(&resolved.layers, &words, &project, false);
        let starts = programs::all(&resolved.settings, &resolved.watchers);
        Ok((project, resolved, configuration, starts))
    })?;
    let preview = Runner::preview(&project, run, resolved.settings);
    let (head, prompts) = session.block_on(preview)?;
    print(
        json,
        &DryRun::of(&project, &head, configuration, starts, prompts),
    );
    Ok(Code::Done.into())
}

/// Creates a worktree for a new run. Also returns the number of files with changes that the worktree doesn't have.
fn own_tree(
    project: Project,
    name: &RunId,
    run: &RunId,
    settings: &mut Settings,
) -> Result<(Project, usize), Failure> {
    let (worktree, left_behind) = project.add_worktree(name, run, settings.commit)?;
    settings.directory = worktree.path.join(project.within());
    let project = project.in_worktree(&worktree)?;
    settings.worktree = Some(worktree);
    Ok((project, left_behind))
}

/// Takes the working tree for a new run, and runs it.
pub(crate) fn begin(
    session: Session,
    screen: Screen,
    project: &Project,
    run: RunId,
    resolved: Resolved,
    beginning: &RunStart,
) -> Result<ExitCode, Failure> {
    let Resolved {
        settings,
        layers,
        presses,
        watchers,
    } = resolved;
    session.apply_config(&layers.run().config());
    let mut watched = WatchedConfig::new(layers, &settings);
    let made = session.block_on(async {
        let work_tree = WorkingTreeLock::take(project, &run, &session.gate()).await?;
        let options = session.options();
        let (runner, events) = Runner::create(work_tree, settings, options).await?;
        Ok::<_, loop_runner::Error>((runner.with_reload(move || watched.reload()), events))
    });
    let (runner, events) = made.map_err(|e| {
        let is_held = e.is_held();
        let mut failure = Failure::from(e);
        if is_held {
            failure.message += ", or run in a separate worktree: --worktree";
        }
        failure
    })?;
    let person = session.options().interactive;
    screen.begin(beginning, project, runner.head(), person);
    session.run_to_end(project, runner, events, screen, presses, &watchers)
}

/// Creates a run id that sorts by time. Two runs of one second get different ids.
pub(crate) fn new_id() -> RunId {
    let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("{time}-{}", &random[..4])
        .parse()
        .expect("digits, letters and dashes are a valid run id")
}
