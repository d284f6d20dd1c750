//! The storm on one fleet: submits runs, causes the faults, and collects the evidence.

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rlm_tests::{Process, Running, poll_until};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;

use crate::evidence::AgentEvent;
use crate::fleet::{Fleet, WorkerState};
use crate::judge::{Finding, RunResult, judge, judge_lines};
use crate::plan::{Fault, Plan};
use crate::random::Random;

/// The time in which one command or signal has its effect.
const LONG: Duration = Duration::from_secs(60);
/// The longest wait for a moment at which the next fault is possible. After it, other faults go first.
const TURN: Duration = Duration::from_secs(20);
/// The interval between two lists of all runs.
const LIST: Duration = Duration::from_millis(700);
/// More than the time in which an owner must answer another worker.
const PROBE: Duration = Duration::from_secs(3);
/// The longest storm.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// The number of hits without progress after which a run is left alone. A run is parked after three claims without progress.
const MAX_HITS: u32 = 2;
/// The reasons of a run that was hit three times in an iteration: once before the storm saw its agent.
const THREE_HITS: [&str; 2] = [
    "three claims in a row completed no iteration",
    "stuck: 3 crashes in a row",
];
/// The maximum number of times that such a run is resumed.
const MAX_RESUMES: u32 = 5;

/// The number of faults of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FaultCount {
    /// Those that were seen to land.
    pub landed: usize,
    /// Those that hit no run, because it ended at the same time. They don't count.
    pub missed: usize,
}

/// The result of a storm on one fleet.
#[derive(Debug, Clone, Serialize)]
pub struct StormResult {
    /// The number of servers.
    pub servers: usize,
    /// The number of faults, by kind.
    #[serde(serialize_with = "by_name")]
    pub faults: BTreeMap<Fault, FaultCount>,
    /// The number of runs.
    pub runs: usize,
    /// The number of iterations that the branches of all runs have.
    pub iterations: usize,
    /// The number of agents that started.
    pub starts: usize,
    /// The number of workers that ended without a signal of the storm, because a server was away when they started.
    pub restarts: usize,
    /// The number of times that a run ended or was parked after three hits, and was resumed.
    pub resumes: u32,
    /// The milliseconds from each kill to the next agent of the run, if nothing else disturbed it: the next claim started the agent, and no server was
    /// away meanwhile.
    pub takeovers_ms: Vec<u64>,
    /// How long the storm took, in seconds.
    pub took_s: u64,
    /// Whether a signal ended the storm early.
    pub is_interrupted: bool,
    /// The broken promises and the other faults.
    pub findings: Vec<Finding>,
    /// The lines of the agents and the last lines of the workers about the first run with a finding.
    pub evidence: Vec<String>,
}

fn by_name<S: serde::Serializer>(
    faults: &BTreeMap<Fault, FaultCount>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let named = faults.iter().map(|(fault, count)| (fault.name(), count));
    serializer.collect_map(named)
}

/// A run of the storm.
#[derive(Debug, Default)]
struct RunState {
    /// The highest iteration that an agent began.
    iteration: u32,
    /// The worker of the last agent.
    owner: Option<String>,
    /// The number of its claim.
    claim: u32,
    /// The faults since an agent began a new iteration.
    hits: u32,
    has_last_end: bool,
    /// How often it was resumed after three hits.
    resumes: u32,
    /// Its state and whether it ended with exit code 0, once it is over.
    over: Option<(String, bool)>,
}

/// A fault that must still be seen to land.
#[derive(Debug)]
struct Strike {
    fault: Fault,
    at: Instant,
    worker: String,
    /// The runs that the worker had, without those that another worker has by now.
    runs: Vec<String>,
    has_takeover: bool,
}

/// The end of a fault that lasts.
#[derive(Debug)]
enum Undo {
    Continue(String),
    Heal(String),
    StartServer(usize),
}

struct Storm<'a> {
    plan: &'a Plan,
    fleet: Fleet,
    random: Random,
    given_up: &'a AtomicBool,
    left: Vec<Fault>,
    counts: BTreeMap<Fault, FaultCount>,
    strikes: Vec<Strike>,
    undos: Vec<(Instant, Undo)>,
    next: Instant,
    /// The time of the last kill or start of a server.
    server_changed: Instant,
    turn_until: Instant,
    most_hits: u32,
    runs: BTreeMap<String, RunState>,
    submitting: Option<(String, Running)>,
    listing: Option<Running>,
    listed: Instant,
    read: u64,
    events: Vec<AgentEvent>,
    progress: Instant,
    restarts: usize,
    takeovers: Vec<u64>,
    findings: Vec<Finding>,
}

/// Plays the storm of a plan, and judges it. Calls `progress` with the number of landed faults now and then. Ends early once `given_up` is true.
#[must_use]
pub fn run(plan: &Plan, given_up: &AtomicBool, progress: impl Fn(usize)) -> StormResult {
    let begun = Instant::now();
    let fleet = match Fleet::start(plan) {
        Ok(fleet) => fleet,
        Err(why) => return StormResult::of_stalled(plan, why),
    };
    let mut random = Random::new(plan.seed);
    let mut left = plan.order(&mut random);
    left.reverse();
    let mut storm = Storm {
        plan,
        fleet,
        random,
        given_up,
        left,
        counts: plan
            .faults
            .iter()
            .map(|it| (it.0, FaultCount::default()))
            .collect(),
        strikes: Vec::new(),
        undos: Vec::new(),
        next: begun,
        server_changed: begun,
        turn_until: begun + TURN,
        most_hits: 1,
        runs: BTreeMap::new(),
        submitting: None,
        listing: None,
        listed: begun,
        read: 0,
        events: Vec::new(),
        progress: Instant::now(),
        restarts: 0,
        takeovers: Vec::new(),
        findings: Vec::new(),
    };
    for _ in 0..plan.runs {
        storm.fleet.start_worker();
    }
    let over = poll_until(LONGEST, || {
        let is_over = storm.step();
        progress(storm.counts.values().map(|count| count.landed).sum());
        is_over.then_some(())
    });
    if over.is_none() {
        storm.stalled("it took longer than its limit".into());
    }
    storm.finish(begun)
}

impl StormResult {
    fn of_stalled(plan: &Plan, why: String) -> Self {
        Self {
            servers: plan.servers,
            faults: BTreeMap::new(),
            runs: 0,
            iterations: 0,
            starts: 0,
            restarts: 0,
            resumes: 0,
            takeovers_ms: Vec::new(),
            took_s: 0,
            is_interrupted: false,
            findings: vec![Finding::Stalled { why }],
            evidence: Vec::new(),
        }
    }

    /// Returns the number of landed faults of one kind.
    #[must_use]
    pub fn landed(&self, fault: Fault) -> usize {
        self.faults.get(&fault).map_or(0, |count| count.landed)
    }
}

impl Storm<'_> {
    fn stalled(&mut self, why: String) {
        self.findings.push(Finding::Stalled { why });
    }

    /// Does what is due, and returns whether the storm is over.
    fn step(&mut self) -> bool {
        if self.given_up.load(Ordering::Relaxed) {
            return true;
        }
        self.read_events();
        self.undo();
        self.replace_workers();
        self.submit();
        self.list();
        self.settle();
        self.strike();
        if !self.plan.mistakes.is_empty() && self.seen_findings().iter().any(self.plan.ends_at) {
            return true;
        }
        if self.progress.elapsed() > self.plan.patience {
            let open = self.open().map(|(run, state)| format!("{run} {state:?}"));
            let open: Vec<String> = open.collect();
            let why = format!(
                "no agent began or ended for {:?}; open runs: {}",
                self.plan.patience,
                open.join(", ")
            );
            self.stalled(why);
            return true;
        }
        self.left.is_empty()
            && self.strikes.is_empty()
            && self.undos.is_empty()
            && self.submitting.is_none()
            && self.open().next().is_none()
    }

    /// Returns the findings that the lines of the agents show while the runs continue.
    fn seen_findings(&self) -> Vec<Finding> {
        let runs = self.runs.keys();
        runs.flat_map(|run| judge_lines(run, &self.events))
            .collect()
    }

    fn open(&self) -> impl Iterator<Item = (&String, &RunState)> {
        self.runs.iter().filter(|(_, state)| state.over.is_none())
    }

    /// Reads the new lines of the agents.
    fn read_events(&mut self) {
        let Ok(mut file) = fs_err::File::open(self.fleet.sandbox.path().join("agents.log")) else {
            return;
        };
        let mut text = String::new();
        let read = file.seek(SeekFrom::Start(self.read));
        let read = read.and_then(|_| file.read_to_string(&mut text));
        let Some(end) = text.rfind('\n').filter(|_| read.is_ok()) else {
            return;
        };
        self.read += end as u64 + 1;
        self.progress = Instant::now();
        for line in text[..end].lines() {
            match AgentEvent::parse(line) {
                Some(event) => self.event(event),
                None => self.stalled(format!("a line of an agent is damaged: {line:?}")),
            }
        }
    }

    fn event(&mut self, event: AgentEvent) {
        let now = Instant::now();
        if let AgentEvent::Start { run, iteration, .. } = &event {
            let worker = event.worker().unwrap_or_default().to_owned();
            let claim = event.claim().unwrap_or_default();
            let state = self.runs.entry(run.clone()).or_default();
            let is_next = claim == state.claim + 1;
            state.claim = claim;
            if *iteration > state.iteration {
                (state.iteration, state.hits) = (*iteration, 0);
            }
            state.owner = Some(worker.clone());
            for strike in &mut self.strikes {
                if strike.worker == worker || !strike.runs.contains(run) {
                    continue;
                }
                strike.runs.retain(|it| it != run);
                strike.has_takeover = true;
                let is_disturbed = self.server_changed >= strike.at;
                if strike.fault == Fault::KillWorker && is_next && !is_disturbed {
                    let took = now.duration_since(strike.at).as_millis();
                    self.takeovers.push(u64::try_from(took).unwrap_or(u64::MAX));
                }
            }
        }
        if let AgentEvent::End { run, iteration, .. } = &event {
            let state = self.runs.entry(run.clone()).or_default();
            state.has_last_end |= *iteration == self.plan.iterations;
        }
        self.events.push(event);
    }

    /// Ends the faults that lasted long enough.
    fn undo(&mut self) {
        let now = Instant::now();
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.undos)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.undos = later;
        for (_, undo) in due {
            match undo {
                Undo::StartServer(number) => {
                    self.fleet.servers.start_again(&self.fleet.sandbox, number);
                    self.server_changed = now;
                    let servers = &self.fleet.servers;
                    match poll_until(LONG, || servers.is_reachable(number).then_some(())) {
                        Some(()) => self.count(Fault::KillServer, true),
                        None => self.stalled(format!("server {number} did not start again")),
                    }
                }
                Undo::Continue(name) => {
                    let workers = &mut self.fleet.workers;
                    if let Some(worker) = workers.iter_mut().find(|it| it.name == name) {
                        worker.running.signal_unless_reaped(Signal::CONT);
                        worker.state = WorkerState::Up;
                    }
                }
                Undo::Heal(name) => {
                    let workers = &mut self.fleet.workers;
                    if let Some(worker) = workers.iter_mut().find(|it| it.name == name) {
                        worker.proxies.iter().for_each(rlm_tests::nats::Proxy::heal);
                        worker.state = WorkerState::Up;
                    }
                }
            }
        }
    }

    /// Starts a new worker for each one that has ended.
    fn replace_workers(&mut self) {
        let (mut ended, mut alive) = (Vec::new(), Vec::new());
        for mut worker in self.fleet.workers.drain(..) {
            match worker.running.has_ended() {
                true => ended.push(worker),
                false => alive.push(worker),
            }
        }
        self.fleet.workers = alive;
        if !ended.is_empty() {
            // This process is the parent of what they left, and reaps it.
            let _alive = self.fleet.sandbox.survivors().scan();
        }
        for worker in ended {
            let end = worker.running.wait(LONG);
            let is_expected = worker.state == WorkerState::Ending;
            let is_ok = match end.code() {
                // A worker that starts while the server is away ends with 1, and its supervisor starts it again.
                Some(0) => is_expected,
                Some(1) => !is_expected,
                None => is_expected && end.signal() == Some(Signal::KILL.as_raw()),
                _ => false,
            };
            self.restarts += usize::from(!is_expected);
            if !is_ok {
                self.stalled(format!("worker {} ended: {end}", worker.name));
            }
            self.fleet.start_worker();
        }
    }

    /// Submits runs, so that there is work until the last fault has landed.
    fn submit(&mut self) {
        if let Some((_, running)) = &mut self.submitting
            && !running.has_ended()
        {
            return;
        }
        if let Some((run, running)) = self.submitting.take() {
            let end = running.wait(LONG);
            match end.code() {
                // 9: an earlier try stored it, and its answer was lost.
                Some(0 | 9) => {
                    self.runs.entry(run).or_default();
                }
                // The server was away. The next try has the same name.
                Some(1) => {}
                _ => self.stalled(format!("the submit of {run}: {end}")),
            }
        }
        let wants_more = !self.left.is_empty() || !self.strikes.is_empty();
        let is_away = |(_, undo): &(Instant, Undo)| matches!(undo, Undo::StartServer(_));
        if wants_more && !self.undos.iter().any(is_away) && self.open().count() < self.plan.runs {
            let run = format!("r{}", self.runs.len() + 1);
            let running = self.fleet.submit(&run);
            self.submitting = Some((run, running));
        }
    }

    /// Finds out which runs are over.
    fn list(&mut self) {
        if let Some(listing) = &mut self.listing {
            if !listing.has_ended() {
                return;
            }
            if let Some(listing) = self.listing.take() {
                self.take_rows(&listing.wait(LONG).stdout);
            }
            self.listed = Instant::now();
            return;
        }
        let is_due = self.open().any(|(_, state)| state.has_last_end)
            || self.progress.elapsed() > self.plan.patience / 8;
        if is_due && self.listed.elapsed() > LIST {
            self.listing = Some(self.fleet.command(&["ps", "--json"]).spawn());
        }
    }

    fn take_rows(&mut self, rows: &str) {
        for row in rows.lines() {
            let row: Value = serde_json::from_str(row).unwrap_or_default();
            let (run, state) = (row["run"].as_str(), row["state"].as_str());
            let (Some(run), Some(state @ ("ended" | "parked"))) = (run, state) else {
                continue;
            };
            let text = format!("{state}: {}", row["reason"]);
            let is_done = state == "ended" && row["exit_code"] == 0;
            let Some(found) = self.runs.get_mut(run) else {
                continue;
            };
            found.owner = None;
            let is_by_rule = THREE_HITS.iter().any(|reason| row["reason"] == *reason);
            if is_by_rule && found.resumes < MAX_RESUMES {
                // If the server is away, the next list shows the run again.
                let resume = self.fleet.command(&["resume", run]).run(LONG);
                found.resumes += u32::from(resume.code() == Some(0));
                continue;
            }
            found.over = Some((text, is_done));
            for strike in &mut self.strikes {
                strike.runs.retain(|it| it != run);
            }
        }
    }

    /// Counts the faults of which nothing more can be seen.
    fn settle(&mut self) {
        let (settled, open): (Vec<Strike>, Vec<Strike>) = std::mem::take(&mut self.strikes)
            .into_iter()
            .partition(|strike| strike.has_takeover || strike.runs.is_empty());
        self.strikes = open;
        for strike in settled {
            self.count(strike.fault, strike.has_takeover);
        }
    }

    fn count(&mut self, fault: Fault, has_landed: bool) {
        let count = self.counts.entry(fault).or_default();
        match has_landed {
            true => count.landed += 1,
            false => {
                count.missed += 1;
                // At most twice as many as planned, so that the storm ends.
                if count.missed <= count.landed + 20 {
                    self.left.push(fault);
                }
            }
        }
    }

    /// Causes the next fault, if its moment has come and a victim is there.
    fn strike(&mut self) {
        let now = Instant::now();
        let Some(fault) = self.left.last().copied().filter(|_| now >= self.next) else {
            return;
        };
        let is_done = match fault {
            Fault::KillServer => self.kill_server(now),
            _ => self.strike_worker(fault, now),
        };
        if is_done {
            self.left.pop();
            let pause = self
                .random
                .between(Duration::ZERO, Duration::from_millis(600));
            self.next = now + pause;
            // A run that was hit twice gets no third hit before it makes progress. The second one is rare.
            self.most_hits = match self.random.index(8) {
                0 => MAX_HITS,
                _ => 1,
            };
            self.turn_until = self.next + TURN;
        } else if now > self.turn_until {
            // Another fault goes first.
            self.left.rotate_right(1);
            self.turn_until = now + TURN;
        }
    }

    fn kill_server(&mut self, now: Instant) -> bool {
        let is_calm = self.open().all(|(_, state)| state.hits == 0)
            && self.open().any(|(_, state)| state.owner.is_some());
        if !is_calm || !self.undos.is_empty() {
            return false;
        }
        self.server_changed = now;
        let number = self.random.index(self.plan.servers);
        let end = self.fleet.servers.kill(number);
        if end.signal() != Some(Signal::KILL.as_raw()) {
            self.stalled(format!("server {number} did not die by the signal: {end}"));
        }
        // Every third time for longer than the lease.
        let longest = match self.random.index(3) {
            0 => self.plan.lease * 3 / 2,
            _ => self.plan.lease / 3,
        };
        let until = now + self.random.between(longest / 4, longest);
        self.undos.push((until, Undo::StartServer(number)));
        for (_, state) in self
            .runs
            .iter_mut()
            .filter(|(_, state)| state.over.is_none())
        {
            state.hits += 1;
        }
        true
    }

    fn strike_worker(&mut self, fault: Fault, now: Instant) -> bool {
        let victims: Vec<usize> = (0..self.fleet.workers.len())
            .filter(|at| {
                let worker = &self.fleet.workers[*at];
                let mut its = self.runs_of(&worker.name).peekable();
                worker.state == WorkerState::Up
                    && its.peek().is_some()
                    && its.all(|(_, state)| state.hits < self.most_hits)
            })
            .collect();
        if victims.is_empty() {
            return false;
        }
        let at = victims[self.random.index(victims.len())];
        let name = self.fleet.workers[at].name.clone();
        let runs: Vec<String> = self.runs_of(&name).map(|(run, _)| run.clone()).collect();
        let worker = &mut self.fleet.workers[at];
        if worker.running.has_ended() {
            return false;
        }
        let lease = self.plan.lease;
        let mut wait_for_takeover = true;
        match fault {
            Fault::KillWorker => {
                worker.running.signal_unless_reaped(Signal::KILL);
                worker.state = WorkerState::Ending;
            }
            Fault::TerminateWorker => {
                worker.running.signal_unless_reaped(Signal::TERM);
                worker.state = WorkerState::Ending;
            }
            Fault::FreezeWorker => {
                worker.running.signal_unless_reaped(Signal::STOP);
                let pid = worker.running.pid();
                if poll_until(LONG, || is_stopped(pid).then_some(())).is_none() {
                    self.stalled(format!("worker {name} can't be stopped"));
                    return true;
                }
                worker.state = WorkerState::Frozen;
                // The next worker asks this one after the lease, and must get no answer.
                let least = lease * 2 + PROBE;
                let until = now + self.random.between(least, least + lease);
                self.undos.push((until, Undo::Continue(name.clone())));
            }
            Fault::CutOffWorker | Fault::KillServer => {
                let closed: usize = worker.proxies.iter().map(rlm_tests::nats::Proxy::cut).sum();
                worker.state = WorkerState::CutOff;
                let until = now + self.random.between(lease / 8, lease * 2);
                self.undos.push((until, Undo::Heal(name.clone())));
                self.count(Fault::CutOffWorker, closed > 0);
                wait_for_takeover = false;
            }
        }
        for run in &runs {
            if let Some(state) = self.runs.get_mut(run) {
                state.hits += 1;
                state.owner = None;
            }
        }
        if wait_for_takeover {
            self.strikes.push(Strike {
                fault,
                at: now,
                worker: name,
                runs,
                has_takeover: false,
            });
        }
        true
    }

    fn runs_of(&self, worker: &str) -> impl Iterator<Item = (&String, &RunState)> {
        self.open()
            .filter(move |(_, state)| state.owner.as_deref() == Some(worker))
    }

    /// Fetches and judges all runs, ends the workers and the servers, and searches for processes that are left.
    fn finish(mut self, begun: Instant) -> StormResult {
        let is_interrupted = self.given_up.load(Ordering::Relaxed);
        for (_, undo) in std::mem::take(&mut self.undos) {
            self.undos.push((Instant::now(), undo));
        }
        self.undo();
        (self.submitting, self.listing) = (None, None);
        let mut iterations = 0;
        let is_cut_short = is_interrupted || !self.plan.mistakes.is_empty();
        if is_cut_short {
            let seen = self.seen_findings();
            self.findings.extend(seen);
            // Nothing that these processes do is judged.
            for process in self.fleet.sandbox.survivors().scan() {
                process.kill();
            }
        } else {
            for (run, state) in &self.runs {
                let result = self.result(run, state);
                iterations += result.commits.len();
                self.findings.extend(judge(run, &result, &self.events));
            }
        }
        for worker in &self.fleet.workers {
            worker.running.signal_unless_reaped(Signal::TERM);
        }
        for mut worker in std::mem::take(&mut self.fleet.workers) {
            let ended = poll_until(LONG, || worker.running.has_ended().then_some(()));
            let end = ended.map(|()| worker.running.wait(LONG));
            if end.as_ref().and_then(rlm_tests::Ended::code) != Some(0) && !is_cut_short {
                let name = &worker.name;
                let end = end.map_or("never".into(), |end| end.to_string());
                self.findings.push(Finding::Stalled {
                    why: format!("worker {name} ended at SIGTERM: {end}"),
                });
            }
        }
        self.fleet.servers.kill_all();
        let survivors = self.fleet.sandbox.survivors();
        let gone = poll_until(LONG, || survivors.scan().is_empty().then_some(()));
        if gone.is_none() {
            let name = |it: &Process| format!("{} {}", it.pid, it.name);
            let processes = survivors.scan().iter().map(name).collect();
            self.findings.push(Finding::Left { processes });
        }
        let evidence = self.evidence();
        let starts =
            { self.events.iter() }.filter(|event| matches!(event, AgentEvent::Start { .. }));
        StormResult {
            servers: self.plan.servers,
            runs: self.runs.len(),
            iterations,
            starts: starts.count(),
            restarts: self.restarts,
            resumes: self.runs.values().map(|state| state.resumes).sum(),
            takeovers_ms: self.takeovers,
            took_s: begun.elapsed().as_secs(),
            is_interrupted,
            faults: self.counts,
            findings: self.findings,
            evidence,
        }
    }

    /// Returns what is known about the first run with a finding.
    fn evidence(&self) -> Vec<String> {
        let Some(run) = self.findings.iter().find_map(Finding::run) else {
            return Vec::new();
        };
        let its = self.events.iter().filter(|event| event.run() == run);
        let mut lines: Vec<String> = its.map(|it| it.to_string().trim_end().into()).collect();
        let outputs = fs_err::read_dir(self.fleet.sandbox.path()).into_iter();
        for entry in outputs.flatten().flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            let name = name.to_string_lossy();
            if name.ends_with(".stdout") {
                let text = fs_err::read_to_string(path).unwrap_or_default();
                let about = format!("[{run}]");
                let about = text.lines().filter(|line| line.contains(&about));
                lines.extend(about.map(|line| format!("{name}: {line}")));
            }
        }
        lines
    }

    /// Returns the end of a run, as the fleet and git report it.
    fn result(&self, run: &str, state: &RunState) -> RunResult {
        let (text, is_done) = match &state.over {
            Some((text, is_done)) => (text.clone(), *is_done),
            None => ("not over".into(), false),
        };
        let mut result = RunResult {
            iterations: self.plan.iterations,
            is_done,
            state: text,
            commits: Vec::new(),
        };
        let fetch = self.fleet.command(&["fetch", run]).run(LONG);
        if fetch.code() != Some(0) {
            result.state += &format!("; can't be fetched: {fetch}");
            result.is_done = false;
            return result;
        }
        let range = format!("main..rlm/{run}");
        let words = [
            "log",
            "--reverse",
            "--format=format:commit",
            "-p",
            "-U0",
            &range,
        ];
        for line in self.fleet.sandbox.git(&words).lines() {
            match (line, result.commits.last_mut()) {
                ("commit", _) => result.commits.push(Vec::new()),
                (line, Some(commit)) if line.starts_with('+') && !line.starts_with("+++") => {
                    commit.push(line[1..].to_owned());
                }
                _ => {}
            }
        }
        result
    }
}

/// Returns whether the kernel reports that a process is stopped by a signal.
fn is_stopped(pid: i32) -> bool {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| state.starts_with('T'))
}
