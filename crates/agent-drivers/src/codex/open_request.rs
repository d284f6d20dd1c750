//! The beginning of a conversation: the agent's settings, and the meaning of its refusal.

use super::options::CodexOptions;
use crate::choices::Choices;
use crate::convert::not_started;
use crate::mcp::{McpServer, McpServers};
use agent_duplex::{EndReason, Error, Permissions, SessionChoice, TurnEnd};
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::Path;

/// The request that opens a conversation.
pub(super) struct OpenRequest {
    method: &'static str,
    params: Value,
    /// The chosen model, or the one with which the agent began.
    model: Option<String>,
}

impl OpenRequest {
    /// Composes the request. The request contains the values that can be secret, because every user can read the arguments of a process.
    pub(super) fn compose(
        options: &CodexOptions,
        choices: &Choices,
        session: &SessionChoice,
        cwd: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let (approval, sandbox, _) = permission_values(choices.permissions);
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
        Ok(OpenRequest {
            method,
            params,
            model,
        })
    }

    /// Returns the method, and takes the parameters: a second call returns empty parameters.
    pub(super) fn request(&mut self) -> (&'static str, Value) {
        (self.method, std::mem::take(&mut self.params))
    }

    /// Stores the agent's default model.
    pub(super) fn default_model(&mut self, model: &str) {
        if self.model.is_none() && !model.is_empty() {
            self.model = Some(model.to_owned());
        }
    }

    pub(super) fn first_model(&self) -> Option<String> {
        self.model.clone()
    }

    /// Returns the agent's names of its approval policy and its sandbox, from its next turn on.
    pub(super) fn permissions(&self, permissions: Permissions) -> (&'static str, &'static str) {
        let (approval, _, sandbox) = permission_values(permissions);
        (approval, sandbox)
    }

    /// Returns the turn's end for the agent's refusal to open the conversation.
    pub(super) fn turn_end_of(&self, why: &str) -> TurnEnd {
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
        let (reason, hint) = if resumes && unknown.iter().any(|mark| words.contains(mark)) {
            (EndReason::SessionNotFound, "start a fresh session")
        } else if is_session_in_use(why) {
            (
                EndReason::Failed,
                "wait for that process, stop it, or start a fresh session",
            )
        } else {
            (
                EndReason::Failed,
                "fix its settings, or run it by hand to see why",
            )
        };
        TurnEnd {
            detail: format!("the agent reports: {why}; {hint}"),
            ..reason.into()
        }
    }
}

impl fmt::Debug for OpenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The parameters contain secrets and users' texts.
        f.debug_struct("Opening")
            .field("method", &self.method)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// Whether another process uses the session. The agent locks its sessions itself.
pub(super) fn is_session_in_use(why: &str) -> bool {
    why.contains("already has an active writer")
}

/// Returns the agent's names of a permission mode: its approval policy, its sandbox for a conversation, and its sandbox for a turn.
fn permission_values(permissions: Permissions) -> (&'static str, &'static str, &'static str) {
    match permissions {
        // The agent asks for everything, so an allowed command must work. In a sandbox it often would not: the agent runs a command again outside of
        // the sandbox only if it notices the failure in time.
        Permissions::Ask => ("untrusted", "danger-full-access", "dangerFullAccess"),
        Permissions::Edits => ("never", "workspace-write", "workspaceWrite"),
        Permissions::All => ("never", "danger-full-access", "dangerFullAccess"),
        Permissions::Deny => ("never", "read-only", "readOnly"),
    }
}

/// Returns the MCP servers in the format of the agent's settings.
pub(super) fn servers_of(servers: &McpServers) -> Result<Value, Error> {
    let mut all = Map::new();
    for (name, server) in servers.iter() {
        let server = match server {
            McpServer::Stdio { command, args, env } => {
                json!({"command": command, "args": args, "env": env})
            }
            McpServer::Http { url, headers } => json!({"url": url, "http_headers": headers}),
            McpServer::Sse { .. } => {
                let what = format!("`{name}`");
                return Err(Error::start(
                    format!(
                        "the MCP server {what} uses SSE, which Codex doesn't support; use type `http`"
                    ),
                    None,
                ));
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
    use agent_subprocess::ProcessContext;

    #[test]
    fn x124f_permitted_call_runs_outside_sandbox() {
        let opened = |permissions| {
            let driver = CodexDriver::new(Vec::new(), ProcessContext::new("", ""));
            let driver = driver.permissions(permissions);
            let fresh = SessionChoice::Fresh;
            let opening = OpenRequest::compose(
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
