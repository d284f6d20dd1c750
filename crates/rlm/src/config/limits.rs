//! How a setting changes while a run goes on.

use std::fmt::Display;
use std::str::FromStr;

use loop_state::RuleChange;

use super::keys::Kind;
use super::values::Value;

/// The rule that a setting changes while a run goes on. `V` is its value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Live<V> {
    Value(fn(V) -> RuleChange),
    /// `none` takes the limit away.
    OrNone(fn(Option<V>) -> RuleChange),
    /// Only a person changes it: a file can't say whether a person is asked.
    ByPerson(fn(V) -> RuleChange),
}

impl<V> Live<V> {
    /// Reads what a person sets it to.
    pub(super) fn read<T>(self, text: &str) -> Result<RuleChange, String>
    where
        T: Value + FromStr<Err: Display> + Into<V>,
    {
        let value = || {
            let value = text.parse::<T>().map_err(|e| match T::KIND {
                Kind::Count(least) => {
                    format!("`{text}` is no number from {least} to {}", u32::MAX)
                }
                _ => e.to_string(),
            });
            value.map(Into::into)
        };
        match self {
            Self::OrNone(change) if text == "none" => Ok(change(None)),
            Self::OrNone(change) => Ok(change(Some(value()?))),
            Self::Value(change) | Self::ByPerson(change) => Ok(change(value()?)),
        }
    }

    /// Returns the change to what a file says.
    pub(super) fn said(self, said: Option<impl Into<V>>) -> Option<RuleChange> {
        let value = said?.into();
        match self {
            Self::Value(change) => Some(change(value)),
            Self::OrNone(change) => Some(change(Some(value))),
            Self::ByPerson(_) => None,
        }
    }

    pub(super) const fn follows_files(&self) -> bool {
        !matches!(self, Self::ByPerson(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, LIMITS};
    use std::collections::BTreeSet;

    #[test]
    fn every_rule_that_a_live_run_takes_has_a_key_here() {
        let e = serde_json::from_str::<RuleChange>(r#"{"key": "no-such-rule"}"#).unwrap_err();
        let e = e.to_string();
        let taken: BTreeSet<_> = e.split('`').skip(3).step_by(2).collect();
        assert_eq!(taken, LIMITS.iter().map(|limit| limit.key).collect());
    }

    #[test]
    fn what_is_set_and_what_a_file_says_is_the_same_change() {
        for limit in LIMITS.iter().filter(|limit| limit.key != "autonomy") {
            let file: Config = toml::from_str(&format!("{} = 7", limit.key)).unwrap();
            let change = (limit.read)("7").unwrap();
            assert_eq!((limit.said)(&file), Some(change));
            assert_eq!(serde_json::to_value(change).unwrap()["key"], limit.key);
            assert_eq!((limit.said)(&Config::default()), None);
        }
    }
}
