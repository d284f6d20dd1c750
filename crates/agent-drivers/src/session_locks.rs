//! Locks by which only one process at a time uses a session of an agent.
//!
//! Agents let two processes write to one session, and then the turn of one process is lost. So a driver takes an advisory lock (`flock`) on one file
//! per session. The guard holds the lock until the agent's process tree is gone, so the lock outlives the death of the process that took it.

use crate::convert::no_descriptor;
use agent_duplex::Error;
use agent_subprocess::{ProcessId, TreeCommand};
use rustix::fs::{Access, FlockOperation, access, flock};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// If the directory has more lock files than this, the unused ones are removed.
const FILES: usize = 256;
/// The number of tries if the file is replaced while it is being locked.
const TRIES: u32 = 16;
/// The longest name of a lock file, in bytes.
const NAME: usize = 200;

/// The locks of one user's sessions, in their own directory; clones share them.
///
/// Within one process the locks are shared: when the agent of a connection has ended, the next connection can use the session, even while leftovers
/// of the agent are alive.
#[derive(Clone, Debug)]
pub struct SessionLocks {
    directory: Arc<Path>,
    known: Arc<Mutex<HashMap<String, Weak<Lock>>>>,
}

/// An error: another process, or another connection of this process, uses the session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInUse {
    /// The session's id.
    pub session: String,
    /// The process that took the lock. If that process is gone, the leftovers of its agent are about to end.
    pub pid: Option<u32>,
    /// The time at which the process took the lock.
    pub since: Option<SystemTime>,
}

impl fmt::Display for SessionInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {} is in use", self.session)?;
        if let Some(pid) = self.pid {
            write!(f, " by process {pid}")?;
        }
        if let Some(age) = self.since.and_then(|since| since.elapsed().ok()) {
            write!(f, " for {} s", age.as_secs())?;
        }
        f.write_str("; wait for it, stop it, or start a fresh session")
    }
}

impl std::error::Error for SessionInUse {}

#[derive(Debug)]
struct Lock {
    descriptor: OwnedFd,
    /// Whether an agent uses the session now.
    busy: AtomicBool,
    since: SystemTime,
}

/// A session that one connection has until it drops the lease. Other processes can lock the session after all copies of the lock's descriptor are
/// closed.
#[derive(Debug)]
pub(crate) struct Lease {
    lock: Arc<Lock>,
    /// Whether the session was released; another lease can have it now.
    is_idle: bool,
}

impl Lease {
    fn new(lock: Arc<Lock>) -> Self {
        let is_idle = false;
        Lease { lock, is_idle }
    }

    /// Takes a session for an agent that is about to start; returns `None` without locks or an id.
    ///
    /// # Errors
    /// [`Error::is_session_in_use`] if the session is in use; the function never waits. [`Error::is_start_failure`] if the session can't be locked.
    pub(crate) fn of(
        locks: Option<&SessionLocks>,
        session: Option<&str>,
    ) -> Result<Option<Self>, Error> {
        let (Some(locks), Some(session)) = (locks, session) else {
            return Ok(None);
        };
        match locks.take(session) {
            Ok(lease) => Ok(Some(lease)),
            Err(Refusal::Held {
                by,
                is_leftover_only: true,
            }) => Err(Error::releasing(by.to_string(), Some(by.into()))),
            Err(Refusal::Held {
                by,
                is_leftover_only: false,
            }) => Err(Error::session_in_use(by.to_string(), Some(by.into()))),
            Err(Refusal::Io(e)) => {
                let what = format!("can't lock the session: {e}");
                let hint = "fix the lock directory, or run without session locks";
                Err(Error::start(format!("{what}; {hint}"), Some(e.into())))
            }
        }
    }

    /// Makes the agent's guard hold the lock, if there is a lease.
    pub(crate) fn hold(lease: Option<&Self>, command: TreeCommand) -> Result<TreeCommand, Error> {
        let Some(lease) = lease else {
            return Ok(command);
        };
        let descriptor = lease.descriptor().map_err(no_descriptor)?;
        Ok(command.hold(descriptor))
    }

    /// Returns the descriptor that the guard holds.
    fn descriptor(&self) -> io::Result<OwnedFd> {
        self.lock.descriptor.try_clone()
    }

    /// Releases the session for other connections of this process. Other processes can't lock it while leftovers hold the descriptor.
    pub(crate) fn release(&mut self) {
        if !std::mem::replace(&mut self.is_idle, true) {
            self.lock.busy.store(false, Ordering::Release);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.release();
    }
}

/// The reason why a session can't be taken.
#[derive(Debug)]
pub(crate) enum Refusal {
    Held {
        by: SessionInUse,
        /// Whether only leftovers of an agent can hold the lock, so that it becomes free without help.
        is_leftover_only: bool,
    },
    Io(io::Error),
}

/// The holder of a lock, as the lock file names it.
#[derive(Serialize, Deserialize)]
struct Holder {
    #[serde(flatten)]
    process: ProcessId,
    /// Seconds since the epoch.
    since: u64,
}

impl SessionLocks {
    /// Creates locks in this directory, which is created with mode 0700 when it is needed. All programs of a user should use the same directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        SessionLocks {
            directory: Arc::from(directory.into()),
            known: Arc::default(),
        }
    }

    /// Creates the directory, and checks that only its owner can write to it. Each lock does this first. Call it earlier to use another directory if
    /// this one is unusable.
    ///
    /// # Errors
    /// When the directory can't be created or written, has another owner, or is writable by others. The error names the directory.
    pub fn prepare(&self) -> io::Result<()> {
        let directory = &*self.directory;
        let refuse =
            |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", directory.display()));
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(refuse)?;
        // Another user who can write here could block us forever, or place a file of another type.
        let meta = std::fs::metadata(directory).map_err(refuse)?;
        if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            let what = "it has another owner, or is writable by others";
            return Err(refuse(io::Error::new(
                io::ErrorKind::PermissionDenied,
                what,
            )));
        }
        access(directory, Access::WRITE_OK).map_err(|e| refuse(e.into()))
    }

    pub(crate) fn take(&self, session: &str) -> Result<Lease, Refusal> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = known.get(session).and_then(Weak::upgrade) {
            return match lock.busy.swap(true, Ordering::AcqRel) {
                false => Ok(Lease::new(lock)),
                true => Err(Refusal::Held {
                    by: SessionInUse {
                        session: session.to_owned(),
                        pid: Some(std::process::id()),
                        since: Some(lock.since),
                    },
                    is_leftover_only: false,
                }),
            };
        }
        let since = SystemTime::now();
        let descriptor = self.lock(session, since)?.into();
        let busy = AtomicBool::new(true);
        let lock = Arc::new(Lock {
            descriptor,
            busy,
            since,
        });
        known.insert(session.to_owned(), Arc::downgrade(&lock));
        Ok(Lease::new(lock))
    }

    fn lock(&self, session: &str, since: SystemTime) -> Result<File, Refusal> {
        let io = Refusal::Io;
        self.prepare().map_err(io)?;
        self.prune();
        let path = self.directory.join(file_name(session).map_err(io)?);
        lock_at(&path, session, since, open)
    }

    /// Removes lock files that no process holds, if there are many files. It is harmless if a file can't be removed.
    fn prune(&self) {
        let Ok(entries) = std::fs::read_dir(&*self.directory) else {
            return;
        };
        let entries: Vec<_> = entries.flatten().take(4 * FILES).collect();
        if entries.len() <= FILES {
            return;
        }
        for entry in entries {
            let path = entry.path();
            let Some(file) = path
                .extension()
                .filter(|e| *e == "lock")
                .and_then(|_| open(&path).ok())
            else {
                continue;
            };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(&file, &path)
            {
                let _stays = std::fs::remove_file(&path);
            }
        }
    }
}

/// Locks the file at `path` for this session. Another process can remove the file between `open` and the lock; the next try opens a new file.
fn lock_at(
    path: &Path,
    session: &str,
    since: SystemTime,
    open: impl Fn(&Path) -> io::Result<File>,
) -> Result<File, Refusal> {
    let io = Refusal::Io;
    for _ in 0..TRIES {
        let mut file = open(path).map_err(io)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(refused(session, &mut file)),
            Err(error) => return Err(io(error.into())),
        }
        if is_at(&file, path) {
            write(&mut file, since).map_err(io)?;
            return Ok(file);
        }
    }
    let what = "its lock file is replaced again and again";
    Err(io(io::Error::other(what)))
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = options.mode(0o600).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file; move it away")),
    }
}

/// Whether the open file is still the one at `path`; the lock of a removed file has no effect.
fn is_at(file: &File, path: &Path) -> bool {
    let ids = (file.metadata(), std::fs::symlink_metadata(path));
    matches!(ids, (Ok(ours), Ok(there)) if (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}

fn write(file: &mut File, since: SystemTime) -> io::Result<()> {
    let since = since
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let process = ProcessId::current();
    let holder = serde_json::to_vec(&Holder { process, since })?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&holder)
}

fn refused(session: &str, file: &mut File) -> Refusal {
    let mut text = String::new();
    let read = file.take(256).read_to_string(&mut text);
    let holder = read
        .ok()
        .and_then(|_| serde_json::from_str::<Holder>(&text).ok());
    // An empty file means that another process has just taken the lock and is about to write its id.
    let passing = { holder.as_ref() }.is_none_or(|holder| is_dead_holder(holder.process));
    let by = SessionInUse {
        session: session.to_owned(),
        pid: holder.as_ref().map(|holder| holder.process.pid),
        since: holder.map(|holder| UNIX_EPOCH + Duration::from_secs(holder.since)),
    };
    Refusal::Held {
        by,
        is_leftover_only: passing,
    }
}

/// Whether only leftovers of `process` can hold a lock. That is true if `process` is gone, even if it is a zombie or its pid is reused. It is also
/// true for the current process, because all locks of its live connections are in `known`.
fn is_dead_holder(process: ProcessId) -> bool {
    #[cfg(target_os = "linux")]
    let is_alive = process.is_alive();
    #[cfg(not(target_os = "linux"))]
    let is_alive = i32::try_from(process.pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH));
    process.pid == std::process::id() || !is_alive
}

/// Makes the name of a session's lock file: the id, with bytes that are special in a path in hexadecimal.
fn file_name(session: &str) -> io::Result<String> {
    let mut name = String::new();
    for byte in session.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            _ => drop(write!(name, "%{byte:02x}")),
        }
    }
    if name.is_empty() || name.len() > NAME {
        let what = "the session's id is empty or too long";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(name + ".lock")
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_subprocess::ProcessStat;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn held_by(refusal: Result<Lease, Refusal>) -> SessionInUse {
        match refusal {
            Err(Refusal::Held { by, .. }) => by,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn p46_session_is_taken_once_and_holder_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a").join("b");
        let locks = SessionLocks::new(&path);
        let lease = locks.take("one").unwrap();
        let other = locks.take("two").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert_eq!(
            std::fs::metadata(path.join("one.lock")).unwrap().mode() & 0o777,
            0o600
        );
        // A separate table acts like another process: `flock` belongs to the open file.
        for locks in [locks.clone(), SessionLocks::new(&path)] {
            let held = held_by(locks.take("one"));
            assert_eq!(held.pid, Some(std::process::id()));
            assert!(held.since.unwrap().elapsed().unwrap() < Duration::from_secs(60));
            let shown = held.to_string();
            assert!(
                shown.contains(&format!("process {}", std::process::id()))
                    && shown.contains("stop it"),
                "{shown}"
            );
        }
        drop(lease);
        drop(SessionLocks::new(&path).take("one").unwrap());
        drop(other);
    }

    #[test]
    fn p46_leftover_locks_out_others_but_not_its_own_loop() {
        let directory = tempfile::tempdir().unwrap();
        let locks = SessionLocks::new(directory.path());
        let mut lease = locks.take("one").unwrap();
        let guard = lease.descriptor().unwrap();
        lease.release();
        drop(locks.take("one").unwrap());
        drop(lease);
        let stranger = SessionLocks::new(directory.path());
        assert!(
            stranger.take("one").is_err(),
            "the guard's descriptor holds the lock"
        );
        drop(guard);
        stranger.take("one").unwrap();
    }

    #[test]
    fn p46_stale_lock_files_are_harmless_and_limited() {
        let directory = tempfile::tempdir().unwrap();
        let locks = SessionLocks::new(directory.path());
        std::fs::write(
            directory.path().join("stale.lock"),
            "{\"pid\": 1, \"since\"",
        )
        .unwrap();
        drop(locks.take("stale").unwrap());
        let kept = locks.take("kept").unwrap();
        for n in 0..FILES + 10 {
            drop(locks.take(&format!("session {n}")).unwrap());
        }
        let count = std::fs::read_dir(directory.path()).unwrap().count();
        assert!(count <= FILES + 1, "{count} files");
        assert!(
            SessionLocks::new(directory.path()).take("kept").is_err(),
            "a held lock file stays"
        );
        drop(kept);
    }

    #[test]
    fn p46_lock_of_a_removed_file_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one.lock");
        let removes = std::cell::Cell::new(2);
        // As if another process removed the file just after it was opened, twice.
        let open = |path: &Path| {
            let file = open(path)?;
            if removes.get() > 0 {
                removes.set(removes.get() - 1);
                std::fs::remove_file(path)?;
            }
            Ok(file)
        };
        let file = lock_at(&path, "one", SystemTime::now(), open).unwrap();
        assert!(is_at(&file, &path) && removes.get() == 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn p46_reused_pid_of_dead_holder_is_not_the_holder() {
        let directory = tempfile::tempdir().unwrap();
        let mut zombie = std::process::Command::new("true").spawn().unwrap();
        let dead = zombie.id();
        let process = |pid| ProcessId {
            pid,
            ..ProcessId::current()
        };
        // The child ends, but nothing reaps it.
        while ProcessStat::read(dead).is_some_and(|stat| !stat.is_dead) {
            std::thread::yield_now();
        }
        let parent = rustix::process::getppid().unwrap().as_raw_pid();
        let parent = ProcessStat::read(parent.unsigned_abs()).unwrap().process;
        let successor = ProcessId {
            start_time: parent.start_time + 1,
            ..parent
        };
        let holders = [
            (Some(process(dead)), true),
            (Some(successor), true),
            (Some(parent), false),
            (None, true),
        ];
        let locks = SessionLocks::new(directory.path());
        for (holder, expected) in holders {
            let mut file = open(&directory.path().join("one.lock")).unwrap();
            flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
            file.set_len(0).unwrap();
            if let Some(process) = holder {
                let holder = Holder { process, since: 0 };
                file.write_all(&serde_json::to_vec(&holder).unwrap())
                    .unwrap();
            }
            let Err(Refusal::Held {
                is_leftover_only: passing,
                ..
            }) = locks.take("one")
            else {
                panic!("the file is locked")
            };
            assert_eq!(passing, expected, "{holder:?}");
        }
        zombie.wait().unwrap();
    }

    #[test]
    fn p46_directory_writable_by_others_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(directory.path(), all).unwrap();
        let refused = SessionLocks::new(directory.path()).take("one");
        let Err(Refusal::Io(error)) = refused else {
            panic!("{refused:?}")
        };
        let place = directory.path().display().to_string();
        assert!(error.to_string().contains(&place), "{error}");
    }

    #[test]
    fn p46_double_release_keeps_next_holders_lock() {
        let directory = tempfile::tempdir().unwrap();
        let locks = SessionLocks::new(directory.path());
        let mut first = locks.take("one").unwrap();
        first.release();
        let second = locks.take("one").unwrap();
        // The first agent had ended; now its leftovers are stopped too, and the connection is dropped.
        first.release();
        drop(first);
        held_by(locks.take("one"));
        drop(second);
        locks.take("one").unwrap();
    }

    proptest! {
        #[test]
        fn p46_two_sessions_never_share_a_file(one: String, two: String) {
            if let (Ok(a), Ok(b)) = (file_name(&one), file_name(&two)) {
                prop_assert_eq!(a == b, one == two);
                prop_assert!(!a.contains('/') && !a.starts_with('.'));
            }
        }
    }
}
