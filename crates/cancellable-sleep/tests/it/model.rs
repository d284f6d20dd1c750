use std::{collections::BTreeMap, time::Duration};

use cancellable_sleep::{SleepGate, Wake};
use proptest::prelude::*;
use tokio::{task::JoinHandle, task::yield_now, time::advance};

#[derive(Clone, Debug)]
enum Step {
    /// In the child gate?
    Sleep(bool, u64),
    Advance(u64),
    Kick(bool),
    Drop(usize),
    Shutdown(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<bool>(), prop_oneof![9 => 0..50_u64, 1 => Just(u64::MAX)]).prop_map(|(child, ms)| Step::Sleep(child, ms)),
        4 => (0..30_u64).prop_map(Step::Advance),
        2 => any::<bool>().prop_map(Step::Kick),
        2 => (0..20_usize).prop_map(Step::Drop),
        1 => any::<bool>().prop_map(Step::Shutdown),
    ]
}

/// What a gate is, said in the plainest way: who sleeps, and until when.
#[derive(Default)]
struct Model {
    now: u64,
    asleep: BTreeMap<usize, (bool, u64)>,
    woken: BTreeMap<usize, Wake>,
    shut: [bool; 2],
}

impl Model {
    fn wake(&mut self, why: Wake, which: impl Fn(bool, u64) -> bool) -> usize {
        let gone: Vec<_> = self
            .asleep
            .iter()
            .filter(|(_, s)| which(s.0, s.1))
            .map(|(&id, _)| id)
            .collect();
        for id in &gone {
            self.asleep.remove(id);
            self.woken.insert(*id, why);
        }
        gone.len()
    }
}

async fn settle() {
    for _ in 0..4 {
        yield_now().await;
    }
}

async fn check(steps: Vec<Step>) {
    let parent = SleepGate::new();
    let gates = [parent.clone(), parent.child()];
    let mut model = Model::default();
    let mut tasks: BTreeMap<usize, JoinHandle<Wake>> = BTreeMap::new();
    for (id, step) in steps.into_iter().enumerate() {
        match step {
            Step::Sleep(child, ms) => {
                let (gate, duration) =
                    (gates[usize::from(child)].clone(), Duration::from_millis(ms));
                tasks.insert(id, tokio::spawn(async move { gate.sleep(duration).await }));
                model
                    .asleep
                    .insert(id, (child, model.now.saturating_add(ms)));
            }
            Step::Advance(ms) => {
                advance(Duration::from_millis(ms)).await;
                model.now += ms;
            }
            Step::Kick(child) => {
                let count = gates[usize::from(child)].wake_all();
                assert_eq!(
                    count,
                    model.wake(Wake::Kicked, |c, _| c == child),
                    "kick {id}"
                );
            }
            Step::Drop(n) => {
                if let Some(&id) = model.asleep.keys().nth(n) {
                    tasks.remove(&id).expect("each sleep has a task").abort();
                    model.asleep.remove(&id);
                }
            }
            Step::Shutdown(child) => {
                gates[usize::from(child)].shutdown();
                model.shut[1] = true;
                model.shut[0] |= !child;
            }
        }
        let (now, shut) = (model.now, model.shut);
        model.wake(Wake::Shutdown, |c, _| shut[usize::from(c)]);
        model.wake(Wake::Elapsed, |_, deadline| deadline <= now);
        settle().await;
        for (id, task) in &mut tasks {
            assert_eq!(
                task.is_finished(),
                model.woken.contains_key(id),
                "sleep {id} at {now} ms"
            );
        }
    }
    for (id, task) in tasks {
        match model.woken.get(&id) {
            Some(why) => assert_eq!(
                task.await.expect("a sleep does not panic"),
                *why,
                "sleep {id}"
            ),
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
