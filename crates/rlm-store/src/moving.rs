//! Transfers and forks of runs.
//!
//! Everything here is created beside its final place and renamed last, so that a stopped or killed transfer leaves nothing that looks like a run.

mod archive;
mod arrive;
mod export;
mod fork;
mod import;
mod manifest;
mod paths;
mod work;

pub use arrive::Arrival;
pub use export::{ExportOptions, Exported, To};
pub use fork::{ForkPoint, Forked};
pub use import::{ImportOptions, Imported};
pub use work::Meter;
pub(crate) use work::sweep;
