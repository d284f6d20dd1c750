//! The agent: a session, the loop over the model and its tools, and the driver for a conversation.

mod connection;
mod link;
mod middleware;
mod model_call;
mod options;
mod prompt;
#[cfg(feature = "mcp")]
mod servers;
mod session;
mod tool_call;
mod toolbox;
mod turn;

use std::sync::Arc;

use agent_duplex::{
    BoxFuture, Capabilities, Capability, Connection, Driver, EndReason, Error, Event, InputPolicy,
    SessionChoice,
};
use tokio::sync::watch;

use self::connection::ApiConnection;
use self::link::{Command, Link};
pub use self::middleware::{CallPurpose, Middleware, ModelCall, Next};
pub use self::options::AgentOptions;
use self::session::{NotOpened, Session};
use self::toolbox::Toolbox;
use self::turn::{Turn, failed, take_message};
use crate::http::ModelClient;
use crate::repeat_guard::RepeatGuard;
#[cfg(feature = "mcp")]
use crate::tool::RunningServers;
use crate::tool::{ToolContext, WorkingDirectory};

/// An agent over a raw model API, as a driver for a [`Conversation`](agent_duplex::Conversation).
///
/// It runs inside of this program, and keeps its session on disk. It saves the intent of a call before the tool runs, and the result after it. After a
/// crash, it reports to the model that the outcome of the call is unknown, and never runs the call again.
#[derive(Debug)]
pub struct ApiAgent {
    options: Arc<AgentOptions>,
    client: ModelClient,
    tools: Arc<Toolbox>,
}

impl ApiAgent {
    /// The capabilities of every `ApiAgent`.
    pub const CAPABILITIES: Capabilities = match cfg!(feature = "mcp") {
        true => Self::WITHOUT_SERVERS.with(Capability::Mcp),
        false => Self::WITHOUT_SERVERS,
    };

    const WITHOUT_SERVERS: Capabilities = Capabilities::none()
        .with(Capability::Resume)
        .with(Capability::Fork)
        .with(Capability::Interrupt)
        .with(Capability::Steer)
        .with(Capability::Permissions)
        .with(Capability::Model)
        .with(Capability::Tools)
        .with(Capability::Usage)
        .with(Capability::DurableSession);

    /// Creates an agent. Nothing is read, written or connected yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Settings`](crate::ErrorKind::Settings) if the endpoint is invalid, if two tools or two MCP servers have the same name, if an MCP
    /// server has an invalid name, or if the system prompt and the tools leave no room for a conversation.
    pub fn new(options: AgentOptions) -> Result<Self, crate::Error> {
        #[cfg(feature = "mcp")]
        crate::tool::McpServer::check(&options.mcp_servers)?;
        Ok(Self {
            client: ModelClient::new(options.endpoint.clone())?,
            tools: Arc::new(Toolbox::new(&options)?),
            options: Arc::new(options),
        })
    }
}

impl Driver for ApiAgent {
    fn name(&self) -> &str {
        "api"
    }

    fn capabilities(&self) -> Capabilities {
        Self::CAPABILITIES
    }

    fn input_policy(&self) -> InputPolicy {
        InputPolicy::Poll
    }

    fn connect(&self, choice: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            let cant = |what: String| Error::start(what, None);
            let (options, tools) = (Arc::clone(&self.options), Arc::clone(&self.tools));
            let opening = tokio::task::spawn_blocking(move || {
                let directory = WorkingDirectory::new(&options.directory).map_err(|error| {
                    let path = options.directory.display();
                    NotOpened::Failed(format!("the agent can't work in {path}: {error}"))
                })?;
                let opened = Session::open(&options.sessions, &choice, &options.budget);
                let session = match opened {
                    Ok(mut session) => {
                        let unknown = session.recover(&directory, |name| tools.only_reads(name));
                        Ok((session, unknown))
                    }
                    Err(NotOpened::Lost(why)) => Err(why),
                    Err(error) => return Err(error),
                };
                Ok((directory, session))
            });
            let opened = opening.await.map_err(|error| cant(error.to_string()))?;
            let (directory, session) = opened.map_err(|error| match error {
                NotOpened::InUse(error) => {
                    let what = format!("another program uses the session: {error}");
                    Error::session_in_use(what, Some(error.into()))
                }
                NotOpened::Failed(what) | NotOpened::Lost(what) => cant(what),
            })?;
            let frozen = watch::Sender::new(false);
            let context = ToolContext::frozen_by(directory, frozen.subscribe());
            let stops = Arc::clone(&context.stops);
            let agent = Running {
                options: Arc::clone(&self.options),
                client: self.client.clone(),
                tools: Toolbox::clone(&self.tools),
                #[cfg(feature = "mcp")]
                servers: None,
                context,
            };
            let model = self.options.request.model.clone();
            let permissions = self.options.permissions;
            let run = |link| agent.run(session, link);
            let connection = ApiConnection::start(model, permissions, frozen, stops, run);
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }
}

/// The agent of one connection.
#[derive(Debug)]
struct Running {
    options: Arc<AgentOptions>,
    client: ModelClient,
    tools: Toolbox,
    /// `None` before the first turn.
    #[cfg(feature = "mcp")]
    servers: Option<RunningServers>,
    context: ToolContext,
}

impl Running {
    /// Runs turns until the connection is closed. If the session is lost, each turn ends with [`EndReason::SessionNotFound`].
    async fn run(mut self, session: Result<(Session, Vec<String>), String>, link: Link) {
        let (session, unknown) = match session {
            Ok(opened) => opened,
            Err(why) => return without_session(link, why).await,
        };
        self.turns(session, unknown, link).await;
        #[cfg(feature = "mcp")]
        if let Some(servers) = self.servers {
            servers.stop().await;
        }
    }

    async fn turns(&mut self, mut session: Session, unknown: Vec<String>, mut link: Link) {
        let id = session.id().to_owned();
        link.report(Event::Session { id }).await;
        let identity = Event::Identified {
            agent: concat!("agent-api ", env!("CARGO_PKG_VERSION")).to_owned(),
            model: link.model.borrow().clone(),
        };
        link.report(identity).await;
        for name in unknown {
            let warning = format!(
                "the agent was restarted while `{}` ran; its outcome is unknown, and the agent won't run it again",
                crate::text::one_line(&name, 64)
            );
            link.report(Event::Warning(warning)).await;
        }
        while let Some(command) = link.commands.recv().await {
            let Command::Message { message, taken } = command else {
                continue; // It came too late for its turn.
            };
            let id = message.id;
            let saved = take_message(&mut session, message).await;
            let is_saved = saved.is_ok();
            if taken.send(saved).is_err() || !is_saved {
                continue;
            }
            link.report(Event::TurnStarted { inputs: vec![id] }).await;
            #[cfg(feature = "mcp")]
            let started = match session.final_message() {
                None => self.start_servers(&mut link).await,
                Some(_) => Ok(()), // The turn needs no tool.
            };
            #[cfg(not(feature = "mcp"))]
            let started = Ok(());
            let mut turn = Turn {
                options: &self.options,
                client: &self.client,
                tools: &self.tools,
                #[cfg(feature = "mcp")]
                servers: &mut self.servers,
                context: &self.context,
                session: &mut session,
                link: &mut link,
                guard: RepeatGuard::new(),
                calls: 0,
                discarded_responses: 0,
            };
            let Ok(end) = turn.run(started).await else {
                return;
            };
            let position = session.position();
            link.report(Event::SessionSaved { position }).await;
            link.report(Event::TurnCompleted(end)).await;
        }
    }
}

/// Ends the turn of each message at once: the session is lost.
async fn without_session(mut link: Link, why: String) {
    let warning = format!("the session can't continue: {why}");
    link.report(Event::Warning(warning)).await;
    while let Some(command) = link.commands.recv().await {
        if let Command::Message { message, taken } = command
            && taken.send(Ok(())).is_ok()
        {
            let inputs = vec![message.id];
            link.report(Event::TurnStarted { inputs }).await;
            let end = failed(EndReason::SessionNotFound, "start a fresh session");
            link.report(Event::TurnCompleted(end)).await;
        }
    }
}
