//! The report of a layer, and the amount of work that is requested from it.

use std::fmt::Display;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use crate::reference::{BrokenPromise, CheckResult};

/// The amount of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A few seconds in a debug build: for the tests of this package.
    Test,
    /// All layers in half a minute.
    Quick,
    /// The cases that every change must pass.
    Ci,
    /// Many more cases, overnight.
    Nightly,
}

impl Level {
    /// Returns the one of four values that belongs to this level.
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
    /// The case that shows it again.
    pub case: Box<C>,
    /// The promise that was broken.
    pub broken: BrokenPromise,
}

impl<C> Finding<C> {
    pub(crate) fn new(case: C, broken: BrokenPromise) -> Self {
        Self {
            case: Box::new(case),
            broken,
        }
    }
}

/// The result of a layer.
#[derive(Debug, Default, Clone)]
pub struct Outcome {
    /// States or histories that were tried.
    pub tried: u64,
    /// Number of them that were different on disk; `None` where that has no meaning.
    pub distinct: Option<u64>,
    /// Faults that were injected.
    pub faults: u64,
    /// Saves that were acknowledged.
    pub acked: u64,
    /// Cases in which a promise was broken.
    pub lost: u64,
    /// The parts that were skipped, with the reasons.
    pub skipped: Vec<String>,
    /// Notes for people: for a broken promise, the smallest case that shows it.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Returns an outcome without any work, with the reason.
    pub fn skip(why: impl Into<String>) -> Self {
        Self {
            skipped: vec![why.into()],
            ..Self::default()
        }
    }

    /// Counts a case, and notes the promise that it broke, if any.
    pub fn judge(&mut self, case: impl Display, kept: CheckResult) {
        self.tried += 1;
        if let Err(BrokenPromise { invariant, what }) = kept {
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
