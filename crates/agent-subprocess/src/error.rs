//! Why an agent could not be started or reached.

use std::ffi::OsStr;
use std::io::{self, Read as _};
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
        "`{program}` is there, but the loader that it asks for is not: install the build for this system's C library"
    )]
    NoLoader { program: String },
    #[error(
        "`{program}` is no program for this system: install the build for this processor, or give a script a first line such as #!/bin/sh"
    )]
    WrongFormat { program: String },
    #[error(
        "`{program}` may not be executed: make it executable, and look at the permissions of its folders"
    )]
    PermissionDenied { program: String },
    #[error(
        "the working directory {path} cannot be entered: {source}; create it, or choose another"
    )]
    BadDirectory { path: PathBuf, source: io::Error },
    #[error(
        "the survivors file {path} cannot be written: {source}; name a file in a directory that is there and may be written"
    )]
    BadSurvivorsFile { path: PathBuf, source: io::Error },
    #[error(
        "arguments and environment of `{program}` are too long for the system: pass large input on standard input"
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
        "this program cannot be its own guard: call `run_if_guard` first in main, before any thread is started (within `#[tokio::main]` is too late), or name a `guard_program`"
    )]
    NoGuard,
    #[error(
        "the guard {path} could not be started: {source}; check that it is there and may be executed"
    )]
    #[cfg(target_os = "linux")]
    GuardSpawn { path: PathBuf, source: io::Error },
    #[error(
        "the guard {path} {what}: check that it calls `run_if_guard` first in main and is of this version"
    )]
    #[cfg(target_os = "linux")]
    Guard { path: PathBuf, what: String },
    #[error("the guard {path} cannot work here: {reason}")]
    #[cfg(target_os = "linux")]
    GuardRefused { path: PathBuf, reason: String },
    #[error("no pipe or socket could be made: {source}; raise the limit of open files (ulimit -n)")]
    Pipe { source: io::Error },
    #[error("the marker would not work: {reason}")]
    Marker { reason: &'static str },
    #[error("{what} cannot hold a NUL byte: remove it")]
    Nul { what: &'static str },
    #[error("at most {limit} descriptors can be held: hold fewer")]
    TooManyHeld { limit: usize },
    #[error("process {pid} cannot be reached: {source}; stop it")]
    Unreachable { pid: u32, source: io::Error },
}

impl Error {
    /// Tells whether the program was not found, or what runs it: the interpreter of a script, the loader of a binary.
    pub fn is_not_found(&self) -> bool {
        matches!(
            self.0,
            Kind::NotOnPath { .. }
                | Kind::NoSuchFile { .. }
                | Kind::NoInterpreter { .. }
                | Kind::NoLoader { .. }
        )
    }

    /// Tells whether the program may not be executed.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self.0, Kind::PermissionDenied { .. })
    }

    /// Tells whether the program is built for another processor or system, or is a script that does not say by what it is run.
    pub fn is_wrong_format(&self) -> bool {
        matches!(self.0, Kind::WrongFormat { .. })
    }

    /// Tells whether this process or the system has too many files open.
    pub fn is_out_of_descriptors(&self) -> bool {
        match &self.0 {
            Kind::NoDescriptors { .. } => true,
            Kind::Pipe { source } => is_out_of_descriptors(source),
            _ => false,
        }
    }

    /// Tells whether the working directory does not exist or cannot be entered.
    pub fn is_bad_directory(&self) -> bool {
        matches!(self.0, Kind::BadDirectory { .. })
    }

    /// Tells whether the file that was named by [`survivors_file`](crate::AgentCommand::survivors_file) cannot be
    /// written.
    pub fn is_bad_survivors_file(&self) -> bool {
        matches!(self.0, Kind::BadSurvivorsFile { .. })
    }

    /// Tells whether arguments and environment together were too long for the system.
    pub fn is_argument_list_too_long(&self) -> bool {
        matches!(self.0, Kind::TooLong { .. })
    }

    /// Tells whether a guard was asked for or needed, and none could be had.
    pub fn is_guard(&self) -> bool {
        match self.0 {
            Kind::NoGuard => true,
            #[cfg(target_os = "linux")]
            Kind::GuardSpawn { .. } | Kind::Guard { .. } | Kind::GuardRefused { .. } => true,
            _ => false,
        }
    }

    /// `file` is what there is of that name, if anything is.
    pub(crate) fn spawn(
        program: &OsStr,
        directory: &Path,
        in_directory: bool,
        file: Option<&Path>,
        source: io::Error,
    ) -> Error {
        let path = directory.to_owned();
        // A failed spawn says "not found" and "denied" for the directory as well as for the program.
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

/// Tells whether a file is no script: then what it asks for is a loader.
fn is_binary(file: &Path) -> bool {
    let mut start = [0; 2];
    let read = std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start != *b"#!"
}
