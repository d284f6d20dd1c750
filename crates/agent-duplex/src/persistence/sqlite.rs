//! The records of conversations as rows of a SQLite file. `sqlite/file.rs` opens the file and interprets its errors.

mod file;

use std::borrow::Cow;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, Row, Transaction, params};
use uuid::Uuid;

use self::file::Database;
use super::record::{
    self, InterruptedTurn, PersistedRecord, Persistence, RECEIPTS, RecoveredConversation,
};
use crate::{Assignment, EndReason, Error, Input, Part, Receipt, TurnId};

/// Stores conversations in a SQLite file.
///
/// One file contains any number of conversations. Each has a name and one writer: if two writers recovered it, only the later one may write. A commit
/// is on disk when it returns (write-ahead log, `synchronous = FULL`). The file contains the texts of the conversation, so it is created for its
/// owner only (0600); an existing file keeps its permissions. Nothing is ever deleted from it. It must be on a local file system. Its path must not
/// change while it is open: on Unix the next write fails if the path leads to no file, or to another one.
#[derive(Debug)]
pub struct SqlitePersistence {
    database: Database,
    name: String,
    /// The row of the conversation and the epoch of this writer; `None` before the recovery, and after an error.
    writer: Option<(i64, i64)>,
}

impl SqlitePersistence {
    /// Opens the stored conversation with this name in the file at `path`, or creates what does not exist.
    ///
    /// An existing file must be a file of this crate. An empty file is rejected, because its former content is unknown: for a test, choose a new path
    /// in a temporary directory.
    ///
    /// # Errors
    ///
    /// [`Error::is_persistence`] if the file can't be created or read, is empty, is not a database, is damaged, belongs to another program, or was
    /// written by a newer version.
    pub fn open(path: impl AsRef<Path>, conversation: &str) -> Result<Self, Error> {
        Ok(Self {
            database: Database::open(path.as_ref())?,
            name: conversation.to_owned(),
            writer: None,
        })
    }

    /// Reads at most `most` pieces of the agent's answers ([`PersistedRecord::Message`]), oldest first, each with its number, starting with the first
    /// one after number `after`; 0 for the beginning.
    ///
    /// # Errors
    ///
    /// [`Error::is_persistence`] if they can't be read.
    pub fn messages(&self, after: u64, most: usize) -> Result<Vec<(u64, PersistedRecord)>, Error> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let read = || {
            let connection = &self.database.connection;
            let mut statement = connection.prepare_cached(
                "SELECT m.sequence, m.turn, m.text, m.partial
                 FROM message m JOIN conversation c ON c.number = m.conversation
                 WHERE c.name = ?1 AND m.sequence > ?2 ORDER BY m.sequence LIMIT ?3",
            )?;
            let rows = statement.query_map(params![self.name, signed(after), most], |row| {
                let message = PersistedRecord::Message {
                    turn: turn(row, 1)?,
                    text: row.get(2)?,
                    partial: row.get(3)?,
                };
                Ok((row.get::<_, i64>(0)?.cast_unsigned(), message))
            })?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|e| self.database.fault(e))
    }
}

impl Persistence for SqlitePersistence {
    fn recover(&mut self) -> Result<RecoveredConversation, Error> {
        let name = &self.name;
        let recovered = self.database.write(|transaction| {
            let (conversation, epoch) = transaction.query_row(
                "INSERT INTO conversation (name, epoch) VALUES (?1, 1)
                 ON CONFLICT (name) DO UPDATE SET epoch = epoch + 1 RETURNING number, epoch",
                [name],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            let recovered = recover(transaction, conversation)?;
            Ok(Ok(((conversation, epoch), recovered)))
        });
        let (writer, recovered) = recovered?;
        self.writer = Some(writer);
        Ok(recovered)
    }

    fn append(&mut self, records: &[PersistedRecord]) -> Result<(), Error> {
        // After an error, the stored state is unknown until another recovery reads it.
        let writer = self.writer.take();
        let Some((conversation, epoch)) = writer else {
            let text = "recover it before writing to it";
            return Err(Error::persistence(text, None));
        };
        let file = self.database.name();
        self.database.write(|transaction| {
            let newest = "SELECT epoch FROM conversation WHERE number = ?1";
            let mut newest = transaction.prepare_cached(newest)?;
            if newest.query_row([conversation], |row| row.get::<_, i64>(0))? != epoch {
                return Ok(Err(record::fenced(&file)));
            }
            for record in records {
                if !append(transaction, conversation, record)? {
                    return Ok(Err(record::unsound()));
                }
            }
            Ok(Ok(()))
        })?;
        self.writer = writer;
        Ok(())
    }
}

/// Marks unfinished turns as interrupted, and reads the waiting inputs.
fn recover(
    transaction: &Transaction<'_>,
    conversation: i64,
) -> rusqlite::Result<RecoveredConversation> {
    let mut recovered = RecoveredConversation::default();
    let numbers =
        "SELECT number FROM turn WHERE conversation = ?1 AND reason IS NULL ORDER BY number";
    let mut running = transaction.prepare(numbers)?;
    let running = running.query_map([conversation], |row| row.get(0))?;
    let mut interrupted = running.collect::<rusqlite::Result<Vec<i64>>>()?;
    transaction.execute(
        "UPDATE turn SET reason = ?2, detail = 'its process ended' WHERE conversation = ?1 AND reason IS NULL",
        params![conversation, word(EndReason::Interrupted)],
    )?;
    let last = "SELECT max(number) FROM turn WHERE conversation = ?1";
    let last: Option<i64> = transaction.query_row(last, [conversation], |row| row.get(0))?;
    recovered.turns = last.unwrap_or(0).cast_unsigned();
    let mut handed = transaction.prepare(
        "SELECT message FROM input WHERE conversation = ?1 AND message IS NOT NULL AND turn IS NULL AND dropped = 0
         GROUP BY message ORDER BY min(sequence)",
    )?;
    let handed = handed.query_map([conversation], |row| row.get::<_, [u8; 16]>(0))?;
    for message in handed.collect::<rusqlite::Result<Vec<_>>>()? {
        recovered.turns += 1;
        let number = signed(recovered.turns);
        transaction.execute(
            "INSERT INTO turn (conversation, number, generation, forked, reason, detail)
             VALUES (?1, ?2, 0, 0, ?3, 'its process ended as it was handed on')",
            params![conversation, number, word(EndReason::Interrupted)],
        )?;
        transaction.execute(
            "UPDATE input SET turn = ?3 WHERE conversation = ?1 AND message = ?2 AND turn IS NULL AND dropped = 0",
            params![conversation, message, number],
        )?;
        interrupted.push(number);
    }
    let columns = "receipt, input_id, accepted_ns, duplicate";
    let mut cut = transaction.prepare(&format!(
        "SELECT {columns}, parent, text FROM input
         WHERE conversation = ?1 AND turn = ?2 AND dropped = 0 ORDER BY sequence"
    ))?;
    for number in interrupted {
        let inputs = cut.query_map([conversation, number], input)?;
        let inputs = inputs.collect::<rusqlite::Result<_>>()?;
        let inputs = with_parts(transaction, conversation, inputs)?;
        let turn = TurnId(number.cast_unsigned());
        recovered
            .interrupted
            .push(InterruptedTurn::new(turn, inputs));
    }
    let mut waiting = transaction.prepare(&format!(
        "SELECT {columns}, parent, text FROM input
         WHERE conversation = ?1 AND turn IS NULL AND dropped = 0 ORDER BY sequence"
    ))?;
    let waiting = waiting.query_map([conversation], input)?;
    let waiting = waiting.collect::<rusqlite::Result<_>>()?;
    recovered.pending = with_parts(transaction, conversation, waiting)?;
    let mut accepted = transaction.prepare(&format!(
        "SELECT {columns} FROM input WHERE conversation = ?1 ORDER BY sequence DESC LIMIT ?2"
    ))?;
    let accepted = accepted.query_map(params![conversation, RECEIPTS as i64], receipt)?;
    recovered.accepted = accepted.collect::<rusqlite::Result<_>>()?;
    recovered.accepted.reverse();
    let session = "SELECT session FROM conversation WHERE number = ?1";
    recovered.session = transaction.query_row(session, [conversation], |row| row.get(0))?;
    let messages = "SELECT count(*) FROM message WHERE conversation = ?1";
    let messages = transaction.query_row(messages, [conversation], |row| row.get::<_, i64>(0))?;
    recovered.messages = messages.cast_unsigned();
    Ok(recovered)
}

/// Writes a record; returns false if it refers to a row that does not exist.
fn append(
    connection: &Connection,
    conversation: i64,
    record: &PersistedRecord,
) -> rusqlite::Result<bool> {
    let run = |sql: &str, params: &[&dyn rusqlite::ToSql]| -> rusqlite::Result<bool> {
        Ok(connection.prepare_cached(sql)?.execute(params)? > 0)
    };
    match record {
        PersistedRecord::Accepted { receipt, input } => {
            for (position, part) in input.parts.iter().enumerate() {
                let (kind, content) = stored_part(part);
                run(
                    "INSERT INTO part (conversation, receipt, position, kind, content) VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![
                        conversation,
                        receipt.id.into_bytes(),
                        position as i64,
                        kind,
                        content
                    ],
                )?;
            }
            run(
                "INSERT INTO input (conversation, receipt, input_id, accepted_ns, duplicate, parent, text)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    conversation,
                    receipt.id.into_bytes(),
                    input.id,
                    nanoseconds(receipt.at),
                    receipt.duplicate,
                    input.parent.map(|turn| signed(turn.0)),
                    input.text,
                ],
            )
        }
        PersistedRecord::Delivered { message, receipts } => all(receipts, |receipt| {
            run(
                "UPDATE input SET message = ?3 WHERE conversation = ?1 AND receipt = ?2",
                params![conversation, receipt.into_bytes(), message.into_bytes()],
            )
        }),
        PersistedRecord::Returned { message } => {
            let sql = "UPDATE input SET message = NULL
                       WHERE conversation = ?1 AND message = ?2 AND message IS NOT NULL AND turn IS NULL AND dropped = 0";
            run(sql, params![conversation, message.into_bytes()]).map(|_| true)
        }
        PersistedRecord::Assigned(assignment) => assign(connection, conversation, assignment),
        PersistedRecord::Dropped { receipt } => run(
            "UPDATE input SET dropped = 1 WHERE conversation = ?1 AND receipt = ?2",
            params![conversation, receipt.into_bytes()],
        ),
        PersistedRecord::Session { id } => run(
            "UPDATE conversation SET session = ?2 WHERE number = ?1",
            params![conversation, id],
        ),
        PersistedRecord::Message {
            turn,
            text,
            partial,
        } => run(
            "INSERT INTO message (conversation, turn, text, partial) VALUES (?1, ?2, ?3, ?4)",
            params![conversation, turn.map(|turn| signed(turn.0)), text, partial],
        ),
        PersistedRecord::Completed {
            turn,
            reason,
            detail,
        } => run(
            "UPDATE turn SET reason = ?3, detail = ?4 WHERE conversation = ?1 AND number = ?2 AND reason IS NULL",
            params![conversation, signed(turn.0), word(*reason), detail],
        ),
    }
}

fn assign(
    connection: &Connection,
    conversation: i64,
    assignment: &Assignment,
) -> rusqlite::Result<bool> {
    let turn = signed(assignment.turn.0);
    let mut begin = connection.prepare_cached(
        "INSERT INTO turn (conversation, number, generation, parent, forked) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT DO NOTHING",
    )?;
    begin.execute(params![
        conversation,
        turn,
        assignment.generation,
        assignment.parent.map(|parent| signed(parent.0)),
        assignment.forked,
    ])?;
    let mut take = connection
        .prepare_cached("UPDATE input SET turn = ?3 WHERE conversation = ?1 AND receipt = ?2")?;
    all(&assignment.inputs, |input| {
        let taken = take.execute(params![conversation, input.receipt.into_bytes(), turn]);
        taken.map(|rows| rows > 0)
    })
}

fn all<T>(
    of: &[T],
    mut action: impl FnMut(&T) -> rusqlite::Result<bool>,
) -> rusqlite::Result<bool> {
    for one in of {
        if !action(one)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn receipt(row: &Row<'_>) -> rusqlite::Result<Receipt> {
    let (id, input_id): (_, String) = (Uuid::from_bytes(row.get(0)?), row.get(1)?);
    Ok(Receipt::stored(
        id,
        input_id,
        time(row.get(2)?),
        row.get(3)?,
    ))
}

fn input(row: &Row<'_>) -> rusqlite::Result<(Receipt, Input)> {
    let receipt = receipt(row)?;
    let input = Input {
        id: receipt.input_id.clone(),
        text: row.get(5)?,
        parts: Vec::new(),
        parent: turn(row, 4)?,
    };
    Ok((receipt, input))
}

/// Reads the parts of these inputs.
fn with_parts(
    connection: &Connection,
    conversation: i64,
    mut inputs: Vec<(Receipt, Input)>,
) -> rusqlite::Result<Vec<(Receipt, Input)>> {
    let mut parts = connection.prepare_cached(
        "SELECT kind, content FROM part WHERE conversation = ?1 AND receipt = ?2 ORDER BY position",
    )?;
    for (receipt, input) in &mut inputs {
        let of_input = params![conversation, receipt.id.into_bytes()];
        let rows = parts.query_map(of_input, |row| {
            let (kind, content): (String, String) = (row.get(0)?, row.get(1)?);
            Ok(match &*kind {
                "image" => Part::Image(content.into()),
                "file" => Part::File(content.into()),
                _ => Part::Text(content),
            })
        })?;
        input.parts = rows.collect::<rusqlite::Result<_>>()?;
    }
    Ok(inputs)
}

/// Returns the kind and the content of a part in the file. The kinds never change, even if the variants are renamed.
fn stored_part(part: &Part) -> (&'static str, Cow<'_, str>) {
    match part {
        Part::Text(text) => ("text", text.into()),
        // An input whose path is not UTF-8 is not accepted.
        Part::Image(path) => ("image", path.to_string_lossy()),
        Part::File(path) => ("file", path.to_string_lossy()),
    }
}

fn turn(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<TurnId>> {
    let number: Option<i64> = row.get(column)?;
    Ok(number.map(|number| TurnId(number.cast_unsigned())))
}

/// Converts a number, because SQLite only has signed numbers.
fn signed(number: u64) -> i64 {
    number.cast_signed()
}

/// Returns the nanoseconds since 1970, limited to the range from 1677 to 2262.
fn nanoseconds(at: SystemTime) -> i64 {
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

fn time(nanoseconds: i64) -> SystemTime {
    let apart = Duration::from_nanos(nanoseconds.unsigned_abs());
    if nanoseconds < 0 {
        UNIX_EPOCH - apart
    } else {
        UNIX_EPOCH + apart
    }
}

/// Returns the name of a reason in the file. It never changes, even if the variant is renamed.
fn word(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Completed => "completed",
        EndReason::Interrupted => "interrupted",
        EndReason::Failed => "failed",
        EndReason::Died => "died",
        EndReason::MaxTokens => "max_tokens",
        EndReason::MaxTurns => "max_turns",
        EndReason::BudgetExhausted => "budget_exhausted",
        EndReason::Refused => "refused",
        EndReason::RateLimited => "rate_limited",
        EndReason::ServiceFailed => "service_failed",
        EndReason::TemporaryFailure => "temporary_failure",
        EndReason::NotLoggedIn => "not_logged_in",
        EndReason::SessionNotFound => "session_not_found",
        EndReason::ContextOverflow => "context_overflow",
        EndReason::ProtocolError => "protocol_error",
    }
}
