//! The part of HTTP/1.1 that agent CLIs use: persistent connections, bodies with a length or in chunks, replies whole or in chunks.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

const HEAD: u64 = 64 << 10;
const BODY: u64 = 64 << 20;

/// A received request.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) method: String,
    pub(super) path: String,
    /// The `Authorization` header.
    pub(super) authorization: String,
    pub(super) body: Vec<u8>,
}

/// A connection to one client.
#[derive(Debug)]
pub(super) struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            reader: BufReader::new(stream),
        })
    }

    /// Reads the next request; returns `None` if the client has disconnected.
    pub(super) fn receive(&mut self) -> io::Result<Option<Received>> {
        let mut limited = (&mut self.reader).take(HEAD);
        let mut line = || -> io::Result<String> {
            let mut line = String::new();
            limited.read_line(&mut line)?;
            Ok(line.trim_end().to_owned())
        };
        let first = line()?;
        let mut words = first.split(' ');
        let (Some(method), Some(path)) =
            (words.next().filter(|word| !word.is_empty()), words.next())
        else {
            return Ok(None);
        };
        let (mut length, mut chunked, mut expected) = (0, false, false);
        let mut authorization = String::new();
        loop {
            let header = line()?;
            let Some((name, value)) = header.split_once(':') else {
                break;
            };
            let value = value.trim();
            match name.to_lowercase().as_str() {
                "content-length" => {
                    length = value.parse().map_err(|_| invalid("content-length"))?
                }
                "transfer-encoding" => chunked = value.to_lowercase().contains("chunked"),
                "authorization" => authorization = value.to_owned(),
                "expect" => expected = true,
                _ => {}
            }
        }
        if expected {
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let body = if chunked {
            self.chunks()?
        } else {
            self.exactly(length)?
        };
        let path = path.split('?').next().unwrap_or_default();
        Ok(Some(Received {
            method: method.into(),
            path: path.into(),
            authorization,
            body,
        }))
    }

    fn exactly(&mut self, length: u64) -> io::Result<Vec<u8>> {
        if length > BODY {
            return Err(invalid("a body of that size"));
        }
        let mut body = Vec::new();
        (&mut self.reader).take(length).read_to_end(&mut body)?;
        if (body.len() as u64) < length {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok(body)
        }
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            (&mut self.reader).take(HEAD).read_line(&mut line)?;
            let size = line.trim().split(';').next().unwrap_or_default();
            let size = u64::from_str_radix(size, 16).map_err(|_| invalid("a chunk's size"))?;
            let chunk = self.exactly(size + 2)?; // including the line end after it
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..chunk.len() - 2]);
            if body.len() as u64 > BODY {
                return Err(invalid("a body of that size"));
            }
        }
    }

    /// Sends a complete reply.
    pub(super) fn send(&mut self, status: u16, extra: &str, body: &Value) -> io::Result<()> {
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {status} scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{extra}\r\n",
            body.len()
        );
        self.write(format!("{head}{body}").as_bytes())
    }

    /// Answers a HEAD request.
    pub(super) fn send_head(&mut self) -> io::Result<()> {
        self.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    }

    /// Begins a reply of events.
    pub(super) fn begin_events(&mut self) -> io::Result<()> {
        self.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n")
    }

    /// Sends one event, named after its `type` if it has one. A string is sent unchanged.
    pub(super) fn event(&mut self, event: &Value) -> io::Result<()> {
        let name = event["type"].as_str();
        let name = name.map_or_else(String::new, |name| format!("event: {name}\n"));
        let text = match event {
            Value::String(text) => format!("data: {text}\n\n"),
            event => format!("{name}data: {event}\n\n"),
        };
        self.write(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
    }

    /// Ends a reply of events.
    pub(super) fn end_events(&mut self) -> io::Result<()> {
        self.write(b"0\r\n\r\n")
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Waits until the time has passed or the client disconnects.
    pub(super) fn pause(&mut self, time: Duration) -> io::Result<()> {
        let stream = self.reader.get_mut();
        let end = Instant::now() + time;
        let outcome = loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Ok(());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.peek(&mut [0]) {
                Ok(0) => break Err(io::ErrorKind::BrokenPipe.into()),
                // The client sends data at the wrong time. The next write will detect a disconnect.
                Ok(_) => std::thread::park_timeout(left),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock
                            | io::ErrorKind::TimedOut
                            | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => break Err(error),
            }
        };
        stream.set_read_timeout(None)?;
        outcome
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("cannot accept {what}"))
}
