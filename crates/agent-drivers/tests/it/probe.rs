//! Tests of the queries for version and login, with programs that fail in every way.

use std::time::Duration;

use agent_drivers::acp::AcpPreset;
use agent_drivers::{AgentConfig, AgentOptions, LoggedIn, Probe};
use agent_subprocess::ProcessContext;
use tokio::time::Instant;

use crate::scene::{DEADLINE, Scene, wait_for};

fn claude() -> AgentOptions {
    AgentOptions::Claude(Box::default())
}

fn acp(preset: AcpPreset) -> AgentOptions {
    AgentOptions::Acp {
        preset,
        options: Box::default(),
    }
}

fn every_agent() -> [AgentOptions; 6] {
    [
        claude(),
        AgentOptions::Codex(Box::default()),
        acp(AcpPreset::Gemini),
        acp(AcpPreset::Opencode),
        acp(AcpPreset::Claude),
        acp(AcpPreset::Other),
    ]
}

fn context(scene: &Scene) -> ProcessContext {
    ProcessContext {
        marker: Some(scene.marker.clone()),
        ..ProcessContext::new("/", scene.path("scratch"))
    }
}

fn script(options: AgentOptions, script: &str) -> AgentConfig {
    let argv = ["sh", "-c", script, "sh"];
    AgentConfig::new(options, argv.map(Into::into).into())
}

/// Probes a program, and checks that it leaves no process.
async fn probe(agent: &AgentConfig, time: Duration) -> Probe {
    let scene = Scene::new();
    let deadline = Instant::now() + time;
    let probe = agent.probe(&context(&scene), deadline).await;
    scene.assert_no_process_left();
    probe
}

#[track_caller]
fn failure(probe: &Probe) -> String {
    assert_eq!(probe.login.state, LoggedIn::Unknown, "{probe:?}");
    probe.version.clone().unwrap_err()
}

#[tokio::test]
async fn missing_program_is_the_reason_for_version_and_login() {
    for options in every_agent() {
        let agent = AgentConfig::new(options, vec!["/nowhere/agent".into()]);
        let probe = probe(&agent, DEADLINE).await;
        let why = failure(&probe);
        assert!(why.contains("`/nowhere/agent` does not exist"), "{why}");
        assert_eq!(probe.login.detail, Some(why));
    }
}

#[tokio::test]
async fn hanging_program_is_ended_at_the_deadline() {
    let hangs = "(setsid sleep 600 &); trap '' TERM INT HUP; while :; do sleep 600; done";
    for options in every_agent() {
        let probe = probe(&script(options, hangs), Duration::from_secs(1)).await;
        let why = failure(&probe);
        assert!(why.starts_with("no response within "), "{why}");
    }
}

#[tokio::test]
async fn killed_program_is_reported() {
    let killed = "printf '{\"jsonrpc\":'; kill -KILL $$";
    for options in every_agent() {
        let acp = matches!(
            &options,
            AgentOptions::Acp {
                preset: AcpPreset::Claude | AcpPreset::Other,
                ..
            }
        );
        let why = failure(&probe(&script(options, killed), DEADLINE).await);
        match acp {
            true => assert_eq!(why, "it exited without a response"),
            false => assert!(why.starts_with("`--version` failed: "), "{why}"),
        }
    }
}

#[tokio::test]
async fn endless_output_is_cut_off() {
    let lines = probe(&script(acp(AcpPreset::Other), "yes"), DEADLINE).await;
    assert_eq!(failure(&lines), "no response in 1000 lines of output");
    let endless = probe(&script(claude(), "yes"), Duration::from_secs(1)).await;
    let why = failure(&endless);
    assert!(why.starts_with("no response within "), "{why}");
    let long = "echo 2.0.1 Claude; head -c 5000000 /dev/zero | tr '\\0' x";
    let long = probe(&script(claude(), long), DEADLINE).await;
    assert_eq!(long.version, Ok(Some("2.0.1".to_owned())));
}

#[tokio::test]
async fn only_standard_output_has_responses() {
    let initialized = r#"read -r _; echo '{"id":1,"result":{"agentInfo":{"version":"1.2.3"}}}'"#;
    let stdout = probe(&script(acp(AcpPreset::Other), initialized), DEADLINE).await;
    assert_eq!(stdout.version, Ok(Some("1.2.3".to_owned())));
    let stderr = format!("{initialized} >&2");
    let stderr = probe(&script(acp(AcpPreset::Other), &stderr), DEADLINE).await;
    assert_eq!(failure(&stderr), "it exited without a response");
}

#[tokio::test]
async fn refused_initialization_is_reported_with_its_reason() {
    let refuses = r#"read -r _; echo '{"id":1,"error":{"message":"too old"}}'"#;
    let probe = probe(&script(acp(AcpPreset::Other), refuses), DEADLINE).await;
    assert_eq!(failure(&probe), "it refused to initialize: too old");
}

#[tokio::test]
async fn dropped_probe_leaves_no_process() {
    let scene = Scene::new();
    let agent = script(claude(), "trap '' TERM; sleep 600; sleep 600");
    let context = context(&scene);
    {
        let probe = agent.probe(&context, Instant::now() + DEADLINE);
        tokio::pin!(probe);
        while scene.members().is_empty() {
            let step = Duration::from_millis(10);
            assert!(tokio::time::timeout(step, &mut probe).await.is_err());
        }
    }
    wait_for("the end of all processes", || scene.find().is_empty());
}

#[tokio::test]
async fn command_is_not_started() {
    let scene = Scene::new();
    let file = scene.path("started");
    let argv = vec!["touch".into(), file.clone().into()];
    let probe = AgentConfig::command(argv)
        .probe(&context(&scene), Instant::now() + DEADLINE)
        .await;
    assert_eq!(probe.version, Ok(None));
    assert!(!file.exists());
}
