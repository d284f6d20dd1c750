//! Finds the newest valid state of a directory. Writes nothing.

use crate::dir::Dir;
use crate::error::{Error, Kind, Result};
use crate::frame::{Fault, Tail, without_zeros};
use crate::image::{Journal, meta_end, read_journal, read_meta, read_phase};
use crate::meta::{Base, FileMeta};
use crate::name::FileName;
use crate::options::Options;
use crate::replay::State;
use crate::report::{LoadReport, Skipped};

/// A phase file or journal whose provenance is good.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) meta: FileMeta,
}

impl Entry {
    /// Newer files compare greater: a higher epoch wins, whatever a fenced writer
    /// still left behind; within an epoch the later save; a journal over its base.
    fn order(&self) -> (u64, u64, bool) {
        (self.meta.epoch, self.meta.seq, self.meta.phase.is_none())
    }
}

/// The files of a directory, newest first.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) entries: Vec<Entry>,
    pub(crate) skipped: Vec<Skipped>,
}

impl Index {
    /// Reads the provenance of every file.
    ///
    /// # Errors
    /// Fails for a file that a newer program wrote, or that holds another schema:
    /// going on without it would hide newer progress.
    pub(crate) fn read(dir: &Dir, options: Option<&Options>) -> Result<Self> {
        let mut index = Self::default();
        for file in dir.own()? {
            if !matches!(file, FileName::Phase { .. } | FileName::Progress { .. }) {
                continue;
            }
            let name = file.to_string();
            let path = || dir.path().join(&name);
            // Between listing and reading the writer may have removed it.
            let Some(first) = dir.read_up_to(&name, meta_end(&[]) as u64)? else {
                continue;
            };
            let Some(first) = dir.read_up_to(&name, meta_end(&first) as u64)? else {
                continue;
            };
            match read_meta(&first) {
                Ok(meta) if !is_named_as(&meta, file) => {
                    let reason = "its name does not fit its contents".into();
                    index.skipped.push(Skipped {
                        file: name,
                        reason,
                        offset: 0,
                    });
                }
                Ok(meta) => {
                    if let Some(options) = options {
                        check_schema(&meta, options).map_err(|kind| Error::new(path(), kind))?;
                    }
                    index.entries.push(Entry { name, meta });
                }
                Err(fault) => index.skipped.push(skip(dir, &name, fault)?),
            }
        }
        index
            .entries
            .sort_by_key(|entry| std::cmp::Reverse(entry.order()));
        Ok(index)
    }

    pub(crate) fn highest_epoch(&self) -> u64 {
        self.entries.first().map_or(0, |entry| entry.meta.epoch)
    }

    pub(crate) fn phase(&self, base: &Base) -> Option<&Entry> {
        self.entries
            .iter()
            .find(|e| e.meta.id == base.id && e.meta.phase.is_some())
    }
}

fn is_named_as(meta: &FileMeta, file: FileName) -> bool {
    match file {
        FileName::Phase { seq } => meta.phase.is_some() && meta.seq == seq,
        FileName::Progress { epoch, base } => {
            meta.phase.is_none() && meta.epoch == epoch && meta.seq == base
        }
        FileName::Marker { .. } | FileName::Temp { .. } => false,
    }
}

fn check_schema(meta: &FileMeta, options: &Options) -> Result<(), Kind> {
    if meta.schema != options.schema {
        return Err(Kind::OtherSchema {
            found: meta.schema.clone(),
            expected: options.schema.clone(),
        });
    }
    if meta.schema_version > options.schema_version {
        return Err(Kind::UnsupportedVersion {
            what: format!("schema `{}`", meta.schema),
            found: meta.schema_version,
            supported: options.schema_version,
        });
    }
    Ok(())
}

/// Turns damage into a line of the report, and anything else into an error.
fn skip(dir: &Dir, name: &str, fault: Fault) -> Result<Skipped> {
    match fault {
        Fault::Damaged { offset, reason } => Ok(Skipped {
            file: name.into(),
            reason: reason.into(),
            offset: offset as u64,
        }),
        newer => Err(Error::fault(dir.path().join(name), newer)),
    }
}

/// A state and what a writer needs to go on from it.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) state: State,
    pub(crate) seq: u64,
    pub(crate) base: Option<Base>,
    /// The saves after the base that can be returned to.
    pub(crate) seqs: Vec<u64>,
    /// The journal's file, as far as it is good.
    pub(crate) journal: Option<(Entry, Vec<u8>, Vec<crate::frame::Frame>)>,
    pub(crate) report: LoadReport,
}

/// Loads the newest valid state. `index` is consumed from the newest file on.
pub(crate) fn newest(dir: &Dir, mut index: Index) -> Result<Loaded> {
    // The best journal so far whose good part ends before what its writer began with.
    let mut partial: Option<Loaded> = None;
    let mut whole = None;
    for entry in index.entries.clone() {
        let attempt = match entry.meta.phase {
            Some(_) => phase(dir, &entry)?,
            None => journal(dir, &index, &entry)?,
        };
        let Attempt { loaded, bad } = attempt;
        index.skipped.extend(bad);
        let Some(loaded) = loaded else { continue };
        if loaded.seq >= entry.meta.carried {
            whole = Some(loaded);
            break;
        }
        if partial.as_ref().is_none_or(|best| best.seq < loaded.seq) {
            partial = Some(loaded);
        }
    }
    let best = match (whole, partial) {
        (Some(whole), Some(partial)) if partial.seq > whole.seq => Some(partial),
        (whole, partial) => whole.or(partial),
    };
    match (best, index.skipped.first()) {
        (None, Some(first)) => Err(Error::new(
            dir.path(),
            Kind::Corrupt {
                reason: format!("no valid state is left ({first})"),
            },
        )),
        (best, _) => {
            let mut best = best.unwrap_or_default();
            best.report.skipped = index.skipped;
            Ok(best)
        }
    }
}

/// What came of reading one file: a state, damage, or both.
#[derive(Debug, Default)]
struct Attempt {
    loaded: Option<Loaded>,
    bad: Option<Skipped>,
}

/// Reads the state of one phase file.
pub(crate) fn phase_state(dir: &Dir, entry: &Entry) -> Result<Result<State, Skipped>> {
    let Some(bytes) = dir.read(&entry.name)? else {
        return Ok(Err(gone(&entry.name)));
    };
    match read_phase(&bytes) {
        Ok(state) => Ok(Ok(state)),
        Err(fault) => skip(dir, &entry.name, fault).map(Err),
    }
}

fn gone(name: &str) -> Skipped {
    Skipped {
        file: name.into(),
        reason: "it was removed meanwhile".into(),
        offset: 0,
    }
}

fn phase(dir: &Dir, entry: &Entry) -> Result<Attempt> {
    Ok(match phase_state(dir, entry)? {
        Ok(state) => {
            let base = Some(Base {
                id: entry.meta.id,
                seq: entry.meta.seq,
            });
            let report = report(entry, entry.meta.phase_info());
            let loaded = Loaded {
                state,
                seq: entry.meta.seq,
                base,
                report,
                ..Loaded::default()
            };
            Attempt {
                loaded: Some(loaded),
                bad: None,
            }
        }
        Err(bad) => Attempt {
            loaded: None,
            bad: Some(bad),
        },
    })
}

fn report(entry: &Entry, phase: Option<crate::meta::PhaseInfo>) -> LoadReport {
    LoadReport {
        used: Some(entry.name.clone()),
        phase,
        schema: Some((entry.meta.schema.clone(), entry.meta.schema_version)),
        epoch: entry.meta.epoch,
        ..LoadReport::default()
    }
}

fn journal(dir: &Dir, index: &Index, entry: &Entry) -> Result<Attempt> {
    let unusable = |reason: String| {
        Ok(Attempt {
            loaded: None,
            bad: Some(Skipped {
                file: entry.name.clone(),
                reason,
                offset: 0,
            }),
        })
    };
    let (state, info) = match &entry.meta.base {
        None => (State::default(), None),
        Some(base) => {
            let found = index
                .phase(base)
                .map(|phase| Ok((phase, phase_state(dir, phase)?)));
            match found.transpose()? {
                Some((phase, Ok(state))) => (state, phase.meta.phase_info()),
                _ => {
                    return unusable(format!(
                        "the phase {} that it goes on from is gone or damaged",
                        base.id
                    ));
                }
            }
        }
    };
    let Some(bytes) = dir.read(&entry.name)? else {
        return Ok(Attempt {
            loaded: None,
            bad: Some(gone(&entry.name)),
        });
    };
    let len = bytes.len();
    let Journal {
        bytes,
        frames,
        replay,
        tail,
    } = match read_journal(bytes, &entry.meta) {
        Ok(journal) => journal,
        Err(fault) => {
            return Ok(Attempt {
                loaded: None,
                bad: Some(skip(dir, &entry.name, fault)?),
            });
        }
    };
    let mut report = report(entry, info);
    // What was carried over was durable before the file had its name.
    let short = replay.seq < entry.meta.carried;
    let bad = match tail {
        Tail::Damaged { offset, reason } => Some((offset, reason)),
        Tail::Torn { offset } if short => Some((offset, "it ends before what it began with")),
        Tail::Clean if short => Some((len, "it ends before what it began with")),
        Tail::Torn { offset } => {
            report.repaired_tail = Some((without_zeros(&bytes, offset) - offset) as u64);
            None
        }
        Tail::Clean => None,
    };
    let bad = bad.map(|(offset, reason)| Skipped {
        file: entry.name.clone(),
        reason: reason.into(),
        offset: offset as u64,
    });
    if bad.is_some() && frames.is_empty() && entry.meta.base.is_none() {
        // Saves were lost and none is left: that is not the same as an empty store.
        return Ok(Attempt { loaded: None, bad });
    }
    let loaded = Loaded {
        seq: replay.seq,
        base: entry.meta.base,
        seqs: replay.seqs(),
        state: replay.onto(state),
        journal: Some((entry.clone(), bytes, frames)),
        report,
    };
    Ok(Attempt {
        loaded: Some(loaded),
        bad,
    })
}
