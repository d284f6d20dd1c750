//! A short storm, which must be clean, and two storms on a fleet with a mistake, which must not be.

mod controls;
mod ours;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rlm_storm::{Fault, Finding, Plan, StormResult};

const AGENT: &str = env!("CARGO_BIN_EXE_storm-agent");
const SUBJECT: &str = env!("CARGO_BIN_EXE_storm-subject");

/// Returns the plan of a short storm with these faults; `None` if there is no server program, and then the test is skipped.
#[expect(clippy::print_stdout, reason = "`cargo xtask test` counts this line")]
fn plan(faults: Vec<(Fault, usize)>) -> Option<Plan> {
    let Some(nats_server) = rlm_tests::nats::server_program() else {
        println!("skipped: there is no NATS server: cargo xtask tools --install");
        return None;
    };
    Some(Plan {
        rlm: SUBJECT.into(),
        agent: AGENT.into(),
        nats_server,
        mistakes: String::new(),
        ends_at: |_: &Finding| true,
        servers: 1,
        faults,
        lease: Duration::from_secs(2),
        runs: 2,
        iterations: 3,
        agent_works: (Duration::from_millis(200), Duration::from_millis(900)),
        seed: 7,
        patience: Duration::from_secs(120),
    })
}

fn storm(plan: &Plan) -> StormResult {
    rlm_storm::run(plan, &AtomicBool::new(false), |_| {})
}
