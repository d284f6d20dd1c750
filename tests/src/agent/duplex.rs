//! A fake agent in a conversation: it speaks stream-json on stdin and stdout as the real Claude Code CLI does (2.1.329), and plays its script.

pub(super) mod input;
mod options;
pub(super) mod session;
mod tools;
mod turn;
mod wire;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use fs_err as fs;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use signal_hook::consts as sig;
use signal_hook::low_level::emulate_default_handler;
use uuid::Uuid;

use self::input::Input;
use self::options::{MODES, Options};
use self::session::{Session, SessionEntry};
use self::turn::Turn;
use self::wire::Wire;
use super::log::{self, Answer, Control, LogLine, Message, MessageState};
use super::record::now_ms;
use super::script::Plan;
use super::{children, perform};

const TICK: Duration = Duration::from_millis(5);

/// Returns whether this program was started for a conversation.
pub(super) fn is_conversation(argv: &[String]) -> bool {
    options::are_for_a_conversation(argv)
}

/// Plays the agent until its end is requested.
pub(super) fn run(argv: &[String]) -> io::Result<ExitCode> {
    let options = match Options::parse(&argv[1..]) {
        Ok(options) => options,
        Err(error) => return Ok(refuse(&error)),
    };
    let script = fs::read_to_string(&options.script)?;
    let (start, plan, watch) = perform::begin(&options.record, &script)?;
    if let Some(refusal) = &plan.refusal {
        return Ok(refuse(refusal));
    }
    let id = options.resume.clone().or_else(|| options.session.clone());
    let session = Session::new(
        &options.record,
        &id.unwrap_or_else(|| Uuid::new_v4().to_string()),
    );
    if options.resume.is_some() && (plan.unknown_session || !session.is_known()) {
        return Ok(unknown_session(&session.id));
    }
    if options.session.is_some() && session.is_used() {
        return Ok(refuse(&format!(
            "Error: Session ID {} is already in use.",
            session.id
        )));
    }
    let (sender, inputs) = mpsc::channel();
    let tool = Arc::new(AtomicI32::new(0));
    let signals = (sender.clone(), Arc::clone(&tool));
    watch.hand(
        options.record.clone(),
        start.start,
        plan.ignore.clone(),
        move |signal| obey(signal, &signals.0, &signals.1),
    );
    if plan.reads_stdin {
        input::read(sender.clone());
    }
    let agent = Agent {
        start: start.start,
        pid: start.pid,
        plan,
        wire: Wire {
            session: session.id.clone(),
            model: options.model.clone(),
            partial: options.partial,
            calls: 0,
            words: 0,
            taken: Vec::new(),
        },
        cost: session.cost(),
        session,
        mode: options.mode.clone(),
        dir: options.record.clone(),
        options,
        inputs,
        _sender: sender,
        queue: VecDeque::new(),
        known: Vec::new(),
        turns: 0,
        turn: None,
        interrupted: false,
        ending: None,
        ended: false,
        failed: false,
        children: 0,
        tool,
    };
    agent.converse().map(ExitCode::from)
}

/// Ends like the CLI if it can't begin: a line on stderr and nothing on stdout.
fn refuse(why: &str) -> ExitCode {
    let _unheard = writeln!(io::stderr(), "{why}");
    ExitCode::FAILURE
}

fn unknown_session(id: &str) -> ExitCode {
    let error = format!("No conversation found with session ID: {id}");
    let result = json!({
        "type": "result", "subtype": "error_during_execution", "duration_ms": 0, "duration_api_ms": 0, "is_error": true, "num_turns": 0,
        "stop_reason": null, "session_id": id, "total_cost_usd": 0, "usage": {"input_tokens": 0, "output_tokens": 0}, "permission_denials": [],
        "uuid": Uuid::new_v4().to_string(), "errors": [error], "result_index": 0,
    });
    let _unheard = writeln!(io::stdout(), "{result}");
    refuse(&error)
}

/// Handles a signal: SIGINT is an interrupt and an orderly end; the others end the process immediately with an exit code, together with the running
/// tool.
fn obey(signal: i32, to: &Sender<Input>, tool: &AtomicI32) {
    match signal {
        sig::SIGINT => drop(to.send(Input::Interrupt)),
        sig::SIGTERM | sig::SIGHUP => {
            end_group(tool.load(Ordering::Acquire));
            signal_hook::low_level::exit(128 + signal);
        }
        other => {
            let _died = emulate_default_handler(other);
        }
    }
}

fn end_group(group: i32) {
    if let Some(group) = Pid::from_raw(group) {
        let _gone = kill_process_group(group, Signal::KILL);
    }
}

/// The reason why an action ended early.
#[derive(Debug)]
enum EarlyEnd {
    Interrupted,
    /// Exit immediately.
    Exit(u8),
    /// The service failed for good.
    Failed {
        status: Option<u16>,
        error: &'static str,
        text: String,
    },
    Broken(io::Error),
}

impl From<io::Error> for EarlyEnd {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

#[derive(Debug)]
struct Agent {
    start: u32,
    pid: i32,
    plan: Plan,
    options: Options,
    dir: PathBuf,
    wire: Wire,
    session: Session,
    mode: String,
    /// The cost in millionths of a dollar, of all processes of the session that ended in order.
    cost: u64,
    inputs: Receiver<Input>,
    /// Keeps the channel open after the end of stdin.
    _sender: Sender<Input>,
    /// Messages that no turn has taken yet, by their index in `known`.
    queue: VecDeque<usize>,
    /// All messages of this process.
    known: Vec<Message>,
    turns: u32,
    turn: Option<Turn>,
    interrupted: bool,
    /// Whether the end of the agent was requested. `Some(true)` means by a signal: then the agent exits with 0.
    ending: Option<bool>,
    /// Whether stdin has ended.
    ended: bool,
    /// Whether the last turn failed.
    failed: bool,
    children: usize,
    /// The process group of the running tool, or 0.
    tool: Arc<AtomicI32>,
}

impl Agent {
    fn converse(mut self) -> io::Result<u8> {
        loop {
            let far = Instant::now() + children::LIFE;
            let busy = |agent: &mut Self| {
                Ok(!agent.queue.is_empty() || agent.ending.is_some() || agent.ended)
            };
            match self.wait(far, busy) {
                Ok(_) | Err(EarlyEnd::Interrupted) => {}
                Err(EarlyEnd::Broken(error)) => return Err(error),
                Err(other) => unreachable!("unexpected input: {other:?}"),
            }
            let by_signal = self.ending == Some(true);
            if self.ending.is_some() || self.queue.is_empty() {
                self.session_ends()?;
                return Ok(u8::from(self.failed && !by_signal));
            }
            if let Some(code) = self.take_turn()? {
                return Ok(code);
            }
        }
    }

    /// Stores the data that the CLI saves only at an orderly end.
    fn session_ends(&mut self) -> io::Result<()> {
        if self.session.is_used() {
            self.session.remember(SessionEntry::Cost(self.cost))?;
        }
        Ok(())
    }

    /// Handles input until `done`, or until `end`: then returns `false`.
    fn wait(
        &mut self,
        end: Instant,
        mut done: impl FnMut(&mut Self) -> io::Result<bool>,
    ) -> Result<bool, EarlyEnd> {
        loop {
            while let Ok(input) = self.inputs.try_recv() {
                self.receive(input)?;
            }
            if self.interrupted {
                return Err(EarlyEnd::Interrupted);
            }
            if done(self)? {
                return Ok(true);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            if let Ok(input) = self.inputs.recv_timeout(left.min(TICK)) {
                self.receive(input)?;
            }
        }
    }

    fn is_deaf_to(&self, what: &str) -> bool {
        self.plan.deaf.iter().any(|word| word == what)
    }

    fn receive(&mut self, input: Input) -> io::Result<()> {
        match input {
            Input::Line(line) => self.receive_line(&line),
            Input::Broken(why) => Err(io::Error::other(why)),
            Input::End => {
                self.ended = !self.is_deaf_to("eof");
                Ok(())
            }
            Input::Interrupt => {
                self.interrupted = self.turn.is_some();
                self.ending = Some(true);
                Ok(())
            }
        }
    }

    fn receive_line(&mut self, line: &Value) -> io::Result<()> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let broken = |what: &str| io::Error::other(format!("{what}: {line}"));
        match line["type"].as_str() {
            Some("user") => self.hear_message(line),
            Some("control_request") => {
                let id = text(&line["request_id"]).ok_or_else(|| broken("no request_id"))?;
                let subtype =
                    text(&line["request"]["subtype"]).ok_or_else(|| broken("no subtype"))?;
                let control = Control {
                    start: self.start,
                    subtype: subtype.clone(),
                    request: line["request"].clone(),
                    at_ms: now_ms(),
                };
                self.log(&LogLine::Control(control))?;
                if self.is_deaf_to(&subtype) {
                    return Ok(());
                }
                self.obey_control(&id, &subtype, &line["request"])
            }
            Some("control_response") => {
                if self.options.replay {
                    self.wire.line(line);
                }
                self.hear_answer(&line["response"])
                    .ok_or_else(|| broken("no answer to an open permission request"))?
            }
            Some("keep_alive" | "control_cancel_request") => Ok(()),
            _ => Err(broken("no such type")),
        }
    }

    fn hear_message(&mut self, line: &Value) -> io::Result<()> {
        let content = &line["message"]["content"];
        let blocks = content.as_array().map(|blocks| {
            let texts = blocks.iter().filter_map(|block| block["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        });
        let text = content.as_str().map(str::to_owned).or(blocks);
        let id = line["uuid"].as_str().unwrap_or_default();
        let is_new = !self.known.iter().any(|known| known.id == id);
        let is_uuid = id.is_empty() || (is_new && Uuid::parse_str(id).is_ok());
        let text =
            text.filter(|text| is_uuid && !text.is_empty() && line["message"]["role"] == "user");
        let Some(text) = text else {
            let why = format!("the CLI would not accept this message: {line}");
            return Err(io::Error::other(why));
        };
        let message = Message {
            start: self.start,
            pid: self.pid,
            session: self.session.id.clone(),
            id: id.into(),
            text,
            at_ms: now_ms(),
            taken: None,
        };
        self.log(&LogLine::Message(message.clone()))?;
        self.wire.lifecycle(id, "queued");
        self.queue.push_back(self.known.len());
        self.known.push(message);
        Ok(())
    }

    fn obey_control(&mut self, id: &str, subtype: &str, request: &Value) -> io::Result<()> {
        match subtype {
            "initialize" => self.wire.succeed(
                id,
                &json!({
                    "commands": [], "agents": [], "models": [], "account": {}, "output_style": "default", "pid": self.pid,
                    "claude_code_version": "2.1.329", "capabilities": ["interrupt_receipt_v1", "interrupt_cancel_queued_v1"],
                }),
            ),
            "get_usage" => {
                let session =
                    json!({"total_cost_usd": wire::dollars(self.cost), "model_usage": self.model_usage()});
                let answer = json!({"session": session, "rate_limits_available": false, "rate_limits": null, "behaviors": null});
                self.wire.succeed(id, &answer);
            }
            "interrupt" => return self.interrupt(id, request["cancel_queued"] == true),
            "end_session" => {
                self.wire.succeed(id, &Value::Null);
                self.interrupted = self.turn.is_some();
                self.ending = Some(false);
            }
            "set_permission_mode" => match request["mode"].as_str() {
                Some(mode) if MODES.contains(&mode) => {
                    self.mode = mode.into();
                    self.wire.succeed(id, &json!({"mode": mode}));
                    self.wire.line_of_session(
                        json!({"type": "system", "subtype": "status", "status": null, "permissionMode": mode}),
                    );
                }
                _ => {
                    let error = format!(
                        "Cannot set permission mode: must be one of {}",
                        MODES.join(", ")
                    );
                    self.wire.fail(id, &error, "invalid_mode");
                }
            },
            _ => {
                let error = format!("Unsupported control request subtype: {subtype}");
                self.wire.fail(id, &error, "unsupported_request");
            }
        }
        Ok(())
    }

    fn interrupt(&mut self, id: &str, forget_queue: bool) -> io::Result<()> {
        // An interrupt before the turn of a queued message applies to that turn.
        self.interrupted |= self.turn.is_some() || (!forget_queue && !self.queue.is_empty());
        if let Some(ask) = self.turn.as_mut().and_then(|turn| turn.ask.take()) {
            self.wire
                .line(&json!({"type": "control_cancel_request", "request_id": ask.id}));
        }
        let ids = |agent: &Self, places: &[usize]| -> Vec<String> {
            let ids = places.iter().map(|place| agent.known[*place].id.clone());
            ids.filter(|id| !id.is_empty()).collect()
        };
        let waiting: Vec<usize> = self.queue.iter().copied().collect();
        let mut receipt = json!({"still_queued": ids(self, &waiting)});
        if forget_queue {
            self.queue.clear();
            for place in &waiting {
                self.note(*place, MessageState::Cancelled)?;
                self.wire.lifecycle(&self.known[*place].id, "cancelled");
            }
            receipt = json!({"still_queued": [], "cancelled": ids(self, &waiting)});
        }
        self.wire.succeed(id, &receipt);
        Ok(())
    }

    /// Returns `None` for a response that no client may send.
    fn hear_answer(&mut self, response: &Value) -> Option<io::Result<()>> {
        let id = response["request_id"].as_str()?;
        let verdict = &response["response"];
        let (behavior, message) = match response["subtype"].as_str()? {
            "success" => (verdict["behavior"].as_str()?, &verdict["message"]),
            "error" => ("deny", &response["error"]),
            _ => return None,
        };
        let is_complete = match behavior {
            "allow" => verdict["updatedInput"].is_object(),
            "deny" => message.is_string(),
            _ => false,
        };
        let turn = self.turn.as_mut();
        let ask = turn.and_then(|turn| turn.ask.as_mut().filter(|ask| ask.id == id));
        let answer = Answer {
            start: self.start,
            ask: id.into(),
            summary: ask
                .as_ref()
                .map_or_else(String::new, |ask| ask.summary.clone()),
            behavior: behavior.into(),
            message: message.as_str().unwrap_or_default().into(),
            at_ms: now_ms(),
        };
        if let Some(ask) = ask {
            ask.answer = Some((answer.clone(), verdict["interrupt"] == true));
        }
        is_complete.then(|| self.log(&LogLine::Answer(answer)))
    }

    fn note(&mut self, place: usize, taken: MessageState) -> io::Result<()> {
        self.known[place].taken = Some(taken);
        self.log(&LogLine::Taken(self.start, place, taken))
    }

    fn log(&self, heard: &LogLine) -> io::Result<()> {
        log::log(&self.dir, heard)
    }
}
