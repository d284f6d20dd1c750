//! Text that several crates of `rlm` show: durations, sizes, money, times, and escaped text from agents.
//!
//! Every function is pure. This crate must not depend on terminals, HTML, live runs or the command line, and it sets no colours of its own. It is a
//! part of `rlm` and makes no promise to other programs.
//!
//! Modules in reading order: [`escape`] escapes text from agents; [`duration`], [`bytes`] and [`money`] parse what a user writes and format the
//! same values; [`time`] formats points in time.

pub mod bytes;
pub mod duration;
pub mod escape;
pub mod money;
pub mod time;

/// Returns a number and its noun: `one` for the number 1, otherwise `many`.
#[must_use]
pub fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
