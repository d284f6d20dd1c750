//! What is saved of runs, for `rlm checkpoints`. The text and the JSON say the same.

mod export;
mod fork;
mod import;
mod list;
mod show;
mod units;
mod verify;

pub(crate) use export::Export;
pub(crate) use fork::Fork;
pub(crate) use import::Import;
pub(crate) use list::{List, cut_words};
pub(crate) use show::Shown;
pub(crate) use verify::Verified;

#[cfg(test)]
mod tests;
