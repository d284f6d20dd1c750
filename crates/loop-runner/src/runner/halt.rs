//! How a turn ends: by itself, by a person's interrupt, or because it has to.

use std::time::{Duration, Instant};

use agent_duplex::{EndReason, Queued, TurnEnd};
use cancellable_sleep::SleepGate;
use loop_state::{Happening, TurnOutcome};

use crate::news::News;
use crate::runner::Runner;
use crate::runner::attempt::Halting;
use crate::transcript::Transcript;

/// How long an interrupted agent may take to come to an end by itself, at most half the budget of the stop.
const POLITE: Duration = Duration::from_secs(3);
/// How long a turn may take to end after a person's interrupt. Longer than a driver's own patience, so that its gentler means come first.
const INTERRUPT: Duration = Duration::from_secs(6);
/// How long everything may take to end for a person who has no patience.
const IMPATIENT: Duration = Duration::from_secs(1);
/// How long to look for the last words of an agent that was ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl Runner {
    /// Flushes what is due and ends the patience with an interrupted agent.
    pub(super) async fn time_passed(&mut self) -> Option<Happening> {
        let now = self.clock.now();
        if self
            .attempt
            .as_ref()?
            .flush_at()
            .is_some_and(|at| at <= now)
        {
            self.write_transcript(Transcript::flush);
        }
        let attempt = self.attempt.as_ref()?;
        if attempt.patient_until()? > Instant::now() {
            return None;
        }
        if attempt.halting.is_none() {
            self.tell(News::Warning(format!(
                "the agent did not end its turn within {INTERRUPT:?} of the interrupt and is ended itself; its session can be gone on with"
            )));
        }
        Some(self.force_end().await)
    }

    /// Interrupts the turn for a person; the session stays.
    pub(super) fn interrupt_turn(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            attempt.interrupt_by = Some(Instant::now() + INTERRUPT);
            drop(attempt.conversation.interrupt(Queued::Keep));
        }
    }

    /// Asks the agent to end its turn.
    pub(super) async fn halt_turn(&mut self) -> Option<Happening> {
        let budget = self.budget();
        if self.stop_by.is_none() && self.machine.head().again.is_none() {
            let why = self.machine.head().failure.clone();
            let why = why.unwrap_or_else(|| "the run's time is used up".into());
            self.tell(News::EndingTurn { why, budget });
        }
        let now = Instant::now();
        let impatient = self.impatient;
        let attempt = self.attempt.as_mut()?;
        attempt.halting = Some(Halting {
            polite_until: now + POLITE.min(budget / 2),
            end_by: now + budget,
        });
        if impatient || !attempt.in_turn || attempt.gone || attempt.starting.is_some() {
            return Some(self.force_end().await);
        }
        drop(attempt.conversation.interrupt(Queued::Drop));
        None
    }

    /// Ends an agent that did not come to an end by itself, and hears its last words.
    async fn force_end(&mut self) -> Happening {
        self.stop_tree().await;
        let patience = SleepGate::new();
        let over = patience.sleep(LAST_WORDS);
        tokio::pin!(over);
        while let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.in_turn) {
            let published = tokio::select! {
                biased;
                _ = &mut over => break,
                published = attempt.next() => published,
            };
            let last = published.is_none();
            let happenings = Box::pin(self.agent_did(published)).await;
            let end = happenings
                .into_iter()
                .find(|happening| matches!(happening, Happening::TurnEnded(_)));
            match end {
                Some(end) => return end,
                None if last => break,
                None => {}
            }
        }
        Happening::TurnEnded(TurnOutcome::Stopped)
    }

    /// Says how a turn ended. `asked`: a person had interrupted it.
    pub(super) async fn turn_over(&mut self, end: TurnEnd, asked: bool) -> Happening {
        let promise = self.phase().promise.clone();
        let Some(attempt) = &self.attempt else {
            return Happening::TurnEnded(TurnOutcome::Stopped);
        };
        let halted = attempt.halting.is_some();
        let claimed = attempt.has_claimed(promise.as_ref());
        if halted {
            self.stop_tree().await;
        } else if !asked {
            // The agent itself is not needed any more; what it left running is looked at when gates and check are over.
            let conversation = attempt.conversation.clone();
            tokio::spawn(async move { conversation.close().await });
        }
        let outcome = match end.reason {
            EndReason::Completed if claimed => TurnOutcome::Claimed,
            EndReason::Completed => TurnOutcome::Completed,
            _ if halted => TurnOutcome::Stopped,
            _ if asked => TurnOutcome::Interrupted,
            EndReason::NotLoggedIn => TurnOutcome::Hopeless(describe(&end)),
            EndReason::SessionNotFound => TurnOutcome::SessionLost,
            _ => TurnOutcome::Failed(describe(&end)),
        };
        self.note_end(&outcome);
        self.refresh_view();
        Happening::TurnEnded(outcome)
    }

    fn note_end(&mut self, outcome: &TurnOutcome) {
        let text = match outcome {
            TurnOutcome::Completed | TurnOutcome::Claimed => "completed",
            TurnOutcome::Interrupted => "interrupted",
            TurnOutcome::SessionLost => "its session does not exist",
            TurnOutcome::Failed(why)
            | TurnOutcome::Hopeless(why)
            | TurnOutcome::NotStarted(why) => why,
            _ => "stopped",
        };
        let at = self.clock.now();
        self.write_transcript(|transcript| {
            transcript.note(at, "end", text)?;
            transcript.flush()
        });
    }

    /// Ends the whole tree of the attempt within what is left of the stop's budget.
    pub(super) async fn stop_tree(&mut self) {
        let budget = self.budget();
        let Some(attempt) = self.attempt.as_mut() else {
            return;
        };
        let budget = match attempt.halting {
            Some(halting) => halting.end_by.saturating_duration_since(Instant::now()),
            None => budget,
        };
        let budget = if self.impatient {
            budget.min(IMPATIENT)
        } else {
            budget
        };
        let report = attempt.conversation.stop(budget).await;
        if std::mem::replace(&mut attempt.stopped, true) {
            return;
        }
        self.ended.extend(report.ended);
        self.proven &= report.proven;
        self.note_survivors(report.survivors);
        self.refresh_view();
    }
}

/// Says how a turn failed, with the last thing that the agent complained about.
fn describe(end: &TurnEnd) -> String {
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
    if let Some(last) = complaint.map(str::trim).find(|line| !line.is_empty()) {
        let last: String = last.chars().take(200).collect();
        text.push_str(&format!(" ({last})"));
    }
    text
}
