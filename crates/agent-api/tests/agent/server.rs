//! A model server on loopback. A function of the test answers each request.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use agent_api::Dialect;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Its number, from 0.
    pub(crate) number: usize,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// The response to a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    /// The status, the headers and the body of a response that is no stream.
    pub(crate) refusal: Option<(u16, String, String)>,
    /// The pieces of the text.
    pub(crate) texts: Vec<String>,
    /// The names and the arguments of the calls.
    pub(crate) calls: Vec<(String, String)>,
    /// Why the model stopped, in the words of the chat API; by default because it is done, or calls tools.
    pub(crate) finish: Option<&'static str>,
    /// The tokens of the input; 0 stands for a quarter of the bytes of the request.
    pub(crate) input_tokens: u64,
    /// After the texts, the stream waits for this.
    pub(crate) hold: Option<CancellationToken>,
    /// The connection ends after the texts.
    pub(crate) is_cut: bool,
}

impl Reply {
    pub(crate) fn text(text: &str) -> Self {
        Self {
            texts: vec![text.to_owned()],
            ..Self::default()
        }
    }

    pub(crate) fn call(name: &str, arguments: &str) -> Self {
        Self::calls([(name, arguments)])
    }

    pub(crate) fn calls<'a>(calls: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let calls = calls.into_iter();
        Self {
            calls: calls
                .map(|(name, arguments)| (name.to_owned(), arguments.to_owned()))
                .collect(),
            ..Self::default()
        }
    }

    pub(crate) fn refused(status: u16, headers: &str, body: &str) -> Self {
        Self {
            refusal: Some((status, headers.to_owned(), body.to_owned())),
            ..Self::default()
        }
    }

    pub(crate) fn held(self, hold: &CancellationToken) -> Self {
        Self {
            hold: Some(hold.clone()),
            ..self
        }
    }

    /// Returns the events before the hold, and those after it.
    fn events(&self, dialect: Dialect, number: usize) -> [Vec<Value>; 2] {
        match dialect {
            Dialect::Messages => self.messages(number),
            Dialect::Responses => self.responses(number),
            _ => self.chat(number),
        }
    }

    fn chat(&self, number: usize) -> [Vec<Value>; 2] {
        let chunk = |delta: Value, finish: Option<&str>| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        let texts = self
            .texts
            .iter()
            .map(|text| chunk(json!({"content": text}), None));
        let calls = self.calls.iter().enumerate().map(|(at, (name, arguments))| {
            let function = json!({"name": name, "arguments": arguments});
            chunk(json!({"tool_calls": [{"index": at, "id": id(number, at), "type": "function", "function": function}]}), None)
        });
        let finish = self.finish.unwrap_or(match self.calls.is_empty() {
            true => "stop",
            false => "tool_calls",
        });
        let usage = json!({"choices": [], "usage": {"prompt_tokens": self.input_tokens, "completion_tokens": 1}});
        let rest = calls.chain([chunk(json!({}), Some(finish)), usage, "[DONE]".into()]);
        [texts.collect(), rest.collect()]
    }

    fn messages(&self, number: usize) -> [Vec<Value>; 2] {
        let usage = json!({"input_tokens": self.input_tokens, "output_tokens": 0});
        let mut before = vec![
            json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": usage}}),
        ];
        let mut after = Vec::new();
        if !self.texts.is_empty() {
            before.push(json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}));
            for text in &self.texts {
                before.push(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}));
            }
            after.push(json!({"type": "content_block_stop", "index": 0}));
        }
        for (at, (name, arguments)) in self.calls.iter().enumerate() {
            let index = at + 1;
            let block =
                json!({"type": "tool_use", "id": id(number, at), "name": name, "input": {}});
            after.extend([
                json!({"type": "content_block_start", "index": index, "content_block": block}),
                json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": arguments}}),
                json!({"type": "content_block_stop", "index": index}),
            ]);
        }
        let stop = if self.calls.is_empty() {
            "end_turn"
        } else {
            "tool_use"
        };
        after.push(json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 1}}));
        after.push(json!({"type": "message_stop"}));
        [before, after]
    }

    fn responses(&self, number: usize) -> [Vec<Value>; 2] {
        let mut before = vec![
            json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}),
        ];
        let mut after = Vec::new();
        let mut output = Vec::new();
        if !self.texts.is_empty() {
            let item = json!({"type": "message", "id": "t", "role": "assistant", "status": "in_progress", "content": []});
            before.push(
                json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
            );
            for text in &self.texts {
                before.push(json!({"type": "response.output_text.delta", "item_id": "t", "output_index": 0, "content_index": 0, "delta": text}));
            }
            let content =
                json!([{"type": "output_text", "text": self.texts.concat(), "annotations": []}]);
            output.push(json!({"type": "message", "id": "t", "role": "assistant", "status": "completed", "content": content}));
        }
        for (at, (name, arguments)) in self.calls.iter().enumerate() {
            output.push(json!({"type": "function_call", "id": format!("f{at}"), "call_id": id(number, at), "name": name, "arguments": arguments, "status": "completed"}));
        }
        for (at, item) in output.iter().enumerate() {
            after.push(
                json!({"type": "response.output_item.done", "output_index": at, "item": item}),
            );
        }
        let usage = json!({"input_tokens": self.input_tokens, "output_tokens": 1});
        after.push(json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": output, "usage": usage}}));
        [before, after]
    }
}

fn id(number: usize, at: usize) -> String {
    format!("call_{number}_{at}")
}

type Respond = dyn Fn(&Request) -> Reply + Send + Sync;

/// The most requests that a server keeps; the earlier ones are dropped.
const KEPT: usize = 200;

/// The requests that arrived.
#[derive(Default)]
struct Received {
    count: usize,
    last: VecDeque<Request>,
}

impl Received {
    fn add(&mut self, body: Vec<u8>) -> Request {
        let request = Request {
            number: self.count,
            body,
        };
        self.count += 1;
        self.last.push_back(request.clone());
        if self.last.len() > KEPT {
            self.last.pop_front();
        }
        request
    }
}

/// A running server. Dropping it ends all connections.
pub(crate) struct Server {
    pub(crate) dialect: Dialect,
    pub(crate) url: String,
    requests: Arc<Mutex<Received>>,
    /// `None` if the server runs in another process.
    task: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Server {
    pub(crate) async fn start(
        dialect: Dialect,
        respond: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Received::default()));
        let respond: Arc<Respond> = Arc::new(respond);
        let (received, dialect_of_stream) = (Arc::clone(&requests), dialect);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                // Otherwise each response waits 40 ms for an acknowledgement.
                stream.set_nodelay(true).unwrap();
                let (received, respond) = (Arc::clone(&received), Arc::clone(&respond));
                connections.spawn(async move {
                    // A client that is gone ends its connection.
                    let _gone = serve(stream, dialect_of_stream, &received, &*respond).await;
                });
            }
        });
        Self {
            dialect,
            url,
            requests,
            task: Some(task),
        }
    }

    /// Names a server of another process.
    pub(crate) fn at(dialect: Dialect, url: &str) -> Self {
        Self {
            dialect,
            url: url.to_owned(),
            requests: Arc::default(),
            task: None,
        }
    }

    /// Starts a server that answers with these replies in order, and then with `done`.
    pub(crate) async fn replying(
        dialect: Dialect,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        let replies: Vec<Reply> = replies.into_iter().collect();
        let respond = move |request: &Request| { replies.get(request.number) }.cloned();
        Self::start(dialect, move |request| {
            respond(request).unwrap_or_else(|| Reply::text("done"))
        })
        .await
    }

    /// Returns the last requests.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let received = self.requests.lock().unwrap();
        received.last.iter().cloned().collect()
    }
}

async fn serve(
    mut stream: TcpStream,
    dialect: Dialect,
    received: &Mutex<Received>,
    respond: &Respond,
) -> std::io::Result<()> {
    loop {
        let body = read_body(&mut stream).await?;
        let request = received.lock().unwrap().add(body);
        let mut reply = respond(&request);
        if reply.input_tokens == 0 {
            reply.input_tokens = request.body.len() as u64 / 4;
        }
        if let Some((status, headers, body)) = &reply.refusal {
            let length = body.len();
            let response = format!(
                "HTTP/1.1 {status} No\r\n{headers}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            stream.write_all(response.as_bytes()).await?;
            continue;
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        let [before, after] = reply.events(dialect, request.number);
        for event in &before {
            send(&mut stream, event).await?;
        }
        if let Some(hold) = &reply.hold {
            let mut byte = [0];
            tokio::select! {
                () = hold.cancelled() => {}
                // The client is gone.
                _ = stream.read(&mut byte) => return Ok(()),
            }
        }
        if reply.is_cut {
            return Ok(());
        }
        for event in &after {
            send(&mut stream, event).await?;
        }
        stream.write_all(b"0\r\n\r\n").await?;
    }
}

async fn send(stream: &mut TcpStream, event: &Value) -> std::io::Result<()> {
    let mut text = String::new();
    if let Some(name) = event["type"].as_str() {
        writeln!(text, "event: {name}").unwrap();
    }
    let data = match event {
        Value::String(text) => text.clone(),
        event => event.to_string(),
    };
    write!(text, "data: {data}\n\n").unwrap();
    let chunk = format!("{:x}\r\n{text}\r\n", text.len());
    stream.write_all(chunk.as_bytes()).await
}

/// Reads a request, and returns its body.
async fn read_body(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let end = |request: &[u8]| request.windows(4).position(|four| four == b"\r\n\r\n");
    loop {
        if let Some(end) = end(&request) {
            let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.lines().next().unwrap().trim().parse().unwrap();
            if request.len() >= end + 4 + length {
                return Ok(request[end + 4..].to_vec());
            }
        }
        if stream.read_buf(&mut request).await? == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
        }
    }
}
