//! The init of a container: it reaps orphans, forwards signals to the program that it runs, and ends with the exit code of that program.

use super::tree::wait_readable;
use crate::times;
use crate::{proc_fs, sys};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The time to sleep if nothing happens.
const FOREVER: Duration = Duration::from_secs(3600);
/// The size of one signal in a signalfd (`struct signalfd_siginfo`).
const SIGNAL_SIZE: usize = 128;

/// Serves until the child has ended, and then ends this process with the exit code of the child.
pub(super) fn serve(child: Pid, signals: &OwnedFd) -> ! {
    // The name distinguishes the two processes of one program. A failure has no other effect.
    let _unnamed = rustix::thread::set_name(c"agent-init");
    let mut code = None;
    let mut ended: Option<Instant> = None;
    while reap(child, &mut code) {
        let left = match ended {
            None if code.is_none() => FOREVER,
            None => {
                sys::terminate_everybody();
                ended = Some(Instant::now());
                times::INIT_GRACE
            }
            Some(ended) => match times::INIT_GRACE.checked_sub(ended.elapsed()) {
                Some(left) => left,
                None => break,
            },
        };
        wait_readable(signals, left);
        // Once the child is reaped, another process can get its pid.
        pass_on(Some(child).filter(|_| code.is_none()), signals);
    }
    // The kernel kills the remaining processes when the first process of the namespace ends.
    sys::exit_now(code.unwrap_or(1))
}

/// Reaps every dead child; returns `false` if there are no children.
fn reap(child: Pid, code: &mut Option<i32>) -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == child => *code = Some(exit_code(status)),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn exit_code(status: WaitStatus) -> i32 {
    let of_signal = || status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or_else(of_signal).unwrap_or(1)
}

/// Forwards the signals that were sent to this process alone; drops them if the child has ended.
fn pass_on(child: Option<Pid>, signals: &OwnedFd) {
    let mut bytes = [0; 32 * SIGNAL_SIZE];
    while let Ok(read @ 1..) = rustix::io::read(signals, &mut bytes) {
        for signal in bytes[..read].chunks_exact(SIGNAL_SIZE) {
            let field = |at: usize| {
                signal[at..]
                    .first_chunk()
                    .map_or(0, |bytes| i32::from_ne_bytes(*bytes))
            };
            let (number, code) = (field(0), field(8));
            if let Some(child) = child.filter(|_| is_for_us_alone(number, code)) {
                // Only this process reaps the child, so its pid can't have been reused.
                sys::send(child, number);
            }
        }
    }
}

/// Returns whether a signal was sent to this process alone. The terminal sends its signals (codes above 0) to the whole group, and so to the child as
/// well. The exception is SIGHUP after a hangup of the terminal: only the leader of the session gets it.
fn is_for_us_alone(signal: i32, code: i32) -> bool {
    let own = std::process::id();
    let is_leader = || proc_fs::stat(own).is_some_and(|stat| stat.session == own);
    match signal {
        libc::SIGCHLD => false,
        libc::SIGHUP => code <= 0 || is_leader(),
        _ => code <= 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x113c_terminal_signal_is_not_forwarded_twice() {
        let (from_kernel, from_process, queued) = (128, 0, -1);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGWINCH, libc::SIGCONT] {
            assert!(is_for_us_alone(signal, from_process) && is_for_us_alone(signal, queued));
            assert!(!is_for_us_alone(signal, from_kernel));
        }
        assert!(!is_for_us_alone(libc::SIGCHLD, from_process));
    }
}
