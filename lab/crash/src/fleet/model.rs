//! The state of a simulated fleet: a server, workers, process trees, and everything that happens later. The other modules add what each part does.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use rlm_fleet::{
    AppendAnswer, Appender, Claim, Handover, LastRecord, LeaseClock, Moment, ProbeResult, Progress,
    RecordId, RecordKind,
};

use super::store::{RunState, RunStore};
use crate::reference::BrokenPromise;
use crate::rng::Rng;

/// A time in milliseconds since the begin of the simulation, on a clock that is always right.
pub(super) type Millis = u64;

/// The time in which a worker waits for an answer of the server, as in `rlm-fleet`.
pub(super) const ANSWER: Millis = 3_000;

/// A delivery of a run to one start of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) worker: usize,
    /// The number of the worker's start. A worker that was killed starts again with the next number.
    pub(super) start: u32,
    /// The number of the delivery.
    pub(super) delivery: u64,
}

/// The kinds of messages that the simulation counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traffic {
    /// Requests for runs, and deliveries.
    Pull,
    /// Renewals of leases.
    Renewal,
    /// Reads, probes and appends until a run has an owner.
    Claim,
    /// Reads of all records of a claimed run.
    Rebuild,
    /// Appends of saves.
    Save,
    /// The end of a run, or its return to the queue.
    End,
}

impl Traffic {
    /// All kinds, with their names.
    pub(super) const ALL: [(Self, &'static str); 6] = [
        (Self::Pull, "pulls"),
        (Self::Renewal, "renewals"),
        (Self::Claim, "claims"),
        (Self::Rebuild, "rebuilds"),
        (Self::Save, "saves"),
        (Self::End, "ends"),
    ];
}

/// A request of a worker.
#[derive(Debug, Clone)]
pub(super) enum Request<B> {
    Pull {
        pull: u64,
        pulled: Moment,
    },
    Renew {
        sent: Moment,
    },
    Return,
    Acknowledge,
    ReadLast(Reader),
    /// Reads all records up to the claim.
    ReadRun,
    Publish(Publish<B>),
    Probe,
    /// The answer of an owner to the probe of another worker.
    ProbeAnswer {
        to: Holder,
        epoch: u64,
    },
}

/// The part of a worker that reads the last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// The number of the request.
    Claim(u32),
    /// The number of the appender, and its call.
    Appender(u32, u64),
    /// The number of the request for how a gone process left the run.
    Ending(u32),
}

/// A record on its way to the server.
#[derive(Debug, Clone)]
pub(super) struct Publish<B> {
    /// The number of the appender.
    pub(super) appender: u32,
    pub(super) call: u64,
    pub(super) expect: u64,
    pub(super) record: Stored<B>,
}

/// A message to a worker.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Delivered {
        pull: u64,
        run: usize,
        pulled: Moment,
    },
    Renewed {
        sent: Moment,
    },
    Returned,
    Last(Reader, Option<LastRecord>),
    Run,
    Published {
        appender: u32,
        call: u64,
        answer: AppendAnswer,
    },
    Probed(ProbeResult),
    /// Another worker probes the owner.
    ProbedBy(Holder),
}

/// A fault of a part of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The process of a worker is killed. It starts again after this time.
    Kill(usize, Millis),
    /// The machine of a worker loses its power. It starts again after this time.
    PowerOff(usize, Millis),
    /// A worker's process takes no steps for this time; its guards and the processes of its runs do.
    Freeze(usize, Millis),
    /// The machine of a worker takes no steps for this time, and its clock stands still: a paused virtual machine.
    Pause(usize, Millis),
    /// A worker and the server don't reach each other for this time.
    Cut(usize, Millis),
    /// A worker gets SIGTERM. It starts again when it has ended.
    Terminate(usize),
    /// The server is away for this time, and forgets some of the leases.
    Restart(Millis),
}

/// Something that happens at a time.
#[derive(Debug)]
pub(super) enum Event<B> {
    Arrives(Holder, Request<B>),
    /// A message arrives at the machine of a worker.
    Answered(Holder, Reply),
    /// A worker, or the process of a run, reads a message.
    Received(Holder, Reply),
    LeaseTime(Holder, Moment),
    AppendTime(Holder, u32),
    HandoverTime(Holder),
    /// The answer to this call of an appender did not arrive in time.
    NoAppendAnswer(Holder, u32, u64),
    /// The answer to another request did not arrive in time.
    NoAnswer(Holder, u32),
    /// A worker that could not ask for runs tries again.
    Fill(usize),
    /// A worker notices that its connection is lost.
    Disconnected(usize),
    PullOver {
        worker: usize,
        start: u32,
        pull: u64,
    },
    AgentDone(u64),
    /// A process tree was asked to stop.
    TreeStops(u64),
    KillTime(u64),
    TreeGone(u64),
    /// The worker notices that a process tree is gone.
    NoticeGone(Holder),
    LeaseOver {
        run: usize,
        delivery: u64,
    },
    Fault(Fault),
    Start(usize),
    Connect(usize),
    ServerUp,
    Submit(usize),
}

#[derive(Debug)]
struct Scheduled<B> {
    at: Millis,
    order: u64,
    event: Event<B>,
}

impl<B> PartialEq for Scheduled<B> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<B> Eq for Scheduled<B> {}

impl<B> PartialOrd for Scheduled<B> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<B> Ord for Scheduled<B> {
    /// The earliest event is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// A record of the stream.
#[derive(Debug, Clone)]
pub(super) struct Stored<B> {
    pub(super) facts: LastRecord,
    /// The delivery whose worker appended it; 0 for the base.
    pub(super) author: u64,
    /// The state that a save contains, and its record.
    pub(super) save: Option<(RunState, B)>,
}

/// The message of a run in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queued {
    Absent,
    Available,
    Delivered { delivery: u64, until: Millis },
    Removed,
}

/// One run on the server, and the observations that the judge needs.
#[derive(Debug)]
pub(super) struct Run<B> {
    pub(super) records: Vec<Stored<B>>,
    pub(super) queued: Queued,
    /// The deliveries whose workers may listen for probes.
    pub(super) listeners: Vec<Holder>,
    /// The process trees of the run, also of earlier owners.
    pub(super) trees: Vec<u64>,
    /// The records that a worker knows to be stored.
    pub(super) confirmed: Vec<(u64, RecordId)>,
    /// How often the present iteration was begun in the stream, and by an agent.
    pub(super) begun: u32,
    pub(super) starts: u32,
    /// When the last owner had a fault, and which.
    pub(super) orphaned: Option<(Millis, Cause)>,
}

/// Why a run changes its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A fault of the worker, its machine or its connection.
    Worker,
    /// The server was away.
    Server,
    /// The worker got SIGTERM.
    Terminated,
}

/// The server.
#[derive(Debug)]
pub(super) struct Server<B> {
    pub(super) runs: Vec<Run<B>>,
    pub(super) last_seq: u64,
    pub(super) is_up: bool,
    /// When it can store records after a start.
    pub(super) ready_at: Millis,
    /// The runs to deliver: first those that were delivered before.
    pub(super) again: VecDeque<usize>,
    pub(super) fresh: VecDeque<usize>,
    pub(super) pulls: VecDeque<Waiting>,
    /// The run of each delivery.
    pub(super) deliveries: Vec<usize>,
}

/// A request for a run that waits on the server.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) holder: Holder,
    pub(super) pull: u64,
    pub(super) pulled: Moment,
    pub(super) until: Millis,
}

/// A worker and its machine.
#[derive(Debug)]
pub(super) struct Worker<S: RunStore> {
    pub(super) start: u32,
    pub(super) is_up: bool,
    pub(super) is_leaving: bool,
    pub(super) is_online: bool,
    /// When it connected.
    pub(super) connected: Moment,
    pub(super) cut_until: Millis,
    pub(super) frozen_until: Millis,
    pub(super) paused_until: Millis,
    /// When it asks for runs again, after it returned a delivery.
    pub(super) asks_from: Moment,
    /// The time that its clock lost.
    pub(super) lag: Millis,
    pub(super) pulls: BTreeSet<u64>,
    pub(super) holds: BTreeMap<u64, Box<Hold<S>>>,
}

/// The part of the work on a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Claiming,
    Rebuilding,
    /// The process of the run works.
    Working,
    /// The process is gone.
    Ended,
}

/// A run that the server delivered to a worker.
#[derive(Debug)]
pub(super) struct Hold<S: RunStore> {
    pub(super) run: usize,
    pub(super) phase: Phase,
    pub(super) lease: LeaseClock,
    /// The moment of the next wake for the lease; `None` after its end.
    pub(super) lease_wake: Option<Moment>,
    pub(super) is_lost: bool,
    pub(super) claim: Claim,
    pub(super) handover: Option<Handover>,
    pub(super) appender: Option<Appender>,
    pub(super) appenders: u32,
    pub(super) awaited: Option<(u32, u64)>,
    /// The number of requests that are not calls of an appender.
    pub(super) asked: u32,
    pub(super) pending: Option<Stored<S::Body>>,
    pub(super) give_up: Moment,
    /// The facts about the last record that this worker knows.
    pub(super) last: LastRecord,
    /// The claim.
    pub(super) claimed: Option<LastRecord>,
    pub(super) store: Option<S>,
    pub(super) state: RunState,
    pub(super) tree: Option<u64>,
    pub(super) is_over: bool,
}

/// The process tree of a claimed run: its process and the agent, below a guard.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) holder: Holder,
    pub(super) run: usize,
    pub(super) kill_at: Moment,
    pub(super) has_agent: bool,
    pub(super) is_dying: bool,
}

/// How often, in a thousand messages, the network loses, delays or repeats one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Network {
    /// Lost messages.
    pub(super) lost: usize,
    /// Messages that arrive seconds later.
    pub(super) late: usize,
    /// Messages that arrive twice.
    pub(super) repeated: usize,
    /// The number of one message that has this fault; the others have none.
    pub(super) one: Option<(u64, MessageFault)>,
}

/// A fault at the moment of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageFault {
    /// The message does not arrive.
    Lost,
    /// The message arrives seconds later.
    Late,
    /// The message arrives twice.
    Repeated,
    /// The worker freezes before an answer arrives, and is cut off before it wakes up.
    Freeze,
    /// The worker is killed.
    Kill,
    /// The server restarts.
    Restart,
    /// The server restarts, and again while a claimant waits for the owner to connect.
    RestartTwice,
}

/// The fleet, its runs, and its faults.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// The seed of all random numbers.
    pub(super) seed: u64,
    /// The number of workers.
    pub(super) workers: usize,
    /// The runs that one worker can have.
    pub(super) slots: usize,
    /// The number of runs.
    pub(super) runs: usize,
    /// The time in which all runs are submitted.
    pub(super) submitted_within: Millis,
    /// The iterations of a run.
    pub(super) iterations: u32,
    /// The saves of an iteration before its agent, and after.
    pub(super) saves: (u32, u32),
    /// The shortest and the longest iteration.
    pub(super) agent: (Millis, Millis),
    /// The lease.
    pub(super) lease: Duration,
    /// The longest time in which a killed process tree is gone.
    pub(super) kill_takes: Millis,
    /// Whether the agents of the first run kill their workers.
    pub(super) is_poison: bool,
    /// The faults, each with its time.
    pub(super) faults: Vec<(Millis, Fault)>,
    /// The faults of messages.
    pub(super) network: Network,
    /// When the network has no more faults.
    pub(super) faults_until: Millis,
    /// Whether the assumptions hold under which two agents of a run never run at the same time.
    pub(super) is_exclusive: bool,
    /// The time by which each run must have ended.
    pub(super) limit: Millis,
}

/// The measurements of a simulation.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// The messages of each kind, in the order of [`Traffic::ALL`].
    pub messages: [u64; Traffic::ALL.len()],
    /// The messages of the busiest second, without and with rebuilds.
    pub busiest: [u64; 2],
    /// The events of the simulation.
    pub events: u64,
    /// The records of all streams, and how many of them are saves.
    pub records: u64,
    /// The saves among the records.
    pub saves: u64,
    /// The claims among the records.
    pub claims: u64,
    /// Runs that ended.
    pub ended: u64,
    /// Runs that were parked.
    pub parked: u64,
    /// Times from a fault of an owner to the next owner, in milliseconds.
    pub takeovers: Vec<Millis>,
    /// Times from the loss of the server to the next owner, in milliseconds.
    pub outages: Vec<Millis>,
    /// Times from SIGTERM of an owner to the next owner, in milliseconds.
    pub handovers: Vec<Millis>,
    /// Messages that the network lost, delayed or repeated, and other faults.
    pub faults: u64,
    /// The end of the last run.
    pub ended_at: Millis,
}

/// The simulated fleet.
#[derive(Debug)]
pub(super) struct World<S: RunStore> {
    pub(super) setup: Setup,
    pub(super) now: Millis,
    pub(super) rng: Rng,
    pub(super) server: Server<S::Body>,
    pub(super) workers: Vec<Worker<S>>,
    pub(super) trees: BTreeMap<u64, Tree>,
    pub(super) made_trees: u64,
    pub(super) made_ids: u64,
    /// The runs whose message is still in the queue, or not yet there.
    pub(super) open: usize,
    pub(super) measured: Measured,
    pub(super) broken: Option<BrokenPromise>,
    /// The number of messages that could have had a fault.
    pub(super) sent: u64,
    /// The present second, and its messages.
    second: (Millis, [u64; 2]),
    queue: BinaryHeap<Scheduled<S::Body>>,
    order: u64,
}

impl<S: RunStore> World<S> {
    pub(super) fn new(setup: Setup) -> Self {
        let workers = (0..setup.workers).map(|_| Worker {
            start: 1,
            is_up: false,
            is_leaving: false,
            is_online: false,
            connected: Moment::default(),
            cut_until: 0,
            frozen_until: 0,
            paused_until: 0,
            asks_from: Moment::default(),
            lag: 0,
            pulls: BTreeSet::new(),
            holds: BTreeMap::new(),
        });
        let runs = (0..setup.runs).map(|_| Run {
            records: Vec::new(),
            queued: Queued::Absent,
            listeners: Vec::new(),
            trees: Vec::new(),
            confirmed: Vec::new(),
            begun: 0,
            starts: 0,
            orphaned: None,
        });
        let mut world = Self {
            now: 0,
            rng: Rng::new(setup.seed),
            server: Server {
                runs: runs.collect(),
                last_seq: 0,
                is_up: true,
                ready_at: 0,
                again: VecDeque::new(),
                fresh: VecDeque::new(),
                pulls: VecDeque::new(),
                deliveries: Vec::new(),
            },
            workers: workers.collect(),
            trees: BTreeMap::new(),
            made_trees: 0,
            made_ids: 0,
            open: setup.runs,
            measured: Measured::default(),
            broken: None,
            sent: 0,
            second: (0, [0; 2]),
            queue: BinaryHeap::new(),
            order: 0,
            setup,
        };
        for worker in 0..world.setup.workers {
            let within = world.below(1_000);
            world.later(within, Event::Start(worker));
        }
        for run in 0..world.setup.runs {
            let within = world.below(world.setup.submitted_within.max(1));
            world.later(within, Event::Submit(run));
        }
        for (at, fault) in world.setup.faults.clone() {
            world.later(at, Event::Fault(fault));
        }
        world
    }

    /// Returns a random number below `limit`.
    pub(super) fn below(&mut self, limit: Millis) -> Millis {
        self.rng.draw() % limit.max(1)
    }

    /// Lets something happen after this time.
    pub(super) fn later(&mut self, after: Millis, event: Event<S::Body>) {
        self.order += 1;
        self.queue.push(Scheduled {
            at: self.now + after,
            order: self.order,
            event,
        });
    }

    /// Lets something happen at a moment of a worker's clock.
    pub(super) fn at(&mut self, worker: usize, moment: Moment, event: Event<S::Body>) {
        let at = moment.as_millis() + self.workers[worker].lag;
        self.later(at.saturating_sub(self.now), event);
    }

    /// Returns the next event, and moves the time to it.
    pub(super) fn next_event(&mut self) -> Option<Event<S::Body>> {
        let next = self.queue.pop()?;
        self.now = next.at;
        self.measured.events += 1;
        Some(next.event)
    }

    /// Returns the time on the clock of a worker's machine.
    pub(super) fn clock(&self, worker: usize) -> Moment {
        Moment::from_millis(self.now - self.workers[worker].lag)
    }

    /// Returns whether messages travel between a worker and the server now.
    pub(super) fn is_connected(&self, worker: usize) -> bool {
        let it = &self.workers[worker];
        it.is_up && it.is_online && self.now >= it.cut_until && self.server.is_up
    }

    /// Counts messages of the server.
    pub(super) fn count(&mut self, traffic: Traffic, messages: u64) {
        self.measured.messages[traffic as usize] += messages;
        let second = self.now / 1_000;
        if second != self.second.0 {
            self.second = (second, [0; 2]);
        }
        let is_rebuild = traffic == Traffic::Rebuild;
        for (at, sum) in self.second.1.iter_mut().enumerate() {
            if at == 1 || !is_rebuild {
                *sum += messages;
            }
            self.measured.busiest[at] = self.measured.busiest[at].max(*sum);
        }
    }

    /// Records the first broken promise.
    pub(super) fn breaks(&mut self, invariant: char, what: String) {
        let what = format!("{what}, {:.3} s", self.now as f64 / 1_000.0);
        self.broken.get_or_insert(BrokenPromise { invariant, what });
    }

    /// Returns the last record of a run.
    pub(super) fn last(&self, run: usize) -> Option<LastRecord> {
        self.server.runs[run].records.last().map(|it| it.facts)
    }

    /// Returns the kind of the messages about a delivery.
    pub(super) fn traffic(hold: &Hold<S>) -> Traffic {
        match hold.phase {
            Phase::Claiming => Traffic::Claim,
            Phase::Rebuilding => Traffic::Rebuild,
            Phase::Working => Traffic::Save,
            Phase::Ended => Traffic::End,
        }
    }

    /// Lets a message travel: returns the delays after which it arrives.
    pub(super) fn travel(&mut self, worker: usize, class: Class) -> Vec<Millis> {
        let delay = 1 + self.below(10);
        if self.now >= self.setup.faults_until || class == Class::Certain {
            return vec![delay];
        }
        self.sent += 1;
        let network = self.setup.network;
        let chance = self.rng.below(1_000);
        let fault = match network.one {
            Some((number, fault)) => (number == self.sent).then_some(fault),
            None if chance < network.lost => Some(MessageFault::Lost),
            None if chance < network.lost + network.late => Some(MessageFault::Late),
            None if chance < network.lost + network.late + network.repeated => {
                Some(MessageFault::Repeated)
            }
            None => None,
        };
        let longest = match class {
            // A publish can arrive when another worker has owned the run for long.
            Class::Publish => 25_000,
            // Less than half of the lease.
            Class::Other => 4_800,
            _ => 2_000,
        };
        self.measured.faults += u64::from(fault.is_some());
        match fault {
            Some(MessageFault::Freeze) => {
                self.later(1, Event::Fault(Fault::Freeze(worker, 2_200)));
                self.later(50, Event::Fault(Fault::Cut(worker, 20_000)));
            }
            Some(MessageFault::Kill) => {
                self.later(1, Event::Fault(Fault::Kill(worker, 3_000)));
            }
            Some(MessageFault::Restart) => self.later(1, Event::Fault(Fault::Restart(1_000))),
            Some(MessageFault::RestartTwice) => {
                self.later(1, Event::Fault(Fault::Restart(1_000)));
                self.later(3_500, Event::Fault(Fault::Restart(1_000)));
            }
            _ => {}
        }
        match fault {
            Some(MessageFault::Lost) => Vec::new(),
            Some(MessageFault::Late) => vec![delay + self.below(longest)],
            Some(MessageFault::Repeated) if class != Class::Once => {
                vec![delay, delay + self.below(longest)]
            }
            _ => vec![delay],
        }
    }
}

/// The faults that a message can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Publish,
    Other,
    /// It can't be repeated.
    Once,
    /// It arrives.
    Certain,
}

/// Returns whether no worker claims a run whose last record has this kind.
pub(super) fn is_final(kind: RecordKind) -> bool {
    matches!(
        kind,
        RecordKind::Park | RecordKind::Save(Progress::RunEnded)
    )
}
