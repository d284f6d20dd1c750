//! The banner: lines that describe a run before it starts.

use agent_drivers::{AgentConfig, AgentOptions};
use agent_duplex::Permissions;
use loop_state::{Autonomy, SessionPolicy};
use rlm_store::{PhaseSettings, Program, Project, RunHead, RunId};
use rlm_text::count;
use rlm_text::duration::show;
use rlm_text::escape::plain;
use serde_json::{Value, json};

use crate::agents;
use crate::hint::program_command;
use crate::render::programs::{self, visible};
use crate::render::{Change, Phases};
use crate::saved_settings;

/// The column in which the text of each banner line begins, after its label.
pub(crate) const TEXT_AT: usize = 8;

/// The programs and changes that the banner shows.
#[derive(Debug, Default)]
pub(crate) struct StartedPrograms {
    /// All programs of the run.
    pub(crate) all: Vec<Program>,
    /// The programs that people see before the run begins; for a new run, only those that they did not type themselves.
    pub(crate) shown: Vec<Program>,
    /// The saved settings that a resume replaces.
    pub(crate) changes: Vec<Change>,
}

/// The way in which a run begins in this process.
#[derive(Debug)]
pub(crate) enum RunStart {
    /// A new run.
    New {
        /// The runs that could be resumed instead.
        others: Vec<RunId>,
        /// The number of files with changes that the worktree doesn't have.
        uncommitted_files: usize,
        starts: StartedPrograms,
    },
    /// A saved run that continues.
    Resumed {
        /// The iteration at which it continues.
        at: u32,
        /// Whether that iteration and all later ones are discarded.
        discarded: bool,
        /// Whether its last attempt is unfinished.
        cut: bool,
        /// The previous agent, if another one continues.
        before: Option<AgentConfig>,
        starts: StartedPrograms,
    },
}

impl RunStart {
    /// Creates the beginning of a new run in the project's own working tree.
    pub(crate) fn new(others: Vec<RunId>) -> Self {
        let left_behind = 0;
        Self::New {
            others,
            uncommitted_files: left_behind,
            starts: StartedPrograms::default(),
        }
    }

    fn starts(&self) -> &StartedPrograms {
        match self {
            Self::New { starts, .. } | Self::Resumed { starts, .. } => starts,
        }
    }
}

/// How a person can stop the run that the banner describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// By keys, with a menu.
    Keys,
    /// By a signal: nobody can press keys.
    Signals,
    /// By another command: the run is in the background.
    Commands,
    /// Not at all: it is a dry run, which leaves no log either.
    DryRun,
}

/// Returns the lines before the first iteration, with the banner last.
pub(crate) fn lines(
    beginning: &RunStart,
    project: &Project,
    head: &RunHead,
    control: Control,
) -> Vec<String> {
    let person = control == Control::Keys;
    let mut lines = Vec::new();
    match beginning {
        RunStart::New { others, .. } => {
            match others.as_slice() {
                [] => {}
                [one] => lines.push(format!(
                    "run {one} can be resumed instead: {} resume {one}",
                    program_command()
                )),
                [.., last] => lines.push(format!(
                    "{} runs can be resumed instead; the newest: {} resume {last}",
                    others.len(),
                    program_command()
                )),
            }
            if project.git().top().is_none() {
                let note =
                    "note    not in a git repository: the agent's changes can't be shown or undone";
                lines.push(note.into());
            }
        }
        RunStart::Resumed {
            at,
            discarded,
            cut,
            before,
            starts,
        } => {
            let why = match (discarded, cut) {
                (true, _) => "discarding this iteration and all later ones".to_owned(),
                (_, true) => format!("unfinished in attempt {}", head.machine.attempt),
                _ if head.machine.is_checking() => {
                    "whose turn ended: the required checks and the check are next".to_owned()
                }
                _ => {
                    let complete = head.machine.iterations_complete() as usize;
                    format!("{} complete", count(complete, "iteration", "iterations"))
                }
            };
            let session = head.machine.session.as_ref();
            let phase = current_phase(head);
            let continues = phase.session == SessionPolicy::Continue
                || (*cut && phase.agent.has_durable_sessions());
            let session = session.filter(|_| continues && before.is_none());
            let session = session.map_or_else(String::new, |id| format!(", in session {id}"));
            lines.push(format!(
                "resuming run {}{} at iteration {at}, {why}{session}",
                head.run,
                Phases::from(&head.machine).position_text()
            ));
            lines.extend(before.as_ref().map(|before| handover(before, head)));
            let changes = starts.changes.iter();
            lines.extend(changes.map(|change| format!("changed {change}")));
        }
    }
    let programs = beginning.starts().shown.iter();
    lines.extend(programs.map(|it| format!("starts  {}", programs::line(it))));
    if let Some(own) = &head.settings.worktree {
        let base: String = own.base.chars().take(12).collect();
        let left = match beginning {
            RunStart::New {
                uncommitted_files: 0,
                ..
            }
            | RunStart::Resumed { .. } => String::new(),
            RunStart::New {
                uncommitted_files: left_behind,
                ..
            } => format!(
                "; excludes your {}",
                count(*left_behind, "uncommitted file", "uncommitted files")
            ),
        };
        lines.push(format!(
            "tree    {}, branch {} from {base}{left}",
            own.path.display(),
            own.branch
        ));
    }
    let all = &head.settings.phases;
    let phase = current_phase(head);
    let turns = all.iter().map(|phase| phase.limits.iteration_timeout);
    let turn = turns
        .collect::<Option<Vec<_>>>()
        .and_then(|it| it.into_iter().max());
    let turn = turn.map_or("unlimited time".into(), show);
    let total = head
        .settings
        .limits
        .max_duration
        .map_or(String::new(), |d| format!(", {} in total", show(d)));
    let run = &head.run;
    lines.extend(ends(head, person));
    lines.extend([
        format!("limits  {turn} per turn{total}; {}", money(head)),
        format!(
            "agent   {}: {}, in {}",
            visible(&agents::name(&phase.agent)),
            permission_text(phase),
            head.settings.directory.display()
        ),
    ]);
    let rlm = program_command();
    let stop = match control {
        Control::Keys => Some(format!(
            "keys    Ctrl-C: menu, Enter: message the agent, /help; closing the terminal saves and stops; to continue: {rlm} resume"
        )),
        Control::Commands => Some(format!(
            "stop    {rlm} stop {run}, or SIGTERM, saves and stops; then: {rlm} resume {run}"
        )),
        Control::Signals => Some(format!(
            "stop    Ctrl-C or SIGTERM saves and stops; then: {rlm} resume {run}"
        )),
        Control::DryRun => None,
    };
    if let Some(stop) = stop {
        let log = project.run_dir(run).join("transcripts");
        lines.extend([stop, format!("log     {}", log.display())]);
    }
    lines.iter().map(|line| plain(line)).collect()
}

/// Returns the settings of the current phase.
fn current_phase(head: &RunHead) -> &PhaseSettings {
    &head.settings.phases[head.machine.phase as usize]
}

/// Returns the stop conditions of the run, and of each of several phases.
fn ends(head: &RunHead, person: bool) -> Vec<String> {
    let phases = &head.settings.phases;
    if let [only] = phases.as_slice() {
        return vec![format!("ends    {}{}", end(only), asks(head, person))];
    }
    let each = phases.iter().enumerate().map(|(index, phase)| {
        let name = if index == 0 { "phases" } else { "" };
        let here = if index == head.machine.phase as usize && index > 0 {
            "  <- here"
        } else {
            ""
        };
        let agent = visible(&agents::name(&phase.agent));
        format!(
            "{name:<7} {} {}, {agent}: {}{here}",
            index + 1,
            phase.name,
            end(phase)
        )
    });
    let last = format!("ends    with phase {}{}", phases.len(), asks(head, person));
    each.chain([last]).collect()
}

/// Returns where the run asks a person.
fn asks(head: &RunHead, person: bool) -> String {
    match head.settings.rules().autonomy {
        _ if !person => String::new(),
        Autonomy::Checkpoint if head.settings.phases.len() > 1 => {
            "; you review each phase before the next one".into()
        }
        Autonomy::Batch(size) => format!("; you review the work after each {size} iterations"),
        _ => String::new(),
    }
}

/// Returns the stop condition of a phase.
fn end(phase: &PhaseSettings) -> String {
    let count = phase.limits.max_iterations.map(|n| match n {
        1 => "1 iteration".to_owned(),
        n => format!("{n} iterations"),
    });
    let count = count.unwrap_or_else(|| "any number of iterations".to_owned());
    match (phase.check.as_deref().map(visible), &phase.promise) {
        (Some(until), None) => format!("when `{until}` passes; at the latest after {count}"),
        (Some(until), Some(promise)) => format!(
            "when the agent promises {promise} and `{until}` passes; at the latest after {count}"
        ),
        (None, Some(promise)) => format!(
            "when the agent promises {promise} (there is no check); at the latest after {count}"
        ),
        (None, None) => format!("after {count}"),
    }
}

/// Returns the budgets of the run.
fn money(head: &RunHead) -> String {
    let (rules, used) = (head.settings.rules(), head.machine.usage);
    let (cost, tokens) = (rules.limits.max_cost_microusd, rules.limits.max_tokens);
    if used.tokens() > 0
        && let Some(left) = rlm_text::money::budget_left(&rules, used)
    {
        return match cost {
            Some(_) => format!("{left}, as the agent reports"),
            None => left,
        };
    }
    let cost = cost.map(|max| format!("{}, as the agent reports", rlm_text::money::dollars(max)));
    let tokens = tokens.map(|max| format!("{max} tokens"));
    let limits: Vec<String> = [cost, tokens].into_iter().flatten().collect();
    match limits.is_empty() {
        true => "no cost limit".into(),
        false => limits.join(", "),
    }
}

/// Returns what the new agent doesn't get from the previous one.
fn handover(before: &AgentConfig, head: &RunHead) -> String {
    let session = head.machine.session.as_ref();
    let session = session.map_or_else(String::new, |id| format!(" {id}"));
    format!(
        "{} continues the work of {} without its session{session}; the new agent gets the prompt, the files, and your open messages",
        agents::name(&current_phase(head).agent),
        agents::name(before),
    )
}

/// Returns what the agent may do.
pub(crate) fn permission_text(phase: &PhaseSettings) -> &'static str {
    match (&phase.agent.options, phase.permissions) {
        (AgentOptions::Command, _) => "may do what its own options allow",
        (AgentOptions::Codex(_), Permissions::Ask) => "asks you for every command and every edit",
        (AgentOptions::Codex(_), Permissions::Edits) => {
            "may edit files and run commands in its sandbox; everything else is denied"
        }
        (AgentOptions::Codex(_), Permissions::Deny) => {
            "may run commands that only read, in its sandbox; everything else is denied"
        }
        (AgentOptions::Api(_), Permissions::Ask) => "asks you for every command and every edit",
        (AgentOptions::Api(_), Permissions::Edits) => {
            "may read and edit files here; everything else is denied"
        }
        (AgentOptions::Api(_), Permissions::Deny) => {
            "may read files here; everything else is denied"
        }
        (_, Permissions::Ask) => "asks you for everything that its own settings don't allow",
        (_, Permissions::Edits) => {
            "may edit files; everything else that its own settings don't allow is denied"
        }
        (_, Permissions::All) => "MAY DO EVERYTHING (--permissions all)",
        (_, Permissions::Deny) => "may do only what its own settings allow",
    }
}

/// Returns the beginning as JSON.
pub(crate) fn json(beginning: &RunStart, project: &Project, head: &RunHead) -> Value {
    let (event, at, before) = match beginning {
        RunStart::New { .. } => ("run_started", 1, None),
        RunStart::Resumed { at, before, .. } => ("run_resumed", *at, before.as_ref()),
    };
    let starts = beginning.starts();
    let before = before.map(AgentConfig::name);
    let mut value = json!({
        "event": event,
        "run": head.run,
        "iteration": at,
        "directory": head.settings.directory,
        "run_directory": project.run_dir(&head.run),
        "settings": settings(head),
        "programs": starts.all,
    });
    if !starts.changes.is_empty() {
        value["changes"] = json!(starts.changes);
    }
    if let Some(own) = &head.settings.worktree {
        value["worktree"] = json!(own);
    }
    if let Some(before) = before {
        value["previous_agent"] = before.into();
    }
    value
}

/// Returns the settings, with times in milliseconds, as in all JSON of `rlm`.
pub(super) fn settings(head: &RunHead) -> Value {
    let mut value = saved_settings::phase_json(current_phase(head));
    if let (Some(value), Value::Object(more)) = (
        value.as_object_mut(),
        saved_settings::run_json(&head.settings),
    ) {
        value.extend(more);
    }
    value
}
