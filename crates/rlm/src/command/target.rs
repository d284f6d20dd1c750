//! The run of a command that controls a live run: a run of this machine, or else a run of the fleet.

use std::path::Path;

use loop_runner::control::LiveRun;
use rlm_store::RunId;

use crate::command::fleet::FleetRun;
use crate::command::live;
use crate::exit::Failure;

/// The run that gets a request.
#[derive(Debug)]
pub(crate) enum Target {
    /// A process of this machine works on it.
    Here(Box<LiveRun>),
    /// It is a run of the fleet.
    Fleet(Box<FleetRun>),
}

impl Target {
    /// Returns the name of the run.
    pub(crate) fn run(&self) -> &RunId {
        match self {
            Self::Here(target) => &target.run,
            Self::Fleet(target) => target.run(),
        }
    }
}

/// Finds the run: the named one, or the only live one of this project. A name that no run of this machine has can be that of a run of the fleet.
pub(crate) fn find(directory: &Path, name: Option<&str>) -> Result<Target, Failure> {
    if let Some(target) = FleetRun::named(directory, name)? {
        live::refuse_own_agent(target.run())?;
        return Ok(Target::Fleet(Box::new(target)));
    }
    let target = live::find(directory, name)?;
    Ok(Target::Here(Box::new(target)))
}
