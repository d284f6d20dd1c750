//! Integration tests: real files, real processes, real kills.
#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

mod blob;
mod compat;
mod damage;
mod effort;
mod examples;
mod fault;
mod fold;
mod history;
#[cfg(feature = "import")]
mod import;
mod kill;
mod list;
mod lock;
mod model;
mod order;
mod phase;
mod repair;
mod replica;
mod retention;
mod safety;
mod saves;
mod support;
mod value;
