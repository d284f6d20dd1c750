//! How much a test does: a part of it in `cargo xtask ci`, all of it in `cargo xtask nightly`.

use std::env;

/// The variable that `cargo xtask nightly` sets to `nightly`. The tests of the libraries read the same one.
const EFFORT: &str = "RLM_TEST_EFFORT";
/// The variable that plays a random test again: it holds the seed that the test printed.
const SEED: &str = "RLM_TEST_SEED";

/// Two numbers that `tests/acceptance.md` states as `N (nightly: M)`, or as one number where both are the same.
///
/// A test of `xtask` compares the list with each `const X103_…: Effort` of the sources.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// What `cargo xtask ci` does.
    pub ci: u32,
    /// What `cargo xtask nightly` does.
    pub nightly: u32,
}

impl Effort {
    /// Returns the number for this run.
    ///
    /// # Panics
    ///
    /// When the variable has a value that names no effort.
    pub fn number(self) -> u32 {
        match env::var(EFFORT).as_deref() {
            Err(_) | Ok("ci") => self.ci,
            Ok("nightly") => self.nightly,
            Ok(other) => panic!("{EFFORT}={other}: ci or nightly"),
        }
    }
}

/// Returns the seed of a random test and prints how to play it again: a new seed for each run unless the variable has one.
///
/// # Panics
///
/// When the variable holds no number.
#[expect(clippy::print_stdout, reason = "a test that fails shows its output")]
pub fn seed() -> u64 {
    let fresh = || uuid::Uuid::new_v4().as_u64_pair().1;
    let seed = env::var(SEED).map_or_else(|_| fresh(), |seed| seed.parse().unwrap());
    println!("{SEED}={seed}");
    seed
}
