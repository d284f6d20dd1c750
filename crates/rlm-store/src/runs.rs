//! The runs of a project on disk, read without a lock.

use std::path::{Path, PathBuf};

use checkpoint_store::verify::{FileCondition, NextAction, verify};
use checkpoint_store::{Folded, Options, reader};
use loop_state::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::store_problem;
use crate::settings::{MAX_PROMPT, read_prompt};
use crate::state_dir::Metadata;
use crate::{
    DataLoss, Error, PhaseSettings, Project, PromptSource, RunHead, RunId, state_dir, transcript,
};

/// The schema of a run's head and events. A reader of another version returns an error that names both versions.
const SCHEMA: &str = "rlm-run";
const SCHEMA_VERSION: u32 = 1;

/// Returns the options to open the store of a run, and to create it if `create` is set.
pub(crate) fn options(create: bool) -> Options {
    Options {
        schema: SCHEMA.into(),
        schema_version: SCHEMA_VERSION,
        create,
        ..Options::default()
    }
}

/// Returns an error if a store can't be transferred: it must have no damage at all.
pub(crate) fn refuse_damaged(dir: &Path) -> Result<(), String> {
    let found = verify(dir).map_err(|e| e.to_string())?;
    let is_whole = |condition: &FileCondition| {
        matches!(condition, FileCondition::Valid | FileCondition::Torn { .. })
    };
    if let Some(file) = found.files.iter().find(|file| !is_whole(&file.condition)) {
        return Err(format!("{}: {}", file.name, file.condition));
    }
    match found.next {
        NextAction::Resume { .. } => Ok(()),
        other => Err(other.to_string()),
    }
}

/// The state of a run, as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// A process works on it now.
    Running,
    /// A process works on it and waits for a person.
    Paused,
    /// It was stopped and can be resumed.
    Stopped,
    /// Its process died; it can be resumed.
    Crashed,
    /// It ended for another reason.
    Ended,
    /// It was transferred and continues elsewhere.
    Transferred,
    /// Its process died before the first save: nothing began.
    Empty,
    /// No valid data can be read.
    Damaged,
}

impl RunState {
    /// Returns whether a process works on the run.
    #[must_use]
    pub fn is_live(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }

    /// Returns the state of a run with a readable head. `is_live` is whether a process works on it.
    #[must_use]
    pub fn of(head: &RunHead, is_live: bool) -> Self {
        match &head.machine.end {
            _ if is_live && head.machine.awaits_person() => Self::Paused,
            _ if is_live => Self::Running,
            _ if head.transfer.is_some() => Self::Transferred,
            None if head.machine.stopping.is_some() || head.is_untouched() => Self::Stopped,
            None => Self::Crashed,
            Some(end) if end.reason.is_stopped() => Self::Stopped,
            Some(_) => Self::Ended,
        }
    }
}

/// One run on disk.
#[derive(Debug)]
pub struct RunEntry {
    /// The name of the run.
    pub id: RunId,
    /// The state of the run.
    pub state: RunState,
    /// The saved head, or why it can't be read.
    pub head: Result<RunHead, String>,
    /// The current and earlier damage, one line each.
    pub notes: Vec<String>,
    /// The data that a resume can't restore because the state is damaged; not known for a live run.
    pub loss: Option<DataLoss>,
    /// The time of the last activity: the last save, or the last change of the directory if nothing can be read.
    pub last_at: Timestamp,
}

impl RunEntry {
    /// Returns whether a process works on the run.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.state.is_live()
    }

    /// Returns whether a plain resume has something to do.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        matches!(self.state, RunState::Stopped | RunState::Crashed)
    }

    /// Returns whether a person stopped it or is stopping it, so that only a person may resume it.
    #[must_use]
    pub fn is_stopped_by_person(&self) -> bool {
        let head = self.head.as_ref();
        head.is_ok_and(|head| head.machine.was_stopped_by_a_person())
    }
}

impl Project {
    /// Lists the runs by the time of their last activity, the newest last; runs with equal times by name. Lists damaged runs as such, and no
    /// directories that are not runs.
    ///
    /// Every selection of "the newest" run takes the last one of this list.
    ///
    /// # Errors
    ///
    /// An error if the directory of the runs can't be read. If it doesn't exist, the list is empty.
    pub fn runs(&self) -> Result<Vec<RunEntry>, Error> {
        let ids = self.run_ids()?.into_iter();
        let mut runs: Vec<RunEntry> = ids.map(|id| self.entry(id)).collect();
        runs.sort_by(|a, b| (a.last_at, &a.id).cmp(&(b.last_at, &b.id)));
        Ok(runs)
    }

    /// Finds the runs that a person can mean by `name`: the run with this id; or else all runs whose id begins or ends with it; or else, for `last`,
    /// the run that was active last.
    ///
    /// # Errors
    ///
    /// An error if the directory of the runs can't be read. If no run matches, the list is empty.
    pub fn matching_runs(&self, name: &str) -> Result<Vec<RunId>, Error> {
        let mut ids = self.run_ids()?;
        if let Some(whole) = ids.iter().find(|id| id.as_str() == name) {
            return Ok(vec![whole.clone()]);
        }
        ids.retain(|id| id.as_str().starts_with(name) || id.as_str().ends_with(name));
        if ids.is_empty() && name == "last" {
            ids.extend(self.runs()?.pop().map(|run| run.id));
        }
        ids.sort();
        Ok(ids)
    }

    /// Returns the names of all runs, in no order. Reads no run.
    ///
    /// # Errors
    ///
    /// An error if the directory of the runs can't be read. If it doesn't exist, the list is empty.
    pub fn run_ids(&self) -> Result<Vec<RunId>, Error> {
        let dir = self.runs_dir();
        let entries = state_dir::entries_if_any(&dir);
        let entries = entries.map_err(|e| Error::io("can't read", &dir, e))?;
        let ids = entries.iter();
        Ok(ids
            .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
            .collect())
    }

    /// Returns whether a process works on the run. Reads only its lock.
    #[must_use]
    pub fn is_live(&self, id: &RunId) -> bool {
        reader::is_locked(self.run_dir(id)).unwrap_or(false)
    }

    /// Reads one run.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] if there is no run of that name.
    pub fn run(&self, id: &RunId) -> Result<RunEntry, Error> {
        self.existing(id)?;
        Ok(self.entry(id.clone()))
    }

    /// Returns the last stored prompt text of each phase; if it is lost, the current text of its file.
    ///
    /// # Errors
    ///
    /// An error if a prompt that comes from no file is lost.
    pub fn prompts(&self, head: &RunHead) -> Result<Vec<String>, Error> {
        let phases = head.settings.phases.iter().enumerate();
        let text = |(index, phase): (usize, &PhaseSettings)| {
            let kept = head.prompts.get(index);
            let kept = kept.map(|blob| prompt(self, &head.run, blob));
            match (kept, &phase.prompt) {
                (Some(Ok(text)), _) => Ok(text),
                (_, PromptSource::File(path)) => read_prompt(path),
                // A prompt that is too large keeps its own error, because it is not lost.
                (Some(Err(e)), _) => Err(e),
                (None, _) => Err(Error::prompt_lost(head.run.clone())),
            }
        };
        phases.map(text).collect()
    }

    /// Returns the directory of an existing run. Reads no file of the run.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] if there is no run of that name.
    pub fn existing(&self, id: &RunId) -> Result<PathBuf, Error> {
        let dir = self.run_dir(id);
        // If it is not a directory, the store reports that.
        match state_dir::metadata(&dir) {
            Ok(_) => Ok(dir),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::no_such_run(id.clone(), &self.runs_dir()))
            }
            Err(e) => Err(Error::io("can't read", &dir, e)),
        }
    }

    fn entry(&self, id: RunId) -> RunEntry {
        let dir = self.run_dir(&id);
        let live = self.is_live(&id);
        let loaded = reader::head::<RunHead>(&dir, &options(false));
        let is_empty =
            loaded.as_ref().is_ok_and(|loaded| loaded.head.is_none()) && !was_begun(&dir);
        let mut loss = None;
        let (head, notes) = match loaded {
            Ok(Folded {
                head: Some(head),
                seq,
                report,
                ..
            }) => {
                if !live {
                    loss = DataLoss::detect(&dir, &head.machine, seq, &report);
                }
                let past = head.losses.iter();
                let past = past.map(|loss| {
                    format!(
                        "the state was damaged, and the run continued from an older save: {loss}"
                    )
                });
                let notes = match &loss {
                    Some(loss) => past
                        .chain([format!("the state is damaged: {loss}")])
                        .collect(),
                    None => past
                        .chain(report.skipped.iter().map(ToString::to_string))
                        .collect(),
                };
                (Ok(head), notes)
            }
            Ok(loaded) => {
                let skipped = loaded.report.skipped.iter().map(ToString::to_string);
                let why = match is_empty {
                    true => "nothing was saved yet",
                    false => "the state is missing, and only transcripts are left",
                };
                (Err(why.to_owned()), skipped.collect())
            }
            Err(e) => (Err(store_problem(&e)), Vec::new()),
        };
        let state = match &head {
            Ok(head) => RunState::of(head, live),
            Err(_) if live => RunState::Running,
            Err(_) if is_empty => RunState::Empty,
            Err(_) => RunState::Damaged,
        };
        let last_at = match &head {
            Ok(head) => head.machine.last_at,
            Err(_) => changed_at(&dir),
        };
        RunEntry {
            id,
            state,
            head,
            notes,
            loss,
            last_at,
        }
    }
}

/// Returns the time of a directory's last change, if it is known.
fn changed_at(dir: &Path) -> Timestamp {
    let changed = state_dir::metadata(dir).map(Metadata::modified);
    changed.map(Timestamp::from).unwrap_or_default()
}

/// Returns whether an attempt began. The run saves before its first attempt, so a missing state was lost.
fn was_begun(run_dir: &Path) -> bool {
    state_dir::exists(&run_dir.join(transcript::FOLDER))
}

/// Returns why a run has no saved state.
pub fn nothing_saved(project: &Project, id: &RunId) -> Error {
    match was_begun(&project.run_dir(id)) {
        true => Error::state_gone(id.clone()),
        false => Error::nothing_saved(id.clone()),
    }
}

/// Returns whether a run of that name exists. A run whose process died before the first save doesn't exist yet; a new process takes its store's lock.
pub fn exists(project: &Project, id: &RunId) -> bool {
    project
        .run(id)
        .is_ok_and(|run| run.state != RunState::Empty)
        || project.existing(id).is_err_and(|e| !e.is_not_found())
}

pub(crate) fn prompt(project: &Project, id: &RunId, name: &str) -> Result<String, Error> {
    let dir = project.run_dir(id);
    let bytes = reader::blob(dir, name, MAX_PROMPT);
    let bytes = bytes.map_err(|e| match e.is_not_found() {
        true => Error::prompt_lost(id.clone()),
        false => Error::store(id, "read", e),
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
