//! The requests of people to a run, from any machine. A request is recorded on the server first; then the owner of the run is asked to read it. So no request
//! is lost, and all are in one order, whether the run has an owner or not.

use std::time::Duration;

use async_nats::client::{Request as NatsRequest, RequestErrorKind};
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use async_nats::{HeaderMap, StatusCode, Subscriber};
use bytes::Bytes;
use futures_core::Stream as _;
use loop_state::{Request, StopTiming};
use rlm_store::{RemoteMessage, RunId};
use tokio::sync::{Notify, mpsc};
use uuid::Uuid;

use super::clock::now;
use super::error::{Error, Kind};
use super::fleet::Fleet;
use super::submit::TOO_MANY;
use crate::times::{ANSWER, OWNER_ANSWER, RECORD};

/// The subject for the responses to a request.
const REPLY: &str = "Rlm-Reply";
/// The time for which the sender of a request waits for responses, in milliseconds.
const WAIT: &str = "Rlm-Wait-Ms";
/// The number of response lines that can wait for the connection.
const LINES: usize = 64;
/// The longest time for which an owner responds to one message.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// A request that the server has. The owner of the run applies it once; without an owner, the next one does.
#[derive(Debug)]
pub struct RecordedRequest {
    /// The number of the request. A later request of the run has a higher number.
    pub number: u64,
    /// Whether the owner of the run knows of the request.
    pub owner: OwnerState,
    responses: Responses,
}

/// The owner of a run, as another machine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// Its process answered.
    Alive,
    /// Its process is connected, or was a moment ago, but did not answer within two seconds.
    Silent,
    /// No process works on the run.
    None,
}

/// The lines with which the owner of a run responds.
#[derive(Debug)]
pub struct Responses(Subscriber);

impl Responses {
    /// Waits for the next line; `None` after the last one, and if `within` passes first.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self, within: Duration) -> Option<Vec<u8>> {
        let next = std::future::poll_fn(|cx| std::pin::Pin::new(&mut self.0).poll_next(cx));
        let message = tokio::time::timeout(within, next).await.ok()??;
        let is_line = message.status.is_none() && !message.payload.is_empty();
        is_line.then(|| message.payload.to_vec())
    }
}

impl RecordedRequest {
    /// Waits for the next response line of the owner; see [`Responses::next`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self, within: Duration) -> Option<Vec<u8>> {
        self.responses.next(within).await
    }
}

impl Fleet {
    /// Records a request to a run, and asks the owner of the run to apply it. `line` is the line that the control socket of a run accepts; the owner
    /// responds for at most `wait`.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if the fleet has no such run. [`Error::is_unavailable`] if the server did not confirm the request: it may be recorded.
    ///
    /// # Cancel safety
    /// After a dropped future the request is recorded, or not.
    pub async fn record_request(
        &self,
        run: &RunId,
        line: Vec<u8>,
        wait: Duration,
    ) -> Result<RecordedRequest, Error> {
        self.last(run).await?;
        let reply = self.names.new_reply();
        let responses = self.listen(reply.clone()).await?;
        let number = self.publish_request(run, line, &reply, wait).await?;
        let owner = self.wake_owner(run).await?;
        Ok(RecordedRequest {
            number,
            owner,
            responses: Responses(responses),
        })
    }

    /// Sends a query to the owner of a run, and returns its responses; `None` if no process works on the run. `line` is the line that the control socket
    /// accepts.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the connection is lost.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn query(
        &self,
        run: &RunId,
        line: Vec<u8>,
        wait: Duration,
    ) -> Result<Option<(Vec<u8>, Responses)>, Error> {
        let failed = |cause: async_nats::Error| Error::unavailable("ask the worker", cause);
        let reply = self.names.new_reply();
        let mut responses = self.listen(reply.clone()).await?;
        let mut headers = HeaderMap::new();
        headers.insert(WAIT, wait.as_millis().to_string());
        let subject = self.names.live(run)?;
        let sent = self
            .client
            .publish_with_reply_and_headers(subject, reply, headers, line.into());
        sent.await.map_err(|e| failed(e.into()))?;
        let next = std::future::poll_fn(|cx| std::pin::Pin::new(&mut responses).poll_next(cx));
        match tokio::time::timeout(OWNER_ANSWER, next).await {
            Ok(Some(first)) if first.status == Some(StatusCode::NO_RESPONDERS) => Ok(None),
            Ok(Some(first)) => Ok(Some((first.payload.to_vec(), Responses(responses)))),
            _ => Err(failed("its process does not answer".into())),
        }
    }

    pub(super) async fn listen(&self, subject: String) -> Result<Subscriber, Error> {
        let failed = |cause: async_nats::Error| Error::unavailable("listen for messages", cause);
        let listening = self.client.subscribe(subject).await;
        listening.map_err(|e| failed(e.into()))
    }

    /// Publishes a request. Each try has the same id, so the server records it once.
    async fn publish_request(
        &self,
        run: &RunId,
        line: Vec<u8>,
        reply: &str,
        wait: Duration,
    ) -> Result<u64, Error> {
        let (subject, line) = (self.names.request(run)?, Bytes::from(line));
        let id = Uuid::new_v4().simple().to_string();
        let until = now() + RECORD;
        loop {
            let publish = PublishMessage::build()
                .payload(line.clone())
                .message_id(&id)
                .header(REPLY, reply)
                .header(WAIT, wait.as_millis().to_string());
            let answered = self.publish(subject.clone(), publish).await;
            let cause = match answered {
                // The answer to a repeated publish has the number of the first.
                Ok(ack) => return Ok(ack.sequence),
                Err(cause) => cause,
            };
            match cause.kind() {
                PublishErrorKind::StreamNotFound => {
                    let (what, name) = ("stream", self.names.requests());
                    return Err(Kind::NoAsset { what, name }.into());
                }
                PublishErrorKind::MaxPayloadExceeded => return Err(Kind::LargeRequest.into()),
                PublishErrorKind::Other if cause.to_string().contains(TOO_MANY) => {
                    let run = run.to_string();
                    return Err(Kind::ManyRequests { run }.into());
                }
                _ if now() >= until || self.gate.is_shutdown() => {
                    return Err(Error::unavailable("record the request", cause));
                }
                _ => self.sleep_until(now() + crate::times::RECONNECT).await,
            }
        }
    }

    /// Asks the owner of a run to read its requests now.
    async fn wake_owner(&self, run: &RunId) -> Result<OwnerState, Error> {
        let request = NatsRequest::new()
            .timeout(Some(OWNER_ANSWER))
            .payload(Bytes::new());
        let answered = self
            .client
            .send_request(self.names.live(run)?, request)
            .await;
        Ok(match answered {
            Ok(_) => OwnerState::Alive,
            Err(e) if e.kind() == RequestErrorKind::NoResponders => OwnerState::None,
            Err(_) => OwnerState::Silent,
        })
    }

    /// Removes all recorded requests of a run.
    pub(super) async fn remove_requests(&self, run: &RunId) -> Result<(), Error> {
        let stream = self.stream(self.names.requests()).await?;
        let purged = stream.purge().filter(self.names.request(run)?).await;
        purged
            .map(drop)
            .map_err(|e| Error::unavailable("remove the requests", e))
    }

    /// Returns the number of the last recorded request of a run; 0 if there is none.
    pub(super) async fn last_request(&self, run: &RunId) -> Result<u64, Error> {
        let stream = self.stream(self.names.requests()).await?;
        let subject = self.names.request(run)?;
        match stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => Ok(message.sequence),
            Err(e) if is_none(&e.kind()) => Ok(0),
            Err(cause) => Err(Error::unavailable("read the requests", cause)),
        }
    }
}

/// The recorded requests of one run, from the first that its state does not have.
#[derive(Clone, Debug)]
pub(super) struct RunRequests {
    fleet: Fleet,
    subject: String,
    stream: Stream<()>,
    /// The number of the last request that was read.
    last: u64,
    /// A stop up to this number is over, because a person resumed the run after it.
    resumed_at: u64,
}

/// A recorded request.
struct StoredRequest {
    line: Vec<u8>,
    number: u64,
    reply: Option<String>,
    wait: Duration,
}

impl RunRequests {
    /// Creates the requests of a run after the one with the number `applied`.
    pub(super) async fn new(
        fleet: &Fleet,
        run: &RunId,
        applied: u64,
        resumed_at: u64,
    ) -> Result<Self, Error> {
        Ok(Self {
            subject: fleet.names.request(run)?,
            stream: fleet.stream(fleet.names.requests()).await?,
            fleet: fleet.clone(),
            last: applied,
            resumed_at,
        })
    }

    /// Reads the next request from the leader of the stream; `None` if there is none yet.
    async fn next(&mut self) -> Result<Option<StoredRequest>, Error> {
        loop {
            let builder = self.stream.raw_message_builder();
            let read = builder
                .sequence(self.last + 1)
                .next_by_subject(&self.subject);
            let message = match read.send().await {
                Ok(message) => message,
                Err(e) if is_none(&e.kind()) => return Ok(None),
                Err(cause) => return Err(Error::unavailable("read the requests", cause)),
            };
            self.last = message.sequence;
            let line = message.payload.to_vec();
            if message.sequence <= self.resumed_at && is_stop_now(&line) {
                continue;
            }
            let header = |name: &str| Some(message.headers.get(name)?.as_str().to_owned());
            return Ok(Some(StoredRequest {
                line,
                number: message.sequence,
                reply: header(REPLY),
                wait: wait_of(header(WAIT)),
            }));
        }
    }

    /// Returns whether a person requested a stop that the run has not applied. Then the run has no reason to start.
    pub(super) async fn has_stop(mut self) -> Result<bool, Error> {
        while let Some(request) = self.next().await? {
            if is_stop_now(&request.line) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns whether there is no request. A fleet that an older program created has no stream for them.
fn is_none(kind: &LastRawMessageErrorKind) -> bool {
    match kind {
        LastRawMessageErrorKind::NoMessageFound => true,
        LastRawMessageErrorKind::JetStream(e) => e.error_code() == ErrorCode::STREAM_NOT_FOUND,
        _ => false,
    }
}

/// Returns whether a line requests to stop the run now.
fn is_stop_now(line: &[u8]) -> bool {
    let request = serde_json::from_slice::<Request>(line);
    let stop = request.ok().and_then(|request| request.stop());
    stop.is_some_and(|stop| stop.when == StopTiming::Now)
}

fn wait_of(millis: Option<String>) -> Duration {
    let millis = millis.and_then(|millis| millis.parse().ok());
    millis
        .map_or(ANSWER, Duration::from_millis)
        .min(LONGEST_WAIT)
}

/// Passes the messages of other machines to the process of a run, until it is dropped.
pub(super) struct RemoteMessages {
    to_run: mpsc::Sender<RemoteMessage>,
    responses: ResponseTasks,
    live: Subscriber,
    requests: RunRequests,
    /// The interval in which the requests are read without a message.
    interval: Duration,
}

impl RemoteMessages {
    pub(super) async fn new(
        requests: RunRequests,
        run: &RunId,
        interval: Duration,
        to_run: mpsc::Sender<RemoteMessage>,
        responses: ResponseTasks,
    ) -> Result<Self, Error> {
        let live = requests
            .fleet
            .listen(requests.fleet.names.live(run)?)
            .await?;
        Ok(Self {
            to_run,
            responses,
            live,
            requests,
            interval,
        })
    }

    /// Runs until the process of the run accepts no more messages.
    pub(super) async fn serve(self) {
        let Self {
            to_run,
            responses,
            live,
            mut requests,
            interval,
        } = self;
        let is_new = Notify::new();
        let fleet = requests.fleet.clone();
        let recorded = async {
            while !to_run.is_closed() && !fleet.gate.is_shutdown() {
                // After an error, the next interval tries again.
                while let Ok(Some(request)) = requests.next().await {
                    let message = RemoteMessage {
                        line: request.line,
                        number: Some(request.number),
                        wait: request.wait,
                        to: responses.begin(&fleet, request.reply),
                    };
                    if to_run.send(message).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    () = is_new.notified() => {}
                    () = fleet.sleep_until(now() + interval) => {}
                }
            }
        };
        tokio::select! {
            () = recorded => {}
            () = answer(&fleet, live, &to_run, &responses, &is_new) => {}
        }
    }
}

/// Answers the messages to the owner of a run: an empty one announces a request, any other is a query.
async fn answer(
    fleet: &Fleet,
    mut live: Subscriber,
    to_run: &mpsc::Sender<RemoteMessage>,
    responses: &ResponseTasks,
    is_new: &Notify,
) {
    let mut next =
        async || std::future::poll_fn(|cx| std::pin::Pin::new(&mut live).poll_next(cx)).await;
    while let Some(message) = next().await {
        if message.payload.is_empty() {
            is_new.notify_one();
            if let Some(to) = message.reply {
                // Without this answer, the sender reports a silent owner; its request is recorded all the same.
                let _lost = fleet.client.publish(to, "{}".into()).await;
            }
            continue;
        }
        let headers = message.headers.unwrap_or_default();
        let wait = headers.get(WAIT).map(|wait| wait.as_str().to_owned());
        // Without room the query gets no answer, and changes nothing.
        let _full = to_run.try_send(RemoteMessage {
            line: message.payload.to_vec(),
            number: None,
            wait: wait_of(wait),
            to: responses.begin(fleet, message.reply.map(|to| to.to_string())),
        });
    }
}

/// The tasks that send responses. The end of the run waits for them, so that it is reported too.
#[derive(Clone, Debug)]
pub(super) struct ResponseTasks {
    is_running: mpsc::Sender<()>,
}

impl ResponseTasks {
    /// Creates the tasks, and a receiver that is closed when all are over.
    pub(super) fn new() -> (Self, mpsc::Receiver<()>) {
        let (is_running, over) = mpsc::channel(1);
        (Self { is_running }, over)
    }

    /// Begins to send response lines to a subject. An empty message follows the last line.
    fn begin(&self, fleet: &Fleet, reply: Option<String>) -> mpsc::Sender<Vec<u8>> {
        let (to, mut lines) = mpsc::channel::<Vec<u8>>(LINES);
        let Some(reply) = reply.filter(|reply| fleet.names.is_reply(reply)) else {
            return to;
        };
        let (client, running) = (fleet.client.clone(), self.is_running.clone());
        tokio::spawn(async move {
            let largest = client.max_payload();
            while let Some(line) = lines.recv().await {
                // A view can be larger than a message; a viewer then sees the next one.
                if line.len() <= largest
                    && client.publish(reply.clone(), line.into()).await.is_err()
                {
                    break;
                }
            }
            let _lost = client.publish(reply, Bytes::new()).await;
            drop(running);
        });
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stop_now_ends_a_run_that_did_not_begin() {
        for (line, is_stop) in [
            (r#"{"v":1,"program":"rlm 1","request":"stop"}"#, true),
            (r#"{"v":1,"request":"stop","when":"now"}"#, true),
            (r#"{"v":1,"request":"abort"}"#, true),
            (r#"{"v":1,"request":"stop","when":"iteration"}"#, false),
            (r#"{"v":1,"request":"steer","text":"stop"}"#, false),
            (r#"{"v":1,"request":"new"}"#, false),
            ("stop", false),
        ] {
            assert_eq!(is_stop_now(line.as_bytes()), is_stop, "{line}");
        }
    }
}
