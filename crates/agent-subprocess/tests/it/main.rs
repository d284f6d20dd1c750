//! Tests with real programs, real signals and real guards.
#![cfg(target_os = "linux")]
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of a test binary are not tests themselves"
)]

mod containment;
mod drops;
mod errors;
mod examples;
mod flow;
mod kill_time;
mod lost;
mod orphans;
mod random_trees;
mod reuse;
mod rules;
mod scene;
mod spawn;
mod stop;
mod warm;
