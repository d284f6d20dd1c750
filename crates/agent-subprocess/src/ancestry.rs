//! The origin of a process: its ancestors in `/proc`, and which of them are guards.
//!
//! A program that takes commands over a Unix socket uses this module to distinguish a person's shell from a process below a guard.
//! [`Peer::of`] identifies the process that connected, and [`Peer::ancestors`] lists its ancestors. The command name identifies a guard. A process
//! can only change its own command name, so a program can't hide its guard. A guard adopts every orphan below it, so a program can't leave its guard by
//! a double fork.
//!
//! This module can't recognise a process that another process starts for a program: a tmux server, `systemd-run`, `at`, or a shell that the program
//! controls through `ptrace`.

use crate::ProcessId;
#[cfg(target_os = "linux")]
use crate::{marker, proc_fs, sys};
use std::io;
use std::os::fd::BorrowedFd;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd as _, OwnedFd};

/// The maximum number of ancestors to follow.
#[cfg(target_os = "linux")]
const DEEPEST: usize = 1024;
/// The maximum number of walks; a walk starts again if an ancestor ended during it.
#[cfg(target_os = "linux")]
const TRIES: u32 = 20;

/// A process in a list of ancestors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ancestor {
    /// The identity of the process.
    pub process: ProcessId,
    /// Its command name.
    pub name: String,
    /// Whether it is a guard.
    pub is_guard: bool,
}

/// Returns the identity of the process that has this pid now; `None` if there is no such process.
#[doc(hidden)] // only `rlm-store` needs it
///
/// # Platform
/// Linux only; always `None` on other systems.
pub fn process(pid: u32) -> Option<ProcessId> {
    #[cfg(target_os = "linux")]
    return proc_fs::stat(pid).map(|stat| stat.id());
    #[cfg(not(target_os = "linux"))]
    {
        let _no_proc = pid;
        None
    }
}

/// Lists `process` and its ancestors, nearest first, up to the first process of the pid namespace.
///
/// # Errors
/// Fails if the list can't be proven: the process is gone, `/proc` belongs to another pid namespace or hides an ancestor, or there are too many
/// ancestors. The error text gives the reason.
///
/// # Platform
/// Linux only; always an error on other systems.
pub fn ancestors(process: ProcessId) -> io::Result<Vec<Ancestor>> {
    #[cfg(target_os = "linux")]
    return walk(process);
    #[cfg(not(target_os = "linux"))]
    {
        let _no_proc = process;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The process at the other end of a Unix socket: the process that connected.
#[derive(Debug)]
pub struct Peer {
    process: ProcessId,
    name: String,
    /// Prevents reuse of its pid. `None` before Linux 6.5.
    #[cfg(target_os = "linux")]
    pidfd: Option<OwnedFd>,
}

impl Peer {
    /// Identifies the process that connected to `socket`. Call it as soon as the connection is accepted.
    ///
    /// # Errors
    /// Fails if that process is gone, or runs in a pid namespace that is not visible to this process.
    ///
    /// # Platform
    /// Linux only; always an error on other systems. Before Linux 6.5, if the peer ended before this call, the result can be a newer process with the
    /// same pid.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        return identify(socket);
        #[cfg(not(target_os = "linux"))]
        {
            let _no_pid = socket;
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Returns the identity of the process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// Returns its command name. The process itself can change this name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lists the process and its ancestors, as [`ancestors`](ancestors()) does.
    ///
    /// # Errors
    /// The same as [`ancestors`](ancestors()).
    pub fn ancestors(&self) -> io::Result<Vec<Ancestor>> {
        let ancestors = ancestors(self.process)?;
        #[cfg(target_os = "linux")]
        if let Some(pidfd) = &self.pidfd
            && pid_of(pidfd) != Some(self.process.pid)
        {
            return Err(gone(self.process.pid));
        }
        Ok(ancestors)
    }
}

#[cfg(target_os = "linux")]
fn identify(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let (pidfd, pid) = match sys::peer(socket)? {
        sys::Peer::Pidfd(pidfd) => {
            let pid = pid_of(&pidfd).ok_or_else(|| {
                io::Error::other(
                    "the process is gone, or in a pid namespace that is not visible here",
                )
            })?;
            (Some(pidfd), pid)
        }
        sys::Peer::Pid(0) => {
            return Err(io::Error::other(
                "the process is in a pid namespace that is not visible here",
            ));
        }
        sys::Peer::Pid(pid) => (None, pid),
    };
    let (stat, name) = proc_fs::named(pid).ok_or_else(|| gone(pid))?;
    // While the descriptor has this pid, no other process can have it.
    if pidfd.as_ref().is_some_and(|it| pid_of(it) != Some(pid)) {
        return Err(gone(pid));
    }
    Ok(Peer {
        process: stat.id(),
        name,
        pidfd,
    })
}

/// Reads the pid of a process in this pid namespace. Returns `None` if the process was reaped or is not visible here.
#[cfg(target_os = "linux")]
fn pid_of(pidfd: &OwnedFd) -> Option<u32> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let pid = info
        .lines()
        .find_map(|ancestors| ancestors.strip_prefix("Pid:"))?;
    pid.trim().parse().ok().filter(|pid| *pid > 0)
}

#[cfg(target_os = "linux")]
fn gone(pid: u32) -> io::Error {
    io::Error::other(format!("process {pid} is gone"))
}

/// The reason why a walk ended early.
#[cfg(target_os = "linux")]
enum Broken {
    /// A process in the list ended during the walk.
    Changed,
    For(io::Error),
}

#[cfg(target_os = "linux")]
fn walk(process: ProcessId) -> io::Result<Vec<Ancestor>> {
    if !proc_fs::is_ours() {
        return Err(io::Error::other(
            "/proc is not mounted or belongs to another pid namespace",
        ));
    }
    for _ in 0..TRIES {
        match walk_once(process) {
            Ok(ancestors) => return Ok(ancestors),
            Err(Broken::For(error)) => return Err(error),
            Err(Broken::Changed) => {}
        }
    }
    Err(io::Error::other(
        "the ancestors of the process change too fast",
    ))
}

#[cfg(target_os = "linux")]
fn walk_once(process: ProcessId) -> Result<Vec<Ancestor>, Broken> {
    let first = proc_fs::named(process.pid).filter(|(stat, _)| stat.id() == process);
    let (mut stat, mut name) = first.ok_or_else(|| Broken::For(gone(process.pid)))?;
    let mut ancestors = Vec::new();
    loop {
        let is_guard = name == marker::GUARD && !stat.is_kernel_thread();
        ancestors.push(Ancestor {
            process: stat.id(),
            name,
            is_guard,
        });
        if stat.parent == 0 {
            return Ok(ancestors);
        }
        if ancestors.len() >= DEEPEST {
            return Err(Broken::For(io::Error::other(
                "the process has too many ancestors",
            )));
        }
        let parent = proc_fs::named(stat.parent);
        // If the process still has the same parent, the parent's pid was not reused meanwhile: a new process with that pid would have no such child.
        let same = |now: proc_fs::Stat| now.id() == stat.id() && now.parent == stat.parent;
        if !proc_fs::stat(stat.pid).is_some_and(same) {
            return Err(Broken::Changed);
        }
        (stat, name) = parent.ok_or_else(|| {
            Broken::For(io::Error::other(format!(
                "/proc does not show process {}, the parent of process {}",
                stat.parent, stat.pid
            )))
        })?;
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    fn id(pid: u32) -> ProcessId {
        proc_fs::stat(pid).expect("lives").id()
    }

    #[test]
    fn ancestors_lead_to_pid_1() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let ancestors = ancestors(id(child.id())).unwrap();
        assert_eq!(ancestors[0].process.pid, child.id());
        assert_eq!(ancestors[1].process, ProcessId::current());
        let last = ancestors.last().unwrap().process.pid;
        assert_eq!(proc_fs::stat(last).unwrap().parent, 0);
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = super::ancestors(ancestors[0].process).unwrap_err();
        assert!(gone.to_string().ends_with("is gone"), "{gone}");
    }

    #[test]
    fn process_with_the_name_of_a_guard_is_a_guard() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(marker::GUARD);
        std::fs::copy("/bin/sleep", &program).unwrap();
        let mut child = Command::new(program).arg("600").spawn().unwrap();
        let ancestors = ancestors(id(child.id())).unwrap();
        assert!(ancestors[0].is_guard, "{ancestors:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn peer_is_the_connected_process_and_absent_after_exit() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(ours.as_fd()).unwrap();
        assert_eq!(peer.process(), ProcessId::current());
        assert_eq!(peer.ancestors().unwrap()[0].process, ProcessId::current());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let connect = format!(
            "use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un('{}')); <STDIN>",
            path.display()
        );
        let perl = Command::new("perl")
            .args(["-e", &connect])
            .stdin(std::process::Stdio::piped())
            .spawn();
        let Ok(mut perl) = perl else {
            println!("skipped: no perl to connect with");
            return;
        };
        let (stream, _) = listener.accept().unwrap();
        let peer = Peer::of(stream.as_fd()).unwrap();
        assert_eq!(
            (peer.process().pid, peer.name()),
            (perl.id(), "perl"),
            "{peer:?}"
        );
        assert_eq!(
            peer.ancestors().unwrap()[1].process,
            ProcessId::current(),
            "this process started it"
        );
        drop(perl.stdin.take());
        perl.wait().unwrap();
        assert!(peer.ancestors().is_err());
        assert!(Peer::of(stream.as_fd()).is_err());
    }
}
