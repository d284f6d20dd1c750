//! Ladders with one bug each, to show that every invariant reports its violation.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use interrupt_stack::{
    Cause, HandlerId, PressSource,
    ladder::{Ladder, LadderEffect, LadderTimes, Press, Resolution},
};

use super::facts::{DEBOUNCE, OLD, TAKE};

/// A bug of a ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    SwallowsTheSecondPress,
    CountsTwice,
    ForgetsTheDebounce,
    NamesAnotherSource,
    AsksTheLowestFirst,
    ResetsAnOpenNoticeByTheClock,
    CountsAnAnsweredPress,
    CountsFromThePress,
    ForgetsADrop,
    BeginsShutdownAgain,
    DeclinesToTheTop,
    IgnoresEscalate,
    SwallowsTheNoticeOfADroppedHandler,
    TimesOutATakenNotice,
    LeavesAnUntakenNotice,
    WalksIntoShutdown,
    ForgetsTheShutdownDeadline,
    ExitsTwiceByTheShutdownDeadline,
    ShowsTerminateToTheStack,
    TakesTheLaterCause,
    HandsOutToAnybody,
    LetsALateAnswerEscalate,
    NeverExits,
    RequestsOfTheTopmost,
    WalksDownWithARequest,
    ForgivesForARequest,
    LosesAWaitingRequest,
    RemembersADropOverAStop,
}

use Sabotage as S;

/// All bugs, each with the invariant that must report it.
pub(super) const SABOTAGES: &[(Sabotage, &str)] = &[
    (S::SwallowsTheSecondPress, "accepted_press_has_an_effect"),
    (S::CountsTwice, "no_press_is_lost_or_counted_twice"),
    (S::ForgetsTheDebounce, "no_press_is_lost_or_counted_twice"),
    (S::NamesAnotherSource, "no_press_is_lost_or_counted_twice"),
    (S::AsksTheLowestFirst, "first_press_goes_to_the_topmost"),
    (
        S::ResetsAnOpenNoticeByTheClock,
        "press_on_an_open_notice_escalates",
    ),
    (S::CountsAnAnsweredPress, "handled_resets_at_once"),
    (S::CountsFromThePress, "cooldown_runs_from_the_drop"),
    (S::ForgetsADrop, "cooldown_runs_from_the_drop"),
    (S::BeginsShutdownAgain, "press_in_shutdown_exits"),
    (S::DeclinesToTheTop, "decline_goes_strictly_below"),
    (S::IgnoresEscalate, "escalate_begins_shutdown"),
    (
        S::SwallowsTheNoticeOfADroppedHandler,
        "dropped_handler_passes_its_notice_down",
    ),
    (S::TimesOutATakenNotice, "taken_notice_never_times_out"),
    (S::LeavesAnUntakenNotice, "untaken_notice_walks_down"),
    (S::WalksIntoShutdown, "time_alone_never_shuts_down"),
    (
        S::ForgetsTheShutdownDeadline,
        "shutdown_deadline_exits_once_by_the_cause",
    ),
    (
        S::ExitsTwiceByTheShutdownDeadline,
        "shutdown_deadline_exits_once_by_the_cause",
    ),
    (S::ShowsTerminateToTheStack, "terminate_passes_the_stack"),
    (S::TakesTheLaterCause, "shutdown_is_for_ever"),
    (S::HandsOutToAnybody, "notice_is_handed_out_once"),
    (S::LetsALateAnswerEscalate, "late_answer_changes_nothing"),
    (S::NeverExits, "three_presses_end_it"),
    (S::RequestsOfTheTopmost, "request_asks_its_handler_alone"),
    (S::WalksDownWithARequest, "untaken_request_stays"),
    (S::ForgivesForARequest, "request_leaves_no_trace"),
    (S::LosesAWaitingRequest, "waiting_request_has_its_turn"),
    (S::RemembersADropOverAStop, "stopped_time_is_not_counted"),
];

/// A ladder whose times are milliseconds, and which may have one bug.
#[derive(Clone)]
pub(super) struct Machine {
    ladder: Ladder,
    start: Instant,
    /// The start in nanoseconds, as its debug output shows it.
    zero: i128,
    sabotage: Option<Sabotage>,
    memory: Memory,
}

/// The data that the bugs need.
#[derive(Clone, Debug, Default)]
struct Memory {
    handlers: Vec<HandlerId>,
    opened: Option<Instant>,
    taken: Option<(Press, Instant)>,
    asked: Option<(HandlerId, Instant)>,
    exited: u8,
    cause: Option<Cause>,
}

impl Machine {
    pub(super) fn new(mut rules: LadderTimes, start: Instant, sabotage: Option<Sabotage>) -> Self {
        if sabotage == Some(S::ForgetsTheDebounce) {
            rules.debounce = Duration::ZERO;
        }
        Self {
            ladder: Ladder::new(rules),
            start,
            zero: nanoseconds(&format!("{start:?}")),
            sabotage,
            memory: Memory::default(),
        }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    pub(super) fn ms(&self, at: Instant) -> u64 {
        at.duration_since(self.start).as_millis() as u64
    }

    fn is(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    pub(super) fn push(&mut self) -> HandlerId {
        let id = self.ladder.push();
        self.memory.handlers.push(id);
        id
    }

    pub(super) fn remove(&mut self, id: HandlerId, now: u64) -> Option<LadderEffect> {
        let now = self.at(now);
        self.memory.handlers.retain(|other| *other != id);
        if self.is(S::SwallowsTheNoticeOfADroppedHandler)
            && let Some(press) = self.ladder.take(id)
        {
            return self.ladder.resolve(press.number, Resolution::Handled, now);
        }
        self.ladder.remove(id, now)
    }

    pub(super) fn press(&mut self, source: PressSource, ms: u64) -> LadderEffect {
        let now = self.at(ms);
        match self.sabotage {
            Some(S::SwallowsTheSecondPress) if self.ladder.presses() == 1 => {
                return LadderEffect::Debounced;
            }
            Some(S::ResetsAnOpenNoticeByTheClock) => {
                let old = |at| now.duration_since(at) >= Duration::from_secs(2);
                if self.memory.opened.is_some_and(old) {
                    self.answer_whatever_is_open(now);
                }
            }
            _ => {}
        }
        let effect = self.ladder.press(source, now);
        match (self.sabotage, effect) {
            (Some(S::CountsTwice), LadderEffect::Notify(_)) => {
                self.ladder.press(source, self.at(ms + DEBOUNCE))
            }
            (Some(S::AsksTheLowestFirst), LadderEffect::Notify(mut id)) => {
                while id != self.memory.handlers[0] {
                    let press = self.ladder.take(id).expect("it was just notified");
                    let below = self.ladder.resolve(press.number, Resolution::Declined, now);
                    let Some(LadderEffect::Notify(below)) = below else {
                        unreachable!("the lowest handler is below")
                    };
                    id = below;
                }
                LadderEffect::Notify(id)
            }
            (Some(S::BeginsShutdownAgain), LadderEffect::HardExit(cause)) => {
                LadderEffect::BeginShutdown(cause)
            }
            (Some(S::NeverExits), LadderEffect::HardExit(_)) => LadderEffect::Debounced,
            (_, LadderEffect::Notify(_)) => {
                self.memory.opened = Some(now);
                effect
            }
            _ => effect,
        }
    }

    fn answer_whatever_is_open(&mut self, now: Instant) {
        let untaken = self
            .memory
            .handlers
            .iter()
            .find_map(|id| self.ladder.take(*id));
        if let Some(press) = untaken.or(self.memory.taken.map(|(press, _)| press)) {
            let _: Option<LadderEffect> =
                self.ladder.resolve(press.number, Resolution::Handled, now);
        }
    }

    pub(super) fn terminate(&mut self, cause: Cause, ms: u64) -> Option<LadderEffect> {
        let now = self.at(ms);
        self.memory.cause = Some(cause);
        if self.is(S::ShowsTerminateToTheStack) && !self.memory.handlers.is_empty() {
            return Some(self.ladder.press(PressSource::Signal, now));
        }
        self.ladder.terminate(cause, now)
    }

    pub(super) fn request(&mut self, mut id: HandlerId, ms: u64) -> Option<LadderEffect> {
        let now = self.at(ms);
        match self.sabotage {
            Some(S::RequestsOfTheTopmost) => id = *self.memory.handlers.last()?,
            Some(S::LosesAWaitingRequest) if self.ladder.next_deadline().is_some() => return None,
            _ => {}
        }
        let effect = self.ladder.request(id, now);
        if effect.is_some() {
            self.memory.asked = Some((id, now));
        }
        effect
    }

    pub(super) fn resumed(&mut self, ms: u64) {
        if !self.is(S::RemembersADropOverAStop) {
            self.ladder.resumed(self.at(ms));
        }
    }

    pub(super) fn take(&mut self, id: HandlerId, ms: u64) -> Option<Press> {
        let now = self.at(ms);
        let mut press = self.ladder.take(id);
        if self.is(S::HandsOutToAnybody) {
            press = press.or_else(|| {
                self.memory
                    .handlers
                    .iter()
                    .find_map(|id| self.ladder.take(*id))
            });
        }
        self.memory.taken = press.map(|press| (press, now)).or(self.memory.taken);
        if self.is(S::NamesAnotherSource)
            && let Some(press) = &mut press
        {
            press.source = PressSource::Injected;
        }
        press
    }

    pub(super) fn resolve(
        &mut self,
        number: u64,
        answer: Resolution,
        ms: u64,
    ) -> Option<LadderEffect> {
        let mut now = self.at(ms);
        let mut answered = answer;
        match (self.sabotage, answer) {
            (Some(S::CountsAnAnsweredPress), Resolution::Handled) => answered = Resolution::Dropped,
            (Some(S::IgnoresEscalate), Resolution::Escalated)
            | (Some(S::ForgetsADrop), Resolution::Dropped) => answered = Resolution::Handled,
            (Some(S::CountsFromThePress), Resolution::Dropped) => {
                now = self.memory.taken.map_or(now, |(press, _)| press.at);
            }
            (Some(S::LetsALateAnswerEscalate), _) if self.ladder.cause().is_some() => {
                return Some(LadderEffect::BeginShutdown(Cause::Press));
            }
            _ => {}
        }
        if self.is(S::ForgivesForARequest) && number == 0 {
            self.ladder.resumed(now);
        }
        self.memory.taken = None;
        let effect = self.ladder.resolve(number, answered, now);
        match (self.sabotage, effect) {
            (Some(S::DeclinesToTheTop), Some(LadderEffect::Notify(_))) => self
                .memory
                .handlers
                .last()
                .copied()
                .map(LadderEffect::Notify),
            _ => effect,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        let stopping = self.ladder.cause().is_some();
        let is = self.ladder.next_deadline();
        let deadline = match self.sabotage {
            Some(S::TimesOutATakenNotice) => {
                let taken = self.memory.taken.filter(|_| !stopping);
                is.or(taken.map(|(_, at)| at + Duration::from_millis(TAKE)))
            }
            Some(S::WalksDownWithARequest) => {
                let asked = self.memory.asked.filter(|_| !stopping);
                is.or(asked.map(|(_, at)| at + Duration::from_millis(TAKE)))
            }
            Some(S::LeavesAnUntakenNotice) => is.filter(|_| stopping),
            Some(S::ForgetsTheShutdownDeadline) => is.filter(|_| !stopping),
            Some(S::ExitsTwiceByTheShutdownDeadline) if self.memory.exited == 1 => Some(self.start),
            _ => is,
        };
        deadline.map(|at| self.ms(at))
    }

    pub(super) fn on_deadline(&mut self, ms: u64) -> Option<LadderEffect> {
        let now = self.at(ms);
        let effect = self.ladder.on_deadline(now);
        match self.sabotage {
            Some(S::TimesOutATakenNotice) if effect.is_none() => {
                let (press, _) = self.memory.taken.take()?;
                self.ladder.resolve(press.number, Resolution::Declined, now)
            }
            Some(S::WalksDownWithARequest) if effect.is_none() => {
                let (id, _) = self.memory.asked.take()?;
                self.ladder.remove(id, now)
            }
            Some(S::WalksIntoShutdown) if effect.is_none() => {
                self.ladder.terminate(Cause::Press, now)
            }
            Some(S::ExitsTwiceByTheShutdownDeadline) if self.ladder.cause().is_some() => {
                self.memory.exited += 1;
                effect.or(self.ladder.cause().map(LadderEffect::HardExit))
            }
            _ => effect,
        }
    }

    pub(super) fn cause(&self) -> Option<Cause> {
        let cause = self.ladder.cause();
        match self.sabotage {
            Some(S::TakesTheLaterCause) => cause.and(self.memory.cause.or(cause)),
            _ => cause,
        }
    }

    pub(super) fn presses(&self) -> u64 {
        self.ladder.presses()
    }

    /// Returns the whole state as text, with times relative to now. The debug output of an `Instant` contains its seconds and
    /// nanoseconds, and the state depends only on their differences.
    pub(super) fn relative(&self, now: u64) -> String {
        let mut text = format!("{:?}", self.ladder);
        if self.sabotage.is_some() {
            text += &format!("{:?}", self.memory);
        }
        let now = self.zero + i128::from(now) * 1_000_000;
        let mut parts = text.split("Instant ");
        let mut relative = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (instant, rest) = part.split_once('}').expect("an instant ends with a brace");
            let age = (now - nanoseconds(instant)).min(i128::from(OLD) * 1_000_000);
            write!(relative, "{age}{rest}").expect("writing to a string succeeds");
        }
        relative
    }
}

fn nanoseconds(instant: &str) -> i128 {
    let mut numbers = instant
        .split(|c: char| !c.is_ascii_digit())
        .filter(|part| !part.is_empty());
    let mut number = || -> i128 {
        numbers
            .next()
            .and_then(|n| n.parse().ok())
            .expect("two numbers")
    };
    number() * 1_000_000_000 + number()
}
