//! What a stop reports, and processes by name: in words of this crate, since it knows no process itself.

use std::fmt;
use std::time::Duration;

/// The budget of a stop, and a pause, that was given larger than clocks can count.
pub(crate) const FOREVER: Duration = Duration::from_secs(1 << 30);

/// A process as people know it: by number and command name, never by command line, which may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessName {
    /// The process id.
    pub pid: u32,
    /// The command name, as the kernel has it (15 bytes on Linux).
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
    /// It was over before anything was done.
    AlreadyEnded,
    /// It obeyed the interrupt.
    Interrupt,
    /// It ended when its input was closed.
    CloseInput,
    /// It ended by SIGTERM.
    Terminate,
    /// It had to be killed.
    Kill,
}

impl fmt::Display for StopStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlreadyEnded => "it had ended before",
            Self::Interrupt => "ended by interrupt",
            Self::CloseInput => "ended by closing its input",
            Self::Terminate => "ended by SIGTERM",
            Self::Kill => "ended by SIGKILL",
        })
    }
}

/// How many survivors a report names.
const NAMED: usize = 16;

/// What came of a stop.
///
/// Its text is the end line that people read: `0 of 3 left`, `nothing was left`, or the first 16 survivors by name; and `(as far as could be seen)` when that
/// is not [proven](Self::proven).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// Which stage ended the agent itself.
    pub stage: StopStage,
    /// The processes that were signalled or reaped, the agent's own among them.
    pub ended: Vec<ProcessName>,
    /// What is still alive, for example because it belongs to another user.
    pub survivors: Vec<ProcessName>,
    /// Whether the tree is *known* to be empty, rather than no process being found.
    pub proven: bool,
}

impl StopReport {
    /// The report of a stop that found nothing; `proven` when nothing is known to be left.
    pub(crate) fn nothing(proven: bool) -> Self {
        Self {
            stage: StopStage::AlreadyEnded,
            ended: Vec::new(),
            survivors: Vec::new(),
            proven,
        }
    }
}

impl fmt::Display for StopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.survivors.len();
        match left + self.ended.len() {
            0 => f.write_str("nothing was left")?,
            all => write!(f, "{left} of {all} left")?,
        }
        for (i, survivor) in self.survivors.iter().take(NAMED).enumerate() {
            write!(f, "{} {survivor}", if i == 0 { ":" } else { "," })?;
        }
        if left > NAMED {
            write!(f, " and {} more", left - NAMED)?;
        }
        if !self.proven {
            f.write_str(" (as far as could be seen)")?;
        }
        Ok(())
    }
}
