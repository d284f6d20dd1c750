//! The environment of each test: its own marker, a guard, and a check that no process is left.

use agent_duplex::{Message, Part};
use agent_subprocess::{Marker, ProcessId, guard, sweep};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const VARIABLE: &str = "AGENT_DRIVERS_TEST";
/// Ten times the longest expected time of any step.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Waits until a condition holds; panics at the deadline.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited too long: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

pub struct Scene {
    pub marker: Marker,
    pub directory: TempDir,
}

impl Scene {
    pub fn new() -> Self {
        guard::guard_program(env!("CARGO_BIN_EXE_agent-drivers-guard"));
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().file_name().unwrap().to_str().unwrap();
        let random: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        let scope = format!("{random}{}", std::process::id());
        Self {
            marker: Marker {
                variable: VARIABLE.to_owned(),
                scope,
                member: "1.1".to_owned(),
            },
            directory,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes an image, and returns a message with it.
    pub fn message_with_image(&self, text: &str) -> Message {
        let path = self.path("image.png");
        std::fs::write(&path, b"\x89PNG\r\n\x1a\n").unwrap();
        let mut message = Message::new(text);
        message.parts = vec![Part::Image(path)];
        message
    }

    pub fn find(&self) -> Vec<sweep::MarkedProcess> {
        sweep::find(VARIABLE, &self.marker.scope)
    }

    /// Returns the live processes of this test, without guards.
    pub fn members(&self) -> Vec<ProcessId> {
        self.find()
            .into_iter()
            .filter(|found| !found.is_guard)
            .map(|found| found.process)
            .collect()
    }

    /// Waits until a process runs this program with this argument.
    pub fn wait_for_program(&self, program: &str, argument: &str) {
        let line = format!("{program}\0{argument}\0");
        let runs = |process: &ProcessId| {
            std::fs::read(format!("/proc/{}/cmdline", process.pid))
                .is_ok_and(|l| l == line.as_bytes())
        };
        wait_for(argument, || self.members().iter().any(runs));
    }

    pub fn assert_no_process_left(&self) {
        let left = self.find();
        assert!(left.is_empty(), "left: {left:?}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // A failed test must not leave its process tree behind.
        drop(sweep::end(self.find(), DEADLINE));
    }
}

/// Whether the process is gone, and not even a zombie of it is left.
pub fn is_gone(process: &ProcessId) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)) else {
        return true;
    };
    let start = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19)?.parse().ok());
    start != Some(process.start_time)
}

/// Whether this test runs in its own process. If not, the function runs the test in one and checks that it passes.
pub fn is_own_process(test: &str) -> bool {
    const ALONE: &str = "AGENT_DRIVERS_TEST_ALONE";
    let is_alone = std::env::var(ALONE).is_ok_and(|name| name == test);
    if !is_alone {
        passes(test, own_test(test).env(ALONE, test));
    }
    is_alone
}

/// Runs a command that runs one test of this binary, and checks that the test passes. With a wrong name, the command would run no test and still
/// succeed; so this also checks that one test passed.
#[track_caller]
pub fn passes(test: &str, command: &mut std::process::Command) {
    let ended = command.output().unwrap();
    let [stdout, stderr] = [&ended.stdout, &ended.stderr].map(|out| String::from_utf8_lossy(out));
    // `cargo xtask test` reads from this output which tests skipped themselves.
    println!("{stdout}\n{stderr}");
    assert!(ended.status.success(), "{test} failed in its own process");
    assert!(stdout.contains("ok. 1 passed"), "there is no test {test}");
}

/// Returns a command that runs one test of this binary.
pub fn own_test(test: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command
}

pub fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
