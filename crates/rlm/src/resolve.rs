//! From arguments and configuration to the settings of a run. Pure but for reading a prompt from standard input.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use loop_runner::{AgentSettings, PhaseSettings, PromptSource, Settings};
use loop_state::Limits;

use crate::args::{AgentKind, LoopArgs};
use crate::config::Config;
use crate::drivers;
use crate::exit::Failure;

pub(crate) const DEFAULT_ITERATIONS: u32 = 100;
pub(crate) const DEFAULT_ITERATION_TIMEOUT: Duration = Duration::from_secs(3600);
pub(crate) const DEFAULT_CHECK_TIMEOUT: Duration = Duration::from_secs(900);
pub(crate) const DEFAULT_FAILURES: u32 = 3;
pub(crate) const DEFAULT_SLEEP: Duration = Duration::from_secs(10);
const DEFAULT_PROMPT: &str = "PROMPT.md";
/// The largest prompt that is taken from standard input.
const MAX_STDIN: u64 = 4 << 20;

/// The settings of a new run, and the text of a prompt that comes from no file.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) settings: Settings,
    pub(crate) text: Option<String>,
}

/// Makes the settings of a new run.
pub(crate) fn new_run(
    args: LoopArgs,
    command: Vec<OsString>,
    config: Config,
    directory: PathBuf,
) -> Result<Resolved, Failure> {
    let kind = args.agent.or(config.agent).unwrap_or(AgentKind::Command);
    drivers::require(kind)?;
    let argv = if command.is_empty() {
        config
            .command
            .unwrap_or_default()
            .into_iter()
            .map(Into::into)
            .collect()
    } else {
        command
    };
    let Some(program) = argv.first() else {
        return Err(Failure::usage(
            "no agent: give a command behind --, for example: rlm run --until 'make test' -- claude -p",
        ));
    };
    drivers::find_program(program, &directory)?;
    let until = args.until.or(config.until);
    let planned = if args.once {
        Some(1)
    } else {
        args.max_iterations
            .or(config.max_iterations.map(Into::into))
    };
    if until.is_none() && planned.is_none() {
        return Err(Failure::usage(
            "this run has no end: give --until CMD, -n N or --once",
        ));
    }
    let (prompt, text) = prompt(
        args.prompt,
        args.prompt_file.or(config.prompt_file),
        &directory,
    )?;
    let phase = PhaseSettings {
        name: "main".into(),
        prompt,
        agent: AgentSettings::Command { argv },
        gates: if args.gate.is_empty() {
            config.gates.unwrap_or_default()
        } else {
            args.gate
        },
        until,
        check_timeout: args
            .check_timeout
            .or(config.check_timeout)
            .unwrap_or(DEFAULT_CHECK_TIMEOUT),
        limits: Limits {
            max_iterations: Some(planned.unwrap_or(DEFAULT_ITERATIONS)),
            iteration_timeout: Some(
                args.iteration_timeout
                    .or(config.iteration_timeout)
                    .unwrap_or(DEFAULT_ITERATION_TIMEOUT),
            ),
            idle_timeout: args.idle_timeout.or(config.idle_timeout),
        },
    };
    let settings = Settings {
        directory,
        phases: vec![phase],
        max_duration: args.max_duration.or(config.max_duration),
        max_failures: args
            .max_failures
            .or(config.max_failures)
            .unwrap_or(DEFAULT_FAILURES),
        sleep: args.sleep.or(config.sleep).unwrap_or(DEFAULT_SLEEP),
        leftovers: args
            .leftovers
            .or(config.leftovers)
            .map(Into::into)
            .unwrap_or_default(),
    };
    Ok(Resolved { settings, text })
}

/// Puts what was given to `resume` over the saved settings; `None` when nothing was given.
pub(crate) fn resumed(
    args: LoopArgs,
    command: Vec<OsString>,
    saved: &Settings,
    at: &Path,
) -> Result<Option<Settings>, Failure> {
    let mut settings = saved.clone();
    let phase = &mut settings.phases[0];
    // The saved kind stands; an environment that names the agent of new runs does not change an old one.
    if args.prompt.is_some() || args.prompt_file.as_deref() == Some(Path::new("-")) {
        return Err(Failure::usage(
            "a resumed run keeps its prompt: give --prompt-file FILE, or edit the file it has",
        ));
    }
    if let Some(file) = args.prompt_file {
        phase.prompt = PromptSource::File(at.join(file));
    }
    if let Some(program) = command.first() {
        drivers::find_program(program, &settings.directory)?;
        phase.agent = AgentSettings::Command { argv: command };
    }
    if args.until.is_some() {
        phase.until = args.until;
    }
    if !args.gate.is_empty() {
        phase.gates = args.gate;
    }
    let limits = &mut phase.limits;
    limits.max_iterations = args
        .once
        .then_some(1)
        .or(args.max_iterations)
        .or(limits.max_iterations);
    limits.iteration_timeout = args.iteration_timeout.or(limits.iteration_timeout);
    limits.idle_timeout = args.idle_timeout.or(limits.idle_timeout);
    phase.check_timeout = args.check_timeout.unwrap_or(phase.check_timeout);
    settings.max_duration = args.max_duration.or(settings.max_duration);
    settings.max_failures = args.max_failures.unwrap_or(settings.max_failures);
    settings.sleep = args.sleep.unwrap_or(settings.sleep);
    settings.leftovers = args.leftovers.map_or(settings.leftovers, Into::into);
    Ok((settings != *saved).then_some(settings))
}

fn prompt(
    text: Option<String>,
    file: Option<PathBuf>,
    directory: &Path,
) -> Result<(PromptSource, Option<String>), Failure> {
    let kept = |text: String| {
        if text.trim().is_empty() {
            return Err(Failure::usage(
                "the prompt is empty; say what the agent shall do",
            ));
        }
        // The run gives it its final name when it keeps it.
        Ok((PromptSource::Kept(String::new()), Some(text)))
    };
    match (text, file) {
        (Some(text), _) => kept(text),
        (None, Some(file)) if file == Path::new("-") => kept(read_stdin()?),
        (None, file) => {
            let file = file.unwrap_or_else(|| DEFAULT_PROMPT.into());
            Ok((PromptSource::File(directory.join(file)), None))
        }
    }
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

    fn args(change: impl FnOnce(&mut LoopArgs)) -> LoopArgs {
        let mut args = LoopArgs {
            prompt: Some("do it".into()),
            ..LoopArgs::default()
        };
        change(&mut args);
        args
    }

    fn resolve(args: LoopArgs, config: Config) -> Result<Settings, String> {
        new_run(args, vec!["sh".into()], config, "/tmp".into())
            .map(|r| r.settings)
            .map_err(|f| f.message)
    }

    #[test]
    fn s18_a_run_needs_an_end() {
        let error = resolve(args(|_| {}), Config::default()).unwrap_err();
        assert!(error.contains("no end"), "{error}");
        for end in [
            args(|a| a.until = Some("true".into())),
            args(|a| a.max_iterations = Some(5)),
            args(|a| a.once = true),
        ] {
            resolve(end, Config::default()).unwrap();
        }
    }

    #[test]
    fn s04_the_limits_are_those_of_the_help() {
        let settings = resolve(args(|a| a.until = Some("true".into())), Config::default()).unwrap();
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
    fn options_win_over_the_file() {
        let config = || Config {
            until: Some("make".into()),
            max_failures: Some(7),
            ..Config::default()
        };
        let settings = resolve(args(|a| a.until = Some("true".into())), config()).unwrap();
        assert_eq!(settings.phases[0].until.as_deref(), Some("true"));
        assert_eq!(settings.max_failures, 7);
    }

    #[test]
    fn s15_what_is_given_to_resume_wins_and_nothing_given_changes_nothing() {
        let saved = resolve(args(|a| a.until = Some("true".into())), Config::default()).unwrap();
        let same = resumed(LoopArgs::default(), vec![], &saved, Path::new("/")).unwrap();
        assert_eq!(same, None);
        let more = LoopArgs {
            max_iterations: Some(200),
            sleep: Some(Duration::ZERO),
            ..LoopArgs::default()
        };
        let changed = resumed(more, vec![], &saved, Path::new("/"))
            .unwrap()
            .unwrap();
        assert_eq!(changed.phases[0].limits.max_iterations, Some(200));
        assert_eq!(changed.sleep, Duration::ZERO);
        assert_eq!(changed.phases[0].until, saved.phases[0].until);
    }
}
