//! The keys of an agent's section in a configuration file. Each options struct lists its keys next to its fields. A program that reads such files
//! makes its schema, its help and its output from this list.

/// A key of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionKey {
    /// The name of the key in the file.
    pub name: &'static str,
    /// The type of its value.
    pub kind: OptionKind,
    /// The description for users.
    pub what: &'static str,
}

/// The types that the value of a key can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// A string.
    Text,
    /// A list of strings.
    Texts,
    /// A boolean.
    Switch,
    /// An integer that is at least this number.
    Count(u32),
    /// A table of strings.
    Named,
    /// A table of any values, under the agent's own names.
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
pub(crate) const ENV: OptionKey = OptionKey::new(
    "env",
    OptionKind::Named,
    "Variables of the agent's environment.",
);
pub(crate) const ENV_ALLOW: OptionKey = OptionKey::new(
    "env-allow",
    OptionKind::Texts,
    "The only variables that the agent inherits, besides those that it needs.",
);
pub(crate) const EFFORT: OptionKey = OptionKey::new(
    "effort",
    OptionKind::Text,
    "The reasoning effort of the model, as the agent names it.",
);
pub(crate) const SYSTEM: OptionKey = OptionKey::new(
    "system-prompt",
    OptionKind::Text,
    "A text that replaces the agent's own system prompt.",
);
pub(crate) const APPEND: OptionKey = OptionKey::new(
    "append-system-prompt",
    OptionKind::Text,
    "A text after the agent's own system prompt.",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ApiOptions, ApiServer};
    use crate::{acp::AcpOptions, claude::ClaudeOptions, codex::CodexOptions};
    use serde::de::DeserializeOwned;

    /// Compares the list with the names in the error that the parser returns for an unknown key.
    fn check<T: DeserializeOwned>(keys: &[OptionKey]) {
        let Err(error) = serde_json::from_str::<T>(r#"{"no-such-key": 1}"#) else {
            panic!("an unknown key was accepted")
        };
        let error = error.to_string();
        let mut read: Vec<&str> = error.split('`').skip(1).step_by(2).skip(1).collect();
        let mut listed: Vec<&str> = keys.iter().map(|key| key.name).collect();
        read.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, read);
    }

    #[test]
    fn all_readable_keys_are_listed() {
        check::<ClaudeOptions>(ClaudeOptions::KEYS);
        check::<CodexOptions>(CodexOptions::KEYS);
        check::<AcpOptions>(AcpOptions::KEYS);
        check::<ApiOptions>(ApiOptions::KEYS);
        check::<ApiServer>(ApiServer::KEYS);
    }
}
