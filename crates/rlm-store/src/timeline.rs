//! What happened in a run, in order, as its journal tells it.
//!
//! The journal keeps every event of a run, through compaction, seals and moves; [`Project::timeline`](crate::Project::timeline) folds them through the machine again and notes
//! what came of each. So a timeline is right wherever the saved state is: after a hard kill, after a resume that went back, after a damage that
//! cost the newest saves, and while the run is at work. It is as of one save: what was not saved yet is not in it.
//!
//! A fold needs the state that the first event met. It is made from the rules that the run has, or from those that it began with where they were
//! changed. Where damage cost some of that, the timeline begins with the oldest state that is kept, or is not exact, and says so in
//! [`Timeline::unknown`].
//!
//! # Limits
//!
//! Its size grows with the number of attempts. Of what gates, checks and failures printed it holds 4 MiB at most; of the oldest ones the last
//! 400 bytes each.

use loop_state::{
    Again, CheckResult, Evidence, Occasion, RuleChange, SteerState, StopRequest, Timestamp, Usage,
    Verdict,
};

use crate::{Fate, RunHead, RunState};

mod fold;
mod read;
#[cfg(test)]
mod tests;

/// What happened in a run up to its newest save.
#[derive(Debug)]
pub struct Timeline {
    /// What is saved of the run: what it was asked to do, its totals, and its end.
    pub head: RunHead,
    /// Where it stands.
    pub state: RunState,
    /// The phases that were begun, in order. One that was begun again is there again.
    pub phases: Vec<Phase>,
    /// The attempts, in order.
    pub attempts: Vec<Attempt>,
    /// What was waited for, in order.
    pub waits: Vec<Wait>,
    /// The processes that had the run, in order.
    pub processes: Vec<Process>,
    /// What people said.
    pub steers: Vec<Steer>,
    /// What else happened.
    pub moments: Vec<Moment>,
    /// What is not known of it, and what was damaged, a line each.
    pub unknown: Vec<String>,
}

/// One phase, from its first attempt on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// When its first attempt began.
    pub began: Timestamp,
    /// When it was over; `None` if it is not.
    pub ended: Option<Timestamp>,
    /// How many iterations it took, once it is over.
    pub iterations: u32,
    /// The proof that it is done; `None` when all its planned iterations were made, or it is not over.
    pub evidence: Option<Evidence>,
    /// What its agent said last, once it is over.
    pub result: Option<String>,
    /// What its attempts used.
    pub usage: Usage,
    /// Whether it was begun again, so that it does not count.
    pub discarded: bool,
}

/// One attempt of an iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The index of its phase.
    pub phase: u32,
    /// The iteration's number within its phase, from 1.
    pub iteration: u32,
    /// Its number.
    pub attempt: u32,
    /// The number of the process that began it, from 1.
    pub process: u32,
    /// When it began.
    pub began: Timestamp,
    /// When its turn was over; of one whose process died, the last that is known of it.
    pub turn_ended: Option<Timestamp>,
    /// When it was known what became of it.
    pub ended: Option<Timestamp>,
    /// What became of it.
    pub fate: Fate,
    /// Whether somebody went back behind it, so that it does not count.
    pub discarded: bool,
    /// Whether it went on in an earlier session.
    pub continues: bool,
    /// What it used.
    pub usage: Usage,
    /// How often its agent asked for something and was denied it.
    pub denied: u32,
    /// Whether no tool ran in it and nothing changed.
    pub idle: bool,
    /// How many processes it had left running, which were ended.
    pub leftovers: u32,
    /// How many of them could not be ended.
    pub survivors: u32,
    /// The gates and the check that judged it, in order.
    pub commands: Vec<Command>,
    /// The commit that has its work, if the run commits and it is known.
    pub commit: Option<String>,
}

/// A gate or the check, run once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Which one.
    pub command: loop_state::Command,
    /// When it began.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// How it ended, with the tail of what it printed if that is kept.
    pub result: CheckResult,
    /// How many bytes of that tail were left out here.
    pub left_out: usize,
    /// Whether it was run after a resume, to see whether a cut attempt had done its work.
    pub is_recheck: bool,
}

/// Time in which the run waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What for.
    pub why: WaitFor,
    /// Since when.
    pub began: Timestamp,
    /// Until when it was to last, if that was known.
    pub until: Option<Timestamp>,
    /// When it was over; `None` while it lasts.
    pub ended: Option<Timestamp>,
    /// What the agent said, if that was the reason.
    pub what: Option<String>,
}

/// What a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitFor {
    /// The next iteration.
    Sleep,
    /// The end of a rate limit.
    Limit,
    /// Another try.
    Retry,
    /// A person who lets a paused run go on.
    Pause,
    /// A person's word on a phase or a batch.
    Review(Occasion),
    /// A person's word after an interrupt.
    Interrupt,
}

/// A process that had the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number, from 1.
    pub number: u32,
    /// When it took the run.
    pub began: Timestamp,
    /// When it was done with it; of one that died, the last that is known of it.
    pub ended: Option<Timestamp>,
    /// How it was done with it.
    pub end: ProcessEnd,
    /// The iteration that it was told to go back to.
    pub from: Option<u32>,
    /// The agent that the run had before, if it took another one along.
    pub predecessor: Option<String>,
}

/// How a process was done with a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It has it still.
    Live,
    /// It died.
    Died,
    /// The run came to this end in it, in words.
    Ended(String),
}

/// A person's message into the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steer {
    /// Its number.
    pub id: u32,
    /// When it was said.
    pub at: Timestamp,
    /// What it says; the first 4 KiB.
    pub text: String,
    /// How far it came.
    pub state: SteerState,
    /// When it came that far.
    pub state_at: Timestamp,
}

/// Something that happened at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: What,
}

/// What can happen at one moment, beside what has a place of its own in the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A person interrupted the turn.
    Interrupted,
    /// A person let the run go on.
    Continued,
    /// A person wanted it to pause after the iteration.
    Pausing,
    /// It was asked to stop.
    Stopping(StopRequest),
    /// A person wanted something done again.
    Again(Again),
    /// A person looked at what was done and said this.
    Reviewed(Verdict),
    /// A rule was changed.
    RuleSet(RuleChange),
    /// A turn did nothing that could be seen; so did this many in a row.
    NothingDone(u32),
    /// The session that was to be gone on with was not there any more.
    SessionLost,
    /// A process took the run up in an older state than its transcripts tell of: what was saved in between was lost.
    StateLost,
    /// The processes of the run stood still for this many milliseconds.
    StoodStill(u64),
    /// Somebody went back to an iteration; what was recorded from there on does not count any more.
    Discarded {
        /// The index of the phase.
        phase: u32,
        /// The iteration that was gone back to.
        from: u32,
        /// How many attempts were discarded.
        attempts: u32,
    },
}

impl Attempt {
    /// Returns for how long it was at work, as of `now` if it still is.
    #[must_use]
    pub fn took(&self, now: Timestamp) -> std::time::Duration {
        let ended = self.ended.or(self.turn_ended);
        ended.unwrap_or(now).since(self.began)
    }

    /// Returns whether it went wrong or did not come to its end.
    #[must_use]
    pub fn went_wrong(&self) -> bool {
        matches!(self.fate, Fate::Failed(_) | Fate::Cut(_))
    }
}

impl Timeline {
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

    /// Returns for how many milliseconds the run was active, all its processes together.
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
