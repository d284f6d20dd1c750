//! The amount of work of a test: a part of it in `cargo xtask ci`, all of it in `cargo xtask nightly`, which sets the variable.

/// Two numbers, which the acceptance list states as `N (nightly: M)`.
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
            Ok(other) => panic!("RLM_TEST_EFFORT is {other}, but must be ci or nightly"),
        }
    }
}
