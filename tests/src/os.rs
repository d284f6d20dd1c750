//! The only module with unsafe code: the steps in the child between fork and exec.
#![expect(
    unsafe_code,
    reason = "only the child, before exec, can create its session and take a controlling terminal"
)]

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the child the leader of a session whose controlling terminal is its stdin.
pub(crate) fn take_terminal(command: &mut Command) {
    // SAFETY: the closure makes two system calls and nothing else: it neither allocates nor locks.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        });
    }
}

/// Makes the child the leader of a session of its own.
pub(crate) fn own_session(command: &mut Command) {
    // SAFETY: the closure makes one system call and nothing else: it neither allocates nor locks.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}
