//! Opens a session: one request after the other, each after the answer to the one before.

use super::json::{list, text};
use super::turn_end::{self, ErrorKind};
use super::{AgentCapabilities, Failure, LineOutcome, OpenStage, Request, Session};
use crate::convert::one_line;
use crate::mcp::McpServer;
use agent_duplex::{EndReason, Error, Event, SessionChoice, TurnEnd};
use serde_json::{Value, json};

/// The supported version of the protocol.
const VERSION: u64 = 1;

impl AgentCapabilities {
    fn of(introduced: &Value) -> Self {
        let all = &introduced["agentCapabilities"];
        let has = |key: &str| {
            !matches!(
                all["sessionCapabilities"][key],
                Value::Null | Value::Bool(false)
            )
        };
        let methods = list(&introduced["authMethods"]).iter();
        AgentCapabilities {
            load: all["loadSession"] == true,
            resume: has("resume"),
            fork: has("fork"),
            close: has("close"),
            http: all["mcpCapabilities"]["http"] == true,
            sse: all["mcpCapabilities"]["sse"] == true,
            images: all["promptCapabilities"]["image"] == true,
            auth_methods: methods
                .map(|method| {
                    (
                        text(method, "id").to_owned(),
                        text(method, "name").to_owned(),
                    )
                })
                .collect(),
        }
    }
}

impl Session {
    /// Returns the initialization request.
    pub(in crate::acp) fn initialize(&mut self) -> Vec<u8> {
        let fs = json!({"readTextFile": false, "writeTextFile": false});
        let params = json!({
            "protocolVersion": VERSION,
            "clientCapabilities": {"fs": fs, "terminal": false},
            "clientInfo": {"name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION")},
        });
        self.request(Request::Initialize, "initialize", params)
    }

    /// Handles the answer to a request that opens the session, and sends the next request.
    pub(super) fn opening(
        &mut self,
        request: Request,
        answer: Result<&Value, &Value>,
        outcome: &mut LineOutcome,
    ) {
        let next = match (request, answer) {
            (Request::Initialize, Ok(result)) => self.initialized(result),
            (Request::Open, Ok(result)) => {
                self.opened(result, outcome);
                return;
            }
            (Request::Authenticate, Ok(_)) => self.open(),
            (request, Err(error)) => Err(self.failed(request, error)),
            _ => return,
        };
        match next {
            Ok(line) => outcome.lines.push(line),
            Err(failure) => self.failure = Some(failure),
        }
    }

    fn initialized(&mut self, result: &Value) -> Result<Vec<u8>, Failure> {
        let version = result["protocolVersion"].as_u64().unwrap_or(VERSION);
        if version != VERSION {
            let what =
                format!("the agent uses version {version} of the protocol instead of {VERSION}");
            let hint = "install a version of the agent that supports it";
            return Err(Failure::Start(Error::start(
                format!("{what}; {hint}"),
                None,
            )));
        }
        self.capabilities = AgentCapabilities::of(result);
        let info = &result["agentInfo"];
        let names = [
            text(info, "title"),
            text(info, "name"),
            self.requested.agent,
        ];
        let name = names
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default();
        self.agent = one_line(&format!("{name} {}", text(info, "version")), 100);
        match self.requested.auth_method.clone() {
            Some(method) => {
                let params = json!({"methodId": method});
                Ok(self.request(Request::Authenticate, "authenticate", params))
            }
            None => self.open(),
        }
    }

    fn open(&mut self) -> Result<Vec<u8>, Failure> {
        let mut params = json!({"cwd": self.requested.roots[0], "mcpServers": self.servers()?});
        let (method, id) = match &self.requested.session {
            SessionChoice::Resume(id) if self.capabilities.resume => ("session/resume", Some(id)),
            SessionChoice::Resume(id) if self.capabilities.load => ("session/load", Some(id)),
            SessionChoice::Resume(_) => {
                return Err(self.cannot("continue a session", "start a fresh session"));
            }
            SessionChoice::Fork(id) if self.capabilities.fork => ("session/fork", Some(id)),
            SessionChoice::Fork(_) => {
                return Err(self.cannot("fork a session", "resume it, or start a fresh session"));
            }
            _ => ("session/new", None),
        };
        if let Some(id) = id {
            params["sessionId"] = id.as_str().into();
        }
        self.replays_history = matches!(method, "session/load" | "session/fork");
        Ok(self.request(Request::Open, method, params))
    }

    fn servers(&self) -> Result<Vec<Value>, Failure> {
        let named = |(name, value): (&String, &String)| json!({"name": name, "value": value});
        let by_url = |kind: &str, can: bool, name: &str, url: &str, headers: Vec<Value>| match can {
            true => Ok(json!({"type": kind, "name": name, "url": url, "headers": headers})),
            false => {
                let what = format!("use the MCP server `{name}` over {kind}");
                Err(self.cannot(&what, "configure it as a program, or remove it"))
            }
        };
        let servers = self
            .requested
            .servers
            .iter()
            .map(|(name, server)| match server {
                McpServer::Stdio { command, args, env } => {
                    let env: Vec<Value> = env.iter().map(named).collect();
                    Ok(json!({"name": name, "command": command, "args": args, "env": env}))
                }
                McpServer::Http { url, headers } => by_url(
                    "http",
                    self.capabilities.http,
                    name,
                    url,
                    headers.iter().map(named).collect(),
                ),
                McpServer::Sse { url, headers } => by_url(
                    "sse",
                    self.capabilities.sse,
                    name,
                    url,
                    headers.iter().map(named).collect(),
                ),
            });
        servers.collect()
    }

    fn cannot(&self, what: &str, hint: &str) -> Failure {
        Failure::Start(Error::unsupported(self.requested.agent, what, hint))
    }

    fn opened(&mut self, result: &Value, outcome: &mut LineOutcome) {
        let id = match (text(result, "sessionId"), &self.requested.session) {
            ("", SessionChoice::Resume(id)) => id.clone(),
            (id, _) => id.to_owned(),
        };
        if id.is_empty() {
            let what = "the agent opened a session without an id; try another version of the agent";
            self.failure = Some(Failure::Start(Error::start(what, None)));
            return;
        }
        if let SessionChoice::Resume(wanted) = &self.requested.session
            && *wanted != id
        {
            let warning = format!("the agent continues as session {id} instead of {wanted}");
            outcome.events.push(Event::Warning(warning));
        }
        self.id.clone_from(&id);
        outcome.events.push(Event::Session { id });
        self.choices.take(result);
        self.stage = OpenStage::Settling;
        // Some agents replay the history after their answer. Without this wait, the driver would take the history for output of the next turn.
        if self.replays_history {
            self.last += 1;
            self.pending.insert(self.last, (Request::History, None));
        }
        if let Some((method, params)) = self.choices.choose_mode(self.requested.permissions) {
            outcome
                .lines
                .push(self.choice_request(Request::Mode, method, params));
        }
        if let Some(model) = self.requested.model.clone() {
            match self.choose_model(model) {
                Ok(line) => outcome.lines.extend(line),
                Err(error) => self.failure = Some(Failure::Start(error)),
            }
        }
        self.finish_opening(outcome);
    }

    /// Reports the session as open, if no answer is pending.
    fn finish_opening(&mut self, outcome: &mut LineOutcome) {
        outcome.events.extend(self.opened_event());
    }

    pub(super) fn opened_event(&mut self) -> Option<Event> {
        let is_settling =
            |what: &Request| matches!(what, Request::Mode | Request::Model | Request::History);
        let waits = self.pending.values().any(|(what, _)| is_settling(what));
        if self.stage != OpenStage::Settling || waits {
            return None;
        }
        self.stage = OpenStage::Open;
        self.change = None;
        Some(self.identified())
    }

    pub(super) fn identified(&self) -> Event {
        Event::Identified {
            agent: self.agent.clone(),
            model: self.choices.model().to_owned(),
        }
    }

    pub(super) fn mode_answered(
        &mut self,
        id: u64,
        answer: Result<&Value, &Value>,
        outcome: &mut LineOutcome,
    ) {
        let change = self.change.as_mut().filter(|change| change.request == id);
        if let Err(error) = answer {
            self.choices.mode_is_unknown(false);
            let why = turn_end::error_text(error);
            if let Some(change) = change {
                change.answer = Some(Err(why));
            } else if self.stage == OpenStage::Settling
                && self.choices.requires_mode(self.requested.permissions)
            {
                let what =
                    format!("the agent refuses the mode in which it asks for permission: {why}");
                let hint = "fix the permissions in its own settings";
                self.failure = Some(Failure::Start(Error::start(
                    format!("{what}; {hint}"),
                    None,
                )));
            } else if why.contains("untrusted folder") && !self.requested.servers.is_empty() {
                // Gemini CLI ignores MCP servers there without a message.
                let what = "the agent doesn't trust this folder and uses no MCP servers in it";
                let hint = "trust it once in a terminal, or start the agent with --skip-trust";
                outcome
                    .events
                    .push(Event::Warning(format!("{what}: {hint}")));
            }
        } else if let Ok(result) = answer {
            if let Some(change) = change {
                change.answer = Some(Ok(()));
            }
            self.choices.take_options(result);
        }
        self.finish_opening(outcome);
    }

    pub(super) fn model_answered(
        &mut self,
        id: u64,
        answer: Result<&Value, &Value>,
        outcome: &mut LineOutcome,
    ) {
        let Some(change) = self.change.as_mut().filter(|change| change.request == id) else {
            return;
        };
        let model = change.model.clone().unwrap_or_default();
        match answer {
            Ok(result) => {
                change.answer = Some(Ok(()));
                if self.choices.model_taken(model, result) && self.stage == OpenStage::Open {
                    outcome.events.push(self.identified());
                }
            }
            Err(error) => {
                let why = turn_end::error_text(error);
                if self.stage == OpenStage::Settling {
                    let what = format!("`{model}`: {why}");
                    let error = Error::start(
                        format!("the agent refuses the model {what}; use one of its models"),
                        None,
                    );
                    self.failure = Some(Failure::Start(error));
                }
                change.answer = Some(Err(why));
            }
        }
        self.finish_opening(outcome);
    }

    fn failed(&self, request: Request, error: &Value) -> Failure {
        let words = turn_end::error_text(error);
        let trouble = match turn_end::error_kind(error) {
            ErrorKind::Other if request == Request::Open && turn_end::is_missing_session(error) => {
                ErrorKind::SessionNotFound
            }
            trouble => trouble,
        };
        let is_known = !matches!(self.requested.session, SessionChoice::Fresh);
        let (reason, detail) = match (request, trouble) {
            (_, ErrorKind::NotLoggedIn) | (Request::Authenticate, _) => (
                EndReason::NotLoggedIn,
                turn_end::login_hint(&words, &self.capabilities.auth_methods),
            ),
            (Request::Open, ErrorKind::SessionNotFound) if is_known => {
                let hint =
                    "start a fresh session, or return to the working directory of that session";
                (
                    EndReason::SessionNotFound,
                    format!("the agent reports: {words}; {hint}"),
                )
            }
            _ => {
                let what = format!("the agent refused the {}: {words}", request.name());
                let hint = "fix its settings, or run it by hand to see why";
                return Failure::Start(Error::start(format!("{what}; {hint}"), None));
            }
        };
        Failure::Turn(TurnEnd {
            detail,
            ..reason.into()
        })
    }
}
