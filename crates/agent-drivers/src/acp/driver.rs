//! How agents that speak the protocol are started.

use super::connection::{AcpConnection, Setup};
use super::gemini;
use super::options::AcpOptions;
use super::preset::{AcpPreset, Kind};
use super::protocol::{Session, Wishes};
use crate::choices::{Choices, shared_options};
use crate::converse::{Link, Live};
use crate::duplex::{not_started, start};
use crate::environment::Environment;
use crate::session_locks::Lease;
use agent_duplex::{
    BoxFuture, Capabilities, Capability, Connection, Driver, Error, Permissions, SessionChoice,
};
use agent_subprocess::Context;
use std::ffi::OsString;
use std::path::Path;

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
    kind: &'static Kind,
    program: Vec<OsString>,
    context: Context,
    pub(super) options: AcpOptions,
    pub(super) choices: Choices,
}

impl AcpDriver {
    /// Names the program and all the arguments that it needs to speak the protocol. An empty `program` is answered with an
    /// error when a connection is opened.
    ///
    /// What the agent can do is known only when it runs, so
    /// [`capabilities`](agent_duplex::Driver::capabilities) holds all that the protocol has.
    pub fn new(program: Vec<OsString>, context: Context) -> Self {
        Self::of(AcpPreset::Other, program, context)
    }

    /// Names the Gemini CLI's program (`gemini`), which gets `--acp`. It is kept from starting itself anew with more memory,
    /// because the process in between ignores signals.
    ///
    /// It trusts no folder by itself and has no mode that allows edits there, so that the driver allows them one by one; to
    /// have it trust the folder, add `--skip-trust` to its [`args`](Self::args). As of 0.61.0 it loses sessions that
    /// it goes on with, at once or the next time; the session's file gets another name before, in the CLI's own folder.
    pub fn gemini(program: Vec<OsString>, context: Context) -> Self {
        Self::of(AcpPreset::Gemini, program, context)
    }

    /// Names OpenCode's program (`opencode`), which gets `acp`.
    ///
    /// By itself it does everything without a question. Unless its permissions are [`Permissions::All`] it is made to ask for
    /// what may do harm, by `OPENCODE_PERMISSION`, which stands over its other settings; a variable of that name that is set
    /// already counts instead. What was started under [`Permissions::All`] can't be made to ask while it runs.
    pub fn opencode(program: Vec<OsString>, context: Context) -> Self {
        Self::of(AcpPreset::Opencode, program, context)
    }

    /// Names the program of the adapter for Claude Code (`claude-agent-acp`).
    pub fn claude(program: Vec<OsString>, context: Context) -> Self {
        Self::of(AcpPreset::Claude, program, context)
    }

    /// Makes the driver of an agent of which this is known.
    pub(crate) fn of(preset: AcpPreset, program: Vec<OsString>, context: Context) -> Self {
        AcpDriver {
            kind: preset.kind(),
            program,
            context,
            options: AcpOptions::default(),
            choices: Choices::default(),
        }
    }

    /// Returns the environment that the agent gets: what it needs, and over that what was chosen.
    fn environment(&self) -> Environment {
        let mut environment = self.options.environment();
        for (name, value) in self.kind.env {
            if !self.options.env.0.contains_key(*name) {
                environment.set(*name, *value);
            }
        }
        environment
    }

    /// Tells early what could not be started: an argument that says what the driver says, or a variable that is none. What the agent
    /// can do of what was chosen is known only when it runs.
    ///
    /// # Errors
    /// Names the first of them, and what to write instead.
    pub fn check(&self) -> Result<(), Error> {
        self.environment().check()?;
        for arg in &self.choices.args {
            let arg = arg.to_string_lossy();
            let flag = arg.split('=').next().unwrap_or_default();
            let mend = if self.kind.permissions.contains(&flag) {
                "say --permissions instead of it"
            } else if self.kind.ours.contains(&flag) {
                "take it out of the agent's extra arguments"
            } else if ["-m", "--model"].contains(&flag) && self.choices.model.is_some() {
                "say it once, by the driver's own option"
            } else {
                continue;
            };
            let flag = flag.escape_debug();
            let what = format!("`{flag}` is chosen by the driver: {mend}");
            return Err(Error::start(what, None));
        }
        Ok(())
    }

    /// Returns the variable that the agent needs to be told to ask.
    fn asking(&self) -> Option<(&'static str, &'static str)> {
        let env = self.environment();
        let unset = |(name, _): &(&str, &str)| env.variable(name, &self.context).is_none();
        self.kind.asks.filter(unset)
    }

    fn wishes(&self, session: SessionChoice) -> Result<Wishes, Error> {
        let servers = &self.choices.mcp_servers;
        let env = self.environment();
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
                .expanded(|name| env.variable(name, &self.context))
                .map_err(not_started)?,
            model: self.choices.model.clone(),
            permissions: self.choices.permissions,
            auth_method: self.options.auth_method.clone(),
            timeouts: self.choices.timeouts,
            cost_restarts: self.kind.cost_restarts,
            never_asks: self.asking().is_some() && self.choices.permissions == Permissions::All,
        })
    }
}

impl AcpDriver {
    /// Does what it can for the session; what can't be kept is told as lost when it is loaded.
    fn keep_session(&self, id: &str) {
        let homes = ["GEMINI_CLI_HOME", "HOME"];
        let env = self.environment();
        let variable = |name: &&str| env.variable(name, &self.context);
        if let Some(home) = homes.iter().find_map(variable) {
            let _kept = gemini::keep(Path::new(&home), id);
        }
    }
}

shared_options! {
    AcpDriver, AcpOptions;

    /// Says what the agent may do without being asked about each time ([`Permissions::Edits`] by default).
    ///
    /// An agent that has a mode for it is put into that mode. What it asks all the same is allowed by the driver under
    /// [`Permissions::All`], and under [`Permissions::Edits`] where it is an edit of files that the agent says are below its
    /// working directory. Everything else is [asked](agent_duplex::Event::PermissionAsked) and wants an answer, under
    /// [`Permissions::Deny`] too.
    permissions;

    /// Hands MCP servers on when a session is opened. One over HTTP, or over events, needs an agent that takes such; with
    /// another the start is answered with an error for which [`is_unsupported`](agent_duplex::Error::is_unsupported) is true.
    mcp_servers;

    session_locks;
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
            self.check()?;
            let env = self.environment();
            let command = env.command(&self.program, self.kind.needs, &self.context)?;
            let command = command.args(self.kind.args).args(&self.choices.args);
            let command = match self.asking() {
                Some((name, value)) if self.choices.permissions != Permissions::All => {
                    command.env(name, value)
                }
                _ => command,
            };
            let command = command.env_remove("CLAUDECODE");
            // The id of a fresh session, or of a copy, is known only later.
            let resumed = match &session {
                SessionChoice::Resume(id) => Some(id.as_str()),
                _ => None,
            };
            let lease = Lease::of(self.choices.session_locks.as_ref(), resumed)?;
            let command = Lease::hold(lease.as_ref(), command)?;
            if let (gemini::NAME, Some(id)) = (self.kind.name, resumed) {
                self.keep_session(id);
            }
            let wishes = self.wishes(session)?;
            let agent = start(command).await?;
            let link = Link::new(agent, self.kind.name, &self.program, &self.context, None);
            let setup = Setup {
                lease,
                locks: self.choices.session_locks.clone(),
                answer: self.choices.timeouts.others,
            };
            let connection = AcpConnection::new(link, Session::new(wishes), setup);
            Ok(Box::new(Live(connection)) as Box<dyn Connection>)
        })
    }
}
