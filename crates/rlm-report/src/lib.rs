//! Renders the timeline of a run as one HTML page or as JSON.
//!
//! The page loads nothing and runs nothing, and is the same for the same state of a run. Templates in Rust (`maud`) escape every text and close every
//! element; one pass over the finished page then makes its control characters visible. This crate must not know the command line, exit codes or
//! terminals: its caller passes the texts that depend on them as [`CommandLineTerms`]. The crate is a part of `rlm` and makes no promise to other
//! programs.
//!
//! Modules in reading order: `report` contains all data of a page, and `collect` reads that data from a project. `page` renders the whole page, with
//! `summary` (three sentences), `figures` (what the `plots` show), `rows` (the table) and `detail` (one attempt, with its `transcript`). They share
//! `words` and `visible`. `figures` also renders the plots and their values for a page of another program. `json` renders the timeline for programs.

mod collect;
mod detail;
mod figures;
mod json;
mod page;
mod plots;
mod report;
mod rows;
mod summary;
#[cfg(test)]
mod tests;
mod transcript;
mod visible;
mod words;

pub use collect::collect;
pub use figures::figures;
pub use json::json;
pub use page::{CSS, body, page};
pub use plots::PLOTS_CSS;
pub use report::{CommandLineTerms, ReportData};
pub use transcript::middle_out;
pub use visible::visible;
pub use words::{delivery, removed, uncommitted};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
