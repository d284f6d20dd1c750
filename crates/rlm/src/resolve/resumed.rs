//! The settings that a resume overrides, including the agent.

use std::ffi::OsString;
use std::path::Path;

use agent_drivers::AgentConfig;
use agent_duplex::Permissions;
use loop_state::SessionPolicy;
use rlm_store::{PhaseSettings, PromptSource, Settings};

use super::checks::{
    mcp_servers, refuse_bad_rules, refuse_driver_options, refuse_missing_variables,
};
use crate::agents::{self, AgentKind};
use crate::config::{self, Config, DEFAULT_IDLE_TIMEOUT, Layers};
use crate::exit::Failure;
use crate::saved_settings;

/// The arguments of `resume`, with their context.
#[derive(Debug)]
pub(crate) struct ResumeInput<'a> {
    pub(crate) agent: Option<AgentKind>,
    pub(crate) what: Config,
    pub(crate) agent_command: Vec<OsString>,
    pub(crate) layers: &'a Layers,
    /// The directory of the project's file.
    pub(crate) root: &'a Path,
    pub(crate) directory: &'a Path,
}

/// Merges the arguments over the saved settings; `None` if nothing changes.
pub(crate) fn resumed(
    given: ResumeInput<'_>,
    saved: &Settings,
) -> Result<Option<Settings>, Failure> {
    let mut settings = saved.clone();
    let args = &given.what;
    if args.prompt.is_some() || args.prompt_file.as_deref() == Some(Path::new("-")) {
        return Err(Failure::usage(
            "a resumed run keeps its prompt; to change it, use --prompt-file FILE, or edit the prompt file",
        ));
    }
    if let Some(file) = &args.prompt_file {
        let [phase] = settings.phases.as_mut_slice() else {
            return Err(Failure::usage(
                "each phase of this run has its own prompt: edit the prompt files, and remove --prompt-file",
            ));
        };
        phase.prompt = PromptSource::File(given.directory.join(file));
    }
    for phase in &mut settings.phases {
        resumed_phase(&given, phase, &saved.directory)?;
    }
    refuse_driver_options(args, &settings.phases)?;
    saved_settings::apply_to_run(args, &mut settings);
    // This setting has no option, so a resume takes it from the files.
    let of_files = given.layers.run().config().max_transcripts;
    settings.max_transcripts = of_files.map(|it| it.0).or(settings.max_transcripts);
    refuse_bad_rules(&settings)?;
    Ok((settings != *saved).then_some(settings))
}

/// Merges the arguments over a phase.
fn resumed_phase(
    given: &ResumeInput<'_>,
    phase: &mut PhaseSettings,
    at: &Path,
) -> Result<(), Failure> {
    let args = &given.what;
    let config = given.layers.phase(&phase.name).config();
    let other = other_agent(given, &config, &phase.agent)?;
    let changes = other.is_some();
    if let Some(other) = other {
        hand_over(phase, other, given, &config)?;
    } else if let Some(bin) = agents::program_path(args.agent_bin.clone(), given.directory)
        && phase.agent.has_driver()
    {
        phase.agent.program = vec![bin];
    }
    agents::override_agent(
        &mut phase.agent,
        args.model.clone(),
        given.agent_command.clone(),
    );
    saved_settings::apply_to_phase(args, phase);
    // The check takes the key of the own agent out of the environment, which the programs that start before the agent would inherit.
    if changes || AgentKind::of(&phase.agent) == AgentKind::Api {
        agents::check_phase(
            phase,
            &given.root.join(config::FILE_NAME),
            config::api_server(),
        )?;
    }
    agents::find_program(&phase.agent, at)?;
    refuse_missing_variables(&phase.mcp_servers, &phase.agent)?;
    Ok(())
}

/// Creates the named agent, if it is not the agent of the run.
fn other_agent(
    given: &ResumeInput<'_>,
    config: &Config,
    saved: &AgentConfig,
) -> Result<Option<AgentConfig>, Failure> {
    let has = AgentKind::of(saved);
    let bin = agents::program_path(given.what.agent_bin.clone(), given.directory);
    // An acp agent is named by its program: another program is another agent.
    let is_renamed = has == AgentKind::Acp && bin.is_some();
    let kind = match given.agent {
        Some(kind) if kind != has || is_renamed => kind,
        None if is_renamed => has,
        _ => return Ok(None),
    };
    let command = config.command();
    agents::choose(
        Some(kind),
        &given.agent_command,
        command.as_deref(),
        given.directory,
    )?;
    let mut other = config::agent(kind, bin, config, given.root)?;
    if config.agent == Some(kind) {
        agents::override_agent(&mut other, config.model.clone(), Vec::new());
    }
    Ok(Some(other).filter(|other| !other.is_same(saved)))
}

/// Changes the agent of a phase. Settings that have the same meaning for both agents stay.
fn hand_over(
    phase: &mut PhaseSettings,
    other: AgentConfig,
    given: &ResumeInput<'_>,
    config: &Config,
) -> Result<(), Failure> {
    let (section, to) = (AgentKind::of(&phase.agent).name(), other.name());
    let restriction = phase.agent.restrictions().first().copied();
    let restriction = restriction.map(|what| format!("setting `{what}` in [{section}]"));
    let has_words = !phase.agent.args.is_empty();
    let restriction = restriction.or(has_words.then(|| "the arguments after --".to_owned()));
    let was_driven = phase.agent.has_driver();
    let idle = &mut phase.limits.idle_timeout;
    match (was_driven, other.has_driver()) {
        (true, true) => {
            if let (Some(what), None) = (restriction, given.what.permissions) {
                return Err(Failure::usage(format!(
                    "the agent of this run may be restricted by {what}, and {to} doesn't have this: set the permissions of {to} with --permissions"
                )));
            }
        }
        (true, false) => {
            let kept = match (phase.permissions, restriction) {
                (Permissions::Ask | Permissions::Deny, _) => Some("the permissions of this run"),
                (_, Some(_)) => Some("the restrictions of this run's agent"),
                _ => None,
            };
            if let Some(kept) = kept {
                return Err(Failure::usage(format!(
                    "{kept} can't be applied to a command agent, which follows only its own options; start a new run"
                )));
            }
            if !phase.mcp_servers.is_empty() {
                return Err(Failure::usage(
                    "this run has MCP servers, which a command agent can't use: choose an agent that has a driver, or start a new run",
                ));
            }
            phase.session = SessionPolicy::Fresh;
            phase.permissions = Permissions::default();
            *idle = idle.filter(|idle| *idle != DEFAULT_IDLE_TIMEOUT);
        }
        (false, true) => {
            // A command agent has none of these settings.
            phase.permissions = config.permissions.unwrap_or_default();
            phase.session = config.session.unwrap_or_default();
            phase.mcp_servers = mcp_servers(config, given.root)?;
            idle.get_or_insert(DEFAULT_IDLE_TIMEOUT);
        }
        (false, false) => {}
    }
    phase.agent = other;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_drivers::AgentOptions;
    use std::num::NonZeroU32;
    use std::time::Duration;

    /// Returns the settings of a run of Claude Code with this file.
    fn saved(file: &str) -> Settings {
        let line = "rlm run -p text --until true --agent claude --agent-bin sh --model opus";
        crate::resolve::tests::resolve_line(line, file).unwrap()
    }

    fn given(layers: &Layers, agent: Option<AgentKind>, what: Config) -> ResumeInput<'_> {
        ResumeInput {
            agent,
            what,
            agent_command: Vec::new(),
            layers,
            root: Path::new("/"),
            directory: Path::new("/"),
        }
    }

    fn sh() -> Config {
        Config {
            agent_bin: Some("sh".into()),
            ..Config::default()
        }
    }

    #[test]
    fn s15a_resume_flags_win_and_none_change_nothing() {
        let (config, saved) = (Layers::default(), saved(""));
        let resume = |agent, what| resumed(given(&config, agent, what), &saved).unwrap();
        assert_eq!(resume(None, Config::default()), None);
        assert_eq!(resume(Some(AgentKind::Claude), Config::default()), None);
        let more = Config {
            max_iterations: NonZeroU32::new(200),
            sleep: Some(Duration::ZERO.into()),
            ..Config::default()
        };
        let changed = resume(None, more).unwrap();
        assert_eq!(changed.phases[0].limits.max_iterations, Some(200));
        assert_eq!(changed.limits.sleep, Duration::ZERO);
        assert_eq!(changed.phases[0].check, saved.phases[0].check);
    }

    #[test]
    fn other_agent_gets_equivalent_options_and_its_own_section() {
        let saved = saved("permissions = 'deny'\nsession = 'continue'\n");
        let file = "agent = 'codex'\nmodel = 'gpt'\n[codex]\neffort = 'high'\n";
        let config = Layers::of(Path::new("/"), file);
        let changed = resumed(given(&config, Some(AgentKind::Codex), sh()), &saved);
        let phase = &changed.unwrap().unwrap().phases[0];
        assert_eq!(phase.permissions, Permissions::Deny);
        assert_eq!(phase.session, SessionPolicy::Continue);
        let AgentOptions::Codex(options) = &phase.agent.options else {
            panic!("{:?}", phase.agent)
        };
        let settings = (phase.agent.model.as_deref(), options.effort.as_deref());
        assert_eq!(settings, (Some("gpt"), Some("high")));
        // The model of another agent doesn't apply.
        let other = Layers::of(Path::new("/"), "agent = 'claude'\nmodel = 'opus'\n");
        let changed = resumed(given(&other, Some(AgentKind::Codex), sh()), &saved);
        assert_eq!(changed.unwrap().unwrap().phases[0].agent.model, None);
    }

    #[test]
    fn permission_restrictions_are_reported() {
        let strict = saved("[claude]\ndisallowed-tools = ['Bash']\n");
        let config = Layers::of(Path::new("/"), "command = ['sh']");
        let change = |saved: &Settings, kind, what| {
            resumed(given(&config, Some(kind), what), saved).map_err(|f| f.message)
        };
        let refused = change(&strict, AgentKind::Codex, sh()).unwrap_err();
        assert!(
            refused.contains("`disallowed-tools` in [claude]")
                && refused.contains("permissions of codex with --permissions"),
            "{refused}"
        );
        let line = "rlm run -p text --once --agent claude --agent-bin sh -- --disallowedTools Bash";
        let words = crate::resolve::tests::resolve_line(line, "").unwrap();
        let refused = change(&words, AgentKind::Codex, sh()).unwrap_err();
        assert!(
            refused.starts_with("the agent of this run may be restricted by the arguments"),
            "{refused}"
        );
        let line = "rlm run -p text --once --agent opencode --agent-bin sh";
        let file = "[opencode]\nenv = { OPENCODE_PERMISSION = '{\"bash\": \"deny\"}' }\n";
        let asks = crate::resolve::tests::resolve_line(line, file);
        let refused = change(&asks.unwrap(), AgentKind::Codex, sh()).unwrap_err();
        assert!(
            refused.starts_with(
                "the agent of this run may be restricted by setting `env` in [opencode]"
            ),
            "{refused}"
        );
        let given = Config {
            permissions: Some(Permissions::Deny),
            ..sh()
        };
        change(&strict, AgentKind::Codex, given).unwrap().unwrap();
        for file in ["permissions = 'deny'", "permissions = 'ask'"] {
            let refused = change(&saved(file), AgentKind::Command, Config::default());
            assert!(refused.unwrap_err().contains("only its own options"));
        }
        let servers = saved("mcp-servers.a = { command = 'x' }");
        let refused = change(&servers, AgentKind::Command, Config::default()).unwrap_err();
        assert!(refused.contains("MCP servers"), "{refused}");
        let plain = change(&saved(""), AgentKind::Command, Config::default()).unwrap();
        let phase = &plain.unwrap().phases[0];
        assert_eq!(phase.limits.idle_timeout, None);
    }

    #[test]
    fn s15a_resume_flags_override_every_phase() {
        let file = "prompt = 'x'\nagent = 'claude'\nagent-bin = '/bin/sh'\n[[phase]]\nname = 'a'\nmax-iterations = 1\n\
            [[phase]]\nname = 'b'\nmax-iterations = 2\nagent = 'command'\ncommand = ['sh']\n";
        let layers = Layers::of(Path::new("/"), file);
        let saved = crate::resolve::tests::resolve_line("rlm run", file).unwrap();
        let more = |what| resumed(given(&layers, None, what), &saved).map_err(|f| f.message);
        let changed = more(Config {
            max_iterations: NonZeroU32::new(7),
            model: Some("opus".into()),
            ..Config::default()
        });
        let changed = changed.unwrap().unwrap();
        let limits: Vec<_> = { changed.phases.iter() }
            .map(|phase| phase.limits.max_iterations)
            .collect();
        assert_eq!(limits, [Some(7), Some(7)]);
        let models: Vec<_> = { changed.phases.iter() }
            .map(|phase| phase.agent.model.as_deref())
            .collect();
        assert_eq!(models, [Some("opus"), None]);
        let refused = more(Config {
            prompt_file: Some("x".into()),
            ..Config::default()
        });
        assert!(refused.unwrap_err().contains("each phase"));
        let others = resumed(given(&layers, Some(AgentKind::Codex), sh()), &saved);
        let others = others.unwrap().unwrap();
        let agents: Vec<_> = { others.phases.iter() }
            .map(|phase| phase.agent.name())
            .collect();
        assert_eq!(agents, ["codex", "codex"]);
    }

    #[test]
    fn agent_with_another_program_is_another_agent() {
        let saved = crate::resolve::tests::resolve_line(
            "rlm run -p text --once --agent acp --agent-bin sh",
            "",
        );
        let (config, saved) = (Layers::default(), saved.unwrap());
        let same = resumed(
            given(&config, Some(AgentKind::Acp), Config::default()),
            &saved,
        );
        assert_eq!(same.unwrap(), None);
        assert_eq!(resumed(given(&config, None, sh()), &saved).unwrap(), None);
        let bin = Config {
            agent_bin: Some("env".into()),
            ..Config::default()
        };
        let other = resumed(given(&config, None, bin), &saved).unwrap().unwrap();
        assert!(!other.phases[0].agent.is_same(&saved.phases[0].agent));
    }
}
