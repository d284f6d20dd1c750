//! The effective settings, for people and programs: each value, its source, and the values that it overrides. Secrets are redacted.

use std::ffi::OsString;
use std::path::Path;

use agent_drivers::OptionKind;
use agent_drivers::mcp::{McpServer, McpServers};
use loop_state::Autonomy;
use serde::Deserialize;
use toml::Value;

use super::keys::{KeyScope, ValueKind};
use super::layers::{Layers, defaults};
use super::settings::{self, KEYS};
use super::tree::{Leaf, SettingsTree, ValueOrigin};
use crate::agents::{self, AgentKind};

/// An effective value.
#[derive(Debug)]
pub(crate) struct EffectiveValue {
    /// The key, after the keys of the tables around it.
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) origin: ValueOrigin,
    /// The values that it overrides, the nearest first.
    pub(crate) overridden: Vec<(Value, ValueOrigin)>,
}

/// The effective settings of the run, or of one of its phases.
#[derive(Debug)]
pub(crate) struct SettingsGroup {
    pub(crate) phase: Option<String>,
    pub(crate) rows: Vec<EffectiveValue>,
    /// The reason why the agent is not known.
    pub(crate) unknown_agent: Option<String>,
    /// The keys that have neither a value nor a default.
    pub(crate) unset_keys: Vec<&'static str>,
}

/// Returns the effective settings: one group, or with phases one group for the run and one for each phase.
pub(crate) fn groups(layers: &Layers, words: &[OsString], directory: &Path) -> Vec<SettingsGroup> {
    let mut groups = Vec::new();
    if layers.has_phases() {
        let tree = with_autonomy(layers.run().merged_over(defaults(false)), layers);
        groups.push(group(None, tree, &[KeyScope::Run, KeyScope::User], None));
    }
    for phase in layers.phases() {
        let config = phase.tree.config();
        let command = config.command();
        let chosen = agents::choose(config.agent, words, command.as_deref(), directory);
        let driven = !matches!(chosen, Ok(AgentKind::Command));
        let mut tree = phase.tree.merged_over(defaults(driven));
        let why = match chosen {
            Ok(kind) if config.agent.is_none() => {
                let origin = match (words, command) {
                    ([], None) => ValueOrigin::Found,
                    ([], Some(_)) => tree
                        .leaf("command")
                        .map_or(ValueOrigin::Found, |leaf| leaf.origin.clone()),
                    _ => ValueOrigin::Flag("--".into()),
                };
                tree.insert("agent", kind.name().into(), origin);
                None
            }
            chosen => chosen.err().map(|failure| failure.message),
        };
        groups.push(match layers.has_phases() {
            true => group(Some(phase.name), tree, &[KeyScope::Phase], why),
            false => {
                let tree = with_autonomy(tree, layers);
                group(
                    None,
                    tree,
                    &[KeyScope::Run, KeyScope::User, KeyScope::Phase],
                    why,
                )
            }
        });
    }
    groups
}

/// Adds the default of `autonomy`, which depends on the number of phases.
fn with_autonomy(mut tree: SettingsTree, layers: &Layers) -> SettingsTree {
    if tree.leaf("autonomy").is_none() {
        let autonomy = match layers.phases().len() {
            ..2 => Autonomy::Full,
            _ => Autonomy::Checkpoint,
        };
        tree.insert(
            "autonomy",
            autonomy.to_string().into(),
            ValueOrigin::Default,
        );
    }
    tree
}

fn group(
    phase: Option<String>,
    tree: SettingsTree,
    of: &[KeyScope],
    unknown_agent: Option<String>,
) -> SettingsGroup {
    let leaves = tree.leaves();
    let keys = KEYS.iter().filter(|key| of.contains(&key.scope));
    let (mut rows, mut unset) = (Vec::new(), Vec::new());
    for key in keys {
        let mut set = leaves
            .iter()
            .filter(|(path, _)| path[0] == key.name)
            .peekable();
        if set.peek().is_none() && !matches!(key.kind, ValueKind::Table(_) | ValueKind::Servers) {
            unset.push(key.name);
        }
        rows.extend(set.map(|(path, leaf)| row(path, leaf)));
    }
    SettingsGroup {
        phase,
        rows,
        unknown_agent,
        unset_keys: unset,
    }
}

fn row(path: &[&str], leaf: &Leaf) -> EffectiveValue {
    let over = leaf.overridden.iter();
    EffectiveValue {
        key: path
            .iter()
            .map(|key| quoted(key))
            .collect::<Vec<_>>()
            .join("."),
        value: without_secrets(path, &leaf.value),
        origin: leaf.origin.clone(),
        overridden: over
            .map(|(value, origin)| (without_secrets(path, value), origin.clone()))
            .collect(),
    }
}

/// Writes a key as in the file.
fn quoted(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !key.is_empty() && key.chars().all(is_bare) {
        true => key.to_owned(),
        false => Value::from(key).to_string(),
    }
}

/// Returns a value without secrets.
fn without_secrets(path: &[&str], value: &Value) -> Value {
    let hidden = || Value::from("…");
    match path {
        [_, "env", _] => hidden(),
        path if matches!(
            settings::kind_of(path),
            Some(ValueKind::Plain(OptionKind::Free))
        ) =>
        {
            let names = value.as_table().into_iter().flat_map(toml::Table::keys);
            Value::Table(names.map(|name| (name.clone(), hidden())).collect())
        }
        ["mcp-servers", name] => server(name, value.clone()).unwrap_or_else(hidden),
        ["webhook"] => {
            let mut value = value.clone();
            for webhook in value.as_array_mut().into_iter().flatten() {
                // Only the name of a preset and of a variable are no secrets.
                if let Some(webhook) = webhook.as_table_mut() {
                    webhook.insert("url".into(), hidden());
                }
            }
            value
        }
        _ => value.clone(),
    }
}

fn server(name: &str, value: Value) -> Option<Value> {
    let mut servers = McpServers::default();
    servers
        .insert(name, McpServer::deserialize(value).ok()?)
        .ok()?;
    let servers = servers.without_values();
    let (_, server) = servers.iter().next()?;
    Value::try_from(server).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::template_on;

    /// Values of variables, headers, arguments and the agents' own settings are redacted in every place.
    #[test]
    fn x118c_no_secret_is_shown() {
        let secrets = "[claude]\nenv = { A = 's3cret' }\nsettings = { a = 's3cret' }\n[codex.config]\nb = 's3cret'\n\
                       [mcp-servers.a]\ncommand = 'x'\nargs = ['s3cret']\nenv = { T = 's3cret' }\n\
                       [mcp-servers.b]\nurl = 'https://s3cret@localhost/s3cret'\nheaders = { H = 's3cret' }\n";
        let phases =
            format!("{secrets}[[phase]]\nname = 'plan'\n[phase.gemini.env]\nA = 's3cret'\n");
        for text in [secrets, &phases] {
            let groups = groups(&Layers::of(Path::new("/"), text), &[], Path::new("/"));
            let shown = format!("{groups:?}");
            assert!(
                shown.contains("mcp-servers.b") && !shown.contains("s3cret"),
                "{shown}"
            );
        }
    }

    #[test]
    fn s15b_shown_configuration_is_a_valid_file() {
        let layers = Layers::of(Path::new("/"), &template_on());
        let groups = groups(&layers, &[], Path::new("/"));
        let lines: String = groups[0]
            .rows
            .iter()
            .map(|row| format!("{} = {}\n", row.key, row.value))
            .collect();
        let again = Layers::of(Path::new("/"), &lines);
        let leaves = |layers: &Layers| {
            let tree = layers.run();
            let leaves = tree.leaves().into_iter();
            let mut leaves: Vec<_> = leaves.map(|(path, _)| path.join(".")).collect();
            leaves.sort();
            leaves
        };
        let (shown, set) = (leaves(&again), leaves(&layers));
        assert!(set.len() > 10, "{set:?}");
        assert!(
            set.iter().all(|key| shown.contains(key)),
            "{set:?} {shown:?}"
        );
    }
}
