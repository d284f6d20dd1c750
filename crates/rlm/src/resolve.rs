//! From arguments and configuration to the settings of a run. Pure but for reading a prompt from standard input.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_subprocess::mcp::McpServers;
use loop_runner::{AgentSettings, Permissions, PhaseSettings, PromptSource, Settings};
use loop_state::Limits;

use crate::agents::{self, AgentKind};
use crate::args::{LoopArgs, PermissionsArg, RunArgs};
use crate::config::{self, Config};
use crate::drivers;
use crate::exit::Failure;
use crate::money;
use crate::presses::PressActions;

mod resumed;

pub(crate) use resumed::{Given, resumed};

pub(crate) const DEFAULT_ITERATIONS: u32 = 100;
pub(crate) const DEFAULT_ITERATION_TIMEOUT: Duration = Duration::from_secs(3600);
pub(crate) const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(900);
pub(crate) const DEFAULT_CHECK_TIMEOUT: Duration = Duration::from_secs(900);
pub(crate) const DEFAULT_FAILURES: u32 = 3;
pub(crate) const DEFAULT_SLEEP: Duration = Duration::from_secs(10);
const DEFAULT_PROMPT: &str = "PROMPT.md";
/// The largest prompt that is taken from standard input.
const MAX_STDIN: u64 = 4 << 20;

/// The settings of a new run, and what a press means.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) settings: Settings,
    pub(crate) presses: PressActions,
}

/// Makes the settings of a new run that works in `directory`. What the file names counts from `root`, where it lies.
pub(crate) fn new_run(
    args: RunArgs,
    config: Config,
    root: &Path,
    directory: &Path,
) -> Result<Resolved, Failure> {
    let RunArgs {
        what,
        agent,
        once,
        agent_command,
        ..
    } = args;
    let command = config.command();
    let named = agent.or(config.agent);
    let kind = agents::choose(named, &agent_command, command.as_deref(), directory)?;
    let bin = agents::bin(what.agent_bin.clone(), directory);
    let mut agent = agents::settings(kind, bin, &config, root)?;
    if kind == AgentKind::Command {
        refuse_driver_options(&what)?;
    }
    let of_file = config.model.clone().filter(|_| config.speaks_of(kind));
    agents::tell(&mut agent, what.model.clone().or(of_file), agent_command);
    agents::find_program(&agent, directory)?;
    let driven = agent.is_driven();
    let mcp_servers = mcp_servers(&config, root)?;
    refuse_missing_variables(&mcp_servers, &agent)?;
    let permissions = match what
        .permissions
        .or(permissions_from_environment()?)
        .or(config.permissions)
    {
        Some(given) if driven => given.into(),
        _ => Permissions::default(),
    };
    let promise = what.completion_promise.or(config.completion_promise);
    if promise
        .as_deref()
        .is_some_and(|promise| promise.trim().is_empty())
    {
        return Err(Failure::usage(
            "the completion promise is empty; give the text that the agent shall say",
        ));
    }
    let until = what.until.or(config.until);
    let planned = match once {
        true => Some(1),
        false => what
            .max_iterations
            .or(config.max_iterations.map(Into::into)),
    };
    if until.is_none() && planned.is_none() && promise.is_none() {
        return Err(Failure::usage(
            "this run has no end: give --until CMD, --completion-promise TEXT, -n N or --once",
        ));
    }
    let file = what.prompt_file.map(|file| directory.join(file));
    let default = root.join(config.prompt_file.unwrap_or_else(|| DEFAULT_PROMPT.into()));
    let prompt = prompt(what.prompt, file.unwrap_or(default))?;
    let phase = PhaseSettings {
        name: "main".into(),
        prompt,
        agent,
        permissions,
        mcp_servers,
        session: what
            .session
            .or(config.session)
            .filter(|_| driven)
            .map(Into::into)
            .unwrap_or_default(),
        promise,
        gates: if what.gate.is_empty() {
            config.gates.unwrap_or_default()
        } else {
            what.gate
        },
        until,
        check_timeout: what
            .check_timeout
            .or(config.check_timeout)
            .unwrap_or(DEFAULT_CHECK_TIMEOUT),
        background_wait: what
            .background_wait
            .or(config.background_wait)
            .unwrap_or(PhaseSettings::BACKGROUND_WAIT),
        limits: Limits {
            max_iterations: Some(planned.unwrap_or(DEFAULT_ITERATIONS)),
            iteration_timeout: Some(
                what.iteration_timeout
                    .or(config.iteration_timeout)
                    .unwrap_or(DEFAULT_ITERATION_TIMEOUT),
            ),
            idle_timeout: what
                .idle_timeout
                .or(config.idle_timeout)
                .or(driven.then_some(DEFAULT_IDLE_TIMEOUT)),
        },
    };
    drivers::check_phase(&phase, &root.join(config::FILE_NAME))?;
    let settings = Settings {
        directory: directory.to_owned(),
        phases: vec![phase],
        max_duration: what.max_duration.or(config.max_duration),
        max_failures: what
            .max_failures
            .or(config.max_failures)
            .unwrap_or(DEFAULT_FAILURES),
        sleep: what.sleep.or(config.sleep).unwrap_or(DEFAULT_SLEEP),
        max_cost_microusd: what.max_cost.or(config.max_cost),
        max_tokens: what.max_tokens.or(config.max_tokens),
        wait_on_limit: what.wait_on_limit.or(config.wait_on_limit),
        autonomy: what.autonomy.or(config.autonomy),
        leftovers: what
            .leftovers
            .or(config.leftovers)
            .map(Into::into)
            .unwrap_or_default(),
        commit: what.commit.or(config.commit).unwrap_or_default(),
        worktree: None,
    };
    money::refuse_unreported(&settings)?;
    Ok(Resolved {
        settings,
        presses: config.on_press,
    })
}

/// Returns the MCP servers of the file, and of the one that it names.
fn mcp_servers(config: &Config, root: &Path) -> Result<McpServers, Failure> {
    let of_file = { config.mcp_config.as_ref() }.map(|file| config::read_mcp(&root.join(file)));
    let of_file = of_file.transpose()?.unwrap_or_default();
    Ok(config.mcp_servers.clone().over(of_file))
}

/// Says early what an agent could not be started without.
fn refuse_missing_variables(servers: &McpServers, agent: &AgentSettings) -> Result<(), Failure> {
    let own = agent.env();
    let variable = |name: &str| {
        let own = own.and_then(|own| own.get(name).cloned());
        own.or_else(|| std::env::var(name).ok())
    };
    let expanded = servers.expanded(variable);
    expanded
        .map(drop)
        .map_err(|e| Failure::usage(e.to_string()))
}

/// Refuses what only an agent with a driver of its own can be told.
fn refuse_driver_options(args: &LoopArgs) -> Result<(), Failure> {
    let given = [
        ("--permissions", args.permissions.is_some()),
        ("--model", args.model.is_some()),
        ("--session", args.session.is_some()),
        ("--agent-bin", args.agent_bin.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(Failure::usage(format!(
            "{option} means nothing to a command: give it the agent's own flags behind --, or name a driver with --agent"
        ))),
    }
}

fn permissions_from_environment() -> Result<Option<PermissionsArg>, Failure> {
    let Some(text) = std::env::var_os("RLM_PERMISSIONS") else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    <PermissionsArg as clap::ValueEnum>::from_str(&text, false)
        .map(Some)
        .map_err(|_| {
            Failure::usage(format!(
                "RLM_PERMISSIONS: `{text}` is none of ask, edits, all, deny"
            ))
        })
}

fn prompt(text: Option<String>, file: PathBuf) -> Result<PromptSource, Failure> {
    let text = match text {
        Some(text) => text,
        None if file.file_name() == Some("-".as_ref()) => read_stdin()?,
        None => return Ok(PromptSource::File(file)),
    };
    if text.trim().is_empty() {
        return Err(Failure::usage(
            "the prompt is empty; say what the agent shall do",
        ));
    }
    Ok(PromptSource::Text(text))
}

fn read_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .take(MAX_STDIN + 1)
        .read_to_string(&mut text)
        .map_err(|e| {
            Failure::usage(format!("the prompt can't be read from standard input: {e}"))
        })?;
    if text.len() as u64 > MAX_STDIN {
        return Err(Failure::usage(format!(
            "the prompt on standard input is longer than {MAX_STDIN} bytes"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    /// Parses what a user would type behind `rlm run -p …`, with an agent that is there.
    fn resolve(line: &str, config: Config) -> Result<Settings, String> {
        resolve_line(&format!("rlm run -p text {line} -- sh"), config)
    }

    pub(super) fn resolve_line(line: &str, config: Config) -> Result<Settings, String> {
        let args = Args::try_parse_from(line.split(' ').filter(|word| !word.is_empty())).unwrap();
        let Command::Run(args) = args.command else {
            unreachable!("it says run")
        };
        let directory = Path::new("/tmp");
        let resolved = new_run(*args, config, directory, directory);
        resolved.map(|r| r.settings).map_err(|f| f.message)
    }

    #[test]
    fn x124_what_a_driver_can_be_told_means_nothing_to_a_command() {
        for option in [
            "--permissions all",
            "--model opus",
            "--session continue",
            "--agent-bin sh",
        ] {
            let error = resolve(&format!("--once {option}"), Config::default()).unwrap_err();
            let name = option.split(' ').next().unwrap();
            assert!(
                error.starts_with(name) && error.contains("behind --"),
                "{error}"
            );
        }
    }

    #[test]
    fn x124_permissions_are_edits_unless_said() {
        let claude = "--once --agent claude --agent-bin sh";
        let settings = resolve(claude, Config::default()).unwrap();
        let phase = &settings.phases[0];
        assert_eq!(phase.permissions, Permissions::Edits);
        assert_eq!(phase.limits.idle_timeout, Some(DEFAULT_IDLE_TIMEOUT));
        let AgentSettings::Claude { program, args, .. } = &phase.agent else {
            panic!("{:?}", phase.agent)
        };
        assert_eq!(
            (program[0].to_str(), args[0].to_str()),
            (Some("sh"), Some("sh"))
        );
        let asked = || Config {
            permissions: Some(PermissionsArg::Ask),
            ..Config::default()
        };
        let settings = resolve(claude, asked()).unwrap();
        assert_eq!(settings.phases[0].permissions, Permissions::Ask);
        let settings = resolve(&format!("{claude} --permissions all"), asked()).unwrap();
        assert_eq!(settings.phases[0].permissions, Permissions::All);
    }

    #[test]
    fn x117_what_claude_could_not_be_started_with_is_refused_with_its_file() {
        for text in [
            "tools = ['Ba sh']",
            "allowed-tools = ['']",
            "effort = ''",
            "setting-sources = ['nope']",
            "env = { 'A=B' = 'x' }",
        ] {
            let config = toml::from_str(&format!("[claude]\n{text}\n")).unwrap();
            let refused = resolve("--once --agent claude --agent-bin sh", config).unwrap_err();
            let place = "`/tmp/rlm.toml`, [claude]: `";
            assert!(
                refused.starts_with(place) && refused.contains("` is no "),
                "{refused}"
            );
        }
    }

    #[test]
    fn s18_a_run_needs_an_end() {
        let error = resolve("", Config::default()).unwrap_err();
        assert!(error.contains("no end"), "{error}");
        for end in [
            "--until true",
            "-n 5",
            "--once",
            "--completion-promise DONE",
        ] {
            resolve(end, Config::default()).unwrap();
        }
    }

    #[test]
    fn s04_the_limits_are_those_of_the_help() {
        let settings = resolve("--until true", Config::default()).unwrap();
        let phase = &settings.phases[0];
        assert_eq!(phase.limits.max_iterations, Some(100));
        assert_eq!(
            phase.limits.iteration_timeout,
            Some(Duration::from_secs(3600))
        );
        assert_eq!(phase.limits.idle_timeout, None);
        assert_eq!(phase.check_timeout, Duration::from_secs(900));
        assert_eq!(
            (settings.max_failures, settings.sleep),
            (3, Duration::from_secs(10))
        );
    }

    #[test]
    fn x129_a_budget_that_an_agent_does_not_report_on_is_refused() {
        let refused = [
            "--agent codex --max-cost 5",
            "--agent gemini --max-cost 5",
            "--agent acp --max-cost 5",
            "--agent acp --max-tokens 2M",
            "--max-cost 5",
            "--max-tokens 2M",
        ]
        .map(|line| {
            let bin = if line.contains("--agent") {
                "--agent-bin sh"
            } else {
                ""
            };
            resolve(&format!("--once {bin} {line}"), Config::default()).unwrap_err()
        });
        insta::assert_snapshot!(refused.join("\n"));
        let config = || toml::from_str("max-cost = 4.2\nmax-tokens = '2M'").unwrap();
        for agent in ["claude", "opencode"] {
            let line = format!("--once --agent {agent} --agent-bin sh --max-tokens 500k");
            let settings = resolve(&line, config()).unwrap();
            let budgets = (settings.max_cost_microusd, settings.max_tokens);
            assert_eq!(budgets, (Some(4_200_000), Some(500_000)), "{agent}");
        }
        let codex = "--once --agent codex --agent-bin sh";
        assert!(
            resolve(codex, config())
                .unwrap_err()
                .starts_with("--max-cost")
        );
    }

    #[test]
    fn options_win_over_the_file() {
        let config = || Config {
            until: Some("make".into()),
            max_failures: Some(7),
            ..Config::default()
        };
        let settings = resolve("--until true", config()).unwrap();
        assert_eq!(settings.phases[0].until.as_deref(), Some("true"));
        assert_eq!(settings.max_failures, 7);
    }
}
