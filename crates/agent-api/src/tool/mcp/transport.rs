//! The transport of a server: a message of the protocol on each line of its standard input and output, with limits.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use agent_subprocess::{LineWriter, ProcessTree, RawOutput, WriteError};
use bytes::BytesMut;
use rmcp::RoleClient;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt as _;

use super::state::{Fault, Server};

/// The longest line: one message.
const MAX_LINE: usize = 8 << 20;
/// The bytes to read at once.
const READ: usize = 16 << 10;
/// The maximum number of lines in a row that are no messages, or that answer no request. Some servers log to their standard output.
const MAX_UNEXPECTED: u32 = 1_000;

pub(super) struct LineTransport {
    input: LineWriter,
    output: RawOutput,
    /// The output that is read, from the start of a line.
    buffer: BytesMut,
    /// The bytes at the start of the buffer without a line feed.
    scanned: usize,
    server: Arc<Server>,
    /// The ids of the requests without a response. A request that was cancelled is one of them, because its response can be on its way.
    pending: HashSet<String>,
    /// The unexpected lines since the last message.
    unexpected: u32,
}

impl LineTransport {
    /// Takes the input and the output of a program, which must be pipes.
    pub(super) fn new(tree: &mut ProcessTree, server: &Arc<Server>) -> Self {
        Self {
            input: LineWriter::new(tree.take_stdin().expect("the input is a pipe")),
            output: tree.take_stdout().expect("the output is a pipe"),
            buffer: BytesMut::new(),
            scanned: 0,
            server: Arc::clone(server),
            pending: HashSet::new(),
            unexpected: 0,
        }
    }

    /// Returns the next line. Cancel safe: no output is lost.
    async fn line(&mut self) -> Result<BytesMut, Fault> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.scanned..]) {
                let line = self.buffer.split_to(self.scanned + at + 1);
                self.scanned = 0;
                return Ok(line);
            }
            self.scanned = self.buffer.len();
            if self.scanned > MAX_LINE {
                let what = format!("sent a line of more than {} MiB", MAX_LINE >> 20);
                return Err(Fault::Other(what));
            }
            self.buffer.reserve(READ);
            match self.output.read_buf(&mut self.buffer).await {
                Ok(1..) => {}
                Ok(_) | Err(_) => return Err(Fault::ClosedOutput),
            }
        }
    }

    /// Returns the next response of the server. Cancel safe.
    ///
    /// It answers requests of the server itself: a client that offers nothing gets no other than `ping`. It ignores notifications. A client task for each
    /// of them would not be bounded.
    async fn response(&mut self) -> Result<RxJsonRpcMessage<RoleClient>, Fault> {
        loop {
            // Many lines can be in one read. After a line is taken, nothing may wait: a dropped future would lose it.
            tokio::task::consume_budget().await;
            let line = self.line().await?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice::<Envelope<'_>>(&line) {
                Ok(Envelope {
                    id,
                    method: Some(method),
                }) => {
                    if let Some(id) = id {
                        self.answer(id, &method)?;
                    }
                }
                Ok(Envelope { method: None, .. }) => {
                    if let Some(response) = self.expected(&line) {
                        self.expected_line();
                        return Ok(response);
                    }
                    self.unexpected_line(&line)?;
                    continue;
                }
                Err(_) => {
                    self.unexpected_line(&line)?;
                    continue;
                }
            }
            self.expected_line();
        }
    }

    /// Returns the response to one of the requests.
    fn expected(&mut self, line: &[u8]) -> Option<RxJsonRpcMessage<RoleClient>> {
        let response: RxJsonRpcMessage<RoleClient> = serde_json::from_slice(line).ok()?;
        let id = match &response {
            JsonRpcMessage::Response(response) => response.id.to_string(),
            JsonRpcMessage::Error(error) => error.id.as_ref()?.to_string(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => return None,
        };
        self.pending.remove(&id).then_some(response)
    }

    /// Answers a request of the server.
    fn answer(&self, id: &RawValue, method: &str) -> Result<(), Fault> {
        let answer = match method {
            "ping" => r#""result":{}"#,
            _ => r#""error":{"code":-32601,"message":"the client does not support this method"}"#,
        };
        self.push(format!(r#"{{"jsonrpc":"2.0","id":{id},{answer}}}"#).into_bytes())
    }

    fn expected_line(&mut self) {
        if self.unexpected > 0 {
            self.server.record_unexpected(None);
            self.unexpected = 0;
        }
    }

    fn unexpected_line(&mut self, line: &[u8]) -> Result<(), Fault> {
        self.server.record_unexpected(Some(line));
        self.unexpected += 1;
        match self.unexpected < MAX_UNEXPECTED {
            true => Ok(()),
            false => Err(Fault::Other(format!(
                "wrote {MAX_UNEXPECTED} lines in a row that are neither messages nor responses to a request"
            ))),
        }
    }

    /// Queues a line for the server.
    fn push(&self, mut line: Vec<u8>) -> Result<(), Fault> {
        line.push(b'\n');
        self.input
            .push(line)
            .map(drop)
            .map_err(|error| match error {
                WriteError::Closed => Fault::ClosedInput,
                WriteError::PipeFull => Fault::Other("does not read its input".to_owned()),
            })
    }
}

/// The parts of a message that tell a response from the others.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
}

impl Transport<RoleClient> for LineTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &message {
            self.pending.insert(request.id.to_string());
        }
        let sent = serde_json::to_vec(&message).map_err(io::Error::from);
        let sent = sent.and_then(|line| {
            self.push(line).map_err(|fault| {
                self.server.fail(fault);
                io::ErrorKind::BrokenPipe.into()
            })
        });
        std::future::ready(sent)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        { self.response().await }
            .map_err(|fault| self.server.fail(fault))
            .ok()
    }

    async fn close(&mut self) -> io::Result<()> {
        // Dropping this value closes the pipes.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_subprocess::{Containment, OutputMode, StdinMode, StopPolicy, TreeCommand};

    use super::*;

    /// The client drops the future whenever it has something to send.
    #[tokio::test]
    async fn a15_no_response_is_lost_when_the_client_stops_waiting() {
        const RESPONSES: usize = 2_000;
        // Two notifications come before each response, so the wait can also end between them.
        let note = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
        let response = r#"{"jsonrpc":"2.0","id":%s,"result":{}}"#;
        let print = format!(
            r"for n in {{1..{RESPONSES}}}; do printf '{note}\n{note}\n{response}\n' $n; done; exec cat"
        );
        let tree = TreeCommand::new("bash")
            .args(["-c", &print])
            .stdin(StdinMode::Piped)
            .stdout(OutputMode::Bytes)
            .containment(Containment::Group);
        let mut tree = tree.spawn().await.unwrap();
        let mut transport = LineTransport::new(&mut tree, &Arc::new(Server::new("one")));
        let ids = (1..=RESPONSES).map(|id| id.to_string());
        transport.pending.extend(ids);
        let receive_all = async {
            let mut received = 0;
            while received < RESPONSES {
                tokio::select! {
                    biased;
                    response = transport.receive() => received += usize::from(response.is_some()),
                    () = std::future::ready(()) => tokio::task::yield_now().await,
                }
            }
        };
        let received = tokio::time::timeout(Duration::from_secs(60), receive_all).await;
        let missing = transport.pending.len();
        drop(tree.stop(&StopPolicy::kill()).await);
        assert!(received.is_ok(), "{missing} responses are missing");
    }
}
