//! The ladder as a pure state machine: events and their times go in, effects come out.
//!
//! It has no clock, no thread and no signal. [`Interrupts`](crate::Interrupts) drives a ladder; drive one yourself only in a program
//! whose event loop must own every wait.
//!
//! | state | press | answer to the notice |
//! |---|---|---|
//! | idle, no handler | shutdown begins | – |
//! | idle | notice to the topmost handler | – |
//! | idle, a press still counted (cooldown) | shutdown begins | – |
//! | notice open, taken or not | shutdown begins | see [`Resolution`] |
//! | shutting down | hard exit | – (too late) |
//!
//! Two changes need only time. An untaken notice goes to the handler below, but the lowest handler keeps it, so time alone never begins
//! shutdown. A shutdown that takes longer than its deadline becomes a hard exit.
//!
//! A [request](Ladder::request) opens a notice for one handler, but is not a press. It waits while another notice is open, stays with
//! its handler without a time limit, and doesn't change the count of presses or the cooldown. A press while it is open begins shutdown.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::times;
use crate::{Cause, PressSource};

/// The time limits of a ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LadderTimes {
    /// The time for which a press stays counted after its notice was dropped without an answer. Default: 2 s. With zero it doesn't
    /// stay counted.
    pub cooldown: Duration,
    /// The time after an accepted press in which further presses count as the same press. Default: 30 ms. With zero every press counts.
    pub debounce: Duration,
    /// The time for which a handler may leave a notice untaken before the handler below gets it. Default: 1 s.
    pub take_timeout: Duration,
    /// The time after which a shutdown becomes a hard exit. Default: `None`, for ever. With zero this happens at once.
    pub shutdown_deadline: Option<Duration>,
}

impl Default for LadderTimes {
    fn default() -> Self {
        Self {
            cooldown: times::COOLDOWN,
            debounce: times::DEBOUNCE,
            take_timeout: times::TAKE,
            shutdown_deadline: None,
        }
    }
}

/// The id of a handler. Ids are never reused, and a handler that was pushed later has a greater id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlerId(u64);

/// One accepted press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Press {
    /// The number of this press among all accepted presses, from 1; 0 for a request, which is not a press.
    pub number: u64,
    /// The time when the press was accepted, or when the notice of a request was opened.
    pub at: Instant,
    /// The source of the press.
    pub source: PressSource,
}

/// The answer of a handler to its notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The press was handled: the ladder starts over at once.
    Handled,
    /// The handler below decides, or shutdown begins if there is none.
    Declined,
    /// Shutdown begins.
    Escalated,
    /// No answer: the press stays counted for the cooldown.
    Dropped,
}

/// The action that the caller must perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum LadderEffect {
    /// Do nothing: the press was part of the previous press.
    Debounced,
    /// Wake this handler; a notice waits for it.
    Notify(HandlerId),
    /// Begin the graceful shutdown.
    BeginShutdown(Cause),
    /// End the process now. If the caller doesn't, every further press returns this effect again.
    HardExit(Cause),
}

#[derive(Clone, Copy, Debug)]
enum LadderStage {
    Idle,
    Notified(OpenNotice),
    ShuttingDown {
        cause: Cause,
        deadline: Option<Instant>,
    },
}

#[derive(Clone, Copy, Debug)]
struct OpenNotice {
    /// The press; the number 0 means a request.
    press: Press,
    /// The handler that has the notice now. After it has taken the notice, the handler may be gone.
    handler: HandlerId,
    taken: bool,
    /// The time when the notice goes to the handler below, if it is still untaken.
    deadline: Option<Instant>,
}

/// The state machine: the handlers, the one open notice, and the stage.
///
/// Before each event, call [`on_deadline`](Self::on_deadline) until it returns `None`, so that events and deadlines are in the order
/// of time.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use interrupt_stack::{Cause, PressSource, ladder::{LadderEffect, Ladder, LadderTimes}};
///
/// let (mut ladder, now) = (Ladder::new(LadderTimes::default()), Instant::now());
/// let second = Duration::from_secs(1);
/// let handler = ladder.push();
/// assert_eq!(ladder.press(PressSource::Signal, now), LadderEffect::Notify(handler));
/// assert_eq!(ladder.press(PressSource::Signal, now + second), LadderEffect::BeginShutdown(Cause::Press));
/// assert_eq!(ladder.press(PressSource::Signal, now + 9 * second), LadderEffect::HardExit(Cause::Press));
/// ```
#[derive(Clone, Debug)]
pub struct Ladder {
    times: LadderTimes,
    /// The stack: ids increase, so the last handler is the topmost, and the handlers below another one are a range.
    handlers: BTreeSet<HandlerId>,
    next_handler: u64,
    presses: u64,
    last_press: Option<Instant>,
    /// The time when a notice was dropped without an answer. From then on, its press counts until the cooldown ends.
    dropped: Option<Instant>,
    /// The handlers whose requests wait until no notice is open.
    requested: BTreeSet<HandlerId>,
    stage: LadderStage,
}

impl Ladder {
    /// Creates an idle ladder without handlers.
    pub fn new(times: LadderTimes) -> Self {
        Self {
            times,
            handlers: BTreeSet::new(),
            next_handler: 0,
            presses: 0,
            last_press: None,
            dropped: None,
            requested: BTreeSet::new(),
            stage: LadderStage::Idle,
        }
    }

    /// Puts a new handler on top of the stack.
    pub fn push(&mut self) -> HandlerId {
        let id = HandlerId(self.next_handler);
        self.next_handler += 1;
        self.handlers.insert(id);
        id
    }

    /// Removes a handler from any place in the stack. A notice that it has not taken goes to the handler below, as if declined.
    #[must_use]
    pub fn remove(&mut self, id: HandlerId, now: Instant) -> Option<LadderEffect> {
        self.handlers.remove(&id);
        self.requested.remove(&id);
        match self.stage {
            LadderStage::Notified(notice) if notice.handler == id && !notice.taken => {
                self.notify_below(notice, now)
            }
            _ => None,
        }
    }

    /// Accepts a press, or ignores it as a part of the previous press.
    pub fn press(&mut self, source: PressSource, now: Instant) -> LadderEffect {
        if self
            .last_press
            .is_some_and(|last| now.saturating_duration_since(last) < self.times.debounce)
        {
            return LadderEffect::Debounced;
        }
        self.last_press = Some(now);
        self.presses += 1;
        match self.stage {
            LadderStage::ShuttingDown { .. } => LadderEffect::HardExit(Cause::Press),
            LadderStage::Idle if !self.still_counts(now) => match self.handlers.last() {
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
            LadderStage::Idle | LadderStage::Notified(_) => self.shut_down(Cause::Press, now),
        }
    }

    /// Opens a notice for `id` that is not a press. If another notice is open, the request waits until the ladder is idle.
    ///
    /// Nothing changes if there is no such handler, if a notice is already open for it, or in shutdown. The notice stays with its
    /// handler without a time limit. If the handler declines or drops the notice, or is removed, the ladder becomes idle.
    #[must_use]
    pub fn request(&mut self, id: HandlerId, now: Instant) -> Option<LadderEffect> {
        if !self.handlers.contains(&id) {
            return None;
        }
        match self.stage {
            LadderStage::Idle => {
                self.requested.insert(id);
                self.next_request(now)
            }
            LadderStage::Notified(notice) if notice.handler != id => {
                self.requested.insert(id);
                None
            }
            LadderStage::Notified(_) | LadderStage::ShuttingDown { .. } => None,
        }
    }

    pub(crate) fn set_cooldown(&mut self, cooldown: Duration) {
        self.times.cooldown = cooldown;
    }

    pub(crate) fn set_debounce(&mut self, debounce: Duration) {
        self.times.debounce = debounce;
    }

    pub(crate) fn set_shutdown_deadline(&mut self, deadline: Option<Duration>) {
        self.times.shutdown_deadline = deadline;
    }

    /// Notes that the process was stopped and continues. The time in which it was stopped doesn't count.
    ///
    /// The ladder forgets a press that was dropped unanswered. An untaken notice gets its whole take time-out again; a taken notice
    /// doesn't change. A shutdown continues, but its deadline starts again.
    pub fn resumed(&mut self, now: Instant) {
        self.dropped = None;
        let (take, shutdown) = (Some(self.times.take_timeout), self.times.shutdown_deadline);
        let (deadline, limit) = match &mut self.stage {
            LadderStage::Idle => return,
            LadderStage::Notified(notice) => (&mut notice.deadline, take),
            LadderStage::ShuttingDown { deadline, .. } => (deadline, shutdown),
        };
        if deadline.is_some() {
            *deadline = limit.and_then(|limit| now.checked_add(limit));
        }
    }

    /// Begins shutdown; for [`Cause::Quit`], returns a hard exit at once. During shutdown, any other cause changes nothing.
    #[must_use]
    pub fn terminate(&mut self, cause: Cause, now: Instant) -> Option<LadderEffect> {
        match (cause, self.stage) {
            (Cause::Quit, _) => Some(self.hard_exit(cause)),
            (_, LadderStage::ShuttingDown { .. }) => None,
            _ => Some(self.shut_down(cause, now)),
        }
    }

    /// Returns a hard exit by `cause`, from any stage. If no shutdown has begun, one begins now, without a deadline.
    pub fn hard_exit(&mut self, cause: Cause) -> LadderEffect {
        if self.cause().is_none() {
            self.stage = LadderStage::ShuttingDown {
                cause,
                deadline: None,
            };
        }
        LadderEffect::HardExit(cause)
    }

    /// Returns the open notice to `id`, if this handler has the notice and has not taken it. A taken notice has no time limit.
    #[must_use]
    pub fn take(&mut self, id: HandlerId) -> Option<Press> {
        match &mut self.stage {
            LadderStage::Notified(notice) if notice.handler == id && !notice.taken => {
                notice.taken = true;
                Some(notice.press)
            }
            _ => None,
        }
    }

    /// Answers the taken notice of the press with this number. After shutdown has begun, an answer changes nothing.
    #[must_use]
    pub fn resolve(
        &mut self,
        number: u64,
        resolution: Resolution,
        now: Instant,
    ) -> Option<LadderEffect> {
        let LadderStage::Notified(notice) = self.stage else {
            return None;
        };
        if notice.press.number != number || !notice.taken {
            return None;
        }
        match resolution {
            Resolution::Declined => self.notify_below(notice, now),
            Resolution::Escalated => Some(self.shut_down(Cause::Press, now)),
            Resolution::Handled | Resolution::Dropped => {
                if !notice.is_request() {
                    self.dropped = Some(now).filter(|_| resolution == Resolution::Dropped);
                }
                self.next_request(now)
            }
        }
    }

    /// Returns the time of the next deadline, at which the caller must call [`on_deadline`](Self::on_deadline).
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.stage {
            LadderStage::Idle => None,
            LadderStage::Notified(notice) => notice.deadline.filter(|_| !notice.taken),
            LadderStage::ShuttingDown { deadline, .. } => deadline,
        }
    }

    /// Handles one due deadline and returns its effect; `None` if no deadline is due.
    #[must_use]
    pub fn on_deadline(&mut self, now: Instant) -> Option<LadderEffect> {
        self.next_deadline().filter(|deadline| *deadline <= now)?;
        match &mut self.stage {
            LadderStage::Idle => None,
            LadderStage::Notified(notice) => {
                let untaken = *notice;
                // The lowest handler keeps the notice and may still take it: time alone never begins shutdown.
                notice.deadline = None;
                self.below(untaken.handler)
                    .map(|below| self.notify(untaken.press, below, now))
            }
            LadderStage::ShuttingDown { cause, deadline } => {
                *deadline = None;
                Some(LadderEffect::HardExit(*cause))
            }
        }
    }

    /// Returns the cause of the shutdown, if it has begun.
    pub fn cause(&self) -> Option<Cause> {
        match self.stage {
            LadderStage::ShuttingDown { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// Returns how many presses were accepted.
    pub fn presses(&self) -> u64 {
        self.presses
    }

    /// Returns the stage of the ladder: 0 idle, 1 a notice is open, 2 shutting down.
    pub(crate) fn stage(&self) -> u8 {
        match self.stage {
            LadderStage::Idle => 0,
            LadderStage::Notified(_) => 1,
            LadderStage::ShuttingDown { .. } => 2,
        }
    }

    fn still_counts(&self, now: Instant) -> bool {
        self.dropped
            .is_some_and(|at| now.saturating_duration_since(at) < self.times.cooldown)
    }

    fn below(&self, id: HandlerId) -> Option<HandlerId> {
        self.handlers.range(..id).next_back().copied()
    }

    fn notify_below(&mut self, notice: OpenNotice, now: Instant) -> Option<LadderEffect> {
        if notice.is_request() {
            return self.next_request(now);
        }
        Some(match self.below(notice.handler) {
            Some(below) => self.notify(notice.press, below, now),
            None => self.shut_down(Cause::Press, now),
        })
    }

    /// Makes the ladder idle, and opens the next waiting request, the innermost handler first.
    fn next_request(&mut self, now: Instant) -> Option<LadderEffect> {
        self.stage = LadderStage::Idle;
        let id = self.requested.pop_last()?;
        let press = Press {
            number: 0,
            at: now,
            source: PressSource::Request,
        };
        Some(self.notify(press, id, now))
    }

    fn notify(&mut self, press: Press, handler: HandlerId, now: Instant) -> LadderEffect {
        self.requested.remove(&handler); // this notice answers the request too
        let mut notice = OpenNotice {
            press,
            handler,
            taken: false,
            deadline: None,
        };
        if !notice.is_request() {
            notice.deadline = now.checked_add(self.times.take_timeout);
        }
        self.stage = LadderStage::Notified(notice);
        LadderEffect::Notify(handler)
    }

    fn shut_down(&mut self, cause: Cause, now: Instant) -> LadderEffect {
        let deadline = self
            .times
            .shutdown_deadline
            .and_then(|limit| now.checked_add(limit));
        self.stage = LadderStage::ShuttingDown { cause, deadline };
        LadderEffect::BeginShutdown(cause)
    }
}

impl OpenNotice {
    fn is_request(&self) -> bool {
        self.press.number == 0
    }
}
