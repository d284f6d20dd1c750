//! Turns arguments and configuration into the settings of a run. Its only I/O is to read prompts.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::Path;

use rlm_store::{PhaseSettings, PromptSource, Settings};
use rlm_terminal::PressActions;

use crate::agents::{self, AgentKind};
use crate::args::RunArgs;
use crate::config::{self, DEFAULT_PROMPT, Layers, SettingsTree, ValueOrigin, defaults};
use crate::exit::Failure;
use crate::observers::RunObservers;
use crate::saved_settings;

mod checks;
mod preview;
mod restarted;
mod resumed;

use checks::{
    mcp_servers, prompt, refuse_bad_rules, refuse_driver_options, refuse_missing_variables,
    refuse_outside,
};
pub(crate) use preview::preview_settings;
pub(crate) use restarted::{RestartInput, restarted};
pub(crate) use resumed::{ResumeInput, resumed};

/// The largest number of characters of a title that comes from a prompt.
const MAX_TITLE: usize = 60;

/// The settings of a new run, their layers, and the actions of Ctrl-C.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) settings: Settings,
    pub(crate) layers: Layers,
    pub(crate) presses: PressActions,
    pub(crate) watchers: RunObservers,
}

/// Creates the settings of a new run that works in `directory`. Relative paths in the project's file start at `root`, its directory.
pub(crate) fn new_run(
    args: RunArgs,
    layers: &Layers,
    root: &Path,
    directory: &Path,
) -> Result<Resolved, Failure> {
    let layers = layers.clone().with_flags(&args)?;
    let tree = layers.run().merged_over(defaults(false));
    let (run, watchers) = (tree.config(), RunObservers::of(&tree, root, directory));
    watchers.refuse_unusable(&tree)?;
    let phases = layers.phases();
    let has_prompt = args.config.prompt.is_some() || args.config.prompt_file.is_some();
    if layers.has_phases() && has_prompt {
        return Err(Failure::usage(
            "each phase of rlm.toml has its own prompt: remove the prompt from the command line, or the phases from the file",
        ));
    }
    let of = SettingsContext {
        args: &args,
        root,
        directory,
    };
    let phases = phases.into_iter();
    let phases = phases.map(|it| phase(&of, it, layers.has_phases()));
    let phases = phases.collect::<Result<Vec<_>, Failure>>()?;
    refuse_driver_options(&args.config, &phases)?;
    let mut settings = Settings::new(directory, phases);
    saved_settings::apply_to_run(&run, &mut settings);
    refuse_bad_rules(&settings)?;
    if settings.title.is_none() {
        settings.title = first_line(&settings.phases[0].prompt);
    }
    Ok(Resolved {
        settings,
        layers,
        presses: run.on_press.unwrap_or_default(),
        watchers,
    })
}

/// Returns the first line of a prompt, as the title of a run; `None` if the file can't be read, which the start of the run reports.
fn first_line(prompt: &PromptSource) -> Option<String> {
    let text = match prompt {
        PromptSource::Text(text) => Cow::Borrowed(text.as_str()),
        PromptSource::File(path) => rlm_store::read_prompt(path).ok()?.into(),
        PromptSource::Stored(_) => return None,
    };
    let lines = text.lines().map(|line| {
        let line = line.trim_start_matches('#').trim();
        line.trim_end_matches(['.', ':'])
    });
    let line = { lines }.find(|line| !line.is_empty())?;
    let short: String = line.chars().take(MAX_TITLE).collect();
    Some(match short.len() < line.len() {
        true => format!("{}…", short.trim_end()),
        false => short,
    })
}

/// The arguments and places for the settings of a phase.
struct SettingsContext<'a> {
    args: &'a RunArgs,
    root: &'a Path,
    directory: &'a Path,
}

/// Chooses the agent of a phase, and adds its defaults below the other layers.
pub(crate) fn with_defaults(
    tree: SettingsTree,
    words: &[OsString],
    directory: &Path,
) -> Result<(AgentKind, SettingsTree), Failure> {
    let config = tree.config();
    let kind = agents::choose(config.agent, words, config.command().as_deref(), directory)?;
    Ok((kind, tree.merged_over(defaults(kind != AgentKind::Command))))
}

/// Creates the settings of a phase.
fn phase(
    of: &SettingsContext<'_>,
    layers: config::Phase,
    is_one_of_several: bool,
) -> Result<PhaseSettings, Failure> {
    let SettingsContext {
        args,
        root,
        directory,
    } = *of;
    let what = &args.config;
    let of_phase = |mut failure: Failure| {
        if is_one_of_several {
            failure.message = format!("phase `{}`: {}", layers.name, failure.message);
        }
        failure
    };
    let (kind, tree) =
        with_defaults(layers.tree, &args.agent_command, directory).map_err(of_phase)?;
    let config = tree.config();
    let bin = agents::program_path(what.agent_bin.clone(), directory);
    let mut agent = config::agent(kind, bin, &config, root).map_err(of_phase)?;
    let model = config
        .model
        .clone()
        .filter(|_| config.applies_to_agent(kind));
    agents::override_agent(&mut agent, model, args.agent_command.clone());
    agents::find_program(&agent, directory).map_err(of_phase)?;
    let mcp_servers = mcp_servers(&config, root)?;
    refuse_missing_variables(&mcp_servers, &agent).map_err(of_phase)?;
    let promise = config.completion_promise.as_deref();
    if promise.is_some_and(|promise| promise.trim().is_empty()) {
        return Err(of_phase(Failure::usage(
            "the completion promise is empty; give the text that the agent must write",
        )));
    }
    let is_planned = tree
        .leaf("max-iterations")
        .is_some_and(|leaf| is_plan(&leaf.origin, root));
    if config.until.is_none() && promise.is_none() && !is_planned {
        let why = match is_one_of_several {
            true => "it needs a stop condition: until, completion-promise or max-iterations",
            false => {
                "this run needs a stop condition: --until CMD, --completion-promise TEXT, -n N or --once"
            }
        };
        return Err(of_phase(Failure::usage(why)));
    }
    let file = what.prompt_file.as_ref().map(|file| directory.join(file));
    let default = { config.prompt_file.as_deref() }.unwrap_or(Path::new(DEFAULT_PROMPT));
    let default = root.join(default);
    if file.is_none() && config.prompt.is_none() {
        refuse_outside(&default, &tree, root).map_err(of_phase)?;
    }
    let prompt = prompt(config.prompt.clone(), file.unwrap_or(default)).map_err(of_phase)?;
    let mut phase = PhaseSettings::new(layers.name.clone(), prompt, agent);
    phase.mcp_servers = mcp_servers;
    saved_settings::apply_to_phase(&config, &mut phase);
    let project = root.join(config::FILE_NAME);
    let file = tree.file_of(kind.name()).unwrap_or(&project);
    agents::check_phase(&phase, file, config::api_server())?;
    Ok(phase)
}

/// Returns whether a number of iterations is a stop condition. A number in the user's own file is only a limit: the command line or the
/// project must set it.
fn is_plan(origin: &ValueOrigin, root: &Path) -> bool {
    match origin {
        ValueOrigin::File { path, .. } => path.parent() == Some(root),
        origin => *origin != ValueOrigin::Default,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use crate::config::DEFAULT_IDLE_TIMEOUT;
    use agent_drivers::{AgentConfig, AgentOptions};
    use agent_duplex::Permissions;
    use clap::Parser;
    use rlm_store::PromptSource;
    use std::time::Duration;

    /// Parses a line after `rlm run -p …`, with an agent that exists.
    fn resolve(line: &str, file: &str) -> Result<Settings, String> {
        resolve_line(&format!("rlm run -p text {line} -- sh"), file)
    }

    pub(crate) fn resolve_line(line: &str, file: &str) -> Result<Settings, String> {
        let args = Args::try_parse_from(line.split(' ').filter(|word| !word.is_empty())).unwrap();
        let Command::Run(args) = args.command else {
            unreachable!("the line is a run")
        };
        let directory = Path::new("/tmp");
        let resolved = new_run(*args, &Layers::of(directory, file), directory, directory);
        resolved.map(|r| r.settings).map_err(|f| f.message)
    }

    #[test]
    fn x124e_driver_options_mean_nothing_for_command() {
        for option in [
            "--permissions all",
            "--model opus",
            "--session continue",
            "--agent-bin sh",
        ] {
            let error = resolve(&format!("--once {option}"), "").unwrap_err();
            let name = option.split(' ').next().unwrap();
            assert!(
                error.starts_with(name) && error.contains("after --"),
                "{error}"
            );
        }
    }

    #[test]
    fn x124a_permissions_are_edits_by_default() {
        let claude = "--once --agent claude --agent-bin sh";
        let settings = resolve(claude, "").unwrap();
        let phase = &settings.phases[0];
        assert_eq!(phase.permissions, Permissions::Edits);
        assert_eq!(phase.limits.idle_timeout, Some(DEFAULT_IDLE_TIMEOUT));
        let AgentConfig { program, args, .. } = &phase.agent;
        assert_eq!(
            (program[0].to_str(), args[0].to_str()),
            (Some("sh"), Some("sh"))
        );
        let asked = "permissions = 'ask'";
        let settings = resolve(claude, asked).unwrap();
        assert_eq!(settings.phases[0].permissions, Permissions::Ask);
        let settings = resolve(&format!("{claude} --permissions all"), asked).unwrap();
        assert_eq!(settings.phases[0].permissions, Permissions::All);
    }

    #[test]
    fn x117a_unstartable_claude_options_name_their_file() {
        for text in [
            "tools = ['Ba sh']",
            "allowed-tools = ['']",
            "effort = ''",
            "setting-sources = ['nope']",
            "env = { 'A=B' = 'x' }",
        ] {
            let file = format!("[claude]\n{text}\n");
            let refused = resolve("--once --agent claude --agent-bin sh", &file).unwrap_err();
            let place = "`/tmp/rlm.toml`, [claude]: `";
            assert!(
                refused.starts_with(place) && refused.contains("` is not a "),
                "{refused}"
            );
        }
    }

    #[test]
    fn s18a_s18b_run_needs_a_stop_condition() {
        let error = resolve("", "").unwrap_err();
        assert!(error.contains("needs a stop condition"), "{error}");
        for end in [
            "--until true",
            "-n 5",
            "--once",
            "--completion-promise DONE",
        ] {
            resolve(end, "").unwrap();
        }
    }

    #[test]
    fn s4b_run_has_the_default_limits_of_the_help() {
        let settings = resolve("--until true", "").unwrap();
        let phase = &settings.phases[0];
        assert_eq!(phase.limits.max_iterations, Some(100));
        assert_eq!(
            phase.limits.iteration_timeout,
            Some(Duration::from_secs(3600))
        );
        assert_eq!(phase.limits.idle_timeout, None);
        assert_eq!(phase.limits.check_timeout, Duration::from_secs(900));
        assert_eq!(
            (settings.limits.max_failures, settings.limits.sleep),
            (3, Duration::from_secs(10))
        );
    }

    const PHASES: &str = "agent = 'claude'\nagent-bin = '/bin/sh'\nmodel = 'opus'\nuntil = 'make'\nmax-iterations = 9\nsleep = 1\n\
        [[phase]]\nname = 'plan'\nprompt = 'Plan.'\nagent = 'codex'\nagent-bin = 'sh'\npermissions = 'deny'\ncompletion-promise = 'PLANNED'\nmax-iterations = 2\n\
        [[phase]]\nname = 'build'\nprompt-file = 'build.md'\niteration-timeout = '3h'\n[phase.claude]\neffort = 'high'\n";

    #[test]
    fn x119a_each_phase_has_its_own_prompt_agent_limits_and_stop_condition() {
        let settings = resolve_line("rlm run", PHASES).unwrap();
        let [plan, build] = settings.phases.as_slice() else {
            panic!("{:?}", settings.phases)
        };
        assert_eq!((plan.name.as_str(), build.name.as_str()), ("plan", "build"));
        assert_eq!(plan.prompt, PromptSource::Text("Plan.".into()));
        assert_eq!(build.prompt, PromptSource::File("/tmp/build.md".into()));
        let agents = [plan, build].map(|phase| (phase.agent.name(), phase.agent.model.as_deref()));
        assert_eq!(agents, [("codex", None), ("claude", Some("opus"))]);
        // The stop condition of one phase doesn't apply to the other.
        assert_eq!(
            (plan.promise.as_deref(), &plan.check),
            (Some("PLANNED"), &None)
        );
        assert_eq!(
            (&build.promise, build.check.as_deref()),
            (&None, Some("make"))
        );
        let limits = [plan, build].map(|phase| phase.limits.max_iterations);
        assert_eq!(limits, [Some(2), Some(9)]);
        let hours = |hours: u64| Some(Duration::from_secs(hours * 3600));
        let times = [plan, build].map(|phase| phase.limits.iteration_timeout);
        assert_eq!(times, [hours(1), hours(3)]);
        assert_eq!(
            [plan, build].map(|phase| phase.permissions),
            [Permissions::Deny, Permissions::Edits]
        );
        let AgentOptions::Claude(options) = &build.agent.options else {
            panic!("{:?}", build.agent)
        };
        assert_eq!(options.effort.as_deref(), Some("high"));
        assert_eq!(settings.limits.sleep, Duration::from_secs(1));
    }

    #[test]
    fn x119e_option_overrides_every_phase() {
        let settings = resolve_line(
            "rlm run -n 5 --permissions all --agent opencode --agent-bin sh",
            PHASES,
        )
        .unwrap();
        assert!(settings.phases.len() > 1);
        for phase in &settings.phases {
            assert_eq!(phase.limits.max_iterations, Some(5), "{}", phase.name);
            assert_eq!(phase.permissions, Permissions::All, "{}", phase.name);
            assert_eq!(
                (phase.agent.name(), phase.agent.model.as_deref()),
                ("opencode", None)
            );
        }
        let refused = resolve_line("rlm run -P x", PHASES).unwrap_err();
        assert!(refused.contains("has its own prompt"), "{refused}");
    }

    #[test]
    fn options_override_the_file() {
        let settings = resolve("--until true", "until = 'make'\nmax-failures = 7").unwrap();
        assert_eq!(settings.phases[0].check.as_deref(), Some("true"));
        assert_eq!(settings.limits.max_failures, 7);
    }
}
