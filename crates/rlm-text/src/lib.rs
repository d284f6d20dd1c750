//! Text that several parts of `rlm` show: durations, sizes, money, times, and an agent's text made harmless.
//!
//! Every function is pure. This crate must not know terminals, colours of its own, HTML, runs at work or the command line.
//! A part of `rlm`: it promises nothing to other programs.
//!
//! Modules in reading order: [`escape`] makes text from elsewhere harmless; [`duration`], [`bytes`] and [`money`] parse what a user writes and write
//! it back; [`time`] writes points in time.

pub mod bytes;
pub mod duration;
pub mod escape;
pub mod money;
pub mod time;

/// Returns a number with the right form of a noun.
#[must_use]
pub fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
