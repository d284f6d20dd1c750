//! The work on a claimed run: one process, its kill time, its end, and the hand-over. Executes the decisions of a [`Handover`].

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use async_nats::jetstream::AckKind;

use super::claim::Claimed;
use super::clock::{now, wall_clock_millis};
use super::journal::RunRecord;
use super::lease::acknowledge;
use super::record::StoredRecord;
use crate::append::{AppendOutput, Appender};
use crate::handover::{Handover, HandoverInput, HandoverOutput, RunEnding};
use crate::times::HANDOVER;
use crate::{FailedClaim, FailureCause, Moment, RecordKind, add_failed, give_back};

/// The interval between two tries to read the last record after the end of a run's process.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// The process that works on a claimed run, with the process tree of its agent.
pub trait RunProcess: Send {
    /// Sets the time at which the process tree is killed, on the clock of [`now`]. The kill must not depend on this worker, which can
    /// freeze. If the time can't be set, kills the process tree now.
    fn kill_at(&mut self, at: Moment);

    /// Asks the process to stop, with SIGTERM. The run can continue on another worker.
    fn stop(&mut self);

    /// Kills the process tree.
    fn kill(&mut self);

    /// Waits until the process and the process tree of its agent are gone. Must be cancel safe.
    fn gone(&mut self) -> impl Future<Output = ()> + Send;

    /// Returns how the gone process ended, and what it printed last, for people.
    fn last_words(&self) -> String;
}

/// How the work on a claimed run ended. Its processes are gone in each case.
#[derive(Debug)]
pub enum SupervisionEnd {
    /// The run has ended, and its last record says so.
    RunEnded(Box<StoredRecord>),
    /// The run was given back, and another worker can claim it at once.
    HandedOver,
    /// The process ended without an end of the run. The run was given back, and another worker can claim it after a quarter of the lease.
    GivenBack(FailedClaim),
    /// The process ended without an end of the run, as those of the claims before it, so the run is parked.
    Parked(FailedClaim),
    /// The run could not be given back. Another worker takes it over when the lease ends.
    LeftAlone,
    /// The lease was lost, so the process was killed.
    LeaseLost,
    /// Another worker owns the run.
    Fenced {
        /// The epoch of its claim.
        by: u64,
    },
}

impl Claimed {
    /// Works on the run until its process is gone, and then acknowledges the delivery or leaves it alone. When `terminate` completes, gives the run back
    /// within two seconds.
    ///
    /// Keeps the kill time of the process at half of the lease after the newest answered renewal.
    ///
    /// # Cancel safety
    /// Dropping the future drops the process, which must end its process tree then. Another worker takes the run over when the lease ends.
    pub async fn supervise<P: RunProcess>(
        mut self,
        mut process: P,
        terminate: impl Future<Output = ()> + Send,
    ) -> SupervisionEnd {
        match self.lease.kill_at() {
            Some(at) => process.kill_at(at),
            None => process.kill(),
        }
        let mut terminate = Box::pin(terminate);
        let mut handing_over: Option<HandingOver> = None;
        loop {
            let wake = handing_over.as_ref().and_then(|handover| handover.wake);
            let fleet = self.journal.fleet.clone();
            let time = async {
                match wake {
                    Some(at) => fleet.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let input = tokio::select! {
                biased;
                () = process.gone() => {
                    return match handing_over {
                        None => {
                            let words = process.last_words();
                            self.end(&words).await
                        }
                        Some(handover) => self.end_handover(handover).await,
                    };
                }
                kill_at = self.lease.changed() => match kill_at {
                    Some(at) => {
                        process.kill_at(at);
                        continue;
                    }
                    None => {
                        process.kill();
                        process.gone().await;
                        return SupervisionEnd::LeaseLost;
                    }
                },
                () = &mut terminate, if handing_over.is_none() => {
                    let (handover, outputs) = Handover::begin(now());
                    let mut begun = HandingOver { handover, wake: None };
                    begun.command(&mut process, outputs);
                    handing_over = Some(begun);
                    continue;
                }
                () = time => HandoverInput::Time,
            };
            if let Some(handover) = &mut handing_over {
                let outputs = handover.handover.step(input, now());
                handover.command(&mut process, outputs);
            }
        }
    }

    /// Reads how the gone process left the run. Tries until the lease is lost.
    async fn ending(&self) -> Ending {
        while self.lease.kill_at().is_some() && !self.journal.fleet.gate.is_shutdown() {
            match self.journal.last().await {
                Ok(Some(last)) if last.facts.epoch > self.epoch => {
                    return Ending::Fenced {
                        by: last.facts.epoch,
                    };
                }
                Ok(Some(last)) if last.is_over() => return Ending::Over(Box::new(last)),
                Ok(Some(last)) => return Ending::Open(Box::new(last)),
                Err(e) if e.is_unavailable() => {}
                _ => return Ending::Unknown,
            }
            let again = now() + READ_INTERVAL;
            self.journal.fleet.sleep_until(again).await;
        }
        Ending::Unknown
    }

    /// Gives the run back, because this worker could not start its process. `why` is for people.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the run alone, or it was given back.
    pub async fn give_back_unstarted(self, why: &str) -> SupervisionEnd {
        match self.ending().await {
            Ending::Open(last) => self.give_back(&last, FailureCause::Start, why).await,
            ending => self.end_without_process(ending).await,
        }
    }

    async fn end(self, words: &str) -> SupervisionEnd {
        match self.ending().await {
            Ending::Open(last) => {
                // A process saves an attempt before it starts the agent.
                let cause = match last.facts.seq == self.seq {
                    true => FailureCause::Start,
                    false => FailureCause::Process,
                };
                self.give_back(&last, cause, words).await
            }
            ending => self.end_without_process(ending).await,
        }
    }

    async fn end_without_process(self, ending: Ending) -> SupervisionEnd {
        match ending {
            Ending::Over(last) => {
                // If this is lost, the next worker finds the end, and acknowledges it.
                let _lost = self.acknowledge(AckKind::Ack).await;
                SupervisionEnd::RunEnded(last)
            }
            Ending::Fenced { by } => {
                self.lease.fence();
                SupervisionEnd::Fenced { by }
            }
            Ending::Open(_) => SupervisionEnd::LeftAlone,
            Ending::Unknown => SupervisionEnd::LeaseLost,
        }
    }

    /// Gives the run back after a failure, or parks it. Its processes are gone.
    async fn give_back(
        self,
        last: &StoredRecord,
        cause: FailureCause,
        text: &str,
    ) -> SupervisionEnd {
        let at = wall_clock_millis();
        let failure = FailedClaim::new(self.epoch, &self.worker, at, cause, text);
        let mut failed = last.failed.clone();
        add_failed(&mut failed, failure.clone());
        let kind = give_back(&failed, last.facts.stalled);
        let stalled = kind.stalled(last.facts.stalled);
        let mut record = RunRecord::after(last, self.epoch, kind, stalled);
        record.meta.set_failed(&failed);
        let mut appender = Appender::new(last.facts.seq, self.epoch);
        let until = self.lease.kill_at().unwrap_or_else(now);
        if { self.journal.append(&mut appender, record, until).await }.is_err() {
            return SupervisionEnd::LeftAlone;
        }
        if kind == RecordKind::Park {
            // If this is lost, the next worker finds the parked run, and acknowledges it.
            let _lost = self.acknowledge(AckKind::Ack).await;
            return SupervisionEnd::Parked(failure);
        }
        // A renewal after the return would prolong the lease of the successor.
        self.lease.end();
        match self.acknowledge(AckKind::Nak(Some(self.time / 4))).await {
            true => SupervisionEnd::GivenBack(failure),
            false => SupervisionEnd::LeftAlone,
        }
    }

    async fn acknowledge(&self, kind: AckKind) -> bool {
        let sent = acknowledge(&self.journal.fleet, &self.message, kind).await;
        sent.is_ok()
    }

    /// Gives the run back after the end of its process.
    async fn end_handover(self, mut state: HandingOver) -> SupervisionEnd {
        let ending = self.ending().await;
        let input = match &ending {
            Ending::Over(_) => HandoverInput::RunGone(RunEnding::Ended),
            Ending::Open(_) => HandoverInput::RunGone(RunEnding::Stopped),
            Ending::Fenced { .. } | Ending::Unknown => HandoverInput::LeaseLost,
        };
        let mut is_returned = false;
        let mut outputs = VecDeque::from(state.handover.step(input, now()));
        while let Some(output) = outputs.pop_front() {
            let next = match output {
                HandoverOutput::AppendRelease => {
                    HandoverInput::Append(self.append_release(&ending).await)
                }
                HandoverOutput::Return => {
                    // A renewal after the return would prolong the lease of the successor.
                    self.lease.end();
                    is_returned = self.acknowledge(AckKind::Nak(None)).await;
                    match is_returned {
                        true => HandoverInput::Returned,
                        false => HandoverInput::LeaseLost,
                    }
                }
                HandoverOutput::Acknowledge => match self.acknowledge(AckKind::Ack).await {
                    true => HandoverInput::Returned,
                    false => HandoverInput::LeaseLost,
                },
                HandoverOutput::Over
                | HandoverOutput::StopRun { .. }
                | HandoverOutput::KillRun
                | HandoverOutput::WakeAt(_) => continue,
            };
            outputs.extend(state.handover.step(next, now()));
        }
        match ending {
            Ending::Over(last) => SupervisionEnd::RunEnded(last),
            Ending::Fenced { by } => SupervisionEnd::Fenced { by },
            _ if is_returned => SupervisionEnd::HandedOver,
            Ending::Unknown => SupervisionEnd::LeaseLost,
            Ending::Open(_) => SupervisionEnd::LeftAlone,
        }
    }

    async fn append_release(&self, ending: &Ending) -> AppendOutput {
        let Ending::Open(last) = ending else {
            return AppendOutput::Ended(crate::AppendEnd::GaveUp);
        };
        let kind = RecordKind::Release;
        let stalled = kind.stalled(last.facts.stalled);
        let release = RunRecord::after(last, self.epoch, kind, stalled);
        let (id, until) = (release.id, now() + HANDOVER);
        let mut appender = Appender::new(last.facts.seq, self.epoch);
        match self.journal.append(&mut appender, release, until).await {
            Ok(seq) => AppendOutput::Done { id, seq },
            Err(end) => AppendOutput::Ended(end),
        }
    }
}

/// How a gone process left the run.
enum Ending {
    Over(Box<StoredRecord>),
    Open(Box<StoredRecord>),
    Fenced { by: u64 },
    Unknown,
}

/// A hand-over while the process still runs.
struct HandingOver {
    handover: Handover,
    /// When the hand-over needs the time; `None` once it is over.
    wake: Option<Moment>,
}

impl HandingOver {
    fn command(&mut self, process: &mut impl RunProcess, outputs: Vec<HandoverOutput>) {
        self.wake = None;
        for output in outputs {
            match output {
                HandoverOutput::StopRun { .. } => process.stop(),
                HandoverOutput::KillRun => process.kill(),
                HandoverOutput::WakeAt(at) => self.wake = Some(at),
                // The others come only after the end of the process.
                _ => {}
            }
        }
    }
}
