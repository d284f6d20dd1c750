//! Why an agent could not be started or reached.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Says why an agent could not be started or reached, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Kind);

#[derive(Debug, thiserror::Error)]
pub(crate) enum Kind {
    #[error("`{program}` was not found on PATH: install it, or name it by its full path")]
    NotOnPath { program: String },
    #[error("`{program}` does not exist: check the path, which counts from {directory}")]
    NoSuchFile { program: String, directory: PathBuf },
    #[error(
        "`{program}` is there, but the interpreter in its first line is not: install that, or correct the line"
    )]
    NoInterpreter { program: String },
    #[error(
        "`{program}` may not be executed: make it executable, and look at the permissions of its folders"
    )]
    PermissionDenied { program: String },
    #[error(
        "the working directory {path} cannot be entered: {source}; create it, or choose another"
    )]
    BadDirectory { path: PathBuf, source: io::Error },
    #[error(
        "arguments and environment of `{program}` are too long for the system: pass large input on standard input"
    )]
    TooLong { program: String },
    #[error("`{program}` could not be started: {source}")]
    Spawn { program: String, source: io::Error },
    #[error(
        "this program cannot be its own guard: call `run_if_guard` first in main, or name a `guard_program`"
    )]
    NoGuard,
    #[error(
        "the guard {path} could not be started: {source}; check that it is there and may be executed"
    )]
    GuardSpawn { path: PathBuf, source: io::Error },
    #[error(
        "the guard {path} {what}: check that it calls `run_if_guard` first in main and is of this version"
    )]
    Guard { path: PathBuf, what: String },
    #[error("no pipe or socket could be made: {source}; raise the limit of open files")]
    Pipe { source: io::Error },
    #[error("{what} cannot hold a NUL byte: remove it")]
    Nul { what: &'static str },
    #[error("at most {limit} descriptors can be held: hold fewer")]
    TooManyHeld { limit: usize },
    #[error("process {pid} cannot be reached: {source}; stop it")]
    Unreachable { pid: u32, source: io::Error },
}

impl Error {
    /// Tells whether the program (or the interpreter of a script) was not found.
    pub fn is_not_found(&self) -> bool {
        matches!(
            self.0,
            Kind::NotOnPath { .. } | Kind::NoSuchFile { .. } | Kind::NoInterpreter { .. }
        )
    }

    /// Tells whether the program may not be executed.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self.0, Kind::PermissionDenied { .. })
    }

    /// Tells whether the working directory does not exist or cannot be entered.
    pub fn is_bad_directory(&self) -> bool {
        matches!(self.0, Kind::BadDirectory { .. })
    }

    /// Tells whether arguments and environment together were too long for the system.
    pub fn is_argument_list_too_long(&self) -> bool {
        matches!(self.0, Kind::TooLong { .. })
    }

    /// Tells whether a guard was asked for or needed, and none could be had.
    pub fn is_guard(&self) -> bool {
        matches!(
            self.0,
            Kind::NoGuard | Kind::GuardSpawn { .. } | Kind::Guard { .. }
        )
    }

    pub(crate) fn spawn(
        program: &OsStr,
        directory: &Path,
        in_directory: bool,
        source: io::Error,
    ) -> Error {
        let path = directory.to_owned();
        // A failed spawn says "not found" for the directory as well as for the program.
        if in_directory || !directory.is_dir() {
            return Kind::BadDirectory { path, source }.into();
        }
        let is_path = program.as_encoded_bytes().contains(&b'/');
        let is_there = is_path && directory.join(program).exists();
        let program = program.to_string_lossy().into_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT) if is_there => Kind::NoInterpreter { program },
            Some(libc::ENOENT) if is_path => Kind::NoSuchFile {
                program,
                directory: path,
            },
            Some(libc::ENOENT) => Kind::NotOnPath { program },
            Some(libc::EACCES) => Kind::PermissionDenied { program },
            Some(libc::E2BIG) => Kind::TooLong { program },
            _ => Kind::Spawn { program, source },
        }
        .into()
    }
}
