//! JSON objects whose fields are parsed only when they are read.
//!
//! Much of the agent's output consists of texts that appear twice, and of lists that only the agent's own screen needs. So a field stays JSON text
//! until it is read. The fields that contain the parts of a message are the exception: the first pass parses them too. Otherwise each level of a
//! message would scan all parts below it again.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// The deepest level that the first pass parses, far below the 128 levels at which `serde_json` fails. Unparsed text can have any depth.
const DEPTH: usize = 8;

/// An object whose fields are parsed when they are read: a field of a wrong type counts as missing.
#[derive(Clone, Debug, Default)]
pub(super) struct Object<'a>(Vec<(Cow<'a, str>, Value<'a>)>);

#[derive(Clone, Debug)]
enum Value<'a> {
    /// Unparsed JSON text.
    Raw(&'a str),
    Text(Cow<'a, str>),
    Object(Object<'a>),
    /// The objects of a list, without its other values.
    List(Vec<Object<'a>>),
    /// Neither a string nor an object nor a list.
    Other,
}

impl<'a> Object<'a> {
    /// Parses a text; returns `None` if it is not an object.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        // `serde_json` fails at half a surrogate pair. Then the first pass runs again without parsing any part.
        let value = [DEPTH, 0].into_iter().find_map(|depth| read(text, depth));
        match value? {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Returns a field; the last one if several have the name.
    fn field(&self, key: &str) -> Option<&Value<'a>> {
        let mut fields = self.0.iter().rev();
        fields.find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns the JSON text of a field; `None` if the first pass parsed it.
    pub(super) fn raw(&self, key: &str) -> Option<&'a str> {
        match self.field(key)? {
            Value::Raw(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn text(&self, key: &str) -> String {
        self.word(key).into_owned()
    }

    /// Returns a string, without a copy if it has no escapes; empty if the field is not a string.
    pub(super) fn word(&self, key: &str) -> Cow<'a, str> {
        self.string_of(key).unwrap_or_default()
    }

    /// Returns a string; `None` if the field is not a string.
    pub(super) fn string(&self, key: &str) -> Option<String> {
        self.string_of(key).map(Cow::into_owned)
    }

    fn string_of(&self, key: &str) -> Option<Cow<'a, str>> {
        match self.field(key)? {
            Value::Raw(text) => string(text),
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        self.raw(key) == Some("true")
    }

    /// Returns a number; `None` if the field has no value of type `T`.
    pub(super) fn get<T: FromStr>(&self, key: &str) -> Option<T> {
        self.raw(key)?.parse().ok()
    }

    /// Returns a number, even if it is written as a fraction; a negative number counts as 0.
    pub(super) fn number(&self, key: &str) -> u64 {
        // Casts from float to integer saturate.
        self.get::<f64>(key).unwrap_or_default() as u64
    }

    /// Returns an object in this one; an empty object if there is none.
    pub(super) fn object(&self, key: &str) -> Cow<'_, Object<'a>> {
        match self.field(key) {
            Some(Value::Object(object)) => Cow::Borrowed(object),
            Some(Value::Raw(text)) => Cow::Owned(Object::parse(text).unwrap_or_default()),
            _ => Cow::Owned(Object::default()),
        }
    }

    /// Returns the objects of a list, without its other values.
    pub(super) fn list(&self, key: &str) -> Cow<'_, [Object<'a>]> {
        match self.field(key) {
            Some(Value::List(list)) => Cow::Borrowed(list),
            _ => Cow::Owned(self.items(key, Object::parse)),
        }
    }

    /// Returns the strings of a list, without its other values.
    pub(super) fn texts(&self, key: &str) -> Vec<String> {
        self.items(key, |item| string(item).map(Cow::into_owned))
    }

    pub(super) fn uuids(&self, key: &str) -> Vec<Uuid> {
        self.items(key, |item| string(item)?.parse().ok())
    }

    pub(super) fn uuid(&self, key: &str) -> Option<Uuid> {
        self.word(key).parse().ok()
    }

    /// Returns those values of an object that are objects; `None` if the field is not an object.
    pub(super) fn fields(&self, key: &str) -> Option<Vec<Object<'a>>> {
        let fields = Object::parse(self.raw(key)?)?;
        let keys = fields.0.iter().filter_map(|(_, value)| match value {
            Value::Object(object) => Some(object.clone()),
            Value::Raw(text) => Object::parse(text),
            _ => None,
        });
        Some(keys.collect())
    }

    fn items<T>(&self, key: &str, item: impl Fn(&'a str) -> Option<T>) -> Vec<T> {
        let list = self.raw(key);
        let list = list.and_then(|text| serde_json::from_str::<Vec<&RawValue>>(text).ok());
        let items = list.into_iter().flatten();
        items.filter_map(|value| item(value.get())).collect()
    }
}

/// Whether the first pass parses the fields of this name.
fn is_part(key: &str) -> bool {
    matches!(
        key,
        "content" | "delta" | "event" | "message" | "request" | "response"
    )
}

/// Parses a value that is the whole text, and its parts down to `depth`.
fn read(text: &str, depth: usize) -> Option<Value<'_>> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = ValueVisitor(depth).deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    Some(value)
}

/// Parses a string; returns `None` if the value is not a string.
fn string(value: &str) -> Option<Cow<'_, str>> {
    let inside = value.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inside.as_bytes()).is_none() {
        return Some(inside.into());
    }
    let mut deserializer = serde_json::Deserializer::from_str(value);
    deserializer.deserialize_bytes(Escaped).ok().map(Cow::Owned)
}

/// Parses a value and its parts, to this number of levels.
#[derive(Clone, Copy)]
struct ValueVisitor(usize);

impl<'de> DeserializeSeed<'de> for ValueVisitor {
    type Value = Value<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Value<'de>, M::Error> {
        // Most lines have about this number of fields, and their parts have fewer.
        let mut fields = Vec::with_capacity(if self.0 == DEPTH { 8 } else { 4 });
        while let Some(key) = map.next_key_seed(Key)? {
            let value = match self.0.checked_sub(1) {
                Some(depth) if is_part(&key) => map.next_value_seed(ValueVisitor(depth))?,
                _ => Value::Raw(map.next_value::<&RawValue>()?.get()),
            };
            fields.push((key, value));
        }
        Ok(Value::Object(Object(fields)))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Value<'de>, S::Error> {
        let mut objects = Vec::new();
        while let Some(value) = seq.next_element_seed(ValueVisitor(self.0.saturating_sub(1)))? {
            if let Value::Object(object) = value {
                objects.push(object);
            }
        }
        Ok(Value::List(objects))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value<'de>, E> {
        Ok(Value::Text(text.to_owned().into()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value<'de>, E> {
        Ok(Value::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value<'de>, E> {
        Ok(Value::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value<'de>, E> {
        Ok(Value::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value<'de>, E> {
        Ok(Value::Other)
    }

    fn visit_unit<E>(self) -> Result<Value<'de>, E> {
        Ok(Value::Other)
    }
}

struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(text.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.to_owned().into())
    }
}

/// A string with escapes. Some programs cut a text in the middle of a surrogate pair; the rest of the text must not be lost. `serde_json` returns
/// such a string only as bytes.
struct Escaped;

impl Visitor<'_> for Escaped {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<String, E> {
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            // 0xED begins each surrogate half, and the two bytes after it belong to it.
            if chunk.invalid().first() == Some(&0xed) {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Object, string};
    use proptest::prelude::*;
    use serde_json::value::RawValue;
    use serde_json::{Map, Value};

    fn a_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1000_i32..1000).prop_map(|n| Value::from(f64::from(n) / 8.0)),
            any::<String>().prop_map(Value::from),
            r#"[\\"a-z{}\[\],:\n\t\u{1f600}]{0,40}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(r#"([a-z\\" ]{0,3}|content|delta)"#, inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Makes text that is almost an object: a name, a number or an escape can be wrong. About half of the texts are objects; hardly any random text
    /// would be.
    fn almost_an_object() -> impl Strategy<Value = String> {
        let field = r#" ?"[a-c ]{0,2}(\\[nu"])?" ?: ?(-?[01]{1,2}(\.0)?|"[a-c ]{0,3}"|\{\}|\[ ?\]|true|null) ?"#;
        prop::collection::vec(field, 0..3).prop_map(|fields| format!("{{{}}}", fields.join(",")))
    }

    /// Checks that `serde_json` and `Object` agree about each field.
    fn agrees(object: &Object<'_>, fields: &Map<String, Value>) {
        for (key, value) in fields {
            if let Some(raw) = object.raw(key) {
                assert_eq!(serde_json::from_str::<Value>(raw).unwrap(), *value);
                assert_eq!(object.flag(key), *value == Value::Bool(true));
                assert_eq!(object.get::<f64>(key), value.as_f64());
            }
            assert_eq!(object.string(key).as_deref(), value.as_str());
            let items = value.as_array().map_or(&[][..], Vec::as_slice);
            let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            if object.raw(key).is_some() {
                assert_eq!(object.texts(key), texts);
            }
            assert_eq!(
                object.list(key).len(),
                items.iter().filter(|item| item.is_object()).count()
            );
            if let Value::Object(fields) = value {
                agrees(&object.object(key), fields);
                if let Some(objects) = object.fields(key) {
                    let expected = fields.values().filter(|field| field.is_object());
                    assert_eq!(objects.len(), expected.count());
                }
            }
        }
    }

    #[test]
    fn p13c_every_escape_is_parsed() {
        let raw = r#""\"\\\/\b\f\n\r\té""#;
        assert_eq!(string(raw).unwrap(), "\"\\/\u{8}\u{c}\n\r\té");
        assert_eq!(string(r#""\x""#), None);
    }

    proptest! {
        #[test]
        fn p13c_object_parses_like_serde_json(
            fields in prop::collection::btree_map("([a-z]{0,3}|content|delta|message)", a_value(), 0..6), pretty: bool,
        ) {
            let value = Value::Object(fields.clone().into_iter().collect());
            let text = if pretty { format!("{value:#}") } else { value.to_string() };
            agrees(&Object::parse(&text).unwrap(), &fields.into_iter().collect());
        }

        #[test]
        fn p13c_accepts_everything_that_serde_json_accepts(text in prop_oneof![almost_an_object(), r#"[{}\[\],:"\\a-cu01. -]{0,24}"#]) {
            let known = serde_json::from_str::<std::collections::BTreeMap<String, &RawValue>>(&text);
            let object = Object::parse(&text);
            if let Ok(known) = known {
                let object = object.unwrap();
                for (key, value) in known {
                    prop_assert_eq!(object.raw(&key), Some(value.get()));
                }
            }
        }

        #[test]
        fn p13c_string_parses_like_serde_json(raw in r#"(\\u[dD][89a-fA-F][0-9]{2}|\\u[0-9a-f]{4}|\\.|[a-z"é])*"#) {
            let quoted = format!("\"{raw}\"");
            let whole = serde_json::from_str::<String>(&quoted);
            if let Ok(whole) = whole {
                prop_assert_eq!(string(&quoted).unwrap(), whole);
            } else if let Some(text) = string(&quoted) {
                prop_assert!(raw.contains('"') || text.contains(char::REPLACEMENT_CHARACTER));
            }
        }
    }
}
