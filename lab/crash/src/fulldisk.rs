//! D7: real disks without free room.
//!
//! A disk of some MiB is filled up to the last k bytes, and a writer continues. All acknowledged saves can be loaded; a save that is impossible
//! reports a full disk; with room again, the same writer continues. On file systems where written zeros reserve room, saves that fit into this room
//! succeed.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::file_systems::{self, BTRFS, EXT4, FileSystemKind, MountedFileSystem, XFS};
use crate::ledger::{Failure, Ledger, Note};
use crate::outcome::{Level, Outcome};
use crate::reference::{CheckResult, broken};
use crate::saver::{self, Saver, Stop};

/// The largest number of free bytes.
const LEFT: u64 = 64 << 10;
/// The step between two cases.
const STEP: u64 = 512;
/// Number of saves on the full disk.
const SAVES: u32 = 12;
/// Letters of such a save. The reserved room of a journal takes many of these saves.
const LETTERS: usize = 1_500;
const FILLER: &str = "filler";
/// Options that make an ext4 of 8 MiB possible.
const SMALL: [&str; 2] = ["-b", "1024"];

/// A file system to fill.
struct Place {
    name: &'static str,
    root: PathBuf,
    /// Whether a full disk accepts writes to blocks that were already written.
    reserves: bool,
    mounted: Option<MountedFileSystem>,
}

/// Fills disks, and uses up their inodes.
pub fn run(level: Level) -> Outcome {
    let step = level.of([32, 16, 1, 1]) * STEP;
    file_systems::privately(160, |dir| {
        let mut outcome = Outcome::default();
        for place in places(dir) {
            match place {
                Ok(place) => outcome += sweep(&place, step),
                Err(why) => outcome += Outcome::skip(why),
            }
        }
        outcome += match inodes(dir) {
            Ok(outcome) => outcome,
            Err(why) => Outcome::skip(why),
        };
        outcome
    })
    .unwrap_or_else(|why| Outcome::skip(format!("full disks: {why}")))
}

fn places(dir: &Path) -> [Result<Place, String>; 4] {
    let memory = || {
        let root = dir.join("tmpfs");
        std::fs::create_dir(&root).map_err(|err| err.to_string())?;
        file_systems::tmpfs(&root, "size=8m").map_err(|err| format!("full tmpfs: {err}"))?;
        Ok(Place {
            name: "tmpfs",
            root,
            reserves: true,
            mounted: None,
        })
    };
    let of = |system: &FileSystemKind, megabytes, reserves, more: &[&str]| {
        mounted(dir, system, megabytes, reserves, more)
            .map_err(|why| format!("full {}: {why}", system.name))
    };
    [
        memory(),
        of(&EXT4, 8, true, &SMALL),
        of(&XFS, XFS.megabytes, true, &[]),
        of(&BTRFS, BTRFS.megabytes, false, &[]),
    ]
}

fn mounted(
    dir: &Path,
    system: &FileSystemKind,
    megabytes: u64,
    reserves: bool,
    more: &[&str],
) -> Result<Place, String> {
    let name = format!("{}{}", system.kind, more.len());
    let (image, root) = (dir.join(format!("{name}.image")), dir.join(name));
    std::fs::create_dir(&root).map_err(|err| err.to_string())?;
    system.make(&image, megabytes, more)?;
    Ok(Place {
        name: system.name,
        mounted: Some(system.mount(&image, &root)?),
        root,
        reserves,
    })
}

fn sweep(place: &Place, step: u64) -> Outcome {
    let mut outcome = Outcome::default();
    for left in (0..LEFT).step_by(step as usize) {
        let mut ledger = Ledger::default();
        let kept = full(place, left, &mut ledger);
        outcome.judge(format_args!("{}, {left} bytes left", place.name), kept);
        outcome.acked += ledger.numbers.len() as u64;
        outcome.faults += 1;
        if outcome.lost > 0 {
            break;
        }
    }
    outcome
}

/// Records the notes of a saver in this process.
fn say<'a>(
    ledger: &'a mut Ledger,
    kept: &'a mut CheckResult,
) -> impl FnMut(Note) -> Result<(), Stop> + 'a {
    move |note| {
        *kept = ledger.note(note);
        kept.as_ref().map(drop).map_err(|_| Stop)
    }
}

/// Runs calls of a saver; the result is an error if its ledger finds a broken promise.
fn saving(
    ledger: &mut Ledger,
    act: impl FnOnce(&mut saver::NoteSink<'_>) -> Result<Result<(), checkpoint_store::Error>, Stop>,
) -> CheckResult<Result<(), checkpoint_store::Error>> {
    let mut kept = Ok(());
    let done = act(&mut say(ledger, &mut kept));
    kept?;
    done.map_or_else(|Stop| broken('L', "the saver has no open store"), Ok)
}

fn good(what: &str, done: Result<(), checkpoint_store::Error>) -> CheckResult {
    done.or_else(|err| broken('L', format!("{what}: {err}")))
}

/// Makes a store with one save in it; returns it and its writer.
fn begun(root: &Path, ledger: &mut Ledger) -> CheckResult<(PathBuf, Saver)> {
    let dir = root.join("store");
    let mut saver = Saver::new(&dir, 1_000);
    good("a new store", saving(ledger, |say| saver.open(say))?)?;
    good(
        "a first save",
        saving(ledger, |say| saver.append(1, 100, say))?,
    )?;
    Ok((dir, saver))
}

fn full(place: &Place, left: u64, ledger: &mut Ledger) -> CheckResult {
    let filler = place.root.join(FILLER);
    let (dir, mut saver) = begun(&place.root, ledger)?;
    good("a phase", saving(ledger, |say| saver.phase(say))?)?;
    good(
        "a second save",
        saving(ledger, |say| saver.append(1, 100, say))?,
    )?;
    fill(&filler, left)
        .or_else(|err| broken('B', format!("the disk could not be filled: {err}")))?;
    for number in 0..SAVES {
        match saving(ledger, |say| saver.append(1, LETTERS, say))? {
            Ok(()) => {}
            Err(err) if place.reserves => {
                return broken(
                    'L',
                    format!("save {number} must fit into the reserved room: {err}"),
                );
            }
            Err(err) => is_full(&err)?,
        }
        saver::check_load(&dir, ledger)?;
    }
    // A phase needs a new file with all events; there may be enough room or not.
    if let Err(err) = saving(ledger, |say| saver.phase(say))? {
        is_full(&err)?;
    }
    saver::check_load(&dir, ledger)?;
    // A second writer, after the first has closed, needs a new file too.
    let mut second = Saver::new(&dir, 1_000_000);
    drop(std::mem::replace(&mut saver, Saver::new(&dir, 500_000)));
    if let Err(err) = saving(ledger, |say| second.open(say))? {
        is_full(&err)?;
        good(
            "without room",
            saver::check_load(&dir, ledger).map(|_| Ok(()))?,
        )?;
        remove(&filler)?;
        good("opened with room", saving(ledger, |say| second.open(say))?)?;
    } else {
        // This phase may need more than the free room.
        if let Err(err) = saving(ledger, |say| second.phase(say))? {
            is_full(&err)?;
        }
        remove(&filler)?;
    }
    good(
        "a phase with room",
        saving(ledger, |say| second.phase(say))?,
    )?;
    good(
        "a save with room",
        saving(ledger, |say| second.append(2, LETTERS, say))?,
    )?;
    drop(second);
    saver::check_load(&dir, ledger)?;
    std::fs::remove_dir_all(&dir).or_else(|err| broken('B', err.to_string()))
}

fn remove(file: &Path) -> CheckResult {
    std::fs::remove_file(file).or_else(|err| broken('B', err.to_string()))?;
    // Some file systems return the room only after they wrote the removal to disk.
    let dir = File::open(file.parent().unwrap_or(file));
    dir.and_then(|dir| dir.sync_all())
        .or_else(|err| broken('B', err.to_string()))
}

fn is_full(err: &checkpoint_store::Error) -> CheckResult {
    match Note::from(err) {
        Note::Fail(Failure::Full, _) => Ok(()),
        _ => broken('L', format!("a full disk is reported as: {err}")),
    }
}

/// Fills a disk until `left` bytes are free, as far as whole blocks allow.
fn fill(filler: &Path, left: u64) -> std::io::Result<()> {
    let mut file = File::create(filler)?;
    let block = vec![0x5a; 64 << 10];
    let mut size = 64 << 10;
    while size >= 512 {
        // A failed write may have written a part of the block, which is fine too.
        if file.write_all(&block[..size]).is_err() {
            size /= 2;
        }
    }
    // Some file systems allocate room only when they sync. If even that needs room, the disk stays as full as it is.
    let done = file.sync_all().and_then(|()| {
        let len = file.metadata()?.len();
        file.set_len(len.saturating_sub(left))?;
        file.sync_all()
    });
    match done {
        Err(err) if err.kind() == std::io::ErrorKind::StorageFull => Ok(()),
        done => done,
    }
}

/// Uses up all inodes: no file can be made, but the journal continues.
fn inodes(dir: &Path) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let place = mounted(dir, &EXT4, 8, true, &["-b", "1024", "-N", "64"])
        .map_err(|why| format!("disk without inodes: {why}"))?;
    let mut ledger = Ledger::default();
    outcome.judge(
        "ext4 without inodes",
        without_inodes(&place.root, &mut ledger),
    );
    outcome.acked = ledger.numbers.len() as u64;
    outcome.faults = 1;
    drop(place.mounted);
    Ok(outcome)
}

fn without_inodes(root: &Path, ledger: &mut Ledger) -> CheckResult {
    let (dir, mut saver) = begun(root, ledger)?;
    let names = (0..1_000).map(|number| root.join(format!("{FILLER}-{number}")));
    let made: Vec<PathBuf> = names
        .take_while(|name| File::create(name).is_ok())
        .collect();
    good(
        "a save in the journal",
        saving(ledger, |say| saver.append(1, 100, say))?,
    )?;
    match saving(ledger, |say| saver.phase(say))? {
        Ok(()) => return broken('B', "there must be no free inodes"),
        Err(err) => is_full(&err)?,
    }
    saver::check_load(&dir, ledger)?;
    for name in &made {
        remove(name)?;
    }
    good(
        "a phase with inodes",
        saving(ledger, |say| saver.phase(say))?,
    )?;
    good(
        "a save with inodes",
        saving(ledger, |say| saver.append(1, 100, say))?,
    )?;
    saver::check_load(&dir, ledger).map(drop)
}
