//! Decides what to do about one append at a time, whatever happens to its messages. It is separate because an append is the only proof of ownership.

use std::time::Duration;

use crate::Moment;
use crate::record::{LastRecord, RecordId};
use crate::sabotage::{self, Sabotage};

/// The wait before the second try of an append. Each later wait is twice as long.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// The longest wait between two tries of an append.
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// Appends the records of one claim to a run's stream, each directly after the one before.
///
/// Each publish states the sequence number that the last record of the run must have, so the server refuses it if another worker appended a record.
/// Only a read of that other record fences the appender: a refused publish can also mean that an earlier try was stored and its answer was lost.
/// Repeated tries carry the same id and state the same number, so the server stores a record at most once.
///
/// The first record that the appender stores is the claim itself. After [`AppendOutput::Ended`], the appender publishes nothing more.
///
/// # Examples
///
/// ```
/// use rlm_fleet::{AppendAnswer, AppendInput, AppendOutput, Appender, Moment, RecordId};
///
/// let now = Moment::from_millis(0);
/// let id = RecordId::new(7);
/// let mut appender = Appender::new(41, 1);
/// let publish = AppendOutput::Publish { call: 1, id, expect: 41 };
/// assert_eq!(appender.step(AppendInput::Append(id), now), [publish]);
/// let stored = AppendInput::Answer { call: 1, answer: AppendAnswer::Stored(45) };
/// assert_eq!(appender.step(stored, now), [AppendOutput::Done { id, seq: 45 }]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Appender {
    /// The sequence number of the last record that this worker knows.
    last: u64,
    epoch: u64,
    /// Whether a record of this epoch is in the stream.
    claimed: bool,
    calls: u64,
    state: AppendState,
}

/// The state of an [`Appender`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AppendState {
    Idle,
    Publishing {
        id: RecordId,
        call: u64,
        tries: u32,
    },
    ReadingBack {
        id: RecordId,
        call: u64,
        tries: u32,
    },
    Waiting {
        id: RecordId,
        tries: u32,
        until: Moment,
    },
    Ended(AppendEnd),
}

/// The reason for which an [`Appender`] publishes nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppendEnd {
    /// Another worker appended a record.
    Fenced {
        /// The epoch of that record.
        by: u64,
    },
    /// The stream contradicts what this appender stored before: records are missing, or an unknown record has this appender's epoch.
    Damaged {
        /// The sequence number of the last record in the stream; `None` if the stream has no record of the run.
        found: Option<u64>,
    },
    /// The caller gave up. Whether the record is in the stream is unknown.
    GaveUp,
}

/// An input of an [`Appender`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppendInput {
    /// The worker has a new record.
    Append(RecordId),
    /// A call of an earlier output has this answer. Late and repeated answers have no effect.
    Answer {
        /// The number of the call.
        call: u64,
        /// The answer to the call.
        answer: AppendAnswer,
    },
    /// Time passed.
    Time,
    /// The lease is lost, or the process ends.
    GiveUp,
}

/// The answer to a call of an [`Appender`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppendAnswer {
    /// The server stored the published record with this sequence number.
    Stored(u64),
    /// The last record has another sequence number than the publish stated.
    WrongLast,
    /// The server reports that it stored a record of this id before.
    Duplicate,
    /// The server can't store the record now: it has no leader or no quorum, or returned an unknown error.
    NotReady,
    /// The answer to a publish did not arrive in time.
    NoAnswer,
    /// The leader of the stream returned the last record of the run; `None` if there is no record.
    Last(Option<LastRecord>),
    /// The answer to a read did not arrive in time, or the read failed.
    ReadFailed,
}

/// An action for the caller of an [`Appender`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppendOutput {
    /// Publish the record, and pass the answer.
    Publish {
        /// The number to pass with the answer.
        call: u64,
        /// The id of the record.
        id: RecordId,
        /// The sequence number that the last record of the run must have; 0 if the run must have no record.
        expect: u64,
    },
    /// Read the last record of the run from the leader of the stream, and pass the answer.
    ReadLast {
        /// The number to pass with the answer.
        call: u64,
    },
    /// Pass [`AppendInput::Time`] at this moment.
    WaitUntil(Moment),
    /// The record is in the stream.
    Done {
        /// The id of the record.
        id: RecordId,
        /// The sequence number of the record.
        seq: u64,
    },
    /// The appender publishes nothing more.
    Ended(AppendEnd),
    /// The appender has not finished an earlier record. Append this one after it.
    Busy {
        /// The id of the refused record.
        id: RecordId,
    },
}

impl Appender {
    /// Creates an appender for a claim with this epoch, after the record with the sequence number `last`; 0 if the run has no record.
    #[must_use]
    pub fn new(last: u64, epoch: u64) -> Self {
        Self {
            last,
            epoch,
            claimed: false,
            calls: 0,
            state: AppendState::Idle,
        }
    }

    /// Returns the epoch of the claim.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Takes one input, and returns what the caller must do now, in order.
    #[must_use]
    pub fn step(&mut self, input: AppendInput, now: Moment) -> Vec<AppendOutput> {
        match input {
            AppendInput::Append(id) => self.append(id),
            AppendInput::Answer { call, answer } => self.answer(call, answer, now),
            AppendInput::Time => match self.state {
                AppendState::Waiting { id, tries, until } if now >= until => {
                    vec![self.publish(id, tries)]
                }
                AppendState::Waiting { until, .. } => vec![AppendOutput::WaitUntil(until)],
                _ => Vec::new(),
            },
            AppendInput::GiveUp => match self.state {
                AppendState::Ended(_) => Vec::new(),
                _ => self.end(AppendEnd::GaveUp),
            },
        }
    }

    fn append(&mut self, id: RecordId) -> Vec<AppendOutput> {
        match self.state {
            AppendState::Idle => vec![self.publish(id, 0)],
            AppendState::Ended(_) if sabotage::is_on(Sabotage::AppendAfterFence) => {
                vec![self.publish(id, 0)]
            }
            AppendState::Ended(end) => vec![AppendOutput::Ended(end)],
            _ => vec![AppendOutput::Busy { id }],
        }
    }

    fn answer(&mut self, call: u64, answer: AppendAnswer, now: Moment) -> Vec<AppendOutput> {
        use AppendAnswer as Answer;
        let is_present = |present| call == present || sabotage::is_on(Sabotage::TakeOldAnswers);
        match (self.state, answer) {
            (AppendState::Publishing { call, id, tries }, answer) if is_present(call) => {
                match answer {
                    Answer::Stored(seq) if seq > self.last => self.done(id, seq),
                    Answer::NotReady => self.wait(id, tries, now),
                    Answer::NoAnswer if sabotage::is_on(Sabotage::TrustLostAnswer) => {
                        self.done(id, self.last + 1)
                    }
                    Answer::WrongLast if sabotage::is_on(Sabotage::FenceWithoutReadBack) => {
                        self.end(AppendEnd::Fenced { by: 0 })
                    }
                    Answer::Last(_) | Answer::ReadFailed => Vec::new(),
                    Answer::Stored(_)
                    | Answer::WrongLast
                    | Answer::Duplicate
                    | Answer::NoAnswer => {
                        self.calls += 1;
                        let call = self.calls;
                        self.state = AppendState::ReadingBack { id, call, tries };
                        vec![AppendOutput::ReadLast { call }]
                    }
                }
            }
            (AppendState::ReadingBack { call, id, tries }, answer) if is_present(call) => {
                match answer {
                    Answer::Last(last) => self.compare(id, tries, last, now),
                    Answer::ReadFailed => self.wait(id, tries, now),
                    _ => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }

    /// Compares the last record of the stream with the record that this appender published.
    fn compare(
        &mut self,
        id: RecordId,
        tries: u32,
        last: Option<LastRecord>,
        now: Moment,
    ) -> Vec<AppendOutput> {
        let seq = last.map_or(0, |last| last.seq);
        match last {
            _ if seq == self.last => self.wait(id, tries, now),
            Some(last) if seq > self.last && last.id == id => self.done(id, seq),
            Some(_) if seq > self.last && sabotage::is_on(Sabotage::FollowOtherOwner) => {
                self.last = seq;
                vec![self.publish(id, tries)]
            }
            Some(last) if seq > self.last && !(self.claimed && last.epoch == self.epoch) => {
                self.end(AppendEnd::Fenced { by: last.epoch })
            }
            _ => self.end(AppendEnd::Damaged {
                found: last.map(|last| last.seq),
            }),
        }
    }

    fn publish(&mut self, id: RecordId, tries: u32) -> AppendOutput {
        self.calls += 1;
        let (call, tries) = (self.calls, tries.saturating_add(1));
        self.state = AppendState::Publishing { id, call, tries };
        AppendOutput::Publish {
            call,
            id,
            expect: self.last,
        }
    }

    /// Waits before the next publish. The record can be in the stream already; then the server refuses that publish.
    fn wait(&mut self, id: RecordId, tries: u32, now: Moment) -> Vec<AppendOutput> {
        let doublings = tries.saturating_sub(1).min(16);
        let until = now + (FIRST_RETRY * 2_u32.pow(doublings)).min(LONGEST_RETRY);
        self.state = AppendState::Waiting { id, tries, until };
        vec![AppendOutput::WaitUntil(until)]
    }

    fn done(&mut self, id: RecordId, seq: u64) -> Vec<AppendOutput> {
        self.last = seq;
        self.claimed = true;
        self.state = AppendState::Idle;
        vec![AppendOutput::Done { id, seq }]
    }

    fn end(&mut self, end: AppendEnd) -> Vec<AppendOutput> {
        self.state = AppendState::Ended(end);
        vec![AppendOutput::Ended(end)]
    }
}
