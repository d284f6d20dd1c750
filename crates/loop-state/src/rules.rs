//! The rules of a run, their validation, and the changes that a live run accepts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::MAX_PHASES;
use crate::counters::dollars;
use crate::time::limit_text;

/// The rules of a run: its phases, its autonomy and its limits. They are saved with the run. A resume can replace them, and a [`RuleChange`] changes
/// one of them while the run is live.
///
/// The default has no phase, allows three failures in a row, sleeps ten seconds between iterations, waits up to six hours for rate limits, and sets
/// no other limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rules {
    /// The pipeline, from one to [`MAX_PHASES`] phases.
    pub phases: Vec<PhaseRules>,
    /// Where the run waits for a person.
    pub autonomy: Autonomy,
    /// Whether a new run starts with its required checks and its check, before the first iteration. If all pass, the run is already done; if one
    /// can't run, the run ends. Ignored for a run with several phases, without a check, or with a completion promise. A resume never does it.
    #[serde(default)]
    pub first_check: bool,
    /// The limits of the whole run.
    pub limits: RunLimits,
}

/// The limits of a whole run; `None` means no limit.
///
/// The default allows three failures in a row, sleeps ten seconds between iterations, and waits up to six hours for rate limits. In the serialised
/// form, times are milliseconds, rounded up, and their keys end with `_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunLimits {
    /// How long the run may be active, in all its processes together. Time while the run was stopped doesn't count.
    #[serde(rename = "max_duration_ms", with = "limit")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub max_duration: Option<Duration>,
    /// How many failures of one kind in a row end the run; 0 means no limit.
    pub max_failures: u32,
    /// The pause between two iterations of a phase.
    #[serde(rename = "sleep_ms", with = "millis")]
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub sleep: Duration,
    /// The maximum cost of the run, in millionths of a US dollar. At this limit the current turn ends.
    pub max_cost_microusd: Option<u64>,
    /// The maximum number of tokens of the run, input and output together.
    pub max_tokens: Option<u64>,
    /// How long the run may wait for rate limits, as the sum of all waits in a row; 0 ends the run instead of waiting.
    #[serde(rename = "wait_on_limit_ms", with = "millis")]
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub wait_on_limit: Duration,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            max_duration: None,
            max_failures: 3,
            sleep: Duration::from_secs(10),
            max_cost_microusd: None,
            max_tokens: None,
            wait_on_limit: WAIT_ON_LIMIT,
        }
    }
}

/// The default of [`RunLimits::wait_on_limit`].
pub(crate) const WAIT_ON_LIMIT: Duration = Duration::from_secs(6 * 3600);

/// The rules of one phase. The default has no stop condition and can't run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseRules {
    /// The name of the phase, for people and for paths.
    pub name: String,
    /// The number of required checks, which must pass before an iteration counts.
    pub required_checks: u32,
    /// Whether a check decides that the phase is finished.
    pub has_check: bool,
    /// Whether a completion promise can end the phase. If the phase also has a check, the check runs only after a promise.
    pub has_promise: bool,
    /// Which session of the agent an iteration gets.
    pub session: SessionPolicy,
    /// Whether the session of the agent continues after a crash without a repeated effect. Then a further attempt of the same iteration continues it,
    /// and the machine chooses its id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub durable_session: bool,
    /// The limits of the phase.
    pub limits: PhaseLimits,
    /// Whether the agent reports its cost. Without that, a cost limit is impossible.
    pub reports_cost: bool,
    /// Whether the agent reports its tokens.
    pub reports_tokens: bool,
}

impl PhaseRules {
    /// Returns whether a further attempt of an iteration continues the session of the attempt before it.
    pub(crate) fn continues_attempts(&self) -> bool {
        self.durable_session || self.session == SessionPolicy::Continue
    }
}

/// Which session of the agent an iteration gets. The first iteration of a phase always gets a fresh one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SessionPolicy {
    /// A fresh session: the agent knows only the prompt and the files. A further attempt of an iteration gets a fresh one too, unless the session is
    /// [durable](PhaseRules::durable_session).
    #[default]
    Fresh,
    /// The session of the previous iteration. After an unfinished attempt the session continues, and the prompt is not sent again.
    Continue,
}

/// A command that the loop runs itself: a required check or the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LoopCommand {
    /// The required check with this index.
    RequiredCheck(u32),
    /// The check.
    Check,
}

/// The limits of a phase; `None` means no limit. In the serialised form, times are milliseconds, rounded up, and their keys end with `_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseLimits {
    /// The highest number of an iteration. A phase without a check and without a promise runs exactly this many iterations: its plan. For any other
    /// phase this is a limit.
    pub max_iterations: Option<u32>,
    /// How long one turn may take.
    #[serde(rename = "iteration_timeout_ms", with = "limit")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub iteration_timeout: Option<Duration>,
    /// How long the agent may be idle within a turn.
    #[serde(rename = "idle_timeout_ms", with = "limit")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub idle_timeout: Option<Duration>,
    /// How long a required check or the check may run; the program around the machine enforces it.
    #[serde(rename = "check_timeout_ms", with = "millis")]
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub check_timeout: Duration,
}

impl PhaseLimits {
    /// The default time limit of a required check or the check.
    pub const CHECK_TIMEOUT: Duration = Duration::from_secs(900);
}

impl Default for PhaseLimits {
    fn default() -> Self {
        Self {
            max_iterations: None,
            iteration_timeout: None,
            idle_timeout: None,
            check_timeout: Self::CHECK_TIMEOUT,
        }
    }
}

/// Where a run waits for a person. It never waits if no person can be asked, see [`MachineInput::Attended`](crate::MachineInput::Attended).
///
/// The text form, which is also the serialised form, is `checkpoint`, `batch:N` or `full`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Autonomy {
    /// Between two phases. The end of the last phase is the end of the run and needs no review.
    Checkpoint,
    /// After each batch of this many complete iterations, in any phase.
    Batch(u32),
    /// Nowhere.
    #[default]
    Full,
}

impl fmt::Display for Autonomy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::Batch(size) => write!(f, "batch:{size}"),
            Self::Full => f.write_str("full"),
        }
    }
}

impl FromStr for Autonomy {
    type Err = RulesError;

    fn from_str(text: &str) -> Result<Self, RulesError> {
        let unknown = || RulesErrorKind::UnknownAutonomy(text.chars().take(40).collect());
        match text {
            "checkpoint" => Ok(Self::Checkpoint),
            "full" => Ok(Self::Full),
            _ => match text.strip_prefix("batch:").map(str::parse) {
                Some(Ok(0)) => Err(RulesErrorKind::ZeroBatch.into()),
                Some(Ok(size)) => Ok(Self::Batch(size)),
                _ => Err(unknown().into()),
            },
        }
    }
}

impl TryFrom<String> for Autonomy {
    type Error = RulesError;

    fn try_from(text: String) -> Result<Self, RulesError> {
        text.parse()
    }
}

impl From<Autonomy> for String {
    fn from(autonomy: Autonomy) -> Self {
        autonomy.to_string()
    }
}

/// Why a set of rules is invalid.
///
/// The text names the phase or the limit. A program that has names of its own for the limits can ask for the two problems that depend on the agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct RulesError(#[from] RulesErrorKind);

impl RulesError {
    /// Returns the phase whose agent doesn't report its cost, if that is why a cost limit can't be enforced.
    #[must_use]
    pub fn unreported_cost(&self) -> Option<&str> {
        match &self.0 {
            RulesErrorKind::CostUnknown(phase) => Some(phase),
            _ => None,
        }
    }

    /// Returns the phase whose agent doesn't report its tokens, if that is why a token limit can't be enforced.
    #[must_use]
    pub fn unreported_tokens(&self) -> Option<&str> {
        match &self.0 {
            RulesErrorKind::TokensUnknown(phase) => Some(phase),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum RulesErrorKind {
    #[error("the run needs at least one phase")]
    NoPhase,
    #[error("{0} phases are too many; the maximum is {MAX_PHASES}")]
    TooManyPhases(usize),
    #[error(
        "phase `{0}` needs a stop condition: a check, a completion promise or a number of iterations"
    )]
    NoStopCondition(String),
    #[error("phase `{0}` allows 0 iterations; allow at least 1")]
    ZeroIterations(String),
    #[error("{0} of 0 allows nothing; raise it or leave it out")]
    ZeroTime(&'static str),
    #[error("a batch of 0 iterations is not possible; use at least 1")]
    ZeroBatch,
    #[error("invalid autonomy `{0}`; use checkpoint, batch:N or full")]
    UnknownAutonomy(String),
    #[error("a budget of 0 allows nothing; raise it or leave it out")]
    ZeroBudget,
    #[error(
        "the agent of phase `{0}` doesn't report its cost, so a cost limit can't be enforced; leave the limit out or use another agent"
    )]
    CostUnknown(String),
    #[error(
        "the agent of phase `{0}` doesn't report its tokens, so a token limit can't be enforced; leave the limit out or use another agent"
    )]
    TokensUnknown(String),
}

impl Rules {
    /// Checks that a run with these rules can start and end, and that its budgets can be enforced.
    ///
    /// # Errors
    ///
    /// Returns the first problem.
    pub fn validate(&self) -> Result<(), RulesError> {
        if self.phases.is_empty() {
            return Err(RulesErrorKind::NoPhase.into());
        }
        if self.phases.len() > MAX_PHASES {
            return Err(RulesErrorKind::TooManyPhases(self.phases.len()).into());
        }
        if self.autonomy == Autonomy::Batch(0) {
            return Err(RulesErrorKind::ZeroBatch.into());
        }
        if self.limits.max_cost_microusd == Some(0) || self.limits.max_tokens == Some(0) {
            return Err(RulesErrorKind::ZeroBudget.into());
        }
        let nothing = |time: Option<Duration>| time.is_some_and(|time| time.is_zero());
        if nothing(self.limits.max_duration) {
            return Err(RulesErrorKind::ZeroTime("max-duration").into());
        }
        for phase in &self.phases {
            let name = || phase.name.clone();
            if nothing(phase.limits.iteration_timeout) {
                return Err(RulesErrorKind::ZeroTime("iteration-timeout").into());
            }
            if nothing(phase.limits.idle_timeout) {
                return Err(RulesErrorKind::ZeroTime("idle-timeout").into());
            }
            if phase.limits.check_timeout.is_zero() {
                return Err(RulesErrorKind::ZeroTime("check-timeout").into());
            }
            match phase.limits.max_iterations {
                None if !phase.has_check && !phase.has_promise => {
                    return Err(RulesErrorKind::NoStopCondition(name()).into());
                }
                Some(0) => return Err(RulesErrorKind::ZeroIterations(name()).into()),
                _ => {}
            }
            if self.limits.max_cost_microusd.is_some() && !phase.reports_cost {
                return Err(RulesErrorKind::CostUnknown(name()).into());
            }
            if self.limits.max_tokens.is_some() && !phase.reports_tokens {
                return Err(RulesErrorKind::TokensUnknown(name()).into());
            }
        }
        Ok(())
    }

    /// Returns these rules with one change. A change of a phase rule applies to the phase with index `phase`.
    ///
    /// # Errors
    ///
    /// Returns an error if the changed rules are invalid.
    pub fn with(&self, phase: u32, change: &RuleChange) -> Result<Self, RulesError> {
        let mut rules = self.clone();
        let phase = rules.phases.get_mut(phase as usize);
        let phase = phase.ok_or(RulesErrorKind::NoPhase)?;
        let limits = &mut phase.limits;
        match *change {
            RuleChange::MaxIterations(max) => limits.max_iterations = max,
            RuleChange::IterationTimeout(time) => limits.iteration_timeout = time,
            RuleChange::IdleTimeout(time) => limits.idle_timeout = time,
            RuleChange::CheckTimeout(time) => limits.check_timeout = time,
            RuleChange::MaxDuration(max) => rules.limits.max_duration = max,
            RuleChange::MaxFailures(max) => rules.limits.max_failures = max,
            RuleChange::Sleep(time) => rules.limits.sleep = time,
            RuleChange::Autonomy(autonomy) => rules.autonomy = autonomy,
            RuleChange::MaxCost(max) => rules.limits.max_cost_microusd = max,
            RuleChange::MaxTokens(max) => rules.limits.max_tokens = max,
            RuleChange::WaitOnLimit(time) => rules.limits.wait_on_limit = time,
        }
        rules.validate()?;
        Ok(rules)
    }

    /// Returns whether a change raises a limit of the run, or of the phase with index `phase`: iterations, time, cost, tokens, failures in a row, or
    /// waiting.
    ///
    /// A change from a file that the agent can write must not raise a limit of the run. The time limits of a turn or a check, the sleep and
    /// the autonomy are no such limits: whatever their values, the run ends at the same limits.
    #[must_use]
    pub fn is_raised_by(&self, phase: u32, change: &RuleChange) -> bool {
        fn raises<T: Ord>(now: Option<T>, new: Option<T>) -> bool {
            now.is_some_and(|now| new.is_none_or(|new| new > now))
        }
        match *change {
            RuleChange::MaxIterations(new) => {
                let phase = self.phases.get(phase as usize);
                raises(phase.and_then(|phase| phase.limits.max_iterations), new)
            }
            RuleChange::MaxDuration(new) => raises(self.limits.max_duration, new),
            RuleChange::MaxFailures(new) => {
                let bound = |max: u32| Some(max).filter(|max| *max > 0);
                raises(bound(self.limits.max_failures), bound(new))
            }
            RuleChange::MaxCost(new) => raises(self.limits.max_cost_microusd, new),
            RuleChange::MaxTokens(new) => raises(self.limits.max_tokens, new),
            RuleChange::WaitOnLimit(new) => new > self.limits.wait_on_limit,
            RuleChange::IterationTimeout(_)
            | RuleChange::IdleTimeout(_)
            | RuleChange::CheckTimeout(_)
            | RuleChange::Sleep(_)
            | RuleChange::Autonomy(_) => false,
        }
    }
}

/// A change of one rule of a live run. If the new limit is already reached, the work that reached it ends.
///
/// In the serialised form, times are milliseconds, and `null` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "key", content = "value", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RuleChange {
    /// The number of the last iteration of the current phase.
    MaxIterations(Option<u32>),
    /// How long one turn of the current phase may take.
    IterationTimeout(
        #[serde(with = "limit")]
        #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
        Option<Duration>,
    ),
    /// How long the agent of the current phase may be idle.
    IdleTimeout(
        #[serde(with = "limit")]
        #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
        Option<Duration>,
    ),
    /// How long a required check or the check of the current phase may run.
    CheckTimeout(
        #[serde(with = "millis")]
        #[cfg_attr(feature = "schema", schemars(with = "u64"))]
        Duration,
    ),
    /// How long the run may be active.
    MaxDuration(
        #[serde(with = "limit")]
        #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
        Option<Duration>,
    ),
    /// How many failures of one kind in a row end the run; 0 means no limit.
    MaxFailures(u32),
    /// The pause between two iterations. The change applies from the next pause on.
    Sleep(
        #[serde(with = "millis")]
        #[cfg_attr(feature = "schema", schemars(with = "u64"))]
        Duration,
    ),
    /// Where the run waits for a person. The change applies from the next end of an iteration or phase on.
    Autonomy(Autonomy),
    /// The maximum cost of the run, in millionths of a US dollar.
    MaxCost(Option<u64>),
    /// The maximum number of tokens of the run.
    MaxTokens(Option<u64>),
    /// How long the run may wait for rate limits.
    WaitOnLimit(
        #[serde(with = "millis")]
        #[cfg_attr(feature = "schema", schemars(with = "u64"))]
        Duration,
    ),
}

impl RuleChange {
    /// Returns the time that the change sets; `None` if it sets no time.
    #[must_use]
    pub fn time(&self) -> Option<Duration> {
        match *self {
            Self::IterationTimeout(time) | Self::IdleTimeout(time) | Self::MaxDuration(time) => {
                time
            }
            Self::CheckTimeout(time) | Self::Sleep(time) | Self::WaitOnLimit(time) => Some(time),
            _ => None,
        }
    }

    /// Returns whether the change belongs to a phase, not to the run.
    #[must_use]
    pub fn is_phase_rule(&self) -> bool {
        matches!(
            self,
            Self::MaxIterations(_)
                | Self::IterationTimeout(_)
                | Self::IdleTimeout(_)
                | Self::CheckTimeout(_)
        )
    }
}

impl fmt::Display for RuleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |time: Duration| match time {
            Duration::ZERO => "none".to_owned(),
            _ => limit_text(time),
        };
        let (rule, value) = match *self {
            Self::MaxIterations(max) => ("iterations", max.map(|max| max.to_string())),
            Self::IterationTimeout(max) => ("iteration timeout", max.map(time)),
            Self::IdleTimeout(max) => ("idle timeout", max.map(time)),
            Self::CheckTimeout(max) => ("check timeout", Some(time(max))),
            Self::MaxDuration(max) => ("time limit", max.map(time)),
            Self::MaxFailures(0) => ("failures in a row", None),
            Self::MaxFailures(max) => ("failures in a row", Some(max.to_string())),
            Self::Sleep(pause) => ("pause between iterations", Some(time(pause))),
            Self::Autonomy(autonomy) => ("autonomy", Some(autonomy.to_string())),
            Self::MaxCost(max) => ("cost", max.map(|max| format!("{} USD", dollars(max)))),
            Self::MaxTokens(max) => ("tokens", max.map(|max| max.to_string())),
            Self::WaitOnLimit(max) => ("wait for rate limits", Some(time(max))),
        };
        write!(f, "{rule}: {}", value.as_deref().unwrap_or("no limit"))
    }
}

/// A time as whole milliseconds, rounded up so that a short time doesn't become zero.
mod millis {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    pub(super) fn count(time: Duration) -> u64 {
        u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(count(*time))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

/// An optional time as whole milliseconds.
mod limit {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, millis};

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(millis::count).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        let millis = Option::<u64>::deserialize(from)?;
        Ok(millis.map(Duration::from_millis))
    }
}
