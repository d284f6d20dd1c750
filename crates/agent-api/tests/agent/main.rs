//! The agent against a model server on loopback.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod contract;
mod crashes;
mod effort;
mod endurance;
mod extensions;
mod failures;
mod hung_guard;
mod judged_paths;
#[cfg(feature = "mcp")]
mod mcp;
mod scene;
mod server;
mod sessions;
mod turns;
