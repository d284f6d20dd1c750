//! The `Driver` of Codex, from its options up to a connection.

use super::arguments::{self, REQUIRED_ENV};
use super::connection::CodexConnection;
use super::open_request::{OpenRequest, servers_of};
use super::options::CodexOptions;
use super::protocol::Session;
use crate::choices::{Choices, shared_options};
use crate::convert::start;
use crate::dialogue::{AgentLink, DialogueConnection};
use agent_duplex::{BoxFuture, Capabilities, Capability, Connection, Driver, Error, SessionChoice};
use agent_subprocess::ProcessContext;
use std::ffi::OsString;

pub(crate) const NAME: &str = "codex";

/// The driver of Codex. See the [module](super).
///
/// It starts the program as `PROGRAM [its leading arguments] app-server [the driver's own flags] [extra arguments]`, without a shell, and sets `PWD`
/// to the working directory.
///
/// [`ready`](agent_duplex::Connection::ready) waits up to 10 s until the conversation is open; messages before that wait in the driver. If a session
/// does not exist, the first turn ends with [`EndReason::SessionNotFound`](agent_duplex::EndReason::SessionNotFound).
#[derive(Clone, Debug)]
pub struct CodexDriver {
    program: Vec<OsString>,
    context: ProcessContext,
    pub(super) options: CodexOptions,
    pub(super) choices: Choices,
}

impl CodexDriver {
    /// Creates a driver for this program and its leading arguments. With an empty `program`, `connect` returns an error.
    pub fn new(program: Vec<OsString>, context: ProcessContext) -> Self {
        CodexDriver {
            program,
            context,
            options: CodexOptions::default(),
            choices: Choices::default(),
        }
    }

    /// Checks the options before a start: refuses an argument or a setting that the driver sets itself, an invalid variable name, and an MCP server
    /// with a transport that the agent doesn't support. It doesn't check whether the agent knows the settings.
    ///
    /// # Errors
    /// The error names the first invalid option or argument, and the fix.
    pub fn check(&self) -> Result<(), Error> {
        self.options.environment().check()?;
        arguments::compose(&self.options, &self.choices)?;
        servers_of(&self.choices.mcp_servers).map(drop)
    }
}

shared_options! {
    CodexDriver, CodexOptions;

    /// Sets what the agent can do without a permission request ([`Permissions::Edits`](agent_duplex::Permissions::Edits) by default).
    ///
    /// | | permission requests | sandbox |
    /// |---|---|---|
    /// | [`Permissions::Ask`](agent_duplex::Permissions::Ask) | for all commands and file changes (`untrusted`) | `danger-full-access` |
    /// | [`Permissions::Edits`](agent_duplex::Permissions::Edits) | none | `workspace-write` |
    /// | [`Permissions::All`](agent_duplex::Permissions::All) | none | `danger-full-access` |
    /// | [`Permissions::Deny`](agent_duplex::Permissions::Deny) | none | `read-only` |
    ///
    /// Codex can send other permission requests, for example for the tool of an MCP server. Under
    /// [`Permissions::All`](agent_duplex::Permissions::All) the driver allows them. Otherwise it reports each as an
    /// [event](agent_duplex::Event::PermissionRequested), which needs an answer, even under [`Permissions::Edits`](agent_duplex::Permissions::Edits)
    /// and [`Permissions::Deny`](agent_duplex::Permissions::Deny).
    permissions;

    /// Passes MCP servers to the agent through standard input. Codex supports programs and HTTP servers.
    mcp_servers;
}

impl Driver for CodexDriver {
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
            let env = self.options.environment();
            let variable = |name: &str| env.variable(name, &REQUIRED_ENV, &self.context);
            self.check()?;
            let cwd = std::path::absolute(&self.context.cwd);
            let cwd = cwd.unwrap_or_else(|_| self.context.cwd.clone());
            let opening =
                OpenRequest::compose(&self.options, &self.choices, &session, &cwd, variable)?;
            let words = arguments::compose(&self.options, &self.choices)?;
            let command = env.command(&self.program, &REQUIRED_ENV, &self.context)?;
            let agent = start(command.args(&words)).await?;
            let link = AgentLink::new(agent, NAME, &self.program, &self.context, None);
            let (permissions, timeouts) = (self.choices.permissions, self.choices.timeouts);
            let session = Session::new(opening, permissions, timeouts);
            let connection = CodexConnection::new(link, session);
            Ok(Box::new(DialogueConnection(connection)) as Box<dyn Connection>)
        })
    }
}
