//! One call of the model: the request, its stream, the tries after a failure, and the compaction of a history that is too long.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use agent_duplex::{BoxFuture, EndReason, Event, Observation, Usage as ReportedUsage};
use tokio::sync::mpsc;

use super::link::Halt;
use super::middleware::{CallPurpose, Model, ModelCall, Next};
use super::options::AgentOptions;
use super::toolbox::no_room;
use super::turn::{Turn, failed};
use crate::budget::Budget;
use crate::compaction::CompactionSettings;
use crate::decoder::Decoder;
use crate::dialect::{Delta, ModelResponse, RequestSettings, StopReason};
use crate::error::{Error, ErrorKind, Reset, Retry};
use crate::history::{AssistantMessage, AssistantPart, History};
use crate::http::ModelClient;
use crate::usage::Usage;

/// The first wait after a failure without a time from the server. Each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait inside a turn. For a longer one the turn ends, and the caller waits.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The turn ends after this many responses that exceed a limit.
const MAX_DISCARDED: u32 = 3;
/// The part of the window for the text that asks for a summary, in bytes for each token of the window.
const SUMMARY_BYTES_PER_TOKEN: u64 = 2;

/// The model at the end of the middleware. It streams one response for each call.
struct StreamingModel<'a> {
    options: &'a AgentOptions,
    client: &'a ModelClient,
    budget: Budget,
    estimate: u64,
    /// Gets the text while it is written; `None` if it isn't for the caller.
    observations: Option<mpsc::Sender<Observation>>,
    progress: Mutex<Progress>,
}

/// The state of the streams. It remains available if a stream is dropped.
#[derive(Default)]
struct Progress {
    /// The response that is being read.
    decoder: Option<Decoder>,
    /// The tokens of all earlier streams.
    usage: Usage,
}

impl Progress {
    /// Ends a stream that has no whole response.
    fn end_stream(&mut self) -> Option<Decoder> {
        let decoder = self.decoder.take()?;
        self.usage += decoder.usage_so_far();
        Some(decoder)
    }
}

impl StreamingModel<'_> {
    fn progress<T>(&self, change: impl FnOnce(&mut Progress) -> T) -> T {
        change(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn read(&self, call: &ModelCall<'_>) -> Result<(), Error> {
        let mut stream = {
            let dialect = self.options.endpoint.dialect;
            let body = dialect.request(&call.history, &call.settings)?;
            self.client.call(body).await?
        };
        let mut deltas = Vec::new();
        loop {
            let Some(bytes) = stream.next().await? else {
                return Ok(());
            };
            let read = self.progress(|progress| {
                let Some(decoder) = &mut progress.decoder else {
                    return Ok(true);
                };
                decoder.push(&bytes, &mut deltas)?;
                let mut usage = progress.usage;
                usage += decoder.usage_so_far();
                { self.budget.check(&usage) }
                    .map_err(|exceeded| Error::new(ErrorKind::Budget, exceeded.to_string()))?;
                Ok(decoder.is_complete())
            });
            for delta in deltas.drain(..) {
                let event = match delta {
                    Delta::Text(text) => Event::TextDelta(text),
                    Delta::Thinking(text) => Event::ThinkingDelta(text),
                };
                if let Some(observations) = &self.observations {
                    // It fails only after the connection was closed; the next command then ends the task.
                    let _closed = observations.send(event.into()).await;
                }
            }
            if read? {
                stream.finish();
                return Ok(());
            }
        }
    }
}

impl Model for StreamingModel<'_> {
    fn respond<'a>(&'a self, call: ModelCall<'a>) -> BoxFuture<'a, Result<ModelResponse, Error>> {
        Box::pin(async move {
            { self.budget.check_start(self.estimate) }
                .map_err(|exceeded| Error::new(ErrorKind::Budget, exceeded.to_string()))?;
            let tools = call.settings.tools.iter().map(|tool| tool.name.as_str());
            let (dialect, limits) = (self.options.endpoint.dialect, self.options.response_limits);
            let decoder = Decoder::new(dialect, tools, limits);
            // If a middleware calls the model again, the response before it is no longer needed.
            self.progress(|progress| {
                progress.end_stream();
                progress.decoder = Some(decoder);
            });
            self.read(&call).await?;
            self.progress(|progress| {
                // The decoder of a partial response stays: its text was reported.
                let decoder = progress.decoder.take_if(|decoder| decoder.is_complete());
                let decoder = decoder.ok_or_else(Decoder::truncated)?;
                let so_far = decoder.usage_so_far();
                let response = decoder.finish()?;
                progress.usage += response.usage.unwrap_or(so_far);
                Ok(response)
            })
        })
    }
}

impl Turn<'_> {
    /// Calls the model, and returns its message. `None` means that the history changed: call the model again.
    pub(super) async fn ask_model(
        &mut self,
    ) -> Result<Option<(AssistantMessage, StopReason)>, Halt> {
        self.link.thawed().await?;
        self.calls += 1;
        if self.calls > self.options.max_calls {
            let detail = format!("{} calls of the model in one turn", self.options.max_calls);
            return Err(Halt::Ended(failed(EndReason::MaxTurns, detail)));
        }
        let compaction = self.compaction();
        if compaction.is_due(self.session.history()) {
            if compaction.overhead >= compaction.limit() {
                return Err(too_long(&no_room(&compaction)));
            }
            self.compact(compaction).await?;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            self.link.thawed().await?;
            let settings = self.settings();
            let error = match self.call(CallPurpose::Turn, &settings, None).await? {
                Ok(response) => {
                    self.report_message(&response.message, false).await;
                    return Ok(Some((response.message, response.stop)));
                }
                Err(error) => error,
            };
            match error.retry() {
                Retry::AfterCompaction => {
                    self.compact(self.compaction_to_half()).await?;
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
                    self.discarded_responses += 1;
                    if self.discarded_responses >= MAX_DISCARDED {
                        return Err(self.give_up(&error).await);
                    }
                    let text = format!("Your last response was discarded: {error}.");
                    self.change(|history| history.push_user(text))?;
                    self.save().await?;
                    return Ok(None);
                }
                Retry::Later(_) | Retry::Never => {
                    #[cfg(feature = "mcp")]
                    let error = self.tools.explained(error);
                    return Err(self.give_up(&error).await);
                }
            }
        }
    }

    /// Calls the model through the middleware: for its response in the turn, or to `other` history.
    async fn call(
        &mut self,
        purpose: CallPurpose,
        settings: &RequestSettings,
        other: Option<&History>,
    ) -> Result<Result<ModelResponse, Error>, Halt> {
        let history = other.unwrap_or(self.session.history());
        let model = StreamingModel {
            options: self.options,
            client: self.client,
            budget: self.session.limits().clone(),
            estimate: self.compaction().estimate(history),
            observations: match purpose {
                CallPurpose::Turn => Some(self.link.observations.clone()),
                CallPurpose::Summary => None,
            },
            progress: Mutex::default(),
        };
        let call = ModelCall {
            purpose,
            settings: settings.clone(),
            history: Cow::Borrowed(history),
        };
        let called = Next::new(&self.options.middleware, &model).run(call);
        let called = self.link.during(called).await;
        let mut progress = model
            .progress
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let rest = progress.end_stream().and_then(Decoder::interrupt);
        self.spend(progress.usage).await;
        if let (CallPurpose::Turn, Some(message)) = (purpose, rest) {
            // Its text was reported while it was written.
            self.report_message(&message, true).await;
            match &called {
                // If the save fails, the save at the end of the turn says so.
                Err(_) => drop(self.keep(message, None).await),
                Ok(Err(error)) if error.kind() == ErrorKind::Budget => {
                    self.keep(without_calls(message), None).await?;
                }
                // Another try begins anew.
                Ok(_) => {}
            }
        }
        called
    }

    /// Removes old parts of the history.
    async fn compact(&mut self, settings: CompactionSettings) -> Result<(), Halt> {
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
        let mut tries = 0;
        loop {
            tries += 1;
            self.link.thawed().await?;
            let error = match self
                .call(CallPurpose::Summary, &settings, Some(&history))
                .await?
            {
                Ok(response) => return Ok(response.message.text()),
                Err(error) => error,
            };
            match error.retry() {
                Retry::Later(reset) if tries < self.options.max_tries => {
                    let wait = wait(reset, tries).min(LONGEST_WAIT);
                    self.retrying(&error, tries, wait).await?;
                }
                _ => return Err(cant(&error)),
            }
        }
    }

    fn compaction(&self) -> CompactionSettings {
        CompactionSettings {
            overhead: self.tools.overhead,
            ..CompactionSettings::for_window(self.options.context_window)
        }
    }

    /// Returns the settings that halve the conversation: the server's window is smaller than the setting says. The system prompt and the tools can't be
    /// shorter, so they count in addition.
    fn compaction_to_half(&self) -> CompactionSettings {
        let overhead = self.tools.overhead;
        let tokens = self.compaction().estimate(self.session.history());
        let room = self.options.context_window.saturating_sub(overhead);
        let room = room.min(tokens.saturating_sub(overhead) / 2);
        CompactionSettings {
            window: overhead.saturating_add(room),
            overhead,
            ..CompactionSettings::for_window(room)
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
        // A command ends this wait.
        let wait = tokio::time::timeout(delay, std::future::pending::<()>());
        self.link.during(wait).await.map(drop)
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

fn too_long(detail: &str) -> Halt {
    Halt::Ended(failed(EndReason::ContextOverflow, detail))
}

/// Returns a message without its tool calls.
fn without_calls(mut message: AssistantMessage) -> AssistantMessage {
    let is_call = |part: &_| matches!(part, AssistantPart::ToolCall(_));
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
        ErrorKind::Budget => EndReason::BudgetExhausted,
        _ => EndReason::Failed,
    }
}
