//! Runs one test at a time with an order for all processes that it starts, and afterwards ends the processes that it left.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, io};

use fs_err as fs;

use crate::acceptance::TestFunction;
use crate::command::{self, Show};
use crate::mutants;
use crate::switch_off::build::{Folders, TestProgram};
use crate::switch_off::module::Order;

/// The variable that all processes of a test inherit, unless they start with an environment of their own.
const MARKER: &str = "XTASK_SWITCH_OFF";

/// How often the runner looks for processes that a test left.
const SWEEPS: usize = 5;

/// A test function in a test program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Test {
    program: TestProgram,
    /// The modules and the name.
    pub(super) name: String,
}

/// The end of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    Passed,
    /// The test passed, but showed nothing on this machine.
    Skipped(String),
    Failed,
    TimedOut,
}

impl Ended {
    pub(super) fn is_red(&self) -> bool {
        matches!(self, Self::Failed | Self::TimedOut)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => write!(f, "passed"),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
            Self::Failed => write!(f, "failed"),
            Self::TimedOut => write!(f, "timed out"),
        }
    }
}

/// Runs the tests of the copy.
#[derive(Debug)]
pub(super) struct Runner {
    folders: Folders,
    /// The test programs with the names of their tests.
    programs: Vec<(TestProgram, Vec<String>)>,
    /// The temporary directory of all tests. Its path also marks their processes.
    scratch: tempfile::TempDir,
}

impl Runner {
    pub(super) fn new(folders: Folders, programs: Vec<TestProgram>) -> io::Result<Self> {
        let programs = programs.into_iter().map(|program| {
            let mut list = Command::new(&program.program);
            list.args(["--list", "--format", "terse"])
                .current_dir(&program.folder);
            let listed = command::finish(&mut list, Show::Never).stdout;
            let tests = listed
                .lines()
                .filter_map(|line| line.strip_suffix(": test"));
            let tests = tests.map(Into::into).collect();
            (program, tests)
        });
        // Some tests start programs of other users, which must be able to enter it.
        let open = PermissionsExt::from_mode(0o755);
        Ok(Self {
            programs: programs.collect(),
            scratch: tempfile::Builder::new().permissions(open).tempdir()?,
            folders,
        })
    }

    /// Returns the tests with the name of this function.
    pub(super) fn find(&self, function: &TestFunction) -> Vec<Test> {
        let programs = self.programs.iter();
        let programs = programs.filter(|(program, _)| program.package == function.package);
        let tests = programs.flat_map(|(program, tests)| {
            let named = tests.iter().filter(|test| {
                let name = test.rsplit("::").next();
                name == Some(&function.name)
            });
            named.map(|test| Test {
                program: program.clone(),
                name: test.clone(),
            })
        });
        tests.collect()
    }

    /// Runs a test, and returns how it ended and how long it took.
    pub(super) fn run(
        &self,
        test: &Test,
        order: Order,
        limit: Duration,
    ) -> io::Result<(Ended, Duration)> {
        // The program that enforces the limit takes whole seconds.
        let limit = Duration::from_secs(limit.as_secs().max(1));
        fs::write(&self.folders.order, order.text())?;
        let output = self.scratch.path().join("output");
        let begun = Instant::now();
        let status = self.command(test, limit, &output)?.status()?;
        let took = begun.elapsed();
        // A process that lives on reads no order from now on.
        fs::write(&self.folders.order, Order::Nothing.text())?;
        self.end_processes();
        let text = String::from_utf8_lossy(&fs::read(&output)?).into_owned();
        self.empty_scratch()?;
        let skip = text.lines().find_map(|line| command::skip_of(line.trim()));
        let ended = match (status.success(), skip) {
            (true, Some(reason)) => Ended::Skipped(reason.into()),
            (true, None) => Ended::Passed,
            (false, _) if took >= limit => Ended::TimedOut,
            (false, _) => Ended::Failed,
        };
        Ok((ended, took))
    }

    /// Runs a test, and also returns the switches that its processes reached.
    pub(super) fn note(
        &self,
        test: &Test,
        limit: Duration,
    ) -> io::Result<(Ended, Duration, BTreeSet<u32>)> {
        fs::write(&self.folders.reached, "")?;
        // Processes of other users note their switches too.
        let open = PermissionsExt::from_mode(0o666);
        fs::set_permissions(&self.folders.reached, open)?;
        let (ended, took) = self.run(test, Order::Note, limit)?;
        let reached = fs::read_to_string(&self.folders.reached)?;
        let reached = reached.lines().filter_map(|line| line.parse().ok());
        Ok((ended, took, reached.collect()))
    }

    fn command(&self, test: &Test, limit: Duration, output: &Path) -> io::Result<Command> {
        let memory = mutants::MEMORY;
        let output = File::create(output)?;
        let mut command = Command::new("timeout");
        command
            .arg("--kill-after=5")
            .arg(limit.as_secs().to_string())
            // A function that is switched off can make a loop allocate without end.
            .args([
                "sh",
                "-c",
                &format!("ulimit -v {memory}; exec \"$@\""),
                "sh",
            ])
            .arg(&test.program.program)
            .args([&test.name, "--exact", "--nocapture"])
            .current_dir(&test.program.folder)
            .env("CARGO_MANIFEST_DIR", &test.program.folder)
            .env("TMPDIR", self.scratch.path())
            .env(MARKER, self.scratch.path())
            .env("INSTA_UPDATE", "no")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
            .stdin(Stdio::null())
            // A file, not a pipe: a process that the test left would hold a pipe open.
            .stderr(output.try_clone()?)
            .stdout(output);
        Ok(command)
    }

    /// Ends the processes whose environment names the temporary directory, and those of the programs of the copy.
    fn end_processes(&self) {
        for _ in 0..SWEEPS {
            let pids = processes(self.scratch.path(), &self.folders.target);
            if pids.is_empty() {
                return;
            }
            let mut kill = Command::new("kill");
            kill.arg("-KILL").args(pids);
            let _some_ended_already = command::finish(&mut kill, Show::Never);
        }
    }

    fn empty_scratch(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.scratch.path())? {
            let path = entry?.path();
            // A test can leave a mount or a directory that nobody may write.
            let _left = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
        }
        Ok(())
    }
}

fn processes(marker: &Path, programs: &Path) -> Vec<String> {
    let marker = marker.as_os_str().as_encoded_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = entries.filter_map(|entry| {
        let pid = entry.file_name().into_string().ok()?;
        pid.parse::<u32>().ok()?;
        let has_marker = fs::read(entry.path().join("environ")).is_ok_and(|environment| {
            let mut windows = environment.windows(marker.len());
            windows.any(|window| window == marker)
        });
        let is_program = fs::read_link(entry.path().join("exe"))
            .is_ok_and(|program: PathBuf| program.starts_with(programs));
        (has_marker || is_program).then_some(pid)
    });
    ours.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_with_the_marker_are_found() {
        let scratch = tempfile::tempdir().unwrap();
        let mut sleep = Command::new("sleep");
        let child = sleep.arg("60").env("HOME", scratch.path().join("home"));
        let mut child = child.spawn().unwrap();
        let pid = child.id().to_string();
        let nowhere = Path::new("/nowhere");
        // The child has its own environment only after its `exec`.
        let deadline = Instant::now() + Duration::from_secs(60);
        let found = loop {
            let found = processes(scratch.path(), nowhere);
            if !found.is_empty() || Instant::now() > deadline {
                break found;
            }
        };
        let others = processes(&scratch.path().join("other"), nowhere);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((found, others), (vec![pid], vec![]));
    }
}
