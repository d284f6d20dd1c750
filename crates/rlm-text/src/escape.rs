//! Escapes text from agents for a terminal or a JSON reader.

mod sgr;

use std::borrow::Cow;

use sgr::SgrColors;

/// The maximum number of characters shown of one line from an agent.
const MAX_SHOWN: usize = 2000;

/// The number of carriage returns from which a line counts as a progress bar.
const MIN_CARRIAGE_RETURNS: usize = 2;

/// Escapes text for a terminal. Colours stay unless they hide text. Every other control sequence becomes visible text and has no effect. Invisible
/// characters become visible text too.
///
/// Escape sequences can make a terminal write files or type for the user, so an agent's output can only set colours (X115).
#[must_use]
pub fn safe(text: &str) -> String {
    // Fast path: nearly all lines are plain ASCII.
    if text.bytes().all(|b| matches!(b, b' '..=b'~' | b'\t')) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let (mut coloured, mut colours) = (false, SgrColors::default());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(len) = sgr_len(rest) {
            let kept = colours.take(&rest[2..len - 1]);
            coloured |= !kept.is_empty();
            out.push_str(&kept);
            rest = &rest[len..];
            continue;
        }
        match c {
            '\n' | '\t' => out.push(c),
            '\u{1b}' => out.push('␛'),
            c if is_escaped(out.chars().next_back(), c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
        rest = &rest[c.len_utf8()..];
    }
    if coloured {
        out.push_str("\u{1b}[0m");
    }
    out
}

/// Escapes text and puts it on one line, without colours.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        push_plain(&mut out, c);
    }
    out
}

/// Appends a character, escaped and on the same line. The end of `out` decides whether a zero-width joiner stays: it has an effect only after certain
/// characters.
pub fn push_plain(out: &mut String, c: char) {
    match c {
        '\n' => out.push(' '),
        c if is_escaped(out.chars().next_back(), c) => out.extend(c.escape_default()),
        c => out.push(c),
    }
}

/// Replaces characters that control a terminal, and invisible characters, by JSON escapes. A JSON parser still reads the same text.
///
/// In JSON, such characters occur only in strings, so the replacement can run over the whole text.
#[must_use]
pub fn json_escaped(json: String) -> String {
    let is_harmful = |c: char| c == '\u{7f}' || ('\u{80}'..='\u{9f}').contains(&c) || is_hidden(c);
    if !json.contains(is_harmful) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        match is_harmful(c) {
            true => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            false => out.push(c),
        }
    }
    out
}

/// Escapes and shortens one line from an agent.
#[must_use]
pub fn line(bytes: &[u8], omitted: u64) -> String {
    // Nearly all lines are valid, and the check is much faster than a lossy conversion.
    let text =
        std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
    let text = text.trim_end_matches(['\r', '\n']);
    // Show only the last state of a progress bar.
    let text = match text.bytes().filter(|b| *b == b'\r').count() {
        MIN_CARRIAGE_RETURNS.. => text.rsplit('\r').find(|it| !it.trim().is_empty()),
        _ => Some(text),
    };
    let text = text.unwrap_or_default();
    let end = match text.len() {
        ..=MAX_SHOWN => text.len(),
        all => text.char_indices().nth(MAX_SHOWN).map_or(all, |(i, _)| i),
    };
    let mut shown = safe(&text[..end]);
    let left_out = (text.len() - end) as u64 + omitted;
    if left_out > 0 {
        shown.push_str(&format!(" … ({left_out} more bytes)"));
    }
    shown
}

/// Returns the length of the colour sequence at the start of `text`: `ESC [ digits and semicolons m`.
#[must_use]
#[inline]
pub fn sgr_len(text: &str) -> Option<usize> {
    let body = text.strip_prefix("\u{1b}[")?;
    let end = body.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    (body.as_bytes()[end] == b'm' && end < 32).then_some(2 + end + 1)
}

/// Returns a text without its colour sequences.
#[must_use]
pub fn without_colours(text: &str) -> Cow<'_, str> {
    let Some(first) = text.find("\u{1b}[") else {
        return Cow::Borrowed(text);
    };
    let (mut out, mut rest) = (text[..first].to_owned(), &text[first..]);
    while let Some(c) = rest.chars().next() {
        let len = sgr_len(rest);
        if len.is_none() {
            out.push(c);
        }
        rest = &rest[len.unwrap_or(c.len_utf8())..];
    }
    Cow::Owned(out)
}

/// Returns whether the character is invisible or reorders its neighbours.
#[must_use]
#[inline]
pub fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Returns whether the character must be escaped after the character `before`.
fn is_escaped(before: Option<char>, c: char) -> bool {
    if c.is_control() {
        return true;
    }
    let unless_after = |belongs: fn(char) -> bool| !before.is_some_and(belongs);
    match c {
        '\u{200d}' => unless_after(|it| is_pictograph(it) || it == '\u{fe0f}' || is_joining(it)),
        '\u{200c}' => unless_after(is_joining),
        '\u{fe0e}' | '\u{fe0f}' => {
            unless_after(|it| is_pictograph(it) || matches!(it, '0'..='9' | '#' | '*'))
        }
        c => is_hidden(c),
    }
}

/// Returns whether the character is a symbol or an emoji, including the modifiers for skin colours.
fn is_pictograph(c: char) -> bool {
    matches!(c, '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2190}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
}

/// Returns whether the character is a letter of Arabic, Syriac or a script of India. These scripts need joiners.
fn is_joining(c: char) -> bool {
    matches!(c, '\u{620}'..='\u{74f}' | '\u{750}'..='\u{77f}' | '\u{8a0}'..='\u{8ff}' | '\u{900}'..='\u{dff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// With any output of an agent, the only escape sequences that reach the terminal are colours, and no other control character does.
        #[test]
        fn x115a_only_colour_sequences_pass(text in "(\\PC|[\u{0}-\u{1f}\u{7f}-\u{9f}]|\u{1b}\\[[0-9;]{0,4}[mHJ]){0,40}") {
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

    /// Input that hides text: the conceal attribute, text in the colour of its background, invisible characters.
    const HIDES: &str = "(\\PC|[a-c👨]|[\u{0}-\u{1f}\u{7f}-\u{9f}]|[\u{ad}\u{200b}-\u{200f}\u{202a}-\u{202e}\u{2060}-\u{2069}\u{fe0e}\u{fe0f}\u{feff}\u{e0020}-\u{e007f}]\
    |\u{1b}\\[[0-9;]{0,4}[mHJ]|\u{1b}\\[(0|8|28|30|40|90|100|37|47|38;5;(0|16|232)|48;5;(0|16|232)|38;2;1;2;3|48;2;1;2;3)(;(8|30|40|7))?m){0,40}";

    proptest! {
        #[test]
        fn w1_w2_no_hiding_or_control_character_reaches_a_terminal(text in HIDES) {
            let (shown, one_line) = (safe(&text), plain(&text));
            prop_assert!(!one_line.chars().any(char::is_control), "{one_line:?}");
            for shown in [&shown, &one_line] {
                let (mut colours, mut rest, mut before) = (SgrColors::default(), shown.as_str(), None);
                while let Some(c) = rest.chars().next() {
                    if let Some(len) = sgr_len(rest) {
                        let numbers = &rest[2..len - 1];
                        prop_assert_eq!(colours.take(numbers), &rest[..len], "the sequence is unchanged");
                        prop_assert!(!colours.hides(), "{:?}", shown);
                        (before, rest) = (None, &rest[len..]);
                        continue;
                    }
                    let is_shown = matches!(c, '\n' | '\t') || !is_escaped(before, c);
                    prop_assert!(is_shown, "{c:?} in {shown:?}");
                    (before, rest) = (Some(c), &rest[c.len_utf8()..]);
                }
            }
        }

        #[test]
        fn w1_json_escapes_invisible_characters(text in HIDES) {
            let json = json_escaped(serde_json::to_string(&[&text]).unwrap());
            prop_assert!(json.chars().all(|c| !c.is_control() && !is_hidden(c)), "{json:?}");
            let back: Vec<String> = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(&back[0], &text);
        }
    }

    #[test]
    fn w2_examples() {
        let shown = [
            safe("\u{1b}[8mhidden\u{1b}[0m"),
            safe("\u{1b}[1;8;31mred"),
            safe("\u{1b}[30;40mblack"),
            safe("\u{1b}[40m \u{1b}[38;5;232mnearly"),
            safe("a\u{200b}b\u{e0041}c"),
            plain("a\u{200d}b \u{feff}"),
            safe("👨\u{200d}👩\u{200d}👧 ❤\u{fe0f} 1\u{fe0f}\u{20e3}"),
            plain("می\u{200c}خواهم"),
            json_escaped("\"\u{9b}31m\u{7f}\u{202e}\u{e0041}\"".into()),
        ];
        insta::assert_debug_snapshot!(shown, @r#"
    [
        "hidden\u{1b}[0m\u{1b}[0m",
        "\u{1b}[1;31mred\u{1b}[0m",
        "\u{1b}[30;40;39;49mblack\u{1b}[0m",
        "\u{1b}[40m \u{1b}[38;5;232;39;49mnearly\u{1b}[0m",
        "a\\u{200b}b\\u{e0041}c",
        "a\\u{200d}b \\u{feff}",
        "👨\u{200d}👩\u{200d}👧 ❤\u{fe0f} 1\u{fe0f}\u{20e3}",
        "می\u{200c}خواهم",
        "\"\\u009b31m\\u007f\\u202e\\udb40\\udc41\"",
    ]
    "#);
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
