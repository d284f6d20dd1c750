//! A worker: executes the decisions of `rlm-fleet` about each delivered run, as the worker of `rlm` does.

use std::time::Duration;

use rlm_fleet::times::HANDOVER;
use rlm_fleet::{
    AppendAnswer, AppendEnd, AppendInput, AppendOutput, Appender, Claim, ClaimInput, ClaimOutput,
    Handover, HandoverInput, HandoverOutput, LastRecord, LeaseClock, LeaseInput, LeaseOutput,
    Moment, ProbeResult, Progress, RecordId, RecordKind, RunEnding,
};

use super::model::{
    ANSWER, Cause, Class, Event, Fault, Hold, Holder, Millis, Phase, Publish, Reader, Reply,
    Request, Stored, Traffic, Tree, World, is_final,
};
use super::store::{RunState, RunStore};

impl<S: RunStore> World<S> {
    /// Asks for runs until each slot has one or waits for one.
    pub(super) fn fill(&mut self, worker: usize) {
        let it = &self.workers[worker];
        let (busy, start) = (it.holds.len() + it.pulls.len(), it.start);
        if it.is_leaving || busy >= self.setup.slots || !it.is_up || !it.is_online {
            return;
        }
        let waits = it.cut_until.max(it.frozen_until);
        if waits > self.now {
            return self.later(waits - self.now, Event::Fill(worker));
        }
        let asks_from = self.workers[worker].asks_from;
        if asks_from > self.clock(worker) {
            return self.at(worker, asks_from, Event::Fill(worker));
        }
        for _ in busy..self.setup.slots {
            self.made_ids += 1;
            let (pull, pulled) = (self.made_ids, self.clock(worker));
            self.workers[worker].pulls.insert(pull);
            let holder = Holder {
                worker,
                start,
                delivery: 0,
            };
            let request = Request::Pull { pull, pulled };
            self.send(holder, request, Traffic::Pull, Class::Once);
            let over = Event::PullOver {
                worker,
                start,
                pull,
            };
            self.later(self.pull_wait() + 1_000, over);
        }
    }

    fn send(&mut self, from: Holder, request: Request<S::Body>, traffic: Traffic, class: Class) {
        if !self.is_connected(from.worker) {
            return;
        }
        self.count(traffic, 1);
        for delay in self.travel(from.worker, class) {
            self.later(delay, Event::Arrives(from, request.clone()));
        }
    }

    /// Lets a worker that holds a delivery take a step.
    pub(super) fn with_hold(&mut self, holder: Holder, step: impl FnOnce(&mut Self, &mut Hold<S>)) {
        let worker = &mut self.workers[holder.worker];
        if !worker.is_up || worker.start != holder.start {
            return;
        }
        let Some(mut hold) = worker.holds.remove(&holder.delivery) else {
            return;
        };
        step(self, &mut hold);
        if hold.is_over && hold.tree.is_none() {
            let run = hold.run;
            drop(hold);
            let listeners = &mut self.server.runs[run].listeners;
            listeners.retain(|it| *it != holder);
            let worker = &mut self.workers[holder.worker];
            if worker.is_leaving && worker.holds.is_empty() {
                return self.exit(holder.worker, 2_000);
            }
            return self.fill(holder.worker);
        }
        let holds = &mut self.workers[holder.worker].holds;
        holds.insert(holder.delivery, hold);
    }

    /// Takes a delivered run.
    pub(super) fn delivered(&mut self, holder: Holder, pull: u64, run: usize, pulled: Moment) {
        let worker = &mut self.workers[holder.worker];
        if !worker.is_up || worker.start != holder.start || !worker.pulls.remove(&pull) {
            return;
        }
        let nothing = LastRecord {
            seq: 0,
            id: RecordId::new(0),
            epoch: 0,
            kind: RecordKind::Unknown,
            stalled: 0,
        };
        let hold = Hold {
            run,
            phase: Phase::Claiming,
            lease: LeaseClock::new(self.setup.lease, pulled),
            lease_wake: Some(pulled),
            is_lost: false,
            claim: Claim::new(),
            handover: None,
            appender: None,
            appenders: 0,
            awaited: None,
            asked: 0,
            pending: None,
            give_up: Moment::default(),
            last: nothing,
            claimed: None,
            store: None,
            state: RunState::default(),
            tree: None,
            is_over: false,
        };
        worker.holds.insert(holder.delivery, Box::new(hold));
        self.with_hold(holder, |world, hold| {
            world.lease_step(holder, hold, LeaseInput::Time);
            if !hold.is_lost {
                let now = world.clock(holder.worker);
                let outputs = hold.claim.step(ClaimInput::Delivered, now);
                world.claim_outputs(holder, hold, outputs);
            }
        });
    }

    /// Handles a message to a worker.
    pub(super) fn answered(&mut self, holder: Holder, reply: Reply) {
        if let Reply::Delivered { pull, run, pulled } = reply {
            return self.delivered(holder, pull, run, pulled);
        }
        self.with_hold(holder, |world, hold| match reply {
            Reply::Delivered { .. } => {}
            Reply::Renewed { sent } => {
                world.lease_step(holder, hold, LeaseInput::Answered { sent });
            }
            Reply::Returned => world.handover_step(holder, hold, HandoverInput::Returned),
            Reply::Last(Reader::Claim(asked), last) => {
                // The answer to an earlier request finds no reader.
                if hold.asked == asked && hold.phase == Phase::Claiming {
                    hold.last = last.unwrap_or(hold.last);
                    let connected = world.workers[holder.worker].connected;
                    world.claim_step(holder, hold, ClaimInput::Last { last, connected });
                }
            }
            Reply::Last(Reader::Appender(appender, call), last) => {
                let answer = AppendAnswer::Last(last);
                world.append_answer(holder, hold, appender, call, answer);
            }
            Reply::Last(Reader::Ending(asked), last) => {
                if hold.asked == asked {
                    world.ending(holder, hold, last);
                }
            }
            Reply::Run => world.rebuild(holder, hold),
            Reply::Published {
                appender,
                call,
                answer,
            } => world.append_answer(holder, hold, appender, call, answer),
            Reply::Probed(result) => {
                world.claim_step(holder, hold, ClaimInput::Probed(result));
            }
            Reply::ProbedBy(to) => {
                if let Some(epoch) = Self::answers_probes(hold) {
                    let class = world.probe_class();
                    let answer = Request::ProbeAnswer { to, epoch };
                    world.send(holder, answer, Traffic::Claim, class);
                }
            }
        });
    }

    /// Passes the time to the lease of a delivery, if the lease still waits for this moment.
    pub(super) fn lease_time(&mut self, holder: Holder, moment: Moment) {
        self.with_hold(holder, |world, hold| {
            if hold.lease_wake == Some(moment) {
                hold.lease_wake = Some(Moment::default());
                world.lease_step(holder, hold, LeaseInput::Time);
            }
        });
    }

    fn lease_step(&mut self, holder: Holder, hold: &mut Hold<S>, input: LeaseInput) {
        if hold.lease_wake.is_none() {
            return;
        }
        let now = self.clock(holder.worker);
        let outputs = hold.lease.step(input, now);
        if hold.is_lost && hold.lease.kill_at().is_some() {
            self.breaks(
                'F',
                format!("a lost lease of run {} is held again", hold.run),
            );
        }
        for output in outputs {
            match output {
                LeaseOutput::Renew { sent } => {
                    let renew = Request::Renew { sent };
                    self.send(holder, renew, Traffic::Renewal, Class::Other);
                }
                LeaseOutput::KillAt(at) => {
                    if let Some(tree) = hold.tree.and_then(|tree| self.trees.get_mut(&tree)) {
                        tree.kill_at = at;
                    }
                }
                LeaseOutput::WakeAt(at) => {
                    if hold.lease_wake != Some(at) {
                        hold.lease_wake = Some(at);
                        self.at(holder.worker, at, Event::LeaseTime(holder, at));
                    }
                }
                LeaseOutput::Lost => self.lost(holder, hold),
            }
        }
    }

    /// Passes the loss of the lease to the other decisions.
    fn lost(&mut self, holder: Holder, hold: &mut Hold<S>) {
        hold.is_lost = true;
        self.kill(hold.tree);
        self.claim_step(holder, hold, ClaimInput::LeaseLost);
        if hold.phase == Phase::Claiming || hold.phase == Phase::Ended {
            self.append_step(holder, hold, AppendInput::GiveUp);
        }
        self.handover_step(holder, hold, HandoverInput::LeaseLost);
        hold.is_over |= hold.phase != Phase::Claiming && hold.tree.is_none();
    }

    /// Lets the claimants of a worker know that the connection is lost.
    pub(super) fn disconnected(&mut self, worker: usize) {
        let it = &self.workers[worker];
        let start = it.start;
        let claims = { it.holds.iter() }.filter(|(_, hold)| hold.phase == Phase::Claiming);
        for delivery in claims.map(|(delivery, _)| *delivery).collect::<Vec<_>>() {
            let holder = Holder {
                worker,
                start,
                delivery,
            };
            self.with_hold(holder, |world, hold| {
                world.claim_step(holder, hold, ClaimInput::Disconnected);
                world.append_step(holder, hold, AppendInput::GiveUp);
            });
        }
    }

    pub(super) fn claim_step(&mut self, holder: Holder, hold: &mut Hold<S>, input: ClaimInput) {
        let outputs = hold.claim.step(input, self.clock(holder.worker));
        self.claim_outputs(holder, hold, outputs);
    }

    fn claim_outputs(&mut self, holder: Holder, hold: &mut Hold<S>, outputs: Vec<ClaimOutput>) {
        for output in outputs {
            match output {
                ClaimOutput::ReadLast => {
                    let read = Request::ReadLast(Reader::Claim(hold.asked + 1));
                    self.ask(holder, hold, read, Class::Other, ANSWER);
                }
                ClaimOutput::Probe { within } => {
                    let class = self.probe_class();
                    let within = within.as_millis() as u64;
                    self.ask(holder, hold, Request::Probe, class, within);
                }
                ClaimOutput::Append { expect, record } => {
                    self.server.runs[hold.run].listeners.push(holder);
                    let (epoch, kind) = (record.epoch, record.kind);
                    let facts = self.new_record(epoch, kind, record.stalled);
                    let within = self.setup.lease;
                    self.append_with(holder, hold, Appender::new(expect, epoch), facts, within);
                }
                ClaimOutput::Own { .. } => {
                    hold.claimed = Some(hold.last);
                    self.judge_own(hold.run, hold.last);
                    hold.phase = Phase::Rebuilding;
                    let records = self.server.runs[hold.run].records.len() as u64;
                    let within = ANSWER + records;
                    self.ask(holder, hold, Request::ReadRun, Class::Other, within);
                }
                ClaimOutput::Acknowledge => {
                    self.send(holder, Request::Acknowledge, Traffic::End, Class::Once);
                    hold.is_over = true;
                }
                ClaimOutput::LeaveAlone => hold.is_over = true,
                ClaimOutput::Return { until } => {
                    self.send(holder, Request::Return, Traffic::Claim, Class::Once);
                    self.workers[holder.worker].asks_from = until;
                    hold.is_over = true;
                }
            }
        }
    }

    /// Sends a request that must be answered in this time.
    fn ask(
        &mut self,
        holder: Holder,
        hold: &mut Hold<S>,
        request: Request<S::Body>,
        class: Class,
        within: Millis,
    ) {
        hold.asked += 1;
        self.send(holder, request, Self::traffic(hold), class);
        self.later(within, Event::NoAnswer(holder, hold.asked));
    }

    fn new_record(&mut self, epoch: u64, kind: RecordKind, stalled: u32) -> LastRecord {
        self.made_ids += 1;
        LastRecord {
            seq: 0,
            id: RecordId::new(u128::from(self.made_ids)),
            epoch,
            kind,
            stalled,
        }
    }

    /// Appends a record with a new appender.
    fn append_with(
        &mut self,
        holder: Holder,
        hold: &mut Hold<S>,
        appender: Appender,
        facts: LastRecord,
        within: Duration,
    ) {
        (hold.appender, hold.appenders) = (Some(appender), hold.appenders + 1);
        self.append(holder, hold, facts, None, within);
    }

    fn append(
        &mut self,
        holder: Holder,
        hold: &mut Hold<S>,
        facts: LastRecord,
        save: Option<(RunState, S::Body)>,
        within: Duration,
    ) {
        hold.give_up = self.clock(holder.worker) + within;
        hold.pending = Some(Stored {
            facts,
            author: holder.delivery,
            save,
        });
        self.append_step(holder, hold, AppendInput::Append(facts.id));
    }

    /// Passes the answer to a call of an appender.
    fn append_answer(
        &mut self,
        holder: Holder,
        hold: &mut Hold<S>,
        appender: u32,
        call: u64,
        answer: AppendAnswer,
    ) {
        if appender == hold.appenders {
            let is_present = hold.awaited == Some((appender, call));
            if is_present {
                hold.awaited = None;
            }
            self.append_step(holder, hold, AppendInput::Answer { call, answer });
        }
    }

    pub(super) fn append_step(&mut self, holder: Holder, hold: &mut Hold<S>, input: AppendInput) {
        let now = self.clock(holder.worker);
        let tree = hold.tree.and_then(|tree| self.trees.get(&tree));
        let is_save = hold.pending.as_ref().is_some_and(|it| it.save.is_some());
        if is_save && tree.is_some_and(|tree| tree.is_dying) {
            // The process of the run was killed.
            return;
        }
        let Some(appender) = &mut hold.appender else {
            return;
        };
        let outputs = appender.step(input, now);
        for output in outputs {
            let is_over = now >= hold.give_up;
            match output {
                AppendOutput::Publish { .. }
                | AppendOutput::ReadLast { .. }
                | AppendOutput::WaitUntil(_)
                    if is_over =>
                {
                    return self.append_step(holder, hold, AppendInput::GiveUp);
                }
                AppendOutput::Publish { call, expect, .. } => {
                    if hold.is_lost && hold.phase != Phase::Working {
                        let run = hold.run;
                        self.breaks(
                            'F',
                            format!("a claimant of run {run} appends without a lease"),
                        );
                    }
                    if let Some(record) = hold.pending.clone() {
                        let (appender, traffic) = (hold.appenders, Self::traffic(hold));
                        let publish = Request::Publish(Publish {
                            appender,
                            call,
                            expect,
                            record,
                        });
                        self.send(holder, publish, traffic, Class::Publish);
                    }
                    self.await_answer(holder, hold, call);
                }
                AppendOutput::ReadLast { call } => {
                    let read = Request::ReadLast(Reader::Appender(hold.appenders, call));
                    self.send(holder, read, Self::traffic(hold), Class::Other);
                    self.await_answer(holder, hold, call);
                }
                AppendOutput::WaitUntil(at) => {
                    let again = Event::AppendTime(holder, hold.appenders);
                    self.at(holder.worker, at, again);
                }
                AppendOutput::Done { id, seq } => {
                    self.judge_done(hold.run, seq, id);
                    if let Some(pending) = &hold.pending {
                        hold.last = LastRecord {
                            seq,
                            ..pending.facts
                        };
                    }
                    self.appended(holder, hold, output);
                }
                AppendOutput::Ended(end) => {
                    if hold.phase != Phase::Ended {
                        self.judge_end(hold.run, holder.delivery, end);
                    }
                    self.appended(holder, hold, output);
                }
                AppendOutput::Busy { .. } => {
                    self.breaks('F', "an appender gets two records at a time".into());
                }
            }
        }
    }

    fn await_answer(&mut self, holder: Holder, hold: &mut Hold<S>, call: u64) {
        let call = (hold.appenders, call);
        hold.awaited = Some(call);
        self.later(ANSWER, Event::NoAppendAnswer(holder, call.0, call.1));
    }

    /// The answer to a call of an appender did not arrive in time.
    pub(super) fn no_append_answer(&mut self, holder: Holder, appender: u32, call: u64) {
        self.with_hold(holder, |world, hold| {
            // A publish takes no failed read, and a read no missing answer.
            for answer in [AppendAnswer::NoAnswer, AppendAnswer::ReadFailed] {
                if hold.awaited == Some((appender, call)) {
                    world.append_step(holder, hold, AppendInput::Answer { call, answer });
                }
            }
        });
    }

    /// The answer to another request did not arrive in time.
    pub(super) fn no_answer(&mut self, holder: Holder, asked: u32) {
        self.with_hold(holder, |world, hold| match hold.phase {
            _ if hold.asked != asked || hold.is_over => {}
            Phase::Claiming => {
                world.claim_step(holder, hold, ClaimInput::ReadFailed);
                world.claim_step(holder, hold, ClaimInput::Probed(ProbeResult::NoAnswer));
            }
            Phase::Rebuilding => hold.is_over = true,
            Phase::Ended if hold.appender.is_none() => world.read_ending(holder, hold),
            Phase::Working | Phase::Ended => {}
        });
    }

    /// A record was appended, or its appender ended.
    fn appended(&mut self, holder: Holder, hold: &mut Hold<S>, output: AppendOutput) {
        match hold.phase {
            Phase::Claiming => self.claim_step(holder, hold, ClaimInput::Append(output)),
            Phase::Ended => self.handover_step(holder, hold, HandoverInput::Append(output)),
            Phase::Rebuilding => {}
            Phase::Working if hold.pending.as_ref().is_some_and(|it| it.save.is_none()) => {
                // A release before the end of the process: only a sabotage does this.
                self.handover_step(holder, hold, HandoverInput::Append(output));
            }
            Phase::Working => match output {
                AppendOutput::Done { .. } => self.saved(holder, hold),
                AppendOutput::Ended(end) => self.refused(holder, hold, end),
                _ => {}
            },
        }
    }

    /// Makes the store of a claimed run, and starts its process.
    fn rebuild(&mut self, holder: Holder, hold: &mut Hold<S>) {
        let Some(claim) = hold.claimed.filter(|_| hold.phase == Phase::Rebuilding) else {
            return;
        };
        let records = self.server.runs[hold.run].records.iter();
        let saves = records.take_while(|it| it.facts.seq <= claim.seq);
        let saves: Vec<_> = saves.filter_map(|it| it.save.as_ref()).collect();
        let rebuilt = S::rebuild(saves.into_iter());
        let (store, state) = match rebuilt {
            Ok(rebuilt) => rebuilt,
            Err(why) => return self.breaks('A', format!("run {}: {why}", hold.run)),
        };
        self.judge_rebuild(hold.run, state);
        let Some(kill_at) = hold.lease.kill_at() else {
            hold.is_over = true;
            return;
        };
        hold.store = Some(store);
        // An unfinished iteration begins again.
        hold.state = RunState { step: 0, ..state };
        hold.phase = Phase::Working;
        (hold.appender, hold.appenders) = (
            Some(Appender::new(claim.seq, claim.epoch)),
            hold.appenders + 1,
        );
        self.made_trees += 1;
        let tree = self.made_trees;
        hold.tree = Some(tree);
        self.server.runs[hold.run].trees.push(tree);
        let grown = Tree {
            holder,
            run: hold.run,
            kill_at,
            has_agent: false,
            is_dying: false,
        };
        self.trees.insert(tree, grown);
        self.at(holder.worker, kill_at, Event::KillTime(tree));
        self.work(holder, hold);
        if self.workers[holder.worker].is_leaving {
            self.terminate(holder, hold);
        }
    }

    /// Lets the process of a run do the next thing: a save, or an agent.
    fn work(&mut self, holder: Holder, hold: &mut Hold<S>) {
        let (first, rest) = self.setup.saves;
        let step = hold.state.step;
        if step == first {
            let tree = hold.tree.unwrap_or_default();
            if self.trees.get(&tree).is_none_or(|tree| tree.is_dying) {
                return;
            }
            self.judge_start(hold);
            if let Some(tree) = self.trees.get_mut(&tree) {
                tree.has_agent = true;
            }
            if self.setup.is_poison && hold.run == 0 {
                self.later(500, Event::Fault(Fault::Kill(holder.worker, 1_000)));
            }
            let (shortest, longest) = self.setup.agent;
            let time = shortest + self.below(longest - shortest);
            return self.later(time, Event::AgentDone(tree));
        }
        let is_last = step + 1 == first + rest;
        let next = match is_last {
            true => RunState {
                completed: hold.state.completed + 1,
                step: 0,
            },
            false => RunState {
                step: step + 1,
                ..hold.state
            },
        };
        self.save(holder, hold, next);
    }

    fn save(&mut self, holder: Holder, hold: &mut Hold<S>, next: RunState) {
        let Some(store) = &mut hold.store else {
            return;
        };
        let body = match store.save(next) {
            Ok(body) => body,
            Err(why) => return self.breaks('L', format!("run {}: {why}", hold.run)),
        };
        let progress = match next.completed {
            completed if completed == hold.state.completed => Progress::Working,
            completed if completed == self.setup.iterations => Progress::RunEnded,
            _ => Progress::IterationCompleted,
        };
        let kind = RecordKind::Save(progress);
        let facts = self.new_record(hold.last.epoch, kind, kind.stalled(hold.last.stalled));
        self.append(holder, hold, facts, Some((next, body)), self.setup.lease);
    }

    fn saved(&mut self, holder: Holder, hold: &mut Hold<S>) {
        let pending = hold.pending.take();
        let Some((state, _)) = pending.and_then(|pending| pending.save) else {
            return;
        };
        if let Some(Err(why)) = hold.store.as_mut().map(RunStore::saved) {
            self.breaks('L', format!("run {}: {why}", hold.run));
        }
        hold.state = state;
        if self.workers[holder.worker].frozen_until <= self.now {
            self.server.runs[hold.run].orphaned = None;
        }
        match is_final(hold.last.kind) {
            // The process of a run that has ended exits.
            true => self.stops(hold.tree),
            false => self.work(holder, hold),
        }
    }

    fn refused(&mut self, holder: Holder, hold: &mut Hold<S>, end: AppendEnd) {
        let by = match end {
            AppendEnd::Fenced { by } => Some(by),
            _ => None,
        };
        if let Some(Err(why)) = hold.store.as_mut().map(|store| store.refused(by)) {
            self.breaks('F', format!("run {}: {why}", hold.run));
        }
        // The store saves nothing more, and the appender would not either.
        hold.pending = None;
        let facts = self.new_record(hold.last.epoch, RecordKind::Save(Progress::Working), 0);
        let again = AppendInput::Append(facts.id);
        let outputs = { hold.appender.as_mut() }
            .map(|appender| appender.step(again, self.clock(holder.worker)));
        if outputs.is_some_and(|outputs| outputs != [AppendOutput::Ended(end)]) {
            self.breaks(
                'F',
                format!("an ended appender of run {} appends", hold.run),
            );
        }
        self.stops(hold.tree);
    }

    /// The agent of a tree has done its work.
    pub(super) fn agent_done(&mut self, tree: u64) {
        let Some(it) = self.trees.get_mut(&tree).filter(|it| !it.is_dying) else {
            return;
        };
        it.has_agent = false;
        let holder = it.holder;
        self.with_hold(holder, |world, hold| {
            let (first, rest) = world.setup.saves;
            let step = hold.state.step;
            debug_assert_eq!(step, first, "an agent runs between these saves");
            let next = match rest {
                1 => RunState {
                    completed: hold.state.completed + 1,
                    step: 0,
                },
                _ => RunState {
                    step: step + 1,
                    ..hold.state
                },
            };
            world.save(holder, hold, next);
        });
    }

    /// Kills a process tree.
    pub(super) fn kill(&mut self, tree: Option<u64>) {
        let Some(tree) = tree else { return };
        if let Some(it) = self.trees.get_mut(&tree).filter(|it| !it.is_dying) {
            it.is_dying = true;
            let takes = 1 + self.below(self.setup.kill_takes);
            self.later(takes, Event::TreeGone(tree));
        }
    }

    /// The process of a run ends by itself, and its agent before it.
    pub(super) fn stops(&mut self, tree: Option<u64>) {
        let Some(tree) = tree else { return };
        if let Some(it) = self.trees.get_mut(&tree).filter(|it| !it.is_dying) {
            it.is_dying = true;
            self.later(20, Event::TreeGone(tree));
        }
    }

    /// The guard of a tree looks at its deadline.
    pub(super) fn kill_time(&mut self, tree: u64) {
        let Some(it) = self.trees.get(&tree) else {
            return;
        };
        let (worker, kill_at) = (it.holder.worker, it.kill_at);
        match self.clock(worker) >= kill_at {
            true => self.kill(Some(tree)),
            false => self.at(worker, kill_at, Event::KillTime(tree)),
        }
    }

    pub(super) fn tree_gone(&mut self, tree: u64) {
        if let Some(it) = self.trees.remove(&tree) {
            self.server.runs[it.run].trees.retain(|id| *id != tree);
            self.later(0, Event::NoticeGone(it.holder));
        }
    }

    /// The worker notices that the processes of a run are gone.
    pub(super) fn notice_gone(&mut self, holder: Holder) {
        self.with_hold(holder, |world, hold| {
            (hold.tree, hold.store, hold.pending) = (None, None, None);
            hold.appender = None;
            hold.phase = Phase::Ended;
            match hold.is_lost {
                true => hold.is_over = true,
                false => world.read_ending(holder, hold),
            }
        });
    }

    fn read_ending(&mut self, holder: Holder, hold: &mut Hold<S>) {
        let read = Request::ReadLast(Reader::Ending(hold.asked + 1));
        self.ask(holder, hold, read, Class::Other, ANSWER);
    }

    /// Reads how a gone process left the run.
    fn ending(&mut self, holder: Holder, hold: &mut Hold<S>, last: Option<LastRecord>) {
        if hold.phase != Phase::Ended || hold.is_lost || hold.is_over || hold.appender.is_some() {
            return;
        }
        let own = hold.claimed.map_or(0, |claimed| claimed.epoch);
        let ending = match last {
            Some(last) if last.epoch > own => None,
            Some(last) if is_final(last.kind) => Some((last, RunEnding::Ended)),
            Some(last) => Some((last, RunEnding::Stopped)),
            None => None,
        };
        match (ending, hold.handover.is_some()) {
            (Some((last, ending)), true) => {
                hold.last = last;
                self.handover_step(holder, hold, HandoverInput::RunGone(ending));
            }
            (None, true) => self.handover_step(holder, hold, HandoverInput::LeaseLost),
            (Some((_, RunEnding::Ended)), false) => {
                self.send(holder, Request::Acknowledge, Traffic::End, Class::Once);
                hold.is_over = true;
            }
            (_, false) => hold.is_over = true,
        }
    }

    /// Begins to give a run back.
    pub(super) fn terminate(&mut self, holder: Holder, hold: &mut Hold<S>) {
        if hold.handover.is_none() && hold.tree.is_some() && !hold.is_lost {
            let (handover, outputs) = Handover::begin(self.clock(holder.worker));
            hold.handover = Some(handover);
            self.server.runs[hold.run].orphaned = Some((self.now, Cause::Terminated));
            self.handover_outputs(holder, hold, outputs);
        }
    }

    pub(super) fn handover_step(
        &mut self,
        holder: Holder,
        hold: &mut Hold<S>,
        input: HandoverInput,
    ) {
        let now = self.clock(holder.worker);
        if let Some(handover) = &mut hold.handover {
            let outputs = handover.step(input, now);
            self.handover_outputs(holder, hold, outputs);
        }
    }

    fn handover_outputs(
        &mut self,
        holder: Holder,
        hold: &mut Hold<S>,
        outputs: Vec<HandoverOutput>,
    ) {
        for output in outputs {
            match output {
                HandoverOutput::StopRun { .. } => {
                    let takes = 20 + self.below(2_500);
                    let tree = hold.tree.unwrap_or_default();
                    self.later(takes, Event::TreeStops(tree));
                }
                HandoverOutput::KillRun => self.kill(hold.tree),
                HandoverOutput::WakeAt(at) => {
                    self.at(holder.worker, at, Event::HandoverTime(holder));
                }
                HandoverOutput::AppendRelease => {
                    let (last, kind) = (hold.last, RecordKind::Release);
                    let epoch = hold.claimed.map_or(0, |claimed| claimed.epoch);
                    let facts = self.new_record(epoch, kind, kind.stalled(last.stalled));
                    let appender = Appender::new(last.seq, epoch);
                    self.append_with(holder, hold, appender, facts, HANDOVER);
                }
                HandoverOutput::Return => {
                    // A renewal after the return would prolong the lease of the successor.
                    hold.lease_wake = None;
                    self.send(holder, Request::Return, Traffic::End, Class::Once);
                }
                HandoverOutput::Acknowledge => {
                    self.send(holder, Request::Acknowledge, Traffic::End, Class::Once);
                }
                HandoverOutput::Over => hold.is_over = true,
            }
        }
    }
}
