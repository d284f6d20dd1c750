//! The commits of a run: whether the run can commit, the files in a commit, and its message.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Access, access};

use super::own_files::is_own_file;
use super::{Git, GitError, run};

/// The largest size of a new file in a commit, in bytes. A larger one stays out, and the run reports it: it could never be removed from the history.
const MOST_BYTES: u64 = 50 << 20;
/// The largest number of paths in a message.
const NAMED: usize = 3;

/// Unfinished operations of a repository, by the file that marks them.
const UNFINISHED_OPERATIONS: [(&str, &str); 5] = [
    ("MERGE_HEAD", "a merge"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
];

/// The shell script of a commit. It adds the paths in its arguments after the message, and commits them if anything changed. The user's hooks run,
/// and can reject the commit.
pub const SCRIPT: &str = r#"set -e
message=$1
shift
git() { command git -c core.fsmonitor=false -c gc.auto=0 -c maintenance.auto=false "$@"; }
git add --all -- "$@"
if git diff --cached --quiet --no-ext-diff --ignore-submodules=none; then exit 0; fi
git commit --quiet --cleanup=whitespace --message "$message"
"#;

/// The contents of the next commit.
#[derive(Debug, Default)]
pub struct CommitPlan {
    /// The commit before it.
    pub before: Option<String>,
    /// The paths that differ from it.
    changes: Vec<Change>,
    /// The paths to commit, as git's arguments.
    pub paths: Vec<String>,
    /// The paths that stay out of it, with reasons.
    pub left_out: Vec<String>,
}

impl CommitPlan {
    /// Returns whether there is nothing to commit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the number and the total size, in bytes, of the changed files that the commit includes.
    pub(super) fn size(&self, top: &Path) -> (usize, u64) {
        let included = self.changes.iter();
        let included = included.filter(|change| change.exclusion_reason(top).is_none());
        included.fold((0, 0), |(files, bytes), change| {
            let meta = fs_err::symlink_metadata(top.join(&change.path));
            (files + 1, bytes + meta.map_or(0, |meta| meta.len()))
        })
    }
}

impl Git {
    /// Returns an error with the fix if a run can't begin to commit in this working tree. Blocks.
    pub fn refuse_commits(&self) -> Result<(), String> {
        let Some(top) = self.top() else {
            return Err(
                "not a git working tree (no repository, or a bare one), so the run can't commit: git init, or omit --commit".into(),
            );
        };
        let text = |e: GitError| e.to_string();
        if let Some(what) = self.operation_in_progress().map_err(text)? {
            return Err(format!(
                "the repository is in the middle of {what}: finish it, or omit --commit"
            ));
        }
        if self.output(&["symbolic-ref", "--quiet", "HEAD"]).is_err() {
            return Err(
                "HEAD is detached, so the loop's commits would be on no branch: git switch -c NAME, or start with --worktree".into(),
            );
        }
        self.refuse_commits_anywhere()?;
        let changed = self.changes().map_err(text)?;
        if changed.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{}, and the loop's commits would include them: commit them first, or start with --worktree, which leaves them here ({})",
            of_files(changed.len(), "not committed"),
            names(top, &changed),
        ))
    }

    /// Checks only for the problems that a new worktree of the repository would not solve. Blocks.
    pub(crate) fn refuse_commits_anywhere(&self) -> Result<(), String> {
        for who in ["GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"] {
            if self.output(&["var", who]).is_err() {
                return Err(
                    "git has no name and address for commits: git config user.name NAME && git config user.email ADDRESS".into(),
                );
            }
        }
        let place = &self.places().map_err(|e| e.to_string())?.git_dir;
        if access(place, Access::WRITE_OK).is_err() {
            return Err(format!("can't commit: can't write `{}`", place.display()));
        }
        Ok(())
    }

    /// Returns a message about the uncommitted files, for a run that commits and is resumed: its next commit will include these files. Blocks.
    pub fn uncommitted(&self) -> Option<String> {
        let changed = self.changes().ok()?;
        let top = self.top()?;
        let what = of_files(changed.len(), "not committed");
        (!changed.is_empty()).then(|| {
            format!(
                "the next commit will include your changes: {what} ({})",
                names(top, &changed)
            )
        })
    }

    /// Determines the contents of the next commit. Blocks.
    pub fn plan(&self) -> Result<CommitPlan, GitError> {
        self.plan_within(super::COMMAND_TIMEOUT)
    }

    /// Returns the same, with a time limit for the list of changed files. Blocks.
    pub(super) fn plan_within(&self, limit: Duration) -> Result<CommitPlan, GitError> {
        let top = self.top().ok_or_else(GitError::not_a_repository)?;
        if let Some(what) = self.operation_in_progress()? {
            return Err(GitError::Failed(format!(
                "the repository is in the middle of {what}: finish or abort it"
            )));
        }
        let Differences {
            from,
            changes,
            written,
        } = self.differences_within(limit)?;
        let mut plan = CommitPlan {
            before: from,
            changes: Vec::new(),
            paths: pathspec_without(&written),
            left_out: self.edited_submodules(top)?,
        };
        for change in &changes {
            let why = match change.exclusion_reason(top) {
                Some(why) => why,
                None => continue,
            };
            plan.paths.push(but(&change.path));
            plan.left_out.push(format!("{} ({why})", change.path));
        }
        plan.changes = changes;
        Ok(plan)
    }

    /// Returns the unfinished operation of a person or an agent in this working tree: adding all files would mark its conflicts as resolved.
    pub(crate) fn operation_in_progress(&self) -> Result<Option<&'static str>, GitError> {
        let place = &self.places()?.git_dir;
        let found = UNFINISHED_OPERATIONS
            .iter()
            .find(|(file, _)| place.join(file).exists());
        Ok(found.map(|(_, what)| *what))
    }

    /// Returns the changes that a commit of all files would include. Such a commit does not include edits inside a submodule.
    pub(crate) fn changes(&self) -> Result<Vec<Change>, GitError> {
        Ok(self.differences()?.changes)
    }

    /// Returns the same, with the paths of `rlm`'s own files, which no commit includes, and the base commit.
    pub(super) fn differences(&self) -> Result<Differences, GitError> {
        self.differences_within(super::COMMAND_TIMEOUT)
    }

    fn differences_within(&self, limit: Duration) -> Result<Differences, GitError> {
        let top = self.top().ok_or_else(GitError::not_a_repository)?;
        let status = [
            "status",
            "--porcelain=v2",
            "--branch",
            "-z",
            "--no-renames",
            "--untracked-files=all",
            "--ignore-submodules=dirty",
        ];
        let text = run(top, &status, limit, self.processes.as_ref())?;
        let mut found = Differences::default();
        for entry in text.split('\0') {
            if let Some(commit) = entry.strip_prefix("# branch.oid ") {
                found.from = Some(commit.to_owned()).filter(|it| it != "(initial)");
            }
            let Some(path) = entry_path(entry) else {
                continue;
            };
            let is_new = entry.starts_with('?');
            if path.split('/').next() == Some(crate::state_directory()) {
                continue;
            } else if is_new && is_own_file(&top.join(path)) {
                found.written.push(path.to_owned());
            } else {
                found.changes.push(Change {
                    is_new,
                    path: path.to_owned(),
                });
            }
        }
        Ok(found)
    }
}

/// The differences of a working tree from its commit.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// The commit, if there is one.
    from: Option<String>,
    changes: Vec<Change>,
    /// The paths of archives and reports, which no commit includes.
    pub(super) written: Vec<String>,
}

/// Returns the path in an entry of `git status --porcelain=v2`.
pub fn entry_path(entry: &str) -> Option<&str> {
    let fields = match entry.as_bytes().first()? {
        b'1' => 9,
        b'2' => 10,
        b'u' => 11,
        b'?' => 2,
        _ => return None,
    };
    entry.splitn(fields, ' ').nth(fields - 1)
}

/// Returns git's arguments for all files except these.
pub(super) fn pathspec_without(paths: &[String]) -> Vec<String> {
    let all = super::ALL_FILES.into_iter().map(Into::into);
    all.chain(paths.iter().map(|path| but(path))).collect()
}

fn but(path: &str) -> String {
    format!(":(top,exclude,literal){}", path.trim_end_matches('/'))
}

impl Git {
    /// Names the submodules with uncommitted edits: a commit of the repository includes only their checked-out commits.
    fn edited_submodules(&self, top: &Path) -> Result<Vec<String>, GitError> {
        if !top.join(".gitmodules").exists() {
            return Ok(Vec::new());
        }
        let status = [
            "status",
            "--porcelain=v2",
            "--untracked-files=no",
            "--ignore-submodules=none",
        ];
        let text = self.output(&status)?;
        Ok(text.lines().filter_map(edited_submodule).collect())
    }
}

/// Parses a line of `git status` about a submodule.
fn edited_submodule(line: &str) -> Option<String> {
    let mut fields = line.splitn(9, ' ');
    let state = fields.nth(2)?.strip_prefix('S')?;
    let path = fields.last()?;
    let is_edited = state.contains(['M', 'U']);
    is_edited.then(|| format!("{path} (edited; commit inside the submodule)"))
}

/// A path that differs from the last commit.
#[derive(Debug)]
pub(crate) struct Change {
    is_new: bool,
    pub(crate) path: String,
}

impl Change {
    fn exclusion_reason(&self, top: &Path) -> Option<String> {
        if !self.is_new {
            return None;
        }
        if self.path.ends_with('/') {
            return Some("a nested repository".into());
        }
        let meta = fs_err::symlink_metadata(top.join(&self.path)).ok()?;
        let size = meta.len();
        (size > MOST_BYTES).then(|| rlm_text::bytes::show(size))
    }
}

pub(super) fn of_files(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 file is {what}"),
        _ => format!("{count} files are {what}"),
    }
}

/// Names the first paths, relative to the top of the working tree.
pub(super) fn names(top: &Path, changes: &[Change]) -> String {
    let named = changes.iter().take(NAMED);
    let mut named: Vec<&str> = named.map(|change| change.path.as_str()).collect();
    if changes.len() > NAMED {
        named.push("…");
    }
    // A path may contain anything, and a terminal obeys control characters.
    let text = format!("{}: {}", top.display(), named.join(", "));
    text.replace(char::is_control, "?")
}

/// The values in a commit's message.
#[derive(Clone, Debug)]
pub struct CommitMessage {
    /// The run.
    pub run: String,
    /// The name of the phase.
    pub phase: String,
    /// Whether the run has several phases.
    pub is_pipeline: bool,
    /// The iteration.
    pub iteration: u32,
    /// The attempt that completed it.
    pub attempt: u32,
    /// The number of the iteration's first attempt.
    pub first_attempt: u32,
    /// The last committed iteration of the phase; 0 if there is none.
    pub committed: u32,
    /// Whether the iteration failed.
    pub failed: bool,
    /// The [`subject`] that the agent's last message gives, if it has one.
    pub summary: Option<String>,
    /// The agent's session.
    pub session: Option<String>,
    /// The short name of the agent.
    pub agent: String,
}

impl CommitMessage {
    /// Returns the commit's message: a subject, the changes beyond the iteration's own work, and trailers.
    pub fn message(&self) -> String {
        let Self {
            run,
            iteration,
            attempt,
            ..
        } = self;
        let phase = one_line(&self.phase);
        let mut text = match &self.summary {
            Some(summary) if !self.failed => summary.clone(),
            _ => format!("{}: iteration {iteration} of {run}", crate::program_name()),
        };
        if self.is_pipeline && (self.summary.is_none() || self.failed) {
            _ = write!(text, " ({phase})");
        }
        text.push('\n');
        let mut body = |what: String| text.push_str(&format!("\n{what}\n"));
        if self.failed {
            body(format!("The iteration failed: rlm checkpoints list {run}"));
        }
        if *attempt > self.first_attempt {
            let unfinished = match attempt - self.first_attempt {
                1 => format!("Attempt {} did not finish", self.first_attempt),
                _ => format!(
                    "Attempts {} to {} did not finish",
                    self.first_attempt,
                    attempt - 1
                ),
            };
            body(format!(
                "{unfinished}; this commit includes the uncommitted changes."
            ));
        }
        let missing = iteration.saturating_sub(self.committed + 1);
        if missing > 0 {
            let from = self.committed + 1;
            let which = match missing {
                1 => format!("Iteration {from} has"),
                _ => format!("Iterations {from} to {} have", iteration - 1),
            };
            body(format!(
                "{which} no commit; this commit includes the changes."
            ));
        }
        let session = self.session.as_deref().map(one_line);
        let trailers = [
            ("Run", Some(run.clone())),
            ("Phase", Some(phase)),
            ("Iteration", Some(iteration.to_string())),
            ("Attempt", Some(attempt.to_string())),
            ("Session", session),
            ("Agent", Some(one_line(&self.agent))),
        ];
        text.push('\n');
        for (name, value) in trailers {
            if let Some(value) = value {
                text.push_str(&format!("Rlm-{name}: {value}\n"));
            }
        }
        text
    }
}

/// The maximum number of characters of a commit's subject.
const MAX_SUBJECT: usize = 72;

/// Returns the first sentence of an agent's message as the subject of a commit; `None` if it has no sentence. Agents begin their last message with what
/// they did; its end is often an offer to do more.
#[must_use]
pub fn subject(message: &str) -> Option<String> {
    let mut is_code = false;
    let mut prose = message.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    let sentence = prose.find_map(first_sentence)?;
    // Git gives these words at the beginning of a subject a meaning of their own.
    let is_special = ["fixup!", "squash!", "amend!"];
    if is_special.iter().any(|word| sentence.starts_with(word)) {
        return None;
    }
    if sentence.chars().count() <= MAX_SUBJECT {
        return Some(sentence);
    }
    let cut: String = sentence.chars().take(MAX_SUBJECT - 1).collect();
    let whole = cut
        .rsplit_once(' ')
        .map_or(cut.as_str(), |(words, _)| words);
    Some(format!("{}…", whole.trim_end_matches([',', ';', ':', ' '])))
}

/// Returns the first sentence of two or more words in a line of Markdown.
fn first_sentence(line: &str) -> Option<String> {
    let line = one_line(&line.replace("**", "").replace('`', ""));
    let line = line.split("<promise>").next().unwrap_or_default();
    let line = line.trim_start_matches(|c: char| "#>*-_•✅ ".contains(c));
    // A lowercase letter after the mark continues the sentence, as in "e.g. this".
    let ends = |(at, c): &(usize, char)| {
        let next = line[at + c.len_utf8()..].strip_prefix(' ');
        let begins = |rest: &str| !rest.starts_with(char::is_lowercase);
        "!.?".contains(*c) && next.is_some_and(begins)
    };
    let mut from = 0;
    let mut sentences = { line.char_indices().filter(ends) }
        .map(|(at, c)| at + c.len_utf8())
        .chain([line.len()])
        .map(|to| line[std::mem::replace(&mut from, to)..to].trim());
    let is_sentence = |it: &&str| {
        let has_words = it.split_whitespace().count() > 1;
        has_words && !it.ends_with(':') && it.contains(char::is_alphabetic)
    };
    let sentence = sentences.find(is_sentence)?;
    let is_end = |c: char| c == '.' || c.is_whitespace();
    Some(sentence.trim_end_matches(is_end).to_owned())
}

/// Returns the text on one line, because an agent names its session, and must not be able to add trailers.
fn one_line(text: &str) -> String {
    let text: String = text.chars().take(200).collect();
    text.replace(char::is_control, " ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn about() -> CommitMessage {
        CommitMessage {
            run: "r1".into(),
            phase: "build".into(),
            is_pipeline: false,
            iteration: 4,
            attempt: 1,
            first_attempt: 1,
            committed: 3,
            failed: false,
            summary: None,
            session: None,
            agent: "command".into(),
        }
    }

    #[test]
    fn submodule_with_own_edits_is_named() {
        let line = |state| format!("1 .M {state} 160000 160000 160000 0123 0123 lib/a b");
        let named = edited_submodule(&line("S.M."));
        assert_eq!(
            named.unwrap(),
            "lib/a b (edited; commit inside the submodule)"
        );
        assert!(edited_submodule(&line("S..U")).is_some());
        for other in ["SC..", "N..."] {
            assert_eq!(edited_submodule(&line(other)), None);
        }
    }

    #[test]
    fn commit_message_describes_its_content() {
        let crowded = CommitMessage {
            is_pipeline: true,
            attempt: 3,
            committed: 1,
            failed: true,
            session: Some("s-1\nRlm-Run: other".into()),
            ..about()
        };
        let summary = Some("Reject an empty key".into());
        let named = CommitMessage {
            summary: summary.clone(),
            ..about()
        };
        let crowded = CommitMessage { summary, ..crowded };
        let text = [about().message(), named.message(), crowded.message()].join("----\n");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn subject_is_what_the_agent_did() {
        let long = "I moved the parser into its own module so that the tests can use it without a terminal and a clock";
        for (message, expected) in [
            (
                "I fixed the parser. All tests pass.",
                Some("I fixed the parser"),
            ),
            (
                "**Done.** Added `--until` to the help!",
                Some("Added --until to the help!"),
            ),
            (
                "## Summary\n\n- Renamed e.g. foo.rs to bar.rs\n",
                Some("Renamed e.g. foo.rs to bar.rs"),
            ),
            (
                "Here is what I changed:\n\nSplit main.rs in two.",
                Some("Split main.rs in two"),
            ),
            (
                "```\nrm -rf x y\n```\nRemoved the cache",
                Some("Removed the cache"),
            ),
            (
                long,
                Some("I moved the parser into its own module so that the tests can use it…"),
            ),
            (
                "All tests pass. <promise>DONE</promise>",
                Some("All tests pass"),
            ),
            ("I fixed it\u{a0}.", Some("I fixed it")),
            ("fixup! the last one", None),
            ("Done.", None),
            ("", None),
        ] {
            assert_eq!(subject(message).as_deref(), expected, "{message}");
        }
    }

    proptest! {
        /// A subject is one line of limited length, whatever the agent writes.
        #[test]
        fn any_message_gives_one_short_line(message in any::<String>()) {
            if let Some(subject) = subject(&message) {
                prop_assert!(subject.chars().count() <= MAX_SUBJECT, "{subject:?}");
                prop_assert!(!subject.contains(char::is_control) && subject.trim() == subject, "{subject:?}");
            }
        }

        /// Any name of a session gives exactly one trailer of each kind.
        #[test]
        fn only_rlm_writes_trailers(session in any::<String>(), phase in any::<String>()) {
            let about = CommitMessage { session: Some(session), phase, ..about() };
            let message = about.message();
            for name in ["Run", "Phase", "Iteration", "Attempt", "Session", "Agent"] {
                let prefix = format!("Rlm-{name}:");
                let count = message.lines().filter(|line| line.starts_with(&prefix)).count();
                prop_assert_eq!(count, 1, "{}", message);
            }
        }
    }
}
