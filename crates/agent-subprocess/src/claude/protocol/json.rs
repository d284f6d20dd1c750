//! JSON objects of which only the fields that are asked for are understood.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use uuid::Uuid;

/// An object whose fields are parsed when they are asked for: a field of a wrong type is a field that is not there.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Object<'a>(#[serde(borrow)] BTreeMap<String, &'a RawValue>);

impl<'a> Object<'a> {
    /// Parses a text; `None` if it is no object.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(super) fn get<T: Deserialize<'a>>(&self, key: &str) -> Option<T> {
        serde_json::from_str(self.raw(key)?).ok()
    }

    /// Returns a field as it came.
    pub(super) fn raw(&self, key: &str) -> Option<&'a str> {
        Some(self.0.get(key)?.get())
    }

    pub(super) fn text(&self, key: &str) -> String {
        self.get(key).unwrap_or_default()
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
        let texts = items
            .into_iter()
            .map(|item| serde_json::from_str(item.get()));
        texts.filter_map(Result::ok).collect()
    }

    pub(super) fn uuids(&self, key: &str) -> Vec<Uuid> {
        let texts = self.texts(key).into_iter();
        texts.filter_map(|text| text.parse().ok()).collect()
    }

    pub(super) fn uuid(&self, key: &str) -> Option<Uuid> {
        self.text(key).parse().ok()
    }

    /// Returns the fields of an object whose values are objects; `None` if there is no such object.
    pub(super) fn fields(&self, key: &str) -> Option<Vec<Object<'a>>> {
        let fields = self.get::<Object<'a>>(key)?.0.into_values();
        Some(
            fields
                .map(RawValue::get)
                .filter_map(Object::parse)
                .collect(),
        )
    }
}
