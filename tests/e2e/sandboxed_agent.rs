//! The sandbox of the guide: an agent that runs in it can write only the working tree.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rlm_tests::wait_for;

use crate::LONG;
use crate::scene::{Scene, crash, says};

/// Tries each write, and prints the successful ones. The last line shows that all were tried.
const AGENT: &str = r#"
cat >/dev/null
try() { if (eval "$1") 2>/dev/null; then echo "allowed: $1"; fi; }
try 'echo x >result'
try 'echo x >.git/x'
try 'echo x >.rlm/x'
try ': >>rlm.toml'
try 'mv rlm.toml moved'
try 'cat "$HOME/.ssh/key" >/dev/null'
try ': >>"$HOME/.local/bin/sandbox"'
try 'echo x >"$OUTSIDE/x"'
try 'ls .rlm/runs >/dev/null'
try 'git status >/dev/null'
echo tried all
"#;

/// Returns the script of the guide.
fn script() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/sandbox.md");
    let text = fs_err::read_to_string(page).unwrap();
    let from = text.find("#!/bin/sh\n").unwrap();
    let to = text[from..].find("\n```").unwrap();
    text[from..=from + to].to_owned()
}

/// Prepares a scene whose PATH has the script; `None` if this machine can't run it.
fn scene() -> Option<(Scene, String)> {
    let works = Command::new("bwrap")
        .args(["--unshare-all", "--ro-bind", "/", "/", "true"])
        .status();
    if !works.is_ok_and(|status| status.success()) {
        return None;
    }
    let scene = Scene::new("");
    let home = scene.sandbox.home();
    let bin = home.join(".local/bin");
    fs_err::create_dir_all(&bin).unwrap();
    fs_err::write(bin.join("sandbox"), script()).unwrap();
    fs_err::set_permissions(bin.join("sandbox"), PermissionsExt::from_mode(0o755)).unwrap();
    fs_err::create_dir(home.join(".ssh")).unwrap();
    fs_err::write(home.join(".ssh/key"), "secret").unwrap();
    fs_err::write(scene.file("rlm.toml"), "sleep = 0\n").unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    Some((scene, path))
}

#[test]
fn sandboxed_agent_can_write_only_the_working_tree() {
    let Some((scene, path)) = scene() else {
        return println!("skipped: bubblewrap is missing, or may not create a namespace");
    };
    let outside = scene.sandbox.path().join("outside");
    fs_err::create_dir(&outside).unwrap();
    let run = |program: &[&str]| {
        let check = "sandbox test -e result";
        let run = scene.rlm(&["run", "--prompt", "x", "-n", "1", "--until", check, "--"]);
        let run = run.args(program).args(["sh", "-c", AGENT]);
        let run = run
            .env("PATH", &path)
            .env("OUTSIDE", outside.to_str().unwrap());
        let ended = run.run(LONG).expect_code(0);
        let lines = ended.stdout.lines();
        let lines = lines.filter_map(|line| line.strip_prefix("│ allowed: "));
        let allowed: Vec<_> = lines.map(str::to_owned).collect();
        assert!(ended.stdout.contains("│ tried all"), "{ended}");
        allowed
    };
    let allowed = run(&["sandbox"]);
    let harmless = [
        "echo x >result",
        "ls .rlm/runs >/dev/null",
        "git status >/dev/null",
    ];
    // The test's own directory may be below /tmp, where the sandbox has an empty directory of its own.
    let allowed: Vec<_> = allowed
        .iter()
        .filter(|it| !it.contains("OUTSIDE"))
        .collect();
    assert_eq!(allowed, harmless);
    assert!(!outside.join("x").exists());
    assert!(scene.file("result").exists());

    // The control: without the sandbox, every write succeeds.
    assert_eq!(run(&[]).len(), AGENT.matches("\ntry ").count());
    assert!(outside.join("x").exists());
    scene.expect_nothing_alive();
}

#[test]
fn killed_run_leaves_no_process_in_the_sandbox() {
    let Some((scene, path)) = scene() else {
        return println!("skipped: bubblewrap is missing, or may not create a namespace");
    };
    let agent = "setsid sleep 600 & (setsid sleep 600 &); echo ready; sleep 600";
    let run = scene.rlm(&["run", "--prompt", "x", "--once", "--"]);
    let run = run.args(["sandbox", "sh", "-c", agent]).env("PATH", &path);
    let mut running = run.spawn();
    says(&mut running, "ready");
    wait_for("the processes in the sandbox", LONG, || {
        (scene.alive().len() >= 6).then_some(())
    });
    crash(running);
    scene.wait_until_nothing_is_alive();
}
