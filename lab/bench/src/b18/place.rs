//! The place in which the commands are measured.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::Result;
use crate::programs::{command_in, make_place, timed};

/// The directories `home` and `work` of the measured commands, and their program.
pub(super) struct Place {
    pub(super) dir: PathBuf,
    rlm: PathBuf,
}

impl Place {
    pub(super) fn make(rlm: &Path, dir: PathBuf) -> Result<Self> {
        make_place(&dir)?;
        let rlm = rlm.to_owned();
        Ok(Self { dir, rlm })
    }

    pub(super) fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// Returns the directory of the only run of the project in `work`.
    pub(super) fn run_dir(&self) -> Result<PathBuf> {
        let mut runs = fs_err::read_dir(self.work().join(".rlm/runs"))?;
        Ok(runs.next().ok_or("there is no run")??.path())
    }

    pub(super) fn rlm(&self, arguments: &[&str]) -> Command {
        let mut command = command_in(&self.dir, &self.rlm);
        command.args(arguments);
        command
    }

    /// Returns the milliseconds from the start of a command to its exit.
    pub(super) fn time(&self, arguments: &[&str]) -> Result<f64> {
        Ok(timed(&mut self.rlm(arguments))?.as_secs_f64() * 1e3)
    }
}

/// Copies a directory with everything in it, except sockets.
pub(super) fn copy_all(from: &Path, to: &Path) -> Result<()> {
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
