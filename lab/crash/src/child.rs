//! The subcommands that other parts of this program start.
//!
//! `crash-test save DIR FIRST STEPS KIND [SABOTAGE]` saves in a store. Before and after each call it prints a [`Note`](crate::ledger::Note) on its
//! standard output, one on each line.
//!
//! `crash-test seeds TARGET DIR` writes the first inputs of a fuzz target.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

use checkpoint_store::sabotage::Sabotage;

use crate::fuzzing;
use crate::mistake::{self, Mistake};
use crate::program::{self, Running};
use crate::saver::{Saver, SaverKind, Stop};

/// The first argument of the program that saves and is killed.
const SAVE: &str = "save";
const SEEDS: &str = "seeds";

const KINDS: [(SaverKind, &str); 3] = [
    (SaverKind::Mixed, "mixed"),
    (SaverKind::Plain, "plain"),
    (SaverKind::Early, "early"),
];

/// Returns the word for a kind of saver.
fn word(kind: SaverKind) -> &'static str {
    let found = KINDS.iter().find(|(one, _)| *one == kind);
    found.map_or("mixed", |(_, word)| word)
}

/// Starts the saving program.
///
/// # Errors
/// If it cannot be started.
pub fn start_saver(dir: &Path, first: u32, steps: u32, kind: SaverKind) -> Result<Running, String> {
    Running::start(Command::new(program::own()?).args(saver(dir, first, steps, kind)))
}

/// Returns the arguments for the saving program. If a sabotage is on here, the program gets it too.
pub fn saver(dir: &Path, first: u32, steps: u32, kind: SaverKind) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![
        SAVE.into(),
        dir.into(),
        first.to_string().into(),
        steps.to_string().into(),
        word(kind).into(),
    ];
    words.extend(mistake::now().map(|sabotage| format!("{sabotage:?}").into()));
    words
}

/// Runs a subcommand if another part of this program started this process; returns `None` if a person started it.
pub fn run() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let part = match arguments.next()? {
        part if part == SAVE => save,
        part if part == SEEDS => seeds,
        _ => return None,
    };
    let code = match part(&arguments.collect::<Vec<_>>()) {
        Some(()) => ExitCode::SUCCESS,
        None => ExitCode::from(2),
    };
    Some(code)
}

fn save(arguments: &[OsString]) -> Option<()> {
    let [dir, first, steps, kind, sabotage @ ..] = arguments else {
        return None;
    };
    if let [sabotage] = sabotage {
        let known = |one: &&Sabotage| *sabotage == *format!("{one:?}");
        mistake::set(Some(Mistake::Store(*mistake::STORE.iter().find(known)?)));
    }
    let number = |text: &OsString| text.to_str()?.parse().ok();
    let kind = KINDS.iter().find(|(_, word)| kind == word)?.0;
    let mut out = std::io::stdout().lock();
    let mut say = |note| writeln!(out, "{note}").map_err(|_| Stop);
    // If the parent has ended, the write fails, but this program has not failed.
    let (Ok(()) | Err(Stop)) =
        Saver::new(Path::new(dir), number(first)?).work(kind, number(steps)?, &mut say);
    Some(())
}

fn seeds(arguments: &[OsString]) -> Option<()> {
    let [target, dir] = arguments else {
        return None;
    };
    std::fs::create_dir_all(dir).ok()?;
    for (number, seed) in fuzzing::seeds(target.to_str()?).iter().enumerate() {
        std::fs::write(Path::new(dir).join(format!("seed-{number}")), seed).ok()?;
    }
    Some(())
}
