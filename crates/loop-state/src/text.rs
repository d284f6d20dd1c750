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
    last_bytes(text, MAX_TEXT)
}

/// Keeps as much of a failure as a finished phase remembers.
pub(crate) fn error(text: String) -> String {
    last_bytes(text, MAX_ERROR)
}

fn last_bytes(mut text: String, max: usize) -> String {
    if text.len() > max {
        let mut from = text.len() - max;
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text.drain(..from);
    }
    text
}
