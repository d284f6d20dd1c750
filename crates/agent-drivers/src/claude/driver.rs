//! How Claude Code is started: its description, which is the `Driver`, up to the first connection.

use super::arguments::{Arguments, NEEDED};
use super::connection::{ClaudeConnection, Setup};
use super::options::ClaudeOptions;
use crate::choices::{Choices, shared_options};
use crate::converse::{Link, Live};
use crate::duplex::start;
use crate::session_locks::Lease;
use agent_duplex::{
    BoxFuture, Capabilities, Capability, Connection, Driver, Error, Permissions, SessionChoice,
};
use agent_subprocess::Context;
use std::ffi::OsString;
use uuid::Uuid;

pub(crate) const NAME: &str = "claude";

/// Drives Claude Code. See the [module](super).
///
/// The program is started as `PROGRAM [its leading arguments] <the driver's own flags> [extra arguments]`, without a
/// shell. `CLAUDECODE` is removed from its environment, because it refuses to run inside of itself, and `PWD` names its
/// working directory.
///
/// [`ready`](agent_duplex::Connection::ready) waits for the agent's first word, 3 s at most, because what can't start
/// tells it by its exit only; the first message waits for it too.
/// A session that does not exist is told as the end of the first turn
/// ([`EndReason::SessionNotFound`](agent_duplex::EndReason::SessionNotFound)).
#[derive(Clone, Debug)]
pub struct ClaudeDriver {
    program: Vec<OsString>,
    context: Context,
    pub(super) options: ClaudeOptions,
    pub(super) choices: Choices,
}

impl ClaudeDriver {
    /// Names the program and its leading arguments. An empty `program` is answered with an error when a connection is
    /// opened.
    pub fn new(program: Vec<OsString>, context: Context) -> Self {
        ClaudeDriver {
            program,
            context,
            options: ClaudeOptions::default(),
            choices: Choices::default(),
        }
    }

    /// Tells early what could not be started: a tool, a rule, an effort, a source of settings or a variable that is none. Whether the agent
    /// knows them is another matter.
    ///
    /// # Errors
    /// Names the first of them, and what to write instead.
    pub fn check(&self) -> Result<(), Error> {
        self.options.check()
    }
}

shared_options! {
    ClaudeDriver, ClaudeOptions;

    /// Says what the agent may do without being asked about each time ([`Permissions::Edits`] by default).
    ///
    /// The agent asks for everything else: answer each [`Event::PermissionAsked`](agent_duplex::Event::PermissionAsked),
    /// under [`Permissions::Edits`] and [`Permissions::Deny`] too. [`Permissions::All`] is refused as root.
    permissions;

    /// Hands MCP servers on, by a private file that is removed when the agent has ended.
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
    }

    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            let id = match &session {
                SessionChoice::Resume(id) => id.clone(),
                _ => Uuid::new_v4().to_string(),
            };
            // First: a refusal must have started and written nothing, since the conversation asks again.
            let lease = Lease::of(self.choices.session_locks.as_ref(), Some(&id))?;
            let env = self.options.environment();
            let variable = |name: &str| env.variable(name, &self.context);
            let scratch = &self.context.scratch;
            let arguments = Arguments::compose(
                &self.options,
                &self.choices,
                &session,
                &id,
                scratch,
                variable,
            )?;
            let command = env.command(&self.program, &NEEDED, &self.context)?;
            let command = command.args(&arguments.words).env_remove("CLAUDECODE");
            let agent = start(Lease::hold(lease.as_ref(), command)?).await?;
            let known = Some(id.clone());
            let link = Link::new(agent, NAME, &self.program, &self.context, known);
            let setup = Setup {
                session: id,
                has_past: !matches!(session, SessionChoice::Fresh),
                may_all: self.choices.permissions == Permissions::All,
                timeouts: self.choices.timeouts,
                files: arguments.files,
                lease,
            };
            let connection = ClaudeConnection::new(link, setup);
            Ok(Box::new(Live(connection)) as Box<dyn Connection>)
        })
    }
}
