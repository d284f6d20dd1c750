//! The layers of the settings: options, the environment, `rlm.toml`, the user's file; and changes during a run.

use std::path::PathBuf;

use rlm_tests::{Ended, Rlm};
use serde_json::{Value, json};

use crate::LONG;
use crate::scene::{PROMPT, Scene, says};

fn users(scene: &Scene) -> PathBuf {
    scene.sandbox.home().join(".config/rlm/config.toml")
}

fn write_users(scene: &Scene, text: &str) {
    fs_err::create_dir_all(users(scene).parent().unwrap()).unwrap();
    fs_err::write(users(scene), text).unwrap();
}

/// Returns the value and the source of a key in `rlm config show --json`.
#[track_caller]
fn shown(rlm: Rlm<'_>, key: &str) -> (Value, Value) {
    let ended = rlm.run(LONG).expect_code(0);
    let all: Value = serde_json::from_str(&ended.stdout).unwrap();
    let rows = all["settings"].as_array().unwrap();
    let row = rows.iter().find(|row| row["key"] == key);
    let row = row.unwrap_or_else(|| panic!("{key} in {all:#}"));
    (row["value"].clone(), row["from"].clone())
}

#[track_caller]
fn refused(scene: &Scene, rlm: Rlm<'_>, says: &str) -> Ended {
    let ended = rlm.run(LONG).expect_code(2);
    assert!(ended.stderr.contains(says), "{says}: {ended}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    assert!(!scene.file(".rlm").exists() && scene.start_count() == 0);
    ended
}

/// Each layer sets a different value. Without the highest layer, the next one applies.
#[test]
fn s24b_layer_with_highest_precedence_wins() {
    let scene = Scene::new("print never");
    let show = |arguments: &[&str], variable: &str| {
        let all = [&["config", "show", "--json"], arguments].concat();
        let rlm = scene.rlm(&all).env("RLM_PERMISSIONS", variable);
        shown(rlm.env("RLM_AGENT", "claude"), "permissions")
    };
    fs_err::write(scene.file("rlm.toml"), "sleep = 1\npermissions = 'deny'\n").unwrap();
    write_users(&scene, "permissions = 'edits'\n");
    let option = json!({"kind": "option", "name": "--permissions"});
    assert_eq!(
        show(&["--permissions", "all"], "ask"),
        (json!("all"), option)
    );
    let variable = json!({"kind": "environment", "name": "RLM_PERMISSIONS"});
    assert_eq!(show(&[], "ask"), (json!("ask"), variable));
    let (value, from) = show(&[], "");
    assert_eq!(
        (value, &from["kind"], &from["line"]),
        (json!("deny"), &json!("file"), &json!(2))
    );
    fs_err::remove_file(scene.file("rlm.toml")).unwrap();
    let (value, from) = show(&[], "");
    assert_eq!(value, "edits");
    assert!(
        from["path"].as_str().unwrap().ends_with("rlm/config.toml"),
        "{from}"
    );
    fs_err::remove_file(users(&scene)).unwrap();
    assert_eq!(show(&[], ""), (json!("edits"), json!({"kind": "default"})));
    let unknown = scene.run(&["--once"]).env("RLM_PERMISSIONS", "some");
    refused(
        &scene,
        unknown,
        "RLM_PERMISSIONS: `some` is not one of ask, edits, all, deny",
    );
}

#[test]
fn s15b_shown_configuration_matches_the_run() {
    let scene = Scene::new("print fine");
    let file = "max-failures = 7\niteration-timeout = '20m'\ngates = ['true']\n[claude]\nenv = { A = 's3cret' }\n";
    fs_err::write(scene.file("rlm.toml"), file).unwrap();
    write_users(
        &scene,
        "sleep = '1ms'\nmax-failures = 9\nleftovers = 'keep'\n",
    );
    let options = ["-n", "2", "-p", PROMPT];
    let show = |key: &str| {
        let show = [&["config", "show", "--json"], &options[..]].concat();
        shown(scene.rlm(&show), key).0
    };
    let values = [
        "max-failures",
        "sleep",
        "leftovers",
        "max-iterations",
        "gates",
    ]
    .map(show);
    scene.run_bare(&options).run(LONG).expect_code(0);
    let head = scene.rlm(&["checkpoints", "show", &scene.run_id(), "--json"]);
    let head: Value = serde_json::from_str(&head.run(LONG).expect_code(0).stdout).unwrap();
    let settings = &head["head"]["settings"];
    let phase = &settings["phases"][0];
    let used = [
        &settings["limits"]["max_failures"],
        &json!("1ms"),
        &settings["leftovers"],
        &phase["limits"]["max_iterations"],
        &phase["required_checks"],
    ];
    assert_eq!(values.each_ref(), used);
    assert_eq!(settings["limits"]["sleep_ms"], 1, "{settings}");
    assert_eq!(scene.start_count(), 2);
    let told = scene
        .rlm(&["config", "show", "--explain"])
        .run(LONG)
        .expect_code(0);
    assert!(
        told.stdout
            .contains("overrides 9 (~/.config/rlm/config.toml:2), 3 (default)"),
        "{told}"
    );
    assert!(
        told.stdout.contains("claude.env.A") && !told.stdout.contains("s3cret"),
        "{told}"
    );
}

/// The printed configuration is a valid file with the same meaning.
#[test]
fn s15b_shown_configuration_file_is_equivalent() {
    let scene = Scene::new("print never");
    let file = "until = 'test \"x\" = x'\n[on-press]\nsleep = 'stop'\n[mcp-servers.a]\nurl = 'http://localhost:1'\n";
    fs_err::write(scene.file("rlm.toml"), file).unwrap();
    let show = || {
        scene
            .rlm(&["config", "show", "--agent", "claude"])
            .run(LONG)
            .expect_code(0)
            .stdout
    };
    let before = show();
    fs_err::write(scene.file("rlm.toml"), &before).unwrap();
    assert_eq!(show(), before);
}

#[test]
fn x117a_error_in_user_file_or_phase_names_its_place() {
    let scene = Scene::new("print never");
    let run = || scene.run(&["--once"]);
    for (text, says) in [
        (
            "\nslep = 1\n",
            "config.toml`, line 2: unknown key `slep`; did you mean `sleep`?",
        ),
        (
            "until = 'true'\n",
            "config.toml`, line 1: `until` belongs to one project",
        ),
        (
            "[[phase]]\nname = 'x'\n",
            "config.toml`, line 1: `phase` belongs to",
        ),
    ] {
        write_users(&scene, text);
        refused(&scene, run(), says);
    }
    fs_err::remove_file(users(&scene)).unwrap();
    for (text, says) in [
        (
            "[[phase]]\nmax-iterations = 1\n",
            "line 1: this phase has no name",
        ),
        (
            "[[phase]]\nname = 'a b'\n",
            "line 2: `name`: the name of a phase has",
        ),
        (
            "[[phase]]\nname = 'a'\n[[phase]]\nname = 'a'\n",
            "line 3: two phases are named `a`",
        ),
        (
            "[[phase]]\nname = 'a'\n\nsleep = 1\n",
            "line 4: `sleep` is a setting of the whole run",
        ),
        (
            "[[phase]]\nname = 'a'\nmodl = 'x'\n",
            "line 3: unknown key `modl`; did you mean `model`?",
        ),
        (
            "[phase]\nname = 'a'\n",
            "line 1: a phase must be a table: [[phase]]",
        ),
        ("\nname = 'a'\n", "line 2: `name` is a setting of a phase"),
        (
            "[[phase]]\nname = 'a'\n",
            "each phase of rlm.toml has its own prompt",
        ),
    ] {
        fs_err::write(scene.file("rlm.toml"), text).unwrap();
        refused(&scene, run(), says);
    }
    fs_err::write(
        scene.file("rlm.toml"),
        "[[phase]]\nname = 'a'\nprompt = 'x'\n",
    )
    .unwrap();
    refused(
        &scene,
        scene.run_bare(&[]),
        "phase `a`: it needs a stop condition",
    );
    fs_err::write(scene.file("rlm.toml"), "").unwrap();
    write_users(&scene, "max-iterations = 3\n");
    refused(&scene, scene.run(&[]), "this run needs a stop condition");
}

#[test]
fn x130b_only_the_documented_variables_are_configuration() {
    let scene = Scene::new("print fine");
    let show = || scene.rlm(&["config", "show", "--agent", "claude"]);
    let plain = show().run(LONG).expect_code(0).stdout;
    let mut odd = show();
    for name in [
        "RUN_ID",
        "PHASE",
        "ITERATION",
        "ATTEMPT",
        "EPOCH",
        "MARKER",
        "MODEL",
        "SLEEP",
        "UNTIL",
    ] {
        odd = odd.env(format!("RLM_{name}"), "7");
    }
    assert_eq!(odd.run(LONG).expect_code(0).stdout, plain);
}

#[test]
fn changed_file_applies_limits_between_iterations() {
    let scene = Scene::new("print turn {start}\n@2 await go2\n@3 await go3\n@4 await go4");
    let say = |text: &str| fs_err::write(scene.file("rlm.toml"), text).unwrap();
    let go = |turn: u32| fs_err::write(scene.file(&format!("go{turn}")), "").unwrap();
    say("max-iterations = 5\nsleep = 0\nmax-failures = 5\n");
    let options = ["-p", PROMPT, "--max-failures", "4"];
    let mut running = scene.run_bare(&options).spawn();
    // The option has precedence over the file, and the file can't raise a limit: an agent could write it.
    says(&mut running, "turn 2");
    say("max-iterations = 9\nsleep = 0\nmax-failures = 6\n");
    go(2);
    says(&mut running, "ignored the changed setting `iterations: 9`");
    says(&mut running, "turn 3");
    say("max-iterations = 9\nsleeep = 0\n");
    go(3);
    says(
        &mut running,
        "unknown key `sleeep`; did you mean `sleep`?; until you fix it",
    );
    says(&mut running, "turn 4");
    say("max-iterations = 4\nsleep = 0\nuntil = 'true'\n");
    go(4);
    says(&mut running, "`until` applies only to the next run");
    let ended = running.wait(LONG).expect_code(0);
    assert_eq!(scene.start_count(), 4, "{ended}");
    assert!(!ended.stdout.contains("failures in a row"), "{ended}");
    let head = scene.rlm(&["checkpoints", "show", &scene.run_id(), "--json"]);
    let head: Value = serde_json::from_str(&head.run(LONG).expect_code(0).stdout).unwrap();
    let settings = &head["head"]["settings"];
    assert_eq!(settings["phases"][0]["limits"]["max_iterations"], 4);
    assert_eq!(settings["limits"]["max_failures"], 4);
}

/// Edits made while the run was stopped don't count as changes; later ones do.
#[test]
fn changed_file_applies_limits_after_a_resume() {
    let scene = Scene::new("print turn {start}\n@2 await go2\n@3 await go3\n@4 await go4");
    let say = |text: &str| fs_err::write(scene.file("rlm.toml"), text).unwrap();
    say("sleep = 0\n");
    scene
        .run_bare(&["-p", PROMPT, "-n", "1"])
        .run(LONG)
        .expect_code(0);
    say("sleep = '1h'\n");
    let mut running = scene.rlm(&["resume", &scene.run_id(), "-n", "4"]).spawn();
    says(&mut running, "turn 2");
    say("sleep = '1h'\nmax-duration = '2h'\n");
    fs_err::write(scene.file("go2"), "").unwrap();
    says(&mut running, "changed: time limit");
    says(&mut running, "turn 3");
    // An agent could also write these values.
    say("sleep = '1h'\nmax-duration = '3h'\n");
    for turn in [3, 4] {
        fs_err::write(scene.file(&format!("go{turn}")), "").unwrap();
    }
    says(&mut running, "ignored the changed setting `time limit");
    running.wait(LONG).expect_code(0);
}
