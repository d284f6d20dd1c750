//! One conversation of a scenario, and the waits for its events.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::cell::Cell;
use super::cell::{Deed, Stage};
use super::record::{Noted, Record, Seen};
use super::witness::Witness;
use crate::{
    Capability, Completion, Conversation, ConversationOptions, EndReason, Event, Input, Primary,
    Queued, Receipt, RestartPolicy, SessionChoice, StopReport, Stream, TurnId, What,
};

/// The usual budget of a stop.
pub(super) const BUDGET: Duration = Duration::from_secs(8);
/// The interval between two checks of a state that has no event.
pub(super) const GLANCE: Duration = Duration::from_millis(20);
/// The number of checks without an observation that count as silence, and the time limit of a wait for silence.
const QUIET: u32 = 15;
const SETTLING: Duration = Duration::from_secs(1);
/// A small backlog for the reader, so that a slow reader has an effect soon.
const BACKLOG: usize = 16;

/// The result of a step of a scenario; the error is also a result of the scenario, found before its end.
pub(super) type Played<T = Cell> = Result<T, Cell>;

pub(super) struct Scene<'a> {
    pub(super) stage: &'a dyn Stage,
    pub(super) record: Record,
    pub(super) conversation: Conversation,
    reader: Reader,
}

enum Reader {
    Waits(Primary),
    Reads(JoinHandle<()>),
    Gone,
}

pub(super) fn broken<T>(what: impl Into<String>) -> Played<T> {
    Err(Cell::Broken(what.into()))
}

/// Fails unless the condition is true.
pub(super) fn holds(holds: bool, otherwise: impl FnOnce() -> String) -> Played<()> {
    if holds { Ok(()) } else { broken(otherwise()) }
}

impl<'a> Scene<'a> {
    /// Starts a conversation; its reader does not read yet.
    pub(super) fn new(stage: &'a dyn Stage) -> Self {
        let record = Record::default();
        let driver = Witness::new(stage.driver(), record.clone());
        let at_once = RestartPolicy::default().with_waits(Duration::ZERO, Duration::ZERO);
        let options = ConversationOptions::default()
            .with_restart(at_once)
            .with_backlog(BACKLOG);
        let (conversation, primary) = Conversation::new(Box::new(driver), options);
        Self {
            stage,
            record,
            conversation,
            reader: Reader::Waits(primary),
        }
    }

    /// Starts to read, and starts the agent.
    pub(super) async fn begin(&mut self) -> Played<()> {
        self.read();
        self.start(SessionChoice::Fresh).await
    }

    /// Starts the conversation with this action in its first turn. Fails if the agent can't be made to do it.
    pub(super) async fn begin_with(&mut self, deed: &Deed) -> Played<Receipt> {
        self.words(deed)?;
        self.begin().await?;
        self.send(deed)
    }

    pub(super) async fn start(&self, session: SessionChoice) -> Played<()> {
        let starting = self.conversation.start(session);
        let started = self.within("the start of the agent", starting).await?;
        started.or_else(|e| broken(format!("the agent does not start: {e}")))
    }

    /// Starts to read the events of the conversation.
    pub(super) fn read(&mut self) {
        if let Reader::Waits(mut primary) = std::mem::replace(&mut self.reader, Reader::Gone) {
            let record = self.record.clone();
            self.reader = Reader::Reads(tokio::spawn(async move {
                while let Some(published) = primary.next_shared().await {
                    record.change(|seen| seen.publish(published));
                }
                record.change(|seen| seen.over = true);
            }));
        }
    }

    pub(super) fn has(&self, capability: Capability) -> bool {
        self.conversation.capabilities().has(capability)
    }

    pub(super) fn words(&self, deed: &Deed) -> Played<String> {
        self.stage.words(deed).map_err(Cell::Impossible)
    }

    pub(super) fn send(&self, deed: &Deed) -> Played<Receipt> {
        let input = Input::new(self.words(deed)?);
        // The audit must know the receipt before the events of this input are read; both use this lock.
        let sent = self.record.change(|seen| {
            let receipt = self.conversation.send(input)?;
            seen.audit.accepted(&receipt);
            Ok::<_, crate::Error>(receipt)
        });
        sent.or_else(|e| broken(format!("an input is rejected: {e}")))
    }

    pub(super) async fn within<T>(&self, what: &str, future: impl Future<Output = T>) -> Played<T> {
        let patience = self.stage.patience();
        let done = timeout(patience, future).await;
        done.or_else(|_| broken(format!("the wait for {what} took longer than {patience:?}")))
    }

    /// Waits until `find` returns a value.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        find: impl FnMut(&Seen) -> Option<T>,
    ) -> Played<T> {
        self.within(what, self.record.find(find)).await
    }

    pub(super) async fn turn(&self, receipt: &Receipt) -> Played<TurnId> {
        let id = receipt.id;
        self.until("the turn of an input", |seen| seen.turn_of(id))
            .await
    }

    pub(super) async fn completion(&self, receipt: &Receipt) -> Played<Completion> {
        let turn = self.turn(receipt).await?;
        self.until("the end of a turn", |seen| seen.completion(turn).cloned())
            .await
    }

    /// Waits for the end of an input's turn, which must have this reason.
    pub(super) async fn ends(&self, receipt: &Receipt, reason: EndReason) -> Played<Completion> {
        let completion = self.completion(receipt).await?;
        let end = &completion.end;
        holds(end.reason == reason, || {
            format!("wrong end of a turn (expected: {reason}): {end}")
        })?;
        Ok(completion)
    }

    /// Makes the agent do an action in a turn of its own, which must be completed.
    pub(super) async fn perform(&self, deed: &Deed) -> Played<TurnId> {
        let receipt = self.send(deed)?;
        let completion = self.ends(&receipt, EndReason::Completed).await?;
        Ok(completion.turn)
    }

    /// Makes the agent write a word in a turn of its own.
    pub(super) async fn say(&self, word: &str) -> Played<TurnId> {
        let turn = self.perform(&Deed::Say(word.to_owned())).await?;
        self.heard(turn, word)?;
        Ok(turn)
    }

    pub(super) fn heard(&self, turn: TurnId, word: &str) -> Played<()> {
        let said = self.said(turn);
        let short: String = said.chars().take(200).collect();
        holds(said.contains(word), || {
            format!("expected {word:?} in the answer, but got {short:?}")
        })
    }

    /// Returns whether the driver declares nothing about the agent, so that its output is all that it reports.
    pub(super) fn is_bare(&self) -> bool {
        self.conversation.capabilities() == crate::Capabilities::none()
    }

    /// Returns the text of a turn: its messages, or the agent's output if the driver declares nothing about it.
    pub(super) fn said(&self, turn: TurnId) -> String {
        let (mut messages, mut output) = (String::new(), String::new());
        for what in self.record.lock().of_turn(turn) {
            let What::Observed(seen) = what else { continue };
            if let Some((Stream::Stdout, line)) = &seen.raw {
                output.push_str(&String::from_utf8_lossy(&line.bytes));
                output.push('\n');
            }
            for event in &seen.events {
                if let Event::Message { text, .. } = event {
                    messages.push_str(text);
                }
            }
        }
        if messages.is_empty() && self.is_bare() {
            output
        } else {
            messages
        }
    }

    /// Waits until the agent writes text in a turn.
    pub(super) async fn speaks(&self, turn: TurnId) -> Played<()> {
        let bare = self.is_bare();
        let speaks = |what: &What| {
            let What::Observed(seen) = what else {
                return false;
            };
            let said = |event: &Event| matches!(event, Event::TextDelta(text) | Event::Message { text, .. } if !text.is_empty());
            seen.events.iter().any(said) || (bare && seen.raw.is_some())
        };
        let find = |seen: &Seen| seen.of_turn(turn).any(speaks).then_some(());
        self.until("the first output of the agent", find).await
    }

    /// Waits until a tool runs: its process exists, or its start is reported.
    pub(super) async fn works(&self, turn: TurnId, tool: &str) -> Played<()> {
        if self.sees(tool, true).await? {
            return Ok(());
        } else if !self.has(Capability::Tools) {
            let what = "neither the test agent nor its driver reports a running tool";
            return Err(Cell::Impossible(what.to_owned()));
        }
        let started = |event: &Event| matches!(event, Event::ToolStarted { .. });
        let find = |seen: &Seen| seen.events(turn).any(started).then_some(());
        self.until("the start of a tool", find).await
    }

    /// Waits until no process of a tool is left; returns whether this can be observed.
    pub(super) async fn ceases(&self, tool: &str) -> Played<bool> {
        self.sees(tool, false).await
    }

    async fn sees(&self, tool: &str, alive: bool) -> Played<bool> {
        let what = match alive {
            true => format!("the process of the tool {tool}"),
            false => format!("the end of the tool {tool}"),
        };
        let seen = async {
            loop {
                match self.stage.alive(tool) {
                    Some(now) if now != alive => glance().await,
                    seen => return seen.is_some(),
                }
            }
        };
        self.within(&what, seen).await
    }

    /// Waits until the driver has reported something, and then nothing more for a while.
    pub(super) async fn stalls(&self) -> Played<()> {
        // The first observation only shows that the agent runs.
        let spoke = |seen: &Seen| (seen.observations > 1).then_some(());
        self.until("the first output of the agent", spoke).await?;
        self.within("silence", self.quiet()).await
    }

    /// Waits until the driver reports nothing for a while, or for a second.
    pub(super) async fn silence(&self) {
        // The wait has a time limit, because some drivers are never silent.
        drop(timeout(SETTLING, self.quiet()).await);
    }

    async fn quiet(&self) {
        let (mut last, mut quiet) = (0, 0);
        while quiet < QUIET {
            glance().await;
            let now = self.record.lock().observations;
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
        }
    }

    /// Ends the process of the agent like a crash.
    pub(super) async fn kill(&self) -> Played<()> {
        let what = "the process of the agent";
        let pid = self.until(what, Seen::pid).await?;
        let why = |e| Cell::Impossible(format!("it can't be killed: {e}"));
        self.stage.kill(pid).map_err(why)
    }

    pub(super) async fn interrupt(&self) -> Played<Result<(), crate::Error>> {
        let interrupt = self.conversation.interrupt(Queued::Keep);
        self.within("the result of an interrupt", interrupt).await
    }

    pub(super) async fn stop(&self) -> Played<StopReport> {
        let stopping = self.conversation.stop(BUDGET);
        // The driver must observe the budget, and the conversation gives up 10 s later.
        let report = timeout(BUDGET * 4, stopping).await;
        report.or_else(|_| broken("a stop did not end"))
    }

    /// Ends the conversation and checks all promises.
    pub(super) async fn finish(mut self) -> Played<()> {
        self.read();
        // Late and duplicate events arrive now.
        self.silence().await;
        let report = self.stop().await?;
        holds(report.survivors.is_empty(), || {
            format!("a stop left processes: {report}")
        })?;
        self.until("the end of the reader", |seen| seen.over.then_some(()))
            .await?;
        if let Reader::Reads(reader) = std::mem::replace(&mut self.reader, Reader::Gone) {
            let joined = self.within("the reader", reader).await?;
            holds(joined.is_ok(), || "the reader panicked".to_owned())?;
        }
        let seen = self.record.lock();
        let (running, pending) = (seen.audit.running(), seen.audit.pending());
        holds(running == 0, || format!("{running} turns never ended"))?;
        holds(pending == 0, || format!("{pending} inputs are in no turn"))?;
        match seen.faults.first() {
            Some(fault) => broken(fault),
            None => Ok(()),
        }
    }
}

async fn glance() {
    // This future never resolves; only the timeout ends the wait.
    let _due = timeout(GLANCE, std::future::pending::<()>()).await;
}

/// Returns the number of delivered messages, and whether the last one was delivered while a turn ran.
pub(super) fn handed(seen: &Seen) -> (usize, bool) {
    let sent = seen.tape.iter().filter_map(|(_, noted)| match noted {
        Noted::Sent { busy } => Some(*busy),
        _ => None,
    });
    let sent: Vec<bool> = sent.collect();
    (sent.len(), sent.last().copied().unwrap_or(false))
}
