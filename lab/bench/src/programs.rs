//! The programs that the benches start and measure: their paths, their environment, their times.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Outcome, Result};

/// Finds `rlm`: beside this program, or at the path in `BENCH_RLM`.
pub(crate) fn find_rlm() -> Option<PathBuf> {
    let named = std::env::var_os("BENCH_RLM").map(PathBuf::from);
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("rlm"));
    named.or_else(beside).filter(|path| path.is_file())
}

/// Finds an `rlm` with pages: beside this program, where `cargo xtask bench` puts it, or else the one of [`find_rlm`] if it has pages.
pub(crate) fn rlm_with_pages_or_skip(outcome: &mut Outcome) -> Result<Option<PathBuf>> {
    let with_pages = std::env::current_exe()?.with_file_name("rlm-with-pages");
    if with_pages.is_file() {
        return Ok(Some(with_pages));
    }
    let Some(rlm) = rlm_or_skip("rlm view", outcome) else {
        return Ok(None);
    };
    // With pages, it refuses this address, and without, it refuses the command.
    let refused = ["view", "--listen", "192.0.2.1:1"];
    let ended = Command::new(&rlm).args(refused).output()?;
    let errors = String::from_utf8_lossy(&ended.stderr);
    if errors.contains("has no page") {
        outcome.skip("rlm view", &errors.trim());
        return Ok(None);
    }
    Ok(Some(rlm))
}

/// Finds `rlm` as [`find_rlm`] does, and reports that `what` is skipped if there is none.
pub(crate) fn rlm_or_skip(what: &str, outcome: &mut Outcome) -> Option<PathBuf> {
    let found = find_rlm();
    if found.is_none() {
        let why = "there is no `rlm` beside this program; run `cargo xtask bench`, which builds it";
        outcome.skip(what, &why);
    }
    found
}

pub(crate) fn is_in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Makes the directories `home` and `work` in `dir`.
pub(crate) fn make_place(dir: &Path) -> Result<()> {
    fs_err::create_dir_all(dir.join("home"))?;
    Ok(fs_err::create_dir_all(dir.join("work"))?)
}

/// Returns a command that runs in `work` of `dir`. Its environment has only `PATH` and `HOME`, which is `home` of `dir`. Only its standard
/// error is read.
pub(crate) fn command_in(dir: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(dir.join("work"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir.join("home"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Runs a program to its end and returns how long that took.
///
/// # Errors
///
/// Fails as [`expect_success`] does.
pub(crate) fn timed(command: &mut Command) -> Result<Duration> {
    let begun = Instant::now();
    let ended = command.output()?;
    let took = begun.elapsed();
    expect_success(&ended)?;
    Ok(took)
}

/// Fails with the program's errors unless it succeeded.
pub(crate) fn expect_success(ended: &Output) -> Result<()> {
    match ended.status.success() {
        true => Ok(()),
        false => {
            let errors = String::from_utf8_lossy(&ended.stderr);
            Err(format!("{}: {}", ended.status, errors.trim()).into())
        }
    }
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

/// Returns the resident memory of a process in KiB, if the system reports it.
pub(crate) fn resident_kib(pid: u32) -> Option<f64> {
    status_of(pid, "VmRSS:")
}

/// Returns the peak resident memory of a process in KiB, if the system reports it.
pub(crate) fn peak_kib(pid: u32) -> Option<f64> {
    status_of(pid, "VmHWM:")
}

/// Returns the bytes that a process has passed to `write` so far, if the system counts them.
pub(crate) fn written(process: u32) -> Option<f64> {
    let text = fs_err::read_to_string(format!("/proc/{process}/io")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "))?;
    line.parse().ok()
}

fn status_of(pid: u32, key: &str) -> Option<f64> {
    let status = fs_err::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}
