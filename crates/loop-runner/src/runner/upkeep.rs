//! The upkeep of the state: ends processes of earlier runs, restores removed files, prunes transcripts.

use std::sync::atomic::Ordering;
use std::time::Duration;

use agent_duplex::ProcessName;
use checkpoint_store::Repaired;
use loop_state::times;
use rlm_store::git::processes::{GitProcesses, OwnedGitProcesses};
use rlm_store::sweep::{self, SweepResult};
use rlm_store::transcript::{self, PruneResult, removed_transcripts, transcripts};
use rlm_store::{RunHead, RunId, WorkingTreeLock, state_dir};
use tokio::time::timeout;

use crate::Error;
use crate::control::ControlSocket;
use crate::run_event::RunEvent;
use crate::runner::Runner;

/// The reported reason to end processes that a dead process of a run started.
const LEFTOVER_REASON: &str = "left alive by an earlier process";

/// The most missing files that a message names; the others are counted.
const MAX_NAMED: usize = 4;

impl Runner {
    /// Ends the processes that earlier processes of unfinished runs left alive in this working tree, before the first agent or command starts.
    pub(super) async fn sweep_earlier_processes(&mut self) {
        if let Some((run, swept)) = self.work_tree.take_sweep_result() {
            self.report_swept(&run, LEFTOVER_REASON, swept);
        }
        let unfinished = self.work_tree.project().runs().unwrap_or_default();
        let heads = unfinished.into_iter().filter_map(|entry| entry.head.ok());
        let heads: Vec<RunHead> = heads
            .filter(|head| head.run == self.saved.run || head.machine.end.is_none())
            // A run can be live in another working tree.
            .filter(|head| {
                head.tree(self.work_tree.project().root()) == self.work_tree.project().tree()
            })
            .collect();
        for head in heads {
            match sweep::take_guard_report(self.work_tree.project(), &head.run) {
                Ok(reported) => self.report_swept(
                    &head.run,
                    "by their guard, after the last process of the run died",
                    reported,
                ),
                Err(e) => self.emit(RunEvent::Warning(format!(
                    "can't read which processes the guard ended after the last process of run {} died: {e}",
                    head.run
                ))),
            }
            let scope = sweep::scope_in(self.work_tree.project().tree(), &head.scope);
            // No earlier process has the scope of a new run. A sweep would end the warm guard of the run.
            let swept = match self.is_new && head.run == self.saved.run {
                true => SweepResult::default(),
                false => sweep::sweep(scope).await,
            };
            sweep::remove_scratch(self.work_tree.project(), &head.run);
            self.report_swept(&head.run, LEFTOVER_REASON, swept);
        }
    }

    /// Removes the temporary files that dead processes left in `.rlm`. Reports their number plus `of_store`, the number of files that the store
    /// removed.
    pub(super) fn remove_orphans(&mut self, of_store: usize) {
        let project = self.work_tree.project();
        let run_dir = project.run_dir(&self.saved.run);
        let places = [
            project.state_dir(),
            run_dir.join(transcript::FOLDER),
            run_dir,
        ];
        let removed = places.iter().map(|place| state_dir::remove_orphans(place));
        let files = match removed.sum::<usize>() + of_store {
            0 => return,
            1 => "1 temporary file".to_owned(),
            many => format!("{many} temporary files"),
        };
        self.emit(RunEvent::Warning(format!(
            "removed {files} of earlier processes from {}",
            rlm_store::state_directory()
        )));
    }

    /// Registers the git processes of the run, and gives them the run's marker.
    pub(super) fn own_git_processes(
        work_tree: &mut WorkingTreeLock,
        scope: &str,
    ) -> OwnedGitProcesses {
        let processes = GitProcesses::of_run(marker(work_tree, scope));
        work_tree
            .project_mut()
            .git_mut()
            .track_processes_in(processes.clone());
        OwnedGitProcesses(processes)
    }

    /// Ends the git processes of the run, and reports the leftovers of git. Sweeps by the marker if unknown processes are possibly left.
    pub(super) async fn stop_git_processes(&mut self, budget: Duration) {
        let processes = self.processes.git_processes.0.clone();
        let end = tokio::task::spawn_blocking(move || processes.end(budget)).await;
        let end = end.expect("stopping git does not panic");
        self.ended_processes.ended.extend(end.ended);
        if !end.leftovers.is_empty() {
            self.ended_processes
                .ended
                .extend(end.leftovers.iter().cloned());
            self.emit(RunEvent::ProcessesEnded {
                why: "left running by git, its filters or its hooks".into(),
                run: None,
                processes: end.leftovers,
            });
        }
        if end.is_unverified {
            // A process group and a marker can't prove that all processes are gone.
            self.ended_processes.proven = false;
            let swept = sweep::sweep(marker(&self.work_tree, &self.saved.scope)).await;
            self.ended_processes.ended.extend(swept.ended);
            self.note_survivors(swept.survivors);
        }
        self.note_survivors(end.survivors);
    }

    /// Reports the processes of `run` that a sweep ended. The line names the run if it is another one.
    fn report_swept(&mut self, run: &RunId, why: &'static str, swept: SweepResult) {
        if !swept.ended.is_empty() {
            self.emit(RunEvent::ProcessesEnded {
                why: why.into(),
                run: (*run != self.saved.run).then(|| run.clone()),
                processes: swept.ended,
            });
        }
        self.note_survivors(swept.survivors);
    }

    pub(super) fn note_survivors(&mut self, survivors: Vec<ProcessName>) {
        let new: Vec<_> = survivors
            .into_iter()
            .filter(|s| !self.ended_processes.survivors.contains(s))
            .collect();
        if !new.is_empty() {
            self.ended_processes.survivors.extend(new.iter().cloned());
            self.emit(RunEvent::Survivors(new));
        }
    }

    /// Saves again if the control socket was removed, because the files beside it were probably removed too, and perhaps no other save is due.
    pub(super) async fn save_after_removal(&mut self) -> Result<(), Error> {
        if self
            .control
            .socket
            .as_ref()
            .is_some_and(ControlSocket::is_missing)
        {
            self.saved.advance(self.machine.head());
            self.work_tree.check_state_dir(&self.saved.run)?;
            self.save_now().await?;
            self.repair().await?;
            self.restore_socket();
        }
        Ok(())
    }

    /// Restores the files beside the saves, if the store had to write the saves again, and reports the lost files. The lock needs no repair: it is on
    /// the working tree itself.
    ///
    /// Only a file that a resume needs is an error if it can't be restored.
    pub(super) async fn repair(&mut self) -> Result<(), Error> {
        let Some(mut repaired) = self.journal.take_repaired() else {
            return Ok(());
        };
        let restored = self.work_tree.restore();
        if let Err(e) = restored {
            self.emit(RunEvent::Warning(e.to_string()));
        }
        for (blob, text) in self.saved.prompts.iter().zip(&self.prompts) {
            let is_prompt = |file: &String| file.strip_prefix("blobs/") == Some(blob);
            if repaired.lost.iter().any(is_prompt) {
                self.journal.put_blob(blob, text).await?;
                repaired.lost.retain(|file| !is_prompt(file));
            }
        }
        self.write_transcript(|transcript| transcript.restore().map(drop));
        let lost = self.describe_loss(&repaired);
        let gone = match lost.len() {
            0 => String::new(),
            1..=MAX_NAMED => format!("; lost: {}", lost.join(", ")),
            all => format!(
                "; lost: {}, and {} more",
                lost[..MAX_NAMED].join(", "),
                all - MAX_NAMED
            ),
        };
        self.emit(RunEvent::Warning(format!(
            "{}; the saves since the last phase are on disk again, in a new file{gone}",
            repaired.what
        )));
        Ok(())
    }

    fn describe_loss(&self, repaired: &Repaired) -> Vec<String> {
        let run_dir = self.work_tree.project().run_dir(&self.saved.run);
        let removed = removed_transcripts(&run_dir).map_or(0, |it| it.attempts.len());
        let there = transcripts(&run_dir).unwrap_or_default().len() + removed;
        let made = self.machine.head().counts.attempts as usize;
        let gone = made.saturating_sub(there);
        let transcripts = match gone {
            0 => None,
            1 => Some("the transcript of 1 attempt".to_owned()),
            _ => Some(format!("the transcripts of {gone} attempts")),
        };
        transcripts
            .into_iter()
            .chain(repaired.lost.clone())
            .collect()
    }

    /// Records that an attempt has a transcript, and prunes the older ones if that is due. Waits for nothing.
    pub(super) async fn prune_transcripts(&mut self, iteration: u32, attempt: u32) {
        let pruning = &mut self.transcript_pruning;
        pruning.begun.push_back((iteration, attempt));
        if let Some(work) = { &mut pruning.work }.take_if(|work| work.is_finished()) {
            // A pruning that panicked is not repeated in this process.
            if let Ok((room, pruned)) = work.await {
                self.transcript_pruning.quota = Some(room);
                self.report_pruned(pruned);
            }
        }
        let pruning = &mut self.transcript_pruning;
        let Some(mut room) = pruning.quota.take() else {
            // Limit the memory, even if some transcripts stay uncompressed.
            pruning.begun.truncate(usize::from(u16::MAX));
            return;
        };
        let begun = pruning.begun.drain(..);
        let due = begun.fold(false, |_, (iteration, attempt)| {
            room.register(iteration, attempt)
        });
        if !due {
            pruning.quota = Some(room);
            return;
        }
        let stop = pruning.stop.clone();
        pruning.work = Some(tokio::task::spawn_blocking(move || {
            let pruned = room.prune(&stop);
            (room, pruned)
        }));
    }

    fn report_pruned(&mut self, pruned: PruneResult) {
        let error = pruned
            .error
            .map(|e| format!("can't prune an older transcript: {e}"));
        let reduced = pruned.reduced.then(|| {
            "the transcripts exceed max-transcripts: the oldest ones first lose their raw protocol lines, then everything except their beginning and end".to_owned()
        });
        for (kind, what) in [error, reduced].into_iter().enumerate() {
            if let Some(what) = what.filter(|_| !self.transcript_pruning.reported[kind]) {
                self.transcript_pruning.reported[kind] = true;
                self.emit(RunEvent::Warning(what));
            }
        }
    }

    /// Stops the pruning, and waits for it with a short time limit.
    pub(super) async fn stop_pruning(&mut self) {
        self.transcript_pruning.stop.store(true, Ordering::Relaxed);
        if let Some(work) = self.transcript_pruning.work.take() {
            // The next process prunes the rest.
            let _late = timeout(times::TRANSCRIPT_FINISH, work).await;
        }
    }
}

/// Returns the marker of the run's git processes.
fn marker(work_tree: &WorkingTreeLock, scope: &str) -> String {
    let scope = sweep::scope_in(work_tree.project().tree(), scope);
    format!("{scope}.git")
}
