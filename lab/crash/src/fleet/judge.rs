//! The promises of a fleet, checked at each step.
//!
//! **D**: a confirmed record is in the stream. **F**: an owner that was overtaken appends nothing, the agents of two owners never run at the same time,
//! and no iteration is lost or done twice. **A**: a rebuilt store has the state of the newest record in the stream. **L**: each run ends.

use rlm_fleet::{AppendEnd, LastRecord, MAX_STALLED, RecordKind};

use super::model::{Cause, Hold, Stored, World, is_final};
use super::store::{RunState, RunStore};

impl<S: RunStore> World<S> {
    /// Judges a record that the server is about to store.
    pub(super) fn judge_store(&mut self, run: usize, record: &Stored<S::Body>) {
        let it = &self.server.runs[run];
        let facts = record.facts;
        let Some(last) = it.records.last() else {
            return self.breaks('F', "a run has no base".into());
        };
        let (epoch, kind, stalled) = (last.facts.epoch, last.facts.kind, last.facts.stalled);
        let is_claim = matches!(facts.kind, RecordKind::Claim | RecordKind::Park);
        let is_next = match is_claim {
            true => facts.epoch == epoch + 1,
            false => facts.epoch == epoch && last.author == record.author,
        };
        let newest = it.records.iter().rev().take(32);
        let is_twice = { newest }.any(|it| it.facts.id == facts.id);
        let before = self.newest_state(run);
        if is_twice {
            self.breaks('F', format!("run {run} has one record twice"));
        } else if !is_next {
            let (by, epoch) = (facts.epoch, epoch);
            let what = format!("owner {by} of run {run} appends after the claim of owner {epoch}");
            self.breaks('F', what);
        } else if is_final(kind) {
            self.breaks('F', format!("run {run} has a record after its end"));
        }
        if facts.stalled != facts.kind.stalled(stalled) || facts.stalled > MAX_STALLED + 1 {
            let count = facts.stalled;
            self.breaks('F', format!("run {run} counts {count} stalled claims"));
        }
        let is_stalled = stalled >= MAX_STALLED;
        if is_claim && is_stalled != (facts.kind == RecordKind::Park) {
            let what = format!(
                "{:?} after {stalled} stalled claims of run {run}",
                facts.kind
            );
            self.breaks('F', what);
        }
        if let Some((state, _)) = &record.save {
            self.judge_save(run, before, *state);
        }
    }

    fn judge_save(&mut self, run: usize, before: RunState, state: RunState) {
        let (first, rest) = self.setup.saves;
        let it = &mut self.server.runs[run];
        let is_next = match (state.completed.wrapping_sub(before.completed), state.step) {
            (0, 1) => {
                it.begun += 1;
                true
            }
            (0, step) => step == before.step + 1,
            (1, 0) => {
                (it.begun, it.starts) = (0, 0);
                before.step + 1 == first + rest
            }
            _ => false,
        };
        if !is_next {
            self.breaks('F', format!("{state:?} of run {run} follows {before:?}"));
        }
    }

    /// Returns the state of the newest save in the stream.
    pub(super) fn newest_state(&self, run: usize) -> RunState {
        let mut saves = self.server.runs[run].records.iter().rev();
        let newest = saves.find_map(|it| it.save.as_ref().map(|(state, _)| *state));
        newest.unwrap_or_default()
    }

    /// Judges a record that an appender reports as stored.
    pub(super) fn judge_done(&mut self, run: usize, seq: u64, id: rlm_fleet::RecordId) {
        self.server.runs[run].confirmed.push((seq, id));
        if !self.has(run, seq, id) {
            self.breaks(
                'D',
                format!("record {seq} of run {run} is confirmed, but not stored"),
            );
        }
    }

    fn has(&self, run: usize, seq: u64, id: rlm_fleet::RecordId) -> bool {
        let records = &self.server.runs[run].records;
        let found = records.binary_search_by_key(&seq, |it| it.facts.seq);
        found.is_ok_and(|at| records[at].facts.id == id)
    }

    /// Judges the end of an appender of a claim or of saves.
    pub(super) fn judge_end(&mut self, run: usize, author: u64, end: AppendEnd) {
        match end {
            AppendEnd::Fenced { .. } => {
                let last = self.server.runs[run].records.last();
                if last.is_none_or(|last| last.author == author) {
                    let what =
                        format!("the owner of run {run} reports that another one overtook it");
                    self.breaks('F', what);
                }
            }
            AppendEnd::Damaged { .. } => {
                self.breaks(
                    'F',
                    format!("a sound stream of run {run} is reported as damaged"),
                );
            }
            AppendEnd::GaveUp => {}
        }
    }

    /// Judges the rebuilt store of a claimed run.
    pub(super) fn judge_rebuild(&mut self, run: usize, state: RunState) {
        let newest = self.newest_state(run);
        // A later owner can have appended records meanwhile.
        if state != newest && self.setup.is_exclusive {
            self.breaks(
                'A',
                format!("run {run} is rebuilt as {state:?}, not as {newest:?}"),
            );
        }
    }

    /// Judges the start of an agent.
    pub(super) fn judge_start(&mut self, hold: &Hold<S>) {
        let run = hold.run;
        let others = self.server.runs[run]
            .trees
            .iter()
            .filter(|id| Some(**id) != hold.tree);
        let agents = others.filter(|id| self.trees[id].has_agent).count();
        if agents > 0 && self.setup.is_exclusive {
            self.breaks('F', format!("two agents of run {run} run at the same time"));
        }
        let newest = self.newest_state(run);
        if newest.completed != hold.state.completed && self.setup.is_exclusive {
            let what = format!("an agent of run {run} does a completed iteration again");
            self.breaks('F', what);
        }
        let it = &mut self.server.runs[run];
        it.starts += 1;
        if it.starts > it.begun && self.setup.is_exclusive {
            self.breaks(
                'F',
                format!("an agent of run {run} starts without a record of it"),
            );
        }
    }

    /// Judges the claim of a run that a worker owns from now on.
    pub(super) fn judge_own(&mut self, run: usize, claim: LastRecord) {
        if let Some((since, cause)) = self.server.runs[run].orphaned.take() {
            let times = match cause {
                Cause::Worker => &mut self.measured.takeovers,
                Cause::Server => &mut self.measured.outages,
                Cause::Terminated => &mut self.measured.handovers,
            };
            times.push(self.now - since);
        }
        if claim.kind != RecordKind::Claim {
            self.breaks('F', format!("run {run} is owned by {:?}", claim.kind));
        }
    }

    /// Judges everything after the end of the simulation.
    pub(super) fn judge_all(&mut self) {
        for run in 0..self.server.runs.len() {
            let confirmed = std::mem::take(&mut self.server.runs[run].confirmed);
            let lost = { confirmed.iter() }.find(|(seq, id)| !self.has(run, *seq, *id));
            if let Some((seq, _)) = lost {
                self.breaks(
                    'D',
                    format!("the confirmed record {seq} of run {run} is lost"),
                );
            }
            let (state, last) = (self.newest_state(run), self.last(run));
            match last.map(|last| last.kind) {
                Some(RecordKind::Park) => {}
                Some(kind) if is_final(kind) && state.completed == self.setup.iterations => {}
                kind => self.breaks(
                    'L',
                    format!("run {run} does not end: {kind:?} at {state:?}"),
                ),
            }
        }
    }
}
