//! One conversation of a scenario, and the waits for its events.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::record::{DriverCall, Recorded, ScenarioRecord};
use super::recording::RecordingDriver;
use super::scenario::ScenarioResult;
use super::scenario::{TestAction, TestAgent};
use crate::{
    Capability, Completion, Conversation, ConversationEvent, ConversationOptions, EndReason, Event,
    Input, Primary, QueuedMessages, Receipt, RestartPolicy, SessionChoice, StopReport, Stream,
    TurnId,
};

/// The usual budget of a stop.
pub(super) const BUDGET: Duration = Duration::from_secs(8);
/// The interval between two checks of a state that has no event.
pub(super) const POLL: Duration = Duration::from_millis(20);
/// The number of checks without an observation that count as silence.
const QUIET: u32 = 15;
/// The time limit of a wait for silence.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// A small backlog for the reader, so that a slow reader has an effect soon.
const BACKLOG: usize = 16;

/// The result of a step of a scenario. An error ends the scenario early, and is the result of the scenario.
pub(super) type ScenarioCheck<T = ScenarioResult> = Result<T, ScenarioResult>;

pub(super) struct ScenarioRun<'a> {
    pub(super) test_agent: &'a dyn TestAgent,
    pub(super) record: ScenarioRecord,
    pub(super) conversation: Conversation,
    reader: PrimaryReader,
}

enum PrimaryReader {
    Waits(Primary),
    Reads(JoinHandle<()>),
    Gone,
}

pub(super) fn failure<T>(what: impl Into<String>) -> ScenarioCheck<T> {
    Err(ScenarioResult::Failed(what.into()))
}

/// Fails unless the condition is true.
pub(super) fn require(holds: bool, otherwise: impl FnOnce() -> String) -> ScenarioCheck<()> {
    if holds { Ok(()) } else { failure(otherwise()) }
}

impl<'a> ScenarioRun<'a> {
    /// Starts a conversation; its reader does not read yet.
    pub(super) fn new(test_agent: &'a dyn TestAgent) -> Self {
        let record = ScenarioRecord::default();
        let driver = RecordingDriver::new(test_agent.driver(), record.clone());
        let at_once = RestartPolicy::default().with_waits(Duration::ZERO, Duration::ZERO);
        let options = ConversationOptions::default()
            .with_restart(at_once)
            .with_backlog(BACKLOG);
        let (conversation, primary) = Conversation::with_primary(Box::new(driver), options);
        Self {
            test_agent,
            record,
            conversation,
            reader: PrimaryReader::Waits(primary),
        }
    }

    /// Starts to read, and starts the agent.
    pub(super) async fn begin(&mut self) -> ScenarioCheck<()> {
        self.read();
        self.start(SessionChoice::Fresh).await
    }

    /// Starts the conversation with this action in its first turn. Fails if the agent can't be made to do it.
    pub(super) async fn begin_with(&mut self, action: &TestAction) -> ScenarioCheck<Receipt> {
        self.prompt_for(action)?;
        self.begin().await?;
        self.send(action)
    }

    pub(super) async fn start(&self, session: SessionChoice) -> ScenarioCheck<()> {
        let starting = self.conversation.start(session);
        let started = self.within("the start of the agent", starting).await?;
        started.or_else(|e| failure(format!("the agent does not start: {e}")))
    }

    /// Starts to read the events of the conversation.
    pub(super) fn read(&mut self) {
        if let PrimaryReader::Waits(mut primary) =
            std::mem::replace(&mut self.reader, PrimaryReader::Gone)
        {
            let record = self.record.clone();
            self.reader = PrimaryReader::Reads(tokio::spawn(async move {
                while let Some(published) = primary.next_shared().await {
                    record.change(|seen| seen.publish(published));
                }
                record.change(|seen| seen.is_over = true);
            }));
        }
    }

    pub(super) fn has(&self, capability: Capability) -> bool {
        self.conversation.capabilities().has(capability)
    }

    pub(super) fn prompt_for(&self, action: &TestAction) -> ScenarioCheck<String> {
        self.test_agent
            .prompt_for(action)
            .map_err(ScenarioResult::NotApplicable)
    }

    pub(super) fn send(&self, action: &TestAction) -> ScenarioCheck<Receipt> {
        let input = Input::new(self.prompt_for(action)?);
        // The checker must know the receipt before the events of this input are read; both use this lock.
        let sent = self.record.change(|seen| {
            let receipt = self.conversation.send(input)?;
            seen.checker.accepted(&receipt);
            Ok::<_, crate::Error>(receipt)
        });
        sent.or_else(|e| failure(format!("an input is rejected: {e}")))
    }

    pub(super) async fn within<T>(
        &self,
        what: &str,
        future: impl Future<Output = T>,
    ) -> ScenarioCheck<T> {
        let limit = self.test_agent.timeout();
        let done = timeout(limit, future).await;
        done.or_else(|_| failure(format!("the wait for {what} took longer than {limit:?}")))
    }

    /// Waits until `find` returns a value.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        find: impl FnMut(&Recorded) -> Option<T>,
    ) -> ScenarioCheck<T> {
        self.within(what, self.record.find(find)).await
    }

    pub(super) async fn turn(&self, receipt: &Receipt) -> ScenarioCheck<TurnId> {
        let id = receipt.id;
        self.until("the turn of an input", |seen| seen.turn_of(id))
            .await
    }

    pub(super) async fn completion(&self, receipt: &Receipt) -> ScenarioCheck<Completion> {
        let turn = self.turn(receipt).await?;
        self.until("the end of a turn", |seen| seen.completion(turn).cloned())
            .await
    }

    /// Waits for the end of an input's turn, which must have this reason.
    pub(super) async fn ends(
        &self,
        receipt: &Receipt,
        reason: EndReason,
    ) -> ScenarioCheck<Completion> {
        let completion = self.completion(receipt).await?;
        let end = &completion.end;
        require(end.reason == reason, || {
            format!("wrong end of a turn (expected: {reason}): {end}")
        })?;
        Ok(completion)
    }

    /// Makes the agent do an action in a turn of its own, which must be completed.
    pub(super) async fn perform(&self, action: &TestAction) -> ScenarioCheck<TurnId> {
        let receipt = self.send(action)?;
        let completion = self.ends(&receipt, EndReason::Completed).await?;
        Ok(completion.turn)
    }

    /// Makes the agent write a word in a turn of its own.
    pub(super) async fn say(&self, word: &str) -> ScenarioCheck<TurnId> {
        let turn = self.perform(&TestAction::Say(word.to_owned())).await?;
        self.expect_text(turn, word)?;
        Ok(turn)
    }

    pub(super) fn expect_text(&self, turn: TurnId, word: &str) -> ScenarioCheck<()> {
        let answered_text = self.text_of(turn);
        let short: String = answered_text.chars().take(200).collect();
        require(answered_text.contains(word), || {
            format!("expected {word:?} in the answer, but got {short:?}")
        })
    }

    /// Returns whether the driver declares no capability, so that it reports only raw output.
    pub(super) fn is_opaque(&self) -> bool {
        self.conversation.capabilities() == crate::Capabilities::none()
    }

    /// Returns the text of a turn: its messages, or the agent's raw output if the driver declares no capability.
    pub(super) fn text_of(&self, turn: TurnId) -> String {
        let (mut messages, mut output) = (String::new(), String::new());
        for what in self.record.lock().of_turn(turn) {
            let ConversationEvent::Observed(seen) = what else {
                continue;
            };
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
        if messages.is_empty() && self.is_opaque() {
            output
        } else {
            messages
        }
    }

    /// Waits until the agent writes text in a turn.
    pub(super) async fn wait_for_output(&self, turn: TurnId) -> ScenarioCheck<()> {
        let bare = self.is_opaque();
        let speaks = |what: &ConversationEvent| {
            let ConversationEvent::Observed(seen) = what else {
                return false;
            };
            let has_text = |event: &Event| matches!(event, Event::TextDelta(text) | Event::Message { text, .. } if !text.is_empty());
            seen.events.iter().any(has_text) || (bare && seen.raw.is_some())
        };
        let find = |seen: &Recorded| seen.of_turn(turn).any(speaks).then_some(());
        self.until("the first output of the agent", find).await
    }

    /// Waits until a tool runs: its process exists, or its start is reported.
    pub(super) async fn wait_for_tool(&self, turn: TurnId, tool: &str) -> ScenarioCheck<()> {
        if self.sees(tool, true).await? {
            return Ok(());
        } else if !self.has(Capability::Tools) {
            let what = "neither the test agent nor its driver reports a running tool";
            return Err(ScenarioResult::NotApplicable(what.to_owned()));
        }
        let started = |event: &Event| matches!(event, Event::ToolStarted { .. });
        let find = |seen: &Recorded| seen.events(turn).any(started).then_some(());
        self.until("the start of a tool", find).await
    }

    /// Waits until no process of a tool is left; returns whether this can be observed.
    pub(super) async fn wait_for_tool_exit(&self, tool: &str) -> ScenarioCheck<bool> {
        self.sees(tool, false).await
    }

    async fn sees(&self, tool: &str, alive: bool) -> ScenarioCheck<bool> {
        let what = match alive {
            true => format!("the process of the tool `{tool}`"),
            false => format!("the end of the tool `{tool}`"),
        };
        let seen = async {
            loop {
                match self.test_agent.alive(tool) {
                    Some(now) if now != alive => poll_pause().await,
                    seen => return seen.is_some(),
                }
            }
        };
        self.within(&what, seen).await
    }

    /// Waits until the driver has reported something, and then nothing more for a while.
    pub(super) async fn wait_for_backpressure(&self) -> ScenarioCheck<()> {
        // The first observation only shows that the agent runs.
        let spoke = |seen: &Recorded| (seen.observations > 1).then_some(());
        self.until("the first output of the agent", spoke).await?;
        self.within("silence", self.is_quiet()).await
    }

    /// Waits until the driver reports nothing for a while, or for a second.
    pub(super) async fn silence(&self) {
        // The wait has a time limit, because some drivers are never silent.
        drop(timeout(SETTLE_TIME, self.is_quiet()).await);
    }

    async fn is_quiet(&self) {
        let (mut last, mut quiet) = (0, 0);
        while quiet < QUIET {
            poll_pause().await;
            let now = self.record.lock().observations;
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
        }
    }

    /// Ends the process of the agent like a crash.
    pub(super) async fn kill(&self) -> ScenarioCheck<()> {
        if !self.test_agent.has_process() {
            let what = "the agent has no process that can be killed".to_owned();
            return Err(ScenarioResult::NotApplicable(what));
        }
        let what = "the process of the agent";
        let pid = self.until(what, Recorded::pid).await?;
        let why = |e| ScenarioResult::NotApplicable(format!("the agent can't be killed: {e}"));
        self.test_agent.kill(pid).map_err(why)
    }

    pub(super) async fn interrupt(&self) -> ScenarioCheck<Result<(), crate::Error>> {
        let interrupt = self.conversation.interrupt(QueuedMessages::Keep);
        self.within("the result of an interrupt", interrupt).await
    }

    pub(super) async fn stop(&self) -> ScenarioCheck<StopReport> {
        let stopping = self.conversation.stop(BUDGET);
        // The driver must observe the budget, and the conversation gives up 10 s later.
        let report = timeout(BUDGET * 4, stopping).await;
        report.or_else(|_| failure("a stop did not end"))
    }

    /// Ends the conversation and checks all promises.
    pub(super) async fn finish(mut self) -> ScenarioCheck<()> {
        self.read();
        // Late and duplicate events arrive now.
        self.silence().await;
        let report = self.stop().await?;
        require(report.survivors.is_empty(), || {
            format!("a stop left processes: {report}")
        })?;
        self.until("the end of the reader", |seen| seen.is_over.then_some(()))
            .await?;
        if let PrimaryReader::Reads(reader) =
            std::mem::replace(&mut self.reader, PrimaryReader::Gone)
        {
            let joined = self.within("the reader", reader).await?;
            require(joined.is_ok(), || "the reader panicked".to_owned())?;
        }
        let seen = self.record.lock();
        let (running, pending) = (seen.checker.running(), seen.checker.pending());
        require(running == 0, || format!("{running} turns never ended"))?;
        require(pending == 0, || format!("{pending} inputs are in no turn"))?;
        match seen.failures.first() {
            Some(fault) => failure(fault),
            None => Ok(()),
        }
    }
}

async fn poll_pause() {
    // This future never resolves; only the timeout ends the wait.
    let _due = timeout(POLL, std::future::pending::<()>()).await;
}

/// Returns the number of delivered messages, and whether the last one was delivered while a turn ran.
pub(super) fn delivered_count(seen: &Recorded) -> (usize, bool) {
    let sent = seen.calls.iter().filter_map(|(_, noted)| match noted {
        DriverCall::Sent { busy } => Some(*busy),
        _ => None,
    });
    let sent: Vec<bool> = sent.collect();
    (sent.len(), sent.last().copied().unwrap_or(false))
}
