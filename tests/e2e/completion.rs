//! The completions of a shell offer the words that depend on the project: the ids of runs, and the keys of `rlm set`.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use rlm_tests::{Rlm, Running};
use rustix::process::Signal;

use crate::scene::{Scene, says, stop};
use crate::{LONG, RLM};

/// Calls the completion of the line `$@`, whose last word is at the cursor, as bash does.
const IN_BASH: &str = r#"
source ./completions || exit 1
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
typed="${COMP_WORDS[COMP_CWORD]}"
[[ "$typed" == "=" ]] && typed=""
[[ "$(complete -p rlm)" =~ -F\ ([^ ]+) ]] || exit 2
"${BASH_REMATCH[1]}" rlm "$typed" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// The same in zsh, with the functions of its completion system that the script calls.
const IN_ZSH: &str = r#"
compdef() { :; }
_describe() {
    local name
    for name; do [[ $name == (found|keys) ]] && print -rl -- "${(@P)name}"; done
}
_arguments() { print -r -- fixed; }
source ./completions || exit 1
words=("$@")
CURRENT=$#
PREFIX="$words[CURRENT]"
_rlm
exit 0
"#;

const IN_FISH: &str = r#"
source ./completions; or exit 1
complete -C (string join ' ' -- $argv)
"#;

/// Prepares a shell in the repository that finds `rlm`.
fn shell<'a>(scene: &'a Scene, name: &str, script: &str, words: &[&str]) -> Rlm<'a> {
    let bin = scene.sandbox.path().join("bin");
    if !bin.exists() {
        fs_err::create_dir(&bin).unwrap();
        symlink(RLM, bin.join("rlm")).unwrap();
    }
    let completions = scene.rlm(&["completions", name]).run(LONG).expect_code(0);
    fs_err::write(scene.file("completions"), completions.stdout).unwrap();
    let environment = scene.sandbox.environment();
    let path = { environment.iter() }.find(|(name, _)| name == "PATH");
    let path = format!("{}:{}", bin.display(), path.unwrap().1);
    let shell = scene.sandbox.rlm("/usr/bin/env").env("PATH", path);
    let shell = match name {
        "bash" => shell.args(["bash", "--norc", "--noprofile", "-c", script, "bash"]),
        "zsh" => shell.args(["zsh", "-f", "-c", script, "zsh"]),
        _ => shell.args(["fish", "--no-config", "-c", script, "--"]),
    };
    shell.args(["rlm"]).args(words)
}

/// Returns the candidates of a command line in bash. Nothing may be printed beside them.
#[track_caller]
fn completed(scene: &Scene, words: &[&str]) -> Vec<String> {
    expect_quiet(shell(scene, "bash", IN_BASH, words))
}

#[track_caller]
fn expect_quiet(shell: Rlm<'_>) -> Vec<String> {
    let ended = shell.run(LONG).expect_code(0);
    assert_eq!(ended.stderr, "");
    ended.stdout.lines().map(ToOwned::to_owned).collect()
}

/// Starts a run that ends, one that a person stops, and one that stays live.
fn runs(scene: &Scene) -> Running {
    let ended = [
        "--once",
        "--run-id",
        "night-ended",
        "--title",
        "Fix: the $(parser)",
    ];
    scene.run(&ended).run(LONG).expect_code(0);
    let mut stopped = scene.run(&["--once", "--run-id", "night-stopped"]).spawn();
    says(&mut stopped, "ready");
    stop(stopped, Signal::TERM);
    let mut live = scene.run(&["--once", "--run-id", "day-live"]).spawn();
    says(&mut live, "ready");
    live
}

const SCRIPT: &str = "@2.. print ready\n@2.. hang";

#[test]
fn completion_in_bash_offers_the_runs_that_a_command_accepts() {
    let scene = Scene::new(SCRIPT);
    let live = runs(&scene);
    for command in ["stop", "pause", "interrupt", "attach", "steer"] {
        assert_eq!(
            completed(&scene, &[command, ""]),
            ["day-live", "last"],
            "{command}"
        );
    }
    assert_eq!(completed(&scene, &["resume", ""]), ["night-stopped"]);
    let all = ["day-live", "night-stopped", "night-ended", "last"];
    for command in [
        &["logs", ""][..],
        &["logs", "-f", "--since", "10m", ""],
        &["checkpoints", "show", ""],
    ] {
        assert_eq!(completed(&scene, command), all, "{command:?}");
    }
    assert_eq!(completed(&scene, &["logs", "night-e"]), ["night-ended"]);
    let place = scene.sandbox.repo().display().to_string();
    assert_eq!(
        completed(&scene, &["-C", &place, "report", "day"]),
        ["day-live"]
    );
    // The keys of a live run, and fixed values.
    assert_eq!(completed(&scene, &["set", "max-it"]), ["max-iterations="]);
    let keys = completed(&scene, &["set", "day-live", ""]);
    assert!(keys.contains(&"sleep=".to_owned()) && !keys.contains(&"day-live".to_owned()));
    let agents = completed(&scene, &["run", "--agent", ""]);
    assert!(agents.contains(&"claude".to_owned()), "{agents:?}");
    assert_eq!(
        completed(&scene, &["run", "--agent", "=", "cl"]),
        ["claude"]
    );
    assert_eq!(completed(&scene, &["init", "--preset", "td"]), ["tdd"]);
    // The script of clap completes the rest.
    let options = completed(&scene, &["stop", "--fo"]);
    assert_eq!(options, ["--force"]);
    assert_eq!(completed(&scene, &["statu"]), ["status"]);
    drop(live);
}

#[test]
fn completion_is_quiet_and_creates_nothing() {
    let scene = Scene::new(SCRIPT);
    let before = scene.sandbox.git(&["status", "--porcelain"]);
    let words = completed(&scene, &["stop", ""]);
    assert!(!words.contains(&"last".to_owned()), "{words:?}");
    assert!(!scene.file(".rlm").exists());
    fs_err::remove_file(scene.file("completions")).unwrap();
    assert_eq!(scene.sandbox.git(&["status", "--porcelain"]), before);
    // Names that rlm did not make, and names that a shell could run.
    for name in [
        "$(touch pwned)",
        "a b",
        "-x",
        "`touch pwned`",
        "\u{1b}[2J",
        "r1;touch pwned",
    ] {
        fs_err::create_dir_all(scene.file(".rlm/runs").join(name)).unwrap();
    }
    fs_err::create_dir_all(scene.file(".rlm/runs/good")).unwrap();
    assert_eq!(completed(&scene, &["status", "g"]), ["good"]);
    let words = completed(&scene, &["status", ""]);
    assert!(
        !words
            .iter()
            .any(|it| it.contains(['$', '`', ' ', '\u{1b}', ';'])),
        "{words:?}"
    );
    assert!(!scene.file("pwned").exists());
    // A line that no command accepts.
    for words in [
        &["nothing", ""][..],
        &["stop", "--", ""],
        &["stop", "a", "b", "c", ""],
        &["--wrong", "=", ""],
    ] {
        completed(&scene, words);
    }
    let hidden = scene.rlm(&["--help"]).run(LONG).expect_code(0);
    assert!(!hidden.stdout.contains("__complete"), "{hidden}");
}

#[test]
fn completion_does_not_wait_for_a_slow_file_system() {
    let scene = Scene::new(SCRIPT);
    let live = runs(&scene);
    assert_eq!(completed(&scene, &["stop", ""]), ["day-live", "last"]);
    // The first read of a project is by git.
    let git = scene.sandbox.path().join("bin/git");
    fs_err::write(&git, "#!/bin/sh\nsleep 600\n").unwrap();
    fs_err::set_permissions(&git, std::fs::Permissions::from_mode(0o755)).unwrap();
    let words = completed(&scene, &["stop", ""]);
    assert!(!words.contains(&"day-live".to_owned()), "{words:?}");
    drop(live);
}

fn is_installed(shell: &str) -> bool {
    Command::new(shell).arg("--version").output().is_ok()
}

#[test]
fn completion_in_zsh_shows_runs_with_their_titles() {
    if !is_installed("zsh") {
        println!("skipped: zsh is not installed");
        return;
    }
    let scene = Scene::new(SCRIPT);
    let live = runs(&scene);
    let words = |words: &[&str]| expect_quiet(shell(&scene, "zsh", IN_ZSH, words));
    let runs = words(&["stop", ""]);
    assert!(runs[0].starts_with("day-live:running, "), "{runs:?}");
    let all = words(&["logs", "night"]);
    assert!(
        all.iter().any(|it| it.ends_with("ago: Fix: the $(parser)")),
        "{all:?}"
    );
    assert!(words(&["set", "max-it"]).contains(&"max-iterations=".to_owned()));
    assert_eq!(words(&["stop", "--fo"]), ["fixed"]);
    drop(live);
}

#[test]
fn completion_in_fish_shows_runs_with_their_titles() {
    if !is_installed("fish") {
        println!("skipped: fish is not installed");
        return;
    }
    let scene = Scene::new(SCRIPT);
    let live = runs(&scene);
    let words = |words: &[&str]| expect_quiet(shell(&scene, "fish", IN_FISH, words));
    let runs = words(&["stop", ""]);
    assert!(runs[0].starts_with("day-live\trunning, "), "{runs:?}");
    let all = words(&["logs", "night"]);
    assert!(
        all.iter().any(|it| it.ends_with("ago: Fix: the $(parser)")),
        "{all:?}"
    );
    assert!(
        words(&["set", "max-it"])
            .iter()
            .any(|it| it.starts_with("max-iterations="))
    );
    assert!(
        words(&["stop", "--fo"])
            .iter()
            .any(|it| it.starts_with("--force"))
    );
    drop(live);
}
