//! The half of a connection that is the same for every protocol: the agent's process, its pipes, its pending waits, and the queue of observations.

use super::timeouts::{EndSequence, StopState, WaitState};
use agent_duplex::{Event, Observation, StopReport};
use agent_subprocess::{LineWriter, ProcessContext, ProcessTree, StopPolicy};
use std::collections::VecDeque;
use std::ffi::OsString;

/// The limit of queued lines, in bytes, while a session opens or an agent ends.
const MAX_QUEUED_BYTES: usize = 32 << 20;

/// A running agent.
#[derive(Debug)]
pub(crate) struct AgentLink {
    pub(crate) agent: ProcessTree,
    /// The agent's name for users.
    pub(crate) name: &'static str,
    pub(crate) program: String,
    pub(super) policy: StopPolicy,
    pub(crate) writer: LineWriter,
    /// The observations that the caller has not taken yet.
    pub(crate) queue: ObservationQueue,
    /// The last lines of standard output that are not part of the protocol.
    pub(super) plain_lines: PlainLines,
    pub(super) frozen: bool,
    pub(crate) wait_state: WaitState,
    /// The current step of the end of the agent, if it was requested.
    pub(super) ending: Option<EndSequence>,
    /// Whether the end of the process was reported.
    pub(crate) has_reported_exit: bool,
    /// The stop of the whole process tree, if one has begun.
    pub(crate) stopping: Option<StopState>,
    pub(super) stopped: Option<StopReport>,
    /// Whether the initialization request was sent.
    pub(crate) is_initialized: bool,
}

impl AgentLink {
    /// Makes a link to a process that was started with a pipe as its standard input. `program` is the program and its leading arguments. Queues the
    /// event of the start, and of the session if its id is known.
    pub(crate) fn new(
        mut agent: ProcessTree,
        name: &'static str,
        program: &[OsString],
        context: &ProcessContext,
        session: Option<String>,
    ) -> Self {
        let stdin = agent
            .take_stdin()
            .expect("the agent has a pipe as its standard input");
        let mut queue = ObservationQueue::default();
        let mut events = vec![Event::Started { pid: agent.pid() }];
        events.extend(session.map(|id| Event::Session { id }));
        queue.push(Observation { raw: None, events });
        AgentLink {
            agent,
            name,
            program: program[0].to_string_lossy().into_owned(),
            policy: context.stop.clone(),
            writer: LineWriter::new(stdin),
            queue,
            plain_lines: PlainLines::default(),
            frozen: false,
            wait_state: WaitState::default(),
            ending: None,
            has_reported_exit: false,
            stopping: None,
            stopped: None,
            is_initialized: false,
        }
    }

    /// Returns `true` at the first call: the caller then sends the initialization request.
    pub(crate) fn begin_initialization(&mut self) -> bool {
        !std::mem::replace(&mut self.is_initialized, true)
    }

    /// Returns the agent's last output that is not part of its protocol.
    pub(super) fn output_tail(&self) -> String {
        let mut tail = self.agent.stderr_tail();
        if !tail.is_empty() && !tail.ends_with('\n') {
            tail.push('\n');
        }
        tail.extend(self.plain_lines.0.iter().flat_map(|line| [line, "\n"]));
        tail
    }

    /// Schedules the end of an agent that is no longer needed.
    pub(crate) fn schedule_end(&mut self) {
        self.agent.close_stdin();
        self.wait_state.await_exit();
    }
}

/// The outcome of one line: events, and lines to write back.
#[derive(Debug, Default)]
pub(crate) struct LineOutcome {
    pub(crate) events: Vec<Event>,
    pub(crate) lines: Vec<Vec<u8>>,
}

/// The last lines of standard output that are not part of the protocol. They can name the reason why the agent ended.
#[derive(Debug, Default)]
pub(super) struct PlainLines(VecDeque<String>);

impl PlainLines {
    const MAX_LINES: usize = 20;
    const MAX_CHARS: usize = 1000;

    pub(super) fn push(&mut self, line: &[u8]) {
        if self.0.len() == Self::MAX_LINES {
            self.0.pop_front();
        }
        let line = String::from_utf8_lossy(line);
        self.0
            .push_back(line.chars().take(Self::MAX_CHARS).collect());
    }
}

/// The observations that wait for the caller. Beyond the limit, raw lines and text deltas are dropped.
#[derive(Debug, Default)]
pub(crate) struct ObservationQueue {
    ready: VecDeque<Observation>,
    bytes: usize,
}

impl ObservationQueue {
    pub(crate) fn push(&mut self, mut seen: Observation) {
        if self.bytes + size(&seen) > MAX_QUEUED_BYTES {
            seen.raw = None;
            let is_piece = |e: &Event| matches!(e, Event::TextDelta(_) | Event::ThinkingDelta(_));
            seen.events.retain(|event| !is_piece(event));
        }
        if seen != Observation::default() {
            self.bytes += size(&seen);
            self.ready.push_back(seen);
        }
    }

    pub(crate) fn take(&mut self) -> Option<Observation> {
        let seen = self.ready.pop_front()?;
        self.bytes -= size(&seen);
        Some(seen)
    }
}

fn size(seen: &Observation) -> usize {
    seen.raw.as_ref().map_or(0, |(_, line)| line.bytes.len())
}
