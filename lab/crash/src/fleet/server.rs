//! The server: the streams of the runs, the queue whose deliveries are leases, and the probes between workers.

use rlm_fleet::{AppendAnswer, Appender, LastRecord, ProbeResult, RecordId, RecordKind};

use super::model::{
    Cause, Class, Event, Fault, Hold, Holder, MessageFault, Millis, Phase, Publish, Queued, Reader,
    Reply, Request, Stored, Traffic, Waiting, World, is_final,
};
use super::store::RunStore;

/// The records that a server returns to one reader in a second.
const READS: u64 = 3_000;

impl<S: RunStore> World<S> {
    /// Adds a new run.
    pub(super) fn submit(&mut self, run: usize) {
        if !self.server.is_up {
            return self.later(1_000, Event::Submit(run));
        }
        self.server.last_seq += 1;
        let base = LastRecord {
            seq: self.server.last_seq,
            id: RecordId::new(0),
            epoch: 0,
            kind: RecordKind::Base,
            stalled: 0,
        };
        let it = &mut self.server.runs[run];
        it.records.push(Stored {
            facts: base,
            author: 0,
            save: None,
        });
        it.queued = Queued::Available;
        self.measured.records += 1;
        self.server.fresh.push_back(run);
        self.deliver();
    }

    /// Delivers the runs that are available to the workers that wait.
    pub(super) fn deliver(&mut self) {
        if !self.server.is_up {
            return;
        }
        loop {
            let is_old = |it: &Waiting| it.until <= self.now;
            while self.server.pulls.front().is_some_and(is_old) {
                self.server.pulls.pop_front();
            }
            let lease = self.lease();
            let server = &mut self.server;
            let next = [&server.again, &server.fresh]
                .map(|queue| queue.front().copied())
                .into_iter()
                .flatten()
                .next();
            let Some(run) = next else { return };
            let is_available = server.runs[run].queued == Queued::Available;
            if is_available && server.pulls.is_empty() {
                return;
            }
            if server.again.pop_front().is_none() {
                server.fresh.pop_front();
            }
            let Some(pull) = is_available.then(|| server.pulls.pop_front()).flatten() else {
                continue;
            };
            server.deliveries.push(run);
            let delivery = server.deliveries.len() as u64;
            let until = self.now + lease;
            server.runs[run].queued = Queued::Delivered { delivery, until };
            self.later(lease, Event::LeaseOver { run, delivery });
            let to = Holder {
                delivery,
                ..pull.holder
            };
            let reply = Reply::Delivered {
                pull: pull.pull,
                run,
                pulled: pull.pulled,
            };
            self.reply(to, reply, Traffic::Pull, Class::Once);
        }
    }

    pub(super) fn lease(&self) -> Millis {
        self.setup.lease.as_millis() as Millis
    }

    /// Makes a run available that was delivered before.
    pub(super) fn deliver_again(&mut self, run: usize) {
        self.server.runs[run].queued = Queued::Available;
        self.server.again.push_back(run);
        self.deliver();
    }

    /// The end of a lease may have come. A renewal moves it.
    pub(super) fn lease_over(&mut self, run: usize, delivery: u64) {
        match self.server.runs[run].queued {
            Queued::Delivered {
                delivery: present,
                until,
            } if present == delivery && self.server.is_up => match until <= self.now {
                true => self.deliver_again(run),
                false => self.later(until - self.now, Event::LeaseOver { run, delivery }),
            },
            _ => {}
        }
    }

    /// Sends a message to a worker.
    pub(super) fn reply(&mut self, to: Holder, reply: Reply, traffic: Traffic, class: Class) {
        self.count(traffic, 1);
        if self.is_connected(to.worker) {
            for delay in self.travel(to.worker, class) {
                self.later(delay, Event::Answered(to, reply.clone()));
            }
        }
    }

    /// Lets a request of a worker arrive.
    pub(super) fn arrives(&mut self, from: Holder, request: Request<S::Body>, run: Option<usize>) {
        if !self.server.is_up {
            return;
        }
        match (request, run) {
            (Request::Pull { pull, pulled }, _) => {
                self.server.pulls.push_back(Waiting {
                    holder: from,
                    pull,
                    pulled,
                    until: self.now + self.pull_wait(),
                });
                self.deliver();
            }
            (Request::ProbeAnswer { to, epoch }, _) => {
                let owner = Reply::Probed(ProbeResult::Owner { epoch });
                let class = self.probe_class();
                self.reply(to, owner, Traffic::Claim, class);
            }
            (_, None) => {}
            (Request::Renew { sent }, Some(run)) => {
                // The server takes the renewal of an earlier delivery for one of the present delivery.
                let until = self.now + self.lease();
                if let Queued::Delivered { until: present, .. } = &mut self.server.runs[run].queued
                {
                    *present = until;
                }
                let renewed = Reply::Renewed { sent };
                self.reply(from, renewed, Traffic::Renewal, Class::Other);
            }
            (Request::Return, Some(run)) => {
                if matches!(self.server.runs[run].queued, Queued::Delivered { .. }) {
                    self.deliver_again(run);
                }
                self.reply(from, Reply::Returned, Traffic::End, Class::Other);
            }
            (Request::Acknowledge, Some(run)) => self.acknowledge(from, run),
            (Request::ReadLast(reader), Some(run)) => {
                let last = Reply::Last(reader, self.last(run));
                let traffic = match reader {
                    Reader::Claim(_) => Traffic::Claim,
                    Reader::Appender(..) => Traffic::Save,
                    Reader::Ending(_) => Traffic::End,
                };
                self.reply(from, last, traffic, Class::Other);
            }
            (Request::ReadRun, Some(run)) => {
                // A request and an answer for each record; both ends of the last one are counted elsewhere.
                let records = self.server.runs[run].records.len() as u64;
                self.count(Traffic::Rebuild, 2 * records - 2);
                if self.is_connected(from.worker) {
                    for delay in self.travel(from.worker, Class::Other) {
                        let delay = delay + records * 1_000 / READS;
                        self.later(delay, Event::Answered(from, Reply::Run));
                    }
                }
                self.count(Traffic::Rebuild, 1);
            }
            (Request::Publish(publish), Some(run)) => {
                let (appender, call) = (publish.appender, publish.call);
                let traffic = match publish.record.facts.kind {
                    RecordKind::Save(_) => Traffic::Save,
                    RecordKind::Release => Traffic::End,
                    _ => Traffic::Claim,
                };
                let answer = self.published(run, publish);
                let answer = Reply::Published {
                    appender,
                    call,
                    answer,
                };
                self.reply(from, answer, traffic, Class::Other);
            }
            (Request::Probe, Some(run)) => self.probed(from, run),
        }
    }

    pub(super) fn pull_wait(&self) -> Millis {
        (self.lease() / 4).min(30_000)
    }

    /// Probes are certain where the server forgets leases: an owner that is connected answers.
    pub(super) fn probe_class(&self) -> Class {
        let forgets = |(_, fault): &(Millis, Fault)| matches!(fault, Fault::Restart(_));
        let one = self.setup.network.one;
        let is_one = matches!(
            one,
            Some((_, MessageFault::Restart | MessageFault::RestartTwice))
        );
        match is_one || self.setup.faults.iter().any(forgets) {
            true => Class::Certain,
            false => Class::Other,
        }
    }

    fn acknowledge(&mut self, from: Holder, run: usize) {
        let kind = self.last(run).map(|last| last.kind);
        if !kind.is_some_and(is_final) {
            self.breaks('F', "a run that has not ended leaves the queue".into());
        }
        if self.server.runs[run].queued != Queued::Removed {
            self.server.runs[run].queued = Queued::Removed;
            self.open -= 1;
            self.measured.ended_at = self.now;
            match kind {
                Some(RecordKind::Park) => self.measured.parked += 1,
                _ => self.measured.ended += 1,
            }
        }
        self.reply(from, Reply::Returned, Traffic::End, Class::Other);
    }

    fn published(&mut self, run: usize, publish: Publish<S::Body>) -> AppendAnswer {
        let Publish {
            expect, mut record, ..
        } = publish;
        if self.now < self.server.ready_at {
            return AppendAnswer::NotReady;
        }
        let newest = self.server.runs[run].records.iter().rev().take(32);
        if newest.filter(|it| it.facts.id == record.facts.id).count() > 0 && self.below(2) == 0 {
            return AppendAnswer::Duplicate;
        }
        if self.last(run).map_or(0, |last| last.seq) != expect {
            return AppendAnswer::WrongLast;
        }
        self.server.last_seq += 1;
        record.facts.seq = self.server.last_seq;
        self.judge_store(run, &record);
        self.measured.records += 1;
        match record.facts.kind {
            RecordKind::Claim => self.measured.claims += 1,
            RecordKind::Save(_) => self.measured.saves += 1,
            _ => {}
        }
        self.server.runs[run].records.push(record);
        AppendAnswer::Stored(self.server.last_seq)
    }

    /// Passes a probe to the worker that listens for it.
    fn probed(&mut self, from: Holder, run: usize) {
        let listeners = self.server.runs[run].listeners.clone();
        let mut is_known = false;
        for owner in listeners {
            let worker = &self.workers[owner.worker];
            let is_its = worker.is_up && worker.start == owner.start;
            let hold = worker.holds.get(&owner.delivery);
            if !is_its || hold.is_none() || owner == from {
                continue;
            }
            if worker.is_online {
                is_known = true;
                let class = self.probe_class();
                self.reply(owner, Reply::ProbedBy(from), Traffic::Claim, class);
            } else {
                // The server may not know that the connection is gone.
                is_known |= self.below(2) == 0;
            }
        }
        if !is_known {
            let nobody = Reply::Probed(ProbeResult::NoResponders);
            self.reply(from, nobody, Traffic::Claim, Class::Other);
        }
    }

    /// Takes the server away for this time.
    pub(super) fn restart(&mut self, away: Millis) {
        if !self.server.is_up {
            return;
        }
        for worker in 0..self.workers.len() {
            self.orphan(worker, Cause::Server);
        }
        self.server.is_up = false;
        self.server.pulls.clear();
        for worker in &mut self.workers {
            worker.is_online = false;
            worker.pulls.clear();
        }
        for worker in 0..self.workers.len() {
            self.later(0, Event::Disconnected(worker));
        }
        self.later(away, Event::ServerUp);
    }

    /// Starts the server again. It forgets some of the leases.
    pub(super) fn server_up(&mut self) {
        self.server.is_up = true;
        self.server.ready_at = self.now + self.below(300);
        for run in 0..self.server.runs.len() {
            if let Queued::Delivered { delivery, until } = self.server.runs[run].queued {
                match until <= self.now || self.below(2) == 0 {
                    true => self.deliver_again(run),
                    false => self.later(until - self.now, Event::LeaseOver { run, delivery }),
                }
            }
        }
        for worker in 0..self.workers.len() {
            let within = self.below(1_000);
            self.later(within, Event::Connect(worker));
        }
    }

    /// Returns whether a hold answers probes: from the publish of its claim until its process tree is gone.
    pub(super) fn answers_probes(hold: &Hold<S>) -> Option<u64> {
        let claims = hold.phase == Phase::Claiming && hold.appender.is_some();
        match (claims, hold.claimed) {
            (true, _) => hold.appender.as_ref().map(Appender::epoch),
            (false, claimed) => claimed.map(|claimed| claimed.epoch),
        }
    }
}
