//! One server from its start to its end: its process tree, and its handshake.

use std::sync::Arc;
use std::time::Duration;

use agent_subprocess::ProcessTree;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::{Peer, RoleClient, ServiceError, serve_client};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::definition::{self, Listed};
use super::options::McpServer;
use super::state::{Cause, End, Fault, MAX_TEXT, Server};
use super::transport::LineTransport;
use crate::text::one_line;
use crate::times;
use crate::tool::ToolContext;
use crate::tool::limit_clock::{LimitClock, within_limit};
use crate::tool::process::{start_unless, stop_policy};

/// A server that offers its tools.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) server: Arc<Server>,
    pub(super) listed: Listed,
    pub(super) peer: Peer<RoleClient>,
    /// The time limit of a call.
    pub(super) limit: Duration,
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
    let mut clock = LimitClock::new(options.time_limit);
    let mut tree = match spawn(&options, &context, &mut clock, &stop).await {
        Ok(tree) => tree,
        Err(why) => {
            // The receiver is gone if the start was interrupted.
            let _gone = ready.send(Err(why));
            return;
        }
    };
    let transport = LineTransport::new(&mut tree, &server);
    let offering = offer_tools(&options, &context, (transport, clock), &server, ready);
    let owning = own(tree, &options, &context, &server, stop);
    tokio::join!(owning, offering);
}

/// Starts the program. Returns an error, as a sentence without its end, if it doesn't start before the time limit or an interrupt: its disk can hang.
async fn spawn(
    options: &McpServer,
    context: &ToolContext,
    clock: &mut LimitClock,
    stop: &CancellationToken,
) -> Result<ProcessTree, String> {
    let (name, seconds) = (&options.name, options.time_limit.as_secs_f32());
    let cant = |error: &dyn std::error::Error| {
        format!("the MCP server `{name}` can't be started: {error}")
    };
    let command = options.command(context).map_err(|error| cant(&error))?;
    let over = within_limit(clock, context.frozen.clone(), stop.cancelled());
    let policy = stop_policy(&options.processes);
    match start_unless(over, command.spawn(), policy, &context.stops).await {
        Ok(spawned) => spawned.map_err(|error| cant(&error)),
        Err(Some(())) => Err(format!("the MCP server `{name}` was stopped")),
        Err(None) => Err(format!(
            "the MCP server `{name}` did not start within {seconds} s and was ended; it may have run for a moment"
        )),
    }
}

/// Makes the handshake, offers the tools, and keeps the client until the server has ended.
async fn offer_tools(
    options: &McpServer,
    context: &ToolContext,
    (transport, mut clock): (LineTransport, LimitClock),
    server: &Arc<Server>,
    ready: oneshot::Sender<Result<Started, String>>,
) {
    let opening = async {
        tokio::select! {
            opened = open(&server.name, transport) => opened,
            // A process outside of the tree can hold the pipes open.
            _ = server.ended() => Err("has ended".to_owned()),
        }
    };
    let opened = within_limit(&mut clock, context.frozen.clone(), opening).await;
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
    let started = Started {
        server: Arc::clone(server),
        listed,
        peer: client.peer().clone(),
        limit: options.time_limit,
    };
    let _gone = ready.send(Ok(started));
    server.ended().await;
    drop(client);
}

type Client = RunningService<RoleClient, ClientConfig>;

/// Makes the handshake, and asks for the tools. An error is the end of a sentence about the server.
async fn open(server: &str, transport: LineTransport) -> Result<(Client, Listed), String> {
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
    let listed = definition::list(server, client.peer())
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
    server.record_end(end);
}
