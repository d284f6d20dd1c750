//! What a layer reports, and how much of everything it is asked for.

use std::fmt::Display;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use crate::reference::{Broken, Kept};

/// How much time there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A few seconds in a debug build: for the tests of this package.
    Test,
    /// All layers in half a minute.
    Quick,
    /// What every change goes through.
    Ci,
    /// What runs while nobody waits.
    Nightly,
}

impl Level {
    /// Returns the one of four figures that belongs to this level.
    pub fn of<T>(self, [test, quick, ci, nightly]: [T; 4]) -> T {
        match self {
            Self::Test => test,
            Self::Quick => quick,
            Self::Ci => ci,
            Self::Nightly => nightly,
        }
    }
}

/// A broken promise, and the history that shows it.
#[derive(Debug)]
pub struct Finding<C> {
    /// How to run it again.
    pub case: Box<C>,
    /// What was not kept.
    pub broken: Broken,
}

impl<C> Finding<C> {
    pub(crate) fn new(case: C, broken: Broken) -> Self {
        Self {
            case: Box::new(case),
            broken,
        }
    }
}

/// What came of a layer.
#[derive(Debug, Default, Clone)]
pub struct Outcome {
    /// States or histories that were looked at.
    pub tried: u64,
    /// How many of those were different on disk; none where that has no meaning.
    pub distinct: Option<u64>,
    /// Faults that were injected.
    pub faults: u64,
    /// Saves that were acknowledged on the way.
    pub acked: u64,
    /// Cases in which a promise was not kept.
    pub lost: u64,
    /// What was not done, and why.
    pub skipped: Vec<String>,
    /// What a person ought to read: of a broken promise, the smallest case that shows it.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Nothing was done, and this is why.
    pub fn skip(why: impl Into<String>) -> Self {
        Self {
            skipped: vec![why.into()],
            ..Self::default()
        }
    }

    /// Counts a case, and notes which promise it broke.
    pub fn judge(&mut self, case: impl Display, kept: Kept) {
        self.tried += 1;
        if let Err(Broken { invariant, what }) = kept {
            self.lost += 1;
            self.notes.push(format!("{case}: {invariant}: {what}"));
        }
    }
}

impl Add for Outcome {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sum for Outcome {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::add)
    }
}

impl AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.tried += other.tried;
        self.distinct = match (self.distinct, other.distinct) {
            (Some(one), Some(two)) => Some(one + two),
            (one, two) => one.or(two),
        };
        self.faults += other.faults;
        self.acked += other.acked;
        self.lost += other.lost;
        self.skipped.extend(other.skipped);
        self.notes.extend(other.notes);
    }
}
