//! The disk space of a run.

use std::path::PathBuf;

use rlm_tests::wait_for;
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, events};

/// An attempt whose transcript is worth compressing.
const TALKS: &str = "i=0; while [ $i -lt 2000 ]; do echo iteration $RLM_ITERATION line $i of a file that is read; i=$((i+1)); done";

fn run(scene: &Scene, arguments: &[&str], script: &str) -> rlm_tests::Ended {
    let run = ["run", "--sleep", "0", "-p", "x", "--run-id", "r"];
    let agent = ["--", "sh", "-c", script];
    scene.rlm(&[&run, arguments, &agent].concat()).run(LONG)
}

fn transcripts(scene: &Scene) -> Vec<String> {
    let place: PathBuf = scene.file(".rlm/runs/r/transcripts");
    let entries = fs_err::read_dir(place).unwrap();
    let mut names: Vec<_> = entries
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn logs(scene: &Scene, arguments: &[&str]) -> String {
    let logs = scene.rlm(&[&["logs", "r"], arguments].concat()).run(LONG);
    logs.expect_code(0).stdout
}

#[test]
fn x118a_compressed_transcripts_are_private_and_read_the_same() {
    let scene = Scene::new("");
    run(&scene, &["-n", "10"], TALKS).expect_code(0);
    // The next process does the rest of the compression.
    let resumed = scene
        .rlm(&["resume", "r", "-n", "12", "--sleep", "1"])
        .spawn();
    wait_for("three compressed transcripts", LONG, || {
        let packed = |name: &String| name.ends_with(".zst");
        let names = transcripts(&scene);
        (names.iter().filter(|it| packed(it)).count() >= 3).then_some(())
    });

    resumed.wait(LONG).expect_code(0);
    let names = transcripts(&scene);
    assert!(names.contains(&"1-1.ndjson.zst".into()), "{names:?}");
    assert!(names.contains(&"12-1.ndjson".into()), "{names:?}");
    assert_eq!(names.len(), 12, "{names:?}");
    for name in &names {
        use std::os::unix::fs::PermissionsExt as _;
        let path = scene.file(&format!(".rlm/runs/r/transcripts/{name}"));
        let meta = fs_err::metadata(path).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600, "{name}");
    }
    let all = logs(&scene, &[]);
    let lines = |n: u32| all.matches(&format!("iteration {n} line ")).count();
    assert!((1..=12).all(|n| lines(n) == 2000), "every line of each");
    let first = logs(&scene, &["--iteration", "1"]);
    assert!(first.contains("iteration 1 line 1999 of"), "{first}");
    let json = logs(&scene, &["--iteration", "1", "--json"]);
    assert!(json.lines().count() > 2, "{json}");
}

#[test]
fn transcripts_beyond_the_limit_record_what_was_removed() {
    let scene = Scene::new("");
    fs_err::write(scene.file("rlm.toml"), "max-transcripts = \"1kB\"\n").unwrap();
    // Text that is hard to compress.
    let noise = "head -c 60000 /dev/urandom | od -An -tx1 -v";
    run(&scene, &["-n", "9"], noise).expect_code(0);
    let resumed = scene
        .rlm(&["resume", "r", "-n", "10", "--sleep", "3"])
        .run(LONG);
    resumed.expect_code(0);
    let first = logs(&scene, &["--iteration", "1"]);
    let reduced = first.lines().find(|line| line.starts_with("[reduced] "));
    let reduced = reduced.unwrap_or_else(|| panic!("{} bytes", first.len()));
    assert!(
        reduced.contains(" records left out because of max-transcripts"),
        "{reduced}"
    );
    assert!(first.contains("[prompt] x") && first.contains("[end] completed"));
    let newest = logs(&scene, &["--iteration", "9"]);
    assert!(!newest.contains("[reduced]"));
}

#[test]
fn s20i_transcripts_alone_are_removed_and_the_run_continues() {
    let scene = Scene::new("");
    run(&scene, &["-n", "1"], TALKS).expect_code(0);
    let clean = |arguments: &[&str]| {
        let clean = ["clean", "--transcripts", "--days", "0", "--json"];
        let ended = scene.rlm(&[&clean, arguments].concat()).run(LONG);
        events(&ended.expect_code(0).stdout).remove(0)
    };
    let planned = clean(&["--dry-run"]);
    assert_eq!(
        (&planned["action"], &planned["what"]),
        (&"would_remove".into(), &"transcripts".into())
    );
    assert!(planned["bytes"].as_u64() > Some(80_000), "{planned}");
    assert_eq!(clean(&["--yes"])["action"], "removed");
    assert_eq!(transcripts(&scene), ["removed.json"]);
    let again = clean(&["--yes"]);
    assert_eq!(
        (&again["action"], &again["reason"]),
        (&"kept".into(), &"bare".into())
    );
    assert_eq!(scene.status()["iterations_complete"], 1);
    let resume = ["resume", "r", "-n", "2", "--sleep", "0"];
    scene.rlm(&resume).run(LONG).expect_code(0);
    assert_eq!(transcripts(&scene), ["2-1.ndjson", "removed.json"]);
}

#[test]
fn x101m_run_with_live_processes_is_not_removed() {
    let scene = Scene::new("");
    run(&scene, &["-n", "1"], "printf %s $RLM_MARKER >marker").expect_code(0);
    let marker = fs_err::read_to_string(scene.file("marker")).unwrap();
    let left = { scene.sandbox.rlm("sleep").args(["600"]) }
        .env("RLM_MARKER", &marker)
        .spawn();
    let clean = || scene.rlm(&["clean", "--days", "0", "--yes"]).run(LONG);
    wait_for("the remaining process", LONG, || {
        let told = clean().stdout;
        let alive = format!("(pid {})", left.pid());
        (told.contains("are alive") && told.contains(&alive)).then_some(())
    });
    left.signal(Signal::KILL);
    left.wait(LONG);
    clean().expect_code(0);
    assert!(!scene.file(".rlm/runs/r").exists());
}

#[test]
fn s19c_runs_are_listed_one_per_line_and_untruncated_in_pipes() {
    let scene = Scene::new("");
    let none = scene.rlm(&["status"]).run(LONG).expect_code(10);
    assert!(none.stderr.contains("rlm demo"), "{none}");
    for name in [
        "one",
        "a-name-that-is-as-long-as-some-people-like-their-names-to-be",
    ] {
        let run = [
            "run", "--sleep", "0", "-p", "x", "-n", "1", "--run-id", name,
        ];
        let agent = ["--", "sh", "-c", "echo said"];
        scene
            .rlm(&[&run[..], &agent].concat())
            .run(LONG)
            .expect_code(0);
    }
    let told = scene.rlm(&["status"]).run(LONG).expect_code(0).stdout;
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("RUN"), "{told}");
    let fields = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(fields(lines[1])[..4], ["one", "ended", "-", "1/1"]);
    assert!(
        lines[2].ends_with("finished: all planned iterations ran"),
        "{told}"
    );
    let logs = scene
        .rlm(&["logs", "one", "--prefix"])
        .run(LONG)
        .expect_code(0)
        .stdout;
    let said = logs.lines().find(|line| line.ends_with(" 1.1 said"));
    assert!(said.is_some() && !logs.contains("──"), "{logs}");
}

#[test]
fn damaged_transcript_is_named_and_later_ones_are_shown() {
    let scene = Scene::new("");
    run(&scene, &["-n", "2"], "echo in $RLM_ITERATION").expect_code(0);
    let place = scene.file(".rlm/runs/r/transcripts");
    fs_err::remove_file(place.join("1-1.ndjson")).unwrap();
    fs_err::write(place.join("1-1.ndjson.zst"), "no frame").unwrap();
    let logs = scene.rlm(&["logs", "r"]).run(LONG).expect_code(1);
    assert!(logs.stderr.contains("iteration 1, attempt 1"), "{logs}");
    assert!(logs.stdout.contains("in 2"), "{logs}");
}
