//! The schemas in `docs/schema`. Every test of this suite that prints JSON checks its output against them; the tests here check the schemas
//! themselves.

use std::collections::BTreeSet;
use std::path::Path;

use rlm_tests::schema::{SCHEMAS, check, named};
use serde_json::{Value, json};

use crate::scene::{Scene, events, json as parsed, text};
use crate::{FAKE_AGENT, LONG};

fn rlm_source(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs_err::read_to_string(root.join("crates/rlm/src/render").join(path)).unwrap()
}

fn sources(folder: &Path) -> String {
    let entries = fs_err::read_dir(folder).unwrap();
    let text = entries.map(|entry| match entry.unwrap().path() {
        path if path.is_dir() => sources(&path),
        path if path.extension().is_some_and(|it| it == "rs") => {
            fs_err::read_to_string(path).unwrap()
        }
        _ => String::new(),
    });
    text.collect()
}

/// Returns the names of the events in the schema.
fn known() -> BTreeSet<String> {
    let schema = named("run");
    let forms = schema["anyOf"].as_array().unwrap().iter();
    forms
        .map(|form| text(&form["properties"]["event"]["const"]))
        .collect()
}

#[test]
fn every_event_sample_matches_the_schema() {
    let schema = named("run");
    let samples =
        rlm_source("event/snapshots/rlm__render__event__tests__json_output_snapshot.snap");
    let lines: Vec<&str> = samples
        .lines()
        .filter(|line| line.starts_with('{'))
        .collect();
    assert!(lines.len() > 20, "{samples}");
    for line in lines {
        check(&schema, &parsed(line)).unwrap_or_else(|why| panic!("{why}: {line}"));
    }
}

#[test]
fn schema_covers_exactly_the_printed_events() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let sources = sources(&root.join("crates/rlm/src"));
    let named = sources.split(r#""event": ""#).skip(1);
    let mut printed: BTreeSet<String> = named
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect();
    // These names are not in an object literal.
    printed.extend(["run_started", "run_resumed", "dry_run"].map(String::from));
    assert_eq!(printed, known());
}

#[test]
fn schema_rejects_unknown_fields() {
    let schema = named("run");
    let good = || json!({"event": "sleeping", "at": "2026-01-02T03:04:05.678Z", "until": "2026-01-02T03:04:05.678Z"});
    let with = |name: &str, value: Value| {
        let mut event = good();
        event[name] = value;
        check(&schema, &event)
    };
    assert_eq!(check(&schema, &good()), Ok(()));
    for (name, value, why) in [
        ("more", json!(1), ".more is unknown"),
        ("until", json!("soon"), "no time"),
        ("until", json!(7), "is no"),
        ("event", json!("sleepy"), "none of"),
        ("event", json!("pausing"), ".until is unknown"),
    ] {
        let refused = with(name, value).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let mut short = good();
    short.as_object_mut().unwrap().remove("until");
    assert_eq!(check(&schema, &short), Err(".until is missing".into()));
    for (name, _) in SCHEMAS {
        assert!(check(&named(name), &json!([])).is_err(), "{name}");
    }
}

#[test]
fn dry_run_shows_the_plan_and_creates_nothing() {
    let scene = Scene::new("hang");
    fs_err::write(scene.file("PROMPT.md"), "Fix the parser.\n").unwrap();
    let command = [
        "run",
        "--until",
        "make test",
        "--worktree",
        "--completion-promise",
        "DONE",
        "--dry-run",
    ];
    let claude = ["--agent", "claude", "--agent-bin", FAKE_AGENT];
    let before = scene.sandbox.git(&["status", "--porcelain", "--ignored"]);
    let rlm = || scene.talking(&[&command[..], &claude].concat());
    let ended = rlm().run(LONG).expect_code(0);
    for shown in [
        "nothing is created or started",
        "Fix the parser.",
        "<promise>DONE</promise>",
        "`make test`",
        "max-iterations",
    ] {
        assert!(ended.stdout.contains(shown), "{shown}: {ended}");
    }
    let line = rlm().args(["--json"]).run(LONG).expect_code(0).stdout;
    let [event] = events(&line).try_into().unwrap();
    assert_eq!(
        (&event["event"], &event["prompts"][0]["phase"]),
        (&json!("dry_run"), &json!("main"))
    );
    assert_eq!(event["settings"]["max_iterations"], 100);
    assert_eq!(scene.start_count(), 0);
    assert!(!scene.file(".rlm").exists());
    assert_eq!(
        scene.sandbox.git(&["status", "--porcelain", "--ignored"]),
        before
    );
    // The dry run reports a problem that would prevent the start.
    fs_err::write(scene.file("PROMPT.md"), "").unwrap();
    let refused = rlm().run(LONG).expect_code(2).stderr;
    assert!(refused.contains("PROMPT.md` is empty"), "{refused}");
}

#[test]
fn quiet_and_verbose_change_the_output() {
    let scene = Scene::new("print working");
    let gate = "seq 1 30; test -e ok || { touch ok; exit 1; }";
    let shown = |level: &[&str]| {
        let _gone = fs_err::remove_file(scene.file("ok"));
        let run = ["-n", "2", "--gate", gate, "--no-input"];
        scene.run(&[&run, level].concat()).run(LONG).stdout
    };
    let (quiet, normal, verbose) = (shown(&["-q"]), shown(&[]), shown(&["-v"]));
    assert!(
        normal.contains("working") && normal.contains("ends ") && normal.contains("┆ 30"),
        "{normal}"
    );
    assert!(!normal.contains("┆ 2\n"), "{normal}");
    assert!(
        verbose.contains("┆ 2\n") && verbose.contains("working"),
        "{verbose}"
    );
    assert!(
        !quiet.contains("working") && !quiet.contains("── iteration"),
        "{quiet}"
    );
    for needed in [
        "required check 1 did not pass",
        "iteration 2 complete",
        "all processes ended",
    ] {
        assert!(quiet.contains(needed), "{needed}: {quiet}");
    }
    scene
        .run(&["--once", "-q", "--json"])
        .run(LONG)
        .expect_code(2);
}
