//! The contract for drivers, with agents that keep it and agents that break it.

mod faults;
mod faulty_driver;
mod parts;

use agent_duplex::contract::{Scenario, ScenarioResult, play, table};
use agent_duplex::{Capabilities, Capability};
use faults::{Part, breaking};
use parts::{all, keeping};

async fn column(capabilities: Capabilities) -> Vec<(Scenario, ScenarioResult)> {
    let mut cells = Vec::new();
    for scenario in Scenario::ALL {
        let part = keeping(scenario, capabilities);
        cells.push((scenario, play(&part, scenario).await));
    }
    cells
}

#[tokio::test(start_paused = true)]
async fn correct_driver_passes_with_any_capabilities() {
    // If a driver declares no capability, the scenarios check no events of its agent. So this driver declares one.
    let little = Capabilities::none().with(Capability::Model);
    let columns = [
        ("able", column(all()).await),
        ("unable", column(little).await),
    ];
    insta::assert_snapshot!(table(&columns));
}

/// ★ The control experiment: each scenario finds agents that break it.
#[tokio::test(start_paused = true)]
async fn broken_driver_fails_its_scenario() {
    let mut told = String::new();
    for Part {
        scenario,
        fault,
        stage,
    } in breaking()
    {
        let cell = play(&stage, scenario).await;
        let ScenarioResult::Failed(why) = &cell else {
            panic!("{scenario}: {fault}: {cell}");
        };
        let why = why.lines().next().unwrap_or_default();
        told.push_str(&format!("{scenario}: {fault}\n  {why}\n"));
    }
    for scenario in Scenario::ALL {
        assert!(
            told.contains(&format!("{scenario}: ")),
            "{scenario} finds no fault"
        );
    }
    insta::assert_snapshot!(told);
}

#[tokio::test(start_paused = true)]
async fn unsupported_scenario_states_reason() {
    let part = parts::mute();
    for scenario in Scenario::ALL {
        let cell = play(&part, scenario).await;
        assert_eq!(
            cell,
            ScenarioResult::NotApplicable("it does nothing".to_owned())
        );
    }
    assert_eq!(
        part.starts(),
        0,
        "no agent starts for a scenario that can't be played"
    );
}

#[test]
fn scripted_agents_can_run_in_parallel() {
    fn check<T: Send>(_: T) {}
    check(play(&parts::mute(), Scenario::Turn));
}

#[tokio::test(start_paused = true)]
async fn unreported_tool_does_not_count_as_tool() {
    let part = parts::unseen();
    let cell = play(&part, Scenario::InterruptTool).await;
    let why = "neither the test agent nor its driver reports a running tool";
    assert_eq!(cell, ScenarioResult::NotApplicable(why.to_owned()));
}
