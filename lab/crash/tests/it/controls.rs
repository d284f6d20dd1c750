//! Bad protocols must lose saves in the model, and good ones must not. Otherwise a zero of the other layers would mean nothing.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use rlm_crash::choice::Decisions;
use rlm_crash::computer::{Computer, Progress};
use rlm_crash::disk::{Disk, ROOT};
use rlm_crash::rng::Rng;

const SAVES: u8 = 3;
const CHOICES: usize = 24;
const NAME: &str = "state";
const TEMP: &str = "temp";

/// Returns a frame that is longer than two sectors of eight bytes, so that it can be torn.
fn frame(number: u8) -> [u8; 20] {
    let mut frame = [number; 20];
    frame[1] = 20;
    let mut hasher = DefaultHasher::new();
    frame[..12].hash(&mut hasher);
    frame[12..].copy_from_slice(&hasher.finish().to_le_bytes());
    frame
}

fn is_whole(bytes: &[u8]) -> bool {
    bytes.len() == 20 && bytes[0] > 0 && bytes == frame(bytes[0])
}

#[derive(Debug, Clone, Copy)]
enum Protocol {
    /// Temporary file and rename.
    Rename { sync_file: bool, sync_dir: bool },
    /// Frames with checksums in a file that grows.
    Frames { sync_dir: bool, cut_tail: bool },
    /// The file is emptied and written again.
    InPlace,
}

/// Loads the number of the newest save, 0 if there is none, and repairs the file.
fn recover(pc: &mut Computer, protocol: Protocol) -> Result<u8, &'static str> {
    let Some(ino) = pc.disk.lookup(ROOT, NAME) else {
        return Ok(0);
    };
    let bytes = pc.disk.read(ino).unwrap().to_vec();
    match protocol {
        Protocol::Rename { .. } | Protocol::InPlace => {
            if is_whole(&bytes) {
                Ok(bytes[0])
            } else {
                Err("the file is torn")
            }
        }
        Protocol::Frames { cut_tail, .. } => {
            let good = bytes.chunks(20).take_while(|chunk| is_whole(chunk)).count();
            if cut_tail && bytes.len() > good * 20 {
                pc.disk.set_len(ino, good * 20).unwrap();
                pc.reached(pc.progress);
                pc.disk.sync_file(ino).unwrap();
                pc.reached(pc.progress);
            }
            Ok(good.checked_sub(1).map_or(0, |last| bytes[last * 20]))
        }
    }
}

fn save(pc: &mut Computer, protocol: Protocol, number: u8) -> io::Result<()> {
    let shoot = |pc: &mut Computer| pc.reached(pc.progress);
    let ino = match protocol {
        Protocol::Rename { .. } => {
            if pc.disk.lookup(ROOT, TEMP).is_some() {
                pc.disk.unlink(ROOT, TEMP)?;
            }
            pc.disk.create(ROOT, TEMP, false)?
        }
        _ => match pc.disk.lookup(ROOT, NAME) {
            Some(ino) => ino,
            None => pc.disk.create(ROOT, NAME, false)?,
        },
    };
    let (sync_file, sync_dir) = match protocol {
        Protocol::Rename {
            sync_file,
            sync_dir,
        } => (sync_file, sync_dir),
        Protocol::Frames { sync_dir, .. } => (true, sync_dir),
        Protocol::InPlace => {
            pc.disk.set_len(ino, 0)?;
            (true, true)
        }
    };
    shoot(pc);
    pc.disk
        .write(ino, pc.disk.read(ino)?.len(), &frame(number))?;
    shoot(pc);
    if sync_file {
        pc.disk.sync_file(ino)?;
        shoot(pc);
    }
    if matches!(protocol, Protocol::Rename { .. }) {
        pc.disk.rename_over(ROOT, TEMP, ROOT, NAME)?;
        shoot(pc);
    }
    if sync_dir {
        pc.disk.sync_dir(ROOT)?;
        shoot(pc);
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Found {
    states: usize,
    lost: usize,
    unloadable: usize,
}

/// Saves, cuts the power at every moment, starts again and continues to save; then does the same once more.
fn explore(protocol: Protocol) -> Found {
    let (mut found, mut rng) = (Found::default(), Rng::new(1));
    let run = |disk: Disk, from: u8, found: &mut Found, acked: usize| {
        let mut pc = Computer::new(disk, 0);
        pc.progress.acked = acked;
        pc.watch();
        match recover(&mut pc, protocol) {
            Ok(loaded) if usize::from(loaded) < acked => found.lost += 1,
            Ok(_) => {}
            Err(_) => {
                found.unloadable += 1;
                return Vec::new();
            }
        }
        for number in from + 1..=from + SAVES {
            save(&mut pc, protocol, number).unwrap();
            pc.reached(Progress {
                acked: usize::from(number),
                tried: usize::from(number),
                ..Progress::default()
            });
        }
        pc.shots()
    };
    for shot in run(Disk::new(8), 0, &mut found, 0) {
        let freedom = Decisions::of(&shot.disk);
        for choice in freedom.choices(CHOICES, &mut rng) {
            found.states += 1;
            let disk = freedom.apply(&shot.disk, &choice);
            for again in run(disk, SAVES, &mut found, shot.progress.acked) {
                let freedom = Decisions::of(&again.disk);
                for choice in freedom.choices(3, &mut rng) {
                    found.states += 1;
                    let disk = freedom.apply(&again.disk, &choice);
                    run(disk, 2 * SAVES, &mut found, again.progress.acked);
                }
            }
        }
    }
    found
}

#[test]
fn d0_known_bad_protocols_lose_saves_in_the_model() {
    for bad in [
        Protocol::Rename {
            sync_file: false,
            sync_dir: false,
        },
        Protocol::Rename {
            sync_file: false,
            sync_dir: true,
        },
        Protocol::Rename {
            sync_file: true,
            sync_dir: false,
        },
        Protocol::Frames {
            sync_dir: true,
            cut_tail: false,
        },
        Protocol::Frames {
            sync_dir: false,
            cut_tail: true,
        },
        Protocol::InPlace,
    ] {
        let found = explore(bad);
        assert!(found.lost + found.unloadable > 0, "{bad:?}: {found:?}");
    }
}

#[test]
fn d0_known_good_protocols_lose_nothing_in_the_model() {
    for good in [
        Protocol::Rename {
            sync_file: true,
            sync_dir: true,
        },
        Protocol::Frames {
            sync_dir: true,
            cut_tail: true,
        },
    ] {
        let found = explore(good);
        assert!(
            found.lost + found.unloadable == 0 && found.states > 1_000,
            "{good:?}: {found:?}"
        );
    }
}
