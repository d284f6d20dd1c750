//! Text of a model or a server, made short and harmless for a message.

/// Returns the first `max` characters of a text on one line, and `…` if there are more. Replaces control, zero-width and direction characters.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let mut line: String = { text.trim().chars() }
        .take(max)
        .map(|c| if is_hidden(c) { '\u{fffd}' } else { c })
        .collect();
    if text.trim().chars().nth(max).is_some() {
        line.push('…');
    }
    line
}

/// Returns the first `max` bytes of a text, cut between two characters.
pub(crate) fn start(text: &str, max: usize) -> &str {
    &text[..floor(text, max)]
}

/// Returns the last `max` bytes of a text, cut between two characters.
pub(crate) fn end(text: &str, max: usize) -> &str {
    let mut at = text.len().saturating_sub(max);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    &text[at..]
}

fn floor(text: &str, max: usize) -> usize {
    let mut at = max.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
