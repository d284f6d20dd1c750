//! The real agents: how `rlm` selects each, its settings for the scripted model, and its driver.

use std::path::Path;

use agent_drivers::acp::AcpDriver;
use agent_drivers::api::{ApiDialect, ApiServer};
use agent_drivers::claude::ClaudeDriver;
use agent_drivers::codex::CodexDriver;
use agent_drivers::{AgentConfig, AgentOptions, Choices};
use agent_duplex::{Driver, Permissions};
use agent_subprocess::ProcessContext;
use fs_err as fs;
use serde_json::json;

use crate::Sandbox;
use crate::model::FakeModel;

/// The word that selects the checks of the agent of `rlm` itself, which needs no other program.
pub(super) const API: &str = "api";

/// An agent CLI with its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RealAgent {
    Claude,
    Codex,
    Gemini,
    Opencode,
    ClaudeAcp,
    /// The agent of `rlm` itself.
    Api,
}

/// Defines a check for each agent: the agent's program, a name with that program in it, and a function that gets the agent.
macro_rules! of_every_agent {
    ($before:literal, $after:literal, $check:path) => {
        of_every_agent! {
            $before, $after, $check,
            Claude "claude", Codex "codex", Gemini "gemini", Opencode "opencode", ClaudeAcp "claude-agent-acp"
        }
    };
    ($before:literal, $after:literal, $check:path, $($real:ident $program:literal),+) => {
        [$((
            $program,
            concat!($before, $program, $after),
            |rlm, agent| $check(RealAgent::$real, rlm, agent),
        )),+]
    };
}
pub(super) use of_every_agent;

impl RealAgent {
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::ClaudeAcp => "claude-agent-acp",
            Self::Api => API,
        }
    }

    /// Returns the number of its processes that a run over one connection reports.
    pub(super) fn processes(self) -> usize {
        usize::from(self != Self::Api)
    }

    /// Returns the arguments that select it for a run of `rlm`.
    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Claude => &["--agent", "claude"],
            Self::Codex => &["--agent", "codex"],
            Self::Gemini => &["--agent", "gemini"],
            Self::Opencode => &["--agent", "opencode"],
            Self::ClaudeAcp => &["--agent", "acp", "--agent-bin", "claude-agent-acp"],
            Self::Api => &["--agent", "api", "--model", "scripted-1"],
        }
    }

    /// Returns the variables that it needs to be found and to talk only to the scripted model.
    pub(super) fn variables(self, agent: &Path, model: &FakeModel) -> Vec<(&'static str, String)> {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut all = vec![("PATH", format!("{}:{path}", agent.display()))];
        match self {
            Self::Claude | Self::ClaudeAcp => all.extend([
                ("ANTHROPIC_BASE_URL", model.url()),
                ("ANTHROPIC_API_KEY", "test-key".into()),
                ("DISABLE_AUTOUPDATER", "1".into()),
                ("DISABLE_TELEMETRY", "1".into()),
                ("DISABLE_ERROR_REPORTING", "1".into()),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
                ("IS_SANDBOX", "1".into()), // otherwise it refuses to skip permissions as root
            ]),
            Self::Codex | Self::Api => all.push(("SCRIPTED_KEY", "test-key".into())),
            Self::Gemini => all.extend([
                ("GOOGLE_GEMINI_BASE_URL", model.url()),
                ("GEMINI_API_KEY", "test-key".into()),
                ("GEMINI_TELEMETRY_ENABLED", "false".into()),
            ]),
            Self::Opencode => {
                let off = [
                    "OPENCODE_DISABLE_AUTOUPDATE",
                    "OPENCODE_DISABLE_MODELS_FETCH",
                    "OPENCODE_DISABLE_LSP_DOWNLOAD",
                    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
                ];
                all.extend(off.map(|name| (name, "1".to_owned())));
                let fake = json!({
                    "npm": "@ai-sdk/openai-compatible", "name": "Scripted",
                    "options": {"baseURL": format!("{}/v1", model.url()), "apiKey": "test-key"},
                    "models": {"fake-model": {"name": "scripted", "tool_call": true, "limit": {"context": 200_000, "output": 8000}}},
                });
                let config = json!({
                    "autoupdate": false, "share": "disabled", "model": "fake/fake-model", "small_model": "fake/fake-model",
                    "provider": {"fake": fake},
                });
                all.push(("OPENCODE_CONFIG_CONTENT", config.to_string()));
            }
        }
        all
    }

    /// Writes the settings without which it would wait for a person.
    pub(super) fn prepare(self, sandbox: &Sandbox, model: &FakeModel) {
        if self == Self::Codex {
            let folder = sandbox.home().join(".codex");
            fs::create_dir_all(&folder).unwrap();
            let provider = format!(
                "[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{}/v1\"\nenv_key = \"SCRIPTED_KEY\"\nwire_api = \"responses\"\n",
                model.url()
            );
            // Codex offers its tools differently to its own models. An unknown model gets them in the request.
            let chosen = "model = \"gpt-fake\"\nmodel_provider = \"scripted\"\n";
            fs::write(folder.join("config.toml"), format!("{chosen}{provider}")).unwrap();
        }
        if self == Self::Api {
            let folder = sandbox.home().join(".config/rlm");
            fs::create_dir_all(&folder).unwrap();
            let server = format!(
                "[api-server]\ndialect = \"messages\"\nbase-url = \"{}\"\nkey-env = \"SCRIPTED_KEY\"\n",
                model.url()
            );
            fs::write(folder.join("config.toml"), server).unwrap();
        }
        if self == Self::Gemini {
            let folder = sandbox.home().join(".gemini");
            fs::create_dir_all(&folder).unwrap();
            let settings = json!({"security": {"auth": {"selectedType": "gemini-api-key"}}, "model": {"name": "gemini-2.5-pro"}});
            fs::write(folder.join("settings.json"), settings.to_string()).unwrap();
        }
    }

    /// Returns the driver that `rlm` would use.
    pub(super) fn driver(
        self,
        agent: &Path,
        context: ProcessContext,
        may: Permissions,
        model: &FakeModel,
    ) -> Box<dyn Driver> {
        let program = vec![agent.join(self.program()).into()];
        let acp = |driver: AcpDriver| Box::new(driver.permissions(may));
        match self {
            Self::Claude => Box::new(ClaudeDriver::new(program, context).permissions(may)),
            Self::Codex => Box::new(CodexDriver::new(program, context).permissions(may)),
            Self::Gemini => acp(AcpDriver::gemini(program, context)),
            Self::Opencode => acp(AcpDriver::opencode(program, context)),
            Self::ClaudeAcp => acp(AcpDriver::claude(program, context)),
            Self::Api => {
                let mut choices = Choices::default();
                choices.permissions = may;
                choices.api_server = ApiServer {
                    dialect: Some(ApiDialect::Messages),
                    base_url: Some(model.url()),
                    ..ApiServer::default()
                };
                let options = AgentOptions::Api(Box::default());
                let mut config = AgentConfig::new(options, Vec::new());
                config.model = Some("scripted-1".into());
                config.driver(choices, context)
            }
        }
    }

    /// Returns a script that makes it give up because of a rate limit, or the reason why none exists.
    pub(super) fn limit(self) -> Result<&'static str, &'static str> {
        match self {
            // Codex waits for the reported time.
            Self::Codex => Ok("[[status 429 - 1000]]"),
            Self::Claude | Self::ClaudeAcp | Self::Gemini | Self::Api => {
                Ok("[[status 429 600 1000]]")
            }
            Self::Opencode => Err("it waits for the reported time and retries endlessly"),
        }
    }
}
