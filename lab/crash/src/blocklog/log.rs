//! The log of a disk, and the contents that a power cut leaves. This module does no I/O.

use std::sync::Arc;

use crate::ledger::Note;
use crate::rng::Rng;

/// The unit that a disk writes or loses as a whole.
const BLOCK: usize = 4096;

/// One event, in the order of the disk.
#[derive(Debug, Clone)]
pub enum Entry {
    /// Bytes were written; they may still be lost.
    Write(usize, Arc<[u8]>),
    /// All earlier writes are durable now.
    Flush,
    /// The program sent a note.
    Said(Note),
}

/// The result of a power cut for the writes after the last flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnflushedWrites {
    /// They all arrived.
    All,
    /// None arrived.
    None,
    /// A random number decides for each block.
    Some(u64),
}

/// The contents of a disk, and all later events.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// The bytes before the first entry.
    pub base: Vec<u8>,
    /// The events.
    pub entries: Vec<Entry>,
}

impl Log {
    /// Returns the contents of the disk after a power cut before the entry `cut`.
    pub fn image(&self, cut: usize, flying: UnflushedWrites) -> Vec<u8> {
        let entries = &self.entries[..cut];
        let flush = entries
            .iter()
            .rposition(|entry| matches!(entry, Entry::Flush));
        let mut image = self.base.clone();
        let mut coin = match flying {
            UnflushedWrites::Some(seed) => Some(Rng::new(seed)),
            UnflushedWrites::All | UnflushedWrites::None => None,
        };
        for (index, entry) in entries.iter().enumerate() {
            let Entry::Write(at, bytes) = entry else {
                continue;
            };
            let is_durable = flush.is_some_and(|flush| index < flush);
            for (number, block) in bytes.chunks(BLOCK).enumerate() {
                let arrives = match &mut coin {
                    _ if is_durable => true,
                    Some(coin) => coin.below(2) == 0,
                    None => flying == UnflushedWrites::All,
                };
                if arrives {
                    let at = at + number * BLOCK;
                    image[at..at + block.len()].copy_from_slice(block);
                }
            }
        }
        image
    }

    /// Returns the notes of the program before the entry `cut`.
    pub fn said(&self, cut: usize) -> impl Iterator<Item = &Note> {
        self.entries[..cut].iter().filter_map(|entry| match entry {
            Entry::Said(note) => Some(note),
            Entry::Write(..) | Entry::Flush => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: usize, byte: u8, blocks: usize) -> Entry {
        Entry::Write(at * BLOCK, vec![byte; blocks * BLOCK].into())
    }

    /// Returns the first byte of each block.
    fn blocks(image: &[u8]) -> Vec<u8> {
        image.chunks(BLOCK).map(|block| block[0]).collect()
    }

    #[test]
    fn only_flushed_data_is_durable() {
        let log = Log {
            base: vec![0; 4 * BLOCK],
            entries: vec![
                write(0, 1, 2),
                Entry::Said(Note::Ack),
                Entry::Flush,
                write(1, 2, 1),
                write(3, 3, 1),
            ],
        };
        assert_eq!(blocks(&log.image(2, UnflushedWrites::None)), [0, 0, 0, 0]);
        assert_eq!(blocks(&log.image(2, UnflushedWrites::All)), [1, 1, 0, 0]);
        assert_eq!(blocks(&log.image(5, UnflushedWrites::None)), [1, 1, 0, 0]);
        assert_eq!(blocks(&log.image(5, UnflushedWrites::All)), [1, 2, 0, 3]);
        assert_eq!(log.said(1).count(), 0);
        assert_eq!(log.said(5).count(), 1);
        let some: std::collections::BTreeSet<Vec<u8>> = (0..64)
            .map(|seed| blocks(&log.image(5, UnflushedWrites::Some(seed))))
            .collect();
        assert_eq!(some.len(), 4, "each of two blocks is there or not");
    }
}
