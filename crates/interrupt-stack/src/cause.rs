//! The cause of a shutdown and the source of a press, for the ladder, the program and its exit code.

use std::fmt;

/// The cause of a shutdown or of a hard exit.
///
/// The first cause of a shutdown is sticky: a later one doesn't replace it. A hard exit has its own cause: a press ends the process by
/// `SIGINT`, whatever began the shutdown.
///
/// The text (`Display`) is "Ctrl-C", "SIGTERM", "SIGHUP", "SIGQUIT" or "the program".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// A person pressed Ctrl-C, and no handler handled the press.
    Press,
    /// `SIGTERM` requested the end of the process.
    Terminate,
    /// The terminal or the connection is gone: `SIGHUP`. `println!` then panics, and a graceful shutdown that prints saves nothing. Use
    /// `writeln!` and ignore its error.
    Hangup,
    /// `SIGQUIT` requested the immediate end of the process.
    Quit,
    /// The program itself requested the end, for instance after a remote command. A hard exit uses this exit code.
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

    /// Returns the exit code for this cause if the process can't die by a signal: 128 + signal, as in shells, or the requested code.
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

/// The source of a press.
///
/// All presses climb the same ladder; the source is information for the handler that answers the notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PressSource {
    /// `SIGINT`.
    Signal,
    /// The byte 0x03, read from a terminal in raw mode, which sends no signal.
    RawByte,
    /// The program or a test.
    Injected,
    /// [`Injector::interrupt`](crate::Injector::interrupt). A request is not a press: it has no number and doesn't climb the ladder.
    Request,
}
