//! The schemas of what `rlm … --json` prints, in `docs/schema`: whatever a test makes it print is held against them.
//!
//! They are JSON Schema (2020-12), of which they use little; a word that is not understood here is a panic, so that nothing is let pass unread.

use std::ffi::OsStr;

use serde_json::{Map, Value};

/// The most lines of one output that are looked at.
const LINES: usize = 5000;

macro_rules! schemas {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../docs/schema/", $name, ".json")))),*]
    };
}

/// Every schema, by the name of its file.
pub const SCHEMAS: [(&str, &str); 15] = schemas![
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
    "logs",
    "ps",
    "report",
    "run",
    "status"
];

/// Returns the schema of this name.
///
/// # Panics
///
/// When there is none, or it is no JSON.
#[must_use]
pub fn named(name: &str) -> Value {
    let found = SCHEMAS.iter().find(|(it, _)| *it == name);
    let (_, text) = found.unwrap_or_else(|| panic!("no schema {name}"));
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{name}.json: {e}"))
}

/// Holds each whole line of an output against the schema of the command whose arguments these are, if it is one that prints JSON.
///
/// # Panics
///
/// When a line is not as its schema says.
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
            panic!("not as docs/schema says, {}: {line}", errors.join("; or "));
        }
    }
}

/// Names the schemas that hold for what a command prints.
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

/// Tells whether a value is as a schema says, or where it is not.
///
/// # Errors
///
/// The first place in the value that is not, and why.
///
/// # Panics
///
/// When the schema uses a word that is not understood here.
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
                let name = name.unwrap_or_else(|| panic!("a reference to elsewhere: {rule}"));
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
            // The one pattern there is: a point in time.
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
            other => panic!("{other} is not understood here"),
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
                return Err(format!("{place}.{name} is not known"));
            }
            None => {}
        }
    }
    Ok(())
}

/// Of several forms one must fit; the one whose first field names the value says what is wrong.
fn any(root: &Value, forms: &Value, value: &Value, place: &str) -> Result<(), String> {
    let forms = forms.as_array().expect("anyOf is a list");
    let errors = forms.iter().map(|form| at(root, form, value, place).err());
    let Some(errors) = errors.collect::<Option<Vec<String>>>() else {
        return Ok(());
    };
    let is_named = |form: &Value| {
        ["event", "answer"].iter().any(|name| {
            let named = &form["properties"][name]["const"];
            !named.is_null() && *named == value[name]
        })
    };
    let near = forms.iter().position(is_named);
    Err(near.map_or_else(
        || format!("{place} has none of {} forms", forms.len()),
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
        other => panic!("there is no type {other}"),
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
