//! The unsafe operations that the probes need.
#![expect(
    unsafe_code,
    reason = "`fork` and `atexit` have no safe interface; all of the tests' unsafe code is here"
)]

/// Forks. The child waits for signals until one ends it, for at most 30 s. Returns the child's pid.
pub(crate) fn fork_and_wait() -> i32 {
    // SAFETY: after the fork the child calls only `alarm` and `pause`. Both are async-signal-safe, so they may be called in the child of
    // a process with threads. The child allocates nothing, takes no lock and never returns.
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

/// Closes every descriptor except the three standard ones, as daemons do.
#[cfg(target_os = "linux")]
pub(crate) fn close_all() {
    // SAFETY: the owner of a closed descriptor gets an error from now on; nothing is opened after this that could reuse its number.
    assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0);
}

/// Registers `function` to be called when the process exits.
pub(crate) fn at_exit(function: extern "C" fn()) {
    // SAFETY: `atexit` takes a function without arguments, and this one lives as long as the program.
    assert_eq!(unsafe { libc::atexit(function) }, 0);
}
