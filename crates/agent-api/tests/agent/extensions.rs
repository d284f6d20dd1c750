//! Parts that a program adds to the agent: middleware, and tools from functions.

use std::sync::{Arc, Mutex};

use agent_api::{
    AssistantMessage, AssistantPart, AssistantText, BoxFuture, Dialect, Error, ErrorKind,
    FunctionTool, Item, Middleware, ModelCall, ModelResponse, Next, UserMessage,
};
use agent_duplex::{EndReason, Event, ToolOutcome};
use serde::Deserialize;

use crate::scene::{DIALECTS, Scene, Talk};
use crate::server::{Reply, Request, Server};

#[expect(dead_code, reason = "its `main` isn't called")]
#[path = "../../examples/agent.rs"]
mod example;

/// The action of a middleware.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Pass,
    ChangeRequest,
    ChangeResponse,
    RespondItself,
    Fail(ErrorKind),
    CallTwice,
}

#[derive(Debug)]
struct Layer {
    name: &'static str,
    deed: Deed,
    log: Arc<Mutex<Vec<String>>>,
}

impl Middleware for Layer {
    fn call<'a>(
        &'a self,
        mut call: ModelCall<'a>,
        next: Next<'a>,
    ) -> BoxFuture<'a, Result<ModelResponse, Error>> {
        Box::pin(async move {
            self.log
                .lock()
                .unwrap()
                .push(format!("{} before", self.name));
            let response = match self.deed {
                Deed::Pass => next.run(call).await?,
                Deed::ChangeRequest => {
                    call.settings.system.push_str("\nBe brief.");
                    call.history.to_mut().append(Item::User(UserMessage {
                        text: "a note for this call".to_owned(),
                    }))?;
                    next.run(call).await?
                }
                Deed::ChangeResponse => {
                    let mut response = next.run(call).await?;
                    for part in &mut response.message.parts {
                        if let AssistantPart::Text(text) = part {
                            text.text = text.text.replace("secret", "…");
                        }
                    }
                    response
                }
                Deed::RespondItself => ModelResponse::new(AssistantMessage {
                    parts: vec![AssistantPart::Text(AssistantText {
                        text: "from the cache".to_owned(),
                        phase: None,
                    })],
                    ..AssistantMessage::default()
                }),
                Deed::Fail(kind) => return Err(Error::new(kind, "the middleware refused")),
                Deed::CallTwice => {
                    let again = call.clone();
                    drop(next.run(call).await?);
                    next.run(again).await?
                }
            };
            self.log
                .lock()
                .unwrap()
                .push(format!("{} after", self.name));
            Ok(response)
        })
    }
}

struct Layers(Arc<Mutex<Vec<String>>>);

impl Layers {
    fn layer(&self, name: &'static str, deed: Deed) -> Arc<dyn Middleware> {
        let log = Arc::clone(&self.0);
        Arc::new(Layer { name, deed, log })
    }
}

#[tokio::test]
async fn a16_middleware_runs_in_its_order_and_changes_requests_and_responses() {
    for dialect in DIALECTS {
        let scene = Scene::new();
        let server = Server::replying(dialect, [Reply::text("the secret word")]).await;
        let layers = Layers(Arc::default());
        let mut options = scene.options(&server, []);
        options.middleware = vec![
            layers.layer("outer", Deed::ChangeResponse),
            layers.layer("inner", Deed::ChangeRequest),
        ];
        let talk = Talk::new(options);
        let response = talk.ask("tell me").await;
        assert_eq!(response.text, "the … word");
        let log = layers.0.lock().unwrap().clone();
        assert_eq!(
            log,
            ["outer before", "inner before", "inner after", "outer after"]
        );
        talk.ask("again").await;
        let requests = server
            .requests()
            .iter()
            .map(Request::text)
            .collect::<Vec<_>>();
        assert!(requests[0].contains("Be brief."));
        for request in &requests {
            assert_eq!(
                request.matches("a note for this call").count(),
                1,
                "it isn't kept"
            );
        }
        assert!(requests[1].contains("the … word") && !requests[1].contains("secret"));
    }
}

#[tokio::test]
async fn a16_middleware_can_respond_fail_and_be_tried_again() {
    let scene = Scene::new();
    let server = Server::replying(Dialect::Chat, []).await;
    for (deed, reason) in [
        (Deed::Fail(ErrorKind::Settings), EndReason::Failed),
        (Deed::Fail(ErrorKind::Auth), EndReason::NotLoggedIn),
    ] {
        let layers = Layers(Arc::default());
        let mut options = scene.options(&server, []);
        options.middleware = vec![layers.layer("only", deed)];
        let mut talk = Talk::new(options);
        talk.send("go");
        assert_eq!(talk.end().await.reason, reason, "{deed:?}");
    }
    let layers = Layers(Arc::default());
    let mut options = scene.options(&server, []);
    options.middleware = vec![layers.layer("only", Deed::RespondItself)];
    assert_eq!(Talk::new(options).ask("go").await.text, "from the cache");
    assert!(server.requests().is_empty());

    let layers = Layers(Arc::default());
    let mut options = scene.options(&server, []);
    options.middleware = vec![layers.layer("only", Deed::Fail(ErrorKind::Server))];
    options.max_tries = 2;
    let mut talk = Talk::new(options);
    talk.send("go");
    assert_eq!(talk.end().await.reason, EndReason::ServiceFailed);
    assert_eq!(layers.0.lock().unwrap().len(), 2, "two tries");
}

#[tokio::test]
async fn a16_model_called_twice_counts_twice() {
    let scene = Scene::new();
    let server = Server::start(Dialect::Chat, |_| Reply {
        input_tokens: 100,
        ..Reply::text("word")
    })
    .await;
    let layers = Layers(Arc::default());
    let mut options = scene.options(&server, []);
    options.middleware = vec![
        layers.layer("only", Deed::CallTwice),
        layers.layer("last", Deed::Pass),
    ];
    let mut talk = Talk::new(options);
    talk.send("go");
    talk.end().await;
    let input: u64 = { talk.seen.iter() }
        .map(|event| match event {
            Event::UsageReported(usage) => usage.input_tokens,
            _ => 0,
        })
        .sum();
    assert_eq!(input, 200);
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Sum {
    numbers: Vec<i64>,
}

#[tokio::test]
async fn a17_function_is_a_tool_and_wrong_arguments_are_explained() {
    for dialect in DIALECTS {
        let scene = Scene::new();
        let replies = [
            Reply::call("add", r#"{"numbers":"two"}"#),
            Reply::call("add", r#"{"numbers":[1,2]}"#),
            Reply::call("add", r#"{"numbers":[1,2,-9]}"#),
        ];
        let server = Server::replying(dialect, replies).await;
        let add = FunctionTool::new("add", "Adds numbers.", |sum: Sum| async move {
            match sum.numbers.iter().sum::<i64>() {
                total @ 0.. => Ok(format!("the sum is {total}")),
                _ => Err("the sum is negative".to_owned()),
            }
        });
        let mut talk = Talk::new(scene.options(&server, [Arc::new(add) as _]));
        talk.send("add");
        assert_eq!(talk.end().await.reason, EndReason::Completed);
        let outcomes = talk.seen.iter().filter_map(|event| match event {
            Event::ToolFinished { outcome, text, .. } => Some((*outcome, text.clone())),
            _ => None,
        });
        let outcomes: Vec<_> = outcomes.collect();
        assert_eq!(outcomes[0].0, ToolOutcome::Failed);
        assert!(
            outcomes[0].1.contains("invalid type: string"),
            "{outcomes:?}"
        );
        assert!(
            outcomes[0].1.contains(r#""numbers""#),
            "the schema is in it: {outcomes:?}"
        );
        assert_eq!(
            outcomes[1],
            (ToolOutcome::Succeeded, "the sum is 3".to_owned())
        );
        assert_eq!(
            outcomes[2],
            (ToolOutcome::Failed, "the sum is negative".to_owned())
        );
    }
}

#[tokio::test]
async fn a16_a24_example_runs_its_tool_and_counts_its_tokens() {
    let scene = Scene::new();
    std::fs::write(scene.work().join("a file"), "").unwrap();
    let arguments = format!(r#"{{"path":"{}"}}"#, scene.work().display());
    let replies = [Reply::call("list", &arguments), Reply::text("one file")];
    let server = Server::replying(Dialect::Chat, replies).await;
    let sessions = scene.sessions();
    let tokens = example::run(
        &server.url,
        "a-model",
        "which files?",
        sessions.to_str().unwrap(),
    )
    .await;
    let counted: Vec<_> = tokens.unwrap().into_iter().collect();
    assert_eq!(counted, [("list".to_owned(), 2)]);
    assert!(server.requests()[1].text().contains("a file"));
}
