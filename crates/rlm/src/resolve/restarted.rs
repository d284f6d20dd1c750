//! The settings with which `--resume-or-start` continues a run: the command line and the current `rlm.toml` override the saved settings.
//!
//! The saved settings may come from a stranger who committed them. So a saved command is refused if neither the command line nor the file names
//! it. To run it anyway, a person resumes the run by name, after seeing the list of programs.

use std::path::Path;

use agent_drivers::AgentConfig;
use agent_drivers::mcp::McpServers;
use agent_duplex::Permissions;
use rlm_store::{PhaseSettings, Program, PromptSource, Settings};

use super::checks::{
    is_of_project, mcp_servers, prompt, refuse_bad_rules, refuse_driver_options,
    refuse_missing_variables, refuse_outside,
};
use super::preview;
use crate::agents::{self, AgentKind};
use crate::args::RunArgs;
use crate::config::{self, Config, LIMITS, Layers, SettingsTree};
use crate::exit::Failure;
use crate::hint::program_command;
use crate::hint::quoted;
use crate::render::visible;
use crate::saved_settings;

/// The command line of a restart, with its context.
#[derive(Debug)]
pub(crate) struct RestartInput<'a> {
    /// The id of the run that continues.
    pub(crate) run: &'a str,
    pub(crate) args: &'a RunArgs,
    /// All layers, with the options of the command line.
    pub(crate) layers: &'a Layers,
    /// The directory of the project's file.
    pub(crate) root: &'a Path,
    /// The directory in which the command was started.
    pub(crate) directory: &'a Path,
    /// The working tree of the run.
    pub(crate) tree: &'a Path,
    /// The last text of each phase's prompt.
    pub(crate) prompts: &'a [String],
}

/// Merges the command line and the files over the saved settings; `None` if nothing changes. Refuses a saved command that neither of them names.
pub(crate) fn restarted(
    line: &RestartInput<'_>,
    saved: &Settings,
) -> Result<Option<Settings>, Failure> {
    let what = &line.args.config;
    let typed = what.prompt.is_some() || what.prompt_file.is_some();
    if saved.phases.len() > 1 && typed {
        return Err(Failure::usage(
            "each phase of this run has its own prompt: remove --prompt and --prompt-file",
        ));
    }
    let (mut settings, mut named) = (saved.clone(), saved.clone());
    let mut refused = Vec::new();
    for (at, phase) in settings.phases.iter_mut().enumerate() {
        let tree = line.layers.phase(&phase.name);
        let tree = bounded(line, tree, saved, at);
        named.phases[at] = merge_phase(line, &tree, at, phase, &saved.directory, &mut refused)?;
    }
    refuse_driver_options(what, &settings.phases)?;
    let run = bounded(line, line.layers.run(), saved, 0).config();
    saved_settings::apply_to_run(&run, &mut settings);
    named.commit = run.commit.unwrap_or_default();
    refuse_bad_rules(&settings)?;
    let known = named.programs();
    let unnamed = settings.programs().into_iter();
    let unnamed = unnamed.filter(|it| !known.contains(it));
    refused.extend(unnamed.map(|it| shown(&it)));
    if !saved.directory.starts_with(line.tree) {
        let place = visible(&saved.directory.to_string_lossy());
        refused.push(format!(
            "working directory `{place}`, outside of this project"
        ));
    }
    match refused.is_empty() {
        true => Ok((settings != *saved).then_some(settings)),
        false => Err(Failure::usage(format!(
            "run `{0}` has saved programs or rights that neither this command line nor {1} names: {2}; add them there, or check and accept them: {3} resume {0} --dry-run, then {3} resume {0}",
            line.run,
            config::FILE_NAME,
            refused.join("; "),
            program_command()
        ))),
    }
}

/// Shows a refused program with its kind.
fn shown(program: &Program) -> String {
    let phase = program.phase.as_deref().unwrap_or_default();
    let phase = match phase {
        "" | "main" => String::new(),
        phase => format!(" of phase {}", visible(phase)),
    };
    let command = visible(&program.command);
    format!("{}{phase} `{command}`", program.what.name())
}

/// Merges the command line and the files over a phase. Returns a phase with the programs that they name.
fn merge_phase(
    line: &RestartInput<'_>,
    tree: &SettingsTree,
    at: usize,
    phase: &mut PhaseSettings,
    directory: &Path,
    refused: &mut Vec<String>,
) -> Result<PhaseSettings, Failure> {
    let (mut config, words) = (tree.config(), &line.args.agent_command);
    let mut named = preview::phase(phase.name.clone(), tree, words, line.root, line.directory);
    let typed_bin = line.args.config.agent_bin.is_some();
    let is_named = config.agent.is_some() || config.command.is_some() || !words.is_empty();
    let before = phase.agent.clone();
    match is_named || typed_bin {
        true => phase.agent = agent(line, tree, &config)?,
        // Neither the command line nor the files name an agent. The saved agent stays if the files give the same program: a known name,
        // found on PATH as before.
        false => match known(&before, &config, line.root) {
            Some(agent) => {
                named.agent = agent.clone();
                phase.agent = agent;
            }
            None => named.agent = AgentConfig::command(Vec::new()),
        },
    }
    let is_same = phase.agent.is_same(&before);
    if let Some(model) = before
        .model
        .as_ref()
        .filter(|_| is_same && config.model.is_none())
    {
        agents::override_agent(&mut phase.agent, Some(model.to_owned()), Vec::new());
    }
    phase.mcp_servers = match phase.agent.has_driver() {
        true => mcp_servers(&config, line.root)?.merged_over(phase.mcp_servers.clone()),
        false => McpServers::default(),
    };
    if phase.agent.has_driver() {
        let permissions = permissions(line, tree, &config, phase.permissions, refused);
        config.permissions = Some(permissions);
    }
    if is_named || typed_bin {
        // The command line or a file names this agent, and so its programs.
        named.agent = phase.agent.clone();
    }
    saved_settings::apply_to_phase(&config, phase);
    let place = tree.file_of(AgentKind::of(&phase.agent).name());
    let place = place.map_or_else(|| line.root.join(config::FILE_NAME), Path::to_path_buf);
    agents::check_phase(phase, &place, config::api_server())?;
    phase.prompt = prompt_of(line, tree, at, &phase.prompt, refused)?;
    // A refused program doesn't need to exist.
    if refused.is_empty() {
        agents::find_program(&phase.agent, directory)?;
        refuse_missing_variables(&phase.mcp_servers, &phase.agent)?;
    }
    Ok(named)
}

/// Creates the agent that the command line or a file names, as for a new run.
fn agent(
    line: &RestartInput<'_>,
    tree: &SettingsTree,
    config: &Config,
) -> Result<AgentConfig, Failure> {
    let words = &line.args.agent_command;
    let command = config.command();
    let kind = agents::choose(config.agent, words, command.as_deref(), line.directory)?;
    let bin = agents::program_path(line.args.config.agent_bin.clone(), line.directory);
    let mut agent = config::agent(kind, bin, &tree.config(), line.root)?;
    let model = config
        .model
        .clone()
        .filter(|_| config.applies_to_agent(kind));
    agents::override_agent(&mut agent, model, words.clone());
    Ok(agent)
}

/// Returns the agent of the saved kind as the files define it, if it starts the saved program.
fn known(saved: &AgentConfig, config: &Config, root: &Path) -> Option<AgentConfig> {
    let agent = config::agent(AgentKind::of(saved), None, config, root).ok()?;
    (agent.program == saved.program).then_some(agent)
}

/// Returns the permissions of the agent. A file of the project can only reduce them, because the agent may have written it.
fn permissions(
    line: &RestartInput<'_>,
    tree: &SettingsTree,
    config: &Config,
    saved: Permissions,
    refused: &mut Vec<String>,
) -> Permissions {
    let Some(given) = config.permissions else {
        if saved.are_wider_than(Permissions::default()) {
            refused.push("permissions `all` (--permissions all)".to_owned());
        }
        return saved;
    };
    match is_set_by_project(tree, "permissions", line.root) && given.are_wider_than(saved) {
        true => saved,
        false => given,
    }
}

/// Returns the prompt: the named one, or else the saved one. Refuses a saved prompt file outside of the project.
fn prompt_of(
    line: &RestartInput<'_>,
    tree: &SettingsTree,
    at: usize,
    saved: &PromptSource,
    refused: &mut Vec<String>,
) -> Result<PromptSource, Failure> {
    let (config, what) = (tree.config(), &line.args.config);
    let typed = what.prompt_file.as_ref();
    let file = typed.map(|file| line.directory.join(file));
    let of_file = config.prompt_file.map(|it| line.root.join(it));
    if let (None, Some(of_file), None) = (&file, &of_file, &config.prompt) {
        refuse_outside(of_file, tree, line.root)?;
    }
    let file = file.or(of_file);
    let kept = line.prompts.get(at);
    let named = match (config.prompt, file) {
        (None, None) => {
            if let PromptSource::File(path) = saved
                && !is_below(path, line)
            {
                let path = visible(&quoted(&path.to_string_lossy()));
                refused.push(format!("prompt file (--prompt-file {path})"));
            }
            return Ok(saved.clone());
        }
        (text, file) => prompt(text, file.unwrap_or_default())?,
    };
    match &named {
        PromptSource::Text(text) if Some(text) == kept => Ok(match saved {
            PromptSource::File(_) => named,
            _ => saved.clone(),
        }),
        _ => Ok(named),
    }
}

fn is_below(path: &Path, line: &RestartInput<'_>) -> bool {
    let leads_out = path.components().any(|it| it.as_os_str() == "..");
    let places: [&Path; 2] = [line.root, line.tree];
    !leads_out && places.iter().any(|place| path.starts_with(place))
}

/// Removes the limits of the project's file that are higher than the saved ones: a file can only lower the limits of a run.
fn bounded(
    line: &RestartInput<'_>,
    mut tree: SettingsTree,
    saved: &Settings,
    phase: usize,
) -> SettingsTree {
    let (config, rules) = (tree.config(), saved.rules());
    let phase = u32::try_from(phase).unwrap_or(u32::MAX);
    for limit in LIMITS {
        let raises = (limit.from_file)(&config).is_some_and(|it| rules.is_raised_by(phase, &it));
        if raises && is_set_by_project(&tree, limit.key, line.root) {
            tree.remove(&[limit.key]);
        }
    }
    tree
}

/// Returns whether a value comes from the project's file.
fn is_set_by_project(tree: &SettingsTree, key: &str, root: &Path) -> bool {
    let leaf = tree.leaf(key);
    leaf.is_some_and(|leaf| is_of_project(&leaf.origin, root))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    const TYPED: &str = "rlm run -p text --until true --agent claude --agent-bin sh";

    /// Restarts a changed run of [`TYPED`] with a command line and a file.
    fn again(
        line: &str,
        file: &str,
        change: impl FnOnce(&mut Settings),
    ) -> Result<Option<Settings>, String> {
        let mut saved = crate::resolve::tests::resolve_line(TYPED, "").unwrap();
        saved.phases[0].prompt = PromptSource::Stored("blob".into());
        change(&mut saved);
        let args = Args::try_parse_from(line.split(' ')).unwrap();
        let Command::Run(args) = args.command else {
            unreachable!("the line is a run")
        };
        let place = Path::new("/tmp");
        let layers = Layers::of(place, file).with_flags(&args).unwrap();
        let line = RestartInput {
            run: "job",
            args: &args,
            layers: &layers,
            root: place,
            directory: place,
            tree: place,
            prompts: &["text".into()],
        };
        restarted(&line, &saved).map_err(|failure| failure.message)
    }

    #[test]
    fn h10_same_command_line_changes_nothing() {
        assert_eq!(again(TYPED, "", |_| {}), Ok(None));
    }

    #[test]
    fn h10_file_can_only_lower_limits_and_permissions() {
        let limits = |saved: &mut Settings| {
            saved.phases[0].limits.max_iterations = Some(10);
            saved.limits.max_duration = Some(Duration::from_secs(100));
            saved.limits.max_cost_microusd = Some(5_000_000);
            saved.limits.max_failures = 3;
        };
        let higher = "max-iterations = 99\nmax-duration = 999\nmax-cost = 99.0\nmax-failures = 0\npermissions = 'all'\n";
        assert_eq!(again(TYPED, higher, limits), Ok(None));
        let lower = "max-iterations = 9\nmax-duration = 99\nmax-cost = 4.0\nmax-failures = 2\npermissions = 'deny'\n";
        let now = again(TYPED, lower, limits).unwrap().unwrap();
        let phase = &now.phases[0];
        assert_eq!(phase.limits.max_iterations, Some(9));
        assert_eq!(phase.permissions, Permissions::Deny);
        assert_eq!(now.limits.max_duration, Some(Duration::from_secs(99)));
        let rest = (now.limits.max_cost_microusd, now.limits.max_failures);
        assert_eq!(rest, (Some(4_000_000), 2));
        let typed = format!("{TYPED} -n 99 --permissions all --max-failures 0");
        let now = again(&typed, "", limits).unwrap().unwrap();
        let phase = &now.phases[0];
        assert_eq!(phase.limits.max_iterations, Some(99));
        let rest = (phase.permissions, now.limits.max_failures);
        assert_eq!(rest, (Permissions::All, 0));
    }

    #[test]
    fn h10_saved_permissions_paths_and_hooks_must_be_named_again() {
        let refused = |change: fn(&mut Settings)| again(TYPED, "", change).unwrap_err();
        let rights = refused(|it| it.phases[0].permissions = Permissions::All);
        assert!(rights.contains("--permissions all"), "{rights}");
        let place = refused(|it| it.directory = "/etc".into());
        assert!(place.contains("working directory `/etc`"), "{place}");
        let hooks = refused(|it| it.commit = true);
        assert!(hooks.contains("git-hooks"), "{hooks}");
        let server = refused(|it| {
            let evil = agent_drivers::mcp::McpServer::stdio("evil");
            it.phases[0].mcp_servers.insert("a", evil).unwrap();
        });
        assert!(server.contains("mcp-server `a: evil`"), "{server}");
        let line = TYPED.replace("-p text ", "");
        let prompt = again(&line, "", |it| {
            it.phases[0].prompt = PromptSource::File("/etc/passwd".into());
        });
        assert!(prompt.unwrap_err().contains("--prompt-file /etc/passwd"));
        for change in [
            |it: &mut Settings| it.phases[0].required_checks = vec!["evil\nmore".into()],
            |it: &mut Settings| it.phases[0].required_checks = vec!["evil".into(), "more".into()],
        ] {
            assert!(refused(change).contains("required check `evil"));
        }
    }

    #[test]
    fn h10_saved_agent_stays_only_if_it_is_a_known_name() {
        let line = "rlm run -p text --until true";
        let named = |program: &'static str| {
            again(line, "", move |it| {
                it.phases[0].agent.program = vec![program.into()];
            })
        };
        let refused = named("./claude").unwrap_err();
        assert!(refused.contains("agent `./claude`"), "{refused}");
        // The agent is accepted, and then looked up on PATH, where it may be missing on this machine.
        let file = "agent-bin = '/bin/sh'\n";
        let of_file = again(line, file, |it| {
            it.phases[0].agent.program = vec!["/bin/sh".into()];
        });
        assert_eq!(of_file, Ok(None));
        let known = named("claude").map_err(|why| why.contains("PATH"));
        assert!(matches!(known, Ok(None) | Err(true)), "{known:?}");
    }
}
