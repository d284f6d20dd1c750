//! One server: its process tree, its handshake, and the reason of its end.

use std::sync::{Arc, Mutex, PoisonError};

use agent_subprocess::{Exit, ProcessTree};
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::{RoleClient, ServiceError, serve_client};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::McpServer;
use super::call::McpTool;
use super::definition::{self, Listed};
use super::transport::LineTransport;
use crate::text::{self, one_line};
use crate::times;
use crate::tool::limit_clock::within_limit;
use crate::tool::process::stop_policy;
use crate::tool::{Tool, ToolContext};

/// The longest text of a server in a message, in characters.
const MAX_TEXT: usize = 400;
/// The last lines of standard error in a message.
const LAST_LINES: usize = 5;

/// The state of a server, which its tools, its transport and the owner of its process share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    /// Why the server must be ended.
    fault: watch::Sender<Option<Fault>>,
    /// The last line of standard output that is no message.
    invalid: Mutex<Option<String>>,
    end: watch::Sender<Option<End>>,
}

/// Why a server must be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It closed its output. Usually its exit follows.
    ClosedOutput,
    /// It closed its input.
    ClosedInput,
    /// Anything else, as the end of a sentence.
    Other(String),
}

/// Why a server doesn't run any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The connection has ended.
    Stopped,
    /// The reason, as a sentence without its end.
    Failed(String),
}

/// A server that offers its tools.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) server: Arc<Server>,
    pub(super) tools: Vec<Arc<dyn Tool>>,
    pub(super) problems: Vec<String>,
}

impl Server {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            fault: watch::Sender::new(None),
            invalid: Mutex::new(None),
            end: watch::Sender::new(None),
        }
    }

    /// Lets the owner of the process end it. The first fault counts.
    pub(super) fn fail(&self, fault: Fault) {
        self.fault.send_if_modified(|known| {
            let is_first = known.is_none();
            if is_first {
                *known = Some(fault);
            }
            is_first
        });
    }

    /// Records the last line that is no message; `None` after a message.
    pub(super) fn record_invalid(&self, line: Option<&[u8]>) {
        let line = line.map(|line| one_line(&String::from_utf8_lossy(line), MAX_TEXT));
        *self.invalid.lock().unwrap_or_else(PoisonError::into_inner) = line;
    }

    pub(super) fn end(&self) -> Option<End> {
        self.end.borrow().clone()
    }

    /// Waits until the server and its process tree have ended.
    pub(super) async fn ended(&self) -> End {
        let mut end = self.end.subscribe();
        let ended = end.wait_for(Option::is_some).await;
        // The sender lives as long as this value.
        ended
            .ok()
            .and_then(|end| end.clone())
            .unwrap_or(End::Stopped)
    }

    async fn faulty(&self) -> Fault {
        let mut fault = self.fault.subscribe();
        let faulty = fault.wait_for(Option::is_some).await;
        let fault = faulty.ok().and_then(|fault| fault.clone());
        fault.unwrap_or(Fault::ClosedOutput)
    }

    /// Describes the end of the process.
    fn describe(&self, cause: &Cause, stderr: &str) -> String {
        let what = match cause {
            Cause::Exited(exit) => format!("has ended ({exit})"),
            Cause::Fault(Fault::ClosedOutput) => "closed its standard output".to_owned(),
            Cause::Fault(Fault::ClosedInput) => "closed its standard input".to_owned(),
            Cause::Fault(Fault::Other(what)) => what.clone(),
        };
        let mut text = format!("the MCP server `{}` {what}", self.name);
        if let Some(line) = &*self.invalid.lock().unwrap_or_else(PoisonError::into_inner) {
            text.push_str(&format!(
                "; its last line of output is no message of the protocol: {line}"
            ));
        }
        let mut lines: Vec<&str> = { stderr.lines().rev() }
            .filter(|line| !line.trim().is_empty())
            .take(LAST_LINES)
            .collect();
        lines.reverse();
        if !lines.is_empty() {
            let last = text::end(&lines.join(" / "), 2 * MAX_TEXT).to_owned();
            let last = one_line(&last, 2 * MAX_TEXT);
            text.push_str(&format!("; its standard error ends with: {last}"));
        }
        text
    }
}

/// Why the owner ends the process.
#[derive(Debug)]
enum Cause {
    Exited(Exit),
    Fault(Fault),
}

/// Runs a server until it ends, or until `stop` is cancelled. Its tools, or the reason why it has none, go to `ready`.
///
/// If the future is dropped, the process tree is ended.
pub(super) async fn run(
    options: McpServer,
    context: ToolContext,
    stop: CancellationToken,
    ready: oneshot::Sender<Result<Started, String>>,
) {
    let server = Arc::new(Server::new(&options.name));
    let spawned = match options.command(&context) {
        Ok(command) => command.spawn().await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let mut tree = match spawned {
        Ok(tree) => tree,
        Err(error) => {
            let why = format!(
                "the MCP server `{}` can't be started: {error}",
                options.name
            );
            // The receiver is gone if the start was interrupted.
            let _gone = ready.send(Err(why));
            return;
        }
    };
    let transport = LineTransport::new(&mut tree, &server);
    let offering = offer_tools(&options, &context, transport, &server, ready);
    let owning = own(tree, &options, &context, &server, stop);
    tokio::join!(owning, offering);
}

/// Makes the handshake, offers the tools, and keeps the client until the server has ended.
async fn offer_tools(
    options: &McpServer,
    context: &ToolContext,
    transport: LineTransport,
    server: &Arc<Server>,
    ready: oneshot::Sender<Result<Started, String>>,
) {
    let opening = async {
        tokio::select! {
            opened = open(transport) => opened,
            // A process outside of the tree can hold the pipes open.
            _ = server.ended() => Err("has ended".to_owned()),
        }
    };
    let opened = within_limit(options.time_limit, context.frozen.clone(), opening).await;
    let seconds = options.time_limit.as_secs_f32();
    let late = || Err(format!("did not answer the start within {seconds} s"));
    let (client, listed) = match opened.unwrap_or_else(late) {
        Ok(opened) => opened,
        Err(what) => {
            server.fail(Fault::Other(what));
            let why = match server.ended().await {
                End::Failed(why) => why,
                End::Stopped => format!("the MCP server `{}` was stopped", server.name),
            };
            let _gone = ready.send(Err(why));
            return;
        }
    };
    let (definitions, problems) = definition::of_tools(&server.name, listed);
    let tools = definitions.into_iter().map(|tool| {
        let peer = client.peer().clone();
        Arc::new(McpTool::new(tool, server, peer, options.time_limit)) as Arc<dyn Tool>
    });
    let started = Started {
        server: Arc::clone(server),
        tools: tools.collect(),
        problems,
    };
    let _gone = ready.send(Ok(started));
    server.ended().await;
    drop(client);
}

type Client = RunningService<RoleClient, ClientConfig>;

/// Makes the handshake, and asks for the tools. An error is the end of a sentence about the server.
async fn open(transport: LineTransport) -> Result<(Client, Listed), String> {
    let us = Implementation::new("agent-api", env!("CARGO_PKG_VERSION"));
    let config = ClientConfig::new(ClientCapabilities::default(), us)
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
    let client = serve_client(config, transport).await;
    let client = client.map_err(|error| match error {
        ClientInitializeError::JsonRpcError(error) => {
            format!("refused the start: {}", one_line(&error.message, MAX_TEXT))
        }
        ClientInitializeError::ConnectionClosed(_) => "closed the connection".to_owned(),
        _ => "did not answer the start as the protocol defines".to_owned(),
    })?;
    let listed = definition::list(client.peer())
        .await
        .map_err(|error| match error {
            ServiceError::McpError(error) => {
                let message = one_line(&error.message, MAX_TEXT);
                format!("refused to list its tools: {message}")
            }
            ServiceError::UnexpectedResponse => "sent an invalid list of tools".to_owned(),
            _ => "closed the connection".to_owned(),
        })?;
    Ok((client, listed))
}

/// Owns the process tree: suspends it while a person has frozen the agent, and ends it.
async fn own(
    mut tree: ProcessTree,
    options: &McpServer,
    context: &ToolContext,
    server: &Server,
    stop: CancellationToken,
) {
    let mut frozen = context.frozen.clone();
    let mut is_watched = true;
    let mut is_suspended = false;
    let mut cause = loop {
        let is_frozen = *frozen.borrow_and_update();
        if is_frozen != is_suspended {
            // It fails only if the guard is gone, and then the tree has ended.
            let _unreachable = match is_frozen {
                true => tree.suspend(),
                false => tree.resume(),
            };
            is_suspended = is_frozen;
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break None,
            exit = tree.wait() => break Some(Cause::Exited(exit)),
            fault = server.faulty() => break Some(Cause::Fault(fault)),
            changed = frozen.changed(), if is_watched => is_watched = changed.is_ok(),
        }
    };
    let is_closed = matches!(
        cause,
        Some(Cause::Fault(Fault::ClosedOutput | Fault::ClosedInput))
    );
    if is_closed && let Ok(exit) = timeout(times::TOOL_DRAIN, tree.wait()).await {
        cause = Some(Cause::Exited(exit));
    }
    let report = tree.stop(&stop_policy(&options.processes)).await;
    let end = match cause {
        None => End::Stopped,
        Some(cause) => End::Failed(server.describe(&cause, &tree.stderr_tail())),
    };
    if end == End::Stopped || !report.survivors.is_empty() {
        context.stops.record_also(report);
    }
    server.end.send_replace(Some(end));
}
