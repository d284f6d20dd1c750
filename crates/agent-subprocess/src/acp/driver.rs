//! How agents that speak the protocol are started.

use super::connection::{AcpConnection, Setup};
use super::options::Options;
use super::protocol::{Session, Wishes};
use crate::mcp;
use crate::session_locks::{Lease, Refusal};
use crate::{AgentCommand, Context, StdinMode};
use agent_duplex::{BoxFuture, Capabilities, Capability, Connection, Driver, Error, SessionChoice};
use std::ffi::{OsStr, OsString};
use std::io;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Longer lines lose their middle and with it their meaning.
const MAX_LINE: usize = 64 << 20;
/// How long to wait for a session that nobody writes any more, and how often to look.
const PASSING: Duration = Duration::from_secs(3);
const GLANCE: Duration = Duration::from_millis(50);

/// What is known of an agent before it is started.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    /// What makes the program speak the protocol.
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    /// What it can do besides what every agent can.
    more: &'static [Capability],
    cost_restarts: bool,
}

const ANY: Kind = Kind {
    name: "acp",
    args: &[],
    env: &[],
    more: &[
        Capability::Fork,
        Capability::Model,
        Capability::Resume,
        Capability::Usage,
    ],
    cost_restarts: false,
};

/// Drives any agent that speaks the Agent Client Protocol. See the [module](super).
///
/// The program is started as `PROGRAM [its leading arguments] [what makes it speak the protocol] [extra arguments]`, without
/// a shell. `CLAUDECODE` is removed from its environment, and `PWD` names its working directory.
///
/// [`ready`](agent_duplex::Connection::ready) waits until the session is open, which takes some agents ten seconds; the
/// first message waits for it too. An agent that wants a person to log in, and a session that does not exist, are told as
/// the end of the first turn ([`EndReason::NotLoggedIn`](agent_duplex::EndReason::NotLoggedIn),
/// [`EndReason::SessionNotFound`](agent_duplex::EndReason::SessionNotFound)), and then the agent is ended. What an agent
/// turns out not to be able to do is answered with an error for which
/// [`is_unsupported`](agent_duplex::Error::is_unsupported) is true.
#[derive(Clone, Debug)]
pub struct AcpDriver {
    kind: Kind,
    program: Vec<OsString>,
    context: Context,
    pub(super) options: Options,
}

impl AcpDriver {
    /// Names the program and all the arguments that it needs to speak the protocol. An empty `program` is answered with an
    /// error when a connection is opened.
    ///
    /// What the agent can do is known only when it runs, so
    /// [`capabilities`](agent_duplex::Driver::capabilities) holds all that the protocol has.
    pub fn new(program: Vec<OsString>, context: Context) -> Self {
        Self::of(ANY, program, context)
    }

    /// Names the Gemini CLI's program (`gemini`), which gets `--acp`. It is kept from starting itself anew with more memory,
    /// because the process in between ignores signals.
    ///
    /// It trusts no folder by itself and has no mode that allows edits there, so that the driver allows them one by one; to
    /// have it trust the folder, add `--skip-trust` to its [`args`](Self::args). It says that it can go on with sessions; as
    /// of 0.61.0 it often does not find them
    /// ([`EndReason::SessionNotFound`](agent_duplex::EndReason::SessionNotFound)).
    pub fn gemini(program: Vec<OsString>, context: Context) -> Self {
        let kind = Kind {
            name: "gemini",
            args: &["--acp"],
            env: &[("GEMINI_CLI_NO_RELAUNCH", "true")],
            more: &[Capability::Model, Capability::Resume, Capability::Usage],
            ..ANY
        };
        Self::of(kind, program, context)
    }

    /// Names OpenCode's program (`opencode`), which gets `acp`.
    pub fn opencode(program: Vec<OsString>, context: Context) -> Self {
        let kind = Kind {
            name: "opencode",
            args: &["acp"],
            ..ANY
        };
        Self::of(kind, program, context)
    }

    /// Names the program of the adapter for Claude Code (`claude-agent-acp`).
    pub fn claude(program: Vec<OsString>, context: Context) -> Self {
        let kind = Kind {
            name: "claude-acp",
            cost_restarts: true,
            ..ANY
        };
        Self::of(kind, program, context)
    }

    fn of(kind: Kind, program: Vec<OsString>, context: Context) -> Self {
        AcpDriver {
            kind,
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
        let command = AgentCommand::new(program)
            .args(words)
            .args(self.kind.args)
            .args(&self.options.args)
            .stdin(StdinMode::Piped)
            .max_line(MAX_LINE);
        let mut command = command.context(&self.context).map_err(no_descriptor)?;
        for (name, value) in self.kind.env {
            command = command.env(*name, *value);
        }
        for (name, value) in &self.options.env {
            command = command.env(name, value);
        }
        // What cannot be made absolute can't be entered either, and that is said by the spawn.
        if let Ok(cwd) = std::path::absolute(&self.context.cwd) {
            command = command.env("PWD", cwd);
        }
        Ok(command.env_remove("CLAUDECODE"))
    }

    fn wishes(&self, session: SessionChoice) -> Result<Wishes, Error> {
        let refuse = |e: mcp::Error| Error::start(e.to_string(), Some(e.into()));
        let servers = &self.options.mcp_servers;
        let cwd = std::path::absolute(&self.context.cwd).map_err(|e| {
            let what = format!("the working directory has no absolute path: {e}; name another");
            Error::start(what, Some(e.into()))
        })?;
        // Agents may name it by either path.
        let real = std::fs::canonicalize(&cwd).unwrap_or_else(|_| cwd.clone());
        let texts = [cwd, real].map(|path| path.into_os_string().into_string());
        let [Ok(cwd), Ok(real)] = texts else {
            let what = "the path of the working directory is no UTF-8, which the protocol needs; work in another";
            return Err(Error::start(what, None));
        };
        Ok(Wishes {
            agent: self.kind.name,
            session,
            roots: [cwd, real],
            servers: servers
                .expanded(|name| self.variable(name))
                .map_err(refuse)?,
            model: self.options.model.clone(),
            permissions: self.options.permissions,
            auth_method: self.options.auth_method.clone(),
            timeouts: self.options.timeouts,
            cost_restarts: self.kind.cost_restarts,
        })
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

    /// Takes the session that is to be gone on with, and waits a little for what a dead process's agent left behind.
    async fn lease(&self, session: &SessionChoice) -> Result<Option<Lease>, Error> {
        let (Some(locks), SessionChoice::Resume(id)) = (&self.options.locks, session) else {
            return Ok(None);
        };
        let until = Instant::now() + PASSING;
        loop {
            match locks.take(id) {
                Ok(lease) => return Ok(Some(lease)),
                Err(Refusal::Held { passing: true, .. }) if Instant::now() < until => {
                    let _due = timeout(GLANCE, std::future::pending::<()>()).await;
                }
                Err(Refusal::Held { by, .. }) => {
                    return Err(Error::held(by.to_string(), Some(by.into())));
                }
                Err(Refusal::Io(e)) => {
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

impl Driver for AcpDriver {
    fn name(&self) -> &str {
        self.kind.name
    }

    fn capabilities(&self) -> Capabilities {
        let all = Capabilities::none()
            .with(Capability::Interrupt)
            .with(Capability::Tools)
            .with(Capability::Permissions)
            .with(Capability::Mcp);
        { self.kind.more.iter() }.fold(all, |all, more| all.with(*more))
    }

    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            let mut command = self.command()?;
            let lease = self.lease(&session).await?;
            if let Some(lease) = &lease {
                command = command.hold(lease.descriptor().map_err(no_descriptor)?);
            }
            let wishes = self.wishes(session)?;
            let agent = command
                .spawn()
                .await
                .map_err(|e| Error::start(e.to_string(), Some(e.into())))?;
            let setup = Setup {
                name: self.kind.name,
                program: self.program[0].to_string_lossy().into_owned(),
                policy: self.context.stop.clone(),
                lease,
                locks: self.options.locks.clone(),
                answer: self.options.timeouts.others,
            };
            let connection = AcpConnection::new(agent, Session::new(wishes), setup);
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }
}
