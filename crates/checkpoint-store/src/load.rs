//! Finds the newest valid state of a directory. Writes nothing.

use crate::chain::{self, Chain, Part};
use crate::dir::Dir;
use crate::error::{Error, Kind, Result};
use crate::file_builder::{meta_end, read_meta, read_phase};
use crate::frame::{Tail, without_zeros};
use crate::meta::{Base, FileMeta, PhaseInfo};
use crate::name::FileName;
use crate::options::Options;
use crate::replay::{Needed, State};
use crate::report::{LoadReport, Skipped};

/// A phase file or journal whose metadata is good.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) meta: FileMeta,
}

impl Entry {
    /// Returns the place of the file in the order of all files; newer ones compare greater. A higher epoch wins, whatever a fenced writer left
    /// behind; within an epoch the later save wins, and a journal wins over its base.
    fn order(&self) -> (u64, u64, bool) {
        (self.meta.epoch, self.meta.seq, self.meta.phase.is_none())
    }
}

/// The purpose of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LoadPurpose<'a> {
    /// Accepts every schema.
    Anything,
    Reader(&'a Options),
    Writer(&'a Options),
}

impl<'a> LoadPurpose<'a> {
    fn options(self) -> Option<&'a Options> {
        match self {
            Self::Anything => None,
            Self::Reader(options) | Self::Writer(options) => Some(options),
        }
    }
}

/// The files of a directory, newest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    options: Option<Options>,
    pub(crate) needed: Needed,
    pub(crate) entries: Vec<Entry>,
    pub(crate) skipped: Vec<Skipped>,
}

impl Index {
    /// Reads the metadata of every file.
    ///
    /// # Errors
    /// Fails for a file that a newer program wrote, or that holds another schema: to continue without the file would hide newer progress.
    pub(crate) fn read(dir: &Dir, want: LoadPurpose<'_>) -> Result<Self> {
        let mut index = Self {
            options: want.options().cloned(),
            ..Self::default()
        };
        for file in dir.own()? {
            if !matches!(file, FileName::Phase { .. } | FileName::Progress { .. }) {
                continue;
            }
            let name = file.to_string();
            let path = || dir.path().join(&name);
            // The writer may remove the file between the listing and the read.
            let first = match dir.read_up_to(&name, meta_end(&[]) as u64) {
                // A pipe or a directory holds no state, so skipping it hides nothing newer.
                Err(err) if matches!(err.kind(), Kind::Foreign) => {
                    index.skipped.push(Skipped {
                        file: name,
                        reason: "it is not a regular file".into(),
                        offset: 0,
                    });
                    continue;
                }
                first => first?,
            };
            let Some(first) = first else {
                continue;
            };
            let Some(first) = dir.read_up_to(&name, meta_end(&first) as u64)? else {
                continue;
            };
            match read_meta(&first) {
                Ok(meta) if !meta.is_named(file) => {
                    let reason = "its name does not match its contents".into();
                    index.skipped.push(Skipped {
                        file: name,
                        reason,
                        offset: 0,
                    });
                }
                Ok(meta) => {
                    check_schema(&meta, want).map_err(|kind| Error::new(path(), kind))?;
                    index.entries.push(Entry { name, meta });
                }
                Err(fault) => index.skipped.push(Skipped::damaged(dir, &name, fault)?),
            }
        }
        index
            .entries
            .sort_by_key(|entry| std::cmp::Reverse(entry.order()));
        Ok(index)
    }

    /// Migrates the state of a file to the requested version.
    pub(crate) fn migrate(&self, dir: &Dir, entry: &Entry, state: State) -> Result<State> {
        match &self.options {
            None => Ok(state),
            Some(options) => options
                .migrations
                .state(state, entry.meta.schema_version, options.schema_version)
                .map_err(|kind| Error::new(dir.path().join(&entry.name), kind)),
        }
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

pub(crate) fn check_schema(meta: &FileMeta, want: LoadPurpose<'_>) -> Result<(), Kind> {
    let Some(options) = want.options() else {
        return Ok(());
    };
    if meta.schema != options.schema {
        return Err(Kind::OtherSchema {
            found: meta.schema.clone(),
            expected: options.schema.clone(),
        });
    }
    let (found, supported) = (meta.schema_version, options.schema_version);
    let may_read = match want {
        LoadPurpose::Reader(_) if meta.min_reader > 0 => supported >= meta.min_reader,
        _ => false,
    };
    if found > supported && !may_read {
        return Err(Kind::UnsupportedVersion {
            what: format!("schema `{}`", meta.schema),
            found,
            supported,
        });
    }
    Ok(())
}

/// A state, and the information that a writer needs to continue from it.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) state: State,
    pub(crate) seq: u64,
    pub(crate) base: Option<Base>,
    /// The saves after the base to which a caller can return.
    pub(crate) seqs: Vec<u64>,
    /// The good part of the journal, and of the journals that it continues; oldest first.
    pub(crate) journal: Vec<Part>,
    pub(crate) report: LoadReport,
}

impl Loaded {
    /// Returns whether the state is that of a finished phase whose metadata has `finished` set.
    pub(crate) fn is_finished(&self) -> bool {
        let phase = self.report.phase.as_ref();
        phase.is_some_and(|phase| phase.meta.finished && phase.seq.get() == self.seq)
    }
}

/// Loads the state as of the save `seq`, from the newest file that has it.
pub(crate) fn at(dir: &Dir, index: &Index, seq: u64) -> Result<Option<Loaded>> {
    for entry in &index.entries {
        let attempt = match &entry.meta.phase {
            Some(_) if entry.meta.seq == seq => phase(dir, index, entry)?,
            None if entry.meta.seq < seq => journal(dir, index, entry, seq)?,
            _ => continue,
        };
        if let Some(loaded) = attempt.loaded
            && loaded.seq == seq
            && (entry.meta.phase.is_some() || loaded.seqs.last() == Some(&seq))
        {
            return Ok(Some(loaded));
        }
    }
    Ok(None)
}

/// Loads the newest valid state, and of an undamaged store of the current schema version only what is needed.
pub(crate) fn newest_as(dir: &Dir, mut index: Index, needed: Needed) -> Result<Loaded> {
    let version = index.options.as_ref().map(|options| options.schema_version);
    let mut entries = index.entries.iter();
    // A migration of events changes their size.
    let is_current = entries.all(|entry| Some(entry.meta.schema_version) == version);
    if needed == Needed::NewestHead && is_current {
        index.needed = needed;
        let loaded = newest(dir, index.clone());
        // With damage, the payloads decide which save is the newest valid one.
        if let Ok(loaded) = loaded
            && loaded.report.is_undamaged()
        {
            return Ok(loaded);
        }
        index.needed = Needed::Everything;
    }
    newest(dir, index)
}

/// Loads the newest valid state. Tries the files of `index` from the newest one on.
pub(crate) fn newest(dir: &Dir, mut index: Index) -> Result<Loaded> {
    // The best journal so far of those that are damaged in their first contents, the saves copied from the journal before.
    let mut partial: Option<Loaded> = None;
    let mut whole = None;
    for entry in index.entries.clone() {
        let attempt = match entry.meta.phase {
            Some(_) => phase(dir, &index, &entry)?,
            None => journal(dir, &index, &entry, u64::MAX)?,
        };
        let ReadResult { loaded, bad } = attempt;
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
            if index.options.is_some_and(|options| options.strict)
                && let Some(first) = index.skipped.first()
            {
                let reason = format!("{first}; strict mode does not fall back to an older state");
                return Err(Error::new(dir.path(), Kind::Corrupt { reason }));
            }
            let mut best = best.unwrap_or_default();
            best.report.skipped = index.skipped;
            Ok(best)
        }
    }
}

/// The result of reading one file: a state, damage, or both.
#[derive(Debug, Default)]
struct ReadResult {
    loaded: Option<Loaded>,
    bad: Option<Skipped>,
}

/// Reads the state of one phase file.
fn phase_state(dir: &Dir, index: &Index, entry: &Entry) -> Result<Result<State, Skipped>> {
    let Some(bytes) = dir.read(&entry.name)? else {
        return Ok(Err(gone(&entry.name)));
    };
    match read_phase(&bytes, index.needed) {
        Ok(state) => index.migrate(dir, entry, state).map(Ok),
        Err(fault) => Skipped::damaged(dir, &entry.name, fault).map(Err),
    }
}

fn gone(name: &str) -> Skipped {
    Skipped {
        file: name.into(),
        reason: "it was removed during the load".into(),
        offset: 0,
    }
}

fn phase(dir: &Dir, index: &Index, entry: &Entry) -> Result<ReadResult> {
    Ok(match phase_state(dir, index, entry)? {
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
            ReadResult {
                loaded: Some(loaded),
                bad: None,
            }
        }
        Err(bad) => ReadResult {
            loaded: None,
            bad: Some(bad),
        },
    })
}

pub(crate) fn report(entry: &Entry, phase: Option<PhaseInfo>) -> LoadReport {
    LoadReport {
        used: Some(entry.name.clone()),
        file: Some(entry.meta.id),
        phase,
        schema: Some((entry.meta.schema.clone(), entry.meta.schema_version)),
        epoch: entry.meta.epoch,
        ..LoadReport::default()
    }
}

/// Reads the state of the phase that a journal continues, if there is one. `None` if the phase is missing or damaged.
pub(crate) fn base_state(
    dir: &Dir,
    index: &Index,
    entry: &Entry,
) -> Result<Option<(State, Option<PhaseInfo>)>> {
    let Some(base) = &entry.meta.base else {
        return Ok(Some((State::default(), None)));
    };
    let Some(phase) = index.phase(base) else {
        return Ok(None);
    };
    let state = phase_state(dir, index, phase)?.ok();
    Ok(state.map(|state| (state, phase.meta.phase_info())))
}

/// Reads the state of a journal and of the phase that it continues, up to the save `until`.
fn journal(dir: &Dir, index: &Index, entry: &Entry, until: u64) -> Result<ReadResult> {
    let unusable = |reason: String| {
        Ok(ReadResult {
            loaded: None,
            bad: Some(Skipped {
                file: entry.name.clone(),
                reason,
                offset: 0,
            }),
        })
    };
    let (state, info) = match (base_state(dir, index, entry)?, &entry.meta.base) {
        (Some(base), _) => base,
        (None, base) => {
            let id = base.map(|base| base.id.to_string()).unwrap_or_default();
            return unusable(format!(
                "the phase {id} that it continues is missing or damaged"
            ));
        }
    };
    let Some(bytes) = dir.read(&entry.name)? else {
        return Ok(ReadResult {
            loaded: None,
            bad: Some(gone(&entry.name)),
        });
    };
    let len = bytes.len();
    let Chain {
        parts,
        replay,
        tail,
    } = match chain::read(dir, &entry.name, &entry.meta, bytes, until, index.needed)? {
        Ok(chain) => chain,
        Err(bad) => {
            return Ok(ReadResult {
                loaded: None,
                bad: Some(bad),
            });
        }
    };
    let newest = parts.last().map_or(&[][..], |part| &part.bytes);
    let is_empty = parts.iter().all(|part| part.frames.is_empty());
    let mut report = report(entry, info);
    // The frames up to `carried` were durable before the file got its name.
    let short = replay.seq < entry.meta.carried.min(until);
    let bad = match tail {
        Tail::Damaged { offset, reason } => Some((offset, reason)),
        Tail::Torn { offset } if short => Some((offset, "its first saves are incomplete")),
        Tail::Clean if short => Some((len, "its first saves are incomplete")),
        Tail::Torn { offset } => {
            report.repaired_tail = Some((without_zeros(newest, offset) - offset) as u64);
            None
        }
        Tail::Clean => None,
    };
    let bad = bad.map(|(offset, reason)| Skipped {
        file: entry.name.clone(),
        reason: reason.into(),
        offset: offset as u64,
    });
    if bad.is_some() && is_empty && entry.meta.base.is_none() {
        // Saves were lost and none is left: that differs from an empty store.
        return Ok(ReadResult { loaded: None, bad });
    }
    let loaded = Loaded {
        seq: replay.seq,
        base: entry.meta.base,
        seqs: replay.seqs(),
        state: state.then(index.migrate(dir, entry, replay.state())?),
        journal: parts,
        report,
    };
    Ok(ReadResult {
        loaded: Some(loaded),
        bad,
    })
}
