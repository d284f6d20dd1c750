//! The live checks: `rlm` with real, unmodified agent CLIs that talk to the scripted model.
//!
//! They show what a scripted agent can't: that the loop works with the agents that users run. The CLIs are installed from the npm registry into
//! `target/agents` at pinned versions. They start with a clean environment, their own home and, if `unshare` allows it, a network with only loopback.
//! Without npm or a registry the checks are skipped, by name and with the reason. The agent of `rlm` itself needs no program, so its checks always run.
//!
//! Words on the command line select the checks whose names contain one of them, or whose agent's program is one of them; `--quick` selects one check
//! per agent. Each line on stdout that begins with `ok: `, `failed: ` or `skipped: ` is a verdict; the others are remarks.
#![expect(
    clippy::print_stdout,
    reason = "the output is the purpose of this program"
)]

mod acp;
mod api;
mod checks;
mod codex;
mod command_line;
mod contract;
mod doctor;
mod driver;
mod duplex;
mod handover;
mod install;
mod isolation;
mod one_shot;
mod options;
mod real;
mod scene;
mod services;
mod sessions;
mod stops;
mod story;
mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

pub use self::one_shot::{OneShotAgent, isolated};

use self::command_line::{QUICK, asked};
use self::scene::Check;

/// The number of parallel checks: each mostly waits for its agent, and has its own sandbox and model.
const AT_ONCE: usize = 2;

/// The check of each agent that runs with [`QUICK`]. Together they cover a stop, a steer, a crash and a failure of the service. OpenCode takes ten
/// seconds to start, so its check starts it once.
const QUICK_CHECKS: [&str; 6] = [
    "kill -9, then a resume that knows the conversation",
    "codex: an interrupt in its tool, with a child in its own session",
    "gemini: an interrupt in its tool, then a message",
    "opencode: 429 once",
    "claude-agent-acp: an interrupt in its tool, then a message",
    "api: kill -9 of rlm in its tool, then a resume",
];

/// Returns the checked agent CLIs by their programs, with the version of each.
#[must_use]
pub fn versions() -> Vec<(&'static str, &'static str)> {
    install::versions()
}

/// Returns the checks of the agent of `rlm` itself, by name. A check gets the path of `rlm` and a directory of programs, panics, or returns its findings.
pub fn checks_of_own_agent() -> impl Iterator<Item = (&'static str, fn(&Path, &Path) -> String)> {
    { api::CHECKS.into_iter() }.map(|(_, name, check)| (name, check))
}

/// Runs the live checks: the whole `main`.
#[must_use]
pub fn main_impl() -> ExitCode {
    agent_subprocess::guard::run_if_guard();
    let (words, quick) = asked();
    let unknown: Vec<_> = { words.iter() }.filter(|word| is_unknown(word)).collect();
    for word in &unknown {
        println!("failed: no check and no agent matches `{word}`");
    }
    if !unknown.is_empty() {
        return ExitCode::FAILURE;
    }
    let wanted = |agent: &str, name: &str| {
        let named = words.is_empty() || words.iter().any(|word| chooses(word, agent, name));
        named && (!quick || QUICK_CHECKS.contains(&name))
    };
    let wanted: Vec<_> = { all().into_iter() }
        .filter(|(agent, name, _)| wanted(agent, name))
        .collect();
    if wanted.is_empty() {
        println!(
            "failed: {QUICK} has no check for these: {}",
            words.join(" ")
        );
        return ExitCode::FAILURE;
    }
    let checks = match present(wanted) {
        checks if checks.is_empty() => return ExitCode::SUCCESS,
        checks => checks,
    };
    match isolation::enter() {
        isolation::Isolation::Left(code) => return code,
        isolation::Isolation::Inside => println!("the network has only loopback"),
        isolation::Isolation::None(reason) => println!("the network is not isolated: {reason}"),
    }
    let rlm = beside_this("rlm-under-test");
    let waiting = Mutex::new(checks.into_iter());
    let failed = AtomicBool::new(false);
    let (rlm, waiting, failed) = (&rlm, &waiting, &failed);
    let work = || {
        loop {
            let next = waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .next();
            let Some((name, check, agent)) = next else {
                return;
            };
            let begun = Instant::now();
            // The thread has the name of the check, because the panic message on stderr contains the name of its thread.
            let found = thread::scope(|scope| {
                let named = thread::Builder::new().name(name.to_owned());
                let run = named.spawn_scoped(scope, || check(rlm, &agent));
                run.expect("a thread can start").join()
            });
            let took = begun.elapsed().as_secs_f64();
            match found {
                Ok(found) => println!("ok: {name}: {found} ({took:.1} s)"),
                Err(_) => {
                    println!("failed: {name} ({took:.1} s)");
                    failed.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    if let Some(table) = contract::table() {
        println!("\n{table}");
    }
    match failed.load(Ordering::Relaxed) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

fn chooses(word: &str, agent: &str, name: &str) -> bool {
    word == agent || name.contains(word)
}

/// Whether a word selects nothing. Without this error, a misspelt word would look like success.
fn is_unknown(word: &str) -> bool {
    !all()
        .iter()
        .any(|(agent, name, _)| chooses(word, agent, name))
}

/// Installs the agents of these checks and finds their directories. A check without its agent is skipped. Only the process outside of the isolation
/// reports the skip.
fn present(
    wanted: Vec<(&'static str, &'static str, Check)>,
) -> Vec<(&'static str, Check, PathBuf)> {
    let outside = !isolation::is_inside();
    let mut folders = BTreeMap::new();
    let mut checks = Vec::new();
    for (agent, name, check) in wanted {
        let folder = { folders.entry(agent) }.or_insert_with(|| install::agent(agent, outside));
        match folder {
            Ok(folder) => checks.push((name, check, folder.clone())),
            Err(reason) if outside => println!("skipped: {name}: {reason}"),
            Err(_) => {}
        }
    }
    checks
}

/// Returns the checks, each with the program of its agent.
fn all() -> Vec<(&'static str, &'static str, Check)> {
    // The longest checks come first.
    let claude = [
        work::CHECKS.as_slice(),
        &checks::CHECKS,
        &duplex::CHECKS,
        &stops::CHECKS,
        &options::CHECKS,
        &services::CHECKS,
        &sessions::CHECKS,
        &story::CHECKS,
    ];
    let claude = claude.concat().into_iter();
    { contract::CHECKS.into_iter() }
        .chain(claude.map(|(name, check)| ("claude", name, check)))
        .chain(codex::CHECKS)
        .chain(handover::CHECKS)
        .chain(acp::CHECKS)
        .chain(api::CHECKS)
        .chain(doctor::CHECKS)
        .collect()
}

/// Returns the path of a program of this package.
fn beside_this(name: &str) -> PathBuf {
    std::env::current_exe()
        .expect("a running program has a path")
        .with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_matches_a_name_or_the_program_of_an_agent() {
        for known in ["contract", "opencode", "the driver contract: gemini"] {
            assert!(!is_unknown(known), "{known}");
        }
        for unknown in ["contrat", "open-code", "--quik"] {
            assert!(is_unknown(unknown), "{unknown}");
        }
    }

    #[test]
    fn each_agent_has_one_quick_check() {
        let all = all();
        let quick = { all.iter() }.filter(|(_, name, _)| QUICK_CHECKS.contains(name));
        let mut agents: Vec<&str> = quick.map(|(agent, ..)| *agent).collect();
        agents.sort_unstable();
        let mut known: Vec<&str> = versions().into_iter().map(|(agent, _)| agent).collect();
        known.push(real::API);
        known.sort_unstable();
        assert_eq!(agents, known);
    }
}
