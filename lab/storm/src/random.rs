//! Random numbers from a seed, so that the choices of a storm can be repeated. The timing of the processes can't.

use std::time::Duration;

/// A generator of the kind xorshift64.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // The generator can't leave zero. The multiplication spreads small seeds.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }

    /// Returns an index of a list with this length, which is at least 1.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Returns a time between two times.
    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let spread = most.saturating_sub(least).as_millis();
        let spread = u64::try_from(spread).unwrap_or(u64::MAX);
        least + Duration::from_millis(self.below(spread.max(1)))
    }
}
