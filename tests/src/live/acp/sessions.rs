//! Checks of sessions that are resumed, or no longer exist.

use std::time::Instant;

use fs_err as fs;
use rustix::process::Signal;

use crate::live::real::RealAgent;
use crate::live::scene::ACP_RUN;
use crate::live::scene::{BOUND, Elapsed, LiveScene, expect};
use crate::wait_for;

/// Starts a run with `--session continue`, and kills it during its only turn.
fn cut(scene: &LiveScene) -> (usize, Elapsed) {
    let tool = "touch begun; test -e cut || sleep 604";
    let prompt = format!("Remember blue. [[sh {tool}]] [[text It is done.]]");
    let arguments = ["--once", "--permissions", "all", "--session", "continue"];
    let mut running = scene.run(&prompt, &arguments).spawn();
    scene.wait_for_file("begun");
    if scene.real == RealAgent::Api {
        // rlm reports the call after the save that its agent answered, and the agent can be faster.
        running.until("the report of the tool", ACP_RUN, |running| {
            running.stdout().contains("bash: touch begun").then_some(())
        });
    }
    let before = scene.alive().len();
    running.signal(Signal::KILL);
    let killed = Instant::now();
    running.wait(ACP_RUN).expect_signal(Signal::KILL);
    wait_for("the guard", BOUND * 10, || {
        scene.alive().is_empty().then_some(())
    });
    fs::write(scene.file("cut"), "").unwrap();
    (before, Elapsed::since(killed))
}

pub(in crate::live) fn killed(scene: &LiveScene) -> String {
    let (before, gone) = cut(scene);
    let ended = scene.rlm(&["resume"]).run(ACP_RUN).expect_code(0);
    assert!(ended.stdout.contains("It goes on."), "{ended}");
    let requests = scene.requests();
    let last = &requests[requests.len() - 1];
    let told = { last.items.iter() }.filter(|item| item.text.contains("Remember blue."));
    assert_eq!(told.count(), 1, "the prompt was sent once: {last:#?}");
    assert!(last.turn > 1, "{last:#?}");
    let knows = last.items.iter().any(|item| item.kind == "tool_use");
    format!(
        "{before} processes gone after {gone}; one session; it has the unfinished call: {knows}"
    )
}

pub(in crate::live) fn lost(scene: &LiveScene) -> String {
    cut(scene);
    let home = |store: &str| scene.sandbox.home().join(store);
    let store = match scene.real {
        RealAgent::Gemini => home(".gemini/tmp"),
        RealAgent::Opencode => home(".local/share/opencode"),
        RealAgent::Api => {
            let runs = fs::read_dir(scene.file(".rlm/runs")).unwrap();
            let run = { runs.map(|run| run.unwrap().path()) }.find(|path| path.is_dir());
            run.expect("there is one run").join("sessions")
        }
        _ => home(".claude/projects"),
    };
    fs::remove_dir_all(store).unwrap();
    let ended = scene.rlm(&["resume"]).run(ACP_RUN).expect_code(0);
    let says = "the session no longer exists; a fresh session gets the prompt";
    assert!(ended.stdout.contains(says), "{ended}");
    let requests = scene.requests();
    let last = &requests[requests.len() - 1];
    expect(last, &["Remember blue.", "touch begun"]);
    assert_eq!(last.turn, 1, "{last:#?}");
    "rlm reports it, and a fresh session got the prompt".into()
}

pub(in crate::live) fn handed_over(scene: &LiveScene) -> String {
    let other = match scene.real {
        RealAgent::ClaudeAcp => RealAgent::Gemini,
        _ => RealAgent::ClaudeAcp,
    };
    let folder = match crate::live::install::present(other.program()) {
        Ok(folder) => folder,
        Err(reason) => return format!("impossible: {reason}"),
    };
    cut(scene);
    other.prepare(&scene.sandbox, &scene.model);
    let resume = scene.rlm(&["resume"]).args(other.arguments());
    let variables = other.variables(&folder, &scene.model).into_iter();
    let resume = variables.fold(resume, |rlm, (name, value)| rlm.env(name, value));
    let ended = resume.run(ACP_RUN).expect_code(0);
    let line = { ended.stdout.lines() }.find(|line| line.contains("without its session"));
    let line = line.unwrap_or_else(|| panic!("{ended}"));
    let requests = scene.requests();
    let last = &requests[requests.len() - 1];
    assert_eq!(last.turn, 1, "{last:#?}");
    expect(last, &["another agent (", "touch begun"]);
    scene.expect_nothing_alive();
    format!("{line:?}")
}
