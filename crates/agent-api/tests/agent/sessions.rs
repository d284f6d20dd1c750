//! Sessions: resume, fork, the stable prefix of requests, compaction, permissions and settings of a live agent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_api::{
    Access, AgentOptions, ApiAgent, BoxFuture, Dialect, ErrorKind, JsonObject, Tool, ToolContext,
    ToolDefinition, ToolOutput,
};
use agent_duplex::{
    Decision, Driver as _, EndReason, Event, Message, Permissions, SessionChoice, ToolOutcome,
    TurnEnd,
};
use serde_json::Value;
use uuid::Uuid;

use crate::scene::{Count, DIALECTS, Scene, Talk};
use crate::server::{Reply, Request, Server};

#[tokio::test]
async fn session_continues_and_its_copy_leaves_it_as_it_is() {
    for dialect in DIALECTS {
        let scene = Scene::new();
        let server = Server::replying(dialect, []).await;
        let options = || scene.options(&server, []);
        let mut talk = Talk::started(options(), SessionChoice::Fresh).await;
        let session = talk.session().await;
        talk.ask("my name is Ada").await;

        let mut copy = Talk::started(options(), SessionChoice::Fork(session.clone())).await;
        assert_ne!(copy.session().await, session);
        copy.ask("I like maps").await;
        let request = server.requests().pop().unwrap().text();
        assert!(request.contains("Ada"), "{request}");

        talk.stop().await;
        let talk = Talk::started(options(), SessionChoice::Resume(session)).await;
        talk.ask("who am I").await;
        let request = server.requests().pop().unwrap().text();
        assert!(
            request.contains("Ada") && !request.contains("maps"),
            "{request}"
        );
    }
}

#[tokio::test]
async fn missing_session_ends_the_first_turn() {
    let scene = Scene::new();
    let server = Server::replying(Dialect::Chat, []).await;
    for missing in ["0b2f9b1e-4f3c-4a86-a6d6-0d5c7a9c0001", "../work", "", "a/b"] {
        let resumed = SessionChoice::Resume(missing.to_owned());
        let mut talk = Talk::started(scene.options(&server, []), resumed).await;
        talk.send("go");
        assert_eq!(
            talk.end().await.reason,
            EndReason::SessionNotFound,
            "{missing}"
        );
    }
    assert!(server.requests().is_empty());
}

/// Sends the message of a turn, and returns the end of the turn and the session.
async fn sent(options: AgentOptions, choice: SessionChoice) -> (TurnEnd, String) {
    let agent = ApiAgent::new(options).unwrap();
    let mut connection = agent.connect(choice).await.unwrap();
    let message = Message::new("go").with_id(Uuid::from_u128(1));
    connection.send(message).await.unwrap();
    let mut session = String::new();
    loop {
        for event in connection.next().await.unwrap().events {
            match event {
                Event::Session { id } => session = id,
                Event::TurnCompleted(end) => return (end, session),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn a6_message_that_is_sent_again_gets_the_same_end() {
    for (finish, reason) in [
        ("stop", EndReason::Completed),
        ("length", EndReason::MaxTokens),
        ("content_filter", EndReason::Refused),
    ] {
        let scene = Scene::new();
        let reply = Reply {
            finish: Some(finish),
            ..Reply::text("an answer")
        };
        let server = Server::replying(Dialect::Chat, [reply]).await;
        let (end, session) = sent(scene.options(&server, []), SessionChoice::Fresh).await;
        assert_eq!(end.reason, reason);
        // As after a crash of the conversation, which did not see the end.
        let resumed = SessionChoice::Resume(session);
        let (end, _) = sent(scene.options(&server, []), resumed).await;
        assert_eq!(end.reason, reason, "{finish}");
        assert_eq!(server.requests().len(), 1, "the model is not called again");
    }
}

#[tokio::test]
async fn session_with_a_chosen_id_is_created_once() {
    let scene = Scene::new();
    let server = Server::replying(Dialect::Chat, []).await;
    let id = || "3-17".to_owned();
    let created = SessionChoice::Create(id());
    let mut talk = Talk::started(scene.options(&server, []), created.clone()).await;
    assert_eq!(talk.session().await, "3-17");
    talk.ask("my name is Ada").await;
    talk.stop().await;
    // Another conversation must not continue it by chance.
    let agent = ApiAgent::new(scene.options(&server, [])).unwrap();
    for (choice, why) in [
        (created, "session 3-17 can't be created: it exists already"),
        (
            SessionChoice::Create("../work".to_owned()),
            "session ../work can't be created: its id is invalid",
        ),
    ] {
        let error = agent.connect(choice).await.unwrap_err();
        assert!(error.is_start_failure(), "{error}");
        assert!(error.to_string().ends_with(why), "{error}");
    }
    let talk = Talk::started(scene.options(&server, []), SessionChoice::Resume(id())).await;
    talk.ask("who am I").await;
    let request = server.requests().pop().unwrap().text();
    assert!(request.contains("Ada"), "{request}");
}

/// After a crash, the caller finds out which of its inputs the session has.
#[tokio::test]
async fn a6_session_has_the_ids_of_the_inputs_on_disk() {
    let scene = Scene::new();
    let server = Server::replying(Dialect::Chat, []).await;
    let created = SessionChoice::Create("1-1".to_owned());
    let talk = Talk::started(scene.options(&server, []), created).await;
    let input = agent_duplex::Input::new("mind the docs").with_id("steer-7");
    talk.conversation.ask(input).await.unwrap();
    talk.stop().await;
    let session = scene.sessions().join("1-1");
    let loaded = checkpoint_store::reader::load::<Value, Value>(session).unwrap();
    assert_eq!(
        loaded.events[0]["message"]["inputs"],
        Value::from(vec!["steer-7"])
    );
}

#[cfg(unix)]
#[tokio::test]
async fn new_session_does_not_follow_a_link() {
    let scene = Scene::new();
    let server = Server::replying(Dialect::Chat, []).await;
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::create_dir(scene.sessions()).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), scene.sessions().join("1-1")).unwrap();
    let agent = ApiAgent::new(scene.options(&server, [])).unwrap();
    let created = agent.connect(SessionChoice::Create("1-1".to_owned())).await;
    assert!(created.unwrap_err().is_start_failure());
    assert!(
        std::fs::read_dir(elsewhere.path())
            .unwrap()
            .next()
            .is_none()
    );
}

#[tokio::test]
async fn damaged_session_ends_the_turn_like_an_absent_one() {
    let scene = Scene::new();
    let server = Server::replying(Dialect::Chat, []).await;
    let created = SessionChoice::Create("1-1".to_owned());
    let talk = Talk::started(scene.options(&server, []), created).await;
    talk.ask("go").await;
    talk.stop().await;
    for entry in std::fs::read_dir(scene.sessions().join("1-1")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "ckj") {
            std::fs::write(path, [7; 4096]).unwrap();
        }
    }
    let resumed = SessionChoice::Resume("1-1".to_owned());
    let mut talk = Talk::started(scene.options(&server, []), resumed).await;
    talk.send("go on");
    assert_eq!(talk.end().await.reason, EndReason::SessionNotFound);
    let warned = |event: &Event| matches!(event, Event::Warning(why) if why.starts_with("the session can't continue: "));
    assert!(talk.seen.iter().any(warned), "{:?}", talk.seen);
}

#[tokio::test]
async fn a23_copy_ends_at_the_position_of_a_turn() {
    for dialect in DIALECTS {
        let scene = Scene::new();
        let server = Server::replying(dialect, []).await;
        let options = || scene.options(&server, []);
        let mut talk = Talk::started(options(), SessionChoice::Fresh).await;
        let session = talk.session().await;
        let saved = |event: &Event| match event {
            Event::SessionSaved { position } => Some(*position),
            _ => None,
        };
        talk.send("my name is Ada");
        let position = talk.until(saved).await;
        let first = server.requests().pop().unwrap();
        talk.send("I like maps");
        assert!(talk.until(saved).await > position);

        let kind = checkpoint_store::Options {
            schema: "agent-api session".to_owned(),
            ..Default::default()
        };
        let sessions = scene.sessions();
        checkpoint_store::fork(
            sessions.join(session),
            checkpoint_store::Seq::new(position),
            sessions.join("copy"),
            &kind,
        )
        .unwrap();
        let copy = Talk::started(options(), SessionChoice::Resume("copy".to_owned())).await;
        copy.ask("who am I").await;
        let request = server.requests().pop().unwrap();
        let (before, after) = [&first, &request]
            .map(|it| conversation(it, dialect))
            .into();
        assert!(after.starts_with(&before), "{after:?}");
        let text = request.text();
        assert!(
            !text.contains("maps") && text.contains("who am I"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn session_in_use_is_refused() {
    let scene = Scene::new();
    let server = Server::replying(Dialect::Chat, []).await;
    let mut talk = Talk::started(scene.options(&server, []), SessionChoice::Fresh).await;
    let session = talk.session().await;
    let second = agent_api::ApiAgent::new(scene.options(&server, [])).unwrap();
    let connected = agent_duplex::Driver::connect(&second, SessionChoice::Resume(session)).await;
    let error = connected.expect_err("the session is in use");
    assert!(error.is_session_in_use(), "{error}");
}

/// Returns the conversation in a request, without cache breakpoints and without its end.
fn conversation(request: &Request, dialect: Dialect) -> Vec<String> {
    let body = request.json();
    let items = match dialect {
        Dialect::Responses => &body["input"],
        _ => &body["messages"],
    };
    fn without_marks(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("cache_control");
                fields.values_mut().for_each(without_marks);
            }
            Value::Array(values) => values.iter_mut().for_each(without_marks),
            _ => {}
        }
    }
    let mut items = items.clone();
    without_marks(&mut items);
    items
        .as_array()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[tokio::test]
async fn a8_each_request_of_a_turn_begins_with_the_request_before() {
    const CALLS: usize = 40;
    for dialect in DIALECTS {
        let scene = Scene::new();
        let respond = |request: &Request| match request.number {
            0..CALLS => Reply::call("count", &format!(r#"{{"n":{}}}"#, request.number)),
            _ => Reply::text("done"),
        };
        let server = Server::start(dialect, respond).await;
        let mut talk = Talk::new(scene.options(&server, [Arc::new(Count::default()) as _]));
        talk.send("count");
        assert_eq!(talk.end().await.reason, EndReason::Completed);
        let requests = server.requests();
        assert_eq!(requests.len(), CALLS + 1);
        for pair in requests.windows(2) {
            let [before, after] = [&pair[0], &pair[1]].map(|it| conversation(it, dialect));
            assert!(after.len() > before.len());
            assert_eq!(before[..], after[..before.len()], "{dialect:?}");
            let [before, after] = [&pair[0], &pair[1]].map(Request::json);
            for part in ["system", "tools", "instructions", "model"] {
                assert_eq!(before[part].to_string(), after[part].to_string(), "{part}");
            }
        }
    }
}

#[tokio::test]
async fn a9_long_conversation_is_compacted_and_goes_on() {
    for dialect in DIALECTS {
        let scene = Scene::new();
        // A request without tools asks for a summary.
        let respond = |request: &Request| match request.json()["tools"].as_array() {
            None => Reply::text("the summary of the test"),
            Some(_) => match request.number % 10 {
                9 => Reply::text("done"),
                _ => Reply::call(
                    "count",
                    &format!(
                        r#"{{"n":{},"text":"{}"}}"#,
                        request.number,
                        "word ".repeat(400)
                    ),
                ),
            },
        };
        let server = Server::start(dialect, respond).await;
        let mut options = scene.options(&server, [Arc::new(Count::default()) as _]);
        options.context_window = 6_000;
        let mut talk = Talk::started(options.clone(), SessionChoice::Fresh).await;
        let session = talk.session().await;
        for turn in 0..4 {
            talk.send(&format!("task <{turn}>"));
            let end = talk.end().await;
            assert_eq!(end.reason, EndReason::Completed, "{dialect:?}: {end}");
        }
        let compactions = |talk: &Talk| {
            { talk.seen.iter() }
                .filter(|event| matches!(event, Event::ContextReset { .. }))
                .count()
        };
        assert!(
            compactions(&talk) >= 2,
            "{dialect:?}: {}",
            compactions(&talk)
        );
        let longest = server
            .requests()
            .iter()
            .map(|request| request.body.len())
            .max();
        assert!(longest < Some(6_000 * 4 + 4_000), "{longest:?}");
        // After a restart, the compacted history is the same. A larger window leaves it as it is.
        let before = server.requests().pop().unwrap();
        talk.stop().await;
        options.context_window = 1_000_000;
        let mut talk = Talk::started(options, SessionChoice::Resume(session)).await;
        talk.send("last task");
        talk.end().await;
        let requests = server.requests();
        let after = { requests.iter() }.find(|request| request.text().contains("last task"));
        let after = after.unwrap();
        let text = after.text();
        for kept in ["task <0>", "task <3>", "the summary of the test"] {
            assert!(text.contains(kept), "{dialect:?}, {kept}: {text}");
        }
        let [before, after] = [&before, after].map(|it| conversation(it, dialect));
        assert_eq!(before[..], after[..before.len()], "{dialect:?}");
    }
}

#[tokio::test]
async fn a9_instructions_that_fill_the_window_are_refused_before_a_start() {
    let scene = Scene::new();
    let server = Server::replying(Dialect::Chat, []).await;
    let mut options = scene.options(&server, []);
    options.context_window = 8_000;
    options.instructions = "A rule. ".repeat(3_000);
    let refused = ApiAgent::new(options.clone()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Settings);
    let why = "the system prompt and the tools alone take about 6";
    assert!(refused.to_string().starts_with(why), "{refused}");
    options.context_window = 9_000;
    assert_eq!(Talk::new(options).ask("go").await.text, "done");
}

#[tokio::test]
async fn a9_server_with_a_smaller_window_leads_to_a_compaction() {
    // Longer than half of the server's window: no compaction makes them shorter.
    let rules = "A rule. ".repeat(4_000);
    for (dialect, error, rules) in [
        (
            Dialect::Messages,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}}"#,
        ),
        (
            Dialect::Responses,
            r#"{"error":{"code":"context_length_exceeded","type":"invalid_request_error","message":"too long"}}"#,
        ),
        (
            Dialect::Chat,
            r#"{"error":{"code":"context_length_exceeded","type":"invalid_request_error","message":"too long"}}"#,
        ),
    ]
    .into_iter()
    .flat_map(|(dialect, error)| ["", rules.as_str()].map(|rules| (dialect, error, rules)))
    {
        let scene = Scene::new();
        let window = rules.len() + 20_000;
        let respond = move |request: &Request| match request.json()["tools"].as_array() {
            None => Reply::text("a summary"),
            Some(_) if request.body.len() > window => Reply::refused(400, "", error),
            Some(_) if request.text().contains("finish") => Reply::text("finished"),
            Some(_) => match request.number {
                0..10 => Reply::call(
                    "count",
                    &format!(
                        r#"{{"n":{},"text":"{}"}}"#,
                        request.number,
                        "word ".repeat(400)
                    ),
                ),
                _ => Reply::text("done"),
            },
        };
        let server = Server::start(dialect, respond).await;
        let mut options = scene.options(&server, [Arc::new(Count::default()) as _]);
        options.instructions = rules.to_owned();
        let mut talk = Talk::new(options);
        talk.send("go");
        let end = talk.end().await;
        assert_eq!(end.reason, EndReason::Completed, "{dialect:?}: {end}");
        talk.send("finish");
        let end = talk.end().await;
        assert_eq!(end.reason, EndReason::Completed, "{dialect:?}: {end}");
        assert!(
            talk.seen
                .iter()
                .any(|event| matches!(event, Event::ContextReset { .. }))
        );
    }
}

#[tokio::test]
async fn a13_permission_is_asked_and_the_answer_counts() {
    let scene = Scene::new();
    let respond = |request: &Request| match request.number % 2 {
        0 => Reply::call("count", &format!(r#"{{"n":{}}}"#, request.number)),
        _ => Reply::text("ok"),
    };
    let server = Server::start(Dialect::Chat, respond).await;
    let count = Arc::new(Count::default());
    let mut options = scene.options(&server, [count.clone() as _]);
    options.permissions = Permissions::Edits;
    let mut talk = Talk::new(options);
    let asked = |event: &Event| match event {
        Event::PermissionRequested(request) => Some(request.id.clone()),
        _ => None,
    };
    let finished = |event: &Event| match event {
        Event::ToolFinished { outcome, .. } => Some(*outcome),
        _ => None,
    };

    talk.send("denied");
    let ask = talk.until(asked).await;
    let message = "not today".to_owned();
    talk.conversation
        .answer(&ask, Decision::Deny { message })
        .await
        .unwrap();
    assert_eq!(talk.until(finished).await, ToolOutcome::Denied);
    talk.end().await;
    assert_eq!(count.runs.load(Ordering::SeqCst), 0);
    assert!(
        server.requests()[1]
            .text()
            .contains("the user denied this call: not today")
    );

    talk.send("allowed");
    let ask = talk.until(asked).await;
    talk.conversation
        .answer(&ask, Decision::Allow)
        .await
        .unwrap();
    assert_eq!(talk.until(finished).await, ToolOutcome::Succeeded);
    talk.end().await;
    assert_eq!(count.runs.load(Ordering::SeqCst), 1);

    // A wider mode answers the open request.
    talk.send("widened");
    talk.until(asked).await;
    talk.conversation
        .set_permissions(Permissions::All)
        .await
        .unwrap();
    assert_eq!(talk.until(finished).await, ToolOutcome::Succeeded);
    talk.end().await;

    // A narrower one applies to the next call.
    talk.conversation
        .set_permissions(Permissions::Ask)
        .await
        .unwrap();
    talk.send("narrowed");
    talk.until(asked).await;
    assert_eq!(count.runs.load(Ordering::SeqCst), 2);
}

/// A tool that says of itself that it edits.
#[derive(Debug, Default)]
struct EditingCount(Count);

impl Tool for EditingCount {
    fn definition(&self) -> ToolDefinition {
        self.0.definition()
    }

    fn access(&self, _: &JsonObject, _: &ToolContext) -> Access {
        Access::Edits
    }

    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        self.0.run(arguments, context)
    }
}

#[tokio::test]
async fn a13_wider_permissions_answer_the_questions_that_they_cover() {
    let scene = Scene::new();
    let server = Server::replying(Dialect::Chat, [Reply::call("count", "{}")]).await;
    let count = Arc::new(EditingCount::default());
    let mut options = scene.options(&server, [count.clone() as _]);
    options.permissions = Permissions::Ask;
    let mut talk = Talk::new(options);
    talk.send("edit");
    let is_asked = |event: &Event| matches!(event, Event::PermissionRequested(_)).then_some(());
    talk.until(is_asked).await;
    talk.conversation
        .set_permissions(Permissions::Edits)
        .await
        .unwrap();
    assert_eq!(talk.end().await.reason, EndReason::Completed);
    assert_eq!(count.0.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn frozen_agent_runs_no_tool_that_was_allowed_meanwhile() {
    let scene = Scene::new();
    let server = Server::replying(Dialect::Chat, [Reply::call("count", "{}")]).await;
    let count = Arc::new(Count::default());
    let mut options = scene.options(&server, [count.clone() as _]);
    options.permissions = Permissions::Ask;
    let mut talk = Talk::new(options);
    talk.send("count");
    let asked = |event: &Event| match event {
        Event::PermissionRequested(request) => Some(request.id.clone()),
        _ => None,
    };
    let ask = talk.until(asked).await;
    talk.conversation.freeze(true).await.unwrap();
    talk.conversation
        .answer(&ask, Decision::Allow)
        .await
        .unwrap();
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(count.runs.load(Ordering::SeqCst), 0);
    talk.conversation.freeze(false).await.unwrap();
    assert_eq!(talk.end().await.reason, EndReason::Completed);
    assert_eq!(count.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn changed_model_is_used_from_the_next_call_on() {
    let scene = Scene::new();
    let server = Server::replying(Dialect::Chat, []).await;
    let talk = Talk::started(scene.options(&server, []), SessionChoice::Fresh).await;
    talk.ask("one").await;
    talk.conversation
        .set_model(Some("another".into()))
        .await
        .unwrap();
    talk.ask("two").await;
    talk.conversation.set_model(None).await.unwrap();
    talk.ask("three").await;
    let models = server
        .requests()
        .iter()
        .map(|it| it.json()["model"].clone())
        .collect::<Vec<_>>();
    assert_eq!(models, ["a-model", "another", "a-model"]);
}

#[tokio::test]
async fn frozen_agent_calls_nothing_until_it_continues() {
    let scene = Scene::new();
    let server = Server::replying(Dialect::Chat, []).await;
    let mut talk = Talk::started(scene.options(&server, []), SessionChoice::Fresh).await;
    talk.conversation.freeze(true).await.unwrap();
    talk.send("go");
    talk.session().await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert!(server.requests().is_empty());
    talk.conversation.freeze(false).await.unwrap();
    assert_eq!(talk.end().await.reason, EndReason::Completed);
}
