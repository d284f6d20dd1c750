//! The contract for drivers, with agents that keep it and agents that break it.

mod bent;
mod faults;
mod parts;

use agent_duplex::contract::{Cell, Scenario, play, table};
use agent_duplex::{Capabilities, Capability};
use faults::{Part, breaking};
use parts::{all, keeping};

async fn column(capabilities: Capabilities) -> Vec<(Scenario, Cell)> {
    let mut cells = Vec::new();
    for scenario in Scenario::ALL {
        let part = keeping(scenario, capabilities);
        cells.push((scenario, play(&part, scenario).await));
    }
    cells
}

#[tokio::test(start_paused = true)]
async fn who_keeps_the_contract_holds_whatever_it_declares() {
    // With no capability at all, an agent counts as opaque, and its output is not checked. So this agent has one capability.
    let little = Capabilities::none().with(Capability::Model);
    let columns = [
        ("able", column(all()).await),
        ("unable", column(little).await),
    ];
    insta::assert_snapshot!(table(&columns));
}

/// ★ The control experiment: each scenario finds agents that break it.
#[tokio::test(start_paused = true)]
async fn each_scenario_tells_who_breaks_it() {
    let mut told = String::new();
    for Part {
        scenario,
        fault,
        stage,
    } in breaking()
    {
        let cell = play(&stage, scenario).await;
        let Cell::Broken(why) = &cell else {
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
async fn what_an_agent_can_not_be_made_to_is_said() {
    let part = parts::mute();
    for scenario in Scenario::ALL {
        let cell = play(&part, scenario).await;
        assert_eq!(cell, Cell::Impossible("it does nothing".to_owned()));
    }
    assert_eq!(
        part.starts(),
        0,
        "no agent starts for a scenario that can't be played"
    );
}

#[test]
fn plays_may_run_side_by_side() {
    fn check<T: Send>(_: T) {}
    check(play(&parts::mute(), Scenario::Turn));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_nobody_sees_is_not_taken_for_one() {
    let part = parts::unseen();
    let cell = play(&part, Scenario::InterruptTool).await;
    let why = "neither the test agent nor its driver reports a running tool";
    assert_eq!(cell, Cell::Impossible(why.to_owned()));
}
