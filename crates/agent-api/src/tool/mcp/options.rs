//! The description of a server: its program, its environment, its time limit.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use agent_subprocess::{OutputMode, ProcessContext, StdinMode, TreeCommand};

use crate::error::{Error, ErrorKind};
use crate::tool::ToolContext;
use crate::tool::process::HiddenVariables;

/// The longest name of a server. A tool needs some characters too.
const MAX_NAME: usize = 64;
/// The time limit of a request by default.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// An MCP server: a program whose tools the model can call, over its standard input and output.
///
/// The agent starts it in the first turn of a connection, and asks it once for its tools. They come after the other tools, with names such as
/// `mcp__SERVER__TOOL`. The server gets the environment of this program, without variables whose name looks secret (see [`Bash`](crate::Bash)), and
/// the variables that [`env`](Self::env) sets. Its process tree ends with the connection.
///
/// `Debug` shows neither arguments nor values, because they can be secret.
#[derive(Clone)]
pub struct McpServer {
    pub(super) name: String,
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    pub(super) processes: ProcessContext,
    hidden: HiddenVariables,
    pub(super) time_limit: Duration,
}

impl McpServer {
    /// Describes a server. Its processes have the environment, the marker and the containment of the context, and the working directory of the agent.
    /// The name has 1 to 64 letters, digits, `_` and `-`.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        program: impl Into<OsString>,
        context: ProcessContext,
    ) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            processes: context,
            hidden: HiddenVariables::default(),
            time_limit: REQUEST_LIMIT,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets a variable of the environment, also one whose name looks secret.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Removes an inherited variable from the environment, whatever its name looks like. [`env`](Self::env) can set it again.
    #[must_use]
    pub fn hide_variable(mut self, name: impl Into<OsString>) -> Self {
        self.hidden.hide(name.into());
        self
    }

    /// Sets the time for the start with the list of tools, and for each call; 60 s by default.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Checks the name, and that no server before it has the same name.
    pub(crate) fn check(servers: &[Self]) -> Result<(), Error> {
        let wrong = |message| Err(Error::new(ErrorKind::Settings, message));
        let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        for (at, Self { name, .. }) in servers.iter().enumerate() {
            if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_good) {
                return wrong(format!(
                    "`{}` is not a name of an MCP server: use 1 to {MAX_NAME} letters, digits, `_` or `-`",
                    crate::text::one_line(name, MAX_NAME)
                ));
            }
            if servers[..at].iter().any(|other| other.name == *name) {
                return wrong(format!(
                    "two MCP servers have the name `{name}`; rename one"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn command(&self, context: &ToolContext) -> std::io::Result<TreeCommand> {
        let command = TreeCommand::new(&self.program)
            .args(&self.args)
            .stdin(StdinMode::Piped)
            .stdout(OutputMode::Bytes)
            .stderr(OutputMode::Lines)
            .context(&self.processes)?
            .current_dir(context.directory.path());
        let command = self.hidden.removed_from(command, &self.processes);
        let set = self.env.iter();
        Ok(set.fold(command, |command, (name, value)| command.env(name, value)))
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("McpServer")
            .field("name", &self.name)
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &names)
            .field("time_limit", &self.time_limit)
            .finish_non_exhaustive()
    }
}
