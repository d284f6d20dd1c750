//! The attempt machine: from the prompt of an attempt to the outcome of its turn.
//!
//! It decides how much time an interrupted agent gets, and which steers the agent gets in its turn. It also decides whether the end of a turn waits
//! for background tasks, and when the outcome of a turn is reported. It reads no clock and knows no driver: its caller translates the events of a
//! conversation to [`AttemptInput`] and carries out each [`AttemptEffect`]. Each turn is reported exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::answer::Answer;
use crate::judge::{AgentTurnEnd, TurnReport, turn_outcome};
use crate::times::{INTERRUPTED_TURN, TURN_END_AFTER_INTERRUPT};
use crate::{AgentInput, AgentState, Head, PauseAfter, Timestamp, TurnOutcome};

/// The circumstances of an input.
#[derive(Clone, Copy, Debug)]
pub struct StepContext<'a> {
    /// The state of the run.
    pub head: &'a Head,
    /// The time, from a monotonic clock.
    pub now: Instant,
    /// The same time by the clock of the run.
    pub at: Timestamp,
    /// How long the end of a process tree may take from now on.
    pub budget: Duration,
    /// Whether the run is suspended. Meanwhile background tasks don't time out.
    pub frozen: bool,
}

impl StepContext<'_> {
    /// Returns whether the run should pause and nothing more urgent is requested.
    fn is_pausing(&self) -> bool {
        self.head.pausing && !self.head.is_stopping_step
    }
}

/// The properties of an attempt that don't change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttemptOptions {
    /// Whether the driver parses the agent's output. Otherwise only the delivery of the prompt is known, and the output is the answer.
    pub parses_output: bool,
    /// Whether the turn of the agent can be interrupted and its session continued.
    pub interruptible: bool,
    /// Whether messages can reach the agent during its turn.
    pub steerable: bool,
    /// How long the end of a turn waits until at least one of its background tasks ends.
    pub task_timeout: Duration,
    /// The completion promise of the phase.
    pub promise: Option<String>,
    /// The fingerprint of the working tree at the start of the attempt.
    pub fingerprint: Option<u64>,
    /// How the agent's permission requests are answered.
    pub asks: AskPolicy,
    /// Whether the process has its own terminal. A person who has left can return to it.
    pub terminal: bool,
}

/// How the agent's permission requests are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AskPolicy {
    /// A person answers, if one can be asked; otherwise the request is denied.
    Person,
    /// Each request is allowed.
    Allow,
    /// Each request is denied.
    #[default]
    Deny,
}

/// The answer to a permission request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AskAnswer {
    /// The agent may do it.
    Allow,
    /// The agent may not do it.
    Deny(Denial),
}

/// Why a permission request is denied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Denial {
    /// The run denies each request, see [`AskPolicy::Deny`].
    Policy,
    /// No person can be asked.
    Unattended,
    /// The person who could be asked has left.
    Left,
    /// A person denied it, with this text.
    Person(String),
}

/// An event or a request in an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttemptInput {
    /// The agent's process runs.
    Started,
    /// The agent could not be started, or can't continue its session.
    NotStarted(TurnOutcome),
    /// The agent answers for the first time.
    Answered,
    /// A turn began, or messages were added to the current one.
    TurnBegan {
        /// Whether a turn was already running.
        is_injected: bool,
        /// Whether somebody sent an input; otherwise the agent began by itself.
        has_inputs: bool,
        /// The numbers of the steers in the turn.
        steers: Vec<u32>,
    },
    /// The steer with this number is recorded and can go to the agent now.
    Deliver(u32),
    /// A steer was sent.
    Sent {
        /// The number of the steer.
        steer: u32,
        /// As in [`AttemptEffect::Send`].
        again: bool,
    },
    /// The steer with this number could not be sent, or the agent doesn't accept it any more.
    Dropped(u32),
    /// The agent printed a line. If its output isn't parsed, the line is part of the answer.
    Line(Vec<u8>),
    /// The agent wrote a text.
    Message {
        /// The text.
        text: String,
        /// Whether another message continues this one.
        partial: bool,
    },
    /// A tool of the agent runs now.
    ToolStarted {
        /// The id of the call.
        id: String,
        /// A description of the call in one line.
        activity: String,
    },
    /// The tool with this id ended.
    ToolFinished(String),
    /// The service refuses requests; the time is the end of the refusal, if known.
    Limited(Option<Timestamp>),
    /// The agent made the permission request with this id.
    Asked(String),
    /// The agent doesn't need an answer to this request any more.
    AskWithdrawn(String),
    /// A person answers a permission request.
    AskAnswered {
        /// The id of the request.
        ask: String,
        /// Whether the agent may use the tool.
        allow: bool,
        /// The text for the agent if it may not.
        message: String,
    },
    /// Whether a person can be asked from now on.
    Attended(bool),
    /// The number of the agent's background tasks.
    BackgroundTasks(u32),
    /// All events that the agent reported together have been processed.
    EventsProcessed,
    /// A turn is over.
    TurnEnded {
        /// How it ended, by the agent's report.
        how: AgentTurnEnd,
        /// The text of the agent or its service; a refusal may contain the end of a limit.
        detail: String,
        /// The failure, as text for a person.
        why: String,
        /// Whether waiting messages get another turn.
        pending: bool,
        /// Whether the process exited at the same time.
        exited: bool,
    },
    /// The working tree was examined after a turn.
    WorkingTreeExamined {
        /// The fingerprint of the working tree.
        fingerprint: Option<u64>,
        /// Whether a stop is requested, which may have aborted the examination.
        stop_requested: bool,
    },
    /// The agent's process exited.
    Exited,
    /// The conversation publishes nothing more.
    ConversationEnded,
    /// The requested close is complete.
    Closed,
    /// The process tree has ended, as requested.
    TreeGone,
    /// The turn and the whole process tree must end.
    Stop {
        /// Whether to skip the interrupt that normally comes first.
        skip_interrupt: bool,
    },
    /// The deadline of the current stop changed.
    Abort {
        /// The new deadline; it has no effect if it is later.
        by: Instant,
    },
    /// The whole process tree must end; nothing waits for the turn.
    End,
    /// A person interrupts the turn; its session stays open.
    Interrupt,
    /// A pause is requested at this boundary. With [`PauseAfter::Tool`] the turn is interrupted as soon as no tool runs.
    PauseAt(PauseAfter),
    /// The interrupted session continues.
    Continue,
    /// Time passed; see [`AttemptMachine::deadline`].
    TimePassed,
    /// The run was suspended for this long.
    Thawed(Duration),
}

/// An action in an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttemptEffect {
    /// Start a process in the session of the attempt.
    Start {
        /// Whether the conversation is over and a new one replaces it.
        replace: bool,
        /// The session.
        session: String,
    },
    /// Send a steer to the agent; report [`AttemptInput::Sent`] or [`AttemptInput::Dropped`].
    Send {
        /// The number of the steer.
        steer: u32,
        /// Whether the session continues with it. If it then can't be sent, report [`AttemptInput::NotStarted`].
        again: bool,
    },
    /// Send the agent the message to continue; report [`AttemptInput::NotStarted`] if that fails.
    SendContinue,
    /// Show the permission request with this id to a person.
    ShowAsk(String),
    /// Answer a permission request.
    AnswerAsk {
        /// The id of the request.
        ask: String,
        /// The answer.
        answer: AskAnswer,
    },
    /// Report that the answered permission request is not open.
    RefuseAnswer,
    /// Report that the agent received this steer.
    SteerDelivered(u32),
    /// Report that the agent gets this steer with its next prompt.
    NextPrompt(u32),
    /// Report that the agent has its prompt.
    ReportPrompted,
    /// Report that the agent has read these steers.
    ReportSteersSeen(Vec<u32>),
    /// Ask the agent to end its turn.
    Interrupt {
        /// Whether waiting messages are dropped.
        drop_queued: bool,
    },
    /// Let the agent exit by itself when it is idle. The attempt doesn't wait for the exit.
    CloseWhenIdle,
    /// Close the agent now, even if it has background tasks; report [`AttemptInput::Closed`].
    Close {
        /// The number of abandoned background tasks.
        tasks: u32,
    },
    /// End the whole process tree by this time; report [`AttemptInput::TreeGone`].
    End {
        /// The deadline.
        by: Instant,
    },
    /// Report that an interrupted turn took too long.
    ReportInterruptOverdue,
    /// Report that the interrupted agent continues with messages that were sent before.
    ReportContinued,
    /// Report that the end of the turn waits for background tasks.
    AwaitingTasks {
        /// The number of background tasks.
        tasks: u32,
    },
    /// Record the end of a turn.
    RecordTurnEnd {
        /// The outcome of the turn.
        outcome: TurnOutcome,
        /// Whether the agent began this turn by itself. Its failure must be reported separately, because the turn before it sets the outcome.
        agent_began: bool,
    },
    /// Examine the working tree, because the agent may have made no progress; report [`AttemptInput::WorkingTreeExamined`].
    ExamineWorkingTree,
    /// Report that the turn made no progress.
    ReportNoProgress,
    /// Keep the last message of the turn, for the subject of its commit.
    KeepMessage(String),
    /// Report the result of the turn, as the agent wrote it, for the next phase.
    ReportResult(String),
    /// Report the outcome of the turn: everything that had to end with it has ended.
    Report(TurnOutcome),
}

/// The state of the prompt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PromptState {
    Sent,
    /// A turn began with the prompt. If the agent dies before it answers, it may have read none of these steers.
    Assigned(Vec<u32>),
    Answered,
}

/// The request to end the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum EndRequest {
    Nothing,
    /// The turn can end by itself until this time.
    Interrupted {
        until: Option<Instant>,
    },
    /// The turn can end by itself until the first time; the process tree must be gone by the second.
    Stopped {
        until: Instant,
        end_by: Instant,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TurnState {
    Turn,
    /// The turn is over, and its outcome waits for background tasks, or for a turn that the agent began by itself.
    AwaitingTasks {
        by: Instant,
        outcome: TurnOutcome,
        own_turn: bool,
    },
    /// The outcome is known and waits for the end of processes.
    Ended(TurnOutcome),
    Reported,
}

/// The state of one attempt.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use loop_state::{
///     AttemptEffect, AttemptInput, AttemptMachine, AttemptOptions, Head, StepContext, PhaseRules, Rules, Timestamp,
/// };
///
/// let phase = PhaseRules { has_check: true, ..PhaseRules::default() };
/// let head = Head::new(Rules { phases: vec![phase], ..Rules::default() })?;
/// let mut attempt = AttemptMachine::new(AttemptOptions { parses_output: true, ..AttemptOptions::default() });
/// let budget = Duration::from_secs(8);
/// let context = StepContext { head: &head, now: Instant::now(), at: Timestamp::from_millis(0), budget, frozen: false };
/// attempt.step(context, AttemptInput::Started);
/// let effects = attempt.step(context, AttemptInput::Stop { skip_interrupt: false });
/// assert_eq!(effects, [AttemptEffect::Interrupt { drop_queued: true }]);
/// // The process tree of an agent that doesn't end its turn is ended.
/// let late = StepContext { now: attempt.deadline().unwrap(), ..context };
/// let effects = attempt.step(late, AttemptInput::TimePassed);
/// assert_eq!(effects, [AttemptEffect::End { by: context.now + budget }]);
/// # Ok::<(), loop_state::RulesError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttemptMachine {
    options: AttemptOptions,
    agent: AgentState,
    turn: TurnState,
    prompt: PromptState,
    requested: EndRequest,
    /// With [`PauseAfter::Tool`] the turn is interrupted as soon as no tool runs, if the run still should pause then. Interrupts for other reasons
    /// don't change this.
    pause_at: PauseAfter,
    tasks: u32,
    /// The description of each running tool, by the id of its call.
    tools: BTreeMap<String, String>,
    /// The permission requests that wait for a person, oldest first.
    asks: Vec<String>,
    /// Whether the agent called a tool.
    worked: bool,
    answer: Answer,
    /// The steers that were sent and are not yet in a turn.
    sent: BTreeSet<u32>,
    /// When the last reported rate limit ends.
    limited_until: Option<Timestamp>,
}

type Effects = Vec<AttemptEffect>;

impl AttemptMachine {
    /// Creates the state of an attempt whose prompt was sent and whose agent is being started.
    #[must_use]
    pub fn new(options: AttemptOptions) -> Self {
        Self {
            options,
            agent: AgentState::Starting,
            turn: TurnState::Turn,
            prompt: PromptState::Sent,
            requested: EndRequest::Nothing,
            pause_at: PauseAfter::Iteration,
            tasks: 0,
            tools: BTreeMap::new(),
            asks: Vec::new(),
            worked: false,
            answer: Answer::default(),
            sent: BTreeSet::new(),
            limited_until: None,
        }
    }

    /// Returns the effects of an input that comes while there is no attempt, so that every caller that waits gets a response.
    #[must_use]
    pub fn absent(input: &AttemptInput) -> Vec<AttemptEffect> {
        let effect = match input {
            AttemptInput::Deliver(steer) => AttemptEffect::NextPrompt(*steer),
            AttemptInput::AskAnswered { .. } => AttemptEffect::RefuseAnswer,
            AttemptInput::Continue => AttemptEffect::Report(TurnOutcome::Failed(
                "no agent is running that could continue".into(),
            )),
            _ => return Vec::new(),
        };
        vec![effect]
    }

    /// Returns the properties of the attempt.
    #[must_use]
    pub const fn options(&self) -> &AttemptOptions {
        &self.options
    }

    /// Returns the state of the agent's process.
    #[must_use]
    pub const fn agent(&self) -> AgentState {
        self.agent
    }

    /// Returns whether a turn runs or is about to begin.
    #[must_use]
    pub const fn in_turn(&self) -> bool {
        matches!(
            self.turn,
            TurnState::Turn | TurnState::AwaitingTasks { own_turn: true, .. }
        )
    }

    /// Returns whether the first answer of the agent is still missing.
    #[must_use]
    pub fn awaits_answer(&self) -> bool {
        self.prompt != PromptState::Answered
    }

    /// Returns how many background tasks the end of the turn waits for; `None` if it waits for none or a turn runs.
    #[must_use]
    pub fn awaited_tasks(&self) -> Option<u32> {
        let is_held = matches!(
            self.turn,
            TurnState::AwaitingTasks {
                own_turn: false,
                ..
            }
        );
        (is_held && self.must_await_tasks()).then_some(self.tasks)
    }

    /// Returns whether the agent waits for something other than its model. Such time doesn't count as idle.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.awaited_tasks().is_some() || !self.tools.is_empty() || !self.asks.is_empty()
    }

    /// Returns whether the permission request with this id waits for a person.
    #[must_use]
    pub fn is_asking(&self, ask: &str) -> bool {
        self.asks.iter().any(|open| open == ask)
    }

    /// Returns the description of each running tool, in one line. The text comes from the model and can contain anything.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.tools.values().map(String::as_str)
    }

    /// Returns when [`AttemptInput::TimePassed`] is due, if no other input comes before and the processes of the run are not suspended.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline_if(false)
    }

    /// Returns when [`AttemptInput::TimePassed`] is due while the processes of the run are suspended: only a stop has a deadline then.
    #[must_use]
    pub fn deadline_while_suspended(&self) -> Option<Instant> {
        self.deadline_if(true)
    }

    fn deadline_if(&self, frozen: bool) -> Option<Instant> {
        match (&self.turn, self.requested) {
            (
                TurnState::AwaitingTasks {
                    by,
                    own_turn: false,
                    ..
                },
                _,
            ) => (!frozen).then_some(*by),
            _ if !self.in_turn() || self.agent.is_ending_or_gone() => None,
            (_, EndRequest::Stopped { until, .. }) => Some(until),
            (_, EndRequest::Interrupted { until }) => until,
            _ => None,
        }
    }

    /// Takes an input and returns the required actions, in order.
    ///
    /// Never panics, for any input in any state. An input that makes no sense changes nothing.
    pub fn step(&mut self, context: StepContext<'_>, input: AttemptInput) -> Vec<AttemptEffect> {
        let mut effects = Effects::new();
        match input {
            AttemptInput::Started => self.started(context, &mut effects),
            AttemptInput::NotStarted(outcome) => self.not_started(outcome, &mut effects),
            AttemptInput::Answered => self.answered(&mut effects),
            AttemptInput::TurnBegan {
                is_injected,
                has_inputs,
                steers,
            } => {
                if !is_injected {
                    // A promise of an earlier turn doesn't count for this one.
                    self.answer = Answer::default();
                }
                self.turn_began(!is_injected && has_inputs);
                self.steers_read(steers, &mut effects);
            }
            AttemptInput::Line(bytes) if !self.options.parses_output => self.answer.line(&bytes),
            AttemptInput::Line(_) => {}
            AttemptInput::Message { text, partial } => self.answer.message(text, partial),
            AttemptInput::ToolStarted { id, activity } => {
                self.answer.tool();
                self.worked = true;
                self.tools.insert(id, activity);
            }
            AttemptInput::ToolFinished(id) => self.tool_finished(&id, context, &mut effects),
            AttemptInput::Limited(until) => self.limited_until = until,
            AttemptInput::Asked(ask) => self.asked(ask, context, &mut effects),
            AttemptInput::AskWithdrawn(ask) => self.asks.retain(|open| *open != ask),
            AttemptInput::AskAnswered {
                ask,
                allow,
                message,
            } => match self.asks.contains(&ask) {
                true => {
                    self.asks.retain(|open| *open != ask);
                    let answer = match allow {
                        true => AskAnswer::Allow,
                        false => AskAnswer::Deny(Denial::Person(message)),
                    };
                    effects.push(AttemptEffect::AnswerAsk { ask, answer });
                }
                false => effects.push(AttemptEffect::RefuseAnswer),
            },
            AttemptInput::Attended(attended) => self.attended(attended, &mut effects),
            AttemptInput::Deliver(steer) => self.deliver(steer, &mut effects),
            AttemptInput::Sent { steer, again } => self.sent(steer, again, &mut effects),
            AttemptInput::Dropped(steer) => {
                self.sent.remove(&steer);
                effects.push(AttemptEffect::NextPrompt(steer));
            }
            AttemptInput::WorkingTreeExamined {
                fingerprint,
                stop_requested,
            } => {
                if !stop_requested && fingerprint == self.options.fingerprint {
                    effects.push(AttemptEffect::ReportNoProgress);
                }
            }
            AttemptInput::BackgroundTasks(tasks) => self.background(tasks, context),
            AttemptInput::EventsProcessed => self.events_processed(&mut effects),
            AttemptInput::TurnEnded {
                how,
                detail,
                why,
                pending,
                exited,
            } => match self.continues(how, pending, exited) {
                true => self.continue_turn(how, &mut effects),
                false => {
                    let promise = self.options.promise.as_deref();
                    let report = TurnReport {
                        how,
                        detail,
                        why,
                        promised: promise.is_some_and(|promise| self.answer.makes_promise(promise)),
                        limited_until: self.limited_until,
                    };
                    let outcome = turn_outcome(report, context.at, context.head);
                    self.turn_ended(how, outcome, exited, context, &mut effects);
                }
            },
            AttemptInput::Exited => {
                self.agent.step(AgentInput::Exited);
            }
            AttemptInput::ConversationEnded => self.conversation_ended(context, &mut effects),
            AttemptInput::Closed => {
                self.agent.step(AgentInput::Closed);
                self.report(&mut effects);
            }
            AttemptInput::TreeGone => {
                self.agent.step(AgentInput::TreeGone);
                self.report(&mut effects);
            }
            AttemptInput::Stop { skip_interrupt } => {
                self.stop(skip_interrupt, context, &mut effects)
            }
            AttemptInput::Abort { by } => self.abort(by, context),
            AttemptInput::End => self.end(context, &mut effects),
            AttemptInput::Interrupt => self.interrupt(context, &mut effects),
            AttemptInput::PauseAt(boundary) => self.pause_at = boundary,
            AttemptInput::Continue => self.continued(context, &mut effects),
            AttemptInput::TimePassed => self.time_passed(context, &mut effects),
            AttemptInput::Thawed(frozen) => self.resumed_after_freeze(frozen),
        }
        effects
    }

    fn asked(&mut self, ask: String, context: StepContext<'_>, effects: &mut Effects) {
        let can_ask = self.options.terminal || context.head.attended;
        let answer = match self.options.asks {
            AskPolicy::Person if can_ask => {
                self.asks.push(ask.clone());
                effects.push(AttemptEffect::ShowAsk(ask));
                return;
            }
            AskPolicy::Person => AskAnswer::Deny(Denial::Unattended),
            AskPolicy::Allow => AskAnswer::Allow,
            AskPolicy::Deny => AskAnswer::Deny(Denial::Policy),
        };
        effects.push(AttemptEffect::AnswerAsk { ask, answer });
    }

    /// Denies all open permission requests if the person has left and can't return to the terminal of the process.
    fn attended(&mut self, attended: bool, effects: &mut Effects) {
        if attended || self.options.terminal {
            return;
        }
        for ask in std::mem::take(&mut self.asks) {
            let answer = AskAnswer::Deny(Denial::Left);
            effects.push(AttemptEffect::AnswerAsk { ask, answer });
        }
    }

    fn started(&mut self, context: StepContext<'_>, effects: &mut Effects) {
        self.agent.step(AgentInput::Started);
        if self.in_turn() {
            self.agent.step(AgentInput::TurnBegan);
        }
        if let EndRequest::Interrupted { until: Some(_) } = self.requested {
            // There was no turn to interrupt at the time of the request.
            self.interrupt_turn(context.now + INTERRUPTED_TURN, effects);
        } else if !self.options.parses_output {
            self.answered(effects);
        }
    }

    fn not_started(&mut self, outcome: TurnOutcome, effects: &mut Effects) {
        if self.agent.is_ending_or_gone() {
            // No turn began, so the attempt ends with the process tree.
            if self.turn == TurnState::Turn {
                self.turn = TurnState::Ended(match self.requested {
                    EndRequest::Stopped { .. } => TurnOutcome::Stopped,
                    _ => outcome,
                });
                self.report(effects);
            }
            return;
        }
        self.agent.step(AgentInput::NotStarted);
        if self.turn != TurnState::Reported {
            self.turn = TurnState::Reported;
            effects.push(AttemptEffect::Report(outcome));
        }
    }

    fn answered(&mut self, effects: &mut Effects) {
        let before = std::mem::replace(&mut self.prompt, PromptState::Answered);
        if before == PromptState::Answered {
            return;
        }
        effects.push(AttemptEffect::ReportPrompted);
        match before {
            PromptState::Assigned(steers) if !steers.is_empty() => {
                effects.push(AttemptEffect::ReportSteersSeen(steers));
            }
            _ => {}
        }
    }

    fn turn_began(&mut self, is_requested: bool) {
        if self.agent.is_ending_or_gone() {
            return;
        }
        self.agent.step(AgentInput::TurnBegan);
        let is_stopped = matches!(self.requested, EndRequest::Stopped { .. });
        match &mut self.turn {
            TurnState::Reported => self.turn = TurnState::Turn,
            // Somebody sent an input, so this turn sets the outcome instead of the turn before.
            TurnState::AwaitingTasks { .. } | TurnState::Ended(_)
                if is_requested && !is_stopped =>
            {
                self.turn = TurnState::Turn;
            }
            TurnState::AwaitingTasks { own_turn, .. } => *own_turn = true,
            TurnState::Turn | TurnState::Ended(_) => {}
        }
    }

    fn steers_read(&mut self, steers: Vec<u32>, effects: &mut Effects) {
        self.sent.retain(|sent| !steers.contains(sent));
        if self.prompt == PromptState::Sent {
            self.prompt = PromptState::Assigned(steers);
        } else if !steers.is_empty() {
            effects.push(AttemptEffect::ReportSteersSeen(steers));
        }
    }

    fn tool_finished(&mut self, id: &str, context: StepContext<'_>, effects: &mut Effects) {
        let has_ended = self.tools.remove(id).is_some() && self.tools.is_empty();
        let is_ending = matches!(
            self.requested,
            EndRequest::Stopped { .. } | EndRequest::Interrupted { until: Some(_) }
        );
        if !has_ended || is_ending || self.pause_at != PauseAfter::Tool {
            return;
        }
        if context.is_pausing() {
            // A waiting message gets its own turn, in which the pause still applies.
            self.interrupt_turn(context.now + INTERRUPTED_TURN, effects);
        } else {
            self.pause_at = PauseAfter::Iteration;
        }
    }

    /// Sends a steer. If the agent takes no messages during its turn, it gets the steer in a separate turn, provided that its session can continue.
    fn deliver(&mut self, steer: u32, effects: &mut Effects) {
        let can = self.agent.is_alive() && self.options.interruptible;
        let again = false;
        effects.push(match can {
            true => AttemptEffect::Send { steer, again },
            false => AttemptEffect::NextPrompt(steer),
        });
    }

    fn sent(&mut self, steer: u32, again: bool, effects: &mut Effects) {
        self.sent.insert(steer);
        effects.push(match again || self.options.steerable {
            true => AttemptEffect::SteerDelivered(steer),
            // The message may be too late for a separate turn.
            false => AttemptEffect::NextPrompt(steer),
        });
    }

    /// Updates the number of background tasks. The end of one extends the time for the others.
    fn background(&mut self, tasks: u32, context: StepContext<'_>) {
        let before = std::mem::replace(&mut self.tasks, tasks);
        if let (true, TurnState::AwaitingTasks { by, .. }) = (tasks < before, &mut self.turn) {
            *by = context.now + self.options.task_timeout;
        }
    }

    /// Returns whether the outcome of a finished turn has to wait for work that the agent does by itself.
    fn must_await_tasks(&self) -> bool {
        match self.agent {
            AgentState::Idle => self.tasks > 0,
            AgentState::InTurn | AgentState::Interrupting => true,
            _ => false,
        }
    }

    fn events_processed(&mut self, effects: &mut Effects) {
        let is_stopped = matches!(self.requested, EndRequest::Stopped { .. });
        if is_stopped || self.must_await_tasks() {
            return;
        }
        if let TurnState::AwaitingTasks { outcome, .. } = &self.turn {
            self.turn = TurnState::Ended(outcome.clone());
            self.close_when_idle(effects);
            self.report(effects);
        }
    }

    /// Returns whether waiting messages get another turn, which belongs to the same iteration.
    fn continues(&self, how: AgentTurnEnd, pending: bool, exited: bool) -> bool {
        let can = matches!(how, AgentTurnEnd::Completed | AgentTurnEnd::Interrupted);
        let is_stopped = matches!(self.requested, EndRequest::Stopped { .. });
        let lives = self.agent.is_alive() && !self.agent.is_ending_or_gone() && !exited;
        pending && can && lives && !is_stopped && self.in_turn()
    }

    fn continue_turn(&mut self, how: AgentTurnEnd, effects: &mut Effects) {
        if let EndRequest::Interrupted { until } = &mut self.requested {
            let was_waiting = until.take().is_some();
            if was_waiting && how == AgentTurnEnd::Interrupted {
                effects.push(AttemptEffect::ReportContinued);
            }
        }
        self.agent.step(AgentInput::TurnEnded);
        self.agent.step(AgentInput::TurnBegan);
    }

    fn turn_ended(
        &mut self,
        how: AgentTurnEnd,
        outcome: TurnOutcome,
        exited: bool,
        context: StepContext<'_>,
        effects: &mut Effects,
    ) {
        self.agent.step(AgentInput::TurnEnded);
        if exited {
            self.agent.step(AgentInput::Exited);
        }
        self.tools.clear();
        let before = match std::mem::replace(&mut self.turn, TurnState::Reported) {
            TurnState::Reported => return,
            TurnState::Turn => None,
            TurnState::AwaitingTasks { outcome, .. } | TurnState::Ended(outcome) => Some(outcome),
        };
        let is_stopped = matches!(self.requested, EndRequest::Stopped { .. });
        let outcome = self.outcome_of(how, outcome);
        let is_own = before.is_some();
        effects.push(AttemptEffect::RecordTurnEnd {
            outcome: outcome.clone(),
            agent_began: is_own && !is_stopped,
        });
        let result = self.answer.take_result();
        if how == AgentTurnEnd::Completed {
            if self.options.parses_output && !self.worked && self.tasks == 0 && !is_own {
                effects.push(AttemptEffect::ExamineWorkingTree);
            }
            effects.extend(result.clone().map(AttemptEffect::KeepMessage));
            let result = result.filter(|_| context.head.has_later_phase());
            effects.extend(result.map(AttemptEffect::ReportResult));
        }
        let combined =
            before.map_or_else(|| outcome.clone(), |turn| combined_outcome(turn, &outcome));
        let is_good = matches!(combined, TurnOutcome::Completed | TurnOutcome::PromiseMade);
        // Kill the process tree before a long wait.
        let needs_wait = matches!(
            outcome,
            TurnOutcome::ServiceUnavailable { .. } | TurnOutcome::Transient(_)
        );
        let is_held = is_good && !self.options.task_timeout.is_zero() && self.must_await_tasks();
        if is_stopped || (needs_wait && !is_own) {
            self.turn = TurnState::Ended(combined);
            self.end(context, effects);
        } else if is_held {
            // Unfinished work is no evidence, so the required checks and the check wait for the background tasks.
            if !is_own {
                effects.push(AttemptEffect::AwaitingTasks { tasks: self.tasks });
            }
            let by = context.now + self.options.task_timeout;
            self.turn = TurnState::AwaitingTasks {
                by,
                outcome: combined,
                own_turn: false,
            };
        } else {
            self.turn = TurnState::Ended(combined);
            if outcome != TurnOutcome::Interrupted {
                self.close_when_idle(effects);
            }
        }
        self.report(effects);
    }

    /// Returns the outcome of a turn, with regard to a requested stop or interrupt.
    fn outcome_of(&mut self, how: AgentTurnEnd, outcome: TurnOutcome) -> TurnOutcome {
        if let EndRequest::Interrupted { until } = &mut self.requested {
            *until = None;
        }
        let is_interrupted = matches!(how, AgentTurnEnd::Interrupted | AgentTurnEnd::Died);
        match (outcome, self.requested) {
            (done @ (TurnOutcome::Completed | TurnOutcome::PromiseMade), _) => done,
            (_, EndRequest::Stopped { .. }) => TurnOutcome::Stopped,
            (_, EndRequest::Interrupted { .. }) if is_interrupted => TurnOutcome::Interrupted,
            (outcome, _) => outcome,
        }
    }

    fn conversation_ended(&mut self, context: StepContext<'_>, effects: &mut Effects) {
        self.agent.step(AgentInput::Exited);
        match std::mem::replace(&mut self.turn, TurnState::Reported) {
            TurnState::Turn => {
                self.turn = TurnState::Ended(TurnOutcome::Stopped);
                self.end(context, effects);
            }
            TurnState::AwaitingTasks { outcome, .. } => {
                self.turn = TurnState::Ended(outcome);
                match self.requested {
                    EndRequest::Stopped { .. } => self.end(context, effects),
                    _ => self.close_when_idle(effects),
                }
            }
            turn => self.turn = turn,
        }
        self.report(effects);
    }

    fn stop(&mut self, skip_interrupt: bool, context: StepContext<'_>, effects: &mut Effects) {
        let (mut until, mut end_by) = (
            context.now + TURN_END_AFTER_INTERRUPT.min(context.budget / 2),
            context.now + context.budget,
        );
        if let EndRequest::Stopped {
            until: earlier,
            end_by: before,
        } = self.requested
        {
            (until, end_by) = (until.min(earlier), end_by.min(before));
        }
        self.requested = EndRequest::Stopped { until, end_by };
        if self.turn == TurnState::Reported {
            self.turn = TurnState::Ended(TurnOutcome::Stopped);
        }
        let interrupts_first = !skip_interrupt && self.in_turn();
        if interrupts_first && self.agent.step(AgentInput::Interrupt).is_some() {
            effects.push(AttemptEffect::Interrupt { drop_queued: true });
        } else {
            self.end(context, effects);
        }
        self.report(effects);
    }

    fn abort(&mut self, by: Instant, context: StepContext<'_>) {
        if let EndRequest::Stopped { until, end_by } = &mut self.requested {
            *until = context.now.min(*until);
            *end_by = by.min(*end_by);
        }
    }

    /// Ends the whole process tree, at most once.
    fn end(&mut self, context: StepContext<'_>, effects: &mut Effects) {
        if self.agent.step(AgentInput::End).is_some() {
            let by = match self.requested {
                EndRequest::Stopped { end_by, .. } => end_by,
                _ => context.now + context.budget,
            };
            effects.push(AttemptEffect::End { by });
        }
    }

    fn interrupt(&mut self, context: StepContext<'_>, effects: &mut Effects) {
        if self.awaited_tasks().is_some() {
            // A message that was already sent begins another turn, which sets the outcome.
            if self.sent.is_empty() {
                self.turn = TurnState::Ended(TurnOutcome::Interrupted);
                self.report(effects);
            }
            return;
        }
        let until = context.now + INTERRUPTED_TURN;
        let until = match self.requested {
            EndRequest::Interrupted {
                until: Some(earlier),
            } => until.min(earlier),
            _ => until,
        };
        self.interrupt_turn(until, effects);
    }

    fn interrupt_turn(&mut self, until: Instant, effects: &mut Effects) {
        let is_stopped = matches!(self.requested, EndRequest::Stopped { .. });
        if is_stopped || !self.in_turn() || self.agent.is_ending_or_gone() {
            return;
        }
        self.requested = EndRequest::Interrupted { until: Some(until) };
        if self.agent.step(AgentInput::Interrupt).is_some() {
            effects.push(AttemptEffect::Interrupt { drop_queued: false });
        }
    }

    fn continued(&mut self, context: StepContext<'_>, effects: &mut Effects) {
        // An agent that is being ended reports the outcome of its turn; unsent messages come with the next prompt.
        if matches!(self.agent, AgentState::Ending | AgentState::Closing) {
            return;
        }
        self.requested = EndRequest::Nothing;
        self.pause_at = PauseAfter::Iteration;
        let replace = self.agent == AgentState::Gone;
        if self.agent.is_alive() {
            self.agent.step(AgentInput::TurnBegan);
        } else {
            let Some(session) = context.head.session.clone() else {
                let why = "the agent has exited, and its session id is unknown".into();
                self.turn = TurnState::Reported;
                effects.push(AttemptEffect::Report(TurnOutcome::Failed(why)));
                return;
            };
            self.agent.step(AgentInput::Start);
            // The tasks, permission requests and tools belong to the previous process.
            self.tasks = 0;
            self.asks.clear();
            self.tools.clear();
            effects.push(AttemptEffect::Start { replace, session });
        }
        self.turn = TurnState::Turn;
        if replace {
            self.prompt = PromptState::Sent;
            self.sent.clear();
            self.limited_until = None;
        }
        // The conversation itself delivers messages that were sent but not accepted yet.
        let unseen = context.head.unseen_steers().map(|steer| steer.id);
        let unsent: Vec<u32> = unseen.filter(|steer| !self.sent.contains(steer)).collect();
        if unsent.is_empty() && self.sent.is_empty() {
            effects.push(AttemptEffect::SendContinue);
        }
        let again = true;
        effects.extend(
            unsent
                .into_iter()
                .map(|steer| AttemptEffect::Send { steer, again }),
        );
    }

    fn time_passed(&mut self, context: StepContext<'_>, effects: &mut Effects) {
        let deadline = self.deadline_if(context.frozen);
        if deadline.is_none_or(|at| at > context.now) {
            return;
        }
        if let TurnState::AwaitingTasks {
            outcome,
            own_turn: false,
            ..
        } = &self.turn
        {
            self.turn = TurnState::Ended(outcome.clone());
            if self.agent.step(AgentInput::Close).is_some() {
                effects.push(AttemptEffect::Close { tasks: self.tasks });
            }
            self.report(effects);
            return;
        }
        if !matches!(self.requested, EndRequest::Stopped { .. }) {
            effects.push(AttemptEffect::ReportInterruptOverdue);
        }
        self.end(context, effects);
    }

    /// Extends all deadlines by the time in which the run was suspended.
    fn resumed_after_freeze(&mut self, frozen: Duration) {
        if let TurnState::AwaitingTasks { by, .. } = &mut self.turn {
            *by += frozen;
        }
        match &mut self.requested {
            EndRequest::Interrupted { until: Some(until) } => *until += frozen,
            EndRequest::Stopped { until, end_by } => {
                *until += frozen;
                *end_by += frozen;
            }
            _ => {}
        }
    }

    fn close_when_idle(&self, effects: &mut Effects) {
        if !self.agent.is_ending_or_gone() {
            effects.push(AttemptEffect::CloseWhenIdle);
        }
    }

    /// Reports the outcome once everything that had to end with the turn has ended.
    fn report(&mut self, effects: &mut Effects) {
        let is_stopped = matches!(self.requested, EndRequest::Stopped { .. });
        let is_gone = self.agent == AgentState::Gone;
        if matches!(self.agent, AgentState::Closing | AgentState::Ending)
            || (is_stopped && !is_gone)
        {
            return;
        }
        self.turn = match std::mem::replace(&mut self.turn, TurnState::Reported) {
            TurnState::AwaitingTasks { outcome, .. } if is_gone => {
                effects.push(AttemptEffect::Report(outcome));
                TurnState::Reported
            }
            TurnState::Ended(outcome) => {
                effects.push(AttemptEffect::Report(outcome));
                TurnState::Reported
            }
            turn => turn,
        };
        if is_stopped && self.turn == TurnState::Reported {
            self.requested = EndRequest::Nothing;
        }
    }
}

/// Returns the outcome of a turn after which the agent began another one by itself.
///
/// The first turn sets the outcome, however the second one ended. There are two exceptions: the second turn can add a promise, and a person's
/// interrupt of the second turn is the outcome of both.
fn combined_outcome(turn: TurnOutcome, own: &TurnOutcome) -> TurnOutcome {
    match (turn, own) {
        (_, TurnOutcome::Interrupted) => TurnOutcome::Interrupted,
        (TurnOutcome::Completed, TurnOutcome::PromiseMade) => TurnOutcome::PromiseMade,
        (turn, _) => turn,
    }
}
