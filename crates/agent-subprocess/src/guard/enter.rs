//! Becoming the guard: from an ordinary process to one that is deaf, alone and parent of every orphan below it.

use super::serve;
use crate::proc_fs::{self, Stat};
use crate::sys;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Does not return if standard input is the control socket.
pub(super) fn run_if_connected() {
    let connected = rustix::net::getsockname(std::io::stdin())
        .is_ok_and(|address| address.address_family() == rustix::net::AddressFamily::UNIX);
    if connected {
        // Deaf first: a Ctrl-C of the terminal reaches this process until it has a session of its own.
        sys::ignore_signals();
        let own = proc_fs::own();
        let (refusal, start_time) = (refusal(own), own.map_or(0, |own| own.start_time));
        if let Ok((control, children)) = prepare() {
            serve::serve(control, children, start_time, refusal);
        }
        sys::exit_now(0);
    }
}

/// Why this process cannot be a guard, if it can't.
fn refusal(own: Option<Stat>) -> Option<String> {
    let reason = match own {
        None => "/proc belongs to another pid namespace; mount the one of this namespace",
        Some(own) if own.threads != 1 => {
            "a thread was started before run_if_guard; call that first in main"
        }
        Some(_) => return None,
    };
    Some(reason.to_owned())
}

/// Returns the control socket and the descriptor that tells of ended children.
fn prepare() -> Result<(OwnedFd, OwnedFd), Errno> {
    sys::close_leaked_descriptors()?;
    rustix::process::setsid()?;
    rustix::thread::set_name(c"agent-guard")?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // An agent can stop its guard, which then would not see that its host is gone.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::CONT))?;
    let control = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        0.into(),
    )?;
    rustix::stdio::dup2_stdin(null)?;
    Ok((control, sys::child_signals()?))
}
