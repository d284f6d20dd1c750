//! A transferred run, or a transfer in progress, blocks other commands.

use rustix::process::Signal;

use crate::LONG;
use crate::scene::{Scene, expect_in_order, stop};

/// Runs the command of a scheduler, with or without a name.
fn job(scene: &Scene, name: Option<&str>) -> rlm_tests::Ended {
    let name = name.map(|name| ["--run-id", name]);
    let name: Vec<&str> = name.into_iter().flatten().collect();
    let again = ["-n", "2", "--until", "false", "--resume-or-start"];
    scene.run(&[&again[..], &name].concat()).run(LONG)
}

fn export(scene: &Scene, run: &str) {
    let file = format!("../{run}.tar.zst");
    let export = [
        "checkpoints",
        "export",
        run,
        "--allow-dirty",
        "-o",
        file.as_str(),
    ];
    scene.rlm(&export).run(LONG).expect_code(0);
}

#[test]
fn x112c_transferred_run_blocks_a_new_run() {
    for signal in [Signal::TERM, Signal::INT] {
        let scene = Scene::new("@2 print ready\n@2 hang");
        let run = ["-n", "2", "--until", "false", "--run-id", "r1"];
        stop(scene.ready(&run), signal);
        export(&scene, "r1");
        let resumed = scene.rlm(&["resume", "r1"]).run(LONG).expect_code(2);
        for name in [None, Some("r1")] {
            let refused = job(&scene, name).expect_code(2);
            let words = [
                "`r1` was transferred to `",
                "r1.tar.zst` at 20",
                "resume r1 --force",
            ];
            expect_in_order(&refused.stderr, &words);
            assert_eq!(refused.stderr, resumed.stderr);
        }
        assert_eq!((scene.start_count(), scene.statuses().len()), (2, 1));
        // After a person explicitly starts a new run here, the scheduler continues that run.
        scene.run(&["--once"]).run(LONG).expect_code(0);
        job(&scene, None).expect_code(3);
    }
}

#[test]
fn x112c_refused_take_back_leaves_the_run_transferred() {
    let scene = Scene::new("@1 print ready\n@1 hang");
    stop(scene.ready(&["-n", "2", "--run-id", "r1"]), Signal::INT);
    export(&scene, "r1");
    let resume = |more: &[&str]| scene.rlm(&[&["resume", "r1"], more].concat()).run(LONG);
    fs_err::write(scene.file("rlm.toml"), "sleep = [").unwrap();
    resume(&["--force"]).expect_code(2);
    fs_err::remove_file(scene.file("rlm.toml")).unwrap();
    resume(&["--force", "--agent-bin", "/nowhere/agent"]).expect_code(2);
    let refused = resume(&[]).expect_code(2);
    expect_in_order(
        &refused.stderr,
        &["was transferred to", "resume r1 --force"],
    );
    assert_eq!(scene.start_count(), 1);
    resume(&["--force"]).expect_code(0);
    resume(&[]).expect_code(2);
    assert_eq!(scene.status()["state"], "ended");
}

#[test]
fn x112c_run_that_ended_before_its_export_is_not_reported_as_ended_here() {
    let scene = Scene::new("print done");
    job(&scene, Some("r1")).expect_code(3);
    export(&scene, "r1");
    let refused = job(&scene, Some("r1")).expect_code(2);
    expect_in_order(
        &refused.stderr,
        &["was transferred to", "resume r1 --force"],
    );
    assert_eq!(refused.stdout, "");
    // The run had ended, so nothing continues elsewhere.
    job(&scene, None).expect_code(3);
}

/// If the import ignored presses, its wait for input would last until the shutdown deadline.
#[cfg(target_os = "linux")]
#[test]
fn x112f_press_ends_import_that_waits_for_input() {
    let scene = Scene::new("print never");
    let pipe = scene.file("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for signal in [Signal::INT, Signal::TERM] {
        let import = scene.rlm(&["checkpoints", "import", "pipe"]);
        let running = import.env("RLM_SHUTDOWN_TIMEOUT", "600s").spawn();
        crate::scene::wait_until_caught(&running, signal);
        stop(running, signal);
        scene.expect_nothing_alive();
    }
}

#[test]
fn x112h_import_of_existing_run_gives_hint() {
    let scene = Scene::new("@1 print ready\n@1 hang");
    stop(scene.ready(&["-n", "2", "--run-id", "r1"]), Signal::INT);
    export(&scene, "r1");
    fs_err::create_dir(scene.sandbox.path().join("other")).unwrap();
    let import = |more: &[&str]| {
        let import = ["-C", "../other", "checkpoints", "import", "../r1.tar.zst"];
        scene.rlm(&[&import, more].concat()).run(LONG)
    };
    import(&[]).expect_code(0);
    let refused = import(&[]).expect_code(2);
    let words = ["already exists", "--copy", ": rlm -C ../other resume r1\n"];
    expect_in_order(&refused.stderr, &words);
    // An option that the error doesn't mention doesn't help either.
    assert!(!refused.stderr.contains("choose"), "{refused}");
    let refused = import(&["--run-id", "r2"]).expect_code(1);
    assert!(refused.stderr.contains("so it keeps its name"), "{refused}");
}
