//! D9: switches on each mistake that the store or a worker of a fleet can make, and checks whether a layer detects it. The run fails if no layer detects a mistake, because
//! the layers would then also miss such a mistake in a real change.

use crate::mistake::{self, Mistake};
use crate::outcome::{Level, Outcome};
use crate::{fault, fleet, machine, race, replica, sim};

/// The function that runs a layer.
pub type Run = fn(Level) -> Outcome;

/// The layers that search for mistakes of the store, quick ones first.
const LAYERS: [(&str, Run); 5] = [
    ("race", race::run),
    ("replica", replica::run),
    ("machine", machine::run),
    ("sim", sim::run),
    ("fault", fault::run),
];
/// The layer that searches for mistakes of a worker.
const FLEET: [(&str, Run); 1] = [("fleet", fleet::run)];

/// Runs the layer.
pub fn run(level: Level) -> Outcome {
    let mut outcome = Outcome::default();
    for sabotage in mistake::all() {
        outcome.tried += 1;
        let caught = caught(sabotage, level);
        if caught.is_empty() {
            outcome.lost += 1;
            outcome.notes.push(format!("{sabotage:?}: NOT DETECTED"));
        }
        for (layer, note) in caught {
            let seen = note.lines().next().unwrap_or_default();
            outcome
                .notes
                .push(format!("{sabotage:?}: detected by {layer}: {seen}"));
        }
    }
    outcome
}

/// Returns the layers that detect a sabotage, with their first notes: at the nightly level all layers, otherwise the first one.
pub fn caught(sabotage: Mistake, level: Level) -> Vec<(&'static str, String)> {
    let layers = match sabotage {
        Mistake::Store(_) => &LAYERS[..],
        Mistake::Fleet(_) => &FLEET,
    };
    let mut caught = Vec::new();
    // If a small search finds the mistake, no large one is needed.
    for small in [Level::Test, Level::Quick]
        .into_iter()
        .filter(|&small| small <= level)
    {
        for &(name, run) in layers {
            if caught.iter().any(|&(known, _)| known == name) {
                continue;
            }
            if let Some(note) = noticed(sabotage, run, small) {
                caught.push((name, note));
                if level < Level::Nightly {
                    return caught;
                }
            }
        }
    }
    caught
}

/// Runs one layer with a sabotage switched on; returns its first note, if it found a broken promise.
pub fn noticed(sabotage: impl Into<Mistake>, run: Run, level: Level) -> Option<String> {
    let outcome = mistake::during(sabotage, || run(level));
    (outcome.lost > 0).then(|| outcome.notes.into_iter().next().unwrap_or_default())
}
