//! The description of a server: its program, its environment, its time limit.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::time::Duration;

use agent_subprocess::{OutputMode, ProcessContext, StdinMode, TreeCommand};

use crate::error::{Error, ErrorKind};
use crate::tool::ToolContext;

/// The longest name of a server. A tool needs some characters too.
const MAX_NAME: usize = 64;
/// The variables that a server inherits: those that the official clients of the protocol pass on, the language, and the places of files. A name that
/// ends with `*` stands for all names that begin with the part before the `*`.
const INHERITED: [&str; 15] = [
    "HOME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "USER",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "XDG_*",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
];
/// The time limit of a request by default.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// An MCP server: a program whose tools the model can call, over its standard input and output.
///
/// The agent starts it in the first turn of a connection, and asks it once for its tools. They come after the other tools, with names such as
/// `mcp__SERVER__TOOL`. Its process tree ends with the connection.
///
/// The server inherits only these variables: `HOME`, `LOGNAME`, `PATH`, `SHELL`, `TERM`, `TMPDIR`, `TZ`, `USER`, `LANG`, `LANGUAGE`, `LC_*`, `XDG_*`,
/// `SSL_CERT_FILE`, `SSL_CERT_DIR` and `NODE_EXTRA_CA_CERTS`. It also gets the variables of its context, and those that [`env`](Self::env) sets, as they
/// are: also if their names look secret.
///
/// `Debug` shows neither arguments nor values, because they can be secret.
#[derive(Clone)]
pub struct McpServer {
    pub(super) name: String,
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    pub(super) processes: ProcessContext,
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
            time_limit: REQUEST_LIMIT,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
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
        let inherited = std::env::vars_os().filter(|(name, _)| is_inherited(name));
        let command = TreeCommand::new(&self.program).env_clear();
        let command = inherited
            .fold(command, |command, (name, value)| command.env(name, value))
            .args(&self.args)
            .stdin(StdinMode::Piped)
            .stdout(OutputMode::Bytes)
            .stderr(OutputMode::Lines)
            .context(&self.processes)?
            .current_dir(context.directory.path());
        let set = self.env.iter();
        Ok(set.fold(command, |command, (name, value)| command.env(name, value)))
    }
}

fn is_inherited(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    INHERITED
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start.as_bytes()),
            None => name == pattern.as_bytes(),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a15_server_inherits_only_the_listed_variables() {
        for name in ["PATH", "HOME", "LANG", "LC_ALL", "XDG_CACHE_HOME", "TMPDIR"] {
            assert!(is_inherited(name.as_ref()), "{name}");
        }
        for name in [
            "OPENAI_API_KEY",
            "PGPASSWORD",
            "GITHUB_PAT",
            "DATABASE_URL",
            "HTTPS_PROXY",
            "SSH_AUTH_SOCK",
            "AWS_PROFILE",
            "PATHS",
            "MY_PATH",
            "path",
            "",
        ] {
            assert!(!is_inherited(name.as_ref()), "{name}");
        }
    }
}
