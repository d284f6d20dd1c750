//! Decodes the bytes that a terminal sends into keys.

use std::time::Duration;

/// The wait for more bytes after an escape, which may begin a key's sequence.
const ESCAPE_WAIT: Duration = Duration::from_millis(50);
/// The pause in a paste after which the paste counts as complete.
const PASTE_WAIT: Duration = Duration::from_secs(1);
/// The longest sequence of a key.
const MAX_SEQUENCE: usize = 32;
/// The longest paste.
pub(crate) const MAX_PASTE: usize = 256 << 10;
const PASTE_END: &[u8] = b"\x1b[201~";

/// A key that was typed, or a paste.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Enter,
    /// A line break that doesn't send the text: Alt-Enter, or a line break inside one piece of input.
    NewLine,
    Esc,
    Backspace,
    Delete,
    Left,
    Right,
    Up,
    Down,
    Home,
    End,
    WordLeft,
    WordRight,
    /// Ctrl-W.
    EraseWord,
    /// Ctrl-U.
    EraseToStart,
    /// Ctrl-K.
    EraseToEnd,
    /// Ctrl-D.
    EndOfFile,
    /// Ctrl-C, as the byte 0x03 from a terminal that makes no signal of it.
    Press,
    /// Ctrl-Z, as the byte 0x1a from such a terminal.
    Suspend,
    Paste(String),
    /// A paste of this many bytes, which is longer than the limit.
    PasteTooLong(usize),
}

/// A decoder of bytes into keys. The bytes can arrive in pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pending: Vec<u8>,
    /// The pasted bytes that are kept, and the number of pasted bytes in all.
    paste: Option<(Vec<u8>, usize)>,
}

enum Parsed {
    Key(Key, usize),
    Nothing(usize),
    PasteBegins(usize),
    Incomplete,
}

impl Decoder {
    /// Decodes the next piece. A line break at the end of a piece is Enter; a line break inside a piece was pasted.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut at = 0;
        loop {
            if self.paste.is_some() {
                at += self.paste(at, &mut keys);
                if self.paste.is_some() {
                    break;
                }
            }
            match parse(&self.pending[at..]) {
                Parsed::Key(key, len) => {
                    keys.push(key);
                    at += len;
                }
                Parsed::Nothing(len) => at += len,
                Parsed::PasteBegins(len) => {
                    self.paste = Some((Vec::new(), 0));
                    at += len;
                }
                Parsed::Incomplete => break,
            }
        }
        self.pending.drain(..at);
        keys
    }

    /// Returns how long to wait for more bytes before [`flush`](Self::flush).
    pub(crate) fn flush_after(&self) -> Option<Duration> {
        match (&self.paste, self.pending.is_empty()) {
            (Some(_), _) => Some(PASTE_WAIT),
            (None, false) => Some(ESCAPE_WAIT),
            (None, true) => None,
        }
    }

    /// Decodes the pending bytes as they are, because no more bytes follow.
    pub(crate) fn flush(&mut self) -> Vec<Key> {
        let mut rest = std::mem::take(&mut self.pending);
        if let Some((mut text, total)) = self.paste.take() {
            keep(&mut text, &rest);
            return vec![pasted(&text, total + rest.len())];
        }
        let mut keys = Vec::new();
        match rest.first() {
            None => return keys,
            Some(0x1b) => {
                keys.push(Key::Esc);
                rest.remove(0);
                // The rest of an incomplete sequence is not text.
                if rest.first().is_some_and(|b| matches!(b, b'[' | b'O')) {
                    return keys;
                }
            }
            Some(_) => {
                keys.push(Key::Char(char::REPLACEMENT_CHARACTER));
                return keys;
            }
        }
        keys.extend(self.feed(&rest));
        keys
    }

    /// Takes pasted bytes from `at` on, and returns their number.
    fn paste(&mut self, at: usize, keys: &mut Vec<Key>) -> usize {
        let Some((text, total)) = &mut self.paste else {
            return 0;
        };
        let bytes = &self.pending[at..];
        let end = bytes
            .windows(PASTE_END.len())
            .position(|window| window == PASTE_END);
        // The end marker may be split between two pieces.
        let until = end.unwrap_or(bytes.len() - partial_end(bytes));
        keep(text, &bytes[..until]);
        *total += until;
        if end.is_none() {
            return until;
        }
        keys.push(pasted(text, *total));
        self.paste = None;
        until + PASTE_END.len()
    }
}

fn keep(text: &mut Vec<u8>, bytes: &[u8]) {
    let room = (MAX_PASTE + 1).saturating_sub(text.len());
    text.extend_from_slice(&bytes[..room.min(bytes.len())]);
}

fn pasted(text: &[u8], total: usize) -> Key {
    if total > MAX_PASTE {
        return Key::PasteTooLong(total);
    }
    let text = String::from_utf8_lossy(text);
    Key::Paste(text.replace("\r\n", "\n").replace('\r', "\n"))
}

/// Returns the length of the longest prefix of `PASTE_END` that `bytes` ends with.
fn partial_end(bytes: &[u8]) -> usize {
    (1..PASTE_END.len())
        .rev()
        .find(|&len| bytes.ends_with(&PASTE_END[..len]))
        .unwrap_or(0)
}

fn parse(bytes: &[u8]) -> Parsed {
    let Some(&first) = bytes.first() else {
        return Parsed::Incomplete;
    };
    match first {
        0x1b => escape(bytes),
        b'\r' | b'\n' => {
            let len = if bytes.starts_with(b"\r\n") { 2 } else { 1 };
            let last = bytes.len() == len;
            Parsed::Key(if last { Key::Enter } else { Key::NewLine }, len)
        }
        b'\t' => Parsed::Key(Key::Char('\t'), 1),
        0x00..0x20 | 0x7f => control(first).map_or(Parsed::Nothing(1), |key| Parsed::Key(key, 1)),
        _ => character(bytes),
    }
}

fn control(byte: u8) -> Option<Key> {
    Some(match byte {
        0x01 => Key::Home,
        0x02 => Key::Left,
        0x03 => Key::Press,
        0x04 => Key::EndOfFile,
        0x05 => Key::End,
        0x06 => Key::Right,
        0x08 | 0x7f => Key::Backspace,
        0x0b => Key::EraseToEnd,
        0x0e => Key::Down,
        0x10 => Key::Up,
        0x15 => Key::EraseToStart,
        0x17 => Key::EraseWord,
        0x1a => Key::Suspend,
        _ => return None,
    })
}

fn character(bytes: &[u8]) -> Parsed {
    let piece = &bytes[..bytes.len().min(4)];
    let (text, bad) = match std::str::from_utf8(piece) {
        Ok(text) => (text, None),
        Err(error) => (
            std::str::from_utf8(&piece[..error.valid_up_to()]).unwrap_or_default(),
            Some(error.error_len()),
        ),
    };
    match (text.chars().next(), bad) {
        (Some(c), _) => Parsed::Key(Key::Char(c), c.len_utf8()),
        (None, Some(Some(len))) => Parsed::Key(Key::Char(char::REPLACEMENT_CHARACTER), len),
        (None, _) => Parsed::Incomplete,
    }
}

fn escape(bytes: &[u8]) -> Parsed {
    let key = match bytes.get(1) {
        None => return Parsed::Incomplete,
        Some(b'[') => return sequence(bytes),
        Some(b'O') => {
            return match bytes.get(2) {
                None => Parsed::Incomplete,
                Some(&last) => letter(last).map_or(Parsed::Nothing(3), |key| Parsed::Key(key, 3)),
            };
        }
        Some(b'\r' | b'\n') => Key::NewLine,
        Some(b'b') => Key::WordLeft,
        Some(b'f') => Key::WordRight,
        Some(0x7f) => Key::EraseWord,
        // The Esc key, and then another key.
        Some(_) => return Parsed::Key(Key::Esc, 1),
    };
    Parsed::Key(key, 2)
}

/// Parses a sequence: `ESC [`, parameters, a last byte.
fn sequence(bytes: &[u8]) -> Parsed {
    let body = &bytes[2..];
    let Some(len) = body.iter().position(|b| !matches!(b, 0x20..0x40)) else {
        return match body.len() > MAX_SEQUENCE {
            true => Parsed::Nothing(bytes.len()),
            false => Parsed::Incomplete,
        };
    };
    let (parameters, last, all) = (&body[..len], body[len], len + 3);
    let word = parameters.ends_with(b";5") || parameters.ends_with(b";3");
    let key = match (last, parameters) {
        (b'C', _) if word => Some(Key::WordRight),
        (b'D', _) if word => Some(Key::WordLeft),
        (b'~', b"1" | b"7") => Some(Key::Home),
        (b'~', b"4" | b"8") => Some(Key::End),
        (b'~', b"3") => Some(Key::Delete),
        (b'~', b"200") => return Parsed::PasteBegins(all),
        (0x40.., _) => letter(last),
        // A control byte ends the sequence early; that byte is a separate key.
        _ => return Parsed::Nothing(all - 1),
    };
    key.map_or(Parsed::Nothing(all), |key| Parsed::Key(key, all))
}

fn letter(last: u8) -> Option<Key> {
    Some(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'F' => Key::End,
        b'H' => Key::Home,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(pieces: &[&[u8]]) -> Vec<Key> {
        let mut decoder = Decoder::default();
        let mut keys: Vec<Key> = pieces.iter().flat_map(|p| decoder.feed(p)).collect();
        while decoder.flush_after().is_some() {
            keys.extend(decoder.flush());
        }
        keys
    }

    #[test]
    fn split_key_sequences_are_recognised() {
        use Key::*;
        assert_eq!(all(&[b"\x1b"]), [Esc]);
        assert_eq!(all(&[b"\x1b", b"[", b"D"]), [Left]);
        assert_eq!(all(&[b"\x1b[1;5C\x1bOH\x1b[3~"]), [WordRight, Home, Delete]);
        assert_eq!(all(&[b"\xc3", b"\xa9\xff"]), [Char('é'), Char('\u{fffd}')]);
        assert_eq!(all(&[b"\x1bx"]), [Esc, Char('x')]);
        assert_eq!(all(&[b"\x1b[1;"]), [Esc]);
        assert_eq!(all(&[b"\x1b[?1;2c"]), []);
        assert_eq!(all(&[b"\x03\x1a\x04"]), [Press, Suspend, EndOfFile]);
    }

    #[test]
    fn only_a_line_break_at_the_end_is_enter() {
        use Key::*;
        assert_eq!(all(&[b"a\r"]), [Char('a'), Enter]);
        assert_eq!(all(&[b"a\rb"]), [Char('a'), NewLine, Char('b')]);
        assert_eq!(all(&[b"a\r\r\n"]), [Char('a'), NewLine, Enter]);
        assert_eq!(all(&[b"\x1b\r"]), [NewLine]);
    }

    #[test]
    fn paste_is_one_key_and_limited() {
        let text = |t: &str| [Key::Paste(t.into())];
        assert_eq!(all(&[b"\x1b[200~a\rb\x1b[20", b"1~"]), text("a\nb"));
        assert_eq!(
            all(&[b"\x1b[200~x\x1b[2", b"00~y\x1b[201~"]),
            text("x\u{1b}[200~y")
        );
        assert_eq!(all(&[b"\x1b[200~never ends"]), text("never ends"));
        let mut decoder = Decoder::default();
        let mut keys = decoder.feed(b"\x1b[200~");
        for _ in 0..300 {
            keys.extend(decoder.feed(&[b'x'; 1024]));
            let kept = decoder.paste.as_ref().map_or(0, |(text, _)| text.len());
            assert!(kept <= MAX_PASTE + 1 && decoder.pending.len() < 8);
        }
        keys.extend(decoder.feed(b"\x1b[201~\r"));
        assert_eq!(keys, [Key::PasteTooLong(300 << 10), Key::Enter]);
    }

    proptest! {
        /// Any bytes in any pieces: the decoder doesn't panic, doesn't wait for ever, and keeps few bytes.
        #[test]
        fn any_bytes_are_parsed_without_a_panic(pieces in proptest::collection::vec(
            proptest::collection::vec(prop_oneof![any::<u8>(), Just(0x1b), Just(b'[')], 0..12), 0..12,
        )) {
            let mut decoder = Decoder::default();
            for piece in &pieces {
                decoder.feed(piece);
                if decoder.paste.is_none() {
                    prop_assert!(decoder.pending.len() <= MAX_SEQUENCE + 16);
                }
            }
            decoder.flush();
            decoder.flush();
            prop_assert_eq!(decoder.flush_after(), None);
        }

        /// Text is unchanged, wherever it is split.
        #[test]
        fn text_is_unchanged(text in "[^\\p{Cc}]{0,40}", cut in 0usize..200) {
            let bytes = text.as_bytes();
            let (a, b) = bytes.split_at(cut.min(bytes.len()));
            let keys: Vec<Key> = text.chars().map(Key::Char).collect();
            prop_assert_eq!(all(&[a, b]), keys);
        }
    }
}
