//! A stop also ends a hanging git of the run, with all its processes.

use std::os::unix::fs::PermissionsExt;

use rlm_tests::{Rlm, Running, wait_for};
use rustix::process::Signal;

use crate::LONG;
use crate::control::quick;
use crate::scene::{Scene, crash, stop};

/// A git that hangs in one command once a file exists, and ignores SIGTERM. So do its child and a child in another session.
const GIT: &str = r#"#!/bin/sh
PATH=$REAL_PATH
export PATH
case "$*" in
*"$HANG_AT"*)
    if [ -e "$HANG" ]; then
        trap '' TERM
        sleep 777 &
        setsid sleep 777 &
        sleep 777
        exit
    fi
    ;;
esac
exec git "$@"
"#;
const STATUS: &str = "status --porcelain=v2 --branch";
const PLAN: &str = "--untracked-files=all";

/// Prepares `rlm` with such a git, which hangs in the command `at`.
fn hanging<'a>(scene: &'a Scene, rlm: Rlm<'a>, at: &str) -> Rlm<'a> {
    // Not in the repository: there, the program would count as a change.
    let bin = scene.agent.folder().join("bin");
    fs_err::create_dir(&bin).unwrap();
    let git = bin.join("git");
    fs_err::write(&git, GIT).unwrap();
    fs_err::set_permissions(&git, std::fs::Permissions::from_mode(0o755)).unwrap();
    let real = std::env::var("PATH").unwrap();
    rlm.env("PATH", format!("{}:{real}", bin.display()))
        .env("REAL_PATH", real)
        .env("HANG_AT", at)
        .env("HANG", scene.file("hang"))
}

fn sleeps(scene: &Scene) -> usize {
    let alive = scene.alive().into_iter();
    alive.filter(|process| process.name == "sleep").count()
}

fn until_git_hangs(scene: &Scene) {
    wait_for("git to hang", LONG, || (sleeps(scene) == 3).then_some(()));
}

/// Returns a run whose git hangs in `git status` after the first turn, during the second one.
fn hanging_in_status(scene: &Scene) -> Running {
    let run = scene.run(&["-n", "3"]);
    let running = hanging(scene, run, STATUS).spawn();
    scene.wait_until_started(2);
    until_git_hangs(scene);
    running
}

const TOUCHES: &str = "@1 touch hang\n@2 hang\nprint turn {start}";

#[test]
fn x101g_sigterm_ends_a_hanging_git() {
    let scene = Scene::new(TOUCHES);
    let ended = stop(hanging_in_status(&scene), Signal::TERM);
    scene.expect_nothing_alive();
    // The five processes: the agent, git, and the three children of git. The guard of git reports that none is left.
    let end = ended.stdout.lines().last().unwrap();
    assert!(end.contains("; all processes ended; "), "{ended}");
}

#[test]
fn x101g_rlm_stop_ends_a_git_that_hangs_in_a_commit() {
    let scene = Scene::new(TOUCHES);
    scene.sandbox.git(&["config", "user.name", "A. Tester"]);
    scene
        .sandbox
        .git(&["config", "user.email", "tester@invalid"]);
    let run = scene.run(&["-n", "3", "--commit"]);
    let running = hanging(&scene, run, PLAN).spawn();
    until_git_hangs(&scene);
    let stopped = quick(scene.rlm(&["stop"])).expect_code(0);
    assert_eq!(sleeps(&scene), 0);
    assert!(!stopped.stdout.contains("nothing left"), "{stopped}");
    let left = "all processes ended;";
    assert!(stopped.stdout.contains(left), "{stopped}");
    running.wait(LONG).expect_code(7);
    scene.expect_nothing_alive();
}

#[test]
fn x101g_git_that_hangs_before_the_run_exists_is_ended_with_its_group() {
    let scene = Scene::new("print turn");
    fs_err::write(scene.file("hang"), "").unwrap();
    let run = scene.run(&["--once", "--worktree"]);
    let running = hanging(&scene, run, "worktree add").spawn();
    until_git_hangs(&scene);
    let strays = || {
        let mut alive = scene.alive();
        alive.retain(|it| it.name == "sleep" && it.pid != it.sid);
        alive.len()
    };
    assert_eq!(strays(), 2);
    stop(running, Signal::TERM);
    assert_eq!(strays(), 0);
}

/// git runs the hook after it created the worktree and the branch.
#[test]
fn x101g_stop_during_worktree_creation_removes_worktree_and_branch() {
    let scene = Scene::new("print turn");
    let hook = scene.file(".git/hooks/post-checkout");
    fs_err::create_dir_all(hook.parent().unwrap()).unwrap();
    fs_err::write(&hook, "#!/bin/sh\nexec sleep 777\n").unwrap();
    fs_err::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    crate::git::know_who(&scene);
    let running = scene.run(&["--once", "--worktree", "--commit"]).spawn();
    wait_for("the hook", LONG, || (sleeps(&scene) == 1).then_some(()));
    let branches = || scene.sandbox.git(&["branch", "--list", "rlm/*"]);
    assert_ne!(branches(), "");
    stop(running, Signal::TERM);
    scene.expect_nothing_alive();
    assert_eq!(branches(), "");
    let trees = scene.sandbox.git(&["worktree", "list"]);
    assert_eq!(trees.lines().count(), 1, "{trees}");
}

#[test]
fn x102b_next_process_ends_a_hanging_git_of_a_killed_one() {
    let scene = Scene::new(TOUCHES);
    crash(hanging_in_status(&scene));
    assert_eq!(sleeps(&scene), 3);
    let resumed = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    scene.wait_until_nothing_is_alive();
    let told = resumed.stdout.contains("left alive by an earlier process");
    assert!(told, "{resumed}");
}
