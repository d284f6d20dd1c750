//! The result of a stop, and its text.

use crate::{Containment, Exit, ProcessName, StopStage};
use std::fmt;

/// The maximum number of survivors that the text of a report names.
const NAMED: usize = 16;

/// The result of a stop. Its text says that all processes ended, or how many of how many are left, with the first 16 of them by name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// The last stage that was needed to end the whole process tree.
    pub stage: StopStage,
    /// The exit of the main process; `None` if it survived.
    pub exit: Option<Exit>,
    /// The ended processes, at most 4096: those that an interrupt had reached, that were alive when the stop began, or that were found later.
    pub ended: Vec<ProcessName>,
    /// The number of ended processes that `ended` doesn't name.
    pub unnamed: u64,
    /// The processes that could not be ended.
    pub survivors: Vec<ProcessName>,
    /// The containment of the process tree: with [`Containment::Group`] unknown survivors are possible.
    pub containment: Containment,
    /// Whether standard output and standard error came to their end. If not, another process keeps them open, or the caller has not taken all lines.
    pub outputs_ended: bool,
    /// Whether there is no report of the guard. Either the guard died without one, so the host only swept by the marker; or the host did not receive
    /// it, because the runtime that spawned the program has ended.
    pub guard_lost: bool,
    /// Whether the result of the process tree is unknown, so that the report names the main process only because it is possibly alive.
    pub(crate) is_unreported: bool,
}

impl StopReport {
    /// Returns whether it is proven that the process tree is empty. Without a guard, a search found no process, which proves less.
    pub fn is_proven(&self) -> bool {
        self.containment == Containment::Guard && !self.guard_lost && self.survivors.is_empty()
    }
}

impl fmt::Display for StopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.survivors.len();
        let gone = self.ended.len() as u64 + self.unnamed;
        match left {
            0 => f.write_str("all processes ended")?,
            left => write!(f, "{left} of {} left", left as u64 + gone)?,
        }
        for (n, survivor) in self.survivors.iter().take(NAMED).enumerate() {
            write!(f, "{}{survivor}", if n == 0 { ": " } else { ", " })?;
        }
        if left > NAMED {
            write!(f, " and {} more", left - NAMED)?;
        }
        if self.is_unreported {
            f.write_str(
                " (result unknown: the runtime that started the program has ended or hangs)",
            )
        } else if self.guard_lost {
            f.write_str(" (the guard was killed; swept by marker)")
        } else if self.containment == Containment::Group {
            f.write_str(" (no guard: checked only the process group and the marker)")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, name: &str) -> ProcessName {
        ProcessName {
            pid,
            name: name.to_owned(),
        }
    }

    #[test]
    fn report_names_survivors_and_states_unknowns() {
        let clean = StopReport {
            stage: StopStage::Terminate,
            exit: Some(Exit {
                code: None,
                signal: Some(libc::SIGTERM),
            }),
            ended: vec![process(70, "agent"), process(71, "sleep")],
            unnamed: 0,
            survivors: vec![],
            containment: Containment::Guard,
            outputs_ended: true,
            guard_lost: false,
            is_unreported: false,
        };
        let left = StopReport {
            survivors: vec![process(72, "su"), process(73, "a\u{1b}[2Jb")],
            ..clean.clone()
        };
        let group = StopReport {
            containment: Containment::Group,
            ..clean.clone()
        };
        let lost = StopReport {
            guard_lost: true,
            unnamed: 3,
            ..clean.clone()
        };
        let unheard = StopReport {
            guard_lost: true,
            is_unreported: true,
            ended: vec![],
            survivors: vec![process(70, "?")],
            ..clean.clone()
        };
        let many = StopReport {
            survivors: (100..120).map(|pid| process(pid, "sh")).collect(),
            ..clean.clone()
        };
        let shown: Vec<String> = [clean, left, group, lost, unheard, many]
            .iter()
            .map(ToString::to_string)
            .collect();
        insta::assert_snapshot!(shown.join("\n"), @r"
        all processes ended
        2 of 4 left: 72 su, 73 a\u{1b}[2Jb
        all processes ended (no guard: checked only the process group and the marker)
        all processes ended (the guard was killed; swept by marker)
        1 of 1 left: 70 ? (result unknown: the runtime that started the program has ended or hangs)
        20 of 22 left: 100 sh, 101 sh, 102 sh, 103 sh, 104 sh, 105 sh, 106 sh, 107 sh, 108 sh, 109 sh, 110 sh, 111 sh, 112 sh, 113 sh, 114 sh, 115 sh and 4 more
        ");
    }

    #[test]
    fn exits_are_shown_by_code_or_by_name() {
        let exits = [
            (Some(3), None),
            (None, Some(9)),
            (None, Some(34)),
            (None, None),
        ];
        let shown = exits.map(|(code, signal)| Exit { code, signal }.to_string());
        insta::assert_snapshot!(shown.join("\n"), @r"
        exit status 3
        killed by SIGKILL
        killed by signal 34
        exit status unknown
        ");
    }
}
