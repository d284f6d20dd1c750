//! The facts that follow from the events and effects of a history. The invariants compare the ladder with them.

use std::collections::BTreeSet;

use interrupt_stack::{
    Cause, HandlerId, PressSource,
    ladder::{LadderEffect, Press, Resolution},
};

use super::step::Step;

pub(super) const DEBOUNCE: u64 = 30;
pub(super) const TAKE: u64 = 1000;
pub(super) const COOLDOWN: u64 = 2000;
pub(super) const SHUTDOWN: u64 = 8000;
/// An age above every time limit of the ladder; all older times are equivalent.
pub(super) const OLD: u64 = 10_000;

/// The state of a ladder as its events and effects show it. Times are milliseconds since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Facts {
    /// The handlers, from the lowest to the topmost.
    pub(super) alive: Vec<HandlerId>,
    pub(super) accepted: u64,
    pub(super) last_press: Option<u64>,
    pub(super) open: Option<Open>,
    /// The notice that a handler holds; it may no longer be open.
    pub(super) held: Option<Pressed>,
    /// The time when a notice was dropped unanswered, if no press came after that.
    pub(super) dropped: Option<u64>,
    pub(super) shutdown: Option<(Cause, u64)>,
    /// The handlers with a waiting request.
    pub(super) requested: BTreeSet<HandlerId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Open {
    pub(super) press: Pressed,
    pub(super) handler: HandlerId,
    /// The time when this handler got the notice.
    pub(super) since: u64,
    pub(super) taken: bool,
}

/// The expected data of a press in its notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pressed {
    pub(super) number: u64,
    pub(super) source: PressSource,
    pub(super) at: u64,
}

impl Open {
    pub(super) fn is_request(&self) -> bool {
        self.press.source == PressSource::Request
    }
}

impl Facts {
    /// Returns whether a press now is a new press.
    pub(super) fn accepts(&self, now: u64) -> bool {
        self.last_press.is_none_or(|last| now - last >= DEBOUNCE)
    }

    pub(super) fn below(&self, id: HandlerId) -> Option<HandlerId> {
        self.alive.iter().copied().filter(|other| *other < id).max()
    }

    /// Returns the next time at which time alone changes something; a minute from now if there is none.
    pub(super) fn boundary(&self, now: u64) -> u64 {
        let untaken = self.open.filter(|open| !open.taken && !open.is_request());
        [
            self.last_press.map(|at| at + DEBOUNCE),
            self.dropped.map(|at| at + COOLDOWN),
            untaken.map(|open| open.since + TAKE),
            self.shutdown.map(|(_, at)| at + SHUTDOWN),
        ]
        .into_iter()
        .flatten()
        .filter(|at| *at > now)
        .min()
        .unwrap_or(now + 60_000)
    }

    pub(super) fn learn(
        &mut self,
        step: Step,
        now: u64,
        effects: &[(u64, LadderEffect)],
        got: Option<Press>,
    ) {
        // The press of the next notice: the press that is passed down, or `None` for the next request.
        let mut press = self
            .open
            .filter(|open| !open.is_request())
            .map(|open| open.press);
        match step {
            Step::Press(source) if self.accepts(now) => {
                self.accepted += 1;
                (self.last_press, self.dropped) = (Some(now), None);
                press = Some(Pressed {
                    number: self.accepted,
                    source,
                    at: now,
                });
            }
            Step::Drop(_) => {
                self.requested.retain(|id| self.alive.contains(id));
                let is_gone = |open: &Open| !open.taken && !self.alive.contains(&open.handler);
                if self.open.as_ref().is_some_and(is_gone) {
                    self.open = None;
                }
            }
            Step::Take => {
                if let (Some(_), Some(open)) = (got, &mut self.open) {
                    open.taken = true;
                    self.held = Some(open.press);
                }
            }
            Step::Resolve(resolution) => {
                let held = self.held.take();
                let its = |open: &Open| open.taken && Some(open.press) == held;
                if let Some(open) = self.open.take_if(|open| its(open))
                    && let Resolution::Handled | Resolution::Dropped = resolution
                {
                    press = None;
                    if !open.is_request() {
                        self.dropped = (resolution == Resolution::Dropped).then_some(now);
                    }
                }
            }
            Step::Request(place) if self.shutdown.is_none() => {
                let id = self.alive[place];
                if self.open.is_none_or(|open| open.handler != id) {
                    self.requested.insert(id);
                }
            }
            Step::Resumed => {
                self.dropped = None;
                self.open.iter_mut().for_each(|open| open.since = now);
                if let Some((_, at)) = &mut self.shutdown
                    && now < *at + SHUTDOWN
                {
                    *at = now;
                }
            }
            _ => {}
        }
        for &(at, effect) in effects {
            match effect {
                LadderEffect::Notify(handler) => {
                    self.requested.remove(&handler);
                    let request = Pressed {
                        number: 0,
                        source: PressSource::Request,
                        at,
                    };
                    self.open = Some(Open {
                        press: press.unwrap_or(request),
                        handler,
                        since: at,
                        taken: false,
                    });
                }
                LadderEffect::BeginShutdown(cause) => {
                    (self.open, self.dropped) = (None, None);
                    self.shutdown = Some((cause, at));
                }
                _ => {}
            }
        }
    }

    /// Returns the facts with times relative to now.
    pub(super) fn relative(&self, now: u64) -> Self {
        let mut facts = self.clone();
        let age = |at: &mut u64| *at = (now - *at).min(OLD);
        facts.last_press.iter_mut().for_each(age);
        facts.dropped.iter_mut().for_each(age);
        facts.shutdown.iter_mut().for_each(|(_, at)| age(at));
        facts.held.iter_mut().for_each(|press| age(&mut press.at));
        facts.open.iter_mut().for_each(|open| {
            age(&mut open.since);
            age(&mut open.press.at);
        });
        facts
    }
}
