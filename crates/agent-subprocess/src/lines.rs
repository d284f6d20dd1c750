//! Splits raw bytes into lines, in bounded memory.

use bytes::{Buf as _, Bytes, BytesMut};

/// One line of output, without its line feed. The bytes are unchanged, also if they are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The bytes of the line; the head and the tail if the line was too long.
    ///
    /// A short line shares a buffer of up to 8 KiB with its neighbours. A line of 64 KiB or more shares the buffer of the read. So copy lines that
    /// you keep for long.
    pub bytes: Bytes,
    /// The number of bytes that were dropped from the middle of a line that was too long.
    pub truncated: Option<u64>,
    /// Whether a line feed ended the line; `false` for a truncated last line.
    pub terminated: bool,
}

impl Line {
    /// Returns the line as text; bytes that are not UTF-8 become U+FFFD.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// Splits bytes into lines at line feeds. The sizes of the chunks don't matter.
///
/// A line of up to `max` bytes comes out whole. From a longer line, the first `max / 2` bytes and the last `max - max / 2` bytes come out as one
/// item. So neither a long line nor bad UTF-8 ends the stream. The buffer has at most about `2 * max` bytes.
///
/// # Examples
/// ```
/// let mut lines = agent_subprocess::Lines::new(16);
/// lines.push(b"one\ntw");
/// assert_eq!(lines.next_line().unwrap().text(), "one");
/// assert!(lines.next_line().is_none());
/// assert_eq!(lines.finish().unwrap().text(), "tw");
/// ```
#[derive(Debug)]
pub struct Lines {
    /// The rest of the block of complete lines.
    block: Bytes,
    buffer: BytesMut,
    /// The number of bytes at the start of the buffer without a line feed.
    scanned: usize,
    /// The number of bytes that were dropped from the middle of the current line.
    dropped: u64,
    max: usize,
}

/// A line, or several lines in one block.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Complete lines, each with its line feed.
    Block(Bytes),
    Line(Line),
}

impl Piece {
    /// Returns the number of bytes in it.
    pub(crate) fn len(&self) -> usize {
        match self {
            Piece::Block(bytes) | Piece::Line(Line { bytes, .. }) => bytes.len(),
        }
    }
}

/// Removes and returns the first line of a [`Piece::Block`].
pub(crate) fn split_off(block: &mut Bytes) -> Option<Line> {
    let length = memchr::memchr(b'\n', block)?;
    let bytes = block.split_to(length);
    block.advance(1);
    Some(Line {
        bytes,
        truncated: None,
        terminated: true,
    })
}

/// The number of bytes to copy at once: the most memory that a stored short line keeps alive.
const BLOCK: usize = if cfg!(test) { 16 } else { 8 << 10 };
/// A line of this size or more is returned without a copy. A shorter line is copied, so that storing it does not keep the whole read in memory.
const COPY_BELOW: usize = 64 << 10;

impl Lines {
    /// Creates a splitter whose lines have at most `max` bytes (at least 1).
    pub fn new(max: usize) -> Self {
        Lines {
            block: Bytes::new(),
            buffer: BytesMut::new(),
            scanned: 0,
            dropped: 0,
            // Twice this value must not overflow.
            max: max.clamp(1, usize::MAX / 2),
        }
    }

    /// Adds bytes. Call [`next_line`](Self::next_line) until it returns `None` before the next push, and before [`finish`](Self::finish).
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the buffer to read into directly; the caller may only append bytes.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Returns the last `count` bytes that were added.
    pub(crate) fn last(&self, count: usize) -> &[u8] {
        &self.buffer[self.buffer.len() - count..]
    }

    /// Returns the next complete line.
    pub fn next_line(&mut self) -> Option<Line> {
        loop {
            if let Some(line) = split_off(&mut self.block) {
                return Some(line);
            }
            match self.next_piece()? {
                Piece::Block(block) => self.block = block,
                Piece::Line(line) => return Some(line),
            }
        }
    }

    /// Returns the next complete line, or several in one block. Don't mix it with [`next_line`](Self::next_line).
    pub(crate) fn next_piece(&mut self) -> Option<Piece> {
        if let Some(block) = self.next_block() {
            return Some(Piece::Block(block));
        }
        let Some(found) = memchr::memchr(b'\n', &self.buffer[self.scanned..]) else {
            self.scanned = self.buffer.len();
            if self.buffer.len() >= 2 * self.max {
                self.drop_middle();
            }
            return None;
        };
        let line = self.take(self.scanned + found, true);
        self.buffer.advance(1);
        Some(Piece::Line(line))
    }

    /// Takes all short lines at the start of the buffer together: one allocation for all of them.
    fn next_block(&mut self) -> Option<Bytes> {
        let start = &self.buffer[..self.buffer.len().min(BLOCK)];
        let is_plain = self.dropped == 0 && self.max >= BLOCK;
        let last = memchr::memrchr(b'\n', start).filter(|_| is_plain)?;
        let block = Bytes::copy_from_slice(&start[..=last]);
        self.buffer.advance(last + 1);
        self.scanned = 0;
        Some(block)
    }

    /// Returns the rest at the end of the stream, if the stream ended inside a line.
    pub fn finish(&mut self) -> Option<Line> {
        (!self.buffer.is_empty() || self.dropped > 0).then(|| self.take(self.buffer.len(), false))
    }

    fn take(&mut self, length: usize, terminated: bool) -> Line {
        let excess = length.saturating_sub(self.max);
        let dropped = std::mem::take(&mut self.dropped) + excess as u64;
        self.scanned = 0;
        let bytes = if excess > 0 {
            let mut line = self.buffer.split_to(length);
            let (head, end) = (self.max / 2, line.len());
            line.copy_within(head + excess..end, head);
            line.truncate(self.max);
            line.freeze()
        } else if length < COPY_BELOW {
            let line = Bytes::copy_from_slice(&self.buffer[..length]);
            self.buffer.advance(length);
            line
        } else {
            self.buffer.split_to(length).freeze()
        };
        Line {
            bytes,
            truncated: (dropped > 0).then_some(dropped),
            terminated,
        }
    }

    fn drop_middle(&mut self) {
        let excess = self.buffer.len() - self.max;
        let (head, end) = (self.max / 2, self.buffer.len());
        self.buffer.copy_within(head + excess..end, head);
        self.buffer.truncate(self.max);
        self.scanned = self.max;
        self.dropped += excess as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Splits with everything in memory, in the simplest way.
    fn naive(input: &[u8], max: usize) -> Vec<Line> {
        let mut pieces: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
        let last = pieces.pop().filter(|piece| !piece.is_empty());
        let complete = pieces.into_iter().map(|piece| (piece, true));
        let line = |(piece, terminated): (&[u8], bool)| match piece.len().checked_sub(max) {
            Some(excess) if excess > 0 => {
                let bytes = [&piece[..max / 2], &piece[max / 2 + excess..]]
                    .concat()
                    .into();
                Line {
                    bytes,
                    truncated: Some(excess as u64),
                    terminated,
                }
            }
            _ => Line {
                bytes: Bytes::copy_from_slice(piece),
                truncated: None,
                terminated,
            },
        };
        complete
            .chain(last.map(|piece| (piece, false)))
            .map(line)
            .collect()
    }

    fn split(chunks: &[Vec<u8>], max: usize) -> (Vec<Line>, usize) {
        let (mut lines, mut out, mut most) = (Lines::new(max), Vec::new(), 0);
        for chunk in chunks {
            lines.push(chunk);
            out.extend(std::iter::from_fn(|| lines.next_line()));
            most = most.max(lines.buffer.len());
        }
        out.extend(lines.finish());
        (out, most)
    }

    proptest! {
        #[test]
        fn p1a_p14_lines_are_independent_of_chunking(
            chunks in prop::collection::vec(
                prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>(), Just(b'x')], 0..40), 0..40),
            max in 1_usize..60,
        ) {
            let (lines, most) = split(&chunks, max);
            prop_assert_eq!(lines, naive(&chunks.concat(), max));
            prop_assert!(most < 2 * max);
        }
    }

    #[test]
    fn line_can_use_the_whole_buffer() {
        let (lines, _) = split(&[b"one\ntw".to_vec()], usize::MAX);
        assert_eq!(lines, naive(b"one\ntw", usize::MAX));
    }

    #[test]
    fn short_line_does_not_pin_its_block_and_long_line_is_not_copied() {
        let long = vec![b'x'; COPY_BELOW];
        let (lines, _) = split(
            &[[b"a\n".as_slice(), &long, b"\n\xff\xfe\n"].concat()],
            1 << 20,
        );
        assert_eq!(
            lines
                .iter()
                .map(|line| line.bytes.len())
                .collect::<Vec<_>>(),
            [1, COPY_BELOW, 2]
        );
        assert_eq!(lines[2].text(), "\u{fffd}\u{fffd}");
    }
}
