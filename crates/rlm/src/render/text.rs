//! Text that comes from elsewhere and goes to a terminal.

/// The most characters of one line of the agent's that are shown.
const MAX_SHOWN: usize = 2000;

/// How often a line goes back to its beginning that shows how something goes on.
const OVER_AND_OVER: usize = 2;

/// Makes text harmless for a terminal: colours stay, every other control sequence is shown instead of obeyed.
///
/// What a terminal may do on escape sequences includes writing files and typing for the user, so the agent's output decides on colours only (X115).
pub(crate) fn safe(text: &str) -> String {
    // Nearly every line of a flood.
    if text.bytes().all(|b| matches!(b, b' '..=b'~' | b'\t')) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut coloured = false;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(len) = sgr_len(rest) {
            out.push_str(&rest[..len]);
            coloured = true;
            rest = &rest[len..];
            continue;
        }
        match c {
            '\n' | '\t' => out.push(c),
            '\u{1b}' => out.push('␛'),
            c if c.is_control() || is_bidi(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
        rest = &rest[c.len_utf8()..];
    }
    if coloured {
        out.push_str("\u{1b}[0m");
    }
    out
}

/// Makes text harmless and puts it on one line, without colours.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|c| match c {
            '\n' => vec![' '],
            c if c.is_control() || is_bidi(c) => c.escape_default().collect(),
            c => vec![c],
        })
        .collect()
}

/// Makes one line of the agent's harmless and short enough to read.
pub(crate) fn line(bytes: &[u8], omitted: u64) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end_matches(['\r', '\n']);
    // What is written over and over, like a bar that grows, is shown as it was last.
    let text = match text.bytes().filter(|b| *b == b'\r').count() {
        OVER_AND_OVER.. => text.rsplit('\r').find(|it| !it.trim().is_empty()),
        _ => Some(text),
    };
    let text = text.unwrap_or_default();
    let cut = match text.len() {
        ..=MAX_SHOWN => text.len(),
        all => text.char_indices().nth(MAX_SHOWN).map_or(all, |(i, _)| i),
    };
    let mut shown = safe(&text[..cut]);
    let left_out = (text.len() - cut) as u64 + omitted;
    if left_out > 0 {
        shown.push_str(&format!(" … ({left_out} more bytes)"));
    }
    shown
}

/// Returns the length of the colour sequence at the beginning of `text`: `ESC [ digits and semicolons m`.
pub(crate) fn sgr_len(text: &str) -> Option<usize> {
    let body = text.strip_prefix("\u{1b}[")?;
    let end = body.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    (body.as_bytes()[end] == b'm' && end < 32).then_some(2 + end + 1)
}

/// Characters that reorder what stands beside them.
pub(super) fn is_bidi(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the agent prints, no escape reaches the terminal but a colour, and no other control character at all.
        #[test]
        fn x115a_only_colours_get_through(text in "(\\PC|[\u{0}-\u{1f}\u{7f}-\u{9f}]|\u{1b}\\[[0-9;]{0,4}[mHJ]){0,40}") {
            let shown = safe(&text);
            let mut rest = shown.as_str();
            while let Some(at) = rest.find('\u{1b}') {
                let len = sgr_len(&rest[at..]);
                prop_assert!(len.is_some(), "{shown:?}");
                rest = &rest[at + len.unwrap()..];
            }
            let harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t' | '\u{1b}');
            prop_assert!(shown.chars().all(harmless));
        }
    }

    #[test]
    fn x115a_x115b_x115c_examples() {
        let shown = [
            safe("\u{1b}[31mred\u{1b}[0m"),
            safe("\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}[1;1Hgone"),
            safe("a\rb\u{8}c\u{202e}d"),
            plain("two\nlines\u{1b}[31m"),
            line(b"bad \xff byte", 0),
            line(b"10%\r20%\r \r\n", 0),
            line(b"one\rtwo", 0),
            line("x".repeat(3000).as_bytes(), 7).split_off(1998),
        ];
        insta::assert_debug_snapshot!(shown, @r#"
        [
            "\u{1b}[31mred\u{1b}[0m\u{1b}[0m",
            "␛]0;title\\u{7}␛[2J␛[1;1Hgone",
            "a\\u{d}b\\u{8}c\\u{202e}d",
            "two lines\\u{1b}[31m",
            "bad � byte",
            "20%",
            "one\\u{d}two",
            "xx … (1007 more bytes)",
        ]
        "#);
    }
}
