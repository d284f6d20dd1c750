//! `rlm resume`: finds the run, refuses a resume that has no effect, asks the necessary questions, and continues the run.

use std::path::Path;
use std::process::ExitCode;

use agent_drivers::AgentConfig;
use loop_runner::control::LiveRun;
use loop_runner::{Runner, RunnerOptions};
use loop_state::{Request, ResumeOptions, ResumeRefusal, RuleChange};
use rlm_store::{DataLoss, Project, RunEntry, RunHead, RunId, Settings, Transfer, WorkingTreeLock};

use crate::args::{ResumeArgs, RunArgs};
use crate::command::fleet::FleetRun;
use crate::command::live;
use crate::command::target::Target;
use crate::command::{control, pick, screen, select};
use crate::config::{self, Config, Layers, WatchedConfig};
use crate::detach;
use crate::exit::{Code, Failure};
use crate::hint;
use crate::observers::RunObservers;
use crate::programs;
use crate::render::{DryRun, RedoQuestion, RunStart, StartedPrograms};
use crate::session::{Session, refuse_nested};
use crate::{render, resolve};

pub(crate) fn execute(directory: &Path, mut args: ResumeArgs) -> Result<ExitCode, Failure> {
    if let Some(target) = FleetRun::named(directory, args.run.as_deref())? {
        return resume_in_fleet(&target, &args);
    }
    args.run = choose(directory, &args)?;
    if args.dry_run {
        let session = Session::begin(args.show.no_input, false)?;
        return dry_run(&session, directory, args);
    }
    // A detached process skips this check: its parent has made the check already, and this process must first close inherited descriptors.
    if !args.show.detached
        && let Some((target, request)) = find_waiting_run(directory, &args)?
    {
        let target = Target::Here(Box::new(target));
        return control::request(&target, &request, args.show.json, None);
    }
    if args.show.detach {
        return detach::start();
    }
    let session = Session::begin(args.show.no_input, args.show.detached)?;
    refuse_nested(args.nested)?;
    continue_run(session, directory, args, None)
}

/// Continues a run of the fleet: it continues there, on a worker.
fn resume_in_fleet(target: &FleetRun, args: &ResumeArgs) -> Result<ExitCode, Failure> {
    live::refuse_own_agent(target.run())?;
    let is_same = args.config == Config::default() && args.agent.is_none();
    if !is_same || args.from.is_some() || args.feedback.is_some() || !args.agent_command.is_empty()
    {
        let (run, rlm) = (target.run(), hint::program_command());
        return Err(Failure::usage(format!(
            "run `{run}` is a run of the fleet, and these options have no effect there; to change limits: {rlm} fleet resume {run} KEY=VALUE"
        )));
    }
    target.resume(&[], args.show.json)
}

/// Returns the run of the command line, or the run that a person chose because several are possible.
fn choose(directory: &Path, args: &ResumeArgs) -> Result<Option<String>, Failure> {
    let show = &args.show;
    // The process in the background gets the command line of this process.
    let asks = !(show.json || show.no_input || show.detach || show.detached);
    let name = args.run.as_deref();
    pick::chosen(directory, asks, name, || {
        let project = Project::find(directory)?;
        match name {
            Some(name) => select::run_id(&project, name).map(drop),
            None if find_waiting_run(directory, args)?.is_some() => Ok(()),
            None => select::resumable(&project, None).map(drop),
        }
    })
}

/// Finds the run to resume if it is live and waits for a person (or will soon), or waits for the service of its agent. Such a run continues in its
/// own process. Also returns the request that continues it.
fn find_waiting_run(
    directory: &Path,
    args: &ResumeArgs,
) -> Result<Option<(LiveRun, Request)>, Failure> {
    let project = Project::find(directory)?;
    let request = |run: &RunEntry| {
        let head = run.head.as_ref().ok().filter(|_| run.is_live())?;
        head.machine.woken_by()
    };
    let run = match &args.run {
        // If the run doesn't exist, the resume itself reports that.
        Some(name) => select::of_any_project(project, name)
            .ok()
            .map(|(_, run)| run),
        None => {
            // Only a live run waits, and the lock shows that without its saved head.
            let mut live = project.run_ids()?;
            live.retain(|id| project.is_live(id));
            let runs = live.iter().filter_map(|id| project.run(id).ok());
            let mut runs: Vec<RunEntry> = runs.filter(|run| request(run).is_some()).collect();
            runs.sort_by_key(|run| run.last_at);
            if runs.len() > 1 {
                return Err(select::several("wait", &runs));
            }
            runs.pop()
        }
    };
    let Some((request, run)) = run.and_then(|run| Some((request(&run)?, run))) else {
        return Ok(None);
    };
    if args.feedback.is_some() {
        let (id, rlm) = (&run.id, hint::program_command());
        return Err(Failure::usage(format!(
            "run `{id}` is live: use {rlm} steer {id} TEXT, then {rlm} resume {id}"
        )));
    }
    let is_same = args.config == Config::default() && args.agent.is_none();
    if !is_same || args.from.is_some() || !args.agent_command.is_empty() {
        let (id, rlm) = (&run.id, hint::program_command());
        return Err(Failure::usage(format!(
            "run `{id}` is live and continues unchanged; options need a stopped run: {rlm} stop {id}"
        )));
    }
    live::find(directory, Some(run.id.as_str())).map(|target| Some((target, request)))
}

/// A run to continue, with the settings of its resume.
struct PreparedResume {
    project: Project,
    run: RunId,
    settings: Option<Settings>,
    from: Option<u32>,
    /// The previous agent, if another one continues.
    before: Option<AgentConfig>,
    layers: Layers,
    feedback: Option<String>,
    /// The question before work is repeated, if it is not answered yet.
    redo: Option<RedoQuestion>,
    watchers: RunObservers,
    starts: StartedPrograms,
}

/// Shows what a resume would do.
fn dry_run(session: &Session, directory: &Path, args: ResumeArgs) -> Result<ExitCode, Failure> {
    let (json, directory) = (args.show.json, directory.to_owned());
    let person = session.options().interactive;
    let (name, asks) = (args.run.clone(), person && !args.show.detach);
    let PreparedResume {
        project,
        run,
        settings,
        from,
        before,
        feedback,
        redo,
        starts,
        ..
    } = session.prepare(move || {
        let project = Project::find(&directory)?;
        project.refuse_tracked_state()?;
        let run = select::resumable(&project, name.as_deref())?;
        if run.is_live() {
            let (id, rlm) = (&run.id, hint::program_command());
            return Err(Failure::held(format!(
                "run `{id}` is live; details: {rlm} status {id}"
            )));
        }
        prepare(&directory, args, None, asks)
    })?;
    let rehearsed = Runner::preview_resume(&project, &run, settings, from, feedback, person);
    let rehearsed = session.block_on(rehearsed)?;
    let programs = starts.all;
    // The programs have their own section.
    let beginning = beginning(&rehearsed.head, from, before, StartedPrograms::default());
    let shown = DryRun::resumed(&project, &rehearsed, &beginning, programs, redo.as_ref());
    render::print(json, &shown);
    Ok(Code::Done.into())
}

fn beginning(
    head: &RunHead,
    from: Option<u32>,
    before: Option<AgentConfig>,
    starts: StartedPrograms,
) -> RunStart {
    let point = head.machine.resume_point();
    RunStart::Resumed {
        at: from.unwrap_or(point.iteration),
        discarded: from.is_some(),
        cut: point.is_unfinished,
        before,
        starts,
    }
}

/// Continues the run that `--resume-or-start` found, with its command line.
pub(crate) fn restart(
    session: Session,
    directory: &Path,
    mut line: RunArgs,
    run: &RunId,
) -> Result<ExitCode, Failure> {
    let more = line.config.max_iterations;
    let args = ResumeArgs {
        feedback: None,
        dry_run: false,
        run: Some(run.to_string()),
        agent: None,
        config: Config {
            max_iterations: more,
            ..Config::default()
        },
        show: std::mem::take(&mut line.show),
        from: None,
        force: false,
        nested: line.nested,
        agent_command: Vec::new(),
    };
    continue_run(session, directory, args, Some(line))
}

/// Continues the run.
fn continue_run(
    session: Session,
    directory: &Path,
    args: ResumeArgs,
    line: Option<RunArgs>,
) -> Result<ExitCode, Failure> {
    let screen = screen(&args.show);
    let directory = directory.to_owned();
    let (asks, is_detached) = (session.options().interactive, args.show.detached);
    let take_back = args.force;
    let PreparedResume {
        project,
        run,
        settings,
        from,
        before,
        layers,
        feedback,
        redo: _,
        watchers,
        starts,
    } = session.prepare(move || prepare(&directory, args, line, asks))?;
    let config = layers.run().config();
    session.apply_config(&config);
    let options = RunnerOptions {
        take_back,
        new_settings: settings,
        from_iteration: from,
        ..session.options()
    };
    let presses = config.on_press.unwrap_or_default();
    let (runner, events) = session.block_on(async {
        let work_tree = WorkingTreeLock::take(&project, &run, &session.gate()).await?;
        let opened = Runner::open(work_tree, options).await;
        let (runner, events) = opened?;
        let runner = match feedback {
            Some(text) => runner.with_feedback(text)?,
            None => runner,
        };
        let mut watched = WatchedConfig::new(layers, &runner.head().settings);
        let runner = runner.with_reload(move || watched.reload());
        Ok::<_, loop_runner::Error>((runner, events))
    })?;
    if let Some(lost) = runner.loss().filter(|_| is_detached) {
        // Later output goes to a file of the run, but this warning is for the person who started the run.
        anstream::eprintln!("{}", render::warning(lost));
    }
    let beginning = beginning(runner.head(), from, before, starts);
    let person = session.options().interactive;
    screen.begin(&beginning, &project, runner.head(), person);
    session.run_to_end(&project, runner, events, screen, presses, &watchers)
}

/// Returns the error for a run that was transferred.
pub(crate) fn transferred_error(run: &RunId, moved: &Transfer) -> Failure {
    let (at, rlm) = (rlm_text::time::utc(moved.at), hint::program_command());
    let to = match moved.to.as_str() {
        "-" => "another place".to_owned(),
        file => format!("`{file}`"),
    };
    Failure::usage(format!(
        "run `{run}` was transferred to {to} at {at} and continues there; to continue it here instead: {rlm} resume {run} --force"
    ))
}

/// Finds the run and creates the settings of the resume, from the arguments or from the command line of a run. If work would be repeated and a
/// person can be asked, asks first.
fn prepare(
    directory: &Path,
    args: ResumeArgs,
    line: Option<RunArgs>,
    asks: bool,
) -> Result<PreparedResume, Failure> {
    let (from, feedback) = (args.from, args.feedback);
    let feedback = feedback.map(control::message_text).transpose()?;
    let project = Project::find(directory)?;
    project.refuse_tracked_state()?;
    let chosen = select::resumable(&project, args.run.as_deref())?;
    let redo = RedoQuestion::of(&chosen).filter(|_| from.is_none());
    let RunEntry {
        id: run,
        head,
        loss,
        ..
    } = chosen;
    let saved = head.map_err(|why| {
        Failure::failed(format!(
            "run `{run}` can't be resumed: {why}; for a safe next command: {} checkpoints verify {run}",
            hint::program_command()
        ))
    })?;
    if let Some(moved) = saved.transfer.as_ref().filter(|_| !args.force) {
        return Err(transferred_error(&run, moved));
    }
    let most = args.config.max_iterations.map(Into::into);
    refuse_pointless(&saved, loss.as_ref(), from, most)?;
    match &redo {
        // A dry run doesn't ask; it shows that the resume would ask.
        Some(_) if args.dry_run && asks => {}
        Some(redo) => accept(redo, asks)?,
        None => {}
    }
    let typed_in = project.directory().to_owned();
    let project = match &saved.settings.worktree {
        Some(own) => project.in_worktree(own)?,
        None => project.in_project_tree(),
    };
    let layers = Layers::read(project.root())?;
    let (nearest, settings, changes) = match line {
        None => {
            // A resume keeps the agent of the run.
            let variable = |name: &str| config::variable(name).filter(|_| name != "RLM_AGENT");
            let layers = layers.with_environment(variable)?;
            let nearest = layers.clone().with_options(&args.config)?;
            let given = resolve::ResumeInput {
                agent: args.agent,
                what: args.config,
                agent_command: args.agent_command,
                layers: &layers,
                root: project.root(),
                directory: project.directory(),
            };
            let settings = resolve::resumed(given, &saved.settings)?;
            (nearest, settings, Vec::new())
        }
        Some(line) => {
            let layers = layers.with_environment(config::variable)?;
            let layers = layers.with_flags(&line)?;
            let line = resolve::RestartInput {
                run: run.as_str(),
                args: &line,
                layers: &layers,
                root: project.root(),
                directory: &typed_in,
                tree: project.tree(),
                // If the saved prompts are lost, the comparison treats every prompt as changed.
                prompts: &project.prompts(&saved).unwrap_or_default(),
            };
            let settings = resolve::restarted(&line, &saved.settings)?;
            let changes = settings.as_ref();
            let changes = changes.map(|now| render::changes(&saved.settings, now));
            (layers, settings, changes.unwrap_or_default())
        }
    };
    let tree = nearest.run();
    let watchers = RunObservers::of(&tree, project.root(), project.directory());
    watchers.refuse_unusable(&tree)?;
    let all = programs::all(settings.as_ref().unwrap_or(&saved.settings), &watchers);
    let starts = StartedPrograms {
        shown: all.clone(),
        all,
        changes,
    };
    let at = saved.machine.phase as usize;
    let was = &saved.settings.phases[at].agent;
    let changes = |settings: &Settings| !settings.phases[at].agent.is_same(was);
    let begun = saved.machine.counts.attempts > 0;
    let before = settings
        .as_ref()
        .is_some_and(changes)
        .then(|| was.clone())
        .filter(|_| begun);
    Ok(PreparedResume {
        project,
        run,
        settings,
        from,
        before,
        layers: nearest,
        feedback,
        redo,
        watchers,
        starts,
    })
}

/// Asks a person whether to repeat work that was complete before the damage; without a person the answer is no.
fn accept(redo: &RedoQuestion, asks: bool) -> Result<(), Failure> {
    if asks {
        anstream::eprint!("{}", redo.question());
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        if read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
            return Ok(());
        }
    }
    Err(Failure::usage(redo.refusal()))
}

/// Refuses a resume that the rules of the run don't allow. The error names the options.
fn refuse_pointless(
    saved: &RunHead,
    loss: Option<&DataLoss>,
    from: Option<u32>,
    most: Option<u32>,
) -> Result<(), Failure> {
    let (run, machine) = (&saved.run, &saved.machine);
    let most = most.map(|most| RuleChange::MaxIterations(Some(most)));
    let rules = most.and_then(|most| machine.rules.with(machine.phase, &most).ok());
    let reached = loss.and_then(|loss| loss.last_transcript);
    let resume = ResumeOptions {
        rules,
        from_iteration: from,
        last_begun_iteration: reached,
        ..ResumeOptions::default()
    };
    let Err(refusal) = machine.may_resume(&resume) else {
        return Ok(());
    };
    let from = from.unwrap_or_default();
    Err(Failure::usage(match refusal {
        ResumeRefusal::Over(reason) => {
            let more = hint::extend_hint(run, &reason);
            let more = more.map_or_else(String::new, |more| format!("; for more: {more}"));
            format!("run `{run}` has ended: {reason}; there is nothing to resume{more}")
        }
        ResumeRefusal::BetweenPhases => format!(
            "--from {from}: run `{run}` is between two phases, and `{}` has not begun; without --from you can review the finished phase, and start it over",
            machine.phase_rules().name
        ),
        ResumeRefusal::Ahead { last } => format!(
            "--from {from}: run `{run}` is only at iteration {last}; use this number or a lower one"
        ),
        refusal => format!("run `{run}` can't be resumed: {refusal}"),
    }))
}
