//! The drain of a worker from any machine: the worker hands its runs over and ends, as after SIGTERM.

use async_nats::Subscriber;
use async_nats::client::{Request, RequestErrorKind};
use bytes::Bytes;
use futures_core::Stream as _;

use super::clock::now;
use super::error::{Error, Kind};
use super::fleet::Fleet;
use crate::times::{DRAIN, DRAIN_INTERVAL, OWNER_ANSWER};

/// The message that asks a worker whether it is there.
const PING: &[u8] = b"ping";
/// The message that drains a worker.
const DRAIN_WORD: &[u8] = b"drain";

/// The drain requests to one worker.
#[derive(Debug)]
pub struct DrainRequests {
    fleet: Fleet,
    messages: Subscriber,
}

impl DrainRequests {
    /// Waits for a drain request, and answers it. Waits forever if the connection is closed.
    ///
    /// # Cancel safety
    /// Cancel safe, except that a request can be answered and not returned.
    pub async fn next(&mut self) {
        loop {
            let next =
                std::future::poll_fn(|cx| std::pin::Pin::new(&mut self.messages).poll_next(cx));
            let Some(message) = next.await else {
                return std::future::pending().await;
            };
            if let Some(to) = message.reply {
                // The sender asks again.
                let _lost = self.fleet.client.publish(to, "{}".into()).await;
            }
            if message.payload == DRAIN_WORD {
                return;
            }
        }
    }
}

impl Fleet {
    /// Begins to listen for the drain of the worker `worker`, until the result is dropped.
    ///
    /// # Errors
    /// [`Error::is_usage`] if the name has other characters than `A–Z a–z 0–9 _ -`.
    pub async fn drain_requests(&self, worker: &str) -> Result<DrainRequests, Error> {
        Ok(DrainRequests {
            fleet: self.clone(),
            messages: self.listen(self.names.worker(worker)?).await?,
        })
    }

    /// Drains the workers of this name: they hand their runs over and end. Returns when no worker of this name is left.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if there is no such worker, [`Error::is_unavailable`] if it does not answer, or has not ended within ten seconds.
    ///
    /// # Cancel safety
    /// After a dropped future the worker is drained, or not.
    pub async fn drain(&self, worker: &str) -> Result<(), Error> {
        if !self.reach_worker(worker, DRAIN_WORD).await? {
            let worker = worker.to_owned();
            return Err(Kind::NoWorker { worker }.into());
        }
        let until = now() + DRAIN;
        while self.reach_worker(worker, PING).await.unwrap_or(true) {
            if now() >= until || self.gate.is_shutdown() {
                let worker = worker.to_owned();
                return Err(Kind::Draining { worker }.into());
            }
            self.sleep_until(now() + DRAIN_INTERVAL).await;
        }
        Ok(())
    }

    /// Sends a message to a worker, and returns whether there is such a worker.
    async fn reach_worker(&self, worker: &str, message: &'static [u8]) -> Result<bool, Error> {
        let request = Request::new()
            .timeout(Some(OWNER_ANSWER))
            .payload(Bytes::from_static(message));
        let answered = self
            .client
            .send_request(self.names.worker(worker)?, request)
            .await;
        match answered {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == RequestErrorKind::NoResponders => Ok(false),
            Err(cause) => Err(Error::unavailable("reach the worker", cause)),
        }
    }
}
