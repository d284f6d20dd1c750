//! How Claude Code is started.

use super::arguments::Arguments;
use super::connection::{ClaudeConnection, Setup};
use super::options::Options;
use crate::session_locks::{Lease, Refusal};
use crate::{AgentCommand, Context, StdinMode};
use agent_duplex::{
    BoxFuture, Capabilities, Capability, Connection, Driver, Error, Permissions, SessionChoice,
};
use std::ffi::{OsStr, OsString};
use std::io;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use uuid::Uuid;

pub(super) const NAME: &str = "claude";

/// Longer lines lose their middle and with it their meaning. One message may come whole on one line, twice.
const MAX_LINE: usize = 64 << 20;
/// How long to wait for a session that nobody writes any more, and how often to look.
const PASSING: Duration = Duration::from_secs(3);
const GLANCE: Duration = Duration::from_millis(50);

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
    pub(super) options: Options,
}

impl ClaudeDriver {
    /// Names the program and its leading arguments. An empty `program` is answered with an error when a connection is
    /// opened.
    pub fn new(program: Vec<OsString>, context: Context) -> Self {
        ClaudeDriver {
            program,
            context,
            options: Options::default(),
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

    fn command(&self, arguments: &Arguments) -> Result<AgentCommand, Error> {
        let mut words = self.program.iter();
        let Some(program) = words.next() else {
            let what = "no agent was given: name the program to run";
            return Err(Error::start(what, None));
        };
        let command = AgentCommand::new(program).args(words);
        let command = command.args(&arguments.words).stdin(StdinMode::Piped);
        let command = self.options.inherit(command);
        let mut command = command
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
        Ok(command.env_remove("CLAUDECODE"))
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

    /// Takes the session. Waits a little for what a dead process's agent left behind, and a glance for who only looks
    /// whether its file may be removed.
    async fn lease(&self, id: &str) -> Result<Option<Lease>, Error> {
        let Some(locks) = &self.options.locks else {
            return Ok(None);
        };
        let begun = Instant::now();
        loop {
            let refusal = match locks.take(id) {
                Ok(lease) => return Ok(Some(lease)),
                Err(refusal) => refusal,
            };
            match refusal {
                Refusal::Held { passing, .. }
                    if begun.elapsed() < if passing { PASSING } else { GLANCE } =>
                {
                    let _due = timeout(GLANCE, std::future::pending::<()>()).await;
                }
                Refusal::Held { by, .. } => {
                    return Err(Error::held(by.to_string(), Some(by.into())));
                }
                Refusal::Io(e) => {
                    let what = format!("the session can't be locked: {e}");
                    let mend = "correct the directory of its locks, or do without";
                    return Err(Error::start(format!("{what}; {mend}"), Some(e.into())));
                }
            }
        }
    }
}

fn no_descriptor(error: io::Error) -> Error {
    let what = format!("the lock can't be handed on: {error}; raise the limit of open files");
    Error::start(what, Some(error.into()))
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
            let variable = |name: &str| self.variable(name);
            let scratch = &self.context.scratch;
            let arguments = Arguments::compose(&self.options, &session, &id, scratch, variable)?;
            let mut command = self.command(&arguments)?;
            let lease = self.lease(&id).await?;
            if let Some(lease) = &lease {
                command = command.hold(lease.descriptor().map_err(no_descriptor)?);
            }
            let program = self.program[0].to_string_lossy().into_owned();
            let agent = command
                .spawn()
                .await
                .map_err(|e| Error::start(e.to_string(), Some(e.into())))?;
            let setup = Setup {
                program,
                session: id,
                policy: self.context.stop.clone(),
                may_all: self.options.permissions == Permissions::All,
                timeouts: self.options.timeouts,
                files: arguments.files,
                lease,
            };
            let connection = ClaudeConnection::new(agent, setup);
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }
}
