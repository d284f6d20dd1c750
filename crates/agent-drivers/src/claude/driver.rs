//! The `Driver` of Claude Code, from its options up to a connection.

use super::arguments::{Arguments, REQUIRED_ENV};
use super::connection::{ClaudeConnection, Setup};
use super::options::ClaudeOptions;
use crate::choices::{Choices, shared_options};
use crate::convert::start;
use crate::dialogue::{AgentLink, DialogueConnection};
use crate::session_locks::Lease;
use agent_duplex::{
    BoxFuture, Capabilities, Capability, Connection, Driver, Error, Permissions, SessionChoice,
};
use agent_subprocess::ProcessContext;
use std::ffi::OsString;
use uuid::Uuid;

pub(crate) const NAME: &str = "claude";

/// The driver of Claude Code. See the [module](super).
///
/// It starts the program as `PROGRAM [its leading arguments] <the driver's own flags> [extra arguments]`, without a shell. It removes `CLAUDECODE`
/// from the environment, because Claude Code refuses to run inside itself, and sets `PWD` to the working directory.
///
/// [`ready`](agent_duplex::Connection::ready) waits up to 3 s for the agent's first output, because an agent that can't start only exits. The first
/// message waits for it too. If a session does not exist, the first turn ends with
/// [`EndReason::SessionNotFound`](agent_duplex::EndReason::SessionNotFound).
#[derive(Clone, Debug)]
pub struct ClaudeDriver {
    program: Vec<OsString>,
    context: ProcessContext,
    pub(super) options: ClaudeOptions,
    pub(super) choices: Choices,
}

impl ClaudeDriver {
    /// Creates a driver for this program and its leading arguments. With an empty `program`, `connect` returns an error.
    pub fn new(program: Vec<OsString>, context: ProcessContext) -> Self {
        ClaudeDriver {
            program,
            context,
            options: ClaudeOptions::default(),
            choices: Choices::default(),
        }
    }

    /// Checks the syntax of tools, rules, effort, setting sources and variables before a start. It doesn't check whether the agent knows them.
    ///
    /// # Errors
    /// The error names the first invalid option or argument, and the fix.
    pub fn check(&self) -> Result<(), Error> {
        self.options.check()
    }
}

shared_options! {
    ClaudeDriver, ClaudeOptions;

    /// Sets what the agent can do without a permission request ([`Permissions::Edits`] by default).
    ///
    /// The agent sends a permission request for everything else. Answer each
    /// [`Event::PermissionRequested`](agent_duplex::Event::PermissionRequested), even under [`Permissions::Edits`] and [`Permissions::Deny`]. The
    /// agent refuses [`Permissions::All`] as root.
    permissions;

    /// Passes MCP servers to the agent in a private file, which is removed when the agent has ended.
    mcp_servers;

    session_locks;
}

impl Driver for ClaudeDriver {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
            .with(Capability::Interrupt)
            .with(Capability::Steer)
            .with(Capability::Resume)
            .with(Capability::Fork)
            .with(Capability::Tools)
            .with(Capability::Usage)
            .with(Capability::Permissions)
            .with(Capability::Mcp)
            .with(Capability::Model)
            .with(Capability::Images)
    }

    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            let id = match &session {
                SessionChoice::Resume(id) => id.clone(),
                _ => Uuid::new_v4().to_string(),
            };
            // The lease comes first: a refusal must have no side effects, because the conversation tries again.
            let lease = Lease::of(self.choices.session_locks.as_ref(), Some(&id))?;
            let env = self.options.environment();
            let variable = |name: &str| env.variable(name, &REQUIRED_ENV, &self.context);
            let scratch = &self.context.scratch;
            let arguments = Arguments::compose(
                &self.options,
                &self.choices,
                &session,
                &id,
                scratch,
                variable,
            )?;
            let command = env.command(&self.program, &REQUIRED_ENV, &self.context)?;
            let command = command.args(&arguments.words).env_remove("CLAUDECODE");
            let agent = start(Lease::hold(lease.as_ref(), command)?).await?;
            let known = Some(id.clone());
            let link = AgentLink::new(agent, NAME, &self.program, &self.context, known);
            let setup = Setup {
                session: id,
                is_resumed: !matches!(session, SessionChoice::Fresh),
                may_allow_all: self.choices.permissions == Permissions::All,
                timeouts: self.choices.timeouts,
                files: arguments.files,
                lease,
            };
            let connection = ClaudeConnection::new(link, setup);
            Ok(Box::new(DialogueConnection(connection)) as Box<dyn Connection>)
        })
    }
}
