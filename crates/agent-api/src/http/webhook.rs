//! Posts JSON to a webhook: an address that is a secret itself, so no message contains any part of it.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, StatusCode, Uri};
use tokio::time::timeout;

use super::{HttpsClient, Key, connect_error, https_client};
use crate::error::{Error, ErrorKind};

/// The maximum number of bytes of a response. A longer one counts as an acknowledgement too, if its status is one.
const MAX_RESPONSE: usize = 16 << 10;

/// A client that posts JSON to one webhook. Its `Debug` form doesn't show the address.
///
/// No message of an error contains the address, its host or the key: the address of a webhook is a secret. No redirect is followed.
#[derive(Clone)]
pub struct WebhookClient {
    address: Uri,
    key: Option<Key>,
    client: HttpsClient,
}

impl std::fmt::Debug for WebhookClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookClient")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl WebhookClient {
    /// Creates a client for an `http` or `https` address. It sends the key, if any, as a bearer token. It connects at the first call, through the
    /// proxy that the environment names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Settings`] if the address is invalid or has a user or a password, or the certificates of the system can't be read.
    pub fn new(address: &str, key: Option<Key>, connect_timeout: Duration) -> Result<Self, Error> {
        let wrong = |why: &str| {
            let message = format!("the address of the webhook {why}; it begins with https://");
            Error::new(ErrorKind::Settings, message)
        };
        let address: Uri = address.parse().map_err(|_| wrong("is no address"))?;
        let authority = address.authority().map_or("", |it| it.as_str());
        if authority.contains('@') {
            return Err(wrong("has a user or a password"));
        }
        match (address.scheme_str(), address.host()) {
            (Some("http" | "https"), Some(host)) if !host.is_empty() => {}
            _ => return Err(wrong("is no http or https address")),
        }
        let client = https_client(&address, connect_timeout)?;
        Ok(Self {
            address,
            key,
            client,
        })
    }

    /// Posts a JSON text, and returns the status of an acknowledgement: a number from 200 to 299.
    ///
    /// # Errors
    ///
    /// An error if there is no connection, if the server does not respond within `limit`, or if its status is no acknowledgement.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection. The server may have received the request.
    pub async fn post(&self, json: Vec<u8>, limit: Duration) -> Result<u16, Error> {
        let mut request =
            Request::post(self.address.clone()).header("content-type", "application/json");
        if let Some(key) = &self.key {
            request = request.header(hyper::header::AUTHORIZATION, key.header("Bearer "));
        }
        let request = request.body(Full::new(Bytes::from(json)));
        let request = request.expect("the parts of a request are valid");
        let exchange = async {
            let response = self.client.request(request).await;
            let response = response.map_err(|e| connect_error(&e))?;
            let status = response.status();
            // A read response leaves the connection usable. Its content says nothing that the status doesn't.
            let _content = Limited::new(response.into_body(), MAX_RESPONSE)
                .collect()
                .await;
            Ok(status)
        };
        let status = match timeout(limit, exchange).await {
            Ok(status) => status?,
            Err(_) => {
                let message = format!("the server did not respond within {limit:?}");
                return Err(Error::new(ErrorKind::Silent, message));
            }
        };
        match status.is_success() {
            true => Ok(status.as_u16()),
            false => Err(refusal(status)),
        }
    }
}

/// Explains a status that is no acknowledgement.
fn refusal(status: StatusCode) -> Error {
    let number = status.as_u16();
    let (kind, next) = match number {
        300..=399 => (ErrorKind::Redirect, "use the address that it leads to"),
        401 | 403 => (ErrorKind::Auth, "check its key"),
        404 | 410 => (ErrorKind::BadRequest, "check its address"),
        429 => (ErrorKind::RateLimited(None), "it limits the rate"),
        500..=599 => (ErrorKind::Server, "it has a failure of its own"),
        _ => (ErrorKind::BadRequest, "check its address and its preset"),
    };
    Error::new(kind, format!("the server responded HTTP {number}: {next}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    const LIMIT: Duration = Duration::from_secs(10);

    /// Posts to a server that responds with `response`, and returns the result and the request.
    async fn posted(response: &str, key: Option<Key>) -> (Result<u16, Error>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = format!("http://127.0.0.1:{port}/s3cret?also=s3cret");
        let client = WebhookClient::new(&address, key, LIMIT).unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"{}") {
                stream.read_buf(&mut request).await.unwrap();
            }
            stream.write_all(response.as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap()
        };
        tokio::join!(client.post(b"{}".to_vec(), LIMIT), serve)
    }

    #[tokio::test]
    async fn status_2xx_is_the_acknowledgement() {
        let key = Key::new("token").unwrap();
        let response = "HTTP/1.1 204 No Content\r\n\r\n";
        let (sent, request) = posted(response, Some(key)).await;
        assert_eq!(sent, Ok(204));
        let lower = request.to_lowercase();
        assert!(
            request.starts_with("POST /s3cret?also=s3cret HTTP/1.1"),
            "{request}"
        );
        assert!(lower.contains("authorization: bearer token"), "{request}");
        assert!(lower.contains("application/json"), "{request}");
    }

    #[tokio::test]
    async fn refusal_names_the_status_and_no_part_of_the_address() {
        for (status, kind) in [
            (302, ErrorKind::Redirect),
            (400, ErrorKind::BadRequest),
            (401, ErrorKind::Auth),
            (404, ErrorKind::BadRequest),
            (429, ErrorKind::RateLimited(None)),
            (500, ErrorKind::Server),
        ] {
            let to = "location: http://127.0.0.1/s3cret\r\ncontent-length: 6\r\n\r\ns3cret";
            let (sent, _) = posted(&format!("HTTP/1.1 {status} X\r\n{to}"), None).await;
            let error = sent.unwrap_err();
            assert_eq!(error.kind(), kind);
            let text = error.to_string();
            let has_secret = text.contains("s3cret") || text.contains("127.0.0.1");
            assert!(text.contains(&status.to_string()) && !has_secret, "{text}");
        }
    }

    #[tokio::test]
    async fn missing_server_and_wrong_address_are_named_without_the_address() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let address = format!("http://127.0.0.1:{port}/s3cret");
        let client = WebhookClient::new(&address, None, LIMIT).unwrap();
        let error = client.post(Vec::new(), LIMIT).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect);
        let text = error.to_string();
        assert!(
            text.contains("can't connect") && !text.contains("127.0.0.1"),
            "{text}"
        );
        let shown = format!("{client:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
        for wrong in [
            "s3cret",
            "ftp://s3cret/",
            "http://a:s3cret@host/",
            "https://",
        ] {
            let error = WebhookClient::new(wrong, None, LIMIT).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Settings);
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
}
