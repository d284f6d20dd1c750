//! Several phases, each with its own agent, and reviews between them.

use rlm_tests::agent::FakeAgent;
use rlm_tests::{Rlm, Terminal, poll_until, wait_for};
use std::time::Duration;

use crate::menu::{MENU, PRESS};
use crate::presses::pause;
use crate::scene::{Scene, crash, events, expect_in_order, says, text};
use crate::{FAKE_AGENT, LONG};

/// A text in every review prompt.
const ASKS: &str = "finished: review it";

/// A project whose `rlm.toml` has three phases: a command, then Claude Code, then Codex.
struct Pipeline {
    scene: Scene,
    plan: FakeAgent,
    build: FakeAgent,
    check: FakeAgent,
}

impl Pipeline {
    /// Creates the project; `more` comes before the phases.
    fn new(more: &str, plan: &str, build: &str) -> Self {
        let scene = Scene::new("");
        let agent = |name: &str, script: &str| {
            FakeAgent::new(FAKE_AGENT, scene.sandbox.path().join(name), script)
        };
        let plan = agent("plan", plan);
        let build = agent("build", build);
        let check = agent("check", "say all is well");
        let env = |agent: &FakeAgent| {
            let [record, script] = agent.variables();
            format!(
                "{{ {} = {:?}, {} = {:?} }}",
                record.0, record.1, script.0, script.1
            )
        };
        let phase = |name: &str, rest: String| {
            format!("[[phase]]\nname = '{name}'\nprompt = 'Do the {name}.'\n{rest}\n")
        };
        let plan_phase = format!("command = {:?}\nmax-iterations = 1", plan.argv());
        let driven = |agent: &str, env: String, limit: u32| {
            format!(
                "agent = '{agent}'\nagent-bin = {FAKE_AGENT:?}\nmax-iterations = {limit}\n{agent} = {{ env = {env} }}"
            )
        };
        let phases = [
            phase("plan", plan_phase),
            phase("build", driven("claude", env(&build), 2)),
            phase("check", driven("codex", env(&check), 1)),
        ];
        let file = format!("sleep = 0\n{more}\n{}", phases.concat());
        fs_err::write(scene.file("rlm.toml"), file).unwrap();
        Self {
            scene,
            plan,
            build,
            check,
        }
    }

    fn plain() -> Self {
        Self::new("", "print the plan is 42", "run true\nsay built {start}")
    }

    fn run(&self, arguments: &[&str]) -> Rlm<'_> {
        self.scene.rlm(&["run"]).args(arguments)
    }

    /// Returns the prompts of the plan, of the build and of the check.
    fn received_messages(&self) -> [Vec<String>; 3] {
        let starts = self.plan.starts().into_iter();
        let told = |agent: &FakeAgent| -> Vec<String> {
            let messages = agent.messages().into_iter();
            messages.map(|message| message.text).collect()
        };
        [
            starts
                .map(|start| start.stdin.unwrap_or_default())
                .collect(),
            told(&self.build),
            told(&self.check),
        ]
    }

    fn counts(&self) -> [usize; 3] {
        self.received_messages().map(|told| told.len())
    }

    /// Waits until the agents were started this often.
    fn wait_for(&self, counts: [usize; 3]) {
        wait_for(
            format_args!("{counts:?}, it is {:?}", self.counts()),
            LONG,
            || (self.counts() == counts).then_some(()),
        );
    }
}

/// Presses a key after the prompt was visible long enough to read.
fn answer(terminal: &Terminal, key: &str) {
    terminal.sees(ASKS, LONG);
    assert!(poll_until(Duration::from_millis(700), || None::<()>).is_none());
    terminal.send(key);
    terminal.sees_no(ASKS, LONG);
}

#[test]
fn x119a_x119b_each_phase_has_its_agent_prompt_and_previous_result() {
    let pipeline = Pipeline::plain();
    let ended = pipeline.run(&["--json"]).run(LONG).expect_code(0);
    let [plan, build, check] = pipeline.received_messages();
    assert_eq!(plan, ["Do the plan."]);
    assert_eq!(build.len(), 2);
    for told in &build {
        let before = "the final message of phase `plan`:\nthe plan is 42";
        assert!(
            told.contains(before) && told.ends_with("Do the build."),
            "{told}"
        );
    }
    assert!(
        check[0].contains("the final message of phase `build`") && check[0].contains("built 2")
    );
    assert!(!check[0].contains("the plan is 42"), "{}", check[0]);
    let of = |name: &str| {
        let phases = events(&ended.stdout).into_iter();
        let phases = phases.filter(|event| event["event"] == name);
        phases
            .map(|event| text(&event["phase"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("phase_started"), ["plan", "build", "check"]);
    assert_eq!(of("phase_ended"), ["plan", "build"]);
    assert_eq!(pipeline.plan.starts()[0].env["RLM_PHASE"], "plan");
    let status = pipeline.scene.status();
    assert_eq!(
        (&status["phase"], &status["phase_number"]),
        (&"check".into(), &3.into())
    );
    let done = status["finished"].as_array().unwrap();
    assert_eq!(done.len(), 3, "{status}");
}

#[test]
fn x119c_resume_after_a_crash_continues_in_the_second_phase() {
    let build = "@1 say ready\n@1 hang\n@2.. run true\n@2.. say built {start}";
    let pipeline = Pipeline::new("", "print the plan is 42", build);
    let mut running = pipeline.run(&[]).spawn();
    says(&mut running, "ready");
    crash(running);
    let scene = &pipeline.scene;
    scene.wait_until_nothing_is_alive();
    let ps = scene.rlm(&["checkpoints", "list"]).run(LONG).expect_code(0);
    expect_in_order(
        &ps.stdout,
        &["phase build (2 of 3)", "phase plan finished", "done"],
    );
    let resumed = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    let shown = [
        "phase build (2 of 3) at iteration 1",
        "phase build (2 of 3)",
    ];
    expect_in_order(&resumed.stdout, &shown);
    let [plan, build, check] = pipeline.received_messages();
    assert_eq!((plan.len(), build.len(), check.len()), (1, 3, 1));
    let words = ["the loop's process died", "the plan is 42", "Do the build."];
    expect_in_order(&build[1], &words);
}

#[test]
fn x119b_x119d_phase_errors_are_kept_and_failed_plan_has_no_result() {
    let wrong = "@1 exit 3\nprint the plan is 42";
    let pipeline = Pipeline::new("", wrong, "run true\nsay built {start}");
    pipeline.run(&["-n", "2"]).run(LONG).expect_code(0);
    let status = pipeline.scene.status();
    let errors = &status["finished"][0]["errors"];
    assert_eq!(errors[0]["iteration"], 1, "{status}");
    let shown = pipeline.scene.rlm(&["status"]).run(LONG).stdout;
    expect_in_order(
        &shown,
        &["phase plan: all its iterations ran", "error, iteration 1"],
    );

    let pipeline = Pipeline::new("", "exit 3", "say built");
    pipeline.run(&[]).run(LONG).expect_code(1);
    assert_eq!(pipeline.counts(), [1, 0, 0]);
}

#[test]
fn x120a_x120b_x120c_x120d_each_choice_of_the_phase_review_works() {
    let pipeline = Pipeline::plain();
    let (running, terminal) = pipeline.run(&[]).spawn_on_terminal();
    terminal.sees("phase `plan` (1 of 3) finished: review it", LONG);
    let shown = terminal.scrolled();
    expect_in_order(
        &shown,
        &[
            "the plan is 42",
            "iteration 1 complete",
            "finished: review it",
        ],
    );
    assert_eq!(pipeline.counts(), [1, 0, 0]);
    answer(&terminal, "r");
    terminal.send("shorter, please\r");
    pipeline.wait_for([2, 0, 0]);
    answer(&terminal, "o");
    pipeline.wait_for([3, 0, 0]);
    answer(&terminal, "c");
    terminal.sees("phase `build` (2 of 3) finished", LONG);
    answer(&terminal, "x");
    running.wait(LONG).expect_code(7);
    let [plan, build, check] = pipeline.received_messages();
    assert!(plan[1].contains("the person who runs the loop: shorter, please"));
    assert_eq!(plan[2], "Do the plan.", "it starts over");
    assert_eq!((build.len(), check.len()), (2, 0));
    // The resume repeats the review, and this time nobody can answer it.
    let status = pipeline.scene.rlm(&["status"]).run(LONG).stdout;
    expect_in_order(
        &status,
        &["stopped", "resume", "phase `build` (2 of 3) finished"],
    );
    let back = pipeline.scene.rlm(&["resume", "--from", "1"]);
    let refused = back.run(LONG).expect_code(2).stderr;
    expect_in_order(&refused, &["is between two phases", "start it over"]);
    let (resumed, terminal) = pipeline.scene.rlm(&["resume"]).spawn_on_terminal();
    answer(&terminal, "\r");
    resumed.wait(LONG).expect_code(0);
    assert_eq!(pipeline.counts(), [3, 2, 1]);
}

#[test]
fn x120e_a_person_can_close_the_menu_and_answer_from_another_terminal() {
    let pipeline = Pipeline::plain();
    let (running, terminal) = pipeline.run(&[]).spawn_on_terminal();
    answer(&terminal, "\x1b");
    terminal.sees("waits for your approval", LONG);
    let scene = &pipeline.scene;
    assert_eq!(
        (&scene.status()["state"], &scene.status()["review"]),
        (&"paused".into(), &"phase".into())
    );
    let ps = scene.rlm(&["ps"]).run(LONG).expect_code(0);
    expect_in_order(&ps.stdout, &["PHASE", " build ", "waits for your approval"]);
    scene.rlm(&["steer", "with tabs"]).run(LONG).expect_code(0);
    pipeline.wait_for([2, 0, 0]);
    wait_for("the message", LONG, || {
        pipeline.received_messages()[0][1]
            .contains("with tabs")
            .then_some(())
    });
    // The menu opens again, and closes when another terminal has answered.
    terminal.sees(ASKS, LONG);
    scene.rlm(&["resume"]).run(LONG).expect_code(0);
    terminal.sees("phase `build` (2 of 3) finished", LONG);
    pipeline.wait_for([2, 2, 0]);
    // A press opens the Ctrl-C menu as usual, and another one stops the run.
    terminal.send(PRESS);
    pause();
    terminal.sees(MENU, LONG);
    terminal.send(PRESS);
    running
        .wait(LONG)
        .expect_signal(rustix::process::Signal::INT);
}

#[test]
fn s23a_s23b_a_batch_asks_after_n_iterations_and_full_never() {
    let pipeline = Pipeline::new("autonomy = 'batch:2'", "print 42", "run true\nsay built");
    let (running, terminal) = pipeline.run(&[]).spawn_on_terminal();
    terminal.sees("iteration 1 of phase `build` (2 of 3) ends a batch", LONG);
    assert_eq!(pipeline.counts(), [1, 1, 0]);
    assert!(poll_until(Duration::from_millis(700), || None::<()>).is_none());
    terminal.send("c");
    running.wait(LONG).expect_code(0);
    assert_eq!(pipeline.counts(), [1, 2, 1]);
    assert_eq!(
        terminal.scrolled().matches("the batch is finished").count(),
        1
    );

    let pipeline = Pipeline::plain();
    let full = pipeline.run(&["--autonomy", "full"]);
    let (running, terminal) = full.spawn_on_terminal();
    running.wait(LONG).expect_code(0);
    assert!(!terminal.scrolled().contains("review it"));
}

#[test]
fn s23e_without_a_terminal_nothing_waits_for_an_answer() {
    for autonomy in ["checkpoint", "batch:1"] {
        let pipeline = Pipeline::plain();
        let ended = pipeline
            .run(&["--autonomy", autonomy])
            .run(LONG)
            .expect_code(0);
        assert!(!ended.stdout.contains("review it"), "{}", ended.stdout);
        assert_eq!(pipeline.counts(), [1, 2, 1]);
    }
    let pipeline = Pipeline::plain();
    let (running, terminal) = pipeline.run(&["--no-input"]).spawn_on_terminal();
    running.wait(LONG).expect_code(0);
    assert!(!terminal.scrolled().contains("waits for your approval"));
    let refused = pipeline
        .run(&["--autonomy", "batch:0"])
        .run(LONG)
        .expect_code(2);
    assert!(refused.stderr.contains("at least 1"), "{}", refused.stderr);
}

#[test]
fn file_change_applies_to_later_phases_and_raises_no_limit() {
    let pipeline = Pipeline::new("", "print planned\nawait go", "run true\nsay built {start}");
    let scene = &pipeline.scene;
    let running = pipeline.run(&["--no-input"]).spawn();
    wait_for("the plan", LONG, || {
        (!pipeline.plan.starts().is_empty()).then_some(())
    });
    let set = ["set", "check-timeout=9m", "max-failures=5"];
    let told = scene.rlm(&set).run(LONG).expect_code(0).stdout;
    expect_in_order(
        &told,
        &["in effect: check timeout", "changes only phase plan"],
    );
    let whole = ["set", "max-failures=6"];
    let told = scene.rlm(&whole).run(LONG).expect_code(0).stdout;
    assert!(!told.contains("phase"), "{told}");
    let file = fs_err::read_to_string(scene.file("rlm.toml")).unwrap();
    // One iteration less in `build`, and one more in `check`.
    let file = file.replace("sleep = 0", "sleep = 0\ncheck-timeout = '7m'");
    let (build, check) = file.rsplit_once("max-iterations = 1").unwrap();
    let build = build.replace("max-iterations = 2", "max-iterations = 1");
    let file = format!("{build}max-iterations = 3{check}");
    fs_err::write(scene.file("rlm.toml"), file).unwrap();
    fs_err::write(scene.file("go"), "").unwrap();
    let ended = running.wait(LONG).expect_code(0);
    expect_in_order(
        &ended.stdout,
        &[
            "warning: ignored the changed setting `iterations: 3`",
            "phase plan: changed: check timeout: 7m",
            "phase build: changed: iterations: 1",
            "phase build: changed: check timeout: 7m",
            "phase check: changed: check timeout: 7m",
            "phase build",
        ],
    );
    assert_eq!(pipeline.counts(), [1, 1, 1]);
}

/// A detached run prompts the attached viewer. A viewer who detaches without an answer has not agreed: the review stays open, and the next question
/// waits.
#[test]
fn permission_stays_open_after_last_viewer_leaves() {
    let pipeline = Pipeline::new("", "print planned\nawait go", "run true\nsay built {start}");
    let scene = &pipeline.scene;
    pipeline.run(&["--detach"]).run(LONG).expect_code(0);
    wait_for("the plan", LONG, || {
        (!pipeline.plan.starts().is_empty()).then_some(())
    });
    let (watching, terminal) = scene.rlm(&["attach"]).spawn_on_terminal();
    terminal.sees("attached to run", LONG);
    fs_err::write(scene.file("go"), "").unwrap();
    terminal.sees(ASKS, LONG);
    assert_eq!(scene.status()["state"], "paused");
    assert_eq!(pipeline.counts(), [1, 0, 0]);
    drop(terminal);
    watching.wait(LONG);
    let told = scene.rlm(&["resume"]).run(LONG).expect_code(0);
    assert!(told.stdout.contains("continues"), "{told}");
    pipeline.wait_for([1, 2, 1]);
    wait_for("the end of the run", LONG, || {
        (scene.status()["state"] != "running").then_some(())
    });
}
