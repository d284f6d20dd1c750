//! System calls that have no safe interface: all `unsafe` code of this crate, each piece with its proof.

#![expect(
    unsafe_code,
    reason = "signal dispositions, masks and `_exit` have no safe interface; all of this crate's unsafe code is here"
)]

use std::os::fd::{AsRawFd, BorrowedFd};

/// Ends or stops this process by the default action of `signal`. Returns if that has no effect, as for PID 1 of a container.
///
/// The signal goes only to the calling thread. A signal to the process could reach another thread, and come too late: after the `_exit`
/// that follows this call.
pub(crate) fn raise_default(signal: i32) {
    if signal == libc::SIGQUIT {
        forbid_core_file();
    }
    // SAFETY: an all-zero `sigaction` is a valid one: the default action (`SIG_DFL` is 0), an empty mask, no flags. The pointers are
    // to live locals; `pthread_self` is the calling thread, so it is alive. The default action runs no handler.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &default, std::ptr::null_mut());
        unblock(&[signal]);
        libc::pthread_kill(libc::pthread_self(), signal);
    }
}

/// Ends this process now: no destructors, no `atexit` handlers, no flushing.
pub(crate) fn exit_now(code: u8) -> ! {
    // SAFETY: `_exit` has no preconditions, and may be called at any time in any thread.
    unsafe { libc::_exit(code.into()) }
}

/// Unblocks `signals` in the calling thread, whatever mask it inherited.
pub(crate) fn unblock(signals: &[i32]) {
    change_mask(libc::SIG_UNBLOCK, signals);
}

/// Blocks `signal` in the calling thread.
pub(crate) fn block(signal: i32) {
    change_mask(libc::SIG_BLOCK, &[signal]);
}

fn change_mask(how: i32, signals: &[i32]) {
    // SAFETY: `set` is a live local that `sigemptyset` initialises before it is read; each call is given a valid pointer to it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(how, &set, std::ptr::null_mut());
    }
}

/// Returns whether this process is in the foreground of the terminal.
///
/// Both calls return 0 for a group outside of the process's pid namespace. `rustix` excludes the value 0, so this uses `libc`. With
/// `libc`, the foreground job of a shell outside of the namespace restores its terminal too.
pub(crate) fn is_in_foreground(terminal: BorrowedFd<'_>) -> bool {
    // SAFETY: neither call has a precondition or accesses memory of this process. Both are async-signal-safe.
    unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) == libc::getpgrp() }
}

/// Prevents a core file by the dumpable flag, because a core pattern that is a pipe ignores the size limit.
#[cfg(target_os = "linux")]
fn forbid_core_file() {
    // SAFETY: this `prctl` takes one integer and accesses no memory of this process.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
}

#[cfg(not(target_os = "linux"))]
fn forbid_core_file() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live local, which the call only reads.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
}

/// The sender of a signal, as far as the system reports it.
#[cfg_attr(
    not(feature = "signals"),
    expect(dead_code, reason = "only a registered handler gets an origin")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The terminal, or another part of the kernel.
    Terminal,
    /// A process; 0 if the system doesn't report its pid.
    Process(i32),
}

/// Registers `action` for `signal`, in addition to the actions of other code. `action` must be async-signal-safe.
#[cfg(feature = "signals")]
pub(crate) fn register(
    signal: i32,
    action: impl Fn(Origin) + Send + Sync + 'static,
) -> std::io::Result<signal_hook_registry::SigId> {
    let action = move |info: &libc::siginfo_t| action(origin(info));
    // SAFETY: the only caller passes `SignalCatcher::on_signal`, which keeps the rule of its module: atomics, the clock, and system calls that
    // POSIX lists as async-signal-safe. The registry saves and restores `errno`.
    unsafe { signal_hook_registry::register_sigaction(signal, action) }
}

#[cfg(all(feature = "signals", target_os = "linux"))]
fn origin(info: &libc::siginfo_t) -> Origin {
    match info.si_code {
        libc::SI_KERNEL => Origin::Terminal,
        libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL => {
            // SAFETY: these are the codes of signals that processes send; with them the sender's pid is set.
            Origin::Process(unsafe { info.si_pid() })
        }
        _ => Origin::Process(0),
    }
}

#[cfg(all(feature = "signals", not(target_os = "linux")))]
fn origin(info: &libc::siginfo_t) -> Origin {
    // SAFETY: these systems set the sender's pid for every signal of our handler; it is 0 for the kernel.
    match unsafe { info.si_pid() } {
        0 => Origin::Terminal,
        pid => Origin::Process(pid),
    }
}

/// The action of a signal in this process, which can be read and restored.
#[cfg(feature = "signals")]
#[derive(Clone, Copy)]
pub(crate) struct SignalAction(libc::sigaction);

#[cfg(feature = "signals")]
impl SignalAction {
    pub(crate) fn of(signal: i32) -> std::io::Result<Self> {
        // SAFETY: an all-zero `sigaction` is valid, and the call overwrites it; a null new action changes nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            match libc::sigaction(signal, std::ptr::null(), &mut action) {
                0 => Ok(Self(action)),
                _ => Err(std::io::Error::last_os_error()),
            }
        }
    }

    pub(crate) fn is_ignore(&self) -> bool {
        self.0.sa_sigaction == libc::SIG_IGN
    }

    pub(crate) fn put_back(&self, signal: i32) -> std::io::Result<()> {
        // SAFETY: `of` read the action from the kernel, so its handler is a function that was registered in this process. Only the
        // handlers of the signal registry are restored after other handlers, and these are never unloaded.
        match unsafe { libc::sigaction(signal, &self.0, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}
