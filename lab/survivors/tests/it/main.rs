//! The controls of the score, and the score of `rlm` with one stop in each way.
#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

mod controls;
mod ours;
mod program;
mod table;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rlm_survivors::{Plan, RunResult, StopMethod};

/// Time limit on a machine that is busy with other tests.
const LONG: Duration = Duration::from_secs(60);
const AGENT: &str = env!("CARGO_BIN_EXE_survivors-agent");
const SUBJECT: &str = env!("CARGO_BIN_EXE_survivors-subject");
const PROGRAM: &str = env!("CARGO_BIN_EXE_survivors");

/// Returns a plan that waits `time_limit` for survivors.
fn plan(command: &str, time_limit: Duration) -> Plan {
    Plan {
        ready: LONG,
        time_limit,
        ..Plan::new(command.into(), AGENT.into())
    }
}

fn stopped(plan: &Plan, way: StopMethod) -> RunResult {
    let run = plan.run(way, 0, &AtomicBool::new(false));
    run.expect("the run was not given up").verdict
}
