//! The schemas of `rlm … --json`, in `docs/schema`, which every JSON output in a test must match.
//!
//! They use a small part of JSON Schema (2020-12). An unknown keyword is a panic, so that no rule is ignored.

use std::ffi::OsStr;

use serde_json::{Map, Value};

/// The maximum number of lines of one output to check.
const LINES: usize = 5000;

macro_rules! schemas {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../docs/schema/", $name, ".json")))),*]
    };
}

/// All schemas, by the names of their files.
pub const SCHEMAS: [(&str, &str); 17] = schemas![
    "checkpoints-export",
    "checkpoints-import",
    "checkpoints-fork",
    "checkpoints-list",
    "checkpoints-show",
    "checkpoints-verify",
    "clean",
    "config",
    "control",
    "doctor",
    "lab",
    "logs",
    "ps",
    "report",
    "run",
    "status",
    "worktree"
];

/// Returns the schema with this name.
///
/// # Panics
///
/// If no such schema exists, or it is not JSON.
#[must_use]
pub fn named(name: &str) -> Value {
    let found = SCHEMAS.iter().find(|(it, _)| *it == name);
    let (_, text) = found.unwrap_or_else(|| panic!("no schema {name}"));
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{name}.json: {e}"))
}

/// Checks each complete line of an output against the schema of the command with these arguments, if the command prints JSON.
///
/// # Panics
///
/// If a line does not match its schema.
#[track_caller]
pub(crate) fn expect<'a>(arguments: impl Iterator<Item = &'a OsStr>, output: &str) {
    let Some(names) = of_command(arguments) else {
        return;
    };
    let schemas: Vec<Value> = names.iter().map(|name| named(name)).collect();
    let whole = output
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    for line in whole.take(LINES) {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let errors = schemas.iter().map(|schema| check(schema, &value).err());
        let errors: Option<Vec<String>> = errors.collect();
        if let Some(errors) = errors {
            panic!(
                "doesn't match docs/schema, {}: {line}",
                errors.join("; or ")
            );
        }
    }
}

/// Returns the names of the schemas for the output of a command.
fn of_command<'a>(arguments: impl Iterator<Item = &'a OsStr>) -> Option<&'static [&'static str]> {
    let words = arguments.map(|word| word.to_str().unwrap_or_default());
    let words: Vec<&str> = words.take_while(|word| *word != "--").collect();
    if !words.contains(&"--json") {
        return None;
    }
    let words = match words.as_slice() {
        ["-C", _, rest @ ..] | rest => rest,
    };
    Some(match words {
        ["run", ..] => &["run"],
        ["resume" | "attach", ..] => &["run", "control"],
        ["status", ..] => &["status"],
        ["ps", ..] => &["ps"],
        ["report", ..] => &["report"],
        ["logs", ..] => &["logs"],
        ["config", "show", ..] => &["config"],
        ["doctor", ..] => &["doctor"],
        ["clean", ..] => &["clean"],
        ["merge" | "drop", ..] => &["worktree"],
        ["pause" | "interrupt" | "steer" | "set" | "stop", ..] => &["control"],
        ["checkpoints", "fork", ..] => &["checkpoints-fork"],
        ["checkpoints", "export", ..] => &["checkpoints-export"],
        ["checkpoints", "import", ..] => &["checkpoints-import"],
        ["checkpoints", "list", ..] => &["checkpoints-list"],
        ["checkpoints", "show", ..] => &["checkpoints-show"],
        ["checkpoints", "verify", ..] => &["checkpoints-verify"],
        _ => return None,
    })
}

/// Checks a value against a schema.
///
/// # Errors
///
/// The first place in the value that does not match, with the reason.
///
/// # Panics
///
/// If the schema uses an unknown keyword.
pub fn check(schema: &Value, value: &Value) -> Result<(), String> {
    at(schema, schema, value, "")
}

fn at(root: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let fail = |why: String| {
        Err(format!(
            "{}: {why}",
            if place.is_empty() { "the whole" } else { place }
        ))
    };
    let schema = schema.as_object().expect("a schema is an object");
    for (word, rule) in schema {
        match word.as_str() {
            "title" | "description" | "$defs" | "required" => {}
            "$ref" => {
                let name = rule.as_str().and_then(|name| name.strip_prefix("#/$defs/"));
                let name = name.unwrap_or_else(|| panic!("an external reference: {rule}"));
                at(root, &root["$defs"][name], value, place)?;
            }
            "type" if !is_of(rule, value) => return fail(format!("{value} is no {rule}")),
            "const" if rule != value => return fail(format!("{value} is not {rule}")),
            "enum" if !rule.as_array().is_some_and(|all| all.contains(value)) => {
                return fail(format!("{value} is none of {rule}"));
            }
            "type" | "const" | "enum" => {}
            "minimum" => {
                if value.as_f64() < rule.as_f64() && value.is_number() {
                    return fail(format!("{value} is below {rule}"));
                }
            }
            // The only supported pattern: a point in time.
            "pattern" => {
                let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
                let form: String = value
                    .as_str()
                    .unwrap_or_default()
                    .chars()
                    .map(digits)
                    .collect();
                if form != "0000-00-00T00:00:00.000Z" {
                    return fail(format!("{value} is no time"));
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    at(root, rule, item, &format!("{place}[{index}]"))?;
                }
            }
            "properties" | "additionalProperties" => {
                if let Some(fields) = value.as_object() {
                    properties(root, schema, fields, place)?;
                }
            }
            "anyOf" => any(root, rule, value, place)?,
            other => panic!("unknown keyword {other}"),
        }
    }
    Ok(())
}

fn properties(
    root: &Value,
    schema: &Map<String, Value>,
    fields: &Map<String, Value>,
    place: &str,
) -> Result<(), String> {
    let required = schema.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!("{place}.{name} is missing"));
        }
    }
    for (name, value) in fields {
        match schema.get("properties").and_then(|known| known.get(name)) {
            Some(rule) => at(root, rule, value, &format!("{place}.{name}"))?,
            None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => {
                return Err(format!("{place}.{name} is unknown"));
            }
            None => {}
        }
    }
    Ok(())
}

/// Checks that one of several forms matches. If none does, the form whose first field has the value's name gives the error.
fn any(root: &Value, forms: &Value, value: &Value, place: &str) -> Result<(), String> {
    let forms = forms.as_array().expect("anyOf is a list");
    let errors = forms.iter().map(|form| at(root, form, value, place).err());
    let Some(errors) = errors.collect::<Option<Vec<String>>>() else {
        return Ok(());
    };
    let is_named = |form: &Value| {
        ["event", "response"].iter().any(|name| {
            let named = &form["properties"][name]["const"];
            !named.is_null() && *named == value[name]
        })
    };
    let near = forms.iter().position(is_named);
    Err(near.map_or_else(
        || format!("{place} matches none of {} forms", forms.len()),
        |near| errors[near].clone(),
    ))
}

fn is_of(kinds: &Value, value: &Value) -> bool {
    let is = |kind: &str| match kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    };
    match kinds {
        Value::String(kind) => is(kind),
        kinds => kinds
            .as_array()
            .expect("a list of types")
            .iter()
            .any(|kind| kind.as_str().is_some_and(is)),
    }
}
