//! D2: random histories of all actions of a program, its machine and its users, compared with the reference. A history that breaks a promise is
//! shrunk to the smallest one that does.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use checkpoint_store::reader;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::choice::{Decisions, Outcomes};
use crate::damage::Damage;
use crate::disk::{Disk, ROOT};
use crate::outcome::{Level, Outcome};
use crate::reference::{CheckResult, Event, Head, State, broken};
use crate::rng::{Rng, mix};
use crate::session::{DIR, Session, catching_panics};
use crate::step::{Step, Workload};
use crate::{mistake, parallel};

/// Number of parts of the histories, each with its own random numbers.
const PARTS: u64 = 8;
const LONGEST: usize = 50;

/// One event of a history.
#[derive(Debug, Clone)]
enum MachineEvent {
    /// The program executes a step.
    Step(Step),
    /// The power fails; the number determines the outcome.
    PowerCut(u64),
    /// The program is killed; the machine continues.
    Kill,
    /// A second program takes the store over, and the first one continues.
    TakeOver,
    /// The newest file, or an older one, is damaged while the store is closed.
    Damage(Damage, u8, u64),
}

impl fmt::Display for MachineEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => write!(f, "{step}"),
            Self::PowerCut(seed) => write!(f, "!{seed}"),
            Self::Kill => f.write_str("K"),
            Self::TakeOver => f.write_str("T"),
            Self::Damage(damage, file, seed) => write!(f, "D{}:{file}:{seed}", *damage as u8),
        }
    }
}

impl FromStr for MachineEvent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not an event");
        let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
        Ok(match text.split_at_checked(1) {
            Some(("!", seed)) => Self::PowerCut(number(seed)?),
            Some(("K", "")) => Self::Kill,
            Some(("T", "")) => Self::TakeOver,
            Some(("D", rest)) => {
                let parts = rest.split(':').map(number).collect::<Result<Vec<_>, _>>()?;
                let [damage, file, seed] = parts[..] else {
                    return Err(bad());
                };
                let damage = Damage::ALL.get(damage as usize).ok_or_else(bad)?;
                Self::Damage(*damage, file as u8, seed)
            }
            _ => Self::Step(text.parse()?),
        })
    }
}

/// Runs one history again, from its printed name.
///
/// # Errors
/// If it breaks a promise, or is not a valid history.
pub fn replay(text: &str) -> Result<(), String> {
    let (disk, acts) = text
        .split_once('/')
        .ok_or("a history has the form `disk/events`")?;
    let disk = disk
        .parse()
        .map_err(|_| format!("`{disk}` is not a disk number"))?;
    let acts: Vec<MachineEvent> = acts.split(',').map(str::parse).collect::<Result<_, _>>()?;
    match catching_panics(|| history(disk, &acts)) {
        Ok(_) => Ok(()),
        Err(broken) => Err(format!("{}: {}", broken.invariant, broken.what)),
    }
}

fn act() -> impl Strategy<Value = MachineEvent> {
    let append = (0..4u8, prop_oneof![3 => 1..60u16, 1 => 300..1200u16])
        .prop_map(|(events, letters)| Step::Append { events, letters });
    // `Trail` has its own weight, because most other kinds damage a journal, where a torn tail is expected.
    let damage = prop_oneof![
        1 => Just(Damage::Trail),
        3 => proptest::sample::select(&Damage::ALL[..]),
    ];
    let step = prop_oneof![
        8 => append,
        2 => (100..600u16).prop_map(Step::Head),
        2 => (0..6u8).prop_map(Step::Undo),
        3 => Just(Step::Phase),
        2 => Just(Step::Reopen),
        1 => Just(Step::Load),
        1 => Just(Step::LookBack),
        1 => Just(Step::Verify),
        1 => Just(Step::Clean),
        1 => Just(Step::Fork),
        1 => Just(Step::Blob),
        1 => Just(Step::LoseJournal),
    ];
    prop_oneof![
        12 => step.prop_map(MachineEvent::Step),
        3 => any::<u64>().prop_map(MachineEvent::PowerCut),
        1 => Just(MachineEvent::Kill),
        1 => Just(MachineEvent::TakeOver),
        2 => (damage, prop_oneof![2 => Just(0), 1 => 1..3u8], any::<u64>())
            .prop_map(|(damage, file, seed)| MachineEvent::Damage(damage, file, seed)),
    ]
}

/// Runs the layer.
pub fn run(level: Level) -> Outcome {
    explore(level.of([160, 2_000, 10_000, 400_000]))
}

/// Runs `cases` histories.
pub fn explore(cases: u32) -> Outcome {
    let parts: Vec<u64> = (0..PARTS).collect();
    let mut outcome = Outcome::default();
    let one = |&part: &u64| explore_part(part, cases / PARTS as u32);
    for one in parallel::map(&parts, one, |outcome| outcome.lost > 0) {
        outcome += one;
    }
    outcome.notes.truncate(1);
    outcome
}

fn explore_part(part: u64, cases: u32) -> Outcome {
    let acked = std::cell::Cell::new(0);
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: if mistake::now().is_none() { 20_000 } else { 0 },
        ..Config::default()
    };
    let mut seed = [0; 32];
    seed.chunks_mut(8).zip(1..).for_each(|(chunk, index)| {
        chunk.copy_from_slice(&mix(part << 8 | index).to_le_bytes());
    });
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let histories = (0..4u8, proptest::collection::vec(act(), 1..LONGEST));
    let result =
        TestRunner::new_with_rng(config, rng).run(
            &histories,
            |(disk, acts)| match catching_panics(|| history(disk, &acts)) {
                Ok(saves) => {
                    acked.set(acked.get() + saves);
                    Ok(())
                }
                Err(broken) => Err(TestCaseError::fail(format!(
                    "{}: {}",
                    broken.invariant, broken.what
                ))),
            },
        );
    let mut outcome = Outcome {
        tried: cases.into(),
        acked: acked.get(),
        ..Outcome::default()
    };
    if let Err(TestError::Fail(reason, (disk, acts))) = result {
        outcome.lost = 1;
        let acts: Vec<String> = acts.iter().map(MachineEvent::to_string).collect();
        let acts = acts.join(",");
        outcome.notes.push(format!(
            "{}\n  again: cargo xtask crash-test --case machine={disk}/{acts}",
            reason.message()
        ));
    }
    outcome
}

/// Runs one history; returns the number of acknowledged saves.
fn history(disk: u8, acts: &[MachineEvent]) -> CheckResult<u64> {
    let (sector, ahead) = [(512, 0), (512, 2048), (4096, 1024), (64, 0)][usize::from(disk % 4)];
    let workload = Workload {
        sector,
        ahead,
        seed: disk.into(),
        steps: Vec::new(),
    };
    let mut session = Session::new(&workload);
    let mut boots = 0;
    let reboot = |session: &mut Session, disk: Disk, boots: &mut u64| {
        *boots += 1;
        let reference = session.reference.clone();
        let (marks, acknowledged) = (session.marks.clone(), session.acknowledged);
        let ever = std::mem::take(&mut session.ever);
        *session = Session::after(disk, reference, &workload, *boots);
        session.marks = marks;
        session.acknowledged = acknowledged;
        session.ever = ever;
        session.number += 10_000 * *boots as u32;
    };
    for act in acts {
        match act {
            MachineEvent::Step(step) => session.run(&[*step])?,
            MachineEvent::PowerCut(seed) => {
                let disk = session.shared.pc().disk.clone();
                let freedom = Decisions::of(&disk);
                let mut rng = Rng::new(*seed);
                let some = freedom.choices(5, &mut rng);
                let choice = some
                    .get(rng.below(some.len()))
                    .cloned()
                    .unwrap_or(Outcomes(Vec::new()));
                reboot(&mut session, freedom.apply(&disk, &choice), &mut boots);
                session.open()?;
            }
            MachineEvent::Kill => {
                let disk = session.shared.pc().disk.clone();
                reboot(&mut session, disk, &mut boots);
                session.open()?;
            }
            MachineEvent::TakeOver => take_over(&mut session)?,
            MachineEvent::Damage(damage, file, seed) => {
                session.close();
                if damaged(&mut session, *damage, *file, *seed)?.is_none() {
                    break;
                }
            }
        }
        if session.reference.is_void() && session.is_closed() {
            break;
        }
    }
    Ok(session.acknowledged)
}

/// Opens a second writer, and checks that the first one notices it.
fn take_over(session: &mut Session) -> CheckResult {
    let Some((mut first, _)) = session.take_writer()? else {
        return Ok(());
    };
    let mut pc = session.shared.pc();
    if let Some(dir) = pc.disk.lookup(ROOT, DIR) {
        // The lock file may already be gone.
        drop(pc.disk.unlink(dir, "LOCK"));
    }
    drop(pc);
    let mut tried = session.present.clone();
    tried.head = Some(1);
    session.ever.push(tried.clone());
    session.open()?;
    session.reference.try_in_vain(tried);
    match first.append(&(1, crate::reference::text(1, 5)), &[]) {
        Ok(_) => broken('F', "a writer that was taken over continues to save"),
        Err(_) => session.load(),
    }
}

/// Damages a file and loads: the report must mention the damage, and the loaded state must be a former state. Returns `None` if no state is left.
fn damaged(session: &mut Session, damage: Damage, file: u8, seed: u64) -> CheckResult<Option<()>> {
    let mut rng = Rng::new(seed);
    let load = |session: &Session| {
        reader::load_on::<Head, Event>(session.shared.directory(DIR), Path::new(DIR))
    };
    let used = load(session).ok().and_then(|loaded| loaded.report.used);
    let name = {
        let mut pc = session.shared.pc();
        let Some(dir) = pc.disk.lookup(ROOT, DIR) else {
            return Ok(Some(()));
        };
        let own = |name: &str| name.starts_with("phase-") || name.starts_with("progress-");
        let names: Vec<String> = match pc.disk.names(dir) {
            Ok(names) => names.filter(|name| own(name)).map(str::to_owned).collect(),
            Err(_) => return Ok(Some(())),
        };
        let name = match file {
            0 => used.as_ref(),
            file => names.iter().rev().nth(usize::from(file) - 1),
        };
        let Some(name) = name else {
            return Ok(Some(()));
        };
        let Some(ino) = pc.disk.lookup(dir, name) else {
            return Ok(Some(()));
        };
        let bytes = pc.disk.read(ino).map(<[u8]>::to_vec).unwrap_or_default();
        let others = names.iter().filter(|other| *other != name);
        let other: Vec<Vec<u8>> = others
            .filter_map(|other| pc.disk.lookup(dir, other))
            .filter_map(|ino| pc.disk.read(ino).ok().map(<[u8]>::to_vec))
            .collect();
        let other = other
            .get(rng.below(other.len().max(1)))
            .map_or(&[][..], Vec::as_slice);
        let Some(bytes) = damage.of(&bytes, other, &mut rng) else {
            return Ok(Some(()));
        };
        let cut = pc
            .disk
            .set_len(ino, bytes.len())
            .and_then(|()| pc.disk.write(ino, 0, &bytes));
        if cut.and_then(|()| pc.disk.sync_file(ino)).is_err() {
            return broken('-', "the model could not damage a file");
        }
        name.clone()
    };
    let loaded = match load(session) {
        Ok(loaded) => loaded,
        Err(err) if err.is_corrupt() => return Ok(None),
        // A damaged version number looks like that of a newer program.
        Err(err) if err.is_unsupported_version() => return Ok(None),
        Err(err) => return broken('L', format!("{damage:?} of {name}: {err}")),
    };
    let state = State::loaded(&loaded)?;
    if state != State::default() && !session.ever.contains(&state) {
        return broken(
            'A',
            format!("{damage:?} of {name}: the loaded state was never saved: {state:?}"),
        );
    }
    let is_told = !loaded.report.is_undamaged() || loaded.report.repaired_tail.is_some();
    // In the last save, damage and an incomplete save look alike; and a file that ends between two frames is valid. These exceptions don't apply to a
    // phase file.
    if used.as_ref() == Some(&name) && name.starts_with("phase-") && !is_told {
        return broken(
            'A',
            format!("{damage:?} of {name}: the load does not report the damage"),
        );
    }
    session.reference.settle(&session.ever, state);
    session.marks.clear();
    session.open()?;
    Ok(Some(()))
}
