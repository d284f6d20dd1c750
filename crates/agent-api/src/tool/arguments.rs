//! The arguments of a call. The result of a wrong one has its name, its type and an example, so that the model can correct itself.

use serde_json::{Map, Value};

use super::ToolOutput;
use crate::json::JsonObject;
use crate::text::one_line;

/// The longest wrong value that a result repeats, in characters.
const MAX_SHOWN: usize = 80;

/// The arguments of a call. Unknown keys are ignored, because models invent some.
#[derive(Debug)]
pub(super) struct Arguments {
    map: Map<String, Value>,
    /// Valid arguments, for the result of wrong ones.
    example: &'static str,
}

impl Arguments {
    pub(super) fn new(arguments: &JsonObject, example: &'static str) -> Self {
        Self {
            map: serde_json::from_str(arguments.as_str()).unwrap_or_default(),
            example,
        }
    }

    /// Returns a string that must be there.
    pub(super) fn text(&mut self, name: &str) -> Result<String, ToolOutput> {
        match self.optional_text(name)? {
            Some(text) => Ok(text),
            None => Err(ToolOutput::failed(format!(
                "`{name}` is missing: it must be a string, as in {}",
                self.example
            ))),
        }
    }

    /// Returns a string.
    pub(super) fn optional_text(&mut self, name: &str) -> Result<Option<String>, ToolOutput> {
        match self.map.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, "a string", &other)),
        }
    }

    /// Returns a whole number. Some models write it as a string, or with a decimal point.
    pub(super) fn number(&mut self, name: &str) -> Result<Option<u64>, ToolOutput> {
        let number = match self.map.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => number.as_u64().or_else(|| whole(number.as_f64()?)),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(_) => None,
        };
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name, "a whole number", &self.map[name])),
        }
    }

    /// Returns a truth value, `false` if it is missing. Some models write it as a string.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, ToolOutput> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(other) => Err(self.wrong(name, "true or false", other)),
        }
    }

    fn wrong(&self, name: &str, expected: &str, value: &Value) -> ToolOutput {
        ToolOutput::failed(format!(
            "`{name}` must be {expected}, not {}, as in {}",
            one_line(&value.to_string(), MAX_SHOWN),
            self.example
        ))
    }
}

/// Returns a number without a fraction that every `f64` can represent.
fn whole(number: f64) -> Option<u64> {
    let is_whole = number.fract() == 0.0 && (0.0..=9e15).contains(&number);
    is_whole.then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Arguments {
        Arguments::new(&JsonObject::parse(text).unwrap(), r#"{"path":"a.rs"}"#)
    }

    #[test]
    fn a12_wrong_arguments_are_reported_with_name_type_and_example() {
        let mut wrong = arguments(r#"{"path":5,"limit":-1,"offset":"x","all":"yes"}"#);
        let answers = [
            wrong.text("pattern").unwrap_err(),
            wrong.text("path").unwrap_err(),
            wrong.number("limit").unwrap_err(),
            wrong.number("offset").unwrap_err(),
            wrong.flag("all").unwrap_err(),
        ];
        let expected = [
            "`pattern` is missing: it must be a string",
            "`path` must be a string, not 5",
            "`limit` must be a whole number, not -1",
            "`offset` must be a whole number, not \"x\"",
            "`all` must be true or false, not \"yes\"",
        ];
        for (answer, expected) in answers.iter().zip(expected) {
            assert!(answer.is_error);
            assert_eq!(
                answer.text,
                format!("{expected}, as in {{\"path\":\"a.rs\"}}")
            );
        }
    }

    #[test]
    fn a12_numbers_and_flags_can_be_strings() {
        let mut read = arguments(
            r#"{"a":"10","b":10,"c":10.0,"d":null,"e":" 10 ","y":"true","z":true,"more":1}"#,
        );
        for name in ["a", "b", "c", "e"] {
            assert_eq!(read.number(name), Ok(Some(10)), "{name}");
        }
        assert_eq!(read.number("d"), Ok(None));
        assert_eq!(read.number("missing"), Ok(None));
        let flags = ["y", "z", "d"].map(|name| read.flag(name).unwrap());
        assert_eq!(flags, [true, true, false]);
        assert!(arguments(r#"{"a":1e300}"#).number("a").is_err());
        assert!(arguments(r#"{"a":1.5}"#).number("a").is_err());
    }
}
