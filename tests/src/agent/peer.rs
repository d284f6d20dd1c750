//! A fake agent with a JSON lines protocol: Codex's app server (0.169.0 was recorded), or the Agent Client Protocol. It plays the scripts of the
//! stream-json agent, as far as the tests of several agents need them.

mod wire;

use std::collections::VecDeque;
use std::env;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use fs_err as fs;
use serde_json::{Value, json};
use uuid::Uuid;

use self::wire::Wire;
use super::duplex::input::{self, Input};
use super::duplex::session::{Session, SessionEntry};
use super::log::{self, Answer, Control, LogLine, Message, MessageState};
use super::record::now_ms;
use super::script::{Action, Plan};
use super::{children, perform};

const TICK: Duration = Duration::from_millis(5);

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Codex,
    Acp,
}

impl Protocol {
    /// Returns the protocol for which the program was started; `None` otherwise.
    pub(super) fn of(argv: &[String]) -> Option<Self> {
        match argv.get(1)?.as_str() {
            "app-server" => Some(Self::Codex),
            "acp" | "--acp" => Some(Self::Acp),
            _ => None,
        }
    }
}

/// Plays the agent until its stdin ends.
pub(super) fn run(speaks: Protocol) -> io::Result<()> {
    let folder = |name: &str| {
        let value = env::var_os(name).map(PathBuf::from);
        value.ok_or_else(|| io::Error::other(format!("{name} is not set")))
    };
    let dir = folder("FAKE_AGENT_RECORD")?;
    let script = fs::read_to_string(folder("FAKE_AGENT_SCRIPT")?)?;
    let (start, plan, watch) = perform::begin(&dir, &script)?;
    watch.obey(dir.clone(), start.start, plan.ignore.clone());
    let (sender, inputs) = mpsc::channel();
    input::read(sender.clone());
    let mut peer = Peer {
        wire: Wire::new(speaks),
        start: start.start,
        pid: start.pid,
        plan,
        dir,
        inputs,
        _sender: sender,
        session: Session::new(&PathBuf::new(), ""),
        known: 0,
        prompts: VecDeque::new(),
        steers: 0,
        may_run: None,
        turns: 0,
        interrupted: false,
        ended: false,
        answer: None,
        children: 0,
    };
    while !peer.ended {
        if let Some(text) = peer.prompts.pop_front() {
            peer.turn(&text)?;
        } else if let Ok(input) = peer.inputs.recv() {
            peer.receive(input)?;
        }
    }
    Ok(())
}

/// The reason why a turn ended early.
enum EarlyEnd {
    Interrupted,
    Limited(Duration),
    Broken(io::Error),
}

impl From<io::Error> for EarlyEnd {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

struct Peer {
    wire: Wire,
    start: u32,
    pid: i32,
    plan: Plan,
    dir: PathBuf,
    inputs: Receiver<Input>,
    /// Keeps the channel open after the end of stdin.
    _sender: Sender<Input>,
    session: Session,
    /// The number of messages of this process.
    known: usize,
    prompts: VecDeque<String>,
    /// Messages that joined the turn and that no script line has consumed.
    steers: usize,
    /// Whether commands are permitted; `None` if each needs a permission request.
    may_run: Option<bool>,
    turns: u32,
    interrupted: bool,
    ended: bool,
    answer: Option<bool>,
    children: usize,
}

impl Peer {
    fn turn(&mut self, prompt: &str) -> io::Result<()> {
        self.turns += 1;
        self.interrupted = false;
        self.session.remember(SessionEntry::User(prompt.into()))?;
        self.wire.turn_began(self.turns)?;
        let last = self.plan.turns.len() - 1;
        let number = self.turns as usize - 1;
        let actions = match self.plan.turns.get(number) {
            Some(actions) => actions.clone(),
            None if self.plan.goes_on => self.plan.turns[last].clone(),
            None => Vec::new(),
        };
        let is_silent = !actions
            .iter()
            .any(|action| matches!(action, Action::Say { .. }));
        let played = actions
            .into_iter()
            .try_for_each(|action| self.play(action, prompt));
        match played {
            Ok(()) if is_silent => self.say("Done.")?,
            Ok(()) => {}
            Err(EarlyEnd::Broken(error)) => return Err(error),
            Err(EarlyEnd::Interrupted) => return self.wire.turn_interrupted(),
            Err(EarlyEnd::Limited(left)) => return self.wire.turn_limited(left),
        }
        self.wire.turn_completed()
    }

    fn play(&mut self, action: Action, prompt: &str) -> Result<(), EarlyEnd> {
        match action {
            Action::Say { text, .. } => Ok(self.say(&text)?),
            Action::Echo => Ok(self.say(prompt)?),
            Action::Recall => {
                let told = self.session.messages().join(" | ");
                Ok(self.say(&told)?)
            }
            Action::Run(line) => {
                self.wire.tool_began("execute", &line)?;
                self.shell(&line)
            }
            Action::Ask { tool, summary } => self.ask(&tool, &summary),
            Action::ExpectSteer => {
                self.wait(|peer| Ok(peer.steers > 0))?;
                self.steers = 0;
                Ok(())
            }
            Action::Retry { times, .. } => {
                Err(EarlyEnd::Limited(Duration::from_secs(times.into())))
            }
            Action::Event(event) => Ok(self.wire.event(&event)?),
            Action::Hang => self.wait(|_| Ok(false)),
            Action::Delay(time) => {
                let end = Instant::now() + time;
                self.wait(|_| Ok(Instant::now() >= end))
            }
            Action::Await(path) => self.wait(|_| Ok(path.exists())),
            Action::Child { kind, ignore } => {
                self.children += 1;
                let number = self.children;
                Ok(children::start(
                    &self.dir, self.start, number, kind, &ignore,
                )?)
            }
            other => Ok(perform::perform(&other)?),
        }
    }

    fn say(&mut self, text: &str) -> io::Result<()> {
        self.wire.say(text)?;
        self.session.remember(SessionEntry::Agent(text.into()))
    }

    /// Handles input until `done`.
    fn wait(
        &mut self,
        mut done: impl FnMut(&mut Self) -> io::Result<bool>,
    ) -> Result<(), EarlyEnd> {
        let far = Instant::now() + children::LIFE;
        while Instant::now() < far {
            while let Ok(input) = self.inputs.try_recv() {
                self.receive(input)?;
            }
            if self.interrupted || self.ended {
                return Err(EarlyEnd::Interrupted);
            }
            if done(self)? {
                return Ok(());
            }
            if let Ok(input) = self.inputs.recv_timeout(TICK) {
                self.receive(input)?;
            }
        }
        Ok(())
    }

    /// Runs a command in its own session.
    fn shell(&mut self, line: &str) -> Result<(), EarlyEnd> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        crate::os::own_session(&mut command);
        let mut child: Child = command.spawn()?;
        let waited = self.wait(|_| Ok(child.try_wait()?.is_some()));
        if waited.is_err() {
            let _gone = child.kill();
        }
        let status = child.wait()?;
        waited?;
        Ok(self.wire.tool_ended(status.success(), "")?)
    }

    fn ask(&mut self, tool: &str, summary: &str) -> Result<(), EarlyEnd> {
        let kind = match tool {
            "Edit" | "Write" => "edit",
            _ => "execute",
        };
        self.wire.tool_began(kind, summary)?;
        let may = match self.may_run {
            Some(may) => may,
            None => {
                self.answer = None;
                self.wire.ask(kind, summary)?;
                self.wait(|peer| Ok(peer.answer.is_some()))?;
                let may = self.answer == Some(true);
                let answer = Answer {
                    start: self.start,
                    ask: "q".into(),
                    summary: summary.into(),
                    behavior: if may { "allow" } else { "deny" }.into(),
                    message: String::new(),
                    at_ms: now_ms(),
                };
                log::log(&self.dir, &LogLine::Answer(answer))?;
                may
            }
        };
        match may {
            true if kind == "execute" => self.shell(summary),
            true => Ok(self.wire.tool_ended(true, "")?),
            false => Ok(self.wire.tool_ended(false, "not permitted")?),
        }
    }

    fn receive(&mut self, input: Input) -> io::Result<()> {
        match input {
            Input::Line(line) => self.hear_line(&line),
            Input::Broken(why) => Err(io::Error::other(why)),
            Input::End | Input::Interrupt => {
                self.ended = !self.plan.deaf.iter().any(|word| word == "eof");
                Ok(())
            }
        }
    }

    fn hear_line(&mut self, line: &Value) -> io::Result<()> {
        let (id, params) = (&line["id"], &line["params"]);
        let Some(method) = line["method"].as_str() else {
            if id == "q" {
                let option = &line["result"]["outcome"]["optionId"];
                self.answer = Some(option == "yes" || line["result"]["decision"] == "accept");
            }
            return Ok(());
        };
        let control = Control {
            start: self.start,
            subtype: method.into(),
            request: params.clone(),
            at_ms: now_ms(),
        };
        log::log(&self.dir, &LogLine::Control(control))?;
        match method {
            "initialize" => self.wire.introduce(id),
            "thread/start" | "thread/resume" | "session/new" | "session/load" => {
                self.open(id, method, params)
            }
            "turn/start" | "session/prompt" => {
                let text = self.message(params, MessageState::Began(self.turns + 1))?;
                self.wire.accept(id, self.turns + 1, params)?;
                self.prompts.push_back(text);
                Ok(())
            }
            "turn/steer" => {
                let text = self.message(params, MessageState::Folded(self.turns))?;
                self.session.remember(SessionEntry::User(text))?;
                self.steers += 1;
                self.wire.steered(id, params)
            }
            "turn/interrupt" | "session/cancel" => {
                self.interrupted = true;
                self.wire.ok(id, &json!({}))
            }
            "session/set_mode" | "session/set_model" | "initialized" => {
                self.wire.ok(id, &json!({}))
            }
            _ => self.wire.fail(id, -32601, "no such method"),
        }
    }

    fn open(&mut self, id: &Value, method: &str, params: &Value) -> io::Result<()> {
        let named = params["threadId"].as_str().or(params["sessionId"].as_str());
        let session = named.map_or_else(|| Uuid::new_v4().to_string(), str::to_owned);
        self.session = Session::new(&self.dir, &session);
        let resumes = method.ends_with("resume") || method.ends_with("load");
        if resumes && (self.plan.unknown_session || !self.session.is_known()) {
            return self
                .wire
                .fail(id, -32002, "Session not found: no rollout found for it");
        }
        self.may_run = match (
            params["approvalPolicy"].as_str(),
            params["sandbox"].as_str(),
        ) {
            (Some("never"), sandbox) => Some(sandbox != Some("read-only")),
            _ => None,
        };
        self.wire.opened(id, &session, params)
    }

    /// Records a message and its outcome.
    fn message(&mut self, params: &Value, taken: MessageState) -> io::Result<String> {
        let parts = params["input"].as_array().or(params["prompt"].as_array());
        let texts = parts.into_iter().flatten();
        let texts: Vec<&str> = texts.filter_map(|part| part["text"].as_str()).collect();
        let text = texts.join("\n");
        self.known += 1;
        let message = Message {
            start: self.start,
            pid: self.pid,
            session: self.session.id.clone(),
            id: self.known.to_string(),
            text: text.clone(),
            at_ms: now_ms(),
            taken: Some(taken),
        };
        log::log(&self.dir, &LogLine::Message(message))?;
        Ok(text)
    }
}
