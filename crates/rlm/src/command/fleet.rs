//! `rlm fleet`: submits runs to a fleet, works on them, and shows them.

use std::path::Path;
use std::process::ExitCode;

use crate::args::FleetArgs;
use crate::exit::Failure;

#[cfg(feature = "fleet")]
mod attach;
#[cfg(feature = "fleet")]
mod budget;
#[cfg(feature = "fleet")]
mod budget_share;
#[cfg(feature = "fleet")]
mod control;
#[cfg(feature = "fleet")]
mod export;
#[cfg(feature = "fleet")]
mod server;
#[cfg(feature = "fleet")]
mod show;
#[cfg(feature = "fleet")]
mod staged;
#[cfg(feature = "fleet")]
mod submit;
#[cfg(feature = "fleet")]
mod work;
#[cfg(feature = "fleet")]
mod worker;

#[cfg(feature = "fleet")]
pub(crate) fn execute(directory: &Path, args: FleetArgs) -> Result<ExitCode, Failure> {
    use crate::args::FleetCommand;
    match args.what {
        FleetCommand::Init(args) => submit::init(&args),
        FleetCommand::Worker(args) => worker::execute(directory, args),
        FleetCommand::Run(args) => submit::execute(directory, *args),
        FleetCommand::Ps(args) => show::ps(&args),
        FleetCommand::Wait(args) => show::wait(&args),
        FleetCommand::Fetch(args) => show::fetch(directory, &args),
        FleetCommand::Remove(args) => show::remove(&args),
        FleetCommand::Budget(args) => budget::execute(args),
        FleetCommand::Resume(args) => control::resume(&args),
        FleetCommand::Export(args) => export::export(directory, &args),
        FleetCommand::Import(args) => export::import(directory, &args),
        FleetCommand::Drain(args) => control::drain(&args),
    }
}

#[cfg(not(feature = "fleet"))]
pub(crate) fn execute(_: &Path, _: FleetArgs) -> Result<ExitCode, Failure> {
    // The command is known in each build, so that its help is the same everywhere.
    Err(no_client())
}

#[cfg(not(feature = "fleet"))]
fn no_client() -> Failure {
    Failure::failed(
        "this build of rlm has no client for a fleet; install a release, or build rlm with --features fleet",
    )
}

#[cfg(feature = "fleet")]
pub(crate) use control::FleetRun;

/// A run of a fleet. A build without a client for a fleet has none.
#[cfg(not(feature = "fleet"))]
#[derive(Debug)]
pub(crate) enum FleetRun {}

#[cfg(not(feature = "fleet"))]
impl FleetRun {
    pub(crate) fn named(_: &Path, _: Option<&str>) -> Result<Option<Self>, Failure> {
        Ok(None)
    }

    pub(crate) fn run(&self) -> &rlm_store::RunId {
        match *self {}
    }

    pub(crate) fn request(
        &self,
        _: &loop_state::Request,
        _: bool,
        _: std::time::Duration,
    ) -> Result<ExitCode, Failure> {
        match *self {}
    }

    pub(crate) fn stop(&self, _: &crate::args::StopArgs) -> Result<ExitCode, Failure> {
        match *self {}
    }

    pub(crate) fn resume(
        &self,
        _: &[loop_state::RuleChange],
        _: bool,
    ) -> Result<ExitCode, Failure> {
        match *self {}
    }

    pub(crate) fn status(&self, _: bool, _: bool) -> Result<ExitCode, Failure> {
        match *self {}
    }

    pub(crate) fn attach(self, _: &crate::args::AttachArgs) -> Result<ExitCode, Failure> {
        match self {}
    }

    pub(crate) fn logs(&self, _: &crate::args::LogsArgs) -> Result<ExitCode, Failure> {
        match *self {}
    }

    pub(crate) fn with_timeline<T>(
        &self,
        _: impl FnOnce(&rlm_store::Project, rlm_store::Timeline) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match *self {}
    }
}

/// Works on a claimed run. A worker starts this program for it.
#[cfg(feature = "fleet")]
pub(crate) fn work() -> Result<ExitCode, Failure> {
    work::execute()
}

#[cfg(not(feature = "fleet"))]
pub(crate) fn work() -> Result<ExitCode, Failure> {
    Err(no_client())
}

#[cfg(feature = "fleet")]
impl From<rlm_fleet::nats::Error> for Failure {
    fn from(error: rlm_fleet::nats::Error) -> Self {
        use crate::exit::Code;
        let code = if error.is_usage() {
            Code::Usage
        } else if error.is_not_found() {
            Code::NotFound
        } else if error.is_fenced() {
            Code::Held
        } else {
            Code::Failed
        };
        Self::new(code, error.to_string())
    }
}
