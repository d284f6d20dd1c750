//! The delivery of a run to a worker, up to its claim: executes the decisions of a [`Claim`].

use std::sync::Arc;
use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{AckKind, Message};
use futures_core::Stream as _;
use rlm_store::RunId;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::clock::now;
use super::error::{Error, Kind};
use super::fleet::Fleet;
use super::journal::{RunJournal, RunRecord};
use super::lease::{Lease, acknowledge};
use super::names::{Pool, run_of};
use super::rebuild::RunParts;
use super::record::StoredRecord;
use crate::append::{AppendOutput, Appender};
use crate::claim::{Claim, ClaimInput, ClaimOutput, ClaimRecord, ProbeResult};
use crate::{FailedClaim, FailureCause, Moment, RecordKind, add_failed};

/// The longest wait of one request for a run.
const LONGEST_PULL: Duration = Duration::from_secs(30);

/// A run that the server delivered to this worker. Dropping it leaves it alone: the server delivers it again when the lease ends.
#[derive(Debug)]
#[must_use = "a dropped delivery waits until its lease ends"]
pub struct Delivery {
    fleet: Fleet,
    run: RunId,
    message: Arc<Message>,
    lease: Duration,
    pulled: Moment,
}

/// The decision about a delivery.
#[derive(Debug)]
pub enum ClaimDecision {
    /// This worker owns the run now.
    Claimed(Box<Claimed>),
    /// The run has ended, is parked, or was parked now because three workers made no progress. The delivery is acknowledged.
    Over,
    /// Another worker owns the run, or the claim failed. The server delivers the run again when the lease ends.
    LeftAlone,
    /// This worker connected a moment ago, so another worker gets the run. This worker should ask for no run before this moment.
    Returned {
        /// When the connection of this worker is old enough.
        until: Moment,
    },
}

/// A run that this worker owns. Dropping it ends the renewals, so that another worker takes the run over when the lease ends.
///
/// While it exists, this worker answers probes. So drop it only after the end of the run's processes.
#[derive(Debug)]
pub struct Claimed {
    pub(super) journal: RunJournal,
    pub(super) message: Arc<Message>,
    pub(super) lease: Lease,
    pub(super) time: Duration,
    pub(super) epoch: u64,
    pub(super) seq: u64,
    /// The name of this worker, for people.
    pub(super) worker: String,
    /// Answers probes until the run's processes are gone.
    _probes: ProbeAnswers,
}

impl Fleet {
    /// Waits for a run of a pool, for at most a quarter of the lease; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the server does not answer.
    ///
    /// # Cancel safety
    /// A run that was delivered at that moment is delivered again when the lease ends.
    pub async fn pull(&self, pool: &Pool) -> Result<Option<Delivery>, Error> {
        let failed = |cause: async_nats::Error| Error::unavailable("ask for a run", cause);
        let (consumer, stream) = (self.names.consumer(pool), self.names.work());
        let found = self.context.get_consumer_from_stream(consumer, stream);
        let found: PullConsumer = found.await.map_err(|e| failed(e.into()))?;
        let pulled = now();
        let lease = found.cached_info().config.ack_wait;
        let wait = (lease / 4).min(LONGEST_PULL);
        let batch = found.batch().max_messages(1).expires(wait).messages();
        let mut batch = Box::pin(batch.await.map_err(|e| failed(e.into()))?);
        let message = std::future::poll_fn(|cx| batch.as_mut().poll_next(cx)).await;
        let Some(message) = message else {
            return Ok(None);
        };
        let message = message.map_err(failed)?;
        let Some(run) = run_of(&message.subject) else {
            return Ok(None);
        };
        // `init` can have changed the lease during the wait.
        let lease = lease.min(self.lease_of(pool).await?);
        Ok(Some(Delivery {
            fleet: self.clone(),
            run,
            message: Arc::new(message),
            lease,
            pulled,
        }))
    }
}

impl Delivery {
    /// Returns the name of the run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Decides about the delivery, and claims the run if it has no owner. `worker` is the name of this worker, for people.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the server does not answer; [`Error::is_newer`] for a run that a newer version saved. The delivery is then left
    /// alone, so that another worker can get it when the lease ends.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the delivery alone. If the claim was stored, another worker takes the run over when the lease ends.
    pub async fn decide(self, worker: &str) -> Result<ClaimDecision, Error> {
        let lease = Lease::begin(&self.fleet, &self.message, self.lease, self.pulled);
        let journal = RunJournal::new(&self.fleet, &self.run).await?;
        let mut state = Claiming {
            claim: Claim::new(),
            delivery: &self,
            journal: &journal,
            worker,
            last: None,
            probes: None,
        };
        let mut connections = self.fleet.connections();
        let mut input = ClaimInput::Delivered;
        let decided = loop {
            let mut outputs = state.claim.step(input, now()).into_iter();
            let Some(output) = outputs.next() else {
                break ClaimOutput::LeaveAlone;
            };
            if is_decided(output) {
                break output;
            }
            input = tokio::select! {
                biased;
                Ok(()) = connections.changed() => ClaimInput::Disconnected,
                () = lease.lost() => ClaimInput::LeaseLost,
                next = state.execute(output) => next?,
            };
        };
        let probes = state.probes.take();
        let is_newer = state
            .last
            .is_some_and(|last| last.facts.kind == RecordKind::Unknown);
        match (decided, probes) {
            (ClaimOutput::Own { epoch, seq }, Some(probes)) => {
                Ok(ClaimDecision::Claimed(Box::new(Claimed {
                    time: self.lease,
                    message: Arc::clone(&self.message),
                    journal,
                    lease,
                    epoch,
                    seq,
                    worker: worker.into(),
                    _probes: probes,
                })))
            }
            (ClaimOutput::Acknowledge, _) => {
                acknowledge(&self.fleet, &self.message, AckKind::Ack).await?;
                Ok(ClaimDecision::Over)
            }
            (ClaimOutput::Return { until }, _) => {
                // A renewal after the return would prolong the lease of the next worker.
                lease.end();
                acknowledge(&self.fleet, &self.message, AckKind::Nak(None)).await?;
                Ok(ClaimDecision::Returned { until })
            }
            (ClaimOutput::LeaveAlone, _) if is_newer => {
                let run = self.run.to_string();
                Err(Kind::Newer { run }.into())
            }
            _ => Ok(ClaimDecision::LeftAlone),
        }
    }
}

fn is_decided(output: ClaimOutput) -> bool {
    matches!(
        output,
        ClaimOutput::Own { .. }
            | ClaimOutput::Acknowledge
            | ClaimOutput::LeaveAlone
            | ClaimOutput::Return { .. }
    )
}

/// A claim while it is decided.
struct Claiming<'a> {
    claim: Claim,
    delivery: &'a Delivery,
    journal: &'a RunJournal,
    worker: &'a str,
    last: Option<StoredRecord>,
    probes: Option<ProbeAnswers>,
}

impl Claiming<'_> {
    /// Executes one output, and returns the next input.
    async fn execute(&mut self, output: ClaimOutput) -> Result<ClaimInput, Error> {
        let fleet = &self.delivery.fleet;
        Ok(match output {
            ClaimOutput::ReadLast => match self.journal.last().await {
                Ok(last) => {
                    self.last = last;
                    ClaimInput::Last {
                        last: self.last.as_ref().map(|last| last.facts),
                        connected: fleet.connected_at(),
                    }
                }
                Err(e) if e.is_unavailable() => ClaimInput::ReadFailed,
                Err(e) => return Err(e),
            },
            ClaimOutput::Probe { within } => {
                ClaimInput::Probed(probe(fleet, &self.delivery.run, within).await?)
            }
            ClaimOutput::Append { expect, record } => {
                ClaimInput::Append(self.append(expect, record).await?)
            }
            // These are decisions, which are not executed here.
            ClaimOutput::Own { .. }
            | ClaimOutput::Acknowledge
            | ClaimOutput::LeaveAlone
            | ClaimOutput::Return { .. } => ClaimInput::LeaseLost,
        })
    }

    async fn append(&mut self, expect: u64, record: ClaimRecord) -> Result<AppendOutput, Error> {
        let ClaimRecord {
            epoch,
            kind,
            stalled,
        } = record;
        // A claimant answers from before its claim can be stored.
        if kind == RecordKind::Claim {
            let answers = ProbeAnswers::begin(&self.delivery.fleet, &self.delivery.run, epoch);
            self.probes = Some(answers.await?);
        }
        let mut new = match &self.last {
            Some(last) => RunRecord::after(last, epoch, kind, stalled),
            None => RunRecord::new(epoch, kind, stalled),
        };
        new.meta.worker = Some(self.worker.into());
        if let Some(last) = &self.last {
            new.meta.set_failed(&failed_before(last));
        }
        let id = new.id;
        let mut appender = Appender::new(expect, epoch);
        let until = now() + self.delivery.lease;
        let appended = self.journal.append(&mut appender, new, until).await;
        Ok(match appended {
            Ok(seq) => AppendOutput::Done { id, seq },
            Err(end) => AppendOutput::Ended(end),
        })
    }
}

impl Claimed {
    /// Returns the name of the run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.journal.run
    }

    /// Returns the epoch of the claim.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the sequence number of the claim in the stream.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the lease.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.time
    }

    /// Returns the moment by which the processes of the run must be killed; `None` once the lease is lost.
    #[must_use]
    pub fn kill_at(&self) -> Option<Moment> {
        self.lease.kill_at()
    }

    /// Reads the parts of the run. The renewals continue meanwhile.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the server does not answer; another error if a record is missing, damaged or newer than this program.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn parts(&self) -> Result<RunParts, Error> {
        self.journal.parts(self.seq).await
    }
}

/// Returns the failed claims of a run with this last record. The newest claim is among them if its owner never gave the run back.
fn failed_before(last: &StoredRecord) -> Vec<FailedClaim> {
    let mut failed = last.failed.clone();
    let is_counted = last.facts.stalled > 0;
    if is_counted && matches!(last.facts.kind, RecordKind::Claim | RecordKind::Save(_)) {
        let (epoch, worker) = (last.facts.epoch, last.worker().unwrap_or_default());
        let cause = FailureCause::NoAnswer;
        add_failed(
            &mut failed,
            FailedClaim::new(epoch, worker, last.stored_at, cause, ""),
        );
    }
    failed
}

/// The message to the owner of a run, and its answer.
#[derive(Serialize, Deserialize)]
struct ProbeMessage {
    v: u32,
    epoch: u64,
}

/// Asks the owner of a run whether it is alive.
async fn probe(fleet: &Fleet, run: &RunId, within: Duration) -> Result<ProbeResult, Error> {
    let subject = fleet.names.control(run)?;
    let request = Request::new().timeout(Some(within)).payload("{}".into());
    Ok(match fleet.client.send_request(subject, request).await {
        Ok(answer) => {
            // An owner of a newer version may answer in another form.
            let known = serde_json::from_slice::<ProbeMessage>(&answer.payload);
            let epoch = known.map_or(0, |message| message.epoch);
            ProbeResult::Owner { epoch }
        }
        Err(e) if e.kind() == RequestErrorKind::NoResponders => ProbeResult::NoResponders,
        Err(_) => ProbeResult::NoAnswer,
    })
}

/// Answers the probes of other workers until it is dropped.
#[derive(Debug)]
pub(super) struct ProbeAnswers {
    task: JoinHandle<()>,
}

impl ProbeAnswers {
    async fn begin(fleet: &Fleet, run: &RunId, epoch: u64) -> Result<Self, Error> {
        let subject = fleet.names.control(run)?;
        let listening = fleet.client.subscribe(subject).await;
        let probes = listening.map_err(|e| Error::unavailable("listen for probes", e))?;
        let client = fleet.client.clone();
        let task = tokio::spawn(async move {
            let mut probes = Box::pin(probes);
            let answer = serde_json::to_vec(&ProbeMessage { v: 1, epoch });
            let answer = bytes::Bytes::from(answer.unwrap_or_default());
            while let Some(probe) = std::future::poll_fn(|cx| probes.as_mut().poll_next(cx)).await {
                if let Some(to) = probe.reply {
                    // An answer that is lost looks like a dead owner, and the fence holds then.
                    let _sent = client.publish(to, answer.clone()).await;
                }
            }
        });
        Ok(Self { task })
    }
}

impl Drop for ProbeAnswers {
    fn drop(&mut self) {
        self.task.abort();
    }
}
