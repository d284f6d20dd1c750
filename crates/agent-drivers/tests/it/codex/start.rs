//! Tests of the start: the opening request, and failures.

use super::*;
use agent_drivers::Redacted;
use agent_drivers::codex::CodexOptions;
use agent_drivers::mcp::{McpServer, McpServers};
use agent_duplex::ExitStatus;

#[tokio::test]
async fn l95a_l95d_secrets_pass_through_standard_input() {
    let scene = Scene::new();
    let functions = r#"on_open() { printf '%s\n' "$line" > opening; ok '"thread":{"id":"t"}'; }"#;
    let mut servers = McpServers::default();
    let stdio = McpServer::stdio("server").env("TOKEN", "${SECRET}");
    servers.insert("local", stdio).unwrap();
    let http = McpServer::http("http://localhost:1").header("Authorization", "${SECRET}");
    servers.insert("remote", http).unwrap();
    let driver = driver(&scene, functions)
        .mcp_servers(servers)
        .options(CodexOptions {
            env: Redacted([("SECRET".into(), "hush-hush".into())].into()),
            append_system_prompt: Some("be kind".into()),
            ..CodexOptions::default()
        });
    assert!(!format!("{driver:?}").contains("hush"));
    let mut agent = driver.connect(SessionChoice::Fresh).await.unwrap();
    assert!(!format!("{agent:?}").contains("hush"));
    agent.ready().await.unwrap();
    let started = until(&mut *agent, |event| matches!(event, Event::Session { .. })).await;
    let Some(Event::Started { pid }) = started.first() else {
        panic!("{started:?}");
    };
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    assert!(
        words.ends_with("app-server -c analytics.enabled=false "),
        "{words}"
    );
    assert!(
        !words.contains("hush") && !words.contains("kind"),
        "{words}"
    );
    let opening = std::fs::read_to_string(scene.path("opening")).unwrap();
    let opening = opening.replace(&scene.directory.path().display().to_string(), "$CWD");
    insta::assert_snapshot!(opening.trim());
    agent.stop(DEADLINE).await;
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p48_start_error_names_next_command() {
    let scene = Scene::new();
    let cases = [
        raw(
            &scene,
            "printf '\\033[31mError\\033[0m loading config.toml: what?\\n' >&2; exit 1",
        ),
        driver(&scene, "on_open() { no 'model provider x not found'; }"),
        driver(
            &scene,
            "on_open() { no 'thread t already has an active writer'; }",
        ),
        driver(&scene, "").args(vec!["--yolo".into()]),
        CodexDriver::new(Vec::new(), context(&scene)),
    ];
    let mut errors = String::new();
    for driver in cases {
        let error = open(&driver).await.unwrap_err();
        let kind = if error.is_session_in_use() {
            "held"
        } else {
            "start"
        };
        assert!(
            error.is_session_in_use() || error.is_start_failure(),
            "{error}"
        );
        errors += &format!("{kind}: {error}\n");
    }
    insta::assert_snapshot!(errors.trim());
    // Dropped agents end in the background.
    crate::scene::wait_for("their end", || scene.find().is_empty());
}

#[tokio::test]
async fn p45_missing_session_ends_the_first_turn() {
    let scene = Scene::new();
    let driver = driver(
        &scene,
        "on_open() { no 'no rollout found for thread id a'; }",
    );
    let choice = SessionChoice::Resume("a".to_owned());
    let mut agent = driver.connect(choice).await.unwrap();
    agent.ready().await.unwrap();
    agent.send(Message::new("go on")).await.unwrap();
    let (_, end) = turn(&mut *agent).await;
    assert_eq!(end.reason, EndReason::SessionNotFound);
    // The next message gets another agent.
    let exited = Event::Exited(ExitStatus::Code(0));
    until(&mut *agent, |event| *event == exited).await;
    assert!(next(&mut *agent).await.is_none());
    agent.stop(DEADLINE).await;
    scene.assert_no_process_left();
}

#[tokio::test]
async fn large_messages_pass_in_both_directions() {
    let scene = Scene::new();
    let functions = r#"work() {
      printf '%s' "$line" | wc -c > size
      printf '{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"1","itemId":"m","delta":"'
      head -c 10000000 /dev/zero | tr '\0' x
      say '"}}'
      completed completed
    }"#;
    let mut agent = connect(&scene, functions).await;
    agent
        .send(Message::new("é\u{2028}\n".repeat(50_000)))
        .await
        .unwrap();
    let (events, _) = turn(&mut *agent).await;
    let whole = |event: &Event| match event {
        Event::TextDelta(text) => text.len() == 10_000_000,
        _ => false,
    };
    assert!(events.iter().any(whole));
    let size = std::fs::read_to_string(scene.path("size")).unwrap();
    assert!(size.trim().parse::<usize>().unwrap() > 300_000, "{size}");
    agent.stop(DEADLINE).await;
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p32a_agent_inherits_only_allowed_variables() {
    let scene = Scene::new();
    let driver = driver(&scene, "env > environment").options(CodexOptions {
        env_allow: Some(vec!["NO_SUCH_*".into()]),
        ..CodexOptions::default()
    });
    let mut agent = open(&driver).await.unwrap();
    let environment = std::fs::read_to_string(scene.path("environment")).unwrap();
    assert!(environment.contains("GREETING=hello"), "{environment}");
    assert!(!environment.contains("CARGO_"), "{environment}");
    agent.stop(DEADLINE).await;
    scene.assert_no_process_left();
}
