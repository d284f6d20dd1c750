//! The share of a run in the budget of its fleet: executes the decisions of a [`BudgetShare`] beside the run. It is separate because a run without a
//! fleet has no such budget.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cancellable_sleep::SleepGate;
use loop_runner::{RunControl, View};
use loop_state::{PauseAfter, Request};
use rlm_fleet::nats::{Error as FleetError, Fleet, ReplicaStart, now};
use rlm_fleet::{BudgetInput, BudgetOutput, BudgetShare, BudgetState, RunWait};
use tokio::sync::{mpsc, watch};

/// The reason that a person sees at a run that waits.
const REASON: &str = "the budget of the fleet is spent";
/// The wait before the next try to connect.
const RETRY: Duration = Duration::from_secs(2);

/// Counts the cost of a run, and lets the run wait while the budget of the fleet is spent. Never completes.
pub(super) async fn share(
    start: ReplicaStart,
    gate: SleepGate,
    view: watch::Receiver<Arc<View>>,
    control: mpsc::Sender<RunControl>,
) {
    // Earlier claims counted the cost so far.
    let counted = view.borrow().head.usage.cost_microusd;
    let connect = async || {
        let fleet = Fleet::connect(&start.fleet, gate.clone()).await?;
        let changes = fleet.budget_changes().await?;
        Ok::<_, FleetError>((fleet, changes))
    };
    let (fleet, mut changes) = loop {
        match connect().await {
            Ok(connected) => break connected,
            Err(_) if gate.is_shutdown() => return std::future::pending().await,
            // The saves of the run report it.
            Err(_) => drop(gate.sleep(RETRY).await),
        }
    };
    let mut run = SharingRun {
        start,
        fleet,
        view,
        control,
        asked_at: None,
    };
    let mut share = BudgetShare::new(counted);
    let first = wait(&run.view.borrow());
    let mut inputs = VecDeque::from([BudgetInput::Waits(first), BudgetInput::Time]);
    while !gate.is_shutdown() {
        let mut wake = now();
        while let Some(input) = inputs.pop_front() {
            for output in share.step(input, now()) {
                match output {
                    BudgetOutput::WakeAt(at) => wake = at,
                    output => inputs.extend(run.execute(output).await),
                }
            }
        }
        tokio::select! {
            changed = run.view.changed() => if changed.is_err() {
                break;
            },
            () = changes.next() => inputs.push_back(BudgetInput::Changed),
            _over_or_elapsed = gate.sleep(wake.since(now())) => {}
        }
        let (cost, wait) = {
            let view = run.view.borrow_and_update();
            (view.head.usage.cost_microusd, wait(&view))
        };
        inputs.extend([
            BudgetInput::Waits(wait),
            BudgetInput::Cost(cost),
            BudgetInput::Time,
        ]);
    }
    std::future::pending().await
}

/// Returns what a run waits for.
fn wait(view: &View) -> RunWait {
    match view.head.awaits_person() {
        false => RunWait::None,
        true if is_for_budget(view) => RunWait::Budget,
        true => RunWait::Person,
    }
}

/// Returns whether the latest pause is that of the budget.
fn is_for_budget(view: &View) -> bool {
    view.pause_reason.as_deref() == Some(REASON)
}

/// Returns whether a person paused the run, so that only a person continues it.
fn is_paused_by_a_person(view: &View) -> bool {
    (view.head.pausing || view.head.awaits_person()) && !is_for_budget(view)
}

/// The run beside which its share is executed.
struct SharingRun {
    start: ReplicaStart,
    fleet: Fleet,
    view: watch::Receiver<Arc<View>>,
    control: mpsc::Sender<RunControl>,
    /// The attempt during which the last pause was requested, and whether its agent could be interrupted.
    asked_at: Option<(u32, bool)>,
}

impl SharingRun {
    /// Executes one output, and returns the next input.
    async fn execute(&mut self, output: BudgetOutput) -> Option<BudgetInput> {
        match output {
            BudgetOutput::Add { number, amount } => {
                let state = self.add(number, amount).await;
                Some(state.map_or(BudgetInput::AddFailed, BudgetInput::Added))
            }
            BudgetOutput::Read => {
                let read = self.fleet.budget().await;
                Some(read.map_or(BudgetInput::ReadFailed, |(_, state)| {
                    BudgetInput::Read(state)
                }))
            }
            BudgetOutput::Announce => {
                // The others find it out without this, but later.
                let _lost = self.fleet.announce_spent_budget().await;
                None
            }
            BudgetOutput::Pause => {
                self.pause().await;
                None
            }
            BudgetOutput::Continue => {
                self.asked_at = None;
                let is_allowed = !is_paused_by_a_person(&self.view.borrow());
                if is_allowed {
                    self.request(Request::Continue).await;
                }
                None
            }
            BudgetOutput::WakeAt(_) => None,
        }
    }

    async fn add(&self, number: u64, amount: u64) -> Option<BudgetState> {
        let (run, epoch) = (&self.start.run, self.start.epoch);
        { self.fleet.add_spent(run, epoch, number, amount).await }.ok()?;
        let (_, state) = self.fleet.budget().await.ok()?;
        Some(state)
    }

    /// Requests a pause, unless the same was requested in this attempt. Each request is a save.
    async fn pause(&mut self) {
        let (now, is_pausing, reason, after) = {
            let view = self.view.borrow();
            let (attempt, agent) = (view.head.counts.attempts, &view.agent);
            let is_deaf = agent.alive && !agent.interruptible;
            let after = match is_deaf {
                true => PauseAfter::Iteration,
                false => PauseAfter::Tool,
            };
            // A pause of a person keeps its reason, and only comes earlier.
            let reason = (!is_paused_by_a_person(&view)).then(|| REASON.to_owned());
            let now = (attempt, agent.interruptible);
            (now, view.head.pausing, reason, after)
        };
        if is_pausing && self.asked_at == Some(now) {
            return;
        }
        self.asked_at = Some(now);
        self.request(Request::Pause { reason, after }).await;
    }

    async fn request(&self, request: Request) {
        // A closed channel means that the run has ended.
        let _over = self.control.send(RunControl::Request(request)).await;
    }
}
