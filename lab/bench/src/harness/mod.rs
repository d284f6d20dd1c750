//! Code that all benches share: rounds, child processes, statistics, output.

mod child;
mod machine;
mod outcome;
mod progress;
mod random;
mod report;
mod rounds;
mod stats;

pub(crate) use child::{Child, Process, end_with_parent, now, park, pause, readable_by};
pub(crate) use machine::Machine;
pub(crate) use outcome::{Contender, Outcome, Role, Series, find, join};
pub(crate) use progress::Progress;
pub(crate) use random::Random;
pub(crate) use report::{print, write_json};
pub(crate) use rounds::{Turn, in_turn, in_turn_beside};
pub(crate) use stats::{Sample, paired_ratio, summarise};

/// Any failure, told to a person and to nobody else.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Enough to judge the targets by.
    Full,
    /// Minutes become seconds; the figures are a hint.
    Quick,
    /// Shows that everything runs, and no more.
    Tiny,
}

impl Scale {
    pub(crate) fn pick<T>(self, full: T, quick: T, tiny: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Tiny => tiny,
        }
    }
}
