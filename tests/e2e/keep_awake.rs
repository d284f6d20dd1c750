//! `--keep-awake`: a program of the system keeps the computer awake as long as the run lives, and no longer.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rlm_tests::{Rlm, Running, wait_for};
use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, crash, says, stop};

/// Records its arguments and its pid, and becomes its command, as the real program does.
const RECORDS: &str = r#"#!/bin/sh
printf '%s\n' "$@" >"$HOME/arguments"
while case $1 in --*) true ;; *) false ;; esac; do shift; done
echo $$ >"$HOME/pid"
exec "$@"
"#;
const REFUSES: &str = "#!/bin/sh\necho 'Failed to inhibit: no session' >&2\nexit 1\n";

/// Puts this `systemd-inhibit` before all other programs of the machine.
fn with_inhibitor<'a>(rlm: Rlm<'a>, scene: &Scene, script: &str) -> Rlm<'a> {
    let bin = scene.sandbox.home().join("bin");
    fs_err::create_dir_all(&bin).unwrap();
    let program = bin.join("systemd-inhibit");
    fs_err::write(&program, script).unwrap();
    fs_err::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    rlm.env("PATH", format!("{}:{path}", bin.display()))
}

/// Waits until the inhibitor runs, and returns its directory in `/proc`.
fn inhibitor(scene: &Scene, running: &mut Running) -> PathBuf {
    says(running, "ready");
    let pid = wait_for("the inhibitor", LONG, || {
        let pid = fs_err::read_to_string(scene.sandbox.home().join("pid")).ok()?;
        pid.trim().parse::<u32>().ok()
    });
    let process = Path::new("/proc").join(pid.to_string());
    wait_for("its command", LONG, || {
        (fs_err::read(process.join("cmdline")).ok()? == b"cat\0").then_some(())
    });
    process
}

/// Returns the number of warnings about the computer's sleep.
fn warnings(text: &str) -> usize {
    text.matches("the computer may go to sleep").count()
}

#[test]
fn x113j_computer_is_kept_awake_until_the_run_ends() {
    let scene = Scene::new("print ready\nhang");
    fs_err::write(scene.file("rlm.toml"), "keep-awake = true\n").unwrap();
    let run = scene.run(&["--once", "--run-id", "nightly"]);
    let mut running = with_inhibitor(run, &scene, RECORDS).spawn();
    let process = inhibitor(&scene, &mut running);
    let arguments = fs_err::read_to_string(scene.sandbox.home().join("arguments")).unwrap();
    assert_eq!(
        arguments,
        "--what=idle:sleep\n--who=rlm\n--why=run nightly\n--mode=block\ncat\n"
    );
    // It inherits no lock and no socket of the run.
    let mut descriptors: Vec<_> = fs_err::read_dir(process.join("fd"))
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    descriptors.sort();
    assert_eq!(descriptors, ["0", "1", "2"]);
    let ended = stop(running, Signal::TERM);
    assert!(ended.stdout.contains("all processes ended"), "{ended}");
    assert_eq!(warnings(&ended.stdout), 0, "{ended}");
    scene.expect_nothing_alive();
}

#[test]
fn x113j_killed_run_leaves_no_inhibitor() {
    let scene = Scene::new("@1 print ready\n@1 hang\nprint turn");
    let run = scene.run(&["--once", "--keep-awake"]);
    let mut running = with_inhibitor(run, &scene, RECORDS).spawn();
    inhibitor(&scene, &mut running);
    crash(running);
    scene.wait_until_nothing_is_alive();

    // The option isn't saved: a resume without it lets the computer sleep.
    fs_err::remove_file(scene.sandbox.home().join("pid")).unwrap();
    let resume = with_inhibitor(scene.rlm(&["resume"]), &scene, RECORDS);
    resume.run(LONG).expect_code(0);
    assert!(!scene.sandbox.home().join("pid").exists());
}

#[test]
fn x113j_run_without_an_inhibitor_warns_once_and_continues() {
    let scene = Scene::new("print turn {start}");
    let run = scene.run(&["-n", "3"]).env("RLM_KEEP_AWAKE", "true");
    let ended = with_inhibitor(run, &scene, REFUSES)
        .run(LONG)
        .expect_code(0);
    let warning = "the computer may go to sleep: systemd-inhibit: Failed to inhibit: no session (exit status 1); the run continues";
    assert!(ended.stdout.contains(warning), "{ended}");
    assert_eq!(warnings(&ended.stdout), 1, "{ended}");

    // A machine without the program.
    let few = scene.sandbox.home().join("few");
    fs_err::create_dir(&few).unwrap();
    for name in ["git", "sh"] {
        let path = std::env::var("PATH").unwrap();
        let mut places = path.split(':').map(|it| Path::new(it).join(name));
        symlink(places.find(|it| it.exists()).unwrap(), few.join(name)).unwrap();
    }
    let run = scene.run(&["-n", "3", "--keep-awake"]);
    let ended = run.env("PATH", few.to_str().unwrap()).run(LONG);
    let ended = ended.expect_code(0);
    assert_eq!(warnings(&ended.stdout), 1, "{ended}");
    scene.expect_nothing_alive();
}
