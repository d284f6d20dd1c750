//! A person's word, as it is said through the control socket.

use loop_state::Verdict;
use serde::{Deserialize, Serialize};

/// A person's word on what was done; see [`Verdict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reviewed {
    /// The run goes on.
    Continue,
    /// It is done with what is said in mind, a phase once more.
    Revise,
    /// The phase is run again.
    StartOver,
    /// The run is stopped.
    Exit,
}

impl Reviewed {
    pub(crate) fn verdict(self, text: String) -> Verdict {
        match self {
            Self::Continue => Verdict::Continue,
            Self::Revise => Verdict::Revise(text),
            Self::StartOver => Verdict::StartOver,
            Self::Exit => Verdict::Exit,
        }
    }
}
