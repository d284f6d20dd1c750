//! One writer at a time, among real processes: which process gets the lock, and which processes must not hold it.

use std::io::Read;
use std::process::{Command, Stdio};

use checkpoint_store::{Loaded, Options, PhaseMeta, Store, reader};

use crate::support::{self, Dir, Log, child_dir, files, print_line, spawn};

#[test]
fn a_held_lock_names_its_holder() {
    let dir = Dir::new();
    let (writer, _) = dir.open();
    let err = Log::open(&dir.path, Options::default()).unwrap_err();
    assert!(err.is_locked());
    assert!(
        err.to_string()
            .contains(&format!("pid {} since 2", std::process::id())),
        "{err}"
    );
    assert!(reader::is_locked(&dir.path).unwrap());
    drop(writer);
    assert!(!reader::is_locked(&dir.path).unwrap());
    dir.open();
}

/// The body of a child: opens a store and starts a process that outlives it.
#[test]
fn parent() {
    let Some(dir) = child_dir() else { return };
    let _held = Store::open(dir).unwrap();
    // `cat` inherits the standard input of this process, a pipe from the test, and ends when the test closes the pipe.
    let mut outliving = Command::new("cat").stdout(Stdio::null()).spawn().unwrap();
    print_line("started");
    outliving.wait().unwrap();
}

#[test]
fn child_processes_do_not_inherit_the_lock() {
    let dir = Dir::new();
    let mut running = spawn(support::command(&[], "lock::parent", &dir.path));
    assert_eq!(running.next().unwrap(), "started");
    let pipe = running.child.stdin.take();
    running.kill();
    dir.open();
    drop(pipe);
}

#[test]
fn lock_query_never_blocks_a_writer() {
    let dir = Dir::new();
    dir.open();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                reader::is_locked(&dir.path).unwrap();
            }
        });
        for _ in 0..50 {
            dir.open();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// The body of a child that races in the test below.
#[test]
fn racer() {
    let Some(dir) = child_dir() else { return };
    let opened = Store::open(dir);
    match opened {
        Ok(mut store) => {
            store.save(&std::process::id()).unwrap();
            print_line("won");
            // Holds the lock until the parent has the results of all racers.
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        Err(err) if err.is_locked() => print_line("locked"),
        Err(err) => print_line(&err.to_string()),
    }
}

#[test]
fn c61a_c61b_c65b_one_racing_process_wins_and_the_others_get_an_error() {
    for _ in 0..5 {
        let dir = Dir::new();
        let mut racers: Vec<_> = (0..4)
            .map(|_| spawn(support::command(&[], "lock::racer", &dir.path)))
            .collect();
        let lines: Vec<_> = racers
            .iter_mut()
            .map(|racer| racer.next().unwrap())
            .collect();
        let winner = lines
            .iter()
            .position(|text| text == "won")
            .expect("one process wins");
        let pid = racers[winner].child.id();
        for (index, text) in lines.iter().enumerate() {
            assert_eq!(text, if index == winner { "won" } else { "locked" });
        }
        for racer in racers {
            racer.rest();
        }
        let store = Store::open(&dir.path).unwrap();
        assert_eq!(store.load::<u32>().unwrap(), Some(pid));
        assert_eq!(store.report().removed_temps, 0, "no temporary file is left");
    }
}

#[test]
fn missing_directory_is_created_only_on_request() {
    let dir = Dir::new();
    let options = Options {
        create: false,
        ..Options::default()
    };
    assert!(Log::open(&dir.path, options).unwrap_err().is_not_found());
    assert!(!dir.path.exists());
    assert!(
        reader::load::<u64, u64>(&dir.path)
            .unwrap_err()
            .is_not_found()
    );
    assert!(reader::is_locked(&dir.path).unwrap_err().is_not_found());
    Log::open(dir.path.join("a/b/c"), Options::default()).unwrap();
}

/// A writer is suspended while it writes a phase, another writer takes the store over, and then the phase gets its name.
#[test]
fn late_phase_of_a_fenced_writer_hides_no_newer_save() {
    let (before, dir) = (Dir::new(), Dir::new());
    let (mut fenced, _) = before.open();
    fenced.append(&1, &[1]).unwrap();
    drop(dir.open()); // makes the directory
    for (name, bytes) in files(&before.path) {
        std::fs::write(dir.path.join(name), bytes).unwrap();
    }
    let (mut writer, _) = dir.open();
    writer.append(&10, &[10]).unwrap();
    fenced.save_phase("late", &2, PhaseMeta::default()).unwrap();
    let late = before.only("phase-");
    std::fs::copy(&late, dir.path.join(late.file_name().unwrap())).unwrap();

    let check = |loaded: Loaded<u64, u64>| {
        assert_eq!((loaded.head, loaded.events), (Some(10), vec![1, 10]));
        assert!(loaded.report.is_undamaged(), "{}", loaded.report);
    };
    check(dir.load());
    drop(writer);
    check(dir.open().1);
}
