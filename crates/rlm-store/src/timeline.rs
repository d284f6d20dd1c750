//! The events of a run in order, from its journal.
//!
//! The journal has every event of a run, across compaction, phases and transfers; [`Project::timeline`](crate::Project::timeline) replays them
//! through the machine and records the result of each. So a timeline is correct for every saved state: after a hard kill, after a resume from an
//! earlier iteration, after damage to the newest saves, and during the run. It describes one save: later events are not in it.
//!
//! A replay needs the state before the first event. This state comes from the current rules of the run, or from its first rules if they changed. If
//! damage has destroyed some of that, the timeline begins with the oldest stored state, or is inexact, and reports that in [`Timeline::unknown`].
//!
//! # Limits
//!
//! The size of a timeline grows with the number of attempts. A timeline has at most 4 MiB of the output of required checks, checks and failures.
//! Above that limit, it has only the last 400 bytes of each of the oldest outputs. It has the last 20 notifications.

use loop_state::{
    CheckResult, Evidence, RedoScope, ReviewDecision, ReviewPoint, RuleChange, SteerState,
    StopRequest, Timestamp, UsageTotal,
};

use crate::{AttemptOutcome, NotificationRecord, RunHead, RunState};

mod fold;
mod read;
#[cfg(test)]
mod tests;

/// The events of a run up to its newest save.
#[derive(Debug)]
pub struct Timeline {
    /// The saved head: the settings of the run, its totals, and its end.
    pub head: RunHead,
    /// The state of the run.
    pub state: RunState,
    /// The phases that began, in order. A phase that began again is listed again.
    pub phases: Vec<PhaseSpan>,
    /// The attempts, in order.
    pub attempts: Vec<AttemptSpan>,
    /// The waits, in order.
    pub waits: Vec<WaitSpan>,
    /// The processes that worked on the run, in order.
    pub processes: Vec<RunProcess>,
    /// The messages of people.
    pub steers: Vec<SteerRecord>,
    /// The other events.
    pub events: Vec<TimelineEvent>,
    /// The gaps of the timeline and the damage, one line each.
    pub unknown: Vec<String>,
}

/// One phase, from its first attempt on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseSpan {
    /// The index of the phase.
    pub index: u32,
    /// The name of the phase.
    pub name: String,
    /// The time of its first attempt.
    pub began: Timestamp,
    /// The time of its end; `None` before that.
    pub ended: Option<Timestamp>,
    /// The number of its iterations, after its end.
    pub iterations: u32,
    /// The evidence that it is finished; `None` if all its planned iterations ran, or it has not ended.
    pub evidence: Option<Evidence>,
    /// The last message of its agent, after its end.
    pub result: Option<String>,
    /// The usage of its attempts.
    pub usage: UsageTotal,
    /// Whether it began again, so that it does not count.
    pub discarded: bool,
}

/// One attempt of an iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptSpan {
    /// The index of the phase.
    pub phase: u32,
    /// The number of the iteration in its phase, from 1.
    pub iteration: u32,
    /// The number of the attempt.
    pub attempt: u32,
    /// The number of the process that began it, from 1.
    pub process: u32,
    /// The time of its beginning.
    pub began: Timestamp,
    /// The end of its turn; if its process died, the last known time.
    pub turn_ended: Option<Timestamp>,
    /// The time at which its outcome was known.
    pub ended: Option<Timestamp>,
    /// The outcome of the attempt.
    pub outcome: AttemptOutcome,
    /// Whether the run later returned to an earlier state, so that the attempt does not count.
    pub discarded: bool,
    /// Whether it continued an earlier session.
    pub continues: bool,
    /// The usage of the attempt.
    pub usage: UsageTotal,
    /// The number of denied permission requests.
    pub denied: u32,
    /// Whether the turn made no progress: no tool ran in it and nothing changed.
    pub no_progress: bool,
    /// The number of its leftovers, which were ended.
    pub leftovers: u32,
    /// The number of leftovers that could not be ended.
    pub survivors: u32,
    /// The results of the required checks and the check, in order.
    pub commands: Vec<CommandRun>,
    /// The commit with its work, if the run commits and the commit is known.
    pub commit: Option<String>,
}

/// One execution of a required check or the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRun {
    /// The command.
    pub command: loop_state::LoopCommand,
    /// The time of its start.
    pub began: Timestamp,
    /// The time of its end.
    pub ended: Timestamp,
    /// Its result, with the end of its output if that is stored.
    pub result: CheckResult,
    /// The number of bytes that this timeline leaves out of that output.
    pub left_out: usize,
    /// Whether it ran after a resume, to find out whether an unfinished attempt had done its work.
    pub is_recheck: bool,
}

/// Time in which the run waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitSpan {
    /// The kind of the wait.
    pub cause: WaitedFor,
    /// The beginning of the wait.
    pub began: Timestamp,
    /// The planned end of the wait, if it was known.
    pub until: Option<Timestamp>,
    /// The end of the wait; `None` during the wait.
    pub ended: Option<Timestamp>,
    /// The agent's message, if it caused the wait.
    pub message: Option<String>,
}

/// The kind of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitedFor {
    /// The pause before the next iteration.
    Sleep,
    /// The end of a rate limit.
    RateLimit,
    /// The pause before a retry.
    Retry,
    /// A person who resumes a paused run.
    Pause,
    /// A person's review of a phase or a batch.
    Review(ReviewPoint),
    /// A person's next step after an interrupt.
    Interrupt,
}

/// A process that worked on the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunProcess {
    /// The number of the process, from 1.
    pub number: u32,
    /// The time at which it took over the run.
    pub began: Timestamp,
    /// The time of its end; if it died, the last known time.
    pub ended: Option<Timestamp>,
    /// How its work on the run ended.
    pub end: ProcessEnd,
    /// The iteration that it returned to, if any.
    pub from: Option<u32>,
    /// The run's previous agent, if this process uses another one.
    pub predecessor: Option<String>,
}

/// How a process ended its work on a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// The process still works on the run.
    Live,
    /// It died.
    Died,
    /// The run ended or stopped in the process, for this reason.
    Ended(String),
}

/// A person's message to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SteerRecord {
    /// The number of the message.
    pub id: u32,
    /// The time at which it was sent.
    pub at: Timestamp,
    /// Its text; the first 4 KiB.
    pub text: String,
    /// Its progress.
    pub state: SteerState,
    /// The time of that progress.
    pub state_at: Timestamp,
}

/// An event at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineEvent {
    /// The time of the event.
    pub at: Timestamp,
    /// The kind of the event.
    pub kind: TimelineEventKind,
}

/// The kind of an event that has no other place in the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimelineEventKind {
    /// A person interrupted the turn.
    Interrupted,
    /// A person continued the run.
    Continued,
    /// A person requested a pause after the iteration.
    Pausing,
    /// A stop was requested.
    Stopping(StopRequest),
    /// A person requested a redo.
    Redone(RedoScope),
    /// A person's decision in a review.
    Reviewed(ReviewDecision),
    /// A rule was changed.
    RuleChanged(RuleChange),
    /// A turn made no progress; the number of such turns in a row.
    NoProgress(u32),
    /// The session that should continue no longer existed.
    SessionLost,
    /// A process continued from an older state than the transcripts show: the saves in between were lost.
    DataLost,
    /// The processes of the run were suspended for this many milliseconds.
    Suspended(u64),
    /// A notification was sent, and acknowledged or not.
    Notified(NotificationRecord),
    /// Somebody returned to an iteration; the records from there on no longer count.
    Discarded {
        /// The index of the phase.
        phase: u32,
        /// The iteration that the run returned to.
        from: u32,
        /// The number of discarded attempts.
        attempts: u32,
    },
}

impl AttemptSpan {
    /// Returns the duration of the attempt; until `now` if it still runs.
    #[must_use]
    pub fn duration(&self, now: Timestamp) -> std::time::Duration {
        let ended = self.ended.or(self.turn_ended);
        ended.unwrap_or(now).since(self.began)
    }

    /// Returns whether the attempt failed or is unfinished.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(
            self.outcome,
            AttemptOutcome::Failed(_) | AttemptOutcome::Unfinished(_)
        )
    }
}

impl Timeline {
    /// Whether an agent of the run reports the messages that it reads. A command doesn't.
    #[must_use]
    pub fn reports_reading(&self) -> bool {
        let mut phases = self.head.settings.phases.iter();
        phases.any(|phase| phase.agent.has_driver())
    }

    /// Returns when the run began.
    #[must_use]
    pub fn began(&self) -> Timestamp {
        self.head.machine.started_at
    }

    /// Returns the time of the last event.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        self.head.machine.last_at
    }

    /// Returns the total active time of the run in milliseconds, in all its processes.
    #[must_use]
    pub fn active_ms(&self) -> u64 {
        let machine = &self.head.machine;
        let last = match machine.end {
            Some(_) => 0,
            None => machine.last_at.since(machine.taken_at).as_millis(),
        };
        machine
            .active_ms
            .saturating_add(u64::try_from(last).unwrap_or(u64::MAX))
    }
}
