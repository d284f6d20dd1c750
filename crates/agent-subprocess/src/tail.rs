//! The end of a stream, in bounded memory.

/// Keeps the last bytes of standard error: 64 KiB.
const KEEP: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Tail(Vec<u8>);

impl Tail {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(KEEP)..];
        // Only every 64 KiB is anything moved.
        if self.0.len() + bytes.len() > 2 * KEEP {
            self.0
                .drain(..self.0.len().saturating_sub(KEEP - bytes.len()));
        }
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0[self.0.len().saturating_sub(KEEP)..]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_last_bytes_are_kept_whatever_the_pieces() {
        for piece in [1, 1000, KEEP - 1, KEEP, 3 * KEEP] {
            let all: Vec<u8> = (0..5 * KEEP).map(|n| b'a' + (n % 23) as u8).collect();
            let mut tail = Tail::default();
            all.chunks(piece).for_each(|chunk| tail.push(chunk));
            assert!(tail.0.len() <= 2 * KEEP);
            assert_eq!(
                tail.text().as_bytes(),
                &all[4 * KEEP..],
                "pieces of {piece}"
            );
        }
    }
}
