//! The system calls that have no safe wrapper; all `unsafe` code of this crate. Linux only.
#![expect(
    unsafe_code,
    reason = "signal dispositions, fork, clone, pre_exec, execve, waitid with a pid, signalfd, SO_PEERPIDFD, unnamed signals and _exit have no safe wrapper"
)]

use crate::exec_image::ExecImage;
use rustix::io::Errno;
use rustix::process::{Gid, Pid, Signal, Uid, WaitOptions};
use std::convert::Infallible;
use std::ffi::CString;
use std::io::{self, PipeWriter, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

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

/// The signals that a guard ignores: those that a terminal or a person sends to a process group, and those of its own writes.
const IGNORED: [i32; 6] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGPIPE,
    // If a report exceeds a file size limit, it is truncated, and the guard continues.
    libc::SIGXFSZ,
];

/// Makes the guard ignore [`IGNORED`].
pub(crate) fn ignore_signals() {
    for signal in IGNORED {
        // SAFETY: SIG_IGN runs no code of ours; a failure leaves the default.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Calls `spawn` while the stop signals of a terminal are blocked in this thread, and so in the guard, until [`child_signals`] sets another mask.
///
/// `posix_spawn` waits until the new process executes its program. A Ctrl-Z meanwhile stops the new process, and a thread that waits for it can't stop.
/// Then the host is only half stopped, the shell does not get its terminal back, and every further Ctrl-Z is lost.
pub(crate) fn without_terminal_stops<T>(spawn: impl FnOnce() -> T) -> T {
    const STOPS: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    // SAFETY: `set` and `before` are initialised by sigemptyset and pthread_sigmask before use.
    let before = unsafe {
        let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut set);
        for signal in STOPS {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
        before
    };
    let spawned = spawn();
    // SAFETY: `before` is the mask that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    spawned
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

/// The program that a guard spawns.
pub(crate) struct AgentSpec {
    pub(crate) image: ExecImage,
    pub(crate) directory: CString,
    /// `None` is `/dev/null`, the standard input of the guard.
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

/// The guard's memory that the child reads before it executes its program. A child that shares the memory also writes there.
struct Child {
    spec: AgentSpec,
    image: Pointers,
    guard: Pid,
    is_root: bool,
    /// The number of the error if the program could not be executed, otherwise 0.
    errno: AtomicI32,
    in_directory: AtomicBool,
    /// The way for the error of a child with a memory of its own. It closes when the program is executed.
    failure: Option<PipeWriter>,
}

/// The size of the stack on which the child runs until it executes its program.
const CHILD_STACK: usize = 32 << 10;

/// Spawns the program in a session of its own. The kernel kills it when the guard dies. The program inherits no signal disposition and no signal mask.
/// On failure, returns whether the working directory was the reason.
///
/// The guard stops until the child executes its program. A child without another user or group shares the memory of the guard, so no page is copied. A
/// child that changes its user or group has a memory of its own: the change would make the memory of the guard unreadable for a sweep without
/// privileges, and another user could reach that memory.
pub(crate) fn spawn_agent(mut spec: AgentSpec) -> Result<Pid, (bool, Errno)> {
    let image = std::mem::take(&mut spec.image);
    let shares_memory = spec.uid.is_none() && spec.gid.is_none();
    let pipe = match shares_memory {
        true => None,
        false => {
            let failed = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Some(io::pipe().map_err(|error| (false, failed(error)))?)
        }
    };
    let (errors, failure) = pipe.unzip();
    let mut child = Child {
        image: Pointers::new(image),
        spec,
        guard: rustix::process::getpid(),
        is_root: rustix::process::getuid().is_root(),
        errno: AtomicI32::new(0),
        in_directory: AtomicBool::new(false),
        failure,
    };
    let mut stack: Vec<u128> = Vec::with_capacity(CHILD_STACK / size_of::<u128>());
    let memory = match shares_memory {
        true => libc::CLONE_VM,
        false => 0,
    };
    let flags = memory | libc::CLONE_VFORK | libc::SIGCHLD;
    let argument = (&raw const child).cast_mut().cast();
    // SAFETY: the guard is single-threaded and stops until the child has ended or executed its program. So `child` and `stack` outlive the use by the
    // child, and only one of the two processes runs at a time. The stack grows down from its aligned end. `run_child` makes only system calls and
    // writes only to the atomics of `child` and to its own stack. No signal has a handler, so none runs in the child. The same holds for a child with
    // a copy of the memory, whose writes the guard doesn't see.
    let pid = unsafe {
        libc::clone(
            run_child,
            stack.spare_capacity_mut().as_mut_ptr_range().end.cast(),
            flags,
            argument,
        )
    };
    if pid <= 0 {
        return Err((false, last_error()));
    }
    let pid = Pid::from_raw(pid).ok_or((false, Errno::SRCH))?;
    // The pipe of an executed program ends without a byte, because the child has closed its end too.
    child.failure = None;
    let mut message = [0; FAILURE];
    if let Some(mut errors) = errors
        && errors.read_exact(&mut message).is_ok()
    {
        child.record(message);
    }
    match child.errno.load(Ordering::Relaxed) {
        0 => Ok(pid),
        errno => {
            let _reaped = rustix::process::waitpid(Some(pid), WaitOptions::empty());
            let in_directory = child.in_directory.load(Ordering::Relaxed);
            Err((in_directory, Errno::from_raw_os_error(errno)))
        }
    }
}

/// Runs in the memory of the guard, so it allocates nothing, takes no lock and does not panic.
extern "C" fn run_child(child: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn_agent` passes a pointer to a `Child`, which lives until this function has ended or the program has been executed.
    let child = unsafe { &*child.cast::<Child>() };
    let Err(error) = child.execute();
    child.errno.store(error.raw_os_error(), Ordering::Relaxed);
    child.send_failure();
    127
}

/// The size of the message of [`Child::send_failure`].
const FAILURE: usize = 5;

impl Child {
    /// Sends the error to the guard, if the child has a memory of its own. A pipe has room for it.
    fn send_failure(&self) {
        let [a, b, c, d] = self.errno.load(Ordering::Relaxed).to_ne_bytes();
        let in_directory = self.in_directory.load(Ordering::Relaxed).into();
        if let Some(pipe) = &self.failure {
            let _sent = rustix::io::write(pipe, &[a, b, c, d, in_directory]);
        }
    }

    /// Records the error that the child sent.
    fn record(&self, [a, b, c, d, in_directory]: [u8; FAILURE]) {
        let errno = i32::from_ne_bytes([a, b, c, d]);
        self.errno.store(errno, Ordering::Relaxed);
        let in_directory = in_directory != 0;
        self.in_directory.store(in_directory, Ordering::Relaxed);
    }

    fn execute(&self) -> Result<Infallible, Errno> {
        use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
        let spec = &self.spec;
        if let Some(stdin) = &spec.stdin {
            rustix::stdio::dup2_stdin(stdin)?;
        }
        rustix::stdio::dup2_stdout(&spec.stdout)?;
        rustix::stdio::dup2_stderr(&spec.stderr)?;
        if let Err(error) = rustix::process::chdir(&*spec.directory) {
            self.in_directory.store(true, Ordering::Relaxed);
            return Err(error);
        }
        if let Some(gid) = spec.gid {
            set_thread_gid(Gid::from_raw(gid))?;
        }
        if let Some(uid) = spec.uid {
            if self.is_root {
                set_thread_groups(&[])?;
            }
            set_thread_uid(Uid::from_raw(uid))?;
        }
        rustix::process::setsid()?;
        // A change of the user resets this, so it comes later.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(self.guard) {
            return Err(Errno::SRCH);
        }
        for signal in IGNORED {
            set_default_disposition(signal);
        }
        // SAFETY: `set` is initialised by sigemptyset before use, and the guard is single-threaded.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        }
        Err(self.image.exec())
    }
}

/// Makes every signal except those of [`ignore_signals`] have its default effect, also the signals that the guard inherited as ignored.
///
/// A program inherits the ignored signals. So a spawn has to reset only a few.
pub(crate) fn reset_signals() {
    let others = (1..=64).filter(|signal| !IGNORED.contains(signal));
    others.for_each(set_default_disposition);
}

/// Does nothing for a signal whose disposition can't be changed.
fn set_default_disposition(signal: i32) {
    let default = [0_u64; 8];
    // SAFETY: an all-zero kernel sigaction is SIG_DFL without flags and shorter than `default`. This is a direct system call, because the C library
    // refuses to change the two signals that it uses itself. A process can inherit these as ignored too.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            &default,
            std::ptr::null::<u64>(),
            size_of::<u64>(),
        );
    }
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
