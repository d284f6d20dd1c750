//! The drivers of the agents.

use std::fmt;

use agent_duplex::Driver;
use agent_subprocess::Context;
use rlm_store::PhaseSettings;

use crate::Error;

/// Makes the driver of an attempt: what to run, and the context that its processes must carry.
pub type DriverFactory =
    Box<dyn Fn(&PhaseSettings, Context) -> Result<Box<dyn Driver>, Error> + Send + Sync>;

/// The factory of a run's drivers; none before the run is carried out, when no attempt begins.
#[derive(Default)]
pub(crate) struct Drivers(Option<DriverFactory>);

impl Drivers {
    pub(crate) fn new(factory: DriverFactory) -> Self {
        Self(Some(factory))
    }

    /// Makes the driver of an attempt.
    pub(crate) fn make(
        &self,
        phase: &PhaseSettings,
        context: Context,
    ) -> Result<Box<dyn Driver>, Error> {
        let factory = self.0.as_ref().expect("a run that is carried out has it");
        factory(phase, context)
    }
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drivers")
    }
}
