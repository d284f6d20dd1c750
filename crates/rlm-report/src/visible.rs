//! Makes the control and hidden characters of a finished page visible.
//!
//! Templates escape the markup. No tag of the page contains a control or hidden character. So one pass over the whole page covers all texts and
//! attributes, and no template has to do it.

use maud::{Markup, html};
use rlm_text::escape::{is_hidden as is_hidden_on_terminal, sgr_len};

/// Returns an element that keeps the lines of a text.
pub(crate) fn pre(text: &str) -> Markup {
    // An HTML parser drops a line feed directly after the tag.
    html! { pre { "\n" (text) } }
}

/// Returns a page, or a part of it, without colour sequences and with a visible form of every control or hidden character.
#[must_use]
pub fn visible(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(c) = rest.chars().next() {
        if let Some(len) = sgr_len(rest) {
            rest = &rest[len..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        if !(c == '\r' && rest.starts_with('\n')) {
            push(&mut out, c);
        }
    }
    out
}

/// Appends the character, its symbol, or its code.
fn push(out: &mut String, c: char) {
    match c {
        '\n' | '\t' => out.push(c),
        '\0'..' ' => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}')),
        '\u{7f}' => out.push('\u{2421}'),
        c if c.is_control() || is_hidden(c) => out.extend(c.escape_unicode()),
        c => out.push(c),
    }
}

/// Returns whether a browser shows nothing for the character, or reorders its neighbours.
fn is_hidden(c: char) -> bool {
    // Emoji need these characters, and they can't hide other text.
    let joins = matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}');
    (is_hidden_on_terminal(c) && !joins)
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fdd0}'..='\u{fdef}' | '\u{e0000}'..='\u{e007f}')
        || c as u32 & 0xfffe == 0xfffe
}
