//! The errors of a server that can't start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the server can't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The address is not that of this machine, and nothing encrypts.
    #[error(
        "`{0}` is not 127.0.0.1, and nothing encrypts the page there (--tls-cert does); or connect with: ssh -L {port}:127.0.0.1:{port} HOST",
        port = match .0.port() { 0 => "PORT".to_owned(), port => port.to_string() }
    )]
    NotLocalhost(SocketAddr),
    /// The page is encrypted, and nothing says under which name browsers find it.
    #[error("the address of the page for browsers is missing, such as https://runs.example:8443")]
    NoUrl,
    /// A certificate, a key or a password can't be used.
    #[error("can't use `{path}`: {1}", path = .0.display())]
    File(PathBuf, String),
    /// The port can't be used.
    #[error("can't listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// Another process serves the page.
    #[error("another process serves the page already")]
    Running,
    /// The socket for other commands can't be created.
    #[error("can't create the socket `{path}`: {1}", path = .0.display())]
    Socket(PathBuf, io::Error),
    /// The system has no random numbers.
    #[error("can't get random numbers: {0}")]
    Random(io::Error),
}
