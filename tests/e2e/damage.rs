//! Damaged state: `rlm` reports it, uses or refuses the rest, and deletes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::LONG;
use crate::scene::{PROMPT, Scene, events, expect_in_order, stop, text};

/// A run that was stopped in its fourth iteration, and the path of its state.
struct Stopped {
    scene: Scene,
    run: String,
    folder: PathBuf,
}

impl Stopped {
    fn new() -> Self {
        let scene = Scene::new("print turn {start}\n@4 print ready\n@4 hang");
        stop(scene.ready(&["-n", "5", "--gate", "true"]), Signal::INT);
        let run = scene.run_id();
        let folder = scene.file(".rlm/runs").join(&run);
        Self { scene, run, folder }
    }

    /// Returns the file with the newest state.
    fn journal(&self) -> PathBuf {
        let entries = fs_err::read_dir(&self.folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().path());
        names
            .filter(|path| path.extension().is_some_and(|end| end == "ckj"))
            .max()
            .unwrap()
    }

    /// Changes the bytes of the journal.
    fn damage(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.journal();
        let mut bytes = fs_err::read(&path).unwrap();
        change(&mut bytes);
        fs_err::write(path, bytes).unwrap();
    }

    /// Returns every file of the run, except the lock file, which names the last process.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        collect(&self.folder, &mut found);
        found.remove(&self.folder.join("LOCK"));
        found
    }

    /// Expects that `rlm` reports the damage, refuses the resume, and changes no file.
    fn expect_refused(&self) {
        let before = self.files();
        let status = self
            .scene
            .rlm(&["status", &self.run, "--json"])
            .run(LONG)
            .expect_code(1);
        let status = events(&status.stdout).remove(0);
        assert_eq!(status["state"], "damaged");
        assert!(!status["notes"].as_array().unwrap().is_empty(), "{status}");
        for resume in [&["resume", &self.run][..], &["resume"]] {
            let refused = self.scene.rlm(resume).run(LONG).expect_code(1);
            assert!(
                refused.stderr.contains(&self.run) && refused.stderr.lines().count() == 1,
                "{refused}"
            );
        }
        assert_eq!(self.files(), before);
        assert_eq!(self.scene.start_count(), 4);
        // A new run is independent of it.
        self.scene.run(&["--once"]).run(LONG).expect_code(0);
        assert_eq!(self.files(), before);
    }

    /// Inverts some bytes in the middle, so that complete iterations are lost.
    fn damage_the_middle(&self) {
        self.damage(|bytes| {
            let middle = used(bytes) / 2;
            invert(&mut bytes[middle..middle + 16]);
        });
    }

    /// Resumes to the end of the plan, repeats the lost iterations, and expects that all original bytes still exist in some file.
    fn resume(&self, notes: bool) -> String {
        let before = self.files();
        let status = self
            .scene
            .rlm(&["status", &self.run, "--json"])
            .run(LONG)
            .expect_code(notes.into());
        let status = events(&status.stdout).remove(0);
        assert_eq!(
            !status["notes"].as_array().unwrap().is_empty(),
            notes,
            "{status}"
        );
        assert_eq!(self.files(), before, "the status command changes nothing");
        let mut resume = vec!["resume".to_owned(), self.run.clone()];
        if notes {
            resume.push(self.again());
        }
        let resume: Vec<&str> = resume.iter().map(String::as_str).collect();
        let ended = self.scene.rlm(&resume).run(LONG).expect_code(0);
        let after: Vec<Vec<u8>> = self.files().into_values().collect();
        for (path, bytes) in before.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            assert!(
                after.contains(bytes),
                "{} is missing:\n{ended}",
                path.display()
            );
        }
        assert_eq!(
            self.scene.status()["reason"],
            "finished: all planned iterations ran"
        );
        ended.stdout
    }
}

impl Stopped {
    /// Returns the option that repeats lost iterations, as the refusal names it.
    fn again(&self) -> String {
        let refused = self.scene.rlm(&["resume", &self.run]);
        let refused = refused.run(LONG).expect_code(2).stderr;
        let (_, from) = refused.split_once(" --from ").unwrap();
        format!("--from={}", from.split(' ').next().unwrap())
    }
}

/// Returns the status of a run with data loss.
fn status(scene: &Scene, run: &str) -> serde_json::Value {
    let told = scene.rlm(&["status", run, "--json"]).run(LONG);
    events(&told.expect_code(1).stdout).remove(0)
}

fn collect(folder: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, into);
        } else {
            let bytes = fs_err::read(&path).unwrap();
            into.insert(path, bytes);
        }
    }
}

/// Returns the used length of a journal: it ends in zeros, which reserve space for the next saves.
fn used(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1)
}

fn invert(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte ^= 0xff);
}

#[test]
fn c63b_c63c_damage_in_the_middle_falls_back_to_the_save_before_it() {
    let stopped = Stopped::new();
    stopped.damage_the_middle();
    let said = stopped.resume(true);
    expect_in_order(
        &said,
        &[
            "resuming run",
            "warning: the state is damaged: everything after save ",
            "the transcripts reach iteration 4",
            "wrong checksum",
            "quarantine/progress-",
            "planned",
        ],
    );
    let count = stopped.scene.start_count();
    assert!(count > 5, "the lost iteration runs again");
    let logs = stopped.scene.rlm(&["logs", &stopped.run]);
    let logs = logs.run(LONG).expect_code(0).stdout;
    assert!(
        (1..=count).all(|turn| logs.contains(&format!("turn {turn}\n"))),
        "every attempt has its transcript, {count} turns: {logs}"
    );
}

#[test]
fn c63e_lost_work_is_not_repeated_silently() {
    let stopped = Stopped::new();
    let (scene, run) = (&stopped.scene, stopped.run.as_str());
    stopped.damage_the_middle();
    let before = stopped.files();
    let job = ["--resume-or-start", "--run-id", run];
    for rlm in [
        scene.rlm(&["resume", run]),
        scene.rlm(&["resume", run, "--detach"]),
        scene.run(&job),
    ] {
        let refused = rlm.run(LONG).expect_code(2);
        for words in [
            "everything after save ",
            "the transcripts reach iteration 4",
            &format!("rlm resume {run} --from 4 continues after them"),
            &format!("rlm checkpoints verify {run}"),
        ] {
            assert!(refused.stderr.contains(words), "{words}: {refused}");
        }
    }
    // A dry run reports the same.
    let refused = scene.rlm(&["resume", run]).run(LONG).expect_code(2);
    let dry = scene.rlm(&["resume", run, "--dry-run"]);
    assert_eq!(dry.run(LONG).expect_code(2).stderr, refused.stderr);
    let (from, behind) = (
        stopped.again(),
        format!("rlm resume {run} --from 4 continues"),
    );
    let from = from.replace('=', " ");
    let words = ["asks whether to run iteration", "fails if", &from, &behind];
    expect_in_order(&text(&status(scene, run)["next"]), &words);
    let dry = ["resume", run, "--dry-run", "--from", "4"];
    scene.rlm(&dry).run(LONG).expect_code(0);
    assert_eq!((stopped.files(), scene.start_count()), (before, 4));
    let lost = "the transcripts reach iteration 4";
    let looks = [
        &["status", run][..],
        &["checkpoints", "list", run],
        &["checkpoints", "verify", run],
    ];
    for look in looks {
        let told = scene.rlm(look).run(LONG).expect_code(1);
        assert!(told.stdout.contains(lost), "{told}");
    }
    let resume = ["resume", run, "--from", "4", "--detach"];
    let begun = scene.rlm(&resume).run(LONG).expect_code(0);
    assert!(
        begun.stderr.contains("warning: the state is damaged"),
        "{begun}"
    );
    assert!(begun.stderr.contains("quarantine/progress-"), "{begun}");
    rlm_tests::wait_for("the end of the run", LONG, || {
        (scene.status()["state"] == "ended").then_some(())
    });
    // Only the attempt of the fourth iteration was lost, and `rlm` remembers that.
    assert_eq!(scene.start_count(), 6);
    assert_eq!(scene.status()["iterations_complete"], 5);
    for look in looks {
        let told = scene.rlm(look).run(LONG).expect_code(0);
        assert!(told.stdout.contains(lost), "{told}");
        assert!(
            told.stdout.contains("continued from an older save"),
            "{told}"
        );
    }
}

#[test]
fn c63e_data_loss_is_known_without_transcripts() {
    let stopped = Stopped::new();
    let (scene, run) = (&stopped.scene, stopped.run.as_str());
    let clean = ["clean", run, "--transcripts", "--yes"];
    scene.rlm(&clean).run(LONG).expect_code(0);
    stopped.damage_the_middle();
    let refused = scene.rlm(&["resume", run]).run(LONG).expect_code(2);
    let words = [
        "the transcripts reach iteration 4",
        "--from 4 continues after",
    ];
    expect_in_order(&refused.stderr, &words);
    assert_eq!(scene.start_count(), 4);
}

#[test]
fn c63e_person_is_asked_before_lost_work_is_repeated() {
    let stopped = Stopped::new();
    stopped.damage_the_middle();
    let dry = stopped.scene.rlm(&["resume", &stopped.run, "--dry-run"]);
    let (running, terminal) = dry.spawn_on_terminal();
    terminal.wait_text("asks whether to run iteration", 0, LONG);
    running.wait(LONG).expect_code(0);
    for (answer, code) in [("\r", 2), ("y\r", 0)] {
        let resume = stopped.scene.rlm(&["resume", &stopped.run]);
        let (running, terminal) = resume.spawn_on_terminal();
        terminal.sees("again? [y/N]", LONG);
        assert_eq!(stopped.scene.start_count(), 4);
        terminal.send(answer);
        running.wait(LONG).expect_code(code);
    }
    assert!(stopped.scene.start_count() > 5);
}

#[test]
fn c63c_a_torn_end_falls_back_to_the_save_before_it() {
    for keep in [2, 3] {
        let stopped = Stopped::new();
        stopped.damage(|bytes| bytes.truncate(used(bytes) * keep / 4));
        // The file looks intact, but the transcripts show that it isn't.
        let said = stopped.resume(true);
        expect_in_order(
            &said,
            &["resuming run", "the transcripts reach iteration 4"],
        );
    }
}

#[test]
fn c63c_torn_last_save_loses_no_complete_iteration() {
    let stopped = Stopped::new();
    stopped.damage(|bytes| {
        let end = used(bytes);
        invert(&mut bytes[end - 21..end - 1]);
    });
    let said = stopped.resume(false);
    assert!(said.contains("at iteration 4, unfinished"), "{said}");
    assert_eq!(stopped.scene.start_count(), 6);
}

#[test]
fn c63a_c63d_state_without_a_valid_save_is_refused() {
    let changes: [fn(&mut Vec<u8>); 3] = [
        Vec::clear,
        |bytes| invert(&mut bytes[..8]),
        |bytes| bytes.fill(0),
    ];
    for change in changes {
        let stopped = Stopped::new();
        stopped.damage(change);
        stopped.expect_refused();
    }
}

#[test]
fn c63a_c63d_missing_or_non_file_journal_is_refused() {
    let stopped = Stopped::new();
    let journal = stopped.journal();
    fs_err::remove_file(&journal).unwrap();
    stopped.expect_refused();
    let stopped = Stopped::new();
    let journal = stopped.journal();
    fs_err::remove_file(&journal).unwrap();
    fs_err::create_dir(&journal).unwrap();
    stopped.expect_refused();
}

#[test]
fn journal_and_prompt_are_enough_to_resume() {
    let stopped = Stopped::new();
    let journal = stopped.journal();
    for path in stopped.files().into_keys().filter(|path| *path != journal) {
        fs_err::remove_file(path).unwrap();
    }
    assert_eq!(stopped.scene.status()["iteration"], 4);
    fs_err::write(stopped.scene.file("PROMPT.md"), "Another text.\n").unwrap();
    let resume = ["resume", "-P", "PROMPT.md"];
    let ended = stopped.scene.rlm(&resume).run(LONG).expect_code(0);
    assert!(
        ended.stdout.contains("at iteration 4, unfinished"),
        "{ended}"
    );
}

#[test]
fn given_prompt_replaces_a_lost_one() {
    let stopped = Stopped::new();
    fs_err::remove_dir_all(stopped.folder.join("blobs")).unwrap();
    let refused = stopped.scene.rlm(&["resume"]).run(LONG).expect_code(1);
    assert!(
        refused.stderr.contains("--prompt-file"),
        "the error has a hint: {refused}"
    );
    fs_err::write(stopped.scene.file("PROMPT.md"), "Another text.\n").unwrap();
    stopped
        .scene
        .rlm(&["resume", "-P", "PROMPT.md"])
        .run(LONG)
        .expect_code(0);
    let prompts = stopped.scene.prompts();
    assert!(
        prompts[4].ends_with("Another text.\n") && !prompts[4].contains(PROMPT),
        "{prompts:?}"
    );
}

#[test]
fn a_damaged_run_does_not_hide_the_others() {
    let stopped = Stopped::new();
    let good = stopped.run.clone();
    let bad = stopped.scene.file(".rlm/runs/damaged-1");
    fs_err::create_dir(&bad).unwrap();
    fs_err::write(
        bad.join("progress-00000001-0000000000000000.ckj"),
        "no journal",
    )
    .unwrap();
    fs_err::create_dir(stopped.scene.file(".rlm/runs/not a run")).unwrap();
    let statuses = stopped.scene.statuses();
    let states: BTreeMap<String, String> = statuses
        .iter()
        .map(|status| (text(&status["run"]), text(&status["state"])))
        .collect();
    assert_eq!(states.len(), 2, "{states:?}");
    assert_eq!(
        (&*states[&good], &*states["damaged-1"]),
        ("stopped", "damaged")
    );
    stopped.scene.rlm(&["resume"]).run(LONG).expect_code(0);
}

/// CRC-32C, one bit at a time.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let table = |byte: u32| (0..8).fold(byte, |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)));
    let sum = bytes.iter().fold(!0, |crc, byte| {
        (crc >> 8) ^ table((crc ^ u32::from(*byte)) & 0xff)
    });
    !sum
}

#[test]
fn c64a_c64c_state_of_newer_version_is_refused_with_both_versions() {
    let stopped = Stopped::new();
    // The version of the container follows its magic number, the checksum is at the end of the header.
    stopped.damage(|bytes| {
        bytes[8] = 2;
        let sum = crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&sum.to_le_bytes());
    });
    let ended = stopped
        .scene
        .rlm(&["resume", &stopped.run])
        .run(LONG)
        .expect_code(1);
    assert!(
        ended.stderr.contains("version 2") && ended.stderr.contains("up to 1"),
        "{ended}"
    );
    stopped.expect_refused();
}

#[test]
fn x112g_run_with_data_loss_is_not_exported() {
    let stopped = Stopped::new();
    stopped.damage_the_middle();
    let before = stopped.files();
    let words = [
        "checkpoints",
        "export",
        &stopped.run,
        "-o",
        "../x",
        "--state-only",
    ];
    let refused = stopped.scene.rlm(&words).run(LONG).expect_code(2);
    let resume = format!("rlm resume {}", stopped.run);
    expect_in_order(
        &refused.stderr,
        &["has lost data", "resume it here first", &resume],
    );
    assert_eq!(stopped.files(), before);
    assert!(!stopped.scene.sandbox.path().join("x").exists());
}

/// The run used to end as planned, with exit code 0 and without a word; only `status` and `verify` noticed the damage.
#[test]
fn state_that_an_agent_damages_is_reported_at_the_end_of_the_run() {
    let damage = "for f in .rlm/runs/r1/*.ckj; do printf damaged! | dd of=\"$f\" bs=1 seek=200 conv=notrunc 2>/dev/null; done";
    let scene = Scene::new("");
    let run = [
        "run", "-p", "x", "-n", "2", "--sleep", "0", "--run-id", "r1",
    ];
    let agent = ["--", "sh", "-c", damage];
    let ended = scene
        .rlm(&[&run[..], &agent].concat())
        .run(LONG)
        .expect_code(0);
    let says = "warning: the saved state is damaged: ";
    assert!(ended.stderr.contains(says), "{ended}");
    let (_, command) = ended.stderr.trim_end().rsplit_once(": rlm ").unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    let verified = scene.rlm(&words).run(LONG).expect_code(1);
    assert!(verified.stdout.contains("r1"), "{verified}");
    // The control: an agent that leaves the state alone.
    let agent = ["--", "true"];
    let run = ["run", "-p", "x", "--once", "--run-id", "r2"];
    let ended = scene
        .rlm(&[&run[..], &agent].concat())
        .run(LONG)
        .expect_code(0);
    assert!(!ended.stderr.contains("warning"), "{ended}");
}
