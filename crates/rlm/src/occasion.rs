//! The occasions on which a command of the user is started.

use serde::{Deserialize, Serialize};

/// What a command can be told of. The words are those of `notify-on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Occasion {
    Started,
    Resumed,
    Iteration,
    Failure,
    Phase,
    Limit,
    Retry,
    Paused,
    Review,
    Question,
    Ended,
}

impl Occasion {
    /// What is told where nobody says what: that a person is needed, that the run waits for hours, and that it is over.
    pub(crate) const DEFAULT: [Self; 4] = [Self::Review, Self::Question, Self::Limit, Self::Ended];

    pub(crate) fn name(self) -> String {
        use clap::ValueEnum as _;
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
