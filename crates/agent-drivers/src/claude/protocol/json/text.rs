//! The text of JSON: where a value ends, and what a string says.

use std::borrow::Cow;

/// How much of a string is looked at word by word: most are shorter, and then a search by vectors costs more than it saves.
const SHORT: usize = 40;

/// Reads a text from its start to its end.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

/// Hands a reader to `member` before each member of a list or an object. `None` if `member` or the text between two of
/// them fails, or if the text goes on behind the end.
pub(super) fn each<'a>(
    text: &'a str,
    brackets: [u8; 2],
    member: impl FnMut(&mut Reader<'a>) -> Option<()>,
) -> Option<()> {
    let mut reader = Reader::new(text);
    reader.each(brackets, member)?;
    reader.is_at_end().then_some(())
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Reader { text, at: 0 }
    }

    /// Takes a list or an object, and calls `member` where each member begins. `None` if `member` or the text between two of
    /// them fails.
    pub(super) fn each(
        &mut self,
        [open, close]: [u8; 2],
        mut member: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.take(open)?;
        if self.peek() != Some(close) {
            member(self)?;
            while self.peek() != Some(close) {
                self.take(b',')?;
                member(self)?;
            }
        }
        self.take(close)
    }

    pub(super) fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Returns how far it has read.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns what was read since it was at `begun`.
    pub(super) fn since(&self, begun: usize) -> &'a str {
        &self.text[begun..self.at]
    }

    /// Returns the next byte that is no white space.
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.as_bytes().get(self.at)? {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    /// Takes a byte that has to come next.
    pub(super) fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Takes a string, and understands it.
    pub(super) fn string(&mut self) -> Option<Cow<'a, str>> {
        self.peek()?;
        let begun = self.at + 1;
        let is_plain = self.skip_string()?;
        let raw = &self.text[begun..self.at - 1];
        if is_plain {
            Some(raw.into())
        } else {
            unescaped(raw).map(Cow::Owned)
        }
    }

    /// Takes a string that comes next; returns whether nothing is escaped in it.
    fn skip_string(&mut self) -> Option<bool> {
        let bytes = self.text.as_bytes();
        if *bytes.get(self.at)? != b'"' {
            return None;
        }
        self.at += 1;
        let mut is_plain = true;
        loop {
            let rest = bytes.get(self.at..)?;
            let n = quote_or_backslash(rest)?;
            // A quote ends it; what follows a backslash does not.
            if rest[n] == b'"' {
                self.at += n + 1;
                return Some(is_plain);
            }
            is_plain = false;
            self.at += n + 2;
        }
    }

    /// Takes a value, and returns its text. Of a list or an object only the strings and the brackets are looked at.
    pub(super) fn value(&mut self) -> Option<&'a str> {
        let first = self.peek()?;
        let (bytes, begun) = (self.text.as_bytes(), self.at);
        let mut depth = 0_usize;
        loop {
            match *bytes.get(self.at)? {
                b'"' => {
                    self.skip_string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                // The end of what a plain value stands in.
                b'}' | b']' | b',' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => break,
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                }
                _ => self.at += 1,
            }
            if depth == 0 && matches!(first, b'{' | b'[' | b'"') {
                break;
            }
        }
        let value = self.text.get(begun..self.at)?;
        (!value.is_empty()).then_some(value)
    }
}

fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    // Sets the highest bit of the first byte that is `byte`, and perhaps of some after it.
    let find = |word: u64, byte: u8| {
        let zero = word ^ (ONES * u64::from(byte));
        zero.wrapping_sub(ONES) & !zero & (ONES << 7)
    };
    let (near, far) = bytes.split_at(SHORT.min(bytes.len()));
    let (words, rest) = near.as_chunks::<8>();
    for (n, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = find(word, b'"') | find(word, b'\\');
        if found != 0 {
            return Some(8 * n + found.trailing_zeros() as usize / 8);
        }
    }
    let is_end = |byte: &u8| matches!(byte, b'"' | b'\\');
    let last = || Some(near.len() - rest.len() + rest.iter().position(is_end)?);
    last().or_else(|| Some(near.len() + memchr::memchr2(b'"', b'\\', far)?))
}

/// Undoes what is escaped in a string. Half a character, as is left where another program cut one, is no reason to lose
/// the rest.
pub(super) fn unescaped(raw: &str) -> Option<String> {
    let (mut text, mut rest) = (String::with_capacity(raw.len()), raw);
    while let Some(n) = memchr::memchr(b'\\', rest.as_bytes()) {
        text.push_str(&rest[..n]);
        let (c, after) = escaped(&rest[n + 1..])?;
        text.push(c);
        rest = after;
    }
    text.push_str(rest);
    Some(text)
}

/// Returns what is written behind a backslash, and what comes after it.
fn escaped(rest: &str) -> Option<(char, &str)> {
    let c = match rest.as_bytes().first()? {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        c @ (b'"' | b'\\' | b'/') => char::from(*c),
        b'u' => return unicode(&rest[1..]),
        _ => return None,
    };
    Some((c, &rest[1..]))
}

fn unicode(rest: &str) -> Option<(char, &str)> {
    let unit = |text: &str| {
        let digits = text.get(..4)?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u16::from_str_radix(digits, 16).ok())?
    };
    let (first, after) = (unit(rest)?, &rest[4..]);
    let second = after.strip_prefix("\\u").and_then(unit);
    let mut chars = char::decode_utf16([first].into_iter().chain(second));
    let c = chars.next()?.unwrap_or(char::REPLACEMENT_CHARACTER);
    // A character of two halves took both.
    Some((c, &after[6 * (c.len_utf16() - 1)..]))
}

#[cfg(test)]
mod tests {
    use super::super::Object;
    use super::*;
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
                prop::collection::btree_map(r#"[a-z\\" ]{0,3}"#, inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// An object, except that a name, a number or an escape may be wrong: about half of them are objects, and so are hardly any random characters.
    fn almost_an_object() -> impl Strategy<Value = String> {
        let field = r#" ?"[a-c ]{0,2}(\\[nu"])?" ?: ?(-?[01]{1,2}(\.0)?|"[a-c ]{0,3}"|\{\}|\[ ?\]|true|null) ?"#;
        prop::collection::vec(field, 0..3).prop_map(|fields| format!("{{{}}}", fields.join(",")))
    }

    /// What `serde_json` makes of a field is what we make of it.
    fn agrees(text: &str, fields: &Map<String, Value>) {
        let object = Object::parse(text).unwrap();
        for (key, value) in fields {
            let raw = object.raw(key).unwrap();
            assert_eq!(serde_json::from_str::<Value>(raw).unwrap(), *value);
            assert_eq!(object.string(key).as_deref(), value.as_str());
            assert_eq!(object.flag(key), *value == Value::Bool(true));
            assert_eq!(object.get::<f64>(key), value.as_f64());
            let items = value.as_array().map_or(&[][..], Vec::as_slice);
            let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            assert_eq!(object.texts(key), texts);
            assert_eq!(
                object.list(key).len(),
                items.iter().filter(|item| item.is_object()).count()
            );
            if let Value::Object(fields) = value {
                agrees(raw, fields);
            }
        }
    }

    #[test]
    fn p13c_every_escape_is_understood() {
        let raw = r#"\"\\\/\b\f\n\r\té"#;
        assert_eq!(unescaped(raw).unwrap(), "\"\\/\u{8}\u{c}\n\r\té");
        assert_eq!(unescaped(r"\x"), None);
    }

    proptest! {
        #[test]
        fn p13c_an_object_says_what_it_says_to_serde_json(
            fields in prop::collection::btree_map("[a-z]{0,3}", a_value(), 0..6), pretty: bool,
        ) {
            let value = Value::Object(fields.clone().into_iter().collect());
            let text = if pretty { format!("{value:#}") } else { value.to_string() };
            agrees(&text, &fields.into_iter().collect());
        }

        #[test]
        fn p13c_what_serde_json_takes_is_taken(text in prop_oneof![almost_an_object(), r#"[{}\[\],:"\\a-cu01. -]{0,24}"#]) {
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
        fn p13c_a_string_is_what_it_is_to_serde_json(raw in r#"(\\u[dD][89a-fA-F][0-9]{2}|\\u[0-9a-f]{4}|\\.|[a-z"é])*"#) {
            let whole = serde_json::from_str::<String>(&format!("\"{raw}\""));
            if let Ok(whole) = whole {
                prop_assert_eq!(unescaped(&raw).unwrap(), whole);
            } else if let Some(text) = unescaped(&raw) {
                prop_assert!(raw.contains('"') || text.contains(char::REPLACEMENT_CHARACTER));
            }
        }
    }
}
