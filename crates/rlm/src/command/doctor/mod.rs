//! `rlm doctor`: checks the agents and this machine before a run needs them.

mod agent;
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only Linux has a number for each kind")
)]
mod file_system;
mod find;
mod machine;
mod notify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use agent_drivers::{AgentOptions, Probe};
use rlm_store::Project;
use tokio::time::{Instant, timeout, timeout_at};

use crate::agents::AgentKind;
use crate::args::DoctorArgs;
use crate::config;
use crate::exit::{Code, Failure};
use crate::render::{AgentHealth, Check, Findings, Health, print};
use agent::CheckedAgent;
use find::find;
use machine::Finding;

/// The time for all checks, and the part of it in which agents must respond; the rest is for ending them.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(15);
const AGENT_TIMEOUT: Duration = Duration::from_secs(12);
/// The time for one check of a file system.
const FILE_SYSTEM_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn execute(directory: &Path, args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime =
        runtime.map_err(|e| Failure::failed(format!("can't start the async runtime: {e}")))?;
    let examined = examine(
        directory.to_owned(),
        args.agents.clone(),
        args.run_project_agent,
        args.notify,
    );
    let findings = runtime.block_on(examined);
    // A check that hangs must not delay the exit.
    runtime.shutdown_background();
    let findings = findings?;
    print(args.json, &findings);
    let code = match findings.usable && findings.notifies() {
        true => Code::Done,
        false => Code::Failed,
    };
    Ok(code.into())
}

async fn examine(
    directory: PathBuf,
    named: Vec<AgentKind>,
    runs_project: bool,
    notifies: bool,
) -> Result<Findings, Failure> {
    let begin = Instant::now();
    let shown = directory.display().to_string();
    let found = tokio::task::spawn_blocking(move || find(&directory, &named, runs_project));
    let Ok(found) = timeout(FILE_SYSTEM_TIMEOUT, found).await else {
        let what = format!("`{shown}` does not respond: its file system may hang");
        return Err(Failure::failed(what));
    };
    let found = found.map_err(|e| Failure::failed(e.to_string()))??;
    let machine = check_machine(found.project.clone(), found.settings.clone(), begin);
    let machine = tokio::spawn(machine);
    if found.chosen.contains(&AgentKind::Api) {
        // Before any agent starts: each other agent that needs the key gets it explicitly then.
        agent_drivers::api::take_key(&config::api_server());
    }
    let channels = match notifies {
        true => Some(notify::start_tests(&found, runs_project, begin)?),
        false => None,
    };
    let checked_agents = found.agents.into_iter();
    let examined = checked_agents.map(|checked| tokio::spawn(examine_agent(checked, begin)));
    let examined: Vec<_> = examined.collect();
    let mut agents = Vec::new();
    for task in examined {
        agents.push(task.await.map_err(|e| Failure::failed(e.to_string()))?);
    }
    let machine = machine.await.map_err(|e| Failure::failed(e.to_string()))?;
    let notifications = match channels {
        Some(tests) => Some(notify::results(tests).await?),
        None => None,
    };
    let chosen: Vec<_> = found.chosen.into_iter().map(AgentKind::name).collect();
    let can_be_used = |name: &&str| {
        agents
            .iter()
            .any(|a: &AgentHealth| a.agent == *name && a.is_usable())
    };
    let is_well = |check: &Check| check.health != Health::Problem;
    Ok(Findings {
        rlm: env!("CARGO_PKG_VERSION"),
        usable: chosen.iter().all(can_be_used) && machine.iter().all(is_well),
        chosen,
        agents,
        machine,
        notifications,
    })
}

async fn examine_agent(checked: CheckedAgent, begin: Instant) -> AgentHealth {
    let probe = match &checked.program {
        Ok(_) if checked.not_run_reason.is_some() => Some(agent::not_run()),
        Ok((agent, context)) => {
            let deadline = begin + AGENT_TIMEOUT;
            let probe = match &agent.options {
                AgentOptions::Api(_) => {
                    let server = config::api_server();
                    within(begin, agent_drivers::api::probe(&server, deadline)).await
                }
                _ => within(begin, agent.probe(context, deadline)).await,
            };
            Some(probe.unwrap_or_else(|why| Probe::failed(&why)))
        }
        Err(_) => None,
    };
    agent::assess(checked, probe)
}

/// Waits for a future until the time for all checks is over.
async fn within<T>(begin: Instant, future: impl Future<Output = T>) -> Result<T, String> {
    let answer = timeout_at(begin + TOTAL_TIMEOUT, future).await;
    answer.map_err(|_| format!("it took longer than {} s", TOTAL_TIMEOUT.as_secs()))
}

async fn check_machine(project: Project, settings: Finding, begin: Instant) -> Vec<Check> {
    let thread = |look: fn(&Project) -> Finding| {
        let project = project.clone();
        machine::on_thread(FILE_SYSTEM_TIMEOUT, move || look(&project))
    };
    let bounded = |seen: Result<Finding, String>| seen.unwrap_or_else(|why| (Health::Problem, why));
    let until = begin + AGENT_TIMEOUT;
    let (guard, git, state, disk, space, runs, sessions) = tokio::join!(
        within(begin, machine::guard(until)),
        within(begin, machine::git(&project, until)),
        thread(machine::state),
        thread(machine::disk),
        thread(machine::space),
        thread(machine::runs),
        thread(|_| machine::sessions()),
    );
    let seen = [
        ("kernel", machine::kernel()),
        #[cfg(target_os = "linux")]
        ("/proc", machine::proc_fs()),
        ("guard", bounded(guard)),
        ("git", bounded(git)),
        ("settings", settings),
        ("state", state),
        ("disk", disk),
        ("space", space),
        ("runs", runs),
        ("sessions", sessions),
        ("PATH", machine::path()),
        ("terminal", machine::terminal()),
    ];
    let check = |(check, (health, detail))| Check {
        check,
        health,
        detail,
    };
    seen.into_iter().map(check).collect()
}
