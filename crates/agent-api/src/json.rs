//! A JSON object as the text that its author wrote. The arguments of a call and the schema of a tool are carried verbatim, so that a request has the
//! same bytes each time.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The text of a JSON object as it was written, without the white space around it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JsonObject(String);

/// The reason why a text is not a [`JsonObject`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAnObject(String);

impl JsonObject {
    /// Parses a text.
    ///
    /// # Errors
    ///
    /// Fails if the text is not one JSON object, or nests deeper than 127 levels.
    pub fn parse(text: &str) -> Result<Self, NotAnObject> {
        let text = text.trim_matches([' ', '\t', '\r', '\n']);
        match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(_)) => Ok(Self(text.to_owned())),
            Ok(_) => Err(NotAnObject("valid JSON, but no object".to_owned())),
            Err(error) => Err(NotAnObject(error.to_string())),
        }
    }

    /// Returns the object without keys.
    #[must_use]
    pub fn empty() -> Self {
        Self("{}".to_owned())
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the string under `key`, if there is one.
    #[must_use]
    pub fn string(&self, key: &str) -> Option<String> {
        match serde_json::from_str::<Map<String, Value>>(&self.0)
            .ok()?
            .remove(key)?
        {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the object with one key, which contains `text`.
    pub(crate) fn of_text(key: &str, text: &str) -> Self {
        let mut map = Map::new();
        map.insert(key.to_owned(), Value::String(text.to_owned()));
        Self(Value::Object(map).to_string())
    }

    /// Returns the object for a serialiser of JSON, which writes it verbatim.
    pub(crate) fn raw(&self) -> Option<&RawValue> {
        serde_json::from_str(&self.0).ok()
    }
}

impl TryFrom<String> for JsonObject {
    type Error = NotAnObject;

    fn try_from(text: String) -> Result<Self, NotAnObject> {
        Self::parse(&text)
    }
}

impl From<JsonObject> for String {
    fn from(object: JsonObject) -> Self {
        object.0
    }
}

impl fmt::Display for NotAnObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a JSON object: {}", self.0)
    }
}

impl std::error::Error for NotAnObject {}
