//! The saved states of runs, for `rlm checkpoints`, as text and JSON.

mod list;
mod show;
mod transfer;
mod verify;

pub(crate) use list::List;
pub(crate) use show::StateView;
pub(crate) use transfer::{Export, Fork, Import};
pub(crate) use verify::Verified;
