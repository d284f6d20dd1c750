//! All that has no safe interface and that the probes must do to be the programs that they stand for.
#![expect(
    unsafe_code,
    reason = "`fork` and `atexit` have no safe interface; all of the tests' unsafe code is here"
)]

/// Forks; the child waits for signals until one ends it, half a minute at most. Returns the child's pid.
pub(crate) fn fork_and_wait() -> i32 {
    // SAFETY: after the fork the child calls `alarm` and `pause` and nothing else, which may be called in a signal handler and so
    // also in the child of a process with threads. It allocates nothing, takes no lock and never returns.
    unsafe {
        match libc::fork() {
            0 => {
                libc::alarm(30);
                loop {
                    libc::pause();
                }
            }
            pid => pid,
        }
    }
}

/// Closes every descriptor but the three that all programs have, as daemons do.
#[cfg(target_os = "linux")]
pub(crate) fn close_all() {
    // SAFETY: whoever owned one of them gets an error from now on; nothing is opened after this that could take its number.
    assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0);
}

/// Has `function` called when the process exits.
pub(crate) fn at_exit(function: extern "C" fn()) {
    // SAFETY: `atexit` takes a function without arguments, and this one lives as long as the program.
    assert_eq!(unsafe { libc::atexit(function) }, 0);
}
