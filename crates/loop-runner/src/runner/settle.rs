//! Ending what an attempt left running, beside everything else, so that no press waits for it.

use loop_state::{AgentState, Happening, Tree};
use rlm_store::Leftovers;
use rlm_store::processes::gone;

use crate::news::News;
use crate::runner::Runner;
use crate::runner::parts::settling::{Settled, Settling};

impl Runner {
    /// Begins to end what the attempt left running, or to carry it on. Returns what happened when there is nothing to end.
    pub(super) fn begin_settling(&mut self) -> Option<Happening> {
        let budget = self.budget();
        let commit = self.due_commit();
        let attempt = self.agent_io.attempt.take();
        if attempt.is_none() && commit.is_none() {
            return Some(Happening::Settled(Tree::default()));
        }
        self.agent_io.idle_look = None;
        let keep = self.saved.settings.leftovers == Leftovers::Keep && !self.machine.is_stopping();
        let settling = Settling::begin(attempt, commit, keep, budget);
        if self.machine.is_stopping() {
            settling.hurry().within(budget);
        }
        self.agent_io.settling = Some(settling);
        None
    }

    pub(super) async fn settled(&mut self, settled: Option<Box<Settled>>) -> Happening {
        self.agent_io.settling = None;
        let before = self.ends.survivors.len();
        let mut ended = 0;
        let (tree, commit) = settled.map_or((None, None), |it| (it.tree, it.commit));
        if let Some(settled) = tree {
            match settled.report {
                None => {
                    let budget = self.budget();
                    let oldest = self.agent_io.kept.keep(settled.attempt, budget).await;
                    for end in oldest {
                        ended += self.tell_kept_ended(end);
                    }
                }
                Some(report) => {
                    let processes = gone(settled.leftovers, &report.survivors);
                    ended = processes.len();
                    if !processes.is_empty() {
                        self.tell(News::Ended {
                            why: "left running by the agent".into(),
                            processes,
                        });
                    }
                    if settled.attempt.machine.agent() != AgentState::Gone {
                        self.ends.ended.extend(report.ended);
                        self.ends.proven &= report.proven;
                    }
                    self.note_survivors(report.survivors);
                }
            }
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let settled = Happening::Settled(Tree {
            ended: count(ended),
            survivors: count(self.ends.survivors.len() - before),
        });
        if let Some(commit) = commit {
            self.committed(commit, &settled);
        }
        settled
    }
}
