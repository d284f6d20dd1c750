//! The integration tests of the crate, as one program, so that it is linked once.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod claims;
mod heads;
mod transfers;
