//! Values by key with their sources, and the merging of layers.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use agent_drivers::OptionKind;
use serde::Deserialize as _;
use toml::Value;

use super::keys::ValueKind;
use super::settings::{self, Config};

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueOrigin {
    /// An option on the command line.
    Flag(String),
    /// An environment variable.
    Variable(&'static str),
    File {
        path: Arc<Path>,
        line: usize,
    },
    /// Found on this machine.
    Found,
    /// The default: no layer has a value.
    Default,
}

/// A value, and the values of lower layers that it overrides, the nearest first.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) value: Value,
    pub(crate) origin: ValueOrigin,
    pub(crate) overridden: Vec<(Value, ValueOrigin)>,
}

#[derive(Clone)]
enum Node {
    Leaf(Leaf),
    /// A table whose keys are merged one by one.
    Section(SettingsTree),
}

/// One layer, or several merged layers. Its `Debug` shows no value.
#[derive(Clone, Default)]
pub(crate) struct SettingsTree(Vec<(String, Node)>);

impl fmt::Debug for SettingsTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.0.iter().map(|(k, _)| k))
            .finish()
    }
}

/// Returns whether the keys of this table are merged one by one; any other value replaces the lower one as a whole.
fn is_section(path: &[&str]) -> bool {
    let kind = settings::kind_of(path);
    matches!(
        kind,
        Some(ValueKind::Table(_) | ValueKind::Servers | ValueKind::Plain(OptionKind::Named))
    )
}

impl SettingsTree {
    /// Inserts a value under a key at the top.
    pub(crate) fn insert(&mut self, key: &str, value: Value, origin: ValueOrigin) {
        self.remove(&[key]);
        let over = Vec::new();
        let leaf = Leaf {
            value,
            origin,
            overridden: over,
        };
        self.0.push((key.to_owned(), Node::Leaf(leaf)));
    }

    /// Creates a layer from a table. `origin` returns the source of the value at a path.
    pub(crate) fn of(table: toml::Table, origin: &dyn Fn(&[&str]) -> ValueOrigin) -> Self {
        Self::below(&[], table, origin)
    }

    fn below(path: &[&str], table: toml::Table, origin: &dyn Fn(&[&str]) -> ValueOrigin) -> Self {
        let node = |(key, value): (String, Value)| {
            let path = [path, &[key.as_str()]].concat();
            let node = match value {
                Value::Table(table) if is_section(&path) => {
                    Node::Section(Self::below(&path, table, origin))
                }
                value => Node::Leaf(Leaf {
                    value,
                    origin: origin(&path),
                    overridden: Vec::new(),
                }),
            };
            (key, node)
        };
        Self(table.into_iter().map(node).collect())
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.leaf(key)?.value.as_str()
    }

    /// Returns the value at the top under this key.
    pub(crate) fn leaf(&self, key: &str) -> Option<&Leaf> {
        self.0.iter().find_map(|(known, node)| match node {
            Node::Leaf(leaf) if known == key => Some(leaf),
            _ => None,
        })
    }

    pub(crate) fn remove(&mut self, keys: &[&str]) {
        self.0.retain(|(key, _)| !keys.contains(&key.as_str()));
    }

    /// Merges this layer over a lower one.
    ///
    /// A layer's model, program and command belong to its agent: if a layer above names another agent or a command, they are dropped. A prompt
    /// and a prompt file replace each other.
    pub(crate) fn merged_over(mut self, mut lower: Self) -> Self {
        let is_command = self.leaf("command").is_some();
        match (self.text("agent"), lower.text("agent")) {
            (Some(agent), below) => {
                if below.is_some_and(|below| below != agent) {
                    lower.remove(&["model", "agent-bin"]);
                }
                if agent != "command" {
                    lower.remove(&["command"]);
                }
            }
            (None, Some(_)) if is_command => lower.remove(&["agent", "model", "agent-bin"]),
            (None, _) => {}
        }
        for (one, other) in [("prompt", "prompt-file"), ("prompt-file", "prompt")] {
            if self.leaf(one).is_some() {
                lower.remove(&[other]);
            }
        }
        self.merge(lower);
        self
    }

    fn merge(&mut self, lower: Self) {
        // A hash map, because a file can have thousands of variables.
        let keys = self.0.iter().enumerate();
        let keys: HashMap<String, usize> = keys.map(|(at, (key, _))| (key.clone(), at)).collect();
        for (key, below) in lower.0 {
            let here = keys.get(&key).map(|at| &mut self.0[*at].1);
            match (here, below) {
                (None, below) => self.0.push((key, below)),
                (Some(Node::Leaf(leaf)), Node::Leaf(below)) => {
                    leaf.overridden.push((below.value, below.origin));
                    leaf.overridden.extend(below.overridden);
                }
                (Some(Node::Section(section)), Node::Section(below)) => section.merge(below),
                // Not reached: each file was parsed as a `Config`, so a key has the same kind in every layer.
                (Some(_), _) => {}
            }
        }
    }

    /// Returns all values with their paths.
    pub(crate) fn leaves(&self) -> Vec<(Vec<&str>, &Leaf)> {
        let mut leaves = Vec::new();
        for (key, node) in &self.0 {
            match node {
                Node::Leaf(leaf) => leaves.push((vec![key.as_str()], leaf)),
                Node::Section(section) => {
                    let below = section.leaves().into_iter();
                    leaves.extend(below.map(|(mut path, leaf)| {
                        path.insert(0, key);
                        (path, leaf)
                    }));
                }
            }
        }
        leaves
    }

    /// Returns the file of the first value in a section that comes from a file.
    pub(crate) fn file_of(&self, section: &str) -> Option<&Path> {
        self.leaves()
            .into_iter()
            .find_map(|(path, leaf)| match &leaf.origin {
                ValueOrigin::File { path: file, .. } if path[0] == section => Some(&**file),
                _ => None,
            })
    }

    fn table(self) -> toml::Table {
        let value = |node| match node {
            Node::Leaf(leaf) => leaf.value,
            Node::Section(section) => Value::Table(section.table()),
        };
        self.0
            .into_iter()
            .map(|(key, node)| (key, value(node)))
            .collect()
    }

    pub(crate) fn config(&self) -> Config {
        Config::deserialize(self.clone().table()).expect("each layer was parsed as a configuration")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layer(text: &str, name: &'static str) -> SettingsTree {
        SettingsTree::of(toml::from_str(text).unwrap(), &|_| {
            ValueOrigin::Variable(name)
        })
    }

    fn shown(tree: &SettingsTree) -> String {
        let line = |(path, leaf): (Vec<&str>, &Leaf)| {
            let over: Vec<_> = leaf
                .overridden
                .iter()
                .map(|(_, origin)| format!("{origin:?}"))
                .collect();
            format!(
                "{} = {} {:?} {over:?}\n",
                path.join("."),
                leaf.value,
                leaf.origin
            )
        };
        tree.leaves().into_iter().map(line).collect()
    }

    #[test]
    fn tables_are_merged_by_key_and_other_values_replaced() {
        let above = "gates = ['a']\n[claude]\neffort = 'low'\nenv = { A = '1' }\n[mcp-servers.s]\ncommand = 'x'\n";
        let below = "gates = ['b', 'c']\nsleep = 3\n[claude]\neffort = 'high'\nmax-turns = 3\nenv = { A = '2', B = '2' }\n\
                     [mcp-servers.s]\nurl = 'http://localhost'\n";
        let tree = layer(above, "above").merged_over(layer(below, "below"));
        insta::assert_snapshot!(shown(&tree), @r#"
        gates = ["a"] Variable("above") ["Variable(\"below\")"]
        claude.effort = "low" Variable("above") ["Variable(\"below\")"]
        claude.env.A = "1" Variable("above") ["Variable(\"below\")"]
        claude.env.B = "2" Variable("below") []
        claude.max-turns = 3 Variable("below") []
        mcp-servers.s = { command = "x" } Variable("above") ["Variable(\"below\")"]
        sleep = 3 Variable("below") []
        "#);
        assert!(!format!("{tree:?}").contains("low"));
    }

    #[test]
    fn options_of_one_agent_do_not_reach_another() {
        let below = "agent = 'claude'\nmodel = 'opus'\nagent-bin = '/c'\n";
        let model = |above: &str, below: &str| {
            let config = layer(above, "above")
                .merged_over(layer(below, "below"))
                .config();
            (config.agent.map(|kind| kind.name()), config.model)
        };
        let opus = || Some("opus".to_owned());
        assert_eq!(model("agent = 'codex'", below), (Some("codex"), None));
        assert_eq!(model("agent = 'claude'", below), (Some("claude"), opus()));
        assert_eq!(model("sleep = 1", below), (Some("claude"), opus()));
        assert_eq!(model("command = ['x']", below), (None, None));
        assert_eq!(
            model("agent = 'codex'", "model = 'opus'"),
            (Some("codex"), opus())
        );
        let config =
            layer("prompt = 'a'", "above").merged_over(layer("prompt-file = 'b'", "below"));
        assert_eq!(config.leaves().len(), 1);
    }

    proptest! {
        /// The nearest layer with a value decides, and the values below are kept in order.
        #[test]
        fn highest_layer_with_a_value_wins(values in proptest::collection::vec(proptest::option::of(0i64..9), 1..6)) {
            let layers = values.iter().map(|value| match value {
                Some(value) => layer(&format!("max-failures = {value}"), "some"),
                None => SettingsTree::default(),
            });
            let tree = layers.reduce(SettingsTree::merged_over).unwrap();
            let all: Vec<i64> = values.iter().flatten().copied().collect();
            let leaf = tree.leaf("max-failures");
            prop_assert_eq!(leaf.is_some(), !all.is_empty());
            if let Some(leaf) = leaf {
                prop_assert_eq!(leaf.value.as_integer(), Some(all[0]));
                let over: Vec<i64> = leaf.overridden.iter().filter_map(|(value, _)| value.as_integer()).collect();
                prop_assert_eq!(&over[..], &all[1..]);
            }
        }
    }
}
