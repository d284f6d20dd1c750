//! The measured processes: agents that work for ever, and a bare client. The bench kills them.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use agent_api::{
    Access, AgentOptions, ApiAgent, Bash, BoxFuture, Dialect, Endpoint, JsonObject, Tool,
    ToolContext, ToolDefinition, ToolOutput,
};
use agent_duplex::{
    Conversation, ConversationEvent, ConversationOptions, Event, Permissions, QueuedMessages,
    SessionChoice, Subscription,
};
use agent_subprocess::ProcessContext;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;

use super::{LARGE, STOP};
use crate::harness::{Result, one_thread};

/// The events that wait for the reader.
const EVENTS: usize = 256;

/// A line of a result.
const LINE: &str = "    let value = self.next(index).unwrap_or(0);\n";

/// The tool `nothing`: returns a text without any effect.
#[derive(Debug)]
struct Nothing;

#[derive(Deserialize)]
struct Call {
    bytes: usize,
}

impl Tool for Nothing {
    fn definition(&self) -> ToolDefinition {
        let schema = r#"{"type":"object","properties":{"number":{"type":"integer"},"bytes":{"type":"integer"}}}"#;
        ToolDefinition {
            name: "nothing".to_owned(),
            description: "Returns a text.".to_owned(),
            schema: JsonObject::parse(schema).expect("the schema is an object"),
        }
    }

    fn access(&self, _: &JsonObject, _: &ToolContext) -> Access {
        Access::Reads
    }

    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async {
            match serde_json::from_str::<Call>(arguments.as_str()) {
                Ok(call) => ToolOutput::ok(LINE.repeat(call.bytes.div_ceil(LINE.len()))),
                Err(error) => ToolOutput::failed(error.to_string()),
            }
        })
    }
}

/// Plays the measured process that the arguments name.
pub(super) fn play(arguments: &[&str]) -> Result<()> {
    one_thread()?.block_on(async {
        match arguments {
            ["bare", address, bytes] => bare(address, bytes.parse()?).await,
            ["turn", address, dir, window] => {
                let agent = agent(address, Path::new(dir), window.parse()?)?;
                let mut talk = Talk::start(agent).await?;
                talk.conversation.send("go")?;
                talk.until(|_| None::<()>).await
            }
            ["turns", address, dir, window] => loop {
                // As an iteration of a loop, which has a session of its own.
                let agent = agent(address, Path::new(dir), window.parse()?)?;
                let mut talk = Talk::start(agent).await?;
                talk.conversation.send("go")?;
                talk.end().await?;
                talk.conversation.stop(STOP).await;
            },
            ["text", address, dir] => {
                let mut talk = Talk::start(agent(address, Path::new(dir), LARGE)?).await?;
                loop {
                    talk.conversation.send("go")?;
                    talk.until(|event| matches!(event, Event::TextDelta(_)).then_some(()))
                        .await?;
                    talk.interrupt().await?;
                }
            }
            ["tool", address, dir, fifo] => {
                let mut talk = Talk::start(agent(address, Path::new(dir), LARGE)?).await?;
                loop {
                    talk.conversation.send("go")?;
                    let fifo = (*fifo).to_owned();
                    // The command opens the other end when it runs.
                    let started = tokio::task::spawn_blocking(move || fs_err::read(fifo));
                    started.await??;
                    talk.interrupt().await?;
                }
            }
            _ => Err("there is no such client".into()),
        }
    })
}

/// Sends the same request again and again, after the last byte of each response.
async fn bare(address: &str, bytes: usize) -> Result<()> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = async {
        connection.await?;
        Err::<(), Box<dyn std::error::Error + Send + Sync>>("the connection ended".into())
    };
    let body = Bytes::from(vec![b'x'; bytes]);
    let requests = async {
        while sender.ready().await.is_ok() {
            let request = hyper::Request::post("/v1/chat/completions")
                .header("host", address)
                .header("content-type", "application/json")
                .header("accept", "text/event-stream")
                .body(Full::new(body.clone()))?;
            let mut response = sender.send_request(request).await?;
            while let Some(frame) = response.frame().await {
                std::hint::black_box(frame?);
            }
        }
        Ok(())
    };
    tokio::try_join!(connection, requests).map(drop)
}

fn agent(address: &str, dir: &Path, window: u64) -> Result<ApiAgent> {
    let work = dir.join("work");
    fs_err::create_dir_all(&work)?;
    let endpoint = Endpoint::new(Dialect::Chat, format!("http://{address}/v1"));
    let mut options = AgentOptions::new(endpoint, "a-model", &work, dir.join("sessions"));
    let bash = Bash::new(ProcessContext::new(&work, dir.join("processes")));
    options.tools = vec![Arc::new(Nothing), Arc::new(bash)];
    options.permissions = Permissions::All;
    options.context_window = window;
    options.max_calls = u32::MAX;
    Ok(ApiAgent::new(options)?)
}

struct Talk {
    conversation: Conversation,
    events: Subscription,
}

impl Talk {
    async fn start(agent: ApiAgent) -> Result<Self> {
        let options = ConversationOptions::default().with_manual_start();
        let conversation = Conversation::new(Box::new(agent), options);
        let events = conversation.subscribe(EVENTS);
        conversation.start(SessionChoice::Fresh).await?;
        Ok(Self {
            conversation,
            events,
        })
    }

    /// Waits for an event of the agent.
    async fn until<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> Result<T> {
        loop {
            let published = { self.events.next().await }.ok_or("the conversation ended")??;
            if let ConversationEvent::Observed(observation) = published.event
                && let Some(found) = observation.events.iter().find_map(&mut wanted)
            {
                return Ok(found);
            }
        }
    }

    /// Waits for the end of the turn.
    async fn end(&mut self) -> Result<()> {
        loop {
            let published = { self.events.next().await }.ok_or("the conversation ended")??;
            if let ConversationEvent::Completed(_) = published.event {
                return Ok(());
            }
        }
    }

    /// Interrupts the turn, and prints the microseconds to its end.
    async fn interrupt(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.conversation.interrupt(QueuedMessages::Keep).await?;
        self.end().await?;
        println!("{}", begun.elapsed().as_secs_f64() * 1e6);
        Ok(())
    }
}
