//! The built-in tools on real files, and with real processes under real guards.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod bash;
mod files;
#[path = "../agent/hung_guard.rs"]
mod hung_guard;
mod scene;
mod search;
