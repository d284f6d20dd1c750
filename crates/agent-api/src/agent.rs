//! The agent: a session, the loop over the model and its tools, and the driver for a conversation.

mod connection;
mod link;
mod middleware;
mod model_call;
mod prompt;
mod session;
mod tool_call;
mod turn;

use std::path::PathBuf;
use std::sync::Arc;

use agent_duplex::{
    BoxFuture, Capabilities, Capability, Connection, Driver, EndReason, Error, Event, InputPolicy,
    Permissions, SessionChoice,
};
use tokio::sync::watch;

use self::connection::ApiConnection;
use self::link::{Command, Link};
pub use self::middleware::{CallPurpose, Middleware, ModelCall, Next};
use self::session::{NotOpened, Session};
use self::turn::{Turn, failed, take_message};
use crate::budget::Budget;
use crate::dialect::{AnswerLimits, RequestSettings};
use crate::history::{Arguments, ToolCall};
use crate::http::{Endpoint, ModelClient};
use crate::json::JsonObject;
use crate::repeat_guard::RepeatGuard;
use crate::tool::{Tool, ToolContext, ToolOutput, WorkingDirectory};

/// The settings of an [`ApiAgent`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentOptions {
    /// The model server.
    pub endpoint: Endpoint,
    /// The settings of each request: the model, the thinking, the longest answer. The agent sets the tools. An empty system prompt stands for the
    /// agent's own.
    pub request: RequestSettings,
    /// The directory in which the agent works.
    pub directory: PathBuf,
    /// The directory of all sessions, one directory for each. It is made if it is absent.
    pub sessions: PathBuf,
    /// The tools, in the order in which the model sees them. None by default.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What runs around each call of the model, the outermost first. None by default.
    pub middleware: Vec<Arc<dyn Middleware>>,
    /// Text that follows the system prompt, such as the rules of a project. Empty by default.
    pub instructions: String,
    /// What a tool may do without a question. By default it may edit files in the working directory.
    pub permissions: Permissions,
    /// The context window of the model in tokens; 128,000 by default. Before it is full, old parts of the conversation are removed.
    pub context_window: u64,
    /// The limits of a session; none by default.
    pub budget: Budget,
    /// The limits of an answer.
    pub answer_limits: AnswerLimits,
    /// The most calls of the model in a turn; 1,000 by default.
    pub max_calls: u32,
    /// The most tries of one call of the model; 5 by default.
    pub max_tries: u32,
}

impl AgentOptions {
    /// Creates the settings of an agent without tools.
    #[must_use]
    pub fn new(
        endpoint: Endpoint,
        model: impl Into<String>,
        directory: impl Into<PathBuf>,
        sessions: impl Into<PathBuf>,
    ) -> Self {
        Self {
            endpoint,
            request: RequestSettings {
                max_output_tokens: Some(16_000),
                ..RequestSettings::new(model)
            },
            directory: directory.into(),
            sessions: sessions.into(),
            tools: Vec::new(),
            middleware: Vec::new(),
            instructions: String::new(),
            permissions: Permissions::default(),
            context_window: 128_000,
            budget: Budget::default(),
            answer_limits: AnswerLimits::default(),
            max_calls: 1_000,
            max_tries: 5,
        }
    }
}

/// An agent over a raw model API, as a driver for a [`Conversation`](agent_duplex::Conversation).
///
/// It runs inside of this program. It keeps its session on disk: before a tool runs, its intent is saved, and after it ran, its result. So after a
/// crash no tool runs twice; the model is told that the outcome is unknown.
#[derive(Debug)]
pub struct ApiAgent {
    options: Arc<AgentOptions>,
    client: ModelClient,
    tools: Arc<Toolbox>,
}

impl ApiAgent {
    /// Creates an agent. Nothing is read, written or connected yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Settings`](crate::ErrorKind::Settings) if the endpoint is invalid, or if two tools have the same name.
    pub fn new(options: AgentOptions) -> Result<Self, crate::Error> {
        Ok(Self {
            client: ModelClient::new(options.endpoint.clone())?,
            tools: Arc::new(Toolbox::new(&options)?),
            options: Arc::new(options),
        })
    }
}

/// The tools of an agent, and the parts of a request that don't change.
#[derive(Debug)]
struct Toolbox {
    tools: Vec<Arc<dyn Tool>>,
    settings: RequestSettings,
    /// The tokens of the system prompt and the tools, about.
    overhead: u64,
}

impl Toolbox {
    fn new(options: &AgentOptions) -> Result<Self, crate::Error> {
        let mut settings = options.request.clone();
        if settings.system.is_empty() {
            settings.system = prompt::system_prompt(&options.directory, &options.instructions);
        } else if !options.instructions.is_empty() {
            settings.system = format!("{}\n\n{}", settings.system, options.instructions);
        }
        settings.tools = options.tools.iter().map(|tool| tool.definition()).collect();
        for (at, tool) in settings.tools.iter().enumerate() {
            if settings.tools[..at]
                .iter()
                .any(|other| other.name == tool.name)
            {
                let message = format!("two tools have the name `{}`; rename one", tool.name);
                return Err(crate::Error::new(crate::ErrorKind::Settings, message));
            }
        }
        let bytes = |tool: &crate::ToolDefinition| {
            tool.name.len() + tool.description.len() + tool.schema.as_str().len()
        };
        let bytes = settings.system.len() + settings.tools.iter().map(bytes).sum::<usize>();
        Ok(Self {
            tools: options.tools.clone(),
            settings,
            overhead: (bytes as u64).div_ceil(4),
        })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.settings.tools.iter().map(|tool| tool.name.as_str())
    }

    fn get(&self, name: &str) -> Option<&dyn Tool> {
        let at = self.names().position(|other| other == name)?;
        Some(self.tools[at].as_ref())
    }

    /// Returns the tool of a call and its arguments, or the result of a call that can't run.
    fn find<'a>(
        &'a self,
        call: &'a ToolCall,
    ) -> Result<(&'a dyn Tool, &'a JsonObject), ToolOutput> {
        match (&call.arguments, self.get(&call.name)) {
            (Arguments::Object(arguments), Some(tool)) => Ok((tool, arguments)),
            _ => Err(tool_call::not_callable(
                call,
                &self.names().collect::<Vec<_>>(),
            )),
        }
    }
}

impl Driver for ApiAgent {
    fn name(&self) -> &str {
        "api"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
            .with(Capability::Resume)
            .with(Capability::Fork)
            .with(Capability::Interrupt)
            .with(Capability::Steer)
            .with(Capability::Permissions)
            .with(Capability::Model)
            .with(Capability::Tools)
            .with(Capability::Usage)
    }

    fn input_policy(&self) -> InputPolicy {
        InputPolicy::Poll
    }

    fn connect(&self, choice: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            let cant = |what: String| Error::start(what, None);
            let directory = WorkingDirectory::new(&self.options.directory).map_err(|error| {
                let path = self.options.directory.display();
                cant(format!("the agent can't work in {path}: {error}"))
            })?;
            let options = Arc::clone(&self.options);
            let opening = tokio::task::spawn_blocking(move || {
                Session::open(&options.sessions, &choice, &options.budget)
            });
            let session = match opening.await.map_err(|error| cant(error.to_string()))? {
                Ok(session) => Some(session),
                Err(NotOpened::Absent) => None,
                Err(NotOpened::InUse(error)) => {
                    let what = format!("another program uses the session: {error}");
                    return Err(Error::session_in_use(what, Some(error.into())));
                }
                Err(NotOpened::Failed(what)) => return Err(cant(what)),
            };
            let frozen = watch::Sender::new(false);
            let context = ToolContext::frozen_by(directory, frozen.subscribe());
            let stops = Arc::clone(&context.stops);
            let agent = Running {
                options: Arc::clone(&self.options),
                client: self.client.clone(),
                tools: Arc::clone(&self.tools),
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
    tools: Arc<Toolbox>,
    context: ToolContext,
}

impl Running {
    /// Runs turns until the connection is closed. Without a session, the first turn says so.
    async fn run(self, session: Option<Session>, mut link: Link) {
        let Some(mut session) = session else {
            return without_session(link).await;
        };
        let id = session.id().to_owned();
        link.report(Event::Session { id }).await;
        let identity = Event::Identified {
            agent: concat!("agent-api ", env!("CARGO_PKG_VERSION")).to_owned(),
            model: link.model.borrow().clone(),
        };
        link.report(identity).await;
        let only_reads = |name: &str| self.tools.get(name).is_some_and(Tool::only_reads);
        for name in session.recover(&self.context.directory, only_reads) {
            let warning = format!(
                "the outcome of a call of `{}` is unknown: the agent was restarted during it; it is not run again",
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
            let mut turn = Turn {
                options: &self.options,
                client: &self.client,
                tools: &self.tools,
                context: &self.context,
                session: &mut session,
                link: &mut link,
                guard: RepeatGuard::new(),
                calls: 0,
                dropped_answers: 0,
            };
            let Ok(end) = turn.run().await else {
                return;
            };
            link.report(Event::TurnCompleted(end)).await;
        }
    }
}

/// Answers each message with the end of its turn: there is no session.
async fn without_session(mut link: Link) {
    while let Some(command) = link.commands.recv().await {
        if let Command::Message { message, taken } = command {
            if taken.send(Ok(())).is_ok() {
                let inputs = vec![message.id];
                link.report(Event::TurnStarted { inputs }).await;
                let end = failed(EndReason::SessionNotFound, "start a fresh session");
                link.report(Event::TurnCompleted(end)).await;
            }
        }
    }
}
