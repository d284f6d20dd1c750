//! D9: switches each mistake on that the store knows how to make, and asks whether a layer
//! notices. A mistake that nobody notices is red: it says that a layer is blind.

use checkpoint_store::sabotage::Sabotage;

use crate::outcome::{Level, Outcome};
use crate::{fault, machine, mistake, race, sim};

/// A layer.
pub type Run = fn(Level) -> Outcome;

/// The layers that look, the quick ones first.
const LAYERS: [(&str, Run); 4] = [
    ("race", race::run),
    ("machine", machine::run),
    ("sim", sim::run),
    ("fault", fault::run),
];

/// Runs the layer.
pub fn run(level: Level) -> Outcome {
    let mut outcome = Outcome::default();
    for sabotage in mistake::ALL {
        outcome.tried += 1;
        let caught = caught(sabotage, level);
        if caught.is_empty() {
            outcome.lost += 1;
            outcome
                .notes
                .push(format!("{sabotage:?}: NOBODY notices it"));
        }
        for (layer, note) in caught {
            let seen = note.lines().next().unwrap_or_default();
            outcome
                .notes
                .push(format!("{sabotage:?}: noticed by {layer}: {seen}"));
        }
    }
    outcome
}

/// Returns the layers that notice a sabotage with what they saw: at night all of them,
/// else the first one.
pub fn caught(sabotage: Sabotage, level: Level) -> Vec<(&'static str, String)> {
    let mut caught = Vec::new();
    // What a small search finds needs no large one.
    for small in [Level::Test, Level::Quick]
        .into_iter()
        .filter(|&small| small <= level)
    {
        for (name, run) in LAYERS {
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

/// Runs one layer with a sabotage switched on; returns what it saw, if it saw anything.
pub fn noticed(sabotage: Sabotage, run: Run, level: Level) -> Option<String> {
    let outcome = mistake::during(sabotage, || run(level));
    (outcome.lost > 0).then(|| outcome.notes.into_iter().next().unwrap_or_default())
}
