/// The most bytes of one text in the head: the tail of a failed check, a steer, a reason.
pub const MAX_TEXT: usize = 8 * 1024;

/// The most bytes of all steers that wait, together.
pub const MAX_STEER_BYTES: usize = 512 * 1024;

/// The most steers that wait at once.
pub const MAX_STEERS: usize = 100;

/// Keeps the last [`MAX_TEXT`] bytes: of a failed check the end tells most.
pub(crate) fn tail(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        let mut from = text.len() - MAX_TEXT;
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text.drain(..from);
    }
    text
}
