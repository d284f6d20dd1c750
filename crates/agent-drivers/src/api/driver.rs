//! The driver: an agent of `agent-api` with the tools of a coding agent.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use agent_api::{
    AgentOptions, ApiAgent, Bash, Budget, Dialect, Endpoint, McpServer, Prices, ThinkingMode, Tool,
    coding_tools,
};
use agent_duplex::{
    BoxFuture, Capabilities, Connection, Driver, Error, InputPolicy, SessionChoice,
};
use agent_subprocess::ProcessContext;

use super::key;
use super::options::{ApiOptions, ApiTool, NAME, SESSIONS};
use super::server::{ApiDialect, ApiServer};
use crate::choices::{CheckedDriver, Choices};
use crate::environment::Environment;
use crate::mcp::McpServer as Described;

/// The files with the rules of a project; the first that exists is read.
const RULES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
/// The longest file of rules, in bytes; the rest is omitted.
const MAX_RULES: u64 = 64 << 10;

/// Drives the agent of this project, which runs inside this program.
#[derive(Clone, Debug)]
pub(crate) struct ApiDriver {
    options: ApiOptions,
    choices: Choices,
    context: ProcessContext,
}

impl ApiDriver {
    pub(crate) fn new(options: ApiOptions, choices: Choices, context: ProcessContext) -> Self {
        Self {
            options,
            choices,
            context,
        }
    }

    /// Makes the agent, without starting anything.
    fn agent(&self) -> Result<ApiAgent, Error> {
        let cant = |what: String| Error::start(what, None);
        let server = &self.choices.api_server;
        let (endpoint, key_variable) = endpoint(server)?;
        let Some(model) = self.choices.model.clone() else {
            return Err(cant(
                "no model is named; choose one with --model".to_owned(),
            ));
        };
        let directory = self.context.cwd.clone();
        let sessions = self.context.scratch.with_file_name(SESSIONS);
        let mut options = AgentOptions::new(endpoint, model, &directory, sessions);
        options.permissions = self.choices.permissions;
        options.tools = self.tools(key_variable.as_deref());
        options.mcp_servers = self.mcp_servers(key_variable.as_deref())?;
        options.instructions = self.instructions();
        if let Some(system) = &self.options.system_prompt {
            options.request.system.clone_from(system);
        }
        if let Some(tokens) = self.options.max_output_tokens {
            options.request.max_output_tokens = Some(tokens);
        }
        if let Some(effort) = &self.options.effort {
            options.request.thinking = ThinkingMode::Effort(effort.clone());
        }
        if let Some(window) = self.options.context_window {
            options.context_window = window.into();
        }
        let prices = server.parsed_prices()?;
        if self.options.report_cost && prices.is_none() {
            let what = "the cost needs prices; write them into [api-server] of your own settings";
            return Err(cant(what.to_owned()));
        }
        if let Some(prices) = prices {
            let prices = Prices {
                input: prices.input,
                cached_input: prices.cached_input,
                cache_write: prices.cache_write,
                output: prices.output,
            };
            let budget = Budget::new(None, None, Some(prices));
            options.budget = budget.map_err(|error| cant(error.to_string()))?;
        }
        ApiAgent::new(options).map_err(|error| cant(error.to_string()))
    }

    fn tools(&self, key_variable: Option<&str>) -> Vec<Arc<dyn Tool>> {
        let mut context = self.context.clone();
        let own = self.options.env.0.iter();
        context
            .env
            .extend(own.map(|(name, value)| (name.into(), value.into())));
        let mut bash = Bash::new(context);
        // The user named these variables for the tools.
        for name in self.options.env.0.keys() {
            bash = bash.keep_variable(name);
        }
        if let Some(variable) = key_variable {
            bash = bash.hide_variable(variable);
        }
        let mut tools = coding_tools(bash);
        if let Some(only) = &self.options.tools {
            tools.retain(|tool| {
                let name = tool.definition().name;
                only.iter().any(|tool| tool.name() == name)
            });
        }
        tools
    }

    /// Returns the MCP servers with the values of their variables. Variables of the options are for `bash` only, unless a server names them.
    fn mcp_servers(&self, key_variable: Option<&str>) -> Result<Vec<McpServer>, Error> {
        let cant = |what: String| Error::start(what, None);
        let environment = Environment::new(&self.options.env.0, None);
        let is_given = |name: &&str| environment.configured(name, &self.context).is_some();
        if let Some(key) = key_variable.filter(|name| !is_given(name))
            && let Some((name, _)) =
                { self.choices.mcp_servers.iter() }.find(|(_, it)| it.names(key))
        {
            // A project can describe a server, and its program would get the key.
            return Err(cant(format!(
                "the MCP server `{name}` would get the key of the model server, because it names ${{{key}}}; put the agent's key into a variable of its own and name it with `key-env`"
            )));
        }
        let variable = |name: &str| environment.variable(name, &[], &self.context);
        let servers = self.choices.mcp_servers.expanded(variable);
        let servers = servers.map_err(|error| cant(error.to_string()))?;
        let mut started = Vec::new();
        for (name, described) in servers.iter() {
            let Described::Stdio { command, args, env } = described else {
                let hint = "use a server that is a program, or another agent";
                let what = format!("use the MCP server `{name}`, which has a URL");
                return Err(Error::unsupported(NAME, what, hint));
            };
            let mut server = McpServer::new(name, command, self.context.clone());
            server = args.iter().fold(server, McpServer::arg);
            server = { env.iter() }.fold(server, |server, (name, value)| server.env(name, value));
            if let Some(seconds) = self.options.mcp_timeout {
                server = server.time_limit(Duration::from_secs(seconds.into()));
            }
            started.push(server);
        }
        Ok(started)
    }

    /// Returns the rules of the project, and the caller's own text after them.
    fn instructions(&self) -> String {
        let rules = RULES.iter().find_map(|name| {
            let text = read_rules(&self.context.cwd.join(name))?;
            Some(format!("The rules of this project, from {name}:\n\n{text}"))
        });
        let texts = [rules, self.options.append_system_prompt.clone()];
        texts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
    }
}

/// Returns the endpoint of the server with its key, and the variable with the key. The key is erased from the environment if possible.
pub(super) fn endpoint(server: &ApiServer) -> Result<(Endpoint, Option<String>), Error> {
    let chosen = server.choose(key::is_set)?;
    let dialect = match chosen.dialect {
        ApiDialect::Messages => Dialect::Messages,
        ApiDialect::Responses => Dialect::Responses,
        ApiDialect::Chat => Dialect::Chat,
    };
    let mut endpoint = Endpoint::new(dialect, &chosen.base_url);
    endpoint.key = chosen.key_variable.as_deref().map(key::take).transpose()?;
    Ok((endpoint, chosen.key_variable))
}

/// Reads a file of rules. Links are not followed: a project could name any file of the user.
fn read_rules(path: &std::path::Path) -> Option<String> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_RULES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

impl ApiTool {
    fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Read => "read",
            Self::Write => "write",
            Self::Edit => "edit",
            Self::Grep => "grep",
            Self::Glob => "glob",
        }
    }
}

impl CheckedDriver for ApiDriver {
    fn check(&self) -> Result<(), Error> {
        if self.choices.args.is_empty() {
            return self.agent().map(drop);
        }
        let hint = "write its settings into the section [api] of rlm.toml";
        Err(Error::unsupported(NAME, "take arguments", hint))
    }
}

impl Driver for ApiDriver {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        ApiAgent::CAPABILITIES
    }

    fn input_policy(&self) -> InputPolicy {
        InputPolicy::Poll
    }

    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            let agent = self.agent()?;
            // The connection keeps what it needs of the agent.
            agent.connect(session).await
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::mcp::McpServers;

    use super::*;

    #[test]
    fn a15_server_with_a_url_is_refused_before_a_start() {
        let checked = |described: Described| {
            let mut choices = Choices::default();
            choices.api_server.base_url = Some("http://127.0.0.1:9".to_owned());
            choices.model = Some("a-model".to_owned());
            choices.mcp_servers = McpServers::default();
            choices.mcp_servers.insert("docs", described).unwrap();
            let context = ProcessContext::new("", "");
            let checked = ApiDriver::new(ApiOptions::default(), choices, context).check();
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(checked(Described::stdio("docs-mcp")), Ok(()));
        for described in [Described::http("http://x"), Described::sse("http://x")] {
            let error = checked(described).unwrap_err();
            assert!(
                error.contains("use the MCP server `docs`, which has a URL"),
                "{error}"
            );
            assert!(error.contains("use a server that is a program"), "{error}");
        }
        let unset = Described::stdio("docs-mcp").env("A", "${NO_SUCH_VARIABLE}");
        let error = checked(unset).unwrap_err();
        assert!(error.contains("NO_SUCH_VARIABLE"), "{error}");
    }
}
