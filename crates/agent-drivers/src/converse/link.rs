//! The half of a connection that no protocol changes: the agent's process, its pipes, what it is waited for, and what was heard and nobody took yet.

use super::patience::{Leaving, Stopping, Waits};
use agent_duplex::{Event, Observation, StopReport};
use agent_subprocess::{Agent, Context, LineWriter, StopPolicy};
use std::collections::VecDeque;
use std::ffi::OsString;

/// How many bytes of lines are kept that nobody took while a session was being opened or an agent ended.
const KEPT: usize = 32 << 20;

/// A running agent.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) agent: Agent,
    /// The agent's name for people.
    pub(crate) name: &'static str,
    pub(crate) program: String,
    pub(super) policy: StopPolicy,
    pub(crate) writer: LineWriter,
    /// What waits to be taken.
    pub(crate) kept: Kept,
    pub(super) frozen: bool,
    pub(crate) waits: Waits,
    /// What the agent may take to end that was asked to.
    pub(super) leaving: Option<Leaving>,
    /// Whether the end of the process was reported.
    pub(crate) over: bool,
    /// The stop of everything, once one has begun.
    pub(crate) stopping: Option<Stopping>,
    pub(super) stopped: Option<StopReport>,
    /// Whether we have introduced ourselves.
    pub(crate) introduced: bool,
}

impl Link {
    /// Takes a process that was started from `program`, its name and its leading words, with a pipe as its standard input; keeps that it was, and
    /// its session if that is known.
    pub(crate) fn new(
        mut agent: Agent,
        name: &'static str,
        program: &[OsString],
        context: &Context,
        session: Option<String>,
    ) -> Self {
        let stdin = agent.take_stdin().expect("it was started with a pipe");
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

    /// Returns whether we have yet to introduce ourselves, and notes that it is done.
    pub(crate) fn introduce(&mut self) -> bool {
        !std::mem::replace(&mut self.introduced, true)
    }

    /// Sees to it that an agent ends that is of no use any more.
    pub(crate) fn dismiss(&mut self) {
        self.agent.close_stdin();
        self.waits.expect_end();
    }
}

/// What came of one line: events, and lines to write back.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) events: Vec<Event>,
    pub(crate) lines: Vec<Vec<u8>>,
}

/// What was observed and waits to be taken. Beyond the limit, lines and pieces of texts are left out.
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
