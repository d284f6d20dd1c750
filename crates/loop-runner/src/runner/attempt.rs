//! The agent's side of an attempt: its connection, its transcript, and how its turn ends.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use agent_duplex::{Connection, EndReason, Event, Turn, TurnEnd};
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
    transcript: Transcript,
    output_over: bool,
    halting: Option<Halting>,
}

/// A turn that was told to end.
#[derive(Clone, Copy, Debug)]
struct Halting {
    polite_until: Instant,
    end_by: Instant,
}

impl Attempt {
    pub(crate) fn new(connection: Box<dyn Connection>, transcript: Transcript) -> Self {
        Self {
            connection,
            turn: Turn::default(),
            transcript,
            output_over: false,
            halting: None,
        }
    }

    pub(crate) fn create_transcript(
        run_dir: &Path,
        iteration: u32,
        attempt: u32,
    ) -> io::Result<Transcript> {
        Transcript::create(run_dir, iteration, attempt)
    }

    /// Waits for the next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        self.connection.next().await
    }

    pub(crate) fn may_speak(&self) -> bool {
        !self.output_over
    }

    pub(crate) fn flush_at(&self) -> Option<Timestamp> {
        self.transcript.flush_at()
    }

    /// Returns until when an interrupted turn may come to its end by itself.
    pub(crate) fn polite_until(&self) -> Option<Instant> {
        let halting = self.halting.filter(|_| !self.turn.is_completed())?;
        Some(halting.polite_until)
    }
}

impl Runner {
    /// Takes what the agent did; `None` when it has nothing more to say.
    pub(super) async fn agent_did(&mut self, event: Option<Event>) -> Option<Happening> {
        let at = self.clock.now();
        let Some(attempt) = &mut self.attempt else {
            return None;
        };
        let event = match event {
            Some(event) => event,
            None => {
                attempt.output_over = true;
                attempt.turn.finish()?
            }
        };
        self.machine.alive(at);
        match event {
            Event::Output { stream, line } => {
                let written = attempt.transcript.output(at, stream, &line);
                self.tell(News::Output { stream, line });
                self.check_transcript(written);
                None
            }
            Event::Started { pid } => {
                attempt.turn.observe(Event::Started { pid });
                self.tell(News::AgentStarted { pid });
                None
            }
            event => match attempt.turn.observe(event) {
                Some(Event::TurnCompleted(end)) => Some(self.turn_over(end).await),
                _ => None,
            },
        }
    }

    /// Flushes what is due and ends the patience with an interrupted agent.
    pub(super) async fn time_passed(&mut self) -> Option<Happening> {
        let now = self.clock.now();
        let attempt = self.attempt.as_mut()?;
        if attempt.flush_at().is_some_and(|at| at <= now) {
            let written = attempt.transcript.flush();
            self.check_transcript(written);
        }
        let attempt = self.attempt.as_ref()?;
        if attempt.polite_until()? > Instant::now() {
            return None;
        }
        Some(self.force_end().await)
    }

    /// Asks the agent to end its turn, and starts the one budget of the stop.
    pub(super) async fn halt_turn(&mut self) -> Option<Happening> {
        let budget = self.options.stop_budget;
        let attempt = self.attempt.as_mut()?;
        self.news.send(self.clock.now(), News::Stopping { budget });
        let now = Instant::now();
        attempt.halting = Some(Halting {
            polite_until: now + POLITE.min(budget / 2),
            end_by: now + budget,
        });
        if attempt.connection.interrupt().await.is_ok() {
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
        let at = self.clock.now();
        if let Some(attempt) = &mut self.attempt {
            let text = match outcome {
                TurnOutcome::Completed => "completed",
                TurnOutcome::Failed(why) | TurnOutcome::NotStarted(why) => why,
                _ => "stopped",
            };
            let written = attempt
                .transcript
                .note(at, "end", text)
                .and_then(|()| attempt.transcript.flush());
            self.check_transcript(written);
        }
    }

    /// Ends the whole tree of the attempt within what is left of the stop's budget.
    pub(super) async fn stop_tree(&mut self) {
        let Some(attempt) = self.attempt.as_mut() else {
            return;
        };
        let budget = match attempt.halting {
            Some(halting) => halting.end_by.saturating_duration_since(Instant::now()),
            None => self.options.stop_budget,
        };
        let report = attempt.connection.stop(budget).await;
        self.ended = report.ended;
        self.proven &= report.proven;
        self.note_survivors(report.survivors);
    }

    /// A transcript that can't be written costs the run its record, not its life; that is said once for an attempt.
    fn check_transcript(&mut self, written: io::Result<()>) {
        if let Err(e) = written {
            self.tell(News::Warning(format!(
                "the transcript can't be written: {e}"
            )));
        }
    }
}

/// Says how a turn failed, with the last thing that the agent complained about.
fn describe(reason: EndReason, end: &TurnEnd) -> String {
    let mut text = match (reason, end.exit) {
        (EndReason::Interrupted, _) => "the agent was interrupted".to_owned(),
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
