//! The response to a scheduler that starts an ended run again: how the run ended, and its exit code. No agent is started.

use std::io::Write as _;
use std::process::ExitCode;

use loop_runner::RunOutcome;
use loop_state::{RuleChange, StopReason, UsageTotal};
use rlm_store::{RunEntry, RunId, Uncommitted};

use crate::config::Config;
use crate::exit::Code;
use crate::hint::resume_hint;
use crate::output;
use crate::render::Screen;

/// A run that has ended; only a person, or a higher limit, can continue it.
#[derive(Debug)]
pub(super) struct EndedRun {
    run: RunId,
    reason: StopReason,
    usage: UsageTotal,
    uncommitted: Option<Uncommitted>,
}

impl EndedRun {
    /// Returns how the run ended, unless a scheduler may continue it with the limits in `what`.
    pub(super) fn of(run: &RunEntry, what: &Config) -> Option<Self> {
        let head = run.head.as_ref().ok()?;
        let reason = head.machine.end.as_ref()?.reason.clone();
        let continues = head.machine.continues_unattended(&limits(what));
        (!continues).then(|| Self {
            run: run.id.clone(),
            reason,
            usage: head.machine.usage,
            uncommitted: head.uncommitted.clone(),
        })
    }

    /// Prints how the run ended, and returns its exit code.
    pub(super) fn print(self, screen: &Screen) -> ExitCode {
        let Self {
            run,
            reason,
            usage,
            uncommitted,
        } = self;
        let code = Code::of(&reason);
        if screen.is_json() {
            let outcome = RunOutcome {
                reason,
                ended: Vec::new(),
                survivors: Vec::new(),
                proven: false,
                usage,
                uncommitted,
            };
            // If the output has no reader, the exit code is enough.
            let _gone = screen.end(&run, &outcome, code as i32, None);
            return code.into();
        }
        let again = resume_hint(&run, &reason)
            .map_or_else(String::new, |it| format!("; to continue: {it}"));
        let reason = rlm_text::escape::plain(&reason.to_string());
        let text = format!("run {run} has ended: {reason}; nothing was started{again}\n");
        let _noted = output::text().write_all(text.as_bytes());
        code.into()
    }
}

/// Returns the limits on the command line.
fn limits(what: &Config) -> Vec<RuleChange> {
    let iterations = what.max_iterations.map(u32::from);
    let all = [
        iterations.map(|it| RuleChange::MaxIterations(Some(it))),
        (what.max_duration.as_ref()).map(|it| RuleChange::MaxDuration(Some(it.0))),
        (what.max_tokens.as_ref()).map(|it| RuleChange::MaxTokens(Some(it.0))),
        (what.max_cost.as_ref()).map(|it| RuleChange::MaxCost(Some(it.0))),
    ];
    all.into_iter().flatten().collect()
}
