//! A call of a server's tool, with a time limit. An interrupt ends it at once.

use std::sync::Arc;
use std::time::Duration;

use agent_duplex::BoxFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ResourceContents,
};
use rmcp::{Peer, RoleClient, ServiceError};

use super::definition::NamedTool;
use super::state::{End, Server};
use crate::dialect::ToolDefinition;
use crate::json::JsonObject;
use crate::text::one_line;
use crate::tool::limit_clock::{LimitClock, within_limit};
use crate::tool::output::Output;
use crate::tool::{Access, Tool, ToolContext, ToolOutput, files};

const HINT: &str = "call the tool again and ask for less";
const UNKNOWN: &str = "[content that this agent does not know is omitted]";
/// The longest text of a server in a message, in characters.
const MAX_TEXT: usize = 2_000;

/// A tool of a server. Its call can do anything: the hints of a server about its tools are not trusted.
#[derive(Debug)]
pub(super) struct McpTool {
    tool: NamedTool,
    server: Arc<Server>,
    peer: Peer<RoleClient>,
    limit: Duration,
}

impl McpTool {
    pub(super) fn new(
        tool: NamedTool,
        server: &Arc<Server>,
        peer: Peer<RoleClient>,
        limit: Duration,
    ) -> Self {
        Self {
            tool,
            server: Arc::clone(server),
            peer,
            limit,
        }
    }

    /// Sends the call, and waits for its result. If the future is dropped, the server gets a notification, and its result is ignored.
    async fn call(&self, arguments: &JsonObject) -> ToolOutput {
        let arguments = match serde_json::from_str(arguments.as_str()) {
            Ok(arguments) => arguments,
            Err(error) => return ToolOutput::failed(format!("wrong arguments: {error}")),
        };
        let call = CallToolRequestParams::new(self.tool.name.clone()).with_arguments(arguments);
        let server = &self.server.name;
        match self.peer.call_tool_once(call).await {
            Ok(CallToolResponse::Complete(result)) => output(result),
            Ok(_) => ToolOutput::failed(
                "the tool asks for input or continues in the background; this agent supports neither, so use another tool",
            ),
            Err(ServiceError::McpError(error)) => ToolOutput::failed(format!(
                "the MCP server `{server}` refused the call: {}",
                one_line(&error.message, MAX_TEXT)
            )),
            Err(ServiceError::UnexpectedResponse) => ToolOutput::failed(format!(
                "the MCP server `{server}` sent an invalid result; the tool may have run"
            )),
            Err(_closed) => self.gone(self.server.ended().await),
        }
    }

    fn gone(&self, end: End) -> ToolOutput {
        ToolOutput::failed(match end {
            End::Failed(why) => format!("{why}; don't call its tools again"),
            End::Stopped => format!("the MCP server `{}` was stopped", self.server.name),
        })
    }
}

impl Tool for McpTool {
    fn definition(&self) -> ToolDefinition {
        self.tool.definition.clone()
    }

    fn access(&self, _: &JsonObject, _: &ToolContext) -> Access {
        Access::Anything {
            reason: format!("a tool of the MCP server `{}`", self.server.name),
        }
    }

    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async {
            let mut clock = LimitClock::new(self.limit);
            let called = within_limit(&mut clock, context.frozen.clone(), self.call(arguments));
            let called = tokio::select! {
                biased;
                () = context.cancel.cancelled() => return files::interrupted(),
                called = called => called,
            };
            called.unwrap_or_else(|| {
                ToolOutput::failed(format!(
                    "the MCP server `{}` did not answer the call within {} s; it may still work on it",
                    self.server.name,
                    self.limit.as_secs_f32()
                ))
            })
        })
    }
}

/// Returns the result for the model. Only text is passed on.
fn output(result: CallToolResult) -> ToolOutput {
    let mut text = Output::default();
    let has_content = !result.content.is_empty();
    for (at, block) in result.content.iter().enumerate() {
        if at > 0 {
            text.push_str("\n");
        }
        match block {
            ContentBlock::Text(block) => text.push_str(&block.text),
            ContentBlock::Resource(block) => match &block.resource {
                ResourceContents::TextResourceContents { text: content, .. } => {
                    text.push_str(content);
                }
                ResourceContents::BlobResourceContents { uri, blob, .. } => {
                    text.push_str(&omitted(&format!("the resource {uri}"), blob));
                }
                _ => text.push_str(UNKNOWN),
            },
            ContentBlock::ResourceLink(link) => {
                text.push_str(&format!("[a link to {}: {}]", link.name, link.uri));
            }
            ContentBlock::Image(image) => text.push_str(&omitted("an image", &image.data)),
            ContentBlock::Audio(audio) => text.push_str(&omitted("a sound", &audio.data)),
            _ => text.push_str(UNKNOWN),
        }
    }
    if let (false, Some(value)) = (has_content, &result.structured_content) {
        text.push_str(&value.to_string());
    }
    let text = match text.is_empty() {
        true => "(no output)".to_owned(),
        false => text.finish(HINT),
    };
    match result.is_error {
        Some(true) => ToolOutput::failed(text),
        _ => ToolOutput::ok(text),
    }
}

fn omitted(name: &str, base64: &str) -> String {
    let name = one_line(name, MAX_TEXT);
    format!(
        "[{name} of about {} bytes is omitted]",
        base64.len() / 4 * 3
    )
}

#[cfg(test)]
mod tests {
    use agent_subprocess::{Containment, ProcessContext};
    use serde_json::json;

    use super::super::{ListedTools, McpServer, RunningServers, ToolBudget};
    use super::*;
    use crate::tool::WorkingDirectory;

    /// Far longer than anything here takes.
    const DEADLINE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a15_cancelled_call_returns_although_the_server_never_answers() {
        let dir = tempfile::tempdir().unwrap();
        let mut processes = ProcessContext::new(dir.path(), dir.path());
        processes.containment = Containment::Group;
        let server = McpServer::new("one", "bash", processes)
            .arg("-c")
            .arg(include_str!("../../../tests/agent/mcp.sh"))
            .arg("mcp.sh")
            .arg("one")
            .arg(dir.path().join("log"))
            .time_limit(10 * DEADLINE);
        let context = ToolContext::new(WorkingDirectory::new(dir.path()).unwrap());
        let mut running = RunningServers::start(&[server], &context);
        let ListedTools { tools, problems } = running.listed(ToolBudget::WHOLE.clone()).await;
        let hang = { tools.iter() }
            .map(|tool| &tool.tool)
            .find(|tool| tool.definition().name == "mcp__one__hang");
        let hang = hang.unwrap_or_else(|| panic!("{problems:?}"));
        let arguments = JsonObject::empty();
        let cancel = async {
            while !dir.path().join("log.hangs").exists() {
                tokio::task::yield_now().await;
            }
            context.cancel.cancel();
        };
        let called = async { tokio::join!(hang.run(&arguments, &context), cancel).0 };
        let called = tokio::time::timeout(DEADLINE, called).await.unwrap();
        assert_eq!(called, files::interrupted());
        running.stop().await;
    }

    #[test]
    fn a15_result_is_text_within_the_caps_of_each_tool() {
        let text = |result: serde_json::Value| {
            let result: CallToolResult = serde_json::from_value(result).unwrap();
            output(result)
        };
        let blocks = json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "two"}},
            {"type": "resource_link", "uri": "file:///b", "name": "b"},
        ]});
        let shown = "one\n[an image of about 3 bytes is omitted]\ntwo\n[a link to b: file:///b]";
        assert_eq!(text(blocks), ToolOutput::ok(shown));
        let failed =
            json!({"content": [{"type": "text", "text": "no such page"}], "isError": true});
        assert_eq!(text(failed), ToolOutput::failed("no such page"));
        let structured = json!({"content": [], "structuredContent": {"n": 1}});
        assert_eq!(text(structured), ToolOutput::ok(r#"{"n":1}"#));
        assert_eq!(text(json!({"content": []})), ToolOutput::ok("(no output)"));
        let long = json!({"content": [{"type": "text", "text": "é\n".repeat(1 << 20)}]});
        let long = text(long).text;
        assert!(
            long.len() <= 50 << 10 && long.contains("ask for less]"),
            "{}",
            long.len()
        );
    }
}
