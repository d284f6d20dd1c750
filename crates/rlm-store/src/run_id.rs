//! The names of runs, and their validation: a name becomes a directory.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// The name of a run: 1 to 64 of `A–Z a–z 0–9 . _ -`, beginning with a letter or digit.
///
/// The name becomes a directory name, so characters that could lead elsewhere are an error, not escaped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let valid = (1..=64).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(plain);
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(Error::bad_run_id(text))
        }
    }
}

impl TryFrom<String> for RunId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::{Component, Path};

    proptest! {
        /// Each accepted name is one ordinary path component; the error of a rejected name shows it without control characters.
        #[test]
        fn x117c_run_id_cannot_lead_out_of_the_runs_directory(text in "(\\PC|[./\\\\\u{0}-\u{1f}]){0,70}") {
            match text.parse::<RunId>() {
                Ok(id) => {
                    let parts: Vec<_> = Path::new(id.as_str()).components().collect();
                    prop_assert_eq!(parts, [Component::Normal(text.as_ref())]);
                }
                Err(e) => prop_assert!(e.is_usage() && !e.to_string().contains(|c: char| c.is_control())),
            }
        }
    }
}
