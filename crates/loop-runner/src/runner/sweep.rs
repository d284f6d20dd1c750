//! What is found alive of earlier processes, and what could not be ended.

use agent_duplex::ProcessName;

use crate::news::News;
use crate::runner::Runner;
use crate::runs::RunHead;
use crate::survivors::{self, Swept};

impl Runner {
    /// Ends what earlier processes of unfinished runs in this working tree left alive, before anything is spawned.
    pub(super) async fn sweep_before(&mut self) {
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
            let reported = survivors::take_report(self.work_tree.project(), &head.run);
            self.tell_swept(
                "by their guard, when the last process of the run died",
                reported,
            );
            let scope = survivors::scope_in(self.work_tree.project().tree(), &head.scope);
            let swept = survivors::sweep(scope).await;
            survivors::remove_scratch(self.work_tree.project(), &head.run);
            self.tell_swept("left alive by an earlier process", swept);
        }
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
            .filter(|s| !self.survivors.contains(s))
            .collect();
        if !new.is_empty() {
            self.survivors.extend(new.iter().cloned());
            self.tell(News::Survivors(new));
        }
    }
}
