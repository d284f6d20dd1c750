//! A run's timeline as one page of HTML, and as JSON.
//!
//! The page loads nothing and runs nothing, and is the same for the same state of a run. Templates in Rust (`maud`) escape every text and close every
//! element; one pass over the finished page then shows its control characters. This crate must not know the command line, exit codes or terminals:
//! its caller hands them over as [`Wording`]. A part of `rlm`: it promises nothing to other programs.
//!
//! Modules in reading order: `report` is all that a page is made of, `gather` reads it from a project; `page` is the whole page, with `summary` (three
//! sentences), `plots`, `rows` (the table) and `detail` (one attempt, with its `transcript`) in it; `words` and `visible` are shared by them; `json` is
//! the timeline for programs.

mod detail;
mod gather;
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

pub use gather::gather;
pub use json::json;
pub use page::page;
pub use report::{Report, Wording};
pub use words::{removed, uncommitted};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
