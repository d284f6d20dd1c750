//! The text of a result within its caps: the start and the end of a long text stay, the middle is omitted. It takes a text of any length in bounded
//! memory.

use std::fmt::Write as _;

use crate::text::{end, start};

/// The maximum number of bytes of a result.
pub(super) const MAX_BYTES: usize = 50 << 10;
/// The maximum number of lines of a result.
pub(super) const MAX_LINES: usize = 2_000;
/// The part of both caps that is left for notes: what is missing, how the command ended.
const NOTES: Size = Size {
    bytes: 2 << 10,
    lines: 10,
};
/// The most of a text that is shown.
pub(super) const SHOWN: Size = Size {
    bytes: MAX_BYTES - NOTES.bytes,
    lines: MAX_LINES - NOTES.lines,
};
/// The most of the start and of the end of a text that is too long.
const HALF: Size = Size {
    bytes: SHOWN.bytes / 2,
    lines: SHOWN.lines / 2,
};
/// The longest end of a text in memory; then it is shortened to [`HALF`].
const MAX_TAIL: usize = 128 << 10;

/// A number of bytes and of line breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) bytes: usize,
    pub(super) lines: usize,
}

/// The output of a tool.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// The first part of the text, up to [`SHOWN`].
    head: String,
    head_lines: usize,
    /// The text after the head.
    tail: String,
    /// Whether the tail is only the end of what follows the head.
    is_cut: bool,
    bytes: u64,
    lines: u64,
    /// The first bytes of a character whose other bytes did not arrive yet.
    partial: Vec<u8>,
}

impl Output {
    /// Appends bytes. Bytes that are not UTF-8 become U+FFFD.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut joined = std::mem::take(&mut self.partial);
        let bytes = match joined.is_empty() {
            true => bytes,
            false => {
                joined.extend_from_slice(bytes);
                &joined
            }
        };
        if let Ok(text) = std::str::from_utf8(bytes) {
            return self.push_str(text);
        }
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.push_str(chunk.valid());
            let invalid = chunk.invalid();
            let is_incomplete = chunks.peek().is_none()
                && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            match invalid {
                [] => {}
                _ if is_incomplete => self.partial = invalid.to_vec(),
                _ => self.push_str("\u{fffd}"),
            }
        }
    }

    /// Appends text.
    pub(super) fn push_str(&mut self, text: &str) {
        let lines = breaks(text);
        self.bytes += text.len() as u64;
        self.lines += lines as u64;
        let fits = match self.tail.is_empty() {
            false => 0,
            true => {
                let room = Size {
                    bytes: SHOWN.bytes - self.head.len(),
                    lines: SHOWN.lines - self.head_lines,
                };
                prefix(text, room).len()
            }
        };
        let (fits, rest) = text.split_at(fits);
        self.head.push_str(fits);
        self.head_lines += breaks(fits);
        let kept = end(rest, MAX_TAIL);
        self.is_cut |= kept.len() < rest.len();
        self.tail.push_str(kept);
        if self.tail.len() > MAX_TAIL {
            let cut = self.tail.len() - end(&self.tail, HALF.bytes).len();
            self.tail.drain(..cut);
            self.is_cut = true;
        }
    }

    /// Returns whether nothing was appended.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.partial.is_empty()
    }

    /// Returns the text. If it is too long, a line in its middle says what is omitted, and `hint` says how to see it.
    pub(super) fn finish(mut self, hint: &'static str) -> String {
        if !self.partial.is_empty() {
            self.partial.clear();
            self.push_str("\u{fffd}");
        }
        if self.tail.is_empty() {
            return self.head;
        }
        let first = prefix(&self.head, HALF);
        let first = match first.rfind('\n') {
            Some(at) if at >= first.len() / 2 => &first[..=at],
            _ => first,
        };
        let rest = match self.is_cut {
            true => self.tail,
            false => format!("{}{}", &self.head[first.len()..], self.tail),
        };
        let last = suffix(&rest, HALF);
        let last = match last.find('\n') {
            Some(at) if at < last.len() / 2 => &last[at + 1..],
            _ => last,
        };
        let bytes = self.bytes - (first.len() + last.len()) as u64;
        let lines = self.lines - (breaks(first) + breaks(last)) as u64;
        let mut text = first.to_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let _infallible = writeln!(
            text,
            "[{lines} lines ({bytes} bytes) are omitted here; {hint}]"
        );
        text.push_str(last);
        text
    }
}

/// Appends a note on a line of its own. The notes of one result share the room that the caps leave for them.
pub(super) fn push_note(text: &mut String, note: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let note = start(note, NOTES.bytes / 4);
    let _infallible = write!(text, "[{note}]");
}

fn breaks(text: &str) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes()).count()
}

/// Returns the longest start of a text within a size.
fn prefix(text: &str, size: Size) -> &str {
    let text = start(text, size.bytes);
    match text.match_indices('\n').nth(size.lines) {
        Some((at, _)) => &text[..at],
        None => text,
    }
}

/// Returns the longest end of a text within a size.
fn suffix(text: &str, size: Size) -> &str {
    let text = end(text, size.bytes);
    match text.rmatch_indices('\n').nth(size.lines) {
        Some((at, _)) => &text[at + 1..],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HINT: &str = "give a narrower pattern";

    fn shown(chunks: &[Vec<u8>]) -> String {
        let mut output = Output::default();
        for chunk in chunks {
            output.push(chunk);
            assert!(output.head.len() + output.tail.len() <= SHOWN.bytes + 2 * MAX_TAIL);
        }
        output.finish(HINT)
    }

    /// Returns the numbers of lines and bytes that a result says are omitted.
    fn omitted(text: &str) -> Option<(u64, u64)> {
        let note = text
            .lines()
            .find(|line| line.ends_with(&format!("{HINT}]")))?;
        let mut numbers = note
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse().ok());
        Some((numbers.next()?, numbers.next()?))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn a12_output_is_within_the_caps_and_says_what_is_missing(
            line in prop_oneof![0..4_usize, 20..60_usize, 3_000..60_000_usize],
            count in 0..6_000_usize,
            unit in prop_oneof![Just("a"), Just("é"), Just("漢"), Just("🦀")],
            chunk in prop_oneof![1..5_usize, 1_000..300_000_usize],
        ) {
            let line = format!("{}\n", unit.repeat(line));
            let all = line.repeat(count.min((1 << 18) / line.len()));
            let chunks: Vec<Vec<u8>> = all.as_bytes().chunks(chunk).map(<[u8]>::to_vec).collect();
            let text = shown(&chunks);
            prop_assert!(text.len() <= MAX_BYTES, "{} bytes", text.len());
            prop_assert!(text.lines().count() <= MAX_LINES);
            prop_assert!(!text.contains('\u{fffd}'), "a character was cut");
            match omitted(&text) {
                None => prop_assert_eq!(&text, &all),
                Some((lines, bytes)) => {
                    let note = text.find('[').unwrap();
                    let after = note + text[note..].find("]\n").unwrap() + 2;
                    let (first, last) = (&text[..note], &text[after..]);
                    prop_assert!(all.ends_with(last));
                    // The line feed before the note is that of the output, or the note's own.
                    let missing = |first: &str| all.len() - first.len() - last.len();
                    let is_own = all.starts_with(first) && missing(first) == bytes as usize;
                    let first = if is_own { first } else { &first[..first.len() - 1] };
                    prop_assert!(all.starts_with(first));
                    prop_assert_eq!(bytes as usize, missing(first));
                    prop_assert_eq!(lines as usize, breaks(&all) - breaks(first) - breaks(last));
                    prop_assert!(first.len() + last.len() > HALF.bytes || breaks(&text) > HALF.lines);
                }
            }
        }

        #[test]
        fn a12_any_bytes_in_any_chunks_give_the_same_text(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(0xf0), Just(0x9f)], 0..2_000),
            chunk in 1..50_usize,
        ) {
            let chunks: Vec<Vec<u8>> = bytes.chunks(chunk).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(shown(&chunks), shown(std::slice::from_ref(&bytes)));
            prop_assert!(bytes.len() > 1_500 || shown(&chunks) == String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn notes_have_lines_of_their_own_and_a_limit() {
        let mut text = "no line break".to_owned();
        push_note(&mut text, "exit status 1");
        push_note(&mut text, &"é".repeat(9_000));
        assert!(
            text.starts_with("no line break\n[exit status 1]\n[é"),
            "{text}"
        );
        assert!(text.len() < NOTES.bytes);
    }
}
