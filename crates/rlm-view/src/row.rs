//! The facts about one run that a list shows. No I/O.

use std::path::PathBuf;
use std::time::Duration;

use agent_duplex::PermissionRequest;
use loop_runner::control::ProcessHealth;
use loop_state::{IterationStep, SpentBudget, StopReason, Timestamp, UsageTotal};
use rlm_store::{RunEntry, RunHead, RunId, RunState};

use crate::program::RunTexts;

/// The name of a run in an address: unique among all projects.
pub(crate) type RunKey = String;

/// The time after which a run that failed is no longer in the inbox.
pub(crate) const INBOX_AGE: Duration = Duration::from_secs(3 * 86_400);
/// The longest title taken from a prompt, in characters.
const MAX_TITLE: usize = 120;

/// Why a run needs a person, or may soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attention {
    /// The agent asks for permissions.
    Permissions(Vec<PermissionRequest>),
    /// A finished phase or batch waits for a review.
    Review(String),
    /// The run is paused, or its agent was interrupted.
    Paused,
    /// The run waits for the end of a rate limit, or for a retry.
    Waits(Timestamp),
    /// The process of the run doesn't respond.
    Unresponsive,
    /// The run crashed, failed or is stuck, or its state is damaged.
    Failed,
    /// A limit ended the run.
    Limit(ReachedLimit),
}

/// A limit that ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReachedLimit {
    Iterations,
    Duration,
    Cost,
    Tokens,
    /// A rate limit of the agent lasts longer than the run may wait.
    WaitForRateLimit,
}

impl ReachedLimit {
    fn of(reason: &StopReason) -> Option<Self> {
        Some(match reason {
            StopReason::IterationLimit(_) => Self::Iterations,
            StopReason::TimeLimit(_) => Self::Duration,
            StopReason::BudgetSpent(SpentBudget::Tokens { .. }) => Self::Tokens,
            StopReason::BudgetSpent(_) => Self::Cost,
            StopReason::RateLimit { .. } => Self::WaitForRateLimit,
            _ => return None,
        })
    }

    /// Returns the name of its setting.
    pub(crate) fn setting(self) -> &'static str {
        match self {
            Self::Iterations => "max-iterations",
            Self::Duration => "max-duration",
            Self::Cost => "max-cost",
            Self::Tokens => "max-tokens",
            Self::WaitForRateLimit => "wait-on-limit",
        }
    }
}

/// The facts about a run that a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunRow {
    pub(crate) key: RunKey,
    pub(crate) run: RunId,
    /// The top of the project.
    pub(crate) root: PathBuf,
    pub(crate) state: RunState,
    pub(crate) title: Option<String>,
    /// The branch of the run's own worktree.
    pub(crate) branch: Option<String>,
    pub(crate) phase: Option<String>,
    /// Whether the run commits the work of each iteration.
    pub(crate) commits: bool,
    pub(crate) iteration: u32,
    pub(crate) attempt: u32,
    pub(crate) max_iterations: Option<u32>,
    pub(crate) usage: UsageTotal,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) last_at: Timestamp,
    /// When the run began what it does now.
    pub(crate) since: Option<Timestamp>,
    pub(crate) texts: RunTexts,
    pub(crate) attention: Option<Attention>,
    pub(crate) step: StepKind,
    /// The number of messages that no agent has read yet.
    pub(crate) unread_messages: usize,
    pub(crate) notes: Vec<String>,
}

impl RunRow {
    /// Returns the limit that ended the run.
    pub(crate) fn reached_limit(&self) -> Option<ReachedLimit> {
        match self.attention {
            Some(Attention::Limit(limit)) => Some(limit),
            _ => None,
        }
    }

    /// Returns whether a resume continues the run, perhaps only with a higher limit.
    pub(crate) fn is_resumable(&self) -> bool {
        match self.state {
            RunState::Stopped | RunState::Crashed => true,
            RunState::Ended => matches!(
                self.attention,
                Some(Attention::Limit(_) | Attention::Failed)
            ),
            _ => false,
        }
    }

    /// Returns whether a resume continues the run with the same limits.
    pub(crate) fn is_resumable_as_it_is(&self) -> bool {
        let limit = self.reached_limit();
        self.is_resumable() && limit.is_none_or(|it| it == ReachedLimit::WaitForRateLimit)
    }

    /// Returns whether the inbox has the run: it needs a person, or waits, or ended without success in the last days.
    pub(crate) fn is_in_inbox(&self, now: Timestamp) -> bool {
        let is_recent = now.since(self.last_at) < INBOX_AGE;
        self.attention.is_some() && (self.state.is_live() || is_recent)
    }

    /// Returns whether the run can't continue without a person.
    pub(crate) fn waits_for_person(&self, now: Timestamp) -> bool {
        self.is_in_inbox(now) && !matches!(self.attention, Some(Attention::Waits(_)))
    }
}

/// The kind of the current step of a live run, which decides what a person can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    Turn,
    /// A person interrupted the turn, which is not over.
    Interrupted,
    Review,
    Paused,
    /// The run sleeps or waits until a time.
    Waiting,
    Other,
}

impl StepKind {
    fn of(step: &IterationStep) -> Self {
        match step {
            IterationStep::Turn { .. } => Self::Turn,
            IterationStep::Review { .. } => Self::Review,
            IterationStep::Interrupted { .. } => Self::Interrupted,
            IterationStep::Paused { .. } => Self::Paused,
            IterationStep::Sleeping { .. } | IterationStep::Waiting { .. } => Self::Waiting,
            _ => Self::Other,
        }
    }
}

/// The parts of a row that are not in the saved run.
#[derive(Debug)]
pub(crate) struct LiveParts<'a> {
    pub(crate) health: Option<&'a ProcessHealth>,
    pub(crate) asks: &'a [PermissionRequest],
    /// The first line of the first prompt.
    pub(crate) prompt: Option<String>,
    pub(crate) texts: RunTexts,
}

impl RunRow {
    pub(crate) fn new(key: RunKey, root: PathBuf, entry: &RunEntry, live: LiveParts<'_>) -> Self {
        let head = entry.head.as_ref().ok();
        let machine = head.map(|head| &head.machine);
        let state = match live.health.and_then(ProcessHealth::status) {
            // The reported status is newer than the saved state.
            Some(status) => status.state,
            None => entry.state,
        };
        let title = head.and_then(|head| head.settings.title.clone());
        let branch = head.and_then(|head| head.settings.worktree.as_ref());
        let phases = head.filter(|head| head.settings.phases.len() > 1);
        let mut notes = entry.notes.clone();
        notes.extend(entry.head.as_ref().err().cloned());
        Self {
            key,
            run: entry.id.clone(),
            root,
            state,
            title: { title.as_ref().or(live.prompt.as_ref()) }.map(|it| shorten(it)),
            branch: branch.map(|worktree| worktree.branch.clone()),
            phase: phases.map(|head| head.machine.phase_rules().name.clone()),
            commits: head.is_some_and(|head| head.settings.commit),
            iteration: machine.map_or(0, |m| m.iteration.min(m.counts.attempts)),
            attempt: machine.map_or(0, |m| m.attempt),
            max_iterations: machine.and_then(|m| m.phase_rules().limits.max_iterations),
            usage: machine.map(|m| m.usage).unwrap_or_default(),
            started_at: machine.map(|m| m.started_at),
            last_at: entry.last_at,
            since: machine.and_then(|m| since(&m.step)),
            attention: attention(entry, state, &live),
            step: machine.map_or(StepKind::Other, |m| StepKind::of(&m.step)),
            unread_messages: machine.map_or(0, |m| m.unseen_steers().count()),
            texts: live.texts,
            notes,
        }
    }
}

fn since(step: &IterationStep) -> Option<Timestamp> {
    match step {
        IterationStep::Turn { since }
        | IterationStep::Interrupted { since }
        | IterationStep::Paused { since }
        | IterationStep::Review { since, .. }
        | IterationStep::Waiting { since, .. } => Some(*since),
        _ => None,
    }
}

fn attention(entry: &RunEntry, state: RunState, live: &LiveParts<'_>) -> Option<Attention> {
    let Ok(RunHead { machine, .. }) = &entry.head else {
        return match state {
            RunState::Empty => None,
            _ => Some(Attention::Failed),
        };
    };
    match state {
        RunState::Running | RunState::Paused => match (&machine.step, live.health) {
            // They come from a connection that works, even if the process is slow now.
            _ if !live.asks.is_empty() => Some(Attention::Permissions(live.asks.to_vec())),
            (_, Some(ProcessHealth::OtherVersion(_))) => None,
            (_, Some(health)) if !matches!(health, ProcessHealth::Responding(_)) => {
                Some(Attention::Unresponsive)
            }
            (IterationStep::Review { point, .. }, _) => Some(Attention::Review(point.to_string())),
            _ if state == RunState::Paused => Some(Attention::Paused),
            (IterationStep::Waiting { until, .. }, _) => Some(Attention::Waits(*until)),
            _ => None,
        },
        RunState::Crashed | RunState::Damaged => Some(Attention::Failed),
        RunState::Stopped | RunState::Transferred | RunState::Empty => None,
        _ => match machine.end.as_ref().map(|end| &end.reason) {
            Some(reason) if reason.is_final() => None,
            reason => Some(match reason.and_then(ReachedLimit::of) {
                Some(limit) => Attention::Limit(limit),
                None => Attention::Failed,
            }),
        },
    }
}

/// Returns the first line of a text that is not empty, shortened.
fn shorten(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.next().unwrap_or_default();
    match line.char_indices().nth(MAX_TITLE) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_is_the_first_line_of_a_prompt() {
        assert_eq!(shorten("\n  Fix the tests  \nand more"), "Fix the tests");
        assert_eq!(shorten(&"é".repeat(200)).chars().count(), MAX_TITLE + 1);
        assert_eq!(shorten(" \n "), "");
    }
}
