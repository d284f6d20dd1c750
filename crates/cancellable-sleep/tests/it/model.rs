//! Compares random histories of gates and their sleepers with a simple model of the results and their times.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    pin::pin,
    time::{Duration, SystemTime},
};

use cancellable_sleep::{SleepGate, Wake};
use proptest::prelude::*;
use tokio::{task::JoinHandle, time::advance};

use crate::{now, poll_once, settle, wall::Day};

#[derive(Clone, Debug)]
enum Step {
    /// Whether the sleep is at the child gate, and its milliseconds.
    Sleep(bool, u64),
    SleepUntil(bool, u64),
    SleepUntilWall(bool, u64),
    Tick(bool, u64),
    /// Work at the gate that takes this many milliseconds.
    Run(bool, u64),
    Advance(u64),
    /// A jump of the time of day, forwards or backwards, in milliseconds.
    Jump(i64),
    Wake(bool),
    Drop(usize),
    Shutdown(bool),
    /// A shutdown in batches of this size, which is dropped after one poll.
    ShutdownInBatches(bool, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let ms = || prop_oneof![9 => 0..50_u64, 1 => Just(u64::MAX)];
    let child = any::<bool>;
    prop_oneof![
        5 => (child(), ms()).prop_map(|(child, ms)| Step::Sleep(child, ms)),
        1 => (child(), 0..50_u64).prop_map(|(child, ms)| Step::SleepUntil(child, ms)),
        3 => (child(), 0..4_000_u64).prop_map(|(child, ms)| Step::SleepUntilWall(child, ms)),
        1 => (child(), ms()).prop_map(|(child, ms)| Step::Tick(child, ms)),
        2 => (child(), ms()).prop_map(|(child, ms)| Step::Run(child, ms)),
        4 => (0..30_u64).prop_map(Step::Advance),
        2 => (0..1_500_u64).prop_map(Step::Advance),
        2 => (-3_000..3_000_i64).prop_map(Step::Jump),
        2 => child().prop_map(Step::Wake),
        2 => (0..20_usize).prop_map(Step::Drop),
        1 => child().prop_map(Step::Shutdown),
        1 => (child(), 1..5_u8).prop_map(|(child, n)| Step::ShutdownInBatches(child, n)),
    ]
}

struct Sleeper {
    child: bool,
    /// The end of the sleep on the monotonic clock; for a time of day, the next check of it.
    due: u64,
    wall: Option<i64>,
}

/// A simple model of a gate: its sleepers and the ends of their sleeps.
#[derive(Default)]
struct Model {
    now: u64,
    ahead: i64,
    asleep: BTreeMap<usize, Sleeper>,
    woken: BTreeMap<usize, Wake>,
    shut: [bool; 2],
}

impl Model {
    fn wake(&mut self, why: Wake, which: impl Fn(&Sleeper) -> bool) -> usize {
        let before = self.asleep.len();
        self.asleep.retain(|id, sleeper| {
            let wakes = which(sleeper);
            if wakes {
                self.woken.insert(*id, why);
            }
            !wakes
        });
        before - self.asleep.len()
    }

    fn wall(&self) -> i64 {
        self.now as i64 + self.ahead
    }

    /// Sleepers whose timers have fired check the time of day, and continue for at most a second.
    fn check_wall_clock(&mut self) {
        let (now, wall) = (self.now, self.wall());
        for sleeper in self.asleep.values_mut().filter(|s| s.due <= now) {
            let left = sleeper.wall.map_or(0, |deadline| deadline - wall);
            sleeper.due = now + left.clamp(0, 1_000) as u64;
        }
    }
}

async fn check(steps: Vec<Step>) {
    let day = Day::new();
    let parent = day.gate();
    let gates = [parent.clone(), parent.child()];
    let mut model = Model::default();
    let mut tasks: BTreeMap<usize, JoinHandle<Wake>> = BTreeMap::new();
    for (id, step) in steps.into_iter().enumerate() {
        let mut begin = |model: &mut Model, child, due, wall, sleep| {
            tasks.insert(id, sleep);
            model.asleep.insert(id, Sleeper { child, due, wall });
        };
        match step {
            Step::Sleep(child, ms) => {
                let sleep = gates[usize::from(child)].sleep(Duration::from_millis(ms));
                let due = model.now.saturating_add(ms);
                begin(&mut model, child, due, None, tokio::spawn(sleep));
            }
            Step::SleepUntil(child, ms) => {
                let sleep =
                    gates[usize::from(child)].sleep_until(now() + Duration::from_millis(ms));
                let due = model.now + ms;
                begin(&mut model, child, due, None, tokio::spawn(sleep));
            }
            Step::SleepUntilWall(child, ms) => {
                let deadline: SystemTime = day.now() + Duration::from_millis(ms);
                let sleep = gates[usize::from(child)].sleep_until_wall(deadline);
                let (due, wall) = (model.now, model.wall() + ms as i64);
                begin(&mut model, child, due, Some(wall), tokio::spawn(sleep));
            }
            Step::Tick(child, ms) => {
                let mut beat = gates[usize::from(child)].interval(Duration::from_millis(ms));
                let due = model.now.saturating_add(ms);
                let tick = tokio::spawn(async move { beat.tick().await });
                begin(&mut model, child, due, None, tick);
            }
            Step::Run(child, ms) => {
                let work = SleepGate::new().sleep(Duration::from_millis(ms));
                let run = gates[usize::from(child)].run(work);
                let due = model.now.saturating_add(ms);
                let run = tokio::spawn(async { run.await.unwrap_or_else(|why| why) });
                begin(&mut model, child, due, None, run);
            }
            Step::Advance(ms) => {
                advance(Duration::from_millis(ms)).await;
                model.now += ms;
            }
            Step::Jump(ms) => {
                day.jump(ms);
                model.ahead += ms;
            }
            Step::Wake(child) => {
                let counted = gates[usize::from(child)].wake_all();
                let woken = model.wake(Wake::Woken, |sleeper| sleeper.child == child);
                assert_eq!(counted, woken, "wake_all {id}");
            }
            Step::Drop(n) => {
                if let Some(&id) = model.asleep.keys().nth(n) {
                    tasks.remove(&id).expect("each sleep has a task").abort();
                    model.asleep.remove(&id);
                }
            }
            Step::Shutdown(child) => gates[usize::from(child)].shutdown(),
            Step::ShutdownInBatches(child, batch) => {
                let shutdown = gates[usize::from(child)]
                    .shutdown_in_batches(NonZeroUsize::MIN.saturating_add(batch.into()));
                let _: std::task::Poll<()> = poll_once(pin!(shutdown));
            }
        }
        if let Step::Shutdown(child) | Step::ShutdownInBatches(child, _) = step {
            model.shut[1] = true;
            model.shut[0] |= !child;
        }
        let (now, shut) = (model.now, model.shut);
        model.wake(Wake::Shutdown, |sleeper| shut[usize::from(sleeper.child)]);
        model.check_wall_clock();
        model.wake(Wake::Elapsed, |sleeper| sleeper.due <= now);
        settle().await;
        for (id, task) in &mut tasks {
            let over = model.woken.contains_key(id);
            assert_eq!(task.is_finished(), over, "sleep {id} at {now} ms");
        }
    }
    for (id, task) in tasks {
        match model.woken.get(&id) {
            Some(why) => {
                let reason = task.await.expect("a sleep does not panic");
                assert_eq!(reason, *why, "sleep {id}");
            }
            None => task.abort(),
        }
    }
}

proptest! {
    #[test]
    fn random_interleavings_agree_with_the_model(steps in prop::collection::vec(step(), 0..60)) {
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(check(steps));
    }
}
