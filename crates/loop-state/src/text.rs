//! The limits of the texts and lists in a head, and functions that shorten a text.

/// The maximum number of bytes of one text in the head: the tail of a failed check, a result, a reason.
pub const MAX_TEXT: usize = 8 * 1024;

/// The maximum number of bytes of all waiting steers together.
pub const MAX_STEER_BYTES: usize = 512 * 1024;

/// The maximum number of waiting steers.
pub const MAX_STEERS: usize = 100;

/// The maximum number of phases of a run.
pub const MAX_PHASES: usize = 32;

/// The maximum number of failed iterations that a phase records; the latest are kept.
pub const MAX_ERRORS: usize = 8;

/// The maximum number of bytes of one recorded failure.
const MAX_ERROR: usize = 1024;

/// Returns the last [`MAX_TEXT`] bytes: the end of a failed check's output is the most useful part.
pub(crate) fn last_text_bytes(text: String) -> String {
    end_of(text, MAX_TEXT)
}

/// Returns the last [`MAX_ERROR`] bytes of a failure, which is the part that a phase records.
pub(crate) fn last_error_bytes(text: String) -> String {
    end_of(text, MAX_ERROR)
}

fn end_of(mut text: String, most: usize) -> String {
    let from = text.len() - last_bytes(&text, most).len();
    text.drain(..from);
    text
}

/// Returns the beginning of a text, at most `most` bytes, without splitting a character.
#[must_use]
pub fn first_bytes(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the end of a text, at most `most` bytes, without splitting a character.
#[must_use]
pub fn last_bytes(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_split() {
        for (most, first, last) in [
            (0, "", ""),
            (1, "a", ""),
            (2, "a", "ö"),
            (3, "aä", "ö"),
            (9, "aäö", "aäö"),
        ] {
            assert_eq!(
                (first_bytes("aäö", most), last_bytes("aäö", most)),
                (first, last),
                "{most}"
            );
        }
    }
}
