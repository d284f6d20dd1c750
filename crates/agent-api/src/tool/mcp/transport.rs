//! The transport of a server: a message of the protocol on each line of its standard input and output, with limits.

use std::io;
use std::sync::Arc;

use agent_subprocess::{LineWriter, ProcessTree, RawOutput, WriteError};
use bytes::BytesMut;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::AsyncReadExt as _;

use super::state::{Fault, Server};

/// The longest line: one message.
const MAX_LINE: usize = 8 << 20;
/// The bytes to read at once.
const READ: usize = 16 << 10;
/// The most lines in a row that are no messages. Some servers log to their standard output.
const MAX_INVALID: u32 = 1_000;

pub(super) struct LineTransport {
    input: LineWriter,
    output: RawOutput,
    /// The output that is read, from the start of a line.
    buffer: BytesMut,
    /// The bytes at the start of the buffer without a line feed.
    scanned: usize,
    server: Arc<Server>,
    /// The lines since the last message.
    invalid: u32,
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
            invalid: 0,
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

    /// Returns the next message. Cancel safe.
    async fn message(&mut self) -> Result<RxJsonRpcMessage<RoleClient>, Fault> {
        loop {
            let line = self.line().await?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            if let Ok(message) = serde_json::from_slice(&line) {
                self.server.record_invalid(None);
                self.invalid = 0;
                return Ok(message);
            }
            self.server.record_invalid(Some(&line));
            self.invalid += 1;
            if self.invalid == MAX_INVALID {
                let what = format!("wrote {MAX_INVALID} lines in a row that are no messages");
                return Err(Fault::Other(what));
            }
        }
    }

    fn write(&self, message: &TxJsonRpcMessage<RoleClient>) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.input.push(line).map(drop).map_err(|error| {
            let (fault, kind) = match error {
                WriteError::Closed => (Fault::ClosedInput, io::ErrorKind::BrokenPipe),
                WriteError::PipeFull => (
                    Fault::Other("does not read its input".to_owned()),
                    io::ErrorKind::StorageFull,
                ),
            };
            self.server.fail(fault);
            kind.into()
        })
    }
}

impl Transport<RoleClient> for LineTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        std::future::ready(self.write(&message))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        { self.message().await }
            .map_err(|fault| self.server.fail(fault))
            .ok()
    }

    async fn close(&mut self) -> io::Result<()> {
        // Dropping this value closes the pipes.
        Ok(())
    }
}
