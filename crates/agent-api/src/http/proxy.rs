//! Connects directly, or through the proxy that the environment names.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Connecting = Pin<Box<dyn Future<Output = Result<TokioIo<TcpStream>, BoxError>> + Send>>;

/// A connector that uses the proxy of the environment, if one is named for the address. It never uses a proxy for this machine.
#[derive(Clone, Debug)]
pub(super) struct ProxyConnector {
    direct: HttpConnector,
    proxies: Arc<Matcher>,
    timeout: Duration,
}

/// A proxy that can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyError {
    /// The address begins with `http://`, and the proxy too.
    PlainHttp,
    /// The proxy has another scheme than `http` and `socks5`.
    Scheme,
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PlainHttp => {
                "an address that begins with http:// is not supported through an HTTP proxy; use https://, or name its host in NO_PROXY"
            }
            Self::Scheme => "the proxy must begin with http:// or socks5://; change HTTPS_PROXY or ALL_PROXY",
        })
    }
}

impl std::error::Error for ProxyError {}

impl ProxyConnector {
    pub(super) fn from_environment(timeout: Duration) -> Self {
        let mut direct = HttpConnector::new();
        // The TLS connector passes `https` addresses to it.
        direct.enforce_http(false);
        direct.set_nodelay(true);
        let proxies = Arc::new(Matcher::from_env());
        Self {
            direct,
            proxies,
            timeout,
        }
    }

    fn proxy_for(&self, address: &Uri) -> Option<Intercept> {
        let host = address
            .host()?
            .trim_start_matches('[')
            .trim_end_matches(']');
        let is_here = host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|it| it.is_loopback());
        match is_here {
            true => None,
            false => self.proxies.intercept(address),
        }
    }

    async fn connect(mut self, address: Uri) -> Result<TokioIo<TcpStream>, BoxError> {
        let Some(proxy) = self.proxy_for(&address) else {
            return Ok(self.direct.call(address).await?);
        };
        let to = proxy.uri().clone();
        match to.scheme_str() {
            Some("http") if address.scheme_str() == Some("http") => {
                Err(ProxyError::PlainHttp.into())
            }
            Some("http") => {
                let mut tunnel = Tunnel::new(to, self.direct);
                if let Some(auth) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(auth.clone());
                }
                Ok(tunnel.call(address).await?)
            }
            Some(scheme @ ("socks5" | "socks5h")) => {
                let mut socks = SocksV5::new(to.clone(), self.direct).local_dns(scheme == "socks5");
                if let Some((user, password)) = proxy.raw_auth() {
                    socks = socks.with_auth(user.to_owned(), password.to_owned());
                }
                Ok(socks.call(address).await?)
            }
            _ => Err(ProxyError::Scheme.into()),
        }
    }
}

impl Service<Uri> for ProxyConnector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, address: Uri) -> Connecting {
        let (connector, limit) = (self.clone(), self.timeout);
        Box::pin(async move {
            match tokio::time::timeout(limit, connector.connect(address)).await {
                Ok(connected) => connected,
                Err(_) => {
                    let why = format!("no connection within {limit:?}");
                    Err(std::io::Error::new(std::io::ErrorKind::TimedOut, why).into())
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    fn with(proxy: &str) -> ProxyConnector {
        let mut connector = ProxyConnector::from_environment(Duration::from_secs(10));
        connector.proxies = Arc::new(Matcher::builder().all(proxy).no("inside.test").build());
        connector
    }

    #[tokio::test]
    async fn https_goes_through_a_tunnel_with_the_password_of_the_proxy() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("http://user:secret@{}", listener.local_addr().unwrap());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let len = stream.read(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut through = [0; 5];
            stream.read_exact(&mut through).await.unwrap();
            assert_eq!(&through, b"hello");
            String::from_utf8(request[..len].to_vec()).unwrap()
        };
        let connect = async {
            let address = "https://api.test/v1".parse().unwrap();
            let mut connected = with(&proxy).connect(address).await.unwrap();
            connected.inner_mut().write_all(b"hello").await.unwrap();
        };
        let (request, ()) = tokio::join!(serve, connect);
        assert!(
            request.starts_with("CONNECT api.test:443 HTTP/1.1\r\n"),
            "{request}"
        );
        let request = request.to_ascii_lowercase();
        assert!(request.contains("proxy-authorization: basic "), "{request}");
    }

    #[tokio::test]
    async fn proxy_that_can_not_be_used_is_an_error() {
        for (proxy, address, why) in [
            (
                "http://127.0.0.1:1",
                "http://api.test/v1",
                ProxyError::PlainHttp,
            ),
            (
                "https://127.0.0.1:1",
                "https://api.test/v1",
                ProxyError::Scheme,
            ),
        ] {
            let refused = with(proxy)
                .connect(address.parse().unwrap())
                .await
                .unwrap_err();
            assert_eq!(refused.downcast_ref(), Some(&why));
        }
    }

    #[test]
    fn this_machine_and_named_hosts_are_reached_directly() {
        let connector = with("http://127.0.0.1:1");
        for (address, is_direct) in [
            ("http://localhost:11434/v1", true),
            ("http://127.0.0.1/v1", true),
            ("http://[::1]:80/v1", true),
            ("https://inside.test/v1", true),
            ("https://api.test/v1", false),
        ] {
            let proxy = connector.proxy_for(&address.parse().unwrap());
            assert_eq!(proxy.is_none(), is_direct, "{address}");
        }
    }
}
