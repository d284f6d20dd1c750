//! The output of `rlm doctor`, for people and programs.

use std::fmt;

use agent_drivers::LoggedIn;
use rlm_terminal::style::{BAD, BOLD, DIM, GOOD, WARNING_STYLE, styled};
use rlm_text::escape::plain;
use serde::Serialize;

use crate::hint::program_command;

/// The capabilities of agents, in the order of the table.
const CAPABILITIES: [&str; 9] = [
    "interrupt",
    "steer",
    "resume",
    "tools",
    "usage",
    "permissions",
    "fork",
    "mcp",
    "model",
];

/// The health of an agent or of a part of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Health {
    /// It works.
    Ok,
    /// It works, but has a warning.
    Warning,
    /// It does not work.
    Problem,
    /// It is not installed.
    Absent,
}

/// The results for one agent.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AgentHealth {
    pub(crate) agent: &'static str,
    pub(crate) health: Health,
    /// The program that a run starts.
    pub(crate) program: Option<String>,
    /// The other programs of that name on `PATH`, which a run doesn't start.
    pub(crate) shadowed: Vec<String>,
    pub(crate) version: Option<String>,
    /// The version that was tested with this version of `rlm`.
    pub(crate) tested_version: Option<&'static str>,
    pub(crate) logged_in: LoggedIn,
    /// The login method, or how to log in, or the reason why the login is unknown.
    pub(crate) login: Option<String>,
    /// The names of the variables for its login that are set.
    pub(crate) variables: Vec<String>,
    pub(crate) capabilities: Vec<String>,
    /// The problems and warnings, with their fixes.
    pub(crate) notes: Vec<String>,
}

impl AgentHealth {
    pub(crate) fn is_usable(&self) -> bool {
        self.health < Health::Problem
    }
}

/// The result of one check of this machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) check: &'static str,
    pub(crate) health: Health,
    pub(crate) detail: String,
}

/// The result of the test of one channel for notifications.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ChannelHealth {
    pub(crate) channel: String,
    pub(crate) health: Health,
    /// The acknowledgement, or the reason why there is none.
    pub(crate) detail: String,
}

/// All results.
#[derive(Debug, Serialize)]
pub(crate) struct Findings {
    /// The version of `rlm`.
    pub(crate) rlm: &'static str,
    /// Whether a run can start: the chosen agents can be used, and this machine has no problem.
    pub(crate) usable: bool,
    /// The agents that decide `usable`; empty if none was named or set.
    pub(crate) chosen: Vec<&'static str>,
    pub(crate) agents: Vec<AgentHealth>,
    pub(crate) machine: Vec<Check>,
    /// The tests of the channels, if they were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) notifications: Option<Vec<ChannelHealth>>,
}

impl Findings {
    /// Returns whether no channel failed.
    pub(crate) fn notifies(&self) -> bool {
        let mut channels = self.notifications.iter().flatten();
        channels.all(|channel| channel.health != Health::Problem)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", styled(BOLD, "agents"))?;
        for agent in &self.agents {
            row(f, agent.health, agent.agent, &summary(agent))?;
            let place = agent.program.as_ref();
            for line in place.into_iter().chain(&agent.notes) {
                writeln!(f, "{:18} {}", "", styled(DIM, plain(line)))?;
            }
        }
        capabilities(f, &self.agents)?;
        writeln!(f, "\n{}", styled(BOLD, "this machine"))?;
        for check in &self.machine {
            row(f, check.health, check.check, &check.detail)?;
        }
        if let Some(channels) = &self.notifications {
            writeln!(f, "\n{}", styled(BOLD, "notifications"))?;
            for channel in channels {
                row(f, channel.health, &channel.channel, &channel.detail)?;
            }
        }
        write!(f, "\n{}", verdict(self))
    }
}

fn row(f: &mut fmt::Formatter<'_>, health: Health, name: &str, text: &str) -> fmt::Result {
    let (style, word) = match health {
        Health::Ok => (GOOD, "ok"),
        Health::Warning => (WARNING_STYLE, "warn"),
        Health::Problem => (BAD, "bad"),
        Health::Absent => (DIM, "-"),
    };
    let word = styled(style, format_args!("{word:<4}"));
    writeln!(f, "  {word}  {name:<9}  {}", plain(text))
}

/// Returns the summary line of an agent.
fn summary(agent: &AgentHealth) -> String {
    if agent.program.is_none() {
        return "not found".into();
    }
    let version = match (&agent.version, agent.tested_version) {
        (Some(version), Some(tried)) if version != tried => format!("{version} (tested {tried}), "),
        (Some(version), _) => format!("{version}, "),
        (None, _) => String::new(),
    };
    let login = match agent.logged_in {
        LoggedIn::Yes => "logged in",
        LoggedIn::No => "not logged in",
        LoggedIn::Unknown => "login unknown",
    };
    match &agent.login {
        Some(how) => format!("{version}{login}: {how}"),
        None => version + login,
    }
}

/// Writes a table of the capabilities of the installed agents.
fn capabilities(f: &mut fmt::Formatter<'_>, agents: &[AgentHealth]) -> fmt::Result {
    let here: Vec<_> = { agents.iter() }
        .filter(|agent| agent.program.is_some())
        .collect();
    if here.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{}", styled(BOLD, "capabilities"))?;
    writeln!(f, "{:19}{}", "", CAPABILITIES.join("  "))?;
    for agent in here {
        let cells = CAPABILITIES.iter().map(|name| {
            let can = agent.capabilities.iter().any(|can| can == name);
            format!("{:<1$}", if can { "yes" } else { "-" }, name.len())
        });
        let line = format!(
            "  {:<15}  {}",
            agent.agent,
            cells.collect::<Vec<_>>().join("  ")
        );
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Returns the conclusion with the next command.
fn verdict(findings: &Findings) -> String {
    let bad = { findings.machine.iter() }.any(|check| check.health == Health::Problem);
    let ready: Vec<_> = { findings.agents.iter() }
        .filter(|agent| agent.is_usable())
        .map(|agent| agent.agent)
        .collect();
    match ready.as_slice() {
        _ if bad => styled(BAD, "no run can work here; fix the problems marked `bad`"),
        _ if !findings.usable => {
            let which = findings.chosen.join(", ");
            styled(BAD, format_args!("not ready: {which}"))
        }
        [] => format!(
            "no agent is ready; any command can be the agent: {} run … -- YOUR-AGENT",
            program_command()
        ),
        [first, ..] => {
            let chosen = { findings.chosen.iter() }.find(|name| ready.contains(name));
            let agent = chosen.unwrap_or(first);
            let ready = ready.join(", ");
            format!(
                "ready: {ready}; for example: {} run --agent {agent} --until 'YOUR CHECK'",
                program_command()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Findings {
        let agent = AgentHealth {
            agent: "claude",
            health: Health::Ok,
            program: Some("/usr/bin/claude".into()),
            shadowed: vec![],
            version: Some("2.1.329".into()),
            tested_version: Some("2.1.329"),
            logged_in: LoggedIn::Yes,
            login: Some("api_key".into()),
            variables: vec!["ANTHROPIC_API_KEY".into()],
            capabilities: CAPABILITIES.map(str::to_owned).into(),
            notes: vec![],
        };
        let codex = AgentHealth {
            agent: "codex",
            health: Health::Problem,
            program: Some("/usr/bin/codex".into()),
            shadowed: vec!["/opt/codex".into()],
            version: Some("0.170.0".into()),
            tested_version: Some("0.169.0"),
            logged_in: LoggedIn::No,
            login: None,
            variables: vec![],
            capabilities: vec!["interrupt".into(), "model".into()],
            notes: vec![
                "also on PATH, but not used: /opt/codex".into(),
                "log in: codex login".into(),
            ],
        };
        let gemini = AgentHealth {
            agent: "gemini",
            health: Health::Absent,
            program: None,
            shadowed: vec![],
            version: None,
            logged_in: LoggedIn::Unknown,
            notes: vec!["npm install -g @google/gemini-cli".into()],
            ..codex.clone()
        };
        Findings {
            rlm: "0.0.0",
            usable: true,
            chosen: vec!["claude"],
            agents: vec![agent, codex, gemini],
            machine: vec![
                Check {
                    check: "kernel",
                    health: Health::Ok,
                    detail: "Linux 6.1 x86_64".into(),
                },
                Check {
                    check: "state",
                    health: Health::Warning,
                    detail: "/repo/.rlm\u{1b}[31m on nfs".into(),
                },
            ],
            notifications: Some(vec![ChannelHealth {
                channel: "desktop".into(),
                health: Health::Ok,
                detail: "acknowledged: id 7".into(),
            }]),
        }
    }

    #[test]
    fn doctor_prints_one_screen_and_one_object() {
        let mut findings = findings();
        let shown = anstream::adapter::strip_str(&findings.to_string()).to_string();
        findings.usable = false;
        let not = verdict(&findings);
        findings.machine[1].health = Health::Problem;
        let bad = verdict(&findings);
        findings.machine.clear();
        findings.agents.clear();
        findings.usable = true;
        let none = verdict(&findings);
        let last = [not, bad, none].map(|line| anstream::adapter::strip_str(&line).to_string());
        insta::assert_snapshot!(format!("{shown}\n{}", last.join("\n")));
    }

    #[test]
    fn doctor_json_snapshot() {
        let json = serde_json::to_string_pretty(&findings()).unwrap();
        insta::assert_snapshot!(json);
    }

    #[test]
    fn table_has_a_column_for_each_capability() {
        use agent_duplex::Capability;
        let claude = agent_drivers::claude::ClaudeDriver::new(
            Vec::new(),
            agent_subprocess::ProcessContext::new("", ""),
        );
        let can: Vec<_> = agent_duplex::Driver::capabilities(&claude)
            .iter()
            // `rlm` sends texts only.
            .filter(|can| !matches!(can, Capability::Images | Capability::Files))
            .map(|can| can.to_string())
            .collect();
        assert_eq!(can, CAPABILITIES);
    }
}
