//! Permission requests of the agent.

use super::json::{self, list, text};
use super::summary::CallInfo;
use super::{Answer, LineOutcome, PendingPermission, Session};
use crate::convert::one_line;
use agent_duplex::{Decision, Event, PermissionRequest, Permissions};
use serde_json::{Value, json};

/// The largest number of open permission requests. Further requests are answered as cancelled.
const MAX_PERMISSION_REQUESTS: usize = 64;

impl Answer {
    fn of(options: &[Value], once: &str, always: &str) -> Self {
        let offered = |kind| {
            let option = options.iter().find(|option| option["kind"] == kind)?;
            Some(option["optionId"].as_str()?.to_owned())
        };
        let once = offered(once).map(Answer::Option);
        once.or_else(|| offered(always).map(Answer::Always))
            .unwrap_or(Answer::Cancelled)
    }

    fn line(&self, id: &Value) -> Vec<u8> {
        let outcome = match self {
            Self::Option(option) | Self::Always(option) => {
                json!({"outcome": "selected", "optionId": option})
            }
            Self::Cancelled => json!({"outcome": "cancelled"}),
        };
        json::result(id, json!({"outcome": outcome}))
    }
}

impl Session {
    pub(super) fn permission_requested(
        &mut self,
        id: &Value,
        params: &Value,
        outcome: &mut LineOutcome,
    ) {
        let (key, call) = (id.to_string(), &params["toolCall"]);
        if self.asks.contains_key(&key) {
            return;
        }
        let options = list(&params["options"]);
        let permission = PendingPermission {
            id: id.clone(),
            call: text(call, "toolCallId").to_owned(),
            allow: Answer::of(options, "allow_once", "allow_always"),
            deny: Answer::of(options, "reject_once", "reject_always"),
        };
        // During an interrupt all permission requests are cancelled.
        if self.asks.len() >= MAX_PERMISSION_REQUESTS || self.interrupting || self.is_ending {
            outcome.lines.push(Answer::Cancelled.line(id));
            return;
        }
        let mut apart = CallInfo::default();
        apart.update(call);
        let events = &mut outcome.events;
        let known = self
            .turn
            .as_mut()
            .filter(|_| self.id == text(params, "sessionId"));
        let known = known.and_then(|turn| {
            if !turn.tools.is_known(&permission.call) {
                turn.flush(false, events);
            }
            turn.tools.permission_requested(call, events)
        });
        let known = known.unwrap_or(&apart);
        let may = match self.requested.permissions {
            Permissions::All => true,
            Permissions::Edits => known.only_edits_below(&self.requested.roots),
            Permissions::Ask | Permissions::Deny => false,
        };
        if may && let Answer::Option(_) | Answer::Always(_) = permission.allow {
            outcome.lines.push(permission.allow.line(id));
            return;
        }
        let ask = PermissionRequest {
            id: key.clone(),
            tool: known.name(),
            summary: known.summary(),
            reason: one_line(&known.content, 400),
        };
        events.push(Event::PermissionRequested(ask));
        self.asks.insert(key, permission);
    }

    /// Returns the answer to a permission request; `None` if it needs none any more. After it is written, call [`answer_sent`](Self::answer_sent).
    pub(in crate::acp) fn answer(&self, ask: &str, decision: &Decision) -> Option<Vec<u8>> {
        let permission = self.asks.get(ask)?;
        let answer = match decision {
            Decision::Allow => &permission.allow,
            _ => &permission.deny,
        };
        Some(answer.line(&permission.id))
    }

    /// Records that an answer was written, and returns the events that follow.
    pub(in crate::acp) fn answer_sent(&mut self, ask: &str, decision: &Decision) -> Vec<Event> {
        let Some(permission) = self.asks.remove(ask) else {
            return Vec::new();
        };
        let mut events = Vec::new();
        let warning = match (decision, permission.allow) {
            (Decision::Allow, Answer::Option(_)) => return events,
            (Decision::Allow, Answer::Always(_)) => {
                "the agent only offers to allow this permanently, so it is allowed permanently"
            }
            (Decision::Allow, Answer::Cancelled) => {
                "the agent offers no option to allow this request; the request was cancelled"
            }
            _ => {
                if let Some(turn) = &mut self.turn {
                    turn.tools.deny(&permission.call, &mut events);
                }
                return events;
            }
        };
        events.push(Event::Warning(warning.to_owned()));
        events
    }

    /// Withdraws a permission request that the agent cancelled.
    pub(super) fn withdrawn(&mut self, params: &Value, outcome: &mut LineOutcome) {
        if let Some((id, permission)) = self.asks.remove_entry(&params["requestId"].to_string()) {
            outcome.lines.push(json::cancelled(&permission.id));
            outcome.events.push(Event::PermissionWithdrawn { id });
        }
    }

    /// Answers all open permission requests as cancelled.
    pub(super) fn cancel_asks(&mut self, outcome: &mut LineOutcome) {
        for (id, permission) in std::mem::take(&mut self.asks) {
            outcome.lines.push(Answer::Cancelled.line(&permission.id));
            outcome.events.push(Event::PermissionWithdrawn { id });
        }
    }
}
