//! Random numbers from a seed, so that a measurement can be repeated.

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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_repeats_the_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [(); 50].map(|()| random.below(300))
        };
        assert_eq!(numbers(0), numbers(0));
        assert_ne!(numbers(1), numbers(2));
        assert!(numbers(3).iter().all(|number| *number < 300));
    }
}
