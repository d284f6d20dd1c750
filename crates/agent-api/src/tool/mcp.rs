//! MCP servers: programs whose tools the model can call. Each one runs under a guard, from the first turn to the end of the connection.

mod budget;
mod call;
mod definition;
mod options;
mod server;
mod state;
mod transport;

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use self::budget::ToolBudget;
use self::call::McpTool;
pub use self::options::McpServer;
use self::state::{End, Server};
use super::{Tool, ToolContext};

/// The servers of a connection. Dropping it ends their process trees.
#[derive(Debug, Default)]
pub(crate) struct RunningServers {
    servers: Vec<Arc<Server>>,
    /// The tasks, each of which owns the process tree of a server.
    supervisors: JoinSet<()>,
    stop: CancellationToken,
    starting: Vec<Starting>,
}

/// A server that starts: its name, and where its tools arrive.
type Starting = (String, oneshot::Receiver<Result<server::Started, String>>);

/// A tool, and the name of its server.
#[derive(Debug)]
pub(crate) struct ServerTool {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) server: String,
}

/// The tools of all servers, in the order of the servers, and then by name.
#[derive(Debug, Default)]
pub(crate) struct ListedTools {
    pub(crate) tools: Vec<ServerTool>,
    /// Why a server or a tool can't be used, for people.
    pub(crate) problems: Vec<String>,
}

impl RunningServers {
    /// Starts all servers at the same time.
    pub(crate) fn start(options: &[McpServer], context: &ToolContext) -> Self {
        let mut running = Self::default();
        for server in options {
            let (ready, listed) = oneshot::channel();
            let stop = running.stop.clone();
            let supervised = server::run(server.clone(), context.clone(), stop, ready);
            running.supervisors.spawn(supervised);
            running.starting.push((server.name.clone(), listed));
        }
        running
    }

    /// Waits until each server has listed its tools or has failed. A tool that doesn't fit into the budget is omitted.
    pub(crate) async fn listed(&mut self, mut budget: ToolBudget) -> ListedTools {
        let mut all = ListedTools::default();
        for (name, listed) in std::mem::take(&mut self.starting) {
            match listed.await {
                Ok(Ok(started)) => {
                    let offered = started.listed.within(&mut budget);
                    all.problems.extend(offered.problems);
                    all.tools.extend(offered.tools.into_iter().map(|tool| {
                        let peer = started.peer.clone();
                        let tool = McpTool::new(tool, &started.server, peer, started.limit);
                        ServerTool {
                            tool: Arc::new(tool),
                            server: name.clone(),
                        }
                    }));
                    self.servers.push(started.server);
                }
                Ok(Err(why)) => {
                    let problem = format!("{why}; the session continues without its tools");
                    all.problems.push(problem);
                }
                Err(_panic) => all.problems.push(format!("the MCP server `{name}` failed")),
            }
        }
        all
    }

    /// Returns the servers that have ended by themselves since the last call, each with its reason, for people.
    pub(crate) fn take_ended(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        self.servers.retain(|server| match server.end() {
            None => true,
            Some(End::Stopped) => false,
            Some(End::Failed(why)) => {
                ended.push(format!(
                    "{why}; its tools fail until the agent starts again"
                ));
                false
            }
        });
        ended
    }

    /// Ends the process trees of all servers at the same time.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while self.supervisors.join_next().await.is_some() {}
    }
}
