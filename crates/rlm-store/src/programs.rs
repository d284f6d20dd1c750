//! The programs that a run starts, as a person reads them before the run begins: the one list that every preview and every start shows.
//! `Settings::programs` in `settings.rs` puts it together.

use std::collections::BTreeMap;

use agent_drivers::AgentConfig;
use agent_drivers::mcp::McpServer;
use serde_json::Value;

/// What stands for a value that isn't shown.
const HIDDEN: &str = "…";
/// The tables below those whose values are secrets.
const SECRET_TABLES: [&str; 4] = ["env", "env_http_headers", "headers", "http_headers"];

/// A program that a run starts, or a file that it writes for others, as a person reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Program {
    /// The name of its phase; `None` for one of the whole run.
    pub phase: Option<String>,
    /// What the run starts it for.
    pub what: ProgramKind,
    /// The command, whole: only values that may be secrets are replaced by `…`.
    pub command: String,
}

/// What a run starts a program for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramKind {
    /// It is the agent.
    Agent,
    /// It is in the agent's own settings, which the agent obeys.
    AgentSetting,
    /// The hooks of the agent's own settings, which are switched on.
    AgentHooks,
    /// The agent starts it as an MCP server, or connects to it.
    McpServer,
    /// It must pass before an iteration counts.
    Gate,
    /// It decides that the phase is done.
    Until,
    /// The hooks of the git repository, which run at each commit.
    GitHooks,
    /// It is started when something happens to the run.
    Notify,
    /// No program: a file that the run writes over and over.
    Heartbeat,
}

impl ProgramKind {
    /// Returns its name, as JSON has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::AgentSetting => "agent-setting",
            Self::AgentHooks => "agent-hooks",
            Self::McpServer => "mcp-server",
            Self::Gate => "gate",
            Self::Until => "until",
            Self::GitHooks => "git-hooks",
            Self::Notify => "notify",
            Self::Heartbeat => "heartbeat",
        }
    }
}

impl Program {
    /// Makes an entry of the list.
    pub fn new(phase: Option<String>, what: ProgramKind, command: impl Into<String>) -> Self {
        Self {
            phase,
            what,
            command: command.into(),
        }
    }
}

/// Adds the agent, what its settings start, and its hooks.
pub(crate) fn of_agent(agent: &AgentConfig, add: &mut impl FnMut(ProgramKind, String)) {
    let AgentConfig {
        options: _, // `handed_on` takes them apart
        program,
        model: _,
        args,
    } = agent;
    if program.is_empty() {
        return;
    }
    // What stands behind it goes to nobody but the agent, and the user typed it: a secret in it is in the list of processes already.
    let words = program.iter().chain(args);
    let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    let handed_on = agent.handed_on();
    let settings = || handed_on.settings.into_iter().flatten();
    let names = settings().map(|(name, _)| name);
    add(
        ProgramKind::Agent,
        with(words.join(" "), handed_on.env, names),
    );
    for (key, value) in settings() {
        let first = key.split('.').next().unwrap_or_default();
        if handed_on.commands.contains(&first) {
            add(ProgramKind::AgentSetting, setting(key, value));
        }
    }
    if let Some(sources) = handed_on.hooks {
        let command = format!("the hooks of the settings that Claude Code reads: {sources}");
        add(ProgramKind::AgentHooks, command);
    }
}

/// Shows a setting that is a command. Below it, values of variables and headers are hidden.
fn setting(key: &str, value: &Value) -> String {
    let is_secret = key.split('.').skip(1).any(|it| SECRET_TABLES.contains(&it));
    let mut shown = value.clone();
    match is_secret {
        true => shown = HIDDEN.into(),
        false => hide_below(&mut shown),
    }
    format!("{key} = {shown}")
}

fn hide_below(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::Object(secrets) if SECRET_TABLES.contains(&name.as_str()) => {
                        secrets.values_mut().for_each(|it| *it = HIDDEN.into());
                    }
                    value => hide_below(value),
                }
            }
        }
        Value::Array(members) => members.iter_mut().for_each(hide_below),
        _ => {}
    }
}

/// Adds the names of what the program is given and isn't shown.
fn with<'a>(
    words: String,
    env: Option<&BTreeMap<String, String>>,
    settings: impl Iterator<Item = &'a String>,
) -> String {
    let env = env
        .into_iter()
        .flatten()
        .map(|(name, _)| format!("{name}={HIDDEN}"));
    let settings = settings.map(|name| format!("setting {name}={HIDDEN}"));
    let hidden: Vec<String> = env.chain(settings).collect();
    match hidden.is_empty() {
        true => words,
        false => format!("{words} (with {})", hidden.join(", ")),
    }
}

/// Shows a server; `hidden` is the same one without its values.
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
        // A setting that this version doesn't know is shown by its name.
        _ => HIDDEN.to_owned(),
    }
}

/// Returns an argument as it may be shown: the value of one that is named like a secret is hidden, if no command can be in it.
fn without_secret(arg: &str, is_value: bool) -> String {
    // A value that a shell could run is shown, whatever its name is.
    let is_word = |text: &str| {
        let may_run = |c: char| c.is_whitespace() || c.is_control() || ";|&$()<>`{}!".contains(c);
        !text.is_empty() && !text.contains(may_run)
    };
    match arg.split_once('=') {
        Some((name, value)) if names_secret(name) && is_word(value) => {
            format!("{}={HIDDEN}", quoted(name))
        }
        None if is_value && is_word(arg) && !arg.starts_with('-') => HIDDEN.to_owned(),
        _ => quoted(arg),
    }
}

/// Returns whether an option is named like one that takes a secret.
fn names_secret(option: &str) -> bool {
    let name = option.to_ascii_lowercase();
    let secrets = ["key", "token", "secret", "password", "passwd", "credential"];
    name.starts_with("--") && !name.contains('=') && secrets.iter().any(|it| name.contains(it))
}

/// Quotes a word for a shell where it needs that, so that one argument is told from two.
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
