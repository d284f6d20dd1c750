//! The identities of saves and phases: numbers within a store, and ids that stay the same in every copy. A long history has many numbers and hardly
//! any gap between them, so the numbers are stored as ranges.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The number of a save of a store, from 1 on. Zero is the state before the first save.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(u64);

impl Seq {
    /// The state before the first save: no head, no events.
    pub const ZERO: Self = Self(0);

    /// Wraps a number that [`get`](Self::get) returned.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the plain number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The permanent id of one finished phase, the same in every copy. It is a UUID of version 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhaseId(uuid::Uuid);

impl PhaseId {
    pub(crate) fn new(now: SystemTime, random: [u64; 2]) -> Self {
        let since = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&random[0].to_le_bytes());
        bytes[8..].copy_from_slice(&random[1].to_le_bytes()[..2]);
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid())
    }
}

impl fmt::Display for PhaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for PhaseId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PhaseId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// Ascending numbers, as ranges of consecutive ones: only undos leave gaps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seqs(Vec<RangeInclusive<u64>>);

impl Seqs {
    /// Adds a number that is larger than all others.
    pub(crate) fn push(&mut self, seq: u64) {
        match self.0.last_mut() {
            Some(row) if row.end() + 1 == seq => *row = *row.start()..=seq,
            _ => self.0.push(seq..=seq),
        }
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        let row = self.0.partition_point(|row| *row.end() < seq);
        self.0.get(row).is_some_and(|row| row.contains(&seq))
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.0.first().map(|row| *row.start())
    }

    pub(crate) fn last(&self) -> Option<u64> {
        self.0.last().map(|row| *row.end())
    }

    /// Returns the number after which exactly `others` larger numbers come.
    pub(crate) fn before_last(&self, mut others: u64) -> Option<u64> {
        for row in self.0.iter().rev() {
            let within = row.end() - row.start();
            if others <= within {
                return Some(row.end() - others);
            }
            others -= within + 1;
        }
        None
    }

    /// Removes all numbers above `seq`.
    pub(crate) fn truncate_after(&mut self, seq: u64) {
        self.0.retain(|row| *row.start() <= seq);
        if let Some(row) = self.0.last_mut() {
            *row = *row.start()..=seq.min(*row.end());
        }
    }

    /// Removes all numbers below `seq`.
    pub(crate) fn truncate_before(&mut self, seq: u64) {
        self.0.retain(|row| seq <= *row.end());
        if let Some(row) = self.0.first_mut() {
            *row = seq.max(*row.start())..=*row.end();
        }
    }

    #[cfg(test)]
    fn rows(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<u64> for Seqs {
    fn from_iter<I: IntoIterator<Item = u64>>(all: I) -> Self {
        let mut seqs = Self::default();
        all.into_iter().for_each(|seq| seqs.push(seq));
        seqs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x116e_consecutive_numbers_take_the_space_of_one() {
        let seqs: Seqs = (7..1_000_000).collect();
        assert_eq!(seqs.rows(), 1);
        assert_eq!(seqs.before_last(15), Some(1_000_000 - 16));
    }

    proptest::proptest! {
        #[test]
        fn rows_match_a_list(steps in proptest::collection::vec((0..4u8, 0..30u64), 1..60)) {
            let (mut seqs, mut list, mut next) = (Seqs::default(), Vec::new(), 1);
            for (step, n) in steps {
                match step {
                    0 => next += n % 3,
                    1 => {
                        seqs.truncate_after(next.saturating_sub(n));
                        list.retain(|seq| *seq <= next.saturating_sub(n));
                    }
                    2 => {
                        seqs.truncate_before(n);
                        list.retain(|seq| *seq >= n);
                    }
                    _ => {}
                }
                seqs.push(next);
                list.push(next);
                next += 1;
                proptest::prop_assert_eq!(seqs.first(), list.first().copied());
                proptest::prop_assert_eq!(seqs.last(), list.last().copied());
                for seq in 0..next + 2 {
                    proptest::prop_assert_eq!(seqs.contains(seq), list.contains(&seq));
                }
                for others in 0..list.len() + 2 {
                    let at = list.len().checked_sub(others + 1).map(|at| list[at]);
                    proptest::prop_assert_eq!(seqs.before_last(others as u64), at);
                }
            }
        }
    }
}
