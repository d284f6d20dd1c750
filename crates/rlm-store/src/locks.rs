//! Finds the process that holds a lock, by `/proc/locks` of the kernel: no file that an agent can edit decides.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use agent_subprocess::ProcessId;

use crate::state_dir::Identity;

/// The largest number of bytes that are read from `/proc/locks`, and of descriptors of a process that are checked.
const LONGEST: u64 = 16 << 20;
const DESCRIPTORS: usize = 65_536;

/// Lists the processes that took a `flock`. If such a process is dead, its children may still hold the lock.
///
/// # Errors
///
/// An error if `/proc/locks` can't be read.
fn takers() -> io::Result<BTreeSet<u32>> {
    Ok(parse(&all_locks()?))
}

fn all_locks() -> io::Result<String> {
    let mut text = Vec::new();
    let file = std::fs::File::open("/proc/locks")?;
    file.take(LONGEST).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Parses lines such as `1: FLOCK  ADVISORY  WRITE 522 fe:00:6643985 0 EOF`. A line of a process that only waits (`1: -> FLOCK …`) is no lock.
fn parse(text: &str) -> BTreeSet<u32> {
    let taker = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let pid = (words.next()? == "FLOCK").then(|| words.nth(2))??;
        pid.parse().ok().filter(|pid| *pid > 0)
    };
    text.lines().filter_map(taker).collect()
}

/// Names the living process of another user that took the `flock` on a directory. The result is only for messages: this compares the inode numbers in
/// `/proc/locks`, and some file systems have other numbers there. `None` if no line matches.
pub(crate) fn describe_stranger(tree: &Path) -> Option<String> {
    let inode = Identity::at(tree).ok()?.inode.to_string();
    let text = all_locks().ok()?;
    let fits = |line: &&str| {
        let file = line.split_ascii_whitespace().nth(5);
        file.is_some_and(|file| file.rsplit(':').next() == Some(inode.as_str()))
    };
    let pid = text
        .lines()
        .filter(fits)
        .find_map(|line| parse(line).pop_first())?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let name = field("Name:")?.trim().escape_debug().to_string();
    let uid: u32 = field("Uid:")?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()?;
    (uid != rustix::process::geteuid().as_raw())
        .then(|| format!("process {pid} ({name}, user {uid})"))
}

/// Returns those of the processes that hold a lock on a directory, as the process of a run does.
pub fn directory_lock_holders(processes: impl Iterator<Item = u32>) -> BTreeSet<u32> {
    let Ok(takers) = takers() else {
        return BTreeSet::new();
    };
    let holds = |pid: &u32| {
        takers.contains(pid) && held_by(*pid).is_ok_and(|held| held.iter().any(|it| it.is_dir))
    };
    processes.filter(holds).collect()
}

/// A directory or the lock file of a run's state that a process has open.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pid: u32,
    identity: Identity,
    is_dir: bool,
    /// The current path of the file, as the kernel reports it.
    path: PathBuf,
    descriptor: OsString,
}

impl OpenFile {
    /// Describes a descriptor of a process; `None` for another file, a socket or a pipe, which costs one system call.
    fn of(pid: u32, descriptor: &std::fs::DirEntry) -> Option<Self> {
        // A descriptor that was closed meanwhile holds no lock.
        let path = std::fs::read_link(descriptor.path()).ok()?;
        let meta = { path.is_absolute() }.then(|| std::fs::metadata(descriptor.path()).ok());
        let meta = meta.flatten()?;
        let is_dir = meta.is_dir();
        (is_dir || LockedRun::at(&path).is_some()).then(|| Self {
            pid,
            identity: Identity::from(&meta),
            is_dir,
            path,
            descriptor: descriptor.file_name(),
        })
    }

    /// Returns whether the process holds a `flock` on the file by this descriptor.
    fn is_locked(&self) -> bool {
        let info = PathBuf::from(format!("/proc/{}/fdinfo", self.pid)).join(&self.descriptor);
        std::fs::read_to_string(info).is_ok_and(|info| has_flock(&info, self.pid))
    }
}

/// Lists the directories and the lock files of runs that a process has open.
///
/// Compares the descriptors by `stat`, not by the numbers in `/proc/locks`: some file systems (btrfs, overlayfs) have other numbers there.
fn open_files(pid: u32) -> io::Result<impl Iterator<Item = OpenFile>> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))?.take(DESCRIPTORS);
    let descriptors = descriptors.map_while(Result::ok);
    Ok(descriptors.filter_map(move |it| OpenFile::of(pid, &it)))
}

/// Lists those that it holds a `flock` on by its own descriptors.
fn held_by(pid: u32) -> io::Result<Vec<OpenFile>> {
    Ok(open_files(pid)?.filter(OpenFile::is_locked).collect())
}

/// Returns whether a descriptor has a lock that `pid` took: a line `lock: 1: FLOCK  ADVISORY  WRITE 522 fe:00:6643985 0 EOF`.
fn has_flock(info: &str, pid: u32) -> bool {
    let lines = info.lines().filter_map(|line| line.strip_prefix("lock:"));
    lines.into_iter().any(|line| parse(line).contains(&pid))
}

/// The state of the lock on a working tree, as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TreeLock {
    /// No visible living process took it.
    Free,
    /// This process took it.
    Taken(LockOwner),
    /// Processes with unreadable descriptors hold some lock.
    Hidden(Vec<u32>),
}

/// The process that took the lock on a working tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockOwner {
    /// The process.
    pub process: ProcessId,
    /// The identity of the working tree, which may have been moved or removed since.
    pub(crate) tree: Identity,
    /// The run whose state the process has locked too, if any.
    pub(crate) run: Option<LockedRun>,
    /// Whether the process runs the same program as this one.
    pub(crate) is_same_program: bool,
}

/// A run whose state a process has locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockedRun {
    pub(crate) name: String,
    /// Whether that state is or was in `.rlm/runs`. If not, somebody may have moved the directory and given it any name.
    pub(crate) is_in_place: bool,
}

impl LockedRun {
    /// Reads the run from the path of its lock file, which may have been removed: `…/.rlm/runs/RUN/LOCK`, or `…/RUN/LOCK` if somebody moved a
    /// directory above it.
    fn at(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let directory = path.parent()?;
        let run = directory.file_name()?.to_str()?;
        let is_lock = name.strip_suffix(" (deleted)").unwrap_or(name) == "LOCK";
        let above = directory.parent();
        is_lock.then(|| Self {
            name: run.to_owned(),
            is_in_place: above
                .is_some_and(|it| it.ends_with(Path::new(crate::state_directory()).join("runs"))),
        })
    }
}

impl LockOwner {
    /// Returns whether the process has locked the state of the run with this name too.
    pub(crate) fn has(&self, run: &str) -> bool {
        self.run.as_ref().is_some_and(|it| it.name == run)
    }
}

/// Finds the process that took the lock on the directory `tree`. Looks at the process `likely` first, because there can be thousands of others.
///
/// # Errors
///
/// An error if `/proc/locks` or the directory can't be read.
pub(crate) fn owner(tree: &Path, likely: Option<u32>) -> io::Result<TreeLock> {
    let tree = Identity::at(tree)?;
    if let Some(likely) = likely
        && let found @ TreeLock::Taken(_) = owner_among(tree, [likely])
    {
        return Ok(found);
    }
    Ok(owner_among(tree, takers()?))
}

fn owner_among(tree: Identity, processes: impl IntoIterator<Item = u32>) -> TreeLock {
    let mut hidden = Vec::new();
    for pid in processes {
        // Read the start time first: if the pid is reused meanwhile, no signal goes to the new process.
        let process = agent_subprocess::ancestry::process(pid).filter(ProcessId::is_alive);
        let Some(process) = process else {
            continue;
        };
        match open_files(pid).map(|files| lock_of(tree, files)) {
            Ok(Some(run)) => {
                return TreeLock::Taken(LockOwner {
                    process,
                    tree,
                    run,
                    is_same_program: is_same_program(pid),
                });
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => hidden.push(pid),
            _ => {}
        }
    }
    match hidden.is_empty() {
        true => TreeLock::Free,
        false => TreeLock::Hidden(hidden),
    }
}

/// Returns the run whose state a process has locked, if it has locked the directory `tree` too. Looks only at locks that can matter.
fn lock_of(tree: Identity, files: impl Iterator<Item = OpenFile>) -> Option<Option<LockedRun>> {
    let (mut is_held, mut run) = (false, None);
    for file in files {
        if file.is_dir {
            is_held |= !is_held && file.identity == tree && file.is_locked();
        } else if run.is_none() && file.is_locked() {
            run = LockedRun::at(&file.path);
        }
    }
    is_held.then_some(run)
}

/// Finds the processes that hold two locks: one on the state of a run in the project `root`, and one on a directory, which may be gone.
///
/// # Errors
///
/// An error if `/proc/locks` can't be read.
pub(crate) fn owners_of_lost_trees(root: &Path) -> io::Result<Vec<LockOwner>> {
    let owner = |pid| {
        let process = agent_subprocess::ancestry::process(pid).filter(ProcessId::is_alive)?;
        let held = held_by(pid).ok()?;
        let mut here = held.iter().filter(|it| it.path.starts_with(root));
        let run = here.find_map(|it| LockedRun::at(&it.path))?;
        Some(LockOwner {
            process,
            tree: held.iter().find(|it| it.is_dir)?.identity,
            run: Some(run),
            is_same_program: is_same_program(pid),
        })
    };
    Ok(takers()?.into_iter().filter_map(owner).collect())
}

/// Returns whether the process still holds the lock on its working tree.
pub fn still_holds(owner: &LockOwner) -> bool {
    let held = held_by(owner.process.pid);
    held.is_ok_and(|held| held.iter().any(|it| it.identity == owner.tree))
        && owner.process.is_alive()
}

/// Returns whether a process runs the same program as this one.
fn is_same_program(pid: u32) -> bool {
    let program = |pid: &str| Identity::at(Path::new(&format!("/proc/{pid}/exe"))).ok();
    let own = program("self");
    own.is_some() && own == program(&pid.to_string())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_processes_that_took_a_flock_are_listed() {
        let text = "1: FLOCK  ADVISORY  WRITE 522 fe:00:6643985 0 EOF\n\
            1: -> FLOCK  ADVISORY  WRITE 600 fe:00:6643985 0 EOF\n\
            2: POSIX  ADVISORY  READ 700 fe:00:1 0 EOF\n\
            3: OFDLCK ADVISORY  READ -1 fe:00:1 0 EOF\n\
            4: FLOCK  ADVISORY  WRITE 0 fe:00:1 0 EOF\n5: FLOCK";
        assert_eq!(parse(text), BTreeSet::from([522]));
    }

    #[test]
    fn the_owner_of_a_directory_is_the_process_that_locked_it() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!matches!(
            owner(dir.path(), None).unwrap(),
            TreeLock::Taken(_)
        ));
        let lock = std::fs::File::open(dir.path()).unwrap();
        lock.try_lock().unwrap();
        let mut own = LockOwner {
            process: ProcessId::current(),
            tree: crate::state_dir::metadata(dir.path()).unwrap().identity(),
            run: None,
            is_same_program: true,
        };
        // A wrong guess changes nothing.
        for likely in [None, Some(own.process.pid), Some(1)] {
            let found = owner(dir.path(), likely).unwrap();
            assert_eq!(found, TreeLock::Taken(own.clone()), "{likely:?}");
        }
        let state = dir.path().join(".rlm/runs/r1");
        std::fs::create_dir_all(&state).unwrap();
        let file = std::fs::File::create(state.join("LOCK")).unwrap();
        file.try_lock().unwrap();
        own.run = Some(LockedRun {
            name: "r1".into(),
            is_in_place: true,
        });
        assert_eq!(
            owner(dir.path(), None).unwrap(),
            TreeLock::Taken(own.clone())
        );
        std::fs::remove_dir_all(dir.path().join(".rlm")).unwrap();
        assert_eq!(
            owner(dir.path(), None).unwrap(),
            TreeLock::Taken(own.clone())
        );
        assert!(still_holds(&own));
        let found = directory_lock_holders([std::process::id(), 1].into_iter());
        assert!(found.contains(&std::process::id()));
        drop(lock);
        assert!(!still_holds(&own));
    }

    #[test]
    fn owner_of_another_program_is_not_the_same_program() {
        let dir = tempfile::tempdir().unwrap();
        let mut flock = std::process::Command::new("flock");
        let flock = flock.arg("--no-fork").arg(dir.path());
        let Ok(mut other) = flock.args(["sleep", "600"]).spawn() else {
            println!("skipped: flock is not installed");
            return;
        };
        let start = std::time::Instant::now();
        let found = loop {
            if let Ok(TreeLock::Taken(found)) = owner(dir.path(), None) {
                break Some(found);
            }
            if start.elapsed().as_secs() > 20 {
                break None;
            }
            std::thread::yield_now();
        };
        other.kill().unwrap();
        other.wait().unwrap();
        let found = found.unwrap();
        assert_eq!(found.process.pid, other.id());
        assert!(!found.is_same_program);
    }

    #[test]
    fn run_is_recognised_by_the_path_of_its_lock() {
        let run = |path| LockedRun::at(Path::new(path));
        let r1 = |is_in_place| {
            let name = "r1".to_owned();
            Some(LockedRun { name, is_in_place })
        };
        assert_eq!(run("/p/.rlm/runs/r1/LOCK"), r1(true));
        assert_eq!(run("/p/.rlm/runs/r1/LOCK (deleted)"), r1(true));
        assert_eq!(run("/p/moved/runs/r1/LOCK"), r1(false));
        assert_eq!(run("/p/.rlm/runs/r1/LOCKED"), None);
    }
}
