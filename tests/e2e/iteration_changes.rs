//! The line at the end of each iteration says which files it changed, and logs and report have the patch.

use crate::LONG;
use crate::scene::{Scene, events, expect_in_order};

/// Each of the two runs, with and without commits, shows only the changes of the iteration itself.
#[test]
fn each_iteration_shows_its_own_changes_with_and_without_commits() {
    for options in [&[][..], &["--commit"]] {
        let work = "append work one\nappend work two\n@2 write other three";
        let scene = Scene::new(&format!("{work}\nprint I look around.\nprint I worked."));
        crate::git::know_who(&scene);
        fs_err::write(scene.file("mine"), "before the run\n").unwrap();
        scene.sandbox.git(&["add", "mine"]);
        scene
            .sandbox
            .git(&["commit", "--quiet", "--message", "mine"]);
        if options.is_empty() {
            fs_err::write(scene.file("mine"), "not committed\n").unwrap();
        }
        let run = ["-n", "2", "--until", "test -e never", "--run-id", "r1"];
        let ended = scene.run(&[&run[..], options].concat()).run(LONG);
        expect_in_order(
            &ended.stdout,
            &[
                "changed 1 file (+2 -0): I worked\n",
                "iteration 1 complete (",
                "check did not pass",
                "changed 2 files (+3 -0): I worked\n",
                "iteration 2 complete (",
                "check did not pass",
            ],
        );
        let logs = scene.rlm(&["logs", "r1", "--iteration", "2"]).run(LONG);
        expect_in_order(
            &logs.expect_code(0).stdout,
            &[
                "[changes] other +1 -0",
                "[changes] work +2 -0",
                "[changes] +three",
            ],
        );
        let page = scene.rlm(&["report", "r1", "-o", "-"]).run(LONG);
        expect_in_order(
            &page.expect_code(0).stdout,
            &[
                "Changed files",
                "work +2 -0",
                "Changed files",
                "other +1 -0",
                "<span class=\"good\">+three</span>",
            ],
        );
        scene.expect_nothing_alive();
    }
}

#[test]
fn json_and_agent_summary_of_the_changes() {
    let scene = Scene::new("write work one\nsay I wrote the file. Anything else?");
    let ended = scene.claude(&["--once", "--json"]).run(LONG).expect_code(0);
    let all = events(&ended.stdout);
    let of = |kind: &str| { all.iter() }.find(|event| event["event"] == kind).unwrap();
    let changes = of("iteration_changes");
    assert_eq!(changes["summary"], "I wrote the file", "{changes}");
    let counts = ["files", "added", "removed"].map(|name| changes[name].as_u64());
    assert_eq!(counts, [Some(1), Some(1), Some(0)]);
    assert_eq!(of("iteration_ended")["check"], serde_json::Value::Null);
}

/// The iteration must not wait for files that belong into `.gitignore`, and goes on without a list of changes.
#[test]
fn too_many_changes_are_not_listed() {
    let scene = Scene::new("run-nothing");
    let script = "mkdir many && cd many && seq 5001 | xargs touch";
    let run = [
        "run", "-p", "x", "--once", "--run-id", "r1", "--", "sh", "-c", script,
    ];
    let ended = scene.rlm(&run).run(LONG).expect_code(0);
    assert!(!ended.stdout.contains("changed"), "{ended}");
    let logs = scene.rlm(&["logs", "r1"]).run(LONG).expect_code(0);
    assert!(
        logs.stdout
            .contains("[changes] The changed files are unknown: too many changed files"),
        "{logs}"
    );
}
