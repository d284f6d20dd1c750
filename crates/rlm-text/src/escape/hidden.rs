//! Characters that a terminal doesn't show, or that change how it shows others.
//!
//! Emoji and the scripts that need joiners stay readable: a joiner or a variation selector is kept behind a character that it belongs to. Flags that are
//! spelled with tag characters are shown as escapes, because tags can spell any text that nobody sees.

/// Returns whether the character shows nothing itself or reorders its neighbours.
#[must_use]
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

/// Returns whether the character has to be shown as an escape when it stands behind `before`.
pub(super) fn is_escaped(before: Option<char>, c: char) -> bool {
    if c.is_control() {
        return true;
    }
    let behind = |belongs: fn(char) -> bool| !before.is_some_and(belongs);
    match c {
        '\u{200d}' => behind(|it| is_pictograph(it) || it == '\u{fe0f}' || is_joining(it)),
        '\u{200c}' => behind(is_joining),
        '\u{fe0e}' | '\u{fe0f}' => {
            behind(|it| is_pictograph(it) || matches!(it, '0'..='9' | '#' | '*'))
        }
        c => is_hidden(c),
    }
}

/// Symbols and emoji, with the marks for the colour of a skin.
fn is_pictograph(c: char) -> bool {
    matches!(c, '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2190}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
}

/// Letters of Arabic, Syriac and the scripts of India, which are written with joiners.
fn is_joining(c: char) -> bool {
    matches!(c, '\u{620}'..='\u{74f}' | '\u{750}'..='\u{77f}' | '\u{8a0}'..='\u{8ff}' | '\u{900}'..='\u{dff}')
}
