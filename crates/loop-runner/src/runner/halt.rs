//! How a turn ends: by itself, by a person's interrupt, or because it has to.

use std::time::{Duration, SystemTime};

use agent_duplex::{EndReason, Queued, StopReport, TurnEnd};
use loop_state::{Happening, Timestamp, TurnOutcome};
use rlm_store::transcript::Transcript;
use tokio::time::Instant;

use crate::limit;
use crate::news::News;
use crate::runner::Runner;
use crate::runner::attempt::Halting;
use crate::runner::hold::both;

/// How long an interrupted agent may take to come to an end by itself, at most half the budget of the stop.
const POLITE: Duration = Duration::from_secs(3);
/// How long a turn may take to end after a person's interrupt. Longer than a driver's own patience, so that its gentler means come first.
const INTERRUPT: Duration = Duration::from_secs(6);

impl Runner {
    /// Flushes what is due and ends the patience with an interrupted agent.
    pub(super) async fn time_passed(&mut self) -> Option<Happening> {
        let now = self.clock.now();
        self.tell_silence(now);
        self.tell_waiting(now);
        if self
            .attempt
            .as_ref()?
            .flush_at()
            .is_some_and(|at| at <= now)
        {
            self.write_transcript(Transcript::flush);
        }
        let (now, attempt) = (Instant::now(), self.attempt.as_ref()?);
        let is_over = |by: Option<Instant>| by.is_some_and(|by| by <= now);
        if is_over(attempt.hold_by()) && self.frozen_at.is_none() {
            self.give_up_hold();
            return None;
        }
        if !is_over(attempt.patient_until()) {
            return None;
        }
        if attempt.halting.is_none() {
            self.tell(News::Warning(format!(
                "the agent did not end its turn within {INTERRUPT:?} of the interrupt and is ended itself; its session can be gone on with"
            )));
        }
        self.begin_ending();
        None
    }

    /// Interrupts the turn for a person; the session stays.
    ///
    /// Where none runs and only tasks are waited for, the wait is over, unless something was said that begins one.
    pub(super) fn interrupt_turn(&mut self) -> Option<Happening> {
        let attempt = self.attempt.as_mut()?;
        if attempt.tasks_held_for().is_some() {
            if !attempt.sent.is_empty() {
                return None;
            }
            attempt.hold_by = None;
            attempt.outcome = Some(TurnOutcome::Interrupted);
            return self.turn_ended();
        }
        attempt.interrupted = true;
        attempt.interrupt_by = Some(Instant::now() + INTERRUPT);
        drop(attempt.conversation.interrupt(Queued::Keep));
        None
    }

    /// Asks the agent to end its turn.
    pub(super) fn halt_turn(&mut self) {
        let budget = self.budget();
        if self.stop_by.is_none() && self.machine.head().again.is_none() {
            let head = self.machine.head();
            let spent = || head.spent().map(|budget| budget.to_string());
            let why = head.failure.clone().or_else(spent);
            let why = why.unwrap_or_else(|| "the run's time is used up".into());
            self.tell(News::EndingTurn { why, budget });
        }
        let now = Instant::now();
        let impatient = self.impatient;
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        attempt.halting = Some(Halting {
            polite_until: now + POLITE.min(budget / 2),
            end_by: now + budget,
        });
        if impatient || !attempt.in_turn || attempt.gone || attempt.starting.is_some() {
            self.begin_ending();
        } else {
            drop(attempt.conversation.interrupt(Queued::Drop));
        }
    }

    /// Begins to end the whole tree of the attempt, beside everything else, within what is left of the stop's budget.
    fn begin_ending(&mut self) {
        let budget = self.budget();
        let Some(attempt) = self.attempt.as_mut() else {
            return;
        };
        if attempt.ending.is_some() || attempt.stopped {
            return;
        }
        let by = attempt.halting.map(|halting| halting.end_by);
        let by = by.unwrap_or_else(|| Instant::now() + budget);
        let (conversation, mut hurried) = (attempt.conversation.clone(), attempt.hurry.hurried());
        attempt.ending = Some(tokio::spawn(async move {
            crate::hurry::stop(&mut hurried, &conversation, by).await
        }));
    }

    /// Takes notice that the tree of the attempt is gone.
    pub(super) fn tree_ended(&mut self, report: Option<StopReport>) -> Option<Happening> {
        self.count_ended(report);
        self.turn_ended()
    }

    /// Says how a turn ended.
    pub(super) fn turn_over(&mut self, end: TurnEnd) -> Option<Happening> {
        let promise = self.phase().promise.clone();
        let outage = self.outage(&end);
        let now = self.clock.now();
        let attempt = self.attempt.as_mut()?;
        let halted = attempt.halting.is_some();
        let claimed = attempt.has_claimed(promise.as_ref());
        let outcome = match end.reason {
            EndReason::Completed if claimed => TurnOutcome::Claimed,
            EndReason::Completed => TurnOutcome::Completed,
            _ if halted => TurnOutcome::Stopped,
            EndReason::NotLoggedIn => TurnOutcome::Hopeless(describe(&end)),
            EndReason::SessionNotFound => TurnOutcome::SessionLost,
            EndReason::Interrupted | EndReason::Died if attempt.interrupted => {
                TurnOutcome::Interrupted
            }
            EndReason::RateLimited => TurnOutcome::RateLimited {
                reset: { attempt.limited_until.and_then(timestamp) }
                    .or_else(|| limit::named(&end.detail).map(|time| now + time)),
                why: describe(&end),
            },
            EndReason::ServiceFailed => outage,
            EndReason::ProtocolError => TurnOutcome::Transient(describe(&end)),
            _ => TurnOutcome::Failed(describe(&end)),
        };
        let before = attempt.outcome.take().filter(|_| attempt.hold_by.is_some());
        let is_own = before.is_some();
        let both = before.map_or_else(|| outcome.clone(), |turn| both(turn, &outcome));
        let is_judged = matches!(both, TurnOutcome::Completed | TurnOutcome::Claimed);
        attempt.outcome = Some(both);
        self.note_end(&outcome);
        if let (true, false, Some(why)) = (is_own, halted, failure(&outcome)) {
            self.tell(News::Warning(format!(
                "the turn that the agent began by itself failed ({why}); the one before it stands"
            )));
        }
        // Nothing of it shall run on while the loop waits for hours.
        let mends = matches!(
            outcome,
            TurnOutcome::RateLimited { .. } | TurnOutcome::Transient(_)
        );
        let waits = !is_own && mends;
        if halted || waits {
            self.begin_ending();
        } else if is_judged {
            // What is half done is no evidence: gates and check wait for it.
            self.hold();
        }
        let holds = self.attempt.as_ref()?.hold_by.is_some();
        if !holds && !halted && !waits && outcome != TurnOutcome::Interrupted {
            self.close_agent();
        }
        self.refresh_view();
        self.turn_ended()
    }

    /// Returns what becomes of a turn whose service failed. One that has answered this run before is waited for as for the end of a limit: who sleeps
    /// meanwhile finds the run going on, not given up. One that never did may be a mistake in the settings, of which a person wants to hear soon.
    fn outage(&self, end: &TurnEnd) -> TurnOutcome {
        let (head, why) = (self.machine.head(), describe(end));
        let works = head.usage.tokens() > 0 || head.counts.iterations > head.counts.failed;
        match works && !head.rules.wait_on_limit.is_zero() {
            true => TurnOutcome::RateLimited { reset: None, why },
            false => TurnOutcome::Transient(why),
        }
    }

    /// Returns how the turn ended, once nothing that was to end with it is left.
    pub(super) fn turn_ended(&mut self) -> Option<Happening> {
        let attempt = self.attempt.as_mut()?;
        let is_ending = attempt.ending.is_some() || attempt.closing.is_some();
        if is_ending || attempt.holds() || (attempt.halting.is_some() && !attempt.stopped) {
            return None;
        }
        let owed = attempt.halting.is_some() || !attempt.told;
        let owed = owed && attempt.stopped && !attempt.in_turn;
        let outcome = attempt.outcome.take();
        let outcome = outcome.or_else(|| owed.then_some(TurnOutcome::Stopped))?;
        attempt.halting = None;
        attempt.told = true;
        Some(Happening::TurnEnded(outcome))
    }

    fn note_end(&mut self, outcome: &TurnOutcome) {
        let text = match outcome {
            TurnOutcome::Completed | TurnOutcome::Claimed => "completed",
            TurnOutcome::Interrupted => "interrupted",
            outcome => failure(outcome).unwrap_or("stopped"),
        };
        let at = self.clock.now();
        self.write_transcript(|transcript| {
            transcript.note(at, "end", text)?;
            transcript.flush()
        });
    }

    /// Ends the whole tree of the attempt, and waits for it.
    pub(super) async fn stop_tree(&mut self) {
        self.begin_ending();
        let ending = self
            .attempt
            .as_mut()
            .and_then(|attempt| attempt.ending.take());
        if let Some(ending) = ending {
            let report = ending.await.ok();
            self.count_ended(report);
        }
    }

    fn count_ended(&mut self, report: Option<StopReport>) {
        let Some(attempt) = self.attempt.as_mut() else {
            return;
        };
        if std::mem::replace(&mut attempt.stopped, true) {
            return;
        }
        let Some(report) = report else {
            self.proven = false;
            return;
        };
        self.ended.extend(report.ended);
        self.proven &= report.proven;
        self.note_survivors(report.survivors);
        self.refresh_view();
    }
}

/// Returns how a turn failed, if it did by itself.
fn failure(outcome: &TurnOutcome) -> Option<&str> {
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
fn timestamp(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok().map(Timestamp)
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
    if let Some(last) = complaint
        .map(str::trim)
        .find(|line| line.contains(char::is_alphanumeric))
    {
        let last: String = last.chars().take(200).collect();
        text.push_str(&format!(" ({last})"));
    }
    text
}
