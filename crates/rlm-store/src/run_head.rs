//! The saved head of a run, and its validation.

use std::path::{Path, PathBuf};

use loop_state::{Head, Timestamp};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use uuid::Uuid;

use crate::git::is_object_name;
use crate::{DataLoss, Error, ItemError, Notifications, RunId, SavedItems, Settings};

/// The saved state of a run: the machine's head, and the values that the runner needs to resume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct RunHead {
    /// The name of the run.
    pub run: RunId,
    /// The machine's state.
    pub machine: Head,
    /// The settings of the run.
    pub settings: Settings,
    /// The random part of the marker that all processes of the run carry.
    pub scope: String,
    /// The names of the blobs with the last prompt text of each phase.
    pub prompts: Vec<String>,
    /// The commit of the project at the last save; `None` outside git.
    pub git_commit: Option<String>,
    /// The number of uncommitted files of the project at the last save; `None` outside git, or if git didn't respond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_changed: Option<u32>,
    /// The last iteration whose work is in a commit, for a run that commits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed: Option<Committed>,
    /// The work that should have been committed since the last commit and was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncommitted: Option<Uncommitted>,
    /// The git tree of the project at the end of the last iteration, or at the beginning of the run: the base of the next iteration's changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The data losses after which the run continued, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<DataLoss>,
    /// The last notifications of the run, and whether each was acknowledged.
    #[serde(default, skip_serializing_if = "Notifications::is_empty")]
    pub notifications: Notifications,
    /// A person's reason for a pause, while the run is paused or about to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_reason: Option<String>,
    /// The state before the run's first own event, if the current rules don't determine it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Box<Origin>>,
    /// The destination of the run, if it was transferred and continues there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Transfer>,
    /// The number of transfers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub transfers: u32,
    /// The top of the project on the machine that saved the run, for a run of a fleet that has moved. Paths of the settings are below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// The number of the last recorded request that the run applied, for a run of a fleet. It is saved together with the effect of the request, so that
    /// each request is applied once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_request: u64,
    /// The number of the export with which the run left a fleet, and with which it returns; 0 if it did not leave one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub exported: u64,
    /// The items that the program saved in the current iteration.
    #[serde(default, skip_serializing_if = "SavedItems::is_empty")]
    pub(crate) items: SavedItems,
}

/// The beginning of the run's own history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The number of earlier events, which belong to another run.
    pub(crate) events: u64,
    /// The state at that point.
    pub(crate) head: Head,
}

/// The mark of a transferred run, which continues elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The time of the transfer.
    pub at: Timestamp,
    /// The file that the run was exported to; `-` is standard output.
    pub to: String,
}

fn is_zero<N: Default + PartialEq>(n: &N) -> bool {
    *n == N::default()
}

/// An iteration whose work is in a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The index of the phase.
    pub phase: u32,
    /// The number of the iteration.
    pub iteration: u32,
    /// The attempt that completed it; 0 if that was before the run began to commit.
    pub attempt: u32,
    /// The commit; an earlier one if there was nothing to commit, or the agent had committed.
    pub commit: String,
}

/// Iterations whose work should be in a commit of the run and is not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncommitted {
    /// The number of iterations.
    pub iterations: u32,
    /// Why the last one is not committed.
    pub reason: String,
}

impl Serialize for RunHead {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // This calls the derived function.
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for RunHead {
    /// Returns only a head with consistent parts, so that a reader may look up the settings of the machine's phase.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // This calls the derived function.
        let mut head = Self::deserialize(deserializer)?;
        if head.items.is_empty() {
            // A save leaves out an empty list together with its iteration.
            head.items = SavedItems::default();
        }
        match head.check() {
            Ok(()) => Ok(head),
            Err(why) => Err(D::Error::custom(why)),
        }
    }
}

/// The reason why a well-formed head is invalid.
#[derive(Debug, thiserror::Error)]
enum InvalidHead {
    #[error("invalid settings: {0}")]
    Settings(#[from] Error),
    #[error("the phases of the settings and of the rules differ")]
    Phases,
    #[error("a commit id is invalid")]
    Commit,
    #[error("the marker is invalid")]
    Marker,
    #[error("the saved items are too large")]
    Items,
}

impl RunHead {
    /// Creates the head of a new run.
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
            snapshot: None,
            losses: Vec::new(),
            notifications: Notifications::default(),
            pause_reason: None,
            origin: None,
            transfer: None,
            transfers: 0,
            root: None,
            last_request: 0,
            exported: 0,
            items: SavedItems::default(),
        }
    }

    /// Checks the rules that the types don't express, because any program may have written the head.
    fn check(&self) -> Result<(), InvalidHead> {
        let (settings, rules) = (&self.settings, &self.machine.rules);
        settings.check_rules()?;
        settings.check_names()?;
        let names = settings.phases.iter().map(|phase| &phase.name);
        if !names.eq(rules.phases.iter().map(|phase| &phase.name)) {
            return Err(InvalidHead::Phases);
        }
        let own = settings.worktree.as_ref().map(|own| &own.base);
        let committed = self.committed.as_ref().map(|it| &it.commit);
        let mut commits = [&self.git_commit]
            .into_iter()
            .flatten()
            .chain(committed)
            .chain(&self.snapshot)
            .chain(own);
        if !commits.all(|commit| is_object_name(commit)) {
            return Err(InvalidHead::Commit);
        }
        if !self.items.is_valid() {
            return Err(InvalidHead::Items);
        }
        // A sweep finds processes by this value: a value that matches too much would end other processes.
        match is_random_name(&self.scope) {
            true => Ok(()),
            false => Err(InvalidHead::Marker),
        }
    }

    /// Returns whether no process has worked on the run, so that it can't have crashed. A fork's count includes its parent's.
    pub(crate) fn is_untouched(&self) -> bool {
        let processes = self.machine.counts.processes;
        let forked = self
            .origin
            .as_ref()
            .filter(|_| self.machine.parent.is_some());
        processes == forked.map_or(0, |origin| origin.head.counts.processes)
    }

    /// Stores the machine's current head, and keeps the first rules of the run when they change.
    pub fn advance(&mut self, machine: &Head) {
        let (before, is_begun) = (&self.machine.rules, self.machine.counts.processes > 0);
        if self.origin.is_none() && is_begun && *before != machine.rules {
            let head = Head::new(before.clone()).ok();
            self.origin = head.map(|head| Box::new(Origin { events: 0, head }));
        }
        self.machine = machine.clone();
        self.items.clear_unless_of(machine);
    }

    /// Returns the items that the program saved in the current iteration.
    pub fn items(&self) -> &SavedItems {
        &self.items
    }

    /// Sets an item of the current iteration of a machine with this head. The caller saves the run.
    ///
    /// # Errors
    ///
    /// An error if no iteration is in progress, or the item is too large.
    pub fn set_item(&mut self, machine: &Head, key: String, value: Value) -> Result<(), ItemError> {
        self.items.set(machine, key, value)
    }

    /// Removes the items, because the iteration runs again from its beginning.
    pub fn clear_items(&mut self) {
        self.items = SavedItems::default();
    }

    /// Returns the working tree of the run, in a project with this root.
    pub fn tree<'a>(&'a self, root: &'a Path) -> &'a Path {
        let own = self.settings.worktree.as_ref();
        own.map_or(root, |own| &own.path)
    }
}

/// Returns whether a text is a random name, as in a marker.
pub(crate) fn is_random_name(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}
