//! What the run of a night is told to do.

use std::time::Duration;

use agent_duplex::Capabilities;
use rlm_store::Settings;
use serde_json::{Value, json};

use super::dice::Dice;

fn time(secs: u64) -> Value {
    json!({"secs": secs, "nanos": 0})
}

fn maybe(dice: &mut Dice, from: u64, to: u64, often: u64) -> Value {
    let it = from + dice.below(to - from);
    dice.hits(often).then(|| time(it)).into()
}

/// Makes the settings of a run, of one phase or of some.
pub(crate) fn settings(dice: &mut Dice) -> Settings {
    let count = dice.pick(&[1, 1, 1, 2, 3]);
    let phases: Vec<Value> = (0..count).map(|index| phase(dice, index, count)).collect();
    let settings = json!({
        "directory": "/", "phases": phases,
        "max_failures": dice.pick(&[0, 0, 3, 5]),
        "sleep": time(dice.pick(&[0, 0, 10, 120])),
        "wait_on_limit": time(dice.pick(&[21600, 21600, 21600, 21600, 3600, 600, 0])),
        "max_duration": maybe(dice, 3600, 8 * 3600, 200),
        "max_cost_microusd": dice.hits(300).then(|| 500_000 + dice.below(8_000_000)),
        "max_tokens": dice.hits(150).then(|| 50_000 + dice.below(800_000)),
        "autonomy": dice.pick(&[None, None, Some("checkpoint"), Some("batch:2"), Some("batch:5"), Some("full")]),
    });
    serde_json::from_value(settings).unwrap()
}

fn phase(dice: &mut Dice, index: u64, count: u64) -> Value {
    let limits = json!({
        "max_iterations": match count {
            1 => 3 + dice.below(120),
            _ => 1 + dice.below(12),
        },
        "iteration_timeout": time(600 + dice.below(3600)),
        "idle_timeout": maybe(dice, 200, 1200, 700),
    });
    json!({
        "name": format!("p{index}"),
        "prompt": {"Text": format!("Work for p{index}.")},
        "agent": {"options": {"claude": {}}, "program": ["night"]},
        "session": dice.pick(&["fresh", "continue"]),
        "promise": dice.hits(if count == 1 { 400 } else { 100 }).then_some("DONE"),
        "gates": dice.pick(&[vec![], vec![], vec!["a"], vec!["a", "b"]]),
        "until": dice.hits(if count == 1 { 300 } else { 150 }).then_some("c"),
        "check_timeout": time(900), "limits": limits,
    })
}

/// Says it for people.
pub(crate) fn line(settings: &Settings, capabilities: Capabilities, crashes: u64) -> String {
    let rules = settings.rules();
    let phases = rules.phases.iter().map(|phase| {
        format!(
            "{}: {:?}, {} gates, until {}, promise {}, {:?}",
            phase.name, phase.session, phase.gates, phase.until, phase.promise, phase.limits
        )
    });
    let phases: Vec<String> = phases.collect();
    let times: (Duration, Duration, Option<Duration>) =
        (rules.sleep, rules.wait_on_limit, rules.max_duration);
    format!(
        "{}\n{capabilities:?}; crashes {crashes}; failures {}; sleep, limits, all {times:?}; cost {:?}; tokens {:?}; {:?}",
        phases.join("\n"),
        rules.max_failures,
        rules.max_cost_microusd,
        rules.max_tokens,
        rules.autonomy,
    )
}
