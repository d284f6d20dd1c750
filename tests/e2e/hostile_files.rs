//! Files below `.rlm` that an agent, a repository or another user planted: nothing outside is written, nothing hangs, nothing grows.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rlm_tests::Ended;

use crate::LONG;
use crate::scene::{PROMPT, Scene, text};

/// What is put in the place of a file.
const KINDS: [&str; 5] = ["link", "dangling", "fifo", "zero", "sparse"];
/// Far less than the gigabytes that a read of `/dev/zero` takes, as address space in KiB.
const MEMORY: &str = "ulimit -v 1500000; exec \"$0\" \"$@\"";

/// A scene with a file outside of `.rlm` that must stay as it is.
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

    fn plant(&self, kind: &str, at: &Path) {
        let _none = fs_err::remove_file(at);
        let _none = fs_err::remove_dir_all(at);
        match kind {
            "link" => symlink(&self.path, at).unwrap(),
            "dangling" => symlink(&self.dangling, at).unwrap(),
            "zero" => symlink("/dev/zero", at).unwrap(),
            "fifo" => {
                let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                rustix::fs::mkfifoat(rustix::fs::CWD, at, mode).unwrap();
            }
            _ => fs_err::File::create(at).unwrap().set_len(20 << 30).unwrap(),
        }
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

fn command(scene: &Scene, words: &[&str]) -> Ended {
    let rlm = env!("CARGO_BIN_EXE_rlm-under-test");
    let shell = scene.sandbox.rlm("/bin/sh").args(["-c", MEMORY, rlm]);
    shell.args(words).run(LONG)
}

fn once(scene: &Scene, id: &str) -> Ended {
    let words = ["run", "--run-id", id, "-n", "1", "-p", PROMPT, "--", "true"];
    command(scene, &words)
}

#[test]
fn h1_h2_h9_no_planted_file_is_followed_waited_for_or_read_whole_by_any_command() {
    let scene = Scene::new("");
    let target = Target::new(&scene);
    let beginning = Instant::now();
    once(&scene, "base").expect_code(0);
    let state = scene.file(".rlm");
    let kept = scene.sandbox.home().join("kept");
    let copy = |from: &Path, to: &Path| {
        let _none = fs_err::remove_dir_all(to);
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .args([from, to])
            .status();
        assert!(copied.unwrap().success());
    };
    copy(&state, &kept);
    let mut names: Vec<String> = vec![
        ".gitignore".into(),
        "holder.json".into(),
        "holder.new".into(),
    ];
    let files = fs_err::read_dir(state.join("runs/base")).unwrap();
    names.extend(files.map(|it| {
        format!(
            "runs/base/{}",
            text(&it.unwrap().file_name().to_str().into())
        )
    }));
    for name in [
        "survivors",
        "output.log",
        "control.sock",
        "scratch",
        "transcripts/1-1.ndjson",
        "transcripts/removed.json",
    ] {
        names.push(format!("runs/base/{name}"));
    }
    let commands: [&[&str]; 12] = [
        &["status"],
        &["status", "base", "--json"],
        &["logs", "base"],
        &["report", "base", "-o", "-"],
        &["ps"],
        &["checkpoints", "list"],
        &["checkpoints", "verify"],
        &["stop", "base"],
        &["steer", "base", "hello"],
        &["clean", "--yes", "--days", "9"],
        &["resume", "base", "--no-input"],
        &["config", "show"],
    ];
    let (mut slowest, mut plants) = (Duration::ZERO, 0);
    // Each kind meets each command at several names, and each name each kind.
    for (turn, kind) in KINDS.iter().enumerate() {
        for (number, name) in names.iter().enumerate() {
            target.plant(kind, &state.join(name));
            plants += 1;
            let words = commands[(turn * 5 + number) % commands.len()];
            for words in [words, &["logs", "base"], &["status", "base"]] {
                let began = Instant::now();
                let _any_code = command(&scene, words);
                slowest = slowest.max(began.elapsed());
                target.unharmed(&format!("{kind} at {name}: {words:?}"));
            }
            if number == 0 {
                let began = Instant::now();
                once(&scene, &format!("new-{turn}"));
                slowest = slowest.max(began.elapsed());
                target.unharmed(&format!("{kind} at {name}: run"));
            }
            copy(&kept, &state);
        }
    }
    println!(
        "{plants} plants, slowest command {slowest:?}, all {:?}",
        beginning.elapsed()
    );
}

#[test]
fn h1_a_detached_run_does_not_write_through_a_link_in_the_place_of_its_output() {
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
fn h2_w19_links_of_a_clone_are_not_followed_and_all_is_private() {
    for name in ["holder.new", ".gitignore", "holder.json"] {
        let scene = Scene::new("");
        let target = Target::new(&scene);
        fs_err::create_dir(scene.file(".rlm")).unwrap();
        for kind in ["link", "dangling"] {
            target.plant(kind, &scene.file(".rlm").join(name));
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
fn h10_state_that_git_tracks_is_refused_with_the_command_that_ends_it() {
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
fn h4_state_and_settings_of_another_user_are_refused_unless_the_user_trusts_the_project() {
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
    for trusted in [here, format!("{}/*", above.display()), "*".into()] {
        let line = format!("safe-directories = [\"{trusted}\"]\n");
        fs_err::write(settings.join("config.toml"), line).unwrap();
        for words in words {
            scene.rlm(words).run(LONG).expect_code(0);
        }
    }
}

#[test]
fn h12_x128e_a_state_directory_that_was_moved_is_rebuilt_and_a_link_is_not_followed() {
    let run = |deed: &str| {
        let scene = Scene::new("");
        let words = [
            "run", "--sleep", "0", "--run-id", "r", "-n", "3", "-p", PROMPT, "--", "sh", "-c",
        ];
        let deed = format!("test $RLM_ITERATION = 2 || exit 0; {deed}");
        let ended = scene.rlm(&words).args([deed]).run(LONG);
        (scene, ended)
    };
    for deed in ["mv .rlm .rlm2; mkdir .rlm", "mv .rlm .rlm2"] {
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
    // A copy of the store can't be told from another writer's.
    let (_scene, ended) = run("cp -a .rlm c; mv .rlm .rlm2; mv c .rlm");
    assert!(ended.stderr.contains("can't be saved"), "{ended}");
    ended.expect_code(1);
    let (scene, ended) = run("mkdir other; mv .rlm .rlm2; ln -s other .rlm");
    assert!(ended.code() != Some(0), "{ended}");
    assert!(ended.stderr.contains(".rlm"), "{ended}");
    assert_eq!(fs_err::read_dir(scene.file("other")).unwrap().count(), 0);
}
