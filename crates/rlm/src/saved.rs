//! Puts what was said over the settings of a run: over the defaults of a new one, or over those that are saved. A setting that a run saves has
//! its line here, and nothing else in `resolve` need know it.

use rlm_store::{PhaseSettings, Settings};

use crate::config::Config;

/// Puts what is said of the whole run over its settings.
pub(super) fn of_run(said: &Config, settings: &mut Settings) {
    optional(&mut settings.max_duration, said.max_duration);
    always(&mut settings.max_failures, said.max_failures);
    always(&mut settings.sleep, said.sleep);
    optional(&mut settings.max_cost_microusd, said.max_cost);
    optional(&mut settings.max_tokens, said.max_tokens);
    optional(&mut settings.wait_on_limit, said.wait_on_limit);
    optional(&mut settings.autonomy, said.autonomy);
    always(&mut settings.commit, said.commit);
    always(&mut settings.leftovers, said.leftovers);
    optional(&mut settings.max_transcripts, said.max_transcripts);
}

/// Puts what is said of a phase over its settings. Its agent, its prompt and its MCP servers are for others to choose.
pub(super) fn of_phase(said: &Config, phase: &mut PhaseSettings) {
    if phase.agent.is_driven() {
        always(&mut phase.permissions, said.permissions);
        always(&mut phase.session, said.session);
    }
    optional(&mut phase.promise, said.completion_promise.clone());
    optional(&mut phase.until, said.until.clone());
    always(&mut phase.gates, said.gates.clone());
    always(&mut phase.check_timeout, said.check_timeout);
    always(&mut phase.background_wait, said.background_wait);
    let limits = &mut phase.limits;
    optional(&mut limits.max_iterations, said.max_iterations);
    optional(&mut limits.iteration_timeout, said.iteration_timeout);
    optional(&mut limits.idle_timeout, said.idle_timeout);
}

fn always<T>(setting: &mut T, said: Option<impl Into<T>>) {
    if let Some(said) = said {
        *setting = said.into();
    }
}

fn optional<T>(setting: &mut Option<T>, said: Option<impl Into<T>>) {
    if let Some(said) = said {
        *setting = Some(said.into());
    }
}
