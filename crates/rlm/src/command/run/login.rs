//! Asks the agents of a new run whether they are logged in, before the run costs anything.

use std::time::Duration;

use agent_drivers::{AgentConfig, AgentOptions, LoggedIn};
use rlm_store::Settings;
use tokio::time::{Instant, timeout};

use crate::agents;
use crate::exit::Failure;

/// The time in which an agent reports its login. An agent that doesn't may start.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which a person is told what the start waits for.
const LOGIN_NOTICE: Duration = Duration::from_secs(2);

/// Refuses a run with an agent that reports that it is not logged in.
pub(super) async fn check(settings: &Settings) -> Result<(), Failure> {
    let mut asked: Vec<&AgentConfig> = Vec::new();
    for agent in settings.phases.iter().map(|phase| &phase.agent) {
        let env = agent.passed_through().env;
        let is_known =
            |it: &&AgentConfig| it.program == agent.program && it.passed_through().env == env;
        if can_report(agent) && !asked.iter().any(is_known) {
            asked.push(agent);
        }
    }
    for agent in asked {
        let mut context = agents::query_context(&settings.directory, "login");
        let env = agent.passed_through().env.into_iter().flatten();
        context.env = env.map(|(name, it)| (name.into(), it.into())).collect();
        let query = agent.probe(&context, Instant::now() + LOGIN_TIMEOUT);
        tokio::pin!(query);
        let probe = match timeout(LOGIN_NOTICE, &mut query).await {
            Ok(probe) => probe,
            Err(_) => {
                anstream::eprintln!("rlm: asking {} whether it is logged in…", agent.name());
                query.await
            }
        };
        if probe.login.state == LoggedIn::No {
            let (name, how_to) = (agent.name(), agent.login_facts().how_to);
            return Err(Failure::failed(format!(
                "{name} is not logged in; log in: {how_to}; to start anyway: --no-first-check"
            )));
        }
    }
    Ok(())
}

/// Whether the agent can report its login quickly, and the options of the run don't change the login.
fn can_report(agent: &AgentConfig) -> bool {
    let is_quick = matches!(
        agent.options,
        AgentOptions::Claude(_) | AgentOptions::Codex(_)
    );
    let has_settings = agent
        .passed_through()
        .settings
        .is_some_and(|it| !it.is_empty());
    is_quick && !has_settings && agent.args.is_empty()
}
