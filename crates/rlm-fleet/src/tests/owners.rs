//! Explores two workers with one run and one server: claims, leases, hand-overs, frozen workers, slow clocks and late messages.
//!
//! A worker that takes no more steps is frozen or dead. A message that never arrives is lost.

use std::time::Duration;

use super::explore::{Explored, Step, World, explore};
use crate::sabotage::{self, Sabotage};
use crate::{
    AppendAnswer, AppendInput, AppendOutput, Appender, Claim, ClaimInput, ClaimOutput, Handover,
    HandoverInput, HandoverOutput, LastRecord, LeaseClock, LeaseInput, LeaseOutput, MAX_STALLED,
    Moment, ProbeResult, Progress, RecordId, RecordKind, RunEnding,
};

const ONE_AGENT: &str = "the agents of two owners never run at the same time";
const ONCE: &str = "a record is stored at most once";
const ACKNOWLEDGED: &str = "an acknowledged record is in the stream";
const ONE_OWNER: &str = "no record follows the claim of another owner";
const QUEUED: &str = "a run that has not ended is not removed from the queue";
const POISON: &str = "a run is not claimed after too many stalled claims";
const ENDED: &str = "a run that has ended is not claimed";
const LOSS_IS_FINAL: &str = "a lost lease is never held again";
const SILENT: &str = "a worker that lost its lease appends nothing";

/// One step of the time is one second.
const LEASE: u64 = 4;
const BEGIN: u64 = 4;

/// The faults of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Setup {
    /// Messages and probes are lost, and one clock loses a second. Renewals prolong only a present delivery.
    LostMessages,
    /// The server restarts once in the first second and forgets the lease. Workers are connected again in time. The probes of workers that have a
    /// delivery because of the restart, or had one before, are answered; others can be lost.
    Restart,
    /// As `Restart`, and a claimant returns a delivery that it does not use.
    ReturnUnused,
    /// As `LostMessages`, and a lease counts from the arrival of a delivery.
    CountFromDelivery,
    /// As `Restart`, and an owner that lost its lease doesn't answer probes while its agent is killed.
    SilentWhileKilling,
    /// As `Restart`, and a worker answers no probe before it knows that its claim is stored.
    SilentWhileClaiming,
    /// As `LostMessages`, and a killed agent lives one second longer than the lease allows.
    SlowKill,
    /// As `LostMessages`, without the lost second, and workers get SIGTERM.
    Terminated,
}

impl Setup {
    /// Returns the second with which the exploration ends.
    fn end(self) -> u64 {
        match self {
            Self::LostMessages | Self::CountFromDelivery | Self::SlowKill => BEGIN + 6,
            _ => BEGIN + 5,
        }
    }

    /// Returns the seconds after which a killed agent is gone.
    fn kill_takes(self) -> u64 {
        match self {
            Self::SlowKill => 2,
            _ => 1,
        }
    }

    /// Returns whether a clock can lose a second.
    fn lags(self) -> bool {
        matches!(
            self,
            Self::LostMessages | Self::CountFromDelivery | Self::SlowKill
        )
    }

    fn restarts(self) -> bool {
        matches!(
            self,
            Self::Restart
                | Self::ReturnUnused
                | Self::SilentWhileKilling
                | Self::SilentWhileClaiming
        )
    }
}

/// The message of the run in the queue of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Queued {
    /// `early` if the lease of an owner may not have ended.
    Available {
        early: bool,
    },
    Delivered {
        nth: u8,
        until: u64,
    },
    Removed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Agent {
    Gone,
    Running,
    Dying { until: u64 },
}

/// A request of a worker, or its answer, on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Call {
    Read,
    ReadAnswer(LastRecord),
    ReadBack(u64),
    Probe,
    Publish(Publish),
    PublishAnswer(u64, AppendAnswer),
    Acknowledge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Publish {
    worker: usize,
    call: u64,
    expect: u64,
    record: LastRecord,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Renewal {
    Sent(Moment),
    Answered(Moment),
}

/// A worker that got the run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Holder {
    nth: u8,
    early: bool,
    lease: LeaseClock,
    claim: Claim,
    appender: Option<Appender>,
    /// The kind and the count of stalled claims of the record that is being appended.
    record: Option<(RecordKind, u32)>,
    handover: Option<Handover>,
    owns: bool,
    agent: Agent,
    saved: bool,
    appends: u8,
    call: Option<Call>,
    renewal: Option<Renewal>,
    /// Whether the worker does nothing more about this delivery.
    is_over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    /// A delivery is on its way to the worker, which pulled at this moment.
    Delivery {
        since: Moment,
        nth: u8,
        early: bool,
    },
    Holds(Box<Holder>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Owners {
    setup: Setup,
    now: u64,
    log: Vec<LastRecord>,
    /// The worker that appended each record; `None` for the records before the exploration.
    authors: Vec<Option<usize>>,
    queued: Queued,
    deliveries: u8,
    workers: [Worker; 2],
    /// When each worker connected; `None` while it has no connection.
    connected: [Option<u64>; 2],
    /// The seconds that each clock lost.
    lag: [u64; 2],
    /// A publish of a worker that is dead or lost its lease. It can still arrive.
    late: Option<Publish>,
    restarted_at: Option<u64>,
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerStep {
    Second,
    ClockLosesSecond(usize),
    /// The server delivers the run to a worker that pulled so many seconds ago.
    Deliver(usize, u64),
    Receive(usize),
    LeaseTime(usize),
    RenewalArrives(usize),
    RenewalAnswered(usize),
    CallArrives(usize),
    ProbeIsLost(usize),
    AnswerArrives(usize),
    LatePublishArrives,
    Save(usize, Progress),
    Terminate(usize),
    RunIsGone(usize),
    HandoverTime(usize),
    Restart,
    Connect(usize),
}

impl Owners {
    fn new(setup: Setup, kind: RecordKind, stalled: u32) -> Self {
        let base = LastRecord {
            seq: 1,
            id: RecordId::new(0),
            epoch: 1,
            kind,
            stalled,
        };
        Self {
            setup,
            now: BEGIN,
            log: vec![base],
            authors: vec![None],
            queued: Queued::Available { early: false },
            deliveries: 0,
            workers: [Worker::Idle, Worker::Idle],
            connected: [Some(0), Some(0)],
            lag: [0, 0],
            late: None,
            restarted_at: None,
        }
    }

    fn clock(&self, at: usize) -> Moment {
        Moment::from_millis((self.now - self.lag[at]) * 1000)
    }

    fn last(&self) -> LastRecord {
        self.log[self.log.len() - 1]
    }

    fn holder(&self, at: usize) -> Option<&Holder> {
        match &self.workers[at] {
            Worker::Holds(holder) => Some(holder),
            _ => None,
        }
    }

    /// Lets the present second pass for the agents: those whose deadline is over are killed, whatever their worker does.
    fn enforce_deadlines(&mut self) {
        for at in 0..2 {
            let (now, clock) = (self.now, self.clock(at));
            let Worker::Holds(holder) = &mut self.workers[at] else {
                continue;
            };
            let is_due = holder
                .lease
                .kill_at()
                .is_none_or(|kill_at| clock >= kill_at);
            match holder.agent {
                Agent::Running if is_due => {
                    holder.agent = Agent::Dying {
                        until: now + self.setup.kill_takes(),
                    };
                }
                Agent::Dying { until } if now >= until => holder.agent = Agent::Gone,
                _ => {}
            }
            if holder.is_over && holder.agent == Agent::Gone {
                self.workers[at] = Worker::Idle;
            }
        }
    }

    /// Puts a worker back after a step. If it does nothing more about its delivery, its agent is killed, and its publish can still arrive.
    fn put(&mut self, at: usize, mut holder: Box<Holder>) {
        if holder.is_over {
            if let Some(Call::Publish(publish)) = holder.call.take() {
                self.late = Some(publish);
            }
            holder.renewal = None;
            self.kill(&mut holder);
        }
        self.workers[at] = match holder.is_over && holder.agent == Agent::Gone {
            true => Worker::Idle,
            false => Worker::Holds(holder),
        };
    }

    fn kill(&self, holder: &mut Holder) {
        if holder.agent == Agent::Running {
            holder.agent = Agent::Dying {
                until: self.now + self.setup.kill_takes(),
            };
        }
    }

    /// Passes an input to the lease of a worker.
    fn lease(&mut self, at: usize, holder: &mut Holder, input: LeaseInput, broken: &mut Broken) {
        let was_lost = holder.lease.kill_at().is_none();
        let outputs = holder.lease.step(input, self.clock(at));
        if was_lost && holder.lease.kill_at().is_some() {
            broken.push(LOSS_IS_FINAL);
        }
        for output in outputs {
            match output {
                LeaseOutput::Renew { sent } => holder.renewal = Some(Renewal::Sent(sent)),
                LeaseOutput::Lost => self.lost(at, holder, broken),
                LeaseOutput::KillAt(_) | LeaseOutput::WakeAt(_) => {}
            }
        }
    }

    /// Passes the loss of the lease to the other decisions.
    fn lost(&mut self, at: usize, holder: &mut Holder, broken: &mut Broken) {
        let clock = self.clock(at);
        self.kill(holder);
        holder.is_over |= holder.owns;
        let outputs = holder.claim.step(ClaimInput::LeaseLost, clock);
        self.claim_outputs(at, holder, outputs, broken);
        if let Some(appender) = &mut holder.appender {
            let outputs = appender.step(AppendInput::GiveUp, clock);
            self.append_outputs(at, holder, outputs, broken);
        }
        if let Some(handover) = &mut holder.handover {
            let outputs = handover.step(HandoverInput::LeaseLost, clock);
            self.handover_outputs(at, holder, outputs, broken);
        }
    }

    fn claim_outputs(
        &mut self,
        at: usize,
        holder: &mut Holder,
        outputs: Vec<ClaimOutput>,
        broken: &mut Broken,
    ) {
        for output in outputs {
            match output {
                ClaimOutput::ReadLast => holder.call = Some(Call::Read),
                ClaimOutput::Probe { .. } => holder.call = Some(Call::Probe),
                ClaimOutput::Append { expect, record } => {
                    holder.appender = Some(Appender::new(expect, record.epoch));
                    self.append(at, holder, record.kind, record.stalled, broken);
                }
                ClaimOutput::Own { .. } => {
                    holder.owns = true;
                    holder.agent = Agent::Running;
                }
                ClaimOutput::Acknowledge => holder.call = Some(Call::Acknowledge),
                ClaimOutput::Return { .. } => {
                    holder.is_over = true;
                    // A worker whose lease is lost sends nothing.
                    if holder.lease.kill_at().is_some() {
                        let early = holder.early;
                        self.queued = Queued::Available { early };
                    }
                }
                ClaimOutput::LeaveAlone => {
                    holder.is_over = true;
                    let is_lost = holder.lease.kill_at().is_none();
                    if self.setup == Setup::ReturnUnused && !is_lost {
                        self.queued = Queued::Available { early: false };
                    }
                }
            }
        }
    }

    fn append(
        &mut self,
        at: usize,
        holder: &mut Holder,
        kind: RecordKind,
        stalled: u32,
        broken: &mut Broken,
    ) {
        let clock = self.clock(at);
        let id = RecordId::new(u128::from(holder.nth) * 10 + u128::from(holder.appends));
        holder.appends += 1;
        holder.record = Some((kind, stalled));
        if let Some(appender) = &mut holder.appender {
            let outputs = appender.step(AppendInput::Append(id), clock);
            self.append_outputs(at, holder, outputs, broken);
        }
    }

    fn append_outputs(
        &mut self,
        at: usize,
        holder: &mut Holder,
        outputs: Vec<AppendOutput>,
        broken: &mut Broken,
    ) {
        let clock = self.clock(at);
        for output in outputs {
            let (kind, stalled) = holder.record.unwrap_or((RecordKind::Unknown, 0));
            match output {
                AppendOutput::Publish { call, id, expect } => {
                    if holder.lease.kill_at().is_none() {
                        broken.push(SILENT);
                    }
                    let epoch = holder.appender.as_ref().map_or(0, Appender::epoch);
                    let record = LastRecord {
                        seq: 0,
                        id,
                        epoch,
                        kind,
                        stalled,
                    };
                    holder.call = Some(Call::Publish(Publish {
                        worker: at,
                        call,
                        expect,
                        record,
                    }));
                }
                AppendOutput::ReadLast { call } => holder.call = Some(Call::ReadBack(call)),
                AppendOutput::Done { id, seq } => {
                    if { self.log.iter() }.all(|it| (it.id, it.seq) != (id, seq)) {
                        broken.push(ACKNOWLEDGED);
                    }
                    if !holder.owns {
                        let outputs = holder.claim.step(ClaimInput::Append(output), clock);
                        self.claim_outputs(at, holder, outputs, broken);
                    } else if let Some(handover) = &mut holder.handover {
                        let outputs = handover.step(HandoverInput::Append(output), clock);
                        self.handover_outputs(at, holder, outputs, broken);
                    } else if kind == RecordKind::Save(Progress::RunEnded) {
                        holder.call = Some(Call::Acknowledge);
                    }
                }
                AppendOutput::Ended(_) if !holder.owns => {
                    let outputs = holder.claim.step(ClaimInput::Append(output), clock);
                    self.claim_outputs(at, holder, outputs, broken);
                }
                AppendOutput::Ended(_) => self.lease(at, holder, LeaseInput::Fenced, broken),
                AppendOutput::WaitUntil(_) | AppendOutput::Busy { .. } => {}
            }
        }
    }

    fn handover_outputs(
        &mut self,
        at: usize,
        holder: &mut Holder,
        outputs: Vec<HandoverOutput>,
        broken: &mut Broken,
    ) {
        for output in outputs {
            match output {
                HandoverOutput::KillRun => self.kill(holder),
                HandoverOutput::AppendRelease => {
                    let kind = RecordKind::Release;
                    let stalled = kind.stalled(self.last().stalled);
                    self.append(at, holder, kind, stalled, broken);
                }
                HandoverOutput::Return => {
                    self.queued = Queued::Available { early: false };
                    let clock = self.clock(at);
                    if let Some(handover) = &mut holder.handover {
                        let outputs = handover.step(HandoverInput::Returned, clock);
                        self.handover_outputs(at, holder, outputs, broken);
                    }
                }
                HandoverOutput::Over => holder.is_over = true,
                HandoverOutput::Acknowledge => holder.call = Some(Call::Acknowledge),
                HandoverOutput::StopRun { .. } | HandoverOutput::WakeAt(_) => {}
            }
        }
    }

    /// Lets the server handle a publish, and returns its answer.
    fn store(&mut self, publish: Publish, broken: &mut Broken) -> AppendAnswer {
        let last = self.last();
        if publish.expect != last.seq {
            return AppendAnswer::WrongLast;
        }
        let record = LastRecord {
            seq: last.seq + 1,
            ..publish.record
        };
        if self.log.iter().any(|it| it.id == record.id) {
            broken.push(ONCE);
        }
        let records = self.log.iter().zip(&self.authors);
        let is_older = |(it, author): (&LastRecord, &Option<usize>)| {
            it.epoch > record.epoch || (it.epoch == record.epoch && *author != Some(publish.worker))
        };
        if { records }.any(is_older) {
            broken.push(ONE_OWNER);
        }
        if record.kind == RecordKind::Claim {
            if record.stalled > MAX_STALLED {
                broken.push(POISON);
            }
            if matches!(
                last.kind,
                RecordKind::Park | RecordKind::Save(Progress::RunEnded)
            ) {
                broken.push(ENDED);
            }
        }
        self.log.push(record);
        self.authors.push(Some(publish.worker));
        AppendAnswer::Stored(record.seq)
    }

    /// Lets a request of a worker arrive at the server. `is_lost` means that a probe gets no answer.
    fn call_arrives(&mut self, at: usize, holder: &mut Holder, is_lost: bool, broken: &mut Broken) {
        let clock = self.clock(at);
        match holder.call.take() {
            Some(Call::Read) => holder.call = Some(Call::ReadAnswer(self.last())),
            Some(Call::ReadBack(call)) => {
                let answer = AppendAnswer::Last(Some(self.last()));
                holder.call = Some(Call::PublishAnswer(call, answer));
            }
            Some(Call::Probe) => {
                let other = self.holder(1 - at);
                let answers = |it: &Holder| match self.setup {
                    _ if !it.owns && !it.is_over => {
                        it.appender.is_some() && self.setup != Setup::SilentWhileClaiming
                    }
                    Setup::SilentWhileKilling => it.agent == Agent::Running,
                    _ => it.agent != Agent::Gone,
                };
                let other = other.filter(|it| answers(it) && self.connected[1 - at].is_some());
                let result = match other.and_then(|it| it.appender.as_ref()) {
                    Some(appender) if !is_lost => ProbeResult::Owner {
                        epoch: appender.epoch(),
                    },
                    _ => ProbeResult::NoAnswer,
                };
                let outputs = holder.claim.step(ClaimInput::Probed(result), clock);
                self.claim_outputs(at, holder, outputs, broken);
            }
            Some(Call::Publish(publish)) => {
                let answer = self.store(publish, broken);
                holder.call = Some(Call::PublishAnswer(publish.call, answer));
            }
            Some(Call::Acknowledge) => {
                if !matches!(
                    self.last().kind,
                    RecordKind::Park | RecordKind::Save(Progress::RunEnded)
                ) {
                    broken.push(QUEUED);
                }
                self.queued = Queued::Removed;
                holder.is_over = true;
            }
            answer => holder.call = answer,
        }
    }

    fn answer_arrives(&mut self, at: usize, holder: &mut Holder, broken: &mut Broken) {
        let clock = self.clock(at);
        match holder.call.take() {
            Some(Call::ReadAnswer(last)) => {
                let connected = self.connected[at].unwrap_or(self.now);
                let last = ClaimInput::Last {
                    last: Some(last),
                    connected: Moment::from_millis(connected * 1000),
                };
                let outputs = holder.claim.step(last, clock);
                self.claim_outputs(at, holder, outputs, broken);
            }
            Some(Call::PublishAnswer(call, answer)) => {
                if let Some(appender) = &mut holder.appender {
                    let outputs = appender.step(AppendInput::Answer { call, answer }, clock);
                    self.append_outputs(at, holder, outputs, broken);
                }
            }
            request => holder.call = request,
        }
    }

    fn renewal_arrives(&mut self, holder: &mut Holder) {
        let Some(Renewal::Sent(sent)) = holder.renewal else {
            return;
        };
        if let Queued::Delivered { nth, until } = &mut self.queued {
            // In the worst case, a renewal has no effect after the lease ended, and is answered all the same.
            if self.setup.restarts() || (*nth == holder.nth && *until > self.now) {
                *until = self.now + LEASE;
            }
        }
        holder.renewal = Some(Renewal::Answered(sent));
    }

    /// Returns the steps that are possible now.
    fn possible(&self) -> Vec<OwnerStep> {
        let mut steps = Vec::new();
        let must_connect = |at: usize| {
            let limit = self.restarted_at.map(|restarted| restarted + 2);
            self.connected[at].is_none() && limit.is_some_and(|limit| self.now >= limit)
        };
        if self.now < self.setup.end()
            && self.deliveries > 0
            && !must_connect(0)
            && !must_connect(1)
        {
            steps.push(OwnerStep::Second);
        }
        if self.late.is_some() {
            steps.push(OwnerStep::LatePublishArrives);
        }
        if self.setup.restarts() && self.restarted_at.is_none() && self.now == BEGIN {
            steps.push(OwnerStep::Restart);
        }
        let is_free = match self.queued {
            Queued::Available { .. } => true,
            Queued::Delivered { until, .. } => self.now >= until,
            Queued::Removed => false,
        };
        for at in 0..2 {
            if self.connected[at].is_none() {
                steps.push(OwnerStep::Connect(at));
            }
            let is_connected = self.connected[at].is_some();
            let can_lag = self.lag == [0, 0] && self.holder(at).is_some_and(|it| !it.is_over);
            if can_lag && self.setup.lags() {
                steps.push(OwnerStep::ClockLosesSecond(at));
            }
            match &self.workers[at] {
                // The workers differ only after the first delivery.
                Worker::Idle
                    if is_connected
                        && is_free
                        && self.deliveries < 3
                        && (self.deliveries > 0 || at == 0) =>
                {
                    steps.extend([OwnerStep::Deliver(at, 0), OwnerStep::Deliver(at, 1)]);
                }
                Worker::Delivery { .. } => steps.push(OwnerStep::Receive(at)),
                Worker::Holds(holder) if !holder.is_over => {
                    self.possible_for(at, holder, is_connected, &mut steps);
                }
                _ => {}
            }
        }
        steps
    }

    fn possible_for(
        &self,
        at: usize,
        holder: &Holder,
        is_connected: bool,
        steps: &mut Vec<OwnerStep>,
    ) {
        steps.push(OwnerStep::LeaseTime(at));
        if is_connected {
            steps.extend(holder.renewal.map(|renewal| match renewal {
                Renewal::Sent(_) => OwnerStep::RenewalArrives(at),
                Renewal::Answered(_) => OwnerStep::RenewalAnswered(at),
            }));
            match holder.call {
                Some(Call::ReadAnswer(_) | Call::PublishAnswer(..)) => {
                    steps.push(OwnerStep::AnswerArrives(at));
                }
                Some(Call::Probe) if !holder.early => {
                    steps.extend([OwnerStep::CallArrives(at), OwnerStep::ProbeIsLost(at)]);
                }
                Some(_) => steps.push(OwnerStep::CallArrives(at)),
                None => {}
            }
        }
        let is_free = holder.owns && holder.call.is_none() && holder.agent == Agent::Running;
        if is_free && holder.handover.is_none() {
            if !holder.saved && self.setup == Setup::LostMessages {
                for progress in [Progress::Working, Progress::RunEnded] {
                    steps.push(OwnerStep::Save(at, progress));
                }
            }
            if self.setup == Setup::Terminated {
                steps.push(OwnerStep::Terminate(at));
            }
        }
        if holder.handover.is_some() {
            steps.push(OwnerStep::HandoverTime(at));
            if holder.agent != Agent::Gone {
                steps.push(OwnerStep::RunIsGone(at));
            }
        }
    }

    fn take(&mut self, step: OwnerStep, broken: &mut Broken) {
        match step {
            OwnerStep::Second => {
                self.now += 1;
                self.enforce_deadlines();
            }
            OwnerStep::ClockLosesSecond(at) => self.lag[at] += 1,
            OwnerStep::Deliver(at, seconds) => {
                let early = self.queued == Queued::Available { early: true };
                let since = Moment::from_millis((self.now - self.lag[at] - seconds) * 1000);
                self.deliveries += 1;
                let nth = self.deliveries;
                let until = self.now + LEASE;
                self.queued = Queued::Delivered { nth, until };
                self.workers[at] = Worker::Delivery { since, nth, early };
            }
            OwnerStep::LatePublishArrives => {
                if let Some(publish) = self.late.take() {
                    self.store(publish, broken);
                }
            }
            OwnerStep::Restart => {
                self.restarted_at = Some(self.now);
                self.connected = [None, None];
                if self.queued != Queued::Removed {
                    self.queued = Queued::Available { early: true };
                }
                for worker in &mut self.workers {
                    match worker {
                        Worker::Holds(holder) => holder.early = true,
                        Worker::Delivery { early, .. } => *early = true,
                        Worker::Idle => {}
                    }
                }
                (0..2).for_each(|at| self.disconnect(at, broken));
            }
            OwnerStep::Connect(at) => self.connected[at] = Some(self.now),
            OwnerStep::Receive(at) => self.receive(at, broken),
            OwnerStep::LeaseTime(at)
            | OwnerStep::RenewalArrives(at)
            | OwnerStep::RenewalAnswered(at)
            | OwnerStep::CallArrives(at)
            | OwnerStep::ProbeIsLost(at)
            | OwnerStep::AnswerArrives(at)
            | OwnerStep::Save(at, _)
            | OwnerStep::Terminate(at)
            | OwnerStep::RunIsGone(at)
            | OwnerStep::HandoverTime(at) => {
                let worker = std::mem::replace(&mut self.workers[at], Worker::Idle);
                if let Worker::Holds(mut holder) = worker {
                    self.take_for(at, &mut holder, step, broken);
                    self.put(at, holder);
                }
            }
        }
    }

    /// Lets a claimant know that its connection is lost.
    fn disconnect(&mut self, at: usize, broken: &mut Broken) {
        let worker = std::mem::replace(&mut self.workers[at], Worker::Idle);
        let Worker::Holds(mut holder) = worker else {
            self.workers[at] = worker;
            return;
        };
        if !holder.owns && !holder.is_over {
            let clock = self.clock(at);
            let outputs = holder.claim.step(ClaimInput::Disconnected, clock);
            self.claim_outputs(at, &mut holder, outputs, broken);
            if let Some(appender) = &mut holder.appender {
                let outputs = appender.step(AppendInput::GiveUp, clock);
                self.append_outputs(at, &mut holder, outputs, broken);
            }
        }
        self.put(at, holder);
    }

    fn receive(&mut self, at: usize, broken: &mut Broken) {
        let Worker::Delivery { since, nth, early } = self.workers[at] else {
            return;
        };
        let since = match self.setup {
            Setup::CountFromDelivery => self.clock(at),
            _ => since,
        };
        let mut holder = Box::new(Holder {
            nth,
            early,
            lease: LeaseClock::new(Duration::from_secs(LEASE), since),
            claim: Claim::new(),
            appender: None,
            record: None,
            handover: None,
            owns: false,
            agent: Agent::Gone,
            saved: false,
            appends: 0,
            call: None,
            renewal: None,
            is_over: false,
        });
        self.lease(at, &mut holder, LeaseInput::Time, broken);
        if !holder.is_over && holder.lease.kill_at().is_some() {
            let outputs = holder.claim.step(ClaimInput::Delivered, self.clock(at));
            self.claim_outputs(at, &mut holder, outputs, broken);
        }
        self.put(at, holder);
    }

    /// Lets a worker that holds the run take a step. The worker first passes the time to its lease.
    fn take_for(&mut self, at: usize, holder: &mut Holder, step: OwnerStep, broken: &mut Broken) {
        let clock = self.clock(at);
        match step {
            // The server takes these steps, and the worker may be frozen.
            OwnerStep::RenewalArrives(_) => return self.renewal_arrives(holder),
            OwnerStep::CallArrives(_) if !matches!(holder.call, Some(Call::Probe)) => {
                return self.call_arrives(at, holder, false, broken);
            }
            OwnerStep::RenewalAnswered(_) => {
                if let Some(Renewal::Answered(sent)) = holder.renewal.take() {
                    self.lease(at, holder, LeaseInput::Answered { sent }, broken);
                }
                return;
            }
            _ => self.lease(at, holder, LeaseInput::Time, broken),
        }
        if holder.is_over {
            return;
        }
        match step {
            OwnerStep::CallArrives(_) => self.call_arrives(at, holder, false, broken),
            OwnerStep::ProbeIsLost(_) => self.call_arrives(at, holder, true, broken),
            OwnerStep::AnswerArrives(_) => self.answer_arrives(at, holder, broken),
            OwnerStep::Save(_, progress) => {
                holder.saved = true;
                if progress == Progress::RunEnded {
                    holder.agent = Agent::Gone;
                }
                let kind = RecordKind::Save(progress);
                let stalled = kind.stalled(self.last().stalled);
                self.append(at, holder, kind, stalled, broken);
            }
            OwnerStep::Terminate(_) => {
                let (handover, outputs) = Handover::begin(clock);
                holder.handover = Some(handover);
                self.handover_outputs(at, holder, outputs, broken);
            }
            OwnerStep::HandoverTime(_) | OwnerStep::RunIsGone(_) => {
                let input = match step {
                    OwnerStep::RunIsGone(_) => {
                        holder.agent = Agent::Gone;
                        HandoverInput::RunGone(RunEnding::Stopped)
                    }
                    _ => HandoverInput::Time,
                };
                if let Some(handover) = &mut holder.handover {
                    let outputs = handover.step(input, clock);
                    self.handover_outputs(at, holder, outputs, broken);
                }
            }
            _ => {}
        }
    }
}

type Broken = Vec<&'static str>;

impl World for Owners {
    type What = OwnerStep;

    fn next(&self) -> Vec<Step<Self>> {
        let steps = self.possible().into_iter().map(|what| {
            let (mut after, mut broken) = (self.clone(), Vec::new());
            after.take(what, &mut broken);
            let runs = |at| { after.holder(at) }.is_some_and(|it| it.agent != Agent::Gone);
            if runs(0) && runs(1) {
                broken.push(ONE_AGENT);
            }
            Step {
                what,
                after,
                broken,
            }
        });
        steps.collect()
    }
}

fn explored(setup: Setup, kind: RecordKind, stalled: u32) -> Result<Explored, String> {
    explore(Owners::new(setup, kind, stalled))
}

/// Returns whether the tests have the time of a night: some explorations take a quarter of a minute.
fn is_nightly() -> bool {
    std::env::var("RLM_TEST_EFFORT").is_ok_and(|effort| effort == "nightly")
}

/// The states of the run before an exploration: submitted, claimed by a worker that died, poisoned, parked, and ended.
const STARTS: [(RecordKind, u32); 5] = [
    (RecordKind::Base, 0),
    (RecordKind::Claim, 1),
    (RecordKind::Claim, MAX_STALLED),
    (RecordKind::Park, MAX_STALLED),
    (RecordKind::Save(Progress::RunEnded), 0),
];

#[test]
fn two_workers_never_own_a_run_at_the_same_time() {
    let setups = match is_nightly() {
        true => &[
            (Setup::LostMessages, &STARTS[..]),
            (Setup::Terminated, &STARTS[..]),
            (Setup::Restart, &STARTS[..1]),
        ][..],
        false => &[
            (Setup::LostMessages, &STARTS[..2]),
            (Setup::Terminated, &STARTS[..1]),
        ],
    };
    for &(setup, starts) in setups {
        for &(kind, stalled) in starts {
            match explored(setup, kind, stalled) {
                Ok(found) => println!(
                    "{setup:?}, {kind:?} {stalled}: {} states, {} steps",
                    found.states, found.steps
                ),
                Err(broken) => panic!("{setup:?}, {kind:?} {stalled}: {broken}"),
            }
        }
    }
}

#[test]
fn exploration_finds_each_broken_rule_of_an_owner() {
    let claim = (RecordKind::Base, 0);
    let poison = (RecordKind::Claim, MAX_STALLED);
    let parked = (RecordKind::Park, 0);
    let mistakes = [
        (
            Sabotage::ReviveLease,
            Setup::LostMessages,
            claim,
            LOSS_IS_FINAL,
        ),
        (
            Sabotage::KillAtLeaseEnd,
            Setup::LostMessages,
            claim,
            ONE_AGENT,
        ),
        (
            Sabotage::CountFromAnswer,
            Setup::LostMessages,
            claim,
            ONE_AGENT,
        ),
        (Sabotage::ClaimAfterLoss, Setup::LostMessages, claim, SILENT),
        (
            Sabotage::ReleaseTooEarly,
            Setup::Terminated,
            claim,
            ONE_AGENT,
        ),
        (Sabotage::SkipPoison, Setup::LostMessages, poison, POISON),
        (Sabotage::ClaimEnded, Setup::LostMessages, parked, ENDED),
        (Sabotage::SkipGrace, Setup::Restart, claim, ONE_AGENT),
        (Sabotage::SkipProbe, Setup::Restart, claim, ONE_AGENT),
        (Sabotage::IgnoreOwner, Setup::Restart, claim, ONE_AGENT),
    ];
    let is_explored = |setup| setup != Setup::Restart || is_nightly();
    for (mistake, setup, (kind, stalled), invariant) in mistakes {
        if !is_explored(setup) {
            continue;
        }
        let found = sabotage::with(Some(mistake), || explored(setup, kind, stalled));
        let found = found.expect_err(&format!("{mistake:?}"));
        println!("{mistake:?}: {found}");
        assert!(found.contains(invariant), "{mistake:?}: {found}");
    }
}

#[test]
fn exploration_finds_each_broken_rule_of_a_worker() {
    let mut setups = vec![
        Setup::CountFromDelivery,
        Setup::SlowKill,
        Setup::SilentWhileKilling,
        Setup::SilentWhileClaiming,
    ];
    // It breaks the invariant after more states than the four above together.
    if is_nightly() {
        setups.push(Setup::ReturnUnused);
    }
    for setup in setups {
        let found = explored(setup, RecordKind::Base, 0).expect_err(&format!("{setup:?}"));
        println!("{setup:?}: {found}");
        assert!(found.contains(ONE_AGENT), "{setup:?}: {found}");
    }
}
