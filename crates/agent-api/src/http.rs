//! The HTTP client: sends the body of a request to a model server, and returns its stream.
//!
//! Dropping a stream closes its connection at once, so the server stops writing and stops counting tokens. No redirect is followed: it could send the
//! key elsewhere.

mod proxy;
mod webhook;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Builder;
use hyper::http::response::Parts;
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use crate::dialect::Dialect;
use crate::error::{Error, ErrorKind};
use crate::response::HttpResponse;
use proxy::{ProxyConnector, ProxyError};
pub use webhook::WebhookClient;

/// The maximum number of bytes of a response that is no stream; the rest is not read.
const MAX_ERROR_BODY: usize = 16 << 10;
/// The maximum number of bytes of a list of models.
const MAX_MODELS_BODY: usize = 4 << 20;
/// The idle connections to a server that are kept for the next call.
const MAX_IDLE_CONNECTIONS: usize = 1;
/// The time for the end of a stream after its final event; then its connection is closed.
const STREAM_END: Duration = Duration::from_secs(1);
/// The maximum number of pieces of a stream after its final event.
const MAX_PIECES_AFTER_END: usize = 100;
/// The longest text of a server in a message, in characters.
const MAX_SHOWN: usize = 200;
/// The version of the Messages API.
const MESSAGES_VERSION: &str = "2023-06-01";

/// A model server: its address, its dialect, and the key for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Endpoint {
    /// The dialect of the server.
    pub dialect: Dialect,
    /// The address below which the API is, such as `https://api.anthropic.com`, `https://api.openai.com/v1` or `http://localhost:11434/v1`.
    pub base_url: String,
    /// The key; `None` for a server that needs none.
    pub key: Option<Key>,
    /// The time for the name look-up, the TCP connection and the tunnel of a proxy; 10 s by default. The TLS handshake counts towards
    /// [`idle_timeout`](Self::idle_timeout).
    pub connect_timeout: Duration,
    /// The longest silence of the server: before the response, and between two pieces of the stream. The default is 5 minutes.
    pub idle_timeout: Duration,
}

impl Endpoint {
    /// Creates an endpoint without a key.
    #[must_use]
    pub fn new(dialect: Dialect, base_url: impl Into<String>) -> Self {
        Self {
            dialect,
            base_url: base_url.into(),
            key: None,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
        }
    }

    /// Returns `base_url` followed by the path of the dialect. For Messages, `base_url` may end with `/v1` or not.
    fn address(&self) -> Result<Uri, Error> {
        self.address_of(match self.dialect {
            Dialect::Messages => "/messages",
            Dialect::Responses => "/responses",
            Dialect::Chat => "/chat/completions",
        })
    }

    /// Returns `base_url` followed by a path of its API.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Settings`] if the address is no `http` or `https` address, or has a user, a password, a query or a fragment.
    fn address_of(&self, path: &str) -> Result<Uri, Error> {
        let base = self.base_url.trim_end_matches('/');
        let wrong = |why: &str| {
            let shown = crate::text::one_line(&self.base_url, MAX_SHOWN);
            let message =
                format!("the base URL `{shown}` {why}; give for example https://api.openai.com/v1");
            Error::new(ErrorKind::Settings, message)
        };
        if base.contains('@') {
            // Not shown: it may contain a password.
            let message =
                "the base URL has a user or a password; give the key as the key of the endpoint";
            return Err(Error::new(ErrorKind::Settings, message));
        }
        if base.contains(['?', '#']) {
            return Err(wrong("has a query or a fragment"));
        }
        let version = match self.dialect {
            Dialect::Messages if !base.ends_with("/v1") => "/v1",
            _ => "",
        };
        let address: Uri = format!("{base}{version}{path}")
            .parse()
            .map_err(|_| wrong("is no address"))?;
        match (address.scheme_str(), address.host()) {
            (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(address),
            _ => Err(wrong("is no http or https address")),
        }
    }
}

/// A key for a model server. Its `Debug` form doesn't show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Takes a key, without the white space around it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Settings`] if it is empty, or has characters that no header may have. The message doesn't contain it.
    pub fn new(key: &str) -> Result<Self, Error> {
        let key = key.trim();
        let is_visible = key.bytes().all(|byte| byte.is_ascii_graphic());
        match !key.is_empty() && is_visible {
            true => Ok(Self(key.to_owned())),
            false => {
                let message = "the key is empty or has characters that no key has; set it again";
                Err(Error::new(ErrorKind::Settings, message))
            }
        }
    }

    fn header(&self, before: &str) -> HeaderValue {
        let text = format!("{before}{}", self.0);
        let mut value = HeaderValue::try_from(text).expect("a key has only visible characters");
        value.set_sensitive(true);
        value
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Returns the settings for a server without TLS: no certificate is trusted.
fn without_certificates() -> ClientConfig {
    ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth()
}

type HttpsClient = Client<HttpsConnector<ProxyConnector>, Full<Bytes>>;

/// Creates the client for an address: with TLS for `https`, and through the proxy of the environment.
fn https_client(address: &Uri, connect_timeout: Duration) -> Result<HttpsClient, Error> {
    let connector = ProxyConnector::from_environment(connect_timeout);
    let tls = HttpsConnectorBuilder::new();
    let connector = match address.scheme_str() {
        // Reading the certificates takes time, and some systems have none.
        Some("http") => tls.with_tls_config(without_certificates()),
        _ => tls.try_with_platform_verifier().map_err(|e| {
            let message = format!("the certificates of the system can't be used: {e}");
            Error::new(ErrorKind::Settings, message)
        })?,
    }
    .https_or_http()
    .enable_http1()
    .wrap_connector(connector);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .build(connector))
}

/// Explains why a request could not be sent, without any part of its address.
fn connect_error(error: &ClientError) -> Error {
    let new = |kind, message: &str| Error::new(kind, message);
    if let Some(proxy) = find::<ProxyError>(error) {
        return new(ErrorKind::Settings, &proxy.to_string());
    }
    match find::<rustls::Error>(error) {
        Some(rustls::Error::InvalidCertificate(_)) => new(
            ErrorKind::Tls,
            "the server has no certificate that this system trusts",
        ),
        Some(_) => new(ErrorKind::Tls, "the server doesn't speak TLS as expected"),
        None if error.is_connect() => match find::<std::io::Error>(error).map(|e| e.kind()) {
            Some(kind) => new(ErrorKind::Connect, &format!("can't connect: {kind}")),
            None => new(ErrorKind::Connect, "can't connect"),
        },
        None => new(ErrorKind::Connect, "the connection was lost"),
    }
}

/// A client of one model server. Clones share its connections.
#[derive(Clone, Debug)]
pub struct ModelClient {
    endpoint: Endpoint,
    address: Uri,
    client: HttpsClient,
}

impl ModelClient {
    /// Creates a client. It connects at the first call, through the proxy that the environment names (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Settings`] if the address of the endpoint is invalid, or the certificates of the system can't be read.
    pub fn new(endpoint: Endpoint) -> Result<Self, Error> {
        let address = endpoint.address()?;
        let client = https_client(&address, endpoint.connect_timeout)?;
        Ok(Self {
            endpoint,
            address,
            client,
        })
    }

    /// Sends the body of a request, and returns the stream of the response.
    ///
    /// # Errors
    ///
    /// An error if there is no connection, if the server is silent for [`Endpoint::idle_timeout`], or if its response is no stream:
    /// [`Error::retry`] says whether to try again. No message contains the key.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection. The server may have received the request.
    pub async fn call(&self, body: Vec<u8>) -> Result<ModelStream, Error> {
        let request = Request::post(self.address.clone())
            .header("content-type", "application/json")
            .header("accept", "text/event-stream");
        let response = self.send(request, body).await?;
        let status = response.status();
        let content_type = response.headers().get("content-type");
        let is_stream = content_type
            .and_then(|it| it.to_str().ok())
            .is_some_and(|it| {
                it.trim()
                    .to_ascii_lowercase()
                    .starts_with("text/event-stream")
            });
        let (parts, body) = response.into_parts();
        let stream = ModelStream {
            body,
            client: self.clone(),
        };
        if status.is_success() && is_stream {
            return Ok(stream);
        }
        Err(self.refusal(&parts, &stream.beginning(MAX_ERROR_BODY).await))
    }

    /// Asks the server for the names of its models. This is free, and shows whether the address and the key are right.
    ///
    /// # Errors
    ///
    /// As for [`call`](Self::call). [`ErrorKind::Malformed`] if the response is no list of models.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn models(&self) -> Result<Vec<String>, Error> {
        let request = Request::get(self.endpoint.address_of("/models")?);
        let (parts, body) = self.send(request, Vec::new()).await?.into_parts();
        let stream = ModelStream {
            body,
            client: self.clone(),
        };
        let body = stream.beginning(MAX_MODELS_BODY).await;
        if !parts.status.is_success() {
            return Err(self.refusal(&parts, &body));
        }
        let list: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        let models = list.as_ref().and_then(|list| list["data"].as_array());
        let models = models.ok_or_else(|| self.refusal(&parts, &body))?;
        let ids = models.iter().filter_map(|model| model["id"].as_str());
        Ok(ids.map(|id| crate::text::one_line(id, MAX_SHOWN)).collect())
    }

    /// Sends a request with the headers of the dialect.
    async fn send(&self, mut request: Builder, body: Vec<u8>) -> Result<Response<Incoming>, Error> {
        for (name, value) in self.own_headers() {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(body));
        let request = request
            .body(body)
            .expect("the parts of a request are valid");
        let sent = timeout(self.endpoint.idle_timeout, self.client.request(request));
        match sent.await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.not_sent(&error)),
            Err(_) => Err(self.silent("to answer")),
        }
    }

    /// Explains a response that isn't what was asked for.
    fn refusal(&self, parts: &Parts, beginning: &[u8]) -> Error {
        let headers = parts.headers.iter();
        let headers: Vec<(&str, &str)> = headers
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
            .collect();
        Error::from_response(&HttpResponse {
            status: parts.status.as_u16(),
            headers: &headers,
            body: beginning,
            key: self.endpoint.key.as_ref().map(|key| key.0.as_str()),
        })
    }

    /// Returns the headers of the dialect, with the key.
    fn own_headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let key = self.endpoint.key.as_ref();
        match self.endpoint.dialect {
            Dialect::Messages => {
                let version = HeaderValue::from_static(MESSAGES_VERSION);
                let version = (HeaderName::from_static("anthropic-version"), version);
                let key = key.map(|key| (HeaderName::from_static("x-api-key"), key.header("")));
                [version].into_iter().chain(key).collect()
            }
            Dialect::Responses | Dialect::Chat => {
                let key = key.map(|key| (hyper::header::AUTHORIZATION, key.header("Bearer ")));
                key.into_iter().collect()
            }
        }
    }

    fn host(&self) -> String {
        self.address
            .authority()
            .map(ToString::to_string)
            .unwrap_or_default()
    }

    fn silent(&self, what: &str) -> Error {
        let (host, time) = (self.host(), self.endpoint.idle_timeout);
        let message = format!("{host} took longer than {time:?} {what}; trying again may help");
        Error::new(ErrorKind::Silent, message)
    }

    /// Explains why a request could not be sent.
    fn not_sent(&self, error: &ClientError) -> Error {
        let host = self.host();
        let causes = causes(error);
        let cause = causes.last().cloned().unwrap_or_default();
        if let Some(proxy) = find::<ProxyError>(error) {
            return Error::new(ErrorKind::Settings, proxy.to_string());
        }
        if let Some(tls) = find::<rustls::Error>(error) {
            let message = match tls {
                rustls::Error::InvalidCertificate(_) => format!(
                    "{host} has no certificate that this system trusts: {cause}; check the base URL and the certificates of the system"
                ),
                _ => format!(
                    "{host} doesn't speak TLS as expected: {cause}; check whether the base URL begins with http:// or https://"
                ),
            };
            return Error::new(ErrorKind::Tls, message);
        }
        if error.is_connect() {
            let is_name = causes.iter().any(|it| it.contains("dns error"));
            let (why, next) = match is_name {
                true => (
                    "the name is not found",
                    "check the base URL and the network",
                ),
                false => (
                    cause.as_str(),
                    "check the base URL, and whether the server runs",
                ),
            };
            let message = format!("can't connect to {host}: {why}; {next}");
            return Error::new(ErrorKind::Connect, message);
        }
        let message = format!("the connection to {host} was lost: {cause}; trying again may help");
        Error::new(ErrorKind::Connect, message)
    }
}

/// The stream of a response. Dropping it closes its connection; [`finish`](Self::finish) keeps it.
#[derive(Debug)]
pub struct ModelStream {
    body: Incoming,
    client: ModelClient,
}

impl ModelStream {
    /// Returns the next bytes, for [`Decoder::push`](crate::Decoder::push); `None` at the end.
    ///
    /// # Errors
    ///
    /// An error if the connection is lost, or if the server is silent for [`Endpoint::idle_timeout`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no bytes.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let frame = timeout(self.client.endpoint.idle_timeout, self.body.frame()).await;
            match frame {
                Ok(None) => return Ok(None),
                Ok(Some(Ok(frame))) => {
                    // Trailers say nothing that the stream doesn't.
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Ok(Some(Err(error))) => {
                    let host = self.client.host();
                    let cause = causes(&error).pop().unwrap_or_default();
                    let message = format!(
                        "{host} ended the stream too early: {cause}; trying again may help"
                    );
                    return Err(Error::new(ErrorKind::Truncated, message));
                }
                Err(_) => return Err(self.client.silent("between two pieces of the stream")),
            }
        }
    }
}

impl ModelStream {
    /// Keeps the connection for the next call, after the final event of the response. A server ends the stream a moment after this event.
    ///
    /// A task waits for the end, for a second at most. Then it closes the connection.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn finish(self) {
        let mut body = self.body;
        tokio::spawn(async move {
            let end = async {
                for _ in 0..MAX_PIECES_AFTER_END {
                    if !matches!(body.frame().await, Some(Ok(_))) {
                        return;
                    }
                }
            };
            let _late = timeout(STREAM_END, end).await;
        });
    }

    /// Reads at most the first `max` bytes. If the rest can't be read, the beginning has to do.
    async fn beginning(mut self, max: usize) -> Vec<u8> {
        let mut beginning = Vec::new();
        while let Ok(Some(piece)) = self.next().await {
            beginning.extend_from_slice(&piece);
            if beginning.len() >= max {
                beginning.truncate(max);
                break;
            }
        }
        beginning
    }
}

/// Returns the texts of an error and of its causes, the deepest last.
fn causes(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let mut texts = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        texts.push(crate::text::one_line(&error.to_string(), MAX_SHOWN));
        next = error.source();
    }
    texts
}

/// Finds an error of a type among the causes.
fn find<'a, E: std::error::Error + 'static>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        // `source` skips the error inside an I/O error; only `get_ref` returns it.
        let inner = error.downcast_ref::<std::io::Error>();
        if let Some(inner) = inner.and_then(std::io::Error::get_ref) {
            let found = find::<E>(inner as &(dyn std::error::Error + 'static));
            if found.is_some() {
                return found;
            }
        }
        next = error.source();
    }
    None
}
