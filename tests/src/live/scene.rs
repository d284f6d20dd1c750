//! A run of one prompt by the real CLI, and its environment.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs_err as fs;

use super::real::RealAgent;
use crate::model::{FakeModel, Outcome, Request};
use crate::{Process, Rlm, Running, Sandbox, Terminal, wait_for};

/// A check, which panics, or returns its findings.
pub(super) type Check = fn(&Path, &Path) -> String;

/// The limit of a whole run. A run takes some seconds; the limit allows for a loaded machine.
pub(super) const RUN: Duration = Duration::from_secs(120);
/// The limit of a run with an agent of the Agent Client Protocol: OpenCode alone takes half a minute to start on a loaded machine.
pub(super) const ACP_RUN: Duration = Duration::from_secs(360);
/// The time in which all processes should end after `kill -9`; a check fails after ten times that.
pub(super) const BOUND: Duration = Duration::from_secs(2);

/// A duration, shown in milliseconds.
#[derive(Clone, Copy)]
pub(super) struct Elapsed(pub(super) Duration);

impl Elapsed {
    pub(super) fn since(start: Instant) -> Self {
        Self(start.elapsed())
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0.as_millis())
    }
}

/// Returns whether a file of Claude's sessions contains this text. Claude saves a moment after it acts, and a session killed before that is empty.
pub(super) fn claude_saved(sandbox: &Sandbox, text: &str) -> bool {
    fn below(folder: &Path, text: &str) -> bool {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        { entries.map(|entry| entry.path()) }.any(|path| match path.is_dir() {
            true => below(&path, text),
            false => fs::read_to_string(path).is_ok_and(|saved| saved.contains(text)),
        })
    }
    below(&sandbox.home().join(".claude/projects"), text)
}

pub(super) struct LiveScene<'a> {
    pub(super) rlm: &'a Path,
    pub(super) agent: &'a Path,
    pub(super) real: RealAgent,
    pub(super) sandbox: Sandbox,
    pub(super) model: FakeModel,
}

impl<'a> LiveScene<'a> {
    pub(super) fn new(rlm: &'a Path, agent: &'a Path) -> Self {
        Self::answering(rlm, agent, "")
    }

    /// Creates a scene with a script for messages without directives.
    pub(super) fn answering(rlm: &'a Path, agent: &'a Path, default: &str) -> Self {
        Self::of(RealAgent::Claude, rlm, agent, default)
    }

    /// Creates a scene with this agent, and a script for messages without directives.
    pub(super) fn of(real: RealAgent, rlm: &'a Path, agent: &'a Path, default: &str) -> Self {
        let (sandbox, model) = (Sandbox::new(), FakeModel::start(default));
        real.prepare(&sandbox, &model);
        Self {
            rlm,
            agent,
            real,
            sandbox,
            model,
        }
    }

    pub(super) fn rlm(&self, arguments: &[&str]) -> Rlm<'_> {
        self.program(self.rlm).args(arguments)
    }

    /// Prepares another program in the same environment.
    pub(super) fn program(&self, program: &Path) -> Rlm<'_> {
        self.with_model(self.sandbox.rlm(program))
    }

    /// Adds the variables that the agent needs to be found and to talk only to the scripted model.
    fn with_model<'b>(&self, rlm: Rlm<'b>) -> Rlm<'b> {
        let variables = self.real.variables(self.agent, &self.model).into_iter();
        variables.fold(rlm, |rlm, (name, value)| rlm.env(name, value))
    }

    /// Returns all variables of the agent's environment.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let more = self.real.variables(self.agent, &self.model).into_iter();
        let mut all = self.sandbox.environment();
        all.extend(more.map(|(name, value)| (name.to_owned(), value)));
        all
    }

    /// Prepares a shell with job control, for a terminal.
    pub(super) fn shell(&self) -> Rlm<'_> {
        self.with_model(self.sandbox.shell())
    }

    pub(super) fn run(&self, prompt: &str, arguments: &[&str]) -> Rlm<'_> {
        let run = ["run", "--sleep", "0", "-p", prompt];
        self.rlm(&run).args(self.real.arguments()).args(arguments)
    }

    pub(super) fn watched(&self, prompt: &str, arguments: &[&str]) -> (Running, Terminal) {
        self.run(prompt, arguments).spawn_on_terminal()
    }

    /// Writes the project's settings.
    pub(super) fn settings(&self, toml: &str) {
        fs::write(self.file("rlm.toml"), toml).unwrap();
    }

    /// Returns the path of `name` in the repository.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.sandbox.repo().join(name)
    }

    /// Copies the repository with its state directory.
    pub(super) fn copy(&self) -> PathBuf {
        let copy = self.sandbox.path().join("copy");
        let mut cp = std::process::Command::new("cp");
        let copied = cp.arg("-a").arg(self.sandbox.repo()).arg(&copy).status();
        assert!(copied.unwrap().success());
        copy
    }

    #[track_caller]
    pub(super) fn wait_for_file(&self, name: &str) {
        let there = || self.file(name).exists().then_some(());
        wait_for(format_args!("file {name}"), RUN, there);
    }

    /// Returns all processes of this scene.
    pub(super) fn alive(&self) -> Vec<Process> {
        self.sandbox.survivors().scan()
    }

    /// Returns the processes with this name.
    pub(super) fn named(&self, name: &str) -> Vec<Process> {
        let mut alive = self.alive();
        alive.retain(|process| process.name == name && !process.is_zombie());
        alive
    }

    /// Waits until no process with this name exists, and returns the time since `since`.
    #[track_caller]
    pub(super) fn gone(&self, name: &str, since: Instant) -> Elapsed {
        let what = format_args!("the end of {name} in {:?}", self.alive());
        wait_for(what, BOUND * 10, || {
            self.named(name).is_empty().then_some(())
        });
        Elapsed(since.elapsed())
    }

    /// Searches for a secret in the command lines of all processes, and returns the number of processes.
    #[track_caller]
    pub(super) fn expect_hidden(&self, secret: &str) -> usize {
        let alive = self.alive();
        for process in &alive {
            let line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            assert!(!line.contains(secret), "{process:?}: {line}");
        }
        alive.len()
    }

    #[track_caller]
    pub(super) fn expect_nothing_alive(&self) {
        let alive = self.alive();
        assert!(alive.is_empty(), "{alive:?}");
    }

    /// Returns the requests of the agent's own work, without titles and summaries.
    pub(super) fn requests(&self) -> Vec<Request> {
        let mut requests = self.model.requests();
        requests.retain(|request| request.tools > 0);
        requests
    }

    /// Waits until there are `count` such requests.
    #[track_caller]
    pub(super) fn until_requests(&self, count: usize) {
        let what = format_args!("request {count}");
        wait_for(what, RUN, || (self.requests().len() >= count).then_some(()));
    }

    /// Waits until the server notices that the agent dropped its first request; a server notices that at its next write.
    #[track_caller]
    pub(super) fn until_first_request_is_dropped(&self) {
        let dropped = || (self.requests()[0].outcome == Some(Outcome::ClientGone)).then_some(());
        wait_for("the end of the first request", RUN, dropped);
    }

    /// Returns the lines that the CLI wrote, in order.
    pub(super) fn transcript(&self) -> Vec<String> {
        let logs = self.rlm(&["logs", "--json"]).run(RUN).expect_code(0);
        logs.stdout.lines().map(str::to_owned).collect()
    }
}

/// Returns whether the conversation in the request contains these texts in this order.
pub(super) fn holds(request: &Request, words: &[&str]) -> bool {
    let mut items = request.items.iter();
    words
        .iter()
        .all(|word| items.any(|item| item.text.contains(word)))
}

#[track_caller]
pub(super) fn expect(request: &Request, words: &[&str]) {
    assert!(holds(request, words), "{words:?} in {:#?}", request.items);
}

pub(super) fn say(terminal: &Terminal, text: &str) {
    terminal.send("\r");
    terminal.sees("steer>", RUN);
    terminal.send(text);
    terminal.send("\r");
}
