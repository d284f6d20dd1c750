//! One call of the model: the request, its stream, the tries after a failure, and the compaction of a history that is too long.

use std::time::{Duration, SystemTime};

use agent_duplex::{EndReason, Event, Observation, Usage as ReportedUsage};
use tokio::sync::mpsc;

use super::link::Halt;
use super::turn::{Turn, failed};
use crate::budget::{Budget, Exceeded};
use crate::compaction::CompactionSettings;
use crate::decoder::Decoder;
use crate::dialect::{Answer, AnswerLimits, Delta, Dialect, RequestSettings, StopReason};
use crate::error::{Error, ErrorKind, Reset, Retry};
use crate::history::{AssistantMessage, History};
use crate::http::ModelClient;
use crate::usage::Usage;

/// The first wait after a failure without a time from the server. Each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait inside a turn. For a longer one the turn ends, and the caller waits.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The answers above a limit in one turn, after which the turn ends.
const MAX_DROPPED: u32 = 3;
/// The part of the window for the text that asks for a summary, in bytes for each token of the window.
const SUMMARY_BYTES_PER_TOKEN: u64 = 2;

/// How a stream ended.
enum Streamed {
    Answer(Answer),
    Failed(Error),
    /// The budget was used up during the answer.
    Exceeded(Exceeded),
}

impl Turn<'_> {
    /// Calls the model, and returns its message. `None` means: the history changed, ask again.
    pub(super) async fn ask_model(
        &mut self,
    ) -> Result<Option<(AssistantMessage, StopReason)>, Halt> {
        self.link.thawed().await?;
        self.calls += 1;
        if self.calls > self.options.max_calls {
            let detail = format!("{} calls of the model in one turn", self.options.max_calls);
            return Err(Halt::Ended(failed(EndReason::MaxTurns, detail)));
        }
        if self.compaction().is_due(self.session.history()) {
            self.compact(self.compaction()).await?;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let settings = self.settings();
            let error = match self.stream(&settings).await? {
                Streamed::Answer(answer) => return Ok(Some((answer.message, answer.stop))),
                Streamed::Exceeded(exceeded) => {
                    let end = failed(EndReason::BudgetExhausted, exceeded.to_string());
                    return Err(Halt::Ended(end));
                }
                Streamed::Failed(error) => error,
            };
            match error.retry() {
                Retry::AfterCompaction => {
                    // The server's window is smaller than the setting says.
                    let tokens = self.compaction().estimate(self.session.history());
                    let window = self.options.context_window.min(tokens / 2);
                    self.compact(self.compaction_for(window)).await?;
                    return Ok(None);
                }
                Retry::Later(reset) if tries < self.options.max_tries => {
                    let wait = wait(reset, tries);
                    if wait > LONGEST_WAIT {
                        return Err(self.give_up(&error).await);
                    }
                    self.retrying(&error, tries, wait).await?;
                }
                Retry::Never if is_above_limit(&error) => {
                    self.dropped_answers += 1;
                    if self.dropped_answers >= MAX_DROPPED {
                        return Err(self.give_up(&error).await);
                    }
                    let text = format!("Your last answer was dropped: {error}.");
                    self.change(|history| history.push_user(text))?;
                    self.save().await?;
                    return Ok(None);
                }
                Retry::Later(_) | Retry::Never => return Err(self.give_up(&error).await),
            }
        }
    }

    /// Sends one request, and reads its stream to the end.
    async fn stream(&mut self, settings: &RequestSettings) -> Result<Streamed, Halt> {
        let history = self.session.history();
        let estimate = self.compaction().estimate(history);
        if let Err(exceeded) = self.session.budget().check_start(estimate) {
            return Ok(Streamed::Exceeded(exceeded));
        }
        let dialect = self.options.endpoint.dialect;
        let body = match dialect.request(self.session.history(), settings) {
            Ok(body) => body,
            Err(error) => return Ok(Streamed::Failed(error)),
        };
        let names = self.tools.names();
        let mut decoder = Decoder::new(dialect, names, self.options.answer_limits);
        let budget = self.session.budget().clone();
        let observations = self.link.observations.clone();
        let reading = read(self.client, body, &mut decoder, &budget, &observations);
        let read = self.link.during(reading).await;
        let usage = decoder.usage_so_far();
        let streamed = match read {
            Ok(Ok(())) => match decoder.finish() {
                Ok(answer) => {
                    self.spend(answer.usage.unwrap_or(usage)).await;
                    self.report_message(&answer.message, false).await;
                    return Ok(Streamed::Answer(answer));
                }
                Err(error) => Streamed::Failed(error),
            },
            Ok(Err(streamed)) => {
                // The text so far was reported, so it is reported as incomplete. Another try begins anew.
                if let Some(message) = decoder.interrupt() {
                    self.report_message(&message, true).await;
                    if let Streamed::Exceeded(_) = &streamed {
                        self.keep(without_calls(message)).await?;
                    }
                }
                streamed
            }
            Err(halt) => {
                self.spend(usage).await;
                if let Some(message) = decoder.interrupt() {
                    self.report_message(&message, true).await;
                    self.keep(message).await?;
                }
                return Err(halt);
            }
        };
        self.spend(usage).await;
        Ok(streamed)
    }

    /// Removes old parts of the history.
    async fn compact(&mut self, settings: CompactionSettings) -> Result<(), Halt> {
        let too_long = |detail: &str| Halt::Ended(failed(EndReason::ContextOverflow, detail));
        let history = self.session.history();
        let plan = { settings.plan(history) }.map_err(|error| too_long(&error.to_string()))?;
        let plan = plan.ok_or_else(|| {
            too_long("the conversation is too long for the model, and nothing can be removed")
        })?;
        let summary = match plan.needs_summary() {
            true => {
                let bytes = settings.window.saturating_mul(SUMMARY_BYTES_PER_TOKEN);
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                let prompt = plan.summary_prompt(history, bytes);
                Some(self.summary(prompt).await?)
            }
            false => None,
        };
        let (before, after) = (plan.tokens_before(), plan.tokens_after());
        { self.session.compact(plan, summary) }.map_err(|error| too_long(&error.to_string()))?;
        self.save().await?;
        let reason = format!("compacted from about {before} to {after} tokens");
        self.link.report(Event::ContextReset { reason }).await;
        Ok(())
    }

    /// Asks the model for the summary of a long history.
    async fn summary(&mut self, prompt: String) -> Result<String, Halt> {
        let cant = |error: &Error| {
            let detail = format!("the conversation can't be summarised: {error}");
            Halt::Ended(failed(reason(error.kind()), detail))
        };
        let mut history = History::new();
        history.push_user(prompt).map_err(|error| cant(&error))?;
        let settings = RequestSettings {
            tools: Vec::new(),
            system: String::new(),
            ..self.settings()
        };
        let dialect = self.options.endpoint.dialect;
        let mut tries = 0;
        loop {
            tries += 1;
            let body = { dialect.request(&history, &settings) }.map_err(|error| cant(&error))?;
            let call = self
                .link
                .during(whole_answer(self.client, dialect, body))
                .await?;
            match call {
                Ok(answer) => {
                    self.spend(answer.usage.unwrap_or_default()).await;
                    return Ok(answer.message.text());
                }
                Err(error) => match error.retry() {
                    Retry::Later(reset) if tries < self.options.max_tries => {
                        let wait = wait(reset, tries).min(LONGEST_WAIT);
                        self.retrying(&error, tries, wait).await?;
                    }
                    _ => return Err(cant(&error)),
                },
            }
        }
    }

    fn compaction(&self) -> CompactionSettings {
        self.compaction_for(self.options.context_window)
    }

    fn compaction_for(&self, window: u64) -> CompactionSettings {
        CompactionSettings {
            overhead: self.tools.overhead,
            ..CompactionSettings::for_window(window)
        }
    }

    fn settings(&self) -> RequestSettings {
        RequestSettings {
            model: self.link.model.borrow().clone(),
            cache_key: Some(self.session.id().to_owned()),
            ..self.tools.settings.clone()
        }
    }

    /// Records and reports what a call used.
    async fn spend(&mut self, usage: Usage) {
        let budget = self.session.budget();
        let before = budget.spent_microusd().unwrap_or(0);
        budget.spend(&usage);
        let cost = budget.spent_microusd().unwrap_or(0) - before;
        let reported = ReportedUsage::tokens(usage.input_tokens, usage.output_tokens)
            .with_cached_input(usage.cached_input_tokens)
            .with_cost(cost);
        if reported != ReportedUsage::default() {
            self.link.report(Event::UsageReported(reported)).await;
        }
    }

    async fn report_message(&mut self, message: &AssistantMessage, partial: bool) {
        let text = message.text();
        if !text.is_empty() {
            self.link.report(Event::Message { text, partial }).await;
        }
    }

    /// Reports a failure, and waits before the next try.
    async fn retrying(&mut self, error: &Error, attempt: u32, delay: Duration) -> Result<(), Halt> {
        let event = Event::Retrying {
            attempt,
            max_attempts: self.options.max_tries,
            delay,
            status: None,
            error: error.to_string(),
        };
        self.link.report(event).await;
        self.link.during(tokio::time::sleep(delay)).await
    }

    /// Reports the failure of the service, and returns the end of the turn.
    async fn give_up(&mut self, error: &Error) -> Halt {
        if let ErrorKind::RateLimited(reset) = error.kind() {
            let event = Event::RateLimited {
                rejected: true,
                resets_at: reset.map(|reset| match reset {
                    Reset::At(time) => time,
                    Reset::After(delay) => SystemTime::now() + delay,
                }),
                limit: String::new(),
            };
            self.link.report(event).await;
        }
        Halt::Ended(failed(reason(error.kind()), error.to_string()))
    }
}

/// Reads a stream to its end. An error is how the call ended before.
async fn read(
    client: &ModelClient,
    body: Vec<u8>,
    decoder: &mut Decoder,
    budget: &Budget,
    observations: &mpsc::Sender<Observation>,
) -> Result<(), Streamed> {
    let mut stream = client.call(body).await.map_err(Streamed::Failed)?;
    let mut deltas = Vec::new();
    while !decoder.is_complete() {
        let Some(bytes) = stream.next().await.map_err(Streamed::Failed)? else {
            break;
        };
        let pushed = decoder.push(&bytes, &mut deltas);
        for delta in deltas.drain(..) {
            let event = match delta {
                Delta::Text(text) => Event::TextDelta(text),
                Delta::Thinking(text) => Event::ThinkingDelta(text),
            };
            // Without a reader, the task ends at its next command.
            let _closed = observations.send(event.into()).await;
        }
        pushed.map_err(Streamed::Failed)?;
        { budget.check(&decoder.usage_so_far()) }.map_err(Streamed::Exceeded)?;
    }
    Ok(())
}

/// Calls the model without reports.
async fn whole_answer(
    client: &ModelClient,
    dialect: Dialect,
    body: Vec<u8>,
) -> Result<Answer, Error> {
    let mut decoder = Decoder::new(dialect, [], AnswerLimits::default());
    let mut stream = client.call(body).await?;
    let mut deltas = Vec::new();
    while !decoder.is_complete() {
        let Some(bytes) = stream.next().await? else {
            break;
        };
        decoder.push(&bytes, &mut deltas)?;
        deltas.clear();
    }
    decoder.finish()
}

/// Returns a message without its tool calls.
fn without_calls(mut message: AssistantMessage) -> AssistantMessage {
    let is_call = |part: &_| matches!(part, crate::history::AssistantPart::ToolCall(_));
    message.parts.retain(|part| !is_call(part));
    message
}

/// Returns the wait before the next try.
fn wait(reset: Option<Reset>, tries: u32) -> Duration {
    match reset {
        Some(Reset::After(delay)) => delay,
        Some(Reset::At(time)) => time.duration_since(SystemTime::now()).unwrap_or_default(),
        None => FIRST_WAIT * 2_u32.saturating_pow(tries.saturating_sub(1).min(5)),
    }
}

fn is_above_limit(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::TooManyCalls)
}

/// Returns the end of a turn for a failure of the service.
fn reason(kind: ErrorKind) -> EndReason {
    match kind {
        ErrorKind::Auth => EndReason::NotLoggedIn,
        ErrorKind::RateLimited(_) => EndReason::RateLimited,
        ErrorKind::Overloaded(_)
        | ErrorKind::Server
        | ErrorKind::Truncated
        | ErrorKind::Malformed
        | ErrorKind::Connect
        | ErrorKind::Silent => EndReason::ServiceFailed,
        ErrorKind::TooLong => EndReason::ContextOverflow,
        _ => EndReason::Failed,
    }
}
