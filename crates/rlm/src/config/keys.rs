//! How a definition in `settings.rs` becomes a field, an option and a key; and the keys of `on-press`, whose type is elsewhere.

use agent_drivers::{OptionKey, OptionKind};
use clap::Arg;
use toml::Value as Toml;

/// Where a key may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// Above the phases only: it is of the whole run.
    Run,
    /// In a phase too, or above the phases for all of them.
    Phase,
    /// In a phase only.
    PhaseOnly,
    /// In the user's own file only: a project has no say in it.
    User,
}

/// Whose file a key is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// What it names by a path counts from where it lies, as its reader does it.
    Project,
    User,
}

/// What a value can be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Text,
    Texts,
    Switch,
    /// A whole number from this one on.
    Count(u32),
    /// A duration.
    Time,
    /// A number, or text of this form.
    Amount(&'static str),
    /// Text of this form.
    Like(&'static str),
    OneOf(&'static [&'static str]),
    SomeOf(&'static [&'static str]),
    /// Texts by name.
    Named,
    /// Anything, in words of the agent's own.
    Free,
    Table(&'static [Key]),
    Servers,
}

/// What counts where nothing is said.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fallback {
    Nothing,
    Always(fn() -> Toml),
    /// This for agents that `rlm` drives; for a command nothing.
    Driven(fn() -> Toml),
}

/// A key, and its option if it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// The name of its field in `Config`, which is its option's for clap.
    pub(super) field: &'static str,
    pub(crate) kind: Kind,
    pub(crate) of: Of,
    /// Whether only a project can have it: it says what is to be done there, and when that is done.
    pub(crate) project: bool,
    /// The description, for people.
    pub(crate) what: &'static str,
    /// Why it has no option, if it has none.
    pub(super) no_flag: Option<&'static str>,
    pub(crate) default: Fallback,
    /// The default as the help puts it, where that is more than the value.
    pub(crate) shown: Option<&'static str>,
    /// The variable of the environment that sets it.
    pub(crate) env: Option<&'static str>,
}

impl Key {
    /// Makes a key of which nothing else is said.
    pub(super) const fn new(name: &'static str, kind: Kind, of: Of, what: &'static str) -> Self {
        Self {
            name,
            field: "",
            kind,
            of,
            project: false,
            what,
            no_flag: None,
            default: Fallback::Nothing,
            shown: None,
            env: None,
        }
    }

    /// Returns what counts where nothing is said.
    pub(super) fn default(&self, driven: bool) -> Option<Toml> {
        match self.default {
            Fallback::Nothing => None,
            Fallback::Driven(_) if !driven => None,
            Fallback::Always(value) | Fallback::Driven(value) => Some(value()),
        }
    }

    /// Returns its help, which ends with the default.
    fn help(&self) -> String {
        let default = match (self.shown, self.default(true)) {
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
}

/// Writes a value as the command line has it.
fn plain(value: &Toml) -> String {
    match value {
        Toml::String(text) => text.clone(),
        Toml::Array(several) => several.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Gives the option of a setting its help, and what all options of its kind have.
pub(super) fn option(keys: &[Key], option: Arg) -> Arg {
    let id = option.get_id().as_str();
    let key = keys.iter().find(|key| key.field == id);
    let Some(key) = key.filter(|key| key.no_flag.is_none()) else {
        return option;
    };
    let option = option.help(key.help());
    match key.kind {
        Kind::Time => option.value_name("TIME"),
        Kind::Count(_) => option.value_name("N"),
        Kind::OneOf(_) | Kind::SomeOf(_) => option.hide_possible_values(true),
        // It is on when nothing is said behind it, and `--NAME=false` turns it off again, such as for a resume.
        Kind::Switch => option
            .value_name("true|false")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .hide_possible_values(true),
        _ => option,
    }
}

/// Makes the value of a default.
pub(super) fn toml<T: serde::Serialize>(default: T) -> Toml {
    Toml::try_from(default).expect("a default is plain data")
}

/// Writes the name of a field as that of its key.
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

/// Returns what a setting can be: a section of these keys, or what its type says. The names that it uses are imported where it is called.
macro_rules! type_kind {
    ($type:ty, $keys:expr) => {
        Kind::Table({
            const KEYS: &[Key] = &section::<{ $keys.len() }>($keys);
            KEYS
        })
    };
    ($type:ty) => {
        <$type as Value>::KIND
    };
}

/// Makes `Config`, `KEYS` and `LIMITS` of the definitions of all settings. The names that it uses are imported where it is called.
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
        }
    )+) => {
        /// What one layer says, or all of them together; what is absent is `None`. It is what `rlm.toml` can say, and the options of `run` and
        /// `resume`; written out, it is those of the options that were given, as a file would say them.
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

        /// The keys at the top and of a phase.
        pub(crate) const KEYS: &[Key] = &[$(Key {
            field: stringify!($field),
            $(project: $project,)?
            $(no_flag: Some($no_flag),)?
            $(default: Fallback::$when(|| toml::<$type>($default)),)?
            $(shown: Some($shown),)?
            $(env: Some($env),)?
            ..Key::new(
                name_of!($field),
                type_kind!($type $(, $keys)?),
                Of::$of,
                concat!($($what),+).trim_ascii(),
            )
        },)+];

        /// The settings that can change while a run goes on.
        pub(crate) const LIMITS: &[Limit] = &[$($(
            Limit {
                key: name_of!($field),
                read: |text| $live.read::<$type>(text),
                said: |config| $live.said(config.$field),
                follows_files: $live.follows_files(),
            },
        )?)+];
    };
}

pub(super) use {name_of, settings, type_kind};

const fn run(name: &'static str, kind: Kind, what: &'static str) -> Key {
    Key::new(name, kind, Of::Run, what)
}

use Kind::OneOf;

/// Makes keys of what an agent's section may say.
pub(super) const fn section<const N: usize>(of: &[OptionKey]) -> [Key; N] {
    let mut keys = [Key::new("", Kind::Text, Of::Phase, ""); N];
    let mut at = 0;
    while at < N {
        let kind = match of[at].kind {
            OptionKind::Text => Kind::Text,
            OptionKind::Texts => Kind::Texts,
            OptionKind::Switch => Kind::Switch,
            OptionKind::Count(least) => Kind::Count(least),
            OptionKind::Named => Kind::Named,
            OptionKind::Free => Kind::Free,
        };
        keys[at] = Key::new(of[at].name, kind, Of::Phase, of[at].what);
        at += 1;
    }
    keys
}

const PRESS: Kind = OneOf(&["prompt", "continue", "steer", "stop", "abort"]);

pub(super) const PRESSES: &[Key] = &[
    run("default", PRESS, "Wherever nothing else is said."),
    run("spawn", PRESS, "While the agent is being started."),
    run("turn", PRESS, "In a turn of the agent."),
    run("gate", PRESS, "While gates or the check run."),
    run(
        "save",
        PRESS,
        "Between an iteration's work and the next one.",
    ),
    run("sleep", PRESS, "In the pause between iterations."),
    run("wait", PRESS, "While a rate limit is waited for."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::values::AcpSection;
    use crate::config::{Config, KEYS};
    use rlm_terminal::PressActions;
    use serde::de::DeserializeOwned;

    /// All that a table can have, as the reader itself says it.
    fn read<T: DeserializeOwned>() -> Vec<String> {
        let Err(e) = toml::from_str::<T>("no-such-key = 1") else {
            panic!("it takes any key")
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
    fn what_is_read_is_listed_and_nothing_else() {
        assert_eq!(
            listed(&section::<4>(AcpSection::KEYS)),
            read::<AcpSection>()
        );
        assert_eq!(listed(PRESSES), read::<PressActions>());
    }

    #[test]
    fn the_words_of_a_choice_are_those_that_are_read() {
        for key in KEYS.iter().chain(PRESSES) {
            let (words, open, close) = match key.kind {
                OneOf(words) => (words, "", ""),
                Kind::SomeOf(words) => (words, "[", "]"),
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
