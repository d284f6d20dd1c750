//! Checks of real Claude Code in a loop: a whole run, and a run that is killed and resumed.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use fs_err as fs;
use rustix::process::Signal;

use super::real::RealAgent;
use super::scene::{BOUND, Check, RUN};
use crate::model::FakeModel;
use crate::{Rlm, Sandbox, poll_until};

/// The checks by name. A check panics, or returns its findings.
pub(super) const CHECKS: [(&str, Check); 2] = [
    ("three iterations of claude", three_iterations),
    (
        "kill -9 of rlm while claude's tool runs, then resume",
        killed_and_resumed,
    ),
];

const AGENT: [&str; 6] = [
    "claude",
    "-p",
    "--output-format",
    "stream-json",
    "--verbose",
    "--dangerously-skip-permissions",
];
const UNTIL: &str = "test $(wc -l < progress.txt) -ge 3";
/// The tool writes its attempt, so that the result shows which attempts counted.
const LINE: &str = "echo $RLM_ITERATION $RLM_ATTEMPT >> progress.txt";

fn three_iterations(rlm: &Path, agent: &Path) -> String {
    let (sandbox, model) = (Sandbox::new(), FakeModel::start(""));
    fs::write(
        sandbox.repo().join("PROMPT.md"),
        format!("Do the next step. [[sh {LINE}]] [[text It is done.]]\n"),
    )
    .unwrap();
    run(&sandbox, rlm, agent, &model).run(RUN).expect_code(0);
    assert_eq!(iterations(&sandbox), ["1", "2", "3"]);
    assert_eq!(sessions(&model), 3, "{:?}", model.requests());
    "three lines, three sessions".into()
}

fn killed_and_resumed(rlm: &Path, agent: &Path) -> String {
    let (sandbox, model) = (Sandbox::new(), FakeModel::start(""));
    // The first attempt of the second iteration hangs in its tool. A file in the working tree records that.
    let tool = format!(
        "if [ -s progress.txt ] && [ ! -e cut ]; then echo $RLM_ATTEMPT > cut; sleep 600; fi; {LINE}"
    );
    fs::write(
        sandbox.repo().join("PROMPT.md"),
        format!("Do the next step. [[sh {tool}]] [[text It is done.]]\n"),
    )
    .unwrap();
    let mut running = run(&sandbox, rlm, agent, &model).spawn();
    let cut = sandbox.repo().join("cut");
    let hanging = || {
        sandbox
            .survivors()
            .scan()
            .iter()
            .any(|process| process.name == "sleep")
    };
    running.until("hanging tool", RUN, |_| {
        (cut.exists() && hanging()).then_some(())
    });

    let before = sandbox.survivors().scan().len();
    running.signal(Signal::KILL);
    let killed = Instant::now();
    running.wait(RUN).expect_signal(Signal::KILL);
    let gone = poll_until(BOUND * 10, || {
        sandbox
            .survivors()
            .scan()
            .is_empty()
            .then(|| killed.elapsed())
    });
    let gone = gone.unwrap_or_else(|| {
        panic!(
            "alive, of {before} processes: {:?}",
            sandbox.survivors().scan()
        )
    });
    assert_eq!(iterations(&sandbox), ["1"]);

    command(&sandbox, rlm, agent, &model)
        .args(["resume"])
        .run(RUN)
        .expect_code(0);
    assert_eq!(iterations(&sandbox), ["1", "2", "3"]);
    let attempts = column(&sandbox, 1);
    let cut = fs::read_to_string(cut).unwrap();
    assert_ne!(
        attempts[1],
        cut.trim(),
        "the unfinished iteration runs again as a new attempt"
    );
    assert_eq!(sessions(&model), 4, "{:?}", model.requests());
    format!(
        "{before} processes gone {:.2} s after (bound {} s), then three lines in four sessions",
        gone.as_secs_f64(),
        BOUND.as_secs()
    )
}

fn run<'a>(sandbox: &'a Sandbox, rlm: &Path, agent: &Path, model: &FakeModel) -> Rlm<'a> {
    let options = [
        "run",
        "--sleep",
        "0",
        "-P",
        "PROMPT.md",
        "--until",
        UNTIL,
        "--",
    ];
    command(sandbox, rlm, agent, model)
        .args(options)
        .args(AGENT)
}

/// Prepares `rlm` with an environment in which `claude` is found and talks only to the scripted model.
fn command<'a>(sandbox: &'a Sandbox, rlm: &Path, agent: &Path, model: &FakeModel) -> Rlm<'a> {
    let variables = RealAgent::Claude.variables(agent, model).into_iter();
    variables.fold(sandbox.rlm(rlm), |rlm, (name, value)| rlm.env(name, value))
}

fn iterations(sandbox: &Sandbox) -> Vec<String> {
    column(sandbox, 0)
}

fn column(sandbox: &Sandbox, number: usize) -> Vec<String> {
    let progress = fs::read_to_string(sandbox.repo().join("progress.txt")).unwrap_or_default();
    progress
        .lines()
        .map(|line| line.split(' ').nth(number).unwrap_or_default().to_owned())
        .collect()
}

/// Returns the number of conversations that offered tools to the model.
fn sessions(model: &FakeModel) -> usize {
    let requests = model.requests();
    let sessions: BTreeSet<&str> = requests
        .iter()
        .filter(|request| request.tools > 0)
        .map(|request| request.session.as_str())
        .collect();
    sessions.len()
}
