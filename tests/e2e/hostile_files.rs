//! Files below `.rlm` from an agent, a repository or another user: `rlm` writes no file outside, does not hang, and needs no extra memory.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use rlm_tests::{Effort, Ended, Rlm};

use crate::LONG;
use crate::scene::{PROMPT, Scene};

/// The memory limit of a command, in KiB.
const MEMORY: i64 = 200 << 10;
/// Names in `.rlm` that a short run does not create.
const MORE_NAMES: [&str; 8] = [
    "holder.new",
    "worktrees",
    "runs/base/survivors",
    "runs/base/output.log",
    "runs/base/control.sock",
    "runs/base/scratch",
    "runs/base/transcripts/1-1.ndjson.zst",
    "runs/base/transcripts/removed.json",
];
/// The last commands change the run.
const COMMANDS: [&[&str]; 16] = [
    &["status", "base", "--json"],
    &["logs", "base"],
    &["report", "base", "-o", "-"],
    &["ps"],
    &["attach", "base"],
    &["doctor"],
    &["config", "show"],
    &["checkpoints", "list"],
    &["checkpoints", "verify"],
    &["checkpoints", "show", "base"],
    &["steer", "base", "hello"],
    &["stop", "base"],
    &["clean", "--yes", "--days", "9"],
    &["resume", "base", "--no-input"],
    &["checkpoints", "export", "base", "-o", "../exported"],
    &["run", "-n", "1", "-p", PROMPT, "--", "true"],
];

/// The number of commands for each kind of file at each name.
const H9_COMMANDS: Effort = Effort { ci: 4, nightly: 16 };
const KINDS: [&str; 5] = ["link", "dangling", "fifo", "device", "sparse"];

/// Returns the commands for a kind of file at a name: all of them, or a part that depends on both, so that each command is tested with each
/// kind of file, and each name with some command.
fn commands(kind: &str, name: usize) -> impl Iterator<Item = &'static [&'static str]> {
    let kind = KINDS.iter().position(|it| *it == kind).unwrap();
    let step = COMMANDS.len() / usize::try_from(H9_COMMANDS.number()).unwrap();
    let first = (kind + name) % step;
    COMMANDS.into_iter().skip(first).step_by(step)
}

/// A file outside of `.rlm` that must not change.
struct Target {
    path: PathBuf,
    dangling: PathBuf,
}

impl Target {
    fn new(scene: &Scene) -> Self {
        let path = scene.sandbox.home().join("precious");
        fs_err::write(&path, "precious").unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        Self {
            dangling: path.with_extension("none"),
            path,
        }
    }

    /// Returns the shell commands that replace `$1` with a file of this kind.
    fn plant(&self, kind: &str) -> String {
        let plant = match kind {
            "link" => format!("ln -s {} \"$1\"", self.path.display()),
            "dangling" => format!("ln -s {} \"$1\"", self.dangling.display()),
            "fifo" => "mkfifo \"$1\"".into(),
            "device" => "mknod \"$1\" c 1 5".into(),
            _ => "truncate -s 20G \"$1\"".into(),
        };
        format!("mkdir -p \"$(dirname \"$1\")\"; rm -rf \"$1\"; {plant}")
    }

    #[track_caller]
    fn unharmed(&self, when: &str) {
        assert_eq!(
            fs_err::read_to_string(&self.path).unwrap(),
            "precious",
            "{when}"
        );
        let mode = fs_err::metadata(&self.path).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o644, "{when}");
        assert!(!self.dangling.exists(), "{when}");
    }
}

#[track_caller]
fn shell(scene: &Scene, script: &str, arguments: &[&str]) {
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-ec", script, "sh"]).args(arguments);
    let status = command.current_dir(scene.file(".")).status();
    assert!(status.unwrap().success(), "{script} {arguments:?}");
}

fn once(scene: &Scene, id: &str) -> Ended {
    let words = ["run", "--run-id", id, "-n", "1", "-p", PROMPT, "--", "true"];
    scene.rlm(&words).run(LONG)
}

/// Returns the names of all files that a run leaves in `.rlm`, and more.
fn names(scene: &Scene) -> Vec<String> {
    let state = scene.file(".rlm");
    let (mut names, mut due) = (
        MORE_NAMES.map(ToOwned::to_owned).to_vec(),
        vec![state.clone()],
    );
    while let Some(directory) = due.pop() {
        for entry in fs_err::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&state).unwrap();
            names.push(name.to_str().unwrap().to_owned());
            if path.is_dir() {
                due.push(path);
            }
        }
    }
    names.sort();
    names
}

/// Puts one kind of file at each name, before commands and during a run. Each command may take ten times the promised 2 s before the test
/// kills it. Returns the combinations, and the slowest one.
fn table(kind: &str) -> String {
    if kind == "device" && !rustix::process::geteuid().is_root() {
        return "skipped: only root can make devices".into();
    }
    let scene = Scene::new("");
    let target = Target::new(&scene);
    let plant = target.plant(kind);
    once(&scene, "base").expect_code(0);
    shell(&scene, "cp -a .rlm ../kept", &[]);
    let beginning = Instant::now();
    let (mut slowest, mut count) = ((Duration::ZERO, String::new()), 0);
    let mut tried = |when: String, command: Rlm<'_>| {
        let began = Instant::now();
        let _any_code = command.run(LONG);
        let took = (began.elapsed(), when);
        count += 1;
        target.unharmed(&took.1);
        let used = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
        assert!(used < MEMORY, "{used} KiB after {}", took.1);
        if took.0 > slowest.0 {
            slowest = took;
        }
    };
    for (number, name) in names(&scene).into_iter().enumerate() {
        let path = format!(".rlm/{name}");
        shell(&scene, "rm -rf .rlm ../exported; cp -a ../kept .rlm", &[]);
        shell(&scene, &plant, &[&path]);
        for words in commands(kind, number) {
            tried(format!("{kind} at {name}: {words:?}"), scene.rlm(words));
        }
        shell(&scene, "rm -rf .rlm; cp -a ../kept .rlm", &[]);
        let path = path.replace("/base", "/mid");
        let words = [
            "run", "--sleep", "0", "--run-id", "mid", "-n", "1", "-p", PROMPT, "--", "sh", "-ec",
            &plant, "sh", &path,
        ];
        tried(format!("{kind} at {path} in mid-run"), scene.rlm(&words));
        let resume = ["resume", "mid", "--no-input"];
        tried(format!("{kind} at {path}: {resume:?}"), scene.rlm(&resume));
    }
    let all = beginning.elapsed();
    format!("{kind}: {count} commands in {all:?}; slowest {slowest:?}")
}

#[test]
fn each_command_is_tested_with_each_kind_and_name() {
    let of = |kind: &str, name| commands(kind, name).collect::<Vec<_>>();
    for command in COMMANDS {
        for kind in KINDS {
            assert!((0..8).any(|name| of(kind, name).contains(&command)));
        }
        for name in 0..8 {
            assert!(KINDS.iter().any(|kind| of(kind, name).contains(&command)));
        }
    }
}

#[test]
fn h1_h2_h9_no_command_follows_a_planted_link() {
    println!("{}", table("link"));
}

#[test]
fn h1_h2_h9_no_command_creates_the_target_of_a_dangling_link() {
    println!("{}", table("dangling"));
}

#[test]
fn h9_no_command_waits_for_a_planted_fifo() {
    println!("{}", table("fifo"));
}

#[test]
fn h9_no_command_reads_a_planted_device() {
    println!("{}", table("device"));
}

#[test]
fn h9_no_command_reads_a_planted_sparse_file() {
    println!("{}", table("sparse"));
}

#[test]
fn h1_detached_run_does_not_write_through_a_link_at_its_output_path() {
    let scene = Scene::new("");
    let target = Target::new(&scene);
    let script = format!(
        "f=.rlm/runs/d/output.log; rm -f $f; ln -s {} $f; for i in 1 2 3 4 5 6; do echo '; id; #'; sleep 0.5; done; touch planted",
        target.path.display()
    );
    let words = [
        "run", "--detach", "--run-id", "d", "-n", "2", "-p", PROMPT, "--", "sh", "-c",
    ];
    scene.rlm(&words).args([script]).run(LONG).expect_code(0);
    scene.wait_for_file("planted");
    target.unharmed("in mid-run");
    scene.rlm(&["stop", "d", "--now"]).run(LONG);
    scene.wait_until_nothing_is_alive();
    target.unharmed("at the end");
}

#[test]
fn h2_w19_links_of_a_clone_are_not_followed_and_files_are_private() {
    for name in ["holder.new", ".gitignore", "holder.json"] {
        let scene = Scene::new("");
        let target = Target::new(&scene);
        fs_err::create_dir(scene.file(".rlm")).unwrap();
        for kind in ["link", "dangling"] {
            shell(&scene, &target.plant(kind), &[&format!(".rlm/{name}")]);
            once(&scene, kind).expect_code(0);
            target.unharmed(name);
        }
        let mut due = vec![scene.file(".rlm")];
        while let Some(path) = due.pop() {
            let meta = fs_err::symlink_metadata(&path).unwrap();
            if !meta.is_symlink() {
                assert_eq!(meta.mode() & 0o077, 0, "{}", path.display());
            }
            if meta.is_dir() {
                due.extend(
                    fs_err::read_dir(&path)
                        .unwrap()
                        .map(|it| it.unwrap().path()),
                );
            }
        }
    }
}

#[test]
fn h10_state_tracked_by_git_is_refused_with_a_hint() {
    let scene = Scene::new("");
    once(&scene, "nightly").expect_code(0);
    scene.sandbox.git(&["add", "-f", ".rlm"]);
    let start = [
        "run",
        "--resume-or-start",
        "--run-id",
        "nightly",
        "-p",
        PROMPT,
        "-n",
        "1",
        "--",
        "true",
    ];
    for words in [
        &start[..],
        &["run", "-p", PROMPT, "--once", "--", "true"],
        &["resume", "nightly"],
    ] {
        let refused = scene.rlm(words).run(LONG).expect_code(2);
        assert!(
            refused.stderr.contains("rm -r -q --cached .rlm"),
            "{refused}"
        );
    }
    scene.sandbox.git(&["rm", "-r", "-q", "--cached", ".rlm"]);
    scene.rlm(&start).run(LONG).expect_code(0);
}

#[test]
fn h4_state_and_settings_of_another_user_need_a_trusted_project() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give files away");
        return;
    }
    for name in [".rlm", "rlm.toml"] {
        let scene = Scene::new("");
        let path = scene.file(name);
        match name {
            ".rlm" => fs_err::create_dir(&path).unwrap(),
            _ => fs_err::write(&path, "").unwrap(),
        }
        chown(&path, Some(65534), Some(65534)).unwrap();
        let refused = once(&scene, "r1").expect_code(2).stderr;
        for part in [
            "belongs to",
            "65534",
            "chown -R 0",
            "safe-directories",
            name,
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert_eq!(refused.trim().lines().count(), 1, "{refused}");
        let settings = scene.sandbox.home().join(".config/rlm");
        fs_err::create_dir_all(&settings).unwrap();
        let root = fs_err::canonicalize(scene.file(".")).unwrap();
        let line = format!("safe-directories = [\"{}\"]\n", root.display());
        fs_err::write(settings.join("config.toml"), line).unwrap();
        once(&scene, "r2").expect_code(0);
    }
}

#[test]
fn h4_runs_of_another_user_are_read_in_a_trusted_project_only() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give files away");
        return;
    }
    let scene = Scene::new("");
    once(&scene, "r1").expect_code(0);
    let mut give = std::process::Command::new("chown");
    let given = give.args(["-R", "65534:65534"]).arg(scene.file(".rlm"));
    assert!(given.status().unwrap().success());
    let words: [&[&str]; 3] = [
        &["status", "r1"],
        &["logs", "r1"],
        &["resume", "r1", "-n", "2"],
    ];
    for words in words {
        let refused = scene.rlm(words).run(LONG).expect_code(2);
        assert!(refused.stderr.contains("belongs to"), "{refused}");
    }
    let settings = scene.sandbox.home().join(".config/rlm");
    fs_err::create_dir_all(&settings).unwrap();
    let root = fs_err::canonicalize(scene.file(".")).unwrap();
    let above = root.parent().unwrap();
    let here = root.display().to_string();
    let trusted = [here, format!("{}/*", above.display()), "*".into()];
    // Each resume needs one more iteration: a finished plan can't be resumed.
    for (trusted, most) in trusted.into_iter().zip(["2", "3", "4"]) {
        let line = format!("safe-directories = [\"{trusted}\"]\n");
        fs_err::write(settings.join("config.toml"), line).unwrap();
        for words in words {
            let words = words.iter().map(|it| if *it == "2" { most } else { it });
            scene
                .rlm(&words.collect::<Vec<_>>())
                .run(LONG)
                .expect_code(0);
        }
    }
}

/// Moves the state away and another directory into its place. `rlm` can write its state again between the two commands, and then they are repeated.
fn replace_with(other: &str) -> String {
    format!(
        "while test -e {other}; do mv .rlm .rlm2.$((n += 1)); mv {other} .rlm; test ! -e .rlm/{other} || mv .rlm/{other} .; done"
    )
}

#[test]
fn h12_x128e_moved_state_directory_is_rebuilt_without_following_links() {
    let run = |deed: &str| {
        let scene = Scene::new("");
        let words = [
            "run", "--sleep", "0", "--run-id", "r", "-n", "3", "-p", PROMPT, "--", "sh", "-c",
        ];
        let deed = format!("test $RLM_ITERATION = 2 || exit 0; {deed}");
        let ended = scene.rlm(&words).args([deed]).run(LONG);
        (scene, ended)
    };
    for deed in ["mv .rlm .rlm2; mkdir -p .rlm", "mv .rlm .rlm2"] {
        let (scene, ended) = run(deed);
        let ended = ended.expect_code(0);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(
            said.contains("was replaced by another directory"),
            "{deed}: {said}"
        );
        let status = scene.status();
        assert_eq!(status["iterations_complete"], 3, "{deed}: {status}");
    }
    // A copy of the store looks like the store of another writer.
    let (_scene, ended) = run(&format!("cp -a .rlm c; {}", replace_with("c")));
    for part in [
        "can't be saved",
        "a copy or a backup was put in its place",
        "move them away",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {ended}");
    }
    ended.expect_code(1);
    if rustix::process::geteuid().is_root() {
        let (scene, ended) = run(&format!("mkdir c; chown 65534 c; {}", replace_with("c")));
        assert!(ended.code() != Some(0), "{ended}");
        for part in ["something else is in its place", "belongs to", "65534"] {
            assert!(ended.stderr.contains(part), "{part}: {ended}");
        }
        assert_eq!(fs_err::read_dir(scene.file(".rlm")).unwrap().count(), 0);
    } else {
        println!("skipped: only root can give directories away");
    }
    let (scene, ended) = run(
        "mkdir other; until test -L .rlm; do mv .rlm .rlm2.$((n += 1)); ln -s other .rlm; done",
    );
    assert!(ended.code() != Some(0), "{ended}");
    assert!(ended.stderr.contains(".rlm"), "{ended}");
    assert_eq!(fs_err::read_dir(scene.file("other")).unwrap().count(), 0);
}
