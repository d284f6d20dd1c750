//! Test support for all protocols: invariants of their events, and damage to their lines.

use agent_duplex::Event;
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeSet;

/// Checks that every turn has one end, and that every tool call and every permission request in it has one.
pub(crate) fn check(events: &[Event]) {
    let (mut in_turn, mut tools, mut asks) = (false, BTreeSet::new(), BTreeSet::new());
    for event in events {
        match event {
            Event::TurnStarted { .. } => assert!(!std::mem::replace(&mut in_turn, true)),
            Event::TurnCompleted(_) => {
                assert!(std::mem::replace(&mut in_turn, false));
                assert!(tools.is_empty(), "open: {tools:?}");
            }
            Event::ToolStarted { id, .. } => assert!(in_turn && tools.insert(id)),
            Event::ToolFinished { id, .. } => assert!(in_turn && tools.remove(id)),
            Event::PermissionRequested(ask) => assert!(asks.insert(&ask.id)),
            Event::PermissionWithdrawn { id } => assert!(asks.remove(id)),
            Event::Message { .. } | Event::TextDelta(_) => assert!(in_turn),
            Event::Exited(_) => assert!(!in_turn),
            _ => {}
        }
    }
    assert!(!in_turn && asks.is_empty());
}

/// Makes any JSON, as another version of the agent might write it; some of its strings are meaningful words.
pub(crate) fn a_value(words: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(words).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Replaces the `n`th value below `value`, counted in depth.
pub(crate) fn mutate(value: &mut Value, n: &mut usize, new: &Value) {
    let values: Vec<&mut Value> = match value {
        Value::Array(values) => values.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => return,
    };
    for value in values {
        if *n == 0 {
            *value = new.clone();
            *n = usize::MAX;
            return;
        }
        *n -= 1;
        mutate(value, n, new);
        if *n == usize::MAX {
            return;
        }
    }
}
