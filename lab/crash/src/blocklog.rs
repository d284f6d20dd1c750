//! D4: power cuts under real file systems.
//!
//! A disk that logs each write and each flush is below a real file system. A program saves there and reports its acknowledged saves, which go into
//! the same log. The power is cut at any entry: all flushed writes are there, and of the later writes all, none, or any blocks. Each such disk is
//! mounted, so that the file system recovers. The store is loaded and compared with the saves that were acknowledged before the cut. Then a program
//! continues with it.
//!
//! As a control, programs that save by rename without a sync lose saves at the same place.

mod fuse;
mod log;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use log::{Entry, Log, UnflushedWrites};

use self::fuse::{Disk, Served};
use crate::file_systems::{self, BTRFS, EXT4, FileSystemKind, WRITEBACK, XFS};
use crate::ledger::Ledger;
use crate::mistake;
use crate::outcome::{Level, Outcome};
use crate::reference::{CheckResult, broken};
use crate::rename_saver::{self, RenameSaver};
use crate::rng::Rng;
use crate::saver::{self, Saver, SaverKind};

/// Number of steps of a logged program.
const STEPS: u32 = 25;
/// Power cuts of one log.
const CUTS: usize = 25;
/// Number of disks at the same time; they wait most of the time.
const THREADS: usize = 4;
/// The time limits. Cuts of `--ci` that don't fit are skipped, and the output reports that.
const TIME: [Duration; 4] = [
    Duration::from_secs(20),
    Duration::from_secs(20),
    Duration::from_secs(180),
    Duration::from_secs(7_200),
];

const GOOD: RenameSaver = RenameSaver {
    file_sync: true,
    dir_sync: true,
};
/// Programs that must lose saves, and one that must not.
const CONTROLS: [(&str, RenameSaver); 3] = [
    (
        "rename without a sync",
        RenameSaver {
            file_sync: false,
            dir_sync: false,
        },
    ),
    (
        "rename without a sync of the directory",
        RenameSaver {
            dir_sync: false,
            ..GOOD
        },
    ),
    ("rename with both syncs", GOOD),
];

/// The way in which a program saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// The store.
    Store,
    /// A program that saves by rename.
    Old(RenameSaver),
}

/// One log, and the power cuts in it.
#[derive(Debug, Clone, Copy)]
struct Job {
    system: &'static FileSystemKind,
    protocol: Protocol,
    seed: u64,
    cuts: usize,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, program {}", self.system.name, self.seed)
    }
}

/// Cuts the power below the store.
pub fn run(level: Level) -> Outcome {
    let wanted = [
        (&EXT4, level.of([3, 10, 500, 10_000])),
        (&WRITEBACK, level.of([3, 10, 500, 10_000])),
        (&XFS, level.of([0, 3, 150, 1_500])),
        (&BTRFS, level.of([0, 3, 150, 1_500])),
    ];
    let jobs: Vec<Job> = wanted
        .into_iter()
        .flat_map(|(system, cases)| jobs(system, cases))
        .collect();
    let mut outcome = all(&jobs, level.of(TIME));
    let cuts = level.of([0, 5, 50, 500]);
    if outcome.tried > 0 && cuts > 0 {
        for (what, old) in CONTROLS {
            let control = control(old, cuts);
            outcome.notes.push(format!(
                "control, {what}: lost {} of {}",
                control.lost, control.tried
            ));
            if control.tried > 0 && (control.lost > 0) == (old == GOOD) {
                outcome.lost += 1;
            }
        }
    }
    outcome
}

/// Returns the programs whose logs together have `cases` power cuts.
fn jobs(system: &'static FileSystemKind, cases: usize) -> impl Iterator<Item = Job> {
    (0..cases)
        .step_by(CUTS)
        .zip(0..)
        .map(move |(first, seed)| Job {
            system,
            protocol: Protocol::Store,
            seed,
            cuts: CUTS.min(cases - first),
        })
}

/// Cuts the power below the store on ext4 without an order between data and names.
pub fn store(cuts: usize) -> Outcome {
    all(&jobs(&WRITEBACK, cuts).collect::<Vec<_>>(), TIME[0])
}

/// Cuts the power below a program that saves by rename, on the same file system as [`store`].
pub fn control(old: RenameSaver, cuts: usize) -> Outcome {
    let job = Job {
        system: &WRITEBACK,
        protocol: Protocol::Old(old),
        seed: 1,
        cuts,
    };
    all(&[job], TIME[0])
}

fn all(jobs: &[Job], time: Duration) -> Outcome {
    let end = Instant::now() + time;
    let next = AtomicUsize::new(0);
    let sum = Mutex::new(Outcome::default());
    // Some file systems refuse to mount two copies with the same identity.
    let alone = Mutex::new(());
    let sabotage = mistake::now();
    let work = |root: &Path| {
        mistake::set(sabotage);
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let turn = (!job.system.can_repeat).then(|| alone.lock());
            let outcome = job.run(root, end);
            drop(turn);
            *sum.lock().unwrap_or_else(PoisonError::into_inner) += outcome;
        }
    };
    let done = file_systems::privately(256, |dir| {
        std::thread::scope(|scope| {
            for number in 0..THREADS.min(jobs.len()) {
                let (root, work) = (dir.join(number.to_string()), &work);
                scope.spawn(move || work(&root));
            }
        });
    });
    if let Err(why) = done {
        return Outcome::skip(format!("power cuts: {why}"));
    }
    let mut sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    let wanted: usize = jobs.iter().map(|job| job.cuts).sum();
    sum.skipped.sort();
    sum.skipped.dedup();
    if Instant::now() >= end && sum.lost == 0 {
        sum.skipped.push(format!(
            "power cuts: only {} of {wanted} fit into {} s",
            sum.tried,
            time.as_secs()
        ));
    }
    sum
}

/// A disk, and the place where its file system is mounted.
struct Bench {
    disk: Served,
    mount: PathBuf,
    system: &'static FileSystemKind,
}

impl Bench {
    fn new(root: &Path, system: &'static FileSystemKind) -> Result<Self, String> {
        let (image, mount) = (root.join("image"), root.join("mnt"));
        // A previous job may have left this directory.
        drop(std::fs::remove_dir_all(root));
        std::fs::create_dir_all(&mount).map_err(|err| err.to_string())?;
        let more: &[&str] = match system.kind {
            "ext4" => &["-b", "4096", "-J", "size=4"],
            _ => &[],
        };
        system.make(&image, system.megabytes, more)?;
        let bytes = std::fs::read(&image).map_err(|err| err.to_string())?;
        std::fs::remove_file(&image).map_err(|err| err.to_string())?;
        Ok(Self {
            disk: Disk::serve(&root.join("disk"), bytes)?,
            mount,
            system,
        })
    }

    fn store(&self) -> PathBuf {
        self.mount.join("store")
    }

    /// Runs a program that saves on the disk, and returns the log of the disk.
    fn record(&self, job: &Job) -> Result<Log, String> {
        let mounted = self.system.mount(self.disk.path(), &self.mount)?;
        self.disk.record();
        let mut say = |note| {
            self.disk.note(Entry::Said(note));
            Ok(())
        };
        match job.protocol {
            Protocol::Store => {
                let first = (job.seed as u32 % 1_000 + 1) * 100_000;
                Saver::new(&self.store(), first).work(SaverKind::Mixed, STEPS, &mut say)
            }
            Protocol::Old(old) => old.work(&self.store(), STEPS, &mut say),
        }
        .expect("`say` never fails");
        let log = self.disk.log();
        drop(mounted);
        Ok(log)
    }
}

impl Job {
    fn run(&self, root: &Path, end: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        if Instant::now() >= end {
            return outcome;
        }
        let skip =
            |why: String| Outcome::skip(format!("power cuts under {}: {why}", self.system.name));
        let bench = match Bench::new(root, self.system) {
            Ok(bench) => bench,
            Err(why) => return skip(why),
        };
        let log = match bench.record(self) {
            Ok(log) => log,
            Err(why) => return skip(why),
        };
        let mut rng = Rng::new(self.seed);
        for _ in 0..self.cuts {
            if Instant::now() >= end {
                break;
            }
            let cut = 1 + rng.below(log.entries.len());
            let flying = match rng.below(4) {
                0 => UnflushedWrites::All,
                1 => UnflushedWrites::None,
                _ => UnflushedWrites::Some(rng.draw()),
            };
            let mut ledger = Ledger::default();
            let kept = self.cut(&bench, &log, (cut, flying), &mut ledger);
            outcome.judge(format_args!("{self}, cut {cut}, {flying:?}"), kept);
            outcome.acked += ledger.numbers.len() as u64;
            outcome.faults += 1;
        }
        outcome
    }

    fn cut(
        &self,
        bench: &Bench,
        log: &Log,
        (cut, flying): (usize, UnflushedWrites),
        ledger: &mut Ledger,
    ) -> CheckResult {
        for note in log.said(cut) {
            ledger.note(note.clone())?;
        }
        // The program after the cut reports its own end.
        ledger.is_at_end = false;
        bench.disk.set(log.image(cut, flying));
        let mounted = match bench.system.mount(bench.disk.path(), &bench.mount) {
            Ok(mounted) => mounted,
            Err(why) => return broken('L', format!("the file system cannot be mounted: {why}")),
        };
        let kept = match self.protocol {
            Protocol::Store => go_on(&bench.store(), ledger),
            Protocol::Old(_) => rename_saver::check_load(&bench.store(), ledger),
        };
        drop(mounted);
        kept
    }
}

fn go_on(dir: &Path, ledger: &mut Ledger) -> CheckResult {
    saver::check_load(dir, ledger)?;
    let mut kept = Ok(());
    let mut say = |note| {
        kept = std::mem::replace(&mut kept, Ok(())).and_then(|()| ledger.note(note));
        Ok(())
    };
    let worked = Saver::new(dir, 1_000_000_000).work(SaverKind::Mixed, 2, &mut say);
    worked.expect("`say` never fails");
    kept?;
    saver::finished(ledger)?;
    saver::check_load(dir, ledger).map(drop)
}
