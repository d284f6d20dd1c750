//! The tests of the crate through its public interface.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod history;
mod prefix;
mod requests;
mod support;
mod wire;
