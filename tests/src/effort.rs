//! The amount of work of a test: a part in `cargo xtask ci`, all of it in `cargo xtask nightly`.

use std::env;

/// The variable that `cargo xtask nightly` sets to `nightly`. The tests of the libraries read it too.
const EFFORT: &str = "RLM_TEST_EFFORT";
/// The variable that repeats a random test, with the seed that the test printed.
const SEED: &str = "RLM_TEST_SEED";

/// Two numbers that `tests/acceptance.md` states as `N (nightly: M)`, or as one number if both are equal.
///
/// A test of `xtask` compares the list with each `const X103_…: Effort` of the sources.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// The number for `cargo xtask ci`.
    pub ci: u32,
    /// The number for `cargo xtask nightly`.
    pub nightly: u32,
}

impl Effort {
    /// Returns the number for this run.
    ///
    /// # Panics
    ///
    /// If the variable has an unknown value.
    pub fn number(self) -> u32 {
        match env::var(EFFORT).as_deref() {
            Err(_) | Ok("ci") => self.ci,
            Ok("nightly") => self.nightly,
            Ok(other) => panic!("{EFFORT}={other}: expected ci or nightly"),
        }
    }
}

/// Returns the seed of a random test, and prints the command that repeats the test. The seed is new for each run unless the variable sets it.
///
/// # Panics
///
/// If the variable contains no number.
#[expect(clippy::print_stdout, reason = "a test that fails shows its output")]
pub fn seed() -> u64 {
    let fresh = || uuid::Uuid::new_v4().as_u64_pair().1;
    let seed = env::var(SEED).map_or_else(|_| fresh(), |seed| seed.parse().unwrap());
    println!("{SEED}={seed}");
    seed
}
