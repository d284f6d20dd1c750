//! The transcripts of a run on the server: the worker of a run stores them in parts while they grow, and everybody can read them.
//!
//! They are for people. No decision depends on them, so they are not fenced, and a save never waits for them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::HeaderMap;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures_core::Stream as _;
use rlm_store::{RunId, TranscriptPart, UncopiedTranscripts};
use serde::Serialize;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::claim::Claimed;
use super::clock::now;
use super::error::{Error, Kind};
use super::fleet::Fleet;
use crate::times::{ANSWER, RECONNECT, TRANSCRIPT_INTERVAL, TRANSCRIPT_REST};

/// The largest part, in bytes.
const MOST: usize = 128 << 10;
/// The header with the iteration and the attempt of a part, and its position.
const PART: &str = "Rlm-Transcript";
/// The header with the epoch of the claim whose worker stored a message.
const EPOCH: &str = "Rlm-Epoch";

/// Stores the transcripts of a claimed run.
#[derive(Debug)]
pub struct TranscriptUpload {
    fleet: Fleet,
    subject: String,
    epoch: u64,
    /// Makes the ids of its messages unique: a removed run can have had the same name and epoch.
    id: Uuid,
    transcripts: Arc<Mutex<UncopiedTranscripts>>,
}

impl Claimed {
    /// Prepares to store the transcripts in the directory of the run.
    ///
    /// # Errors
    /// [`Error::is_usage`] if the name of the run has other characters than `A–Z a–z 0–9 _ -`.
    pub fn transcripts(&self, run_dir: PathBuf) -> Result<TranscriptUpload, Error> {
        let fleet = self.journal.fleet.clone();
        Ok(TranscriptUpload {
            subject: fleet.names.transcript(self.run())?,
            fleet,
            epoch: self.epoch,
            id: Uuid::new_v4(),
            transcripts: Arc::new(Mutex::new(UncopiedTranscripts::new(run_dir))),
        })
    }
}

impl TranscriptUpload {
    /// Stores what the transcripts get, until it is dropped. Tries again after each error, because a stream without a leader looks like a missing one.
    /// Returns only if the user of this connection may not store them.
    ///
    /// # Cancel safety
    /// Cancel safe: [`finish`](Self::finish) stores the rest.
    pub async fn serve(&self) -> Error {
        loop {
            let stored = self
                .fleet
                .permitted(self.store(UncopiedTranscripts::refresh));
            match stored.await {
                Err(e) if e.is_refused() => return e,
                _ => self.fleet.sleep_until(now() + TRANSCRIPT_INTERVAL).await,
            }
        }
    }

    /// Stores the rest, for at most ten seconds. Call it when no process of the run is left.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the server did not confirm all in this time, [`Error::is_usage`] if the fleet has no stream for transcripts,
    /// [`Error::is_refused`] if the user of this connection may not store them.
    ///
    /// # Cancel safety
    /// After a dropped future a part of the rest is stored.
    pub async fn finish(self) -> Result<(), Error> {
        let until = now() + TRANSCRIPT_REST;
        loop {
            let cause = match self.fleet.permitted(self.finish_once()).await {
                Err(cause) if !cause.is_refused() => cause,
                finished => return finished,
            };
            if now() >= until || self.fleet.gate.is_shutdown() {
                return Err(cause);
            }
            self.fleet.sleep_until(now() + RECONNECT).await;
        }
    }

    async fn finish_once(&self) -> Result<(), Error> {
        self.store(UncopiedTranscripts::refresh_all).await?;
        let end = PublishMessage::build().message_id(format!("{}.end", self.id));
        self.publish(end).await
    }

    /// Stores each part that is new after a refresh.
    async fn store(
        &self,
        refresh: fn(&mut UncopiedTranscripts) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        self.read(move |it| refresh(it).map(|()| None)).await?;
        while let Some(part) = self.read(|it| it.next_part(MOST)).await? {
            let (iteration, attempt, position) = (part.iteration, part.attempt, part.position);
            let place = format!("{iteration}.{attempt}.{position}");
            // A repeated publish of the same bytes has the same id. A part that has grown meanwhile is another one.
            let id = format!("{}.{place}.{}", self.id, part.bytes.len());
            let message = PublishMessage::build()
                .payload(Bytes::copy_from_slice(&part.bytes))
                .header(PART, place)
                .message_id(id);
            self.publish(message).await?;
            let transcripts = self.transcripts.lock();
            transcripts
                .unwrap_or_else(PoisonError::into_inner)
                .copied(&part);
        }
        Ok(())
    }

    /// Reads files without blocking the leases of this worker.
    async fn read(
        &self,
        read: impl FnOnce(&mut UncopiedTranscripts) -> std::io::Result<Option<TranscriptPart>>
        + Send
        + 'static,
    ) -> Result<Option<TranscriptPart>, Error> {
        let transcripts = Arc::clone(&self.transcripts);
        let read = spawn_blocking(move || {
            read(&mut transcripts.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let failed = |cause: std::io::Error| Error::unavailable("read a transcript", cause);
        read.await.map_err(|e| failed(e.into()))?.map_err(failed)
    }

    async fn publish(&self, message: PublishMessage) -> Result<(), Error> {
        let message = message.header(EPOCH, self.epoch.to_string());
        let published = self.fleet.publish(self.subject.clone(), message).await;
        match published {
            Ok(_) => Ok(()),
            Err(e) if e.kind() == PublishErrorKind::StreamNotFound => Err(no_stream(&self.fleet)),
            Err(cause) => Err(Error::unavailable("store a transcript", cause)),
        }
    }
}

fn no_stream(fleet: &Fleet) -> Error {
    let (what, name) = ("stream", fleet.names.transcripts());
    Kind::NoAsset { what, name }.into()
}

/// A message of [`StoredTranscripts`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredPart {
    /// A part of a transcript.
    Part {
        /// The epoch of the claim whose worker stored it.
        epoch: u64,
        /// The part.
        part: TranscriptPart,
    },
    /// The worker of this claim has stored all transcripts of the claim.
    Complete {
        /// The epoch of the claim.
        epoch: u64,
    },
}

/// Reads the stored transcripts of a run, in the order in which they were stored.
#[derive(Debug)]
pub struct StoredTranscripts {
    fleet: Fleet,
    /// The subject of the transcripts of the run.
    subject: String,
    /// The number after the last message that was read.
    next: u64,
    unread: VecDeque<StoredPart>,
}

/// A request for the next messages of a subject. Its fields are those of the server.
#[derive(Debug, Serialize)]
struct BatchRequest<'a> {
    seq: u64,
    next_by_subj: &'a str,
    batch: usize,
}

/// The number of parts in an answer.
const BATCH: usize = 64;

impl Fleet {
    /// Returns a reader for the stored transcripts of a run.
    ///
    /// # Errors
    /// [`Error::is_usage`] if the name of the run has other characters than `A–Z a–z 0–9 _ -`.
    pub fn transcripts(&self, run: &RunId) -> Result<StoredTranscripts, Error> {
        Ok(StoredTranscripts {
            subject: self.names.transcript(run)?,
            fleet: self.clone(),
            next: 1,
            unread: VecDeque::new(),
        })
    }

    /// Removes all stored transcripts of a run.
    pub(super) async fn remove_transcripts(&self, run: &RunId) -> Result<(), Error> {
        let stream = self.stream(self.names.transcripts()).await?;
        let purged = stream.purge().filter(self.names.transcript(run)?).await;
        purged
            .map(drop)
            .map_err(|e| Error::unavailable("remove the transcripts", e))
    }
}

impl StoredTranscripts {
    /// Returns the next part; `None` if the server has no more yet.
    ///
    /// # Errors
    /// [`Error::is_usage`] if the fleet has no stream for transcripts: an older version created it. [`Error::is_unavailable`] if the server does not
    /// answer; the next call asks again.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<Option<StoredPart>, Error> {
        if self.unread.is_empty() {
            self.fleet.clone().permitted(self.read()).await?;
        }
        Ok(self.unread.pop_front())
    }

    /// Asks for the next parts until there is one, or the server has no more. It needs no consumer: the user who creates one can let the server write to
    /// any subject.
    async fn read(&mut self) -> Result<(), Error> {
        let failed = |cause: async_nats::Error| Error::unavailable("read the transcripts", cause);
        let client = &self.fleet.client;
        while self.unread.is_empty() {
            let inbox = client.new_inbox();
            let mut answers = self.fleet.listen(inbox.clone()).await?;
            let request = BatchRequest {
                seq: self.next,
                next_by_subj: &self.subject,
                batch: BATCH,
            };
            let request = serde_json::to_vec(&request).map_err(|e| failed(e.into()))?;
            let subject = self.fleet.names.read_transcripts();
            let sent = client.publish_with_reply(subject, inbox, request.into());
            sent.await.map_err(|e| failed(e.into()))?;
            loop {
                let next =
                    std::future::poll_fn(|cx| std::pin::Pin::new(&mut answers).poll_next(cx));
                let answer = match tokio::time::timeout(ANSWER, next).await {
                    Ok(Some(answer)) => answer,
                    Ok(None) | Err(_) if !self.unread.is_empty() => break,
                    Ok(None) | Err(_) => return Err(failed("the server does not answer".into())),
                };
                match answer.status.map(|status| status.as_u16()) {
                    None | Some(200) => {}
                    Some(NO_MESSAGE) => return Ok(()),
                    Some(END_OF_BATCH) => break,
                    Some(NO_RESPONDERS) => return Err(no_stream(&self.fleet)),
                    Some(other) => {
                        let text = answer.description.unwrap_or_default();
                        return Err(failed(format!("{other} {text}").into()));
                    }
                }
                let headers = answer.headers.as_ref();
                let seq = headers.and_then(|it| header(it, SEQUENCE)?.parse::<u64>().ok());
                let seq = seq.ok_or_else(|| failed("a message has no number".into()))?;
                self.next = seq.saturating_add(1);
                // A newer version can store other messages.
                self.unread.extend(parse(&answer));
            }
        }
        Ok(())
    }
}

/// The states of an answer to a [`BatchRequest`], see ADR-31 of NATS.
const END_OF_BATCH: u16 = 204;
const NO_MESSAGE: u16 = 404;
const NO_RESPONDERS: u16 = 503;
/// The header with the number of a message in its stream.
const SEQUENCE: &str = "Nats-Sequence";

fn parse(message: &async_nats::Message) -> Option<StoredPart> {
    let headers = message.headers.as_ref()?;
    let epoch = header(headers, EPOCH)?.parse().ok()?;
    let Some(place) = header(headers, PART) else {
        return Some(StoredPart::Complete { epoch });
    };
    let mut numbers = place.splitn(3, '.');
    Some(StoredPart::Part {
        epoch,
        part: TranscriptPart {
            iteration: numbers.next()?.parse().ok()?,
            attempt: numbers.next()?.parse().ok()?,
            position: numbers.next()?.parse().ok()?,
            bytes: message.payload.to_vec(),
        },
    })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    Some(headers.get(name)?.as_str())
}
