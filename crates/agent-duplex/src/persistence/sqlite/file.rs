//! The SQLite file: how it is opened and checked, and the meaning of its errors.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use uuid::Uuid;

use crate::Error;

/// Identifies the files of this crate (`PRAGMA application_id`): "adpx".
const APPLICATION: i64 = 0x6164_7078;
/// The version of the schema (`PRAGMA user_version`).
const VERSION: i64 = 2;
/// The table that version 2 added.
const PARTS: &str = include_str!("part.sql");
/// A commit must survive a power failure. `fullfsync` is required for this on macOS, and does nothing elsewhere.
const DURABLE: &str = "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON;";
/// The maximum wait for another process, which locks the file during a commit.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    /// The identity of the file at the time when it was opened.
    identity: Option<Identity>,
    pub(super) connection: Connection,
}

/// The inode and device numbers of a file, on systems that have them.
type Identity = (u64, u64);

impl Database {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        // A bare name could have another meaning for SQLite, such as `:memory:`.
        let path = std::path::absolute(path).map_err(|e| unusable(path, e))?;
        if path.is_dir() {
            let text = format!("{} is a directory; choose a file in it", path.display());
            return Err(Error::persistence(text, None));
        }
        create(&path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags).map_err(|e| fault(&path, e))?;
        let mut database = Self {
            identity: identity(&path).map_err(|e| unusable(&path, e))?,
            path,
            connection,
        };
        database.prepare()?;
        Ok(database)
    }

    /// Does something in one commit; if it fails, nothing is changed.
    pub(super) fn write<T>(
        &mut self,
        action: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<Result<T, Error>>,
    ) -> Result<T, Error> {
        self.check_not_removed()?;
        let behavior = TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior);
        let done = transaction.and_then(|transaction| {
            let done = action(&transaction)?;
            if done.is_ok() {
                transaction.commit()?;
            }
            Ok(done)
        });
        let done = done.map_err(|e| fault(&self.path, e))??;
        self.check_not_removed()?;
        Ok(done)
    }

    /// Fails if the path no longer leads to the opened file, because the next program that opens it must find what is written. SQLite itself
    /// continues to write without an error after the file is removed. If the file is replaced, SQLite uses the log of one file for the other.
    fn check_not_removed(&self) -> Result<(), Error> {
        let is_there = match identity(&self.path) {
            Ok(identity) => identity == self.identity,
            Err(e) => !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        };
        if is_there {
            return Ok(());
        }
        let text = format!(
            "{} was removed, renamed or replaced while it was open; restore it or a copy and open the conversation again",
            self.name()
        );
        Err(Error::persistence(text, None))
    }

    pub(super) fn fault(&self, e: rusqlite::Error) -> Error {
        fault(&self.path, e)
    }

    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn prepare(&mut self) -> Result<(), Error> {
        let told = self.connection.busy_timeout(BUSY_TIMEOUT);
        told.map_err(|e| self.fault(e))?;
        // Change nothing in a file before it is known to be a file of this crate.
        self.check(&self.connection)?;
        let mode = "PRAGMA journal_mode = WAL";
        let mode = self.connection.query_row(mode, [], |row| row.get(0));
        let mode: String = mode.map_err(|e| self.fault(e))?;
        if mode != "wal" {
            let (path, text) = (self.name(), "write-ahead logs; move it to a local one");
            let text = format!("{path} is on a file system without {text}");
            return Err(Error::persistence(text, None));
        }
        let durable = self.connection.execute_batch(DURABLE);
        durable.map_err(|e| self.fault(e))?;
        self.migrate()
    }

    /// Adds the tables that are missing in a file of an earlier version.
    fn migrate(&mut self) -> Result<(), Error> {
        let version = "SELECT user_version FROM pragma_user_version";
        let read = |connection: &Connection| connection.query_row(version, [], |row| row.get(0));
        let is_current = |version: i64| version == VERSION;
        if is_current(read(&self.connection).map_err(|e| self.fault(e))?) {
            return Ok(());
        }
        self.write(|transaction| {
            // Another program can have added them in the meantime.
            if !is_current(read(transaction)?) {
                transaction.execute_batch(PARTS)?;
                transaction.pragma_update(None, "user_version", VERSION)?;
            }
            Ok(Ok(()))
        })
    }

    fn check(&self, connection: &Connection) -> Result<(), Error> {
        let read = || -> rusqlite::Result<_> {
            connection.query_row(
                "SELECT a.application_id, v.user_version, (SELECT count(*) FROM sqlite_schema)
                 FROM pragma_application_id a, pragma_user_version v",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
        };
        let (application, version, tables): (i64, i64, i64) = read().map_err(|e| self.fault(e))?;
        let path = self.name();
        let text = match application {
            APPLICATION if version <= VERSION => return Ok(()),
            APPLICATION => format!(
                "{path} was written by a newer version of this program (schema {version}, this one supports {VERSION}); update this program"
            ),
            0 if tables == 0 => return Err(empty(&self.path)),
            _ => {
                format!("{path} is a database of another program; choose another file")
            }
        };
        Err(Error::persistence(text, None))
    }
}

/// Reads the identity from the path only: opening and closing the file would release the locks that SQLite has on it in this process.
#[cfg(unix)]
fn identity(path: &Path) -> std::io::Result<Option<Identity>> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path)?;
    Ok(Some((metadata.dev(), metadata.ino())))
}

/// Returns `None`: an open file can't be removed on these systems.
#[cfg(not(unix))]
fn identity(_path: &Path) -> std::io::Result<Option<Identity>> {
    Ok(None)
}

/// Creates the file if it does not exist. The file gets its name after its tables are written, so an empty file is either truncated or belongs to
/// another program.
fn create(path: &Path) -> Result<(), Error> {
    match std::fs::metadata(path) {
        // SQLite treats a file of one byte as empty too, and then removes the log beside it.
        Ok(metadata) if metadata.len() <= 1 => return Err(empty(path)),
        Ok(_) => return Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(unusable(path, e)),
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", Uuid::new_v4()));
    let beside = PathBuf::from(beside);
    let made = make(&beside, path);
    // If the file was created, it now also has its final name.
    let _gone = std::fs::remove_file(&beside);
    made?;
    let directory = path.parent().map_or(Ok(()), synced);
    directory.map_err(|e| unusable(path, e))
}

/// Creates a file for its owner only; SQLite gives its log the same permissions. Then renames the file to `path`, unless a file with that name exists
/// by now.
fn make(beside: &Path, path: &Path) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(beside).map_err(|e| unusable(path, e))?;
    drop(file);
    create_schema(beside).map_err(|e| fault(path, e))?;
    let named = std::fs::hard_link(beside, path);
    if named.is_err() && std::fs::symlink_metadata(path).is_err() {
        // Some file systems have no hard links.
        return std::fs::rename(beside, path).map_err(|e| unusable(path, e));
    }
    Ok(())
}

fn create_schema(file: &Path) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(file, flags)?;
    connection.execute_batch(DURABLE)?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(include_str!("schema.sql"))?;
    transaction.execute_batch(PARTS)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.commit()?;
    connection.close().map_err(|(_, e)| e)
}

fn empty(path: &Path) -> Error {
    let text = "is empty: it was truncated, or another program created it; restore a copy, or remove it to start again";
    Error::persistence(format!("{} {text}", path.display()), None)
}

/// Makes the name of the file durable. On systems where directories can't be opened, such as Windows, this is not necessary.
fn synced(directory: &Path) -> std::io::Result<()> {
    File::open(directory).map_or(Ok(()), |directory| directory.sync_all())
}

fn unusable(path: &Path, e: std::io::Error) -> Error {
    let path = path.display();
    let hint = "choose a file in a writable directory that exists";
    let text = format!("{path} can't be created; {hint}");
    Error::persistence(text, Some(e.into()))
}

fn fault(path: &Path, e: rusqlite::Error) -> Error {
    let hint = match e.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "has no space; free some and open the conversation again",
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "can't be written; change its permissions or those of its directory"
        }
        Some(ErrorCode::NotADatabase) => "is not a database; choose another file",
        Some(ErrorCode::DatabaseCorrupt) => {
            "is damaged; restore a copy of it, or choose another file"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "is locked by another program; end it and open the conversation again"
        }
        _ => "can't be read or written; check its disk and open the conversation again",
    };
    Error::persistence(format!("{} {hint}", path.display()), Some(e.into()))
}
