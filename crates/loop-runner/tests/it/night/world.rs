//! The surroundings of the run: the time of day, the service behind the agent, and the record of what the agents saw.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use loop_state::{RuleChange, StopCause, UsageTotal};
use tokio::time::Instant;

use super::commands::FakeCommands;
use super::dice::Dice;
use super::phases::{Place, Results, Review, Tally};

pub(crate) const HOUR: u64 = 3600;
/// The length of a night.
pub(crate) const NIGHT: Duration = Duration::from_secs(8 * HOUR);
/// The time at which a night begins.
pub(crate) const EVENING: Duration = Duration::from_secs(1_700_000_000);
/// The most usage in one report of an agent, in millionths of a dollar.
pub(crate) const PIECE: u64 = 90_000;
/// The most stored lines of the log, and the most shown lines of one night among many.
const LINES: usize = 5000;
const SHOWN: usize = 60;

/// How the last turn of an agent ended, from the agent's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Completed,
    Claimed,
    Failed,
    Died,
    Service,
    Limited,
    Interrupted,
    Login,
    NotStarted,
}

impl Ending {
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Self::Completed | Self::Claimed)
    }
}

/// One agent: its attempt and its state.
#[derive(Clone, Debug)]
pub(crate) struct AgentRecord {
    pub(crate) life: u32,
    pub(crate) place: Place,
    /// Whether the agent continues a session, which possibly has its prompt.
    pub(crate) resumes: bool,
    /// Whether the agent has begun a turn.
    pub(crate) began: bool,
    /// `None` while a turn runs, and forever if the turn was ended from outside.
    pub(crate) ending: Option<Ending>,
    /// Whether the run ended the agent, or asked it to end its turn.
    pub(crate) halted: bool,
    /// Whether a turn of the agent ended for a reason other than a limit.
    pub(crate) judged: bool,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    /// The wall clock at the beginning of the current process, and the monotonic time of that.
    morning: (SystemTime, Option<Instant>),
    /// The latest wall-clock time that the current process saw, and the monotonic time of that.
    latest: (SystemTime, Option<Instant>),
    /// The number of processes of the loop so far.
    pub(crate) life: u32,
    pub(crate) seats: Vec<AgentRecord>,
    /// The outages of the service, with their times.
    pub(crate) outages: Vec<(Duration, Duration, Outage)>,
    /// The total reported usage of all agents.
    pub(crate) used: u64,
    /// How often each steer was seen in each session.
    pub(crate) seen: BTreeMap<(String, String), u32>,
    /// The number of turns that began after a failed turn.
    pub(crate) turns_after_failure: u32,
    /// The sum of the wall clock's jumps so far.
    pub(crate) jumped: Duration,
    pub(crate) set_back: bool,
    /// The run's reports: the last complete iteration, with its phase; the number of complete ones; the usage; the end of its wait.
    pub(crate) last_reported: (u32, u32),
    pub(crate) complete: u32,
    pub(crate) spent: UsageTotal,
    pub(crate) waits: Option<Wait>,
    /// The cost limit and the token limit of the run.
    pub(crate) budgets: (Option<u64>, Option<u64>),
    pub(crate) commands: FakeCommands,
    pub(crate) results: Results,
    pub(crate) review: Review,
    /// The requested rule changes in this process, and the usage that is allowed under any rules.
    pub(crate) sets: Vec<RuleChange>,
    pub(crate) floor: UsageTotal,
    /// Whether a person requested a redo.
    pub(crate) redo_requested: bool,
    /// Whether a stop was requested in this process, and whether the run reported it.
    pub(crate) stop_requested: bool,
    pub(crate) stopping: bool,
    /// The causes of the requested stops in this process, in order.
    pub(crate) asked: Vec<StopCause>,
    pub(crate) tally: Tally,
    log: Vec<String>,
    /// The first broken promise.
    pub(crate) broken: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// The service is down.
    Down,
    /// The quota is used up, and the service reports its reset time.
    Quota,
    /// The quota is used up, and the service reports no reset time.
    SilentQuota,
}

/// A wait that the run reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) until: SystemTime,
    /// The process that waits, and the sum of the clock's jumps at that time.
    pub(crate) life: u32,
    pub(crate) jumped: Duration,
}

pub(crate) type Shared = Arc<Mutex<World>>;

pub(crate) fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().expect("no thread panics with the lock")
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 1);
        let mut outages = Vec::new();
        for _ in 0..dice.below(4) {
            let from = dice.seconds(0, 7 * HOUR);
            let kinds = [
                Outage::Down,
                Outage::Quota,
                Outage::Quota,
                Outage::SilentQuota,
            ];
            let kind = dice.pick(&kinds);
            let long = match kind {
                Outage::Down => dice.seconds(60, HOUR),
                _ => dice.seconds(300, 3 * HOUR),
            };
            outages.push((from, from + long, kind));
        }
        Self {
            seed,
            morning: (SystemTime::UNIX_EPOCH + EVENING, None),
            latest: (SystemTime::UNIX_EPOCH + EVENING, None),
            life: 0,
            seats: Vec::new(),
            outages,
            used: 0,
            seen: BTreeMap::new(),
            turns_after_failure: 0,
            jumped: Duration::ZERO,
            set_back: false,
            last_reported: (0, 0),
            complete: 0,
            spent: UsageTotal::default(),
            waits: None,
            budgets: (None, None),
            commands: FakeCommands::default(),
            results: Results::default(),
            review: Review::default(),
            sets: Vec::new(),
            floor: UsageTotal::default(),
            redo_requested: false,
            stop_requested: false,
            stopping: false,
            asked: Vec::new(),
            tally: Tally::new(),
            log: Vec::new(),
            broken: None,
        }
    }

    /// Begins a process of the loop.
    pub(crate) fn begin(&mut self, attended: bool) {
        self.life += 1;
        (self.stop_requested, self.stopping) = (false, false);
        self.sets.clear();
        self.review = Review {
            attended,
            ..Review::default()
        };
        self.morning.1 = Some(Instant::now());
        self.latest = (self.morning.0, None);
    }

    /// Ends the process, and lets some time pass.
    pub(crate) fn pass(&mut self, down: Duration) {
        let now = self.now();
        self.morning = (now + down, None);
    }

    /// Returns the wall clock.
    pub(crate) fn now(&mut self) -> SystemTime {
        let (at, since) = self.morning;
        let now = at + since.map(|since| since.elapsed()).unwrap_or_default();
        if now >= self.passed() {
            self.latest = (now, since.map(|_| Instant::now()));
        }
        now
    }

    /// Returns the wall clock as a process sees it: it never goes back or stops.
    pub(crate) fn latest(&mut self) -> SystemTime {
        self.now().max(self.passed())
    }

    fn passed(&self) -> SystemTime {
        let (at, since) = self.latest;
        at + since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Returns the time since the night began.
    pub(crate) fn hour(&mut self) -> Duration {
        let evening = SystemTime::UNIX_EPOCH + EVENING;
        self.now().duration_since(evening).unwrap_or_default()
    }

    /// Suspends the machine, or sets its clock forward.
    pub(crate) fn jump(&mut self, by: Duration) {
        self.morning.0 += by;
        self.jumped += by;
    }

    /// Sets the clock back.
    pub(crate) fn set_back(&mut self, by: Duration) {
        self.morning.0 -= by;
        self.set_back = true;
    }

    pub(crate) fn outcome_of_outage(&mut self) -> Option<(Duration, Outage)> {
        let now = self.hour();
        let there = { self.outages.iter() }.find(|(from, to, _)| (*from..*to).contains(&now));
        there.map(|(_, to, kind)| (*to, *kind))
    }

    pub(crate) fn note(&mut self, line: impl Into<String>) {
        if self.broken.is_some() {
            return;
        }
        let at = self.hour().as_secs_f64();
        let line = format!("{at:>10.3} [{}] {}", self.life, line.into());
        if self.log.len() == LINES {
            self.log.remove(0);
        }
        self.log.push(line);
    }

    /// Checks whether this attempt may begin.
    pub(crate) fn attempt_begins(&mut self, place: Place) {
        let (told, turn, stopping) = (self.last_reported, place.turn(), self.stopping);
        self.holds(!stopping, || "an agent is started after a stop".into());
        let waits = self.review.open;
        self.holds(!waits, || {
            "an agent is started while the run waits for a review".into()
        });
        self.holds(turn > told || self.redo_requested, || {
            format!("{turn:?} begins again although {told:?} is complete")
        });
        let (spent, of) = (self.spent, self.budgets);
        self.holds(!self.is_spent(), || {
            format!("an agent is started with {spent:?} of {of:?} used")
        });
        if let Some(wait) = self.waits.take() {
            let latest = self.latest();
            self.holds(latest >= wait.until, || "a wait was too short".into());
            let late = latest.duration_since(wait.until).unwrap_or_default();
            let allowed = Duration::from_secs(6) + (self.jumped - wait.jumped);
            let is_late = wait.life == self.life && late > allowed;
            self.holds(!is_late, || format!("a wait ended {late:?} too late"));
        }
        let Some(last) = self.seats.last().cloned() else {
            return;
        };
        let same = |seat: &AgentRecord| seat.place == place;
        if same(&last) {
            // Only an interrupted turn continues under the same number.
            let goes_on = last.halted && last.life == self.life;
            return self.holds(goes_on, || format!("{place:?} begins twice"));
        }
        self.holds(!self.seats.iter().any(same), || {
            format!("{place:?} begins twice")
        });
        let enters = place.enters_behind(last.place);
        let next = enters || turn == (last.place.phase, last.place.iteration + 1);
        self.holds(
            next || turn == last.place.turn() || self.redo_requested,
            || format!("{turn:?} follows {:?}", last.place),
        );
        let is_judged = self.commands.checked == Some(true)
            || last.halted
            || last.judged
            || last.ending.is_some_and(|it| it != Ending::Limited);
        self.holds(!next || is_judged, || {
            format!("{:?} was given up: {last:?}", last.place)
        });
        let due = enters && std::mem::take(&mut self.review.due);
        self.holds(!due, || "a phase had no review".into());
    }

    /// Returns whether a budget is used up, according to the run's reports.
    pub(crate) fn is_spent(&self) -> bool {
        let (cost, tokens) = self.budgets;
        cost.is_some_and(|max| self.spent.cost_microusd >= max)
            || tokens.is_some_and(|max| self.spent.tokens() >= max)
    }

    /// Returns the result of the previous phase, which the agents of a phase must get.
    pub(crate) fn result_for(&self, phase: u32) -> Option<String> {
        self.results.get(&phase.checked_sub(1)?)?.clone()
    }

    /// Records that the run repeats complete work, because a person requested it.
    pub(crate) fn goes_back(&mut self) {
        (self.redo_requested, self.waits) = (true, None);
        self.commands.forget();
        self.results.clear();
    }

    /// Records a broken promise; the first one counts.
    pub(crate) fn break_promise(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.note(format!("broken: {what}"));
        self.broken.get_or_insert(what);
    }

    pub(crate) fn holds(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.break_promise(what());
        }
    }

    /// Returns the log, for people; only its end if this is one night among many.
    pub(crate) fn tail(&self, all: bool) -> String {
        let from = if all {
            0
        } else {
            self.log.len().saturating_sub(SHOWN)
        };
        self.log[from..].join("\n")
    }

    /// Records that an agent saw this text.
    pub(crate) fn saw(&mut self, session: &str, text: &str) {
        for steer in steers(text) {
            self.note(format!("an agent sees {steer}"));
            *self.seen.entry((steer, session.to_owned())).or_default() += 1;
        }
    }
}

/// Returns the steers in a text; each is a unique word.
fn steers(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .filter(|word| word.starts_with("STEER"))
        .map(str::to_owned)
}
