//! The faults of workers, machines and connections, and the order of everything that happens.

use rlm_fleet::{AppendInput, HandoverInput, Moment};

use super::model::{Cause, Event, Fault, Holder, Millis, Phase, Reply, World};
use super::store::RunStore;

impl<S: RunStore> World<S> {
    /// Runs the simulation until all runs have ended, a promise is broken, or the time is over.
    pub(super) fn run(&mut self) {
        while self.open > 0 && self.broken.is_none() && self.now <= self.setup.limit {
            match self.next_event() {
                Some(event) => self.take(event),
                None => break,
            }
        }
        if self.broken.is_none() {
            self.judge_all();
        }
    }

    fn take(&mut self, event: Event<S::Body>) {
        if let Some(wait) = self.waits(&event) {
            return self.later(wait, event);
        }
        match event {
            Event::Arrives(from, request) => {
                let nth = usize::try_from(from.delivery).unwrap_or_default();
                let run = nth.checked_sub(1).map(|at| self.server.deliveries[at]);
                self.arrives(from, request, run);
            }
            Event::Answered(to, reply) => {
                // A connection that was lost meanwhile does not deliver. A message that has arrived is read, perhaps later.
                if self.is_connected(to.worker) {
                    self.take(Event::Received(to, reply));
                }
            }
            Event::Received(to, reply) => self.answered(to, reply),
            Event::LeaseTime(holder, moment) => self.lease_time(holder, moment),
            Event::AppendTime(holder, appender) => self.with_hold(holder, |world, hold| {
                if hold.appenders == appender {
                    world.append_step(holder, hold, AppendInput::Time);
                }
            }),
            Event::HandoverTime(holder) => self.with_hold(holder, |world, hold| {
                world.handover_step(holder, hold, HandoverInput::Time);
            }),
            Event::NoAppendAnswer(holder, appender, call) => {
                self.no_append_answer(holder, appender, call);
            }
            Event::NoAnswer(holder, asked) => self.no_answer(holder, asked),
            Event::Fill(worker) => self.fill(worker),
            Event::Disconnected(worker) => self.disconnected(worker),
            Event::PullOver {
                worker,
                start,
                pull,
            } => {
                let it = &mut self.workers[worker];
                if it.is_up && it.start == start && it.pulls.remove(&pull) {
                    self.count(super::model::Traffic::Pull, 1);
                    self.fill(worker);
                }
            }
            Event::AgentDone(tree) => self.agent_done(tree),
            Event::TreeStops(tree) => self.stops(Some(tree)),
            Event::KillTime(tree) => self.kill_time(tree),
            Event::TreeGone(tree) => self.tree_gone(tree),
            Event::NoticeGone(holder) => self.notice_gone(holder),
            Event::LeaseOver { run, delivery } => self.lease_over(run, delivery),
            Event::Fault(fault) => self.fault(fault),
            Event::Start(worker) => {
                let it = &mut self.workers[worker];
                if !it.is_up {
                    (it.is_up, it.is_leaving, it.is_online) = (true, false, false);
                    self.connect(worker);
                }
            }
            Event::Connect(worker) => self.connect(worker),
            Event::ServerUp => self.server_up(),
            Event::Submit(run) => self.submit(run),
        }
    }

    /// Returns how long an event must wait, because a process or its machine takes no steps.
    fn waits(&self, event: &Event<S::Body>) -> Option<Millis> {
        let worker_of = |tree: &u64| self.trees.get(tree).map(|tree| tree.holder.worker);
        let (worker, is_worker) = match event {
            Event::Received(to, reply) => (to.worker, !self.is_of_program(*to, reply)),
            Event::LeaseTime(holder, _)
            | Event::HandoverTime(holder)
            | Event::NoticeGone(holder)
            | Event::NoAnswer(holder, _) => (holder.worker, true),
            Event::AppendTime(holder, _) | Event::NoAppendAnswer(holder, ..) => {
                (holder.worker, !self.is_working(*holder))
            }
            Event::PullOver { worker, .. }
            | Event::Connect(worker)
            | Event::Disconnected(worker)
            | Event::Fill(worker) => (*worker, true),
            Event::AgentDone(tree)
            | Event::TreeStops(tree)
            | Event::KillTime(tree)
            | Event::TreeGone(tree) => (worker_of(tree)?, false),
            _ => return None,
        };
        let it = &self.workers[worker];
        let until = match is_worker {
            true => it.frozen_until.max(it.paused_until),
            false => it.paused_until,
        };
        (it.is_up && until > self.now).then(|| until - self.now)
    }

    fn is_working(&self, holder: Holder) -> bool {
        let worker = &self.workers[holder.worker];
        let hold = worker.holds.get(&holder.delivery);
        worker.start == holder.start && hold.is_some_and(|hold| hold.phase == Phase::Working)
    }

    /// Returns whether a message is for the process of a run, and not for its worker.
    fn is_of_program(&self, to: Holder, reply: &Reply) -> bool {
        use super::model::Reader;
        let is_append = matches!(
            reply,
            Reply::Published { .. } | Reply::Last(Reader::Appender(..), _)
        );
        is_append && self.is_working(to)
    }

    fn connect(&mut self, worker: usize) {
        let it = &self.workers[worker];
        if !it.is_up || it.is_online {
            return;
        }
        if !self.server.is_up || it.cut_until > self.now {
            // A restarted server connects all workers.
            if self.server.is_up {
                let wait = it.cut_until - self.now + self.below(1_000);
                self.later(wait, Event::Connect(worker));
            }
            return;
        }
        let now = self.clock(worker);
        let it = &mut self.workers[worker];
        (it.is_online, it.connected) = (true, now);
        it.pulls.clear();
        self.fill(worker);
    }

    /// Ends the process of a worker. It starts again after this time.
    pub(super) fn exit(&mut self, worker: usize, again: Millis) {
        let it = &mut self.workers[worker];
        let start = it.start;
        (it.is_up, it.is_online, it.start) = (false, false, start + 1);
        (it.frozen_until, it.paused_until, it.cut_until) = (0, 0, 0);
        it.asks_from = Moment::default();
        it.pulls.clear();
        it.holds.clear();
        let is_its = |holder: &Holder| holder.worker == worker && holder.start == start;
        self.server.pulls.retain(|pull| !is_its(&pull.holder));
        self.later(again, Event::Start(worker));
    }

    /// Notes that the owner of each run of a worker has a fault.
    pub(super) fn orphan(&mut self, worker: usize, cause: Cause) {
        let runs: Vec<usize> = { self.workers[worker].holds.values() }
            .filter(|hold| hold.claimed.is_some() && !hold.is_over)
            .map(|hold| hold.run)
            .collect();
        let it = &self.workers[worker];
        let is_well = it.is_online && it.cut_until.max(it.frozen_until) < self.now;
        for run in runs {
            let (now, orphaned) = (self.now, &mut self.server.runs[run].orphaned);
            if is_well || orphaned.is_none() {
                *orphaned = Some((now, cause));
            }
        }
    }

    fn fault(&mut self, fault: Fault) {
        let now = self.now;
        let worker = match fault {
            Fault::Restart(away) => {
                self.measured.faults += 1;
                return self.restart(away);
            }
            Fault::Kill(worker, _)
            | Fault::PowerOff(worker, _)
            | Fault::Freeze(worker, _)
            | Fault::Pause(worker, _)
            | Fault::Cut(worker, _)
            | Fault::Terminate(worker) => worker,
        };
        let it = &self.workers[worker];
        let stands_still = it.frozen_until.max(it.paused_until) > now;
        if !it.is_up || stands_still && !matches!(fault, Fault::Cut(..)) {
            return;
        }
        self.measured.faults += 1;
        let trees: Vec<u64> = { self.trees.iter() }
            .filter(|(_, tree)| tree.holder.worker == worker)
            .map(|(id, _)| *id)
            .collect();
        match fault {
            Fault::Kill(_, again) => {
                self.orphan(worker, Cause::Worker);
                // The guards notice the end of the worker.
                for tree in trees {
                    self.kill(Some(tree));
                }
                self.exit(worker, again);
            }
            Fault::PowerOff(_, again) => {
                self.orphan(worker, Cause::Worker);
                for tree in trees {
                    self.tree_gone(tree);
                }
                self.exit(worker, again);
            }
            Fault::Freeze(_, time) => {
                self.orphan(worker, Cause::Worker);
                self.workers[worker].frozen_until = now + time;
            }
            Fault::Pause(_, time) => {
                self.orphan(worker, Cause::Worker);
                let it = &mut self.workers[worker];
                it.paused_until = now + time;
                it.lag += time;
            }
            Fault::Cut(_, time) => {
                self.orphan(worker, Cause::Worker);
                let it = &mut self.workers[worker];
                it.cut_until = it.cut_until.max(now + time);
                // Two pings without an answer end a connection.
                if time >= 4_000 && it.is_online {
                    it.is_online = false;
                    self.later(0, Event::Disconnected(worker));
                    self.connect(worker);
                }
            }
            Fault::Terminate(_) => {
                let it = &mut self.workers[worker];
                let start = it.start;
                it.is_leaving = true;
                it.pulls.clear();
                let deliveries: Vec<u64> = it.holds.keys().copied().collect();
                // The server notices that nobody waits any more.
                let is_its = |holder: &Holder| holder.worker == worker && holder.start == start;
                self.server.pulls.retain(|pull| !is_its(&pull.holder));
                if deliveries.is_empty() {
                    return self.exit(worker, 2_000);
                }
                for delivery in deliveries {
                    let holder = Holder {
                        worker,
                        start,
                        delivery,
                    };
                    self.with_hold(holder, |world, hold| world.terminate(holder, hold));
                }
            }
            Fault::Restart(_) => {}
        }
    }
}
