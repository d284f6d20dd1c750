//! The end of a turn.

use agent_duplex::{Completion, EndReason};
use loop_state::{AttemptEffect, AttemptInput, Happening, TurnEndKind};

use crate::runner::Runner;
use crate::runner::halt::describe;

impl Runner {
    pub(super) async fn completed(&mut self, completion: Completion) -> Vec<Happening> {
        let end = completion.end;
        let input = AttemptInput::TurnEnded {
            how: kind(end.reason),
            why: describe(&end),
            exited: end.exit.is_some(),
            detail: end.detail,
            pending: completion.pending > 0,
        };
        let mut happenings = Vec::new();
        for effect in self.decide(input) {
            if effect == AttemptEffect::Look {
                let footprint = self.footprint().await;
                let hurried = self.requests.is_end_wanted();
                happenings.extend(self.step_attempt(AttemptInput::Looked { footprint, hurried }));
            }
            happenings.extend(self.carry_out(effect));
        }
        self.note_busy();
        self.refresh_view();
        happenings
    }
}

/// Returns how a turn ended, in the words of the rules: most kinds of failure are one to them.
fn kind(reason: EndReason) -> TurnEndKind {
    match reason {
        EndReason::Completed => TurnEndKind::Completed,
        EndReason::Interrupted => TurnEndKind::Interrupted,
        EndReason::Died => TurnEndKind::Died,
        EndReason::NotLoggedIn => TurnEndKind::NotLoggedIn,
        EndReason::SessionNotFound => TurnEndKind::SessionNotFound,
        EndReason::RateLimited => TurnEndKind::RateLimited,
        EndReason::ServiceFailed => TurnEndKind::ServiceFailed,
        EndReason::ProtocolError => TurnEndKind::ProtocolError,
        _ => TurnEndKind::Failed,
    }
}
