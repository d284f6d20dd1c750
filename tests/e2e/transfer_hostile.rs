//! Failures during a transfer: invalid archives, presses, and full disks.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rlm_tests::{Rlm, Running, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::LONG;
use crate::full_disk::{has_mounts, with_mounts};
use crate::scene::{Scene, expect_in_order, stop};

/// Returns a run that was stopped in its second iteration, after a commit.
pub(crate) fn stopped() -> Scene {
    stopped_with(|_| ())
}

/// Does the same in a repository with more files.
fn stopped_with(more: impl FnOnce(&Scene)) -> Scene {
    let scene = Scene::new("@2 print ready\n@2 hang\nappend work {start}");
    more(&scene);
    scene.sandbox.git(&["config", "user.name", "A. Tester"]);
    scene
        .sandbox
        .git(&["config", "user.email", "tester@localhost"]);
    stop(
        scene.ready(&["-n", "3", "--commit", "--run-id", "r1"]),
        Signal::INT,
    );
    fs_err::create_dir(scene.sandbox.path().join("other")).unwrap();
    scene
}

pub(crate) fn archive(scene: &Scene) -> PathBuf {
    let words = ["checkpoints", "export", "r1", "-o", "../r1.tar.zst"];
    scene.rlm(&words).run(LONG).expect_code(0);
    scene.sandbox.path().join("r1.tar.zst")
}

/// Returns the paths of everything below a directory.
pub(crate) fn names(folder: PathBuf) -> Vec<PathBuf> {
    let entries = fs_err::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    // Files of the harness.
    names.retain(|path| !path.display().to_string().contains("/output-"));
    names.sort();
    names
}

pub(crate) type Files = Vec<(String, Vec<u8>)>;

pub(crate) fn unpack(archive: &[u8]) -> Files {
    let mut tar = tar::Archive::new(zstd::Decoder::new(archive).unwrap());
    let entries = tar.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        (name, bytes)
    });
    entries.collect()
}

fn header(name: &str, bytes: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    // Written directly, since the library would refuse a path outside.
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    header
}

pub(crate) fn pack(
    files: &[(String, Vec<u8>)],
    change: impl Fn(&str, &mut tar::Header),
) -> Vec<u8> {
    let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 1).unwrap());
    for (name, bytes) in files {
        let mut header = header(name, bytes.len() as u64);
        change(name, &mut header);
        header.set_cksum();
        tar.append(&header, bytes.as_slice()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// Returns the files with another manifest.
fn announcing(files: &Files, change: impl FnOnce(&mut Value)) -> Files {
    let mut files = files.clone();
    let mut manifest: Value = serde_json::from_slice(&files[0].1).unwrap();
    change(&mut manifest);
    files[0].1 = serde_json::to_vec(&manifest).unwrap();
    files
}

/// Returns the files with other bytes in one of them, and a matching manifest.
pub(crate) fn replaced(files: &Files, place: usize, bytes: Vec<u8>) -> Files {
    with(files, place, |before| *before = bytes)
}

/// Returns the files with one changed, and a matching manifest.
fn with(files: &Files, place: usize, change: impl FnOnce(&mut Vec<u8>)) -> Files {
    let mut files = files.clone();
    change(&mut files[place].1);
    let bytes = files[place].1.clone();
    announcing(&files, |manifest| {
        let entry = &mut manifest["files"][place - 1];
        entry["bytes"] = bytes.len().into();
        entry["crc32c"] = crc32c::crc32c(&bytes).into();
    })
}

#[test]
fn x112e_invalid_archive_is_refused_in_one_line_and_leaves_nothing() {
    let scene = stopped();
    let good = fs_err::read(archive(&scene)).unwrap();
    let files = unpack(&good);
    let plain = |_: &str, _: &mut tar::Header| {};
    let journal = files
        .iter()
        .position(|(name, _)| name.contains("progress-"))
        .unwrap();
    let bundle = files
        .iter()
        .position(|(name, _)| name == "git.bundle")
        .unwrap();
    let named = |name: &str| {
        let mut files = announcing(&files, |it| it["files"][0]["name"] = name.into());
        files[1].0 = name.into();
        files
    };
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 0x40;
        bytes
    };
    let mut more = files.clone();
    more.push(("store/epoch-00000009".into(), Vec::new()));
    let mut twice = announcing(&files, |it| {
        let entry = it["files"][0].clone();
        it["files"].as_array_mut().unwrap().insert(0, entry);
    });
    twice.insert(1, files[1].clone());
    // The ids of sessions are predictable, and the next iteration of the run is the third one.
    let with_sessions = |ids: &[&str]| {
        let mut planted = files.clone();
        for id in ids {
            let name = format!("sessions/{id}/epoch-00000001");
            planted = announcing(&planted, |it| {
                let entry = json!({"name": name, "bytes": 0, "crc32c": 0});
                it["files"].as_array_mut().unwrap().insert(0, entry);
            });
            planted.insert(1, (name, Vec::new()));
        }
        pack(&planted, plain)
    };
    let of_kind = |kind: tar::EntryType| {
        pack(&files, |name, header| {
            if name.contains("progress-") {
                header.set_entry_type(kind);
                header.set_link_name("/etc/passwd").unwrap();
            }
        })
    };
    let long = pack(&files, |name, header| {
        if name == "manifest.json" {
            header.set_entry_type(tar::EntryType::GNULongName);
        }
    });
    let bad: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing", Vec::new(), "truncated"),
        ("a text", b"not an archive\n".into(), "can't unpack"),
        ("a half", good[..good.len() / 2].into(), "truncated"),
        (
            "all but the end",
            good[..good.len() - 1].into(),
            "truncated",
        ),
        ("a flipped bit", flipped(good.len() / 2), ""),
        ("another flipped bit", flipped(good.len() - 40), ""),
        ("more bytes after it", [&good[..], b"more"].concat(), ""),
        (
            "a second archive after it",
            [&good[..], &good[..]].concat(),
            "more entries",
        ),
        (
            "no manifest",
            pack(&files[1..], plain),
            "not an exported run",
        ),
        (
            "a missing file",
            pack(&files[..files.len() - 1], plain),
            "lacks",
        ),
        ("an additional file", pack(&more, plain), "more entries"),
        ("a file twice", pack(&twice, plain), "twice"),
        (
            "an absolute path",
            pack(&named("/etc/x"), plain),
            "invalid file name",
        ),
        (
            "a path outside",
            pack(&named("store/../../x"), plain),
            "invalid file name",
        ),
        (
            "a lock",
            pack(&named("store/LOCK"), plain),
            "invalid file name",
        ),
        (
            "a session outside",
            pack(&named("sessions/../epoch-00000001"), plain),
            "invalid file name",
        ),
        (
            "another file in a session",
            pack(&named("sessions/1-1/run.sh"), plain),
            "invalid file name",
        ),
        (
            "a session of a later iteration",
            with_sessions(&["3-1"]),
            "the archive has the session `3-1`, which its state doesn't name; export the run again",
        ),
        (
            "two sessions",
            with_sessions(&["3-1", "4-1"]),
            "the manifest has files of 2 sessions",
        ),
        (
            "a symbolic link",
            of_kind(tar::EntryType::Symlink),
            "another entry",
        ),
        (
            "a hard link",
            of_kind(tar::EntryType::Link),
            "another entry",
        ),
        ("a device", of_kind(tar::EntryType::Char), "another entry"),
        ("a long name", long, "not an exported run"),
        (
            "a wrong checksum",
            pack(
                &announcing(&files, |it| it["files"][0]["crc32c"] = 1.into()),
                plain,
            ),
            "wrong checksum",
        ),
        (
            "too large",
            pack(
                &announcing(&files, |it| it["files"][0]["bytes"] = (1_u64 << 50).into()),
                plain,
            ),
            "the limit is",
        ),
        (
            "a wrong size",
            pack(
                &announcing(&files, |it| it["files"][0]["bytes"] = 1.into()),
                plain,
            ),
            "another entry",
        ),
        (
            "another format",
            pack(&announcing(&files, |it| it["format"] = 2.into()), plain),
            "has format 2",
        ),
        (
            "an invalid run id",
            pack(&announcing(&files, |it| it["run"] = "../x".into()), plain),
            "not a run id",
        ),
        (
            "another run",
            pack(&announcing(&files, |it| it["run"] = "r2".into()), plain),
            "its state is of run `r1`",
        ),
        (
            "an option for a commit",
            pack(
                &announcing(&files, |it| it["git"]["commit"] = "--upload-pack=x".into()),
                plain,
            ),
            "invalid commit id",
        ),
        (
            "an option for a branch",
            pack(
                &announcing(&files, |it| it["git"]["branch"] = json!("--orphan")),
                plain,
            ),
            "invalid branch name",
        ),
        (
            "another commit",
            pack(
                &announcing(&files, |it| it["git"]["commit"] = "0".repeat(40).into()),
                plain,
            ),
            "",
        ),
        (
            "a damaged store",
            pack(&with(&files, journal, |bytes| bytes[200] ^= 1), plain),
            "can't be resumed",
        ),
        (
            "a damaged bundle",
            pack(
                &with(&files, bundle, |bytes| {
                    let at = bytes.len() - 30;
                    bytes[at] ^= 1;
                }),
                plain,
            ),
            "git",
        ),
    ];
    let file = scene.sandbox.path().join("bad");
    let other = scene.sandbox.path().join("other");
    for (what, bytes, words) in bad {
        fs_err::write(&file, bytes).unwrap();
        let import = ["-C", "../other", "checkpoints", "import", "../bad"];
        let ended = scene.rlm(&import).run(LONG);
        assert!([1, 2].contains(&ended.code().unwrap()), "{what}: {ended}");
        let line = ended.stderr.trim_end();
        assert!(
            line.contains(words) && line.lines().count() == 1,
            "{what}: {ended}"
        );
        assert_eq!(
            names(other.clone()),
            Vec::<PathBuf>::new(),
            "{what}: {ended}"
        );
    }
    // The valid archive is accepted.
    fs_err::write(&file, good).unwrap();
    let import = ["-C", "../other", "checkpoints", "import", "../bad"];
    scene.rlm(&import).run(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 2);
}

/// A git that hangs in one command.
const GIT: &str = r#"#!/bin/sh
PATH=$REAL_PATH
case "$*" in *"$HANG_AT"*) touch "$HANG"; exec sleep 777;; esac
exec git "$@"
"#;

/// Starts the command with such a git, and waits until git hangs.
pub(crate) fn hanging(scene: &Scene, rlm: Rlm<'_>, at: &str) -> Running {
    let bin = scene.agent.folder().join("bin");
    fs_err::create_dir_all(&bin).unwrap();
    fs_err::write(bin.join("git"), GIT).unwrap();
    fs_err::set_permissions(bin.join("git"), PermissionsExt::from_mode(0o755)).unwrap();
    let (real, sign) = (std::env::var("PATH").unwrap(), bin.join("hangs"));
    let running = rlm
        .env("PATH", format!("{}:{real}", bin.display()))
        .env("REAL_PATH", real)
        .env("HANG_AT", at)
        .env("HANG", &sign)
        .spawn();
    wait_for("git to hang", LONG, || sign.exists().then_some(()));
    fs_err::remove_file(sign).unwrap();
    running
}

#[test]
fn x112f_press_leaves_no_partial_files_and_keeps_the_run() {
    let scene = stopped();
    let before = (
        names(scene.file(".rlm")),
        names(scene.sandbox.path().into()),
    );
    let words = ["checkpoints", "export", "r1", "-o", "../r1.tar.zst"];
    for at in ["status --porcelain", "bundle create"] {
        stop(hanging(&scene, scene.rlm(&words), at), Signal::INT);
        scene.expect_nothing_alive();
        let now = (
            names(scene.file(".rlm")),
            names(scene.sandbox.path().into()),
        );
        assert_eq!(now, before);
        assert_eq!(scene.sandbox.git(&["for-each-ref", "refs/rlm"]), "");
        assert_eq!(scene.status()["state"], "stopped");
    }
    archive(&scene);
    let words = ["-C", "../other", "checkpoints", "import", "../r1.tar.zst"];
    for at in ["init", "fetch", "reset"] {
        stop(hanging(&scene, scene.rlm(&words), at), Signal::INT);
        scene.expect_nothing_alive();
        let left = names(scene.sandbox.path().join("other"));
        assert_eq!(left, Vec::<PathBuf>::new(), "at {at}");
    }
    // The pipe stays empty.
    let line = format!(
        "sleep 700 | exec {} -C ../other checkpoints import -",
        crate::RLM
    );
    let mut running = scene.sandbox.rlm("/bin/sh").args(["-c", &line]).spawn();
    let other = scene.sandbox.path().join("other");
    wait_for("an import", LONG, || {
        (!names(other.clone()).is_empty()).then_some(())
    });
    let alive = scene.alive().into_iter();
    let mut rlm = alive.filter(|process| process.name.starts_with("rlm"));
    let pid = rustix::process::Pid::from_raw(rlm.next().unwrap().pid).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    wait_for("the end of all processes", LONG, || {
        names(other.clone()).is_empty().then_some(())
    });
    assert!(!running.has_ended());
    drop(running);
    scene.rlm(&words).run(LONG).expect_code(0);
}

#[test]
fn x112f_full_disk_loses_neither_the_run_nor_disk_space() {
    if !has_mounts() {
        return println!("skipped: no mount namespaces here");
    }
    let scene = stopped();
    let script = r#"rlm=$1
        mkdir ../small && mount -t tmpfs -o size=64k none ../small
        head -c 60k /dev/zero >../small/ballast
        "$rlm" checkpoints export r1 -o ../small/x && exit 9
        ls -A ../small
        "$rlm" status r1 --json | grep -c '"state":"stopped"'
        "$rlm" checkpoints export r1 -o ../x
        mount -t tmpfs -o size=200k none ../other
        head -c 190k /dev/zero >../other/ballast; mkdir ../other/in
        "$rlm" -C ../other/in checkpoints import ../../x && exit 9
        ls -A ../other/in
        mount -o remount,ro ../other
        "$rlm" -C ../other/in checkpoints import ../../x && exit 9
        mkdir ../good && "$rlm" -C ../good checkpoints import ../x
        echo end"#;
    let ended = with_mounts(&scene, script);
    assert_eq!(
        ended
            .stderr
            .lines()
            .filter(|line| line.starts_with("rlm:"))
            .count(),
        3,
        "{ended}"
    );
    expect_in_order(
        &ended.stdout,
        &["ballast\n1\nrun r1 is in", "run r1 is here", "end"],
    );
}

#[test]
fn x112f_broken_pipe_does_not_transfer_the_run() {
    // More than a pipe buffer: otherwise everything is written before the reader exits.
    let scene = stopped_with(|scene| {
        let mut noise = vec![0; 300_000];
        let mut source = fs_err::File::open("/dev/urandom").unwrap();
        source.read_exact(&mut noise).unwrap();
        fs_err::write(scene.file("noise"), noise).unwrap();
        scene.sandbox.git(&["add", "."]);
        scene.sandbox.git(&["commit", "-q", "-m", "noise"]);
    });
    let line = format!(
        "{} checkpoints export r1 -o - | head -c 100 >../part",
        crate::RLM
    );
    scene
        .sandbox
        .rlm("/bin/sh")
        .args(["-c", &line])
        .run(LONG)
        .expect_code(0);
    assert_eq!(scene.status()["state"], "stopped");
    let import = ["-C", "../other", "checkpoints", "import", "../part"];
    let refused = scene.rlm(&import).run(LONG).expect_code(1);
    assert!(refused.stderr.contains("truncated"), "{refused}");
    scene.rlm(&["resume", "r1"]).run(LONG).expect_code(0);
}

#[test]
fn x112e_commits_that_contain_state_are_not_imported() {
    let scene = stopped();
    scene.sandbox.git(&["reset", "-q", "--hard"]);
    fs_err::create_dir_all(scene.file(".rlm/runs/evil")).unwrap();
    fs_err::write(scene.file(".rlm/runs/evil/x"), "").unwrap();
    scene.sandbox.git(&["add", "-f", ".rlm/runs/evil/x"]);
    scene.sandbox.git(&["commit", "-q", "-m", "evil"]);
    archive(&scene);
    let import = ["-C", "../other", "checkpoints", "import", "../r1.tar.zst"];
    let refused = scene.rlm(&import).run(LONG).expect_code(2);
    assert!(refused.stderr.contains("have files in .rlm"), "{refused}");
    let left = names(scene.sandbox.path().join("other"));
    assert_eq!(left, Vec::<PathBuf>::new(), "{refused}");
}
