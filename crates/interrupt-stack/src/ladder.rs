//! The ladder as a pure machine: what happened and when goes in, what to do comes out.
//!
//! There is no clock, no thread and no signal here. [`Interrupts`](crate::Interrupts) drives one of these; drive one yourself in a
//! program whose event loop must own every wait.
//!
//! | state | press | answer to the notice |
//! |---|---|---|
//! | idle, no handler | shutdown begins | – |
//! | idle | notice to the topmost handler | – |
//! | idle, a press still counted (cooldown) | shutdown begins | – |
//! | notice open, taken or not | shutdown begins | see [`Resolution`] |
//! | shutting down | hard exit | – (too late) |
//!
//! Two things move by time alone. A notice that nobody takes goes to the handler below, but never off the stack and so never by
//! itself into shutdown. A shutdown that outlasts its deadline becomes a hard exit.
//!
//! A [request](Ladder::request) opens a notice for one handler without being a press: it waits while another notice is open, stays
//! with its handler however long that takes, and leaves the count of presses and the cooldown as they are. A press that meets it
//! begins shutdown all the same.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::times;
use crate::{Cause, PressSource};

/// The time limits of a ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rules {
    /// How long a press stays counted after its notice was dropped without an answer. Default: 2 s. Zero: it does not.
    pub cooldown: Duration,
    /// Presses that follow an accepted one more closely than this are the same press. Default: 30 ms. Zero: every press counts.
    pub debounce: Duration,
    /// How long a handler may leave a notice untaken before the one below gets it. Default: 1 s.
    pub take_timeout: Duration,
    /// How long shutdown may last before it becomes a hard exit. Default: `None`, for ever. Zero: not at all.
    pub shutdown_deadline: Option<Duration>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            cooldown: times::COOLDOWN,
            debounce: times::DEBOUNCE,
            take_timeout: times::TAKE,
            shutdown_deadline: None,
        }
    }
}

/// Names a handler. Ids are never reused, and one that was pushed later is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlerId(u64);

/// One accepted press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Press {
    /// Which one it is of all that this ladder accepted, from 1; 0 for a request, which is no press.
    pub number: u64,
    /// When it was accepted. For a request: when its notice was opened.
    pub at: Instant,
    /// Where it came from.
    pub source: PressSource,
}

/// How a handler answers its notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The press was answered: the ladder starts over at once.
    Handled,
    /// Not mine: the handler below decides, or shutdown begins if there is none.
    Declined,
    /// Shutdown shall begin.
    Escalated,
    /// No answer: the press stays counted for the cooldown.
    Dropped,
}

/// What the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Effect {
    /// Nothing: the press was part of the one before it.
    Debounced,
    /// Wake this handler; a notice waits for it.
    Notify(HandlerId),
    /// Begin the graceful shutdown.
    BeginShutdown(Cause),
    /// End the process now. Comes again with every further press, for a caller that did not.
    HardExit(Cause),
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    Notified(Notice),
    ShuttingDown {
        cause: Cause,
        deadline: Option<Instant>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Notice {
    /// A request is told by its number, 0.
    press: Press,
    /// Whose turn it is. The handler may be gone when it has taken the notice.
    handler: HandlerId,
    taken: bool,
    /// When it goes to the handler below, if it is still untaken then.
    deadline: Option<Instant>,
}

/// The machine: handlers, the one open notice, and the rung.
///
/// Call [`on_deadline`](Self::on_deadline) until it answers `None` before each event, so that things happen in the order of time.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use interrupt_stack::{Cause, PressSource, ladder::{Effect, Ladder, Rules}};
///
/// let (mut ladder, now) = (Ladder::new(Rules::default()), Instant::now());
/// let second = Duration::from_secs(1);
/// let handler = ladder.push();
/// assert_eq!(ladder.press(PressSource::Signal, now), Effect::Notify(handler));
/// assert_eq!(ladder.press(PressSource::Signal, now + second), Effect::BeginShutdown(Cause::Press));
/// assert_eq!(ladder.press(PressSource::Signal, now + 9 * second), Effect::HardExit(Cause::Press));
/// ```
#[derive(Clone, Debug)]
pub struct Ladder {
    rules: Rules,
    /// The stack: ids grow, so the last is the topmost and "below" is a range.
    handlers: BTreeSet<HandlerId>,
    next_handler: u64,
    presses: u64,
    last_press: Option<Instant>,
    /// When a notice was dropped without an answer, so that its press still counts for the cooldown.
    dropped: Option<Instant>,
    /// Handlers for which a request waits until no notice is open.
    requested: BTreeSet<HandlerId>,
    phase: Phase,
}

impl Ladder {
    /// Makes an idle ladder without handlers.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            handlers: BTreeSet::new(),
            next_handler: 0,
            presses: 0,
            last_press: None,
            dropped: None,
            requested: BTreeSet::new(),
            phase: Phase::Idle,
        }
    }

    /// Puts a new handler on top of the stack.
    pub fn push(&mut self) -> HandlerId {
        let id = HandlerId(self.next_handler);
        self.next_handler += 1;
        self.handlers.insert(id);
        id
    }

    /// Takes a handler off the stack, wherever it stands. A notice that it has not taken goes down, as if declined.
    #[must_use]
    pub fn remove(&mut self, id: HandlerId, now: Instant) -> Option<Effect> {
        self.handlers.remove(&id);
        self.requested.remove(&id);
        match self.phase {
            Phase::Notified(notice) if notice.handler == id && !notice.taken => {
                self.pass_down(notice, now)
            }
            _ => None,
        }
    }

    /// Accepts a press, or finds that it belongs to the one before.
    pub fn press(&mut self, source: PressSource, now: Instant) -> Effect {
        if self
            .last_press
            .is_some_and(|last| now.saturating_duration_since(last) < self.rules.debounce)
        {
            return Effect::Debounced;
        }
        self.last_press = Some(now);
        self.presses += 1;
        match self.phase {
            Phase::ShuttingDown { .. } => Effect::HardExit(Cause::Press),
            Phase::Idle if !self.still_counts(now) => match self.handlers.last() {
                Some(&top) => {
                    let press = Press {
                        number: self.presses,
                        at: now,
                        source,
                    };
                    self.dropped = None;
                    self.notify(press, top, now)
                }
                None => self.shut_down(Cause::Press, now),
            },
            Phase::Idle | Phase::Notified(_) => self.shut_down(Cause::Press, now),
        }
    }

    /// Opens a notice for `id` that is no press, or remembers to do so when the ladder is idle.
    ///
    /// Nothing changes where there is no such handler, where a notice is open for it already, and in shutdown. The notice stays with
    /// its handler: untaken it never moves by time, and declined, dropped or left behind by its handler it leaves the ladder idle.
    #[must_use]
    pub fn request(&mut self, id: HandlerId, now: Instant) -> Option<Effect> {
        if !self.handlers.contains(&id) {
            return None;
        }
        match self.phase {
            Phase::Idle => {
                self.requested.insert(id);
                self.rest(now)
            }
            Phase::Notified(notice) if notice.handler != id => {
                self.requested.insert(id);
                None
            }
            Phase::Notified(_) | Phase::ShuttingDown { .. } => None,
        }
    }

    pub(crate) fn set_cooldown(&mut self, cooldown: Duration) {
        self.rules.cooldown = cooldown;
    }

    pub(crate) fn set_shutdown_deadline(&mut self, deadline: Option<Duration>) {
        self.rules.shutdown_deadline = deadline;
    }

    /// Takes note that the process was stopped and goes on: time that nobody could use is not held against anybody.
    ///
    /// A press that was dropped unanswered is forgotten and an untaken notice has its whole take time-out again; a taken one stays as
    /// it is. Shutdown is never taken back, but its deadline starts anew.
    pub fn resumed(&mut self, now: Instant) {
        self.dropped = None;
        let (take, shutdown) = (Some(self.rules.take_timeout), self.rules.shutdown_deadline);
        let (deadline, limit) = match &mut self.phase {
            Phase::Idle => return,
            Phase::Notified(notice) => (&mut notice.deadline, take),
            Phase::ShuttingDown { deadline, .. } => (deadline, shutdown),
        };
        if deadline.is_some() {
            *deadline = limit.and_then(|limit| now.checked_add(limit));
        }
    }

    /// Begins shutdown, or ends at once for [`Cause::Quit`]. During shutdown another cause is not a press and changes nothing.
    #[must_use]
    pub fn terminate(&mut self, cause: Cause, now: Instant) -> Option<Effect> {
        match (cause, self.phase) {
            (Cause::Quit, Phase::ShuttingDown { .. }) => Some(Effect::HardExit(Cause::Quit)),
            (Cause::Quit, _) => {
                self.phase = Phase::ShuttingDown {
                    cause,
                    deadline: None,
                };
                Some(Effect::HardExit(cause))
            }
            (_, Phase::ShuttingDown { .. }) => None,
            _ => Some(self.shut_down(cause, now)),
        }
    }

    /// Hands the open notice to `id`, if it is this handler's turn and it has not taken it. A taken notice has no time limit.
    #[must_use]
    pub fn take(&mut self, id: HandlerId) -> Option<Press> {
        match &mut self.phase {
            Phase::Notified(notice) if notice.handler == id && !notice.taken => {
                notice.taken = true;
                Some(notice.press)
            }
            _ => None,
        }
    }

    /// Answers the taken notice of the press with this number. An answer that comes when shutdown has begun changes nothing.
    #[must_use]
    pub fn resolve(&mut self, number: u64, resolution: Resolution, now: Instant) -> Option<Effect> {
        let Phase::Notified(notice) = self.phase else {
            return None;
        };
        if notice.press.number != number || !notice.taken {
            return None;
        }
        match resolution {
            Resolution::Declined => self.pass_down(notice, now),
            Resolution::Escalated => Some(self.shut_down(Cause::Press, now)),
            Resolution::Handled | Resolution::Dropped => {
                if !notice.is_request() {
                    self.dropped = Some(now).filter(|_| resolution == Resolution::Dropped);
                }
                self.rest(now)
            }
        }
    }

    /// Says when [`on_deadline`](Self::on_deadline) has something to do, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Idle => None,
            Phase::Notified(notice) => notice.deadline.filter(|_| !notice.taken),
            Phase::ShuttingDown { deadline, .. } => deadline,
        }
    }

    /// Does what is due: one effect a call, `None` when nothing is.
    #[must_use]
    pub fn on_deadline(&mut self, now: Instant) -> Option<Effect> {
        self.next_deadline().filter(|deadline| *deadline <= now)?;
        match &mut self.phase {
            Phase::Idle => None,
            Phase::Notified(notice) => {
                let untaken = *notice;
                // The last handler keeps it: a late take is better than none, and time alone never shuts down.
                notice.deadline = None;
                self.below(untaken.handler)
                    .map(|below| self.notify(untaken.press, below, now))
            }
            Phase::ShuttingDown { cause, deadline } => {
                *deadline = None;
                Some(Effect::HardExit(*cause))
            }
        }
    }

    /// Returns why shutdown began, once it has.
    pub fn cause(&self) -> Option<Cause> {
        match self.phase {
            Phase::ShuttingDown { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// Returns how many presses were accepted.
    pub fn presses(&self) -> u64 {
        self.presses
    }

    /// Returns how many rungs are climbed: 0 idle, 1 a notice is open, 2 shutting down.
    pub(crate) fn rung(&self) -> u8 {
        match self.phase {
            Phase::Idle => 0,
            Phase::Notified(_) => 1,
            Phase::ShuttingDown { .. } => 2,
        }
    }

    fn still_counts(&self, now: Instant) -> bool {
        self.dropped
            .is_some_and(|at| now.saturating_duration_since(at) < self.rules.cooldown)
    }

    fn below(&self, id: HandlerId) -> Option<HandlerId> {
        self.handlers.range(..id).next_back().copied()
    }

    fn pass_down(&mut self, notice: Notice, now: Instant) -> Option<Effect> {
        if notice.is_request() {
            return self.rest(now);
        }
        Some(match self.below(notice.handler) {
            Some(below) => self.notify(notice.press, below, now),
            None => self.shut_down(Cause::Press, now),
        })
    }

    /// No notice is open any more: the next request has its turn, the innermost first.
    fn rest(&mut self, now: Instant) -> Option<Effect> {
        self.phase = Phase::Idle;
        let id = self.requested.pop_last()?;
        let press = Press {
            number: 0,
            at: now,
            source: PressSource::Request,
        };
        Some(self.notify(press, id, now))
    }

    fn notify(&mut self, press: Press, handler: HandlerId, now: Instant) -> Effect {
        self.requested.remove(&handler); // it is asked already
        let mut notice = Notice {
            press,
            handler,
            taken: false,
            deadline: None,
        };
        if !notice.is_request() {
            notice.deadline = now.checked_add(self.rules.take_timeout);
        }
        self.phase = Phase::Notified(notice);
        Effect::Notify(handler)
    }

    fn shut_down(&mut self, cause: Cause, now: Instant) -> Effect {
        let deadline = self
            .rules
            .shutdown_deadline
            .and_then(|limit| now.checked_add(limit));
        self.phase = Phase::ShuttingDown { cause, deadline };
        Effect::BeginShutdown(cause)
    }
}

impl Notice {
    fn is_request(&self) -> bool {
        self.press.number == 0
    }
}
