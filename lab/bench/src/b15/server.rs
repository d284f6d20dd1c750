//! A model server on loopback that does nothing by itself: the bench receives each request and sends each reply.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::harness::Result;

/// Longer than any request takes.
const LIMIT: Duration = Duration::from_secs(60);
const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// The server of one client.
pub(super) struct Server {
    listener: TcpListener,
    streams: Vec<TcpStream>,
    /// The stream of the last request.
    at: usize,
    /// The last request: its head, and then its body.
    request: Vec<u8>,
    body: usize,
    /// The bytes of all requests.
    pub(super) received: u64,
    /// The connections that were made.
    pub(super) connections: usize,
    /// The replies with a call. Each call has a number of its own.
    calls: usize,
}

impl Server {
    pub(super) fn start() -> Result<Self> {
        Ok(Self {
            listener: TcpListener::bind("127.0.0.1:0")?,
            streams: Vec::new(),
            at: 0,
            request: Vec::new(),
            body: 0,
            received: 0,
            connections: 0,
            calls: 0,
        })
    }

    pub(super) fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Returns the body of the last request.
    pub(super) fn body(&self) -> &[u8] {
        &self.request[self.body..]
    }

    /// Waits for a whole request, and returns the time of its first byte.
    pub(super) fn receive(&mut self) -> Result<Instant> {
        let deadline = Instant::now() + LIMIT;
        self.request.clear();
        let mut first = None;
        loop {
            let ready = self.ready(deadline)?;
            let now = Instant::now();
            let Some(at) = ready else {
                let (stream, _) = self.listener.accept()?;
                stream.set_nodelay(true)?;
                self.streams.push(stream);
                self.connections += 1;
                continue;
            };
            let before = self.request.len();
            self.request.resize(before + (256 << 10), 0);
            // A client that is killed resets its connection.
            let read = self.streams[at].read(&mut self.request[before..]);
            let read = read.unwrap_or_default();
            self.request.truncate(before + read);
            self.received += read as u64;
            if read == 0 {
                self.streams.remove(at);
                continue;
            }
            self.at = at;
            let first = *first.get_or_insert(now);
            if let Some(body) = whole(&self.request) {
                self.body = body;
                return Ok(first);
            }
        }
    }

    /// Returns the stream that can be read, or `None` if there is a new connection.
    fn ready(&self, deadline: Instant) -> Result<Option<usize>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let streams = { self.streams.iter() }.map(|it| PollFd::new(it, PollFlags::IN));
        let mut fds: Vec<_> = streams.collect();
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        if poll(&mut fds, Some(&Timespec::try_from(left)?))? == 0 {
            return Err("the agent sends no request".into());
        }
        let ready = fds.iter().position(|fd| !fd.revents().is_empty());
        Ok(ready.filter(|at| *at < self.streams.len()))
    }

    /// Replies with a call of the tool `nothing`, whose result has `bytes`. Returns the time before the last byte.
    pub(super) fn call_nothing(&mut self, bytes: usize) -> Result<Instant> {
        self.calls += 1;
        let arguments = json!({"number": 1_000_000 + self.calls, "bytes": bytes});
        self.call("nothing", &arguments)
    }

    /// Replies with a call of a tool.
    pub(super) fn call(&mut self, name: &str, arguments: &Value) -> Result<Instant> {
        let id = format!("call_{}", self.calls);
        let function = json!({"name": name, "arguments": arguments.to_string()});
        let call = json!([{"index": 0, "id": id, "type": "function", "function": function}]);
        self.reply(&json!({"tool_calls": call}), "tool_calls")
    }

    /// Replies with a text, which ends the turn.
    pub(super) fn text(&mut self, text: &str) -> Result<Instant> {
        self.reply(&json!({"content": text}), "stop")
    }

    fn reply(&mut self, delta: &Value, finish: &str) -> Result<Instant> {
        let tokens = self.body().len() / 4;
        let usage = json!({"prompt_tokens": tokens, "completion_tokens": 1});
        let text = [
            event(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})),
            event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})),
            event(&json!({"choices": [], "usage": usage})),
            "data: [DONE]\n\n".to_owned(),
        ]
        .concat();
        self.write(&format!("{HEAD}{:x}\r\n{text}\r\n0\r\n\r\n", text.len()))
    }

    /// Begins a reply with a text, and leaves it unfinished.
    pub(super) fn begin_text(&mut self) -> Result<Instant> {
        let delta = json!({"content": "The first words of an answer"});
        let text =
            event(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}));
        self.write(&format!("{HEAD}{:x}\r\n{text}\r\n", text.len()))
    }

    fn write(&mut self, text: &str) -> Result<Instant> {
        let now = Instant::now();
        self.streams[self.at].write_all(text.as_bytes())?;
        Ok(now)
    }
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// Returns where the body of a whole request begins; `None` if a part of it is missing.
fn whole(request: &[u8]) -> Option<usize> {
    let body = 4 + request.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&request[..body]).to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1)?.lines().next()?;
    let length: usize = length.trim().parse().ok()?;
    (request.len() >= body + length).then_some(body)
}
