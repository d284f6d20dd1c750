//! The commits that a run makes: whether it can, what goes into one, and what is written in it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::written::is_written;
use super::{Git, Refusal, run};

/// What is larger and new to git does not get into a commit unsaid: it could never be got out again.
const MOST_BYTES: u64 = 50 << 20;
/// How many paths are named.
const NAMED: usize = 3;

/// What a repository is in the middle of, by the file that says so.
const UNDER_WAY: [(&str, &str); 5] = [
    ("MERGE_HEAD", "a merge"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
];

/// Adds all but what is named behind the message, and commits it if that is anything. The user's hooks run, and can refuse.
pub const SCRIPT: &str = r#"set -e
message=$1
shift
git() { command git -c core.fsmonitor=false -c gc.auto=0 -c maintenance.auto=false "$@"; }
git add --all -- "$@"
if git diff --cached --quiet --no-ext-diff --ignore-submodules=none; then exit 0; fi
git commit --quiet --cleanup=whitespace --message "$message"
"#;

/// What is to be committed.
#[derive(Debug, Default)]
pub struct Plan {
    /// The commit before.
    pub before: Option<String>,
    /// Whether there is nothing.
    pub is_empty: bool,
    /// Which paths, as git's arguments.
    pub paths: Vec<String>,
    /// What stays out of it, and why.
    pub left_out: Vec<String>,
}

impl Git {
    /// Says why a run can't begin to commit in this working tree, and what to do. Blocks.
    pub fn refuse_commits(&self) -> Result<(), String> {
        let Some(top) = self.top() else {
            return Err(
                "it is no working tree of git (no repository, or a bare one), so that nothing can be committed: git init, or leave --commit out".into(),
            );
        };
        let said = |e: Refusal| e.to_string();
        if let Some(what) = self.under_way().map_err(said)? {
            return Err(format!(
                "{what} is under way: finish it, or leave --commit out"
            ));
        }
        if self.answer(&["symbolic-ref", "--quiet", "HEAD"]).is_err() {
            return Err(
                "HEAD is detached, so that the loop's commits would be on no branch: git switch -c NAME, or start with --worktree".into(),
            );
        }
        self.refuse_commits_anywhere()?;
        let changed = self.changes().map_err(said)?;
        if changed.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{}, which the loop's commits would take in: commit that first, or start with --worktree, which leaves it here ({})",
            of_files(changed.len(), "not committed"),
            names(top, &changed),
        ))
    }

    /// The same for what a new working tree of the repository would not mend. Blocks.
    pub(crate) fn refuse_commits_anywhere(&self) -> Result<(), String> {
        for who in ["GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"] {
            if self.answer(&["var", who]).is_err() {
                return Err(
                    "git does not know who commits: git config user.name NAME && git config user.email ADDRESS".into(),
                );
            }
        }
        let place = self.place().map_err(|e| e.to_string())?;
        if access(&place, Access::WRITE_OK).is_err() {
            return Err(format!(
                "nothing can be committed: `{}` can't be written",
                place.display()
            ));
        }
        Ok(())
    }

    /// Says what is not committed when a run that commits is taken up again: it will be in the next commit. Blocks.
    pub fn uncommitted(&self) -> Option<String> {
        let changed = self.changes().ok()?;
        let top = self.top()?;
        let what = of_files(changed.len(), "not committed");
        (!changed.is_empty()).then(|| {
            format!(
                "{what}, which the next commit takes in ({})",
                names(top, &changed)
            )
        })
    }

    /// Looks at what is to be committed. Blocks.
    pub fn plan(&self) -> Result<Plan, Refusal> {
        let top = self.top().ok_or_else(Refusal::no_tree)?;
        if let Some(what) = self.under_way()? {
            return Err(Refusal::Said(format!(
                "{what} is under way: finish or abort it"
            )));
        }
        let Differences {
            from,
            changes,
            written,
        } = self.differences()?;
        let mut plan = Plan {
            before: from,
            is_empty: changes.is_empty(),
            paths: all_but(&written),
            left_out: self.edited_submodules(top)?,
        };
        for change in changes {
            let why = match change.why_left_out(top) {
                Some(why) => why,
                None => continue,
            };
            plan.paths.push(but(&change.path));
            plan.left_out.push(format!("{} ({why})", change.path));
        }
        Ok(plan)
    }

    /// Returns the directory in which git keeps what belongs to this working tree.
    fn place(&self) -> Result<PathBuf, Refusal> {
        self.answer(&["rev-parse", "--absolute-git-dir"])
            .map(PathBuf::from)
    }

    /// Returns what a person or an agent has begun here and not finished: adding all of it would call conflicts solved.
    pub(super) fn under_way(&self) -> Result<Option<&'static str>, Refusal> {
        let place = self.place()?;
        let found = UNDER_WAY.iter().find(|(file, _)| place.join(file).exists());
        Ok(found.map(|(_, what)| *what))
    }

    /// Returns what a commit of everything would change. What was edited inside a submodule would not be in it.
    pub(super) fn changes(&self) -> Result<Vec<Change>, Refusal> {
        Ok(self.differences()?.changes)
    }

    /// The same, with the paths of what lies about that no commit takes in, and the commit that all of it differs from.
    pub(super) fn differences(&self) -> Result<Differences, Refusal> {
        let top = self.top().ok_or_else(Refusal::no_tree)?;
        let status = [
            "status",
            "--porcelain=v2",
            "--branch",
            "-z",
            "--no-renames",
            "--untracked-files=all",
            "--ignore-submodules=dirty",
        ];
        let text = run(top, &status, super::LIMIT, self.looks.as_ref())?;
        let mut found = Differences::default();
        for entry in text.split('\0') {
            if let Some(commit) = entry.strip_prefix("# branch.oid ") {
                found.from = Some(commit.to_owned()).filter(|it| it != "(initial)");
            }
            let Some(path) = entry_path(entry) else {
                continue;
            };
            let is_new = entry.starts_with('?');
            if path.split('/').next() == Some(".rlm") {
                continue;
            } else if is_new && is_written(&top.join(path)) {
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

/// How a working tree differs from its commit.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// The commit, if there is one yet.
    from: Option<String>,
    changes: Vec<Change>,
    /// The paths of what lies about that no commit takes in.
    pub(super) written: Vec<String>,
}

/// Returns the path that an entry of `git status --porcelain=v2` is about.
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

/// Names all files but these, as git's arguments.
pub(super) fn all_but(paths: &[String]) -> Vec<String> {
    let all = super::ALL_FILES.into_iter().map(Into::into);
    all.chain(paths.iter().map(|path| but(path))).collect()
}

fn but(path: &str) -> String {
    format!(":(top,exclude,literal){}", path.trim_end_matches('/'))
}

impl Git {
    /// Names the submodules in which something is not committed: a commit of the whole has only the commits that they are at.
    fn edited_submodules(&self, top: &Path) -> Result<Vec<String>, Refusal> {
        if !top.join(".gitmodules").exists() {
            return Ok(Vec::new());
        }
        let status = [
            "status",
            "--porcelain=v2",
            "--untracked-files=no",
            "--ignore-submodules=none",
        ];
        let text = self.answer(&status)?;
        Ok(text.lines().filter_map(edited_submodule).collect())
    }
}

/// Reads a line of git's about a path.
fn edited_submodule(line: &str) -> Option<String> {
    let mut fields = line.splitn(9, ' ');
    let state = fields.nth(2)?.strip_prefix('S')?;
    let path = fields.last()?;
    let is_edited = state.contains(['M', 'U']);
    is_edited.then(|| format!("{path} (edited; a submodule commits for itself)"))
}

/// A path that differs from the last commit.
#[derive(Debug)]
pub(super) struct Change {
    is_new: bool,
    path: String,
}

impl Change {
    fn why_left_out(&self, top: &Path) -> Option<String> {
        if !self.is_new {
            return None;
        }
        if self.path.ends_with('/') {
            return Some("a repository of its own".into());
        }
        let meta = fs_err::symlink_metadata(top.join(&self.path)).ok()?;
        let size = meta.len();
        (size > MOST_BYTES).then(|| format!("{} MiB", size >> 20))
    }
}

pub(super) fn of_files(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 file is {what}"),
        _ => format!("{count} files are {what}"),
    }
}

/// Names the first paths, as they are found from the working directory's top.
pub(super) fn names(top: &Path, changes: &[Change]) -> String {
    let named = changes.iter().take(NAMED);
    let mut named: Vec<&str> = named.map(|change| change.path.as_str()).collect();
    if changes.len() > NAMED {
        named.push("…");
    }
    // A path may hold anything, and a terminal obeys.
    let text = format!("{}: {}", top.display(), named.join(", "));
    text.replace(char::is_control, "?")
}

/// What a commit says of itself.
#[derive(Clone, Debug)]
pub struct About {
    /// The run.
    pub run: String,
    /// The name of its phase.
    pub phase: String,
    /// Whether the run has more than one.
    pub is_pipeline: bool,
    /// The iteration.
    pub iteration: u32,
    /// The attempt that completed it.
    pub attempt: u32,
    /// The number of the iteration's first attempt.
    pub first_attempt: u32,
    /// The last iteration of the phase that is committed; 0 for none.
    pub committed: u32,
    /// Whether the iteration went wrong.
    pub failed: bool,
    /// The agent's session.
    pub session: Option<String>,
    /// The short name of the agent.
    pub agent: String,
}

impl About {
    /// Writes the commit's message: a subject, what is in it beside the iteration's own work, and trailers.
    pub fn message(&self) -> String {
        let Self {
            run,
            iteration,
            attempt,
            ..
        } = self;
        let phase = one_line(&self.phase);
        let mut text = format!("rlm: iteration {iteration} of {run}");
        if self.is_pipeline {
            _ = write!(text, " ({phase})");
        }
        text.push('\n');
        let mut body = |what: String| text.push_str(&format!("\n{what}\n"));
        if self.failed {
            body(format!("The iteration failed: rlm checkpoints list {run}"));
        }
        if *attempt > self.first_attempt {
            let cut = match attempt - self.first_attempt {
                1 => format!("Attempt {} was cut", self.first_attempt),
                _ => format!(
                    "Attempts {} to {} were cut",
                    self.first_attempt,
                    attempt - 1
                ),
            };
            body(format!(
                "{cut}; what was left uncommitted is in this commit."
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
                "{which} no commit; what was changed is in this one."
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

/// An agent names its session, and must not write trailers.
fn one_line(text: &str) -> String {
    let text: String = text.chars().take(200).collect();
    text.replace(char::is_control, " ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn about() -> About {
        About {
            run: "r1".into(),
            phase: "build".into(),
            is_pipeline: false,
            iteration: 4,
            attempt: 1,
            first_attempt: 1,
            committed: 3,
            failed: false,
            session: None,
            agent: "command".into(),
        }
    }

    #[test]
    fn a_submodule_with_edits_of_its_own_is_named() {
        let line = |state| format!("1 .M {state} 160000 160000 160000 0123 0123 lib/a b");
        let named = edited_submodule(&line("S.M."));
        assert_eq!(
            named.unwrap(),
            "lib/a b (edited; a submodule commits for itself)"
        );
        assert!(edited_submodule(&line("S..U")).is_some());
        for other in ["SC..", "N..."] {
            assert_eq!(edited_submodule(&line(other)), None);
        }
    }

    #[test]
    fn a_commit_says_what_is_in_it() {
        let crowded = About {
            is_pipeline: true,
            attempt: 3,
            committed: 1,
            failed: true,
            session: Some("s-1\nRlm-Run: other".into()),
            ..about()
        };
        let text = [about().message(), crowded.message()].join("----\n");
        insta::assert_snapshot!(text);
    }

    proptest! {
        /// Whatever an agent calls its session, there is one trailer of each kind.
        #[test]
        fn nobody_else_writes_trailers(session in any::<String>(), phase in any::<String>()) {
            let about = About { session: Some(session), phase, ..about() };
            let message = about.message();
            for name in ["Run", "Phase", "Iteration", "Attempt", "Session", "Agent"] {
                let prefix = format!("Rlm-{name}:");
                let count = message.lines().filter(|line| line.starts_with(&prefix)).count();
                prop_assert_eq!(count, 1, "{}", message);
            }
        }
    }
}
