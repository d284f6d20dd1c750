//! `rlm report`: the events of a run on one page.

use std::os::unix::fs::PermissionsExt;

use rlm_tests::{Ended, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::LONG;
use crate::scene::{Scene, crash, events, expect_in_order, says, stop};

/// The second turn fails, in the third everything is killed, the fourth waits, the fifth finishes.
const SCRIPT: &str = "print turn {start}\n@1 append work one\n@2 exit 3\n@3 print ready\n@3 hang\n\
    @4 append work two\n@4 print <script>alert(1)</script>\n@4 print waits\n@4 await go\n@5 append work three\n@5 touch done";

/// Passes except after the fourth turn.
const GATE: &str = "test \"$(tail -n 1 work)\" != two || { echo 'two is too few'; exit 1; }";

fn report(scene: &Scene, arguments: &[&str]) -> Ended {
    scene.rlm(&[&["report"], arguments].concat()).run(LONG)
}

fn page(scene: &Scene, arguments: &[&str]) -> String {
    report(scene, &[arguments, &["-o", "-"]].concat())
        .expect_code(0)
        .stdout
}

fn timeline(scene: &Scene) -> Value {
    let ended = report(scene, &["--json"]).expect_code(0);
    let mut all = events(&ended.stdout);
    assert_eq!(all.len(), 1, "{ended}");
    all.remove(0)
}

/// Returns a finished run with many failures.
fn eventful() -> Scene {
    let scene = Scene::new(SCRIPT);
    scene.sandbox.git(&["config", "user.name", "A. Tester"]);
    let mail = ["config", "user.email", "tester@localhost"];
    scene.sandbox.git(&mail);
    let until = ["--until", "test -e done", "--gate", GATE];
    let run = [&["--commit", "--run-id", "night"], &until[..]].concat();
    crash(scene.ready(&run));
    scene.wait_until_nothing_is_alive();
    let mut resumed = scene.rlm(&["resume", "night"]).spawn();
    says(&mut resumed, "waits");
    let steer = ["steer", "night", "keep <b>both</b> forms", "--wait", "0"];
    scene.rlm(&steer).run(LONG).expect_code(0);
    fs_err::write(scene.file("go"), "").unwrap();
    resumed.wait(LONG).expect_code(0);
    scene
}

#[test]
fn report_covers_everything_in_a_run() {
    let scene = eventful();
    let told = timeline(&scene);
    let attempts = told["attempts"].as_array().unwrap();
    let outcomes: Vec<_> = attempts
        .iter()
        .map(|it| {
            (
                it["iteration"].as_u64().unwrap(),
                it["outcome"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        (1, "complete"),
        (2, "failed"),
        (3, "unfinished"),
        (3, "failed"),
        (4, "complete"),
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(attempts[2]["unfinished_cause"], "process_died");
    assert_eq!(attempts[3]["process"], 2);
    assert_eq!(told["processes"][0]["end"], "died");
    // A command doesn't report what it reads.
    assert_eq!(told["steers"][0]["state"], "in_prompt");
    assert_eq!(told["end"]["evidence"], "check");
    assert_eq!(told["unknown"], Value::Array(Vec::new()));
    let newest = scene.sandbox.git(&["rev-parse", "HEAD"]);
    assert_eq!(attempts[4]["commit"], newest);
    assert!(attempts[0]["commit"].is_string(), "{told}");

    let page = page(&scene, &[]);
    let in_order = [
        "<h1>night</h1>",
        "The run is done: the loop ran <code>test -e done</code>, and it passed",
        "Timeline",
        "exit status 3",
        "the loop's process died",
        "the previous process died",
        "keep &lt;b&gt;both&lt;/b&gt; forms",
        "in a prompt",
        "Iteration details",
        "turn 1",
        "work +1 -0",
        "turn 2",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "two is too few",
        newest.as_str(),
    ]
    .map(ToOwned::to_owned);
    expect_in_order(&page, &in_order.each_ref().map(String::as_str));
    for forbidden in ["<script", "<img", "http://", "https://", "<b>both"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert_eq!(
        page,
        self::page(&scene, &["night"]),
        "the same state, the same page"
    );
}

#[test]
fn report_overwrites_no_other_file() {
    let scene = Scene::new("print hello");
    let run = ["--once", "--run-id", "r1"];
    scene.run(&run).run(LONG).expect_code(0);
    let told = report(&scene, &[]).expect_code(0);
    assert!(told.stdout.starts_with("rlm-r1.html ("), "{told}");
    let file = scene.file("rlm-r1.html");
    let mode = fs_err::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    report(&scene, &["r1"]).expect_code(0);

    fs_err::write(scene.file("mine.html"), "<!doctype html>my own").unwrap();
    let refused = report(&scene, &["-o", "mine.html"]).expect_code(2);
    assert!(refused.stderr.contains("--force"), "{refused}");
    let kept = fs_err::read_to_string(scene.file("mine.html")).unwrap();
    assert_eq!(kept, "<!doctype html>my own");
    report(&scene, &["-o", "mine.html", "--force"]).expect_code(0);

    // The report of another run is a different file.
    let other = ["--once", "--run-id", "r2"];
    scene.run(&other).run(LONG).expect_code(0);
    report(&scene, &["r2", "-o", "rlm-r1.html"]).expect_code(2);
    let left = fs_err::read_dir(scene.sandbox.repo()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!left.into_iter().any(|name| name.contains(".new")));
}

#[test]
fn unreportable_item_is_one_line() {
    let scene = Scene::new("print hello");
    report(&scene, &[]).expect_code(10);
    let run = ["--once", "--run-id", "r1"];
    scene.run(&run).run(LONG).expect_code(0);
    report(&scene, &["r9"]).expect_code(10);
    for (place, code) in [
        ("/proc/report.html", 1),
        ("no/such/folder.html", 1),
        (".git", 1),
    ] {
        let ended = report(&scene, &["r1", "-o", place]).expect_code(code);
        assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
        assert!(ended.stderr.contains(place), "{ended}");
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn live_run_is_reported_as_live_from_any_directory() {
    let scene = Scene::new("print ready\nhang");
    let running = scene.ready(&["--until", "false", "--run-id", "lively"]);
    wait_for("the run in the index", LONG, || {
        let elsewhere = scene.sandbox.path();
        let told = scene
            .rlm(&["report", "lively", "-o", "-"])
            .dir(elsewhere)
            .run(LONG);
        let is_live = told.stdout.contains("This run is live.");
        let works = told
            .stdout
            .contains("its agent has worked on iteration 1, attempt 1 since");
        (is_live && works).then_some(())
    });
    stop(running, Signal::INT);
    let page = page(&scene, &["lively"]);
    assert!(page.contains("A person stopped the run") && !page.contains("This run is live."));
}

#[test]
fn report_of_a_run_with_redo_lists_discarded_attempts() {
    let scene = Scene::new("print turn {start}\nappend work {start}");
    scene.run(&["-n", "3"]).run(LONG).expect_code(0);
    let id = scene.run_id();
    let back = ["resume", id.as_str(), "--from", "2", "-n", "3"];
    scene.rlm(&back).run(LONG).expect_code(0);
    let told = timeline(&scene);
    let attempts = told["attempts"].as_array().unwrap();
    let gone: Vec<_> = attempts
        .iter()
        .map(|it| it["discarded"].as_bool().unwrap())
        .collect();
    assert_eq!(gone, [false, true, true, false, false]);
    assert_eq!(told["iterations_complete"], 3);
    assert_eq!(told["events"][0]["what"], "discarded");
    assert!(page(&scene, &[]).contains("to iteration 2; 2 attempts discarded"));
}

#[test]
fn x118d_report_has_no_variable_values_and_no_mcp_secrets() {
    let scene = Scene::new("say done\nturn");
    let config = "[mcp-servers.shop]\ncommand = \"shop\"\nenv = { TOKEN = \"s3cret-token\" }\n\
        [mcp-servers.web]\ntype = \"http\"\nurl = \"http://localhost:1/\"\nheaders = { Authorization = \"s3cret-header\" }\n\
        [claude]\nenv = { KEY = \"s3cret-key\" }\n";
    fs_err::write(scene.file("rlm.toml"), config).unwrap();
    scene.claude(&["--once"]).run(LONG).expect_code(0);
    let (page, json) = (page(&scene, &[]), timeline(&scene).to_string());
    for text in [page, json] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}
