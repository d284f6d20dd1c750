//! Blobs in the object store, by their hash. A record is appended only after the object that it names, so no record names a missing object.

use std::fmt::Write as _;

use async_nats::jetstream::object_store::{InfoErrorKind, ObjectMetadata};
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::clock::now;
use super::error::Error;
use super::fleet::Fleet;
use super::names::is_plain;
use crate::times::RECONNECT;

/// The largest object that is read, in bytes: more than the largest save, and than most repositories.
const MAX_OBJECT: u64 = 1 << 30;
/// The size of a chunk, in bytes. Each chunk is read with one request, so small ones would take long over a slow network.
const CHUNK: usize = 512 << 10;
/// The maximum number of reads of an object. In a cluster that elects a leader, the first one can be lost.
const READS: u32 = 3;

/// The name of an object: the SHA-256 of its bytes, and their number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    sha256: String,
    size: u64,
}

impl ObjectId {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut sha256 = String::new();
        for byte in digest(&SHA256, bytes).as_ref() {
            let _never_fails = write!(sha256, "{byte:02x}");
        }
        let size = bytes.len() as u64;
        Self { sha256, size }
    }

    /// Returns the number of bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the SHA-256 in hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

impl Fleet {
    /// Stores an object. To store the same bytes again is no error, and sends nothing.
    pub(super) async fn put_object(&self, bytes: &[u8]) -> Result<ObjectId, Error> {
        let id = ObjectId::of(bytes);
        let store = self.objects().await?;
        let stored = store.info(&id.sha256).await;
        if stored.is_ok_and(|info| info.size as u64 == id.size && !info.deleted) {
            return Ok(id);
        }
        let mut from = bytes;
        let new = ObjectMetadata {
            name: id.sha256.clone(),
            chunk_size: Some(CHUNK.min(self.client.max_payload() / 2)),
            ..ObjectMetadata::default()
        };
        let put = store.put(new, &mut from).await;
        put.map_err(|cause| Error::unavailable("store an object", cause))?;
        Ok(id)
    }

    /// Reads an object, and checks its hash. `run` is the run that needs it, for the error.
    pub(super) async fn get_object(&self, run: &str, id: &ObjectId) -> Result<Vec<u8>, Error> {
        for _ in 1..READS {
            match self.read_object(run, id).await {
                Err(e) if e.is_unavailable() => self.sleep_until(now() + RECONNECT).await,
                read => return read,
            }
        }
        self.read_object(run, id).await
    }

    /// Reads an object chunk by chunk. The client library would create a consumer, and a user who may do that can let the server write to any subject.
    async fn read_object(&self, run: &str, id: &ObjectId) -> Result<Vec<u8>, Error> {
        let wrong = |why: &str| {
            let text = format!("object {} {why}", id.sha256);
            Err(Error::damaged(run, text))
        };
        let failed = |cause: async_nats::Error| Error::unavailable("read an object", cause);
        if id.size > MAX_OBJECT {
            return wrong("is larger than 1 GiB");
        }
        let store = self.objects().await?;
        let info = match store.info(&id.sha256).await {
            Ok(info) if !info.deleted && is_plain(&info.nuid) => info,
            Ok(_) => return wrong("is missing"),
            Err(e) if e.kind() == InfoErrorKind::NotFound => return wrong("is missing"),
            Err(cause) => return Err(failed(cause.into())),
        };
        let (stream, _) = self.names.object(&id.sha256);
        let (stream, subject) = (self.stream(stream).await?, self.names.chunks(&info.nuid));
        let (mut bytes, mut next) = (Vec::new(), 1);
        while (bytes.len() as u64) < id.size {
            let builder = stream.raw_message_builder();
            let chunk = builder.sequence(next).next_by_subject(&subject).send();
            match chunk.await {
                Ok(chunk) if !chunk.payload.is_empty() => {
                    bytes.extend_from_slice(&chunk.payload);
                    next = chunk.sequence.saturating_add(1);
                }
                Ok(_) => break,
                Err(e) if e.kind() == LastRawMessageErrorKind::NoMessageFound => break,
                Err(cause) => return Err(failed(cause.into())),
            }
        }
        match ObjectId::of(&bytes) == *id {
            true => Ok(bytes),
            false => wrong("has other bytes than its name says"),
        }
    }
}
