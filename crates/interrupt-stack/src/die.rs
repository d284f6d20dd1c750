//! The last line of a program that has shut down: it ends by its cause, as shells expect.

use crate::{Cause, sys};

/// Ends this process by the cause's signal, so that whoever waits for it sees a death by signal and a shell's `for` loop stops too.
///
/// This is the last line of a program whose graceful shutdown is done. Nothing is run or flushed: no destructors, no `atexit`
/// handlers, no output buffers. The terminal stays as it is: leave raw mode before. [`HardExit`](crate::HardExit) ends a process in
/// the same way, after it has put the terminal's settings back: to abort from within, take
/// [`Injector::terminate`](crate::Injector::terminate) with [`Cause::Quit`], or a press after shutdown began.
///
/// [`Cause::Quit`] leaves no core file. Where a signal cannot end the process, as in PID 1 of a container, and for
/// [`Cause::Requested`], it exits with [`Cause::exit_code`].
///
/// # Platform
///
/// Unix.
pub fn die_by(cause: Cause) -> ! {
    if let Some(signal) = cause.signal() {
        sys::raise_default(signal);
    }
    sys::exit_now(cause.exit_code())
}
