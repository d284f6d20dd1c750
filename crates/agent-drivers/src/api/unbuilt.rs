//! The driver of a build without the agent: it reads the settings, and says what is missing.

use agent_duplex::{
    BoxFuture, Capabilities, Connection, Driver, Error, InputPolicy, SessionChoice,
};
use agent_subprocess::ProcessContext;

use super::options::{ApiOptions, NAME};
use crate::choices::{CheckedDriver, Choices};

/// Stands for the agent in a build without the feature `api`.
#[derive(Clone, Debug)]
pub(crate) struct ApiDriver;

impl ApiDriver {
    pub(crate) fn new(_: ApiOptions, _: Choices, _: ProcessContext) -> Self {
        Self
    }
}

pub(super) fn unbuilt() -> Error {
    let hint = "install a release, or build rlm with --features api";
    Error::unsupported("api", "run in this build", hint)
}

impl CheckedDriver for ApiDriver {
    fn check(&self) -> Result<(), Error> {
        Err(unbuilt())
    }
}

impl Driver for ApiDriver {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }

    fn input_policy(&self) -> InputPolicy {
        InputPolicy::AfterTurn
    }

    fn connect(&self, _: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async { Err(unbuilt()) })
    }
}
