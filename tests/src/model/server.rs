//! The server: one thread per connection, a log of requests, and an end.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::dialect::{self, Dialect};
use super::http::{Connection, Received};
use super::reply::Reply;
use super::request::{Item, PromptRequest};
use super::script::{self, Step};
use super::send::ReplyStream;
use super::tools;

/// The maximum number of clients at the same time.
const CONNECTIONS: usize = 64;
/// The maximum number of stored requests. Later requests are answered, but not stored.
const KEPT: usize = 10_000;

/// The options of a [`FakeModel`].
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The port; 0 is any.
    pub port: u16,
    /// The script for messages without directives.
    pub default: String,
    /// The path of the log, with one JSON object per line: each request, and how its reply ended.
    pub log: Option<PathBuf>,
}

/// One request for a message.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Request {
    /// Its number, from 1.
    pub number: u64,
    /// The requested model.
    pub model: String,
    /// The client's id of its session.
    pub session: String,
    /// The number of user messages in it.
    pub turn: usize,
    /// The last user message.
    pub last_user: String,
    /// The number of replies after that message.
    pub step: usize,
    /// The number of offered tools; 0 means a side request.
    pub tools: usize,
    /// The names of the offered tools.
    pub offered: Vec<String>,
    /// The system prompt of the client.
    pub system: String,
    /// The whole conversation.
    pub items: Vec<Item>,
    /// The name of the chosen directive.
    pub reply: String,
    /// How the reply ended; `None` while it is being sent.
    pub outcome: Option<Outcome>,
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was sent completely.
    Sent,
    /// It failed, as scripted.
    Refused,
    /// It was cut off, as scripted.
    Dropped,
    /// The client disconnected.
    ClientGone,
}

/// A running model server. Dropping it closes all connections and ends its threads.
#[derive(Debug)]
#[must_use]
pub struct FakeModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    default: Vec<Step>,
    stopping: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    count: u64,
    requests: Vec<Request>,
    /// How often each failing step has failed.
    failed: HashMap<(String, usize, String, usize), u32>,
    clients: HashMap<u64, TcpStream>,
    log: Option<fs_err::File>,
}

impl FakeModel {
    /// Starts a server on a free port; `default` is the script for messages without directives.
    ///
    /// # Panics
    ///
    /// If it can't listen on loopback.
    pub fn start(default: &str) -> Self {
        Self::with(&Options {
            default: default.into(),
            ..Options::default()
        })
        .expect("a server can listen on loopback")
    }

    /// Starts a server.
    ///
    /// # Errors
    ///
    /// If the port is in use or the log can't be opened.
    pub fn with(options: &Options) -> io::Result<Self> {
        let log = match &options.log {
            Some(path) => Some(
                fs_err::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(path)?,
            ),
            None => None,
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
        let address = listener.local_addr()?;
        let state = Mutex::new(State {
            log,
            ..State::default()
        });
        let shared = Arc::new(Shared {
            default: script::parse(&options.default),
            state,
            ..Shared::default()
        });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Ok(Self {
            address,
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// Returns the base URL, for `ANTHROPIC_BASE_URL`; OpenAI's has `/v1` appended.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns all requests for messages so far, in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.state().requests.clone()
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        // Wakes the acceptor, which closes the other connections.
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().expect("the acceptor does not panic");
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for (id, stream) in (0..).zip(listener.incoming()) {
        if shared.stopping.load(Ordering::Acquire) {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        let Ok(stream) = stream else { continue };
        let Ok(copy) = stream.try_clone() else {
            continue;
        };
        if threads.len() < CONNECTIONS {
            shared.state().clients.insert(id, copy);
            let shared = Arc::clone(shared);
            threads.push(thread::spawn(move || {
                // A client that disconnects or sends garbage only loses its connection.
                let _lost = Connection::new(stream).and_then(|connection| shared.serve(connection));
                if let Some(stream) = shared.state().clients.remove(&id) {
                    let _gone = stream.shutdown(Shutdown::Both);
                }
            }));
        }
    }
    for stream in shared.state().clients.values() {
        let _gone = stream.shutdown(Shutdown::Both);
    }
    for thread in threads {
        let _panicked = thread.join();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut connection: Connection) -> io::Result<()> {
        while let Some(received) = connection.receive()? {
            let body: Value = serde_json::from_slice(&received.body).unwrap_or_default();
            let Received {
                method,
                path,
                authorization,
                ..
            } = &received;
            if let ("POST", Some(dialect)) = (method.as_str(), dialect::of(path)) {
                let asked = dialect.read(path, &body);
                let size = received.body.len();
                match self.answer(&mut connection, dialect, &asked, size)? {
                    Outcome::Dropped => return Ok(()),
                    _ => continue,
                }
            }
            match (method.as_str(), path.as_str()) {
                ("POST", "/v1/messages/count_tokens") => {
                    connection.send(200, "", &json!({"input_tokens": received.body.len() / 4}))?
                }
                ("POST", path) if path.ends_with(":countTokens") => {
                    connection.send(200, "", &json!({"totalTokens": received.body.len() / 4}))?
                }
                ("GET", "/v1/models") => connection.send(200, "", &models())?,
                ("POST", "/mcp") => match tools::answer(&body, authorization) {
                    Some(answer) => connection.send(200, "", &answer)?,
                    None => connection.send(202, "", &Value::Null)?,
                },
                ("HEAD", _) => connection.send_head()?,
                _ => {
                    let missing = json!({"type": "error", "error": {"type": "not_found_error", "message": "no such path"}});
                    connection.send(404, "", &missing)?;
                }
            }
        }
        Ok(())
    }

    fn answer(
        &self,
        connection: &mut Connection,
        dialect: &dyn Dialect,
        asked: &PromptRequest,
        size: usize,
    ) -> io::Result<Outcome> {
        let (number, step) = self.note(asked);
        if let [Step::Continue(pause)] = self.default[..] {
            connection.pause(pause)?;
        }
        let sent = ReplyStream {
            connection,
            dialect,
            asked,
            step: &step,
            reply: Reply::new(number, &step, asked, size / 4),
        }
        .send();
        let outcome = *sent.as_ref().unwrap_or(&Outcome::ClientGone);
        let mut state = self.state();
        if let Some(request) = state
            .requests
            .iter_mut()
            .find(|request| request.number == number)
        {
            request.outcome = Some(outcome);
        }
        state.log(&json!({"ended": number, "outcome": outcome}));
        sent
    }

    /// Chooses the next step and logs the request.
    fn note(&self, asked: &PromptRequest) -> (u64, Step) {
        let mut state = self.state();
        state.count += 1;
        let step = state.due(asked, &self.default);
        let request = Request {
            number: state.count,
            model: asked.model.clone(),
            session: asked.session.clone(),
            turn: asked.turn,
            last_user: asked.last_user.clone(),
            step: asked.step,
            tools: asked.tools.len(),
            offered: asked.tools.iter().map(|tool| tool.name.clone()).collect(),
            system: asked.system.clone(),
            items: asked.items.clone(),
            reply: step.name().into(),
            outcome: None,
        };
        state.log(&json!({"request": request}));
        if state.requests.len() < KEPT {
            state.requests.push(request);
        }
        (state.count, step)
    }
}

/// Returns the next reply of the last script in the conversation, without the failures in it.
fn continued(asked: &PromptRequest) -> Step {
    let done = || Step::Text("All done.".into());
    let is_script =
        |item: &Item| item.role == "user" && item.kind == "text" && item.text.contains("[[");
    let Some(at) = asked.items.iter().rposition(is_script) else {
        return done();
    };
    let pairs = asked.items[at..].windows(2);
    let replies = pairs.filter(|pair| pair[0].role != "assistant" && pair[1].role == "assistant");
    let not_run = |item: &&Item| item.kind == "tool_result" && item.text.starts_with("not run: ");
    let made = replies.count() - asked.items[at..].iter().filter(not_run).count();
    let script = script::parse(&asked.items[at].text).into_iter();
    let mut script = script.filter(|step| step.times().is_none());
    script.nth(made).unwrap_or_else(done)
}

impl State {
    fn due(&mut self, asked: &PromptRequest, default: &[Step]) -> Step {
        if asked.tools.is_empty() {
            return Step::Text("ok".into());
        }
        if let [Step::Continue(_)] = default {
            return continued(asked);
        }
        let own = script::parse(&asked.last_user);
        let script = if own.is_empty() { default } else { &own };
        let mut replies = 0;
        for (position, step) in script.iter().enumerate() {
            let Some(times) = step.times() else {
                if replies == asked.step {
                    return step.clone();
                }
                replies += 1;
                continue;
            };
            if replies == asked.step {
                let key = (
                    asked.session.clone(),
                    asked.turn,
                    asked.last_user.clone(),
                    position,
                );
                let failed = self.failed.entry(key).or_default();
                if *failed < times {
                    *failed += 1;
                    return step.clone();
                }
            }
        }
        Step::Text("All done.".into())
    }

    fn log(&mut self, entry: &Value) {
        if let Some(log) = &mut self.log {
            // A full disk must not change the replies of the model.
            let _unwritten = log.write_all(format!("{entry}\n").as_bytes());
        }
    }
}

fn models() -> Value {
    json!({"has_more": false, "data": [{
        "id": "claude-fake-1", "type": "model", "display_name": "Scripted", "created_at": "2026-01-01T00:00:00Z",
    }]})
}
