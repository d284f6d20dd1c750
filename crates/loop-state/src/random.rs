//! Random numbers that are the same for the same seed: the extra waits of a run and the simulations use them, so both can be repeated.

/// A source of random numbers for a simulation. The same seed gives the same numbers, on every platform and in every version of this crate.
///
/// It is the generator SplitMix64, which is fast and unfit for cryptography.
///
/// # Examples
///
/// ```
/// use loop_state::simulate::SeededRandom;
///
/// let mut random = SeededRandom::new(7);
/// assert!((1..=6).contains(&random.between(1, 6)));
/// assert!(random.chance(1.0) && !random.chance(0.0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeededRandom {
    state: u64,
}

impl SeededRandom {
    /// Creates the source of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next number; each number is equally likely.
    pub fn next_number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from `low` to `high`, both included. If `low` is the larger one, it returns a number from `high` to `low`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.min(high), low.max(high));
        let number = self.next_number();
        match (high - low).checked_add(1) {
            Some(count) => low + number % count,
            None => number,
        }
    }

    /// Returns true with this probability: never for 0.0 and less, always for 1.0 and more.
    pub fn chance(&mut self, probability: f64) -> bool {
        // The upper 53 bits are what a `f64` holds exactly, so the result is the same on every platform.
        let number = (self.next_number() >> 11) as f64 / (1_u64 << 53) as f64;
        number < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_of_a_seed_never_change() {
        let mut random = SeededRandom::new(0);
        let numbers = [(); 3].map(|()| random.next_number());
        // The published test vector of SplitMix64.
        assert_eq!(
            numbers,
            [
                0xe220_a839_7b1d_cdaf,
                0x6e78_9e6a_a1b9_65f4,
                0x06c4_5d18_8009_454f
            ]
        );
    }

    #[test]
    fn chance_is_as_likely_as_requested() {
        let mut random = SeededRandom::new(1);
        let hits = (0..10_000).filter(|_| random.chance(0.3)).count();
        assert!((2_800..3_200).contains(&hits), "{hits}");
    }

    proptest! {
        #[test]
        fn number_is_within_its_bounds_for_any_bounds(seed: u64, a: u64, b: u64) {
            let number = SeededRandom::new(seed).between(a, b);
            prop_assert!((a.min(b)..=a.max(b)).contains(&number));
            let mut random = SeededRandom::new(seed);
            prop_assert!(!random.chance(0.0) && random.chance(1.0) && !random.chance(f64::NAN));
            let both: std::collections::BTreeSet<_> = (0..200).map(|_| random.between(3, 4)).collect();
            prop_assert_eq!(both.len(), 2);
            prop_assert_eq!(SeededRandom::new(seed).between(5, 5), 5);
        }
    }
}
