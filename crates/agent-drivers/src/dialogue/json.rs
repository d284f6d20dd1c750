//! Lines of JSON: parsing for every protocol except Claude Code's, which parses only the parts that it needs, and writing for all.

use serde_json::Value;
use std::borrow::Cow;

/// Parses a line. Half a surrogate pair becomes U+FFFD: agents write one if they cut a text in the middle of a character.
pub(crate) fn parse(bytes: &[u8]) -> serde_json::Result<Value> {
    // Checking first is much faster than always replacing invalid parts.
    let text =
        std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
    serde_json::from_str(&text).or_else(|e| match !e.is_eof() && text.contains("\\u") {
        true => serde_json::from_str(&repair_surrogates(&text)),
        false => Err(e),
    })
}

/// Replaces escaped halves of surrogate pairs, which a Rust string can't represent.
fn repair_surrogates(text: &str) -> String {
    let mut repaired = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        repaired.push_str(before);
        let (taken, text) = match (
            surrogate_half(escape),
            escape.get(6..).and_then(surrogate_half),
        ) {
            (Some(false), Some(true)) => (12, &escape[..12]),
            (Some(_), _) => (6, "\\ufffd"),
            // The character after any other backslash belongs to its escape.
            (None, _) => {
                let taken = 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
                (taken, &escape[..taken])
            }
        };
        repaired.push_str(text);
        rest = &escape[taken..];
    }
    repaired + rest
}

/// Returns which half of a surrogate pair the escape at the beginning of `text` is: the first, or the second (`true`).
fn surrogate_half(text: &str) -> Option<bool> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let unit = u32::from_str_radix(digits, 16).ok()?;
    match unit {
        0xd800..=0xdbff => Some(false),
        0xdc00..=0xdfff => Some(true),
        _ => None,
    }
}

/// Ends a line of JSON, and escapes the characters besides `\n` at which some readers split lines.
pub(crate) fn line(mut json: String) -> Vec<u8> {
    if json.contains(['\r', '\u{2028}', '\u{2029}']) {
        json = json.replace('\r', " ");
        json = json.replace('\u{2028}', "\\u2028");
        json = json.replace('\u{2029}', "\\u2029");
    }
    json.push('\n');
    json.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn p13a_lone_surrogate_does_not_lose_its_line() {
        let line = parse(br#"{"a":"x\ud83d","b":"\ud83d\ude00 \\ud83d \ude00","c":1}"#).unwrap();
        assert_eq!(line["a"], "x\u{fffd}");
        assert_eq!(line["b"], "\u{1f600} \\ud83d \u{fffd}");
        assert_eq!(line["c"], 1);
        assert!(parse(br#"{"a":"\ud83"#).unwrap_err().is_eof());
    }

    proptest! {
        #[test]
        fn p13c_repair_keeps_valid_text(text: String) {
            let whole = Value::from(text).to_string();
            prop_assert_eq!(&repair_surrogates(&whole), &whole);
        }

        #[test]
        fn p14_parsing_any_bytes_does_not_panic(bytes: Vec<u8>) {
            let _line = parse(&bytes);
            let _repaired = repair_surrogates(&String::from_utf8_lossy(&bytes));
        }
    }
}
