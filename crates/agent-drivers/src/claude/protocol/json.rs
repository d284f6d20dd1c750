//! JSON objects of which only the fields that are asked for are understood.
//!
//! What nobody asks for is stepped over: most of what the agent writes is texts that are there twice, and lists that only
//! its own screen needs. So a text is looked at for its end, and for nothing else, until it is wanted. Objects within
//! objects are taken apart on the way, so that what stands deep is not read once for each level.

mod text;

use std::borrow::Cow;
use std::str::FromStr;
use text::Reader;
use uuid::Uuid;

/// How deep objects within objects are taken apart; nothing that is asked for stands deeper.
const DEPTH: usize = 8;

/// An object whose fields are understood when they are asked for: a field of a wrong type is a field that is not there.
#[derive(Debug, Default)]
pub(super) struct Object<'a>(Vec<Field<'a>>);

#[derive(Debug)]
struct Field<'a> {
    name: Cow<'a, str>,
    /// As it came.
    value: &'a str,
    /// What is in it, if it is an object and not too deep.
    inside: Option<Object<'a>>,
}

impl<'a> Object<'a> {
    /// Parses a text; `None` if it is no object.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let mut reader = Reader::new(text);
        let object = Object::read(&mut reader, DEPTH)?;
        reader.is_at_end().then_some(object)
    }

    fn read(reader: &mut Reader<'a>, depth: usize) -> Option<Self> {
        // Most lines have about as many, and what is in them fewer.
        let mut fields = Vec::with_capacity(if depth == DEPTH { 8 } else { 4 });
        reader.each(*b"{}", |reader| {
            let name = reader.string()?;
            reader.take(b':')?;
            let (value, inside) = if depth > 0 && reader.peek() == Some(b'{') {
                let begun = reader.at();
                let inside = Object::read(reader, depth - 1)?;
                (reader.since(begun), Some(inside))
            } else {
                (reader.value()?, None)
            };
            fields.push(Field {
                name,
                value,
                inside,
            });
            Some(())
        })?;
        Some(Object(fields))
    }

    /// Returns a field; of several of one name the last.
    fn field(&self, key: &str) -> Option<&Field<'a>> {
        self.0.iter().rev().find(|field| field.name == key)
    }

    /// Returns a field as it came.
    pub(super) fn raw(&self, key: &str) -> Option<&'a str> {
        self.field(key).map(|field| field.value)
    }

    pub(super) fn text(&self, key: &str) -> String {
        self.word(key).into_owned()
    }

    /// Returns a text without a copy where nothing is escaped in it; empty if it is none.
    pub(super) fn word(&self, key: &str) -> Cow<'a, str> {
        self.raw(key).and_then(string).unwrap_or_default()
    }

    /// Returns a text; `None` if it is none.
    pub(super) fn string(&self, key: &str) -> Option<String> {
        string(self.raw(key)?).map(Cow::into_owned)
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        self.raw(key) == Some("true")
    }

    /// Returns a number; `None` if there is none that `T` can have.
    pub(super) fn get<T: FromStr>(&self, key: &str) -> Option<T> {
        let is_of_number = |byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let raw = self.raw(key)?;
        raw.bytes().all(is_of_number).then(|| raw.parse().ok())?
    }

    /// Returns a number, also one that is written as a fraction or is negative, which counts as 0.
    pub(super) fn number(&self, key: &str) -> u64 {
        // Casts from float to integer saturate.
        self.get::<f64>(key).unwrap_or_default() as u64
    }

    /// Returns an object within this one; one without fields if there is none.
    pub(super) fn object(&self, key: &str) -> &Object<'a> {
        let inside = self.field(key).and_then(|field| field.inside.as_ref());
        inside.unwrap_or(const { &Object(Vec::new()) })
    }

    /// Returns the objects of a list, leaving out what is none.
    pub(super) fn list(&self, key: &str) -> Vec<Object<'a>> {
        self.items(key, Object::parse)
    }

    /// Returns the strings of a list, leaving out what is none.
    pub(super) fn texts(&self, key: &str) -> Vec<String> {
        self.items(key, |item| string(item).map(Cow::into_owned))
    }

    pub(super) fn uuids(&self, key: &str) -> Vec<Uuid> {
        self.items(key, |item| string(item)?.parse().ok())
    }

    pub(super) fn uuid(&self, key: &str) -> Option<Uuid> {
        self.word(key).parse().ok()
    }

    /// Returns the fields of an object whose values are objects; `None` if there is no such object.
    pub(super) fn fields(&self, key: &str) -> Option<Vec<Object<'a>>> {
        let fields = Object::parse(self.raw(key)?)?.0.into_iter();
        Some(fields.filter_map(|field| field.inside).collect())
    }

    fn items<T>(&self, key: &str, item: impl Fn(&'a str) -> Option<T>) -> Vec<T> {
        let mut items = Vec::new();
        let list = self.raw(key).and_then(|raw| {
            text::each(raw, *b"[]", |reader| {
                items.extend(item(reader.value()?));
                Some(())
            })
        });
        list.map(|()| items).unwrap_or_default()
    }
}

/// Understands a text; `None` if the value is none.
fn string(value: &str) -> Option<Cow<'_, str>> {
    let raw = value.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', raw.as_bytes()).is_none() {
        return Some(raw.into());
    }
    text::unescaped(raw).map(Cow::Owned)
}
