//! The output of `rlm clean`.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use rlm_store::{KeepReason, RunId, RunState, Worktree};
use rlm_terminal::style::{BAD, WARNING_STYLE, styled};
use rlm_text::bytes::show as size;
use rlm_text::count;
use rlm_text::duration::approximate;
use rlm_text::escape::plain;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::hint::{program_command, quoted};
use crate::render::git::remove_branch;
use crate::render::lines;

/// A run, and the plan for it.
#[derive(Debug)]
pub(crate) struct CleanEntry {
    pub(crate) run: RunId,
    pub(crate) state: RunState,
    /// The stop reason, or the reason why the state can't be read.
    pub(crate) why: Option<String>,
    /// The time since the last change.
    pub(crate) age: Duration,
    /// The number of bytes that a deletion frees.
    pub(crate) bytes: u64,
    /// Whether only the transcripts of the run are deleted.
    pub(crate) transcripts: bool,
    /// The time of the last change.
    pub(crate) last: Option<SystemTime>,
    /// The run's own worktree, if it still exists.
    pub(crate) tree: Option<Worktree>,
    pub(crate) result: CleanResult,
    /// Whether the deletion is planned, not done yet.
    pub(crate) is_planned: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CleanResult {
    Removed,
    Failed(String),
    Kept(KeepReason),
}

impl Serialize for CleanEntry {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (action, why): (_, Value) = match &self.result {
            CleanResult::Removed if self.is_planned => ("would_remove", Value::Null),
            CleanResult::Removed => ("removed", Value::Null),
            CleanResult::Failed(why) => ("failed", json!(why)),
            CleanResult::Kept(why) => ("kept", json!(why)),
        };
        let tree = self.tree.as_ref();
        let tree = tree.map(|tree| json!({"path": tree.path, "branch": tree.branch}));
        json!({
            "run": self.run,
            "state": self.state,
            "action": action,
            "what": if self.transcripts { "transcripts" } else { "run" },
            "reason": why,
            "age_s": self.age.as_secs(),
            "bytes": self.bytes,
            "worktree": tree,
        })
        .serialize(to)
    }
}

/// Returns a text about the runs that were deleted (or would be), and the runs that stay.
pub(crate) fn cleaned(plan: &[CleanEntry]) -> String {
    let mut text = String::new();
    let is_planned = plan.iter().any(|it| it.is_planned);
    let gone = |it: &&CleanEntry| it.result == CleanResult::Removed;
    let (runs, bytes) = plan
        .iter()
        .filter(gone)
        .fold((0, 0), |(runs, bytes), it| (runs + 1, bytes + it.bytes));
    for it in plan.iter().filter(gone).filter(|_| is_planned) {
        text += &format!("  {}\n", line(it));
    }
    for it in plan {
        match &it.result {
            CleanResult::Failed(why) => {
                text += &format!(
                    "{} {}: {}\n",
                    styled(BAD, "not deleted:"),
                    it.run,
                    plain(why)
                );
            }
            CleanResult::Kept(KeepReason::Damaged) => {
                let why = it.why.as_deref().unwrap_or("it can't be read");
                text += &format!(
                    "{} {}, {}: {}; to delete it: {} clean {}\n",
                    styled(WARNING_STYLE, "damaged:"),
                    it.run,
                    size(it.bytes),
                    plain(why),
                    program_command(),
                    it.run
                );
            }
            _ => {}
        }
    }
    for it in plan.iter().filter(gone).filter(|it| !it.transcripts) {
        if let Some(tree) = &it.tree {
            let path = plain(&quoted(&tree.path.to_string_lossy()));
            let branch = remove_branch(&plain(&quoted(&tree.branch)));
            text += &format!(
                "{} worktree and branch of {}; to remove them: git worktree remove {path}{branch}\n",
                styled(WARNING_STYLE, "kept:"),
                it.run
            );
        }
    }
    let verb = if is_planned {
        "would delete"
    } else {
        "deleted"
    };
    let of = match plan.iter().any(|it| it.transcripts) {
        true => "the transcripts of ",
        false => "",
    };
    let runs = format!("{of}{}", count(runs, "run", "runs"));
    write!(text, "{verb} {runs}, {}", size(bytes)).expect("writing to a string never fails");
    let kept = |why| {
        let kept = plan.iter().filter(|it| it.result == CleanResult::Kept(why));
        kept.count()
    };
    let kept = [
        (kept(KeepReason::Live), "live"),
        (
            kept(KeepReason::Resumable),
            "that can be resumed (--all deletes those too)",
        ),
        (kept(KeepReason::Damaged), "damaged"),
        (kept(KeepReason::Transferred), "that were transferred"),
        (kept(KeepReason::Bare), "without transcripts"),
        (kept(KeepReason::Young), "too recent"),
        (kept(KeepReason::Newest), "of the newest"),
    ];
    let kept = kept.iter().filter(|(runs, _)| *runs > 0);
    let kept: Vec<String> = kept.map(|(runs, what)| format!("{runs} {what}")).collect();
    if !kept.is_empty() {
        text += &format!("; kept {}", kept.join(", "));
    }
    text
}

fn line(it: &CleanEntry) -> String {
    let state = styled(lines::of_state(it.state), lines::state(it.state));
    let why = it
        .why
        .as_deref()
        .map_or_else(String::new, |why| format!(": {}", plain(why)));
    let age = approximate(it.age);
    format!("{}  {}, {age} old, {state}{why}", it.run, size(it.bytes))
}
