//! The findings about one agent.

use std::path::PathBuf;

use agent_drivers::{AgentConfig, AgentOptions, LoggedIn, Login, Probe};
use agent_subprocess::ProcessContext;

use crate::agents;
use crate::render::{AgentHealth, Health};

/// An agent to examine.
#[derive(Debug)]
pub(super) struct CheckedAgent {
    pub(super) name: &'static str,
    /// The agent with the path of its program, and the context in which doctor starts that program; or why there is no program.
    pub(super) program: Result<(AgentConfig, ProcessContext), String>,
    /// The settings of the agent.
    pub(super) agent: AgentConfig,
    /// Why doctor doesn't start the program, if it doesn't.
    pub(super) not_run_reason: Option<String>,
    /// The names of the variables that the project's file sets and that doctor doesn't set.
    pub(super) missing_variables: Vec<String>,
    /// Why the settings in `rlm.toml` can't be used, if they can't.
    pub(super) start_error: Option<String>,
    /// Further programs of the same name on `PATH`.
    pub(super) shadowed: Vec<PathBuf>,
    /// The names of the variables for its login that are set.
    pub(super) variables: Vec<String>,
}

/// Returns the result for a program that was not run.
pub(super) fn not_run() -> Probe {
    Probe {
        version: Ok(None),
        login: Login::unknown("not run"),
    }
}

/// Decides whether an agent can be used.
pub(super) fn assess(checked: CheckedAgent, probe: Option<Probe>) -> AgentHealth {
    let facts = checked.agent.login_facts();
    let capabilities = checked.agent.capabilities();
    let CheckedAgent {
        name,
        program,
        not_run_reason: unrun,
        missing_variables: unset,
        start_error: refused,
        shadowed: others,
        variables,
        agent: _,
    } = checked;
    let shown = |path: PathBuf| path.to_string_lossy().into_owned();
    let mut found = AgentHealth {
        agent: name,
        health: Health::Ok,
        program: None,
        shadowed: others.into_iter().map(shown).collect(),
        version: None,
        tested_version: facts.tested_version,
        logged_in: LoggedIn::Unknown,
        login: None,
        variables,
        capabilities: capabilities.iter().map(|can| can.to_string()).collect(),
        notes: Vec::new(),
    };
    let (started, probe) = match (program, probe) {
        (Ok((started, _)), Some(probe)) => (started, probe),
        (missing, _) => {
            found.health = Health::Absent;
            found.notes.extend(missing.err());
            return found;
        }
    };
    if let Some(refused) = refused {
        note(&mut found, Health::Problem, refused);
    }
    let is_run = unrun.is_none();
    if let Some(unrun) = unrun {
        note(&mut found, Health::Warning, unrun);
    }
    if is_run && !unset.is_empty() {
        let unset = unset.join(", ");
        let what = format!("checked without these variables from rlm.toml: {unset}");
        note(&mut found, Health::Ok, what);
    }
    if !found.shadowed.is_empty() {
        let others = found.shadowed.join(", ");
        note(
            &mut found,
            Health::Warning,
            format!("also on PATH, but not used: {others}"),
        );
    }
    found.program = match &started.options {
        // The agent is a part of this program.
        AgentOptions::Api(_) => std::env::current_exe().ok().map(shown),
        _ => Some(shown(agents::program(&started).into())),
    };
    let has_version = probe.version.is_ok();
    match probe.version {
        Ok(version) => found.version = version,
        Err(why) => note(&mut found, Health::Problem, why),
    }
    found.logged_in = probe.login.state;
    // Without a version, a note already says why the login is unknown.
    let is_known = found.logged_in != LoggedIn::Unknown;
    found.login = probe.login.detail.filter(|_| is_known || has_version);
    match found.logged_in {
        LoggedIn::No => {
            let log_in = format!("log in: {}", facts.how_to);
            note(&mut found, Health::Problem, log_in);
        }
        LoggedIn::Unknown if !found.variables.is_empty() => {
            found.logged_in = LoggedIn::Yes;
            let names = found.variables.join(", ");
            found.login = Some(format!("{names} is set; not checked"));
        }
        LoggedIn::Unknown if found.login.is_some() => {
            found.health = found.health.max(Health::Warning);
        }
        _ => {}
    }
    found
}

fn note(found: &mut AgentHealth, health: Health, what: impl Into<String>) {
    found.health = found.health.max(health);
    found.notes.push(what.into());
}

#[cfg(test)]
mod tests {

    use super::*;

    fn checked_agent(variables: &[&str]) -> CheckedAgent {
        let options = AgentOptions::Claude(Box::default());
        let agent = AgentConfig::new(options, vec!["/bin/claude".into()]);
        CheckedAgent {
            name: "claude",
            program: Ok((agent.clone(), ProcessContext::new("/", "/"))),
            agent,
            not_run_reason: None,
            missing_variables: Vec::new(),
            start_error: None,
            shadowed: Vec::new(),
            variables: variables.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn an_agent_is_usable_unless_it_is_missing_broken_or_not_logged_in() {
        let answers = |version: Result<&str, &str>, login| Probe {
            version: version
                .map(|version| Some(version.to_owned()))
                .map_err(str::to_owned),
            login,
        };
        let unknown = || Login::unknown("not asked");
        let is = |state, detail: Option<&str>| Login {
            state,
            detail: detail.map(str::to_owned),
        };
        let yes = || is(LoggedIn::Yes, Some("api_key"));
        let no = || is(LoggedIn::No, None);
        let judged = [
            assess(checked_agent(&[]), Some(answers(Ok("1.0.0"), yes()))),
            assess(checked_agent(&[]), Some(answers(Ok("2.0.0"), unknown()))),
            assess(
                checked_agent(&["KEY"]),
                Some(answers(Ok("1.0.0"), unknown())),
            ),
            assess(checked_agent(&["KEY"]), Some(answers(Ok("1.0.0"), no()))),
            assess(
                checked_agent(&[]),
                Some(answers(Err("it is broken"), unknown())),
            ),
            assess(
                CheckedAgent {
                    program: Err("get it".to_owned()),
                    ..checked_agent(&[])
                },
                None,
            ),
        ];
        let shown = judged.map(|found| {
            let AgentHealth {
                health,
                logged_in,
                login,
                notes,
                ..
            } = &found;
            format!(
                "{} {health:?} {logged_in:?} {login:?} {notes:?}",
                found.is_usable()
            )
        });
        insta::assert_snapshot!(shown.join("\n"), @r#"
        true Ok Yes Some("api_key") []
        true Warning Unknown Some("not asked") []
        true Ok Yes Some("KEY is set; not checked") []
        false Problem No None ["log in: claude auth login"]
        false Problem Unknown None ["it is broken"]
        false Absent Unknown None ["get it"]
        "#);
    }
}
