//! JSON objects of which only the fields that are asked for are understood.

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use uuid::Uuid;

/// An object whose fields are parsed when they are asked for: a field of a wrong type is a field that is not there.
#[derive(Debug, Default)]
pub(super) struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Fields<'a> {
            type Value = Object<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'a>, A::Error> {
                // Most lines have about as many.
                let mut fields = Vec::with_capacity(8);
                while let Some((Key(name), value)) = map.next_entry()? {
                    fields.push((name, value));
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// The name of a field, borrowed where nothing is escaped in it.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Object<'a> {
    /// Parses a text; `None` if it is no object.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(super) fn get<T: Deserialize<'a>>(&self, key: &str) -> Option<T> {
        serde_json::from_str(self.raw(key)?).ok()
    }

    /// Returns a field as it came; of several of one name the last.
    pub(super) fn raw(&self, key: &str) -> Option<&'a str> {
        let mut fields = self.0.iter().rev();
        let (_, value) = fields.find(|(name, _)| name == key)?;
        Some(value.get())
    }

    pub(super) fn text(&self, key: &str) -> String {
        self.word(key).into_owned()
    }

    /// Returns a text without a copy where nothing is escaped in it; empty if it is none.
    pub(super) fn word(&self, key: &str) -> Cow<'a, str> {
        let raw = self.raw(key).unwrap_or_default();
        let plain = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
        match plain.filter(|plain| memchr::memchr(b'\\', plain.as_bytes()).is_none()) {
            Some(plain) => plain.into(),
            None => string(raw).map_or(Cow::Borrowed(""), Cow::Owned),
        }
    }

    /// Returns a text; `None` if it is none.
    pub(super) fn string(&self, key: &str) -> Option<String> {
        string(self.raw(key)?)
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        self.get(key).unwrap_or_default()
    }

    /// Returns a number, also one that is written as a fraction or is negative, which counts as 0.
    pub(super) fn number(&self, key: &str) -> u64 {
        // Casts from float to integer saturate.
        self.get::<f64>(key).unwrap_or_default() as u64
    }

    pub(super) fn object(&self, key: &str) -> Object<'a> {
        self.get(key).unwrap_or_default()
    }

    /// Returns the objects of a list, leaving out what is none.
    pub(super) fn list(&self, key: &str) -> Vec<Object<'a>> {
        let items: Vec<&'a RawValue> = self.get(key).unwrap_or_default();
        let objects = items.into_iter().map(RawValue::get);
        objects.filter_map(Object::parse).collect()
    }

    /// Returns the strings of a list, leaving out what is none.
    pub(super) fn texts(&self, key: &str) -> Vec<String> {
        let items: Vec<&'a RawValue> = self.get(key).unwrap_or_default();
        let items = items.into_iter().map(RawValue::get);
        items.filter_map(string).collect()
    }

    pub(super) fn uuids(&self, key: &str) -> Vec<Uuid> {
        let texts = self.texts(key).into_iter();
        texts.filter_map(|text| text.parse().ok()).collect()
    }

    pub(super) fn uuid(&self, key: &str) -> Option<Uuid> {
        self.word(key).parse().ok()
    }

    /// Returns the fields of an object whose values are objects; `None` if there is no such object.
    pub(super) fn fields(&self, key: &str) -> Option<Vec<Object<'a>>> {
        let fields = self.get::<Object<'a>>(key)?.0.into_iter();
        let values = fields.map(|(_, value)| value.get());
        Some(values.filter_map(Object::parse).collect())
    }
}

/// Understands a text. Half a character, as is left where another program cut one, is no reason to lose the rest.
fn string(raw: &str) -> Option<String> {
    struct Lossy(String);
    impl<'de> Deserialize<'de> for Lossy {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Bytes;
            impl Visitor<'_> for Bytes {
                type Value = Lossy;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a text")
                }

                fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Lossy, E> {
                    Ok(Lossy(String::from_utf8_lossy(bytes).into_owned()))
                }
            }
            deserializer.deserialize_bytes(Bytes)
        }
    }
    let whole = serde_json::from_str(raw);
    let lossy = || serde_json::from_str(raw).map(|Lossy(text)| text);
    whole.or_else(|_| lossy()).ok()
}

/// A piece of a streamed answer, which most lines are: understood in one pass.
#[derive(Deserialize)]
pub(super) struct Piece<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    event: Delta<'a>,
    #[serde(default)]
    parent_tool_use_id: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    delta: Text<'a>,
}

#[derive(Deserialize)]
struct Text<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    text: String,
}

impl<'a> Piece<'a> {
    /// Returns the piece of text that a line is; `None` if it is anything else, or part of what another agent says.
    pub(super) fn parse(line: &'a str) -> Option<String> {
        if !line.starts_with(r#"{"type":"stream_event","event":{"type":"content_block_delta""#) {
            return None;
        }
        let piece: Piece<'a> = serde_json::from_str(line).ok()?;
        let types = [
            &piece.r#type,
            &piece.event.r#type,
            &piece.event.delta.r#type,
        ];
        let is_text = types == ["stream_event", "content_block_delta", "text_delta"];
        (is_text && piece.parent_tool_use_id.is_none()).then_some(piece.event.delta.text)
    }
}
