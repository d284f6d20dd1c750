//! SQLite with a row for each message; each save is durable before it returns.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::keeper::{Keeper, cbor};
use crate::harness::Result;
use crate::transcript::{Delta, Event, Head};

pub(crate) struct Rows(Connection);

impl Rows {
    pub(crate) fn begin(dir: &Path, base: &[Delta]) -> Result<Self> {
        let mut rows = Self(Connection::open(dir.join("rows.db"))?);
        rows.0.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE head (id INTEGER PRIMARY KEY, body BLOB NOT NULL);
             CREATE TABLE event (id INTEGER PRIMARY KEY, body BLOB NOT NULL);",
        )?;
        for some in base.chunks(64) {
            rows.add(some)?;
        }
        rows.0.execute_batch("PRAGMA wal_checkpoint(TRUNCATE);")?;
        Ok(rows)
    }

    /// Returns the number of events that a resume loads.
    pub(crate) fn load(dir: &Path) -> Result<usize> {
        let rows = Connection::open(dir.join("rows.db"))?;
        let head = rows.query_row("SELECT body FROM head", [], |row| {
            decode::<Head>(row.get_ref(0)?.as_blob()?)
        })?;
        let mut statement = rows.prepare("SELECT body FROM event ORDER BY id")?;
        let events = statement.query_map([], |row| decode::<Event>(row.get_ref(0)?.as_blob()?))?;
        let events = events.collect::<rusqlite::Result<Vec<Event>>>()?;
        Ok(std::hint::black_box((head, events)).1.len())
    }

    fn add(&mut self, deltas: &[Delta]) -> Result<()> {
        let transaction = self.0.transaction()?;
        {
            let mut event = transaction.prepare_cached("INSERT INTO event (body) VALUES (?1)")?;
            for new in deltas.iter().flat_map(|delta| &delta.events) {
                event.execute([cbor(new)?])?;
            }
            if let Some(last) = deltas.last() {
                transaction
                    .prepare_cached("INSERT OR REPLACE INTO head (id, body) VALUES (0, ?1)")?
                    .execute([cbor(&last.head)?])?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Keeper for Rows {
    fn save(&mut self, delta: &Delta) -> Result<Duration> {
        let begun = Instant::now();
        self.add(std::slice::from_ref(delta))?;
        Ok(begun.elapsed())
    }
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> rusqlite::Result<T> {
    ciborium::from_reader(bytes).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, error.into())
    })
}
