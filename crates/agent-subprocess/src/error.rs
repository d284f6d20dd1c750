//! The reasons why a program could not be started or reached.

use crate::sweep_report::SweepReport;
use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The reason why a program could not be started or reached, with the fix.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Kind);

#[derive(Debug, thiserror::Error)]
pub(crate) enum Kind {
    #[error("`{program}` was not found on PATH: install it, or name it by its full path")]
    NotOnPath { program: String },
    #[error("`{program}` does not exist: check the path (relative to {directory})")]
    NoSuchFile { program: String, directory: PathBuf },
    #[error(
        "`{program}` exists, but the interpreter in its first line does not: install the interpreter, or correct the line"
    )]
    NoInterpreter { program: String },
    #[error(
        "`{program}` exists, but its loader does not: install the build for this system's C library"
    )]
    NoLoader { program: String },
    #[error(
        "`{program}` is not a program for this system: install the build for this processor, or give a script a first line such as #!/bin/sh"
    )]
    WrongFormat { program: String },
    #[error(
        "`{program}` is not executable: make it executable, and check the permissions of its directories"
    )]
    PermissionDenied { program: String },
    #[error("cannot enter the working directory {path}: {source}; create it, or choose another")]
    BadDirectory { path: PathBuf, source: io::Error },
    #[error(
        "cannot write the survivors file {path}: {source}; choose a file in a writable directory that exists"
    )]
    BadSurvivorsFile { path: PathBuf, source: io::Error },
    #[error(
        "the arguments and the environment of `{program}` are too long for the system: pass large input on standard input"
    )]
    TooLong { program: String },
    #[error(
        "`{program}` could not be started: too many files are open; raise the limit of open files (ulimit -n)"
    )]
    NoDescriptors { program: String },
    #[error(
        "`{program}` could not be started: there are too many processes; end some, or raise the limit (ulimit -u)"
    )]
    NoProcesses { program: String },
    #[error("`{program}` could not be started: {source}")]
    Spawn { program: String, source: io::Error },
    #[error(
        "this program cannot be its own guard: call `guard::run_if_guard()` first in main, before any thread starts (within `#[tokio::main]` is too late), or write `agent_subprocess::guard_before_main!();` outside of it, or name a `guard::guard_program`; without a guard, `Containment::Group` can prove less"
    )]
    NoGuard,
    #[error(
        "the guard {path} could not be started: {source}; check that it exists and is executable"
    )]
    #[cfg(target_os = "linux")]
    GuardSpawn { path: PathBuf, source: io::Error },
    #[error(
        "the guard {path} {what}: check that it calls `run_if_guard` first in main and has the same version as this library"
    )]
    #[cfg(target_os = "linux")]
    Guard {
        path: PathBuf,
        what: String,
        swept: Option<SweepReport>,
    },
    #[error(
        "the guard {path} {what} in time: check that the disks of both programs respond, and that the guard calls `run_if_guard` first in main"
    )]
    #[cfg(target_os = "linux")]
    GuardTimeout {
        path: PathBuf,
        what: &'static str,
        swept: Option<SweepReport>,
    },
    #[error("the guard {path} cannot work here: {reason}")]
    #[cfg(target_os = "linux")]
    GuardRefused { path: PathBuf, reason: String },
    #[error("cannot create a pipe or socket: {source}; raise the limit of open files (ulimit -n)")]
    Pipe { source: io::Error },
    #[error("invalid marker: {reason}")]
    Marker { reason: &'static str },
    #[error("a NUL byte is not allowed in {what}: remove it")]
    Nul { what: &'static str },
    #[error("at most {limit} descriptors can be held: pass fewer")]
    TooManyHeld { limit: usize },
    #[error("there is no signal {number}: choose one between 1 and 31")]
    NoSignal { number: i32 },
    #[error(
        "nothing can kill this process tree at a time, because it has no guard: choose `Containment::Guard`"
    )]
    NoKillTime,
    #[error("cannot reach process {pid}: {source}; stop the process tree")]
    Unreachable { pid: u32, source: io::Error },
}

impl Error {
    /// Returns whether the program was not found, or the interpreter of a script, or the loader of a binary.
    pub fn is_not_found(&self) -> bool {
        matches!(
            self.0,
            Kind::NotOnPath { .. }
                | Kind::NoSuchFile { .. }
                | Kind::NoInterpreter { .. }
                | Kind::NoLoader { .. }
        )
    }

    /// Returns whether the program is not executable.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self.0, Kind::PermissionDenied { .. })
    }

    /// Returns whether the program is built for another processor or system, or is a script without an interpreter in its first line.
    pub fn is_wrong_format(&self) -> bool {
        matches!(self.0, Kind::WrongFormat { .. })
    }

    /// Returns whether this process or the system has too many files open.
    pub fn is_out_of_descriptors(&self) -> bool {
        match &self.0 {
            Kind::NoDescriptors { .. } => true,
            Kind::Pipe { source } => is_out_of_descriptors(source),
            _ => false,
        }
    }

    /// Returns whether the working directory does not exist or cannot be entered.
    pub fn is_bad_directory(&self) -> bool {
        matches!(self.0, Kind::BadDirectory { .. })
    }

    /// Returns whether the file of [`survivors_file`](crate::TreeCommand::survivors_file) cannot be written.
    pub fn is_bad_survivors_file(&self) -> bool {
        matches!(self.0, Kind::BadSurvivorsFile { .. })
    }

    /// Returns whether the arguments and the environment together were too long for the system.
    pub fn is_argument_list_too_long(&self) -> bool {
        matches!(self.0, Kind::TooLong { .. })
    }

    /// Returns whether the containment needed a guard, and no guard could be started.
    pub fn is_guard(&self) -> bool {
        match self.0 {
            Kind::NoGuard => true,
            #[cfg(target_os = "linux")]
            Kind::GuardSpawn { .. }
            | Kind::Guard { .. }
            | Kind::GuardTimeout { .. }
            | Kind::GuardRefused { .. } => true,
            _ => false,
        }
    }

    /// Returns whether the process tree can't do this because it has no guard.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.0, Kind::NoKillTime)
    }

    /// Returns whether the guard did not answer in time.
    pub fn is_guard_timeout(&self) -> bool {
        #[cfg(target_os = "linux")]
        return matches!(self.0, Kind::GuardTimeout { .. });
        #[cfg(not(target_os = "linux"))]
        return false;
    }

    /// Returns the processes that the program possibly started before its guard was lost. A search found and ended them; it can't prove that no other
    /// process is left. Returns `None` if the program certainly did not start.
    pub fn lost_processes(&self) -> Option<&SweepReport> {
        #[cfg(target_os = "linux")]
        if let Kind::Guard { swept, .. } | Kind::GuardTimeout { swept, .. } = &self.0 {
            return swept.as_ref();
        }
        None
    }

    /// Adds the result of the sweep after a guard that possibly spawned the program.
    #[cfg(target_os = "linux")]
    pub(crate) fn with_sweep(mut self, report: SweepReport) -> Self {
        if let Kind::Guard { swept, .. } | Kind::GuardTimeout { swept, .. } = &mut self.0 {
            *swept = Some(report);
        }
        self
    }

    /// Explains why a spawn failed. `file` is the file with the name of the program, if there is one.
    pub(crate) fn spawn(
        program: &OsStr,
        directory: &Path,
        in_directory: bool,
        file: Option<&Path>,
        source: io::Error,
    ) -> Error {
        let path = directory.to_owned();
        // A failed spawn reports "not found" and "denied" for the directory as well as for the program.
        let is_denied = source.raw_os_error() == Some(libc::EACCES)
            && rustix::fs::access(directory, rustix::fs::Access::EXEC_OK).is_err();
        if in_directory || is_denied || !directory.is_dir() {
            return Kind::BadDirectory { path, source }.into();
        }
        let is_path = program.as_encoded_bytes().contains(&b'/');
        let program = program.to_string_lossy().into_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT) if file.is_some_and(is_binary) => Kind::NoLoader { program },
            Some(libc::ENOENT) if file.is_some() => Kind::NoInterpreter { program },
            Some(libc::ENOENT) if is_path => Kind::NoSuchFile {
                program,
                directory: path,
            },
            Some(libc::ENOENT) => Kind::NotOnPath { program },
            Some(libc::EACCES) => Kind::PermissionDenied { program },
            Some(libc::E2BIG) => Kind::TooLong { program },
            Some(libc::ENOEXEC) => Kind::WrongFormat { program },
            Some(libc::EAGAIN) => Kind::NoProcesses { program },
            _ if is_out_of_descriptors(&source) => Kind::NoDescriptors { program },
            _ => Kind::Spawn { program, source },
        }
        .into()
    }
}

pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Returns whether a file is not a script: then the missing file is its loader.
fn is_binary(file: &Path) -> bool {
    let mut start = [0; 2];
    let read = std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start != *b"#!"
}
