//! Reads processes from `/proc`, and sends signals that cannot reach the wrong process.

use crate::{ProcessId, ProcessName};
use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _};
use std::time::Duration;

/// Replaces the name of a process that `wait` reports and `/proc` hides.
pub(crate) const UNKNOWN_NAME: &str = "not shown by /proc";

/// The fields of `/proc/PID/stat` that this crate needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub(crate) pid: u32,
    state: u8,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    /// 0 if the leader is outside of the pid namespace.
    pub(crate) session: u32,
    flags: u32,
    pub(crate) threads: usize,
    pub(crate) start_time: u64,
}

impl Stat {
    /// Returns whether it runs no more code: it is a zombie or about to become one. A process whose main thread has exited is a zombie with threads.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }

    /// Returns whether its last thread is about to end. It has neither arguments nor an environment any more.
    pub(crate) fn is_exiting(&self) -> bool {
        const PF_EXITING: u32 = 0x4;
        self.flags & PF_EXITING != 0 && self.threads <= 1
    }

    /// Returns whether a signal such as SIGSTOP suspended it.
    pub(crate) fn is_suspended(&self) -> bool {
        self.state == b'T'
    }

    /// Returns whether it is a kernel thread, which has neither arguments nor an environment.
    ///
    /// Its flags decide. The parent (pid 2) can't: in a container, pid 2 is an ordinary process.
    pub(crate) fn is_kernel_thread(&self) -> bool {
        const PF_KTHREAD: u32 = 0x0020_0000;
        self.flags & PF_KTHREAD != 0
    }

    pub(crate) fn id(&self) -> ProcessId {
        ProcessId {
            pid: self.pid,
            start_time: self.start_time,
        }
    }
}

pub(crate) fn pid_of(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

pub(crate) fn stat(pid: u32) -> Option<Stat> {
    read(&pid.to_string())
}

/// Reads the stat line and the command name.
pub(crate) fn named(pid: u32) -> Option<(Stat, String)> {
    let (line, read) = read_line(&pid.to_string())?;
    let line = &line[..read];
    let name = line.get(memchr::memchr(b'(', line)? + 1..memchr::memrchr(b')', line)?)?;
    Some((parse(line)?, String::from_utf8_lossy(name).into_owned()))
}

fn read(process: &str) -> Option<Stat> {
    let (line, read) = read_line(process)?;
    parse(&line[..read])
}

fn read_line(process: &str) -> Option<([u8; 1024], usize)> {
    // The line has a few hundred bytes. This code runs often, and reading a whole file takes several system calls.
    let mut line = [0; 1024];
    let mut file = fs::File::open(format!("/proc/{process}/stat")).ok()?;
    let read = file.read(&mut line).ok()?;
    Some((line, read))
}

/// Counts the fields from the last `)`, because the command name can contain spaces and parentheses.
fn parse(stat: &[u8]) -> Option<Stat> {
    let first = stat.split(|byte| *byte == b' ').next()?;
    let pid = std::str::from_utf8(first).ok()?.parse().ok()?;
    let rest = std::str::from_utf8(&stat[memchr::memrchr(b')', stat)? + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        pid,
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        flags: fields.get(6)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        start_time: fields.get(19)?.parse().ok()?,
    })
}

pub(crate) fn name(pid: u32) -> ProcessName {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned();
    ProcessName {
        pid,
        name: if name.is_empty() {
            "?".to_owned()
        } else {
            name
        },
    }
}

/// Lists the pids of all visible processes.
pub(crate) fn pids() -> impl Iterator<Item = u32> {
    try_pids().into_iter().flatten()
}

/// Lists the pids of all visible processes.
///
/// # Errors
/// Fails if this process has no descriptor left.
pub(crate) fn try_pids() -> io::Result<impl Iterator<Item = u32>> {
    numbers("/proc")
}

/// Lists the threads of a process.
pub(crate) fn threads_of(pid: u32) -> impl Iterator<Item = u32> {
    numbers(&format!("/proc/{pid}/task")).into_iter().flatten()
}

fn numbers(directory: &str) -> io::Result<impl Iterator<Item = u32> + use<>> {
    let entries = fs::read_dir(directory)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// Returns the current time in the unit and clock of [`Stat::start_time`].
pub(crate) fn tick() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // A tick in `/proc` is always a hundredth of a second.
    let ticks = now.tv_sec * 100 + now.tv_nsec / 10_000_000;
    ticks.cast_unsigned()
}

/// Blocks the thread for this time.
pub(crate) fn pause(time: Duration) {
    let _nothing_to_wait_for_but_time = rustix::event::poll(&mut [], Some(&timespec(time)));
}

pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

pub(crate) fn all() -> Vec<Stat> {
    pids().filter_map(stat).collect()
}

/// Lists the living processes below `root`, parents before children, from one scan of `/proc`.
///
/// The `children` files would be faster, but the kernel can leave entries out while processes start and end.
pub(crate) fn descendants(root: u32) -> Vec<Stat> {
    below(root, &all())
}

/// Lists the living processes below `root` from an existing scan.
pub(crate) fn below(root: u32, all: &[Stat]) -> Vec<Stat> {
    let mut children: HashMap<u32, Vec<Stat>> = HashMap::new();
    for stat in all.iter().copied() {
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut found = children.remove(&root).unwrap_or_default();
    let mut next = 0;
    while let Some(stat) = found.get(next).copied() {
        found.extend(children.remove(&stat.pid).unwrap_or_default());
        next += 1;
    }
    found.retain(|stat| !stat.is_dead());
    found
}

/// Lists the direct children of the calling thread from its `children` file. This is cheap, and the list can be incomplete.
pub(crate) fn own_children() -> Vec<u32> {
    let list = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    list.split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Lists the direct children of all threads of this process, also those that `/proc` hides. This is cheap, and the list can be incomplete.
pub(crate) fn listed_children() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let lists = threads.filter_map(|thread| {
        let path = thread.ok()?.path().join("children");
        fs::read_to_string(path).ok()
    });
    let pids = |list: String| -> Vec<u32> {
        let pids = list.split_ascii_whitespace();
        pids.filter_map(|pid| pid.parse().ok()).collect()
    };
    lists.flat_map(pids).collect()
}

/// Lists the direct children of this process from the `children` files and from a scan of `/proc`.
pub(crate) fn children_of_process() -> Vec<u32> {
    let own = std::process::id();
    let mut children = listed_children();
    children.extend(all().iter().filter(|it| it.parent == own).map(|it| it.pid));
    children.sort_unstable();
    children.dedup();
    children
}

/// Returns the start time of a thread, as [`Stat::start_time`].
pub(crate) fn read_start(thread: &str) -> Option<u64> {
    read(thread).map(|stat| stat.start_time)
}

/// Signals exactly the process `id`. It opens the pidfd first and checks the identity afterwards, so a process with a reused pid gets no signal.
/// `still_ours` receives the process as it is at that moment.
pub(crate) fn signal(
    id: ProcessId,
    signal: Signal,
    still_ours: impl Fn(&Stat) -> bool,
) -> Result<(), Errno> {
    let pid = i32::try_from(id.pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(Errno::SRCH)?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    match stat(id.pid) {
        Some(now) if now.start_time == id.start_time && still_ours(&now) => {
            rustix::process::pidfd_send_signal(pidfd, signal)
        }
        _ => Err(Errno::SRCH),
    }
}

/// Returns an argument of this process, also before `main`, when not every C library knows the arguments.
pub(crate) fn own_argument(number: usize) -> Option<Vec<u8>> {
    let arguments = std::fs::read("/proc/self/cmdline").ok()?;
    let mut words = arguments.split(|byte| *byte == 0);
    words.nth(number).map(<[u8]>::to_vec)
}

/// Reads the `/proc` entry of the calling process; returns `None` if `/proc` belongs to another pid namespace, where pids mean other processes.
pub(crate) fn own() -> Option<Stat> {
    read("self").filter(|stat| stat.pid == std::process::id())
}

/// Returns whether `/proc` belongs to our pid namespace.
pub(crate) fn is_ours() -> bool {
    own().is_some()
}

/// Counts the threads of the calling process; returns 0 if the count is unknown.
pub(crate) fn threads() -> usize {
    read("self").map_or(0, |stat| stat.threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let line = b"7 (a) b (c) S 3 5 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 0";
        let stat = parse(line).expect("parses");
        assert_eq!(
            (stat.state, stat.parent, stat.group, stat.start_time),
            (b'S', 3, 5, 4711)
        );
        assert!(!stat.is_kernel_thread());
        assert!(parse(b"7 (a S").is_none());
    }

    #[test]
    fn kernel_thread_is_recognised_by_its_flags() {
        let line =
            b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 3 0 0 20 0 1 0 36 0 0 18446744073709551615";
        assert!(parse(line).expect("parses").is_kernel_thread());
    }

    #[test]
    fn a_process_finds_itself() {
        let own = stat(std::process::id()).expect("own stat");
        assert!(!own.is_dead() && own.id().is_alive());
        assert!(
            descendants(own.parent)
                .iter()
                .any(|stat| stat.pid == own.pid)
        );
        assert!(is_ours() && threads() > 0);
    }
}
