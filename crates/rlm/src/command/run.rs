//! `rlm run`: a new run from what was typed, or with `--resume-or-start` the one that is there.

use std::path::Path;
use std::process::ExitCode;

use loop_runner::{Project, RunEntry, RunId, RunState, Runner, Settings, WorkTree};

use crate::agents::AgentKind;
use crate::args::{LoopArgs, ResumeArgs, RunArgs};
use crate::command::live::is_live;
use crate::command::over::Over;
use crate::command::{detach, resume};
use crate::config::{self, Layers, Watched};
use crate::exit::{Code, Failure};
use crate::render::{Beginning, Configuration, DryRun, Screen, print};
use crate::resolve::Resolved;
use crate::session::{Session, refuse_nested};
use crate::{render, resolve};

pub(crate) fn execute(directory: &Path, mut args: RunArgs) -> Result<ExitCode, Failure> {
    if args.show.detach {
        return detach::start();
    }
    let session = Session::begin(args.show.no_input, args.show.detached)?;
    refuse_nested(args.nested)?;
    if args.resume_or_start {
        let what = std::mem::take(&mut args.what);
        let looked = session.prepare(candidate(directory, args.run_id.clone(), what))?;
        let (found, what) = looked;
        args.what = what;
        match found {
            Candidate::None => {}
            Candidate::Over(over) => return Ok(over.tell(&args.show.screen())),
            Candidate::Goes(run, agent) => {
                return resume::carry_on(session, directory, resuming(args, &run, agent));
            }
        }
    }
    start(session, directory, args)
}

/// What `--resume-or-start` finds.
enum Candidate {
    None,
    Over(Over),
    /// One that is gone on with, and the agent that it has.
    Goes(RunId, Option<AgentKind>),
}

/// Looks for the run that `--resume-or-start` continues.
fn candidate(
    directory: &Path,
    named: Option<RunId>,
    what: LoopArgs,
) -> impl FnOnce() -> Result<(Candidate, LoopArgs), Failure> + Send + 'static {
    let directory = directory.to_owned();
    move || {
        let project = Project::find(&directory)?;
        let mut runs = project.runs()?;
        match &named {
            Some(name) => {
                runs.retain(|run| run.id == *name && run.state != RunState::Empty);
                if let Some(run) = runs.first() {
                    refuse(&project, run)?;
                    if let Some(over) = Over::of(run, &what) {
                        return Ok((Candidate::Over(over), what));
                    }
                }
            }
            None => {
                let newest = runs.iter().max_by_key(|run| {
                    let head = run.head.as_ref().ok();
                    head.map(|head| head.machine.started_at)
                });
                let moved = newest.and_then(|run| refuse_moved(run).err());
                let unfinished = newest.is_some_and(is_unfinished);
                runs.retain(|run| run.is_resumable() && !run.was_stopped_by_a_person());
                if let (Some(moved), true, true) = (moved, unfinished, runs.is_empty()) {
                    return Err(moved);
                }
            }
        }
        let found = match runs.len() {
            0 => Candidate::None,
            1 => {
                let RunEntry { id, head, .. } = runs.remove(0);
                let agent = head.map(|head| {
                    let at = head.machine.phase as usize;
                    AgentKind::of(&head.settings.phases[at].agent)
                });
                Candidate::Goes(id, agent.ok())
            }
            _ => {
                let names: Vec<String> = runs.iter().map(|run| run.id.to_string()).collect();
                return Err(Failure::usage(format!(
                    "several runs can be continued, name one with --run-id: {}",
                    names.join(", ")
                )));
            }
        };
        Ok((found, what))
    }
}

/// Refuses a run that goes on elsewhere, as a resume does.
fn refuse_moved(run: &RunEntry) -> Result<(), Failure> {
    let head = run.head.as_ref().ok();
    match head.and_then(|head| head.moved.as_ref()) {
        Some(moved) => Err(resume::moved_away(&run.id, moved)),
        None => Ok(()),
    }
}

/// Returns whether it was stopped or cut, wherever it goes on.
fn is_unfinished(run: &RunEntry) -> bool {
    let head = run.head.as_ref();
    head.is_ok_and(|head| {
        let end = head.machine.end.as_ref();
        end.is_none_or(|end| end.reason.is_stopped())
    })
}

/// Refuses a run that a process has, one that goes on elsewhere, and one that a person stopped.
fn refuse(project: &Project, run: &RunEntry) -> Result<(), Failure> {
    let (id, rlm) = (&run.id, render::rlm());
    if is_live(run) {
        let pid = project.holder(id).map(|holder| holder.process.pid);
        let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
        return Err(Failure::held(format!(
            "run `{id}` is at work{pid}; nothing was changed"
        )));
    }
    refuse_moved(run)?;
    match run.was_stopped_by_a_person() {
        true => Err(Failure::new(
            Code::Stopped,
            format!(
                "run `{id}` was stopped by a person, who alone continues it: {rlm} resume {id}"
            ),
        )),
        false => Ok(()),
    }
}

/// The same wishes for a run that exists: its prompt and its agent are its own, and what is said to another agent is not said to it.
fn resuming(mut args: RunArgs, run: &RunId, agent: Option<AgentKind>) -> ResumeArgs {
    if args.agent.is_some() && args.agent != agent {
        args.what.model = None;
        args.what.agent_bin = None;
    }
    ResumeArgs {
        feedback: None,
        dry_run: false,
        run: Some(run.to_string()),
        agent: None,
        what: LoopArgs {
            prompt: None,
            prompt_file: None,
            ..args.what
        },
        show: args.show,
        from: None,
        force: false,
        nested: args.nested,
        agent_command: Vec::new(),
    }
}

/// Starts a new run.
pub(crate) fn start(
    session: Session,
    directory: &Path,
    args: RunArgs,
) -> Result<ExitCode, Failure> {
    if args.dry_run {
        return dry(&session, directory, args);
    }
    let screen = args.show.screen();
    let directory = directory.to_owned();
    let run = args.run_id.clone().unwrap_or_else(new_id);
    let name = run.clone();
    let (project, resolved, beginning) = session.prepare(move || {
        let project = Project::find(&directory)?;
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
        let mut resolved = resolve::new_run(args, &layers, project.root(), project.directory())?;
        resolved.settings.validate()?;
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
        let beginning = Beginning::New {
            others,
            left_behind,
        };
        Ok((project, resolved, beginning))
    })?;
    begin(session, screen, &project, run, resolved, &beginning)
}

/// Shows what a new run would be.
fn dry(session: &Session, directory: &Path, args: RunArgs) -> Result<ExitCode, Failure> {
    let (json, directory) = (args.show.json, directory.to_owned());
    let run = args.run_id.clone().unwrap_or_else(new_id);
    let (project, resolved, said) = session.prepare(move || {
        let project = Project::find(&directory)?;
        let layers = Layers::read(project.root())?.with_environment(config::variable)?;
        let words = args.agent_command.clone();
        let resolved = resolve::new_run(args, &layers, project.root(), project.directory())?;
        resolved.settings.validate()?;
        let said = Configuration::of(&resolved.layers, &words, &project, false);
        Ok((project, resolved, said))
    })?;
    let preview = Runner::preview(&project, run, resolved.settings);
    let (head, prompts) = session.block_on(preview)?;
    print(json, &DryRun::of(&project, &head, said, prompts));
    Ok(Code::Done.into())
}

/// Gives a new run a working tree of its own; says how many files have changes that are not in it.
fn own_tree(
    project: Project,
    name: &RunId,
    run: &RunId,
    settings: &mut Settings,
) -> Result<(Project, usize), Failure> {
    let within = project.directory().strip_prefix(project.tree());
    let within = within.unwrap_or(Path::new("")).to_owned();
    let (worktree, left_behind) = project.add_worktree(name, run, settings.commit)?;
    // A directory that git does not have is not there.
    let directory = worktree.path.join(within);
    fs_err::create_dir_all(&directory).map_err(|e| Failure::usage(e.to_string()))?;
    settings.directory = directory;
    let project = project.in_worktree(&worktree)?;
    settings.worktree = Some(worktree);
    Ok((project, left_behind))
}

/// Takes the working tree for a run that is new, and carries it out.
pub(crate) fn begin(
    session: Session,
    screen: Screen,
    project: &Project,
    run: RunId,
    resolved: Resolved,
    beginning: &Beginning,
) -> Result<ExitCode, Failure> {
    let Resolved {
        settings,
        layers,
        presses,
        watchers,
    } = resolved;
    let mut watched = Watched::new(layers, &settings);
    let made = session.block_on(async {
        let work_tree = WorkTree::take(project, &run, &session.gate()).await?;
        let options = session.options();
        let (runner, news) = Runner::create(work_tree, settings, options).await?;
        Ok::<_, loop_runner::Error>((runner.with_reload(move || watched.look()), news))
    });
    let (runner, news) = made.map_err(|e| {
        let is_held = e.is_held();
        let mut failure = Failure::from(e);
        if is_held {
            failure.message += ", or give this run a tree of its own: --worktree";
        }
        failure
    })?;
    let person = session.options().interactive;
    screen.begin(beginning, project, runner.head(), person);
    session.carry_out(project, runner, news, screen, presses, &watchers)
}

/// Makes a name that sorts by time and that two runs of one second don't share.
pub(crate) fn new_id() -> RunId {
    let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("{time}-{}", &random[..4])
        .parse()
        .expect("digits, letters and dashes make a name")
}
