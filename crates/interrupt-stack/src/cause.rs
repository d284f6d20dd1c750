//! Why shutdown began and where a press came from, as the ladder, the program and its exit code have it.

use std::fmt;

/// Why shutdown began, or why the process ends at once.
///
/// The first cause is sticky: a later one does not replace it. A hard exit has its own: that by a press is by `SIGINT`, whatever began
/// the shutdown.
///
/// As text it is what a person knows it by: "Ctrl-C", "SIGTERM", "SIGHUP", "SIGQUIT", "the program".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// A person pressed Ctrl-C and no handler stood in the way.
    Press,
    /// The process was asked to end: `SIGTERM`.
    Terminate,
    /// The terminal or the connection is gone: `SIGHUP`. `println!` panics then, so a graceful shutdown that talks writes with
    /// `writeln!` and drops the error, or it saves nothing.
    Hangup,
    /// The process was told to end at once: `SIGQUIT`.
    Quit,
    /// The program itself asked, for instance on a remote command. Where it must be ended at once, it exits with this code.
    Requested(u8),
}

impl Cause {
    /// Returns the number of the signal that this cause stands for, `None` for [`Cause::Requested`].
    pub fn signal(self) -> Option<i32> {
        match self {
            Self::Press => Some(2),
            Self::Terminate => Some(15),
            Self::Hangup => Some(1),
            Self::Quit => Some(3),
            Self::Requested(_) => None,
        }
    }

    /// Returns the exit code that stands for this cause where death by signal is not possible: 128 + signal, as shells count, or
    /// the code that was requested.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Press => 130,
            Self::Terminate => 143,
            Self::Hangup => 129,
            Self::Quit => 131,
            Self::Requested(code) => code,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Press => "Ctrl-C",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
            Self::Quit => "SIGQUIT",
            Self::Requested(_) => "the program",
        })
    }
}

/// Where a press came from.
///
/// All presses climb the same ladder; the source is for whoever answers the notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PressSource {
    /// `SIGINT`.
    Signal,
    /// The byte 0x03, read from a terminal in raw mode, which sends no signal.
    RawByte,
    /// The program or a test.
    Injected,
    /// [`Injector::interrupt`](crate::Injector::interrupt), which is no press: it has no number and climbs nothing by itself.
    Request,
}
