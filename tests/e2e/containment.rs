//! The processes that git starts, that a killed guard leaves, and that `/proc` hides: `rlm` ends or names all of them.

use std::path::{Path, PathBuf};

use rlm_tests::wait_for;
use rustix::process::{Pid, Signal, kill_process};

use crate::git::{hook, know_who};
use crate::scene::{PROMPT, Scene};
use crate::{LONG, RLM};

/// Returns the pids in a file that still belong to `sleep NUMBER`.
pub(crate) fn sleeping(pids: &Path, number: &str) -> Vec<i32> {
    let text = fs_err::read_to_string(pids).unwrap_or_default();
    let pids = text.lines().filter_map(|line| line.trim().parse().ok());
    let line = format!("sleep\0{number}\0");
    let is_it = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|it| it == line.as_bytes())
    };
    pids.filter(is_it).collect()
}

fn expect_none(pids: &Path, number: &str, what: &str) {
    let left = sleeping(pids, number);
    for pid in &left {
        let _gone = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
    }
    assert!(left.is_empty(), "left of {what}: {left:?}");
    let met = fs_err::read_to_string(pids).unwrap_or_default();
    assert!(!met.is_empty(), "{what}: nothing was started");
}

/// Returns a command that leaves `sleep NUMBER` in its own session, without an environment, and writes its pid into a file.
fn leaves(pids: &Path, number: &str) -> String {
    format!(
        "setsid env -i sh -c \"echo \\$\\$ >>{}; exec sleep {number}\" </dev/null >/dev/null 2>&1 &",
        pids.display()
    )
}

#[test]
fn h7_git_filter_of_an_agent_leaves_no_process() {
    for (number, attributes, options) in [
        ("6701", ".gitattributes", &["--once"][..]),
        ("6702", ".git/info/attributes", &["--once"]),
        ("6703", ".gitattributes", &["--once", "--commit"]),
    ] {
        let scene = Scene::new("");
        know_who(&scene);
        let pids = scene.sandbox.home().join("pids");
        let filter = format!("{} cat", leaves(&pids, number));
        let filter_file = scene.sandbox.home().join("filter");
        fs_err::write(&filter_file, filter).unwrap();
        // The size stays the same, so git must read the file.
        let script = format!(
            "git config filter.d.clean 'sh {}'; mkdir -p .git/info; echo 'README.md filter=d' >>{attributes}; tr a-z b-za <README.md >x; cat x >README.md; rm x",
            filter_file.display()
        );
        let run = ["run", "--sleep", "0", "--prompt", PROMPT];
        let run = scene.rlm(&[&run[..], options].concat());
        let ended = run
            .args(["--", "sh", "-c", &script])
            .run(LONG)
            .expect_code(0);
        expect_none(&pids, number, attributes);
        assert!(ended.stdout.contains("left running by git"), "{ended}");
    }
}

/// A submodule has its own configuration, which git reads for its status.
#[test]
fn h7_git_filter_of_a_submodule_leaves_no_process() {
    let scene = Scene::new("");
    know_who(&scene);
    let origin = scene.sandbox.path().join("origin");
    scene.sandbox.git(&["init", "-q", "../origin"]);
    fs_err::write(origin.join("file"), "A file of a submodule.\n").unwrap();
    for words in [
        &["-C", "../origin", "add", "."][..],
        &["-C", "../origin", "commit", "-q", "-m", "start"],
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "add",
            "-q",
            "../origin",
            "lib",
        ],
        &["commit", "-q", "-m", "submodule"],
    ] {
        scene.sandbox.git(words);
    }
    let pids = scene.sandbox.home().join("pids");
    let filter = scene.sandbox.home().join("filter");
    fs_err::write(&filter, format!("{} cat", leaves(&pids, "6706"))).unwrap();
    let script = format!(
        "cd lib; git config filter.d.clean 'sh {}'; echo 'file filter=d' >>.gitattributes; tr a-z b-za <file >x; cat x >file; rm x",
        filter.display()
    );
    let run = [
        "run", "--sleep", "0", "--prompt", PROMPT, "--once", "--commit",
    ];
    let run = scene.rlm(&run).args(["--", "sh", "-c", &script]);
    let ended = run.run(LONG).expect_code(0);
    expect_none(&pids, "6706", "a submodule");
    assert!(ended.stdout.contains("left running by git"), "{ended}");
}

#[test]
fn w15_without_commit_no_hook_of_the_repository_runs() {
    for commits in [false, true] {
        let scene = Scene::new("print turn");
        know_who(&scene);
        for name in [
            "post-checkout",
            "reference-transaction",
            "post-index-change",
        ] {
            hook(&scene, name, &format!("echo {name} >>\"$HOME/hooks\""));
        }
        let mut run = vec!["--once", "--worktree", "t", "--run-id", "r1"];
        run.extend(commits.then_some("--commit"));
        let hooks = scene.sandbox.home().join("hooks");
        scene.run(&run).run(LONG).expect_code(0);
        let ran = fs_err::read_to_string(&hooks).unwrap_or_default();
        assert_eq!(ran.contains("post-checkout"), commits, "{ran}");
        assert!(commits || ran.is_empty(), "{ran}");
        if !commits {
            fs_err::write(scene.file(".rlm/worktrees/t/new"), "x").unwrap();
            let archive = scene.sandbox.home().join("r1.tar.zst");
            let export = ["checkpoints", "export", "r1", "--allow-dirty", "-o"];
            let export = scene.rlm(&export).args([&archive]);
            export.run(LONG).expect_code(0);
            assert!(!hooks.exists(), "the export ran a hook");
            let hooks_path = scene.file(".git/hooks").display().to_string();
            scene.sandbox.git(&["clone", "-q", ".", "../other"]);
            let other = ["-C", "../other"];
            let set = [&other[..], &["config", "core.hooksPath", &hooks_path]].concat();
            scene.sandbox.git(&set);
            let import = [&other[..], &["checkpoints", "import"]].concat();
            let import = scene.rlm(&import).args([&archive]);
            import.run(LONG).expect_code(0);
            assert!(!hooks.exists(), "the import ran a hook");
        }
    }
}

#[test]
fn w3_leftovers_of_a_killed_guard_are_ended() {
    let scene = Scene::new("");
    let pids = scene.sandbox.home().join("pids");
    let script = format!(
        "{} until [ -s {} ]; do sleep 0.02; done; kill -9 $PPID; sleep 5",
        leaves(&pids, "6704"),
        pids.display()
    );
    let run = ["run", "--sleep", "0", "--prompt", PROMPT, "--once"];
    let ended = scene.rlm(&run).args(["--", "sh", "-c", &script]).run(LONG);
    expect_none(&pids, "6704", "a killed guard");
    assert_ne!(ended.code(), Some(8), "{ended}");
    let end = "all processes ended, as far as rlm can see";
    assert!(ended.stdout.contains(end), "{ended}");
}

/// A program of root with its full rights, and `hidepid=2`: no other user can see or end it.
#[test]
fn h8_child_hidden_by_proc_is_a_survivor() {
    if let Some(why) = hidden_child("6705", "sleep 1") {
        println!("skipped: {why}");
    }
}

/// `rlm` adopts the child, but can't see it either.
#[test]
fn h8_w3_a_hidden_child_of_a_killed_guard_is_a_survivor() {
    if let Some(why) = hidden_child("6707", "sleep 1; kill -9 $PPID; sleep 5") {
        println!("skipped: {why}");
    }
}

/// Returns the reason if this can't be tested here.
fn hidden_child(number: &str, then: &str) -> Option<&'static str> {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount --make-rprivate / && mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups env -i PATH=\"$PATH\" HOME=\"$PWD\" \"$@\"";
    let hidden = |words: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh"]).args(words);
        command
            .current_dir(folder.path())
            .stdin(std::process::Stdio::null());
        command
    };
    let copy = folder.path().join("becomes-root");
    let which = std::process::Command::new("sh")
        .args(["-c", "command -v setpriv"])
        .output();
    let which = which.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned());
    if fs_err::copy(PathBuf::from(which.unwrap_or_default()), &copy).is_err() {
        return Some("there is no setpriv here");
    }
    let mode = |path: &Path, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs_err::set_permissions(path, mode).unwrap();
    };
    mode(&copy, 0o4755);
    mode(folder.path(), 0o755);
    let work = folder.path().join("work");
    fs_err::create_dir(&work).unwrap();
    let becomes_root = format!("{} --reuid 0 --regid 0 --clear-groups", copy.display());
    let given = std::os::unix::fs::chown(&work, Some(65534), Some(65534));
    let probe = format!("[ \"$({becomes_root} id -ru)\" = 0 ] && ! [ -e /proc/1 ]");
    let works = hidden(&["sh", "-c", &probe]).status();
    if given.is_err() || !works.is_ok_and(|it| it.success()) {
        return Some("needs root, mount namespaces and programs that set their user");
    }
    let rlm = folder.path().join("rlm");
    fs_err::copy(RLM, &rlm).unwrap();
    let agent = format!(
        "{becomes_root} setsid sh -c 'echo $$ >pid; exec sleep {number}' </dev/null >/dev/null 2>&1 & {then}"
    );
    // Root writes the pid into a directory of the other user.
    let words = [
        rlm.to_str().unwrap(),
        "-C",
        work.to_str().unwrap(),
        "run",
        "--once",
        "--prompt",
        "x",
        "--",
    ];
    let ended = hidden(&[&words[..], &["sh", "-c", &agent]].concat())
        .output()
        .unwrap();
    let pids = work.join("pid");
    wait_for("the child", LONG, || pids.exists().then_some(()));
    let alive = sleeping(&pids, number);
    for pid in &alive {
        kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL).unwrap();
    }
    let printed = format!(
        "{}{}",
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr)
    );
    assert_eq!(alive.len(), 1, "the child should have survived: {printed}");
    assert_eq!(ended.status.code(), Some(8), "{printed}");
    assert!(printed.contains(&alive[0].to_string()), "{printed}");
    assert!(printed.contains("not shown by /proc"), "{printed}");
    None
}
