//! How Codex is started.

use super::arguments;
use super::connection::{CodexConnection, Setup};
use super::opening::Opening;
use super::options::Options;
use crate::{AgentCommand, Context, StdinMode};
use agent_duplex::{BoxFuture, Capabilities, Capability, Connection, Driver, Error, SessionChoice};
use std::ffi::{OsStr, OsString};
use std::io;

pub(super) const NAME: &str = "codex";

/// Longer lines lose their middle and with it their meaning. One message comes whole on one line.
const MAX_LINE: usize = 64 << 20;

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
    pub(super) options: Options,
}

impl CodexDriver {
    /// Names the program and its leading arguments. An empty `program` is answered with an error when a connection is
    /// opened.
    pub fn new(program: Vec<OsString>, context: Context) -> Self {
        CodexDriver {
            program,
            context,
            options: Options::default(),
        }
    }

    fn command(&self) -> Result<AgentCommand, Error> {
        let mut words = self.program.iter();
        let Some(program) = words.next() else {
            let what = "no agent was given: name the program to run";
            return Err(Error::start(what, None));
        };
        let command = AgentCommand::new(program).args(words);
        let command = command.args(&arguments::compose(&self.options)?);
        let mut command = command
            .stdin(StdinMode::Piped)
            .max_line(MAX_LINE)
            .context(&self.context)
            .map_err(no_descriptor)?;
        for (name, value) in &self.options.env {
            command = command.env(name, value);
        }
        // What cannot be made absolute can't be entered either, and that is said by the spawn.
        if let Ok(cwd) = std::path::absolute(&self.context.cwd) {
            command = command.env("PWD", cwd);
        }
        Ok(command)
    }

    /// Looks a variable up as the agent would find it.
    fn variable(&self, name: &str) -> Option<String> {
        let named = |list: &[(OsString, OsString)]| {
            let mut newest_first = list.iter().rev();
            let found = newest_first.find(|(known, _)| known == OsStr::new(name));
            found.map(|(_, value)| value.clone())
        };
        let value = named(&self.options.env).or_else(|| named(&self.context.env));
        let value = value.or_else(|| std::env::var_os(name))?;
        value.into_string().ok()
    }
}

fn no_descriptor(error: io::Error) -> Error {
    let what = format!("the lock can't be handed on: {error}; raise the limit of open files");
    Error::start(what, Some(error.into()))
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
            let variable = |name: &str| self.variable(name);
            let cwd = std::path::absolute(&self.context.cwd);
            let cwd = cwd.unwrap_or_else(|_| self.context.cwd.clone());
            let opening = Opening::compose(&self.options, &session, &cwd, variable)?;
            let command = self.command()?;
            let agent = command
                .spawn()
                .await
                .map_err(|e| Error::start(e.to_string(), Some(e.into())))?;
            let setup = Setup {
                program: self.program[0].to_string_lossy().into_owned(),
                policy: self.context.stop.clone(),
                permissions: self.options.permissions,
                timeouts: self.options.timeouts,
                opening,
            };
            Ok(Box::new(CodexConnection::new(agent, setup)) as Box<dyn Connection>)
        })
    }
}
