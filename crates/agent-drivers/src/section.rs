//! The section of an agent in a configuration file: each options struct lists its keys beside its fields, and a program that reads such files makes its
//! schema, its help and what it shows of the list.

/// A key of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionKey {
    /// Its name, as it is read.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: OptionKind,
    /// The description, for people.
    pub what: &'static str,
}

/// The kinds of values that a key can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// A text.
    Text,
    /// A list of texts.
    Texts,
    /// On or off.
    Switch,
    /// A whole number from this one on.
    Count(u32),
    /// Texts by name.
    Named,
    /// Anything by name, in words of the agent's own.
    Free,
}

impl OptionKey {
    /// Makes a key.
    #[must_use]
    pub const fn new(name: &'static str, kind: OptionKind, what: &'static str) -> Self {
        Self { name, kind, what }
    }
}

// Keys that several agents have.
pub(crate) const ENV: OptionKey =
    OptionKey::new("env", OptionKind::Named, "Variables of its environment.");
pub(crate) const ENV_ALLOW: OptionKey = OptionKey::new(
    "env-allow",
    OptionKind::Texts,
    "The only variables that it inherits, besides those that it needs.",
);
pub(crate) const EFFORT: OptionKey = OptionKey::new(
    "effort",
    OptionKind::Text,
    "How hard the model shall think, in the agent's words.",
);
pub(crate) const SYSTEM: OptionKey = OptionKey::new(
    "system-prompt",
    OptionKind::Text,
    "A text in place of its own instructions.",
);
pub(crate) const APPEND: OptionKey = OptionKey::new(
    "append-system-prompt",
    OptionKind::Text,
    "A text behind its own instructions.",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{acp::AcpOptions, claude::ClaudeOptions, codex::CodexOptions};
    use serde::de::DeserializeOwned;

    /// Compares the list with the names that the reader itself gives when it refuses another.
    fn check<T: DeserializeOwned>(keys: &[OptionKey]) {
        let Err(error) = serde_json::from_str::<T>(r#"{"no-such-key": 1}"#) else {
            panic!("it takes any key")
        };
        let error = error.to_string();
        let mut read: Vec<&str> = error.split('`').skip(1).step_by(2).skip(1).collect();
        let mut listed: Vec<&str> = keys.iter().map(|key| key.name).collect();
        read.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, read);
    }

    #[test]
    fn what_is_read_is_listed_and_nothing_else() {
        check::<ClaudeOptions>(ClaudeOptions::KEYS);
        check::<CodexOptions>(CodexOptions::KEYS);
        check::<AcpOptions>(AcpOptions::KEYS);
    }
}
