//! The sessions of the agent of rlm itself: they continue after a crash, in a fork, and on another machine.

use std::path::{Path, PathBuf};

use rlm_tests::model::{FakeModel, Request};
use rlm_tests::{Ended, Rlm, Running, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::LONG;
use crate::api::{DIALECTS, KEY, LIBRARY, Scene, check};

/// A step of the task, in the middle of which `rlm` is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tool(&'static str),
    /// The model writes its answer to the next request.
    Stream,
    Check,
}

/// A project whose test fails, and a model that fixes it in four calls.
struct Task {
    scene: Scene,
}

impl Task {
    fn new(dialect: (&str, &str)) -> Self {
        let scene = Scene::with(dialect, FakeModel::start("[[continue 200]]"));
        fs_err::write(scene.sandbox.repo().join("lib.rs"), LIBRARY).unwrap();
        Self { scene }
    }

    /// Returns a file outside of the project.
    fn file(&self, name: &str) -> PathBuf {
        self.scene.sandbox.path().join(name)
    }

    fn make(&self, name: &str) {
        fs_err::write(self.file(name), "").unwrap();
    }

    fn wait_for(&self, name: &str) {
        let file = self.file(name);
        wait_for(name, LONG, || file.exists().then_some(()));
    }

    fn run(&self) -> Running {
        let file = |name: &str| self.file(name).display().to_string();
        // Its effect is a line. It ends at once after the crash.
        let bash = format!(
            "echo ran >> {}; test -e {} || sleep 600",
            file("effects"),
            file("allow")
        );
        let prompt = format!(
            r#"Fix it. [[tool grep {{"pattern":"fn double"}}]] [[tool read {{"path":"lib.rs"}}]]
            [[tool edit {{"path":"lib.rs","old":"n + n + 1","new":"n + n"}}]] [[tool bash {{"command":"{bash}"}}]] [[slow 20 2]]"#
        );
        // It passes only in the resumed run, so that an unfinished iteration isn't complete before its agent continues.
        let until = format!(
            "touch {}; while test -e {}; do :; done; test -e {} && {}",
            file("checking"),
            file("hold"),
            file("allow"),
            check()
        );
        let arguments = [
            "--until",
            &until,
            "-n",
            "3",
            "--max-failures",
            "9",
            "--json",
        ];
        self.scene.run(&prompt, &arguments).spawn()
    }

    fn requests(&self) -> Vec<Request> {
        self.scene.model.requests()
    }

    fn effects(&self) -> usize {
        let effects = fs_err::read_to_string(self.file("effects"));
        effects.unwrap_or_default().lines().count()
    }

    /// Kills a process of the run in the middle of a step. `before` is the number of requests that the model had before `run` started.
    fn kill_in(&self, step: Step, before: usize, mut run: Running) -> Ended {
        match step {
            // The shell creates the file before it writes the line.
            Step::Tool("bash") => wait_for("effect", LONG, || (self.effects() > 0).then_some(())),
            Step::Tool(name) => {
                let started = format!("\"tool\":\"{name}\"");
                run.until(name, LONG, |run| {
                    run.stdout().contains(&started).then_some(())
                });
            }
            Step::Stream => {
                let begun = |_: &Running| (self.requests().len() > before).then_some(());
                run.until("stream", LONG, begun);
            }
            Step::Check => {
                self.make("hold");
                self.make("allow");
                self.wait_for("checking");
            }
        }
        run.signal(Signal::KILL);
        run.wait(LONG).expect_signal(Signal::KILL)
    }

    /// Resumes the run to its end. Its check passes as soon as the agent has continued.
    fn resume(&self) -> Ended {
        let before = self.requests().len();
        let mut run = self.scene.rlm(&["resume", "--json"]).spawn();
        let continued = |_: &Running| (self.requests().len() > before).then_some(());
        run.until("request", LONG, continued);
        self.make("allow");
        run.wait(LONG).expect_code(0)
    }
}

fn evidence(ended: &Ended) -> String {
    let events = Scene::events(ended);
    let evidence = events
        .iter()
        .rev()
        .find_map(|event| event["evidence"].as_str());
    evidence.unwrap_or_default().to_owned()
}

/// Returns the number of the last iteration.
fn iteration(ended: &Ended) -> Option<u64> {
    let events = Scene::events(ended);
    events
        .iter()
        .rev()
        .find_map(|event| event["iteration"].as_u64())
}

#[test]
fn a6_killed_run_continues_its_session_in_the_same_iteration() {
    let steps = [
        Step::Stream,
        Step::Tool("grep"),
        Step::Tool("read"),
        Step::Tool("edit"),
        Step::Tool("bash"),
        Step::Stream,
    ];
    for dialect in DIALECTS {
        let task = Task::new(dialect);
        drop(task.kill_in(steps[0], 0, task.run()));
        for pair in steps.windows(2) {
            let before = task.requests();
            let mut resumed = task.scene.rlm(&["resume", "--json"]).spawn();
            // Only `bash` can have had an effect that nobody knows.
            let unknown = "its outcome is unknown, and the agent won't run it again";
            let is_unknown = pair[0] == Step::Tool("bash");
            if is_unknown {
                resumed.until(unknown, LONG, |run| {
                    run.stdout().contains(unknown).then_some(())
                });
            }
            let killed = task.kill_in(pair[1], before.len(), resumed);
            expect_continued(pair[1], &before, &task.requests());
            assert_eq!(killed.stdout.contains(unknown), is_unknown, "{killed}");
        }
        let before = task.requests();
        let ended = task.resume();
        let requests = task.requests();
        expect_continued(Step::Stream, &before, &requests);
        assert_eq!(evidence(&ended), "check", "{dialect:?}: {ended}");
        assert_eq!(iteration(&ended), Some(1), "{dialect:?}: {ended}");
        assert_eq!(task.effects(), 1, "{dialect:?}: {ended}");
        let shown = format!("{:?}", requests.last().unwrap().items);
        let unknown = "outcome unknown: the agent";
        assert_eq!(shown.matches(unknown).count(), 1, "{dialect:?}: {shown}");
        assert_eq!(shown.matches("Fix it.").count(), 1, "{dialect:?}: {shown}");
        let library = fs_err::read_to_string(task.scene.sandbox.repo().join("lib.rs")).unwrap();
        assert!(library.contains("    n + n\n"), "{library}");
    }
}

/// Checks that the first request of a process continues the last one before it, without the prompt.
fn expect_continued(step: Step, before: &[Request], after: &[Request]) {
    let (last, next) = (before.last().unwrap(), &after[before.len()]);
    let added = next.items.strip_prefix(&*last.items);
    let shown = format!("{:?}", added.unwrap_or_default());
    assert!(
        shown.contains("Continue where you left off.") && !shown.contains("Fix it."),
        "{step:?}: {last:?} and then {next:?}"
    );
}

/// Kills a run whose model never answers, as soon as the server has the next request.
fn kill_before_the_answer(scene: &Scene, rlm: Rlm<'_>) -> Ended {
    let before = scene.model.requests().len();
    let mut run = rlm.spawn();
    let requested = |_: &Running| (scene.model.requests().len() > before).then_some(());
    run.until("request", LONG, requested);
    run.signal(Signal::KILL);
    run.wait(LONG).expect_signal(Signal::KILL)
}

#[test]
fn a6_message_of_a_person_in_an_unanswered_prompt_is_not_repeated() {
    let scene = Scene::with(DIALECTS[0], FakeModel::start("[[hang 600]]"));
    drop(kill_before_the_answer(
        &scene,
        scene.run("Fix it.", &["-n", "3", "--max-failures", "9"]),
    ));
    for feedback in ["mind the docs", "and the tests"] {
        let resume = ["resume", "--feedback", feedback];
        drop(kill_before_the_answer(&scene, scene.rlm(&resume)));
    }
    drop(kill_before_the_answer(&scene, scene.rlm(&["resume"])));
    let requests = scene.model.requests();
    let (first, last) = (&requests[0].items, &requests[3].items);
    assert!(last.starts_with(first), "{first:?} and then {last:?}");
    let shown = format!("{last:?}");
    for text in ["Fix it.", "mind the docs", "and the tests"] {
        assert_eq!(shown.matches(text).count(), 1, "{text}: {shown}");
    }
}

#[test]
fn damaged_session_of_an_unanswered_prompt_is_replaced_and_reported() {
    let scene = Scene::with(DIALECTS[1], FakeModel::start("[[hang 600]]"));
    let run = scene.run("Fix it.", &["-n", "3", "--run-id", "r1"]);
    drop(kill_before_the_answer(&scene, run));
    let session = scene.sandbox.repo().join(".rlm/runs/r1/sessions/1-1");
    for entry in fs_err::read_dir(session).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "ckj") {
            fs_err::write(path, [7; 4096]).unwrap();
        }
    }
    let killed = kill_before_the_answer(&scene, scene.rlm(&["resume", "--json"]));
    let events = Scene::events(&killed);
    let of_kind = |kind: &str| events.iter().filter(|it| it["event"] == kind).count();
    assert_eq!(of_kind("session_lost"), 1, "{killed}");
    assert_eq!(iteration(&killed), Some(1), "{killed}");
    let request = scene.model.requests().pop().unwrap();
    let shown = format!("{:?}", request.items);
    assert!(request.turn == 1 && shown.contains("Fix it."), "{shown}");
}

#[test]
fn a6_resume_names_the_session_that_continues() {
    let task = Task::new(DIALECTS[2]);
    drop(task.kill_in(Step::Tool("bash"), 0, task.run()));
    let ended = task
        .scene
        .rlm(&["resume", "--dry-run"])
        .run(LONG)
        .expect_code(0);
    let resumes = "at iteration 1, unfinished in attempt 1, in session 1-1";
    assert!(ended.stdout.contains(resumes), "{ended}");
}

#[test]
fn a6_killed_check_runs_again_without_the_agent() {
    let task = Task::new(DIALECTS[0]);
    drop(task.kill_in(Step::Check, 0, task.run()));
    fs_err::remove_file(task.file("hold")).unwrap();
    let before = task.requests().len();
    let ended = task
        .scene
        .rlm(&["resume", "--json"])
        .run(LONG)
        .expect_code(0);
    assert_eq!(evidence(&ended), "check", "{ended}");
    assert_eq!(
        task.requests().len(),
        before,
        "no further call of the model"
    );
    assert_eq!(task.effects(), 1);
}

/// The tool kills `rlm` as early as a tool can.
#[test]
fn a6_tool_that_kills_the_run_does_not_run_again() {
    let task = Task::new(DIALECTS[2]);
    let (effects, allow) = (task.file("effects"), task.file("allow"));
    // The parent of the shell is its guard.
    let rlm = "$(cut -d' ' -f4 /proc/$PPID/stat)";
    let command = format!("echo ran >> {}; kill -9 {rlm}", effects.display());
    let prompt = format!(r#"Go. [[tool bash {{"command":"{command}"}}]] [[slow 20 1]]"#);
    let until = format!("test -e {}", allow.display());
    let run = task
        .scene
        .run(&prompt, &["--until", &until, "-n", "2", "--json"]);
    drop(run.run(LONG).expect_signal(Signal::KILL));
    let ended = task.resume();
    assert_eq!(iteration(&ended), Some(1), "{ended}");
    assert_eq!(task.effects(), 1, "{ended}");
    let request = task.requests().pop().unwrap();
    let shown = format!("{:?}", request.items);
    assert!(shown.contains("outcome unknown: the agent"), "{shown}");
}

/// The commits of a run need an identity.
fn with_identity(scene: &Scene) {
    scene.sandbox.git(&["config", "user.name", "A. Tester"]);
    scene
        .sandbox
        .git(&["config", "user.email", "tester@localhost"]);
}

/// Runs iterations in one session. Each one asks for the tool once.
fn continuing(scene: &Scene, run: &str, iterations: &str) {
    let prompt = format!(r#"Next. [[tool bash {{"command":"echo {run} >> work"}}]]"#);
    let arguments = [
        "--session",
        "continue",
        "--commit",
        "--run-id",
        run,
        "-n",
        iterations,
    ];
    drop(scene.run(&prompt, &arguments).run(LONG).expect_code(0));
}

/// Resumes a run for one more iteration, and returns the first request.
fn next_request(scene: &Scene, run: &str, feedback: &str, all: &str) -> Request {
    let before = scene.model.requests().len();
    let resume = scene.rlm(&["resume", run, "-n", all, "--feedback", feedback]);
    drop(resume.run(LONG).expect_code(0));
    scene.model.requests()[before].clone()
}

#[test]
fn a23_fork_continues_a_copy_of_the_conversation_of_its_iteration() {
    let scene = Scene::new(DIALECTS[0]);
    with_identity(&scene);
    continuing(&scene, "r1", "3");
    let requests = scene.model.requests();
    assert_eq!(requests.len(), 6, "two calls for each iteration");
    let fork = [
        "checkpoints",
        "fork",
        "r1",
        "--at",
        "2",
        "--run-id",
        "other",
        "--json",
    ];
    let forked = scene.rlm(&fork).run(LONG).expect_code(0);
    let forked: Value = serde_json::from_str(&forked.stdout).unwrap();
    assert_eq!(forked["notes"], Value::Array(Vec::new()));

    let request = next_request(&scene, "other", "turn left", "3");
    // The third iteration began with the conversation of the first two, and so does the fork.
    let (second, third) = (&requests[3].items, &requests[4].items);
    assert!(request.items.starts_with(second), "{request:?}");
    let answered = third.len() - second.len();
    assert_eq!(
        request.items[..second.len() + answered - 1],
        third[..third.len() - 1]
    );
    // Neither run sees the messages of the other one.
    let request = next_request(&scene, "r1", "turn right", "4");
    let shown = format!("{:?}", request.items);
    assert!(
        shown.contains("turn right") && !shown.contains("turn left"),
        "{shown}"
    );
    assert!(request.items.starts_with(&requests[5].items), "{shown}");
    let request = next_request(&scene, "other", "and left again", "4");
    let shown = format!("{:?}", request.items);
    assert!(
        shown.contains("turn left") && !shown.contains("turn right"),
        "{shown}"
    );
}

#[test]
fn a23_fork_without_the_session_of_its_time_says_so() {
    let scene = Scene::new(DIALECTS[2]);
    with_identity(&scene);
    continuing(&scene, "r1", "1");
    fs_err::remove_dir_all(scene.sandbox.repo().join(".rlm/runs/r1/sessions")).unwrap();
    let fork = [
        "checkpoints",
        "fork",
        "r1",
        "--at",
        "1",
        "--run-id",
        "other",
    ];
    let forked = scene.rlm(&fork).run(LONG).expect_code(0);
    let note = "the session of the agent can't be copied (its state of that time does not exist any more): the fork begins a new one";
    assert!(forked.stdout.contains(note), "{forked}");
    let request = next_request(&scene, "other", "go on", "2");
    assert_eq!(request.turn, 1, "{request:?}");
}

/// Copies the files of a directory into a new one.
fn copy_files(from: &Path, to: &Path) {
    fs_err::create_dir(to).unwrap();
    fs_err::set_permissions(to, fs_err::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs_err::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs_err::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn new_session_does_not_continue_a_planted_one() {
    let scene = Scene::new(DIALECTS[0]);
    let prompt = r#"Next. [[tool bash {"command":"echo planted"}]]"#;
    let run = ["-n", "1", "--run-id", "r1"];
    drop(scene.run(prompt, &run).run(LONG).expect_code(0));
    let sessions = scene.sandbox.repo().join(".rlm/runs/r1/sessions");
    copy_files(&sessions.join("1-1"), &sessions.join("2-1"));
    let before = scene.model.requests().len();
    let resumed = || scene.rlm(&["resume", "r1", "-n", "2"]).run(LONG);
    let refused = resumed();
    assert_ne!(refused.code(), Some(0), "{refused}");
    let why = "session 2-1 can't be created: it exists already";
    assert!(refused.stdout.contains(why), "{refused}");
    // The next attempt has another id.
    resumed().expect_code(0);
    let request = scene.model.requests()[before].clone();
    assert_eq!(request.turn, 1, "{request:?}");
    assert!(sessions.join("2-2").exists());
}

#[test]
fn a23_export_and_import_carry_the_session_and_no_key() {
    let scene = Scene::new(DIALECTS[1]);
    with_identity(&scene);
    continuing(&scene, "r1", "2");
    let last = scene.model.requests().pop().unwrap();
    let archive = scene.sandbox.path().join("run.tar.zst");
    let export = [
        "checkpoints",
        "export",
        "r1",
        "--output",
        archive.to_str().unwrap(),
    ];
    drop(scene.rlm(&export).run(LONG).expect_code(0));
    let bytes = zstd::decode_all(&*fs_err::read(&archive).unwrap()).unwrap();
    let has = |text: &str| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    assert!(has("sessions/1-1/") && !has(KEY));

    let there = scene.sandbox.path().join("there");
    fs_err::create_dir(&there).unwrap();
    let import = ["checkpoints", "import", archive.to_str().unwrap()];
    drop(scene.rlm(&import).dir(&there).run(LONG).expect_code(0));
    let before = scene.model.requests().len();
    let resume = scene.rlm(&["resume", "r1", "-n", "3"]).dir(&there);
    drop(resume.run(LONG).expect_code(0));
    let request = scene.model.requests()[before].clone();
    assert!(request.items.starts_with(&last.items), "{request:?}");
    assert_eq!(
        fs_err::read_to_string(there.join("work")).unwrap(),
        "r1\nr1\nr1\n"
    );
}
