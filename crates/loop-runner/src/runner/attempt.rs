//! The agent's side of an attempt: its conversation, its transcript, and what is heard of it.

mod completed;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{Duration, SystemTime};

use agent_duplex::{
    Ask, Capabilities, Capability, Conversation, Event, InputState, Observation, Primary,
    Published, StopReport, Stream, What,
};
use loop_state::{Happening, SteerState, Timestamp, TurnOutcome, Usage};
use rlm_store::deadline::Hurry;
use rlm_store::transcript::Transcript;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::claim;
use crate::control::Wishes;
use crate::news::News;
use crate::runner::Runner;
use crate::runner::said::Said;
use crate::view::AgentView;

#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) conversation: Conversation,
    pub(crate) primary: Primary,
    capabilities: Capabilities,
    /// `None` when it could not be written.
    pub(super) transcript: Option<Transcript>,
    /// The agent is being started; nothing is waited for meanwhile.
    pub(super) starting: Option<JoinHandle<Result<(), agent_duplex::Error>>>,
    pub(super) in_turn: bool,
    /// Whether nothing more can be heard of this conversation.
    pub(super) over: bool,
    /// The process id of the agent, once it runs.
    pub(super) pid: Option<u32>,
    /// Whether the agent's process has ended.
    pub(super) gone: bool,
    pub(super) halting: Option<Halting>,
    /// Until when the turn may take to end after a person's interrupt.
    pub(super) interrupt_by: Option<Instant>,
    /// Has its whole tree end sooner, once that ends.
    pub(crate) hurry: Hurry,
    /// The end of its whole tree, while that is under way.
    pub(super) ending: Option<JoinHandle<StopReport>>,
    /// How many tasks the agent has running in the background.
    pub(super) background: u32,
    /// Until when something has to come of them, while the end of the turn waits for that.
    pub(super) hold_by: Option<Instant>,
    /// The end of an agent of whose tasks nothing came, while that is waited for.
    pub(super) closing: Option<JoinHandle<()>>,
    /// How its turn ended, kept until its tree is gone, or what it has in the background is done.
    pub(super) outcome: Option<TurnOutcome>,
    /// Whether the end of its turn was told.
    pub(super) told: bool,
    /// Whether a person wanted a turn of this attempt to be interrupted.
    pub(super) interrupted: bool,
    /// Whether its turn is to be interrupted as soon as no tool of its runs any more, as long as the run is to pause.
    pub(super) pause_at_tool: bool,
    /// Whether the agent has said something.
    answered: bool,
    /// The first thing that it said, told once it is saved that it answers.
    pub(super) first_words: Option<Published>,
    /// When the limit is over by which the service last refused a request.
    pub(super) limited_until: Option<SystemTime>,
    /// Whether the end of its tree was counted.
    pub(super) stopped: bool,
    /// Whether a turn of it has begun.
    assigned: bool,
    /// The steers that went out with its prompt, until it says something.
    unread: Vec<u32>,
    /// The steers by the receipts of what was sent.
    pub(super) sent: HashMap<Uuid, u32>,
    tools: BTreeMap<String, String>,
    pub(super) asks: Vec<Ask>,
    /// How many tools were called.
    pub(super) tools_run: u32,
    /// Since when the agent was silent when that was told last.
    pub(super) silence_told: Option<Timestamp>,
    /// How the working tree was when the attempt began.
    pub(super) footprint: Option<u64>,
    /// The end of what the agent said last: a promise may stand there.
    last_words: String,
    /// What the present turn came to so far.
    pub(super) said: Said,
}

/// A turn that was told to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Halting {
    pub(super) polite_until: Instant,
    pub(super) end_by: Instant,
}

impl Attempt {
    pub(crate) fn new(
        conversation: Conversation,
        primary: Primary,
        transcript: Option<Transcript>,
    ) -> Self {
        Self {
            capabilities: conversation.capabilities(),
            conversation,
            primary,
            transcript,
            starting: None,
            in_turn: true,
            over: false,
            pid: None,
            gone: false,
            halting: None,
            interrupt_by: None,
            hurry: Hurry::default(),
            ending: None,
            background: 0,
            hold_by: None,
            closing: None,
            outcome: None,
            told: false,
            interrupted: false,
            pause_at_tool: false,
            answered: false,
            first_words: None,
            limited_until: None,
            stopped: false,
            assigned: false,
            unread: Vec::new(),
            sent: HashMap::new(),
            tools: BTreeMap::new(),
            asks: Vec::new(),
            tools_run: 0,
            silence_told: None,
            footprint: None,
            last_words: String::new(),
            said: Said::default(),
        }
    }

    /// Goes on in another process.
    pub(super) fn replace(&mut self, conversation: Conversation, primary: Primary) {
        let earlier = std::mem::replace(self, Self::new(conversation, primary, None));
        self.transcript = earlier.transcript;
        self.tools_run = earlier.tools_run;
        self.footprint = earlier.footprint;
    }

    pub(crate) fn flush_at(&self) -> Option<Timestamp> {
        self.transcript.as_ref()?.flush_at()
    }

    /// Returns until when an interrupted turn may come to its end by itself.
    pub(crate) fn patient_until(&self) -> Option<Instant> {
        let halting = self.halting.map(|halting| halting.polite_until);
        let patience = halting.or(self.interrupt_by);
        patience.filter(|_| self.in_turn && self.ending.is_none() && !self.stopped)
    }

    /// Allows for time in which everything stood still.
    pub(super) fn be_patient(&mut self, frozen: Duration) {
        for by in self.interrupt_by.iter_mut().chain(&mut self.hold_by) {
            *by += frozen;
        }
        for halting in self.halting.iter_mut() {
            halting.polite_until += frozen;
            halting.end_by += frozen;
        }
    }

    /// Returns whether messages and interrupts reach the agent within its turn.
    pub(crate) fn is_steerable(&self) -> bool {
        self.capabilities.has(Capability::Steer) && self.is_interruptible()
    }

    /// Returns whether its turn can be ended and its session gone on with.
    pub(crate) fn is_interruptible(&self) -> bool {
        self.capabilities.has(Capability::Interrupt)
    }

    pub(super) fn view(&self) -> AgentView {
        AgentView {
            alive: !self.gone && !self.stopped,
            held_for: self.tasks_held_for(),
            steerable: self.is_steerable(),
            tools: self.tools.values().cloned().collect(),
            asks: self.asks.clone(),
        }
    }

    /// Returns whether the promise was made at the end of the turn.
    pub(super) fn has_claimed(&self, promise: Option<&String>) -> bool {
        promise.is_some_and(|promise| claim::is_made(&self.last_words, promise))
    }

    /// Keeps the line that may hold a promise.
    fn listen(&mut self, seen: &Observation) {
        if let (Some((Stream::Stdout, line)), false) = (&seen.raw, self.understands())
            && line.bytes.iter().any(|byte| !byte.is_ascii_whitespace())
        {
            self.said.line(&line.bytes);
            let from = line.bytes.len().saturating_sub(claim::MAX_LINE);
            self.last_words = String::from_utf8_lossy(&line.bytes[from..]).into_owned();
        }
        for event in &seen.events {
            match event {
                Event::Message { text, partial } => {
                    if !partial {
                        self.said.message(text);
                    }
                    self.last_words = if *partial {
                        String::new()
                    } else {
                        text.clone()
                    };
                }
                // What was said before a tool ran is not the end of the turn.
                Event::ToolStarted { .. } => self.last_words.clear(),
                _ => {}
            }
        }
    }

    /// Returns whether the driver understands what the agent says, so that nobody needs its raw lines.
    fn understands(&self) -> bool {
        self.capabilities.has(Capability::Tools)
    }
}

impl Runner {
    /// Takes notice that the agent was started, or could not be.
    pub(super) fn agent_started(
        &mut self,
        started: Result<(), agent_duplex::Error>,
    ) -> Option<Happening> {
        let Err(e) = started else {
            let attempt = self.attempt.as_mut()?;
            if attempt.interrupt_by.is_some() {
                // The wish came when there was nothing yet to interrupt.
                return self.interrupt_turn();
            }
            // Of one whose words nobody understands it is known that it was handed its prompt, and no more.
            let is_handed = !attempt.understands() && !attempt.answered;
            attempt.answered |= is_handed;
            return is_handed.then_some(Happening::Prompted);
        };
        if self.attempt.as_ref()?.ending.is_some() {
            return None;
        }
        self.attempt = None;
        self.refresh_view();
        let why = e.to_string();
        Some(Happening::TurnEnded(match e.is_held() {
            true => TurnOutcome::SessionHeld(why),
            false => TurnOutcome::NotStarted(why),
        }))
    }

    /// Takes what the agent did; `None` when it has nothing more to say.
    pub(super) async fn agent_did(
        &mut self,
        published: Option<Published>,
        wishes: &mut Wishes,
    ) -> Vec<Happening> {
        let Some(attempt) = &mut self.attempt else {
            return Vec::new();
        };
        let Some(published) = published else {
            attempt.over = true;
            attempt.in_turn = false;
            self.refresh_view();
            return self
                .held()
                .or_else(|| self.turn_ended())
                .into_iter()
                .collect();
        };
        if !attempt.answered && is_answer(&published.what) {
            // Saved before it is told: what somebody has seen answered is not prompted again.
            attempt.answered = true;
            attempt.first_words = Some(published);
            let read = std::mem::take(&mut attempt.unread).into_iter();
            let state = SteerState::Seen;
            let read = read.map(|id| Happening::SteerMoved { id, state });
            return [Happening::Prompted].into_iter().chain(read).collect();
        }
        match published.what {
            What::Assigned(assignment) => {
                attempt.in_turn = true;
                if !assignment.injected {
                    // A promise of an earlier turn is none of this one.
                    attempt.last_words.clear();
                    attempt.said.clear();
                    if !assignment.inputs.is_empty() && attempt.halting.is_none() {
                        // Somebody said something: the end of this turn is that of the iteration.
                        (attempt.hold_by, attempt.outcome) = (None, None);
                    }
                }
                let seen = assignment.inputs.iter();
                let seen: Vec<u32> = seen
                    .filter_map(|input| attempt.sent.remove(&input.receipt))
                    .collect();
                let with_prompt = !std::mem::replace(&mut attempt.assigned, true);
                let seen = match with_prompt && !attempt.answered {
                    // Who dies before it says anything may have read none of it.
                    true => {
                        attempt.unread = seen;
                        Vec::new()
                    }
                    false => seen,
                };
                let at = self.clock.now();
                self.machine.alive(at);
                self.note_busy();
                self.refresh_view();
                let state = SteerState::Seen;
                let moved = |id| Happening::SteerMoved { id, state };
                seen.into_iter().map(moved).collect()
            }
            What::Observed(seen) => self.observed(seen).await,
            What::Completed(completion) => self.completed(completion, wishes).await,
            _ => Vec::new(),
        }
    }

    async fn observed(&mut self, seen: Observation) -> Vec<Happening> {
        let at = self.clock.now();
        self.machine.alive(at);
        let Some(attempt) = &mut self.attempt else {
            return Vec::new();
        };
        attempt.listen(&seen);
        let understands = attempt.understands();
        self.write_transcript(|transcript| match (&seen.raw, understands) {
            (Some((stream, line)), false) => transcript.output(at, *stream, line),
            _ => transcript.observed(at, &seen),
        });
        if let Some((stream, line)) = seen.raw
            && (!understands || stream == Stream::Stderr)
        {
            self.tell(News::Output { stream, line });
        }
        let mut happenings = Vec::new();
        for event in seen.events {
            happenings.extend(self.event(event).await);
        }
        self.note_busy();
        happenings.extend(self.held());
        happenings
    }

    /// An agent that waits for a tool, for a person or for its tasks is not idle.
    pub(super) fn note_busy(&mut self) {
        if let Some(attempt) = &self.attempt {
            let waits = attempt.tasks_held_for().is_some();
            let busy = waits || !attempt.tools.is_empty() || !attempt.asks.is_empty();
            self.machine.busy(busy);
        }
    }

    async fn event(&mut self, event: Event) -> Option<Happening> {
        let patience = self.phase().background_wait;
        let attempt = self.attempt.as_mut()?;
        match &event {
            Event::Started { pid } => {
                attempt.pid = Some(*pid);
                self.tell(News::AgentStarted { pid: *pid });
                self.refresh_view();
                return None;
            }
            Event::Exited(_) => attempt.gone = true,
            Event::BackgroundTasks(tasks) => attempt.has_background(*tasks, patience),
            // Each process says it; a person wants to know once.
            Event::Identified { .. } if self.identified.as_ref() == Some(&event) => return None,
            Event::Identified { .. } => self.identified = Some(event.clone()),
            Event::Session { id } => return Some(Happening::SessionKnown(id.clone())),
            Event::Used(used) => {
                return Some(Happening::Used(Usage {
                    input_tokens: used.input_tokens,
                    output_tokens: used.output_tokens,
                    cost_microusd: used.cost_microusd,
                }));
            }
            Event::Input { id, state } => {
                if let InputState::Dropped(_) = state
                    && let Some(steer) = attempt.sent.remove(id)
                {
                    self.tell(News::NextPrompt(steer));
                }
                return None;
            }
            Event::ToolStarted { id, name, summary } => {
                attempt.tools_run += 1;
                let says = format!("{name}: {summary}");
                attempt.tools.insert(id.clone(), says);
            }
            Event::ToolFinished { id, .. } => {
                attempt.tools.remove(id);
                if attempt.tools.is_empty() && std::mem::take(&mut attempt.pause_at_tool) {
                    self.tell(News::Agent(event));
                    let head = self.machine.head();
                    let pausing = head.pausing && !head.halting;
                    return pausing.then(|| self.interrupt_turn()).flatten();
                }
            }
            Event::RateLimited {
                rejected: true,
                resets_at,
                ..
            } => attempt.limited_until = *resets_at,
            // Such a wait may be longer than any silence that is allowed.
            Event::Retrying { delay, .. } => self.machine.retrying(self.clock.now(), *delay),
            Event::PermissionAsked(ask) => return self.asked(ask.clone()).await,
            Event::PermissionWithdrawn { id } => attempt.asks.retain(|ask| ask.id != *id),
            Event::PermissionDenied { .. } => {
                self.tell(News::Agent(event));
                return Some(Happening::Denied);
            }
            Event::TextDelta(_) | Event::ThinkingDelta(_) => {
                self.tell(News::Agent(event));
                return None;
            }
            _ => {}
        }
        self.tell(News::Agent(event));
        self.refresh_view();
        None
    }

    /// Writes to the transcript. One that can't be written costs the run its record, not its life: it is given up, and that is said.
    pub(super) fn write_transcript(
        &mut self,
        write: impl FnOnce(&mut Transcript) -> io::Result<()>,
    ) {
        let transcript = self
            .attempt
            .as_mut()
            .and_then(|attempt| attempt.transcript.as_mut());
        let Some(Err(e)) = transcript.map(write) else {
            return;
        };
        if let Some(attempt) = &mut self.attempt {
            attempt.transcript = None;
        }
        self.tell(News::Warning(format!(
            "the rest of this attempt has no transcript: {e}"
        )));
    }
}

fn is_answer(what: &What) -> bool {
    let What::Observed(seen) = what else {
        return false;
    };
    seen.events.iter().any(|event| {
        matches!(
            event,
            Event::TextDelta(_)
                | Event::ThinkingDelta(_)
                | Event::Message { .. }
                | Event::ToolStarted { .. }
        )
    })
}
