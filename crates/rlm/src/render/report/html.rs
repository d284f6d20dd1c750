//! HTML that is well-formed by construction: tags and names of attributes are the program's own, all that comes from elsewhere is text, and text
//! is escaped. There is no way around that but [`Html::style`], which takes a constant.

use std::fmt::Write as _;

/// Elements that have no content and no end.
const VOID: [&str; 1] = ["meta"];

/// A piece of a page.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    pub(super) fn into_string(self) -> String {
        self.0
    }

    /// Appends what stands before the document.
    pub(super) fn doctype(&mut self) {
        self.0.push_str("<!doctype html>\n");
    }

    /// Appends an element with these attributes and what `inner` puts into it.
    pub(super) fn element(
        &mut self,
        tag: &'static str,
        attributes: &[(&'static str, &str)],
        inner: impl FnOnce(&mut Self),
    ) {
        self.open(tag, attributes);
        inner(self);
        if !VOID.contains(&tag) {
            _ = write!(self.0, "</{tag}>");
        }
    }

    /// Appends an element of this class that holds text.
    pub(super) fn text_in(&mut self, tag: &'static str, class: &str, text: &str) {
        let class = [("class", class)];
        let class = if class[0].1.is_empty() {
            &[][..]
        } else {
            &class
        };
        self.element(tag, class, |html| html.text(text));
    }

    /// Appends an element that holds nothing.
    pub(super) fn empty(&mut self, tag: &'static str, attributes: &[(&'static str, &str)]) {
        self.element(tag, attributes, |_| {});
    }

    fn open(&mut self, tag: &'static str, attributes: &[(&'static str, &str)]) {
        self.0.push('<');
        self.0.push_str(tag);
        for (name, value) in attributes {
            _ = write!(self.0, " {name}=\"");
            escape(&mut self.0, value);
            self.0.push('"');
        }
        self.0.push('>');
        // A parser drops the first line's end in it.
        if tag == "pre" {
            self.0.push('\n');
        }
    }

    /// Appends text.
    pub(super) fn text(&mut self, text: &str) {
        escape(&mut self.0, text);
    }

    /// Begins a new line of the file, for those who read it.
    pub(super) fn line(&mut self) {
        self.0.push('\n');
    }

    /// Appends the page's own style.
    pub(super) fn style(&mut self, css: &'static str) {
        self.0.push_str("<style>");
        self.0.push_str(css);
        self.0.push_str("</style>");
    }
}

/// Writes text so that it is text for a browser as well: markup is escaped, colours are left out, and every other character that would be obeyed
/// rather than shown is shown.
fn escape(out: &mut String, text: &str) {
    each_visible(text, |c| match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&quot;"),
        '\'' => out.push_str("&#39;"),
        c => out.push_str(&shown(c)),
    });
}

/// Calls `take` for each character but those of colours, and a return before the end of a line.
fn each_visible(text: &str, mut take: impl FnMut(char)) {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(len) = crate::render::text::sgr_len(rest) {
            rest = &rest[len..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        if !(c == '\r' && rest.starts_with('\n')) {
            take(c);
        }
    }
}

/// Returns a character as it is shown: itself, its picture, or its number.
fn shown(c: char) -> String {
    match c {
        '\n' | '\t' => c.to_string(),
        '\0'..' ' => char::from_u32(0x2400 + c as u32)
            .unwrap_or('\u{fffd}')
            .to_string(),
        '\u{7f}' => '\u{2421}'.to_string(),
        c if c.is_control() || is_hidden(c) => c.escape_unicode().to_string(),
        c => c.to_string(),
    }
}

/// Characters that nobody sees: they reorder what stands beside them, spell out things behind its back, or are none at all.
fn is_hidden(c: char) -> bool {
    // The page has no context for them, and emoji need them.
    let joins = matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}');
    (crate::render::text::is_hidden(c) && !joins)
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fdd0}'..='\u{fdef}' | '\u{e0000}'..='\u{e007f}')
        || c as u32 & 0xfffe == 0xfffe
}

/// Returns text as a reader of the page sees it.
#[cfg(test)]
pub(super) fn as_shown(text: &str) -> String {
    let mut out = String::new();
    each_visible(text, |c| out.push_str(&shown(c)));
    out
}
