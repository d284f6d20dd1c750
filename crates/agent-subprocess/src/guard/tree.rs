//! The process tree below the guard: its processes, the record of them for the report, and its end.

use crate::guard_protocol::{MAX_NAMES, TreeEnd};
use crate::proc_fs::{self, Stat, UNKNOWN_NAME, pid_of};
use crate::times;
use crate::{Exit, ProcessId, ProcessName, sys};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The maximum wait between two rounds of SIGKILL or SIGSTOP.
const ROUND: Duration = Duration::from_millis(1);

/// A suspension of the process tree that is not complete.
struct Suspension {
    /// The processes that a scan has found suspended.
    suspended: BTreeSet<ProcessId>,
    /// The time after which no more processes are looked for: a process that the kernel holds does not stop.
    until: Instant,
}

pub(super) struct Tree {
    own: u32,
    pub(super) main: u32,
    pub(super) exit: Option<Exit>,
    children: OwnedFd,
    /// Whether the names of processes are recorded for the report.
    is_recording: bool,
    seen: BTreeMap<u32, String>,
    terminated: bool,
    killed: bool,
    suspension: Option<Suspension>,
}

impl Tree {
    pub(super) fn new(main: u32, children: OwnedFd) -> Self {
        let own = std::process::id();
        Tree {
            own,
            main,
            exit: None,
            children,
            is_recording: false,
            seen: BTreeMap::new(),
            terminated: false,
            killed: false,
            suspension: None,
        }
    }

    pub(super) fn child_signals(&self) -> &OwnedFd {
        &self.children
    }

    pub(super) fn descendants(&self) -> Vec<Stat> {
        proc_fs::descendants(self.own)
    }

    /// Records every living process, and from now on every process that is found.
    pub(super) fn record_all(&mut self) {
        self.is_recording = true;
        for stat in self.descendants() {
            self.record(stat.pid);
        }
    }

    fn record(&mut self, pid: u32) {
        if self.is_recording {
            self.seen
                .entry(pid)
                .or_insert_with(|| proc_fs::name(pid).name);
        }
    }

    /// Reaps every dead child. Returns `false` if there are no children at all, which proves that the process tree is empty.
    pub(super) fn reap(&mut self) -> bool {
        drain(&self.children);
        loop {
            match sys::dead_child() {
                Ok(None) | Err(Errno::INTR) => return true,
                Err(_) => return false,
                Ok(Some(pid)) => {
                    let number = pid.as_raw_nonzero().get().unsigned_abs();
                    self.record(number);
                    let status = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG)
                        .ok()
                        .flatten();
                    if let Some((_, status)) = status
                        && number == self.main
                    {
                        self.exit = Some(Exit {
                            code: status.exit_status(),
                            signal: status.terminating_signal(),
                        });
                    }
                }
            }
        }
    }

    /// Sends one signal to every descendant, after a check that it is still the process that was found.
    pub(super) fn signal_all(&mut self, signal: Signal) {
        if signal == Signal::CONT {
            self.suspension = None;
        }
        for stat in self.descendants() {
            self.record(stat.pid);
            self.terminated |= signal == Signal::TERM;
            let _gone_or_refused = self.signal_one(&stat, signal);
        }
    }

    /// Sends SIGSTOP to every descendant. [`go_on_suspending`](Self::go_on_suspending) sends it to the rest.
    pub(super) fn suspend(&mut self) {
        self.suspension = Some(Suspension {
            suspended: BTreeSet::new(),
            until: Instant::now() + times::SUSPEND,
        });
        self.go_on_suspending();
    }

    /// Sends SIGSTOP to every descendant that still runs. A process that is in the middle of a fork stops after it, and leaves a child that runs.
    /// So the suspension is complete after a scan that finds only processes that an earlier scan has found suspended.
    ///
    /// Returns the time until the next call, or `None` if there is nothing more to do.
    pub(super) fn go_on_suspending(&mut self) -> Option<Duration> {
        let mut suspension = self.suspension.take()?;
        let found = self.descendants();
        let mut is_complete = true;
        for stat in found {
            is_complete &= suspension.suspended.contains(&stat.id());
            self.record(stat.pid);
            if stat.is_suspended() {
                suspension.suspended.insert(stat.id());
            } else {
                let _gone_or_refused = self.signal_one(&stat, Signal::STOP);
            }
        }
        if is_complete || Instant::now() >= suspension.until {
            return None;
        }
        self.suspension = Some(suspension);
        Some(ROUND)
    }

    fn signal_one(&self, seen: &Stat, signal: Signal) -> Result<(), Errno> {
        proc_fs::signal(seen.id(), signal, |now| {
            now.parent == seen.parent || now.parent == self.own
        })
    }

    /// Signals the group of the main process while its pid can't have been reused, and records the processes in that group.
    pub(super) fn signal_group(&mut self, signal: Signal) {
        if let (None, Some(main)) = (self.exit, pid_of(self.main)) {
            for stat in self
                .descendants()
                .into_iter()
                .filter(|stat| stat.group == self.main)
            {
                self.seen
                    .entry(stat.pid)
                    .or_insert_with(|| proc_fs::name(stat.pid).name);
            }
            let _gone_or_refused = rustix::process::kill_process_group(main, signal);
        }
    }

    /// Kills direct children only, round after round. Their orphans become children of this process because it is the subreaper, so no process can
    /// escape between the search and the kill. Returns when `wait` reports that there are no children, or after `bound`.
    pub(super) fn kill_rounds(&mut self, bound: Duration) {
        let start = Instant::now();
        let mut first_kill: HashMap<u32, Instant> = HashMap::new();
        self.is_recording = true;
        while self.reap() && start.elapsed() < bound {
            self.killed = true;
            for child in self.direct_children() {
                self.record(child);
                let Some(pid) = pid_of(child) else { continue };
                // Only this thread reaps, so the pid of a child can't have been reused.
                let refused = rustix::process::kill_process(pid, Signal::KILL) == Err(Errno::PERM);
                if refused
                    || first_kill
                        .entry(child)
                        .or_insert_with(Instant::now)
                        .elapsed()
                        > times::STUCK_AFTER
                {
                    for below in proc_fs::descendants(child) {
                        self.record(below.pid);
                        let _gone_or_refused = self.signal_one(&below, Signal::KILL);
                    }
                }
            }
            wait_readable(&self.children, ROUND);
        }
    }

    /// Lists the direct children. The cheap list can leave entries out. If it is empty although there are children, this function scans all
    /// processes.
    fn direct_children(&self) -> Vec<u32> {
        let listed = proc_fs::own_children();
        if !listed.is_empty() {
            return listed;
        }
        proc_fs::all()
            .into_iter()
            .filter(|stat| stat.parent == self.own)
            .map(|stat| stat.pid)
            .collect()
    }

    /// Names the living processes when `wait` reports that there are children. `/proc` can hide the processes of another user.
    fn survivors(&self) -> Vec<ProcessName> {
        let shown = self.descendants();
        let is_shown = |pid: &u32| shown.iter().any(|stat| stat.pid == *pid);
        let children = proc_fs::own_children();
        let hidden = children.into_iter().filter(|pid| !is_shown(pid));
        // A process that `/proc` shows now has ended since, or has just started.
        let hidden = hidden.filter(|pid| proc_fs::stat(*pid).is_none());
        let unseen = |pid| ProcessName {
            pid,
            name: UNKNOWN_NAME.to_owned(),
        };
        let named = shown.iter().map(|stat| proc_fs::name(stat.pid));
        let mut survivors: Vec<_> = named.chain(hidden.map(unseen)).take(MAX_NAMES).collect();
        if survivors.is_empty() {
            // The pid of the survivor is unknown too.
            survivors.push(unseen(0));
        }
        survivors
    }

    pub(super) fn tree_end(&mut self) -> TreeEnd {
        let alive = match self.reap() {
            true => self.survivors(),
            false => Vec::new(),
        };
        let met = std::mem::take(&mut self.seen)
            .into_iter()
            .map(|(pid, name)| ProcessName { pid, name });
        let mut ended: Vec<ProcessName> = met
            .filter(|p| alive.iter().all(|alive| alive.pid != p.pid))
            .collect();
        let unlisted = ended.len().saturating_sub(MAX_NAMES) as u64;
        ended.truncate(MAX_NAMES);
        let (terminated, killed) = (self.terminated, self.killed);
        TreeEnd {
            ended,
            unlisted,
            survivors: alive,
            terminated,
            killed,
            guard_lost: false,
        }
    }
}

fn drain(fd: &OwnedFd) {
    while rustix::io::read(fd, &mut [0_u8; 1024]).is_ok_and(|n| n > 0) {}
}

pub(super) fn wait_readable(fd: &OwnedFd, time: Duration) {
    let _woken_or_due = rustix::event::poll(
        &mut [PollFd::new(fd, PollFlags::IN)],
        Some(&proc_fs::timespec(time)),
    );
}
