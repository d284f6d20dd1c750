//! Git in a run: the commit of an iteration after its process tree is gone, and the fingerprint of the working tree, which shows whether a turn
//! changed anything.
//!
//! The list of changed files does not show further changes to the same files, and their content can be large. The fingerprint therefore includes the
//! sizes and times of these files.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use loop_state::{CheckResult, MachineInput, TimedInput};
use rlm_store::deadline::Deadline;
use rlm_store::git::Git;
use rlm_store::git::commit::{CommitMessage, entry_path, subject};
use rlm_store::transcript::Transcript;
use rlm_store::{Committed, Project, RunHead, Settings, Uncommitted};
use tokio::time::Instant;

use crate::Error;
use crate::run_event::RunEvent;
use crate::runner::Runner;
use crate::runner::parts::changes::{Compared, Comparison};
use crate::runner::parts::commit::{Commit, CommitOutcome, CreatedCommit};

/// The most characters of the reason why a commit failed.
const MAX_WHY: usize = 500;

/// The maximum number of files whose size and time are read; for further files, only the git status counts.
const MAX_FILES: usize = 4096;
const STATUS: &[&str] = &[
    "status",
    "--porcelain=v2",
    "-z",
    "--branch",
    "--untracked-files=normal",
];

impl Runner {
    /// Returns the commit to create when the process tree of the current attempt is gone.
    pub(super) fn pending_commit(&self) -> Option<Commit> {
        let (head, settings) = (self.machine.head(), &self.saved.settings);
        if !settings.commit || !self.machine.commits() {
            return None;
        }
        let project = self.work_tree.project();
        let committed = self.saved.committed.as_ref();
        let committed = committed.filter(|it| it.phase == head.phase);
        let about = CommitMessage {
            run: self.saved.run.to_string(),
            phase: self.phase().name.clone(),
            is_pipeline: settings.phases.len() > 1,
            iteration: head.iteration,
            attempt: head.attempt,
            first_attempt: head.first_attempt.max(1),
            committed: committed.map_or(0, |it| it.iteration),
            failed: head.failure.is_some(),
            summary: self.summary(),
            session: head.session.clone(),
            agent: self.phase().agent.name().to_owned(),
        };
        let mut context = self.context_with_guard("-commit");
        context.cwd = project.tree().to_owned();
        context.env.push(("GIT_TERMINAL_PROMPT".into(), "0".into()));
        Some(Commit {
            about,
            phase: head.phase,
            git: project.git().clone(),
            context,
        })
    }

    /// Returns a sentence in which the agent says what it did. For a command this is in the last line of its output: the rest is not one message.
    fn summary(&self) -> Option<String> {
        let message = self.processes.message.as_deref()?;
        match self.phase().agent.has_driver() {
            true => subject(message),
            false => subject(message.trim_end().lines().next_back()?),
        }
    }

    /// Returns the comparison that finds the files that the current iteration changed, if it is complete.
    pub(super) fn pending_comparison(&self) -> Option<Comparison> {
        let git = self.work_tree.project().git();
        (self.machine.commits() && git.top().is_some()).then(|| self.comparison())
    }

    fn comparison(&self) -> Comparison {
        let project = self.work_tree.project();
        Comparison {
            git: project.git().clone(),
            before: self.saved.snapshot.clone(),
            run_dir: project.run_dir(&self.saved.run),
        }
    }

    /// Takes the snapshot before the first iteration. Without it, the first iteration can't report its changes.
    pub(super) async fn take_first_snapshot(&mut self) {
        if self.saved.snapshot.is_some() || self.work_tree.project().git().top().is_none() {
            return;
        }
        if let Some(since) = self.recently_unchanged(Instant::now())
            && let Some(commit) = self.work_tree.project().git().clean_commit_since(since)
        {
            self.saved.snapshot = Some(commit);
            return;
        }
        let comparison = self.comparison();
        let deadline = Deadline::default();
        let mut never = deadline.subscribe();
        tokio::select! {
            biased;
            compared = comparison.run(&mut never) => {
                self.saved.snapshot = compared.and_then(Result::ok).map(|it| it.snapshot);
            }
            () = self.requests.stop_requested() => {}
        }
    }

    /// Reports the files that an iteration changed, and writes them to its transcript.
    pub(super) fn compared(
        &mut self,
        compared: Result<Compared, String>,
        transcript: Option<&mut Transcript>,
    ) {
        let (text, changes) = match compared {
            Ok(Compared { changes, snapshot }) => {
                self.saved.snapshot = Some(snapshot);
                let Some(changes) = changes else {
                    return;
                };
                (changes.to_string(), Some(changes))
            }
            Err(why) => (format!("The changed files are unknown: {why}"), None),
        };
        let at = self.clock.now();
        // The attempt is over, so a transcript that can't be written loses only this record.
        let _lost = transcript.map(|transcript| {
            transcript.note(at, "changes", &text)?;
            transcript.flush()
        });
        if let Some(changes) = changes {
            let (added, removed) = changes.lines();
            self.emit(RunEvent::IterationChanges {
                iteration: self.machine.head().iteration,
                files: u32::try_from(changes.files.len()).unwrap_or(u32::MAX),
                added,
                removed,
                summary: self.summary(),
            });
        }
    }

    /// Handles the result of a commit, and reports it. `leftovers_ended` shows whether another commit follows.
    pub(super) fn committed(&mut self, end: CommitOutcome, leftovers_ended: &MachineInput) {
        let CommitOutcome {
            about,
            phase,
            made,
            left_out,
            ran,
        } = end;
        if let Some(ran) = ran {
            if !ran.leftovers.is_empty() {
                self.emit(RunEvent::ProcessesEnded {
                    why: "left running by the commit's hooks".into(),
                    run: None,
                    processes: ran.leftovers,
                });
            }
            if ran.result == CheckResult::Stopped {
                self.ended_processes.ended.extend(ran.ended);
            }
            self.ended_processes.proven &= ran.proven;
            self.note_survivors(ran.survivors);
        }
        let iteration = about.iteration;
        let before = self.saved.uncommitted.take();
        match made {
            Ok(Some(CreatedCommit { commit, is_new })) => {
                self.saved.committed = Some(Committed {
                    phase,
                    iteration,
                    attempt: about.attempt,
                    commit: commit.clone(),
                });
                if is_new {
                    self.emit(RunEvent::IterationCommitted {
                        iteration,
                        commit,
                        left_out,
                    });
                } else if !left_out.is_empty() {
                    let left_out = left_out.join(", ");
                    self.emit(RunEvent::Warning(format!(
                        "iteration {iteration} is not committed: it changed only {left_out}"
                    )));
                }
            }
            Ok(None) => {}
            Err(why) => {
                let follows = self.consequence(leftovers_ended);
                self.emit(RunEvent::Warning(format!(
                    "iteration {iteration} is not committed: {why}; {follows}"
                )));
                self.saved.uncommitted = Some(Uncommitted {
                    iterations: before.map_or(0, |it| it.iterations) + 1,
                    reason: why.chars().take(MAX_WHY).collect(),
                });
            }
        }
    }

    /// Returns what happens to the uncommitted work, as text.
    fn consequence(&mut self, leftovers_ended: &MachineInput) -> String {
        let tree = self.work_tree.project().tree().to_owned();
        if !tree.is_dir() {
            return format!("its working tree {} is missing", tree.display());
        }
        let mut machine = self.machine.clone();
        machine.step(TimedInput {
            at: self.clock.now(),
            what: leftovers_ended.clone(),
        });
        match &machine.head().end {
            Some(end) if !end.reason.is_stopped() => {
                format!(
                    "its changes stay uncommitted, and no later commit will include them; in {}: git add -A && git commit",
                    tree.display()
                )
            }
            Some(_) => {
                "its changes stay, and the first commit after a resume will include them".into()
            }
            None => "its changes stay, and the next commit will include them".into(),
        }
    }

    /// Returns an error if a new run could not commit with its settings.
    pub(super) async fn refuse_uncommittable(
        project: &Project,
        settings: &Settings,
    ) -> Result<(), Error> {
        if !settings.commit {
            return Ok(());
        }
        let git = project.git().clone();
        let checked = tokio::task::spawn_blocking(move || git.refuse_commits()).await;
        let checked = checked.expect("git status does not panic");
        checked.map_err(|why| rlm_store::Error::git(project.tree(), why).into())
    }

    /// Returns an error if a resumed run could not commit with its new settings. Work that the run itself left uncommitted is not an error; it is
    /// returned, to be reported.
    pub(super) async fn refuse_uncommittable_resume(
        project: &Project,
        saved: &mut RunHead,
        settings: Option<&Settings>,
    ) -> Result<Option<String>, Error> {
        let settings = settings.unwrap_or(&saved.settings);
        if settings.commit && saved.settings.commit {
            let git = project.git().clone();
            let checked = tokio::task::spawn_blocking(move || git.uncommitted()).await;
            return Ok(checked.expect("git status does not panic"));
        }
        Self::refuse_uncommittable(project, settings).await?;
        if settings.commit {
            // The current commit has all work of the run so far, no matter who created that commit.
            let commit = project.git().head_commit().await;
            let at = saved.machine.resume_point().iteration;
            saved.committed = commit.map(|commit| Committed {
                phase: saved.machine.phase,
                iteration: at.saturating_sub(1),
                attempt: 0,
                commit,
            });
        }
        Ok(None)
    }

    /// Returns a fingerprint of the commit and of all differences from it; `None` if git fails or a stop is requested first.
    pub(super) async fn fingerprint(&mut self) -> Option<u64> {
        let git = self.work_tree.project().git().clone();
        // If the file system hangs, the thread stays behind.
        let task = tokio::task::spawn_blocking(move || fingerprint(&git));
        tokio::select! {
            biased;
            fingerprint = task => fingerprint.ok()?,
            () = self.requests.stop_requested() => None,
        }
    }
}

/// Blocks.
fn fingerprint(git: &Git) -> Option<u64> {
    let (top, status) = (git.top()?, git.query(STATUS)?);
    let mut hash = DefaultHasher::new();
    status.hash(&mut hash);
    let mut due: Vec<PathBuf> = status
        .split('\0')
        .filter_map(entry_path)
        .map(|it| top.join(it))
        .collect();
    for _ in 0..MAX_FILES {
        let Some(path) = due.pop() else {
            break;
        };
        // A missing file changes the fingerprint.
        let Ok(meta) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        let (size, at) = (meta.size(), (meta.mtime(), meta.mtime_nsec()));
        (&path, size, at, meta.ino()).hash(&mut hash);
        if meta.is_dir() {
            let inside = std::fs::read_dir(&path).into_iter().flatten().flatten();
            let mut inside: Vec<PathBuf> = inside.map(|entry| entry.path()).collect();
            inside.sort();
            due.append(&mut inside);
        }
    }
    Some(hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_follows_the_status_letters_of_git() {
        for (entry, is) in [
            ("# branch.oid 01ab", None),
            ("1 .M N... 100644 100644 100644 a b a file", Some("a file")),
            ("2 R. N... 100644 100644 100644 a b R100 new", Some("new")),
            ("? a b", Some("a b")),
            ("", None),
        ] {
            assert_eq!(entry_path(entry), is);
        }
    }
}
