//! Explores the shares of several runs in one budget, with additions whose answers are lost.

use proptest::prelude::*;

use crate::{
    BUDGET_INTERVAL, BudgetInput, BudgetOutput, BudgetShare, BudgetState, Moment, RunWait,
};

/// The cost of one request to a model.
const REQUEST: u64 = 10;

/// A run, its share, and its agent.
struct Run {
    share: BudgetShare,
    cost: u64,
    /// Whether the run waits, and its agent makes no requests.
    waits: bool,
    /// The number of the last addition that the fleet stored.
    stored: u64,
}

/// The runs of a fleet with a budget.
struct Runs {
    runs: Vec<Run>,
    limit: Option<u64>,
    spent: u64,
    now: Moment,
}

impl Runs {
    fn new(count: usize, limit: u64) -> Self {
        let run = || Run {
            share: BudgetShare::new(0),
            cost: 0,
            waits: false,
            stored: 0,
        };
        Self {
            runs: std::iter::repeat_with(run).take(count).collect(),
            limit: Some(limit),
            spent: 0,
            now: Moment::from_millis(0),
        }
    }

    /// Passes an input to the share of a run, and executes its outputs. The answer to an addition can be lost.
    fn step(&mut self, at: usize, input: BudgetInput, is_lost: bool) {
        let (mut inputs, mut announced) = (vec![input], false);
        while let Some(input) = inputs.pop() {
            for output in self.runs[at].share.step(input, self.now) {
                let run = &mut self.runs[at];
                match output {
                    BudgetOutput::Add { number, amount } => {
                        if number > run.stored {
                            run.stored = number;
                            self.spent += amount;
                        }
                        let (limit, spent) = (self.limit, self.spent);
                        inputs.push(match is_lost {
                            true => BudgetInput::AddFailed,
                            false => BudgetInput::Added(BudgetState { limit, spent }),
                        });
                    }
                    BudgetOutput::Read => {
                        let (limit, spent) = (self.limit, self.spent);
                        inputs.push(BudgetInput::Read(BudgetState { limit, spent }));
                    }
                    BudgetOutput::Announce => announced = true,
                    BudgetOutput::Pause => {
                        run.waits = true;
                        inputs.push(BudgetInput::Waits(RunWait::Budget));
                    }
                    BudgetOutput::Continue => {
                        run.waits = false;
                        inputs.push(BudgetInput::Waits(RunWait::None));
                    }
                    BudgetOutput::WakeAt(at) => assert!(at > self.now),
                }
            }
        }
        for other in (0..self.runs.len()).filter(|other| announced && *other != at) {
            self.step(other, BudgetInput::Changed, false);
        }
    }

    /// Lets the agent of a run make one request, if the run does not wait.
    fn request(&mut self, at: usize, is_lost: bool) {
        if !self.runs[at].waits {
            self.runs[at].cost += REQUEST;
            let cost = BudgetInput::Cost(self.runs[at].cost);
            self.step(at, cost, is_lost);
        }
    }

    /// Lets so much time pass that each run compares the budget.
    fn pass(&mut self) {
        self.now = self.now + BUDGET_INTERVAL;
        for at in 0..self.runs.len() {
            self.step(at, BudgetInput::Time, false);
        }
    }

    fn cost(&self) -> u64 {
        self.runs.iter().map(|run| run.cost).sum()
    }
}

proptest! {
    #[test]
    fn f7_runs_overshoot_by_one_request_each_and_a_raised_budget_wakes_them(
        requests in prop::collection::vec((0..5_usize, any::<bool>()), 0..200),
        limit in 0..500_u64,
    ) {
        let mut runs = Runs::new(5, limit);
        for (at, is_lost) in requests {
            let before = runs.runs[at].cost;
            runs.request(at, is_lost);
            // A lost answer delays the pause of this run until its next comparison.
            if is_lost && runs.runs[at].cost > before {
                runs.pass();
            }
            prop_assert!(runs.cost() <= limit + 5 * REQUEST, "{} of {limit}", runs.cost());
        }
        // Now each run has the means to reach the limit.
        for at in (0..5).cycle().take(500) {
            runs.request(at, false);
        }
        runs.pass();
        prop_assert!(runs.cost() >= limit);
        prop_assert!(runs.cost() <= limit + 5 * REQUEST);
        prop_assert_eq!(runs.spent, runs.cost());
        prop_assert!(runs.runs.iter().all(|run| run.waits));
        runs.limit = Some(runs.spent + 1);
        runs.pass();
        prop_assert!(runs.runs.iter().all(|run| !run.waits));
    }
}

/// Returns a budget of which 10 are spent.
fn state(limit: u64) -> BudgetState {
    BudgetState {
        limit: Some(limit),
        spent: 10,
    }
}

#[test]
fn pause_of_a_person_is_not_ended_by_a_raised_budget() {
    let now = Moment::from_millis(0);
    let mut share = BudgetShare::new(0);
    let has = |outputs: Vec<BudgetOutput>, output| outputs.contains(&output);
    assert!(!has(
        share.step(BudgetInput::Waits(RunWait::Person), now),
        BudgetOutput::Pause
    ));
    let spent = share.step(BudgetInput::Read(state(10)), now);
    assert!(!has(spent, BudgetOutput::Pause));
    let raised = share.step(BudgetInput::Read(state(20)), now);
    assert!(!has(raised, BudgetOutput::Continue));
    // The person continues the run while the budget is spent.
    let _spent = share.step(BudgetInput::Read(state(10)), now);
    let working = share.step(BudgetInput::Waits(RunWait::None), now);
    assert!(has(working, BudgetOutput::Pause));
}

#[test]
fn pause_of_a_person_replaces_that_of_the_budget() {
    let now = Moment::from_millis(0);
    let mut share = BudgetShare::new(0);
    let spent = share.step(BudgetInput::Read(state(10)), now);
    assert!(spent.contains(&BudgetOutput::Pause), "{spent:?}");
    let _waits = share.step(BudgetInput::Waits(RunWait::Budget), now);
    let _person = share.step(BudgetInput::Waits(RunWait::Person), now);
    let raised = share.step(BudgetInput::Read(state(20)), now);
    assert!(!raised.contains(&BudgetOutput::Continue), "{raised:?}");
}

#[test]
fn raised_budget_continues_a_run_until_it_works() {
    let now = Moment::from_millis(0);
    let mut share = BudgetShare::new(0);
    let _pause = share.step(BudgetInput::Read(state(10)), now);
    let _waits = share.step(BudgetInput::Waits(RunWait::Budget), now);
    for _ in 0..2 {
        let raised = share.step(BudgetInput::Read(state(20)), now);
        assert!(raised.contains(&BudgetOutput::Continue), "{raised:?}");
    }
    let _works = share.step(BudgetInput::Waits(RunWait::None), now);
    let later = share.step(BudgetInput::Read(state(20)), now);
    assert!(!later.contains(&BudgetOutput::Continue), "{later:?}");
}

#[test]
fn raised_budget_continues_a_run_that_an_earlier_owner_paused() {
    let (limit, spent) = (Some(100), 130);
    let mut share = BudgetShare::new(0);
    let _first = share.step(BudgetInput::Waits(RunWait::Budget), Moment::default());
    let outputs = share.step(
        BudgetInput::Read(BudgetState { limit, spent }),
        Moment::default(),
    );
    assert!(!outputs.contains(&BudgetOutput::Pause) && !outputs.contains(&BudgetOutput::Continue));
    let limit = Some(200);
    let outputs = share.step(
        BudgetInput::Read(BudgetState { limit, spent }),
        Moment::default(),
    );
    assert!(outputs.contains(&BudgetOutput::Continue), "{outputs:?}");
}
