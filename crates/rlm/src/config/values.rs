//! The types of the settings: how a file and an option write them, their schema, and how they change in a live run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fmt::Display;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use agent_drivers::acp::AcpOptions;
use agent_drivers::mcp::McpServers;
use agent_drivers::{OptionKey, OptionKind, Redacted};
use agent_duplex::Permissions;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use loop_state::{Autonomy, PauseAfter, RuleChange, SessionPolicy, StopTiming, times};
use rlm_store::Leftovers;
use rlm_terminal::PressActions;
use rlm_text::{bytes, duration, money};
use serde::de::value::{Error, StringDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::agents::AgentKind;
use crate::config::keys;
use crate::config::keys::ValueKind;

/// A type that a setting can have.
pub(crate) trait Value {
    /// The kind of its values, for the schema, for merging and for display.
    const KIND: ValueKind;
}

macro_rules! kinds {
    ($($type:ty: $kind:expr;)+) => {
        $(impl Value for $type {
            const KIND: ValueKind = $kind;
        })+
    };
}

kinds! {
    bool: ValueKind::Plain(OptionKind::Switch);
    u32: ValueKind::Plain(OptionKind::Count(0));
    NonZeroU32: ValueKind::Plain(OptionKind::Count(1));
    String: ValueKind::Plain(OptionKind::Text);
    PathBuf: ValueKind::Plain(OptionKind::Text);
    PhaseName: ValueKind::Plain(OptionKind::Text);
    Title: ValueKind::Plain(OptionKind::Text);
    Vec<String>: ValueKind::Plain(OptionKind::Texts);
    Vec<PathBuf>: ValueKind::Plain(OptionKind::Texts);
    Time: ValueKind::Time;
    Debounce: ValueKind::Time;
    Usd: ValueKind::Amount(r"^\$?[0-9]+(\.[0-9]{1,6})?( ?USD)?$");
    Tokens: ValueKind::Amount("^[0-9]+[kKmM]?$");
    Bytes: ValueKind::Amount(r"^[0-9]+ ?([kKmMgGtT]?[bB]|[kKmMgG][iI][bB])?$");
    Autonomy: ValueKind::Like("^(checkpoint|full|batch:[1-9][0-9]*)$");
    AgentKind: ValueKind::OneOf(AgentKind::NAMES);
    Permissions: ValueKind::OneOf(&["ask", "edits", "all", "deny"]);
    SessionPolicy: ValueKind::OneOf(&["fresh", "continue"]);
    Leftovers: ValueKind::OneOf(&["end", "keep"]);
    StopTiming: ValueKind::OneOf(&["now", "iteration"]);
    PauseAfter: ValueKind::OneOf(&["iteration", "tool"]);
    Vec<NotifyChannel>: ValueKind::ListLike(r"^(bell|desktop|webhook|command:[\s\S]+)$");
    Vec<Webhook>: ValueKind::Webhooks;
    Vec<NotifyEvent>: ValueKind::SomeOf(&[
        "started", "resumed", "iteration", "iteration-failed", "phase", "limit", "retry", "paused", "review",
        "permission", "done", "stuck", "stopped", "failed",
    ]);
    McpServers: ValueKind::Servers;
    PressActions: ValueKind::Table(keys::PRESSES);
}

/// Returns the parser of an option that accepts the words of a type, as a file does.
pub(crate) fn one_of<T>() -> impl TypedValueParser<Value = T>
where
    T: Value + DeserializeOwned + Clone + Send + Sync + 'static,
{
    let ValueKind::OneOf(words) = T::KIND else {
        unreachable!("the type is a choice")
    };
    PossibleValuesParser::new(words).try_map(|word| {
        let word: StringDeserializer<Error> = word.into_deserializer();
        T::deserialize(word)
    })
}

/// Writes a path as text. A path that is not UTF-8 comes from the command line, and the caller uses it from there.
#[expect(clippy::ref_option, reason = "serde passes it this way")]
pub(crate) fn path_as_text<S: Serializer>(
    path: &Option<PathBuf>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => to.serialize_some(&path.to_string_lossy()),
        None => to.serialize_none(),
    }
}

/// A duration: text such as `90s` or `1h30m`, or a whole number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Time(#[serde(serialize_with = "duration::serialize_text")] pub(crate) Duration);

/// An amount of money, in millionths of a US dollar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Usd(
    #[serde(
        deserialize_with = "money::deserialize_cost",
        serialize_with = "money::serialize_text"
    )]
    pub(crate) u64,
);

/// A number of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Tokens(#[serde(deserialize_with = "money::deserialize_tokens")] pub(crate) u64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Bytes(
    #[serde(
        deserialize_with = "bytes::deserialize",
        serialize_with = "bytes::serialize_text"
    )]
    pub(crate) u64,
);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        duration::parse(text).map(Self)
    }
}

impl FromStr for Usd {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        money::parse(text).map(Self)
    }
}

impl FromStr for Tokens {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        money::tokens(text).map(Self)
    }
}

impl From<Duration> for Time {
    fn from(time: Duration) -> Self {
        Self(time)
    }
}

impl From<Time> for Duration {
    fn from(time: Time) -> Self {
        time.0
    }
}

impl From<Usd> for u64 {
    fn from(micro: Usd) -> Self {
        micro.0
    }
}

impl From<Bytes> for u64 {
    fn from(bytes: Bytes) -> Self {
        bytes.0
    }
}

impl From<Tokens> for u64 {
    fn from(tokens: Tokens) -> Self {
        tokens.0
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"90s\" or \"1h30m\", or a whole number of seconds")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Time, E> {
                self.visit_str(&seconds.to_string())
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// The debounce of Ctrl-C. It is short, because presses within it have no effect, and a file of a project can set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Time")]
pub(crate) struct Debounce(Time);

impl Debounce {
    pub(crate) const DEFAULT: Self = Self(Time(times::DEBOUNCE));
}

impl TryFrom<Time> for Debounce {
    type Error = String;

    fn try_from(time: Time) -> Result<Self, String> {
        match time.0 <= times::MAX_DEBOUNCE {
            true => Ok(Self(time)),
            false => Err(format!(
                "a debounce is at most {}: a longer one would ignore your Ctrl-C",
                duration::show(times::MAX_DEBOUNCE)
            )),
        }
    }
}

impl FromStr for Debounce {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<Time>()?.try_into()
    }
}

impl From<Debounce> for Duration {
    fn from(debounce: Debounce) -> Self {
        debounce.0.0
    }
}

/// The name of a phase: short, and safe to show and to use in a file name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct PhaseName(pub(crate) String);

impl TryFrom<String> for PhaseName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        match begins && text.len() <= 32 && text.chars().all(is_plain) {
            true => Ok(Self(text)),
            false => Err(
                "the name of a phase has 1 to 32 letters, digits, `.`, `_` and `-`, and begins with a letter or digit",
            ),
        }
    }
}

/// The title of a run: a short text that is not empty. The renderer escapes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String")]
pub(crate) struct Title(String);

impl Title {
    const MAX_CHARS: usize = 80;
}

impl TryFrom<String> for Title {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.chars().count() {
            1..=Self::MAX_CHARS => Ok(Self(text)),
            0 => Err("a title has at least one character".into()),
            many => Err(format!(
                "a title has at most {} characters; this one has {many}",
                Self::MAX_CHARS
            )),
        }
    }
}

impl FromStr for Title {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.to_owned().try_into()
    }
}

impl From<Title> for String {
    fn from(title: Title) -> Self {
        title.0
    }
}

/// The section of an agent that is named by its program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct AcpSection {
    program: Vec<String>,
    auth_method: Option<String>,
    env: Redacted<BTreeMap<String, String>>,
    env_allow: Option<Vec<String>>,
}

impl AcpSection {
    /// The keys of the section: the program and the options.
    pub(super) const KEYS: &[OptionKey] = {
        let [auth_method, env, env_allow] = AcpOptions::KEYS else {
            panic!("an option is missing here")
        };
        &[
            OptionKey::new(
                "program",
                OptionKind::Texts,
                "The program, and the arguments with which it speaks the protocol.",
            ),
            *auth_method,
            *env,
            *env_allow,
        ]
    };

    /// Returns the program and the arguments with which it speaks the protocol; empty if the file has none.
    pub(crate) fn program(&self, root: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = self.program.iter().map(Into::into).collect();
        if let Some(first) = words.first_mut()
            && Path::new(first).components().count() > 1
        {
            *first = root.join(&*first).into();
        }
        words
    }

    pub(crate) fn options(self) -> AcpOptions {
        AcpOptions {
            auth_method: self.auth_method,
            env: self.env,
            env_allow: self.env_allow,
        }
    }
}

/// How a setting changes a rule of a live run. `V` is the type of the rule's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum LiveRule<V> {
    Value(fn(V) -> RuleChange),
    /// `none` removes the limit.
    OrNone(fn(Option<V>) -> RuleChange),
    /// Only a person can change it: a file may not decide whether the run asks a person.
    ByPerson(fn(V) -> RuleChange),
}

impl<V> LiveRule<V> {
    /// Reads the value that a person sets.
    pub(super) fn read<T>(self, text: &str) -> Result<RuleChange, String>
    where
        T: Value + FromStr<Err: Display> + Into<V>,
    {
        let value = || {
            let value = text.parse::<T>().map_err(|e| match T::KIND {
                ValueKind::Plain(OptionKind::Count(least)) => {
                    format!("`{text}` is not a number from {least} to {}", u32::MAX)
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

    /// Returns the change that a file requests.
    pub(super) fn change_from_file(self, in_file: Option<impl Into<V>>) -> Option<RuleChange> {
        let value = in_file?.into();
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

/// A channel for notifications, as `notify` names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum NotifyChannel {
    /// The bell of the terminal.
    Bell,
    /// A notification of the desktop.
    Desktop,
    /// Each webhook of the user's own file.
    Webhook,
    /// A command that `sh -c` runs.
    Command(String),
}

impl TryFrom<String> for NotifyChannel {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let command = text.strip_prefix("command:").map(str::trim);
        Ok(match (text.as_str(), command) {
            ("bell", _) => Self::Bell,
            ("desktop", _) => Self::Desktop,
            ("webhook", _) => Self::Webhook,
            (_, Some("")) => return Err("there is no command after `command:`; add it".into()),
            (_, Some(command)) => Self::Command(command.to_owned()),
            (_, None) => {
                return Err(
                    "expected `desktop`, `webhook`, `bell` or `command:` and a command".into(),
                );
            }
        })
    }
}

impl FromStr for NotifyChannel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.to_owned().try_into()
    }
}

impl From<NotifyChannel> for String {
    fn from(channel: NotifyChannel) -> Self {
        match channel {
            NotifyChannel::Bell => "bell".into(),
            NotifyChannel::Desktop => "desktop".into(),
            NotifyChannel::Webhook => "webhook".into(),
            NotifyChannel::Command(command) => format!("command:{command}"),
        }
    }
}

/// A webhook of the user's own file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Webhook {
    /// The address, which is a secret.
    pub(crate) url: SecretText,
    /// The form of the JSON; without it, the host of the address decides.
    pub(crate) preset: Option<WebhookPreset>,
    /// The name of the variable with the access token.
    pub(crate) token_variable: Option<String>,
}

/// The form of the JSON that a webhook expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WebhookPreset {
    /// The event with all its data.
    Json,
    Ntfy,
    Slack,
    Discord,
}

/// A text that is a secret: its `Debug` form doesn't show it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct SecretText(pub(crate) String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// An event that channels report. The words are those of `notify-on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NotifyEvent {
    Started,
    Resumed,
    Iteration,
    IterationFailed,
    Phase,
    Limit,
    Retry,
    Paused,
    Review,
    Permission,
    Done,
    Stuck,
    Stopped,
    Failed,
}

impl NotifyEvent {
    /// The default: the run needs a person, waits for hours, or ended.
    pub(crate) const DEFAULT: [Self; 7] = [
        Self::Review,
        Self::Permission,
        Self::Limit,
        Self::Done,
        Self::Stuck,
        Self::Stopped,
        Self::Failed,
    ];

    /// Returns whether it is the end of the run.
    pub(crate) fn is_end(self) -> bool {
        matches!(
            self,
            Self::Done | Self::Stuck | Self::Stopped | Self::Failed
        )
    }

    pub(crate) fn name(self) -> String {
        use clap::ValueEnum as _;
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use crate::config::{Config, LIMITS};

    #[test]
    fn every_rule_of_a_live_run_has_a_key() {
        let e = serde_json::from_str::<RuleChange>(r#"{"key": "no-such-rule"}"#).unwrap_err();
        let e = e.to_string();
        let taken: BTreeSet<_> = e.split('`').skip(3).step_by(2).collect();
        assert_eq!(taken, LIMITS.iter().map(|limit| limit.key).collect());
    }

    #[test]
    fn set_command_and_file_make_the_same_change() {
        for limit in LIMITS.iter().filter(|limit| limit.key != "autonomy") {
            let file: Config = toml::from_str(&format!("{} = 7", limit.key)).unwrap();
            let change = (limit.read)("7").unwrap();
            assert_eq!((limit.from_file)(&file), Some(change));
            assert_eq!(serde_json::to_value(change).unwrap()["key"], limit.key);
            assert_eq!((limit.from_file)(&Config::default()), None);
        }
    }
}
