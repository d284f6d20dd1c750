//! The banner: five lines that say what a run will do before it does it.

use agent_drivers::{AgentConfig, AgentOptions};
use agent_duplex::Permissions;
use loop_state::{Autonomy, SessionPolicy};
use rlm_store::{PhaseSettings, Program, Project, RunHead, RunId};
use rlm_text::count;
use rlm_text::duration::show;
use rlm_text::escape::plain;
use serde_json::{Value, json};

use crate::agents;
use crate::hint::rlm;
use crate::render::programs::{self, visible};
use crate::render::{Change, Phases};
use crate::saved;

/// The column in which the text of the five lines begins, behind what it is about.
pub(crate) const TEXT_AT: usize = 8;

/// What a run starts, as its beginning shows it.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    /// All of it.
    pub(crate) all: Vec<Program>,
    /// What people are shown of it before the run begins: of a new run what they have not typed themselves.
    pub(crate) shown: Vec<Program>,
    /// What of the saved settings was replaced.
    pub(crate) changes: Vec<Change>,
}

/// How a run begins for this process.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// It is new; these others could be resumed instead.
    New {
        /// Their names.
        others: Vec<RunId>,
        /// How many files have changes that are not in the run's own working tree.
        left_behind: usize,
        starts: Starts,
    },
    /// It was saved at this iteration.
    Again {
        /// Its number.
        at: u32,
        /// Whether the iterations from there on are discarded.
        discarded: bool,
        /// Whether it was cut.
        cut: bool,
        /// The agent that it had, if it goes on with another one.
        before: Option<AgentConfig>,
        starts: Starts,
    },
}

impl Beginning {
    /// Makes that of a new run in the project's own tree.
    pub(crate) fn new(others: Vec<RunId>) -> Self {
        let left_behind = 0;
        Self::New {
            others,
            left_behind,
            starts: Starts::default(),
        }
    }

    fn starts(&self) -> &Starts {
        match self {
            Self::New { starts, .. } | Self::Again { starts, .. } => starts,
        }
    }
}

/// The lines before the first iteration, the banner's five last.
///
/// With a `person` who can press keys they say which, and for a run `in_background` how it is reached.
pub(crate) fn lines(
    beginning: &Beginning,
    project: &Project,
    head: &RunHead,
    person: bool,
    in_background: bool,
) -> Vec<String> {
    let mut lines = Vec::new();
    match beginning {
        Beginning::New { others, .. } => match others.as_slice() {
            [] => {}
            [one] => lines.push(format!(
                "run {one} can be resumed instead: {} resume {one}",
                rlm()
            )),
            [.., last] => lines.push(format!(
                "{} runs can be resumed instead, the last: {} resume {last}",
                others.len(),
                rlm()
            )),
        },
        Beginning::Again {
            at,
            discarded,
            cut,
            before,
            starts,
        } => {
            let why = match (discarded, cut) {
                (true, _) => "discarding what was recorded from there on".to_owned(),
                (_, true) => format!("which was cut in attempt {}", head.machine.attempt),
                _ if head.machine.is_judging() => {
                    "whose turn is over: its gates and the check are next".to_owned()
                }
                _ => {
                    let complete = head.machine.iterations_complete() as usize;
                    format!("{} complete", count(complete, "iteration", "iterations"))
                }
            };
            let session = head.machine.session.as_ref();
            let goes_on = present(head).session == SessionPolicy::Continue;
            let session = session.filter(|_| goes_on && before.is_none());
            let session = session.map_or_else(String::new, |id| format!(", in its session {id}"));
            lines.push(format!(
                "resuming run {}{} at iteration {at}, {why}{session}",
                head.run,
                Phases::from(&head.machine).present()
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
            Beginning::New { left_behind: 0, .. } | Beginning::Again { .. } => String::new(),
            Beginning::New { left_behind, .. } => format!(
                "; not in it: {} here not committed",
                count(*left_behind, "changed file", "changed files")
            ),
        };
        lines.push(format!(
            "tree    {}, branch {} from {base}{left}",
            own.path.display(),
            own.branch
        ));
    }
    let all = &head.settings.phases;
    let phase = present(head);
    let turns = all.iter().map(|phase| phase.limits.iteration_timeout);
    let turn = turns
        .collect::<Option<Vec<_>>>()
        .and_then(|it| it.into_iter().max());
    let turn = turn.map_or("any time".into(), show);
    let total = head
        .settings
        .limits
        .max_duration
        .map_or(String::new(), |d| format!(", {} in all", show(d)));
    let run = &head.run;
    lines.extend(ends(head, person));
    lines.extend([
        format!("spends  up to {turn} a turn{total}; {}", money(head)),
        format!(
            "agent   {}: {}, in {}",
            visible(&agents::name(&phase.agent)),
            may(phase),
            head.settings.directory.display()
        ),
        match person {
            true => format!(
                "keys    Ctrl-C: menu, Enter: say something, /help; closing the terminal saves and stops: {} resume",
                rlm()
            ),
            false if in_background => format!(
                "stop    {0} stop {run}, or SIGTERM, saves and stops; then: {0} resume {run}",
                rlm()
            ),
            false => format!("stop    Ctrl-C or SIGTERM saves and stops; then: {} resume {run}", rlm()),
        },
        format!(
            "log     {}",
            project.run_dir(run).join("transcripts").display()
        ),
    ]);
    lines.iter().map(|line| plain(line)).collect()
}

/// Returns the settings of the phase at which the run stands.
fn present(head: &RunHead) -> &PhaseSettings {
    &head.settings.phases[head.machine.phase as usize]
}

/// Says what ends the run, and before that each of several phases.
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

/// Says where a person is asked.
fn asks(head: &RunHead, person: bool) -> String {
    match head.settings.rules().autonomy {
        _ if !person => String::new(),
        Autonomy::Checkpoint if head.settings.phases.len() > 1 => {
            "; your word is asked between two phases".into()
        }
        Autonomy::Batch(size) => format!("; your word is asked after each {size} iterations"),
        _ => String::new(),
    }
}

/// Says what ends a phase.
fn end(phase: &PhaseSettings) -> String {
    let count = phase.limits.max_iterations.map(|n| match n {
        1 => "1 iteration".to_owned(),
        n => format!("{n} iterations"),
    });
    let count = count.unwrap_or_else(|| "any number of iterations".to_owned());
    match (phase.until.as_deref().map(visible), &phase.promise) {
        (Some(until), None) => format!("when `{until}` passes; at the latest after {count}"),
        (Some(until), Some(promise)) => format!(
            "when the agent says {promise} and `{until}` passes; at the latest after {count}"
        ),
        (None, Some(promise)) => format!(
            "when the agent says {promise}, which nothing checks; at the latest after {count}"
        ),
        (None, None) => format!("after {count}"),
    }
}

/// Says what the run may spend.
fn money(head: &RunHead) -> String {
    let (rules, used) = (head.settings.rules(), head.machine.usage);
    let (cost, tokens) = (rules.limits.max_cost_microusd, rules.limits.max_tokens);
    if used.tokens() > 0
        && let Some(left) = rlm_text::money::left(&rules, used)
    {
        return match cost {
            Some(_) => format!("{left}, as the agent reckons it"),
            None => left,
        };
    }
    let cost = cost.map(|max| format!("{} as the agent reckons it", rlm_text::money::dollars(max)));
    let tokens = tokens.map(|max| format!("{max} tokens"));
    let limits: Vec<String> = [cost, tokens].into_iter().flatten().collect();
    match limits.is_empty() {
        true => "money is not limited here".into(),
        false => limits.join(", "),
    }
}

/// Says what is lost when another agent goes on.
fn handover(before: &AgentConfig, head: &RunHead) -> String {
    let session = head.machine.session.as_ref();
    let session = session.map_or_else(String::new, |id| format!(" (session {id})"));
    format!(
        "{} goes on for {}, whose conversation{session} it does not get: it has the prompt, the files, and all that you said and is not done",
        agents::name(&present(head).agent),
        agents::name(before),
    )
}

/// Says what the agent may do.
pub(crate) fn may(phase: &PhaseSettings) -> &'static str {
    match (&phase.agent.options, phase.permissions) {
        (AgentOptions::Command, _) => "may do what its own flags allow",
        (AgentOptions::Codex(_), Permissions::Ask) => "asks you for every command and every edit",
        (AgentOptions::Codex(_), Permissions::Edits) => {
            "may edit files and run commands in its sandbox; the rest is denied"
        }
        (AgentOptions::Codex(_), Permissions::Deny) => {
            "may run commands that only read, in its sandbox; the rest is denied"
        }
        (_, Permissions::Ask) => "asks you for what its own settings don't allow",
        (_, Permissions::Edits) => {
            "may edit files; what else its own settings don't allow is denied"
        }
        (_, Permissions::All) => "MAY DO EVERYTHING (--permissions all)",
        (_, Permissions::Deny) => "may do only what its own settings allow",
    }
}

/// The same for programs.
pub(crate) fn json(beginning: &Beginning, project: &Project, head: &RunHead) -> Value {
    let (event, at, before) = match beginning {
        Beginning::New { .. } => ("run_started", 1, None),
        Beginning::Again { at, before, .. } => ("run_resumed", *at, before.as_ref()),
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
        value["agent_before"] = before.into();
    }
    value
}

/// The settings with times in milliseconds, as everywhere in our JSON.
pub(super) fn settings(head: &RunHead) -> Value {
    let mut value = saved::phase_json(present(head));
    if let (Some(value), Value::Object(more)) =
        (value.as_object_mut(), saved::run_json(&head.settings))
    {
        value.extend(more);
    }
    value
}
