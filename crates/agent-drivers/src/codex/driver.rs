//! How Codex is started: its description, which is the `Driver`, up to the first connection.

use super::arguments::{self, NEEDED};
use super::connection::CodexConnection;
use super::opening::{Opening, servers_of};
use super::options::CodexOptions;
use super::protocol::Session;
use crate::choices::{Choices, shared_options};
use crate::converse::{Link, Live};
use crate::duplex::start;
use agent_duplex::{BoxFuture, Capabilities, Capability, Connection, Driver, Error, SessionChoice};
use agent_subprocess::Context;
use std::ffi::OsString;

pub(crate) const NAME: &str = "codex";

/// Drives Codex. See the [module](super).
///
/// The program is started as `PROGRAM [its leading arguments] app-server [the driver's own flags] [extra arguments]`,
/// without a shell, and `PWD` names its working directory.
///
/// [`ready`](agent_duplex::Connection::ready) waits until the conversation is open, some seconds at most; what is said
/// before that waits for it. A session that does not exist is told as the end of the first turn
/// ([`EndReason::SessionNotFound`](agent_duplex::EndReason::SessionNotFound)).
#[derive(Clone, Debug)]
pub struct CodexDriver {
    program: Vec<OsString>,
    context: Context,
    pub(super) options: CodexOptions,
    pub(super) choices: Choices,
}

impl CodexDriver {
    /// Names the program and its leading arguments. An empty `program` is answered with an error when a connection is
    /// opened.
    pub fn new(program: Vec<OsString>, context: Context) -> Self {
        CodexDriver {
            program,
            context,
            options: CodexOptions::default(),
            choices: Choices::default(),
        }
    }

    /// Tells early what could not be started: an argument or a setting that says what the driver says, a variable that is
    /// none, or an MCP server that the agent does not know how to speak to. Whether it knows its settings is another matter.
    ///
    /// # Errors
    /// Names the first of them, and what to write instead.
    pub fn check(&self) -> Result<(), Error> {
        self.options.environment().check()?;
        arguments::compose(&self.options, &self.choices)?;
        servers_of(&self.choices.mcp_servers).map(drop)
    }
}

shared_options! {
    CodexDriver, CodexOptions;

    /// Says what the agent may do without being asked about each time ([`Permissions::Edits`](agent_duplex::Permissions::Edits) by default).
    ///
    /// | | it asks | its sandbox |
    /// |---|---|---|
    /// | [`Permissions::Ask`](agent_duplex::Permissions::Ask) | for all commands and changes of files (`untrusted`) | `danger-full-access` |
    /// | [`Permissions::Edits`](agent_duplex::Permissions::Edits) | nothing | `workspace-write` |
    /// | [`Permissions::All`](agent_duplex::Permissions::All) | nothing | `danger-full-access` |
    /// | [`Permissions::Deny`](agent_duplex::Permissions::Deny) | nothing | `read-only` |
    ///
    /// A question that Codex asks all the same, such as for the tool of an MCP server, is permitted under [`Permissions::All`](agent_duplex::Permissions::All), and elsewhere
    /// [asked](agent_duplex::Event::PermissionAsked): it wants an answer under [`Permissions::Edits`](agent_duplex::Permissions::Edits) and
    /// [`Permissions::Deny`](agent_duplex::Permissions::Deny) too.
    permissions;

    /// Hands MCP servers on, by standard input too. Codex knows programs and servers that speak HTTP.
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
    }

    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            let env = self.options.environment();
            let variable = |name: &str| env.variable(name, &self.context);
            self.check()?;
            let cwd = std::path::absolute(&self.context.cwd);
            let cwd = cwd.unwrap_or_else(|_| self.context.cwd.clone());
            let opening = Opening::compose(&self.options, &self.choices, &session, &cwd, variable)?;
            let words = arguments::compose(&self.options, &self.choices)?;
            let command = env.command(&self.program, &NEEDED, &self.context)?;
            let agent = start(command.args(&words)).await?;
            let link = Link::new(agent, NAME, &self.program, &self.context, None);
            let (permissions, timeouts) = (self.choices.permissions, self.choices.timeouts);
            let session = Session::new(opening, permissions, timeouts);
            let connection = CodexConnection::new(link, session);
            Ok(Box::new(Live(connection)) as Box<dyn Connection>)
        })
    }
}
