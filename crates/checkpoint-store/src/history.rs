//! Goes through the saves of a store, one after the other.

use std::cmp::Reverse;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::codec;
use crate::dir::Dir;
use crate::error::{Error, Kind, Result};
use crate::frame::Fault;
use crate::id::Seq;
use crate::image::read_journal;
use crate::load::{Entry, Index, Want};
use crate::options::Options;
use crate::replay::{Replay, State};

/// Shows `each` the head of every save that can still be gone back to, oldest first.
///
/// That is what the progress files hold, over all phases whose progress was not removed. It
/// reads each of them once, so it costs what one load does, where asking
/// [`load_at`](crate::reader::load_at) for every save costs the square of that. What is
/// damaged is left out without a word: [`load`](crate::reader::load) and
/// [`verify`](crate::verify::verify) are there to tell.
///
/// # Errors
/// As [`load_with`](crate::reader::load_with), but for damage.
pub fn history<H: DeserializeOwned>(
    dir: impl AsRef<Path>,
    options: &Options,
    mut each: impl FnMut(Seq, H),
) -> Result<()> {
    let dir = Dir::open(dir.as_ref())?;
    let index = Index::read(&dir, Want::Reader(options))?;
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

/// Returns the newest of the journals of one phase that is whole, else the one with the most.
fn best<'a>(dir: &Dir, generations: &[&'a Entry]) -> Result<Option<(&'a Entry, Replay)>> {
    let mut best: Option<(&Entry, Replay)> = None;
    for &entry in generations {
        // Its writer may have removed it meanwhile.
        let Some(bytes) = dir.read(&entry.name)? else {
            continue;
        };
        let replay = match read_journal(bytes, &entry.meta, u64::MAX) {
            Ok(journal) => journal.replay,
            Err(Fault::Damaged { .. }) => continue,
            Err(newer) => return Err(Error::fault(dir.path().join(&entry.name), newer)),
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
