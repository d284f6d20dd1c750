//! Finds the live processes of a test by the marker in their environment, whatever their parents. Also starts children that a scan must not reap as
//! orphans.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::process::{self, Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use uuid::Uuid;

/// The variable with the marker of a `Sandbox` in the environment of every process started in it.
pub const MARKER_VARIABLE: &str = "RLM_TEST_MARK";

/// The children whose handle a test holds. A scan never reaps them.
static OWNED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// One process of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// The process id.
    pub pid: i32,
    /// The process id of the parent.
    pub ppid: i32,
    /// The session id; 0 if the session leader is outside of the pid namespace, as in a container without an init.
    pub sid: i32,
    /// The command name, at most 15 bytes.
    pub name: String,
    /// The kernel's letter: `R`, `S`, `T` …; `Z` is a zombie.
    pub state: char,
    /// Clock ticks from boot to its start. Together with the pid it identifies a process.
    pub started: u64,
}

impl Process {
    /// Whether it is dead and its parent has not reaped it.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        self.state == 'Z'
    }

    /// Kills it, if it is still the same process. Returns whether the signal was sent; otherwise the process has ended.
    pub fn kill(&self) -> bool {
        let same = stat(self.pid).is_some_and(|now| now.started == self.started);
        same && Pid::from_raw(self.pid).is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
    }
}

/// Scans for the processes with one marker.
#[derive(Debug)]
pub struct Survivors {
    mark: String,
    /// The start times of the known processes by pid. A zombie has no environment, a process during exec has none for a moment, and a process may
    /// clear its own. The scan recognises them by this map, or by their parent or session.
    seen: Mutex<HashMap<i32, u64>>,
}

impl Survivors {
    /// Creates a new marker. From now on this process adopts the orphans below it.
    pub(crate) fn new() -> Self {
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .expect("a process can always become a subreaper");
        Self {
            mark: Uuid::new_v4().to_string(),
            seen: Mutex::default(),
        }
    }

    /// Returns the value of [`MARKER_VARIABLE`].
    #[must_use]
    pub fn marker(&self) -> &str {
        &self.mark
    }

    /// Lists the current processes of this test, ordered by pid.
    ///
    /// A zombie is listed while its parent is a process of the test. This process adopts zombies whose parent is gone and reaps them first, as init
    /// would. It does not reap a child whose handle a test holds.
    #[must_use]
    pub fn scan(&self) -> Vec<Process> {
        let all: HashMap<i32, Process> = pids()
            .filter_map(stat)
            .map(|found| (found.pid, found))
            .collect();
        let needle = format!("{MARKER_VARIABLE}={}", self.mark);
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

/// Spawns under the lock, so that no scan treats a short-lived child as an orphan.
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
        .expect("the output of a child can be read");
    disown(pid);
    output
}

/// Removes a child from the owned ones: its handle has reaped it.
pub(crate) fn disown(pid: i32) {
    OWNED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&pid);
}

/// Reaps an orphan. Skips a process that a handle of this process will reap.
fn reap(pid: i32) -> bool {
    let owned = OWNED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(pid) = Pid::from_raw(pid).filter(|_| !owned.contains(&pid)) else {
        return false;
    };
    // A process can only be reaped after its last thread has died.
    matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(Some(_)))
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

pub(crate) fn stat(pid: i32) -> Option<Process> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name is in parentheses and may itself contain any character.
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
