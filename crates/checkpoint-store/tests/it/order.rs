//! The order of the system calls, as the kernel sees it.

use std::path::Path;

use checkpoint_store::{Options, Store};

use crate::support::{self, Dir, Log, child_dir, files, print_line, spawn};

/// The body of a child: one save of each kind.
#[test]
fn saver() {
    let Some(dir) = child_dir() else { return };
    let mut store = Store::open(dir.join("value")).unwrap();
    let (mut writer, _) = Log::open(dir.join("log"), Options::default()).unwrap();
    writer.append(&1, &[1]).unwrap();
    print_line("begin save");
    store.save(&1).unwrap();
    print_line("end save");
    print_line("begin append");
    writer.append(&2, &[2]).unwrap();
    print_line("end append");
    print_line("begin blob");
    writer.put_blob("b", b"x").unwrap();
    print_line("end blob");
}

/// Returns whether tracing works here, and prints a line if it does not.
#[expect(clippy::print_stdout, reason = "a skipped test reports it")]
pub(crate) fn can_trace() -> bool {
    let works = std::process::Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !works {
        println!("skipped: strace is not installed, or has no permission to trace here");
    }
    works
}

/// Returns the calls between the two lines that the child printed about `what`.
fn between<'a>(trace: &'a [String], what: &str) -> &'a [String] {
    let find = |text: String| trace.iter().position(|line| line.contains(&text)).unwrap();
    &trace[find(format!("@ begin {what}"))..=find(format!("@ end {what}"))]
}

/// Checks that there are lines with all words of each needle, in this order.
fn assert_order(trace: &[String], needles: &[&[&str]]) {
    let mut rest = trace.iter();
    for needle in needles {
        assert!(
            rest.any(|line| needle.iter().all(|word| line.contains(word))),
            "{needle:?} is missing or too early in\n{}",
            trace.join("\n")
        );
    }
}

#[test]
fn c59a_c59b_contents_then_name_are_durable_before_the_acknowledgement() {
    if !can_trace() {
        return;
    }
    let dir = Dir::new();
    std::fs::create_dir(&dir.path).unwrap();
    let out = dir.path.with_file_name("trace");
    let calls = "trace=openat,write,pwrite64,fsync,fdatasync,renameat2,linkat,newfstatat,statx";
    let out_arg = out.to_str().unwrap();
    let wrap = [
        "strace",
        "-f",
        "-y",
        "-e",
        calls,
        "-e",
        "signal=none",
        "-o",
        out_arg,
    ];
    let lines = spawn(support::command(&wrap, "order::saver", &dir.path)).rest();
    assert_eq!(lines.len(), 6, "{lines:?}");
    let trace: Vec<String> = std::fs::read_to_string(out)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    let root = dir.path.canonicalize().unwrap();
    let closing = |path: &Path| format!("{}>)", path.display());
    let (value, blobs) = (
        closing(&root.join("value")),
        closing(&root.join("log/blobs")),
    );

    assert_order(
        between(&trace, "save"),
        &[
            &[
                "openat(",
                ".tmp-",
                "O_EXCL",
                "O_NOFOLLOW",
                "O_CLOEXEC",
                "0600",
            ],
            &["pwrite64(", "/.tmp-"],
            &["fsync(", "/.tmp-"],
            &["renameat2(", ".tmp-", "phase-", "RENAME_NOREPLACE"],
            &["fsync(", &value],
            &["epoch-00000001"],
            &["@ end save"],
        ],
    );
    let append = between(&trace, "append");
    assert_order(
        append,
        &[
            &["pwrite64(", "/log/progress-"],
            &["fdatasync(", "/log/progress-"],
            &["epoch-00000001"],
            &["@ end append"],
        ],
    );
    let count = |call: &str| append.iter().filter(|line| line.contains(call)).count();
    assert_eq!(
        (count("pwrite64("), count("sync(")),
        (1, 1),
        "a save is one write and one sync"
    );
    assert_order(
        between(&trace, "blob"),
        &[
            &["pwrite64(", "/.tmp-"],
            &["fsync(", "/.tmp-"],
            &["renameat2(", "RENAME_NOREPLACE"],
            &["fsync(", &blobs],
            &["@ end blob"],
        ],
    );
}

#[test]
fn c59c_no_temporary_file_outlives_a_save() {
    let dir = Dir::new();
    let mut store = Store::open(&dir.path).unwrap();
    for n in 0..5 {
        store.save(&n).unwrap();
        assert!(
            !files(&dir.path)
                .keys()
                .any(|name| name.starts_with(".tmp-"))
        );
    }
}
