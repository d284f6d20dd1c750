//! An agent with one tool, and a middleware that counts the tokens of results by tool.
//!
//! `cargo run -p agent-api --features schemars --example agent -- http://localhost:11434/v1 qwen3 'Which files are here?'` needs a model server; this
//! is the address of a local Ollama. The sessions are kept in the directory `sessions`.
#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_api::{
    AgentOptions, ApiAgent, BoxFuture, Dialect, Endpoint, Error, FunctionTool, ModelResponse,
};
use agent_api::{History, Item, Middleware, ModelCall, Next};
use agent_duplex::{Conversation, ConversationOptions};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct List {
    /// The directory.
    path: String,
}

/// Counts the tokens of results by tool, a quarter of the bytes.
#[derive(Debug, Default)]
pub(crate) struct TokensByTool(Mutex<BTreeMap<String, usize>>);

impl Middleware for TokensByTool {
    fn call<'a>(
        &'a self,
        call: ModelCall<'a>,
        next: Next<'a>,
    ) -> BoxFuture<'a, Result<ModelResponse, Error>> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = count(&call.history);
        next.run(call)
    }
}

fn count(history: &History) -> BTreeMap<String, usize> {
    let (mut names, mut tokens) = (HashMap::new(), BTreeMap::new());
    for item in history.items() {
        match item {
            Item::Assistant(message) => {
                names.extend(message.calls().map(|call| (&call.id, &call.name)));
            }
            Item::ToolResult(result) => {
                let name = names.get(&result.call_id).map_or("", |name| name.as_str());
                *tokens.entry(name.to_owned()).or_default() += result.text.len().div_ceil(4);
            }
            _ => {}
        }
    }
    tokens
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [url, model, question] => run(url, model, question, "sessions").await.map(drop),
        _ => Err("usage: agent URL MODEL QUESTION".into()),
    }
}

pub(crate) async fn run(
    url: &str,
    model: &str,
    question: &str,
    sessions: &str,
) -> Result<BTreeMap<String, usize>, Box<dyn std::error::Error>> {
    let list = FunctionTool::new("list", "Lists a directory.", |list: List| async move {
        let entries = std::fs::read_dir(list.path).map_err(|error| error.to_string())?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.collect::<Vec<_>>().join("\n"))
    });
    let tokens = Arc::new(TokensByTool::default());
    let mut options = AgentOptions::new(Endpoint::new(Dialect::Chat, url), model, ".", sessions);
    options.tools = vec![Arc::new(list.only_reads())];
    options.middleware = vec![tokens.clone()];

    let agent = Box::new(ApiAgent::new(options)?);
    let conversation = Conversation::new(agent, ConversationOptions::default());
    let answer = conversation.ask(question).await?;
    println!("{} ({})", answer.text, answer.end);
    conversation.stop(Duration::from_secs(8)).await;
    let tokens = tokens
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    println!("tokens by tool: {tokens:?}");
    Ok(tokens)
}
