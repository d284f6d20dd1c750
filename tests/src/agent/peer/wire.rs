//! The output of the scripted agent, in the protocol of Codex's app server or the Agent Client Protocol.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::Protocol;

pub(super) struct Wire {
    speaks: Protocol,
    session: String,
    turn: u32,
    /// The id of the prompt request that is still unanswered.
    prompt: Value,
    /// The id that the client gave its message.
    client_id: Value,
    tools: u32,
}

impl Wire {
    pub(super) fn new(speaks: Protocol) -> Self {
        Self {
            speaks,
            session: String::new(),
            turn: 0,
            prompt: Value::Null,
            client_id: Value::Null,
            tools: 0,
        }
    }

    fn line(&self, mut line: Value) -> io::Result<()> {
        if self.speaks == Protocol::Acp {
            line["jsonrpc"] = "2.0".into();
        }
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{line}")?;
        stdout.flush()
    }

    /// Sends a response, unless the message was a notification.
    pub(super) fn ok(&self, id: &Value, result: &Value) -> io::Result<()> {
        match id {
            Value::Null => Ok(()),
            id => self.line(json!({"id": id, "result": result})),
        }
    }

    pub(super) fn fail(&self, id: &Value, code: i32, message: &str) -> io::Result<()> {
        match id {
            Value::Null => Ok(()),
            id => self.line(json!({"id": id, "error": {"code": code, "message": message}})),
        }
    }

    /// Sends a notification of Codex.
    fn notify(&self, method: &str, mut params: Value) -> io::Result<()> {
        params["threadId"] = self.session.clone().into();
        params["turnId"] = self.turn.to_string().into();
        self.line(json!({"method": method, "params": params}))
    }

    /// Sends an event of a script: a notification with `method` and `params`, or an update.
    pub(super) fn event(&self, event: &Value) -> io::Result<()> {
        let name = |key: &str| event[key].as_str().unwrap_or_default();
        match self.speaks {
            Protocol::Codex => self.notify(name("method"), event["params"].clone()),
            Protocol::Acp => self.update(name("sessionUpdate"), event.clone()),
        }
    }

    /// Sends an update of the Agent Client Protocol.
    fn update(&self, what: &str, mut update: Value) -> io::Result<()> {
        update["sessionUpdate"] = what.into();
        let params = json!({"sessionId": self.session, "update": update});
        self.line(json!({"method": "session/update", "params": params}))
    }

    pub(super) fn introduce(&self, id: &Value) -> io::Result<()> {
        let about = match self.speaks {
            Protocol::Codex => json!({"userAgent": "codex/0.169.0 (stand-in)"}),
            Protocol::Acp => json!({
                "protocolVersion": 1, "agentCapabilities": {"loadSession": true},
                "agentInfo": {"name": "stand-in", "version": "1"},
            }),
        };
        self.ok(id, &about)
    }

    pub(super) fn opened(&mut self, id: &Value, session: &str, params: &Value) -> io::Result<()> {
        session.clone_into(&mut self.session);
        let model = params["model"].as_str().unwrap_or("standard");
        let opened = match self.speaks {
            Protocol::Codex => json!({"thread": {"id": session}, "model": model}),
            Protocol::Acp => json!({
                "sessionId": session, "models": {"currentModelId": model, "availableModels": []},
            }),
        };
        self.ok(id, &opened)
    }

    /// Accepts a prompt: Codex answers immediately; the Agent Client Protocol answers at the end of the turn.
    pub(super) fn accept(&mut self, id: &Value, turn: u32, params: &Value) -> io::Result<()> {
        match self.speaks {
            Protocol::Codex => {
                self.client_id = params["clientUserMessageId"].clone();
                self.ok(id, &json!({"turn": {"id": turn.to_string()}}))
            }
            Protocol::Acp => {
                self.prompt = id.clone();
                Ok(())
            }
        }
    }

    pub(super) fn turn_began(&mut self, turn: u32) -> io::Result<()> {
        self.turn = turn;
        if self.speaks == Protocol::Acp {
            return Ok(());
        }
        let turn = json!({"id": turn.to_string(), "status": "inProgress"});
        self.notify("turn/started", json!({"turn": turn}))?;
        self.took(self.client_id.clone())
    }

    fn took(&self, client_id: Value) -> io::Result<()> {
        let item = json!({"type": "userMessage", "id": "u", "clientId": client_id});
        self.notify("item/started", json!({"item": item}))
    }

    pub(super) fn steered(&self, id: &Value, params: &Value) -> io::Result<()> {
        self.ok(id, &json!({"turnId": self.turn.to_string()}))?;
        self.took(params["clientUserMessageId"].clone())
    }

    pub(super) fn say(&self, text: &str) -> io::Result<()> {
        match self.speaks {
            Protocol::Codex => {
                let item = json!({"type": "agentMessage", "id": "m", "text": text});
                self.notify(
                    "item/agentMessage/delta",
                    json!({"itemId": "m", "delta": text}),
                )?;
                self.notify("item/completed", json!({"item": item}))
            }
            Protocol::Acp => {
                // The protocol does not mark the end of a text, so the text gets a line end.
                let content = json!({"type": "text", "text": format!("{text}\n")});
                self.update("agent_message_chunk", json!({"content": content}))
            }
        }
    }

    pub(super) fn tool_began(&mut self, kind: &str, what: &str) -> io::Result<()> {
        self.tools += 1;
        let id = format!("t{}", self.tools);
        match self.speaks {
            Protocol::Codex => {
                let item = json!({
                    "type": "commandExecution", "id": id, "command": what, "status": "inProgress",
                });
                self.notify("item/started", json!({"item": item}))
            }
            Protocol::Acp => {
                let call = json!({
                    "toolCallId": id, "title": what, "kind": kind, "status": "in_progress",
                });
                self.update("tool_call", call)
            }
        }
    }

    pub(super) fn tool_ended(&self, good: bool, text: &str) -> io::Result<()> {
        let id = format!("t{}", self.tools);
        let status = if good { "completed" } else { "failed" };
        match self.speaks {
            Protocol::Codex => {
                let item = json!({
                    "type": "commandExecution", "id": id, "command": "", "status": status,
                    "exitCode": i32::from(!good), "aggregatedOutput": text,
                });
                self.notify("item/completed", json!({"item": item}))
            }
            Protocol::Acp => self.update(
                "tool_call_update",
                json!({"toolCallId": id, "status": status}),
            ),
        }
    }

    pub(super) fn ask(&self, kind: &str, what: &str) -> io::Result<()> {
        let id = format!("t{}", self.tools);
        let (method, params) = match self.speaks {
            Protocol::Codex => (
                "item/commandExecution/requestApproval",
                json!({
                    "threadId": self.session, "turnId": self.turn.to_string(), "itemId": id,
                    "command": what,
                }),
            ),
            Protocol::Acp => (
                "session/request_permission",
                json!({
                    "sessionId": self.session,
                    "toolCall": {
                        "toolCallId": id, "title": what, "kind": kind, "locations": [{"path": what}],
                    },
                    "options": [
                        {"optionId": "yes", "kind": "allow_once", "name": "yes"},
                        {"optionId": "no", "kind": "reject_once", "name": "no"},
                    ],
                }),
            ),
        };
        self.line(json!({"id": "q", "method": method, "params": params}))
    }

    pub(super) fn turn_completed(&self) -> io::Result<()> {
        match self.speaks {
            Protocol::Codex => {
                let tokens = json!({"inputTokens": 10 * self.turn, "outputTokens": self.turn});
                let last = json!({"inputTokens": 10, "outputTokens": 1});
                let usage = json!({"tokenUsage": {"total": tokens, "last": last}});
                self.notify("thread/tokenUsage/updated", usage)?;
                self.turn_over("completed", Value::Null)
            }
            Protocol::Acp => {
                let tokens = json!({"input_tokens": 10, "output_tokens": 1});
                let quota = json!({"quota": {"token_count": tokens}});
                self.ok(
                    &self.prompt,
                    &json!({"stopReason": "end_turn", "_meta": quota}),
                )
            }
        }
    }

    pub(super) fn turn_interrupted(&self) -> io::Result<()> {
        match self.speaks {
            Protocol::Codex => self.turn_over("interrupted", Value::Null),
            Protocol::Acp => self.ok(&self.prompt, &json!({"stopReason": "cancelled"})),
        }
    }

    /// Reports a rate limit for this duration, which only Codex includes.
    pub(super) fn turn_limited(&self, left: Duration) -> io::Result<()> {
        match self.speaks {
            Protocol::Codex => {
                let at = (SystemTime::now() + left).duration_since(SystemTime::UNIX_EPOCH);
                let at = at.map_err(io::Error::other)?.as_secs();
                let limits = json!({
                    "primary": {"usedPercent": 100, "resetsAt": at}, "rateLimitReachedType": "primary",
                });
                self.line(json!({
                    "method": "account/rateLimits/updated", "params": {"rateLimits": limits},
                }))?;
                let info = json!({"httpStatusCode": 429});
                let error = json!({
                    "message": "too many requests",
                    "codexErrorInfo": {"responseTooManyFailedAttempts": info},
                });
                self.turn_over("failed", error)
            }
            Protocol::Acp => self.fail(&self.prompt, 429, "rate limit exceeded"),
        }
    }

    fn turn_over(&self, status: &str, error: Value) -> io::Result<()> {
        let turn = json!({"id": self.turn.to_string(), "status": status, "error": error});
        self.notify("turn/completed", json!({"turn": turn}))
    }
}
