//! The saved form of a run's state, apart from the live one.
//!
//! The machine's types may change with every release; what is on a disk stays as it was written. So a head is never written as it is: it becomes
//! the newest form, which is a type of its own, and every form that was ever written is read for ever (golden files hold that). Fields of a form are
//! only ever added, and have a default; what is unknown in a map is skipped, so that a program can be replaced by an older one of the same version.
//! Anything else is a new version.
//!
//! The version stands first in the map; a map without one is of version 0, from before there were versions. Events have no version of their own:
//! they are written beside a head, and the newest form of an event reads all earlier ones.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

use crate::head::MAX_NUMBER;
use crate::{Head, RulesError, Step};

pub(crate) mod form;
mod mirror;

const VERSION: &str = "version";

/// A run's state as it is saved, in the form of some version.
///
/// A state of a newer version can be deserialised too, so that the error names both versions; it becomes no [`Head`] and can't be written again.
///
/// # Examples
///
/// ```
/// use loop_state::snapshot::Snapshot;
/// use loop_state::{Head, PhaseRules, Rules};
///
/// let phase = PhaseRules { name: "main".into(), until: true, ..PhaseRules::default() };
/// let head = Head::new(Rules { phases: vec![phase], ..Rules::default() })?;
/// let saved = serde_json::to_string(&Snapshot::from(head.clone()))?;
/// assert!(saved.starts_with(r#"{"version":2,"#));
/// let loaded: Snapshot = serde_json::from_str(&saved)?;
/// assert_eq!(Head::try_from(loaded)?, head);
///
/// let newer: Snapshot = serde_json::from_str(r#"{"version":9,"moon":"full"}"#)?;
/// assert!(Head::try_from(newer).unwrap_err().is_newer());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot(Form);

#[derive(Clone, Debug)]
enum Form {
    /// Version 2, and those before it, which had fewer fields and cases.
    Known { version: u32, head: Box<form::Head> },
    /// One that this program does not know.
    Newer(u32),
}

impl Snapshot {
    /// The version that is written.
    pub const VERSION: u32 = 2;

    /// Returns the version that it was written in.
    #[must_use]
    pub fn version(&self) -> u32 {
        match self.0 {
            Form::Known { version, .. } | Form::Newer(version) => version,
        }
    }
}

/// Why a saved state can't be taken up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct SnapshotError(#[from] Kind);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Kind {
    #[error(
        "the state is of version {0}, and this program knows versions up to {known}: use a newer program",
        known = Snapshot::VERSION
    )]
    Newer(u32),
    #[error("the state's rules make no run: {0}")]
    Rules(#[from] RulesError),
    #[error(
        "the state stands in a phase with index {0}, which its rules don't have; take an earlier one"
    )]
    Phase(u32),
    #[error("the state works at iteration 0, which no run has; take an earlier one")]
    Iteration,
    #[error("the state counts further than any run can; take an earlier one")]
    Count,
}

impl SnapshotError {
    /// Returns whether a newer program has written the state.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self.0, Kind::Newer(_))
    }
}

impl From<Head> for Snapshot {
    fn from(head: Head) -> Self {
        Self(Form::Known {
            version: Self::VERSION,
            head: Box::new(head.into()),
        })
    }
}

impl TryFrom<Snapshot> for Head {
    type Error = SnapshotError;

    /// Takes a saved state up: one on which the machine can be relied on not to panic, whoever wrote it.
    fn try_from(snapshot: Snapshot) -> Result<Self, SnapshotError> {
        let head: Self = match snapshot.0 {
            Form::Newer(version) => return Err(Kind::Newer(version).into()),
            Form::Known { head, .. } => (*head).into(),
        };
        head.rules.validate().map_err(Kind::from)?;
        if head.phase as usize >= head.rules.phases.len() {
            return Err(Kind::Phase(head.phase).into());
        }
        // Only what is not begun, or lies between two phases, is of no iteration.
        let has_iteration = head.iteration > 0
            || matches!(
                head.step,
                Step::Ready | Step::Sleeping { .. } | Step::Paused { .. } | Step::Review { .. }
            );
        if !has_iteration {
            return Err(Kind::Iteration.into());
        }
        let command = match head.step {
            Step::Gate { index } | Step::Recheck { gate: index } => index,
            _ => 0,
        };
        let (counts, streaks) = (&head.counts, &head.streaks);
        let handover = head.handover.as_ref().map_or(0, |last| last.attempt);
        let numbers = [
            [head.iteration, head.attempt, head.highest_attempt],
            [head.first_attempt, head.taken_attempts, head.unreviewed],
            [counts.iterations, counts.attempts, counts.failed],
            [counts.cuts, counts.steers, counts.denied],
            [streaks.failures, streaks.gates, streaks.crashes],
            [streaks.idle, head.waits.tries, counts.processes],
            [handover, streaks.unrun, command],
        ];
        match numbers.as_flattened().iter().any(|n| *n > MAX_NUMBER) {
            true => Err(Kind::Count.into()),
            false => Ok(head),
        }
    }
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    #[serde(flatten)]
    head: &'a form::Head,
}

impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Form::Known { head, .. } => {
                let version = Self::VERSION;
                Written { version, head }.serialize(serializer)
            }
            Form::Newer(version) => Err(ser::Error::custom(Kind::Newer(*version))),
        }
    }
}

impl<'de> Deserialize<'de> for Snapshot {
    /// Needs a format that tells maps from other things, as JSON and CBOR do.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ByVersion)
    }
}

/// Looks at the version before anything else.
struct ByVersion;

impl<'de> Visitor<'de> for ByVersion {
    type Value = Snapshot;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the saved state of a run")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Snapshot, A::Error> {
        let mut first: Option<String> = map.next_key()?;
        let mut version = 0;
        if first.as_deref() == Some(VERSION) {
            version = map.next_value()?;
            first = None;
        }
        if version > Snapshot::VERSION {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Snapshot(Form::Newer(version)));
        }
        let rest = Rest { first, map };
        let head = form::Head::deserialize(MapAccessDeserializer::new(rest))?;
        let head = Box::new(head);
        Ok(Snapshot(Form::Known { version, head }))
    }
}

/// What is left of a map of which the first key was read. A version that does not stand first is not overlooked.
struct Rest<A> {
    first: Option<String>,
    map: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Rest<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        loop {
            let key = match self.first.take() {
                Some(first) => Some(first),
                None => self.map.next_key::<String>()?,
            };
            match key {
                None => return Ok(None),
                Some(key) if key == VERSION => {
                    let version: u32 = self.map.next_value()?;
                    if version > Snapshot::VERSION {
                        return Err(A::Error::custom(Kind::Newer(version)));
                    }
                }
                Some(key) => {
                    let key: StringDeserializer<A::Error> = key.into_deserializer();
                    return seed.deserialize(key).map(Some);
                }
            }
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
