//! The program `rlm` from outside: what its commands print, and how they end.

#![expect(
    clippy::unwrap_used,
    reason = "clippy does not count the helpers of tests as tests"
)]

mod arguments;
mod configuration;
mod session;

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The end of a command.
struct Ended {
    stdout: String,
    stderr: String,
    /// The exit code; `None` after a signal.
    code: Option<i32>,
}

/// Runs `rlm` in the directory `p` of `place`, without a terminal, without input, and with nothing of the environment of the test.
fn rlm(place: &Path, arguments: &[impl AsRef<OsStr>]) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_rlm"))
        .arg0("rlm")
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", place.join("home"))
        .env("TMPDIR", place)
        .env("TZ", "UTC")
        .current_dir(place.join("p"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ended {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code(),
    }
}

/// Creates a place with an empty project `p` and an empty home directory.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for directory in ["p", "home"] {
        fs_err::create_dir(place.path().join(directory)).unwrap();
    }
    place
}
