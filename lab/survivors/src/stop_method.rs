//! The ways in which a person, a supervisor or the machine stops a program.

use std::time::Duration;

use rlm_tests::{Running, Terminal, poll_until};
use rustix::process::Signal;

/// The time between two presses; with a shorter time, a tool may see both as one press.
const BETWEEN_PRESSES: Duration = Duration::from_millis(100);

/// One way to stop a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StopMethod {
    /// One Ctrl-C, typed at the tool's terminal.
    OnePress,
    /// Three Ctrl-C, 100 ms apart; fewer if the tool ends before.
    ThreePresses,
    /// SIGTERM to the tool alone. The tool has no terminal, as under a supervisor, CI or cron.
    Term,
    /// The tool's terminal is closed, which sends SIGHUP.
    HangUp,
    /// SIGKILL to the tool alone, which has no terminal and can't react.
    Kill,
    /// SIGTERM while git, started by the tool, runs a filter of the repository that has started a daemon.
    GitFilter,
    /// SIGKILL to the process between the tool and its agent, then SIGTERM to the tool. The agent has a child without an environment in its own
    /// session.
    KilledGuard,
    /// SIGTERM to a tool of an ordinary user, whose agent has a child that became root, so that only root can end it.
    SetuidChild,
}

impl StopMethod {
    /// All ways, in the order of the table.
    pub const ALL: [Self; 8] = [
        Self::OnePress,
        Self::ThreePresses,
        Self::Term,
        Self::HangUp,
        Self::Kill,
        Self::GitFilter,
        Self::KilledGuard,
        Self::SetuidChild,
    ];
    /// The ways that differ only in the signal or the terminal.
    pub const PLAIN: [Self; 5] = [
        Self::OnePress,
        Self::ThreePresses,
        Self::Term,
        Self::HangUp,
        Self::Kill,
    ];

    /// Returns the name in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OnePress => "one Ctrl-C",
            Self::ThreePresses => "three Ctrl-C",
            Self::Term => "SIGTERM",
            Self::HangUp => "terminal closed",
            Self::Kill => "kill -9",
            Self::GitFilter => "git filter",
            Self::KilledGuard => "killed guard",
            Self::SetuidChild => "setuid child",
        }
    }

    pub(crate) fn needs_terminal(self) -> bool {
        matches!(self, Self::OnePress | Self::ThreePresses | Self::HangUp)
    }

    /// Stops `tool`; returns the terminal unless it was closed.
    pub(crate) fn stop(self, tool: &mut Running, terminal: Option<Terminal>) -> Option<Terminal> {
        let presses = match self {
            Self::OnePress => 1,
            Self::ThreePresses => 3,
            Self::HangUp => return None,
            // The tool may have ended while its agent still works. Its survivors then count.
            Self::Term | Self::GitFilter | Self::KilledGuard | Self::SetuidChild => {
                let _sent = tool.signal_unless_reaped(Signal::TERM);
                0
            }
            Self::Kill => {
                let _sent = tool.signal_unless_reaped(Signal::KILL);
                0
            }
        };
        for press in 0..presses {
            let gone = press > 0
                && poll_until(BETWEEN_PRESSES, || tool.has_ended().then_some(())).is_some();
            if let Some(terminal) = terminal.as_ref().filter(|_| !gone) {
                terminal.send(b"\x03");
            }
        }
        terminal
    }
}
