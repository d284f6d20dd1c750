//! D9: switches each mistake on that the store knows how to make, and asks whether a layer
//! notices. A mistake that nobody notices is red: it says that a layer is blind.

use std::cell::Cell;

use checkpoint_store::sabotage::{self, Sabotage};

use crate::outcome::{Level, Outcome};
use crate::{fault, machine, race, sim};

thread_local! {
    static NOW: Cell<Option<Sabotage>> = const { Cell::new(None) };
}

/// Returns the sabotage that is on in this thread.
pub fn now() -> Option<Sabotage> {
    NOW.get()
}

/// Switches a sabotage on in this thread, or the one before off.
pub fn set(sabotage: Option<Sabotage>) {
    NOW.set(sabotage);
    sabotage::set(sabotage);
}

/// All of them.
pub const ALL: [Sabotage; 20] = [
    Sabotage::DropFileSync,
    Sabotage::DropDirSync,
    Sabotage::SyncAfterRename,
    Sabotage::SkipCrc,
    Sabotage::SkipSalt,
    Sabotage::SkipSeq,
    Sabotage::SkipTailCut,
    Sabotage::CutWithoutSync,
    Sabotage::RetrySync,
    Sabotage::AckBeforeSync,
    Sabotage::WatermarkAtAck,
    Sabotage::DropProgressEarly,
    Sabotage::IgnoreTrailing,
    Sabotage::ReuseName,
    Sabotage::RandomPhaseName,
    Sabotage::EpochByPresence,
    Sabotage::ScanBeforeCreate,
    Sabotage::TwoFrames,
    Sabotage::HealFromMemory,
    Sabotage::SkipNameCheck,
];

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
    for sabotage in ALL {
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
    set(Some(sabotage));
    let outcome = run(level);
    set(None);
    (outcome.lost > 0).then(|| outcome.notes.into_iter().next().unwrap_or_default())
}
