//! The validation of a saved head: a version that this program knows, and values that a machine can have written.
//!
//! The domain types are the saved form. Tests compare a committed JSON schema with the keys and variants, and a file of samples with the bytes. An
//! unknown key of a map is skipped, so an older program reads a file that a newer one of the same version wrote. A change that an older program would
//! misread needs a new [`Version`].

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::head::MAX_NUMBER;
use crate::{
    Head, IterationFailure, IterationStep, MAX_ERRORS, MAX_PHASES, MAX_STEER_BYTES, MAX_STEERS,
    MAX_TEXT, RulesError,
};

/// The version of a saved [`Head`]. It is the first key of the map, so a reader sees it before anything that it may not know.
///
/// # Examples
///
/// ```
/// use loop_state::{Head, PhaseRules, Rules, Version};
///
/// let phase = PhaseRules { name: "main".into(), has_check: true, ..PhaseRules::default() };
/// let head = Head::new(Rules { phases: vec![phase], ..Rules::default() })?;
/// let saved = serde_json::to_string(&head)?;
/// assert!(saved.starts_with(r#"{"version":1,"#));
/// assert_eq!(serde_json::from_str::<Head>(&saved)?, head);
///
/// let error = serde_json::from_str::<Head>(r#"{"version":9,"moon":"full"}"#).unwrap_err();
/// assert!(error.to_string().contains("version 9"));
/// assert!(Version::try_from(9).unwrap_err().is_newer());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "u32", into = "u32")]
pub struct Version(());

impl Version {
    /// The only version that this program writes and reads.
    pub const NUMBER: u32 = 1;
}

impl TryFrom<u32> for Version {
    type Error = HeadError;

    fn try_from(number: u32) -> Result<Self, HeadError> {
        match number {
            Self::NUMBER => Ok(Self(())),
            0 => Err(HeadErrorKind::NoVersion.into()),
            newer => Err(HeadErrorKind::Newer(newer).into()),
        }
    }
}

impl From<Version> for u32 {
    fn from(_: Version) -> Self {
        Version::NUMBER
    }
}

/// Why a saved head is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct HeadError(#[from] HeadErrorKind);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum HeadErrorKind {
    #[error(
        "the state has version {0}, but this program supports versions up to {known}; use a newer program",
        known = Version::NUMBER
    )]
    Newer(u32),
    #[error("the state has version 0, which is invalid; use an earlier state")]
    NoVersion,
    #[error("the rules in the state are invalid: {0}")]
    Rules(#[from] RulesError),
    #[error("the state is in phase {0}, which its rules don't have; use an earlier state")]
    Phase(u32),
    #[error("the state is in iteration 0, which is invalid; use an earlier state")]
    Iteration,
    #[error("a number in the state is too large; use an earlier state")]
    Count,
    #[error("a text or list in the state is too long; use an earlier state")]
    Text,
}

impl HeadError {
    /// Returns whether a newer program wrote the state.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self.0, HeadErrorKind::Newer(_))
    }
}

impl Serialize for Head {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // This calls the derived function, not this one.
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Head {
    /// Returns only a valid head: with any input, the machine must not panic on it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // This calls the derived function, not this one.
        let head = Self::deserialize(deserializer)?;
        match head.check() {
            Ok(()) => Ok(head),
            Err(why) => Err(D::Error::custom(HeadError::from(why))),
        }
    }
}

impl Head {
    fn check(&self) -> Result<(), HeadErrorKind> {
        self.rules.validate()?;
        if self.phase as usize >= self.rules.phases.len() {
            return Err(HeadErrorKind::Phase(self.phase));
        }
        // A run that has not begun, or that is between two phases, has no iteration.
        let has_iteration = self.iteration > 0
            || matches!(
                self.step,
                IterationStep::Ready
                    | IterationStep::Sleeping { .. }
                    | IterationStep::Paused { .. }
                    | IterationStep::Review { .. }
            );
        if !has_iteration {
            return Err(HeadErrorKind::Iteration);
        }
        if self.numbers().iter().any(|n| *n > MAX_NUMBER) {
            return Err(HeadErrorKind::Count);
        }
        match self.is_bounded() {
            true => Ok(()),
            false => Err(HeadErrorKind::Text),
        }
    }

    /// Returns the numbers that the machine increments.
    fn numbers(&self) -> [u32; 21] {
        let command = match self.step {
            IterationStep::RequiredCheck { index } | IterationStep::Recheck { index } => index,
            _ => 0,
        };
        let (counts, streaks) = (&self.counts, &self.streaks);
        [
            self.iteration,
            self.attempt,
            self.highest_attempt,
            self.first_attempt,
            self.taken_attempts,
            self.iterations_since_review,
            counts.iterations,
            counts.attempts,
            counts.failed,
            counts.unfinished_attempts,
            counts.steers,
            counts.denied,
            counts.processes,
            streaks.failures,
            streaks.required_checks,
            streaks.crashes,
            streaks.no_progress,
            streaks.checks_not_run,
            self.retries.transient_failures,
            self.handover.as_ref().map_or(0, |last| last.attempt),
            command,
        ]
    }

    /// Returns whether all texts and lists are within the limits of the machine.
    fn is_bounded(&self) -> bool {
        let steers: usize = self.steers.iter().map(|steer| steer.text.len()).sum();
        let finished = &self.finished_phases;
        let errors = [&self.errors];
        let errors = { errors.into_iter() }.chain(finished.iter().map(|phase| &phase.errors));
        let is_short = |errors: &Vec<IterationFailure>| {
            errors.len() <= MAX_ERRORS && errors.iter().all(|it| it.what.len() <= MAX_TEXT)
        };
        let last = self
            .last_iteration
            .as_ref()
            .and_then(|last| last.failure.as_ref());
        let texts = [&self.session, &self.failure, &self.last_message].into_iter();
        let mut texts = { texts.flatten().chain(last) }
            .chain(self.feedback.as_ref().map(|it| &it.text))
            .chain(self.handover.as_ref().map(|it| &it.from))
            .chain(self.parent.as_ref().map(|it| &it.run))
            .chain(finished.iter().filter_map(|it| it.result.as_ref()));
        self.steers.len() <= MAX_STEERS
            && steers <= MAX_STEER_BYTES
            && self.prompt_steers.len() <= MAX_STEERS
            && finished.len() <= MAX_PHASES
            && texts.all(|text| text.len() <= MAX_TEXT)
            && errors.into_iter().all(is_short)
    }
}
