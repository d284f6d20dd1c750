//! The number of repetitions of a test: few in `cargo xtask ci`, many in `cargo xtask nightly`, which sets the variable.

/// Two numbers that the acceptance list states as `N (nightly: M)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) ci: u32,
    pub(crate) nightly: u32,
}

impl Effort {
    /// Returns the number for this run.
    pub(crate) fn number(self) -> u32 {
        match std::env::var("RLM_TEST_EFFORT").as_deref() {
            Err(_) | Ok("ci") => self.ci,
            Ok("nightly") => self.nightly,
            Ok(other) => panic!("RLM_TEST_EFFORT={other}: ci or nightly"),
        }
    }
}
