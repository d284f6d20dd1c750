//! Iterates over the saves of a store, oldest first.

use std::cmp::Reverse;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::chain::{self, Chain};
use crate::codec;
use crate::dir::Dir;
use crate::error::{Error, Kind, Result};
use crate::id::Seq;
use crate::load::{Entry, Index, LoadPurpose};
use crate::options::Options;
use crate::replay::{Needed, Replay, State};

/// Calls `each` with the head of every save in the journals of the store, without undone saves, oldest first. A phase is not in a journal, so its own
/// head is left out.
///
/// This reads each journal once, so it costs as much as one load; calling [`load_at`](crate::reader::load_at) for every save has quadratic costs.
/// Damaged files are skipped without a report; [`load`](crate::reader::load) and [`verify`](crate::verify::verify) report them.
///
/// # Errors
/// As [`load_with`](crate::reader::load_with), except for damage.
pub fn history<H: DeserializeOwned>(
    dir: impl AsRef<Path>,
    options: &Options,
    mut each: impl FnMut(Seq, H),
) -> Result<()> {
    let dir = Dir::open(dir.as_ref())?;
    let index = Index::read(&dir, LoadPurpose::Reader(options))?;
    let journals = index.entries.iter().filter(|it| it.meta.phase.is_none());
    let mut journals: Vec<&Entry> = journals.collect();
    journals.sort_by_key(|it| (it.meta.seq, Reverse(it.meta.epoch)));
    for generations in journals.chunk_by(|a, b| a.meta.seq == b.meta.seq) {
        let Some((entry, replay)) = best(&dir, generations)? else {
            continue;
        };
        for (seq, head) in replay.heads() {
            let head = Some(head.to_vec());
            let state = State {
                head,
                ..State::default()
            };
            let state = index.migrate(&dir, entry, state)?;
            let head = codec::decode(&state.head.unwrap_or_default()).map_err(|reason| {
                let what = "a head";
                Error::new(dir.path().join(&entry.name), Kind::Decode { what, reason })
            })?;
            each(Seq::new(seq), head);
        }
    }
    Ok(())
}

/// Returns the newest complete journal of one phase; if none is complete, the one with the most saves.
fn best<'a>(dir: &Dir, generations: &[&'a Entry]) -> Result<Option<(&'a Entry, Replay)>> {
    let mut best: Option<(&Entry, Replay)> = None;
    for &entry in generations {
        // The writer may have removed this journal since the listing.
        let Some(bytes) = dir.read(&entry.name)? else {
            continue;
        };
        let read = chain::read(
            dir,
            &entry.name,
            &entry.meta,
            bytes,
            u64::MAX,
            Needed::Everything,
        )?;
        let Ok(Chain { replay, .. }) = read else {
            continue;
        };
        let is_whole = replay.seq >= entry.meta.carried;
        if best
            .as_ref()
            .is_none_or(|(_, other)| other.seq < replay.seq)
        {
            best = Some((entry, replay));
        }
        if is_whole {
            break;
        }
    }
    Ok(best)
}
