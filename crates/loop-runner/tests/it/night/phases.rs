//! Where in its phases the run stands, and what is asked between them.

use std::collections::BTreeMap;

use agent_subprocess::Context;

/// An attempt: its phase, its iteration within that, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) phase: u32,
    pub(crate) iteration: u32,
    pub(crate) attempt: u32,
}

impl Place {
    /// The one that a process is started for.
    pub(crate) fn of(context: &Context) -> Self {
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

    /// Its iteration.
    pub(crate) fn turn(self) -> (u32, u32) {
        (self.phase, self.iteration)
    }

    /// Whether this is the first iteration of the phase behind another one.
    pub(crate) fn enters_behind(self, other: Self) -> bool {
        self.phase == other.phase + 1 && self.iteration == 1
    }
}

/// The questions between phases and after batches.
#[derive(Debug, Default)]
pub(crate) struct Review {
    /// Whether somebody can be asked, as the present process was told.
    pub(crate) attended: bool,
    /// Whether the run waits for an answer.
    pub(crate) open: bool,
    /// Whether it has to ask before it begins the next phase.
    pub(crate) due: bool,
}

/// What the agents said last in the phases that they completed, by phase: words that come nowhere else.
pub(crate) type Results = BTreeMap<u32, Option<String>>;

/// What happened how often.
pub(crate) type Tally = BTreeMap<&'static str, u32>;
