//! A file of settings: its values, the line of each value, and its errors.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_drivers::api::ApiServer;
use agent_drivers::mcp::{McpServers, without_value};
use loop_state::MAX_PHASES;
use rlm_store::state_dir;
use serde::Deserialize;
use toml::Value;
use toml::de::{DeTable, DeValue, Deserializer};

use crate::config::keys::{FileOwner, KeyScope};
use crate::config::settings;
use crate::config::settings::Config;
use crate::config::tree::{SettingsTree, ValueOrigin};
use crate::exit::Failure;

/// The maximum size of a settings file: much more than a person writes.
const MAX_BYTES: u64 = 256 << 10;

/// The content of a file: for the run, and for each of its phases.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    pub(super) path: PathBuf,
    /// The text as it was read.
    pub(super) text: String,
    pub(super) tree: SettingsTree,
    pub(super) phases: Vec<(String, SettingsTree)>,
}

impl File {
    /// Reads a file; a missing file counts as empty.
    pub(super) fn read(path: &Path, whose: FileOwner) -> Result<Self, Failure> {
        if let (FileOwner::Project, Some(root)) = (whose, path.parent()) {
            let foreign = state_dir::check_owner(root, path);
            foreign.map_err(|e| Failure::usage(e.to_string()))?;
        }
        match content(path, MAX_BYTES)? {
            None => Ok(Self {
                path: path.into(),
                ..Self::default()
            }),
            Some(text) => Self::parse(path, &text, whose).map_err(Failure::usage),
        }
    }

    /// Reads the text of a file. An error is one line with its place, without the value, which may be a secret.
    pub(super) fn parse(path: &Path, text: &str, whose: FileOwner) -> Result<Self, String> {
        let at = |span: Option<std::ops::Range<usize>>, what: &str| {
            let line = LineStarts::of(text).at(span.map_or(0, |span| span.start));
            format!("`{}`, line {line}: {what}", path.display())
        };
        let wrong = |e: toml::de::Error| {
            let key = e.span().and_then(|span| key_before(text, span.start));
            at(e.span(), &describe(key, e.message()))
        };
        let mut root = DeTable::parse(text).map_err(wrong)?;
        let phases = root.get_mut().remove("phase");
        let mut this = Self {
            path: path.into(),
            text: text.into(),
            ..Self::default()
        };
        let refused = |table: &DeTable<'_>, of: KeyScope| {
            let mut names = table.keys().map(|key| (key.get_ref(), key.span()));
            names.find_map(|(name, span)| {
                Some(at(Some(span), &settings::placement_error(name, of, whose)?))
            })
        };
        if let Some(why) = refused(root.get_ref(), KeyScope::Run) {
            return Err(why);
        }
        Config::deserialize(Deserializer::from(root.clone())).map_err(wrong)?;
        this.tree = this.layer(root.get_ref(), text, whose);
        let Some(phases) = phases else {
            return Ok(this);
        };
        let span = phases.span();
        if whose == FileOwner::User {
            return Err(at(Some(span), &settings::of_projects("phase")));
        }
        let DeValue::Array(phases) = phases.into_inner() else {
            return Err(at(Some(span), "a phase must be a table: [[phase]]"));
        };
        for phase in phases {
            let span = phase.span();
            if this.phases.len() == MAX_PHASES {
                return Err(at(
                    Some(span),
                    &format!("at most {MAX_PHASES} phases are possible"),
                ));
            }
            let DeValue::Table(table) = phase.get_ref() else {
                return Err(at(Some(span), "a phase must be a table: [[phase]]"));
            };
            if let Some(why) = refused(table, KeyScope::Phase) {
                return Err(why);
            }
            let value = toml::de::ValueDeserializer::from(phase.clone());
            let config = Config::deserialize(value).map_err(wrong)?;
            let Some(name) = config.name else {
                return Err(at(
                    Some(span),
                    "this phase has no name; add one, such as name = \"plan\"",
                ));
            };
            if this.phases.iter().any(|(known, _)| *known == name.0) {
                let what = format!("two phases are named `{}`; rename one", name.0);
                return Err(at(Some(span), &what));
            }
            let mut tree = this.layer(table, text, whose);
            tree.remove(&["name"]);
            this.phases.push((name.0, tree));
        }
        Ok(this)
    }

    fn layer(&self, table: &DeTable<'_>, text: &str, whose: FileOwner) -> SettingsTree {
        let lines = LineStarts::of(text);
        let mut offsets = BTreeMap::new();
        offsets_of(&mut Vec::new(), table, &mut offsets);
        let path: Arc<Path> = self.path.as_path().into();
        let origin = |keys: &[&str]| {
            let offset = offsets.get(keys).copied().unwrap_or_default();
            ValueOrigin::File {
                path: path.clone(),
                line: lines.at(offset),
            }
        };
        let mut values = toml::Table::new();
        for (key, value) in table {
            let value = toml::de::ValueDeserializer::from(value.clone());
            let value = Value::deserialize(value).expect("a configuration consists of values");
            values.insert(key.get_ref().to_string(), value);
        }
        if whose == FileOwner::User {
            count_from(self.path.parent().unwrap_or(Path::new("/")), &mut values);
        }
        SettingsTree::of(values, &origin)
    }
}

/// Makes the paths of a file outside the project absolute.
fn count_from(place: &Path, values: &mut toml::Table) {
    let absolute = |value: &mut Value| {
        if let Value::String(path) = value
            && Path::new(path).components().count() > 1
        {
            *path = place.join(&*path).to_string_lossy().into_owned();
        }
    };
    values.get_mut("agent-bin").into_iter().for_each(absolute);
    let mut list = |section: &str, key: &str, count: usize| {
        let section = values.get_mut(section).and_then(Value::as_table_mut);
        let list = section.and_then(|section| section.get_mut(key)?.as_array_mut());
        list.into_iter().flatten().take(count).for_each(absolute);
    };
    list("acp", "program", 1);
    list("claude", "add-dirs", usize::MAX);
}

/// Finds the offset of each key in the text.
fn offsets_of<'a>(
    path: &mut Vec<&'a str>,
    table: &'a DeTable<'_>,
    found: &mut BTreeMap<Vec<&'a str>, usize>,
) {
    for (key, value) in table {
        path.push(key.get_ref());
        found.insert(path.clone(), key.span().start);
        if let DeValue::Table(below) = value.get_ref() {
            offsets_of(path, below, found);
        }
        path.pop();
    }
}

/// The offsets at which the lines of a text begin.
struct LineStarts(Vec<usize>);

impl LineStarts {
    fn of(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self(ends.map(|(at, _)| at + 1).collect())
    }

    /// Returns the line number of an offset.
    fn at(&self, offset: usize) -> usize {
        self.0.partition_point(|begin| *begin <= offset) + 1
    }
}

/// Returns the key on the same line before the value at this offset.
fn key_before(text: &str, value: usize) -> Option<&str> {
    let line = text.get(..value)?.rsplit('\n').next()?;
    let key = line.trim_end().strip_suffix('=')?.trim();
    // In an inline table, several keys can precede the value: the last one is its key.
    key.rsplit(['{', ',']).next().map(str::trim)
}

/// The number of known keys up to which a message lists them.
const MAX_LISTED_KEYS: usize = 8;

/// Describes an error. For an unknown name it suggests the nearest known name instead of all of them.
fn describe(key: Option<&str>, message: &str) -> String {
    let message = without_value(&message.trim().replace('\n', " "))
        .replace(
            "expected a nonzero u32",
            "expected a whole number of at least 1",
        )
        .replace("expected u32", "expected a whole number");
    let key = key.map_or(String::new(), |key| format!("`{key}`: "));
    let (is_key, rest) = match message.split_once(" `") {
        Some(("unknown field", rest)) => (true, rest),
        Some(("unknown variant", rest)) => (false, rest),
        _ => return format!("{key}{message}"),
    };
    let what = match is_key {
        true => "unknown key".to_owned(),
        false => format!("{key}unknown value"),
    };
    let mut names = rest.split('`').step_by(2);
    let unknown = names.next().unwrap_or_default();
    let known: Vec<&str> = names.collect();
    match nearest(unknown, &known) {
        Some(near) => format!("{what} `{unknown}`; did you mean `{near}`?"),
        None if is_key && known.len() > MAX_LISTED_KEYS => {
            format!("{what} `{unknown}`; `rlm config schema` lists all keys")
        }
        None => format!(
            "{what} `{unknown}`; expected one of `{}`",
            known.join("`, `")
        ),
    }
}

/// Returns the known name that is nearest to an unknown one.
pub(crate) fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = unknown.replace('_', "-").to_lowercase();
    let score = |name: &&str| strsim::jaro_winkler(&plain, name);
    let near = known.iter().copied().map(|name| (score(&name), name));
    let near = near.filter(|(score, _)| *score > 0.8);
    near.max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// Returns the path of a project's settings.
pub(super) fn of_project(root: &Path) -> PathBuf {
    root.join(FILE_NAME)
}

/// Accepts files of other users in the projects that the user's own file lists as `safe-directories`. Ignores the list if the file belongs to
/// another user or has an error; the code that reads the file for a command reports the error.
pub(crate) fn trust_safe_directories() {
    let Some(path) = of_user() else { return };
    let Some(place) = path.parent() else { return };
    if state_dir::check_owner(place, &path).is_err() {
        return;
    }
    if let Ok(file) = File::read(&path, FileOwner::User) {
        state_dir::trust(file.tree.config().safe_directories.unwrap_or_default());
    }
}

/// Returns the model server that the user's own settings name. A file that can't be used was reported at the start, and counts as empty.
pub(crate) fn api_server() -> ApiServer {
    let file = of_user().and_then(|path| File::read(&path, FileOwner::User).ok());
    let server = file.and_then(|file| file.tree.config().api_server);
    server.unwrap_or_default()
}

/// Returns the path of the user's own settings; `None` without a home directory.
pub(super) fn of_user() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let places = [
        named("XDG_CONFIG_HOME"),
        named("HOME").map(|home| home.join(".config")),
    ];
    let place = places
        .into_iter()
        .flatten()
        .find(|place| place.is_absolute())?;
    Some(place.join("rlm/config.toml"))
}

pub(crate) const FILE_NAME: &str = "rlm.toml";
const MAX_MCP_BYTES: u64 = 1 << 20;

/// Reads an environment variable.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|text| text.to_string_lossy().into_owned())
}

/// Reads the file with the MCP servers of a project.
pub(crate) fn read_mcp(path: &Path) -> Result<McpServers, Failure> {
    let shown = path.display();
    let Some(text) = content(path, MAX_MCP_BYTES)? else {
        let what =
            format!("`{shown}` doesn't exist; create it, or remove mcp-config from {FILE_NAME}");
        return Err(Failure::usage(what));
    };
    McpServers::from_json(&text).map_err(|e| Failure::usage(format!("`{shown}`, {e}")))
}

/// Reads a whole file; `None` if it doesn't exist.
pub(super) fn content(path: &Path, most: u64) -> Result<Option<String>, Failure> {
    let refuse = |why: String| Err(Failure::usage(format!("`{}` {why}", path.display())));
    let file = match state_dir::open_named(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Ok(None) => return refuse("is not a file; move it away".into()),
        Ok(Some(file)) => Ok(file),
        Err(e) => Err(e),
    };
    let read = file.and_then(|file| {
        let bytes = file.metadata()?.len();
        let mut text = String::new();
        if bytes > most {
            return Ok((bytes, text));
        }
        let read = file.take(most + 1).read_to_string(&mut text)?;
        Ok((read as u64, text))
    });
    match read {
        Ok((bytes, _)) if bytes > most => {
            refuse(format!("has {bytes} bytes; the limit is {most} bytes"))
        }
        Ok((_, text)) => Ok(Some(text)),
        Err(e) => refuse(format!(
            "can't be read: {}; fix it or move it away",
            e.kind()
        )),
    }
}
