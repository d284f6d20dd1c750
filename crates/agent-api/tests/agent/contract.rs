//! The contract of `agent-duplex` for drivers, played with a model server that does what the message says.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_api::{
    Access, AgentOptions, ApiAgent, BoxFuture, Dialect, JsonObject, Tool, ToolContext,
    ToolDefinition, ToolOutput,
};
use agent_duplex::contract::{Scenario, ScenarioResult, TestAction, TestAgent, play, table};
use agent_duplex::{Driver, Permissions};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::scene::{Count, DEADLINE, DIALECTS, Scene, definition};
use crate::server::{Reply, Request, Server};

/// The tools that run now.
type Running = Arc<Mutex<HashSet<String>>>;

/// A tool that runs until it is cancelled, or for a number of milliseconds.
#[derive(Debug)]
struct Hold(Running);

impl Tool for Hold {
    fn definition(&self) -> ToolDefinition {
        definition("hold")
    }

    fn access(&self, _: &JsonObject, _: &ToolContext) -> Access {
        Access::Reads
    }

    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let name = arguments.string("name").unwrap();
            let time = arguments.string("time").unwrap().parse().unwrap();
            self.0.lock().unwrap().insert(name.clone());
            let cancelled = context.cancel.cancelled();
            let _cancelled = tokio::time::timeout(Duration::from_millis(time), cancelled).await;
            self.0.lock().unwrap().remove(&name);
            ToolOutput::ok("held")
        })
    }
}

/// A tool without effects.
#[derive(Debug)]
struct Look;

impl Tool for Look {
    fn definition(&self) -> ToolDefinition {
        definition("look")
    }

    fn access(&self, _: &JsonObject, _: &ToolContext) -> Access {
        Access::Reads
    }

    fn run<'a>(&'a self, _: &'a JsonObject, _: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async { ToolOutput::ok("seen") })
    }
}

struct Subject {
    scene: Scene,
    server: Server,
    running: Running,
}

impl Subject {
    async fn new(dialect: Dialect) -> Self {
        let limited = AtomicUsize::new(0);
        let respond = move |request: &Request| reply(request, dialect, &limited);
        Self {
            scene: Scene::new(),
            server: Server::start(dialect, respond).await,
            running: Running::default(),
        }
    }

    fn options(&self) -> AgentOptions {
        let tools: [Arc<dyn Tool>; 3] = [
            Arc::new(Look),
            Arc::new(Count::default()),
            Arc::new(Hold(Arc::clone(&self.running))),
        ];
        let mut options = self.scene.options(&self.server, tools);
        options.permissions = Permissions::Ask;
        options
    }
}

/// Does what the last message says, in `<…>`.
fn reply(request: &Request, dialect: Dialect, limited: &AtomicUsize) -> Reply {
    let body = request.json();
    let items = match dialect {
        Dialect::Responses => body["input"].as_array().unwrap(),
        _ => body["messages"].as_array().unwrap(),
    };
    let words = |item: &Value| {
        let text = item.to_string();
        let (_, rest) = text.split_once("please <")?;
        Some(rest.split_once('>')?.0.to_owned())
    };
    let last = items
        .iter()
        .rposition(|item| words(item).is_some())
        .unwrap();
    let action = words(&items[last]).unwrap();
    let has_result = items.len() > last + 1;
    let (name, rest) = action.split_once(' ').unwrap_or((&action, ""));
    let call = |name: &str, arguments: &str| match has_result {
        true => Reply::text("done"),
        false => Reply::call(name, arguments),
    };
    match name {
        "say" => Reply::text(rest),
        "recall" => Reply::text(&format!(
            "at first: {}",
            words(&items[items.iter().position(|item| words(item).is_some()).unwrap()]).unwrap()
        )),
        "look" => call("look", "{}"),
        "act" => call("count", "{}"),
        "hold" => {
            let (name, time) = rest.split_once(' ').unwrap();
            call("hold", &format!(r#"{{"name":"{name}","time":"{time}"}}"#))
        }
        "talk" => Reply::text("word ").held(&CancellationToken::new()),
        "flood" => Reply {
            texts: vec!["x".repeat(1 << 13); rest.parse::<usize>().unwrap() >> 13],
            ..Reply::default()
        },
        "limit-once" if limited.fetch_add(1, Ordering::SeqCst) > 0 => Reply::text(rest),
        "limit-once" => Reply::refused(429, "retry-after: 0\r\n", "{}"),
        "limit" => Reply::refused(429, "retry-after: 3600\r\n", "{}"),
        _ => Reply::text("what?"),
    }
}

impl TestAgent for Subject {
    fn driver(&self) -> Box<dyn Driver> {
        Box::new(ApiAgent::new(self.options()).unwrap())
    }

    fn prompt_for(&self, action: &TestAction) -> Result<String, String> {
        let words = match action {
            TestAction::Say(word) => format!("say {word}"),
            TestAction::Recall => "recall".to_owned(),
            TestAction::CallTool => "look".to_owned(),
            TestAction::CallToolWithPermission => "act".to_owned(),
            TestAction::RunToolFor { name, time } => format!("hold {name} {}", time.as_millis()),
            TestAction::TalkFor(_) => "talk".to_owned(),
            TestAction::RateLimitOnce(word) => format!("limit-once {word}"),
            TestAction::RateLimit => "limit".to_owned(),
            TestAction::Flood(bytes) => format!("flood {bytes}"),
            _ => return Err("the agent has no process that writes lines".to_owned()),
        };
        Ok(format!("please <{words}>"))
    }

    fn kill(&self, _: u32) -> Result<(), String> {
        Err("the agent has no process".to_owned())
    }

    fn has_process(&self) -> bool {
        false
    }

    fn alive(&self, tool: &str) -> Option<bool> {
        Some(self.running.lock().unwrap().contains(tool))
    }

    fn timeout(&self) -> Duration {
        DEADLINE
    }
}

#[tokio::test]
async fn a18_agent_keeps_the_contract_of_drivers_over_each_dialect() {
    let mut columns = Vec::new();
    for (name, dialect) in ["messages", "responses", "chat"].into_iter().zip(DIALECTS) {
        let mut plays = tokio::task::JoinSet::new();
        for scenario in Scenario::ALL {
            plays.spawn(async move {
                let subject = Subject::new(dialect).await;
                (scenario, play(&subject, scenario).await)
            });
        }
        let mut cells: Vec<(Scenario, ScenarioResult)> = plays.join_all().await;
        cells.sort_by_key(|(scenario, _)| *scenario);
        columns.push((name, cells));
    }
    insta::assert_snapshot!(table(&columns));
}
