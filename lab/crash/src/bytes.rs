//! D8: every bit of a file flipped, and every length to which it can be truncated.
//!
//! A load returns a state that was saved, or an error that reports damage. If it returns an older state than the newest, there is a report, unless
//! the damage is in the last save, where it looks like a save that was never acknowledged. Nothing panics, and no load takes more memory than the
//! file justifies. The fuzz targets continue where this ends.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use checkpoint_store::{Options, PhaseMeta, Writer, reader};

use crate::computer::Computer;
use crate::counting;
use crate::disk::{Disk, ROOT};
use crate::memory::Memory;
use crate::outcome::{Level, Outcome};
use crate::parallel;
use crate::reference::{CheckResult, Event, Head, State, broken, text};
use crate::session::{DIR, catching_panics};
use crate::sim_disk::Shared;

/// Memory limit for a load of files of about 4 KiB, whose states also take a few KiB.
const MOST: usize = 1 << 20;
const SECTOR: usize = 4096;

/// The files of a store, and the states that were saved in them.
#[derive(Debug)]
pub struct Golden {
    name: &'static str,
    files: Memory,
    states: Vec<State>,
    /// The file that is damaged.
    victim: String,
    /// From this offset on, damage may look like an incomplete save.
    last: usize,
}

/// One kind of damage of a file.
#[derive(Debug, Clone, Copy)]
enum FileDamage {
    Flip { at: usize, bit: u8 },
    Cut(usize),
}

/// Damages the golden files.
pub fn run(level: Level) -> Outcome {
    let step = level.of([211, 17, 1, 1]);
    goldens().iter().map(|golden| golden.damage(step)).sum()
}

/// Returns three small stores: a journal, a journal after a phase, and two phases. The newest file of each is the file to damage.
///
/// # Panics
/// If a store cannot be made.
pub fn goldens() -> &'static [Golden; 3] {
    static GOLDENS: OnceLock<[Golden; 3]> = OnceLock::new();
    GOLDENS.get_or_init(|| ["journal", "journal on a phase", "phase"].map(golden))
}

fn golden(name: &'static str) -> Golden {
    let mut computer = Computer::new(Disk::new(SECTOR), 8);
    // With this, the journal has some zeros after its last save.
    computer.ahead = 512;
    let shared = Shared::new(computer);
    let disk = shared.directory(DIR);
    let (mut writer, _) = Writer::<Head, Event>::open_on(disk, Path::new(DIR), Options::default())
        .expect("the disk is empty");
    // The empty state is the state before the first save.
    let mut state = State::default();
    let mut states = vec![state.clone()];
    let mut number = 0;
    let mut save = |writer: &mut Writer<Head, Event>, is_phase: bool| {
        number += 10;
        let head = (number, text(number, 16));
        state.head = Some(number);
        if is_phase {
            let sealed = writer.save_phase("p", &head, PhaseMeta::default());
            sealed.expect("the disk has room");
        } else {
            state.events.push(number);
            let event = (number, text(number, 300));
            writer.append(&head, &[event]).expect("the disk has room");
        }
        states.push(state.clone());
    };
    if name == "journal on a phase" {
        save(&mut writer, false);
        save(&mut writer, true);
    }
    for _ in 0..8 {
        save(&mut writer, false);
    }
    if name == "phase" {
        save(&mut writer, true);
        save(&mut writer, false);
        save(&mut writer, true);
    }
    let pc = shared.pc();
    let dir = pc.disk.lookup(ROOT, DIR).expect("the store was made");
    let names: Vec<String> = pc
        .disk
        .names(dir)
        .expect("the store is a directory")
        .map(str::to_owned)
        .collect();
    let mut files = Memory::default();
    for name in names {
        let ino = pc.disk.lookup(dir, &name).expect("the name was listed");
        if let Ok(bytes) = pc.disk.read(ino) {
            files.0.insert(name, Arc::from(bytes));
        }
    }
    let kind = if name == "phase" {
        "phase-"
    } else {
        "progress-"
    };
    let victims = files.0.keys().filter(|file| file.starts_with(kind));
    let victim = victims.max().expect("the writer made the file").clone();
    Golden {
        name,
        last: last_frame(&files.0[&victim], kind),
        victim,
        files,
        states,
    }
}

/// Returns the offset of the last frame of a journal. For a phase, returns the end of the file, because an incomplete phase is never valid.
fn last_frame(bytes: &[u8], kind: &str) -> usize {
    let at = bytes.windows(4).rposition(|window| window == b"CKF1");
    at.filter(|_| kind == "progress-").unwrap_or(bytes.len())
}

impl Golden {
    /// Returns the bytes of the file to damage.
    pub fn bytes(&self) -> &[u8] {
        &self.files.0[&self.victim]
    }

    /// Returns the store with other bytes in that file.
    pub fn with(&self, bytes: &[u8]) -> Memory {
        self.files.with(&self.victim, bytes)
    }

    /// Returns whether that file is a journal.
    pub fn is_journal(&self) -> bool {
        self.victim.starts_with("progress-")
    }

    /// Returns whether this state was saved, or is the state before the first save.
    pub fn knows(&self, state: &State) -> bool {
        self.states.contains(state)
    }

    fn damage(&self, step: usize) -> Outcome {
        let bytes = self.bytes();
        let flips = (0..bytes.len() * 8)
            .step_by(step)
            .map(|bit| FileDamage::Flip {
                at: bit / 8,
                bit: (bit % 8) as u8,
            });
        let cuts = (0..bytes.len()).step_by(step.min(7)).map(FileDamage::Cut);
        let harms: Vec<FileDamage> = flips.chain(cuts).collect();
        let parts: Vec<&[FileDamage]> = harms.chunks(512).collect();
        let part = |harms: &&[FileDamage]| {
            let mut outcome = Outcome::default();
            for &harm in *harms {
                let kept = catching_panics(|| self.after(harm));
                outcome.judge(format_args!("{}, {harm:?}", self.name), kept);
                outcome.faults += 1;
                if outcome.lost > 0 {
                    break;
                }
            }
            outcome
        };
        let mut outcome: Outcome = parallel::map(&parts, part, |outcome| outcome.lost > 0)
            .into_iter()
            .sum();
        outcome.acked = self.states.len() as u64;
        outcome
    }

    fn after(&self, harm: FileDamage) -> CheckResult {
        let mut bytes = self.bytes().to_vec();
        let at = match harm {
            FileDamage::Flip { at, bit } => {
                bytes[at] ^= 1 << bit;
                at
            }
            FileDamage::Cut(at) => {
                bytes.truncate(at);
                at
            }
        };
        let files = Box::new(self.with(&bytes));
        let load = || reader::load_on::<Head, Event>(files, Path::new(DIR));
        let (loaded, most) = counting::most(load);
        if most > MOST {
            return broken('B', format!("a load took {most} bytes"));
        }
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(err) if err.is_corrupt() => return Ok(()),
            Err(err) => return broken('L', format!("the damage is reported as: {err}")),
        };
        let state = State::loaded(&loaded)?;
        match self.states.iter().position(|saved| *saved == state) {
            Some(0) if self.files.0.keys().any(|name| name.starts_with("phase-")) => {
                broken('D', "a phase was finished, but the load is empty")
            }
            None => broken('A', format!("the loaded state was never saved: {state:?}")),
            Some(index) if index + 1 == self.states.len() => Ok(()),
            // A file that is truncated at the end of a frame equals the valid file of an earlier time.
            Some(_) if at >= self.last || matches!(harm, FileDamage::Cut(_)) => Ok(()),
            Some(_) if !loaded.report.is_undamaged() => Ok(()),
            Some(index) => broken(
                'L',
                format!("save {index} is loaded, but no damage is reported"),
            ),
        }
    }
}
