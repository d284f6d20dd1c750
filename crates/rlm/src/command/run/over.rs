//! What a scheduler gets that starts a run once more which is over: how it ended, and its exit code. No agent is started for that.

use std::io::Write as _;
use std::process::ExitCode;

use loop_runner::Outcome;
use loop_state::{Budget, StopReason, Usage};
use rlm_store::{RunEntry, RunHead, RunId, Uncommitted};

use crate::config::Config;
use crate::exit::Code;
use crate::hint::go_on;
use crate::output;
use crate::render::Screen;

/// A run that only a person, or more room, takes up again.
#[derive(Debug)]
pub(super) struct Over {
    run: RunId,
    reason: StopReason,
    usage: Usage,
    uncommitted: Option<Uncommitted>,
}

impl Over {
    /// Returns how the run ended, if that is so: time mends a rate limit and a session that somebody else has, and what failed may have been mended;
    /// a limit is none any more once `what` says a higher one.
    pub(super) fn of(run: &RunEntry, what: &Config) -> Option<Self> {
        let head = run.head.as_ref().ok()?;
        let reason = head.machine.end.as_ref()?.reason.clone();
        let goes_on = match &reason {
            StopReason::Stopped(_)
            | StopReason::RateLimit { .. }
            | StopReason::Held(_)
            | StopReason::Failed(_) => true,
            reason => has_more_room(head, reason, what),
        };
        (!goes_on).then(|| Self {
            run: run.id.clone(),
            reason,
            usage: head.machine.usage,
            uncommitted: head.uncommitted.clone(),
        })
    }

    /// Says so, and returns the run's own exit code.
    pub(super) fn tell(self, screen: &Screen) -> ExitCode {
        let Self {
            run,
            reason,
            usage,
            uncommitted,
        } = self;
        let code = Code::of(&reason);
        if screen.is_json() {
            let outcome = Outcome {
                reason,
                ended: Vec::new(),
                survivors: Vec::new(),
                proven: false,
                usage,
                uncommitted,
            };
            // Who does not listen has the exit code.
            let _gone = screen.end(&run, &outcome, code as i32, None);
            return code.into();
        }
        let again =
            go_on(&run, &reason).map_or_else(String::new, |it| format!("; go on with: {it}"));
        let reason = rlm_text::escape::plain(&reason.to_string());
        let text = format!("run {run} has ended: {reason}; nothing was started{again}\n");
        let _noted = output::text().write_all(text.as_bytes());
        code.into()
    }
}

/// Returns whether what is said now gives the run more than it has used up.
fn has_more_room(head: &RunHead, reason: &StopReason, what: &Config) -> bool {
    let machine = &head.machine;
    let at = machine.phase as usize;
    let most = machine.rules.phases.get(at);
    let most = most.and_then(|phase| phase.limits.max_iterations);
    match reason {
        StopReason::Planned | StopReason::LastFailed(..) | StopReason::IterationLimit(_) => {
            what.max_iterations.map(u32::from) > most
        }
        StopReason::TimeLimit(limit) => what.max_duration.is_some_and(|it| it.0 > *limit),
        StopReason::Budget(Budget::Tokens { limit, .. }) => {
            what.max_tokens.is_some_and(|it| it.0 > *limit)
        }
        StopReason::Budget(_) => what.max_cost.map(|it| it.0) > machine.rules.max_cost_microusd,
        _ => false,
    }
}
