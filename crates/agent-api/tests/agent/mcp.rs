//! MCP servers: programs under guards, good ones and such that break the protocol.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent_api::{ApiAgent, Dialect, ErrorKind, McpServer};
use agent_duplex::{
    Decision, EndReason, Event, Permissions, QueuedMessages, SessionChoice, ToolOutcome,
};
use agent_subprocess::{Marker, ProcessContext, guard, sweep};

use crate::hung_guard::HungGuard;
use crate::scene::{Count, DEADLINE, DIALECTS, Scene, Talk};
use crate::server::{Reply, Request, Server};

const VARIABLE: &str = "AGENT_API_TEST";
/// A time limit for servers that never answer.
const SHORT: Duration = Duration::from_secs(1);

/// The programs of a test, with a marker of their own.
struct Programs {
    scene: Scene,
    marker: Marker,
}

impl Programs {
    fn new() -> Self {
        guard::guard_program(env!("CARGO_BIN_EXE_agent-api-guard"));
        let scene = Scene::new();
        let random = scene.work().parent().unwrap().to_owned();
        let random = random.file_name().unwrap().to_str().unwrap().to_owned();
        let random: String = random.chars().filter(char::is_ascii_alphanumeric).collect();
        let marker = Marker {
            variable: VARIABLE.to_owned(),
            scope: format!("{random}{}", std::process::id()),
            member: "1.1".to_owned(),
        };
        Self { scene, marker }
    }

    fn context(&self) -> ProcessContext {
        let mut context = ProcessContext::new(self.scene.work(), self.scene.work());
        context.marker = Some(self.marker.clone());
        context
    }

    /// Describes a server that is named after its behaviour.
    fn server(&self, mode: &str) -> McpServer {
        self.server_in(mode, self.context())
    }

    fn server_in(&self, mode: &str, context: ProcessContext) -> McpServer {
        McpServer::new(mode, "bash", context)
            .arg("-c")
            .arg(include_str!("mcp.sh"))
            .arg("mcp.sh")
            .arg(mode)
            .arg(self.log(mode))
    }

    fn log(&self, mode: &str) -> PathBuf {
        self.scene.work().join(format!("{mode}.log"))
    }

    /// Returns how often a server read a message with this text.
    fn received(&self, mode: &str, text: &str) -> usize {
        let log = std::fs::read_to_string(self.log(mode)).unwrap_or_default();
        log.matches(text).count()
    }

    fn hangs(&self, mode: &str) -> bool {
        self.log(&format!("{mode}.log"))
            .with_file_name(format!("{mode}.log.hangs"))
            .exists()
    }

    fn left(&self) -> Vec<sweep::MarkedProcess> {
        let found = sweep::find(VARIABLE, &self.marker.scope).into_iter();
        found.filter(|process| !process.is_guard).collect()
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        // A failed test must not leave its process tree behind.
        drop(sweep::end(
            sweep::find(VARIABLE, &self.marker.scope),
            DEADLINE,
        ));
    }
}

/// Waits until a condition holds; panics at the deadline.
async fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited too long: {what}");
        let pause = || std::thread::park_timeout(Duration::from_millis(5));
        tokio::task::spawn_blocking(pause).await.unwrap();
    }
}

/// Returns the names of the tools of a request, in their order.
fn tools(request: &Request) -> Vec<String> {
    let request = request.json();
    let tools = request["tools"].as_array().unwrap().iter();
    let name = |tool: &serde_json::Value| {
        let name = tool["name"].as_str().or(tool["function"]["name"].as_str());
        name.unwrap().to_owned()
    };
    tools.map(name).collect()
}

fn warnings<'a>(events: &'a [Event]) -> Vec<&'a str> {
    let warning = |event: &'a Event| match event {
        Event::Warning(text) => Some(text.as_str()),
        _ => None,
    };
    events.iter().filter_map(warning).collect()
}

/// Asserts that there is one warning, with all of these texts.
fn assert_warned(talk: &Talk, texts: &[&str]) {
    let warnings = warnings(&talk.seen);
    let found = warnings
        .iter()
        .filter(|warning| texts.iter().all(|text| warning.contains(text)));
    assert_eq!(found.count(), 1, "{texts:?}: {warnings:#?}");
}

#[tokio::test]
async fn a15_tools_of_servers_follow_the_others_and_are_called() {
    for dialect in DIALECTS {
        let programs = Programs::new();
        let replies = [
            Reply::calls([
                ("mcp__two__greet", "{}"),
                ("count", "{}"),
                ("mcp__one__greet", r#"{"name":"you"}"#),
            ]),
            Reply::text("greeted"),
        ];
        let server = Server::replying(dialect, replies).await;
        let count = Arc::new(Count::default());
        let mut options = programs.scene.options(&server, [count.clone() as _]);
        options.mcp_servers = vec![programs.server("one"), programs.server("two")];
        let mut talk = Talk::new(options);
        talk.send("greet");
        let end = talk.end().await;
        assert_eq!(end.reason, EndReason::Completed, "{end}");
        assert_eq!(talk.ask("again").await.text, "done");
        let requests = server.requests();
        let names = tools(&requests[0]);
        let expected = [
            "count",
            "mcp__one__ask_human_",
            "mcp__one__die",
            "mcp__one__flood",
            "mcp__one__greet",
            "mcp__one__hang",
            "mcp__two__ask_human_",
            "mcp__two__die",
            "mcp__two__flood",
            "mcp__two__greet",
            "mcp__two__hang",
        ];
        assert_eq!(names.len(), expected.len(), "{names:?}");
        for (name, start) in names.iter().zip(expected) {
            assert!(name.starts_with(start), "{names:?}");
        }
        // The server announced a change of its tools; the session keeps those that it began with.
        for request in &requests {
            assert_eq!(tools(request), names);
        }
        let text = requests[1].text();
        for result in ["hello from two", "hello from one", "run 1 with"] {
            assert!(text.contains(result), "{dialect:?}: {text}");
        }
        assert_eq!(count.runs.load(Ordering::SeqCst), 1);
        for mode in ["one", "two"] {
            assert_eq!(
                programs.received(mode, "tools/list"),
                2,
                "one for each page"
            );
            assert_eq!(programs.received(mode, r#""name":"greet""#), 1);
            assert_warned(
                &talk,
                &[&format!("server `{mode}` lists the tool `ask.human` twice")],
            );
        }
        assert_eq!(programs.received("one", r#"{"name":"you"}"#), 1);
        // The server asked two questions in its call.
        wait_for("the answers", || {
            programs.received("one", r#""id":"p","result":{}"#) == 1
                && programs.received("one", r#""id":"q","error":{"code":-32601"#) == 1
        })
        .await;
        assert!(talk.stop().await.proven);
    }
}

#[tokio::test]
async fn a15_server_that_does_not_start_is_reported_and_the_turn_goes_on() {
    let programs = Programs::new();
    let replies = [Reply::call("mcp__good__greet", "{}")];
    let server = Server::replying(Dialect::Chat, replies).await;
    let mut options = programs.scene.options(&server, []);
    let bad = [
        "dies",
        "refuses",
        "wrong",
        "garbage",
        "strangers",
        "huge",
        "pings",
    ];
    let hanging = ["silent", "no-list", "notes"];
    options.mcp_servers = { bad.iter() }
        .map(|mode| programs.server(mode))
        .chain(hanging.map(|mode| programs.server(mode).time_limit(SHORT)))
        .chain([
            McpServer::new("missing", "/no/such/program", programs.context()),
            programs.server("good"),
            programs.server("chatty"),
        ])
        .collect();
    let mut talk = Talk::new(options);
    talk.send("greet");
    assert_eq!(talk.end().await.reason, EndReason::Completed);
    assert_warned(
        &talk,
        &[
            "`dies` has ended (exit status 3)",
            "reading its settings / no such database",
            "continues without its tools",
        ],
    );
    assert_warned(&talk, &["`refuses` refused the start: no licence"]);
    assert_warned(&talk, &["`wrong` did not answer the start as the protocol"]);
    assert_warned(
        &talk,
        &["`garbage` wrote 1000 lines in a row", "this is no message"],
    );
    assert_warned(
        &talk,
        &["`strangers` wrote 1000 lines in a row", r#""id":99"#],
    );
    assert_warned(&talk, &["`huge` sent a line of more than 8 MiB"]);
    assert_warned(&talk, &["`pings` does not read its input"]);
    // On a busy machine, the time can be over before the server's program runs.
    assert_warned(&talk, &["`notes` did not ", " within 1 s"]);
    assert_warned(&talk, &["`silent` did not ", " within 1 s"]);
    assert_warned(&talk, &["`no-list` did not ", " within 1 s"]);
    assert_warned(&talk, &["`missing` can't be started", "/no/such/program"]);
    let requests = server.requests();
    assert_eq!(tools(&requests[0]).len(), 10, "{:?}", tools(&requests[0]));
    assert!(requests[1].text().contains("hello from good"));
    // The others have ended already.
    let left = programs.left();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(talk.stop().await.proven);
    assert!(programs.left().is_empty(), "{:?}", programs.left());
}

#[tokio::test]
async fn a15_server_that_dies_hangs_or_floods_in_a_call_is_reported_and_the_turn_goes_on() {
    for dialect in DIALECTS {
        let programs = Programs::new();
        let replies = [
            Reply::call("mcp__one__die", "{}"),
            Reply::call("mcp__one__greet", "{}"),
            Reply::call("mcp__two__hang", "{}"),
            Reply::call("mcp__two__greet", "{}"),
            Reply::call("mcp__three__flood", "{}"),
        ];
        let server = Server::replying(dialect, replies).await;
        let mut options = programs.scene.options(&server, []);
        options.mcp_servers = vec![
            programs.server("one"),
            programs.server("two").time_limit(3 * SHORT),
            programs.server("three"),
        ];
        let mut talk = Talk::new(options);
        talk.send("go");
        assert_eq!(talk.end().await.reason, EndReason::Completed);
        let end = "`one` has ended (exit status 4); its standard error ends with: out of memory";
        assert_warned(&talk, &[end, "its tools fail until the agent starts again"]);
        let requests = server.requests();
        let result = |at: usize| requests[at].text();
        assert_eq!(result(1).matches(end).count(), 1, "{}", result(1));
        assert_eq!(result(2).matches(end).count(), 2, "{}", result(2));
        let late = "`two` did not answer the call within 3 s";
        assert!(result(3).contains(late), "{}", result(3));
        assert_eq!(programs.received("two", "notifications/cancelled"), 1);
        assert!(result(4).contains("hello from two"), "{}", result(4));
        let flood = "`three` does not read its input";
        assert!(result(5).contains(flood), "{}", result(5));
        assert_warned(&talk, &[flood]);
        let outcomes: Vec<_> = { talk.seen.iter() }
            .filter_map(|event| match event {
                Event::ToolFinished { outcome, .. } => Some(*outcome),
                _ => None,
            })
            .collect();
        let (failed, ok) = (ToolOutcome::Failed, ToolOutcome::Succeeded);
        assert_eq!(outcomes, [failed, failed, failed, ok, failed]);
        assert!(talk.stop().await.proven);
    }
}

#[tokio::test]
async fn a15_interrupt_cancels_a_call_at_once_and_the_server_lives_on() {
    let programs = Programs::new();
    let replies = [
        Reply::call("mcp__one__hang", "{}"),
        Reply::call("mcp__one__greet", "{}"),
    ];
    let server = Server::replying(Dialect::Messages, replies).await;
    let mut options = programs.scene.options(&server, []);
    let never = Duration::from_secs(86_400);
    options.mcp_servers = vec![programs.server("one").time_limit(never)];
    let mut talk = Talk::new(options);
    talk.send("hang");
    wait_for("the call", || programs.hangs("one")).await;
    let interrupt = talk.conversation.interrupt(QueuedMessages::Keep);
    interrupt.await.unwrap();
    assert_eq!(talk.end().await.reason, EndReason::Interrupted);
    wait_for("the notification", || {
        programs.received("one", "notifications/cancelled") == 1
    })
    .await;
    assert_eq!(talk.ask("greet").await.text, "done");
    let request = server.requests().pop().unwrap().text();
    let interrupted =
        "interrupted by the user while the tool ran. The call may have had its effect";
    assert!(request.contains(interrupted), "{request}");
    assert!(request.contains("hello from one"), "{request}");
    assert_eq!(programs.received("one", "initialize\""), 1);
    assert!(talk.stop().await.proven);
}

#[tokio::test]
async fn a15_interrupt_ends_a_start_and_the_next_turn_tries_again() {
    let programs = Programs::new();
    let server = Server::replying(Dialect::Chat, []).await;
    let mut options = programs.scene.options(&server, []);
    let mut silent = programs.server("silent");
    silent = silent.time_limit(Duration::from_secs(86_400));
    options.mcp_servers = vec![silent];
    let mut talk = Talk::new(options);
    for _ in 0..2 {
        talk.send("go");
        wait_for("the server", || !programs.left().is_empty()).await;
        let interrupt = talk.conversation.interrupt(QueuedMessages::Keep);
        interrupt.await.unwrap();
        assert_eq!(talk.end().await.reason, EndReason::Interrupted);
        assert!(programs.left().is_empty(), "{:?}", programs.left());
    }
    talk.send("go");
    wait_for("the server", || !programs.left().is_empty()).await;
    let report = talk.stop().await;
    assert!(report.proven, "{report:?}");
    assert!(programs.left().is_empty(), "{:?}", programs.left());
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a15_whole_tree_of_a_server_ends_with_the_session() {
    let programs = Programs::new();
    let server = Server::replying(Dialect::Responses, []).await;
    let mut options = programs.scene.options(&server, []);
    options.mcp_servers = vec![programs.server("family"), programs.server("one")];
    let talk = Talk::new(options);
    assert_eq!(talk.ask("go").await.text, "done");
    assert!(programs.left().len() >= 3, "{:?}", programs.left());
    let report = talk.stop().await;
    assert!(report.proven, "{report:?}");
    assert!(
        report.ended.len() >= 3,
        "both servers are named: {report:?}"
    );
    assert!(programs.left().is_empty(), "{:?}", programs.left());
}

#[tokio::test]
async fn a15_frozen_server_is_suspended_and_its_time_does_not_count() {
    let programs = Programs::new();
    let replies = [Reply::call("mcp__one__hang", "{}")];
    let server = Server::replying(Dialect::Chat, replies).await;
    let mut options = programs.scene.options(&server, []);
    options.mcp_servers = vec![programs.server("one").time_limit(2 * SHORT)];
    let mut talk = Talk::new(options);
    talk.send("hang");
    wait_for("the call", || programs.hangs("one")).await;
    talk.conversation.freeze(true).await.unwrap();
    let is_suspended = || {
        let mut left = programs.left().into_iter();
        left.all(|found| found.process.is_suspended())
    };
    wait_for("the suspension", is_suspended).await;
    // Twice its time.
    let finished = |event: &Event| matches!(event, Event::ToolFinished { .. }).then_some(());
    let waited = tokio::time::timeout(4 * SHORT, talk.until(finished)).await;
    assert!(waited.is_err(), "the time of the call does not count");
    assert!(is_suspended());
    talk.conversation.freeze(false).await.unwrap();
    assert_eq!(talk.end().await.reason, EndReason::Completed);
    assert!(!is_suspended());
    let request = server.requests().pop().unwrap().text();
    assert!(request.contains("did not answer the call"), "{request}");
    assert!(talk.stop().await.proven);
}

#[tokio::test]
async fn a15_call_needs_a_permission_whatever_the_server_says() {
    let programs = Programs::new();
    let replies = [Reply::call("mcp__one__greet", "{}")];
    let server = Server::replying(Dialect::Chat, replies).await;
    let mut options = programs.scene.options(&server, []);
    options.permissions = Permissions::Edits;
    options.mcp_servers = vec![programs.server("one")];
    let mut talk = Talk::new(options);
    talk.send("greet");
    let request = talk
        .until(|event| match event {
            Event::PermissionRequested(request) => Some(request.clone()),
            _ => None,
        })
        .await;
    assert_eq!(request.tool, "mcp__one__greet");
    assert_eq!(request.reason, "a tool of the MCP server `one`");
    let deny = Decision::Deny {
        message: "not today".to_owned(),
    };
    talk.conversation.answer(&request.id, deny).await.unwrap();
    assert_eq!(talk.end().await.reason, EndReason::Completed);
    assert_eq!(programs.received("one", "tools/call"), 0);
    let request = server.requests().pop().unwrap().text();
    assert!(request.contains("not today"), "{request}");
    assert!(talk.stop().await.proven);
}

#[tokio::test]
async fn a15_call_is_never_repeated_after_a_crash_although_its_server_says_it_only_reads() {
    let programs = Programs::new();
    let replies = [Reply::call("mcp__one__hang", "{}")];
    let server = Server::replying(Dialect::Messages, replies).await;
    let mut options = programs.scene.options(&server, []);
    options.mcp_servers = vec![programs.server("one")];
    let mut talk = Talk::new(options.clone());
    talk.send("hang");
    let id = talk.session().await;
    wait_for("the call", || programs.hangs("one")).await;
    // The end of the task without a stop, as in a crash. The guard ends the server.
    drop(talk);
    wait_for("the end of the server", || programs.left().is_empty()).await;
    let mut talk = Talk::started(options, SessionChoice::Resume(id)).await;
    talk.send("go on");
    assert_eq!(talk.end().await.reason, EndReason::Completed);
    assert_warned(&talk, &["`mcp__one__hang` ran; its outcome is unknown"]);
    let request = server.requests().pop().unwrap().text();
    assert!(request.contains("outcome unknown"), "{request}");
    assert_eq!(programs.received("one", "tools/call"), 1);
    assert!(talk.stop().await.proven);
}

#[tokio::test]
async fn a15_server_gets_plain_variables_and_those_that_are_given_to_it() {
    let programs = Programs::new();
    let server = Server::replying(Dialect::Chat, []).await;
    let mut context = programs.context();
    for (name, value) in [("OF_CONTEXT", "1"), ("GIVEN_TOKEN", "of-context")] {
        context.env.push((name.into(), value.into()));
    }
    let described = programs
        .server_in("one", context)
        .env("GIVEN_TOKEN", "given");
    assert!(!format!("{described:?}").contains("given"), "{described:?}");
    let mut options = programs.scene.options(&server, []);
    options.mcp_servers = vec![described];
    let talk = Talk::new(options);
    assert_eq!(talk.ask("go").await.text, "done");
    let env = std::fs::read_to_string(programs.scene.work().join("one.log.env")).unwrap();
    for line in ["PATH=", "OF_CONTEXT=1", "GIVEN_TOKEN=given"] {
        assert!(env.lines().any(|it| it.starts_with(line)), "{line}: {env}");
    }
    // Cargo sets it for this test.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert!(!env.contains("CARGO_MANIFEST_DIR"), "{env}");
    assert!(talk.stop().await.proven);
}

#[tokio::test]
async fn a15_names_of_servers_are_checked_before_a_start() {
    let programs = Programs::new();
    let server = Server::replying(Dialect::Chat, []).await;
    for (names, why) in [
        (vec!["one", "one"], "two MCP servers have the name `one`"),
        (vec!["a b"], "`a b` is not a name of an MCP server"),
        (vec![""], "use 1 to 64 letters"),
    ] {
        let mut options = programs.scene.options(&server, []);
        options.mcp_servers = { names.iter() }
            .map(|name| McpServer::new(*name, "x", programs.context()))
            .collect();
        let error = ApiAgent::new(options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Settings);
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn a15_tools_of_all_servers_fit_into_one_request() {
    let programs = Programs::new();
    let server = Server::replying(Dialect::Responses, []).await;
    let count = Arc::new(Count::default());
    let mut options = programs.scene.options(&server, [count as _]);
    options.mcp_servers = ["many1", "many2", "one"]
        .map(|mode| programs.server(mode))
        .into();
    let mut talk = Talk::new(options);
    talk.send("go");
    assert_eq!(talk.end().await.reason, EndReason::Completed);
    let names = tools(&server.requests()[0]);
    assert_eq!(names.len(), 128, "OpenAI takes no more");
    assert_eq!(names[1], "mcp__many1__t100");
    assert_eq!(names[127], "mcp__many2__t126");
    assert_eq!(programs.received("many1", "tools/list"), 1);
    let why = "`many2` lists 100 tools, and only 27 of them fit: all tools of the agent together are limited to 128 tools";
    assert_warned(&talk, &[why]);
    assert_warned(&talk, &["`one` lists 5 tools, and only 0 of them fit"]);
    assert!(talk.stop().await.proven);
}

#[tokio::test]
async fn a15_tools_leave_room_for_the_conversation() {
    let programs = Programs::new();
    let server = Server::replying(Dialect::Chat, []).await;
    let mut options = programs.scene.options(&server, []);
    options.context_window = 20_000;
    options.mcp_servers = vec![programs.server("wide")];
    let mut talk = Talk::new(options);
    talk.send("go");
    let end = talk.end().await;
    assert_eq!(end.reason, EndReason::Completed, "{end}");
    let sent = tools(&server.requests()[0]).len();
    assert!((20..40).contains(&sent), "{sent} tools with 1 KB each");
    let why = format!("`wide` lists 100 tools, and only {sent} of them fit");
    assert_warned(&talk, &[&why, "half of the context window"]);
    assert!(talk.stop().await.proven);
}

#[tokio::test]
async fn a15_refusal_of_a_tool_names_its_server() {
    for (dialect, error) in [
        (
            Dialect::Messages,
            "tools.3.custom.input_schema: JSON schema is invalid",
        ),
        (
            Dialect::Responses,
            "Invalid schema for function 'mcp__one__flood'",
        ),
        (Dialect::Chat, "Invalid 'tools[3].function.parameters'"),
    ] {
        let programs = Programs::new();
        let body = format!(
            r#"{{"type":"error","error":{{"type":"invalid_request_error","message":"{error}"}}}}"#
        );
        let server = Server::replying(dialect, [Reply::refused(400, "", &body)]).await;
        let count = Arc::new(Count::default());
        let mut options = programs.scene.options(&server, [count as _]);
        options.mcp_servers = vec![programs.server("one")];
        let mut talk = Talk::new(options);
        talk.send("go");
        let end = talk.end().await;
        assert_eq!(end.reason, EndReason::Failed, "{end}");
        let why = "`mcp__one__flood` is a tool of the MCP server `one`";
        assert!(
            end.detail.contains(error) && end.detail.contains(why),
            "{end}"
        );
        assert!(talk.stop().await.proven);
    }
}

#[test]
fn a15_start_that_hangs_ends_at_once_and_at_its_time_limit() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mcp::hanging_start", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(output.contains("ok. 1 passed"), "{child:?}");
}

#[tokio::test]
#[ignore = "a process with a guard of its own: `a15_start_that_hangs_ends_at_once_and_at_its_time_limit` runs it"]
async fn hanging_start() {
    let programs = Programs::new();
    let server = Server::replying(Dialect::Chat, []).await;
    let guard = HungGuard::install(&programs.scene.work());
    let mut options = programs.scene.options(&server, []);
    let never = Duration::from_secs(86_400);
    options.mcp_servers = vec![programs.server("one").time_limit(never)];
    let mut talk = Talk::new(options.clone());
    talk.send("go");
    wait_for("the start", || guard.hangs()).await;
    let interrupt = talk.conversation.interrupt(QueuedMessages::Keep);
    interrupt.await.unwrap();
    assert_eq!(talk.end().await.reason, EndReason::Interrupted);
    let report = talk.stop().await;
    assert!(!report.proven, "a server may have started: {report:?}");
    guard.end();

    let guard = HungGuard::install(&programs.scene.work());
    options.mcp_servers = vec![programs.server("one").time_limit(SHORT)];
    let mut talk = Talk::new(options);
    talk.send("go");
    assert_eq!(talk.end().await.reason, EndReason::Completed);
    assert_warned(
        &talk,
        &["`one` did not start within 1 s and was ended; it may have run for a moment"],
    );
    drop(talk.stop().await);
    guard.end();
}
