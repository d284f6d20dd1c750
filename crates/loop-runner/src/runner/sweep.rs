//! What is found alive of earlier processes, and what could not be ended.

use std::time::Duration;

use agent_duplex::ProcessName;
use rlm_store::git::looks::{Looks, OwnLooks};
use rlm_store::survivors::{self, Swept};
use rlm_store::{RunHead, WorkTree, state_dir, transcript};

use crate::news::News;
use crate::runner::Runner;

/// Why what a dead process of a run has left is ended.
const LEFT: &str = "left alive by an earlier process";

impl Runner {
    /// Ends what earlier processes of unfinished runs in this working tree left alive, before anything is spawned.
    pub(super) async fn sweep_before(&mut self) {
        let swept = self.work_tree.take_swept();
        self.tell_swept(LEFT, swept);
        let unfinished = self.work_tree.project().runs().unwrap_or_default();
        let heads = unfinished.into_iter().filter_map(|entry| entry.head.ok());
        let heads: Vec<RunHead> = heads
            .filter(|head| head.run == self.saved.run || head.machine.end.is_none())
            // Another tree's run may be at work.
            .filter(|head| {
                head.tree(self.work_tree.project().root()) == self.work_tree.project().tree()
            })
            .collect();
        for head in heads {
            match survivors::take_report(self.work_tree.project(), &head.run) {
                Ok(reported) => self.tell_swept(
                    "by their guard, when the last process of the run died",
                    reported,
                ),
                Err(e) => self.tell(News::Warning(format!(
                    "what the guard ended when the last process of run {} died can't be read: {e}",
                    head.run
                ))),
            }
            let scope = survivors::scope_in(self.work_tree.project().tree(), &head.scope);
            let swept = survivors::sweep(scope).await;
            survivors::remove_scratch(self.work_tree.project(), &head.run);
            self.tell_swept(LEFT, swept);
        }
    }

    /// Removes the temporary files that dead processes left in `.rlm`, and reports how many: these and `of_store`, which the store removed.
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
            "removed {files} that earlier processes left in .rlm"
        )));
    }

    /// Lets what git does for the run be known, and carry the run's marker.
    pub(super) fn own_looks(work_tree: &mut WorkTree, scope: &str) -> OwnLooks {
        let looks = Looks::of_run(marker(work_tree, scope));
        work_tree.project_mut().git_mut().known_to(looks.clone());
        OwnLooks(looks)
    }

    /// Ends what git still does for the run, and what it has left running if it had to be ended.
    pub(super) async fn end_looks(&mut self, budget: Duration) {
        let looks = self.agent_io.looks.0.clone();
        let end = tokio::task::spawn_blocking(move || looks.end(budget)).await;
        let end = end.expect("an end does not panic");
        self.ends.ended.extend(end.ended);
        if !end.left.is_empty() {
            self.ends.ended.extend(end.left.iter().cloned());
            self.tell(News::Ended {
                why: "left running by git, its filters or its hooks".into(),
                processes: end.left,
            });
        }
        if end.unproven {
            // By a group and a marker nothing is proven.
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
}

/// Returns the marker of what git does for the run.
fn marker(work_tree: &WorkTree, scope: &str) -> String {
    let scope = survivors::scope_in(work_tree.project().tree(), scope);
    format!("{scope}.git")
}
