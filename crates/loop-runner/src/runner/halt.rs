//! How a turn ends: by itself, by a person's interrupt, or because it has to.

use std::time::SystemTime;

use agent_duplex::{EndReason, StopReport, TurnEnd};
use loop_state::{AttemptInput, Happening, Timestamp, TurnOutcome};
use rlm_store::transcript::Transcript;

use crate::news::News;
use crate::runner::Runner;
use crate::runner::parts::attempt::Attempt;

impl Runner {
    /// Flushes what is due, and lets the machine of the attempt know that time passed.
    pub(super) fn time_passed(&mut self) -> Vec<Happening> {
        let now = self.clock.now();
        let flush_at = self.agent_io.attempt.as_ref().and_then(Attempt::flush_at);
        if flush_at.is_some_and(|at| at <= now) {
            self.write_transcript(Transcript::flush);
        }
        self.step_attempt(AttemptInput::Time)
    }

    /// Interrupts the turn for a person; the session stays.
    ///
    /// Where none runs and only tasks are waited for, the wait is over, unless something was said that begins one.
    pub(super) fn interrupt_turn(&mut self) -> Vec<Happening> {
        self.step_attempt(AttemptInput::Interrupt)
    }

    /// Asks the agent to end its turn.
    pub(super) fn halt_turn(&mut self, why: Option<String>, at_once: bool) -> Vec<Happening> {
        if std::mem::take(&mut self.agent_io.withheld) {
            return vec![Happening::TurnEnded(TurnOutcome::Stopped)];
        }
        let budget = self.budget();
        if let Some(why) = why {
            self.tell(News::EndingTurn { why, budget });
        }
        self.step_attempt(AttemptInput::Stop { at_once })
    }

    /// Takes notice that the tree of the attempt is gone.
    pub(super) fn tree_ended(&mut self, report: Option<StopReport>) -> Vec<Happening> {
        self.count_ended(report);
        let happenings = self.step_attempt(AttemptInput::TreeGone);
        self.refresh_view();
        happenings
    }

    /// Ends the whole tree of the attempt, and waits for it.
    pub(super) async fn stop_tree(&mut self) {
        // Nobody waits for a turn any more.
        let _unheard = self.step_attempt(AttemptInput::End);
        let attempt = self.agent_io.attempt.as_mut();
        if let Some(ending) = attempt.and_then(|attempt| attempt.tasks.ending.take()) {
            let report = ending.await.ok();
            let _unheard = self.tree_ended(report);
        }
    }

    fn count_ended(&mut self, report: Option<StopReport>) {
        let Some(report) = report else {
            self.ends.proven = false;
            return;
        };
        self.ends.ended.extend(report.ended);
        self.ends.proven &= report.proven;
        self.note_survivors(report.survivors);
    }
}

/// Returns how a turn failed, if it did by itself.
pub(super) fn failure(outcome: &TurnOutcome) -> Option<&str> {
    match outcome {
        TurnOutcome::SessionLost => Some("its session does not exist"),
        TurnOutcome::Failed(why)
        | TurnOutcome::Transient(why)
        | TurnOutcome::RateLimited { why, .. }
        | TurnOutcome::Hopeless(why)
        | TurnOutcome::SessionHeld(why)
        | TurnOutcome::NotStarted(why) => Some(why),
        _ => None,
    }
}

/// Returns a time of the service's; `None` for one before our clock's beginning.
pub(super) fn timestamp(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok().map(Timestamp)
}

/// Says how a turn failed, with the last thing that the agent complained about.
pub(super) fn describe(end: &TurnEnd) -> String {
    let mut text = match (end.reason, end.exit) {
        (EndReason::Interrupted, _) => "the agent was interrupted".to_owned(),
        (reason, _) if !end.detail.is_empty() => format!("{reason}: {}", end.detail),
        (EndReason::Failed | EndReason::Died, Some(exit)) => format!("the agent ended: {exit}"),
        (EndReason::Died, None) => {
            "the agent is gone and did not say how its turn ended".to_owned()
        }
        (reason, _) => reason.to_string(),
    };
    let complaint = end.stderr_tail.lines().rev();
    if let Some(last) = complaint
        .map(str::trim)
        .find(|line| line.contains(char::is_alphanumeric))
    {
        let last: String = last.chars().take(200).collect();
        text.push_str(&format!(" ({last})"));
    }
    text
}
