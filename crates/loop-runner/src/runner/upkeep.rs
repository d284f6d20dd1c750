//! The upkeep of the state: ends processes of earlier runs, restores removed files, prunes transcripts.

use std::sync::atomic::Ordering;
use std::time::Duration;

use agent_duplex::ProcessName;
use checkpoint_store::Healed;
use loop_state::times;
use rlm_store::git::looks::{Looks, OwnLooks};
use rlm_store::survivors::{self, Swept};
use rlm_store::transcript::{self, Tended, removed_transcripts, transcripts};
use rlm_store::{RunHead, WorkTree, state_dir};
use tokio::time::timeout;

use crate::Error;
use crate::control::Socket;
use crate::news::News;
use crate::runner::Runner;

/// Why the processes of a dead process of a run are ended.
const LEFT: &str = "left alive by an earlier process";

/// The most missing files that a message names; the others are counted.
const NAMED: usize = 4;

impl Runner {
    /// Ends the processes that earlier processes of unfinished runs left alive in this working tree, before anything is started.
    pub(super) async fn sweep_before(&mut self) {
        let swept = self.work_tree.take_swept();
        self.tell_swept(LEFT, swept);
        let unfinished = self.work_tree.project().runs().unwrap_or_default();
        let heads = unfinished.into_iter().filter_map(|entry| entry.head.ok());
        let heads: Vec<RunHead> = heads
            .filter(|head| head.run == self.saved.run || head.machine.end.is_none())
            // A run may be live in another working tree.
            .filter(|head| {
                head.tree(self.work_tree.project().root()) == self.work_tree.project().tree()
            })
            .collect();
        for head in heads {
            match survivors::take_report(self.work_tree.project(), &head.run) {
                Ok(reported) => self.tell_swept(
                    "by their guard, after the last process of the run died",
                    reported,
                ),
                Err(e) => self.tell(News::Warning(format!(
                    "can't read which processes the guard ended after the last process of run {} died: {e}",
                    head.run
                ))),
            }
            let scope = survivors::scope_in(self.work_tree.project().tree(), &head.scope);
            let swept = survivors::sweep(scope).await;
            survivors::remove_scratch(self.work_tree.project(), &head.run);
            self.tell_swept(LEFT, swept);
        }
    }

    /// Removes the temporary files that dead processes left in `.rlm`, and reports their number, with `of_store`, which the store removed.
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
        self.tell(News::Warning(format!(
            "removed {files} of earlier processes from .rlm"
        )));
    }

    /// Registers the git processes of the run, and gives them the run's marker.
    pub(super) fn own_looks(work_tree: &mut WorkTree, scope: &str) -> OwnLooks {
        let looks = Looks::of_run(marker(work_tree, scope));
        work_tree.project_mut().git_mut().known_to(looks.clone());
        OwnLooks(looks)
    }

    /// Ends the git processes of the run, and their leftovers if they had to be ended.
    pub(super) async fn end_looks(&mut self, budget: Duration) {
        let looks = self.agent_io.looks.0.clone();
        let end = tokio::task::spawn_blocking(move || looks.end(budget)).await;
        let end = end.expect("stopping git does not panic");
        self.ends.ended.extend(end.ended);
        if !end.left.is_empty() {
            self.ends.ended.extend(end.left.iter().cloned());
            self.tell(News::Ended {
                why: "left running by git, its filters or its hooks".into(),
                processes: end.left,
            });
        }
        if end.unproven {
            // A process group and a marker prove nothing.
            self.ends.proven = false;
            let swept = survivors::sweep(marker(&self.work_tree, &self.saved.scope)).await;
            self.ends.ended.extend(swept.ended);
            self.note_survivors(swept.survivors);
        }
        self.note_survivors(end.survivors);
    }

    fn tell_swept(&mut self, why: &'static str, swept: Swept) {
        if !swept.ended.is_empty() {
            self.tell(News::Ended {
                why: why.into(),
                processes: swept.ended,
            });
        }
        self.note_survivors(swept.survivors);
    }

    pub(super) fn note_survivors(&mut self, survivors: Vec<ProcessName>) {
        let new: Vec<_> = survivors
            .into_iter()
            .filter(|s| !self.ends.survivors.contains(s))
            .collect();
        if !new.is_empty() {
            self.ends.survivors.extend(new.iter().cloned());
            self.tell(News::Survivors(new));
        }
    }

    /// Saves once more if the control socket was removed, because everything beside it was probably removed too, and no other save may be due.
    pub(super) async fn notice_removal(&mut self) -> Result<(), Error> {
        if self
            .control
            .socket
            .as_ref()
            .is_some_and(Socket::was_removed)
        {
            self.saved.advance(self.machine.head());
            self.work_tree.keep_state(&self.saved.run)?;
            self.journal.save(&self.saved).await?;
            self.heal().await?;
            self.ensure_socket();
        }
        Ok(())
    }

    /// Restores the files beside the saves, if the store had to write the saves again, and reports the lost ones. The lock needs no repair: it is on
    /// the working tree itself.
    ///
    /// Only a file that a resume needs is an error if it can't be restored.
    pub(super) async fn heal(&mut self) -> Result<(), Error> {
        let Some(mut healed) = self.journal.take_healed() else {
            return Ok(());
        };
        let restored = self.work_tree.restore();
        if let Err(e) = restored {
            self.tell(News::Warning(e.to_string()));
        }
        for (blob, text) in self.saved.prompts.iter().zip(&self.prompts) {
            let is_prompt = |file: &String| file.strip_prefix("blobs/") == Some(blob);
            if healed.lost.iter().any(is_prompt) {
                self.journal.put_blob(blob, text).await?;
                healed.lost.retain(|file| !is_prompt(file));
            }
        }
        self.write_transcript(|transcript| transcript.restore().map(drop));
        let lost = self.lost(&healed);
        let gone = match lost.len() {
            0 => String::new(),
            1..=NAMED => format!("; lost: {}", lost.join(", ")),
            all => format!(
                "; lost: {}, and {} more",
                lost[..NAMED].join(", "),
                all - NAMED
            ),
        };
        self.tell(News::Warning(format!(
            "{}; the saves since the last phase are on disk again, in a new file{gone}",
            healed.what
        )));
        Ok(())
    }

    fn lost(&self, healed: &Healed) -> Vec<String> {
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
        transcripts.into_iter().chain(healed.lost.clone()).collect()
    }

    /// Records that an attempt has a transcript, and prunes the older ones if that is due. Waits for nothing.
    pub(super) async fn tidy(&mut self, iteration: u32, attempt: u32) {
        let tidying = &mut self.tidying;
        tidying.begun.push_back((iteration, attempt));
        if let Some(work) = { &mut tidying.work }.take_if(|work| work.is_finished()) {
            // A pruning that panicked is not repeated in this process.
            if let Ok((room, tended)) = work.await {
                self.tidying.room = Some(room);
                self.tell_tended(tended);
            }
        }
        let tidying = &mut self.tidying;
        let Some(mut room) = tidying.room.take() else {
            // Limit the memory, even if some transcripts stay uncompressed.
            tidying.begun.truncate(usize::from(u16::MAX));
            return;
        };
        let begun = tidying.begun.drain(..);
        let due = begun.fold(false, |_, (iteration, attempt)| {
            room.begun(iteration, attempt)
        });
        if !due {
            tidying.room = Some(room);
            return;
        }
        let stop = tidying.stop.clone();
        tidying.work = Some(tokio::task::spawn_blocking(move || {
            let tended = room.tend(&stop);
            (room, tended)
        }));
    }

    fn tell_tended(&mut self, tended: Tended) {
        let error = tended
            .error
            .map(|e| format!("can't prune an older transcript: {e}"));
        let reduced = tended.reduced.then(|| {
            "the transcripts exceed max-transcripts: the oldest ones first lose their raw protocol lines, then everything except their beginning and end".to_owned()
        });
        for (told, what) in [error, reduced].into_iter().enumerate() {
            if let Some(what) = what.filter(|_| !self.tidying.told[told]) {
                self.tidying.told[told] = true;
                self.tell(News::Warning(what));
            }
        }
    }

    /// Stops the pruning at the next piece.
    pub(super) async fn end_tidying(&mut self) {
        self.tidying.stop.store(true, Ordering::Relaxed);
        if let Some(work) = self.tidying.work.take() {
            // The next process prunes the rest.
            let _late = timeout(times::TRANSCRIPTS_END, work).await;
        }
    }
}

/// Returns the marker of the run's git processes.
fn marker(work_tree: &WorkTree, scope: &str) -> String {
    let scope = survivors::scope_in(work_tree.project().tree(), scope);
    format!("{scope}.git")
}
