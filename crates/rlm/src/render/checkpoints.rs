//! What is saved of runs, for `rlm checkpoints`. The text and the JSON say the same.

mod list;
mod show;
mod transfer;
mod verify;

pub(crate) use list::List;
pub(crate) use show::Shown;
pub(crate) use transfer::{Export, Fork, Import};
pub(crate) use verify::Verified;
