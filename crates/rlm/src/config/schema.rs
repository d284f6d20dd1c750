//! The JSON Schema of `rlm.toml`, for editors.

use agent_drivers::OptionKind;
use loop_state::MAX_PHASES;
use serde_json::{Map, Value, json};

use super::keys::{Key, KeyScope, ValueKind};
use super::settings::KEYS;

/// Returns the JSON Schema of the project's file. The user's own file may have fewer keys.
pub(crate) fn schema() -> Value {
    let of = |places: &[KeyScope]| {
        let keys = KEYS.iter().filter(|key| places.contains(&key.scope));
        let keys = keys.map(|key| (key.name.to_owned(), key_schema(key)));
        keys.collect::<Map<_, _>>()
    };
    let mut properties = of(&[KeyScope::Run, KeyScope::Phase]);
    let phase = json!({
        "type": "array",
        "description": "The phases of a pipeline, in order. Settings above the first phase apply to each phase that doesn't set them itself.",
        "maxItems": MAX_PHASES,
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["name"],
            "properties": of(&[KeyScope::PhaseOnly, KeyScope::Phase]),
        },
    });
    properties.insert("phase".into(), phase);
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "rlm.toml",
        "description": "The settings of rlm in a project.",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

fn key_schema(key: &Key) -> Value {
    let mut schema = kind(key.kind);
    let object = schema
        .as_object_mut()
        .expect("the schema of every kind is an object");
    object.insert("description".into(), key.what.into());
    if let Some(value) = key.default(true) {
        let value = serde_json::to_value(value).expect("a TOML value converts to JSON");
        object.insert("default".into(), value);
    }
    schema
}

fn kind(kind: ValueKind) -> Value {
    let text = json!({"type": "string"});
    match kind {
        ValueKind::Plain(OptionKind::Text) => text,
        ValueKind::Plain(OptionKind::Texts) => json!({"type": "array", "items": text}),
        ValueKind::Plain(OptionKind::Switch) => json!({"type": "boolean"}),
        ValueKind::Plain(OptionKind::Count(least)) => {
            json!({"type": "integer", "minimum": least, "maximum": u32::MAX})
        }
        ValueKind::Time => json!({"anyOf": [
            {"type": "string", "pattern": "^([0-9]+|([0-9]+(d|h|ms|m|s))+)$"},
            {"type": "integer", "minimum": 0},
        ]}),
        ValueKind::Amount(form) => json!({"anyOf": [
            {"type": "string", "pattern": form},
            {"type": "number", "minimum": 0},
        ]}),
        ValueKind::Like(form) => json!({"type": "string", "pattern": form}),
        ValueKind::OneOf(words) => json!({"enum": words}),
        ValueKind::SomeOf(words) => json!({"type": "array", "items": {"enum": words}}),
        ValueKind::ListLike(form) => {
            json!({"type": "array", "items": {"type": "string", "pattern": form}})
        }
        ValueKind::Webhooks => json!({
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": false,
                "required": ["url"],
                "properties": {
                    "url": text,
                    "preset": {"enum": ["json", "ntfy", "slack", "discord"]},
                    "token-variable": text,
                },
            },
        }),
        ValueKind::Plain(OptionKind::Named) => {
            json!({"type": "object", "additionalProperties": text})
        }
        ValueKind::Plain(OptionKind::Free) => json!({"type": "object"}),
        ValueKind::Table(keys) => {
            let keys = keys
                .iter()
                .map(|key| (key.name.to_owned(), key_schema(key)));
            let properties: Map<_, _> = keys.collect();
            json!({"type": "object", "additionalProperties": false, "properties": properties})
        }
        ValueKind::Servers => json!({
            "type": "object",
            "maxProperties": 64,
            "propertyNames": {"pattern": "^[A-Za-z0-9_-]{1,64}$"},
            "additionalProperties": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "type": {"enum": ["stdio", "http", "sse"]},
                    "command": text,
                    "args": {"type": "array", "items": text},
                    "env": {"type": "object", "additionalProperties": text},
                    "url": text,
                    "headers": {"type": "object", "additionalProperties": text},
                },
            },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::template_on;

    /// Checks a value against the schema, with the few keywords that this schema uses.
    fn accepts(schema: &Value, value: &Value) -> Result<(), String> {
        let fail = |why: &str| Err(format!("{value} {why} {schema}"));
        let of_type = match schema["type"].as_str() {
            None => true,
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("integer") => value.is_i64(),
            Some("number") => value.is_number(),
            Some(other) => panic!("{other}"),
        };
        if !of_type {
            return fail("has another type than");
        }
        if let Some(words) = schema["enum"].as_array()
            && !words.contains(value)
        {
            return fail("is not one of");
        }
        if let Some(any) = schema["anyOf"].as_array() {
            let first = any.iter().find(|schema| accepts(schema, value).is_ok());
            return first
                .map(drop)
                .ok_or_else(|| format!("{value} is not one of {schema}"));
        }
        let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
        if let Some(number) = value.as_f64()
            && (least.is_some_and(|least| number < least) || most.is_some_and(|most| number > most))
        {
            return fail("is out of the range of");
        }
        if let (Some(items), Some(item)) = (value.as_array(), schema.get("items")) {
            items.iter().try_for_each(|value| accepts(item, value))?;
        }
        let Some(members) = value.as_object() else {
            return Ok(());
        };
        for name in schema["required"].as_array().into_iter().flatten() {
            if !members.contains_key(name.as_str().unwrap()) {
                return fail("lacks a required key of");
            }
        }
        for (name, value) in members {
            match (
                schema["properties"].get(name),
                schema.get("additionalProperties"),
            ) {
                (Some(schema), _) => accepts(schema, value)?,
                (None, Some(Value::Bool(false))) => return Err(format!("unknown key `{name}`")),
                (None, Some(schema @ Value::Object(_))) => accepts(schema, value)?,
                (None, _) => {}
            }
        }
        Ok(())
    }

    fn judge(text: &str) -> Result<(), String> {
        let table: toml::Table = toml::from_str(text).unwrap();
        accepts(&schema(), &serde_json::to_value(table).unwrap())
    }

    #[test]
    fn config_schema_snapshot() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&schema()).unwrap());
    }

    #[test]
    fn x117a_schema_and_parser_accept_the_same_files() {
        judge(&template_on()).unwrap();
        judge("sleep = 3\n[[phase]]\nname = 'plan'\nmax-iterations = 1\n[phase.claude.env]\nA = 'x'\n").unwrap();
        for wrong in [
            "sleeep = 3",
            "sleep = 1.5",
            "max-iterations = 0",
            "agent = 'gpt'",
            "gates = 'x'",
            "[claude]\ntols = []",
            "[claude.env]\nA = 1",
            "[mcp-servers.a]\ntoken = 'x'",
            "name = 'plan'",
            "[[phase]]\nuntil = 'x'",
            "[[phase]]\nname = 'x'\nsleep = 3",
            "[on-press]\ndefault = 'die'",
        ] {
            judge(wrong).unwrap_err();
        }
    }
}
