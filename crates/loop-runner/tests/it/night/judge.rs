//! Compares the promises of a run with its events and its saved state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use loop_runner::{RunEvent, View};
use loop_state::{
    Autonomy, Evidence, Head, IterationStep, ReviewDecision, RuleChange, Rules, RunUpdate,
    StopCause, StopReason, WaitCause as Why,
};
use rlm_store::RunEntry;

use super::world::{Ending, PIECE, Shared, Wait, lock};

/// The events and views that a viewer gets.
#[derive(Debug)]
pub(crate) enum Seen {
    Event(RunEvent),
    View(Arc<View>),
}

#[derive(Debug)]
pub(crate) struct Judge {
    world: Shared,
    head: Option<Head>,
    /// The steers that were ever in the run's state.
    said: BTreeSet<String>,
    /// The number of failed iterations in a row.
    streak: u32,
    /// The phase of the run according to its events, and whether that phase has not begun yet.
    phase: u32,
    at_boundary: bool,
    /// Whether the last complete iteration failed.
    failed: bool,
    /// The rules that can be in force according to all events.
    rules: Vec<Rules>,
    /// Whether this process reported a stop by a person.
    person: bool,
    crashes: u32,
    processes: u32,
}

impl Judge {
    pub(crate) fn new(world: &Shared, rules: Rules) -> Self {
        lock(world).budgets = (rules.limits.max_cost_microusd, rules.limits.max_tokens);
        Self {
            rules: vec![rules],
            failed: false,
            phase: 0,
            at_boundary: false,
            world: world.clone(),
            head: None,
            said: BTreeSet::new(),
            streak: 0,
            person: false,
            crashes: 0,
            processes: 0,
        }
    }

    pub(crate) fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Event(news) => self.handle_event(&news),
            Seen::View(view) => self.check_view(&view.head),
        }
    }

    fn handle_event(&mut self, news: &RunEvent) {
        let mut world = lock(&self.world);
        if !matches!(news, RunEvent::Agent(_)) {
            world.note(format!("the run: {news:?}"));
        }
        if let Some(what) = counted(news) {
            *world.tally.entry(what).or_default() += 1;
        }
        match news {
            RunEvent::Update(RunUpdate::IterationEnded {
                iteration, failure, ..
            }) => {
                let (told, again) = (world.last_reported, world.redo_requested);
                let turn = (self.phase, *iteration);
                world.holds(turn > told || again, || {
                    format!("{turn:?} ends after {told:?}")
                });
                world.last_reported = turn;
                world.complete += 1;
                self.failed = failure.is_some();
                let seat = { world.seats.iter() }.rfind(|seat| seat.place.turn() == turn);
                let good = seat.is_some_and(|seat| seat.ending.is_some_and(Ending::is_good));
                let gate = failure.as_deref().is_some_and(is_of_gate);
                self.streak = match failure {
                    Some(_) if !gate => self.streak + 1,
                    // The check can also pass after an unfinished turn.
                    None if !good => self.streak,
                    _ => 0,
                };
                let book = &world.commands;
                let (through, done) = (book.let_through(turn), book.checked == Some(true));
                let by_gate = book.stopped_by(turn);
                let right = match failure.as_deref() {
                    None => through,
                    Some(what) if gate => {
                        by_gate.is_some_and(|it| what == format!("required check {it} failed"))
                    }
                    Some(_) => true,
                };
                world.holds(right, || {
                    format!("the required checks contradict {failure:?}")
                });
                world.holds(good || done || failure.is_some(), || {
                    format!("{turn:?} counts as done without a check or a completed turn")
                });
            }
            RunEvent::Update(RunUpdate::PhaseEnded { name, .. }) => {
                let phase = self.phase;
                (self.phase, self.at_boundary) = (phase + 1, true);
                world.holds(*name == format!("p{phase}"), || {
                    format!("{name} ended instead of p{phase}")
                });
                (world.last_reported, self.streak) = ((phase + 1, 0), 0);
                let asks = self.rules[0].autonomy == Autonomy::Checkpoint;
                world.review.due = asks && world.review.attended;
            }
            RunEvent::Update(RunUpdate::AttemptStarted { .. }) => self.at_boundary = false,
            RunEvent::Update(RunUpdate::Review(_)) => {
                let attended = world.review.attended;
                world.holds(attended, || "the run asks without a person".into());
                (world.review.open, world.review.due) = (attended, false);
            }
            RunEvent::Update(RunUpdate::Reviewed(verdict)) => {
                world.review.open = false;
                if matches!(
                    verdict,
                    ReviewDecision::StartOver | ReviewDecision::Revise(_)
                ) {
                    world.goes_back();
                    self.phase -= u32::from(self.at_boundary);
                }
            }
            RunEvent::Update(RunUpdate::Waiting { until, .. }) => {
                world.waits = Some(Wait {
                    until: SystemTime::UNIX_EPOCH + Duration::from_millis(until.as_millis()),
                    life: world.life,
                    jumped: world.jumped,
                });
            }
            // A resume of a run that no longer waits requests a new try at once.
            RunEvent::Update(
                RunUpdate::Redoing(_) | RunUpdate::Ended(StopReason::RateLimit { .. }),
            ) => {
                world.waits = None;
            }
            RunEvent::Update(
                RunUpdate::RuleChanged(change) | RunUpdate::PhaseRuleChanged { change, .. },
            ) => {
                let sent = world.sets.iter().position(|it| it == change);
                world.holds(sent.is_some(), || format!("no person requested {change}"));
                // Earlier changes were rejected, or change nothing.
                world.sets.drain(..sent.map_or(0, |sent| sent + 1));
                self.rules = changed(&self.rules, change);
            }
            RunEvent::Update(RunUpdate::Ended(StopReason::Stopped(by))) => {
                self.person = *by == StopCause::Person;
            }
            // An agent that is ended during its start sees no messages.
            RunEvent::EndingTurn { .. } => {
                if let Some(seat) = world.seats.last_mut() {
                    seat.halted = true;
                }
            }
            RunEvent::Phase { number, .. } => self.phase = number - 1,
            RunEvent::Stopping { .. } if !world.stopping => {
                world.stopping = true;
                let asked = &world.asked;
                self.person = asked.iter().all(|by| *by == StopCause::Person);
            }
            // The first stop counts, and later only a stop that is immediate.
            RunEvent::Stopping { .. } | RunEvent::Update(RunUpdate::StoppingAfterIteration) => {
                let asked = &world.asked;
                self.person = asked.iter().all(|by| *by == StopCause::Person);
            }
            _ => {}
        }
    }

    /// Checks the view of the run; its content is on disk.
    fn check_view(&mut self, head: &Head) {
        let mut world = lock(&self.world);
        for steer in &head.steers {
            self.said.insert(steer.text.clone());
        }
        world.spent = head.usage;
        world.budgets = (
            head.rules.limits.max_cost_microusd,
            head.rules.limits.max_tokens,
        );
        let used = world.used;
        world.holds(head.usage.cost_microusd <= used, || {
            format!("{} of {used} is counted", head.usage.cost_microusd)
        });
        if let IterationStep::Waiting {
            since,
            until,
            why: Why::RateLimit,
        } = head.step
            && head.end.is_none()
        {
            let all = Duration::from_millis(head.retries.rate_limit_wait_ms) + until.since(since);
            let cap = head.rules.limits.wait_on_limit;
            world.holds(all <= cap, || format!("the run waits {all:?} of {cap:?}"));
        }
        if let Some(before) = &self.head {
            let (old, new) = (before.counts, head.counts);
            let grows = old.iterations <= new.iterations
                && old.attempts <= new.attempts
                && before.highest_attempt <= head.highest_attempt
                && before.usage.cost_microusd <= head.usage.cost_microusd;
            world.holds(grows, || format!("counts went back: {old:?}, {new:?}"));
        }
        let finished: u32 = head.finished_phases.iter().map(|it| it.iterations).sum();
        let (complete, begun) = (head.counts.iterations, finished + head.iteration);
        let is_over = head.finished_phases.len() == head.rules.phases.len();
        let right = is_over || complete == begun || complete + 1 == begun;
        let right = right || world.redo_requested;
        world.holds(right, || format!("{complete} complete and {begun} begun"));
        let names = head.finished_phases.iter().map(|it| it.name.as_str());
        let in_order = names.eq({ head.rules.phases.iter() }
            .take(head.finished_phases.len())
            .map(|it| it.name.as_str()));
        let behind = head.finished_phases.len() - usize::from(is_over) == head.phase as usize;
        world.holds(in_order && behind, || {
            format!("phase {} after {:?}", head.phase, head.finished_phases)
        });
        self.head = Some(head.clone());
    }

    /// Compares the state on disk after a process with its reports.
    pub(crate) fn compare(&mut self, entry: &RunEntry, made: usize, crashed: bool) {
        self.crashes += u32::from(crashed);
        let person = entry.is_stopped_by_person();
        let mut world = lock(&self.world);
        if crashed {
            world.commands.crashed();
        }
        let saved = match &entry.head {
            Ok(saved) => saved.machine.clone(),
            Err(e) => return world.break_promise(format!("the state can't be read: {e}")),
        };
        world.holds(entry.notes.is_empty(), || format!("{:?}", entry.notes));
        let (told, asked) = (
            std::mem::take(&mut self.person),
            std::mem::take(&mut world.asked),
        );
        // A process that was stopped or died before it began has changed nothing.
        let processes = saved.counts.processes;
        let began = std::mem::replace(&mut self.processes, processes) < processes;
        let by_person = asked.contains(&StopCause::Person);
        world.holds(!person || by_person || !began, || {
            "a person stopped the run, but no person requested it".into()
        });
        let attempts = saved.counts.attempts as usize;
        let known = made <= attempts && attempts <= made + self.crashes as usize;
        world.holds(known, || {
            format!("{made} transcripts of {attempts} attempts")
        });
        // A run that ended by itself meanwhile was not stopped.
        let own_end = { saved.end.as_ref() }.is_some_and(|end| !end.reason.is_stopped());
        world.holds(!told || person || own_end, || {
            "the saved state lacks a person's stop".into()
        });
        let (told, again, stands) = (
            world.last_reported,
            world.redo_requested,
            (saved.phase, saved.iteration),
        );
        let (complete, counted) = (world.complete, saved.counts.iterations);
        world.holds(counted >= complete && (stands >= told || again), || {
            format!(
                "{complete} up to {told:?} are reported and {counted} up to {stands:?} are saved"
            )
        });
        if let Some(shown) = &self.head {
            let kept = shown.usage.cost_microusd <= saved.usage.cost_microusd
                && shown.counts.attempts <= saved.counts.attempts
                && shown.counts.steers <= saved.counts.steers;
            world.holds(kept, || "the shown state is not saved".into());
        }
        let lost = world.used - saved.usage.cost_microusd;
        let allowed = u64::from(self.crashes + saved.counts.processes) * 2 * PIECE;
        world.holds(lost <= allowed, || format!("{lost} of the cost is lost"));
        let (usage, floor, rules) = (saved.usage, world.floor, &saved.rules);
        let within = |used, limit: Option<u64>, floor: u64, piece| {
            limit.is_none_or(|limit| used <= limit.max(floor) + 4 * piece)
        };
        let cost = within(
            usage.cost_microusd,
            rules.limits.max_cost_microusd,
            floor.cost_microusd,
            PIECE,
        );
        let tokens = within(
            usage.tokens(),
            rules.limits.max_tokens,
            floor.tokens(),
            PIECE / 10,
        );
        world.holds(cost && tokens, || "the run exceeded its budget".into());
        for change in std::mem::take(&mut world.sets) {
            let more = changed(&self.rules, &change);
            self.rules.extend(more);
        }
        world.holds(self.rules.contains(&saved.rules), || {
            format!("{:?} is none of {:?}", saved.rules, self.rules)
        });
        let settings = entry.head.as_ref().map(|head| head.settings.rules());
        world.holds(settings.is_ok_and(|it| it == saved.rules), || {
            "a resume would use other rules".into()
        });
        self.rules = vec![saved.rules.clone()];
        (self.phase, self.at_boundary) = (saved.phase, saved.iteration == 0 && saved.phase > 0);
        world.budgets = (
            saved.rules.limits.max_cost_microusd,
            saved.rules.limits.max_tokens,
        );
        for steer in &self.said {
            let waits = saved.steers.iter().any(|it| it.text == *steer);
            let seen = world.seen.keys().any(|(it, _)| it == steer);
            world.holds(waits || seen, || format!("no agent ever sees {steer}"));
        }
        let most = world.seen.values().max().copied().unwrap_or_default();
        let repeated = most > 1 + self.crashes + world.turns_after_failure && !world.redo_requested;
        world.holds(!repeated, || "an agent gets the same message twice".into());
        if crashed {
            // Iterations that the crashed process did not report have ended too.
            world.last_reported = world.last_reported.max(last_turn(&saved));
            world.complete = world.complete.max(counted);
            self.failed =
                { saved.last_iteration.as_ref() }.is_some_and(|last| last.failure.is_some());
            // The failure counter increases before the iteration is reported.
            let in_turn = matches!(
                saved.step,
                IterationStep::Turn { .. } | IterationStep::Interrupted { .. }
            );
            let failure = saved.failure.as_deref();
            let untold = failure.is_some_and(|it| !is_of_gate(it)) && !in_turn;
            self.streak = saved.streaks.failures - u32::from(untold);
        }
        // The turn counter increases before the required checks, and is reported after them.
        let judged = matches!(
            saved.step,
            IterationStep::RequiredCheck { .. }
                | IterationStep::Check
                | IterationStep::EndingLeftovers { .. }
        );
        let turn_failed = { saved.failure.as_deref() }.is_some_and(|it| !is_of_gate(it));
        let streak = match (judged && !crashed, turn_failed) {
            (true, true) => self.streak + 1,
            (true, false) => 0,
            (false, _) => self.streak,
        };
        world.holds(
            saved.streaks.failures == streak || saved.end.is_none() || !began,
            || format!("{} failures in a row are {streak}", saved.streaks.failures),
        );
        if let (true, Some(end)) = (began, &saved.end) {
            let reason = end.reason.clone();
            drop(world);
            self.justify(&reason, &saved, &asked);
            if !reason.is_stopped() {
                // A resume resets the counters.
                self.streak = 0;
            }
        }
        self.head = None;
    }

    /// Checks whether the run had a reason to end like this.
    fn justify(&self, reason: &StopReason, head: &Head, asked: &[StopCause]) {
        let mut world = lock(&self.world);
        let limits = &head.phase_rules().limits;
        let last = world.seats.last().and_then(|seat| seat.ending);
        let rules = head.phase_rules();
        let planned = limits
            .max_iterations
            .is_some_and(|max| max <= head.iteration);
        let is_over = head.finished_phases.len() == head.rules.phases.len();
        let right = match reason {
            StopReason::AllIterationsRan | StopReason::Done(_) if !is_over => false,
            StopReason::AlreadyDone => {
                head.counts.attempts == 0 && world.commands.checked == Some(true)
            }
            StopReason::AllIterationsRan => planned && !self.failed,
            StopReason::LastIterationFailed { iteration: at, .. } => {
                planned && *at == head.iteration
            }
            StopReason::IterationLimit(max) => planned && Some(*max) == limits.max_iterations,
            StopReason::Done(Evidence::Promise) => {
                last == Some(Ending::Claimed) && !rules.has_check
            }
            StopReason::Done(Evidence::Check) => {
                let claimed = last == Some(Ending::Claimed) || !rules.has_promise;
                world.commands.checked == Some(true) && claimed
            }
            StopReason::Stuck { count, .. } => {
                let streaks = head.streaks;
                let counted = [
                    streaks.failures,
                    streaks.required_checks,
                    streaks.crashes,
                    streaks.no_progress,
                ];
                *count >= head.rules.limits.max_failures && counted.contains(count)
            }
            StopReason::TimeLimit(max) => Duration::from_millis(head.active_ms) >= *max,
            StopReason::RateLimit { cap, until } => {
                let waited = Duration::from_millis(head.retries.rate_limit_wait_ms);
                let left = head.end.as_ref().map(|end| until.since(end.at));
                waited + left.unwrap_or_default() > *cap
            }
            StopReason::BudgetSpent(_) => world.is_spent(),
            StopReason::Stopped(by) => asked.contains(by),
            StopReason::Failed(_) => matches!(last, Some(Ending::Login | Ending::NotStarted)),
            _ => false,
        };
        world.holds(right, || format!("it ended without a reason: {reason}"));
    }
}

/// Returns the name under which an event is counted.
fn counted(news: &RunEvent) -> Option<&'static str> {
    Some(match news {
        RunEvent::Update(RunUpdate::Waiting { .. }) => "waits",
        RunEvent::Update(RunUpdate::PhaseEnded { .. }) => "phases",
        RunEvent::Update(RunUpdate::Review(_)) => "questions",
        RunEvent::Update(RunUpdate::Reviewed(_)) => "verdicts",
        RunEvent::Update(RunUpdate::RuleChanged(_)) => "rules",
        RunEvent::CommandEnded { .. } => "commands",
        _ => return None,
    })
}

/// Returns the last complete iteration, with its phase.
fn last_turn(head: &Head) -> (u32, u32) {
    let Some(last) = &head.last_iteration else {
        return (head.phase, 0);
    };
    let is_over = head.finished_phases.len() == head.rules.phases.len();
    let is_of_another = { head.finished_phases.last() }.is_some_and(|over| over.at == last.at);
    match is_of_another && !is_over || last.iteration > head.iteration {
        true => (head.phase, 0),
        false => (head.phase, last.iteration),
    }
}

/// Returns whether a required check, and not the turn, failed the iteration.
fn is_of_gate(failure: &str) -> bool {
    failure.starts_with("required check ")
}

/// Returns the possible rules after a change, for each phase that it can apply to.
fn changed(rules: &[Rules], change: &RuleChange) -> Vec<Rules> {
    let phases = |rules: &Rules| 0..rules.phases.len() as u32;
    let all = rules
        .iter()
        .flat_map(|rules| phases(rules).map(|phase| rules.with(phase, change)));
    let mut all: Vec<Rules> = all.flatten().collect();
    all.dedup();
    all
}
