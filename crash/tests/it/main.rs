//! The harness's own controls, and a quick version of its layers.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

mod controls;
mod disk;
mod layers;
mod real;
