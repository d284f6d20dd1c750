//! The `Driver` of agents that implement the protocol.

use super::connection::{AcpConnection, Setup};
use super::gemini;
use super::options::AcpOptions;
use super::preset::{AcpPreset, PresetFacts};
use super::protocol::{Session, SessionRequest};
use crate::choices::{Choices, shared_options};
use crate::convert::{not_started, start};
use crate::dialogue::{AgentLink, DialogueConnection};
use crate::environment::Environment;
use crate::session_locks::Lease;
use agent_duplex::{
    BoxFuture, Capabilities, Capability, Connection, Driver, Error, Permissions, SessionChoice,
};
use agent_subprocess::ProcessContext;
use std::ffi::OsString;
use std::path::Path;

/// The driver of any agent that implements the Agent Client Protocol. See the [module](super).
///
/// It starts the program as `PROGRAM [its leading arguments] [arguments that enable the protocol] [extra arguments]`, without a shell. It removes
/// `CLAUDECODE` from the environment, and sets `PWD` to the working directory.
///
/// [`ready`](agent_duplex::Connection::ready) waits until the session is open, which takes some agents ten seconds; the first message waits for it
/// too. If a person must log in, or the session does not exist, the first turn ends with
/// [`EndReason::NotLoggedIn`](agent_duplex::EndReason::NotLoggedIn) or [`EndReason::SessionNotFound`](agent_duplex::EndReason::SessionNotFound), and
/// the driver ends the agent. If the running agent lacks a capability, the driver returns an error for which
/// [`is_unsupported`](agent_duplex::Error::is_unsupported) is true.
#[derive(Clone, Debug)]
pub struct AcpDriver {
    kind: &'static PresetFacts,
    program: Vec<OsString>,
    context: ProcessContext,
    pub(super) options: AcpOptions,
    pub(super) choices: Choices,
}

impl AcpDriver {
    /// Creates a driver for this program, with all arguments that the program needs to use the protocol. With an empty `program`, `connect` returns
    /// an error.
    ///
    /// Only the running agent reports what it can do, so [`capabilities`](agent_duplex::Driver::capabilities) returns everything that the protocol
    /// has.
    pub fn new(program: Vec<OsString>, context: ProcessContext) -> Self {
        Self::of(AcpPreset::Other, program, context)
    }

    /// Creates a driver for Gemini CLI (`gemini`), with the argument `--acp`. Gemini CLI normally starts itself again with more memory; the driver
    /// disables this, because the outer process ignores signals.
    ///
    /// Gemini CLI trusts no folder by default, and has no edit mode in an untrusted one, so the driver allows edits one by one. To make Gemini CLI
    /// trust the folder, add `--skip-trust` to its [`args`](Self::args). Version 0.61.0 loses a session that it resumes, immediately or at the next
    /// resume. So the driver first renames the session's file in the folder of Gemini CLI.
    pub fn gemini(program: Vec<OsString>, context: ProcessContext) -> Self {
        Self::of(AcpPreset::Gemini, program, context)
    }

    /// Creates a driver for OpenCode (`opencode`), with the argument `acp`.
    ///
    /// By default OpenCode does everything without a permission request. Unless the permissions are [`Permissions::All`], the driver makes OpenCode
    /// ask before calls that can do harm. For this it sets the variable `OPENCODE_PERMISSION`, which overrides the other settings of OpenCode. If a
    /// variable of that name is already set, the driver keeps it. An agent that was started under [`Permissions::All`] can't be made to ask while it
    /// runs.
    pub fn opencode(program: Vec<OsString>, context: ProcessContext) -> Self {
        Self::of(AcpPreset::Opencode, program, context)
    }

    /// Creates a driver for the adapter for Claude Code (`claude-agent-acp`).
    pub fn claude(program: Vec<OsString>, context: ProcessContext) -> Self {
        Self::of(AcpPreset::Claude, program, context)
    }

    /// Makes the driver for a preset.
    pub(crate) fn of(preset: AcpPreset, program: Vec<OsString>, context: ProcessContext) -> Self {
        AcpDriver {
            kind: preset.facts(),
            program,
            context,
            options: AcpOptions::default(),
            choices: Choices::default(),
        }
    }

    /// Returns the environment of the agent: the preset's variables, overridden by the configured ones.
    fn environment(&self) -> Environment {
        let mut environment = self.options.environment();
        for (name, value) in self.kind.env {
            if !self.options.env.0.contains_key(*name) {
                environment.set(*name, *value);
            }
        }
        environment
    }

    /// Checks the options before a start: refuses an argument that the driver sets itself, and an invalid variable name. Whether the agent supports
    /// the options is known only when it runs.
    ///
    /// # Errors
    /// The error names the first invalid option or argument, and the fix.
    pub fn check(&self) -> Result<(), Error> {
        self.environment().check()?;
        for arg in &self.choices.args {
            let arg = arg.to_string_lossy();
            let flag = arg.split('=').next().unwrap_or_default();
            let hint = if self.kind.permissions.contains(&flag) {
                "use --permissions instead"
            } else if self.kind.own_args.contains(&flag) {
                "remove it from the agent's extra arguments"
            } else if ["-m", "--model"].contains(&flag) && self.choices.model.is_some() {
                "use only the driver's own option"
            } else {
                continue;
            };
            let flag = flag.escape_debug();
            let what = format!("the driver sets `{flag}` itself: {hint}");
            return Err(Error::start(what, None));
        }
        Ok(())
    }

    /// Returns the variable that makes the agent send permission requests.
    fn ask_variable(&self) -> Option<(&'static str, &'static str)> {
        let env = self.environment();
        let needs = self.kind.needs;
        let unset = |(name, _): &(&str, &str)| env.variable(name, needs, &self.context).is_none();
        self.kind.ask_variable.filter(unset)
    }

    fn session_request(&self, session: SessionChoice) -> Result<SessionRequest, Error> {
        let servers = &self.choices.mcp_servers;
        let env = self.environment();
        let cwd = std::path::absolute(&self.context.cwd).map_err(|e| {
            let what = format!("the working directory has no absolute path: {e}; use another one");
            Error::start(what, Some(e.into()))
        })?;
        // An agent can report paths below either of the two.
        let real = std::fs::canonicalize(&cwd).unwrap_or_else(|_| cwd.clone());
        let texts = [cwd, real].map(|path| path.into_os_string().into_string());
        let [Ok(cwd), Ok(real)] = texts else {
            let what = "the path of the working directory is not UTF-8, which the protocol requires; use another one";
            return Err(Error::start(what, None));
        };
        Ok(SessionRequest {
            agent: self.kind.name,
            session,
            roots: [cwd, real],
            servers: servers
                .expanded(|name| env.variable(name, self.kind.needs, &self.context))
                .map_err(not_started)?,
            model: self.choices.model.clone(),
            permissions: self.choices.permissions,
            auth_method: self.options.auth_method.clone(),
            timeouts: self.choices.timeouts,
            cost_restarts: self.kind.cost_restarts,
            is_unattended: self.ask_variable().is_some()
                && self.choices.permissions == Permissions::All,
        })
    }
}

impl AcpDriver {
    /// Renames the session's file if possible. If that fails, the agent itself reports whether the session is lost.
    fn store_session(&self, id: &str) {
        let homes = ["GEMINI_CLI_HOME", "HOME"];
        let env = self.environment();
        let variable = |name: &&str| env.variable(name, self.kind.needs, &self.context);
        if let Some(home) = homes.iter().find_map(variable) {
            let _kept = gemini::protect_session_file(Path::new(&home), id);
        }
    }
}

shared_options! {
    AcpDriver, AcpOptions;

    /// Sets what the agent can do without a permission request ([`Permissions::Edits`] by default).
    ///
    /// If the agent has a mode for these permissions, the driver sets that mode. The driver allows other requests itself under [`Permissions::All`].
    /// Under [`Permissions::Edits`] it allows an edit of files that the agent reports to be below its working directory. The driver reports each
    /// other request as an [event](agent_duplex::Event::PermissionRequested), which needs an answer, even under [`Permissions::Deny`].
    permissions;

    /// Passes MCP servers to the agent when a session is opened. If the agent doesn't support a server's transport (HTTP or SSE), the start returns
    /// an error for which [`is_unsupported`](agent_duplex::Error::is_unsupported) is true.
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
            .with(Capability::Mcp)
            .with(Capability::Images)
            .with(Capability::Files);
        { self.kind.extra_capabilities.iter() }.fold(all, |all, more| all.with(*more))
    }

    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            self.check()?;
            let env = self.environment();
            let command = env.command(&self.program, self.kind.needs, &self.context)?;
            let command = command.args(self.kind.args).args(&self.choices.args);
            let command = match self.ask_variable() {
                Some((name, value)) if self.choices.permissions != Permissions::All => {
                    command.env(name, value)
                }
                _ => command,
            };
            let command = command.env_remove("CLAUDECODE");
            // The id of a fresh or forked session is known only later.
            let resumed = match &session {
                SessionChoice::Resume(id) => Some(id.as_str()),
                _ => None,
            };
            let lease = Lease::of(self.choices.session_locks.as_ref(), resumed)?;
            let command = Lease::hold(lease.as_ref(), command)?;
            if let (gemini::NAME, Some(id)) = (self.kind.name, resumed) {
                self.store_session(id);
            }
            let request = self.session_request(session)?;
            let agent = start(command).await?;
            let link = AgentLink::new(agent, self.kind.name, &self.program, &self.context, None);
            let setup = Setup {
                lease,
                locks: self.choices.session_locks.clone(),
                answer: self.choices.timeouts.other_requests,
                declared: self.capabilities(),
            };
            let connection = AcpConnection::new(link, Session::new(request), setup);
            Ok(Box::new(DialogueConnection(connection)) as Box<dyn Connection>)
        })
    }
}
