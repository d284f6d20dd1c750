//! Failing system calls, injected into a traced child.

use std::process::Command;

use checkpoint_store::{Error, PhaseMeta, Store};

use crate::support::{self, Dir, Log, child_dir, print_line, spawn};

fn describe(result: Result<(), Error>) -> &'static str {
    match result {
        Ok(()) => "ok",
        Err(err) if err.is_poisoned() => "poisoned",
        Err(err) if err.is_full() => "full",
        Err(_) => "failed",
    }
}

/// The body of a child: saves until a save fails, then saves twice more. Without a parent it does nothing.
#[test]
fn appender() {
    let Some(dir) = child_dir() else { return };
    let (mut writer, _) = Log::open(dir, Default::default()).unwrap();
    for n in 1..=5 {
        print_line(&format!(
            "{n} {}",
            describe(writer.append(&n, &[n]).map(drop))
        ));
    }
    print_line(&format!(
        "phase {}",
        describe(writer.save_phase("p", &6, PhaseMeta::default()).map(drop))
    ));
}

#[test]
fn value_saver() {
    let Some(dir) = child_dir() else { return };
    let mut store = Store::open(dir).unwrap();
    for n in 1..=3 {
        print_line(&format!("{n} {}", describe(store.save(&n))));
    }
}

fn injected(fault: &str, name: &str, dir: &Dir) -> Vec<String> {
    let inject = format!("inject={fault}");
    let wrap = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject];
    let command: Command = support::command(&wrap, name, &dir.path);
    spawn(command).rest()
}

#[test]
fn failed_write_or_sync_loses_no_save_and_is_not_retried_on_the_file() {
    if !crate::order::can_trace() {
        return;
    }
    // Two writes come before the first save: the lock's text and the journal's beginning. One write after the save reserves room.
    for fault in ["fdatasync:error=EIO:when=3", "pwrite64:error=EIO:when=6"] {
        let dir = Dir::new();
        let lines = injected(fault, "fault::appender", &dir);
        let expected = ["1 ok", "2 ok", "3 ok", "4 ok", "5 ok", "phase ok"];
        assert_eq!(lines, expected, "{fault}");
        let (_, loaded) = dir.open();
        assert_eq!(loaded.report.epoch, 2, "the writer wrote a new generation");
        assert!(loaded.head == Some(6) && loaded.report.is_undamaged());
    }
}

#[test]
fn permanent_disk_error_ends_the_writer() {
    if !crate::order::can_trace() {
        return;
    }
    for fault in ["fdatasync:error=EIO:when=3+", "pwrite64:error=EIO:when=6+"] {
        let dir = Dir::new();
        let lines = injected(fault, "fault::appender", &dir);
        let ended = "poisoned";
        let expected = ["ok", "ok", ended, ended, ended, ended];
        let words: Vec<&str> = lines.iter().map(|line| &line[line.len() - 2..]).collect();
        assert_eq!(words.len(), expected.len());
        for (word, expected) in words.iter().zip(expected) {
            assert!(expected.ends_with(word), "{fault}: {lines:?}");
        }
        let (_, loaded) = dir.open();
        assert!(loaded.head >= Some(2) && loaded.report.is_undamaged());
    }
}

/// A failed descriptor is never synced again; the trace shows the path of each descriptor.
#[test]
fn a_failed_inode_is_never_synced_again() {
    if !crate::order::can_trace() {
        return;
    }
    let dir = Dir::new();
    let out = dir.path.with_file_name("trace");
    let wrap = [
        "strace",
        "-f",
        "-y",
        "-o",
        out.to_str().unwrap(),
        "-e",
        "trace=fsync,fdatasync,pwrite64",
        "-e",
        "inject=fdatasync:error=EIO:when=3",
    ];
    let lines = spawn(support::command(&wrap, "fault::appender", &dir.path)).rest();
    assert_eq!(lines.len(), 6);
    let trace = std::fs::read_to_string(out).unwrap();
    let failed = trace.find("(INJECTED)").unwrap();
    let line = trace[..failed].rfind('\n').unwrap();
    let path = trace[line..failed].split(['<', '>']).nth(1).unwrap();
    assert!(path.contains("progress-00000001"), "{path}");
    assert!(!trace[failed..].contains(path), "{trace}");
}

#[test]
fn c62a_c62b_c62c_full_disk_keeps_the_old_value_and_no_temporary_file() {
    if !crate::order::can_trace() {
        return;
    }
    // Before the second save there are four syncs: one of the parent directory, one after the epoch marker, and two of the first save. The fifth is
    // that of the second save's file, and the sixth belongs to the repair.
    let dir = Dir::new();
    let lines = injected("fsync:error=ENOSPC:when=5..6", "fault::value_saver", &dir);
    assert_eq!(lines, ["1 ok", "2 full", "3 ok"]);
    let dir = Dir::new();
    let lines = injected("fsync:error=ENOSPC:when=5+", "fault::value_saver", &dir);
    assert_eq!(lines, ["1 ok", "2 full", "3 full"]);
    let store = Store::open(&dir.path).unwrap();
    assert_eq!(store.load::<i32>().unwrap(), Some(1));
    assert_eq!(store.report().removed_temps, 0);
    assert!(store.report().is_undamaged());
}
