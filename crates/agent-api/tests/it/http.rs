//! The client against real servers on this machine.

use std::time::Duration;

use agent_api::{Dialect, Endpoint, Error, ErrorKind, Key, ModelClient, Retry};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const KEY: &str = "sk-test-0123456789";
const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// A server that waits for one connection.
struct Server {
    listener: TcpListener,
    address: String,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        Self { listener, address }
    }

    fn client(&self, dialect: Dialect) -> ModelClient {
        let mut endpoint = Endpoint::new(dialect, &self.address);
        endpoint.key = Some(Key::new(KEY).unwrap());
        ModelClient::new(endpoint).unwrap()
    }

    /// Accepts a connection and reads a request with the body `{}`.
    async fn request(&self) -> (TcpStream, String) {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"{}") {
            assert!(stream.read_buf(&mut request).await.unwrap() > 0);
        }
        (stream, String::from_utf8(request).unwrap())
    }

    /// Responds to one request with these bytes and the end of the connection, and returns the error of the call.
    async fn refusal(&self, response: &str) -> Error {
        let client = self.client(Dialect::Chat);
        let serve = async {
            let (mut stream, _) = self.request().await;
            stream.write_all(response.as_bytes()).await.unwrap();
        };
        let (called, ()) = tokio::join!(client.call(b"{}".to_vec()), serve);
        called.unwrap_err()
    }
}

#[tokio::test]
async fn stream_arrives_piece_by_piece_and_the_request_has_the_key() {
    for (dialect, path, key) in [
        (
            Dialect::Messages,
            "/v1/messages",
            format!("x-api-key: {KEY}"),
        ),
        (
            Dialect::Responses,
            "/responses",
            format!("authorization: Bearer {KEY}"),
        ),
        (
            Dialect::Chat,
            "/chat/completions",
            format!("authorization: Bearer {KEY}"),
        ),
    ] {
        let server = Server::start().await;
        let client = server.client(dialect);
        assert!(!format!("{client:?}").contains(KEY));
        let (called, (mut stream, request)) = tokio::join!(client.call(b"{}".to_vec()), async {
            let (mut stream, request) = server.request().await;
            stream.write_all(STREAM.as_bytes()).await.unwrap();
            (stream, request)
        });
        assert!(
            request.starts_with(&format!("POST {path} HTTP/1.1\r\n")),
            "{request}"
        );
        assert!(request.contains(&key), "{request}");
        assert_eq!(
            request.contains("anthropic-version: "),
            dialect == Dialect::Messages
        );
        let mut response = called.unwrap();
        // Each piece is read before the server writes the next one.
        for piece in ["data: 1\n\n", "data: 2\n\n"] {
            let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
            stream.write_all(chunk.as_bytes()).await.unwrap();
            assert_eq!(response.next().await.unwrap().unwrap(), piece);
        }
        stream.write_all(b"0\r\n\r\n").await.unwrap();
        assert_eq!(response.next().await.unwrap(), None);
    }
}

#[tokio::test]
async fn finished_stream_gives_its_connection_to_the_next_call() {
    let server = Server::start().await;
    let client = server.client(Dialect::Chat);
    let (called, mut stream) = tokio::join!(client.call(b"{}".to_vec()), async {
        let (mut stream, _) = server.request().await;
        stream.write_all(STREAM.as_bytes()).await.unwrap();
        stream
    });
    let mut response = called.unwrap();
    stream.write_all(b"4\r\nlast\r\n").await.unwrap();
    assert_eq!(response.next().await.unwrap().unwrap(), "last");
    response.finish();
    // The end of the stream comes after its last event.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let serve = async {
        let mut request = Vec::new();
        while !request.ends_with(b"{}") {
            let read = stream.read_buf(&mut request).await.unwrap();
            assert!(read > 0, "the connection is closed");
        }
        stream.write_all(STREAM.as_bytes()).await.unwrap();
    };
    let (called, ()) = tokio::join!(client.call(b"{}".to_vec()), serve);
    drop(called.unwrap());
}

#[tokio::test]
async fn dropped_stream_closes_its_connection() {
    let server = Server::start().await;
    let client = server.client(Dialect::Chat);
    let (called, mut stream) = tokio::join!(client.call(b"{}".to_vec()), async {
        let (mut stream, _) = server.request().await;
        stream.write_all(STREAM.as_bytes()).await.unwrap();
        stream
    });
    drop(called.unwrap());
    let mut rest = Vec::new();
    // The end of the connection, or its reset.
    let _ended = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
}

#[tokio::test]
async fn each_failure_is_one_message_with_the_right_retry() {
    let page = "<!doctype html><title>Sign in</title>";
    let echo = format!("{{\"error\":{{\"message\":\"wrong key {KEY}\"}}}}");
    for (status, headers, body, kind, retry) in [
        (
            "401 Unauthorized",
            "",
            echo.as_str(),
            ErrorKind::Auth,
            Retry::Never,
        ),
        (
            "400 Bad Request",
            "",
            echo.as_str(),
            ErrorKind::BadRequest,
            Retry::Never,
        ),
        (
            "200 OK",
            "content-type: text/html\r\n",
            page,
            ErrorKind::Html,
            Retry::Never,
        ),
        (
            "302 Found",
            "location: https://elsewhere.test/v1\r\n",
            "",
            ErrorKind::Redirect,
            Retry::Never,
        ),
        (
            "500 Internal Server Error",
            "",
            "",
            ErrorKind::Server,
            Retry::Later(None),
        ),
    ] {
        let server = Server::start().await;
        let length = body.len();
        let response =
            format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}");
        let error = server.refusal(&response).await;
        assert_eq!((error.kind(), error.retry()), (kind, retry), "{error}");
        assert!(!error.to_string().contains(KEY), "{error}");
    }
}

#[tokio::test]
async fn server_that_is_absent_or_speaks_no_tls_is_named() {
    let server = Server::start().await;
    let address = server.address.clone();
    let https = address.replace("http:", "https:");
    let client = ModelClient::new(Endpoint::new(Dialect::Chat, https)).unwrap();
    let serve = async {
        let (mut stream, _) = server.listener.accept().await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        stream
    };
    let (called, _stream) = tokio::join!(client.call(b"{}".to_vec()), serve);
    let error = called.unwrap_err();
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::Tls, Retry::Never),
        "{error}"
    );

    drop(server);
    let client = ModelClient::new(Endpoint::new(Dialect::Chat, address)).unwrap();
    let error = client.call(b"{}".to_vec()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::Connect, Retry::Later(None)),
        "{error}"
    );
    assert!(
        error.to_string().contains("whether the server runs"),
        "{error}"
    );
}

#[tokio::test]
async fn stream_that_is_cut_or_silent_is_an_error() {
    let server = Server::start().await;
    let client = server.client(Dialect::Chat);
    let (called, ()) = tokio::join!(client.call(b"{}".to_vec()), async {
        let (mut stream, _) = server.request().await;
        stream.write_all(STREAM.as_bytes()).await.unwrap();
        stream.write_all(b"9\r\ndata: 1\n\n\r\n").await.unwrap();
    });
    let mut response = called.unwrap();
    assert!(response.next().await.unwrap().is_some());
    assert_eq!(
        response.next().await.unwrap_err().kind(),
        ErrorKind::Truncated
    );

    let mut endpoint = Endpoint::new(Dialect::Chat, &server.address);
    endpoint.idle_timeout = Duration::from_secs(1);
    let client = ModelClient::new(endpoint).unwrap();
    let (called, _stream) = tokio::join!(client.call(b"{}".to_vec()), server.request());
    assert_eq!(called.unwrap_err().kind(), ErrorKind::Silent);
    let (called, _stream) = tokio::join!(client.call(b"{}".to_vec()), async {
        let (mut stream, _) = server.request().await;
        stream.write_all(STREAM.as_bytes()).await.unwrap();
        stream
    });
    // The time for the first piece begins with the response, so a slow test can only be silent too.
    match called {
        Ok(mut response) => {
            assert_eq!(response.next().await.unwrap_err().kind(), ErrorKind::Silent)
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Silent),
    }
}

#[test]
fn address_or_key_that_can_not_be_right_is_refused() {
    for base in [
        "",
        "api.test",
        "ftp://api.test",
        "https://",
        "https://user:secret@api.test",
        "https://api.test/v1?key=secret",
    ] {
        let refused = ModelClient::new(Endpoint::new(Dialect::Chat, base)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Settings, "{base}");
        assert!(!refused.to_string().contains("user:secret"), "{refused}");
    }
    for key in ["", "  ", "sk\n-1", "sk-\u{fc}"] {
        let refused = Key::new(key).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Settings);
    }
}
