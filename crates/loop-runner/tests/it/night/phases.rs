//! The position of a run in its phases, and the reviews between them.

use std::collections::BTreeMap;

use agent_subprocess::ProcessContext;

/// An attempt: its phase, its iteration within that, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) phase: u32,
    pub(crate) iteration: u32,
    pub(crate) attempt: u32,
}

impl Place {
    /// Returns the attempt that a process is started for.
    pub(crate) fn of(context: &ProcessContext) -> Self {
        let value = |name: &str| {
            let value = context.env.iter().find(|(it, _)| it == name);
            value.and_then(|(_, it)| it.to_str()).unwrap()
        };
        let number = |text: &str| text.parse().unwrap();
        Self {
            phase: number(value("RLM_PHASE").strip_prefix('p').unwrap()),
            iteration: number(value("RLM_ITERATION")),
            attempt: number(value("RLM_ATTEMPT")),
        }
    }

    /// Returns the phase and the iteration.
    pub(crate) fn turn(self) -> (u32, u32) {
        (self.phase, self.iteration)
    }

    /// Returns whether this is the first iteration of the phase after the phase of `other`.
    pub(crate) fn enters_behind(self, other: Self) -> bool {
        self.phase == other.phase + 1 && self.iteration == 1
    }
}

/// The reviews between phases and after batches.
#[derive(Debug, Default)]
pub(crate) struct Review {
    /// Whether a person is there, as the current process knows it.
    pub(crate) attended: bool,
    /// Whether the run waits for an answer.
    pub(crate) open: bool,
    /// Whether the run must ask before it begins the next phase.
    pub(crate) due: bool,
}

/// The last messages of the agents in their complete phases, by phase: unique words.
pub(crate) type Results = BTreeMap<u32, Option<String>>;

/// How often each thing happened.
pub(crate) type Tally = BTreeMap<&'static str, u32>;
