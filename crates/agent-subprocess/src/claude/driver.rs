//! How Claude Code is started.

use super::connection::ClaudeConnection;
use super::protocol::mode;
use crate::{AgentCommand, Context, StdinMode};
use agent_duplex::{
    BoxFuture, Capabilities, Capability, Connection, Driver, Error, Permissions, SessionChoice,
};
use std::ffi::{OsStr, OsString};
use uuid::Uuid;

pub(super) const NAME: &str = "claude";

/// Longer lines lose their middle and with it their meaning. One message may come whole on one line, twice.
const MAX_LINE: usize = 64 << 20;

/// What the driver says by itself. Said again, it would be said twice, and the agent's own rule would decide.
const OURS: [&str; 8] = [
    "--session-id",
    "--resume",
    "-r",
    "--continue",
    "-c",
    "--fork-session",
    "--input-format",
    "--output-format",
];

/// What the agent may do is said by [`ClaudeDriver::permissions`]; said here, it would count and nobody would know.
const PERMISSIONS: [&str; 5] = [
    "--dangerously-skip-permissions",
    "--allow-dangerously-skip-permissions",
    "--permission-mode",
    "--permission-prompt-tool",
    "--permission-prompts",
];

/// Drives Claude Code. See the [module](super).
///
/// The program is started as `PROGRAM [its leading arguments] <the driver's own flags> [extra arguments]`, without a
/// shell. `CLAUDECODE` is removed from its environment, because it refuses to run inside of itself.
///
/// [`ready`](agent_duplex::Connection::ready) waits for the agent's first word, 3 s at most, because what can't start
/// tells it by its exit only; the first message waits for it too.
/// A session that does not exist is told as the end of the first turn
/// ([`EndReason::SessionNotFound`](agent_duplex::EndReason::SessionNotFound)).
#[derive(Clone, Debug)]
pub struct ClaudeDriver {
    program: Vec<OsString>,
    context: Context,
    model: Option<String>,
    permissions: Permissions,
    args: Vec<OsString>,
}

impl ClaudeDriver {
    /// Names the program and its leading arguments. An empty `program` is answered with an error when a connection is
    /// opened.
    pub fn new(program: Vec<OsString>, context: Context) -> Self {
        ClaudeDriver {
            program,
            context,
            model: None,
            permissions: Permissions::default(),
            args: Vec::new(),
        }
    }

    /// Names the model; by default that of the agent's own settings.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Says what the agent may do without being asked about each time ([`Permissions::Edits`] by default).
    ///
    /// What it is not allowed it asks: [`Event::PermissionAsked`](agent_duplex::Event::PermissionAsked) wants an answer
    /// under [`Permissions::Edits`] and [`Permissions::Deny`] too. [`Permissions::All`] is refused as root.
    #[must_use]
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = permissions;
        self
    }

    /// Adds arguments at the end. Some that the driver chooses are answered with an error when a connection is opened; what
    /// the agent may do is among them.
    #[must_use]
    pub fn args(mut self, args: Vec<OsString>) -> Self {
        self.args.extend(args);
        self
    }

    fn command(&self, session: &SessionChoice, id: &str) -> Result<AgentCommand, Error> {
        let mut words = self.program.iter();
        let Some(program) = words.next() else {
            let what = "no agent was given: name the program to run";
            return Err(Error::start(what, None));
        };
        if let Some(what) = self.args.iter().find_map(|arg| refusal(arg)) {
            return Err(Error::start(what, None));
        }
        let mut command = AgentCommand::new(program)
            .args(words)
            .args(["-p", "--input-format", "stream-json"])
            .args(["--output-format", "stream-json", "--verbose"])
            .args(["--include-partial-messages", "--replay-user-messages"])
            .arg(match session {
                SessionChoice::Resume(_) => format!("--resume={id}"),
                _ => format!("--session-id={id}"),
            })
            .args(["--permission-prompt-tool", "stdio"]);
        command = match self.permissions {
            Permissions::All => command.arg("--dangerously-skip-permissions"),
            some => command.args(["--permission-mode", mode(some)]),
        };
        // Bound to its flag, so that no value is taken for another flag.
        let model = self.model.iter().map(|model| format!("--model={model}"));
        let command = command.args(model).args(&self.args).stdin(StdinMode::Piped);
        let command = command
            .max_line(MAX_LINE)
            .context(&self.context)
            .map_err(|e| {
                let what =
                    format!("the lock can't be handed on: {e}; raise the limit of open files");
                Error::start(what, Some(e.into()))
            })?;
        Ok(command.env_remove("CLAUDECODE"))
    }
}

/// Says why an extra argument can't be handed on, if so.
fn refusal(arg: &OsStr) -> Option<String> {
    let arg = arg.to_string_lossy();
    let flag = arg.split_once('=').map_or(&*arg, |(flag, _)| flag);
    let mend = if OURS.contains(&flag) {
        "take it out of the agent's extra arguments"
    } else if PERMISSIONS.contains(&flag) {
        "say --permissions instead of it"
    } else {
        return None;
    };
    Some(format!("`{arg}` is chosen by the driver: {mend}"))
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
            .with(Capability::Tools)
            .with(Capability::Usage)
            .with(Capability::Permissions)
    }

    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            let id = match &session {
                SessionChoice::Resume(id) => id.clone(),
                _ => Uuid::new_v4().to_string(),
            };
            let command = self.command(&session, &id)?;
            let program = self.program[0].to_string_lossy().into_owned();
            let agent = command
                .spawn()
                .await
                .map_err(|e| Error::start(e.to_string(), Some(e.into())))?;
            let stop = self.context.stop.clone();
            let all = self.permissions == Permissions::All;
            let connection = ClaudeConnection::new(agent, program, id, stop, all);
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }
}
