//! `rlm demo` from start to end, without an account, as a new user runs it.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use rlm_tests::{Ended, Rlm, Sandbox};
use rustix::process::Signal;

use crate::scene::{expect_in_order, stop};
use crate::{LONG, RLM};

struct Demo {
    sandbox: Sandbox,
    place: PathBuf,
}

impl Demo {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        Self {
            place: sandbox.path().join("a demo"),
            sandbox,
        }
    }

    fn demo(&self) -> Rlm<'_> {
        let demo = self.sandbox.rlm(RLM).args(["demo", "--dir"]);
        demo.args([&self.place])
    }

    /// Prepares `rlm -C PLACE ARGUMENTS`.
    fn there(&self, arguments: &[&str]) -> Rlm<'_> {
        let rlm = self.sandbox.rlm(RLM).args(["-C"]).args([&self.place]);
        rlm.args(arguments)
    }

    fn passes(&self) -> bool {
        let mut check = Command::new("sh");
        let check = check.arg("check.sh").current_dir(&self.place).output();
        check.unwrap().status.success()
    }

    fn commits(&self) -> Vec<String> {
        let place = self.place.to_str().unwrap();
        let log = self
            .sandbox
            .git(&["-C", place, "log", "--reverse", "--format=%s"]);
        log.lines().map(str::to_owned).collect()
    }

    /// Runs a printed command, as a person who copies it would.
    #[track_caller]
    fn copied(&self, command: &str) -> Ended {
        let bin = self.sandbox.path().join("bin");
        if !bin.exists() {
            fs_err::create_dir(&bin).unwrap();
            symlink(RLM, bin.join("rlm")).unwrap();
        }
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let sh = self.sandbox.rlm("/bin/sh").args(["-c", command]);
        // A demo that continues takes as long as a reader needs.
        sh.env("PATH", path).run(LONG * 3)
    }
}

#[test]
fn the_demo_runs_to_its_end_and_its_commands_work() {
    let demo = Demo::new();
    let ended = demo.demo().run(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "iteration 1",
            "printed 'IIII' instead of 'IV'",
            "iteration 2",
            "roman.sh 0 was not refused",
            "iteration 3",
            "check passed",
            "done",
            "See what happened:",
        ],
    );
    assert!(!ended.stdout.contains("iteration 4"), "{ended}");
    assert!(!ended.stdout.contains("Ctrl-C while"), "{ended}");
    assert!(demo.passes());
    assert_eq!(demo.commits().len(), 4);
    let printed: Vec<&str> = ended
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| line.starts_with("git -C ") || line.starts_with("rlm -C "))
        .collect();
    assert_eq!(printed.len(), 3, "{ended}");
    for (command, expected) in printed.iter().zip(["900:CM", "done", "I add such pairs"]) {
        let shown = demo.copied(command).expect_code(0).stdout;
        assert!(shown.contains(expected), "{command}: {shown}");
    }
    assert!(demo.sandbox.survivors().scan().is_empty());
}

#[test]
fn demo_creates_its_own_directory_and_keeps_it() {
    let sandbox = Sandbox::new();
    let ended = sandbox.rlm(RLM).args(["demo"]).run(LONG).expect_code(0);
    let temporary = sandbox.path().join("tmp");
    let mut kept = fs_err::read_dir(temporary).unwrap();
    let place = kept.next().unwrap().unwrap().path();
    assert!(place.join("roman.sh").exists());
    assert!(
        ended
            .stdout
            .contains(&format!("rlm -C {}", place.display())),
        "{ended}"
    );
}

#[test]
fn interrupted_demo_resumes_and_repeats_nothing() {
    let demo = Demo::new();
    let mut running = demo.demo().args(["--pace", "50ms"]).spawn();
    running.until("the text of the second iteration", LONG, |running| {
        running
            .stdout()
            .contains("This is a new session")
            .then_some(())
    });
    stop(running, Signal::TERM);
    assert!(!demo.passes());
    let ended = demo.there(&["resume"]).run(LONG).expect_code(0);
    assert!(!ended.stdout.contains("── iteration 1"), "{ended}");
    assert!(demo.passes());
    assert_eq!(demo.commits().len(), 4);
    assert!(demo.sandbox.survivors().scan().is_empty());
}

#[test]
fn demo_can_be_steered_detached_and_attached_again() {
    let demo = Demo::new();
    let (running, terminal) = demo.demo().spawn_on_terminal();
    terminal.sees("Press Enter to begin.", LONG);
    assert!(!terminal.scrolled().contains("iteration 1"));
    terminal.send("\r");
    terminal.sees("There is no roman.sh yet", LONG);
    terminal.send(b"\x03");
    terminal.sees("save and exit", LONG);
    terminal.send("s");
    terminal.sees("steer>", LONG);
    terminal.send("use tabs\r");
    terminal.sees("You wrote: “use tabs”", LONG);
    // The next session reads it from the file.
    terminal.sees("NOTES.md says “use tabs”", LONG);
    terminal.send(b"\x03");
    terminal.sees("save and exit", LONG);
    terminal.send("x");
    running.wait(LONG).expect_code(7);
    let printed = terminal.scrolled();
    let go_on = "Continue where it stopped:\n  ";
    let at = printed.find(go_on).unwrap_or_else(|| panic!("{printed}")) + go_on.len();
    let command = printed[at..].lines().next().unwrap();
    demo.copied(command).expect_code(0);
    assert!(demo.passes());
    let (commits, mut different) = (demo.commits(), demo.commits());
    different.sort_unstable();
    different.dedup();
    assert_eq!(commits.len(), different.len(), "{commits:?}");
    let notes = fs_err::read_to_string(demo.place.join("NOTES.md")).unwrap();
    assert_eq!(notes, "- use tabs\n");
}

#[test]
fn demo_at_its_limit_prints_a_resume_command_that_works() {
    let demo = Demo::new();
    let mut running = demo.demo().args(["--pace", "50ms"]).spawn();
    running.until("the agent's text", LONG, |running| {
        running.stdout().contains("There is no").then_some(())
    });
    let set = ["set", "max-iterations=1"];
    demo.there(&set).run(LONG).expect_code(0);
    let ended = running.wait(LONG).expect_code(3);
    let place = format!("rlm -C '{}' resume ", demo.place.display());
    let told: Vec<&str> = ended
        .stdout
        .lines()
        .filter(|line| line.contains(" resume "))
        .collect();
    assert_eq!(
        told.len(),
        3,
        "the banner, the end, and the last lines: {ended}"
    );
    assert!(told[1].contains("; to continue: "), "{ended}");
    assert!(told.iter().all(|line| line.contains(&place)), "{ended}");
    let more = told[2].replace("MORE", "20");
    demo.copied(more.trim()).expect_code(0);
    assert!(demo.passes());
}

#[test]
fn demo_refuses_a_directory_with_files() {
    let demo = Demo::new();
    fs_err::create_dir(&demo.place).unwrap();
    fs_err::write(demo.place.join("mine"), "").unwrap();
    let ended = demo.demo().run(LONG).expect_code(2);
    assert!(ended.stderr.contains("is not empty"), "{ended}");
    assert_eq!(fs_err::read_dir(&demo.place).unwrap().count(), 1);
}

#[test]
fn demo_without_git_states_what_is_missing() {
    let demo = Demo::new();
    let ended = demo.demo().env("PATH", "/nowhere").run(LONG).expect_code(2);
    assert!(ended.stderr.contains("needs git"), "{ended}");
    assert!(!demo.place.exists());
}
