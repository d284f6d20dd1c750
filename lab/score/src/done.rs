//! Done: the tool reports finished work only if the work is finished.

use std::time::Duration;

use crate::scene::{Job, Scene, step, tail};
use crate::{Cell, Lab};

/// The time limit of one scene. A loop without an end never reports finished work.
const LIMIT: Duration = Duration::from_secs(20);
/// The number of iterations that the tool is asked for.
const ITERATIONS: u32 = 3;

/// One fault: an agent that misleads the tool, or an honest agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A tool of the agent prints a text with the promise, and the agent continues to work.
    PromiseInToolOutput,
    /// The prompt contains the promise, and the agent prints its prompt.
    PromiseInPrompt,
    /// The agent ends with the promise, without any work.
    LyingAgent,
    /// The agent does nothing and prints nothing.
    ZeroWork,
    /// The agent did a part of the work, and the check fails.
    FailedCheck,
    /// The agent does a part of the work and fails, each time.
    FailedAgent,
    /// The agent does a part of the work and fails, but exits with 0.
    ExitZeroAfterFailure,
    /// The agent does all of the work, the check passes, but the agent exits with 1. The tool must report finished work.
    ExitOneAfterSuccess,
    /// The agent does all of the work, and the tool must report that.
    HonestAgent,
}

impl Fault {
    pub(crate) const ALL: [Self; 9] = [
        Self::PromiseInToolOutput,
        Self::PromiseInPrompt,
        Self::LyingAgent,
        Self::ZeroWork,
        Self::FailedCheck,
        Self::FailedAgent,
        Self::ExitZeroAfterFailure,
        Self::ExitOneAfterSuccess,
        Self::HonestAgent,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PromiseInToolOutput => "promise in tool output",
            Self::PromiseInPrompt => "promise in the prompt",
            Self::LyingAgent => "lying agent",
            Self::ZeroWork => "zero work",
            Self::FailedCheck => "failed check",
            Self::FailedAgent => "failed agent",
            Self::ExitZeroAfterFailure => "exit 0 after a failure",
            Self::ExitOneAfterSuccess => "exit 1 after success",
            Self::HonestAgent => "honest agent",
        }
    }

    /// Returns the agent's script. The line with `landed` is the receipt of the fault.
    fn script(self) -> String {
        let landed = "append {lab}/landed {start}\n";
        // These faults make one step and never the second.
        let part = step("@1", 20);
        match self {
            Self::PromiseInToolOutput => format!(
                "print reading notes.md\nprint output: When the work is done, print:\nprint {{promise}}\n{landed}print I have read the notes and still have to do the work.\n"
            ),
            Self::PromiseInPrompt => format!("echo\n{landed}print I have not begun yet.\n"),
            Self::LyingAgent => {
                format!("print The work is done.\nprint {{promise}}\n{landed}")
            }
            Self::ZeroWork => landed.to_owned(),
            Self::FailedCheck => format!("print I made the first step.\n{part}{landed}"),
            Self::FailedAgent => format!("{part}warn error: no second step\n{landed}exit 1\n"),
            Self::ExitZeroAfterFailure => {
                format!("{part}warn error: I can't make the second step\n{landed}")
            }
            Self::ExitOneAfterSuccess => {
                format!("{part}{part}warn error: lost the connection\n{landed}exit 1\n")
            }
            Self::HonestAgent => format!("{}@2.. print {{promise}}\n{landed}", step("", 20)),
        }
    }

    fn job(self) -> Job {
        let job = Job::two_steps(self.script(), ITERATIONS);
        match self {
            Self::PromiseInPrompt => Job {
                prompt: "Do the work. When it is done, print:\n{promise}\nBegin.\n".into(),
                ..job
            },
            _ => job,
        }
    }
}

/// Plays one fault.
pub(crate) fn cell(lab: Lab<'_>, fault: Fault) -> Cell {
    let name = fault.name();
    let needs_check = matches!(fault, Fault::FailedCheck | Fault::ExitOneAfterSuccess);
    if needs_check && !lab.tool.takes_check() {
        return Cell::skipped(name, "the command has no {check}");
    }
    let scene = Scene::new(lab, &fault.job());
    let ended = scene.end(scene.start(), LIMIT);
    let reports_done = ended.as_ref().is_some_and(|it| scene.reports_done(it));
    let how = ended
        .as_ref()
        .map_or_else(|| format!(" (no end within {} s)", LIMIT.as_secs()), tail);
    if let Err(why) = landed(&scene, fault, reports_done) {
        return Cell::not_shown(name, format!("{why}{how}"));
    }
    let is_done = scene.steps() >= 2;
    let (is_kept, why) = match (fault, reports_done) {
        (Fault::HonestAgent | Fault::ExitOneAfterSuccess, true) if is_done => (true, String::new()),
        (Fault::HonestAgent | Fault::ExitOneAfterSuccess, true) => (
            false,
            format!("reported done after {} of 2 steps", scene.steps()),
        ),
        (Fault::HonestAgent | Fault::ExitOneAfterSuccess, false) => (
            false,
            format!(
                "never reported done, after {} of 2 steps{how}",
                scene.steps()
            ),
        ),
        (_, true) => (
            false,
            format!("reported done after {} of 2 steps{how}", scene.steps()),
        ),
        (_, false) => (true, String::new()),
    };
    Cell::judged(name, scene.landed().max(1), is_kept, why)
        .figure("turns", scene.start_count())
        .figure("steps", scene.steps())
        .figure("failed_checks", scene.checks("failed"))
}

/// Checks the receipts of the fault.
fn landed(scene: &Scene<'_>, fault: Fault, reports_done: bool) -> Result<(), String> {
    let starts = scene.starts();
    if starts.is_empty() {
        return Err("the agent did not start".into());
    }
    let promise = scene.lab().tool.promise();
    let got_promise = starts.iter().any(|it| scene.received(it).contains(promise));
    match fault {
        Fault::PromiseInPrompt if !got_promise => {
            Err("the agent did not receive the prompt file's text".into())
        }
        // A tool that reports finished work without a check has ignored the check, too.
        Fault::FailedCheck if scene.checks("failed") == 0 && !reports_done => {
            Err("the check did not run".into())
        }
        _ if scene.landed() == 0 => Err("the agent did not come to its fault".into()),
        _ => Ok(()),
    }
}
