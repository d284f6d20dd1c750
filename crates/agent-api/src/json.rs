//! A JSON object as the text that its author wrote. The arguments of a call and the schema of a tool are carried verbatim, so that a request has the
//! same bytes each time.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The text of a JSON object as it was written, without the white space around it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JsonObject(Box<RawValue>);

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
        let error = |error: serde_json::Error| NotAnObject(error.to_string());
        match serde_json::from_str::<Value>(text).map_err(error)? {
            Value::Object(_) => Ok(Self(RawValue::from_string(text.to_owned()).map_err(error)?)),
            _ => Err(NotAnObject("valid JSON, but no object".to_owned())),
        }
    }

    /// Returns the object without keys.
    #[must_use]
    pub fn empty() -> Self {
        Self::of(&Map::new())
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Returns the string under `key`, if there is one.
    #[must_use]
    pub fn string(&self, key: &str) -> Option<String> {
        match serde_json::from_str::<Map<String, Value>>(self.as_str())
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
        Self::of(&map)
    }

    fn of(map: &Map<String, Value>) -> Self {
        Self(serde_json::value::to_raw_value(map).expect("a map of JSON values is JSON"))
    }

    /// Returns the object for a serialiser of JSON, which writes it verbatim.
    pub(crate) fn raw(&self) -> &RawValue {
        &self.0
    }
}

impl PartialEq for JsonObject {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for JsonObject {}

impl Hash for JsonObject {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for JsonObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JsonObject").field(&self.as_str()).finish()
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
        Box::<str>::from(object.0).into()
    }
}

impl fmt::Display for NotAnObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a JSON object: {}", self.0)
    }
}

impl std::error::Error for NotAnObject {}
