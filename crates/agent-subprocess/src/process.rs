//! Identities and names of processes, and how they ended.

use crate::ProcessName;
use crate::error::{Error, Kind};
use serde::{Deserialize, Serialize};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{fmt, io};

/// Identifies one process permanently: the system reuses a pid, but never a pid with the same start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// The process id.
    pub pid: u32,
    /// Clock ticks between boot and the start of the process (field 22 of `/proc/PID/stat`); 0 where unknown.
    pub start_time: u64,
}

impl ProcessId {
    /// Identifies the calling process.
    pub fn current() -> Self {
        let pid = std::process::id();
        #[cfg(target_os = "linux")]
        let start_time = crate::proc_fs::stat(pid).map_or(0, |stat| stat.start_time);
        #[cfg(not(target_os = "linux"))]
        let start_time = 0;
        ProcessId { pid, start_time }
    }

    /// Returns whether this process still runs; a zombie does not.
    ///
    /// # Platform
    /// Linux reads `/proc`; on other systems the result is always `false`.
    pub fn is_alive(&self) -> bool {
        #[cfg(target_os = "linux")]
        return crate::proc_fs::stat(self.pid)
            .is_some_and(|s| s.start_time == self.start_time && !s.is_dead());
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// Returns whether this process is suspended, by Ctrl-Z or SIGSTOP: it runs again after SIGCONT.
    ///
    /// # Platform
    /// Linux reads `/proc`; on other systems the result is always `false`.
    pub fn is_suspended(&self) -> bool {
        #[cfg(target_os = "linux")]
        return crate::proc_fs::stat(self.pid)
            .is_some_and(|s| s.start_time == self.start_time && s.is_suspended());
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// Sends a signal to exactly this process. A newer process with the same pid gets no signal.
    ///
    /// # Errors
    /// Fails if the process is gone or belongs to another user, or if there is no such signal.
    ///
    /// # Platform
    /// Linux only; always an error on other systems.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            let no_signal = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
            let signal = signal.named().map_err(no_signal)?;
            Ok(crate::proc_fs::signal(*self, signal, |_| true)?)
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _not_sent = signal;
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

/// A signal to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
    /// The signal with this number, such as `libc::SIGUSR1`. Real-time signals are refused.
    Number(i32),
}

impl Signal {
    /// Returns the signal of the system.
    pub(crate) fn named(self) -> Result<rustix::process::Signal, Error> {
        use rustix::process::Signal as Named;
        Ok(match self {
            Self::Interrupt => Named::INT,
            Self::Terminate => Named::TERM,
            Self::Kill => Named::KILL,
            Self::Number(number) => {
                Named::from_named_raw(number).ok_or(Kind::NoSignal { number })?
            }
        })
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
            Self::Number(number) => match signal_name(*number) {
                Some(name) => name,
                None => return write!(f, "signal {number}"),
            },
        })
    }
}

/// A process and its place in the process tree at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessStat {
    /// The identity of the process.
    pub process: ProcessId,
    /// The pid of its parent.
    pub parent: u32,
    /// The pid of the leader of its session; 0 if that leader is outside of the pid namespace.
    pub session: u32,
    /// Whether it is a zombie, or about to become one: it runs no more code.
    pub is_dead: bool,
}

impl ProcessStat {
    /// Reads the `/proc` entry of the process with this pid; returns `None` if there is no such process.
    ///
    /// # Platform
    /// Linux reads `/proc`; on other systems the result is always `None`.
    pub fn read(pid: u32) -> Option<Self> {
        #[cfg(target_os = "linux")]
        return crate::proc_fs::stat(pid).map(|stat| ProcessStat {
            process: stat.id(),
            parent: stat.parent,
            session: stat.session,
            is_dead: stat.is_dead(),
        });
        #[cfg(not(target_os = "linux"))]
        {
            let _no_proc = pid;
            None
        }
    }
}

impl ProcessName {
    /// Reads the command name of the process with this pid.
    ///
    /// # Platform
    /// Linux reads `/proc`; on other systems the name is always `?`.
    pub fn read(pid: u32) -> Self {
        #[cfg(target_os = "linux")]
        return crate::proc_fs::name(pid);
        #[cfg(not(target_os = "linux"))]
        ProcessName {
            pid,
            name: "?".to_owned(),
        }
    }
}

/// Makes a program run as this user and group. For root, the standard library then also removes the other groups.
pub(crate) fn set_user(command: &mut Command, uid: Option<u32>, gid: Option<u32>) {
    if let Some(gid) = gid {
        command.gid(gid);
    }
    if let Some(uid) = uid {
        command.uid(uid);
    }
}

/// The way a process ended: by an exit code or by a signal. It has neither if the guard died before it could report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code.
    pub code: Option<i32>,
    /// The number of the signal that killed it.
    pub signal: Option<i32>,
}

impl Exit {
    pub(crate) const UNKNOWN: Exit = Exit {
        code: None,
        signal: None,
    };

    /// Returns whether the exit code was 0.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }
}

impl From<std::process::ExitStatus> for Exit {
    fn from(status: std::process::ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        Exit {
            code: status.code(),
            signal: status.signal(),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit status {code}"),
            (None, Some(signal)) => match signal_name(signal) {
                Some(name) => write!(f, "killed by {name}"),
                None => write!(f, "killed by signal {signal}"),
            },
            (None, None) => f.write_str("exit status unknown"),
        }
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}
