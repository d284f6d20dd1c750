//! Turns a definition in `settings.rs` into a field, an option and a key. Also has the keys of `on-press`, whose type is in another crate.

use agent_drivers::{OptionKey, OptionKind};
use clap::Arg;
use toml::Value as Toml;

/// Where a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyScope {
    /// Above the phases only, for the whole run.
    Run,
    /// In a phase, or above the phases for all of them.
    Phase,
    /// In a phase only.
    PhaseOnly,
    /// In the user's own file only: a project can't set it.
    User,
}

/// The owner of the file that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileOwner {
    /// Relative paths in the file start at the directory of the file.
    Project,
    User,
}

/// The kind of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValueKind {
    /// A kind that the section of an agent can have too.
    Plain(OptionKind),
    /// A duration.
    Time,
    /// A number, or text of this form.
    Amount(&'static str),
    /// Text of this form.
    Like(&'static str),
    OneOf(&'static [&'static str]),
    SomeOf(&'static [&'static str]),
    /// A list of texts of this form.
    ListLike(&'static str),
    Table(&'static [Key]),
    Servers,
    Webhooks,
}

/// The value of a setting that no layer sets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DefaultValue {
    Nothing,
    Always(fn() -> Toml),
    /// This value for agents that have a driver; none for a command agent.
    ForDriver(fn() -> Toml),
}

/// A key, and its option if it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// The name of its field in `Config`, which clap uses as the id of the option.
    pub(super) field: &'static str,
    pub(crate) kind: ValueKind,
    pub(crate) scope: KeyScope,
    /// Whether only a project can have it, because it defines the task of the project.
    pub(crate) project: bool,
    /// The description, for people.
    pub(crate) what: &'static str,
    /// The help of its option in `run -h`; without it, `run -h` doesn't list the option.
    pub(super) short: Option<&'static str>,
    /// The reason why it has no option.
    pub(super) no_flag_reason: Option<&'static str>,
    pub(crate) default: DefaultValue,
    /// The default as the help shows it, if that is more than the value.
    pub(crate) default_text: Option<&'static str>,
    /// The environment variable that sets it.
    pub(crate) env: Option<&'static str>,
}

impl Key {
    /// Creates a key with only these properties.
    pub(super) const fn new(
        name: &'static str,
        kind: ValueKind,
        of: KeyScope,
        what: &'static str,
    ) -> Self {
        Self {
            name,
            field: "",
            kind,
            scope: of,
            project: false,
            what,
            short: None,
            no_flag_reason: None,
            default: DefaultValue::Nothing,
            default_text: None,
            env: None,
        }
    }

    /// Returns the value that applies if no layer sets one.
    pub(super) fn default(&self, driven: bool) -> Option<Toml> {
        match self.default {
            DefaultValue::Nothing => None,
            DefaultValue::ForDriver(_) if !driven => None,
            DefaultValue::Always(value) | DefaultValue::ForDriver(value) => Some(value()),
        }
    }

    /// Returns the help of its option, which ends with the default.
    fn help(&self) -> String {
        let default = match (self.default_text, self.default(true)) {
            (Some(shown), _) => Some(shown.to_owned()),
            (None, Some(Toml::Boolean(_)) | None) => None,
            (None, Some(value)) => Some(plain(&value)),
        };
        let default = default.map(|it| match self.env {
            Some(variable) => format!(" [default: {it}, or {variable}]"),
            None => format!(" [default: {it}]"),
        });
        let what = self.what.strip_suffix('.').unwrap_or(self.what);
        format!("{what}{}", default.unwrap_or_default())
    }

    /// Returns the line of its option in `-h`, with the default value if it has one.
    fn short_help(&self) -> Option<String> {
        let short = self.short?;
        let default = match self.default(true) {
            Some(Toml::Boolean(_)) | None => return Some(short.to_owned()),
            Some(value) => plain(&value),
        };
        let default = self.default_text.unwrap_or(&default);
        // The text of a default can name exceptions after the value.
        let default = default.split_once(',').map_or(default, |(value, _)| value);
        Some(format!("{short} [default: {default}]"))
    }
}

/// Writes a value as on the command line.
fn plain(value: &Toml) -> String {
    match value {
        Toml::String(text) => text.clone(),
        Toml::Array(several) => several.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Gives the option of a setting its help, and the properties that all options of its kind have.
pub(super) fn option(keys: &[Key], option: Arg) -> Arg {
    let id = option.get_id().as_str();
    let key = keys.iter().find(|key| key.field == id);
    let Some(key) = key.filter(|key| key.no_flag_reason.is_none()) else {
        return option;
    };
    let option = match key.short_help() {
        Some(short) => option.help(short).long_help(key.help()),
        None => option.help(key.help()).hide_short_help(true),
    };
    match key.kind {
        ValueKind::Time => option.value_name("TIME"),
        ValueKind::Plain(OptionKind::Count(_)) => option.value_name("N"),
        ValueKind::OneOf(_) | ValueKind::SomeOf(_) => option.hide_possible_values(true),
        // `--NAME` without a value switches it on; `--NAME=false` switches it off again, for example in a resume.
        ValueKind::Plain(OptionKind::Switch) => option
            .value_name("true|false")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .hide_possible_values(true),
        _ => option,
    }
}

/// Converts a default to a TOML value.
pub(super) fn toml<T: serde::Serialize>(default: T) -> Toml {
    Toml::try_from(default).expect("a default converts to TOML")
}

/// Writes the name of a field as the name of its key.
pub(super) const fn kebab<const N: usize>(field: &str) -> [u8; N] {
    let (field, mut name, mut at) = (field.as_bytes(), [0; N], 0);
    while at < N {
        name[at] = if field[at] == b'_' { b'-' } else { field[at] };
        at += 1;
    }
    name
}

/// Returns the key of a field.
macro_rules! name_of {
    ($field:ident) => {{
        const NAME: [u8; stringify!($field).len()] = kebab(stringify!($field));
        match str::from_utf8(&NAME) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        }
    }};
}

/// Returns the kind of a setting: a section with these keys, or the kind of its type. The caller imports the names that the macro uses.
macro_rules! type_kind {
    ($type:ty, $keys:expr) => {
        ValueKind::Table({
            const KEYS: &[Key] = &section::<{ $keys.len() }>($keys);
            KEYS
        })
    };
    ($type:ty) => {
        <$type as Value>::KIND
    };
}

/// Creates `Config`, `KEYS` and `LIMITS` from the definitions of all settings. The caller imports the names that the macro uses.
macro_rules! settings {
    ($(
        $(#[doc = $what:literal])+
        $field:ident: $type:ty {
            of: $of:ident,
            $(keys: $keys:expr,)?
            $(project: $project:literal,)?
            $(flag: ($($flag:tt)*),)?
            $(no_flag: $no_flag:literal,)?
            $(serde: ($($serde:tt)*),)?
            $(default: $when:ident($default:expr),)?
            $(shown: $shown:literal,)?
            $(env: $env:expr,)?
            $(live: $live:expr,)?
            $(short: $short:literal,)?
        }
    )+) => {
        /// The settings of one layer, or of all layers together; an absent setting is `None`. `rlm.toml` and the options of `run` and `resume` are
        /// read into it. Serialised, it has the options that were given, as a file would write them.
        #[derive(Debug, Default, PartialEq, Eq, clap::Args, serde::Deserialize, serde::Serialize)]
        #[command(mut_args(|it| option(KEYS, it)))]
        #[serde(rename_all = "kebab-case", deny_unknown_fields)]
        pub(crate) struct Config {
            $(
                $(#[doc = $what])+
                $(#[arg(long, $($flag)*)])?
                $(#[arg(skip)] #[serde(skip_serializing)] #[doc = concat!("No option: ", $no_flag)])?
                $(#[serde($($serde)*)])?
                pub(crate) $field: Option<$type>,
            )+
        }

        /// The keys above the phases and in a phase.
        pub(crate) const KEYS: &[Key] = &[$(Key {
            field: stringify!($field),
            $(project: $project,)?
            $(no_flag_reason: Some($no_flag),)?
            $(default: DefaultValue::$when(|| toml::<$type>($default)),)?
            $(default_text: Some($shown),)?
            $(env: Some($env),)?
            $(short: Some($short),)?
            ..Key::new(
                name_of!($field),
                type_kind!($type $(, $keys)?),
                KeyScope::$of,
                concat!($($what),+).trim_ascii(),
            )
        },)+];

        /// The settings that can change in a live run.
        pub(crate) const LIMITS: &[LiveSetting] = &[$($(
            LiveSetting {
                key: name_of!($field),
                read: |text| $live.read::<$type>(text),
                from_file: |config| $live.change_from_file(config.$field),
                follows_files: $live.follows_files(),
            },
        )?)+];
    };
}

pub(super) use {name_of, settings, type_kind};

const fn run(name: &'static str, kind: ValueKind, what: &'static str) -> Key {
    Key::new(name, kind, KeyScope::Run, what)
}

use ValueKind::OneOf;

/// Creates the keys of an agent's section.
pub(super) const fn section<const N: usize>(of: &[OptionKey]) -> [Key; N] {
    let mut keys = [Key::new("", ValueKind::Plain(OptionKind::Text), KeyScope::Phase, ""); N];
    let mut at = 0;
    while at < N {
        keys[at] = Key::new(
            of[at].name,
            ValueKind::Plain(of[at].kind),
            KeyScope::Phase,
            of[at].what,
        );
        at += 1;
    }
    keys
}

const PRESS: ValueKind = OneOf(&["prompt", "continue", "steer", "stop", "abort"]);

pub(super) const PRESSES: &[Key] = &[
    run("default", PRESS, "In all parts without their own action."),
    run("spawn", PRESS, "While the agent starts."),
    run("turn", PRESS, "While the agent works."),
    run("gate", PRESS, "While a required check or the check runs."),
    run("save", PRESS, "While rlm saves or commits."),
    run("sleep", PRESS, "While the run sleeps between iterations."),
    run("wait", PRESS, "While the run waits for a rate limit."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::values::AcpSection;
    use crate::config::{Config, KEYS};
    use rlm_terminal::PressActions;
    use serde::de::DeserializeOwned;

    /// Returns all keys of a table, from the error message of its parser.
    fn read<T: DeserializeOwned>() -> Vec<String> {
        let Err(e) = toml::from_str::<T>("no-such-key = 1") else {
            panic!("it accepts any key")
        };
        let mut names: Vec<_> = e
            .message()
            .split('`')
            .skip(1)
            .step_by(2)
            .skip(1)
            .map(str::to_owned)
            .collect();
        names.sort();
        names
    }

    fn listed(keys: &[Key]) -> Vec<&str> {
        let mut names: Vec<_> = keys.iter().map(|key| key.name).collect();
        names.sort();
        names
    }

    #[test]
    fn all_readable_keys_are_listed() {
        assert_eq!(
            listed(&section::<4>(AcpSection::KEYS)),
            read::<AcpSection>()
        );
        assert_eq!(listed(PRESSES), read::<PressActions>());
    }

    #[test]
    fn listed_values_of_a_choice_are_accepted() {
        for key in KEYS.iter().chain(PRESSES) {
            let (words, open, close) = match key.kind {
                OneOf(words) => (words, "", ""),
                ValueKind::SomeOf(words) => (words, "[", "]"),
                _ => continue,
            };
            let section = PRESSES.iter().any(|press| std::ptr::eq(press, key));
            let line = |word: &str| match section {
                true => format!("on-press.{} = \"{word}\"", key.name),
                false => format!("{} = {open}\"{word}\"{close}", key.name),
            };
            for word in words {
                toml::from_str::<Config>(&line(word)).unwrap();
            }
            let e = toml::from_str::<Config>(&line("no-such-word")).unwrap_err();
            let read: Vec<_> = e.message().split('`').skip(1).step_by(2).skip(1).collect();
            assert_eq!(read, *words, "{}", key.name);
        }
    }
}
