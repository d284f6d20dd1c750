//! Whole runs without an agent, a clock or a file. A simulated agent answers the effects of the real [`Machine`], and each wait is over at once. This
//! is separate from the machine because no real run uses it.
//!
//! A simulation answers questions such as "how many runs finish within this budget?", or tests rules before a night:
//!
//! ```
//! use loop_state::simulate::{SimulatedTurn, Simulation};
//! use loop_state::{PhaseRules, Rules};
//!
//! let phase = PhaseRules { name: "main".into(), has_check: true, ..PhaseRules::default() };
//! let simulation = Simulation::new(Rules { phases: vec![phase], ..Rules::default() })?;
//! // The check passes after one turn in five.
//! let run = simulation.run(7, |_prompt, random| match random.chance(0.2) {
//!     true => SimulatedTurn::completed().passes_check(),
//!     false => SimulatedTurn::completed(),
//! });
//! assert!(run.is_done());
//! # Ok::<(), loop_state::RulesError>(())
//! ```
//!
//! `examples/what_if.rs` compares budgets in this way.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{
    CheckResult, Effect, Head, Machine, MachineInput, ProcessTreeOutcome, PromptContext,
    ResumeOptions, Rules, RulesError, SteerState, StopReason, TimedInput, Timer, Timestamp,
    TurnOutcome, UsageTotal,
};

pub use crate::random::SeededRandom;

/// The default of [`Simulation::max_inputs`].
const MAX_INPUTS: u32 = 100_000;

/// The maximum of [`SimulatedTurn::reports_usage`].
const MAX_REPORTS: u32 = 1_000;

/// The session of the simulated agent.
const SESSION: &str = "simulated";

/// A run to simulate: its rules, its first input, and the inputs of people.
#[derive(Clone, Debug)]
pub struct Simulation {
    head: Head,
    first: MachineInput,
    starts_at: Timestamp,
    inputs: Vec<(Duration, MachineInput)>,
    max_inputs: u32,
}

impl Simulation {
    /// Simulates new runs with these rules. They start at `Timestamp::from_millis(0)`.
    ///
    /// # Errors
    ///
    /// Returns an error if the rules are invalid.
    pub fn new(rules: Rules) -> Result<Self, RulesError> {
        Head::new(rules).map(|head| Self::from_head(head, ResumeOptions::default()))
    }

    /// Simulates how a saved run could continue, from its last input on.
    #[must_use]
    pub fn from_head(head: Head, resume: ResumeOptions) -> Self {
        Self {
            first: head.first_input(resume),
            starts_at: head.last_at,
            head,
            inputs: Vec::new(),
            max_inputs: MAX_INPUTS,
        }
    }

    /// Sets the time at which the run starts. The random part of each wait depends on it.
    #[must_use]
    pub fn starts_at(mut self, at: Timestamp) -> Self {
        self.starts_at = at;
        self
    }

    /// Adds an input that the machine gets so long after the start, such as a request of a person. Of several inputs at the same time, the one that was
    /// added first comes first.
    #[must_use]
    pub fn with_input(mut self, after: Duration, what: MachineInput) -> Self {
        self.inputs.push((after, what));
        self
    }

    /// Sets the number of inputs after which the simulation gives up; the default is 100,000. A turn with a check takes about seven inputs.
    #[must_use]
    pub fn max_inputs(mut self, max: u32) -> Self {
        self.max_inputs = max;
        self
    }

    /// Plays one run. For each turn, the machine's prompt context and the random numbers of this seed go to `agent`, which returns the turn.
    ///
    /// The same seed and the same agent give the same run. For a scripted agent, let the closure take turns out of a list.
    pub fn run<A>(&self, seed: u64, agent: A) -> SimulatedRun
    where
        A: FnMut(&PromptContext, &mut SeededRandom) -> SimulatedTurn,
    {
        self.run_observed(seed, agent, |_, _, _| {})
    }

    /// Plays one run as [`run`](Self::run) does, and passes each input to `observe`, with the effects and the state after it.
    pub fn run_observed<A, O>(&self, seed: u64, agent: A, mut observe: O) -> SimulatedRun
    where
        A: FnMut(&PromptContext, &mut SeededRandom) -> SimulatedTurn,
        O: FnMut(&TimedInput, &[Effect], &Head),
    {
        let mut player = Player::new(self, seed, agent);
        let mut inputs = 0;
        let end = loop {
            if inputs == self.max_inputs {
                break SimulationEnd::InputLimit;
            }
            let Some(what) = player.next_input() else {
                break SimulationEnd::AwaitsPerson;
            };
            inputs += 1;
            if let Some(reason) = player.step(what, &mut observe) {
                break SimulationEnd::Ended(reason);
            }
        };
        SimulatedRun {
            end,
            took: player.now.since(self.starts_at),
            inputs,
            head: player.machine.head().clone(),
        }
    }
}

/// One turn of the simulated agent, and how the checks after it end.
///
/// By default the turn takes no time and uses nothing, the required checks pass, and the check fails. The agent is never idle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedTurn {
    outcome: TurnOutcome,
    takes: Duration,
    usage: UsageTotal,
    reports: u32,
    required_check: CheckResult,
    check: CheckResult,
}

impl SimulatedTurn {
    /// Creates a turn that the agent completes.
    #[must_use]
    pub fn completed() -> Self {
        Self::new(TurnOutcome::Completed)
    }

    /// Creates a turn that ends in this way, unless the machine ends it earlier.
    #[must_use]
    pub fn new(outcome: TurnOutcome) -> Self {
        Self {
            outcome,
            takes: Duration::ZERO,
            usage: UsageTotal::default(),
            reports: 1,
            required_check: CheckResult::Passed,
            check: CheckResult::Failed("the simulated check failed".into()),
        }
    }

    /// Sets the time that the turn takes.
    #[must_use]
    pub fn takes(mut self, time: Duration) -> Self {
        self.takes = time;
        self
    }

    /// Sets the usage of the turn.
    #[must_use]
    pub fn uses(mut self, usage: UsageTotal) -> Self {
        self.usage = usage;
        self
    }

    /// Sets the cost of the turn, in millionths of a US dollar.
    #[must_use]
    pub fn costs_microusd(mut self, cost: u64) -> Self {
        self.usage.cost_microusd = cost;
        self
    }

    /// Sets in how many equal parts the agent reports its usage, spread over the turn; from 1 to 1,000. By default the agent reports its usage once, at
    /// the end of the turn. A budget can end a turn only at a report.
    #[must_use]
    pub fn reports_usage(mut self, times: u32) -> Self {
        self.reports = times.clamp(1, MAX_REPORTS);
        self
    }

    /// Lets the check pass after this turn.
    #[must_use]
    pub fn passes_check(self) -> Self {
        self.check_ends(CheckResult::Passed)
    }

    /// Sets how the check after this turn ends.
    #[must_use]
    pub fn check_ends(mut self, result: CheckResult) -> Self {
        self.check = result;
        self
    }

    /// Sets how each required check after this turn ends.
    #[must_use]
    pub fn required_checks_end(mut self, result: CheckResult) -> Self {
        self.required_check = result;
        self
    }

    /// Returns the inputs of the turn, each with the time since its start.
    fn inputs(&self) -> VecDeque<(Duration, MachineInput)> {
        let mut inputs = VecDeque::new();
        let has_begun = !matches!(
            self.outcome,
            TurnOutcome::NotStarted(_) | TurnOutcome::SessionInUse(_) | TurnOutcome::SessionLost
        );
        if has_begun {
            let busy = MachineInput::AgentBusy(true); // so that no idle timeout applies
            let known = MachineInput::SessionKnown(SESSION.into());
            for what in [busy, known, MachineInput::PromptReceived] {
                inputs.push_back((Duration::ZERO, what));
            }
        }
        for nth in 1..=self.reports {
            let part = self.part(nth);
            if !part.is_zero() {
                let after = self.takes / self.reports * nth;
                inputs.push_back((after, MachineInput::UsageReported(part)));
            }
        }
        let ended = MachineInput::TurnEnded(self.outcome.clone());
        inputs.push_back((self.takes, ended));
        inputs
    }

    /// Returns the usage since the last of the equal reports. All reports together are the usage of the turn.
    fn part(&self, nth: u32) -> UsageTotal {
        let until = |nth: u32| {
            let share = |all: u64| u128::from(all) * u128::from(nth) / u128::from(self.reports);
            UsageTotal {
                input_tokens: share(self.usage.input_tokens) as u64,
                output_tokens: share(self.usage.output_tokens) as u64,
                cost_microusd: share(self.usage.cost_microusd) as u64,
            }
        };
        until(nth).saturating_sub(until(nth - 1))
    }
}

/// A simulated run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimulatedRun {
    /// Why the simulation is over.
    pub end: SimulationEnd,
    /// The simulated time from the start to the end.
    pub took: Duration,
    /// The number of inputs that the machine got.
    pub inputs: u32,
    /// The last state of the run, with its usage and its counters.
    pub head: Head,
}

impl SimulatedRun {
    /// Returns whether the run ended for good, so that its work is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(&self.end, SimulationEnd::Ended(reason) if reason.is_final())
    }
}

/// Why a simulation is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimulationEnd {
    /// The run ended for this reason.
    Ended(StopReason),
    /// The run waits for a person, and no input of a person is left.
    AwaitsPerson,
    /// The machine got the maximum number of inputs, see [`Simulation::max_inputs`].
    InputLimit,
}

/// The world of one simulated run.
struct Player<A> {
    machine: Machine,
    agent: A,
    random: SeededRandom,
    now: Timestamp,
    /// The results of the last effects, which come at once.
    replies: VecDeque<MachineInput>,
    /// The inputs that come from outside, ordered by time.
    outside: VecDeque<(Timestamp, MachineInput)>,
    /// The inputs of the turn that runs, ordered by time.
    turn: VecDeque<(Timestamp, MachineInput)>,
    prompt: Option<PromptContext>,
    required_check: CheckResult,
    check: CheckResult,
}

impl<A> Player<A>
where
    A: FnMut(&PromptContext, &mut SeededRandom) -> SimulatedTurn,
{
    fn new(simulation: &Simulation, seed: u64, agent: A) -> Self {
        let start = simulation.starts_at;
        let given = simulation.inputs.iter().cloned();
        let mut outside: Vec<_> = given.map(|(after, what)| (start + after, what)).collect();
        outside.sort_by_key(|(at, _)| *at);
        let failed = || CheckResult::Failed("no simulated turn ran before".into());
        Self {
            machine: Machine::from(simulation.head.clone()),
            agent,
            random: SeededRandom::new(seed),
            now: start,
            replies: VecDeque::from([simulation.first.clone()]),
            outside: outside.into(),
            turn: VecDeque::new(),
            prompt: None,
            required_check: failed(),
            check: failed(),
        }
    }

    /// Lets the time pass until the next input and returns that input; `None` if nothing can happen any more.
    fn next_input(&mut self) -> Option<MachineInput> {
        if let Some(reply) = self.replies.pop_front() {
            return Some(reply);
        }
        let outside = self.outside.front().map(|(at, _)| *at);
        let turn = self.turn.front().map(|(at, _)| *at);
        let due = self.machine.next_deadline();
        let next = [outside, turn, due].into_iter().flatten().min()?;
        self.now = self.now.max(next);
        if outside == Some(next) {
            self.outside.pop_front().map(|(_, what)| what)
        } else if turn == Some(next) {
            self.turn.pop_front().map(|(_, what)| what)
        } else {
            self.machine.due_input(self.now)
        }
    }

    /// Passes an input to the machine and does its effects. Returns the reason if the run ends.
    fn step(
        &mut self,
        what: MachineInput,
        observe: &mut impl FnMut(&TimedInput, &[Effect], &Head),
    ) -> Option<StopReason> {
        let at = self.now;
        let input = TimedInput { at, what };
        let effects = self.machine.step(input.clone());
        observe(&input, &effects, self.machine.head());
        for effect in effects {
            match effect {
                Effect::StartAttempt(prompt) => {
                    self.prompt = Some(prompt);
                    self.begin_turn();
                }
                Effect::ContinueTurn => self.begin_turn(),
                Effect::StopAttempt { .. } => self.end_turn(TurnOutcome::Stopped),
                Effect::InterruptTurn => self.end_turn(TurnOutcome::Interrupted),
                Effect::Deliver(id) => {
                    let state = SteerState::Seen;
                    self.reply(MachineInput::SteerAdvanced { id, state });
                }
                Effect::RunRequiredCheck(_) => {
                    self.reply(MachineInput::RequiredCheckEnded(
                        self.required_check.clone(),
                    ));
                }
                Effect::RunCheck => self.reply(MachineInput::CheckEnded(self.check.clone())),
                Effect::EndLeftovers => {
                    self.reply(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
                }
                Effect::AwaitStop(limit) => {
                    let expired = MachineInput::TimerExpired(Timer::Shutdown);
                    self.outside.push_back((at + limit, expired));
                    self.outside.make_contiguous().sort_by_key(|(at, _)| *at);
                }
                Effect::EndRun => return self.machine.head().stop_reason(),
                // Each of these has no result. A check ends at once, so none runs that could be ended.
                Effect::Save
                | Effect::SavePhase { .. }
                | Effect::StopBy(_)
                | Effect::StopCheck
                | Effect::TimeOutCheck(_)
                | Effect::PauseAt(_)
                | Effect::SavePauseReason(_)
                | Effect::RejectRequest(_)
                | Effect::Emit(_)
                | Effect::Remind(_)
                | Effect::Warn(_) => {}
            }
        }
        None
    }

    fn reply(&mut self, what: MachineInput) {
        self.replies.push_back(what);
    }

    fn begin_turn(&mut self) {
        let Some(prompt) = &self.prompt else {
            // A saved run can be resumed in a turn only with a new attempt, so the prompt is known.
            return;
        };
        let turn = (self.agent)(prompt, &mut self.random);
        let start = self.now;
        let inputs = turn.inputs().into_iter();
        self.turn = inputs.map(|(after, what)| (start + after, what)).collect();
        self.required_check = turn.required_check;
        self.check = turn.check;
    }

    fn end_turn(&mut self, outcome: TurnOutcome) {
        self.turn.clear();
        self.reply(MachineInput::TurnEnded(outcome));
    }
}
