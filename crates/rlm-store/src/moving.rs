//! Runs that begin from another one's past, or go on elsewhere.
//!
//! Everything here is made beside where it will lie and gets its name last, so that what is stopped or killed on the way leaves nothing that could be
//! taken for a run.

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
