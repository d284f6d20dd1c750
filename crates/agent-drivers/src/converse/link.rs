//! The half of a connection that is the same for every protocol: the agent's process, its pipes, its pending waits, and the queue of observations.

use super::patience::{Leaving, Stopping, Waits};
use agent_duplex::{Event, Observation, StopReport};
use agent_subprocess::{Agent, Context, LineWriter, StopPolicy};
use std::collections::VecDeque;
use std::ffi::OsString;

/// The limit of queued lines, in bytes, while a session opens or an agent ends.
const KEPT: usize = 32 << 20;

/// A running agent.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) agent: Agent,
    /// The agent's name for users.
    pub(crate) name: &'static str,
    pub(crate) program: String,
    pub(super) policy: StopPolicy,
    pub(crate) writer: LineWriter,
    /// The observations that the caller has not taken yet.
    pub(crate) kept: Kept,
    pub(super) frozen: bool,
    pub(crate) waits: Waits,
    /// The current step of the end of the agent, if it was requested.
    pub(super) leaving: Option<Leaving>,
    /// Whether the end of the process was reported.
    pub(crate) over: bool,
    /// The stop of the whole process tree, if one has begun.
    pub(crate) stopping: Option<Stopping>,
    pub(super) stopped: Option<StopReport>,
    /// Whether the initialization request was sent.
    pub(crate) introduced: bool,
}

impl Link {
    /// Makes a link to a process that was started with a pipe as its standard input. `program` is its name and its leading arguments. Queues the
    /// event of the start, and of the session if its id is known.
    pub(crate) fn new(
        mut agent: Agent,
        name: &'static str,
        program: &[OsString],
        context: &Context,
        session: Option<String>,
    ) -> Self {
        let stdin = agent
            .take_stdin()
            .expect("the agent has a pipe as its standard input");
        let mut kept = Kept::default();
        let mut events = vec![Event::Started { pid: agent.pid() }];
        events.extend(session.map(|id| Event::Session { id }));
        kept.keep(Observation { raw: None, events });
        Link {
            agent,
            name,
            program: program[0].to_string_lossy().into_owned(),
            policy: context.stop.clone(),
            writer: LineWriter::new(stdin),
            kept,
            frozen: false,
            waits: Waits::default(),
            leaving: None,
            over: false,
            stopping: None,
            stopped: None,
            introduced: false,
        }
    }

    /// Returns whether initialization is still to be done, and marks it as done.
    pub(crate) fn introduce(&mut self) -> bool {
        !std::mem::replace(&mut self.introduced, true)
    }

    /// Schedules the end of an agent that is of no more use.
    pub(crate) fn dismiss(&mut self) {
        self.agent.close_stdin();
        self.waits.expect_end();
    }
}

/// The outcome of one line: events, and lines to write back.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) events: Vec<Event>,
    pub(crate) lines: Vec<Vec<u8>>,
}

/// The observations that wait for the caller. Beyond the limit, raw lines and text deltas are dropped.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    ready: VecDeque<Observation>,
    bytes: usize,
}

impl Kept {
    pub(crate) fn keep(&mut self, mut seen: Observation) {
        if self.bytes + size(&seen) > KEPT {
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
