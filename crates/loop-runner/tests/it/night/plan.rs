//! The settings of a simulated run.

use std::time::Duration;

use agent_duplex::Capabilities;
use loop_state::{Autonomy, PhaseLimits, RunLimits, SessionPolicy};
use rlm_store::{PhaseSettings, PromptSource, Settings};
use serde_json::json;

use super::dice::Dice;

const fn time(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn maybe(dice: &mut Dice, from: u64, to: u64, often: u64) -> Option<Duration> {
    let it = from + dice.below(to - from);
    dice.hits(often).then(|| time(it))
}

/// Creates the settings of a run, with one phase or several.
pub(crate) fn settings(dice: &mut Dice) -> Settings {
    let count = dice.pick(&[1, 1, 1, 2, 3]);
    let phases = (0..count).map(|index| phase(dice, index, count)).collect();
    let mut settings = Settings::new("/", phases);
    settings.limits = RunLimits {
        max_failures: dice.pick(&[0, 0, 3, 5]),
        sleep: time(dice.pick(&[0, 0, 10, 120])),
        wait_on_limit: time(dice.pick(&[21600, 21600, 21600, 21600, 3600, 600, 0])),
        max_duration: maybe(dice, 3600, 8 * 3600, 200),
        max_cost_microusd: dice.hits(300).then(|| 500_000 + dice.below(8_000_000)),
        max_tokens: dice.hits(150).then(|| 50_000 + dice.below(800_000)),
    };
    settings.autonomy = dice.pick(&[
        None,
        None,
        Some(Autonomy::Checkpoint),
        Some(Autonomy::Batch(2)),
        Some(Autonomy::Batch(5)),
        Some(Autonomy::Full),
    ]);
    settings.first_check = dice.hits(500);
    settings
}

fn phase(dice: &mut Dice, index: u64, count: u64) -> PhaseSettings {
    let max_iterations = match count {
        1 => 3 + dice.below(120),
        _ => 1 + dice.below(12),
    };
    let limits = PhaseLimits {
        max_iterations: Some(max_iterations.try_into().unwrap()),
        iteration_timeout: Some(time(600 + dice.below(3600))),
        idle_timeout: maybe(dice, 200, 1200, 700),
        ..PhaseLimits::default()
    };
    let agent = json!({"options": {"claude": {}}, "program": ["night"]});
    let agent = serde_json::from_value(agent).unwrap();
    let prompt = PromptSource::Text(format!("Work for p{index}."));
    let mut phase = PhaseSettings::new(format!("p{index}"), prompt, agent);
    phase.session = dice.pick(&[SessionPolicy::Fresh, SessionPolicy::Continue]);
    phase.promise = { dice.hits(if count == 1 { 400 } else { 100 }) }.then(|| "DONE".into());
    let gates: &[&str] = dice.pick(&[&[], &[], &["a"], &["a", "b"]]);
    phase.required_checks = gates.iter().map(ToString::to_string).collect();
    phase.check = { dice.hits(if count == 1 { 300 } else { 150 }) }.then(|| "c".into());
    phase.limits = limits;
    phase
}

/// Returns the settings as text, for people.
pub(crate) fn line(settings: &Settings, capabilities: Capabilities, crashes: u64) -> String {
    let rules = settings.rules();
    let phases = rules.phases.iter().map(|phase| {
        format!(
            "{}: {:?}, {} required checks, check {}, promise {}, {:?}",
            phase.name,
            phase.session,
            phase.required_checks,
            phase.has_check,
            phase.has_promise,
            phase.limits
        )
    });
    let phases: Vec<String> = phases.collect();
    let times: (Duration, Duration, Option<Duration>) = (
        rules.limits.sleep,
        rules.limits.wait_on_limit,
        rules.limits.max_duration,
    );
    format!(
        "{}\n{capabilities:?}; crashes {crashes}; failures {}; sleep, limits, all {times:?}; cost {:?}; tokens {:?}; {:?}",
        phases.join("\n"),
        rules.limits.max_failures,
        rules.limits.max_cost_microusd,
        rules.limits.max_tokens,
        rules.autonomy,
    )
}
