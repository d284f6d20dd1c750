//! What `rlm checkpoints fork` says when it is done: which run there is now, where it works, and how it begins.

use std::fmt;

use rlm_store::Worktree;
use rlm_store::moving::Forked;
use rlm_text::escape::plain;
use serde::Serialize;

use crate::hint::go_further;
use crate::hint::rlm;

/// A run that was forked; the text and the JSON say the same.
#[derive(Debug, Serialize)]
pub(crate) struct Fork {
    run: String,
    parent: String,
    phase: String,
    iteration: u32,
    /// The save of the other run.
    save: u64,
    git_commit: String,
    worktree: Worktree,
    directory: String,
    next: String,
}

impl Fork {
    pub(crate) fn of(forked: &Forked) -> Self {
        let head = &forked.head;
        let parent = head.machine.parent.clone();
        let parent = parent.expect("a fork has a parent");
        // Where the other run had come to its end there may be nothing left to do by the same limits.
        let ended = forked.ended.as_ref();
        let more = ended.and_then(|reason| go_further(&head.run, reason));
        Self {
            run: head.run.to_string(),
            parent: parent.run,
            phase: forked.phase.clone(),
            iteration: parent.iteration,
            save: parent.seq,
            git_commit: forked.commit.clone(),
            worktree: forked.worktree.clone(),
            directory: head.settings.directory.display().to_string(),
            next: more.unwrap_or_else(|| format!("{} resume {}", rlm(), head.run)),
        }
    }
}

impl fmt::Display for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.git_commit.get(..12).unwrap_or(&self.git_commit);
        let tree = self.worktree.path.display().to_string();
        writeln!(
            f,
            "run {} goes on after iteration {} of {} ({}), from commit {short}",
            plain(&self.run),
            self.iteration,
            plain(&self.parent),
            plain(&self.phase),
        )?;
        writeln!(
            f,
            "  tree    {}, branch {}",
            plain(&tree),
            plain(&self.worktree.branch)
        )?;
        write!(f, "  next: {}", plain(&self.next))
    }
}
