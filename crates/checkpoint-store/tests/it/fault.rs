//! System calls that fail, by injection into a traced child.

use std::process::Command;

use checkpoint_store::{Error, Meta, Store};

use crate::support::{self, Dir, Log, child_dir, spawn, tell};

fn describe(result: Result<(), Error>) -> &'static str {
    match result {
        Ok(()) => "ok",
        Err(err) if err.is_poisoned() => "poisoned",
        Err(err) if err.is_full() => "full",
        Err(_) => "failed",
    }
}

/// Saves until it fails, then twice more; nothing by itself.
#[test]
fn appender() {
    let Some(dir) = child_dir() else { return };
    let (mut writer, _) = Log::open(dir, Default::default()).unwrap();
    for n in 1..=5 {
        tell(&format!(
            "{n} {}",
            describe(writer.append(&n, &[n]).map(drop))
        ));
    }
    tell(&format!(
        "phase {}",
        describe(writer.save_phase("p", &6, Meta::default()).map(drop))
    ));
}

#[test]
fn valuer() {
    let Some(dir) = child_dir() else { return };
    let mut store = Store::open(dir).unwrap();
    for n in 1..=3 {
        tell(&format!("{n} {}", describe(store.save(&n))));
    }
}

fn injected(fault: &str, name: &str, dir: &Dir) -> Vec<String> {
    let inject = format!("inject={fault}");
    let wrap = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject];
    let command: Command = support::command(&wrap, name, &dir.path);
    spawn(command).rest()
}

#[test]
fn a_failed_sync_ends_the_writer_and_is_never_tried_again() {
    if !crate::order::can_trace() {
        return;
    }
    // The lock's text and the journal's beginning are writes before the first save's.
    for fault in ["fdatasync:error=EIO:when=3", "pwrite64:error=EIO:when=5"] {
        let dir = Dir::new();
        let told = injected(fault, "fault::appender", &dir);
        let expected = [
            "1 ok",
            "2 ok",
            "3 failed",
            "4 poisoned",
            "5 poisoned",
            "phase poisoned",
        ];
        assert_eq!(told, expected, "{fault}");
        let (_, loaded) = dir.open();
        assert!(loaded.head >= Some(2) && loaded.report.is_sound());
    }
}

#[test]
fn c62_a_full_disk_leaves_the_old_value_and_no_temporary_file() {
    if !crate::order::can_trace() {
        return;
    }
    // The directory is synced when it is made, and with its marker: the file of the
    // second save is the fifth sync.
    let dir = Dir::new();
    let told = injected("fsync:error=ENOSPC:when=5", "fault::valuer", &dir);
    assert_eq!(told, ["1 ok", "2 full", "3 poisoned"]);
    let store = Store::open(&dir.path).unwrap();
    assert_eq!(store.load::<i32>().unwrap(), Some(1));
    assert_eq!(store.report().removed_temps, 0);
    assert!(store.report().is_sound());
}
