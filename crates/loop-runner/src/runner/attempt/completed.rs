//! What a completed turn comes to.

use agent_duplex::{Completion, EndReason, TurnEnd};
use loop_state::Happening;

use crate::control::Wishes;
use crate::news::News;
use crate::runner::Runner;

impl Runner {
    pub(super) async fn completed(
        &mut self,
        completion: Completion,
        wishes: &mut Wishes,
    ) -> Vec<Happening> {
        let Some(attempt) = &mut self.attempt else {
            return Vec::new();
        };
        let goes_on = matches!(
            completion.end.reason,
            EndReason::Completed | EndReason::Interrupted
        );
        let gone = attempt.gone || completion.end.exit.is_some();
        if completion.pending > 0
            && goes_on
            && attempt.halting.is_none()
            && attempt.ending.is_none()
            && !gone
        {
            // What was said meanwhile is answered in a turn of its own, which belongs to the same iteration.
            let interrupted = attempt.interrupt_by.take().is_some();
            if interrupted && completion.end.reason == EndReason::Interrupted {
                self.tell(News::GoesOn);
            }
            return Vec::new();
        }
        attempt.in_turn = false;
        attempt.gone |= completion.end.exit.is_some();
        attempt.tools.clear();
        attempt.interrupt_by = None;
        let idled = self.did_nothing(&completion.end, wishes).await;
        let idled = idled.then_some(Happening::NothingDone);
        let said = self.said(&completion.end);
        let over = self.turn_over(completion.end);
        idled.into_iter().chain(said).chain(over).collect()
    }

    /// Returns whether a completed turn left no trace. Of an agent whose tools are not reported nothing is said.
    async fn did_nothing(&mut self, end: &TurnEnd, wishes: &mut Wishes) -> bool {
        let Some(attempt) = &self.attempt else {
            return false;
        };
        let suspicious =
            end.reason == EndReason::Completed && attempt.understands() && attempt.tools_run == 0;
        // Who has something in the background has done that, and what comes of it may be still to come.
        let suspicious = suspicious && attempt.background == 0 && attempt.hold_by.is_none();
        let before = attempt.footprint;
        suspicious && self.footprint(wishes).await == before && !wishes.is_end_wanted()
    }
}
