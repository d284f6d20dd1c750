//! A small HTTP client: raw enough for hostile requests, and for a browser's driver.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The names, in small letters, and values of the headers.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
}

impl HttpResponse {
    /// Returns the value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(it, _)| it == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the body as JSON.
    ///
    /// # Panics
    ///
    /// If the body is not JSON.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// A request to a port of this machine.
#[derive(Clone, Debug)]
#[must_use]
pub struct HttpRequest {
    port: u16,
    first: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl HttpRequest {
    /// Creates a request without a `Host`.
    pub fn new(port: u16, method: &str, path: &str) -> Self {
        Self {
            port,
            first: format!("{method} {path} HTTP/1.1"),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body, and its type.
    pub fn body(mut self, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        let length = self.body.len().to_string();
        self.header("content-type", kind)
            .header("content-length", &length)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{}\r\n", self.first);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        [text.as_bytes(), b"\r\n", &self.body].concat()
    }

    /// Sends the request, and reads the whole response.
    ///
    /// # Errors
    ///
    /// An error if the server doesn't respond, or closes the connection without a response.
    pub fn send(&self) -> io::Result<HttpResponse> {
        let this = self.clone().header("connection", "close");
        response(this.open()?)
    }

    /// Sends the request over a connection, and reads the whole response.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn send_over(&self, mut stream: impl Read + Write) -> io::Result<HttpResponse> {
        let this = self.clone().header("connection", "close");
        stream.write_all(&this.bytes())?;
        response(BufReader::new(stream))
    }

    /// Sends the request, and returns the connection.
    ///
    /// # Errors
    ///
    /// An error if the server doesn't accept the connection.
    pub fn open(&self) -> io::Result<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.write_all(&self.bytes())?;
        Ok(BufReader::new(stream))
    }

    /// Sends the request, and returns the stream of server-sent events.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and if the response is not such a stream.
    pub fn events(&self) -> io::Result<EventStream> {
        let mut from = self.open()?;
        match head(&mut from)? {
            (200, _) => Ok(EventStream(from)),
            (status, _) => Err(io::Error::other(format!("status {status}"))),
        }
    }
}

fn response(mut from: impl BufRead) -> io::Result<HttpResponse> {
    let (status, headers) = head(&mut from)?;
    let mut body = Vec::new();
    let header = |name: &str| { headers.iter() }.find(|it| it.0 == name).map(|it| &*it.1);
    let length = header("content-length").and_then(|length| length.parse().ok());
    match length {
        Some(length) => drop(from.take(length).read_to_end(&mut body)?),
        None if header("transfer-encoding") == Some("chunked") => body = chunks(&mut from)?,
        None => drop(from.read_to_end(&mut body)?),
    }
    Ok(HttpResponse {
        status,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// Reads the chunks of a body.
fn chunks(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let size = u64::from_str_radix(line.trim_end(), 16);
        let size = size.map_err(|_| io::Error::other(format!("no chunk: {line:?}")))?;
        // An empty line follows each chunk.
        let read = from.take(size + 2).read_to_end(&mut body)?;
        body.truncate(body.len() - read.min(2));
        if size == 0 {
            return Ok(body);
        }
    }
}

/// Reads the status and the headers.
fn head(from: &mut impl BufRead) -> io::Result<(u16, Vec<(String, String)>)> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|it| it.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no response: {line:?}")))?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        from.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            return Ok((status, headers));
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
}

/// A stream of server-sent events whose data is JSON.
#[derive(Debug)]
pub struct EventStream(BufReader<TcpStream>);

impl Iterator for EventStream {
    type Item = Value;

    /// Waits for the next event; `None` at the end of the connection, or after 30 s.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let by = Instant::now() + TIMEOUT;
        while Instant::now() < by {
            line.clear();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            // The other lines are sizes of chunks and empty lines.
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data.trim_end()).ok();
            }
        }
        None
    }
}
