//! The list of the programs that a run starts, which every preview and every start shows to a person.
//! `Settings::programs` in `settings.rs` creates the list.

use std::collections::BTreeMap;

use agent_drivers::AgentConfig;
use agent_drivers::mcp::McpServer;
use serde_json::Value;

/// The placeholder for a redacted value.
const REDACTED: &str = "…";
/// The setting tables whose values are secrets.
const SECRET_TABLES: [&str; 4] = ["env", "env_http_headers", "headers", "http_headers"];

/// A program that a run starts, or a file that it writes for other programs, as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Program {
    /// The name of its phase; `None` for a program of the whole run.
    pub phase: Option<String>,
    /// The purpose of the program.
    pub what: ProgramKind,
    /// The complete command; only values that may be secrets are redacted.
    pub command: String,
}

/// The purpose of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramKind {
    /// The agent.
    Agent,
    /// A command in the agent's own settings, which the agent starts.
    AgentSetting,
    /// The hooks in the agent's own settings, which are enabled.
    AgentHooks,
    /// An MCP server that the agent starts or connects to.
    McpServer,
    /// A required check.
    RequiredCheck,
    /// The check that decides whether the phase is finished.
    Check,
    /// The hooks of the git repository, which run at each commit.
    GitHooks,
    /// The notify command.
    Notify,
    /// No program: the heartbeat file, which the run writes regularly.
    Heartbeat,
}

impl ProgramKind {
    /// Returns its name in the text output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::AgentSetting => "agent-setting",
            Self::AgentHooks => "agent-hooks",
            Self::McpServer => "mcp-server",
            Self::RequiredCheck => "required check",
            Self::Check => "check",
            Self::GitHooks => "git-hooks",
            Self::Notify => "notify",
            Self::Heartbeat => "heartbeat",
        }
    }
}

impl Program {
    /// Creates an entry of the list.
    pub fn new(phase: Option<String>, what: ProgramKind, command: impl Into<String>) -> Self {
        Self {
            phase,
            what,
            command: command.into(),
        }
    }
}

/// Adds the agent, the programs in its settings, and its hooks.
pub(crate) fn of_agent(agent: &AgentConfig, add: &mut impl FnMut(ProgramKind, String)) {
    let AgentConfig {
        options: _, // `passed_through` handles them
        program,
        model: _,
        args,
    } = agent;
    let passed = agent.passed_through();
    // An agent inside this program still starts commands, and a variable can change what they are.
    let has_variables = passed.env.is_some_and(|env| !env.is_empty());
    if program.is_empty() && !has_variables {
        return;
    }
    // The arguments go only to the agent, and the user typed them: a secret in them is already visible in the list of processes.
    let words = program.iter().chain(args);
    let mut words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    if program.is_empty() {
        words.push(format!("the commands of {}", agent.name()));
    }
    let settings = || passed.settings.into_iter().flatten();
    let names = settings().map(|(name, _)| name);
    add(ProgramKind::Agent, with(words.join(" "), passed.env, names));
    for (key, value) in settings() {
        let first = key.split('.').next().unwrap_or_default();
        if passed.commands.contains(&first) {
            add(ProgramKind::AgentSetting, setting(key, value));
        }
    }
    if let Some(sources) = passed.hooks {
        let command = format!("the hooks of the settings that Claude Code reads: {sources}");
        add(ProgramKind::AgentHooks, command);
    }
}

/// Returns the text of a setting that is a command. Redacts the values of variables and headers in it.
fn setting(key: &str, value: &Value) -> String {
    let is_secret = key.split('.').skip(1).any(|it| SECRET_TABLES.contains(&it));
    let mut shown = value.clone();
    match is_secret {
        true => shown = REDACTED.into(),
        false => redact_below(&mut shown),
    }
    format!("{key} = {shown}")
}

fn redact_below(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::Object(secrets) if SECRET_TABLES.contains(&name.as_str()) => {
                        secrets.values_mut().for_each(|it| *it = REDACTED.into());
                    }
                    value => redact_below(value),
                }
            }
        }
        Value::Array(members) => members.iter_mut().for_each(redact_below),
        _ => {}
    }
}

/// Appends the names of the redacted values to a command.
fn with<'a>(
    words: String,
    env: Option<&BTreeMap<String, String>>,
    settings: impl Iterator<Item = &'a String>,
) -> String {
    let env = env
        .into_iter()
        .flatten()
        .map(|(name, _)| format!("{name}={REDACTED}"));
    let settings = settings.map(|name| format!("setting {name}={REDACTED}"));
    let hidden: Vec<String> = env.chain(settings).collect();
    match hidden.is_empty() {
        true => words,
        false => format!("{words} (with {})", hidden.join(", ")),
    }
}

/// Returns the text of a server; `hidden` is the same server without its values.
pub(crate) fn of_server(server: &McpServer, hidden: &McpServer) -> String {
    match (server, hidden) {
        (McpServer::Stdio { command, args, env }, _) => {
            let mut words = vec![quoted(command)];
            let mut is_secret = false;
            for arg in args {
                let shown = without_secret(arg, is_secret);
                is_secret = names_secret(arg);
                words.push(shown);
            }
            with(words.join(" "), Some(env), [].iter())
        }
        (_, McpServer::Http { url, headers } | McpServer::Sse { url, headers }) => {
            with(url.clone(), Some(headers), [].iter())
        }
        // A setting that this version doesn't know is shown only by name.
        _ => REDACTED.to_owned(),
    }
}

/// Returns an argument for people: redacts the value of an option with a secret-like name, unless the value may be a command.
fn without_secret(arg: &str, is_value: bool) -> String {
    // Show a value that a shell could run, whatever its name.
    let is_word = |text: &str| {
        let may_run = |c: char| c.is_whitespace() || c.is_control() || ";|&$()<>`{}!".contains(c);
        !text.is_empty() && !text.contains(may_run)
    };
    match arg.split_once('=') {
        Some((name, value)) if names_secret(name) && is_word(value) => {
            format!("{}={REDACTED}", quoted(name))
        }
        None if is_value && is_word(arg) && !arg.starts_with('-') => REDACTED.to_owned(),
        _ => quoted(arg),
    }
}

/// Returns whether the name of an option suggests a secret.
fn names_secret(option: &str) -> bool {
    let name = option.to_ascii_lowercase();
    let secrets = ["key", "token", "secret", "password", "passwd", "credential"];
    name.starts_with("--") && !name.contains('=') && secrets.iter().any(|it| name.contains(it))
}

/// Quotes a word for a shell if it needs quotes, so that arguments stay distinct.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%=".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PhaseSettings, PromptSource, Settings};

    fn shown(phase: PhaseSettings) -> Vec<String> {
        let settings = Settings::new("/", vec![phase]);
        let all = settings.programs().into_iter();
        all.map(|it| format!("{} {}", it.what.name(), it.command))
            .collect()
    }

    fn phase(agent: AgentConfig) -> PhaseSettings {
        PhaseSettings::new("main", PromptSource::Text("x".into()), agent)
    }

    #[test]
    fn h6_arguments_of_servers_are_shown_and_secrets_are_marked() {
        let mut servers = agent_drivers::mcp::McpServers::default();
        let shell = McpServer::stdio("sh").arg("-c").arg("true # fine\nevil");
        let keyed = McpServer::stdio("x")
            .arg("--key=s3cret")
            .arg("--token")
            .arg("s3cret");
        let evil = McpServer::stdio("sh")
            .arg("--key=$(evil)")
            .env("TOKEN", "s3cret");
        let place = McpServer::http("https://s3cret@host/s3cret").header("A", "s3cret");
        for (name, server) in [("a", shell), ("b", keyed), ("c", evil), ("d", place)] {
            servers.insert(name, server).unwrap();
        }
        let mut phase = phase(AgentConfig::command(vec![
            "agent".into(),
            "two words".into(),
        ]));
        phase.mcp_servers = servers;
        assert_eq!(
            shown(phase),
            [
                "agent agent 'two words'",
                "mcp-server a: sh -c 'true # fine\nevil'",
                "mcp-server b: x --key=… --token …",
                "mcp-server c: sh '--key=$(evil)' (with TOKEN=…)",
                "mcp-server d: https://host/… (with A=…)",
            ]
        );
    }

    #[test]
    fn h6_commands_in_the_settings_of_an_agent_are_shown() {
        let claude = r#"{"program":["claude"],"args":["-x"],"options":{"claude":{"hooks":true,"env":{"LD_PRELOAD":"s3cret"},
            "settings":{"apiKeyHelper":"evil","env":{"A":"s3cret"}}}}}"#;
        let codex = r#"{"program":["codex"],"options":{"codex":{"config":{"model":"s3cret","notify":["evil"],
            "mcp_servers":{"a":{"command":"evil","env":{"A":"s3cret"}}}}}}}"#;
        let shown: Vec<String> = [claude, codex]
            .into_iter()
            .flat_map(|text| shown(phase(serde_json::from_str(text).unwrap())))
            .collect();
        assert_eq!(
            shown,
            [
                "agent claude -x (with LD_PRELOAD=…, setting apiKeyHelper=…, setting env=…)",
                "agent-setting apiKeyHelper = \"evil\"",
                "agent-hooks the hooks of the settings that Claude Code reads: user, project, local",
                "agent codex (with setting mcp_servers=…, setting model=…, setting notify=…)",
                "agent-setting mcp_servers = {\"a\":{\"command\":\"evil\",\"env\":{\"A\":\"…\"}}}",
                "agent-setting notify = [\"evil\"]",
            ]
        );
    }
}
