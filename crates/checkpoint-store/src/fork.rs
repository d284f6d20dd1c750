//! Forks a store: makes a new store from an earlier state of another one, which is only read.

use std::path::Path;

use crate::blob;
use crate::dir::Dir;
use crate::error::{Error, Kind, Result};
use crate::id::{PhaseId, Seq};
use crate::meta::{ParentSave, PhaseMeta};
use crate::options::Options;
use crate::raw_writer::RawWriter;
use crate::reader;

/// The name of the phase with which a fork begins.
const PHASE: &str = "fork";

/// Makes a new store in `to` with the state of the store in `from` as of the save `seq`, and with all its blobs. Returns the id of the finished phase
/// with which the new store begins.
///
/// The new store numbers its saves from 1 and records its origin; see [`PhaseInfo::parent`](crate::PhaseInfo::parent). The old store is only read,
/// and may have a live writer. The cost is proportional to the whole state. After a crash `to` is empty or complete, except for blobs; fork again.
///
/// # Errors
/// [`is_not_found`](Error::is_not_found) if that save does not exist or no longer exists, and as [`Writer::open`](crate::Writer::open) for `to`; also
/// if `to` already holds a state.
pub fn fork(
    from: impl AsRef<Path>,
    seq: Seq,
    to: impl AsRef<Path>,
    options: &Options,
) -> Result<PhaseId> {
    let from = Dir::open(from.as_ref())?;
    let state = reader::at(&from, seq, options)?;
    begin(
        &from,
        seq,
        state,
        RawWriter::open(to.as_ref(), options.clone())?,
    )
}

/// Does the same as [`fork`], between directories of any disk; error messages show the paths.
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub fn fork_on(
    from: (Box<dyn crate::disk::Directory>, &Path),
    seq: Seq,
    to: (Box<dyn crate::disk::Directory>, &Path),
    options: &Options,
) -> Result<PhaseId> {
    let from = Dir::on(from.0, from.1)?;
    let state = reader::at(&from, seq, options)?;
    let to = RawWriter::open_on(Dir::on(to.0, to.1)?, options.clone())?;
    begin(&from, seq, state, to)
}

fn begin(
    from: &Dir,
    seq: Seq,
    source: crate::load::Loaded,
    (mut writer, found): (RawWriter, crate::load::Loaded),
) -> Result<PhaseId> {
    if found.report.used.is_some() {
        return Err(Error::new(writer.dir().path(), Kind::Taken));
    }
    for name in blob::names(from)? {
        writer.put_blob(&name, &blob::get(from, &name)?)?;
    }
    let parent = source.report.file.map(|id| ParentSave { id, seq });
    writer.save_state(PHASE, source.state, PhaseMeta::default(), parent)
}
