//! How large a head can get: the bounds of the texts and lists in it, and which end of a text is kept.

/// The most bytes of one text in the head: the tail of a failed check, a result, a reason.
pub const MAX_TEXT: usize = 8 * 1024;

/// The most bytes of all steers that wait, together.
pub const MAX_STEER_BYTES: usize = 512 * 1024;

/// The most steers that wait at once.
pub const MAX_STEERS: usize = 100;

/// The most phases of a run.
pub const MAX_PHASES: usize = 32;

/// The most iterations that went wrong of which a phase keeps the failure; the latest are kept.
pub const MAX_ERRORS: usize = 8;

/// The most bytes of one failure that a phase keeps.
const MAX_ERROR: usize = 1024;

/// Keeps the last [`MAX_TEXT`] bytes: of a failed check the end tells most.
pub(crate) fn tail(text: String) -> String {
    end_of(text, MAX_TEXT)
}

/// Keeps as much of a failure as a finished phase remembers.
pub(crate) fn error(text: String) -> String {
    end_of(text, MAX_ERROR)
}

fn end_of(mut text: String, most: usize) -> String {
    let from = text.len() - last_bytes(&text, most).len();
    text.drain(..from);
    text
}

/// Returns the beginning of a text, so many bytes at most; no character is cut in two.
#[must_use]
pub fn first_bytes(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the end of a text, so many bytes at most; no character is cut in two.
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
    fn no_character_is_cut_in_two() {
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
