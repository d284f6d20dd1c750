//! Finds what a test started and what is still there, by the mark in the environment, whoever the parent is by now; and starts children that are not
//! taken for orphans.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::process::{self, Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use uuid::Uuid;

/// The variable that carries the mark of a `Sandbox` in the environment of every process started in it.
pub const MARK_VARIABLE: &str = "RLM_TEST_MARK";

/// Children whose handle someone holds: never reaped as orphans.
static OWNED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// One process of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// The process id.
    pub pid: i32,
    /// The parent's.
    pub ppid: i32,
    /// The session's; 0 if its leader lives outside the pid namespace, as in a container without an init.
    pub sid: i32,
    /// The command name, 15 bytes at most.
    pub name: String,
    /// `R`, `S`, `T` … as the kernel names it; `Z` is a zombie.
    pub state: char,
    /// Ticks from boot to its start: with the pid it names a process for good.
    pub started: u64,
}

impl Process {
    /// Whether it is dead and its parent has not asked yet.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        self.state == 'Z'
    }

    /// Ends it, if it is still the same process.
    pub(crate) fn kill(&self) {
        let same = stat(self.pid).is_some_and(|now| now.started == self.started);
        if same && let Some(pid) = Pid::from_raw(self.pid) {
            // It may have gone in between, which is as good.
            let _gone = kill_process(pid, Signal::KILL);
        }
    }
}

/// Scans for the processes that carry one mark.
#[derive(Debug)]
pub struct Survivors {
    mark: String,
    /// The start times by pid of those seen before. A zombie has no environment left, a process in the middle of an exec has none for a
    /// moment, and one may clear its own: they are known because they were seen before, or by their parent or session.
    seen: Mutex<HashMap<i32, u64>>,
}

impl Survivors {
    /// Draws a new mark; from now on orphans below this process come to it.
    pub(crate) fn new() -> Self {
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .expect("a process may always become a subreaper");
        Self {
            mark: Uuid::new_v4().to_string(),
            seen: Mutex::default(),
        }
    }

    /// The value of [`MARK_VARIABLE`].
    #[must_use]
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Lists the processes of this test that exist now, in the order of their pids.
    ///
    /// Zombies are listed while their parent is one of the test's processes. Those whose parent is gone come to this process and are reaped
    /// first, as init would do it; a child whose handle a test holds is left to the handle.
    #[must_use]
    pub fn scan(&self) -> Vec<Process> {
        let all: HashMap<i32, Process> = pids()
            .filter_map(stat)
            .map(|found| (found.pid, found))
            .collect();
        let needle = format!("{MARK_VARIABLE}={}", self.mark);
        let marked = |pid: i32| {
            std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| {
                env.split(|byte| *byte == 0)
                    .any(|entry| entry == needle.as_bytes())
            })
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|pid, started| all.get(pid).is_some_and(|now| now.started == *started));
        let marked = all.values().filter(|found| marked(found.pid));
        seen.extend(marked.map(|found| (found.pid, found.started)));
        let me = process::id().cast_signed();
        let my_session = all.get(&me).map_or(0, |me| me.sid);
        loop {
            let sessions: HashSet<i32> = seen.keys().map(|pid| all[pid].sid).collect();
            let related = |found: &&Process| {
                let by_session = found.sid != my_session && sessions.contains(&found.sid);
                !seen.contains_key(&found.pid) && (by_session || seen.contains_key(&found.ppid))
            };
            let relatives: Vec<_> = all
                .values()
                .filter(related)
                .map(|found| (found.pid, found.started))
                .collect();
            if relatives.is_empty() {
                break;
            }
            seen.extend(relatives);
        }

        let mut left: Vec<Process> = seen
            .keys()
            .filter_map(|pid| all.get(pid))
            .cloned()
            .collect();
        left.retain(|process| !(process.is_zombie() && process.ppid == me && reap(process.pid)));
        left.sort_by_key(|process| process.pid);
        left
    }
}

/// Spawns under the lock, so that no scan takes a child that ends at once for an orphan.
pub(crate) fn owned_spawn(command: &mut Command) -> Child {
    let mut owned = OWNED.lock().unwrap_or_else(PoisonError::into_inner);
    let child = command
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    owned.insert(child.id().cast_signed());
    child
}

/// Runs a helper of the harness to its end.
pub(crate) fn owned_output(command: &mut Command) -> Output {
    let child = owned_spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let pid = child.id().cast_signed();
    let output = child
        .wait_with_output()
        .expect("a child's output can be read");
    disown(pid);
    output
}

/// Leaves a child to whoever finds it: its handle has seen its end.
pub(crate) fn disown(pid: i32) {
    OWNED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&pid);
}

/// Reaps an orphan; leaves alone what a handle of this process will ask for.
fn reap(pid: i32) -> bool {
    let owned = OWNED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(pid) = Pid::from_raw(pid).filter(|_| !owned.contains(&pid)) else {
        return false;
    };
    // A dead process is not ready to be reaped before its last thread is dead.
    matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(Some(_)))
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

pub(crate) fn stat(pid: i32) -> Option<Process> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name stands in brackets and may itself hold any character.
    let (head, tail) = text.rsplit_once(')')?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    Some(Process {
        pid,
        ppid: fields.get(1)?.parse().ok()?,
        sid: fields.get(3)?.parse().ok()?,
        name: head.split_once('(')?.1.to_owned(),
        state: fields.first()?.chars().next()?,
        started: fields.get(19)?.parse().ok()?,
    })
}
