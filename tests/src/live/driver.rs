//! Checks without a command of `rlm`: the driver alone.

use std::path::Path;

use agent_drivers::claude::ClaudeDriver;
use agent_duplex::{Connection, Driver as _, Event, Message, Permissions, SessionChoice};
use agent_subprocess::ProcessContext;

use super::scene::{LiveScene, RUN};

pub(super) fn model(rlm: &Path, agent: &Path) -> String {
    let scene = LiveScene::new(rlm, agent);
    let variables = scene.environment();
    let context = ProcessContext {
        cwd: scene.sandbox.repo(),
        env: variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        ..ProcessContext::new("", scene.sandbox.path().join("scratch"))
    };
    let driver = ClaudeDriver::new(vec![agent.join("claude").into()], context)
        .permissions(Permissions::Edits)
        .model("claude-first-1");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let refused = runtime.block_on(async {
        let talk = async {
            let mut claude = driver.connect(SessionChoice::Fresh).await.unwrap();
            turn(&mut *claude, "One. [[text First.]]").await;
            let second = Some("claude-second-2".into());
            let mut changing = claude.set_model(second).await.unwrap();
            let changed = loop {
                tokio::select! {
                    changed = &mut changing => break changed,
                    seen = claude.next() => assert!(seen.is_some(), "it ended"),
                }
            };
            changed.unwrap();
            turn(&mut *claude, "Two. [[text Second.]]").await;
            let report = claude.stop(RUN / 12).await;
            assert!(report.survivors.is_empty(), "{report:?}");
        };
        tokio::time::timeout(RUN, talk).await.is_err()
    });
    assert!(!refused, "it took longer than {RUN:?}");
    let requests = scene.requests();
    let models: Vec<&str> = requests
        .iter()
        .map(|request| request.model.as_str())
        .collect();
    assert_eq!(models, ["claude-first-1", "claude-second-2"]);
    format!("{models:?} in one process and session")
}

async fn turn(claude: &mut dyn Connection, text: &str) {
    claude.send(Message::new(text)).await.unwrap();
    while let Some(seen) = claude.next().await {
        if seen
            .events
            .iter()
            .any(|event| matches!(event, Event::TurnCompleted(_)))
        {
            return;
        }
    }
    panic!("it ended");
}
