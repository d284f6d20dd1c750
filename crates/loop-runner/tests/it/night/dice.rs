//! The only source of randomness in a night, so that the seed alone reproduces the night.

use std::time::Duration;

/// Random numbers from a seed: the same seed gives the same night.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, what: u64) -> Self {
        let mut dice = Self(seed ^ what.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        dice.roll();
        dice
    }

    /// Splitmix64.
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    /// Returns true in this many of a thousand cases.
    pub(crate) fn hits(&mut self, in_a_thousand: u64) -> bool {
        self.below(1000) < in_a_thousand
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    /// Returns a time of some seconds and milliseconds.
    pub(crate) fn seconds(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from * 1000 + self.below((to - from) * 1000 + 1))
    }
}
