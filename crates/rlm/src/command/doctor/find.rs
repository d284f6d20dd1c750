//! Finds the programs that a run would start, without running them.

use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use rlm_store::Project;

use super::agent::CheckedAgent;
use super::machine::{self, Finding};
use crate::agents::{self, AgentKind};
use crate::config::{self, Config, Layers};
use crate::exit::Failure;
use crate::hint::program_command;

/// The results of searching files only.
#[derive(Debug)]
pub(super) struct DoctorScope {
    pub(super) project: Project,
    pub(super) layers: Layers,
    /// The state of the project's settings.
    pub(super) settings: Finding,
    /// The agents that must work.
    pub(super) chosen: Vec<AgentKind>,
    /// The agents to examine.
    pub(super) agents: Vec<CheckedAgent>,
}

/// The settings with the project's own file and without it.
struct DoctorSettings {
    all: Config,
    /// The settings of the user's own file and the environment.
    of_user: Config,
    /// Whether to run programs that only the project's file names.
    runs_project: bool,
}

/// Finds the named agents, or all of them. A program that only the project's own file names runs only with `runs_project`.
pub(super) fn find(
    directory: &Path,
    named: &[AgentKind],
    runs_project: bool,
) -> Result<DoctorScope, Failure> {
    let project = Project::find(directory)?;
    let layers = Layers::read(project.root());
    let settings = machine::settings(&project, &layers);
    let layers = layers.unwrap_or_default();
    let config = |layers: &Layers| {
        let mut config = layers.run().config();
        if config.agent.is_none() && named.len() != 1 {
            // The protocol of the program is unknown, and an agent may treat the version query of another agent as a prompt.
            config.agent_bin = None;
        }
        config
    };
    let settings_by_source = DoctorSettings {
        all: config(&layers),
        of_user: config(&layers.without_project()),
        runs_project,
    };
    let chosen = match named {
        [] => configured(&settings_by_source.all)?.into_iter().collect(),
        _ => named.to_vec(),
    };
    let kinds = match named {
        [] => all_agents(&chosen),
        _ => chosen.clone(),
    };
    let checked_agents =
        { kinds.iter() }.map(|kind| checked_agent(*kind, &settings_by_source, &project));
    Ok(DoctorScope {
        settings,
        agents: checked_agents.collect(),
        chosen,
        project,
        layers,
    })
}

/// Returns the agent of a run here without `--agent`.
fn configured(config: &Config) -> Result<Option<AgentKind>, Failure> {
    if let Some(name) = std::env::var_os("RLM_AGENT").filter(|name| !name.is_empty()) {
        let name = name.to_string_lossy();
        let kind = AgentKind::from_str(&name, false);
        let refuse = |_| Failure::usage(format!("RLM_AGENT: `{name}` is not a known agent"));
        return kind.map(Some).map_err(refuse);
    }
    let command = config.command().filter(|words| !words.is_empty());
    Ok(config.agent.or(command.map(|_| AgentKind::Command)))
}

/// Returns all agents that are programs with a driver, and the other ones that are chosen.
fn all_agents(chosen: &[AgentKind]) -> Vec<AgentKind> {
    let is_other = |kind: &AgentKind| matches!(kind, AgentKind::Command | AgentKind::Api);
    let kinds = AgentKind::value_variants().iter().copied();
    let (others, mut all): (Vec<_>, Vec<_>) = kinds.partition(is_other);
    all.extend(others.into_iter().filter(|kind| chosen.contains(kind)));
    all
}

/// Finds the program of an agent, and the known facts about the agent.
fn checked_agent(
    kind: AgentKind,
    settings_by_source: &DoctorSettings,
    project: &Project,
) -> CheckedAgent {
    let directory = project.directory();
    let settings = |config| {
        let settings = |bin| config::agent(kind, bin, config, project.root());
        settings(None)
            .or_else(|_| settings(Some(agents::ADAPTER.into())))
            .expect("an agent with a program has settings")
    };
    let (agent, of_user) = (
        settings(&settings_by_source.all),
        settings(&settings_by_source.of_user),
    );
    let is_run = settings_by_source.runs_project || agent.program == of_user.program;
    let unrun = (!is_run).then(|| {
        format!(
            "only {} names this program, so doctor doesn't run it; if you trust it: {} doctor {} --run-project-agent",
            config::FILE_NAME,
            program_command(),
            kind.name()
        )
    });
    let facts = agent.login_facts();
    let wanted = agents::program(&agent);
    let path = std::env::var_os("PATH");
    let found: Vec<PathBuf> = which::which_in_all(wanted, path, directory)
        .map(Iterator::collect)
        .unwrap_or_default();
    let mut found = found.into_iter();
    let first = found.next();
    let real = |path: &PathBuf| fs_err::canonicalize(directory.join(path)).ok();
    let mut seen = vec![first.as_ref().and_then(real)];
    let mut others: Vec<PathBuf> = Vec::new();
    for other in found {
        let place = real(&other);
        if !seen.contains(&place) {
            seen.push(place);
            others.push(other);
        }
    }
    let env = agent.passed_through().env.cloned().unwrap_or_default();
    let is_set = |name: &&&str| {
        let inherited = std::env::var_os(name).is_some_and(|value| !value.is_empty());
        inherited || env.contains_key(**name)
    };
    let variables = facts.variables.iter().filter(is_set);
    // A variable can make a program run another program. The variables for the agent's login can't.
    let users = of_user.passed_through().env;
    let is_safe = |name: &String, value: &String| {
        let is_users = users.is_some_and(|users| users.get(name) == Some(value));
        settings_by_source.runs_project || is_users || facts.variables.contains(&name.as_str())
    };
    let given = env.iter().filter(|(name, value)| is_safe(name, value));
    let given: Vec<_> = given.collect();
    let unset = env
        .keys()
        .filter(|name| !given.iter().any(|(it, _)| it == name));
    let unset = unset.cloned().collect();
    let is_inside = kind == AgentKind::Api;
    let first = first.or_else(|| is_inside.then(std::env::current_exe)?.ok());
    let program = first.map(|first| {
        let mut started = agent.clone();
        if let Some(program) = started.program.first_mut() {
            *program = directory.join(first).into();
        }
        let mut context = machine::away();
        let given = given.iter();
        context.env = given.map(|(name, it)| (name.into(), it.into())).collect();
        (started, context)
    });
    CheckedAgent {
        name: kind.name(),
        program: program.ok_or_else(|| agents::missing(kind, &wanted.to_string_lossy())),
        not_run_reason: unrun,
        missing_variables: unset,
        start_error: agents::check(&agent, &project.root().join(config::FILE_NAME))
            .err()
            .map(|refused| refused.message),
        shadowed: others,
        variables: variables.map(|name| (*name).to_owned()).collect(),
        agent,
    }
}
