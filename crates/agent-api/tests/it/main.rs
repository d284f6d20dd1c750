//! The tests of the crate through its public interface.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod budgets;
mod compaction;
mod errors;
mod history;
mod hostile;
#[cfg(feature = "http")]
mod http;
mod prefix;
mod requests;
mod sse;
mod streams;
mod support;
mod wire;
