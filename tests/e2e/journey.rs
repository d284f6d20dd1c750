//! A run of thirty iterations that was killed twice, waited for a rate limit, got a steer, and was transferred. It finishes at its destination, where
//! its report explains everything to a reader without previous knowledge.

use crate::LONG;
use crate::control::quick;
use crate::scene::{Scene, crash, expect_in_order, json, says};

/// Each turn works. The fifth and the twenty-second are killed, the ninth hits a rate limit, the fourteenth gets a steer, the last one finishes.
const AGENT: &str = "append work {start}\n@5 say half done\n@5 hang\n@9 retry 429 3600\n@14 say listening\n@14 expect-steer\n\
@22 say nearly there\n@22 hang\n@33 touch finished";

#[test]
fn x112a_x112b_report_covers_crash_steer_wait_and_transfer() {
    let scene = Scene::new(AGENT);
    for (key, value) in [
        ("user.name", "A. Tester"),
        ("user.email", "tester@localhost"),
    ] {
        scene.sandbox.git(&["config", "--global", key, value]);
    }
    let run = [
        "-n",
        "40",
        "--run-id",
        "night",
        "--until",
        "test -e finished",
        "--commit",
        "--max-tokens",
        "9M",
    ];
    let mut running = scene.driven("codex", &run).spawn();
    says(&mut running, "half done");
    crash(running);
    scene.wait_until_nothing_is_alive();

    let mut running = scene.talking(&["resume"]).spawn();
    says(&mut running, "waiting until");
    quick(scene.rlm(&["resume", "night"])).expect_code(0);
    says(&mut running, "listening");
    quick(scene.rlm(&["steer", "night", "count in twos"])).expect_code(0);
    says(&mut running, "nearly there");
    crash(running);
    scene.wait_until_nothing_is_alive();
    let here = scene.status();
    assert_eq!(
        (&here["iterations_complete"], &here["unfinished_attempts"]),
        (&19.into(), &2.into())
    );

    // The work of the unfinished attempt is not committed, so the export must mention it.
    let archive = scene.sandbox.path().join("night.tar.zst");
    let archive = archive.to_str().unwrap();
    let export = ["checkpoints", "export", "night", "-o", archive];
    let refused = quick(scene.rlm(&export)).expect_code(2).stderr;
    assert!(refused.contains("--allow-dirty"), "{refused}");
    quick(scene.rlm(&export).args(["--allow-dirty"])).expect_code(0);
    quick(scene.rlm(&["resume", "night"])).expect_code(2);
    // The destination gets only that file, and doesn't know the original repository.
    let there = scene.sandbox.path().join("elsewhere");
    fs_err::create_dir(&there).unwrap();
    let import = ["checkpoints", "import", archive];
    quick(scene.rlm(&import).dir(&there)).expect_code(0);
    let moved = quick(scene.rlm(&["status", "night", "--json"]).dir(&there));
    let moved = json(&moved.expect_code(0).stdout);
    assert!(here["input_tokens"].as_u64() > Some(0), "{here}");
    for key in [
        "attempts",
        "cuts",
        "input_tokens",
        "output_tokens",
        "max_tokens",
    ] {
        assert_eq!(moved[key], here[key], "{key}");
    }
    let ended = scene.talking(&["resume", "night"]).dir(&there).run(LONG);
    expect_in_order(
        &ended.expect_code(0).stdout,
        &["iteration 20, attempt 2", "done: the check passed"],
    );
    let stands = quick(scene.rlm(&["status", "night", "--json"]).dir(&there));
    let stands = json(&stands.expect_code(0).stdout);
    assert_eq!(stands["iterations_complete"], 30);
    assert_eq!(scene.start_count(), 33);
    scene.expect_nothing_alive();

    quick(
        scene
            .rlm(&["report", "night", "-o", "night.html"])
            .dir(&there),
    )
    .expect_code(0);
    let page = fs_err::read_to_string(there.join("night.html")).unwrap();
    for words in [
        "completed 30 iterations",
        "3 processes worked on it, of which 2 died",
        "a rate limit was reached",
        "count in twos",
        "The run is done: the loop ran",
    ] {
        assert!(page.contains(words), "{words} is not in the report");
    }
    assert!(
        !page.contains("Not committed"),
        "each iteration has its commit"
    );
}
