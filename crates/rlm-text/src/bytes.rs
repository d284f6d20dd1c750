//! Parses and formats sizes in bytes.

use serde::de::{self, Visitor};
use serde::{Deserializer, Serializer};

const UNITS: [(&str, u64); 8] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
];

/// Parses a number of bytes, such as `500MB`, `2GiB` or `0`.
///
/// # Errors
///
/// Returns one line for the user if the text is not a size.
pub fn parse(text: &str) -> Result<u64, String> {
    let bad = || {
        let shown = text.escape_debug();
        format!("`{shown}` is not a size: write for example 500MB or 2GiB")
    };
    let lower = text.trim().to_lowercase();
    let unit =
        { UNITS.iter() }.find_map(|(unit, factor)| Some((lower.strip_suffix(unit)?, *factor)));
    let (digits, factor) = unit.unwrap_or((&lower, 1));
    let number: u64 = digits.trim_end().parse().map_err(|_| bad())?;
    number.checked_mul(factor).ok_or_else(bad)
}

/// Formats a size with about three digits. The text is never smaller than the size.
#[must_use]
pub fn show(bytes: u64) -> String {
    let tenths = |unit: u64| {
        let tenths = bytes.div_ceil(unit / 10);
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    match bytes {
        1 => "1 byte".to_owned(),
        0..1000 => format!("{bytes} bytes"),
        1000..=999_000 => format!("{} kB", bytes.div_ceil(1000)),
        999_001..=999_900_000 => format!("{} MB", tenths(1_000_000)),
        _ => format!("{} GB", tenths(1_000_000_000)),
    }
}

/// Formats a size without loss, in a form that [`parse`] accepts.
#[must_use]
pub fn exact(bytes: u64) -> String {
    let units = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];
    let whole =
        { units.into_iter() }.find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    let (unit, factor) = whole.unwrap_or(("B", 1));
    format!("{}{unit}", bytes / factor)
}

/// Deserialises a size from a file: a whole number or a text.
///
/// # Errors
///
/// Returns an error if the value is not a size.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(Size)
}

/// Serialises a size as [`exact`] formats it.
///
/// # Errors
///
/// Returns the errors of the serialiser.
pub fn serialize_text<S: Serializer>(bytes: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&exact(*bytes))
}

struct Size;

impl Visitor<'_> for Size {
    type Value = u64;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a size such as \"500MB\" or \"2GiB\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        parse(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
        self.visit_str(&number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exactly_shown_size_parses_back(bytes in prop_oneof![any::<u64>(), (0..9999u64, 0..5u32).prop_map(|(n, power)| n * 1000u64.pow(power))]) {
            prop_assert_eq!(parse(&exact(bytes)), Ok(bytes));
        }

        #[test]
        fn any_text_is_a_size_or_one_clear_error(text in "\\PC{0,12}|[0-9]{1,20} ?[kKmMgGtT]?i?[bB]?") {
            match parse(&text) {
                Ok(bytes) => prop_assert!(!show(bytes).is_empty() && parse(&exact(bytes)) == Ok(bytes)),
                Err(why) => prop_assert!(why.contains("is not a size") && !why.contains('\n')),
            }
        }
    }

    #[test]
    fn shown_size_is_never_smaller_than_the_real_size() {
        let sizes = [0, 1, 999, 1000, 1001, 1_000_000, 1_000_001, 1_000_000_001];
        let expected = [
            "0 bytes",
            "1 byte",
            "999 bytes",
            "1 kB",
            "2 kB",
            "1.0 MB",
            "1.1 MB",
            "1.1 GB",
        ];
        assert_eq!(sizes.map(show), expected);
        assert_eq!(show(u64::MAX), "18446744073.8 GB");
    }

    #[test]
    fn common_spellings_of_sizes_are_parsed() {
        let read = [
            "0",
            "4096",
            "500MB",
            "500 mb",
            "2GiB",
            "1kB",
            "7 B",
            "",
            "-1",
            "2.5GB",
            "99999999999TB",
        ];
        let shown = read.map(|text| match parse(text) {
            Ok(bytes) => {
                let exact = exact(bytes);
                assert_eq!(parse(&exact), Ok(bytes));
                format!("{text:?} = {bytes}, {}, {exact}", show(bytes))
            }
            Err(why) => why,
        });
        insta::assert_snapshot!(shown.join("\n"), @r#"
        "0" = 0, 0 bytes, 0B
        "4096" = 4096, 5 kB, 4096B
        "500MB" = 500000000, 500.0 MB, 500MB
        "500 mb" = 500000000, 500.0 MB, 500MB
        "2GiB" = 2147483648, 2.2 GB, 2147483648B
        "1kB" = 1000, 1 kB, 1kB
        "7 B" = 7, 7 bytes, 7B
        `` is not a size: write for example 500MB or 2GiB
        `-1` is not a size: write for example 500MB or 2GiB
        `2.5GB` is not a size: write for example 500MB or 2GiB
        `99999999999TB` is not a size: write for example 500MB or 2GiB
        "#);
    }
}
