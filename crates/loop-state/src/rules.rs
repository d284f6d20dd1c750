//! What bounds a run, when that makes no run, and which of it can change while one goes on.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::MAX_PHASES;
use crate::counts::dollars;

/// What bounds a run. All of it is saved with the run; a resume may replace it, and [`RuleChange`] changes it while the run goes on.
///
/// By default there is no phase yet; three failures in a row are allowed, ten seconds lie between iterations, a rate limit is waited for up to six
/// hours, and nothing else is bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rules {
    /// The pipeline; from one to [`MAX_PHASES`] phases.
    pub phases: Vec<PhaseRules>,
    /// Where the run waits for a person's word.
    pub autonomy: Autonomy,
    /// The limits of the whole run.
    pub limits: RunLimits,
}

/// Limits of a whole run; `None` means none.
///
/// Those of a run that is told nothing: three failures in a row, ten seconds between iterations, and six hours of waiting for rate limits. In the
/// serialised form times are milliseconds, rounded up, and their keys end with `_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunLimits {
    /// How long the run may be active, all its processes together. Time in which it was stopped doesn't count.
    #[serde(rename = "max_duration_ms", with = "limit")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub max_duration: Option<Duration>,
    /// How many failures of one kind in a row end the run; 0 for no limit.
    pub max_failures: u32,
    /// The pause between two iterations of a phase.
    #[serde(rename = "sleep_ms", with = "millis")]
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub sleep: Duration,
    /// What the run may cost, in millionths of a US dollar. What is used up ends the turn that used it.
    pub max_cost_microusd: Option<u64>,
    /// How many tokens the run may use, those that the model reads and those that it writes together.
    pub max_tokens: Option<u64>,
    /// How long the run may wait for rate limits, all waits in a row together; 0 to end it instead of waiting.
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

/// How long a run waits for rate limits unless it is told otherwise.
pub(crate) const WAIT_ON_LIMIT: Duration = Duration::from_secs(6 * 3600);

/// What bounds one phase. By default it has no end of its own and can't run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseRules {
    /// Its name, for people and for paths.
    pub name: String,
    /// How many commands must pass before an iteration counts.
    pub gates: u32,
    /// Whether a check decides that the phase is done.
    pub until: bool,
    /// Whether the agent can promise that the phase is done. With a check, that is asked only then.
    pub promise: bool,
    /// Which of the agent's sessions an iteration gets.
    pub session: SessionPolicy,
    /// Its limits.
    pub limits: Limits,
    /// Whether its agent says what it costs; without that a limit on cost can't be kept.
    pub reports_cost: bool,
    /// Whether its agent says how many tokens it uses.
    pub reports_tokens: bool,
}

/// Which of the agent's sessions an iteration gets. The first iteration of a phase gets one of its own in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SessionPolicy {
    /// One of its own: what is not in the prompt or on the disk is forgotten.
    #[default]
    Fresh,
    /// That of the iteration before it. A cut attempt is gone on with, and its prompt is not sent again.
    Continue,
}

/// Limits of a phase; `None` means none. In the serialised form times are milliseconds, rounded up, and their keys end with `_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// The last iteration's number. Without a check it is the plan, with one it is a limit.
    pub max_iterations: Option<u32>,
    /// How long one turn may take.
    #[serde(rename = "iteration_timeout_ms", with = "limit")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub iteration_timeout: Option<Duration>,
    /// How long the agent may give no sign of life within a turn.
    #[serde(rename = "idle_timeout_ms", with = "limit")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub idle_timeout: Option<Duration>,
    /// How long a gate or the check may take, which the program around the machine enforces.
    #[serde(rename = "check_timeout_ms", with = "millis")]
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub check_timeout: Duration,
}

impl Limits {
    /// How long a gate or the check may take, by default.
    pub const CHECK_TIMEOUT: Duration = Duration::from_secs(900);
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_iterations: None,
            iteration_timeout: None,
            idle_timeout: None,
            check_timeout: Self::CHECK_TIMEOUT,
        }
    }
}

/// Where a run waits for a person's word. Where nobody can be asked it never waits, see [`Happening::Attended`](crate::Happening::Attended).
///
/// As text, which is also how it is serialised, it is `checkpoint`, `batch:N` or `full`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Autonomy {
    /// Between two phases. The end of the last phase is the end of the run, which asks nobody.
    Checkpoint,
    /// After each so many complete iterations, whatever phase they belong to.
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
        let unknown = || RulesError::UnknownAutonomy(text.chars().take(40).collect());
        match text {
            "checkpoint" => Ok(Self::Checkpoint),
            "full" => Ok(Self::Full),
            _ => match text.strip_prefix("batch:").map(str::parse) {
                Some(Ok(0)) => Err(RulesError::ZeroBatch),
                Some(Ok(size)) => Ok(Self::Batch(size)),
                _ => Err(unknown()),
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

/// Why rules make no run. Beside the opaque [`HeadError`](crate::HeadError) it is open, since rules are a person's settings, and who reads
/// those may say which one is wrong in their own words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// There is no phase.
    #[error("a run needs at least one phase")]
    NoPhase,
    /// There are more phases than a head can hold.
    #[error("{0} phases are too many: at most {MAX_PHASES} are possible")]
    TooManyPhases(usize),
    /// A phase would never end.
    #[error("phase `{0}` has no end: give it a check, a promise or a number of iterations")]
    Endless(String),
    /// A limit of zero iterations.
    #[error("phase `{0}` may run 0 iterations: at least 1 is needed")]
    ZeroIterations(String),
    /// A limit of no time at all.
    #[error("{0} of 0 leaves no time for anything: raise it, or leave it out")]
    ZeroTime(&'static str),
    /// A person is to be asked after each zero iterations.
    #[error("a batch of 0 iterations never begins: at least 1 is needed")]
    ZeroBatch,
    /// Text that names no autonomy.
    #[error("`{0}` is no autonomy: say checkpoint, batch:N or full")]
    UnknownAutonomy(String),
    /// A budget of nothing.
    #[error("a budget of 0 allows nothing: raise it, or leave it out")]
    ZeroBudget,
    /// Cost is limited and the agent of the phase does not say what it costs.
    #[error(
        "the agent of phase `{0}` does not report its cost, so that no limit on it can be kept: leave the limit out or use another agent"
    )]
    CostUnknown(String),
    /// Tokens are limited and the agent of the phase does not count them.
    #[error(
        "the agent of phase `{0}` does not report its tokens, so that no limit on them can be kept: leave the limit out or use another agent"
    )]
    TokensUnknown(String),
}

impl Rules {
    /// Checks that a run by these rules can begin and can end, and that its budgets can be kept.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), RulesError> {
        if self.phases.is_empty() {
            return Err(RulesError::NoPhase);
        }
        if self.phases.len() > MAX_PHASES {
            return Err(RulesError::TooManyPhases(self.phases.len()));
        }
        if self.autonomy == Autonomy::Batch(0) {
            return Err(RulesError::ZeroBatch);
        }
        if self.limits.max_cost_microusd == Some(0) || self.limits.max_tokens == Some(0) {
            return Err(RulesError::ZeroBudget);
        }
        let nothing = |time: Option<Duration>| time.is_some_and(|time| time.is_zero());
        if nothing(self.limits.max_duration) {
            return Err(RulesError::ZeroTime("max-duration"));
        }
        for phase in &self.phases {
            let name = || phase.name.clone();
            if nothing(phase.limits.iteration_timeout) {
                return Err(RulesError::ZeroTime("iteration-timeout"));
            }
            if nothing(phase.limits.idle_timeout) {
                return Err(RulesError::ZeroTime("idle-timeout"));
            }
            if phase.limits.check_timeout.is_zero() {
                return Err(RulesError::ZeroTime("check-timeout"));
            }
            match phase.limits.max_iterations {
                None if !phase.until && !phase.promise => return Err(RulesError::Endless(name())),
                Some(0) => return Err(RulesError::ZeroIterations(name())),
                _ => {}
            }
            if self.limits.max_cost_microusd.is_some() && !phase.reports_cost {
                return Err(RulesError::CostUnknown(name()));
            }
            if self.limits.max_tokens.is_some() && !phase.reports_tokens {
                return Err(RulesError::TokensUnknown(name()));
            }
        }
        Ok(())
    }

    /// Returns these rules with one of them changed; what belongs to a phase is changed for the one with index `phase`.
    ///
    /// # Errors
    ///
    /// When they would make no run any more.
    pub fn with(&self, phase: u32, change: &RuleChange) -> Result<Self, RulesError> {
        let mut rules = self.clone();
        let phase = rules.phases.get_mut(phase as usize);
        let phase = phase.ok_or(RulesError::NoPhase)?;
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

    /// Returns whether a change of the phase with index `phase`, or of the run, allows more of what a person was promised when the run began:
    /// iterations, time, money, tokens, failures in a row and waiting.
    ///
    /// It is for what comes from a place that an agent can write, which must not raise what bounds it. How long a turn, a check or a pause takes
    /// is no such bound: whatever it is, those end the run where they did.
    #[must_use]
    pub fn are_raised_by(&self, phase: u32, change: &RuleChange) -> bool {
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

/// One rule, changed while the run goes on. What is used up by the new rule ends what uses it.
///
/// In its serialised form times are milliseconds, and `null` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "key", content = "value", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RuleChange {
    /// The last iteration's number in the present phase.
    MaxIterations(Option<u32>),
    /// How long one turn of the present phase may take.
    IterationTimeout(
        #[serde(with = "limit")]
        #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
        Option<Duration>,
    ),
    /// How long the agent of the present phase may give no sign of life.
    IdleTimeout(
        #[serde(with = "limit")]
        #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
        Option<Duration>,
    ),
    /// How long a gate or the check of the present phase may take.
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
    /// How many failures of one kind in a row end the run; 0 for no limit.
    MaxFailures(u32),
    /// The pause between two iterations, from the next one on.
    Sleep(
        #[serde(with = "millis")]
        #[cfg_attr(feature = "schema", schemars(with = "u64"))]
        Duration,
    ),
    /// Where the run waits for a person's word, from the next such place on.
    Autonomy(Autonomy),
    /// What the run may cost, in millionths of a US dollar.
    MaxCost(Option<u64>),
    /// How many tokens the run may use.
    MaxTokens(Option<u64>),
    /// How long the run may wait for rate limits.
    WaitOnLimit(
        #[serde(with = "millis")]
        #[cfg_attr(feature = "schema", schemars(with = "u64"))]
        Duration,
    ),
}

impl RuleChange {
    /// Returns the time that it sets, if it sets one.
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

    /// Returns whether it is a rule of a phase, rather than of the run.
    #[must_use]
    pub fn is_of_phase(&self) -> bool {
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
            _ => format!("{time:?}"),
        };
        let (rule, value) = match *self {
            Self::MaxIterations(max) => ("iterations", max.map(|max| max.to_string())),
            Self::IterationTimeout(max) => ("time of a turn", max.map(time)),
            Self::IdleTimeout(max) => ("time without a sign of life", max.map(time)),
            Self::CheckTimeout(max) => ("time of a gate or the check", Some(time(max))),
            Self::MaxDuration(max) => ("time of the run", max.map(time)),
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

/// A time in whole milliseconds, rounded up, so that no time becomes none.
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

/// The same, or none.
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
