//! Compares random histories with a simple model of the rules, in milliseconds.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use interrupt_stack::{
    Cause, HandlerId, PressSource,
    ladder::{Ladder, LadderEffect, LadderTimes, Resolution},
};
use proptest::{prelude::*, sample::select};

#[derive(Clone, Debug)]
enum Step {
    Push,
    Remove(usize),
    Press,
    Terminate(Cause),
    HardExit(Cause),
    Take(usize),
    Resolve(Resolution),
    Request(usize),
    Resumed,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let causes = select(vec![
        Cause::Press,
        Cause::Terminate,
        Cause::Hangup,
        Cause::Requested(1),
        Cause::Quit,
    ]);
    let answers = select(vec![
        Resolution::Handled,
        Resolution::Declined,
        Resolution::Escalated,
        Resolution::Dropped,
    ]);
    prop_oneof![
        4 => Just(Step::Push),
        2 => (0..6_usize).prop_map(Step::Remove),
        8 => Just(Step::Press),
        1 => causes.clone().prop_map(Step::Terminate),
        1 => causes.prop_map(Step::HardExit),
        6 => (0..6_usize).prop_map(Step::Take),
        5 => prop_oneof![2 => Just(Resolution::Handled), 3 => answers].prop_map(Step::Resolve),
        6 => (0..6_usize).prop_map(Step::Request),
        2 => Just(Step::Resumed),
        8 => select(vec![1, 29, 30, 31, 300, 999, 1000, 1001, 1999, 2000, 2001, 8000]).prop_map(Step::Wait),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ModelEffect {
    Notify(usize),
    Shutdown(Cause),
    Exit(Cause),
}

/// A simple model of the rules, in milliseconds: the live handlers, the handler that has the notice, and the time when it got the notice.
#[derive(Default)]
struct Model {
    now: u64,
    pushed: usize,
    alive: Vec<usize>,
    accepted: Vec<u64>,
    /// The open notice: its handler, the time when the handler got it, and whether it is taken.
    open: Option<(usize, u64, bool)>,
    /// Whether the open notice is a request.
    is_asked: bool,
    /// The handlers with waiting requests.
    waiting: BTreeSet<usize>,
    ignored_at: Option<u64>,
    stopping: Option<Cause>,
    stop_by: Option<u64>,
}

impl Model {
    fn stop(&mut self, cause: Cause) -> Option<ModelEffect> {
        (self.open, self.ignored_at, self.stopping, self.stop_by) =
            (None, None, Some(cause), Some(self.now + 8000));
        Some(ModelEffect::Shutdown(cause))
    }

    fn offer_below(&mut self, limit: usize) -> Option<ModelEffect> {
        let next = self.alive.iter().copied().filter(|&h| h < limit).max()?;
        self.waiting.remove(&next);
        (self.open, self.is_asked) = (Some((next, self.now, false)), false);
        Some(ModelEffect::Notify(next))
    }

    /// Closes the notice, and opens the waiting request of the innermost handler.
    fn ask(&mut self) -> Option<ModelEffect> {
        (self.open, self.is_asked) = (None, true);
        let next = self.waiting.pop_last()?;
        self.open = Some((next, self.now, false));
        Some(ModelEffect::Notify(next))
    }

    /// Declines the open notice for this handler.
    fn refuse(&mut self, handler: usize) -> Option<ModelEffect> {
        if self.is_asked {
            return self.ask();
        }
        self.offer_below(handler)
            .or_else(|| self.stop(Cause::Press))
    }

    fn request(&mut self, handler: usize) -> Option<ModelEffect> {
        match self.open {
            _ if self.stopping.is_some() => None,
            Some((holder, ..)) if holder == handler => None,
            Some(_) => {
                self.waiting.insert(handler);
                None
            }
            None => {
                self.waiting.insert(handler);
                self.ask()
            }
        }
    }

    fn resumed(&mut self) {
        self.ignored_at = None;
        if let Some((_, since, false)) = &mut self.open {
            *since = self.now;
        }
        if self.stop_by.is_some() {
            self.stop_by = Some(self.now + 8000);
        }
    }

    fn press(&mut self) -> Option<ModelEffect> {
        if self
            .accepted
            .last()
            .is_some_and(|last| self.now < last + 30)
        {
            return None;
        }
        self.accepted.push(self.now);
        if self.stopping.is_some() {
            return Some(ModelEffect::Exit(Cause::Press));
        }
        let counted = self.ignored_at.is_some_and(|at| self.now < at + 2000);
        if self.open.is_some() || counted {
            return self.stop(Cause::Press);
        }
        self.ignored_at = None;
        self.offer_below(usize::MAX)
            .or_else(|| self.stop(Cause::Press))
    }

    fn hard_exit(&mut self, cause: Cause) -> ModelEffect {
        if self.stopping.is_none() {
            self.stop(cause);
            self.stop_by = None;
        }
        ModelEffect::Exit(cause)
    }

    fn terminate(&mut self, cause: Cause) -> Option<ModelEffect> {
        match (cause, self.stopping) {
            (Cause::Quit, _) => Some(self.hard_exit(cause)),
            (_, Some(_)) => None,
            _ => self.stop(cause),
        }
    }

    fn remove(&mut self, handler: usize) -> Option<ModelEffect> {
        self.alive.retain(|&h| h != handler);
        self.waiting.remove(&handler);
        if self
            .open
            .is_some_and(|(h, _, taken)| h == handler && !taken)
        {
            return self.refuse(handler);
        }
        None
    }

    fn take(&mut self, handler: usize) -> bool {
        let mine = self
            .open
            .is_some_and(|(h, _, taken)| h == handler && !taken);
        if mine {
            self.open = Some((handler, self.now, true));
        }
        mine
    }

    fn resolve(&mut self, resolution: Resolution) -> Option<ModelEffect> {
        let Some((handler, _, true)) = self.open else {
            return None;
        };
        if !self.is_asked {
            match resolution {
                Resolution::Handled => self.ignored_at = None,
                Resolution::Dropped => self.ignored_at = Some(self.now),
                _ => {}
            }
        }
        match resolution {
            Resolution::Handled | Resolution::Dropped => self.ask(),
            Resolution::Declined => self.refuse(handler),
            Resolution::Escalated => self.stop(Cause::Press),
        }
    }

    /// Handles one deadline that is due in this millisecond.
    fn tick(&mut self) -> Option<ModelEffect> {
        if let Some((handler, since, false)) = self.open
            && !self.is_asked
            && self.now >= since + 1000
            && let Some(said) = self.offer_below(handler)
        {
            return Some(said);
        }
        if self.stop_by.is_some_and(|at| self.now >= at) {
            self.stop_by = None;
            return Some(ModelEffect::Exit(
                self.stopping.expect("only a shutdown has a deadline"),
            ));
        }
        None
    }
}

fn check(steps: Vec<Step>) {
    let mut rules = LadderTimes::default();
    rules.shutdown_deadline = Some(Duration::from_secs(8));
    let (mut ladder, mut model, start) = (Ladder::new(rules), Model::default(), Instant::now());
    let mut ids: Vec<HandlerId> = Vec::new();
    let mut taken = None;
    let mut was_stopping = false;
    for step in steps {
        let now = start + Duration::from_millis(model.now);
        let said = |effect: Option<LadderEffect>, ids: &[HandlerId]| match effect {
            None | Some(LadderEffect::Debounced) => None,
            Some(LadderEffect::Notify(id)) => Some(ModelEffect::Notify(
                ids.iter().position(|i| *i == id).expect("a known id"),
            )),
            Some(LadderEffect::BeginShutdown(cause)) => Some(ModelEffect::Shutdown(cause)),
            Some(LadderEffect::HardExit(cause)) => Some(ModelEffect::Exit(cause)),
            Some(other) => panic!("unknown effect {other:?}"),
        };
        let (is, should) = match step {
            Step::Push => {
                ids.push(ladder.push());
                model.alive.push(model.pushed);
                model.pushed += 1;
                (None, None)
            }
            Step::Remove(n) => match model.alive.get(n).copied() {
                Some(handler) => (
                    said(ladder.remove(ids[handler], now), &ids),
                    model.remove(handler),
                ),
                None => (None, None),
            },
            Step::Press => (
                said(Some(ladder.press(PressSource::Signal, now)), &ids),
                model.press(),
            ),
            Step::HardExit(cause) => (
                said(Some(ladder.hard_exit(cause)), &ids),
                Some(model.hard_exit(cause)),
            ),
            Step::Terminate(cause) => (
                said(ladder.terminate(cause, now), &ids),
                model.terminate(cause),
            ),
            Step::Take(n) => {
                if let Some(handler) = model.alive.get(n).copied() {
                    let press = ladder.take(ids[handler]);
                    assert_eq!(press.is_some(), model.take(handler));
                    taken = press.or(taken);
                }
                (None, None)
            }
            Step::Resolve(resolution) => match taken.take() {
                Some(press) => (
                    said(ladder.resolve(press.number, resolution, now), &ids),
                    model.resolve(resolution),
                ),
                None => (None, None),
            },
            Step::Request(n) => match model.alive.get(n).copied() {
                Some(handler) => (
                    said(ladder.request(ids[handler], now), &ids),
                    model.request(handler),
                ),
                None => (None, None),
            },
            Step::Resumed => {
                ladder.resumed(now);
                model.resumed();
                (None, None)
            }
            Step::Wait(ms) => {
                for _ in 0..ms {
                    model.now += 1;
                    let now = start + Duration::from_millis(model.now);
                    loop {
                        let should = model.tick();
                        assert_eq!(
                            said(ladder.on_deadline(now), &ids),
                            should,
                            "at {} ms",
                            model.now
                        );
                        if should.is_none() {
                            break;
                        }
                    }
                }
                (None, None)
            }
        };
        assert_eq!(is, should, "at {} ms", model.now);
        assert_eq!(
            (ladder.cause(), ladder.presses()),
            (model.stopping, model.accepted.len() as u64)
        );
        assert!(
            !was_stopping || !matches!(is, Some(ModelEffect::Notify(_) | ModelEffect::Shutdown(_))),
            "a shutdown never ends or begins again"
        );
        was_stopping = model.stopping.is_some();

        // From every state, three unanswered presses end the process.
        let mut ends = ladder.clone();
        let effects: Vec<_> = (1..=3)
            .map(|n| ends.press(PressSource::Signal, now + n * Duration::from_secs(60)))
            .collect();
        assert_eq!(
            effects[2],
            LadderEffect::HardExit(Cause::Press),
            "{effects:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]
    #[test]
    fn ladder_agrees_with_the_model(steps in prop::collection::vec(step(), 0..80)) {
        check(steps);
    }

    /// Any number of signals raises the stage by at most one per debounce window.
    #[test]
    fn storm_advances_one_stage_per_window(gaps in prop::collection::vec(0..20_u64, 1..300)) {
        let (mut ladder, mut now) = (Ladder::new(LadderTimes::default()), Instant::now());
        for gap in &gaps {
            now += Duration::from_millis(*gap);
            let _: LadderEffect = ladder.press(PressSource::Signal, now);
        }
        let total: u64 = gaps[1..].iter().sum();
        prop_assert!(ladder.presses() >= 1 && ladder.presses() <= 1 + total / 30);
    }
}
