//! The output of `rlm checkpoints list`: the finished phases of a run, its attempts since, and their damage.

use std::fmt;

use checkpoint_store::PhaseInfo;
use checkpoint_store::verify::{FileCondition, NextAction};
use loop_state::UnfinishedCause;
use rlm_store::{AttemptOutcome, AttemptRecord, PhaseFacts, Project, RunEntry, RunState};
use rlm_text::bytes::show as size;
use rlm_text::count;
use rlm_text::escape::plain;
use rlm_text::time::utc;
use serde::Serialize;

use crate::render::Phases;
use crate::render::lines::{age, ago, stamp};

/// The number of digits that are shown of a commit.
const SHORT: usize = 12;

/// Everything that is saved of one run.
#[derive(Debug, Serialize)]
pub(crate) struct List {
    run: String,
    state: RunState,
    health: Health,
    locked: bool,
    resumable: bool,
    finished: bool,
    bytes: u64,
    /// The position of the run in the pipeline; `None` if the state can't be read.
    position: Option<Phases>,
    phases: Vec<Phase>,
    attempts: Vec<Row>,
    /// Notes about damage, and about the state that is used instead.
    notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Health {
    Valid,
    Empty,
    /// A file is damaged, but a state can be read.
    Damaged,
    Unreadable,
}

#[derive(Debug, Serialize)]
struct Phase {
    id: String,
    phase: String,
    save: u64,
    at: String,
    age_s: u64,
    errors: Vec<String>,
    git_commit: Option<String>,
    git_dirty: Option<bool>,
    /// Whether the working tree is at another commit now; `None` if one of the commits is unknown.
    commit_changed: Option<bool>,
    finished: bool,
    damage: Option<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    phase: String,
    iteration: u32,
    attempt: u32,
    save: u64,
    first_save: u64,
    at: String,
    age_s: u64,
    outcome: &'static str,
    reason: Option<String>,
    /// The commit with its changes, for a run with --commit.
    git_commit: Option<String>,
    /// Whether a resume discarded it.
    discarded: bool,
}

impl List {
    /// Reads every byte to find damage.
    pub(crate) fn of(
        project: &Project,
        run: &RunEntry,
        commit: Option<&str>,
        now: jiff::Timestamp,
    ) -> Self {
        let mut notes = run.notes.clone();
        let locked = matches!(run.state, RunState::Running | RunState::Paused);
        let mut damage = Vec::new();
        let mut health = match &run.head {
            Ok(_) => Health::Valid,
            Err(why) => {
                notes.push(why.clone());
                Health::Unreadable
            }
        };
        match project.verify(&run.id) {
            // Already in the notes.
            Err(_) if run.head.is_err() => {}
            Err(why) => {
                health = Health::Unreadable;
                notes.push(why.to_string());
            }
            Ok(verified) => {
                if verified.next == NextAction::Start && run.head.is_err() {
                    health = Health::Empty;
                }
                for file in verified.files {
                    if !matches!(
                        file.condition,
                        FileCondition::Valid | FileCondition::Torn { .. }
                    ) {
                        damage.push((file.name, file.condition.to_string()));
                    }
                }
            }
        }
        if health == Health::Valid && !damage.is_empty() {
            health = Health::Damaged;
        }
        let (mut phases, mut progress) = (Vec::new(), Vec::new());
        match project.checkpoints(&run.id) {
            Err(_) if health == Health::Unreadable => {}
            Err(why) => notes.push(why.to_string()),
            Ok(found) => {
                let finished_phases = found.phases.iter().rev();
                phases
                    .extend(finished_phases.map(|info| Phase::of(info, commit, now, &mut damage)));
                progress.extend(found.attempts.iter().map(|it| Row::of(it, locked, now)));
            }
        }
        // Damage outside of the files of phases.
        let unreported = damage
            .into_iter()
            .map(|(file, what)| format!("{file}: {what}"));
        notes.extend(unreported.filter(|note| !run.notes.iter().any(|it| same_file(it, note))));
        let end = run
            .head
            .as_ref()
            .ok()
            .and_then(|it| it.machine.end.as_ref());
        Self {
            run: run.id.to_string(),
            state: run.state,
            health,
            locked,
            resumable: run.is_resumable(),
            finished: end.is_some_and(|end| end.reason.is_final()),
            bytes: project.disk_usage(&run.id).total(),
            position: run.head.as_ref().ok().map(|it| Phases::from(&it.machine)),
            phases,
            attempts: progress,
            notes,
        }
    }

    pub(crate) fn is_damaged(&self) -> bool {
        matches!(self.health, Health::Damaged | Health::Unreadable)
    }
}

/// Returns whether two notes begin with the name of the same file.
fn same_file(one: &str, other: &str) -> bool {
    one.split_once(':').map(|(file, _)| file) == other.split_once(':').map(|(file, _)| file)
}

impl Phase {
    /// Moves the damage of this phase out of `damage`.
    fn of(
        info: &PhaseInfo,
        commit: Option<&str>,
        now: jiff::Timestamp,
        damage: &mut Vec<(String, String)>,
    ) -> Self {
        let file = format!("phase-{:016x}.ckpt", info.seq.get());
        let at = damage.iter().position(|(name, _)| *name == file);
        let created = stamp(info.created);
        let facts = PhaseFacts::read(&info.meta);
        let moved = facts.git_commit.as_deref().zip(commit);
        Self {
            id: info.id.to_string(),
            phase: info.phase.clone(),
            save: info.seq.get(),
            at: utc(created),
            age_s: age(created, now),
            commit_changed: moved.map(|(then, now)| then != now),
            errors: facts.errors,
            git_commit: facts.git_commit,
            git_dirty: facts.git_dirty,
            finished: info.meta.finished,
            damage: at.map(|at| damage.remove(at).1),
        }
    }
}

impl Row {
    fn of(row: &AttemptRecord, live: bool, now: jiff::Timestamp) -> Self {
        let (outcome, why) = match &row.outcome {
            AttemptOutcome::Open | AttemptOutcome::Checking if live => ("running", None),
            AttemptOutcome::Checking => ("checking", None),
            AttemptOutcome::Open => ("unfinished", Some(UnfinishedCause::ProcessDied.to_string())),
            AttemptOutcome::Complete => ("complete", None),
            AttemptOutcome::Failed(why) => ("failed", Some(why.clone())),
            AttemptOutcome::Unfinished(cause) => {
                ("unfinished", cause.map(|cause| cause.to_string()))
            }
        };
        Self {
            phase: row.phase_name.clone(),
            iteration: row.iteration,
            attempt: row.attempt,
            save: row.last.get(),
            first_save: row.first.get(),
            at: utc(row.at),
            age_s: age(row.at, now),
            outcome,
            reason: why,
            git_commit: row.commit.clone(),
            discarded: row.discarded,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "phase {} finished, id {}", plain(&self.phase), self.id)?;
        if let Some(commit) = &self.git_commit {
            let short: String = commit.chars().take(SHORT).collect();
            let dirty = if self.git_dirty == Some(true) {
                " with changes"
            } else {
                ""
            };
            let moved = match self.commit_changed {
                Some(true) => ", HEAD is at another commit now",
                Some(false) => ", the current HEAD",
                None => "",
            };
            write!(f, ", commit {}{dirty}{moved}", plain(&short))?;
        }
        if !self.errors.is_empty() {
            write!(f, ", {}", count(self.errors.len(), "error", "errors"))?;
        }
        if let Some(damage) = &self.damage {
            write!(f, "; {}", plain(damage))?;
        }
        for error in &self.errors {
            write!(f, "\n          error: {}", plain(error))?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            iteration, attempt, ..
        } = self;
        let phase = plain(&self.phase);
        write!(f, "{phase}: iteration {iteration}, attempt {attempt}: ")?;
        match &self.reason {
            _ if self.outcome == "running" => f.write_str("in progress"),
            _ if self.outcome == "checking" => {
                f.write_str("the turn ended; the required checks and the check are next")
            }
            None => f.write_str(self.outcome),
            Some(why) => write!(f, "{}: {}", self.outcome, plain(why)),
        }?;
        if self.discarded {
            f.write_str(", discarded by a resume from an earlier iteration")?;
        }
        match &self.git_commit {
            Some(commit) => {
                let short: String = commit.chars().take(SHORT).collect();
                write!(f, ", commit {}", plain(&short))
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |value: &dyn fmt::Debug| format!("{value:?}").to_lowercase();
        let (state, health) = (word(&self.state), word(&self.health));
        write!(f, "{}  {state}", plain(&self.run))?;
        if state != health {
            write!(f, ", {health}")?;
        }
        if let Some(position) = &self.position {
            f.write_str(&position.position_text())?;
        }
        write!(f, ", {}", size(self.bytes))?;
        if self.resumable {
            f.write_str(", can be resumed")?;
        }
        let phases = self.phases.iter();
        let phases = phases.map(|it| (it.save, &it.at, it.age_s, it as &dyn fmt::Display));
        let rows = self.attempts.iter();
        let rows = rows.map(|it| (it.save, &it.at, it.age_s, it as &dyn fmt::Display));
        let mut lines: Vec<_> = rows.chain(phases).collect();
        lines.sort_by_key(|(save, ..)| *save);
        for (save, at, age, what) in lines {
            write!(f, "\n  save {save:>4}  {at}  {:<14}  {what}", ago(age))?;
        }
        for line in self.position.iter().flat_map(Phases::finished_lines) {
            write!(f, "\n  done       {line}")?;
        }
        for note in &self.notes {
            write!(f, "\n  note       {}", plain(note))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_in_save_order_and_prints_no_control_characters() {
        let at = || "2026-01-31T23:59:59.000Z".to_owned();
        let row = |iteration, save, outcome, why: Option<&str>| Row {
            phase: "plan".into(),
            iteration,
            attempt: 1,
            save,
            first_save: save - 1,
            at: at(),
            age_s: 61,
            outcome,
            reason: why.map(Into::into),
            git_commit: (iteration == 1).then(|| "0123456789abcdef".into()),
            discarded: false,
        };
        let phase = Phase {
            id: "01a1fdd8-cd90-79ee-8e7e-5a310cbced46".into(),
            phase: "plan".into(),
            save: 6,
            at: at(),
            age_s: 0,
            errors: vec!["iteration 2: \u{1b}[2Jgone".into()],
            git_commit: Some("0123456789abcdef".into()),
            git_dirty: Some(true),
            commit_changed: Some(true),
            finished: false,
            damage: Some("damaged: wrong checksum at byte 9".into()),
        };
        let list = List {
            run: "first".into(),
            state: RunState::Stopped,
            health: Health::Damaged,
            locked: false,
            resumable: true,
            finished: false,
            bytes: 4097,
            position: None,
            phases: vec![phase],
            attempts: vec![
                row(1, 3, "complete", None),
                row(2, 5, "failed", Some("it\nended")),
                row(3, 8, "running", None),
            ],
            notes: vec!["progress-1.ckj: bad \u{7}".into()],
        };
        insta::assert_snapshot!(list);
    }
}
