//! Transfers and forks of runs.
//!
//! Everything here is created beside its final place and renamed last, so that a stopped or killed transfer leaves nothing that looks like a run.

mod archive;
mod claimed;
mod export;
mod fleet_code;
mod fork;
mod import;
mod manifest;
mod path_map;
mod place_files;
mod progress;

pub use claimed::{ReplicatedRun, UnpackedRun};
pub use export::{ExportOptions, ExportTarget, Exported};
pub use fork::{ForkPoint, Forked};
pub use import::{ImportOptions, Imported};
pub use place_files::FilesLocation;
pub use progress::TransferProgress;
pub(crate) use progress::sweep;
