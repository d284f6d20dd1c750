//! The connection to a fleet.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::context::{ContextBuilder, PublishError};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{Context, object_store::ObjectStore, stream::Stream};
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use cancellable_sleep::SleepGate;
use percent_encoding::percent_decode_str;

use super::clock::now;
use super::error::{Error, Kind};
use super::names::Names;
use crate::Moment;
use crate::times::{ANSWER, CONNECT, PING, RECONNECT};

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
    /// Connects to the fleet `namespace` at a server address such as `nats://user:password@host:4222`, in which special characters are percent-encoded.
    /// Several addresses are separated by commas; the first user and password are used for all. The waits of this connection end when `gate` shuts
    /// down.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the server can't be reached within five seconds, [`Error::is_usage`] for a bad namespace or address,
    /// [`Error::is_unsupported`] for a WebSocket, and if the server is older than version 2.12.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn connect(servers: &str, namespace: &str, gate: SleepGate) -> Result<Self, Error> {
        let names = Names::new(namespace)?;
        if servers.contains("ws://") || servers.contains("wss://") {
            return Err(Kind::Unsupported {
                what: "a connection by WebSocket",
                instead: ": use nats:// or tls://",
            }
            .into());
        }
        let connected = Arc::new(AtomicU64::new(now().as_millis()));
        let changed = Arc::clone(&connected);
        let options = ConnectOptions::new()
            .name("rlm")
            .connection_timeout(CONNECT)
            .request_timeout(Some(ANSWER))
            .ping_interval(PING)
            .reconnect_delay_callback(|attempt| {
                let attempt = u32::try_from(attempt).unwrap_or(u32::MAX);
                (RECONNECT / 10).saturating_mul(attempt).min(RECONNECT)
            })
            .event_callback(move |event| {
                if matches!(event, Event::Connected) {
                    changed.store(now().as_millis(), Ordering::Relaxed);
                }
                std::future::ready(())
            });
        let failed = |cause: async_nats::ConnectError| Kind::Connect {
            server: without_password(servers),
            cause: cause.into(),
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
        let options = match addresses.iter().find_map(login) {
            Some((user, password)) => options.user_and_password(user, password),
            None => options,
        };
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
        })
    }

    /// Returns when the present connection was made.
    #[must_use]
    pub fn connected_at(&self) -> Moment {
        Moment::from_millis(self.connected.load(Ordering::Relaxed))
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
