//! The file: how it is opened, whose it is, and what its errors mean.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use uuid::Uuid;

use crate::Error;

/// Tells the files of this crate from other programs' (`PRAGMA application_id`): "adpx".
const APPLICATION: i64 = 0x6164_7078;
/// The version of the schema (`PRAGMA user_version`).
const VERSION: i64 = 1;
/// A commit is to outlive a power cut. `fullfsync` is what that takes on macOS, and nothing elsewhere.
const DURABLE: &str = "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON;";
/// How long another process may hold the file, which it does for a commit.
const BUSY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    /// What its path led to when it was opened.
    identity: Option<Identity>,
    pub(super) connection: Connection,
}

/// The number of a file and of its disk, where files have numbers.
type Identity = (u64, u64);

impl Database {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        // A name alone might mean something else to SQLite, as `:memory:` does.
        let path = std::path::absolute(path).map_err(|e| unusable(path, e))?;
        if path.is_dir() {
            let text = format!("{} is a directory; name a file in it", path.display());
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

    /// Does something in one commit, or nothing of it when it fails.
    pub(super) fn write<T>(
        &mut self,
        deed: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<Result<T, Error>>,
    ) -> Result<T, Error> {
        self.still_there()?;
        let behavior = TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior);
        let done = transaction.and_then(|transaction| {
            let done = deed(&transaction)?;
            if done.is_ok() {
                transaction.commit()?;
            }
            Ok(done)
        });
        let done = done.map_err(|e| fault(&self.path, e))??;
        self.still_there()?;
        Ok(done)
    }

    /// Whoever opens the file next has to find what is written: SQLite writes on without a word when it is removed, and when it is replaced takes the log
    /// of the one for that of the other.
    fn still_there(&self) -> Result<(), Error> {
        let is_there = match identity(&self.path) {
            Ok(identity) => identity == self.identity,
            Err(e) => !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        };
        if is_there {
            return Ok(());
        }
        let text = format!(
            "{} was removed, renamed or replaced while it was open; put it or a copy in its place and open the conversation again",
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
        let told = self.connection.busy_timeout(BUSY);
        told.map_err(|e| self.fault(e))?;
        // Nothing is changed in a file before it is known to be one of ours.
        self.check(&self.connection)?;
        let mode = "PRAGMA journal_mode = WAL";
        let mode = self.connection.query_row(mode, [], |row| row.get(0));
        let mode: String = mode.map_err(|e| self.fault(e))?;
        if mode != "wal" {
            let (path, text) = (self.name(), "write-ahead logs; put it on a local one");
            let text = format!("{path} is on a file system that can't have {text}");
            return Err(Error::persistence(text, None));
        }
        let durable = self.connection.execute_batch(DURABLE);
        durable.map_err(|e| self.fault(e))
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
                "{path} was written by a newer version of this program (schema {version}, this one knows {VERSION}); update it"
            ),
            0 if tables == 0 => return Err(empty(&self.path)),
            _ => {
                format!("{path} is a database of another program; name another file")
            }
        };
        Err(Error::persistence(text, None))
    }
}

/// Looks at the file's name only: to open and close it would take away the locks that SQLite has on it in this process.
#[cfg(unix)]
fn identity(path: &Path) -> std::io::Result<Option<Identity>> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path)?;
    Ok(Some((metadata.dev(), metadata.ino())))
}

/// Where a file that is open can't be removed, there is nothing to see.
#[cfg(not(unix))]
fn identity(_path: &Path) -> std::io::Result<Option<Identity>> {
    Ok(None)
}

/// Creates the file, unless there is one. It gets its name once it has its tables: one that is empty was cut, or is somebody else's.
fn create(path: &Path) -> Result<(), Error> {
    match std::fs::metadata(path) {
        // SQLite takes one of a single byte for empty too, and then removes the log beside it.
        Ok(metadata) if metadata.len() <= 1 => return Err(empty(path)),
        Ok(_) => return Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(unusable(path, e)),
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", Uuid::new_v4()));
    let beside = PathBuf::from(beside);
    let made = make(&beside, path);
    // It may have another name by now.
    let _gone = std::fs::remove_file(&beside);
    made?;
    let directory = path.parent().map_or(Ok(()), synced);
    directory.map_err(|e| unusable(path, e))
}

/// Makes a file for its owner alone, since SQLite gives its log the same permissions, and gives it its name unless another one has that by now.
fn make(beside: &Path, path: &Path) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(beside).map_err(|e| unusable(path, e))?;
    drop(file);
    lay_out(beside).map_err(|e| fault(path, e))?;
    let named = std::fs::hard_link(beside, path);
    if named.is_err() && std::fs::symlink_metadata(path).is_err() {
        // There are file systems without links.
        return std::fs::rename(beside, path).map_err(|e| unusable(path, e));
    }
    Ok(())
}

fn lay_out(file: &Path) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(file, flags)?;
    connection.execute_batch(DURABLE)?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(include_str!("schema.sql"))?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.commit()?;
    connection.close().map_err(|(_, e)| e)
}

fn empty(path: &Path) -> Error {
    let text = "is empty: it was cut, or another program made it; put a copy in its place, or remove it to begin anew";
    Error::persistence(format!("{} {text}", path.display()), None)
}

/// Makes the file's name durable. Where directories can't be opened, as on Windows, they need not be.
fn synced(directory: &Path) -> std::io::Result<()> {
    File::open(directory).map_or(Ok(()), |directory| directory.sync_all())
}

fn unusable(path: &Path, e: std::io::Error) -> Error {
    let path = path.display();
    let mend = "name a file in a directory that is there and can be written";
    let text = format!("{path} can't be created; {mend}");
    Error::persistence(text, Some(e.into()))
}

fn fault(path: &Path, e: rusqlite::Error) -> Error {
    let mend = match e.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "has no room; make some and open the conversation again",
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "can't be written; change its permissions or its directory's"
        }
        Some(ErrorCode::NotADatabase) => "is no database; name another file",
        Some(ErrorCode::DatabaseCorrupt) => {
            "is damaged; put a copy in its place, or name a new file"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "is held by another program; end it and open the conversation again"
        }
        _ => "can't be read or written; look at its disk and open the conversation again",
    };
    Error::persistence(format!("{} {mend}", path.display()), Some(e.into()))
}
