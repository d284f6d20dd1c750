//! The settings that a run saves: how to apply a configuration to them, and how JSON shows them.
//!
//! Each saved setting has two lines here. The functions that show settings destructure them, so a new setting doesn't compile without its
//! line. `--resume-or-start` reports the changed settings from the same JSON.

use std::time::Duration;

use rlm_store::{PhaseSettings, Settings};
use serde_json::{Value, json};

use crate::config::Config;

/// Applies a configuration to the settings of a run.
pub(crate) fn apply_to_run(given: &Config, settings: &mut Settings) {
    optional(&mut settings.title, given.title.clone());
    let limits = &mut settings.limits;
    optional(&mut limits.max_duration, given.max_duration);
    always(&mut limits.max_failures, given.max_failures);
    always(&mut limits.sleep, given.sleep);
    optional(&mut limits.max_cost_microusd, given.max_cost);
    optional(&mut limits.max_tokens, given.max_tokens);
    always(&mut limits.wait_on_limit, given.wait_on_limit);
    optional(&mut settings.autonomy, given.autonomy);
    always(
        &mut settings.first_check,
        given.no_first_check.map(|no| !no),
    );
    always(&mut settings.commit, given.commit);
    always(&mut settings.leftovers, given.leftovers);
    optional(&mut settings.max_transcripts, given.max_transcripts);
}

/// Applies a configuration to the settings of a phase, except its agent, prompt and MCP servers.
pub(crate) fn apply_to_phase(given: &Config, phase: &mut PhaseSettings) {
    if phase.agent.has_driver() {
        always(&mut phase.permissions, given.permissions);
        always(&mut phase.session, given.session);
    }
    optional(&mut phase.promise, given.completion_promise.clone());
    optional(&mut phase.check, given.until.clone());
    always(&mut phase.required_checks, given.gates.clone());
    always(&mut phase.background_task_timeout, given.background_wait);
    let limits = &mut phase.limits;
    optional(&mut limits.max_iterations, given.max_iterations);
    optional(&mut limits.iteration_timeout, given.iteration_timeout);
    optional(&mut limits.idle_timeout, given.idle_timeout);
    always(&mut limits.check_timeout, given.check_timeout);
}

fn always<T>(setting: &mut T, given: Option<impl Into<T>>) {
    if let Some(given) = given {
        *setting = given.into();
    }
}

fn optional<T>(setting: &mut Option<T>, given: Option<impl Into<T>>) {
    if let Some(given) = given {
        *setting = Some(given.into());
    }
}

/// Returns the settings of the run as JSON, with its phases. Times are in milliseconds, as in all JSON of `rlm`.
pub(crate) fn run_json(all: &Settings) -> Value {
    let Settings {
        directory: _,
        title,
        phases,
        limits,
        autonomy: _,
        first_check,
        commit,
        worktree: _,
        leftovers,
        max_transcripts: _,
    } = all;
    let mut shown = json!({
        "title": title,
        "autonomy": all.rules().autonomy,
        "leftovers": leftovers,
        "max_transcripts": all.max_transcripts(),
        "first_check": first_check,
        "commit": commit,
        "phases": phases.iter().map(phase_json).collect::<Vec<_>>(),
    });
    add(&mut shown, json!(limits));
    let cost = limits.max_cost_microusd.map(|micro| micro as f64 / 1e6);
    shown["max_cost_usd"] = json!(cost);
    shown
        .as_object_mut()
        .expect("the settings are a map")
        .remove("max_cost_microusd");
    shown
}

/// Adds the keys of one map to another.
fn add(shown: &mut Value, more: Value) {
    if let (Value::Object(shown), Value::Object(more)) = (shown, more) {
        shown.extend(more);
    }
}

/// Returns the settings of a phase as JSON.
pub(crate) fn phase_json(phase: &PhaseSettings) -> Value {
    let PhaseSettings {
        name,
        agent,
        permissions,
        mcp_servers,
        session,
        promise,
        prompt,
        check: until,
        required_checks: gates,
        background_task_timeout: background_wait,
        limits,
    } = phase.without_secrets();
    let mut shown = json!({
        "name": name,
        "agent": agent,
        "permissions": permissions,
        "mcp_servers": mcp_servers,
        "session": session,
        "completion_promise": promise,
        "prompt": prompt,
        "until": until,
        "gates": gates,
        "background_wait_ms": millis(background_wait),
    });
    add(&mut shown, json!(limits));
    shown
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
