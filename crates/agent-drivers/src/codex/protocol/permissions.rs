//! Permission requests of the agent. Its request ids begin at 0 and are independent of the driver's.

use super::framing::text;
use super::{LineOutcome, Request, Session, Turn, item};
use crate::convert::one_line;
use crate::dialogue;
use agent_duplex::{Decision, Event, PermissionRequest, Permissions};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// The largest number of open permission requests. Further requests are declined.
pub(super) const ASKS: usize = 64;
/// The number of recently answered requests that are remembered, so that none is answered twice.
pub(super) const ANSWERED: usize = 256;

/// The format of the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Decision,
    /// An answer that grants more permissions for the rest of the turn.
    Grant,
    /// The format of versions without threads.
    Review,
    /// An answer to the call of an MCP server's tool.
    Elicitation,
}

#[derive(Debug)]
struct PendingPermission {
    id: Value,
    kind: RequestKind,
    /// The requested permissions, which the answer repeats.
    requested_grant: Value,
    /// The turn of the request.
    turn: String,
}

/// The open requests, and the ids of answered ones.
#[derive(Debug, Default)]
pub(super) struct PermissionRequests {
    open: BTreeMap<String, PendingPermission>,
    answered: VecDeque<String>,
}

impl PermissionRequests {
    fn knows(&self, name: &str) -> bool {
        self.open.contains_key(name) || self.answered.iter().any(|known| known == name)
    }

    fn remember(&mut self, name: String) {
        if self.answered.len() == ANSWERED {
            self.answered.pop_front();
        }
        self.answered.push_back(name);
    }

    /// Withdraws a request that needs no answer any more.
    pub(super) fn withdraw(&mut self, id: &Value) -> Option<Event> {
        let (id, _) = self.open.remove_entry(&id.to_string())?;
        self.remember(id.clone());
        Some(Event::PermissionWithdrawn { id })
    }

    pub(super) fn withdraw_all(&mut self) -> Vec<Event> {
        let ids: Vec<Value> = self
            .open
            .values()
            .map(|permission| permission.id.clone())
            .collect();
        ids.iter().filter_map(|id| self.withdraw(id)).collect()
    }
}

impl Session {
    pub(super) fn permission_requested(
        &mut self,
        id: &Value,
        method: &str,
        params: &Value,
        outcome: &mut LineOutcome,
    ) {
        let name = id.to_string();
        if self.asks.knows(&name) {
            return;
        }
        let is_call = params["_meta"]["codex_approval_kind"] == "mcp_tool_call";
        let kind = match method {
            "item/commandExecution/requestApproval" | "item/fileChange/requestApproval" => {
                RequestKind::Decision
            }
            "item/permissions/requestApproval" => RequestKind::Grant,
            "execCommandApproval" | "applyPatchApproval" => RequestKind::Review,
            "mcpServer/elicitation/request" if is_call => RequestKind::Elicitation,
            _ => {
                // Without an answer the agent would wait forever.
                let message = format!("{} is not supported by this client", one_line(method, 80));
                let error = json!({"code": -32601, "message": message});
                outcome.lines.push(line(&json!({"id": id, "error": error})));
                return self.asks.remember(name);
            }
        };
        let permission = PendingPermission {
            id: id.clone(),
            kind,
            requested_grant: params["permissions"].clone(),
            turn: text(&params["turnId"]).to_owned(),
        };
        let ask = PermissionRequest {
            id: name.clone(),
            tool: tool(method, params),
            summary: one_line(&self.describe_request(method, params), dialogue::SUMMARY),
            reason: one_line(text(&params["reason"]), 400),
        };
        if self.permissions == Permissions::All {
            outcome.lines.push(permission.answer(&Decision::Allow));
        } else if self.asks.open.len() < ASKS {
            self.asks.open.insert(name, permission);
            return outcome.events.push(Event::PermissionRequested(ask));
        } else {
            let message = "too many open permission requests".to_owned();
            let (tool, shown) = (ask.tool, format!("{message}: {}", ask.summary));
            outcome.events.push(Event::PermissionDenied {
                tool,
                message: shown,
            });
            outcome
                .lines
                .push(permission.answer(&Decision::Deny { message }));
        }
        self.asks.remember(name);
    }

    /// Describes a request. The paths of a file change come from the start of that change; the permission request does not contain them.
    fn describe_request(&self, method: &str, params: &Value) -> String {
        let begun = self
            .turn
            .as_ref()
            .map(|turn| turn.summary(text(&params["itemId"])));
        match method {
            "item/fileChange/requestApproval" => match params["grantRoot"].as_str() {
                Some(root) => format!("write below {root}"),
                None => begun.flatten().unwrap_or_default().to_owned(),
            },
            "item/permissions/requestApproval" => params["permissions"].to_string(),
            "applyPatchApproval" => {
                let changes = params["fileChanges"].as_object().into_iter().flatten();
                let paths: Vec<&str> = changes.map(|(path, _)| path.as_str()).collect();
                paths.join(", ")
            }
            "mcpServer/elicitation/request" => {
                let arguments = &params["_meta"]["tool_params"];
                match arguments.is_null() {
                    true => text(&params["message"]).to_owned(),
                    false => format!("{} {arguments}", text(&params["message"])),
                }
            }
            _ => match &params["command"] {
                Value::Array(words) => {
                    let words: Vec<&str> = words.iter().map(text).collect();
                    words.join(" ")
                }
                Value::String(command) => command.clone(),
                _ => params.to_string(),
            },
        }
    }

    /// Returns the answer to a request; `None` if the request was withdrawn or answered. After it is written, call
    /// [`answer_sent`](Self::answer_sent).
    ///
    /// Most answers can't contain the explanation of a denial. So the driver sends the explanation first, as a message that joins the turn when the
    /// call has ended.
    pub(in crate::codex) fn answer(&mut self, ask: &str, decision: &Decision) -> Option<Vec<u8>> {
        let permission = self.asks.open.get(ask)?;
        let answer = permission.answer(decision);
        let has_turn = |turn: &Turn| turn.steerable && turn.id == permission.turn;
        let may = permission.kind != RequestKind::Review && self.interrupt.is_none();
        let word = match decision {
            Decision::Deny { message } if !message.is_empty() && may => message,
            _ => return Some(answer),
        };
        let turn = self.turn.as_ref().filter(|turn| has_turn(turn));
        let (Some(turn), Some(thread)) = (turn, &self.thread) else {
            return Some(answer);
        };
        let input = json!([{"type": "text", "text": format!("The call was not allowed. {word}")}]);
        let params = json!({"threadId": thread, "expectedTurnId": turn.id, "input": input});
        let mut lines = self.request(Request::DenialText, "turn/steer", params);
        lines.extend(answer);
        Some(lines)
    }

    /// Records that an answer was written.
    pub(in crate::codex) fn answer_sent(&mut self, ask: &str) {
        if self.asks.open.remove(ask).is_some() {
            self.asks.remember(ask.to_owned());
        }
    }
}

impl PendingPermission {
    /// Returns the line of the answer; an unknown decision counts as a denial.
    fn answer(&self, decision: &Decision) -> Vec<u8> {
        let allow = *decision == Decision::Allow;
        let result = match (self.kind, allow) {
            (RequestKind::Decision, true) => json!({"decision": "accept"}),
            (RequestKind::Decision, false) => json!({"decision": "decline"}),
            (RequestKind::Grant, true) => {
                json!({"permissions": self.requested_grant, "scope": "turn"})
            }
            (RequestKind::Grant, false) => json!({"permissions": {}, "scope": "turn"}),
            (RequestKind::Review, true) => json!({"decision": "approved"}),
            (RequestKind::Review, false) => {
                let rejection = match decision {
                    Decision::Deny { message } => message.as_str(),
                    _ => "denied",
                };
                json!({"decision": {"denied": {"rejection": rejection}}})
            }
            (RequestKind::Elicitation, true) => json!({"action": "accept", "content": {}}),
            (RequestKind::Elicitation, false) => json!({"action": "decline"}),
        };
        line(&json!({"id": self.id, "result": result}))
    }
}

fn tool(method: &str, params: &Value) -> String {
    match method {
        "item/fileChange/requestApproval" | "applyPatchApproval" => "apply_patch".to_owned(),
        "item/permissions/requestApproval" => "permissions".to_owned(),
        "mcpServer/elicitation/request" => {
            let tool = text(&params["_meta"]["tool_name"]);
            format!("mcp__{}__{tool}", text(&params["serverName"]))
        }
        _ => item::SHELL.to_owned(),
    }
}

/// Writes a message on one line.
pub(super) fn line(message: &Value) -> Vec<u8> {
    dialogue::line(message.to_string())
}
