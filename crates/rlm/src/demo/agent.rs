//! The agent of the demo: it speaks the protocol and follows the script, without a model and without a network.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use uuid::Uuid;

use super::project;
use super::protocol::{self, Incoming, InterruptPoint, Message, Request, Summary};
use super::script::{self, NOTES, PROGRAM, ProjectState, ScriptStep, Tool};

/// Longer lines are cut, and are then rejected as invalid JSON.
const MAX_LINE: u64 = 4 << 20;
const MAX_OUTPUT: u64 = 64 << 10;
const MAX_QUEUE: usize = 100;
/// The times for thinking about the next step and for using a tool, as multiples of the time between two words.
const THINKING: u32 = 4;
const WORKING: u32 = 6;

/// An event that wakes the agent.
#[derive(Debug)]
pub(super) enum AgentInput {
    Line(Vec<u8>),
    /// Standard input ended.
    Closed,
    /// A command closed its output.
    Output {
        call: u32,
        text: String,
    },
}

/// The reason why a turn ended early.
#[derive(Debug)]
enum TurnStop {
    Aborted { place: InterruptPoint, leave: bool },
    Failed(io::Error),
}

impl From<io::Error> for TurnStop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// The start options of an agent.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) session: String,
    /// Whether another process began the session.
    pub(super) resumed: bool,
    pub(super) mode: String,
    /// The time between two words.
    pub(super) pace: Duration,
    pub(super) tree: PathBuf,
}

#[derive(Debug)]
pub(super) struct Agent<W> {
    setup: Setup,
    out: W,
    /// The agent keeps a sender for the threads that read a command's output.
    sender: SyncSender<AgentInput>,
    inputs: Receiver<AgentInput>,
    queue: VecDeque<Message>,
    closed: bool,
    /// Whether the loop requested a step that is not complete.
    unfinished: bool,
    /// The messages that are part of the running turn.
    taken: Vec<String>,
    last_text: String,
    calls: u32,
    turns: u32,
    input_words: u64,
    output_words: u64,
}

impl<W: Write> Agent<W> {
    pub(super) fn new(
        setup: Setup,
        out: W,
        sender: SyncSender<AgentInput>,
        happenings: Receiver<AgentInput>,
    ) -> Self {
        Self {
            unfinished: setup.resumed,
            setup,
            out,
            sender,
            inputs: happenings,
            queue: VecDeque::new(),
            closed: false,
            taken: Vec::new(),
            last_text: String::new(),
            calls: 0,
            turns: 0,
            input_words: 0,
            output_words: 0,
        }
    }

    /// Runs until a request ends the session, or until the input has ended and all messages are answered.
    pub(super) fn run(mut self) -> io::Result<()> {
        loop {
            let stopped = match self.queue.pop_front() {
                Some(message) => self.turn(message),
                None if self.closed => return Ok(()),
                None => {
                    let received = self.next_input();
                    self.handle(received)
                }
            };
            match stopped {
                // Between two turns an interrupt has no effect.
                Ok(()) | Err(TurnStop::Aborted { leave: false, .. }) => {}
                Err(TurnStop::Aborted { leave: true, .. }) => return Ok(()),
                Err(TurnStop::Failed(error)) => return Err(error),
            }
        }
    }

    fn turn(&mut self, message: Message) -> Result<(), TurnStop> {
        let (began, input_before, output_before) =
            (Instant::now(), self.input_words, self.output_words);
        self.taken.clear();
        self.last_text.clear();
        let init = protocol::init(&self.setup.tree.to_string_lossy(), &self.setup.mode);
        self.take(&message, Some(init))?;
        let stopped = self.answer(&message.text);
        let end = match &stopped {
            Ok(()) => Ok(self.last_text.as_str()),
            Err(TurnStop::Aborted { place, .. }) => Err(*place),
            Err(TurnStop::Failed(_)) => return stopped,
        };
        let result = protocol::result(&Summary {
            end,
            index: self.turns,
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            turn: (
                self.input_words - input_before,
                self.output_words - output_before,
            ),
            total: (self.input_words, self.output_words),
        });
        self.turns += 1;
        if let Err(place) = end {
            self.write(protocol::marker(place))?;
        }
        self.write(result)?;
        let state = if stopped.is_ok() {
            "completed"
        } else {
            "cancelled"
        };
        for uuid in std::mem::take(&mut self.taken) {
            self.write(protocol::lifecycle(&uuid, state))?;
        }
        stopped
    }

    /// Adds a message to the running turn.
    fn take(&mut self, message: &Message, init: Option<Value>) -> io::Result<()> {
        if let Some(uuid) = &message.uuid {
            self.write(protocol::lifecycle(uuid, "started"))?;
            self.taken.push(uuid.clone());
        }
        self.input_words += message.text.split_whitespace().count() as u64;
        init.into_iter()
            .chain([protocol::replay(message)])
            .try_for_each(|value| self.write(value))
    }

    fn answer(&mut self, message: &str) -> Result<(), TurnStop> {
        let order = script::read(message);
        let begun = self.unfinished;
        self.unfinished |= order.work;
        for words in &order.words {
            self.note_message(words)?;
        }
        let steps = if self.unfinished {
            let mut tree = self.project_state();
            tree.begun = begun;
            if !order.words.is_empty() {
                tree.notes.clear();
            }
            script::work(&tree)
        } else {
            vec![script::commit("Note the message of the user")]
        };
        let last_tool = steps
            .iter()
            .rposition(|step| matches!(step, ScriptStep::Use(_)));
        for (index, step) in steps.iter().enumerate() {
            self.perform(step)?;
            // A message that comes while a tool runs joins the turn, but not after the last tool, which commits the result.
            if matches!(step, ScriptStep::Use(_)) && Some(index) != last_tool {
                while let Some(message) = self.queue.pop_front() {
                    self.take(&message, None)?;
                    for words in script::read(&message.text).words {
                        self.note_message(words)?;
                    }
                }
            }
        }
        self.unfinished = false;
        Ok(())
    }

    fn note_message(&mut self, words: &str) -> Result<(), TurnStop> {
        script::note_message(words, &self.notes())
            .iter()
            .try_for_each(|step| self.perform(step))
    }

    fn project_state(&self) -> ProjectState {
        ProjectState {
            program: fs_err::read_to_string(self.setup.tree.join(PROGRAM)).ok(),
            uncommitted: project::differs(&self.setup.tree, PROGRAM),
            notes: self.notes(),
            begun: false,
        }
    }

    fn notes(&self) -> String {
        fs_err::read_to_string(self.setup.tree.join(NOTES)).unwrap_or_default()
    }

    fn perform(&mut self, step: &ScriptStep) -> Result<(), TurnStop> {
        self.pause(THINKING)?;
        self.calls += 1;
        let id = format!("msg_{}", self.calls);
        match step {
            ScriptStep::Say(text) => self.say(&id, text),
            ScriptStep::Use(tool) => self.use_tool(&id, tool),
        }
    }

    fn say(&mut self, id: &str, text: &str) -> Result<(), TurnStop> {
        self.write_all(protocol::open(id, protocol::text_block("")))?;
        self.last_text.clear();
        for word in text.split_inclusive(' ') {
            if let Err(stop) = self.pause(1) {
                if matches!(stop, TurnStop::Aborted { .. }) {
                    let block = protocol::text_block(&self.last_text);
                    self.write(protocol::assistant(id, block, true))?;
                    self.write_all(protocol::close(None))?;
                }
                return Err(stop);
            }
            self.write(protocol::delta(word))?;
            self.last_text.push_str(word);
            self.output_words += 1;
        }
        self.write(protocol::assistant(id, protocol::text_block(text), false))?;
        Ok(self.write_all(protocol::close(Some("end_turn")))?)
    }

    fn use_tool(&mut self, id: &str, tool: &Tool) -> Result<(), TurnStop> {
        let call = format!("toolu_{}", self.calls);
        let (name, input) = (tool.name(), tool.input());
        let block = |input: &Value| protocol::tool_block(&call, name, input);
        self.write_all(protocol::open(id, block(&json!({}))))?;
        self.write(protocol::input_delta(&input))?;
        self.write(protocol::assistant(id, block(&input), false))?;
        self.write_all(protocol::close(Some("tool_use")))?;
        let done = self.pause(WORKING).and_then(|()| self.carry_out(tool));
        let result = match done {
            Ok((output, failed)) => protocol::tool_result(&call, &output, failed),
            Err(TurnStop::Aborted { leave, .. }) => {
                self.write(protocol::tool_rejected(&call))?;
                let place = InterruptPoint::Tool;
                return Err(TurnStop::Aborted { place, leave });
            }
            Err(failed) => return Err(failed),
        };
        Ok(self.write(result)?)
    }

    /// Returns the output of the tool, and whether it failed.
    fn carry_out(&mut self, tool: &Tool) -> Result<(String, bool), TurnStop> {
        let path = |path: &str| self.setup.tree.join(path);
        let done = match tool {
            Tool::Bash { command } => return self.shell(command),
            Tool::Write {
                path: file,
                content,
            } => fs_err::write(path(file), content).map(|()| "written"),
            Tool::Edit {
                path: file,
                old,
                new,
            } => fs_err::read_to_string(path(file))
                .and_then(|text| fs_err::write(path(file), text.replacen(old, new, 1)))
                .map(|()| "changed"),
        };
        Ok(match done {
            Ok(done) => (done.to_owned(), false),
            Err(error) => (error.to_string(), true),
        })
    }

    fn shell(&mut self, command: &str) -> Result<(String, bool), TurnStop> {
        let (reader, writer) = io::pipe()?;
        let mut child = project::isolate_git(Command::new("sh").args(["-c", command]))
            .current_dir(&self.setup.tree)
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0)
            .spawn()?;
        let (sender, call) = (self.sender.clone(), self.calls);
        std::thread::spawn(move || {
            let mut output = Vec::new();
            let _partial_output_is_used = reader.take(MAX_OUTPUT).read_to_end(&mut output);
            let text = String::from_utf8_lossy(&output).into_owned();
            let _agent_is_gone = sender.send(AgentInput::Output { call, text });
        });
        loop {
            match self.next_input() {
                AgentInput::Output { call: of, text } if of == call => {
                    return Ok((text, !child.wait()?.success()));
                }
                other => {
                    if let Err(stop) = self.handle(other) {
                        // Kills the whole process group. The child was not reaped yet, so its pid can't belong to another process.
                        let _gone = kill_process_group(Pid::from_child(&child), Signal::KILL);
                        child.wait()?;
                        return Err(stop);
                    }
                }
            }
        }
    }

    /// Waits for the time of this many words, and handles input meanwhile.
    fn pause(&mut self, words: u32) -> Result<(), TurnStop> {
        let until = Instant::now() + self.setup.pace * words;
        loop {
            let left = match self.closed {
                true => Duration::ZERO,
                false => until.saturating_duration_since(Instant::now()),
            };
            match self.inputs.recv_timeout(left) {
                Ok(received) => self.handle(received)?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn next_input(&self) -> AgentInput {
        let received = self.inputs.recv();
        received.expect("the agent keeps a sender")
    }

    /// Handles an event immediately; an error ends the turn.
    fn handle(&mut self, received: AgentInput) -> Result<(), TurnStop> {
        let line = match received {
            AgentInput::Line(line) => line,
            AgentInput::Closed => {
                self.closed = true;
                return Ok(());
            }
            // The output of an interrupted command.
            AgentInput::Output { .. } => return Ok(()),
        };
        let incoming = protocol::parse(&line)
            .map_err(|why| TurnStop::Failed(io::Error::new(io::ErrorKind::InvalidData, why)))?;
        match incoming {
            Incoming::Message(message) => self.enqueue(message)?,
            Incoming::Request { id, request } => self.fulfil(&id, request)?,
            Incoming::Other => {}
        }
        Ok(())
    }

    fn enqueue(&mut self, message: Message) -> io::Result<()> {
        let room = self.queue.len() < MAX_QUEUE;
        if let Some(uuid) = &message.uuid {
            let state = if room { "queued" } else { "refused" };
            self.write(protocol::lifecycle(uuid, state))?;
        }
        if room {
            self.queue.push_back(message);
        }
        Ok(())
    }

    fn fulfil(&mut self, id: &str, request: Request) -> Result<(), TurnStop> {
        let mut leave = None;
        let answer = match request {
            Request::Initialize => protocol::initialized(std::process::id()),
            Request::Interrupt { cancel_queued } => {
                leave = Some(false);
                let queue = self.queue.iter();
                let queued: Vec<_> = queue.filter_map(|message| message.uuid.clone()).collect();
                if cancel_queued {
                    self.queue.clear();
                    for uuid in &queued {
                        self.write(protocol::lifecycle(uuid, "cancelled"))?;
                    }
                    protocol::receipt(&[], Some(&queued))
                } else {
                    protocol::receipt(&queued, None)
                }
            }
            Request::EndSession => {
                leave = Some(true);
                json!({})
            }
            Request::SetPermissionMode(mode) => {
                self.write(protocol::permission_mode(&mode))?;
                self.setup.mode = mode.clone();
                json!({"mode": mode})
            }
            Request::Unknown(subtype) => {
                return Ok(self.write(protocol::unsupported(id, &subtype))?);
            }
        };
        self.write(protocol::success(id, answer))?;
        let place = InterruptPoint::Text;
        leave.map_or(Ok(()), |leave| Err(TurnStop::Aborted { place, leave }))
    }

    fn write_all(&mut self, values: impl IntoIterator<Item = Value>) -> io::Result<()> {
        values.into_iter().try_for_each(|value| self.write(value))
    }

    fn write(&mut self, mut value: Value) -> io::Result<()> {
        if value["type"] != "control_response" {
            value["session_id"] = self.setup.session.as_str().into();
            if value["uuid"].is_null() {
                value["uuid"] = Uuid::new_v4().to_string().into();
            }
        }
        let mut line = value.to_string();
        line.push('\n');
        self.out.write_all(line.as_bytes())?;
        self.out.flush()
    }
}

/// Reads lines until the input ends or the receiver is gone.
pub(super) fn listen(mut input: impl BufRead, sender: &SyncSender<AgentInput>) {
    loop {
        let mut line = Vec::new();
        let received = match input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(1..) => AgentInput::Line(line),
            Ok(0) | Err(_) => AgentInput::Closed,
        };
        let last = matches!(received, AgentInput::Closed);
        if sender.send(received).is_err() || last {
            return;
        }
    }
}
