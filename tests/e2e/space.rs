//! What a run takes of the disk.

use std::path::PathBuf;

use rlm_tests::wait_for;

use crate::LONG;
use crate::scene::Scene;

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
fn x118_older_transcripts_are_compressed_are_private_and_read_the_same() {
    let scene = Scene::new("");
    run(&scene, &["-n", "10"], TALKS).expect_code(0);
    // What the run did not come to is done by its next process.
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
fn x118_beyond_the_cap_the_oldest_say_what_they_lost() {
    let scene = Scene::new("");
    fs_err::write(scene.file("rlm.toml"), "max-transcripts = \"1kB\"\n").unwrap();
    // Text that is hard to compress.
    let noise = "head -c 200000 /dev/urandom | od -An -tx1 -v";
    run(&scene, &["-n", "9"], noise).expect_code(0);
    let resumed = scene
        .rlm(&["resume", "r", "-n", "10", "--sleep", "3"])
        .run(LONG);
    resumed.expect_code(0);
    let first = logs(&scene, &["--iteration", "1"]);
    let reduced = first.lines().find(|line| line.starts_with("[reduced] "));
    let reduced = reduced.unwrap_or_else(|| panic!("{} bytes", first.len()));
    assert!(
        reduced.contains(" records left out, for max-transcripts"),
        "{reduced}"
    );
    assert!(first.contains("[prompt] x") && first.contains("[end] completed"));
    let newest = logs(&scene, &["--iteration", "9"]);
    assert!(!newest.contains("[reduced]"));
}
