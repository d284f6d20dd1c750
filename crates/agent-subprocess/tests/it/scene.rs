//! The base of every test: a marker of its own, scripts as agents, and a check that no process is left.

use agent_subprocess::{Marker, ProcessId, ProcessTree, Stream, TreeCommand, guard, sweep};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const VARIABLE: &str = "AGENT_SUBPROCESS_TEST";
/// Ten times the expected time of any step.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Waits for a condition without a plain sleep; panics at the deadline.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited too long for {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

pub struct Scene {
    pub marker: Marker,
    pub directory: TempDir,
}

impl Scene {
    pub fn new() -> Self {
        guard::guard_program(env!("CARGO_BIN_EXE_agent-guard"));
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

    /// Returns the command of an agent that is this shell script.
    pub fn agent(&self, script: &str) -> TreeCommand {
        TreeCommand::new("sh")
            .args(["-c", script])
            .current_dir(self.directory.path())
            .marker(self.marker.clone())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn find(&self) -> Vec<sweep::MarkedProcess> {
        sweep::find(VARIABLE, &self.marker.scope)
    }

    /// Returns the living processes of the scene, without guards.
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

    /// Waits until four searches in a row find nothing: a killed host can leave a start that is not over.
    pub fn wait_for_the_end_of_all(&self) {
        let mut quiet = 0;
        wait_for("their end", || {
            quiet = if self.find().is_empty() { quiet + 1 } else { 0 };
            quiet > 3
        });
    }

    pub fn assert_no_process_is_left(&self) {
        let left = self.find();
        assert!(left.is_empty(), "left: {left:?}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // A failed test must not leave processes behind either.
        drop(sweep::end(self.find(), DEADLINE));
    }
}

/// Returns whether the process is gone and not even a zombie of it is left.
pub fn is_gone(process: &ProcessId) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)) else {
        return true;
    };
    let start = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19)?.parse().ok());
    start != Some(process.start_time)
}

/// Lists the children of all threads of this process: a guard can be started by each.
pub fn children() -> String {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap_or_default()
    };
    threads.map(of_thread).collect()
}

/// Collects standard output until its end.
pub async fn stdout(agent: &mut ProcessTree) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(output) = agent.next_output().await {
        if output.stream == Stream::Stdout {
            lines.push(output.line.text().into_owned());
        }
    }
    lines
}

/// Waits for this line of standard output.
pub async fn wait_for_line(agent: &mut ProcessTree, line: &str) {
    while let Some(output) = agent.next_output().await {
        if output.line.text() == line {
            return;
        }
    }
    panic!(
        "the agent never printed {line:?}; stderr: {}",
        agent.stderr_tail()
    );
}

/// Returns whether this test has a process of its own. If not, runs it in one and checks that it passes.
pub fn alone(test: &str) -> bool {
    const ALONE: &str = "AGENT_SUBPROCESS_TEST_ALONE";
    let is_alone = std::env::var(ALONE).is_ok_and(|name| name == test);
    if !is_alone {
        passes(test, own_test(test).env(ALONE, test));
    }
    is_alone
}

/// Checks that a command runs one test of this binary and that this test passes. If no test has this name, the command runs no test and succeeds, so
/// the output is checked too.
#[track_caller]
pub fn passes(test: &str, command: &mut std::process::Command) {
    let ended = command.output().unwrap();
    let [stdout, stderr] = [&ended.stdout, &ended.stderr].map(|out| String::from_utf8_lossy(out));
    // `cargo xtask test` reads from this output which tests were skipped.
    println!("{stdout}\n{stderr}");
    assert!(
        ended.status.success(),
        "{test} failed in a process of its own"
    );
    assert!(stdout.contains("ok. 1 passed"), "there is no test {test}");
}

/// Returns a command that runs one test of this binary.
pub fn own_test(test: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command
}

/// A script with five ways to escape, each alive for ten minutes: an ordinary child, a child in a session of its own, a daemon by double fork, a
/// grandchild that keeps standard output open, and a process that ignores SIGTERM.
pub const TREE: &str = r#"
sleep 611 >/dev/null 2>&1 &
setsid sleep 612 >/dev/null 2>&1 &
setsid sh -c 'sleep 613 >/dev/null 2>&1 </dev/null & exit 0' >/dev/null 2>&1 &
setsid sh -c 'sleep 614 & exit 0' &
setsid sh -c 'trap "" TERM; exec sleep 615' >/dev/null 2>&1 &
echo ready
sleep 616
"#;

/// The number of processes of [`TREE`] that live until they are ended: the five, the script, and the `sleep` that it waits for.
pub const TREE_SIZE: usize = 7;

/// Waits until the process tree is complete: every `sleep` runs, and the shells that started them are gone.
pub fn wait_for_tree(scene: &Scene) -> Vec<ProcessId> {
    let mut members = Vec::new();
    wait_for("the tree", || {
        members = scene.members();
        let sleeps = members
            .iter()
            .filter_map(|member| std::fs::read(format!("/proc/{}/cmdline", member.pid)).ok());
        let kinds: std::collections::BTreeSet<_> = sleeps
            .filter(|line| line.starts_with(b"sleep\x0061"))
            .collect();
        kinds.len() == 6 && members.len() == TREE_SIZE
    });
    members
}

pub fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
