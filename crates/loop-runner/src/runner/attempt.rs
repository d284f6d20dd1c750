//! The agent's side of an attempt: its conversation, its transcript, and what is heard of it.

mod completed;
mod effects;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::SystemTime;

use agent_duplex::{
    Ask, Assignment, Capability, Conversation, Event, InputState, Observation, Primary, Published,
    StopReport, Stream, What,
};
use loop_state::{AttemptInput, AttemptMachine, Happening, Timestamp, TurnOutcome, Usage};
use rlm_store::deadline::Hurry;
use rlm_store::transcript::Transcript;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::claim;
use crate::control::Wishes;
use crate::news::News;
use crate::runner::Runner;
use crate::runner::said::Said;
use crate::view::AgentView;

/// The handles on the agent of an attempt; its state is in `machine`.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) conversation: Conversation,
    /// `None` once the conversation publishes nothing more.
    pub(super) primary: Option<Primary>,
    /// The first answer of the agent, reported once it is saved that the agent answers.
    pub(super) first_words: Option<Published>,
    /// `None` when it could not be written.
    pub(super) transcript: Option<Transcript>,
    pub(super) tasks: Tasks,
    /// The shared deadline for the end of its process tree.
    pub(crate) hurry: Hurry,
    pub(super) machine: AttemptMachine,
    pub(super) heard: Heard,
    /// The steers by the receipts of what was sent.
    pub(super) sent: HashMap<Uuid, u32>,
    /// Since when the agent was silent when that was reported last.
    pub(super) silence_told: Option<Timestamp>,
    /// How the working tree was when the attempt began.
    pub(super) footprint: Option<u64>,
}

/// The tasks that run for an attempt beside the loop.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// Starts the agent.
    pub(super) starting: Option<JoinHandle<Result<(), agent_duplex::Error>>>,
    /// Closes the agent whose background tasks were given up.
    pub(super) closing: Option<JoinHandle<()>>,
    /// Ends the whole process tree.
    pub(super) ending: Option<JoinHandle<StopReport>>,
}

impl Tasks {
    pub(super) fn is_empty(&self) -> bool {
        self.starting.is_none() && self.closing.is_none() && self.ending.is_none()
    }
}

/// What the agent reported of itself.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The process id of the agent, once it runs.
    pub(super) pid: Option<u32>,
    /// When the limit is over by which the service last refused a request.
    pub(super) limited_until: Option<SystemTime>,
    /// What its tools do now, each by its id.
    pub(super) tools: BTreeMap<String, String>,
    /// The questions that wait for an answer.
    pub(super) asks: Vec<Ask>,
    /// The end of what the agent said last: it may hold a promise.
    last_words: String,
    /// What the present turn came to so far.
    pub(super) said: Said,
}

impl Attempt {
    pub(crate) fn new(
        conversation: Conversation,
        primary: Primary,
        transcript: Option<Transcript>,
        machine: AttemptMachine,
    ) -> Self {
        Self {
            conversation,
            primary: Some(primary),
            first_words: None,
            transcript,
            tasks: Tasks::default(),
            hurry: Hurry::default(),
            machine,
            heard: Heard::default(),
            sent: HashMap::new(),
            silence_told: None,
            footprint: None,
        }
    }

    /// Continues in another conversation.
    pub(super) fn replace(&mut self, conversation: Conversation, primary: Primary) {
        let machine = self.machine.clone();
        let transcript = self.transcript.take();
        let attempt = Self::new(conversation, primary, transcript, machine);
        let earlier = std::mem::replace(self, attempt);
        self.footprint = earlier.footprint;
    }

    pub(crate) fn flush_at(&self) -> Option<Timestamp> {
        self.transcript.as_ref()?.flush_at()
    }

    /// Returns whether messages and interrupts reach the agent within its turn.
    pub(crate) fn is_steerable(&self) -> bool {
        self.conversation.capabilities().has(Capability::Steer) && self.is_interruptible()
    }

    /// Returns whether its turn can be ended and its session gone on with.
    pub(crate) fn is_interruptible(&self) -> bool {
        self.conversation.capabilities().has(Capability::Interrupt)
    }

    pub(super) fn view(&self) -> AgentView {
        AgentView {
            alive: self.machine.agent().is_alive(),
            held_for: self.machine.held_for(),
            interruptible: self.is_interruptible(),
            steerable: self.is_steerable(),
            tools: self.heard.tools.values().cloned().collect(),
            asks: self.heard.asks.clone(),
        }
    }

    /// Returns whether the promise was made at the end of the turn.
    pub(super) fn has_claimed(&self, promise: Option<&String>) -> bool {
        promise.is_some_and(|promise| claim::is_made(&self.heard.last_words, promise))
    }

    /// Keeps the line that may hold a promise.
    fn listen(&mut self, seen: &Observation) {
        if let (Some((Stream::Stdout, line)), false) = (&seen.raw, self.understands())
            && line.bytes.iter().any(|byte| !byte.is_ascii_whitespace())
        {
            self.heard.said.line(&line.bytes);
            let from = line.bytes.len().saturating_sub(claim::MAX_LINE);
            self.heard.last_words = String::from_utf8_lossy(&line.bytes[from..]).into_owned();
        }
        for event in &seen.events {
            match event {
                Event::Message { text, partial } => {
                    if !partial {
                        self.heard.said.message(text);
                    }
                    self.heard.last_words = if *partial {
                        String::new()
                    } else {
                        text.clone()
                    };
                }
                // What was said before a tool ran is not the end of the turn.
                Event::ToolStarted { .. } => self.heard.last_words.clear(),
                _ => {}
            }
        }
    }

    /// Returns whether the driver understands what the agent says, so that nobody needs its raw lines.
    fn understands(&self) -> bool {
        self.conversation.capabilities().has(Capability::Tools)
    }
}

impl Runner {
    /// Takes notice that the agent was started, or could not be.
    pub(super) fn agent_started(
        &mut self,
        started: Result<(), agent_duplex::Error>,
    ) -> Vec<Happening> {
        let Err(e) = started else {
            return self.step_attempt(AttemptInput::Started);
        };
        let why = e.to_string();
        let happenings = self.step_attempt(AttemptInput::NotStarted(match e.is_held() {
            true => TurnOutcome::SessionHeld(why),
            false => TurnOutcome::NotStarted(why),
        }));
        if !happenings.is_empty() {
            self.agent_io.attempt = None;
            self.refresh_view();
        }
        happenings
    }

    /// Takes what the agent did; `None` when it has nothing more to say.
    pub(super) async fn agent_did(
        &mut self,
        published: Option<Published>,
        wishes: &mut Wishes,
    ) -> Vec<Happening> {
        let Some(attempt) = &mut self.agent_io.attempt else {
            return Vec::new();
        };
        let Some(published) = published else {
            attempt.primary = None;
            let happenings = self.step_attempt(AttemptInput::Silent);
            self.refresh_view();
            return happenings;
        };
        if attempt.machine.awaits_answer() && is_answer(&published.what) {
            // Saved before it is reported: a prompt that was visibly answered is not sent again.
            attempt.first_words = Some(published);
            return self.step_attempt(AttemptInput::Answered);
        }
        match published.what {
            What::Assigned(assignment) => self.assigned(&assignment),
            What::Observed(seen) => self.observed(seen).await,
            What::Completed(completion) => self.completed(completion, wishes).await,
            _ => Vec::new(),
        }
    }

    fn assigned(&mut self, assignment: &Assignment) -> Vec<Happening> {
        let Some(attempt) = &mut self.agent_io.attempt else {
            return Vec::new();
        };
        if !assignment.injected {
            // A promise of an earlier turn does not count for this one.
            attempt.heard.last_words.clear();
            attempt.heard.said.clear();
        }
        let steers = assignment.inputs.iter();
        let steers = steers.filter_map(|input| attempt.sent.remove(&input.receipt));
        let input = AttemptInput::TurnBegan {
            injected: assignment.injected,
            has_inputs: !assignment.inputs.is_empty(),
            steers: steers.collect(),
        };
        let happenings = self.step_attempt(input);
        self.sign(Happening::Alive);
        self.note_busy();
        self.refresh_view();
        happenings
    }

    async fn observed(&mut self, seen: Observation) -> Vec<Happening> {
        let at = self.clock.now();
        self.sign(Happening::Alive);
        let Some(attempt) = &mut self.agent_io.attempt else {
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
        happenings.extend(self.step_attempt(AttemptInput::Heard));
        happenings
    }

    /// Lets both machines know for what the agent waits.
    pub(super) fn note_busy(&mut self) {
        let Some(attempt) = &self.agent_io.attempt else {
            return;
        };
        let (tools, asks) = (attempt.heard.tools.len(), attempt.heard.asks.len());
        // It may interrupt the turn, which reports nothing by itself.
        let _none = self.step_attempt(AttemptInput::Open { tools, asks });
        let busy = self
            .agent_io
            .attempt
            .as_ref()
            .map(|it| it.machine.is_busy());
        busy.into_iter()
            .for_each(|busy| self.sign(Happening::Busy(busy)));
    }

    /// Lets the machine of the run know what is true only of the live agent. That is not journalled, and nothing has to be done for it.
    pub(super) fn sign(&mut self, what: Happening) {
        let at = self.clock.now();
        let _none = self.machine.step(loop_state::Event { at, what });
    }

    async fn event(&mut self, event: Event) -> Vec<Happening> {
        let Some(attempt) = self.agent_io.attempt.as_mut() else {
            return Vec::new();
        };
        let mut happenings = Vec::new();
        match &event {
            Event::Started { pid } => {
                attempt.heard.pid = Some(*pid);
                self.tell(News::AgentStarted { pid: *pid });
                self.refresh_view();
                return happenings;
            }
            Event::Exited(_) => happenings = self.step_attempt(AttemptInput::Exited),
            Event::BackgroundTasks(tasks) => {
                happenings = self.step_attempt(AttemptInput::BackgroundTasks(*tasks));
            }
            // Each process says it; a person wants to know once.
            Event::Identified { .. } if self.told.identified.as_ref() == Some(&event) => {
                return happenings;
            }
            Event::Identified { .. } => self.told.identified = Some(event.clone()),
            Event::Session { id } => return vec![Happening::SessionKnown(id.clone())],
            Event::Used(used) => {
                return vec![Happening::Used(Usage {
                    input_tokens: used.input_tokens,
                    output_tokens: used.output_tokens,
                    cost_microusd: used.cost_microusd,
                })];
            }
            Event::Input { id, state } => {
                if let InputState::Dropped(_) = state
                    && let Some(steer) = attempt.sent.remove(id)
                {
                    self.tell(News::NextPrompt(steer));
                }
                return happenings;
            }
            Event::ToolStarted { id, name, summary } => {
                let says = format!("{name}: {summary}");
                attempt.heard.tools.insert(id.clone(), says);
            }
            Event::ToolFinished { id, .. } => {
                attempt.heard.tools.remove(id);
            }
            Event::RateLimited {
                rejected: true,
                resets_at,
                ..
            } => attempt.heard.limited_until = *resets_at,
            // Such a wait may be longer than any silence that is allowed.
            Event::Retrying { delay, .. } => self.sign(Happening::Retrying(*delay)),
            Event::PermissionAsked(ask) => {
                return self.asked(ask.clone()).await.into_iter().collect();
            }
            Event::PermissionWithdrawn { id } => attempt.heard.asks.retain(|ask| ask.id != *id),
            Event::PermissionDenied { .. } => {
                self.tell(News::Agent(event));
                return vec![Happening::Denied];
            }
            Event::TextDelta(_) | Event::ThinkingDelta(_) => {
                self.tell(News::Agent(event));
                return happenings;
            }
            _ => {}
        }
        self.tell(News::Agent(event));
        // A pause waits for the moment in which no tool runs.
        self.note_busy();
        self.refresh_view();
        happenings
    }

    /// Writes to the transcript. One that can't be written costs the run its record, not its life: it is given up, and that is said.
    pub(super) fn write_transcript(
        &mut self,
        write: impl FnOnce(&mut Transcript) -> io::Result<()>,
    ) {
        let transcript = self
            .agent_io
            .attempt
            .as_mut()
            .and_then(|attempt| attempt.transcript.as_mut());
        let Some(Err(e)) = transcript.map(write) else {
            return;
        };
        if let Some(attempt) = &mut self.agent_io.attempt {
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
