//! Tests of each driver with real processes that speak its agent's protocol, under real guards.
#![cfg(target_os = "linux")]
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of a test binary are not tests themselves"
)]

mod acp;
#[cfg(feature = "api")]
mod api;
mod claude;
mod codex;
mod command;
mod contract;
mod probe;
mod reading;
mod scene;
