//! Checks of the agent of `rlm` itself: the scenarios of the other agents, as far as they concern an agent without a process.

use fs_err as fs;
use rustix::process::Signal;

use super::acp::{DEFAULT, runs, services, sessions, stops};
use super::real::{API, RealAgent};
use super::scene::{Check, LiveScene, RUN, expect, say};

/// Defines the checks by name. Each check gets its own scene.
macro_rules! of_this {
    ($($name:literal => $check:path,)*) => {
        [$((API, concat!("api: ", $name), |rlm, agent| {
            $check(&LiveScene::of(RealAgent::Api, rlm, agent, DEFAULT))
        })),*]
    };
}

/// The checks by the word that selects the agent, and by name.
pub(super) const CHECKS: [(&str, &str, Check); 15] = of_this! {
    "three iterations" => runs::iterations,
    "one session over three iterations" => runs::continued,
    "an interrupt in its text, then a message" => runs::interrupted,
    "an interrupt in its tool, then a message" => runs::interrupted_in_a_tool,
    "a steer --now while its text streams" => runs::at_once,
    "a steer into its running tool" => steered,
    "its permissions, by --permissions" => runs::permissions,
    "a permission request, answered by a person" => runs::asked,
    "kill -9 of rlm in its tool, then a resume" => sessions::killed,
    "a session that no longer exists" => sessions::lost,
    "SIGTERM to rlm in a stubborn tool" => stops::stopped,
    "a leftover of its tool" => leftover,
    "429 once" => services::limited_once,
    "an endless 429" => services::limited,
    "401: its key is refused" => services::refused,
};

fn steered(scene: &LiveScene) -> String {
    let prompt =
        "Make it. [[sh touch begun; while ! test -e go; do sleep 0.05; done]] [[text never]]";
    let (running, terminal) = scene.watched(prompt, &["--once", "--permissions", "all"]);
    scene.wait_for_file("begun");
    say(&terminal, "use tabs");
    terminal.sees("recorded", RUN);
    fs::write(scene.file("go"), "").unwrap();
    running.wait(RUN).expect_code(0);
    let requests = scene.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    expect(&requests[1], &["Make it.", "touch begun", "use tabs"]);
    let shown = terminal.scrolled();
    assert!(shown.contains("seen by the agent"), "{shown}");
    "in the same turn, after the tool's result".into()
}

/// The tool itself ends what its command left.
fn leftover(scene: &LiveScene) -> String {
    let prompt = "Work. [[sh setsid sleep 602 >/dev/null 2>&1 & touch begun]] [[slow 50 60]]";
    let running = scene
        .run(prompt, &["--once", "--permissions", "all"])
        .spawn();
    scene.until_requests(2);
    let left = scene.named("sleep");
    assert!(left.is_empty(), "{left:?}");
    expect(
        &scene.requests()[1],
        &["processes that the command left behind were ended"],
    );
    running.signal(Signal::TERM);
    running.wait(RUN).expect_signal(Signal::TERM);
    scene.expect_nothing_alive();
    "it ended with its call, and the model got its name".into()
}
