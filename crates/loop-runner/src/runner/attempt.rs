//! The agent's side of an attempt: its connection, its transcript, and how its turn ends.

use std::io;
use std::time::{Duration, Instant};

use agent_duplex::{Connection, EndReason, Event, Observation, Queued, Turn, TurnEnd};
use cancellable_sleep::SleepGate;
use loop_state::{Happening, Timestamp, TurnOutcome};

use crate::news::News;
use crate::runner::Runner;
use crate::transcript::Transcript;

/// How long an interrupted agent may take to come to an end by itself, at most half the budget of the stop.
const POLITE: Duration = Duration::from_secs(3);
/// How long to look for the last words of an agent that was ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) connection: Box<dyn Connection>,
    turn: Turn,
    /// `None` when it could not be written.
    transcript: Option<Transcript>,
    output_over: bool,
    halting: Option<Halting>,
    /// Whether the end of its tree was counted.
    stopped: bool,
}

/// A turn that was told to end.
#[derive(Clone, Copy, Debug)]
struct Halting {
    polite_until: Instant,
    end_by: Instant,
}

impl Attempt {
    pub(crate) fn new(connection: Box<dyn Connection>, transcript: Option<Transcript>) -> Self {
        Self {
            connection,
            turn: Turn::default(),
            transcript,
            output_over: false,
            halting: None,
            stopped: false,
        }
    }

    /// Waits for the next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Observation> {
        self.connection.next().await
    }

    pub(crate) fn may_speak(&self) -> bool {
        !self.output_over
    }

    pub(crate) fn flush_at(&self) -> Option<Timestamp> {
        self.transcript.as_ref()?.flush_at()
    }

    /// Returns until when an interrupted turn may come to its end by itself.
    pub(crate) fn polite_until(&self) -> Option<Instant> {
        let halting = self.halting.filter(|_| !self.turn.is_completed())?;
        Some(halting.polite_until)
    }
}

impl Runner {
    /// Takes what the agent did; `None` when it has nothing more to say.
    pub(super) async fn agent_did(&mut self, seen: Option<Observation>) -> Option<Happening> {
        let at = self.clock.now();
        let attempt = self.attempt.as_mut()?;
        let seen = match seen {
            Some(seen) => seen,
            None => {
                attempt.output_over = true;
                attempt.turn.finish()?.into()
            }
        };
        self.machine.alive(at);
        if let Some((stream, line)) = seen.raw {
            self.write_transcript(|transcript| transcript.output(at, stream, &line));
            self.tell(News::Output { stream, line });
        }
        for event in seen.events {
            let attempt = self.attempt.as_mut()?;
            match attempt.turn.observe(event)? {
                Event::Started { pid } => self.tell(News::AgentStarted { pid }),
                Event::TurnCompleted(end) => return Some(self.turn_over(end).await),
                _ => {}
            }
        }
        None
    }

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
        if attempt.polite_until()? > Instant::now() {
            return None;
        }
        Some(self.force_end().await)
    }

    /// Asks the agent to end its turn.
    pub(super) async fn halt_turn(&mut self) -> Option<Happening> {
        let budget = self.budget();
        if self.stop_by.is_none() {
            let why = self.machine.head().failure.clone();
            let why = why.unwrap_or_else(|| "the run's time is used up".into());
            self.tell(News::EndingTurn { why, budget });
        }
        let now = Instant::now();
        let attempt = self.attempt.as_mut()?;
        attempt.halting = Some(Halting {
            polite_until: now + POLITE.min(budget / 2),
            end_by: now + budget,
        });
        if attempt.connection.interrupt(Queued::Drop).await.is_ok() {
            return None;
        }
        Some(self.force_end().await)
    }

    /// Ends an agent that did not come to an end by itself, and hears its last words.
    async fn force_end(&mut self) -> Happening {
        self.stop_tree().await;
        let patience = SleepGate::new();
        let over = patience.sleep(LAST_WORDS);
        tokio::pin!(over);
        while let Some(attempt) = self.attempt.as_mut() {
            let event = tokio::select! {
                biased;
                _ = &mut over => break,
                event = attempt.connection.next() => event,
            };
            let last = event.is_none();
            match Box::pin(self.agent_did(event)).await {
                Some(happening) => return happening,
                None if last => break,
                None => {}
            }
        }
        Happening::TurnEnded(TurnOutcome::Stopped)
    }

    async fn turn_over(&mut self, end: TurnEnd) -> Happening {
        let halted = self
            .attempt
            .as_ref()
            .is_some_and(|attempt| attempt.halting.is_some());
        if halted {
            self.stop_tree().await;
        }
        let outcome = match end.reason {
            EndReason::Completed => TurnOutcome::Completed,
            _ if halted => TurnOutcome::Stopped,
            reason => TurnOutcome::Failed(describe(reason, &end)),
        };
        self.note_end(&outcome);
        Happening::TurnEnded(outcome)
    }

    fn note_end(&mut self, outcome: &TurnOutcome) {
        let text = match outcome {
            TurnOutcome::Completed => "completed",
            TurnOutcome::Failed(why) | TurnOutcome::NotStarted(why) => why,
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
        let report = attempt.connection.stop(budget).await;
        if std::mem::replace(&mut attempt.stopped, true) {
            return;
        }
        self.ended.extend(report.ended);
        self.proven &= report.proven;
        self.note_survivors(report.survivors);
    }

    /// Writes to the transcript. One that can't be written costs the run its record, not its life: it is given up, and that is said.
    pub(super) fn write_transcript(
        &mut self,
        write: impl FnOnce(&mut Transcript) -> io::Result<()>,
    ) {
        let transcript = self
            .attempt
            .as_mut()
            .and_then(|attempt| attempt.transcript.as_mut());
        let Some(Err(e)) = transcript.map(write) else {
            return;
        };
        if let Some(attempt) = &mut self.attempt {
            attempt.transcript = None;
        }
        self.tell(News::Warning(format!(
            "the rest of this attempt has no transcript: {e}"
        )));
    }
}

/// Says how a turn failed, with the last thing that the agent complained about.
fn describe(reason: EndReason, end: &TurnEnd) -> String {
    let mut text = match (reason, end.exit) {
        (EndReason::Interrupted, _) => "the agent was interrupted".to_owned(),
        (_, _) if !end.detail.is_empty() => format!("{reason}: {}", end.detail),
        (_, Some(exit)) => format!("the agent ended: {exit}"),
        _ => "the agent is gone and did not say how its turn ended".to_owned(),
    };
    if let Some(last) = end
        .stderr_tail
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
    {
        let last: String = last.trim().chars().take(200).collect();
        text.push_str(&format!(" ({last})"));
    }
    text
}
