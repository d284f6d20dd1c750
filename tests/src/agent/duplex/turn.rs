//! One turn: takes the queued messages, plays its part of the script, and reports its end.

use std::io;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::log::{Answer, MessageState};
use super::super::script::Action;
use super::super::{children, perform};
use super::session::SessionEntry;
use super::wire::{CALL, dollars};
use super::{Agent, EarlyEnd};

const MARKER: &str = "[Request interrupted by user]";
const TOOL_MARKER: &str = "[Request interrupted by user for tool use]";
const REJECTED: &str = "The user doesn't want to proceed with this tool use.";
const LOGIN: &str = "Not logged in \u{b7} Please run /login";
/// The number of failures after which the CLI gives up.
const TRIES: u32 = 10;
const LONGEST_RETRY: Duration = Duration::from_secs(38);

/// A permission request that waits for its answer.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) id: String,
    pub(super) summary: String,
    /// The answer, and whether it also ends the turn.
    pub(super) answer: Option<(Answer, bool)>,
}

/// A running tool.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) input: Value,
}

/// The running turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) ask: Option<Question>,
    pub(super) tool: Option<Tool>,
    /// Whether the line that announces a request was already written for the next one.
    announced: bool,
    marked: bool,
    /// The indexes of the messages that began it or joined it.
    began: Vec<usize>,
    pub(super) folded: Vec<usize>,
    said: String,
    calls: u64,
    words: usize,
    pub(super) denials: Vec<Value>,
}

impl Agent {
    /// Takes all queued messages as one turn. Returns an exit code if the script ends the process.
    pub(super) fn take_turn(&mut self) -> io::Result<Option<u8>> {
        self.turns += 1;
        let began: Vec<usize> = self.queue.drain(..).collect();
        self.turn = Some(Turn {
            began: began.clone(),
            ..Turn::default()
        });
        for place in &began {
            self.note(*place, MessageState::Began(self.turns))?;
            self.wire.lifecycle(&self.known[*place].id, "started");
        }
        self.wire.taken = self.ids(&began);
        let mode = self.mode.clone();
        self.wire.init(&mode);
        self.announce();
        for place in &began {
            self.take(*place)?;
        }
        let outcome = self.play();
        let outcome = match outcome {
            Err(EarlyEnd::Exit(code)) => return Ok(Some(code)),
            Err(EarlyEnd::Broken(error)) => return Err(error),
            other => other,
        };
        self.conclude(outcome)?;
        Ok(None)
    }

    pub(super) fn turn(&mut self) -> &mut Turn {
        self.turn.as_mut().expect("a turn runs")
    }

    pub(super) fn ids(&self, places: &[usize]) -> Vec<String> {
        let ids = places.iter().map(|place| self.known[*place].id.clone());
        ids.filter(|id| !id.is_empty()).collect()
    }

    /// Echoes a message that the turn takes now, and stores it in the session.
    pub(super) fn take(&mut self, place: usize) -> io::Result<()> {
        let message = self.known[place].clone();
        if self.options.replay {
            self.wire.replay(&message.id, &message.text);
        }
        self.session.remember(SessionEntry::User(message.text))
    }

    fn announce(&mut self) {
        if !self.turn().announced {
            self.wire.requesting();
            self.turn().announced = true;
        }
    }

    fn play(&mut self) -> Result<(), EarlyEnd> {
        let turns = &self.plan.turns;
        let number = self.turns as usize - 1;
        let last = turns.last().filter(|_| self.plan.goes_on);
        let actions = turns.get(number).or(last).cloned();
        let actions = actions.filter(|actions| !actions.is_empty());
        let done = Action::Say {
            pause: Duration::ZERO,
            text: "Done.".into(),
        };
        for action in actions.unwrap_or_else(|| vec![done]) {
            self.catch_up()?;
            self.act(&action)?;
        }
        self.catch_up()?;
        if self.turn().tool.is_some() {
            self.end_tool("", false)?;
        }
        Ok(())
    }

    /// Handles the pending input without waiting.
    pub(super) fn catch_up(&mut self) -> Result<(), EarlyEnd> {
        self.wait(Instant::now(), |_| Ok(true)).map(drop)
    }

    fn pause(&mut self, time: Duration) -> Result<(), EarlyEnd> {
        self.wait(Instant::now() + time, |_| Ok(false)).map(drop)
    }

    fn act(&mut self, action: &Action) -> Result<(), EarlyEnd> {
        let far = Instant::now() + children::LIFE;
        match action {
            Action::Exit(code) => return Err(EarlyEnd::Exit(*code)),
            Action::Delay(time) => self.pause(*time)?,
            Action::Hang => self.pause(children::LIFE)?,
            Action::Await(path) => drop(self.wait(far, |_| Ok(path.exists()))?),
            Action::ExpectSteer => drop(self.wait(far, |agent| Ok(!agent.queue.is_empty()))?),
            Action::Child { kind, ignore } => {
                self.children += 1;
                children::start(&self.dir, self.start, self.children, *kind, ignore)?;
            }
            Action::Say { pause, text } => self.say(text, *pause)?,
            Action::Echo => {
                let began = self.turn().began.clone();
                let texts = began.iter().map(|place| self.known[*place].text.clone());
                let text = texts.collect::<Vec<_>>().join(" | ");
                self.say(&text, Duration::ZERO)?;
            }
            Action::Recall => {
                let text = format!("told: {}", self.session.messages().join(" | "));
                self.say(&text, Duration::ZERO)?;
            }
            Action::Big(bytes) => {
                self.begin_message(&json!({"type": "text", "text": ""}));
                let text =
                    "big ".repeat(usize::try_from(bytes / 4).expect("the size fits in memory"));
                self.finish_message(&text, 1)?;
            }
            Action::Tool { name, summary } => self.begin_tool(name, summary)?,
            Action::ToolEnd(text) => self.end_tool(text, false)?,
            Action::Run(command) => {
                self.begin_tool("Bash", command)?;
                self.shell(command)?;
            }
            Action::Ask { tool, summary } => self.ask(tool, summary)?,
            Action::Retry {
                status,
                times,
                pause,
            } => self.retry(*status, *times, *pause)?,
            Action::NotLoggedIn => {
                return Err(EarlyEnd::Failed {
                    status: None,
                    error: "authentication_failed",
                    text: LOGIN.into(),
                });
            }
            Action::Event(event) => self.wire.line_of_session(event.clone()),
            other => perform::perform(other)?,
        }
        Ok(())
    }

    pub(super) fn begin_message(&mut self, block: &Value) {
        self.announce();
        self.wire.begin(block);
        self.cost += CALL.0;
        let turn = self.turn();
        turn.announced = false;
        turn.calls += 1;
        turn.words += 1;
        self.wire.words += 1;
    }

    fn finish_message(&mut self, text: &str, words: usize) -> io::Result<()> {
        self.wire
            .assistant(&json!({"type": "text", "text": text}), &Value::Null);
        self.wire.end(Some("end_turn"), words);
        self.turn().words += words;
        self.wire.words += words;
        self.turn().said = text.into();
        self.session.remember(SessionEntry::Agent(text.into()))
    }

    fn say(&mut self, text: &str, pause: Duration) -> Result<(), EarlyEnd> {
        self.begin_message(&json!({"type": "text", "text": ""}));
        let mut said = String::new();
        for (number, word) in text.split_inclusive(' ').enumerate() {
            let time = if number == 0 { Duration::ZERO } else { pause };
            if let Err(stop) = self.pause(time) {
                if matches!(stop, EarlyEnd::Interrupted) {
                    self.break_off(&said)?;
                }
                return Err(stop);
            }
            self.wire
                .delta(&json!({"type": "text_delta", "text": word}));
            said.push_str(word);
        }
        Ok(self.finish_message(text, text.split(' ').count())?)
    }

    /// Stores the partial text, followed by a note.
    fn break_off(&mut self, said: &str) -> io::Result<()> {
        if !said.is_empty() {
            self.wire.assistant(
                &json!({"type": "text", "text": said}),
                &json!({"aborted": true}),
            );
            self.session.remember(SessionEntry::Agent(said.into()))?;
        }
        self.mark(MARKER)?;
        self.wire.end(None, 1);
        Ok(())
    }

    fn mark(&mut self, marker: &str) -> io::Result<()> {
        self.wire.user(&json!({"type": "text", "text": marker}));
        self.turn().marked = true;
        self.session.remember(SessionEntry::Marker(marker.into()))
    }

    fn retry(&mut self, status: u16, times: u32, pause: Option<Duration>) -> Result<(), EarlyEnd> {
        let error = match status {
            400 => "invalid_request",
            401 | 403 => "authentication_failed",
            429 => "rate_limit",
            529 => "overloaded",
            _ => "server_error",
        };
        self.announce();
        for attempt in 1..=times.min(TRIES) {
            let growing = Duration::from_millis(500) * 2_u32.pow(attempt - 1);
            let pause = pause.unwrap_or(growing.min(LONGEST_RETRY));
            let millis = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            self.wire.line_of_session(json!({
                "type": "system", "subtype": "api_retry", "attempt": attempt, "max_retries": TRIES, "retry_delay_ms": millis,
                "error_status": status, "error": error,
            }));
            self.pause(pause)?;
        }
        if times < TRIES {
            return Ok(());
        }
        Err(EarlyEnd::Failed {
            status: Some(status),
            error,
            text: format!("API Error: {status} scripted"),
        })
    }

    /// Returns the usage of the process, including the cost of earlier processes of the session.
    pub(super) fn model_usage(&self) -> Value {
        let (input, words) = (self.wire.calls * CALL.1, self.wire.words);
        json!({self.wire.model.as_str(): {"inputTokens": input, "outputTokens": words, "costUSD": dollars(self.cost)}})
    }

    /// Writes the end of the turn.
    fn conclude(&mut self, outcome: Result<(), EarlyEnd>) -> io::Result<()> {
        let mut reason = "completed";
        let (mut status, mut stop_reason) = (None, Some("end_turn"));
        match outcome {
            Ok(()) => {}
            Err(EarlyEnd::Failed {
                status: code,
                error,
                text,
            }) => {
                (reason, status, stop_reason) = ("api_error", code, Some("stop_sequence"));
                self.turn().said = text.clone();
                let block = json!({"type": "text", "text": text});
                self.wire.assistant(&block, &json!({"error": error}));
            }
            Err(_) if self.turn().tool.is_some() => {
                (reason, stop_reason) = ("aborted_tools", Some("tool_use"));
                self.report_tool(REJECTED, true)?;
                self.mark(TOOL_MARKER)?;
            }
            Err(_) => {
                (reason, stop_reason) = ("aborted_streaming", None);
                if !self.turn().marked {
                    self.mark(MARKER)?;
                }
            }
        }
        let turn = self.turn.take().expect("a turn runs");
        self.interrupted = false;
        self.failed = reason != "completed";
        for place in &turn.folded {
            self.wire.lifecycle(&self.known[*place].id, "completed");
        }
        let is_aborted = reason.starts_with("aborted");
        let mut result = json!({
            "type": "result", "subtype": if is_aborted { "error_during_execution" } else { "success" }, "is_error": self.failed,
            "duration_ms": 1, "duration_api_ms": 1, "num_turns": turn.calls, "stop_reason": stop_reason, "terminal_reason": reason,
            "api_error_status": status, "total_cost_usd": dollars(self.cost), "permission_denials": turn.denials,
            "usage": {"input_tokens": turn.calls * CALL.1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": turn.words},
            "modelUsage": self.model_usage(),
            "user_message_uuids": self.wire.taken, "queued_turn_count": self.queue.len(), "result_index": self.turns - 1,
        });
        if is_aborted {
            result["errors"] =
                json!(["[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null"]);
        } else {
            result["result"] = turn.said.into();
        }
        self.wire.line_of_session(result);
        let state = if self.failed {
            "cancelled"
        } else {
            "completed"
        };
        for place in &turn.began {
            self.wire.lifecycle(&self.known[*place].id, state);
        }
        Ok(())
    }
}
