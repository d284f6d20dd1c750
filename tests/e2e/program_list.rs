//! `rlm` shows the commands of a run before it starts them. Read-only commands don't run programs that a project names. Saved commands of another
//! user don't replace typed ones.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use fs_err as fs;
use rlm_tests::{Ended, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::LONG;
use crate::scene::{PROMPT, Scene, expect_in_order, says, stop};

/// Writes a program that creates a file in the home directory whenever it runs.
fn canary(scene: &Scene, name: &str) -> PathBuf {
    let record = scene.sandbox.home().join("canaries");
    let path = scene.file(name);
    let script = format!("#!/bin/bash\necho '{name}' >> '{}'\n", record.display());
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

fn canaries(scene: &Scene) -> String {
    fs::read_to_string(scene.sandbox.home().join("canaries")).unwrap_or_default()
}

/// Returns a settings file for an agent with a canary in every place that can name a command.
fn planted(agent: &str, canary: &str) -> String {
    let mut text = format!(
        "gates = ['{canary}']\nuntil = '{canary}'\nnotify = ['command:{canary}']\nmcp-config = 'servers.json'\n\
         mcp-servers.a = {{ command = '{canary}' }}\non-press.default = 'stop'\n"
    );
    match agent {
        "command" => writeln!(text, "command = ['{canary}']"),
        "acp" => writeln!(text, "agent = 'acp'\nacp.program = ['{canary}', 'x']"),
        agent => writeln!(text, "agent = '{agent}'\nagent-bin = '{canary}'"),
    }
    .unwrap();
    if agent == "claude" {
        writeln!(
            text,
            "claude = {{ hooks = true, settings = {{ apiKeyHelper = '{canary}' }} }}"
        )
        .unwrap();
    }
    text
}

#[test]
fn h3_read_only_commands_run_no_program_of_the_project() {
    let scene = Scene::new("");
    let canary = canary(&scene, "canary").display().to_string();
    let servers = format!(r#"{{"mcpServers": {{"b": {{"command": "{canary}"}}}}}}"#);
    fs::write(scene.file("servers.json"), servers).unwrap();
    let settings = scene.file("rlm.toml");
    // A saved run with canaries, which can be resumed.
    fs::write(
        &settings,
        format!("command = ['{canary}']\ngates = ['{canary} && false']\n"),
    )
    .unwrap();
    let run = [
        "run",
        "-p",
        "x",
        "-n",
        "2",
        "--max-failures",
        "1",
        "--run-id",
        "r1",
    ];
    scene.rlm(&run).run(LONG).expect_code(6);
    assert!(
        canaries(&scene).contains("canary"),
        "the control: a run starts it"
    );
    fs::remove_file(scene.sandbox.home().join("canaries")).unwrap();
    let all: [&[&str]; 27] = [
        &["status"],
        &["status", "r1", "--json"],
        &["ps"],
        &["ps", "--all"],
        &["logs"],
        &["logs", "r1", "--json"],
        &["report", "-o", "report.html"],
        &["report", "--json"],
        &["checkpoints", "list"],
        &["checkpoints", "show", "r1"],
        &["checkpoints", "verify"],
        &["config", "show"],
        &["config", "show", "--explain"],
        &["config", "show", "--json"],
        &["config", "schema"],
        &["doctor"],
        &["doctor", "--json"],
        &["doctor", "claude"],
        &["doctor", "acp", "codex", "gemini", "opencode"],
        &["clean", "--dry-run"],
        &["clean", "--yes", "--days", "9999"],
        &["completions", "bash"],
        &["man"],
        &["init"],
        &["run", "-p", "x", "--dry-run"],
        &["resume", "r1", "--dry-run"],
        &["resume", "r1", "--dry-run", "--json"],
    ];
    for agent in ["claude", "codex", "gemini", "opencode", "acp", "command"] {
        fs::write(&settings, planted(agent, &canary)).unwrap();
        for arguments in all {
            let ended = scene.rlm(arguments).run(LONG);
            assert_eq!(canaries(&scene), "", "{agent}: {arguments:?}: {ended}");
        }
        let shown = scene.rlm(&["doctor"]).run(LONG);
        let words = "rlm.toml names this program, so doctor doesn't run it";
        assert!(shown.stdout.contains(words), "{agent}: {shown}");
        assert!(shown.stdout.contains(&canary), "{agent}: {shown}");
    }
    // The control: a person who trusts the project can let doctor run it.
    fs::write(&settings, planted("acp", &canary)).unwrap();
    scene
        .rlm(&["doctor", "acp", "--run-project-agent"])
        .run(LONG);
    assert!(canaries(&scene).contains("canary"));
}

#[test]
fn h3_doctor_passes_no_executable_project_variable_to_an_agent() {
    let scene = Scene::new("");
    let canary = canary(&scene, "canary");
    let bin = scene.sandbox.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let claude = "#!/bin/bash\necho '2.1.329 (Claude Code)'\n";
    fs::write(bin.join("claude"), claude).unwrap();
    fs::set_permissions(bin.join("claude"), PermissionsExt::from_mode(0o755)).unwrap();
    let file = format!("claude.env = {{ BASH_ENV = '{}' }}\n", canary.display());
    fs::write(scene.file("rlm.toml"), file).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let doctor = |more: &[&str]| {
        let doctor = scene.rlm(&[&["doctor", "claude"], more].concat());
        doctor.env("PATH", &path).run(LONG)
    };
    let shown = doctor(&[]);
    assert_eq!(canaries(&scene), "", "{shown}");
    assert!(shown.stdout.contains("2.1.329"), "{shown}");
    assert!(shown.stdout.contains("BASH_ENV"), "{shown}");
    doctor(&["--run-project-agent"]);
    assert!(canaries(&scene).contains("canary"));
}

/// All commands that the settings file below makes a run start, as text and JSON output show them.
const STARTED: [&str; 9] = [
    "main: agent-setting: apiKeyHelper = \"canary-helper\"",
    "main: agent-hooks: the hooks of the settings that Claude Code reads",
    "main: mcp-server: shell: sh -c 'true # fine⏎canary-server' (with TOKEN=…)",
    "main: mcp-server: keyed: x --key=…",
    "main: required check: true # fine⏎canary-gate ⏎\\u{200b}true",
    "main: check: true # fine⏎true canary-until",
    "git-hooks: the hooks of this repository, at each commit",
    "notify: true # fine⏎true canary-notify",
    "heartbeat: ",
];

const FILE: &str = r##"
commit = true
until = "true # fine\ntrue canary-until"
gates = ["true # fine\ncanary-gate \n\u200btrue"]
notify = ["command:true # fine\ntrue canary-notify"]
heartbeat = ".rlm/canary-heartbeat"

[claude]
hooks = true
settings = { apiKeyHelper = "canary-helper", theme = "s3cret" }
env = { A = "s3cret" }

[mcp-servers.shell]
command = "sh"
args = ["-c", "true # fine\ncanary-server"]
env = { TOKEN = "s3cret" }

[mcp-servers.keyed]
command = "x"
args = ["--key=s3cret"]
"##;

#[track_caller]
fn expect_shown(ended: &Ended) {
    for words in STARTED {
        assert!(ended.stdout.contains(words), "{words}: {ended}");
    }
    assert!(
        ended.stdout.contains("canary-heartbeat (a file that"),
        "{ended}"
    );
    assert!(!ended.stdout.contains("s3cret"), "{ended}");
}

/// Expects the same list in one JSON object.
#[track_caller]
fn expect_listed(ended: &Ended) {
    let first = ended.stdout.lines().next().unwrap_or_default();
    let value: Value = serde_json::from_str(first).unwrap_or_else(|e| panic!("{e}: {ended}"));
    let programs = value["programs"]
        .as_array()
        .unwrap_or_else(|| panic!("{ended}"));
    let commands: Vec<&str> = programs
        .iter()
        .map(|it| it["command"].as_str().unwrap())
        .collect();
    for words in [
        "apiKeyHelper = \"canary-helper\"",
        "shell: sh -c 'true # fine\ncanary-server' (with TOKEN=…)",
        "true # fine\ncanary-gate \n\u{200b}true",
        "true # fine\ntrue canary-until",
        "true # fine\ntrue canary-notify",
    ] {
        assert!(commands.contains(&words), "{words:?}: {commands:#?}");
    }
    let heartbeat = |it: &&str| it.ends_with("canary-heartbeat");
    assert!(commands.iter().any(heartbeat), "{commands:#?}");
    assert!(!first.contains("s3cret"), "{ended}");
}

#[test]
fn h6_every_preview_and_start_shows_all_commands() {
    let scene = Scene::new("say ready\nhang");
    for (name, value) in [("user.name", "A"), ("user.email", "a@localhost")] {
        scene.sandbox.git(&["config", name, value]);
    }
    fs::write(scene.file("rlm.toml"), FILE).unwrap();
    scene.sandbox.git(&["add", "rlm.toml"]);
    scene.sandbox.git(&["commit", "-q", "-m", "settings"]);
    expect_shown(
        &scene
            .claude_bare(&["-p", PROMPT, "--dry-run"])
            .run(LONG)
            .expect_code(0),
    );
    expect_listed(
        &scene
            .claude_bare(&["-p", PROMPT, "--dry-run", "--json"])
            .run(LONG),
    );
    let config = |more: &[&str]| {
        let show = ["config", "show", "--agent", "claude"];
        scene.rlm(&[&show, more].concat()).run(LONG).expect_code(0)
    };
    expect_shown(&config(&[]));
    expect_shown(&config(&["--explain"]));
    expect_listed(&config(&["--json"]));
    let mut running = scene.claude(&["--once", "--run-id", "r1"]).spawn();
    says(&mut running, "ready");
    expect_shown(&stop(running, Signal::TERM));
    let resume = |more: &[&str]| scene.talking(&[&["resume", "r1"], more].concat());
    expect_shown(&resume(&["--dry-run"]).run(LONG).expect_code(0));
    expect_listed(&resume(&["--dry-run", "--json"]).run(LONG).expect_code(0));
    for json in [false, true] {
        let more: &[&str] = if json { &["--json"] } else { &[] };
        let starts = scene.start_count();
        let running = resume(more).spawn();
        scene.wait_until_started(starts + 1);
        let ended = stop(running, Signal::TERM);
        match json {
            true => expect_listed(&ended),
            false => expect_shown(&ended),
        }
    }
    let export = [
        "checkpoints",
        "export",
        "r1",
        "--allow-dirty",
        "--copy",
        "-o",
        "../r1.tar.zst",
    ];
    scene.rlm(&export).run(LONG).expect_code(0);
    for (place, json) in [("one", false), ("two", true)] {
        let there = scene.sandbox.path().join(place);
        fs::create_dir(&there).unwrap();
        let import = ["checkpoints", "import", "../r1.tar.zst"];
        let more: &[&str] = if json { &["--json"] } else { &[] };
        let ended = scene.rlm(&[&import, more].concat()).dir(&there).run(LONG);
        let ended = ended.expect_code(0);
        match json {
            true => expect_listed(&ended),
            false => expect_shown(&ended),
        }
    }
}

#[test]
fn h6_new_run_shows_project_commands_and_not_typed_ones() {
    let scene = Scene::new("print hi");
    fs::write(scene.file("rlm.toml"), "gates = ['true canary']\n").unwrap();
    let ended = scene
        .run(&["--once", "--until", "true typed"])
        .run(LONG)
        .expect_code(0);
    expect_in_order(
        &ended.stdout,
        &["starts  main: required check: true canary", "ends "],
    );
    assert!(!ended.stdout.contains("starts  main: check"), "{ended}");
}

/// The checks that another user saved.
const EVIL: [&str; 6] = [
    "--gate",
    "touch evil-gate",
    "--until",
    "touch evil-until",
    "-n",
    "3",
];

/// Returns an unfinished run `nightly` of another user.
fn of_another_user(arguments: &[&str]) -> Scene {
    let scene = Scene::new("");
    let run = ["run", "-p", "x", "--run-id", "nightly"];
    let agent = ["--", "sh", "-c", "touch evil-agent; sleep 600"];
    let running = scene.rlm(&[&run[..], arguments, &agent].concat()).spawn();
    scene.wait_for_file("evil-agent");
    stop(running, Signal::TERM);
    fs::remove_file(scene.file("evil-agent")).unwrap();
    scene
}

fn nightly(scene: &Scene, arguments: &[&str]) -> Ended {
    let run = ["run", "--resume-or-start", "--run-id", "nightly"];
    scene.rlm(&[&run[..], arguments].concat()).run(LONG)
}

#[track_caller]
fn expect_nothing_evil(scene: &Scene) {
    for name in ["evil-agent", "evil-gate", "evil-until", "evil-server"] {
        assert!(!scene.file(name).exists(), "{name}");
    }
}

#[test]
fn h10_saved_command_that_is_not_named_again_is_refused() {
    let scene = of_another_user(&EVIL);
    let refused = nightly(&scene, &["--once", "-p", "x", "--", "touch", "mine"]).expect_code(2);
    for words in [
        "required check `touch evil-gate`",
        "check `touch evil-until`",
        "rlm resume nightly --dry-run",
    ] {
        assert!(refused.stderr.contains(words), "{words}: {refused}");
    }
    assert_eq!(refused.stderr.trim_end().lines().count(), 1, "{refused}");
    let typed = ["--once", "-p", "x", "--gate", "true", "--until", "true"];
    let unnamed = nightly(&scene, &typed);
    let unnamed = unnamed.expect_code(2);
    assert!(unnamed.stderr.contains("agent"), "{unnamed}");
    expect_nothing_evil(&scene);
    assert!(!scene.file("mine").exists());
    // A resume by name shows the saved commands and runs them.
    let shown = scene
        .rlm(&["resume", "nightly", "--dry-run"])
        .run(LONG)
        .expect_code(0);
    assert!(shown.stdout.contains("touch evil-gate"), "{shown}");
}

#[test]
fn h10_command_line_and_current_file_win_and_changes_are_reported() {
    let scene = of_another_user(&EVIL);
    fs::write(
        scene.file("rlm.toml"),
        "gates = ['touch my-gate']\nsleep = 0\n",
    )
    .unwrap();
    let typed = [
        "--until",
        "test -e mine",
        "-n",
        "9",
        "-p",
        "y",
        "--",
        "touch",
        "mine",
    ];
    let ended = nightly(&scene, &typed).expect_code(0);
    for words in [
        "changed main: agent: sh -c 'touch evil-agent; sleep 600' -> touch mine",
        "changed main: required check: touch evil-gate -> touch my-gate",
        "changed main: check: touch evil-until -> test -e mine",
        "changed main: max_iterations: 3 -> 9",
        "changed main: prompt: ",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {ended}");
    }
    assert!(scene.file("mine").exists() && scene.file("my-gate").exists());
    expect_nothing_evil(&scene);
}

#[test]
fn h10_changes_are_in_json_and_same_command_line_changes_nothing() {
    let scene = Scene::new("print ready\nhang");
    let line = [
        "--resume-or-start",
        "--run-id",
        "nightly",
        "--gate",
        "true",
        "--until",
        "test -e done",
    ];
    let run = |more: &[&str]| scene.run(&[&line[..], more].concat());
    let begin = |more: &[&str]| {
        let starts = scene.start_count();
        let running = run(more).spawn();
        scene.wait_until_started(starts + 1);
        wait_for("the first save of the run", LONG, || {
            (scene.status()["state"] == "running").then_some(())
        });
        stop(running, Signal::TERM).stdout
    };
    begin(&[]);
    let again = begin(&[]);
    assert!(
        again.contains("resuming run nightly") && !again.contains("changed "),
        "{again}"
    );
    let json = begin(&["--gate", "echo another", "--json"]);
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(
        first["changes"],
        serde_json::json!([{"phase": "main", "key": "gate", "before": null, "now": "echo another"}])
    );
    let same = begin(&["--gate", "echo another", "--json"]);
    let first: Value = serde_json::from_str(same.lines().next().unwrap()).unwrap();
    assert_eq!(first["changes"], Value::Null);
}

#[test]
fn w18_dry_resume_names_unknown_parts_of_the_next_prompt() {
    let scene = Scene::new("print turn {start}\n@2 hang");
    let mut running = scene.run(&["-n", "3", "--until", "test -e done"]).spawn();
    says(&mut running, "turn 2");
    stop(running, Signal::TERM);
    let told = scene.rlm(&["resume", "--dry-run"]).run(LONG).expect_code(0);
    expect_in_order(
        &told.stdout,
        &[
            "first steps",
            "the check runs: test -e done",
            "the prompt below assumes that the check fails",
            "prompt of phase main, iteration 2",
            "attempt 1 of iteration 2 did not finish because the run was stopped",
            PROMPT,
        ],
    );
    let told = scene
        .rlm(&["resume", "--dry-run", "--json"])
        .run(LONG)
        .expect_code(0);
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let unknown = told["unknown"].as_str().unwrap();
    assert!(
        unknown.contains("assumes that the check fails"),
        "{unknown}"
    );
    assert!(
        told["prompts"][0]["text"]
            .as_str()
            .unwrap()
            .ends_with(PROMPT)
    );
    // The control: if the next attempt begins at once, nothing is unknown.
    let known = ["resume", "--dry-run", "--json", "--from", "1"];
    let told = scene.rlm(&known).run(LONG).expect_code(0);
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(
        (&told["unknown"], &told["prompts"][0]["text"]),
        (&Value::Null, &PROMPT.into())
    );
}
