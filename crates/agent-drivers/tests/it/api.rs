//! Tests of the key of the own agent: it leaves the environment of this process, and the other agents still get it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use agent_drivers::api::{self, ApiServer};
use agent_drivers::mcp::{McpServer, McpServers};
use agent_drivers::{AgentConfig, AgentOptions, Choices};
use agent_duplex::{Message, SessionChoice};
use agent_subprocess::ProcessContext;
use tokio::time::Instant;

use crate::scene::{DEADLINE, Scene, own_test, passes, wait_for};

const NAME: &str = "AGENT_DRIVERS_TEST_SHARED_KEY";
const KEY: &str = "sk-shared-0123456789";

/// Returns whether this test runs in a process whose system gave it the key. If not, runs the test in one and checks that it passes.
fn has_key(test: &str) -> bool {
    let has_key = std::env::var_os(NAME).is_some();
    if !has_key {
        passes(test, own_test(test).env(NAME, KEY));
    }
    has_key
}

fn server(base_url: &str) -> ApiServer {
    ApiServer {
        base_url: Some(base_url.to_owned()),
        key_env: Some(NAME.to_owned()),
        ..ApiServer::default()
    }
}

/// Checks the own agent, which takes the key.
fn check_own_agent(servers: McpServers) -> Result<(), String> {
    let options = AgentOptions::Api(Box::default());
    let mut agent = AgentConfig::new(options, Vec::new());
    agent.model = Some("a-model".to_owned());
    let mut choices = Choices::default();
    choices.api_server = server("http://127.0.0.1:9");
    choices.mcp_servers = servers;
    agent.check(choices).map_err(|error| error.to_string())
}

fn context(scene: &Scene) -> ProcessContext {
    ProcessContext {
        marker: Some(scene.marker.clone()),
        ..ProcessContext::new(scene.directory.path(), scene.path("scratch"))
    }
}

/// Asserts that the program of an agent got this value of the key.
fn assert_got(scene: &Scene, file: &str, expected: &str) {
    let got = || std::fs::read_to_string(scene.path(file)).unwrap_or_default();
    wait_for(file, || got().ends_with('\n'));
    assert_eq!(got(), format!("{expected}\n"), "{file}");
}

fn program(file: &str) -> Vec<std::ffi::OsString> {
    let script = format!("echo \"${NAME}\" > {file}.new; mv {file}.new {file}; cat > /dev/null");
    ["sh", "-c", &script].map(Into::into).into()
}

#[tokio::test]
async fn a14_key_of_the_own_agent_still_reaches_the_other_agents() {
    if !has_key("api::a14_key_of_the_own_agent_still_reaches_the_other_agents") {
        return;
    }
    let scene = Scene::new();
    for _ in 0..2 {
        assert_eq!(check_own_agent(McpServers::default()), Ok(()));
        let environment = std::fs::read("/proc/self/environ").unwrap();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(environment.contains(NAME) && !environment.contains(KEY));
        let child = std::process::Command::new("env").output().unwrap();
        assert!(!String::from_utf8_lossy(&child.stdout).contains(KEY));
    }

    let claude = AgentOptions::Claude(Box::default());
    let allowed: AgentOptions =
        serde_json::from_str(&format!(r#"{{"claude": {{"env-allow": ["{NAME}"]}}}}"#)).unwrap();
    let excluded = serde_json::from_str(r#"{"claude": {"env-allow": []}}"#).unwrap();
    for (file, options, expected) in [
        ("all", claude.clone(), KEY),
        ("allowed", allowed, KEY),
        ("excluded", excluded, ""),
        ("command", AgentOptions::Command, KEY),
    ] {
        let agent = AgentConfig::new(options, program(file));
        let driver = agent.driver(Choices::default(), context(&scene));
        // The program is no agent: it reads its input, so that the connection doesn't end before the check.
        let mut connection = driver.connect(SessionChoice::Fresh).await.unwrap();
        if agent.options == AgentOptions::Command {
            connection.send(Message::new("Go.")).await.unwrap();
        }
        assert_got(&scene, file, expected);
        drop(connection.stop(DEADLINE).await);
    }
    let asked = AgentConfig::new(claude, program("asked"));
    let mut away = context(&scene);
    away.env.push(("ELSE".into(), "1".into()));
    drop(asked.probe(&away, Instant::now() + DEADLINE).await);
    assert_got(&scene, "asked", KEY);
}

#[tokio::test]
async fn a14_mcp_server_of_another_agent_gets_the_key_only_if_that_agent_does() {
    if !has_key("api::a14_mcp_server_of_another_agent_gets_the_key_only_if_that_agent_does") {
        return;
    }
    let scene = Scene::new();
    assert_eq!(check_own_agent(McpServers::default()), Ok(()));
    for (allowed, gets_key) in [
        ("{}".to_owned(), true),
        (format!(r#"{{"env-allow": ["{NAME}"]}}"#), true),
        (r#"{"env-allow": []}"#.to_owned(), false),
    ] {
        let options = serde_json::from_str(&format!(r#"{{"claude": {allowed}}}"#)).unwrap();
        let agent = AgentConfig::new(options, program("agent"));
        let mut choices = Choices::default();
        let docs = McpServer::stdio("docs-mcp").env("GIVEN", format!("${{{NAME}}}"));
        choices.mcp_servers.insert("docs", docs).unwrap();
        let driver = agent.driver(choices, context(&scene));
        match driver.connect(SessionChoice::Fresh).await {
            Ok(mut connection) => {
                assert!(gets_key, "{allowed}");
                drop(connection.stop(DEADLINE).await);
            }
            Err(error) => {
                let error = error.to_string();
                assert!(!gets_key && error.contains(NAME), "{allowed}: {error}");
            }
        }
    }
}

#[test]
fn a14_mcp_server_that_names_the_key_is_refused() {
    if !has_key("api::a14_mcp_server_that_names_the_key_is_refused") {
        return;
    }
    let servers = |text: &str| {
        let mut servers = McpServers::default();
        let server = McpServer::stdio("docs-mcp").env("GIVEN", text);
        servers.insert("docs", server).unwrap();
        servers
    };
    // The first check takes the key.
    for _ in 0..2 {
        for text in [format!("${{{NAME}}}"), format!("a ${{{NAME}:-b}}")] {
            let refused = check_own_agent(servers(&text)).unwrap_err();
            let why = format!("because it names ${{{NAME}}}; put the agent's key into");
            assert!(refused.contains(&why), "{refused}");
            assert!(
                refused.contains("the MCP server `docs` would get"),
                "{refused}"
            );
            assert!(!refused.contains(KEY), "{refused}");
        }
    }
    assert_eq!(check_own_agent(servers("${PATH}")), Ok(()));
}

/// Answers requests for the models, as a model server does.
fn models() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            let body = match request.contains(KEY) {
                true => r#"{"data":[{"id":"a-model"}]}"#,
                false => r#"{"data":[]}"#,
            };
            let status = match request.contains("/refuses") {
                true => "401 Unauthorized",
                false => "200 OK",
            };
            let head = "content-type: application/json\r\nconnection: close\r\ncontent-length";
            write!(
                stream,
                "HTTP/1.1 {status}\r\n{head}: {}\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
        }
    });
    url
}

#[tokio::test]
async fn a14_probe_reports_a_key_that_can_not_be_erased() {
    if !has_key("api::a14_probe_reports_a_key_that_can_not_be_erased") {
        return;
    }
    let url = models();
    let server = server(&url);
    let detail = async || {
        let probe = api::probe(&server, Instant::now() + DEADLINE).await;
        probe.login.detail.unwrap()
    };
    api::take_key(&server);
    assert_eq!(detail().await, "models: a-model");
    // The value is on the heap now, and the system doesn't show it.
    set(NAME, KEY);
    let reported = detail().await;
    assert!(reported.contains("the key can't be erased"), "{reported}");
    // The server refuses the key, or doesn't answer.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let closed = format!("http://{}", closed.unwrap());
    for (url, answers) in [(format!("{url}/refuses"), true), (closed, false)] {
        let probe = api::probe(&self::server(&url), Instant::now() + DEADLINE).await;
        assert_eq!(probe.version.is_ok(), answers, "{probe:?}");
        let reported = probe.login.detail.unwrap();
        assert!(reported.contains("the key can't be erased"), "{reported}");
    }
    // The host removed the variable, so there is no key any more.
    remove(NAME);
    let reported = detail().await;
    assert!(
        reported.contains("with the key is not set; set it"),
        "{reported}"
    );
}

#[expect(
    unsafe_code,
    reason = "only one thread of this separate process uses the environment"
)]
fn set(name: &str, value: &str) {
    // SAFETY: the thread of the model server doesn't use the environment.
    unsafe { std::env::set_var(name, value) };
}

#[expect(
    unsafe_code,
    reason = "only one thread of this separate process uses the environment"
)]
fn remove(name: &str) {
    // SAFETY: the thread of the model server doesn't use the environment.
    unsafe { std::env::remove_var(name) };
}
