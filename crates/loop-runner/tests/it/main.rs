//! Tests of whole runs.

#![expect(
    clippy::unwrap_used,
    reason = "clippy does not count the helpers of tests as tests"
)]

mod begin;
mod claims;
mod events;
mod examples;
mod items;
mod night;
mod phases;
mod saved_sessions;
mod shutdown;
mod transfer;
