//! The definition of a bench: its name, its code, and the amount of work.

use std::path::PathBuf;

use super::outcome::Outcome;

/// Any failure; its text is only for people.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The amount of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Enough to judge the targets.
    Full,
    /// Seconds instead of minutes; the figures are a hint.
    Quick,
    /// Shows only that everything runs.
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

/// The parameters of a run.
pub(crate) struct Plan {
    pub(crate) scale: Scale,
    /// A directory on a real disk for the files of the bench. It is empty at the start, and removed at the end.
    pub(crate) scratch: PathBuf,
}

/// One bench.
pub(crate) struct Bench {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) run: fn(&Plan, &mut Outcome) -> Result<()>,
    /// The code of the measured process of the bench, if the bench has one.
    pub(crate) measured: Option<Measured>,
}

/// The code of a measured process, which gets the arguments after the bench's name.
pub(crate) type Measured = fn(&[&str]) -> Result<()>;
