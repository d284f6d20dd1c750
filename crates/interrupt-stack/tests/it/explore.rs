//! Explores every sequence of up to eight events, and checks the invariants after each event.
//!
//! Equivalent states are visited only once: their times are compared relative to now. The number of sequences still counts all. The facts about a
//! state come only from the events and effects (`facts`), never from the ladder's own fields, so that a bug can't hide itself.

mod facts;
mod invariants;
mod sabotage;
mod step;

use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, Instant},
};

use facts::Facts;
use interrupt_stack::{
    Cause, PressSource,
    ladder::{LadderTimes, Resolution},
};
use invariants::{INVARIANTS, Moment};
use sabotage::{Machine, SABOTAGES, Sabotage};
use step::{Step, Tick};

/// A state, and one of the sequences that lead to it.
#[derive(Clone)]
struct Node {
    machine: Machine,
    facts: Facts,
    now: u64,
    way: Vec<Step>,
}

#[derive(Debug, Default)]
struct Found {
    states: usize,
    steps: u64,
    sequences: u64,
    broken: BTreeSet<&'static str>,
    /// The first sequence that breaks an invariant.
    way: Vec<Step>,
}

fn rules() -> LadderTimes {
    let mut rules = LadderTimes::default();
    rules.shutdown_deadline = Some(Duration::from_millis(facts::SHUTDOWN));
    rules
}

impl Node {
    fn new(sabotage: Option<Sabotage>, handlers: usize) -> Self {
        let mut machine = Machine::new(rules(), Instant::now(), sabotage);
        let mut facts = Facts::default();
        facts.alive.extend((0..handlers).map(|_| machine.push()));
        Self {
            machine,
            facts,
            now: 0,
            way: Vec::new(),
        }
    }

    /// Returns the steps that are possible in this state.
    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![
            Step::Press(PressSource::Signal),
            Step::Press(PressSource::RawByte),
            Step::Tick(Tick::At),
            Step::Tick(Tick::Late),
            Step::Push,
            Step::Terminate(Cause::Terminate),
            Step::Terminate(Cause::Hangup),
            Step::Resumed,
        ];
        if self.facts.boundary(self.now) > self.now + 1 {
            steps.push(Step::Tick(Tick::Before));
        }
        steps.extend((0..self.facts.alive.len()).flat_map(|n| [Step::Drop(n), Step::Request(n)]));
        if self.facts.open.is_some_and(|open| !open.taken) {
            steps.push(Step::Take);
        }
        if self.facts.held.is_some() {
            steps.extend(
                [
                    Resolution::Handled,
                    Resolution::Declined,
                    Resolution::Escalated,
                    Resolution::Dropped,
                ]
                .map(Step::Resolve),
            );
        }
        steps
    }

    /// Takes a step and returns the invariants that it breaks.
    fn step(&mut self, step: Step) -> Vec<&'static str> {
        let (before, earlier) = (self.facts.clone(), self.now);
        let (mut effects, mut got) = (Vec::new(), None);
        let machine = &mut self.machine;
        match step {
            Step::Press(source) => effects.push((self.now, machine.press(source, self.now))),
            Step::Push => self.facts.alive.push(machine.push()),
            Step::Drop(place) => {
                let id = self.facts.alive.remove(place);
                effects.extend(machine.remove(id, self.now).map(|e| (self.now, e)));
            }
            Step::Take => {
                let handler = before.open.expect("a notice is open").handler;
                got = machine.take(handler, self.now);
            }
            Step::Resolve(resolution) => {
                let number = before.held.expect("a notice is held").number;
                let effect = machine.resolve(number, resolution, self.now);
                effects.extend(effect.map(|e| (self.now, e)));
            }
            Step::Terminate(cause) => {
                effects.extend(machine.terminate(cause, self.now).map(|e| (self.now, e)));
            }
            Step::Request(place) => {
                let effect = machine.request(before.alive[place], self.now);
                effects.extend(effect.map(|e| (self.now, e)));
            }
            Step::Resumed => machine.resumed(self.now),
            Step::Tick(tick) => {
                let until = match tick {
                    Tick::Before => before.boundary(self.now) - 1,
                    Tick::At => before.boundary(self.now),
                    Tick::Late => self.now + 3_600_000,
                };
                let on_time = |due| if tick == Tick::Late { until } else { due };
                // At most one step down per handler; more would mean that the ladder never comes to rest.
                for _ in 0..20 {
                    let Some(due) = machine.next_deadline().filter(|due| *due <= until) else {
                        break;
                    };
                    let at = on_time(due.max(self.now));
                    effects.extend(machine.on_deadline(at).map(|e| (at, e)));
                }
                self.now = until;
            }
        }
        self.facts.learn(step, self.now, &effects, got);
        self.way.push(step);
        let moment = Moment {
            step,
            before: &before,
            after: &self.facts,
            machine: &self.machine,
            now: self.now,
            earlier,
            effects: &effects,
            got,
        };
        let broken =
            |(name, _, holds): &(_, _, fn(&Moment) -> bool)| (!holds(&moment)).then_some(*name);
        INVARIANTS.iter().filter_map(broken).collect()
    }

    /// Returns a hash of everything that can affect later steps.
    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.facts.relative(self.now).hash(&mut hasher);
        self.machine.relative(self.now).hash(&mut hasher);
        hasher.finish()
    }
}

/// Explores all states up to `depth`. Stops early when the invariant `wanted` is broken; without `wanted`, after the first depth at which any
/// invariant is broken.
fn explore(start: Node, depth: usize, wanted: Option<&str>) -> Found {
    let mut found = Found::default();
    let mut level = HashMap::from([(start.key(), (start, 1_u64))]);
    for _ in 0..depth {
        let mut next: HashMap<u64, (Node, u64)> = HashMap::new();
        for (node, ways) in level.into_values() {
            for step in node.steps() {
                let mut to = node.clone();
                let broken = to.step(step);
                found.steps += 1;
                if !broken.is_empty() && found.broken.is_empty() {
                    found.way.clone_from(&to.way);
                }
                found.broken.extend(broken);
                next.entry(to.key()).or_insert((to, 0)).1 += ways;
            }
            if wanted.is_some_and(|wanted| found.broken.contains(wanted)) {
                return found;
            }
        }
        if wanted.is_none() && !found.broken.is_empty() {
            return found;
        }
        found.states += next.len();
        found.sequences += next.values().map(|(_, ways)| ways).sum::<u64>();
        level = next;
    }
    found
}

fn nothing_is_broken(handlers: usize, depth: usize) -> Found {
    let found = explore(Node::new(None, handlers), depth, None);
    assert!(found.broken.is_empty(), "{found:?}");
    assert!(found.sequences > 10_000_000, "{found:?}");
    found
}

#[test]
fn every_sequence_of_eight_keeps_the_invariants() {
    println!("{:?}", nothing_is_broken(0, 8));
}

/// With three handlers at the start, no step is needed to push them.
#[test]
fn every_sequence_on_a_stack_of_three_keeps_the_invariants() {
    println!("{:?}", nothing_is_broken(3, 6));
}

/// The control: each invariant reports a ladder that breaks it.
#[test]
fn each_invariant_can_fail() {
    let mut seen = BTreeSet::new();
    for &(sabotage, name) in SABOTAGES {
        let found = explore(Node::new(Some(sabotage), 2), 6, Some(name));
        assert!(
            found.broken.contains(name),
            "{sabotage:?} was not found by {name}: {found:?}"
        );
        seen.insert(name);
    }
    let all: BTreeSet<_> = INVARIANTS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(seen, all, "each invariant has a control");
}
