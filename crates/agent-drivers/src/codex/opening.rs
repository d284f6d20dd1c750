//! How a conversation begins: what the agent is told of it, and what its refusal means.

use super::options::CodexOptions;
use crate::choices::Choices;
use crate::duplex::not_started;
use crate::mcp::{McpServer, McpServers};
use agent_duplex::{EndReason, Error, Permissions, SessionChoice, TurnEnd};
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::Path;

/// The request that opens a conversation.
pub(super) struct Opening {
    method: &'static str,
    params: Value,
    /// The model that was chosen, or that the agent began with.
    model: Option<String>,
}

impl Opening {
    /// Composes the request. What may be secret stands in it and not in the arguments of the process, where everybody could
    /// read it.
    pub(super) fn compose(
        options: &CodexOptions,
        choices: &Choices,
        session: &SessionChoice,
        cwd: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let (approval, sandbox, _) = words(choices.permissions);
        let mut config = options.config.0.clone();
        if !choices.mcp_servers.is_empty() {
            let servers = choices
                .mcp_servers
                .expanded(variable)
                .map_err(not_started)?;
            config.insert("mcp_servers".to_owned(), servers_of(&servers)?);
        }
        if let Some(effort) = &options.effort {
            config.insert("model_reasoning_effort".to_owned(), json!(effort));
        }
        let mut params = json!({
            "cwd": cwd.to_string_lossy(), "approvalPolicy": approval, "sandbox": sandbox,
            "config": config,
        });
        let texts = [
            ("model", &choices.model),
            ("baseInstructions", &options.system_prompt),
            ("developerInstructions", &options.append_system_prompt),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                params[key] = json!(text);
            }
        }
        let method = match session {
            SessionChoice::Resume(_) => "thread/resume",
            SessionChoice::Fork(_) => "thread/fork",
            _ => "thread/start",
        };
        if let SessionChoice::Resume(id) | SessionChoice::Fork(id) = session {
            params["threadId"] = json!(id);
            params["excludeTurns"] = json!(true);
        }
        let model = choices.model.clone();
        Ok(Opening {
            method,
            params,
            model,
        })
    }

    /// Returns the method and the parameters, once.
    pub(super) fn request(&mut self) -> (&'static str, Value) {
        (self.method, std::mem::take(&mut self.params))
    }

    /// Notes the model that the agent chose.
    pub(super) fn default_model(&mut self, model: &str) {
        if self.model.is_none() && !model.is_empty() {
            self.model = Some(model.to_owned());
        }
    }

    pub(super) fn first_model(&self) -> Option<String> {
        self.model.clone()
    }

    /// Returns the agent's words for what it may do from its next turn on: when it asks, and what its sandbox allows.
    pub(super) fn permissions(&self, permissions: Permissions) -> (&'static str, &'static str) {
        let (approval, _, sandbox) = words(permissions);
        (approval, sandbox)
    }

    /// Judges why the agent did not open the conversation.
    pub(super) fn judge(&self, why: &str) -> TurnEnd {
        let unknown = [
            "rollout found",
            "thread not found",
            "session not found",
            "conversation not found",
            "invalid thread id",
            "invalid session id",
        ];
        let resumes = self.method != "thread/start";
        let words = why.to_lowercase();
        let (reason, mend) = if resumes && unknown.iter().any(|mark| words.contains(mark)) {
            (EndReason::SessionNotFound, "start a fresh session")
        } else if is_held(why) {
            (
                EndReason::Failed,
                "wait for that process or stop it, or start a fresh session",
            )
        } else {
            (EndReason::Failed, "correct its settings, or try it by hand")
        };
        TurnEnd {
            detail: format!("the agent says: {why}; {mend}"),
            ..reason.into()
        }
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Secrets and texts of people's stand in the parameters.
        f.debug_struct("Opening")
            .field("method", &self.method)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// Tells whether another process goes on with the session. The agent locks its sessions itself.
pub(super) fn is_held(why: &str) -> bool {
    why.contains("already has an active writer")
}

/// Says what the agent may do: when it asks, and what its sandbox allows, in the words of a conversation and of a turn.
fn words(permissions: Permissions) -> (&'static str, &'static str, &'static str) {
    match permissions {
        // It asks for everything. What is permitted then has to work, which in a sandbox it does by chance: the agent repeats
        // outside of it only what it sees fail in time.
        Permissions::Ask => ("untrusted", "danger-full-access", "dangerFullAccess"),
        Permissions::Edits => ("never", "workspace-write", "workspaceWrite"),
        Permissions::All => ("never", "danger-full-access", "dangerFullAccess"),
        Permissions::Deny => ("never", "read-only", "readOnly"),
    }
}

/// Says what MCP servers there are, in the agent's words.
pub(super) fn servers_of(servers: &McpServers) -> Result<Value, Error> {
    let mut all = Map::new();
    for (name, server) in servers.iter() {
        let server = match server {
            McpServer::Stdio { command, args, env } => {
                json!({"command": command, "args": args, "env": env})
            }
            McpServer::Http { url, headers } => json!({"url": url, "http_headers": headers}),
            McpServer::Sse { .. } => {
                let what = format!("the MCP server `{name}` speaks SSE, which Codex does not");
                return Err(Error::start(format!("{what}; give it as `http`"), None));
            }
        };
        all.insert(name.to_owned(), server);
    }
    Ok(Value::Object(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codex::CodexDriver;
    use agent_subprocess::Context;

    #[test]
    fn x124f_what_a_person_permits_is_done_outside_of_a_sandbox() {
        let opened = |permissions| {
            let driver = CodexDriver::new(Vec::new(), Context::new("", ""));
            let driver = driver.permissions(permissions);
            let fresh = SessionChoice::Fresh;
            let opening = Opening::compose(
                &driver.options,
                &driver.choices,
                &fresh,
                Path::new("/"),
                |_| None,
            );
            let mut opening = opening.unwrap();
            let (_, params) = opening.request();
            let next = opening.permissions(permissions);
            let words = ["approvalPolicy", "sandbox"].map(|key| params[key].clone());
            format!("{words:?} {next:?}")
        };
        let all = [Permissions::Ask, Permissions::Edits, Permissions::Deny];
        insta::assert_snapshot!(all.map(opened).join("\n"), @r#"
        [String("untrusted"), String("danger-full-access")] ("untrusted", "dangerFullAccess")
        [String("never"), String("workspace-write")] ("never", "workspaceWrite")
        [String("never"), String("read-only")] ("never", "readOnly")
        "#);
    }
}
