//! What a bench is: its name, how it is run and how much it measures.

use std::path::PathBuf;

use super::outcome::Outcome;

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

/// The first argument of a measured process, which only this program starts.
pub(crate) const MEASURED: &str = "--measured";

/// How a bench is to run.
pub(crate) struct Plan {
    pub(crate) scale: Scale,
    /// A directory on a real disk for what the bench writes; empty, and removed in the end.
    pub(crate) scratch: PathBuf,
}

/// One bench.
pub(crate) struct Bench {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) run: fn(&Plan, &mut Outcome) -> Result<()>,
    /// What this binary does as a measured process of the bench, if the bench has one.
    pub(crate) measured: Option<Measured>,
}

/// The code of a measured process, which gets the arguments after the bench's name.
pub(crate) type Measured = fn(&[&str]) -> Result<()>;
