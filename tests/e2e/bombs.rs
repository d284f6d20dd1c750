//! Small archives with a huge unpacked size, and names that could hide a file.

use std::path::Path;

use rlm_tests::Ended;
use serde_json::Value;

use crate::LONG;
use crate::RLM;
use crate::scene::Scene;
use crate::transfer_hostile::{archive, pack, replaced, stopped, unpack};

/// The memory limit of each command: 200 MB, in KiB.
const MOST_KIB: u64 = 200_000;
/// More than the memory limit.
const BOMB: usize = 220 << 20;

/// Runs `rlm WORDS` in a directory. Returns its end and its peak memory in KiB.
fn measured(scene: &Scene, dir: &Path, words: &[&str]) -> (Ended, u64) {
    let most = scene.sandbox.path().join("most");
    let script = r#"import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)"#;
    let python = scene.sandbox.rlm("python3").args(["-c", script]);
    let python = python.args([&most]).args([RLM]).args(words).dir(dir);
    let ended = python.run(LONG);
    let most = fs_err::read_to_string(most).unwrap().parse().unwrap();
    (ended, most)
}

fn has_python() -> bool {
    let version = std::process::Command::new("python3")
        .arg("--version")
        .output();
    version.is_ok_and(|it| it.status.success())
}

#[test]
fn w6_archive_with_oversized_prompt_is_refused_before_unpacking() {
    if !has_python() {
        return println!("skipped: no python3 to measure the memory with");
    }
    let scene = stopped();
    let files = unpack(&fs_err::read(archive(&scene)).unwrap());
    let at = |what: &str| {
        files
            .iter()
            .position(|(name, _)| name.contains(what))
            .unwrap()
    };
    let other = scene.sandbox.path().join("other");
    for (turn, (what, why)) in [
        ("store/blobs/prompt", "and the limit is 4194304"),
        ("store/progress-", "and the limit is 67108864"),
        (
            "git.bundle",
            "`git.bundle` in the archive is not a git bundle",
        ),
        // A header without an end.
        (
            "git.bundle",
            "`git.bundle` in the archive is not a git bundle",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let bytes = match turn {
            3 => [b"# v2 git bundle\n".to_vec(), vec![b'x'; BOMB]].concat(),
            _ => vec![0; BOMB],
        };
        let bomb = replaced(&files, at(what), bytes);
        let packed = pack(&bomb, |_, _| {});
        assert!(packed.len() < 300_000, "{}", packed.len());
        let file = scene.sandbox.path().join("bomb.tar.zst");
        fs_err::write(&file, packed).unwrap();
        let words = ["checkpoints", "import", file.to_str().unwrap()];
        let (ended, most) = measured(&scene, &other, &words);
        assert_eq!(ended.code(), Some(1), "{what}: {ended}");
        assert!(ended.stderr.contains(why), "{what}: {ended}");
        assert_eq!(ended.stderr.lines().count(), 1, "{what}: {ended}");
        assert!(most < MOST_KIB, "{what}: {most} KiB");
        let left = fs_err::read_dir(&other).unwrap().count();
        assert_eq!(left, 0, "{what}: the import leaves no file");
    }
}

#[test]
fn w7_oversized_bundle_is_refused_before_unpacking() {
    let scene = stopped();
    let files = unpack(&fs_err::read(archive(&scene)).unwrap());
    let bundle = files.iter().position(|(name, _)| name == "git.bundle");
    // A valid beginning, then zeros.
    let zeros = [b"# v2 git bundle\n".to_vec(), vec![0; BOMB]].concat();
    for bomb in [vec![0; BOMB], zeros] {
        let bomb = replaced(&files, bundle.unwrap(), bomb);
        let mut packed = pack(&bomb, |_, _| {});
        // The import must stop before the truncation, so the error must not be about it.
        packed.truncate(packed.len() / 2);
        let file = scene.sandbox.path().join("bomb.tar.zst");
        fs_err::write(&file, packed).unwrap();
        let words = ["checkpoints", "import", file.to_str().unwrap()];
        let import = scene.rlm(&words).dir(scene.sandbox.path().join("other"));
        let ended = import.run(LONG).expect_code(1);
        let why = "`git.bundle` in the archive is not a git bundle";
        assert!(ended.stderr.contains(why), "{ended}");
    }
}

/// Returns the path of the prompt of the only run.
fn prompt_of(scene: &Scene) -> std::path::PathBuf {
    let blobs = scene.file(".rlm/runs/r1/blobs");
    let mut names = fs_err::read_dir(blobs).unwrap();
    names.next().unwrap().unwrap().path()
}

#[test]
fn w6_run_with_oversized_files_is_read_within_limits() {
    if !has_python() {
        return println!("skipped: no python3 to measure the memory with");
    }
    let scene = stopped();
    let text = "x".repeat(BOMB);
    fs_err::write(prompt_of(&scene), &text).unwrap();
    let transcripts = scene.file(".rlm/runs/r1/transcripts");
    fs_err::remove_file(transcripts.join("2-1.ndjson")).unwrap();
    // A transcript with one record, in one long line.
    let plant = |text: &str| {
        let record = format!("{{\"at\":1,\"kind\":\"stdout\",\"text\":\"{text}\"}}\n");
        let packed = zstd::encode_all(record.as_bytes(), 3).unwrap();
        fs_err::write(transcripts.join("2-1.ndjson.zst"), packed).unwrap();
    };
    plant(&text);
    let repo = scene.sandbox.repo();
    for words in [
        &["resume", "r1", "--dry-run"][..],
        &["checkpoints", "show", "r1"],
        &["checkpoints", "verify", "r1"],
        &["logs", "r1"],
        &["logs", "r1", "--json"],
        &["report", "r1", "-o", "-"],
        &["status", "r1"],
    ] {
        let (ended, most) = measured(&scene, &repo, words);
        assert!(most < MOST_KIB, "{words:?}: {most} KiB");
        if words[0] == "resume" {
            assert_ne!(ended.code(), Some(0), "{ended}");
            assert!(
                ended.stderr.contains("the blob") && ended.stderr.contains("4194304"),
                "{ended}"
            );
        }
    }
    // Within the limit of a transcript, but beyond the limit of a record.
    plant(&text[..110 << 20]);
    for words in [&["logs", "r1"][..], &["report", "r1", "-o", "-"]] {
        let (_ended, most) = measured(&scene, &repo, words);
        assert!(most < MOST_KIB, "{words:?}: {most} KiB");
    }
}

#[test]
fn w11_a_name_alone_hides_no_file_from_a_commit() {
    let id = "0123456789abcdef0123456789abcdef";
    let names = [
        ".rlm-export-x.partial".to_owned(),
        ".rlm-report-x.new".to_owned(),
        ".rlm-export-empty.partial".to_owned(),
        ".rlm-report-empty.new".to_owned(),
        format!(".rlm-export-{id}.partial"),
        format!(".rlm-report-{id}.new"),
        "x.tar.zst".to_owned(),
        "rlm-x.html".to_owned(),
    ];
    let scene = Scene::new("print ready\nawait go\nprint turn {start}");
    for (key, value) in [("user.name", "A. Tester"), ("user.email", "tester@invalid")] {
        scene.sandbox.git(&["config", key, value]);
    }
    let running = scene.ready(&["--once", "--commit"]);
    for name in &names {
        let is_empty = name.contains("empty");
        let text = if is_empty { "" } else { "work of an agent\n" };
        fs_err::write(scene.file(name), text).unwrap();
    }
    fs_err::write(scene.file("go"), "").unwrap();
    running.wait(LONG).expect_code(0);
    let committed = scene.sandbox.git(&["ls-files"]);
    for name in &names {
        assert!(committed.contains(name.as_str()), "{name}: {committed}");
    }
}

#[test]
fn w11_files_written_by_rlm_are_in_no_commit() {
    let scene = stopped();
    let packed = fs_err::read(archive(&scene)).unwrap();
    let id = "0123456789abcdef0123456789abcdef";
    // The leftovers of a killed export: a truncated file, and an empty one.
    fs_err::write(
        scene.file(&format!(".rlm-export-{id}.partial")),
        &packed[..packed.len() - 9],
    )
    .unwrap();
    fs_err::write(scene.file(&format!(".rlm-report-{id}.new")), "").unwrap();
    scene
        .agent
        .set_script("append more {start}\nprint turn {start}");
    let resumed = scene.rlm(&["resume", "r1", "--force", "-n", "2"]).run(LONG);
    let committed = scene.sandbox.git(&["ls-files"]);
    assert!(committed.contains("more"), "{committed}: {resumed}");
    assert!(!committed.contains(".rlm-"), "{committed}: {resumed}");
}

#[test]
fn w16_a_branch_that_git_refuses_is_refused() {
    let scene = stopped();
    let files = unpack(&fs_err::read(archive(&scene)).unwrap());
    for branch in [
        "HEAD", "@", "a//b", "a.lock/b", "-x", "@{-1}", "a/.b", "a\u{7f}",
    ] {
        let mut bad = files.clone();
        let mut manifest: Value = serde_json::from_slice(&bad[0].1).unwrap();
        manifest["git"]["branch"] = branch.into();
        bad[0].1 = serde_json::to_vec(&manifest).unwrap();
        let file = scene.sandbox.path().join("bad.tar.zst");
        fs_err::write(&file, pack(&bad, |_, _| {})).unwrap();
        let other = scene.sandbox.path().join("other");
        let words = ["checkpoints", "import", file.to_str().unwrap()];
        let ended = scene.rlm(&words).dir(&other).run(LONG);
        assert_ne!(ended.code(), Some(0), "{branch}: {ended}");
        assert!(
            ended.stderr.contains("invalid branch name"),
            "{branch}: {ended}"
        );
        assert_eq!(fs_err::read_dir(&other).unwrap().count(), 0, "{branch}");
    }
}
