//! The system calls that have no safe wrapper; all `unsafe` code of this crate. Linux only.
#![expect(
    unsafe_code,
    reason = "signal dispositions, fork, pre_exec, execve, waitid with a pid, signalfd, SO_PEERPIDFD, unnamed signals and _exit have no safe wrapper"
)]

use crate::exec_image::ExecImage;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

/// Makes the C library call this function before `main`.
#[doc(hidden)]
#[macro_export]
macro_rules! call_before_main {
    ($function:path) => {
        // SAFETY: the C library calls each function of this section once, while the process has one thread. The function takes no arguments.
        const _: () = {
            #[used]
            #[unsafe(link_section = ".init_array")]
            static BEFORE_MAIN: extern "C" fn() = $function;
        };
    };
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Closes every descriptor from 3 up: a host can leak descriptors to the guard, for example of a pipe or a lock.
pub(crate) fn close_leaked_descriptors() -> Result<(), Errno> {
    // SAFETY: the guard is single-threaded and has opened no descriptor above 2 yet, so nobody owns those closed here.
    if unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) } == 0 {
        return Ok(());
    }
    // Linux before 5.9 does not have this call, and a sandbox can refuse a call that it does not know.
    let listed = std::fs::read_dir("/proc/self/fd").map_err(|_| last_error())?;
    let listed = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let descriptors: Vec<i32> = listed.filter(|descriptor| *descriptor > 2).collect();
    for descriptor in descriptors {
        // SAFETY: as above; the descriptor of the directory listing is already closed, so closing it only returns an error.
        unsafe { libc::close(descriptor) };
    }
    Ok(())
}

/// Makes the guard ignore the signals that a terminal or a person sends to a process group.
pub(crate) fn ignore_signals() {
    for signal in [
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGPIPE,
        // If a report exceeds a file size limit, it is truncated, and the guard continues.
        libc::SIGXFSZ,
    ] {
        // SAFETY: SIG_IGN runs no code of ours; a failure leaves the default.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Blocks SIGCHLD and returns a descriptor that becomes readable when a child ends.
///
/// An inherited "ignore" would make the kernel reap our children by itself, so this function sets the disposition first.
pub(crate) fn child_signals() -> Result<OwnedFd, Errno> {
    // SAFETY: `set` is initialised by sigemptyset before use; signalfd returns a descriptor that nobody else owns.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(last_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Forks. In the parent, returns the pid of the child and a descriptor that receives all signals except those of the parent's own faults. In the
/// child, returns `None`, and the child continues with the signal mask of the process.
pub(crate) fn fork_with_signals() -> Result<Option<(Pid, OwnedFd)>, Errno> {
    const FAULTS: [i32; 6] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
    ];
    // SAFETY: `set` and `before` are initialised by sigfillset and sigprocmask before use, and signalfd returns a
    // descriptor that nobody else owns. The caller has one thread, so the child may do whatever the parent may.
    unsafe {
        let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut set);
        for fault in FAULTS {
            libc::sigdelset(&mut set, fault);
        }
        let signals = match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => return Err(last_error()),
            fd => OwnedFd::from_raw_fd(fd),
        };
        // Block before the fork, so that no signal is lost in between. The kernel keeps blocked signals even if PID 1 would ignore them.
        libc::sigprocmask(libc::SIG_SETMASK, &set, &mut before);
        let child = libc::fork();
        if child > 0 {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            return Ok(Some((Pid::from_raw_unchecked(child), signals)));
        }
        let failed = last_error();
        libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        if child == 0 { Ok(None) } else { Err(failed) }
    }
}

/// Sends any signal, also one without a name (a real-time signal). It does nothing if the process is gone.
pub(crate) fn send(to: Pid, signal: i32) {
    // SAFETY: kill accepts any numbers.
    unsafe { libc::kill(to.as_raw_nonzero().get(), signal) };
}

/// Sends SIGTERM to every process. Only the first process of a pid namespace may call it; the end of that process ends all others anyway.
pub(crate) fn terminate_everybody() {
    // SAFETY: the system itself excludes the caller.
    unsafe { libc::kill(-1, libc::SIGTERM) };
}

/// Returns a dead child without reaping it, so that its name can still be read. `CHILD` proves that there are no children.
pub(crate) fn dead_child() -> Result<Option<Pid>, Errno> {
    // SAFETY: all zeroes is a valid siginfo_t, waitid writes at most that, and si_pid is set (or 0) after success.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        match libc::waitid(
            libc::P_ALL,
            0,
            &mut info,
            libc::WEXITED | libc::WNOHANG | libc::WNOWAIT,
        ) {
            0 => Ok(Pid::from_raw(info.si_pid())),
            _ => Err(last_error()),
        }
    }
}

/// The process that connected to a Unix socket.
pub(crate) enum Peer {
    /// A descriptor, which can't mean another process later.
    Pidfd(OwnedFd),
    /// A pid, or 0 for a process in a pid namespace that is not visible here. Linux before 6.5 has no descriptor for it.
    Pid(u32),
}

/// Returns the process that connected to a Unix socket.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> Result<Peer, Errno> {
    // SAFETY: both options write at most `size` bytes to the pointer. Any bytes are valid in an i32 and in a ucred. No other value owns the
    // descriptor that the first option returns.
    unsafe {
        let mut pidfd = -1_i32;
        let mut size = size_of::<i32>() as libc::socklen_t;
        let socket = socket.as_raw_fd();
        let got = libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut pidfd).cast(),
            &mut size,
        );
        match last_error() {
            _ if got == 0 => return Ok(Peer::Pidfd(OwnedFd::from_raw_fd(pidfd))),
            Errno::NOPROTOOPT => {}
            error => return Err(error),
        }
        let mut credentials: libc::ucred = std::mem::zeroed();
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        let got = libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &mut size,
        );
        match got {
            0 => Ok(Peer::Pid(credentials.pid.cast_unsigned())),
            _ => Err(last_error()),
        }
    }
}

/// Spawns the program in a session of its own. The kernel kills it when the guard dies. The program inherits no signal disposition and no signal mask.
///
/// `command` only provides the streams. This function forks. A fork of the guard is cheap because the guard is small; in a large host it would not
/// be.
pub(crate) fn spawn_agent(command: &mut Command, image: ExecImage) -> io::Result<Child> {
    let image = Pointers::new(image);
    let guard = rustix::process::getpid();
    let prepare = move || {
        rustix::process::setsid()?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(guard) {
            return Err(Errno::SRCH.into());
        }
        // SAFETY: both calls are async-signal-safe, an all-zero kernel sigaction is SIG_DFL without flags and shorter than
        // `default`, and `set` is initialised by sigemptyset before use.
        unsafe {
            let default = [0_u64; 8];
            for signal in 1..=64_i32 {
                // A direct system call, because the C library refuses to change the two signals that it uses itself. A process can inherit these as
                // ignored too.
                libc::syscall(
                    libc::SYS_rt_sigaction,
                    signal,
                    &default,
                    std::ptr::null::<u64>(),
                    size_of::<u64>(),
                );
            }
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        }
        Err(image.exec().into())
    };
    // SAFETY: `prepare` calls only async-signal-safe functions and does not allocate.
    unsafe { command.pre_exec(prepare) }.spawn()
}

/// Makes the program of `command` run under these seccomp filters.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) fn set_filters(command: &mut Command, filters: &'static [seccompiler::BpfProgram]) {
    let prepare = move || {
        let _still_killed = rustix::process::setrlimit(
            rustix::process::Resource::Core,
            rustix::process::Rlimit {
                current: Some(0),
                maximum: Some(0),
            },
        );
        for filter in filters {
            if seccompiler::apply_filter(filter).is_err() {
                return Err(Errno::OPNOTSUPP.into());
            }
        }
        Ok(())
    };
    // SAFETY: `prepare` makes system calls only; an error of `apply_filter` holds a number, so that nothing is allocated or freed.
    unsafe { command.pre_exec(prepare) };
}

/// An [`ExecImage`] with the arrays of pointers that `execve` takes, each with a null at its end.
struct Pointers {
    files: Vec<CString>,
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    _owners: [Vec<CString>; 2],
}

// SAFETY: the pointers point to strings that this value owns and that nobody changes.
unsafe impl Send for Pointers {}
// SAFETY: as for `Send`.
unsafe impl Sync for Pointers {}

impl Pointers {
    fn new(image: ExecImage) -> Self {
        let pointers = |strings: &[CString]| {
            let pointers = strings.iter().map(|string| string.as_ptr());
            pointers.chain([std::ptr::null()]).collect()
        };
        Pointers {
            arguments: pointers(&image.arguments),
            environment: pointers(&image.environment),
            files: image.files,
            _owners: [image.arguments, image.environment],
        }
    }

    /// Returns only if no file could be executed, with the reason. The search of some C libraries passes a file of a foreign format to the shell,
    /// which then reports a syntax error.
    fn exec(&self) -> Errno {
        let mut reason = Errno::NOENT;
        for file in &self.files {
            // SAFETY: all three end with a null, and the strings live as long as `self`.
            unsafe {
                libc::execve(
                    file.as_ptr(),
                    self.arguments.as_ptr(),
                    self.environment.as_ptr(),
                )
            };
            match last_error() {
                Errno::NOENT | Errno::NOTDIR => {}
                // One bad entry, such as a missing file system, does not hide the program in the next entry.
                error @ (Errno::ACCESS
                | Errno::LOOP
                | Errno::NAMETOOLONG
                | Errno::STALE
                | Errno::NODEV
                | Errno::TIMEDOUT) => reason = error,
                error => return error,
            }
        }
        reason
    }
}

/// Ends the process immediately: the guard must not run the exit handlers of the host program.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit accepts any number and does not return.
    unsafe { libc::_exit(code) }
}
