//! What surrounds the run: the time of day, the service behind the agent, and the book of what the agents saw.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use loop_state::{RuleChange, StopCause, Usage};
use tokio::time::Instant;

use super::commands::Commands;
use super::dice::Dice;
use super::phases::{Place, Results, Review, Tally};

pub(crate) const HOUR: u64 = 3600;
/// How long a night is.
pub(crate) const NIGHT: Duration = Duration::from_secs(8 * HOUR);
/// When it begins.
pub(crate) const EVENING: Duration = Duration::from_secs(1_700_000_000);
/// The most that an agent says at once that it has used, in millionths of a dollar.
pub(crate) const PIECE: u64 = 90_000;
/// How many lines of the log are kept, and how many of them are shown of one night among many.
const LINES: usize = 5000;
const SHOWN: usize = 60;

/// How the last turn of an agent ended, as that agent sees it.
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

/// One agent: what it was started for and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) life: u32,
    pub(crate) place: Place,
    /// Whether it goes on with a session, which may know its prompt.
    pub(crate) resumes: bool,
    /// Whether it has begun a turn.
    pub(crate) began: bool,
    /// `None` while a turn runs, and for good when it was ended from outside.
    pub(crate) ending: Option<Ending>,
    /// Whether the run ended it, or asked it to end its turn.
    pub(crate) halted: bool,
    /// Whether a turn of it ended, other than by a limit.
    pub(crate) judged: bool,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    /// The wall clock when the present process began, and when that was.
    morning: (SystemTime, Option<Instant>),
    /// The latest time of the wall clock that anybody saw in the present process, and when that was.
    latest: (SystemTime, Option<Instant>),
    /// The processes of the loop so far.
    pub(crate) life: u32,
    pub(crate) seats: Vec<Seat>,
    /// What the service does to whoever asks, and when.
    pub(crate) outages: Vec<(Duration, Duration, Outage)>,
    /// What was said to have been used, by all agents.
    pub(crate) used: u64,
    /// The steers that an agent took notice of: how often in which session.
    pub(crate) seen: BTreeMap<(String, String), u32>,
    /// How many turns were begun behind one that went wrong.
    pub(crate) in_vain: u32,
    /// How far the wall clock jumped so far.
    pub(crate) jumped: Duration,
    pub(crate) set_back: bool,
    /// What the run has told: the last iteration that is complete, with its phase, and how many are; what was spent, until when it waits.
    pub(crate) told: (u32, u32),
    pub(crate) complete: u32,
    pub(crate) spent: Usage,
    pub(crate) waits: Option<Wait>,
    /// What the run may cost, and how many tokens it may use.
    pub(crate) budgets: (Option<u64>, Option<u64>),
    pub(crate) commands: Commands,
    pub(crate) results: Results,
    pub(crate) review: Review,
    /// The rules that were to be changed in this process, and what may be spent whatever they say now.
    pub(crate) sets: Vec<RuleChange>,
    pub(crate) floor: Usage,
    /// Whether a person wanted an iteration done again.
    pub(crate) again: bool,
    /// Whether the run was told to stop at once, in this process, and whether it said that it does.
    pub(crate) hurried: bool,
    pub(crate) stopping: bool,
    /// Who asked for a stop in this process, in order.
    pub(crate) asked: Vec<StopCause>,
    pub(crate) tally: Tally,
    log: Vec<String>,
    /// The first promise that was broken.
    pub(crate) broken: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Nothing works.
    Down,
    /// The quota is used up, and the service says until when.
    Quota,
    /// The quota is used up, and nobody says until when.
    SilentQuota,
}

/// A wait that the run has told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) until: SystemTime,
    /// The process that waits, and how far the clock had jumped.
    pub(crate) life: u32,
    pub(crate) jumped: Duration,
}

pub(crate) type Shared = Arc<Mutex<World>>;

pub(crate) fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().expect("nobody panics with it")
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
            in_vain: 0,
            jumped: Duration::ZERO,
            set_back: false,
            told: (0, 0),
            complete: 0,
            spent: Usage::default(),
            waits: None,
            budgets: (None, None),
            commands: Commands::default(),
            results: Results::default(),
            review: Review::default(),
            sets: Vec::new(),
            floor: Usage::default(),
            again: false,
            hurried: false,
            stopping: false,
            asked: Vec::new(),
            tally: Tally::new(),
            log: Vec::new(),
            broken: None,
        }
    }

    /// A process of the loop begins.
    pub(crate) fn begin(&mut self, attended: bool) {
        self.life += 1;
        (self.hurried, self.stopping) = (false, false);
        self.sets.clear();
        self.review = Review {
            attended,
            ..Review::default()
        };
        self.morning.1 = Some(Instant::now());
        self.latest = (self.morning.0, None);
    }

    /// It is over, and nothing happens for a while.
    pub(crate) fn pass(&mut self, down: Duration) {
        let now = self.now();
        self.morning = (now + down, None);
    }

    /// The wall clock as it is.
    pub(crate) fn now(&mut self) -> SystemTime {
        let (at, since) = self.morning;
        let now = at + since.map(|since| since.elapsed()).unwrap_or_default();
        if now >= self.passed() {
            self.latest = (now, since.map(|_| Instant::now()));
        }
        now
    }

    /// The wall clock as a process sees it that lets it neither go back nor stand still.
    pub(crate) fn latest(&mut self) -> SystemTime {
        self.now().max(self.passed())
    }

    fn passed(&self) -> SystemTime {
        let (at, since) = self.latest;
        at + since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// How long the night has lasted.
    pub(crate) fn hour(&mut self) -> Duration {
        let evening = SystemTime::UNIX_EPOCH + EVENING;
        self.now().duration_since(evening).unwrap_or_default()
    }

    /// The machine was suspended, or its clock was set forward.
    pub(crate) fn jump(&mut self, by: Duration) {
        self.morning.0 += by;
        self.jumped += by;
    }

    /// The clock was set back.
    pub(crate) fn set_back(&mut self, by: Duration) {
        self.morning.0 -= by;
        self.set_back = true;
    }

    pub(crate) fn outage(&mut self) -> Option<(Duration, Outage)> {
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

    /// An agent is started for this; whether that may be.
    pub(crate) fn attempt_begins(&mut self, place: Place) {
        let (told, turn, stopping) = (self.told, place.turn(), self.stopping);
        self.holds(!stopping, || "an agent is started after a stop".into());
        let waits = self.review.open;
        self.holds(!waits, || {
            "an agent is started while a person is asked".into()
        });
        self.holds(turn > told || self.again, || {
            format!("{turn:?} is begun again though {told:?} is complete")
        });
        let (spent, of) = (self.spent, self.budgets);
        self.holds(!self.is_spent(), || {
            format!("an agent is started with {spent:?} of {of:?} used")
        });
        if let Some(wait) = self.waits.take() {
            let latest = self.latest();
            self.holds(latest >= wait.until, || "a wait was cut short".into());
            let late = latest.duration_since(wait.until).unwrap_or_default();
            let allowed = Duration::from_secs(6) + (self.jumped - wait.jumped);
            let is_late = wait.life == self.life && late > allowed;
            self.holds(!is_late, || format!("a wait ended {late:?} too late"));
        }
        let Some(last) = self.seats.last().cloned() else {
            return;
        };
        let same = |seat: &Seat| seat.place == place;
        if same(&last) {
            // Only what a person interrupted is gone on with under the same number.
            let goes_on = last.halted && last.life == self.life;
            return self.holds(goes_on, || format!("{place:?} is begun twice"));
        }
        self.holds(!self.seats.iter().any(same), || {
            format!("{place:?} is begun twice")
        });
        let enters = place.enters_behind(last.place);
        let next = enters || turn == (last.place.phase, last.place.iteration + 1);
        self.holds(next || turn == last.place.turn() || self.again, || {
            format!("{turn:?} follows {:?}", last.place)
        });
        let is_judged = self.commands.checked == Some(true)
            || last.halted
            || last.judged
            || last.ending.is_some_and(|it| it != Ending::Limited);
        self.holds(!next || is_judged, || {
            format!("{:?} was given up: {last:?}", last.place)
        });
        let due = enters && std::mem::take(&mut self.review.due);
        self.holds(!due, || "nobody was asked about a phase".into());
    }

    /// Whether a budget is used up, as far as the run has told.
    pub(crate) fn is_spent(&self) -> bool {
        let (cost, tokens) = self.budgets;
        cost.is_some_and(|max| self.spent.cost_microusd >= max)
            || tokens.is_some_and(|max| self.spent.tokens() >= max)
    }

    /// What the agents of a phase have to be told of the one before it.
    pub(crate) fn result_for(&self, phase: u32) -> Option<String> {
        self.results.get(&phase.checked_sub(1)?)?.clone()
    }

    /// The run goes back to work that was done, because a person wants that.
    pub(crate) fn goes_back(&mut self) {
        (self.again, self.waits) = (true, None);
        self.commands.forget();
        self.results.clear();
    }

    /// A promise is broken; the first one counts.
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

    /// What happened, for people; the last of it only if it is one night among many.
    pub(crate) fn tail(&self, all: bool) -> String {
        let from = if all {
            0
        } else {
            self.log.len().saturating_sub(SHOWN)
        };
        self.log[from..].join("\n")
    }

    /// An agent took notice of this.
    pub(crate) fn saw(&mut self, session: &str, text: &str) {
        for steer in steers(text) {
            self.note(format!("an agent sees {steer}"));
            *self.seen.entry((steer, session.to_owned())).or_default() += 1;
        }
    }
}

/// The steers in a text; each is a word that comes nowhere else.
fn steers(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .filter(|word| word.starts_with("STEER"))
        .map(str::to_owned)
}
