//! A state that grows, is saved after each step, and continues where it stopped.
//!
//! `cargo run -p checkpoint-store --example diary DIR [STEPS]` ends by itself after STEPS (10 by default). Run it again: it continues. Give it
//! 100000, kill it with `kill -9`, and run it again: every reported save is there. Start it twice at once: the second one fails and names the first.
#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::{env, error::Error, path::Path};

use checkpoint_store::{Options, PhaseMeta, Writer, reader};
use serde::{Deserialize, Serialize};

/// The current state. Each save writes all of it, so it is small.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    steps: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let dir = arguments.next().ok_or("usage: diary DIR [STEPS]")?;
    let steps = arguments.next().map_or(Ok(10), |text| text.parse())?;
    Ok(run(Path::new(&dir), steps)?)
}

pub(crate) fn run(dir: &Path, steps: u64) -> checkpoint_store::Result<()> {
    let (mut writer, loaded) = Writer::<Head, String>::open(dir, Options::default())?;
    let begun = loaded.head.map_or(0, |head| head.steps);
    print!("continues after step {begun}: {}", loaded.report);
    for steps in begun + 1..=begun + steps {
        let entry = format!("step {steps}: one more entry of the diary");
        let seq = writer.append(&Head { steps }, &[entry])?; // one write and one sync, however long the diary is
        println!("step {steps}: save {seq}");
    }
    // A phase has its own file, and later saves don't change it.
    let steps = begun + steps;
    let phase = writer.save_phase("day", &Head { steps }, PhaseMeta::default())?;
    println!("finished phase {phase}");

    // A reader needs no lock. This one loads the save in the middle.
    let mut saves = Vec::new();
    reader::history(dir, &Options::default(), |seq, head: Head| {
        saves.push((seq, head.steps));
    })?;
    if let Some((seq, steps)) = saves.get(saves.len() / 2) {
        let then = reader::load_at::<Head, String>(dir, *seq, &Options::default())?;
        let entries = then.events.len();
        println!("at save {seq} there were {entries} entries; the last was of step {steps}");
    }
    Ok(())
}
