//! The head that is saved of a run, and what it has to satisfy before anything is done with it.

use std::path::Path;

use loop_state::{Head, Timestamp};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::git::is_object_name;
use crate::{Error, Loss, RunId, Settings};

/// What is saved of a run: the machine's head and what the runner must know to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct RunHead {
    /// The name of the run.
    pub run: RunId,
    /// The machine's state.
    pub machine: Head,
    /// What the run was asked to do.
    pub settings: Settings,
    /// The random part of the marker that all processes of the run carry.
    pub scope: String,
    /// The blobs that hold the last prompt text read of each phase.
    pub prompts: Vec<String>,
    /// The commit of the project at the last save; `None` outside git.
    pub git_commit: Option<String>,
    /// How many files of the project were not committed at the last save; `None` outside git, or where git did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_changed: Option<u32>,
    /// The last iteration whose work is in a commit, for a run that commits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed: Option<Committed>,
    /// What was to be committed and is not, since the last commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncommitted: Option<Uncommitted>,
    /// What was lost of it by damages that it went on from, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// Why a person wants the run to wait, while it waits or is about to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_reason: Option<String>,
    /// The state that the first event of its own met, where the present rules don't tell that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Box<Origin>>,
    /// Where the run went, if it goes on elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<Moved>,
    /// How many times it was moved.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub moves: u32,
}

/// Where the history of a run begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// How many events were saved before, which are another run's.
    pub(crate) events: u64,
    /// The state.
    pub(crate) head: Head,
}

/// The seal of a run that goes on elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// When.
    pub at: Timestamp,
    /// The file that it went into; `-` is standard output.
    pub to: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// An iteration whose work is in a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The index of its phase.
    pub phase: u32,
    /// Its number.
    pub iteration: u32,
    /// The attempt that completed it; 0 where that was before the run began to commit.
    pub attempt: u32,
    /// The commit; an earlier one where there was nothing to commit, or the agent had done it.
    pub commit: String,
}

/// Iterations whose work was to be committed and is in no commit of the run's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncommitted {
    /// How many.
    pub iterations: u32,
    /// Why the last one is not.
    pub why: String,
}

impl Serialize for RunHead {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The derived function, not this one.
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for RunHead {
    /// Returns only a head whose parts fit each other, so that a reader may look up the settings of the phase that the machine is in.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The derived function, not this one.
        let head = Self::deserialize(deserializer)?;
        match head.check() {
            Ok(()) => Ok(head),
            Err(why) => Err(D::Error::custom(why)),
        }
    }
}

/// Why a saved head is refused whose parts are well-formed.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("the settings make no run: {0}")]
    Settings(#[from] Error),
    #[error("its phases are not those of its rules")]
    Phases,
    #[error("it names a commit that is none")]
    Commit,
    #[error("its marker is none")]
    Marker,
}

impl RunHead {
    /// Makes that of a run that has done nothing yet.
    pub fn new(run: RunId, machine: Head, settings: Settings) -> Self {
        Self {
            run,
            machine,
            settings,
            scope: Uuid::new_v4().simple().to_string(),
            prompts: Vec::new(),
            git_commit: None,
            git_changed: None,
            committed: None,
            uncommitted: None,
            losses: Vec::new(),
            pause_reason: None,
            origin: None,
            moved: None,
            moves: 0,
        }
    }

    /// Checks what no type says of a head, which any program may have written.
    fn check(&self) -> Result<(), Unfit> {
        let (settings, rules) = (&self.settings, &self.machine.rules);
        settings.check_rules()?;
        settings.check_names()?;
        let names = settings.phases.iter().map(|phase| &phase.name);
        if !names.eq(rules.phases.iter().map(|phase| &phase.name)) {
            return Err(Unfit::Phases);
        }
        let own = settings.worktree.as_ref().map(|own| &own.base);
        let committed = self.committed.as_ref().map(|it| &it.commit);
        let mut commits = [&self.git_commit]
            .into_iter()
            .flatten()
            .chain(committed)
            .chain(own);
        if !commits.all(|commit| is_object_name(commit)) {
            return Err(Unfit::Commit);
        }
        // A sweep finds processes by it: one that fits too much would end others.
        match is_random_name(&self.scope) {
            true => Ok(()),
            false => Err(Unfit::Marker),
        }
    }

    /// Whether no process has begun to work on it, so that it was not cut either. What a fork counts is what its parent had.
    pub(crate) fn is_untouched(&self) -> bool {
        let processes = self.machine.counts.processes;
        let forked = self
            .origin
            .as_ref()
            .filter(|_| self.machine.parent.is_some());
        processes == forked.map_or(0, |origin| origin.head.counts.processes)
    }

    /// Takes the machine's present state, and keeps the rules that the run began with when they are about to be lost.
    pub fn advance(&mut self, machine: &Head) {
        let (before, is_begun) = (&self.machine.rules, self.machine.counts.processes > 0);
        if self.origin.is_none() && is_begun && *before != machine.rules {
            let head = Head::new(before.clone()).ok();
            self.origin = head.map(|head| Box::new(Origin { events: 0, head }));
        }
        self.machine = machine.clone();
    }

    /// Returns the working tree of the run, in a project with this root.
    pub fn tree<'a>(&'a self, root: &'a Path) -> &'a Path {
        let own = self.settings.worktree.as_ref();
        own.map_or(root, |own| &own.path)
    }
}

/// Returns whether a text is a random name, as that of a marker.
pub(crate) fn is_random_name(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}
