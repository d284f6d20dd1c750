//! What is shown with the CLIs that speak the Agent Client Protocol.

use std::path::Path;
use std::time::Instant;

use agent_duplex::{Connection, EndReason, Event, Message, Queued, SessionChoice};
use agent_subprocess::Context;

use super::Check;
use super::checks::RUN;
use super::real::Real;
use super::scene::Scene;
use crate::poll_until;

/// By the agent's program and by name.
pub(super) const CHECKS: [(&str, &str, Check); 4] = [
    (
        "opencode",
        "opencode asks before it does what was not allowed",
        asks,
    ),
    (
        "opencode",
        "opencode's turns, whole and interrupted, by the driver",
        |rlm, agent| turns(&Scene::of(Real::Opencode, rlm, agent, "")),
    ),
    (
        "gemini",
        "gemini's turns, whole and interrupted, by the driver",
        |rlm, agent| turns(&Scene::of(Real::Gemini, rlm, agent, "")),
    ),
    (
        "claude-agent-acp",
        "claude-agent-acp's turns, whole and interrupted, by the driver",
        |rlm, agent| turns(&Scene::of(Real::ClaudeAcp, rlm, agent, "")),
    ),
];

fn asks(rlm: &Path, agent: &Path) -> String {
    let scene = Scene::of(Real::Opencode, rlm, agent, "");
    let deny = ["--once", "--permissions", "deny"];
    let prompt = "Do it. [[sh touch made]] [[text ok]]";
    let ended = scene.run(prompt, &deny).run(RUN).expect_code(0);
    assert!(ended.stdout.contains("denied:"), "{ended}");
    assert!(!scene.file("made").exists(), "{ended}");
    "its shell is denied, which by itself it would not ask for".into()
}

fn turns(scene: &Scene) -> String {
    let mut context = Context::new(scene.sandbox.repo(), scene.sandbox.path().join("scratch"));
    let variables = scene.environment().into_iter();
    context.env = { variables }
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let driver = scene
        .real
        .driver(scene.agent, context, agent_duplex::Permissions::All);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let talk = async {
        let mut agent = driver.connect(SessionChoice::Fresh).await.unwrap();
        let end = turn(
            &mut *agent,
            "Make it. [[sh touch made]] [[text Made.]]",
            |_| false,
        )
        .await;
        assert_eq!(end, EndReason::Completed);
        let talks =
            |event: &Event| matches!(event, Event::TextDelta(text) if text.contains("tok5"));
        let end = turn(&mut *agent, "Write. [[slow 50 60]]", talks).await;
        assert_eq!(end, EndReason::Interrupted);
        let tool = "Wait. [[sh sleep 601]] [[text never]]";
        let runs = |event: &Event| {
            let started = matches!(event, Event::ToolStarted { .. });
            let alive = || (!scene.named("sleep").is_empty()).then_some(());
            started && poll_until(RUN, alive).is_some()
        };
        let end = turn(&mut *agent, tool, runs).await;
        assert_eq!(end, EndReason::Interrupted);
        let gone = scene.gone("sleep", Instant::now());
        let end = turn(&mut *agent, "Last. [[text Gone on.]]", |_| false).await;
        assert_eq!(end, EndReason::Completed);
        let report = agent.stop(RUN / 12).await;
        assert!(report.survivors.is_empty(), "{report:?}");
        gone
    };
    let gone = runtime.block_on(async { tokio::time::timeout(RUN, talk).await });
    let gone = gone.unwrap_or_else(|_| panic!("it took longer than {RUN:?}"));
    scene.expect_nothing_alive();
    assert!(scene.file("made").exists());
    let requests = scene.requests();
    assert_eq!(requests.len(), 5, "{requests:#?}");
    let last = requests[4].items.iter();
    let kept: Vec<_> = ["Write.", "tok3", "Wait."]
        .into_iter()
        .filter(|word| last.clone().any(|item| item.text.contains(word)))
        .collect();
    format!(
        "four turns in one process; the tool was gone {gone} after the turn; of what was interrupted the model is told {kept:?}"
    )
}

/// Has a turn, and interrupts it once at what `when` says.
async fn turn(agent: &mut dyn Connection, text: &str, when: impl Fn(&Event) -> bool) -> EndReason {
    agent.send(Message::new(text)).await.unwrap();
    let mut interrupted = false;
    while let Some(seen) = agent.next().await {
        for event in seen.events {
            if !interrupted && when(&event) {
                interrupted = true;
                agent.interrupt(Queued::Keep).await.unwrap();
            }
            if let Event::TurnCompleted(end) = event {
                return end.reason;
            }
        }
    }
    panic!("it ended");
}
