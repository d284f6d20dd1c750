//! An agent with a directory of its own, its conversation, and what the conversation reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_api::{
    Access, AgentOptions, ApiAgent, BoxFuture, Dialect, Endpoint, JsonObject, Tool, ToolContext,
    ToolDefinition, ToolOutput,
};
use agent_duplex::{
    Answer, Conversation, ConversationEvent, ConversationOptions, Event, Permissions, Published,
    Receipt, SessionChoice, Subscription,
};
use tokio::time::timeout;

use crate::server::Server;

pub(crate) const DIALECTS: [Dialect; 3] = [Dialect::Messages, Dialect::Responses, Dialect::Chat];
/// Far longer than anything here takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A tool that counts its runs.
#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) runs: AtomicUsize,
}

impl Tool for Count {
    fn definition(&self) -> ToolDefinition {
        definition("count")
    }

    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        let runs = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        Box::pin(async move { ToolOutput::ok(format!("run {runs} with {}", arguments.as_str())) })
    }
}

/// A tool that runs until it is cancelled.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    pub(crate) started: AtomicUsize,
    pub(crate) cancelled: AtomicUsize,
}

impl Tool for Wait {
    fn definition(&self) -> ToolDefinition {
        definition("wait")
    }

    fn access(&self, _: &JsonObject, _: &ToolContext) -> Access {
        Access::Reads
    }

    fn run<'a>(&'a self, _: &'a JsonObject, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async {
            self.started.fetch_add(1, Ordering::SeqCst);
            context.cancel.cancelled().await;
            self.cancelled.fetch_add(1, Ordering::SeqCst);
            ToolOutput::failed("cancelled")
        })
    }
}

pub(crate) fn definition(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        description: format!("The tool {name}."),
        schema: JsonObject::parse(r#"{"type":"object"}"#).unwrap(),
    }
}

/// The directories of an agent.
pub(crate) struct Scene {
    root: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("work")).unwrap();
        Self { root }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub(crate) fn sessions(&self) -> PathBuf {
        self.root.path().join("sessions")
    }

    /// Returns the settings of an agent that asks nobody.
    pub(crate) fn options(
        &self,
        server: &Server,
        tools: impl IntoIterator<Item = Arc<dyn Tool>>,
    ) -> AgentOptions {
        options(server, &self.work(), &self.sessions(), tools)
    }
}

pub(crate) fn options(
    server: &Server,
    work: &Path,
    sessions: &Path,
    tools: impl IntoIterator<Item = Arc<dyn Tool>>,
) -> AgentOptions {
    let endpoint = Endpoint::new(server.dialect, &server.url);
    let mut options = AgentOptions::new(endpoint, "a-model", work, sessions);
    options.tools = tools.into_iter().collect();
    options.permissions = Permissions::All;
    options
}

/// A conversation, and all its events so far.
pub(crate) struct Talk {
    pub(crate) conversation: Conversation,
    events: Subscription,
    pub(crate) seen: Vec<Event>,
}

impl Talk {
    pub(crate) fn new(options: AgentOptions) -> Self {
        Self::with(options, ConversationOptions::default())
    }

    fn with(options: AgentOptions, conversation: ConversationOptions) -> Self {
        let agent = ApiAgent::new(options).unwrap();
        let conversation = Conversation::new(Box::new(agent), conversation);
        let events = conversation.subscribe(10_000);
        Self {
            conversation,
            events,
            seen: Vec::new(),
        }
    }

    pub(crate) async fn started(options: AgentOptions, session: SessionChoice) -> Self {
        let talk = Self::with(options, ConversationOptions::default().with_manual_start());
        talk.conversation.start(session).await.unwrap();
        talk
    }

    pub(crate) fn send(&self, text: &str) -> Receipt {
        self.conversation.send(text).unwrap()
    }

    /// Sends a text, and returns the answer of the conversation.
    pub(crate) async fn ask(&self, text: &str) -> Answer {
        let asked = timeout(DEADLINE, self.conversation.ask(text)).await;
        asked.expect("the turn ends in time").unwrap()
    }

    /// Waits for an event, and returns what `found` makes of it.
    pub(crate) async fn until<T>(&mut self, mut found: impl FnMut(&Event) -> Option<T>) -> T {
        loop {
            let next = timeout(DEADLINE, self.events.next()).await;
            let next = next
                .expect("the event comes in time")
                .expect("the conversation lives");
            let Published { event, .. } = next.expect("no event is lost");
            let events = match event {
                ConversationEvent::Observed(observation) => observation.events,
                ConversationEvent::Completed(completion) => {
                    vec![Event::TurnCompleted(completion.end)]
                }
                _ => Vec::new(),
            };
            let mut result = None;
            for event in events {
                if result.is_none() {
                    result = found(&event);
                }
                self.seen.push(event);
            }
            if let Some(result) = result {
                return result;
            }
        }
    }

    /// Waits for the end of a turn.
    pub(crate) async fn end(&mut self) -> agent_duplex::TurnEnd {
        self.until(|event| match event {
            Event::TurnCompleted(end) => Some(end.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn session(&mut self) -> String {
        self.until(|event| match event {
            Event::Session { id } => Some(id.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn stop(self) -> agent_duplex::StopReport {
        self.conversation.stop(Duration::from_secs(8)).await
    }
}
