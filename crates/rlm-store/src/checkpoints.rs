//! The saved states of a run, and the states that the run can return to.

use checkpoint_store::verify::{Verification, verify};
use checkpoint_store::{LoadReport, PhaseInfo, Seq, reader};
use loop_state::{Head, IterationStep, TimedInput, Timestamp, UnfinishedCause};

use crate::git::GitError;
use crate::git::changes::Changes;
use crate::runs::options;
use crate::{Committed, Error, Hint, Project, RunHead, RunId, runs};

/// The saved states of a run: one for each phase, and one for each attempt.
#[derive(Debug)]
pub struct Checkpoints {
    /// The finished phases, newest first.
    pub phases: Vec<PhaseInfo>,
    /// The recorded attempts, oldest first.
    pub attempts: Vec<AttemptRecord>,
}

/// One attempt of an iteration, from the saves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRecord {
    /// The index of the phase.
    pub phase: u32,
    /// The name of the phase.
    pub phase_name: String,
    /// The number of the iteration.
    pub iteration: u32,
    /// The number of the attempt.
    pub attempt: u32,
    /// The first save of the attempt.
    pub first: Seq,
    /// The save that has the outcome of the attempt; while the attempt is open, its latest save. The same save may have the beginning of the next
    /// attempt.
    pub last: Seq,
    /// The time of the last event before [`last`](Self::last).
    pub at: Timestamp,
    /// The outcome of the attempt.
    pub outcome: AttemptOutcome,
    /// The commit with the work of the attempt, if the run commits.
    pub commit: Option<String>,
    /// Whether the run later returned to an earlier state, so that the attempt does not count.
    pub discarded: bool,
    /// The number of complete iterations of the run at the first save of the attempt.
    complete_before: u32,
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// No outcome yet: the attempt runs, or its process died.
    Open,
    /// The turn ended; the required checks and the check decide next whether the iteration is complete.
    Checking,
    /// The iteration is complete.
    Complete,
    /// The iteration is complete, and failed.
    Failed(String),
    /// The attempt is unfinished; the cause, if it is known.
    Unfinished(Option<UnfinishedCause>),
}

/// Selects a state of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StateSelector {
    /// The newest state.
    #[default]
    Newest,
    /// The state of a save.
    AtSave(Seq),
    /// The state with the outcome of an iteration, in the latest phase that has an iteration of this number.
    AtIteration(u32),
}

/// One state of a run.
#[derive(Debug)]
pub struct SavedState {
    /// The saved head.
    pub head: RunHead,
    /// All events before the save, oldest first.
    pub events: Vec<TimedInput>,
    /// The number of the save.
    pub save: Seq,
    /// The source of the state, and the damage.
    pub report: LoadReport,
}

impl Project {
    /// Lists the saved states of a run. Writes nothing, and works for a live run.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] if there is no such run; other errors if its directory can't be read, or a newer version wrote it. Damage is no error.
    pub fn checkpoints(&self, run: &RunId) -> Result<Checkpoints, Error> {
        let dir = self.existing(run)?;
        let unread = |e| Error::store(run, "read", e);
        let phases = reader::phases(&dir).map_err(unread)?;
        let mut attempts = Vec::new();
        reader::history(&dir, &options(false), |save, head: RunHead| {
            record(&mut attempts, save, &head.machine);
            note_commit(&mut attempts, head.committed);
        })
        .map_err(unread)?;
        Ok(Checkpoints { phases, attempts })
    }

    /// Reads one state of a run. Writes nothing, and works for a live run.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] if there is no such run, or the state is not stored; other errors if it can't be read.
    pub fn state_at(&self, run: &RunId, place: StateSelector) -> Result<SavedState, Error> {
        let dir = self.existing(run)?;
        let unread = |e| Error::store(run, "read", e);
        let save = match place {
            StateSelector::Newest => None,
            StateSelector::AtSave(save) => Some(save),
            StateSelector::AtIteration(number) => {
                let rows = self.checkpoints(run)?.attempts.into_iter().rev();
                let mut rows = rows.filter(|row| row.iteration == number).peekable();
                let discarded = rows.peek().map(|row| row.last);
                let row = rows.find(|row| !row.discarded);
                let unknown = || {
                    match discarded {
                    Some(save) => Error::not_transferable(
                        run,
                        format!(
                            "returned to a state before iteration {number}, so that iteration no longer counts; to see it, show save {save}"
                        ),
                    )
                    .with_hint(Hint::ShowState {
                        run: run.clone(),
                        save: save.get(),
                    }),
                    None => Error::no_such_state(run, format!("iteration {number}")),
                }
                };
                Some(row.ok_or_else(unknown)?.last)
            }
        };
        let options = options(false);
        let loaded = match save {
            None => reader::load_with(&dir, &options).map_err(unread)?,
            Some(save) => match reader::load_at(&dir, save, &options) {
                Err(e) if e.is_not_found() => {
                    return Err(Error::no_such_state(run, format!("save {save}")));
                }
                loaded => loaded.map_err(unread)?,
            },
        };
        let head = loaded.head;
        Ok(SavedState {
            head: head.ok_or_else(|| runs::nothing_saved(self, run))?,
            events: loaded.events,
            save: loaded.seq,
            report: loaded.report,
        })
    }

    /// Reads every byte of a run's store. Writes nothing, and works for a live run.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] if there is no such run; other errors if its directory, or a file in it, can't be read. Damage is no error.
    pub fn verify(&self, run: &RunId) -> Result<Verification, Error> {
        verify(self.existing(run)?).map_err(|e| Error::store(run, "verified", e))
    }

    /// Returns the commit that the working tree is based on; `None` outside git.
    #[must_use]
    pub fn head_commit(&self) -> Option<String> {
        self.git().head_commit_now()
    }

    /// Returns the changed files of a commit with their numbers of lines; `None` if git doesn't have the commit or doesn't respond soon.
    #[must_use]
    pub fn commit_stat(&self, commit: &str) -> Option<String> {
        self.git().diff_stat(commit)
    }

    /// Returns the changes of a commit since an earlier commit, or else since its first parent. Blocks for some seconds at most.
    ///
    /// # Errors
    ///
    /// An error if the repository is gone or doesn't have the commits, or if git doesn't respond in time.
    pub fn commit_changes(&self, before: Option<&str>, commit: &str) -> Result<Changes, GitError> {
        self.git().commit_changes(before, commit)
    }
}

/// Adds a save to the records of the attempts.
fn record(rows: &mut Vec<AttemptRecord>, save: Seq, head: &Head) {
    if head.iteration > 0 {
        let is_behind = |row: &&mut AttemptRecord| {
            let is_over = matches!(
                row.outcome,
                AttemptOutcome::Complete | AttemptOutcome::Failed(_)
            );
            is_over
                && row.phase == head.phase
                && row.iteration >= head.iteration
                && row.attempt < head.first_attempt
        };
        rows.iter_mut()
            .filter(is_behind)
            .for_each(|row| row.discarded = true);
    }
    let is_present = |row: &AttemptRecord| {
        (row.phase, row.iteration, row.attempt) == (head.phase, head.iteration, head.attempt)
    };
    if let Some(row) = rows.last_mut() {
        let (present, now) = (is_present(row), outcome(row, is_present(row), head));
        if row.outcome != now
            || (present && matches!(now, AttemptOutcome::Open | AttemptOutcome::Checking))
        {
            row.last = save;
            row.at = head.last_at;
            row.outcome = now;
        }
        if present {
            return;
        }
    }
    if head.iteration == 0 || head.attempt == 0 {
        return;
    }
    let mut row = AttemptRecord {
        phase: head.phase,
        phase_name: head.phase_rules().name.clone(),
        iteration: head.iteration,
        attempt: head.attempt,
        first: save,
        last: save,
        at: head.last_at,
        outcome: AttemptOutcome::Open,
        commit: None,
        discarded: false,
        complete_before: head.counts.iterations,
    };
    row.outcome = outcome(&row, true, head);
    rows.push(row);
}

fn note_commit(rows: &mut [AttemptRecord], committed: Option<Committed>) {
    let Some(committed) = committed else {
        return;
    };
    let at = (committed.phase, committed.iteration, committed.attempt);
    // The commit belongs to the newest attempt, or to the one before it.
    let is_it = |row: &&mut AttemptRecord| (row.phase, row.iteration, row.attempt) == at;
    if let Some(row) = rows.iter_mut().rev().take(2).find(is_it) {
        row.commit = Some(committed.commit);
    }
}

/// Returns whether an iteration is complete and the next one has not begun.
fn is_between(head: &Head) -> bool {
    matches!(
        head.step,
        IterationStep::Sleeping { .. }
            | IterationStep::Paused { .. }
            | IterationStep::Review { .. }
    )
}

/// Returns the outcome of an attempt at this save; `is_present` is set if the attempt is the current one of the save.
fn outcome(row: &AttemptRecord, is_present: bool, head: &Head) -> AttemptOutcome {
    if matches!(
        row.outcome,
        AttemptOutcome::Complete | AttemptOutcome::Failed(_)
    ) {
        return row.outcome.clone();
    }
    // The iteration's number alone is not enough, because each phase counts from 1.
    let is_complete =
        head.counts.iterations > row.complete_before || (is_present && is_between(head));
    let last = head.last_iteration.as_ref().filter(|_| is_complete);
    if let Some(last) = last.filter(|last| last.iteration == row.iteration) {
        return match &last.failure {
            None => AttemptOutcome::Complete,
            Some(why) => AttemptOutcome::Failed(why.clone()),
        };
    }
    let unfinished = head
        .unfinished
        .filter(|unfinished| unfinished.attempt == row.attempt);
    match (unfinished, is_present) {
        (Some(unfinished), _) => AttemptOutcome::Unfinished(Some(unfinished.cause)),
        (None, true) if head.is_checking() => AttemptOutcome::Checking,
        (None, true) => AttemptOutcome::Open,
        (None, false) => match row.outcome {
            AttemptOutcome::Open | AttemptOutcome::Checking => AttemptOutcome::Unfinished(None),
            _ => row.outcome.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loop_state::{
        Effect, Machine, MachineInput, PauseAfter, PhaseRules, ProcessTreeOutcome, RedoScope,
        Request, ResumeOptions, Rules, RunLimits, StopCause, StopRequest, StopTiming, TurnOutcome,
    };
    use proptest::prelude::*;
    use std::time::Duration;

    fn phase(name: &str) -> PhaseRules {
        let mut phase = PhaseRules {
            name: name.into(),
            ..PhaseRules::default()
        };
        phase.limits.max_iterations = Some(2);
        phase
    }

    /// Returns the rows after these machine inputs, all in the same millisecond.
    fn rows(inputs: impl IntoIterator<Item = MachineInput>) -> Vec<AttemptRecord> {
        let rules = Rules {
            phases: vec![phase("plan"), phase("build")],
            limits: RunLimits {
                sleep: Duration::ZERO,
                ..RunLimits::default()
            },
            ..Rules::default()
        };
        let mut machine = Machine::from(Head::new(rules).unwrap());
        let (mut rows, mut save) = (Vec::new(), 0);
        let mut due = Vec::new();
        for what in std::iter::once(MachineInput::Started).chain(inputs) {
            due.push(what);
            while let Some(what) = due.pop() {
                let at = Timestamp::from_millis(7);
                for effect in machine.step(TimedInput { at, what }) {
                    match effect {
                        Effect::Save | Effect::SavePhase { .. } => {
                            save += 1;
                            record(&mut rows, Seq::new(save), machine.head());
                        }
                        Effect::EndLeftovers => {
                            due.push(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()))
                        }
                        _ => {}
                    }
                }
                due.extend(machine.due_input(at));
            }
        }
        rows
    }

    fn ended(outcome: TurnOutcome) -> MachineInput {
        MachineInput::TurnEnded(outcome)
    }

    fn stop() -> MachineInput {
        let (by, when) = (StopCause::Person, StopTiming::Now);
        MachineInput::StopRequested(StopRequest { by, when })
    }

    #[test]
    fn each_attempt_is_one_row_with_its_outcome() {
        let rows = rows([
            ended(TurnOutcome::Failed("it broke".into())),
            stop(),
            ended(TurnOutcome::Stopped),
            MachineInput::Resumed(ResumeOptions::default()),
            ended(TurnOutcome::Completed),
            ended(TurnOutcome::Completed),
            MachineInput::Resumed(ResumeOptions::default()),
        ]);
        let shown = rows.iter().map(|row| {
            let AttemptRecord {
                phase_name,
                iteration,
                attempt,
                first,
                last,
                outcome: now,
                ..
            } = row;
            format!("{phase_name} {iteration}.{attempt}, saves {first} to {last}: {now:?}")
        });
        insta::assert_snapshot!(shown.collect::<Vec<_>>().join("\n"), @r#"
        plan 1.1, saves 1 to 3: Failed("it broke")
        plan 2.1, saves 3 to 5: Unfinished(Some(Stop))
        plan 2.2, saves 6 to 8: Complete
        build 1.3, saves 9 to 11: Complete
        build 2.3, saves 11 to 12: Unfinished(Some(ProcessDied))
        build 2.4, saves 12 to 12: Open
        "#);
    }

    fn anything() -> impl Strategy<Value = MachineInput> {
        prop_oneof![
            4 => Just(ended(TurnOutcome::Completed)),
            2 => Just(ended(TurnOutcome::Failed("it broke".into()))),
            1 => Just(ended(TurnOutcome::Stopped)),
            1 => Just(ended(TurnOutcome::Transient("again".into()))),
            1 => Just(stop()),
            1 => Just(MachineInput::Requested(Request::Redo { what: RedoScope::Iteration})),
            1 => Just(MachineInput::Requested(Request::Redo { what: RedoScope::Phase})),
            1 => Just(MachineInput::Requested(Request::Pause { reason: None, after: PauseAfter::Iteration })),
            1 => Just(MachineInput::Requested(Request::Continue)),
            1 => Just(MachineInput::Requested(Request::Skip)),
            2 => (0u32..3).prop_map(|from| MachineInput::Resumed(ResumeOptions {
                from_iteration: (from > 0).then_some(from),
                ..ResumeOptions::default()
            })),
        ]
    }

    proptest! {
        /// For any inputs, attempts are listed once, in the order of their saves, and only the last one can be open.
        #[test]
        fn only_the_last_row_is_open_and_rows_are_ordered(inputs in prop::collection::vec(anything(), 0..40)) {
            let rows = rows(inputs);
            for pair in rows.windows(2) {
                prop_assert!(pair[0].first < pair[1].first && pair[0].last <= pair[1].last, "{pair:?}");
                prop_assert!(pair[0].first <= pair[0].last && pair[0].last <= pair[1].first, "{pair:?}");
                prop_assert!(!matches!(pair[0].outcome, AttemptOutcome::Open | AttemptOutcome::Checking), "{pair:?}");
            }
            let mut keys: Vec<_> = rows.iter().map(|row| (row.iteration, row.attempt)).collect();
            keys.sort_unstable();
            keys.dedup();
            prop_assert_eq!(keys.len(), rows.len());
        }
    }
}
