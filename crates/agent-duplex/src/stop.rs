//! The report of a stop, and process names. The types belong to this crate because it knows no processes itself.

use std::fmt;
use std::time::Duration;

use crate::Error;

/// Replaces a stop budget or a pause that is too large for the clock.
pub(crate) const FOREVER: Duration = Duration::from_secs(1 << 30);

/// A process name for people: pid and command name. The command line is left out because it can contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessName {
    /// The process id.
    pub pid: u32,
    /// The command name in the kernel (15 bytes on Linux).
    pub name: String,
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.pid, self.name)
    }
}

/// The stage of a stop that ended the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StopStage {
    /// The agent had ended before the stop.
    AlreadyEnded,
    /// The agent ended after the interrupt.
    Interrupt,
    /// The agent ended after its input was closed.
    CloseInput,
    /// The agent ended after SIGTERM.
    Terminate,
    /// SIGKILL ended the agent.
    Kill,
}

impl fmt::Display for StopStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlreadyEnded => "already ended",
            Self::Interrupt => "ended by interrupt",
            Self::CloseInput => "ended after its input was closed",
            Self::Terminate => "ended by SIGTERM",
            Self::Kill => "ended by SIGKILL",
        })
    }
}

/// The maximum number of survivors that the text of a report names.
const NAMED: usize = 16;

/// The result of a stop.
///
/// Its text is a line for people: `all processes ended`, `nothing was left`, or how many of how many processes are left, with the first 16 of them by
/// name. It ends with `(not proven)` if the result is not [proven](Self::proven).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// The stage that ended the agent itself.
    pub stage: StopStage,
    /// The processes that were signalled or reaped, including the agent itself.
    pub ended: Vec<ProcessName>,
    /// The processes that are still alive, for example because they belong to another user.
    pub survivors: Vec<ProcessName>,
    /// Whether it is *proven* that the process tree is empty. Otherwise it is only known that no process was found.
    pub proven: bool,
}

impl StopReport {
    /// Returns the report of an agent without processes, for a driver whose agent runs in this program.
    #[must_use]
    pub fn without_processes() -> Self {
        Self::nothing(true)
    }

    /// Returns the report of a stop that found nothing; `proven` if it is known that no process is left.
    pub(crate) fn nothing(proven: bool) -> Self {
        Self {
            stage: StopStage::AlreadyEnded,
            ended: Vec::new(),
            survivors: Vec::new(),
            proven,
        }
    }

    /// Adds the report of a later agent.
    pub(crate) fn add(&mut self, later: Self) {
        self.stage = later.stage;
        self.ended.extend(later.ended);
        self.survivors.extend(later.survivors);
        self.proven &= later.proven;
    }

    /// Adds the processes of an agent that possibly ran although its start failed.
    pub(crate) fn add_lost(&mut self, error: &Error) {
        if let Some(report) = error.lost_processes() {
            self.add(report.clone());
        }
    }
}

impl fmt::Display for StopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.survivors.len();
        match (left, self.ended.len()) {
            (0, 0) => f.write_str("nothing was left")?,
            (0, _) => f.write_str("all processes ended")?,
            (left, ended) => write!(f, "{left} of {} left", left + ended)?,
        }
        for (i, survivor) in self.survivors.iter().take(NAMED).enumerate() {
            write!(f, "{} {survivor}", if i == 0 { ":" } else { "," })?;
        }
        if left > NAMED {
            write!(f, " and {} more", left - NAMED)?;
        }
        if !self.proven {
            f.write_str(" (not proven)")?;
        }
        Ok(())
    }
}
