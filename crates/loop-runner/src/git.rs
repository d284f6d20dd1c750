//! What git says about the working tree, asked through the `git` command.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// The most changed paths that are named in a prompt.
const MAX_CHANGED: usize = 20;
const MAX_ANSWER: u64 = 1 << 20;
const HEAD_COMMIT: &[&str] = &["rev-parse", "--verify", "--quiet", "HEAD"];
const PATIENCE: Duration = Duration::from_secs(2);

/// The repository of a working tree, if it has one.
#[derive(Clone, Debug)]
pub(crate) struct Git {
    top: Option<PathBuf>,
    /// Set when git did not answer in time: it is not waited for again.
    silent: Arc<AtomicBool>,
}

impl Git {
    /// Looks for the repository that holds `directory`.
    pub(crate) fn find(directory: &Path) -> Self {
        let silent = Arc::new(AtomicBool::new(false));
        let top = ask(directory, &["rev-parse", "--show-toplevel"], &silent);
        let top = top.map(PathBuf::from).filter(|top| top.is_absolute());
        Self { top, silent }
    }

    /// Returns the top of the working tree.
    pub(crate) fn top(&self) -> Option<&Path> {
        self.top.as_deref()
    }

    /// Returns the commit that the working tree is based on.
    pub(crate) async fn head_commit(&self) -> Option<String> {
        self.on_thread(HEAD_COMMIT).await
    }

    /// The same, on this thread.
    pub(crate) fn head_commit_now(&self) -> Option<String> {
        ask(self.top()?, HEAD_COMMIT, &self.silent)
    }

    /// Returns the paths that differ from the last commit, the first of them only.
    pub(crate) async fn changed(&self) -> Option<Vec<String>> {
        let status = self
            .on_thread(&["status", "--porcelain", "--untracked-files=normal"])
            .await?;
        let mut lines: Vec<String> = status
            .lines()
            .take(MAX_CHANGED)
            .map(str::to_owned)
            .collect();
        let more = status.lines().count().saturating_sub(MAX_CHANGED);
        if more > 0 {
            lines.push(format!("… and {more} more"));
        }
        Some(lines)
    }

    async fn on_thread(&self, arguments: &'static [&'static str]) -> Option<String> {
        let (top, silent) = (self.top.clone()?, Arc::clone(&self.silent));
        let answer = tokio::task::spawn_blocking(move || ask(&top, arguments, &silent));
        answer.await.ok()?
    }
}

/// Asks git, quietly: no answer, no git and no repository are all the same here.
///
/// A large repository can take its time, and a network file system for ever: what takes too long is killed, and the loop goes on without it.
fn ask(directory: &Path, arguments: &[&str], silent: &AtomicBool) -> Option<String> {
    if silent.load(Ordering::Relaxed) {
        return None;
    }
    let mut git = Command::new("git")
        // A monitor that git starts in passing would outlive it.
        .args(["-c", "core.fsmonitor=false"])
        .args(arguments)
        .current_dir(directory)
        // Only looking must not take the index lock that the agent's own git needs.
        .env("GIT_OPTIONAL_LOCKS", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let stdout = git.stdout.take()?;
    let (answered, answer) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.take(MAX_ANSWER).read_to_string(&mut text);
        // Nobody waits any longer for an answer that comes too late.
        let _late = answered.send(read.is_ok().then_some(text));
    });
    let text = answer.recv_timeout(PATIENCE);
    if text.is_err() {
        silent.store(true, Ordering::Relaxed);
        let _gone_already = git.kill();
    }
    let succeeded = git.wait().is_ok_and(|status| status.success());
    text.ok()?
        .filter(|_| succeeded)
        .map(|text| text.trim_end().to_owned())
}
