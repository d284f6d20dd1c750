//! The real thing: real programs, real signals, real guards.
#![cfg(target_os = "linux")]
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of a test binary are not tests themselves"
)]

#[cfg(feature = "acp")]
mod acp;
#[cfg(any(feature = "claude", feature = "acp"))]
mod changes;
#[cfg(feature = "claude")]
mod claude;
#[cfg(feature = "codex")]
mod codex;
#[cfg(feature = "command")]
mod command;
mod containment;
#[cfg(all(
    feature = "acp",
    feature = "claude",
    feature = "codex",
    feature = "command"
))]
mod contract;
mod drops;
mod errors;
mod examples;
mod flow;
mod lost;
mod orphans;
mod reuse;
mod rules;
mod scene;
mod spawn;
mod stop;
