//! Loads a state without a list of all its events: each event goes to the caller's function and is dropped before the next one is decoded.

use std::path::Path;

use serde::de::{DeserializeOwned, IgnoredAny};

use crate::codec;
use crate::error::{Error, Kind, Result};
use crate::id::Seq;
use crate::load;
use crate::report::LoadReport;

/// A saved state whose events were folded into one value, and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Folded<H, S> {
    /// The head of the newest save; `None` before the first save.
    pub head: Option<H>,
    /// The value that the caller's function made of the events.
    pub value: S,
    /// The number of the newest save.
    pub seq: Seq,
    /// The origin of the state, and the damage.
    pub report: LoadReport,
}

impl<H: DeserializeOwned> Folded<H, ()> {
    pub(crate) fn without_events(path: &Path, mut raw: load::Loaded) -> Result<Self> {
        raw.state.events.clear();
        Self::decode(path, raw, (), |(), _: IgnoredAny| ())
    }
}

impl<H: DeserializeOwned, S> Folded<H, S> {
    pub(crate) fn decode<E: DeserializeOwned>(
        path: &Path,
        raw: load::Loaded,
        start: S,
        mut each: impl FnMut(S, E) -> S,
    ) -> Result<Self> {
        let load::Loaded {
            state, seq, report, ..
        } = raw;
        let failed = |what| {
            let path = path.join(report.used.as_deref().unwrap_or_default());
            move |reason| Error::new(path, Kind::Decode { what, reason })
        };
        let head = state.head.as_deref().map(codec::decode).transpose();
        let head = head.map_err(failed("the head"))?;
        let mut value = Some(start);
        for row in state.events {
            let mut bytes = row.bytes();
            while !bytes.is_empty() {
                let fold = |event| value = value.take().map(|before| each(before, event));
                codec::decode_each(&mut bytes, fold).map_err(failed("an event"))?;
            }
        }
        let value = value.expect("each call puts the value back");
        Ok(Self {
            head,
            value,
            seq: Seq::new(seq),
            report,
        })
    }
}
