//! Decides when a run waits because the budget of the whole fleet is spent. It is separate because this wait is no end: the run keeps its place, its
//! session and its lease, and continues when the budget is raised.

use std::time::Duration;

use crate::Moment;

/// The interval in which a run compares the cost of the fleet with its budget, although it spent nothing.
pub const BUDGET_INTERVAL: Duration = Duration::from_secs(2);

/// The budget of a fleet, and what its runs spent; in millionths of a US dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BudgetState {
    /// The most that all runs together may spend in a period; `None` for no budget.
    pub limit: Option<u64>,
    /// The cost of all runs together in this period.
    pub spent: u64,
}

impl BudgetState {
    /// Returns whether the budget is spent.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.limit.is_some_and(|limit| self.spent >= limit)
    }
}

/// The share of one run in the budget of its fleet: adds the cost of the run to that of the fleet, and pauses the run when the budget is spent.
///
/// The pause takes effect between two requests of the agent to its model, if the agent can be interrupted there and reports its cost in the turn.
/// Then all runs together spend more than the budget by at most one request each. For other agents it is one iteration each.
///
/// # Examples
///
/// ```
/// use rlm_fleet::{BudgetInput, BudgetOutput, BudgetShare, BudgetState, Moment};
///
/// let now = Moment::from_millis(0);
/// let mut share = BudgetShare::new(0);
/// let add = BudgetOutput::Add { number: 1, amount: 30 };
/// assert_eq!(share.step(BudgetInput::Cost(30), now)[0], add);
/// let spent = BudgetState { limit: Some(100), spent: 130 };
/// assert_eq!(share.step(BudgetInput::Added(spent), now)[0], BudgetOutput::Pause);
/// let raised = BudgetState { limit: Some(200), spent: 130 };
/// assert_eq!(share.step(BudgetInput::Read(raised), now)[0], BudgetOutput::Continue);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BudgetShare {
    /// The cost of the run that the fleet counts.
    counted: u64,
    /// The cost of the run.
    cost: u64,
    /// The number of the newest addition.
    number: u64,
    adding: Option<Adding>,
    /// Whether the budget is spent, as far as this run knows.
    is_spent: bool,
    wait: RunWait,
    /// Whether the run waits for the budget, or was asked to.
    has_paused: bool,
    /// When the budget is compared again.
    next: Moment,
}

/// An addition that is not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Adding {
    amount: u64,
    /// When it is tried again; `None` while it is under way.
    again: Option<Moment>,
}

/// An input of a [`BudgetShare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetInput {
    /// The cost of the run so far, in millionths of a US dollar.
    Cost(u64),
    /// The addition was stored, and this is the state after it.
    Added(BudgetState),
    /// Whether the addition was stored is unknown.
    AddFailed,
    /// The state was read.
    Read(BudgetState),
    /// The state can't be read.
    ReadFailed,
    /// Another run announced that the budget is spent, or a person set it.
    Changed,
    /// Whether the run waits, and for what.
    Waits(RunWait),
    /// Time passed.
    Time,
}

/// The reason for which a run waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RunWait {
    /// It works.
    #[default]
    None,
    /// For the budget: [`BudgetOutput::Pause`] of this share, or of an earlier owner of the run, took effect.
    Budget,
    /// For a person, also if it waited for the budget before.
    Person,
}

/// An action for the caller of a [`BudgetShare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetOutput {
    /// Add this to the cost of the fleet. A repeated addition has the same number, and must count once.
    Add {
        /// The number of the addition.
        number: u64,
        /// The amount, in millionths of a US dollar.
        amount: u64,
    },
    /// Announce to the other runs that the budget is spent.
    Announce,
    /// Read the state of the budget.
    Read,
    /// Pause the run between two requests to the model, or after the iteration if its agent can't be interrupted. Can be repeated.
    Pause,
    /// Let the run continue, unless a person paused it. Can be repeated.
    Continue,
    /// Pass [`BudgetInput::Time`] at this moment.
    WakeAt(Moment),
}

impl BudgetShare {
    /// Creates the share of a run whose cost so far is counted.
    #[must_use]
    pub fn new(counted: u64) -> Self {
        Self {
            counted,
            cost: counted,
            number: 0,
            adding: None,
            is_spent: false,
            wait: RunWait::None,
            has_paused: false,
            next: Moment::default(),
        }
    }

    /// Takes one input, and returns what the caller must do now, in order.
    #[must_use]
    pub fn step(&mut self, input: BudgetInput, now: Moment) -> Vec<BudgetOutput> {
        let mut outputs = Vec::new();
        match input {
            BudgetInput::Cost(cost) => self.cost = self.cost.max(cost),
            BudgetInput::Added(state) => {
                let added = self.adding.take().map_or(0, |adding| adding.amount);
                self.counted = self.counted.saturating_add(added);
                // The other runs would find it out only after their next request.
                let is_new = state.is_spent() && !self.is_spent;
                outputs.extend(self.compare(state));
                outputs.extend(is_new.then_some(BudgetOutput::Announce));
            }
            BudgetInput::AddFailed => {
                if let Some(adding) = &mut self.adding {
                    adding.again = Some(now + BUDGET_INTERVAL);
                }
            }
            BudgetInput::Read(state) => outputs.extend(self.compare(state)),
            // A person let it continue, or the pause came too late for the next turn.
            BudgetInput::Waits(wait) => {
                if std::mem::replace(&mut self.wait, wait) != wait {
                    self.has_paused = wait == RunWait::Budget;
                    outputs.extend(self.pause());
                }
            }
            BudgetInput::Changed => self.next = now,
            BudgetInput::ReadFailed | BudgetInput::Time => {}
        }
        outputs.extend(self.add(now));
        if now >= self.next {
            self.next = now + BUDGET_INTERVAL;
            outputs.push(BudgetOutput::Read);
        }
        let again = self.adding.and_then(|adding| adding.again);
        let wake = again.map_or(self.next, |again| again.min(self.next));
        outputs.push(BudgetOutput::WakeAt(wake));
        outputs
    }

    /// Begins an addition, or repeats it.
    fn add(&mut self, now: Moment) -> Option<BudgetOutput> {
        let amount = match self.adding {
            Some(Adding {
                amount,
                again: Some(again),
            }) if now >= again => amount,
            Some(_) => return None,
            None if self.cost > self.counted => {
                self.number += 1;
                self.cost - self.counted
            }
            None => return None,
        };
        let again = None;
        self.adding = Some(Adding { amount, again });
        let number = self.number;
        Some(BudgetOutput::Add { number, amount })
    }

    fn compare(&mut self, state: BudgetState) -> Option<BudgetOutput> {
        self.is_spent = state.is_spent();
        match self.is_spent {
            true => self.pause(),
            false if self.has_paused => {
                // Until the run works, this is repeated.
                self.has_paused = self.wait == RunWait::Budget;
                Some(BudgetOutput::Continue)
            }
            false => None,
        }
    }

    /// Pauses a working run if the budget is spent. A person's pause stays what it is.
    fn pause(&mut self) -> Option<BudgetOutput> {
        let must_pause = self.is_spent && self.wait == RunWait::None;
        self.has_paused |= must_pause;
        must_pause.then_some(BudgetOutput::Pause)
    }
}
