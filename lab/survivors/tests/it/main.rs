//! The controls of the score, and the score of `rlm` in one stop of each way.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

mod controls;
mod ours;
mod program;
mod table;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rlm_survivors::{Plan, Verdict, Way};

/// How long may pass on a machine that is busy with other tests.
const LONG: Duration = Duration::from_secs(60);
const AGENT: &str = env!("CARGO_BIN_EXE_survivors-agent");
const SUBJECT: &str = env!("CARGO_BIN_EXE_survivors-subject");
const PROGRAM: &str = env!("CARGO_BIN_EXE_survivors");

/// A plan that waits `patience` for what does not go.
fn plan(command: &str, patience: Duration) -> Plan {
    Plan {
        ready: LONG,
        patience,
        ..Plan::new(command.into(), AGENT.into())
    }
}

fn stopped(plan: &Plan, way: Way) -> Verdict {
    let run = plan.run(way, 0, &AtomicBool::new(false));
    run.expect("nobody gave it up").verdict
}
