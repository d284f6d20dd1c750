//! A simulated person who looks at the run now and then, and a machine that is suspended and whose clock is set.

use std::time::Duration;

use loop_runner::RunControl;
use loop_state::{
    Head, IterationStep, PauseAfter, RedoScope, Request, ReviewDecision, RuleChange, StopCause,
    StopRequest, StopTiming,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::dice::Dice;
use super::phases::Review;
use super::world::{HOUR, NIGHT, Shared, lock};

#[derive(Debug)]
pub(crate) struct Person {
    world: Shared,
    dice: Dice,
    /// The most minutes between two looks; 0 for a person who sleeps.
    wakes: u64,
    /// The time of the next look in the current process.
    pub(crate) next: Instant,
    frozen: bool,
    said: u32,
}

impl Person {
    pub(crate) fn new(world: &Shared) -> Self {
        let seed = lock(world).seed;
        let mut dice = Dice::new(seed, 2);
        let wakes = dice.pick(&[0, 0, 90, 40, 10]);
        let (world, next) = (world.clone(), Instant::now());
        Self {
            world,
            dice,
            wakes,
            next,
            frozen: false,
            said: 0,
        }
    }

    /// Begins another process of the loop.
    pub(crate) fn begin(&mut self) {
        self.frozen = false;
        self.plan();
    }

    fn plan(&mut self) {
        let minutes = self.wakes.max(30);
        let pause = self.dice.seconds(5, minutes * 60);
        let left = NIGHT.saturating_sub(lock(&self.world).hour());
        self.next = Instant::now() + pause.min(left);
    }

    /// Acts on the run; returns the message to it, if any.
    pub(crate) fn act(&mut self, head: &Head) -> Option<RunControl> {
        self.plan();
        if lock(&self.world).hour() >= NIGHT {
            self.next = Instant::now() + Duration::from_secs(HOUR);
            return Some(self.stop(StopCause::Person, StopTiming::Now));
        }
        if self.frozen {
            return Some(self.freeze(false));
        }
        // The machine can be suspended also while no person is present.
        if self.dice.hits(60) {
            let by = self.dice.seconds(1, 2 * HOUR);
            let mut world = lock(&self.world);
            world.note(format!("the machine is suspended for {by:?}"));
            world.jump(by);
            return None;
        }
        if self.dice.hits(20) {
            let by = self.dice.seconds(1, 60);
            let mut world = lock(&self.world);
            world.note(format!("the clock is set back by {by:?}"));
            world.set_back(by);
            return None;
        }
        if self.dice.hits(15) {
            return Some(self.stop(StopCause::Terminated, StopTiming::Now));
        }
        if matches!(head.step, IterationStep::Review { .. }) {
            return Some(self.review());
        }
        if head.awaits_person() {
            return Some(match self.dice.hits(700) {
                true => Request::Continue.into(),
                false => self.steer(),
            });
        }
        if self.wakes == 0 {
            return None;
        }
        Some(match self.dice.below(100) {
            0..30 => self.steer(),
            30..42 => Request::Interrupt.into(),
            42..54 => {
                let reason = self.dice.hits(500).then(|| "breakfast".into());
                let after = self.dice.pick(&[PauseAfter::Iteration, PauseAfter::Tool]);
                Request::Pause { reason, after }.into()
            }
            54..64 => {
                lock(&self.world).waits = None;
                Request::Skip.into()
            }
            64..70 => Request::FreshSession.into(),
            70..74 if matches!(head.step, IterationStep::Turn { .. }) => {
                lock(&self.world).goes_back();
                let what = self.dice.pick(&[RedoScope::Iteration, RedoScope::Phase]);
                Request::Redo { what }.into()
            }
            74..82 => self.freeze(true),
            82..84 => self.stop(StopCause::Person, StopTiming::AfterIteration),
            84..86 => self.stop(StopCause::Person, StopTiming::Now),
            86..87 => self.stop(StopCause::HungUp, StopTiming::Now),
            87..88 => {
                let mut world = lock(&self.world);
                world.stop_requested = true;
                world.asked.push(StopCause::Person);
                Request::Abort.into()
            }
            88..90 => {
                let phase = head.phase;
                let better = self.dice.below(100);
                let text = format!("Work for p{phase}. Do it better ({better}).");
                Request::Prompt { phase, text }.into()
            }
            90..97 => self.set(head),
            97..98 => self.attend(),
            _ => return None,
        })
    }

    /// Answers a review, or detaches.
    fn review(&mut self) -> RunControl {
        // The run can react before its viewers see the answer.
        lock(&self.world).review.open = false;
        let verdict = match self.dice.below(100) {
            0..60 => ReviewDecision::Continue,
            60..65 => return Request::Continue.into(),
            65..75 => ReviewDecision::StartOver,
            75..80 => {
                lock(&self.world).goes_back();
                return self.steer();
            }
            80..85 => ReviewDecision::Revise(self.words()),
            85..90 => {
                lock(&self.world).asked.push(StopCause::Person);
                ReviewDecision::Exit
            }
            _ => return self.attend(),
        };
        if matches!(
            verdict,
            ReviewDecision::StartOver | ReviewDecision::Revise(_)
        ) {
            lock(&self.world).goes_back();
        }
        Request::Review(verdict).into()
    }

    /// Attaches or detaches the person.
    fn attend(&mut self) -> RunControl {
        let mut world = lock(&self.world);
        let attended = !world.review.attended;
        world.review = Review {
            attended,
            ..Review::default()
        };
        RunControl::Attended(attended)
    }

    fn set(&mut self, head: &Head) -> RunControl {
        let dice = &mut self.dice;
        let time = |secs: u64| Duration::from_secs(secs);
        let change = match dice.below(10) {
            0 => RuleChange::MaxIterations(Some(head.iteration.max(1) + dice.below(60) as u32)),
            1 => RuleChange::MaxIterations(None),
            2 => RuleChange::IterationTimeout(Some(time(600 + dice.below(3600)))),
            3 => RuleChange::IdleTimeout(dice.hits(700).then(|| time(200 + dice.below(1000)))),
            4 => RuleChange::MaxDuration(dice.hits(500).then(|| time(HOUR + dice.below(7 * HOUR)))),
            5 => RuleChange::MaxFailures(dice.pick(&[0, 3, 5])),
            6 => RuleChange::Sleep(time(dice.pick(&[0, 10, 120]))),
            8 => RuleChange::MaxTokens(dice.hits(500).then(|| 50_000 + dice.below(800_000))),
            7 => RuleChange::MaxCost(dice.hits(500).then(|| 500_000 + dice.below(8_000_000))),
            _ => RuleChange::WaitOnLimit(time(dice.pick(&[21600, 3600, 600, 0]))),
        };
        let mut world = lock(&self.world);
        world.sets.push(change);
        world.floor = head.usage;
        Request::Set(change).into()
    }

    fn words(&mut self) -> String {
        self.said += 1;
        format!("STEER{}x{}", self.said, self.dice.below(1000))
    }

    fn steer(&mut self) -> RunControl {
        let text = self.words();
        let now = self.dice.hits(300);
        Request::Steer { text, now }.into()
    }

    fn freeze(&mut self, frozen: bool) -> RunControl {
        self.frozen = frozen;
        // A frozen run ends no wait.
        lock(&self.world).waits = None;
        let done = oneshot::channel().0;
        RunControl::Freeze { frozen, done }
    }

    fn stop(&mut self, by: StopCause, when: StopTiming) -> RunControl {
        let mut world = lock(&self.world);
        world.stop_requested |= when == StopTiming::Now;
        world.asked.push(by);
        RunControl::Stop(StopRequest { by, when })
    }
}
