//! The environment of each test: a working directory, the tools, a marker of its own for processes, and a guard.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_api::{Bash, JsonObject, Tool, ToolContext, ToolOutput, WorkingDirectory, coding_tools};
use agent_subprocess::{Marker, ProcessContext, guard, sweep};
use serde_json::Value;
use tempfile::TempDir;

const VARIABLE: &str = "AGENT_API_TEST";
/// Set in the process of a test that runs in its own process.
const OWN_PROCESS: &str = "AGENT_API_OWN_PROCESS";
/// Ten times the longest expected time of any step.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Scene {
    /// Contains the working directory `work`; other files are outside of it.
    outer: TempDir,
    marker: Marker,
    pub(crate) context: ToolContext,
    tools: Vec<Arc<dyn Tool>>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(|bash| bash, &[])
    }

    /// Creates a scene whose `bash` is set up, and has these variables.
    pub(crate) fn with(set_up: impl FnOnce(Bash) -> Bash, env: &[(&str, &str)]) -> Self {
        guard::guard_program(env!("CARGO_BIN_EXE_agent-api-guard"));
        let outer = tempfile::tempdir().unwrap();
        let name = outer.path().file_name().unwrap().to_str().unwrap();
        let random: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        let marker = Marker {
            variable: VARIABLE.to_owned(),
            scope: format!("{random}{}", std::process::id()),
            member: "1.1".to_owned(),
        };
        let work = outer.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let mut processes = ProcessContext::new(&work, outer.path().join("scratch"));
        processes.marker = Some(marker.clone());
        let variables = env
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        processes.env.extend(variables);
        let directory = WorkingDirectory::new(&work).unwrap();
        Self {
            outer,
            marker,
            context: ToolContext::new(directory),
            tools: coding_tools(set_up(Bash::new(processes))),
        }
    }

    /// Returns a path in the working directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.context.directory.path().join(name)
    }

    /// Returns a path beside the working directory.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.outer.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn content(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn tool(&self, name: &str) -> &dyn Tool {
        let mut tools = self.tools.iter();
        &**tools.find(|tool| tool.definition().name == name).unwrap()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.tools
            .iter()
            .map(|tool| tool.definition().name)
            .collect()
    }

    pub(crate) async fn run(&self, tool: &str, arguments: Value) -> ToolOutput {
        self.run_in(&self.context, tool, arguments).await
    }

    pub(crate) async fn run_in(
        &self,
        context: &ToolContext,
        tool: &str,
        arguments: Value,
    ) -> ToolOutput {
        self.tool(tool).run(&object(arguments), context).await
    }

    /// Runs a call that must succeed.
    pub(crate) async fn ok(&self, tool: &str, arguments: Value) -> String {
        let output = self.run(tool, arguments).await;
        assert!(!output.is_error, "{}", output.text);
        output.text
    }

    /// Runs a call that must fail.
    pub(crate) async fn failed(&self, tool: &str, arguments: Value) -> String {
        let output = self.run(tool, arguments).await;
        assert!(output.is_error, "{}", output.text);
        output.text
    }

    /// Returns the processes of this test, guards included.
    pub(crate) fn processes(&self) -> Vec<sweep::MarkedProcess> {
        sweep::find(VARIABLE, &self.marker.scope)
    }

    /// Asserts that no process of a command is left. A guard exits a moment after its tree.
    pub(crate) fn assert_no_process_left(&self) {
        let left: Vec<_> = { self.processes().into_iter() }
            .filter(|found| !found.is_guard)
            .collect();
        assert!(left.is_empty(), "left: {left:?}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // A failed test must not leave its process tree behind.
        drop(sweep::end(self.processes(), DEADLINE));
    }
}

pub(crate) fn object(arguments: Value) -> JsonObject {
    JsonObject::parse(&arguments.to_string()).unwrap()
}

/// Waits until a condition holds; panics at the deadline.
pub(crate) async fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited too long: {what}");
        tokio::task::spawn_blocking(|| std::thread::park_timeout(Duration::from_millis(5)))
            .await
            .unwrap();
    }
}

/// Runs a test again in a process of its own, with additional variables. Returns `false` in that process.
pub(crate) fn runs_in_own_process(test: &str, env: &[(&str, &str)]) -> bool {
    if std::env::var_os(OWN_PROCESS).is_some() {
        return false;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(OWN_PROCESS, "1");
    let output = command.envs(env.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let has_passed = output.status.success() && text.contains("1 passed");
    assert!(
        has_passed,
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    true
}

/// Returns the most memory that this process has used, in bytes.
pub(crate) fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = { status.lines() }.find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes: u64 = { line.unwrap().trim().trim_end_matches(" kB") }
        .parse()
        .unwrap();
    kilobytes << 10
}

/// Makes a FIFO.
pub(crate) fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}
