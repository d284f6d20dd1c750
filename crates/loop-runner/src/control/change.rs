//! A rule of a live run that is changed, as it is said through the control socket.

use std::time::Duration;

use loop_state::{Autonomy, RuleChange};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A rule of a live run, changed: it is on disk when it is in effect, a resume has it too, and what is used up by it ends what uses it.
///
/// What belongs to a phase is changed for the present one. `null`, `None`, is no limit; times are milliseconds in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "key", content = "value", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Change {
    /// The last iteration's number in the present phase.
    MaxIterations(Option<u32>),
    /// How long one turn of the present phase may take.
    IterationTimeout(#[serde(with = "limit")] Option<Duration>),
    /// How long the agent of the present phase may give no sign of life.
    IdleTimeout(#[serde(with = "limit")] Option<Duration>),
    /// How long a gate or the check of the present phase may take, from the next one on.
    CheckTimeout(#[serde(with = "time")] Duration),
    /// How long the run may be active.
    MaxDuration(#[serde(with = "limit")] Option<Duration>),
    /// How many failures of one kind in a row end the run; 0 for no limit.
    MaxFailures(u32),
    /// The pause between two iterations, from the next one on.
    Sleep(#[serde(with = "time")] Duration),
    /// Where the run waits for a person's word, from the next such place on.
    Autonomy(Autonomy),
    /// What the run may cost, in millionths of a US dollar.
    MaxCost(Option<u64>),
    /// How many tokens the run may use.
    MaxTokens(Option<u64>),
    /// How long the run may wait for rate limits; 0 ends it instead.
    WaitOnLimit(#[serde(with = "time")] Duration),
}

impl From<Change> for RuleChange {
    fn from(change: Change) -> Self {
        match change {
            Change::MaxIterations(max) => Self::MaxIterations(max),
            Change::IterationTimeout(max) => Self::IterationTimeout(max),
            Change::IdleTimeout(max) => Self::IdleTimeout(max),
            Change::CheckTimeout(time) => Self::CheckTimeout(time),
            Change::MaxDuration(max) => Self::MaxDuration(max),
            Change::MaxFailures(max) => Self::MaxFailures(max),
            Change::Sleep(time) => Self::Sleep(time),
            Change::Autonomy(autonomy) => Self::Autonomy(autonomy),
            Change::MaxCost(max) => Self::MaxCost(max),
            Change::MaxTokens(max) => Self::MaxTokens(max),
            Change::WaitOnLimit(time) => Self::WaitOnLimit(time),
        }
    }
}

/// Nobody waits longer than ten years, and dates beyond can't be shown.
fn bounded<E: serde::de::Error>(millis: u64) -> Result<Duration, E> {
    const MOST: Duration = Duration::from_secs(3650 * 86_400);
    let time = Duration::from_millis(millis);
    match time <= MOST {
        true => Ok(time),
        false => Err(E::custom("that is longer than 3650 days")),
    }
}

/// A time in milliseconds.
mod time {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        super::bounded(u64::deserialize(from)?)
    }
}

/// A time in milliseconds, or none.
mod limit {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            .serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        let time = Option::<u64>::deserialize(from)?;
        time.map(super::bounded).transpose()
    }
}
