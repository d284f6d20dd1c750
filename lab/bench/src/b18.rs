//! B18: commands on large states: a run of many iterations, a long transcript, and many live runs.

mod live;
mod long;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Bench, Outcome, Plan, Result};
use crate::programs::{command_in, make_place, rlm_or_skip, timed};

pub(crate) const BENCH: Bench = Bench {
    id: "b18",
    title: "commands on large states",
    run,
    measured: Some(live::measured),
};

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let Some(rlm) = rlm_or_skip("rlm", outcome) else {
        return Ok(());
    };
    let place = |name: &str| Place::make(&rlm, plan.scratch.join("b18").join(name));
    for (count, label) in long::sizes(plan.scale) {
        long::iterations(&place(label)?, count, label, plan, outcome)?;
    }
    long::judge_iterations(outcome);
    long::transcript(&place("transcript")?, plan, outcome)?;
    live::ps(&place("live")?, plan, outcome)
}

/// The directories `home` and `work` of the measured commands, and their program.
struct Place {
    dir: PathBuf,
    rlm: PathBuf,
}

impl Place {
    fn make(rlm: &Path, dir: PathBuf) -> Result<Self> {
        make_place(&dir)?;
        let rlm = rlm.to_owned();
        Ok(Self { dir, rlm })
    }

    fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// Returns the directory of the only run of the project in `work`.
    fn run_dir(&self) -> Result<PathBuf> {
        let mut runs = fs_err::read_dir(self.work().join(".rlm/runs"))?;
        Ok(runs.next().ok_or("there is no run")??.path())
    }

    fn rlm(&self, arguments: &[&str]) -> Command {
        let mut command = command_in(&self.dir, &self.rlm);
        command.args(arguments);
        command
    }

    /// Returns the milliseconds from the start of a command to its exit.
    fn time(&self, arguments: &[&str]) -> Result<f64> {
        Ok(timed(&mut self.rlm(arguments))?.as_secs_f64() * 1e3)
    }
}

/// Copies a directory with everything in it, except sockets.
fn copy_all(from: &Path, to: &Path) -> Result<()> {
    fs_err::create_dir_all(to)?;
    for entry in fs_err::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()? {
            kind if kind.is_dir() => copy_all(&entry.path(), &target)?,
            kind if kind.is_file() => drop(fs_err::copy(entry.path(), target)?),
            _ => {}
        }
    }
    Ok(())
}

/// Reads all files of a directory.
pub(crate) fn read_all(directory: &Path) -> Result<()> {
    for entry in fs_err::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => read_all(&entry.path())?,
            kind if kind.is_file() => drop(fs_err::read(entry.path())?),
            _ => {}
        }
    }
    Ok(())
}
