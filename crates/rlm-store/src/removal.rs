//! Selects runs for removal, and removes their files.

use std::path::Path;
use std::time::{Duration, SystemTime};

use checkpoint_store::reader::{self, WriterLockout};
use serde::Serialize;
use uuid::Uuid;

use crate::transcript::{self, RemovedTranscripts, files};
use crate::{Error, Project, RunEntry, RunId, RunState, state_dir, timestamp, transfer};

/// The prefix of a directory that is being removed.
const REMOVING_PREFIX: &str = "removed-";
/// A directory with this prefix and at least this age belongs to no running removal.
const OLD: Duration = Duration::from_secs(60);

/// The rules by which runs are removed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemovalRules {
    /// A run whose last event is more recent than this is kept.
    pub age: Duration,
    /// Whether the user named the runs to remove.
    pub named: bool,
    /// Whether resumable and damaged runs are removed too.
    pub all: bool,
    /// Whether only transcripts are removed, and the state is kept.
    pub transcripts: bool,
}

/// Why a run is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeepReason {
    /// A process works on it.
    Live,
    /// It can be resumed.
    Resumable,
    /// No valid data can be read.
    Damaged,
    /// It was transferred and continues elsewhere.
    Transferred,
    /// It has no transcripts.
    Bare,
    /// Its last event is too recent.
    Young,
    /// It is one of the newest runs, which are kept.
    Newest,
}

impl RemovalRules {
    /// Returns why a run with its last event `age` ago is kept; `None` if it is removed.
    #[must_use]
    pub fn keep(&self, run: &RunEntry, has_transcripts: bool, age: Duration) -> Option<KeepReason> {
        let end = run.head.as_ref().ok();
        let end = end.and_then(|head| head.machine.end.as_ref());
        match run.state {
            _ if run.is_live() => Some(KeepReason::Live),
            _ if self.transcripts && !has_transcripts => Some(KeepReason::Bare),
            _ if age < self.age => Some(KeepReason::Young),
            _ if self.all => None,
            RunState::Damaged if self.named => None,
            RunState::Damaged => Some(KeepReason::Damaged),
            // The state stays, so the run can still be resumed.
            RunState::Stopped | RunState::Crashed | RunState::Ended if self.transcripts => None,
            RunState::Ended if end.is_some_and(|end| end.reason.is_final()) => None,
            RunState::Transferred if self.named => None,
            RunState::Transferred => Some(KeepReason::Transferred),
            RunState::Empty => None,
            _ => Some(KeepReason::Resumable),
        }
    }
}

impl Project {
    /// Removes a run permanently: its state, its transcripts, everything in its directory. Its worktree and branch stay.
    ///
    /// Moves the directory aside first, so that no reader finds half a run. Also removes the rest of an earlier interrupted removal.
    ///
    /// # Errors
    ///
    /// [`Error::is_held`] if a process works on the run, [`Error::is_not_found`] if there is no such run; another error if one of its processes is
    /// alive, because without the state nothing could find that process.
    pub fn remove(&self, run: &RunId) -> Result<(), Error> {
        let dir = self.existing(run)?;
        let fail = |e| Error::io("can't remove", &dir, e);
        let is_dir = state_dir::metadata(&dir).map_err(fail)?.is_dir();
        // Hold this lock over the rename: a process that opens the run now gets an error, and a later one doesn't find it.
        let _kept_out = match is_dir {
            true => self.lock_out_writers(run, &dir)?,
            false => None,
        };
        let alive = self.processes_of(run);
        if !alive.is_empty() {
            return Err(Error::processes_alive(run.clone(), &alive));
        }
        let name = format!("{REMOVING_PREFIX}{}", Uuid::new_v4().simple());
        let aside = self.state_dir().join(name);
        state_dir::rename(&dir, &aside).map_err(fail)?;
        state_dir::remove_tree(&aside).map_err(fail)?;
        self.remove_interrupted_transfers();
        Ok(())
    }

    /// Removes the files of killed removals, exports and imports, but not those of running ones. Blocks.
    pub fn remove_interrupted_transfers(&self) {
        transfer::sweep(self);
        for path in state_dir::entries(&self.state_dir()).unwrap_or_default() {
            let name = path.file_name().and_then(|name| name.to_str());
            if !name.is_some_and(|name| name.starts_with(REMOVING_PREFIX)) {
                continue;
            }
            // The time of the rename.
            let moved = state_dir::metadata(&path).map(|meta| meta.changed());
            let age = moved.ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > OLD) {
                // The next removal tries again.
                let _stays = state_dir::remove_tree(&path);
            }
        }
    }

    /// Removes the transcripts of a run and keeps its state: the run can be resumed as before. Records the removal, and that `by` did it.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn remove_transcripts(&self, run: &RunId, by: &str) -> Result<(), Error> {
        let dir = self.existing(run)?;
        let _kept_out = self.lock_out_writers(run, &dir)?;
        let place = dir.join(transcript::FOLDER);
        let fail = |e| Error::io("can't remove", &place, e);
        let all = files(&dir).map_err(fail)?;
        RemovedTranscripts::note(&dir, timestamp(SystemTime::now()), by).map_err(fail)?;
        all.into_iter()
            .try_for_each(|path| state_dir::remove_file(&path).map_err(fail))
    }

    /// Returns whether a run has transcripts or unfinished transcript files.
    #[must_use]
    pub fn has_transcripts(&self, run: &RunId) -> bool {
        files(&self.run_dir(run)).is_ok_and(|files| !files.is_empty())
    }

    /// Locks the run against writers until the returned value is dropped.
    fn lock_out_writers(&self, run: &RunId, dir: &Path) -> Result<Option<WriterLockout>, Error> {
        match reader::lock_out_writers(dir) {
            Err(e) if e.is_locked() => Err(Error::held(dir, self.holder(run))),
            // A run that can't be locked, for example on a full disk, can be removed.
            kept_out => Ok(kept_out.ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_drivers::AgentConfig;
    use loop_state::{
        Head, Machine, MachineInput, ProcessTreeOutcome, StopCause, StopRequest, StopTiming,
        TimedInput, TurnOutcome,
    };

    use super::*;
    use crate::journal::Journal;
    use crate::{PhaseSettings, PromptSource, RunHead, Settings};

    #[test]
    fn only_what_the_rules_allow_is_removed() {
        use KeepReason::{Bare, Damaged, Live, Resumable, Transferred, Young};
        let plain = RemovalRules::default();
        let named = RemovalRules {
            named: true,
            ..plain
        };
        let all = RemovalRules { all: true, ..plain };
        let transcripts = RemovalRules {
            transcripts: true,
            ..plain
        };
        for (state, kept) in [
            (RunState::Running, [Some(Live); 4]),
            (RunState::Paused, [Some(Live); 4]),
            (
                RunState::Stopped,
                [Some(Resumable), Some(Resumable), None, None],
            ),
            (
                RunState::Crashed,
                [Some(Resumable), Some(Resumable), None, None],
            ),
            (
                RunState::Damaged,
                [Some(Damaged), None, None, Some(Damaged)],
            ),
            (
                RunState::Transferred,
                [Some(Transferred), None, None, Some(Transferred)],
            ),
            (RunState::Empty, [None; 4]),
        ] {
            let run = RunEntry {
                id: "r1".parse().unwrap(),
                state,
                head: Err("not read".into()),
                notes: Vec::new(),
                loss: None,
                last_at: loop_state::Timestamp::from_millis(0),
            };
            let rules = [plain, named, all, transcripts];
            assert_eq!(
                rules.map(|it| it.keep(&run, true, Duration::ZERO)),
                kept,
                "{state:?}"
            );
            if !state.is_live() {
                assert_eq!(transcripts.keep(&run, false, OLD), Some(Bare));
                let young = RemovalRules { age: OLD, ..all };
                assert_eq!(young.keep(&run, true, OLD / 2), Some(Young));
                assert_eq!(young.keep(&run, true, OLD), None);
            }
        }
    }

    /// Returns the head of a new run.
    fn new_head(project: &Project, run: &RunId) -> RunHead {
        let agent = AgentConfig::command(vec!["agent".into()]);
        let mut phase = PhaseSettings::new("main", PromptSource::Text("Do it.".into()), agent);
        phase.limits.max_iterations = Some(1);
        let settings = Settings::new(project.root(), vec![phase]);
        let machine = Head::new(settings.rules()).unwrap();
        RunHead::new(run.clone(), machine, settings)
    }

    #[test]
    fn ended_run_is_removed_only_if_nothing_is_left_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::find(dir.path()).unwrap();
        let id: RunId = "r1".parse().unwrap();
        let stop = StopRequest {
            by: StopCause::Person,
            when: StopTiming::Now,
        };
        for (what, kept) in [
            (
                MachineInput::StopRequested(stop),
                Some(KeepReason::Resumable),
            ),
            (MachineInput::TurnEnded(TurnOutcome::Completed), None),
        ] {
            let mut head = new_head(&project, &id);
            let mut machine = Machine::from(head.machine.clone());
            let at = loop_state::Timestamp::from_millis(1);
            let ended = MachineInput::LeftoversEnded(ProcessTreeOutcome::default());
            let stopped = MachineInput::TurnEnded(TurnOutcome::Stopped);
            for what in [MachineInput::Started, what, stopped, ended] {
                machine.step(TimedInput { at, what });
            }
            head.machine = machine.head().clone();
            assert!(head.machine.end.is_some());
            let run = RunEntry {
                id: id.clone(),
                state: RunState::Ended,
                head: Ok(head),
                notes: Vec::new(),
                loss: None,
                last_at: at,
            };
            let rules = RemovalRules::default();
            assert_eq!(rules.keep(&run, true, Duration::ZERO), kept);
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn run_with_a_live_process_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::find(dir.path()).unwrap();
        let run: RunId = "r1".parse().unwrap();
        let (mut journal, _) = Journal::open(&project, &run, true).unwrap();
        journal.save(&new_head(&project, &run)).await.unwrap();
        drop(journal);
        let scope = crate::sweep::scope_of(&project, &run).unwrap();
        let mut left = std::process::Command::new("sleep")
            .arg("600")
            .env(crate::marker_variable(), format!("{scope}.1.1"))
            .spawn()
            .unwrap();
        let refused = project.remove(&run).unwrap_err().to_string();
        left.kill().unwrap();
        left.wait().unwrap();
        assert!(refused.contains(&left.id().to_string()), "{refused}");
        assert!(project.run_dir(&run).exists());
        project.remove(&run).unwrap();
    }

    #[test]
    fn s20j_held_run_is_not_removed_and_others_are_removed_completely() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::find(dir.path()).unwrap();
        let run: RunId = "r1".parse().unwrap();
        let (journal, _) = Journal::open(&project, &run, true).unwrap();
        fs_err::create_dir(project.run_dir(&run).join("transcripts")).unwrap();
        fs_err::write(project.run_dir(&run).join("transcripts/1-1.ndjson"), "x").unwrap();
        assert!(project.disk_usage(&run).transcripts >= 512);
        assert!(project.remove(&run).unwrap_err().is_held());
        assert!(
            project
                .run_dir(&run)
                .join("transcripts/1-1.ndjson")
                .exists()
        );
        drop(journal);
        // The directory of another removal, which may still be running.
        let other = dir.path().join(".rlm").join(format!("{REMOVING_PREFIX}x"));
        fs_err::create_dir(&other).unwrap();
        project.remove(&run).unwrap();
        assert!(!project.run_dir(&run).exists() && other.exists());
        assert!(project.remove(&run).unwrap_err().is_not_found());
        assert_eq!(project.runs().unwrap().len(), 0);
    }

    #[test]
    fn s20h_s20j_foreign_directories_are_removed_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::find(dir.path()).unwrap();
        fs_err::create_dir_all(project.runs_dir()).unwrap();
        let other = dir.path().join("other");
        fs_err::create_dir(&other).unwrap();
        fs_err::write(other.join("precious"), "x").unwrap();
        let [file, link]: [RunId; 2] = ["file", "link"].map(|name| name.parse().unwrap());
        fs_err::write(project.run_dir(&file), "no run").unwrap();
        std::os::unix::fs::symlink(&other, project.run_dir(&link)).unwrap();
        project.remove(&file).unwrap();
        project.remove(&link).unwrap();
        assert!(other.join("precious").exists());
        assert_eq!(project.runs().unwrap().len(), 0);
    }
}
