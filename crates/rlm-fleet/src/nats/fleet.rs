//! The connection to a fleet.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::context::{ContextBuilder, PublishError};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{Context, object_store::ObjectStore, stream::Stream};
use async_nats::{Client, ConnectOptions, Event, ServerAddr, ServerError};
use cancellable_sleep::SleepGate;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::clock::now;
use super::error::{Error, Kind};
use super::names::{Names, is_plain};
use crate::Moment;
use crate::times::{ANSWER, CONNECT, PING, RECONNECT, REFUSAL};

/// The servers of a fleet, and its name there.
#[derive(Clone, Serialize, Deserialize)]
pub struct FleetAddress {
    /// The addresses of the servers, such as `nats://user:password@host:4222`, separated by commas. Special characters are percent-encoded. The first
    /// user and password are used for all. If one begins with `tls://`, all servers must have TLS.
    pub servers: String,
    /// The namespace of the fleet.
    pub namespace: String,
    /// A file with the certificates of the authorities that the servers' certificates need, as PEM; all servers must have TLS then. `None` for the
    /// authorities of the system.
    pub tls_ca: Option<PathBuf>,
}

impl FleetAddress {
    /// Creates the address of a fleet on servers with certificates of the system's authorities, or without TLS.
    #[must_use]
    pub fn new(servers: impl Into<String>, namespace: impl Into<String>) -> Self {
        let (servers, namespace) = (servers.into(), namespace.into());
        Self {
            servers,
            namespace,
            tls_ca: None,
        }
    }

    fn needs_tls(&self) -> bool {
        let mut addresses = self.servers.split(',');
        self.tls_ca.is_some() || addresses.any(|address| address.trim().starts_with("tls://"))
    }
}

impl fmt::Debug for FleetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetAddress")
            .field("servers", &without_password(&self.servers))
            .field("namespace", &self.namespace)
            .field("tls_ca", &self.tls_ca)
            .finish()
    }
}

/// A connection to a fleet. Clones share it.
///
/// If the connection breaks, it is made again in the background, again and again. Meanwhile each operation fails after three seconds with
/// [`Error::is_unavailable`].
#[derive(Clone)]
pub struct Fleet {
    pub(super) client: Client,
    pub(super) context: Context,
    pub(super) names: Names,
    pub(super) gate: SleepGate,
    /// When the present connection was made, in milliseconds of the clock.
    connected: Arc<AtomicU64>,
    /// Changes when the connection is lost, and when it is made again.
    connections: watch::Receiver<()>,
    /// The newest message of the server that it refused an operation to this user.
    refused: watch::Receiver<Option<String>>,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address can have a password.
        f.debug_struct("Fleet")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Fleet {
    /// Connects to a fleet. The waits of this connection end when `gate` shuts down.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the server can't be reached within five seconds, [`Error::is_usage`] for a bad namespace or address, and for a file of
    /// certificates that can't be used; [`Error::is_unsupported`] for a WebSocket, and if the server is older than version 2.12.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn connect(address: &FleetAddress, gate: SleepGate) -> Result<Self, Error> {
        let names = Names::new(&address.namespace)?;
        let servers = address.servers.as_str();
        if servers.contains("ws://") || servers.contains("wss://") {
            return Err(Kind::Unsupported {
                what: "a connection by WebSocket",
                instead: ": use nats:// or tls://",
            }
            .into());
        }
        let connected = Arc::new(AtomicU64::new(now().as_millis()));
        let changed = Arc::clone(&connected);
        let (refuse, refused) = watch::channel(None);
        let (change, connections) = watch::channel(());
        let mut options = ConnectOptions::new()
            // The server can name other servers of its cluster, without the scheme of this address.
            .require_tls(address.needs_tls())
            .name("rlm")
            .connection_timeout(CONNECT)
            .request_timeout(Some(ANSWER))
            .ping_interval(PING)
            .reconnect_delay_callback(|attempt| {
                let attempt = u32::try_from(attempt).unwrap_or(u32::MAX);
                (RECONNECT / 10).saturating_mul(attempt).min(RECONNECT)
            })
            .event_callback(move |event| {
                match event {
                    Event::Connected => {
                        changed.store(now().as_millis(), Ordering::Relaxed);
                        change.send_replace(());
                    }
                    Event::Disconnected => {
                        change.send_replace(());
                    }
                    Event::ServerError(ServerError::Other(text)) if is_refusal(&text) => {
                        refuse.send_replace(Some(text));
                    }
                    _ => {}
                }
                std::future::ready(())
            });
        if let Some(path) = &address.tls_ca {
            expect_certificates(path)?;
            options = options.add_root_certificates(path.clone());
        }
        let failed = |cause: async_nats::ConnectError| {
            let (server, text) = (without_password(servers), cause.to_string());
            let cause = cause.into();
            match text.contains("certificate") {
                true => Kind::Certificate { server, cause },
                false => Kind::Connect { server, cause },
            }
        };
        let addresses = servers.split(',').map(|address| address.trim().parse());
        let addresses: Vec<ServerAddr> =
            addresses
                .collect::<Result<_, _>>()
                .map_err(|e: std::io::Error| Kind::Address {
                    server: without_password(servers),
                    cause: e.into(),
                })?;
        // The client library ignores the user in an address.
        if let Some((user, password)) = addresses.iter().find_map(login) {
            if is_plain(&user) {
                // So the permissions of a server can keep the answers to one user from the others.
                options = options.custom_inbox_prefix(format!("_INBOX.{user}"));
            }
            options = options.user_and_password(user, password);
        }
        let client = options.connect(addresses).await.map_err(failed)?;
        if !client.is_server_compatible(2, 12, 0) {
            let found = client.server_info().version;
            return Err(Kind::OldServer { found }.into());
        }
        let context = ContextBuilder::new().timeout(ANSWER).build(client.clone());
        Ok(Self {
            client,
            context,
            names,
            gate,
            connected,
            connections,
            refused,
        })
    }

    /// Waits for an operation on this fleet. If the server refuses a part of it to the user of this connection, the error names the missing permission.
    /// The operation alone would get no answer, and try again.
    ///
    /// # Errors
    /// Those of the operation, and [`Error::is_refused`].
    ///
    /// # Cancel safety
    /// That of the operation. A refused operation is dropped.
    pub async fn permitted<T>(
        &self,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut refused = self.refused.clone();
        refused.mark_unchanged();
        let mut operation = std::pin::pin!(operation);
        tokio::select! {
            biased;
            done = &mut operation => return done,
            Ok(()) = refused.changed() => {}
        }
        // The operation may not need the refused part.
        tokio::select! {
            biased;
            done = &mut operation => done.map_err(|e| match e.is_unavailable() {
                true => refusal(&refused),
                false => e,
            }),
            () = self.sleep_until(now() + REFUSAL) => Err(refusal(&refused)),
        }
    }

    /// Returns when the present connection was made.
    #[must_use]
    pub fn connected_at(&self) -> Moment {
        Moment::from_millis(self.connected.load(Ordering::Relaxed))
    }

    /// Returns a receiver that changes when the connection is lost from now on.
    pub(super) fn connections(&self) -> watch::Receiver<()> {
        let mut connections = self.connections.clone();
        connections.mark_unchanged();
        connections
    }

    pub(super) async fn stream(&self, name: String) -> Result<Stream<()>, Error> {
        let found = self.context.get_stream_no_info(&name).await;
        found.map_err(|cause| Error::unavailable("find a stream", cause))
    }

    /// Publishes a message to a stream, and waits for the confirmation of the server.
    pub(super) async fn publish(
        &self,
        subject: String,
        message: PublishMessage,
    ) -> Result<PublishAck, PublishError> {
        self.context.send_publish(subject, message).await?.await
    }

    pub(super) async fn objects(&self) -> Result<ObjectStore, Error> {
        let name = self.names.blobs();
        let found = self.context.get_object_store(&name).await;
        found.map_err(|cause| Error::unavailable("find the object store", cause))
    }

    /// Sleeps until a moment, or until the gate of this connection shuts down.
    pub(super) async fn sleep_until(&self, at: Moment) {
        let time: Duration = at.since(now());
        let _woken_or_over = self.gate.sleep(time).await;
    }
}

/// Returns whether a message of the server says that it refused an operation to the user.
fn is_refusal(text: &str) -> bool {
    text.to_lowercase().contains("permissions violation")
}

fn refusal(refused: &watch::Receiver<Option<String>>) -> Error {
    let message = refused.borrow().clone().unwrap_or_default();
    Kind::Refused { message }.into()
}

/// Fails if a file has no certificate. The client library takes such a file for no authority at all.
fn expect_certificates(path: &Path) -> Result<(), Error> {
    let why = match std::fs::read_to_string(path) {
        Ok(text) if text.contains("-----BEGIN CERTIFICATE-----") => return Ok(()),
        Ok(_) => "it has no certificate as PEM".into(),
        Err(e) => e.to_string(),
    };
    let path = path.display().to_string();
    Err(Kind::CertificateFile { path, why }.into())
}

/// Returns the user and the password of an address, without the percent signs of a URL.
fn login(address: &ServerAddr) -> Option<(String, String)> {
    let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let user = address.username()?;
    Some((plain(user), plain(address.password().unwrap_or_default())))
}

/// Returns addresses without their user names and passwords, for messages.
fn without_password(servers: &str) -> String {
    let plain = |address: &str| match address.rsplit_once('@') {
        Some((before, host)) => match before.split_once("://") {
            Some((scheme, _)) => format!("{scheme}://{host}"),
            None => host.to_owned(),
        },
        None => address.to_owned(),
    };
    let addresses: Vec<String> = servers.split(',').map(plain).collect();
    addresses.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_with_an_address_has_no_password() {
        let shown = without_password("nats://alice:s3c@ret@a:4222,bob:x@b,c:1");
        assert_eq!(shown, "nats://a:4222,b,c:1");
    }
}
