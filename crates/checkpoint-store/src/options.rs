//! The options for opening a store: schema, versions and strictness, with their defaults. Also the migrations from the values of an older schema
//! version to those of the current one, in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec::{self, CompressionEffort};
use crate::error::Kind;
use crate::frame::{DELTA, EVENTS};
use crate::replay::{Events, State};
use crate::saves::PackedFrame;

/// The options for opening a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the kind of value. A store that holds another kind is refused. Default: empty.
    pub schema: String,
    /// Version of that kind. A writer refuses a store with a newer one. Default: 1.
    pub schema_version: u32,
    /// The oldest version whose programs may still read what this version writes; they ignore the parts that they don't know. They may not write,
    /// because they would drop those parts. Default: 0, which means `schema_version`.
    pub min_reader_version: u32,
    /// The steps that convert values of older versions to those of `schema_version`. A value without a step is read as it is, so new fields need
    /// `#[serde(default)]`. Default: none.
    pub migrations: Migrations,
    /// Whether damage is an error. Otherwise a load continues from the good state before the damage. Default: false.
    pub strict: bool,
    /// Whether opening creates the directory and its missing parents. Default: true.
    pub create: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: String::new(),
            schema_version: 1,
            min_reader_version: 0,
            migrations: Migrations::default(),
            strict: false,
            create: true,
        }
    }
}

type Step = Arc<dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync>;

/// Steps from one version of a schema to the next.
///
/// A step takes the head, or one event, of the version for which it is registered, and returns the same for the next version. If a version has no
/// step, its values are read as those of the next version. Files are never rewritten: old files stay as they are, so that the older program can still
/// load them, and only new files have the new version.
///
/// # Examples
/// ```
/// # use checkpoint_store::{Migrations, Options};
/// // Version 1 had a name only; version 2 has a number too.
/// let migrations = Migrations::default().head(1, |name: String| Ok((name, 0_u64)));
/// let options = Options { schema_version: 2, migrations, ..Options::default() };
/// ```
#[derive(Clone, Default)]
pub struct Migrations {
    heads: BTreeMap<u32, Step>,
    events: BTreeMap<u32, Step>,
}

impl Migrations {
    /// Adds the step for heads of version `from`. If the step fails, its error is the reason shown to people.
    pub fn head<Old, New>(
        mut self,
        from: u32,
        step: impl Fn(Old) -> Result<New, String> + Send + Sync + 'static,
    ) -> Self
    where
        Old: DeserializeOwned,
        New: Serialize,
    {
        let step = move |raw: &[u8]| {
            let mut out = Vec::new();
            codec::encode(&mut out, &step(codec::decode(raw)?)?)?;
            Ok(out)
        };
        self.heads.insert(from, Arc::new(step));
        self
    }

    /// Adds the step for events of version `from`. If the step fails, its error is the reason shown to people.
    pub fn event<Old, New>(
        mut self,
        from: u32,
        step: impl Fn(Old) -> Result<New, String> + Send + Sync + 'static,
    ) -> Self
    where
        Old: DeserializeOwned,
        New: Serialize,
    {
        let step = move |mut row: &[u8]| {
            let mut out = Vec::new();
            while !row.is_empty() {
                let old: Vec<Old> = codec::decode_next(&mut row)?;
                let new: Vec<New> = old.into_iter().map(&step).collect::<Result<_, _>>()?;
                codec::encode(&mut out, &new)?;
            }
            Ok(out)
        };
        self.events.insert(from, Arc::new(step));
        self
    }

    /// Returns whether there is a step between two versions.
    fn has_steps(&self, from: u32, to: u32) -> bool {
        from < to
            && [&self.heads, &self.events].iter().any(|steps| {
                let mut between = steps.range(from..to);
                between.next().is_some()
            })
    }

    /// Converts a state from one version to another.
    pub(crate) fn state(&self, mut state: State, from: u32, to: u32) -> Result<State, Kind> {
        if self.has_steps(from, to) {
            if let Some(head) = &mut state.head {
                run(&self.heads, head, from, to)?;
            }
            for row in &mut state.events {
                let mut raw = row.bytes().to_vec();
                run(&self.events, &mut raw, from, to)?;
                *row = Events::new(raw);
            }
        }
        Ok(state)
    }

    /// Converts a save from one version to another.
    pub(crate) fn save(&self, kept: PackedFrame, from: u32, to: u32) -> Result<PackedFrame, Kind> {
        let frame = kept.frame;
        if !matches!(frame.kind, DELTA | EVENTS) || !self.has_steps(from, to) {
            return Ok(kept);
        }
        let mut head = kept.unpack().expect("a loaded frame can be unpacked");
        let mut events = head.split_off(frame.head_len as usize);
        run(&self.heads, &mut head, from, to)?;
        run(&self.events, &mut events, from, to)?;
        let head_len = head.len();
        head.append(&mut events);
        PackedFrame::pack(
            frame.kind,
            frame.seq,
            head_len,
            head,
            CompressionEffort::Save,
        )
    }
}

fn run(steps: &BTreeMap<u32, Step>, raw: &mut Vec<u8>, from: u32, to: u32) -> Result<(), Kind> {
    for (&version, step) in steps.range(from..to) {
        if !raw.is_empty() {
            *raw = step(raw).map_err(|reason| Kind::Migrate {
                from: version,
                reason,
            })?;
        }
    }
    Ok(())
}

impl fmt::Debug for Migrations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migrations")
            .field("heads", &self.heads.keys())
            .field("events", &self.events.keys())
            .finish()
    }
}
