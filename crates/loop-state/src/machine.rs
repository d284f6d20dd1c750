//! The entry point of the machine: it passes each input to the code for the current step, and puts updates after the save that makes them durable.

use std::time::Duration;

use crate::time::limit_text;
use crate::times::STOP_BUDGET;
use crate::{
    Effect, Head, IterationStep, LoopCommand, MachineInput, PromptContext, Rules, RulesError,
    RunEnd, RunUpdate, SessionPolicy, SteerState, StopCause, StopDeadline, StopReason, TimedInput,
    Timer, Timestamp, UsageTotal, WaitCause,
};

mod iteration;
mod phase;
mod reload;
mod remind;
mod requests;
mod resume;
mod stop;
mod wait;

pub use stop::{GitStatusWait, SaveKind};

type Effects = Vec<Effect>;

/// The longest wait that an agent can announce without counting as idle.
const LONGEST_DELAY: Duration = Duration::from_secs(3600);

/// The idle time of an agent, in a turn with an idle timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentSilence {
    /// When the agent was last active, or when its announced wait ends.
    pub since: Timestamp,
    /// When the agent counts as hung.
    pub until: Timestamp,
}

/// The state machine: a [`Head`] and the facts that are true only for the live process.
///
/// # Examples
///
/// ```
/// use loop_state::{Effect, TimedInput, MachineInput, Machine, PhaseRules, Rules, Timestamp};
///
/// let phase = PhaseRules { name: "main".into(), has_check: true, ..PhaseRules::default() };
/// let rules = Rules { phases: vec![phase], ..Rules::default() };
/// let mut machine = Machine::new(rules)?;
/// let effects = machine.step(TimedInput { at: Timestamp::from_millis(0), what: MachineInput::Started });
/// // The agent starts only after the save.
/// assert_eq!(effects[0], Effect::Save);
/// assert!(matches!(effects[2], Effect::StartAttempt(_)));
/// # Ok::<(), loop_state::RulesError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Machine {
    head: Head,
    /// When the agent was last active.
    alive_at: Timestamp,
    /// The start of the idle time that was last reported.
    silence_reported: Option<Timestamp>,
    /// When a wait was last reported.
    wait_reported: Timestamp,
    /// Whether the agent waits for a running tool or a person's answer.
    busy: bool,
    /// When the running required check or check began; `None` after its time limit.
    command_since: Option<Timestamp>,
    /// Whether the current turn can be interrupted and its session continued.
    interruptible: bool,
    /// The deadline of the stop.
    deadline: StopDeadline,
    stop_budget: Duration,
    /// Whether the program shuts down.
    is_shutting_down: bool,
    /// Since when the processes of the run have been suspended.
    frozen_at: Option<Timestamp>,
    /// Whether this process has started or resumed the run.
    has_begun: bool,
    /// Whether this process has finished with the run and ends all remaining processes.
    is_ending: bool,
}

impl Machine {
    /// Creates the machine of a new run; its first input is [`MachineInput::Started`].
    ///
    /// # Errors
    ///
    /// Returns an error if the rules are invalid.
    pub fn new(rules: Rules) -> Result<Self, RulesError> {
        Head::new(rules).map(Self::from)
    }

    /// Returns the current state.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the idle time of the agent while an idle timeout applies.
    ///
    /// Returns `None` if the phase has no idle timeout, if no turn runs, if the turn is being ended, if the agent waits for a tool or a person, or if
    /// the processes are suspended.
    #[doc(hidden)] // only tests need it
    #[must_use]
    pub fn silence(&self) -> Option<AgentSilence> {
        let head = &self.head;
        let IterationStep::Turn { since } = head.step else {
            return None;
        };
        let is_over = head.end.is_some() || head.is_stopping_step || self.busy || self.is_frozen();
        let limit = head
            .phase_rules()
            .limits
            .idle_timeout
            .filter(|_| !is_over)?;
        let since = self.alive_at.max(since);
        let until = since + limit;
        Some(AgentSilence { since, until })
    }

    /// Returns whether the processes of the run are suspended.
    #[doc(hidden)] // only `loop-runner` needs it, as the next method
    #[must_use]
    pub const fn is_frozen(&self) -> bool {
        self.frozen_at.is_some()
    }

    /// Returns how long the processes of the run have been suspended; `None` if they are not suspended.
    #[doc(hidden)]
    #[must_use]
    pub fn frozen_for(&self, now: Timestamp) -> Option<Duration> {
        self.frozen_at.map(|at| now.since(at))
    }

    /// Returns the input that is due at `now` because time passed; the caller passes it to [`step`](Self::step).
    #[must_use]
    pub fn due_input(&self, now: Timestamp) -> Option<MachineInput> {
        let (at, timer) = self.next_timer()?;
        (at <= now).then_some(MachineInput::TimerExpired(timer))
    }

    /// Returns when [`due_input`](Self::due_input) next returns an input, if no other input comes before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.next_timer().map(|(at, _)| at)
    }

    fn next_timer(&self) -> Option<(Timestamp, Timer)> {
        let head = &self.head;
        if self.is_frozen()
            || head.end.is_some()
            || head.is_stopping_step
            || head.counts.processes == 0
        {
            return None;
        }
        let limits = &head.phase_rules().limits;
        let run = head.rules.limits.max_duration.map(|max| {
            let left = max.saturating_sub(Duration::from_millis(head.active_ms));
            (head.taken_at + left, Timer::MaxDuration)
        });
        let (first, second) = match head.step {
            IterationStep::Ready | IterationStep::EndingLeftovers { .. } => return None,
            IterationStep::Turn { since } => (
                limits
                    .iteration_timeout
                    .map(|t| (since + t, Timer::Iteration)),
                self.silence().map(|silence| (silence.until, Timer::Idle)),
            ),
            IterationStep::RequiredCheck { .. }
            | IterationStep::Check
            | IterationStep::Recheck { .. } => {
                let limit = head.phase_rules().limits.check_timeout;
                let since = self.command_since;
                (since.map(|since| (since + limit, Timer::Check)), None)
            }
            IterationStep::Sleeping { until } => (Some((until, Timer::Sleep)), None),
            IterationStep::Waiting { until, why, .. } => (Some((until, timer_of(why))), None),
            _ => (None, None),
        };
        [run, first, second]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }

    /// Takes an input and returns the effects that the runner must do now, in order.
    ///
    /// Never panics, for any input in any state. An input that makes no sense in the current state changes nothing.
    pub fn step(&mut self, input: TimedInput) -> Vec<Effect> {
        let at = input.at;
        let mut effects = self.take(input);
        if let Some(Effect::EndRun) = effects.last() {
            effects.pop();
            effects.extend(self.warn_of_unseen_steers().map(Effect::Warn));
            effects.push(Effect::EndRun);
        }
        let begins =
            |effect: &Effect| matches!(effect, Effect::RunRequiredCheck(_) | Effect::RunCheck);
        if effects.iter().any(begins) {
            self.command_since = Some(at);
        }
        effects
    }

    fn take(&mut self, input: TimedInput) -> Effects {
        let TimedInput { at, what } = input;
        if let Some(effects) = self.stop_while_ending(&what, at) {
            return effects;
        }
        if let MachineInput::Thawed(frozen) = what {
            self.deadline.resumed_after_freeze(frozen);
        }
        // Only another process can continue the run.
        if self.is_ending && !matches!(what, MachineInput::Started | MachineInput::Resumed(_)) {
            return Effects::new();
        }
        match what {
            MachineInput::AgentActive => self.alive(at),
            MachineInput::AgentRetrying(delay) => self.alive(at + delay.min(LONGEST_DELAY)),
            MachineInput::AgentBusy(busy) => self.busy = busy,
            MachineInput::AgentInterruptible(interruptible) => self.interruptible = interruptible,
            MachineInput::StopForeseen { abort } => return vec![self.begin_stop(abort, at)],
            MachineInput::ShutDown => return self.shut_down(),
            MachineInput::Frozen(true) => self.frozen_at = self.frozen_at.or(Some(at)),
            MachineInput::Frozen(false) => self.frozen_at = None,
            MachineInput::Ending => self.is_ending = true,
            MachineInput::StoppedBeforeStart(request) => return self.stopped_early(request, at),
            MachineInput::ReminderDue => return self.remind(at),
            MachineInput::Requested(request) => return self.requested(request, at),
            what => return self.step_run(what, at),
        }
        Effects::new()
    }

    fn alive(&mut self, at: Timestamp) {
        self.alive_at = self.alive_at.max(at);
    }

    fn step_run(&mut self, what: MachineInput, at: Timestamp) -> Effects {
        let live = self.is_live();
        match (what, self.head.step.clone()) {
            (MachineInput::Started, _) if self.head.counts.processes == 0 => self.started(at),
            (MachineInput::Resumed(resume), _) if self.head.counts.processes > 0 => {
                self.resumed(resume, at)
            }
            _ if !live => Effects::new(),
            (what, step) => {
                self.head.last_at = self.head.last_at.max(at);
                match (what, step) {
                    (
                        MachineInput::TurnEnded(outcome),
                        IterationStep::Turn { .. } | IterationStep::Interrupted { .. },
                    ) => self.turn_ended(outcome, at),
                    (
                        MachineInput::RequiredCheckEnded(result),
                        IterationStep::RequiredCheck { index },
                    )
                    | (
                        MachineInput::RequiredCheckEnded(result),
                        IterationStep::Recheck { index },
                    ) => self.command_ended(LoopCommand::RequiredCheck(index), result, at),
                    (
                        MachineInput::CheckEnded(result),
                        IterationStep::Check | IterationStep::Recheck { .. },
                    ) => self.command_ended(LoopCommand::Check, result, at),
                    (
                        MachineInput::LeftoversEnded(tree),
                        IterationStep::EndingLeftovers { then },
                    ) => self.leftovers_ended(then, tree, at),
                    (MachineInput::TimerExpired(timer), step) if timer != Timer::Shutdown => {
                        self.time_up(timer, step, at)
                    }
                    (what, step) => match what.stop() {
                        Some(request) => self.stop_requested(request, false, at),
                        None => self.reported(what, step, at),
                    },
                }
            }
        }
    }

    fn is_live(&self) -> bool {
        self.head.counts.processes > 0 && self.head.end.is_none()
    }

    fn started(&mut self, at: Timestamp) -> Effects {
        // An earlier process may have stopped before it began the run.
        self.head.stopping = None;
        self.begin_process();
        self.head.started_at = at;
        self.head.taken_at = at;
        self.head.last_at = at;
        self.head.counts.processes = 1;
        if !self.has_first_check() {
            return self.begin_iteration(1, at);
        }
        self.head.iteration = 1;
        let mut effects = vec![Effect::Save];
        effects.extend(self.recheck(0));
        effects
    }

    /// Whether the rules require a check before the first iteration.
    fn has_first_check(&self) -> bool {
        let rules = &self.head.rules;
        let [phase] = rules.phases.as_slice() else {
            return false;
        };
        rules.first_check && phase.has_check && !phase.has_promise
    }

    fn begin_iteration(&mut self, iteration: u32, at: Timestamp) -> Effects {
        let head = &mut self.head;
        head.reopen_phase();
        if iteration == 1 {
            // The session and the message belong to the previous phase, which may have had another agent.
            head.last_message = None;
        }
        if iteration == 1 || head.phase_rules().session == SessionPolicy::Fresh {
            head.drop_session();
        }
        head.iteration = iteration;
        head.attempt = 0;
        head.unfinished = None;
        head.has_prompt = false;
        head.iteration_usage = UsageTotal::default();
        self.begin_attempt(at)
    }

    /// Starts the next attempt, unless a budget is used up. No other function starts an attempt.
    fn begin_attempt(&mut self, at: Timestamp) -> Effects {
        let head = &mut self.head;
        if let Some(budget) = head.spent_budget() {
            head.step = IterationStep::Ready;
            head.redo = None;
            return self.end(StopReason::BudgetSpent(budget), at);
        }
        head.attempt_began_at = at;
        head.attempt = (head.attempt + 1).max(head.first_attempt);
        head.highest_attempt = head.highest_attempt.max(head.attempt);
        head.counts.attempts += 1;
        head.step = IterationStep::Turn { since: at };
        head.redo = None;
        head.promised = false;
        head.made_no_progress = false;
        if std::mem::take(&mut head.fresh_session) || !head.phase_rules().continues_attempts() {
            head.drop_session();
        }
        let is_durable = head.phase_rules().durable_session;
        if is_durable && !head.has_prompt && head.session_position.is_none() {
            // The agent never created this session, or created it without a message.
            head.drop_session();
        }
        // No pair of iteration and attempt occurs twice in a run, so no session has this id.
        let new_session = (is_durable && head.session.is_none())
            .then(|| format!("{}-{}", head.iteration, head.attempt));
        head.continues_session = head.session.is_some();
        head.unmark_prompt_steers();
        if !head.continues_session {
            // The new session has neither the prompt nor the steers of the previous one.
            head.has_prompt = false;
            head.has_feedback = false;
            for steer in &mut head.steers {
                steer.state = SteerState::Recorded;
            }
        }
        self.alive_at = at;
        self.silence_reported = None;
        self.busy = false;
        let brief = PromptContext {
            phase: head.phase,
            iteration: head.iteration,
            attempt: head.attempt,
            unfinished: head.unfinished,
            feedback: head.feedback.clone().filter(|_| !head.has_feedback),
            steers: head.unseen_steers().cloned().collect(),
            result: head.previous_phase_result().map(ToOwned::to_owned),
            previous_agent: head.predecessor().map(ToOwned::to_owned),
            session: head.session.clone(),
            new_session: new_session.clone(),
            has_prompt: head.has_prompt,
        };
        head.session = head.session.take().or(new_session);
        head.prompt_steers = brief.steers.iter().map(|steer| steer.id).collect();
        for steer in &mut head.steers {
            steer.state = SteerState::Seen;
        }
        let update = RunUpdate::AttemptStarted {
            iteration: brief.iteration,
            attempt: brief.attempt,
            is_retry: head.is_retry(),
        };
        vec![
            Effect::Save,
            Effect::Emit(update),
            Effect::StartAttempt(brief),
        ]
    }

    fn time_up(&mut self, timer: Timer, step: IterationStep, at: Timestamp) -> Effects {
        let limits = &self.head.phase_rules().limits;
        let failure = match (timer, &step) {
            _ if self.head.is_stopping_step => return Effects::new(),
            (Timer::Iteration, IterationStep::Turn { .. }) => Some(format!(
                "the turn took longer than {}",
                limit_text(limits.iteration_timeout.unwrap_or_default())
            )),
            (Timer::Idle, IterationStep::Turn { .. }) => Some(format!(
                "no output for {}",
                limit_text(limits.idle_timeout.unwrap_or_default())
            )),
            (
                Timer::Check,
                IterationStep::RequiredCheck { .. }
                | IterationStep::Check
                | IterationStep::Recheck { .. },
            ) => {
                // The timer acts only once; the end of the command counts as its failure.
                let is_running = self.command_since.take().is_some();
                let limit = self.head.phase_rules().limits.check_timeout;
                let effect = is_running.then_some(Effect::TimeOutCheck(limit));
                return effect.into_iter().collect();
            }
            (Timer::Sleep, IterationStep::Sleeping { .. }) => return self.begin_next(at),
            (timer, IterationStep::Waiting { why, .. }) if timer == timer_of(*why) => {
                return self.wait_over(at);
            }
            (Timer::MaxDuration, step) if step.is_resting() => {
                return self.end(
                    StopReason::TimeLimit(self.head.rules.limits.max_duration.unwrap_or_default()),
                    at,
                );
            }
            (Timer::MaxDuration, _) => None,
            _ => return Effects::new(),
        };
        self.head.failure = failure.or(self.head.failure.take());
        self.stop_step(&step)
    }

    /// Returns why the turn is being ended; `None` if an update reports that already.
    fn why_ending_turn(&self) -> Option<String> {
        let head = &self.head;
        if self.is_stopping() || head.redo.is_some() {
            return None;
        }
        let spent = || head.spent_budget().map(|budget| budget.to_string());
        let why = head.failure.clone().or_else(spent);
        Some(why.unwrap_or_else(|| "the run reached its time limit".into()))
    }

    /// Ends the current turn or command.
    fn stop_step(&mut self, step: &IterationStep) -> Effects {
        let effect = match step {
            IterationStep::Turn { .. } | IterationStep::Interrupted { .. } => Effect::StopAttempt {
                why: self.why_ending_turn(),
                at_once: self.deadline.is_abort(),
            },
            IterationStep::RequiredCheck { .. }
            | IterationStep::Check
            | IterationStep::Recheck { .. } => Effect::StopCheck,
            _ => return Effects::new(),
        };
        self.head.is_stopping_step = true;
        vec![effect]
    }

    fn end(&mut self, reason: StopReason, at: Timestamp) -> Effects {
        let head = &mut self.head;
        head.count_active(at);
        head.last_at = head.last_at.max(at);
        head.stopping = None;
        // A pause and a stop after the iteration survive a signal, because another worker may take the run over; a person's resume ends them.
        if !matches!(
            reason,
            StopReason::Stopped(StopCause::Terminated | StopCause::HungUp)
        ) {
            head.pausing = false;
            head.stop_cut_short = None;
        }
        head.redo = None;
        head.is_stopping_step = false;
        head.end = Some(RunEnd { at, reason });
        let mut effects = vec![Effect::Save];
        effects.extend(self.announce_end());
        effects
    }

    fn announce_end(&self) -> Effects {
        let update = self
            .head
            .end
            .iter()
            .map(|end| Effect::Emit(RunUpdate::Ended(end.reason.clone())));
        update.chain([Effect::EndRun]).collect()
    }
}

fn timer_of(why: WaitCause) -> Timer {
    match why {
        WaitCause::RateLimit => Timer::RateLimit,
        WaitCause::Retry => Timer::Retry,
    }
}

/// Inserts the update after the save that makes it durable.
fn after_save(update: RunUpdate, mut effects: Effects) -> Effects {
    effects.insert(1, Effect::Emit(update));
    effects
}

impl From<Head> for Machine {
    /// Creates the machine of a saved run; its first input is [`MachineInput::Resumed`].
    fn from(head: Head) -> Self {
        Self {
            alive_at: head.last_at,
            silence_reported: None,
            wait_reported: Timestamp::from_millis(0),
            busy: false,
            command_since: None,
            interruptible: true,
            deadline: StopDeadline::Unset,
            stop_budget: STOP_BUDGET,
            is_shutting_down: false,
            frozen_at: None,
            has_begun: false,
            is_ending: false,
            head,
        }
    }
}
