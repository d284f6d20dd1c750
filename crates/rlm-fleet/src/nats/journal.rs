//! The records of one run: reads from the leader of the stream, and appends by the decisions of an [`Appender`].

use std::collections::VecDeque;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use bytes::Bytes;
use rlm_store::RunId;
use uuid::Uuid;

use super::clock::now;
use super::error::Error;
use super::fleet::Fleet;
use super::record::{Meta, StoredRecord, decode, encode};
use crate::append::{AppendAnswer, AppendEnd, AppendInput, AppendOutput, Appender};
use crate::{Moment, RecordId, RecordKind};

/// The part of a message that is left free for its headers.
const HEADERS: usize = 1024;

/// The header with the names of the objects of a record, separated by commas. So a removal finds them without the bodies.
pub(super) const OBJECTS: &str = "Rlm-Objects";

/// A new record, before it is appended.
#[derive(Clone, Debug)]
pub(super) struct RunRecord {
    pub(super) id: RecordId,
    pub(super) meta: Meta,
    pub(super) body: Vec<u8>,
}

impl RunRecord {
    pub(super) fn new(epoch: u64, kind: RecordKind, stalled: u32) -> Self {
        let id = RecordId::new(Uuid::new_v4().as_u128());
        Self {
            id,
            meta: Meta::new(id, epoch, kind, stalled),
            body: Vec::new(),
        }
    }

    /// Creates a record that keeps what the record before it says about the run: its summary, its code, its pool, and its failed claims unless this
    /// record ends the row.
    pub(super) fn after(last: &StoredRecord, epoch: u64, kind: RecordKind, stalled: u32) -> Self {
        let mut record = Self::new(epoch, kind, stalled);
        record.meta.keep(&last.meta);
        if kind.ends_failed_claims() {
            record.meta.set_failed(&[]);
        }
        record
    }
}

/// The records of one run on the server.
#[derive(Clone, Debug)]
pub(super) struct RunJournal {
    pub(super) fleet: Fleet,
    pub(super) run: RunId,
    pub(super) subject: String,
    pub(super) stream: Stream<()>,
}

impl RunJournal {
    pub(super) async fn new(fleet: &Fleet, run: &RunId) -> Result<Self, Error> {
        Ok(Self {
            subject: fleet.names.run(run)?,
            stream: fleet.stream(fleet.names.runs()).await?,
            fleet: fleet.clone(),
            run: run.clone(),
        })
    }

    /// Reads the last record from the leader of the stream; `None` if the run has none.
    pub(super) async fn last(&self) -> Result<Option<StoredRecord>, Error> {
        let read = self.stream.get_last_raw_message_by_subject(&self.subject);
        self.read(read.await)
    }

    /// Reads the first record whose sequence number is at least `seq`.
    pub(super) async fn next(&self, seq: u64) -> Result<Option<StoredRecord>, Error> {
        let builder = self.stream.raw_message_builder();
        let read = builder.sequence(seq).next_by_subject(&self.subject).send();
        self.read(read.await)
    }

    fn read(
        &self,
        read: Result<StreamMessage, async_nats::error::Error<LastRawMessageErrorKind>>,
    ) -> Result<Option<StoredRecord>, Error> {
        match read {
            Ok(message) => {
                let stored_at = message.time.unix_timestamp_nanos() / 1_000_000;
                let stored_at = i64::try_from(stored_at).unwrap_or(0);
                let record = decode(message.sequence, stored_at, &message.payload);
                let wrong = |why| format!("record {}: {why}", message.sequence);
                let record = record.map_err(|why| Error::damaged(&self.run, wrong(why)))?;
                Ok(Some(record))
            }
            Err(e) if e.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(cause) => Err(Error::unavailable("read a record", cause)),
        }
    }

    /// Reads the body of a record.
    pub(super) async fn body(&self, record: StoredRecord) -> Result<Vec<u8>, Error> {
        match &record.meta.object {
            Some(object) => self.fleet.get_object(self.run.as_str(), object).await,
            None => Ok(record.body),
        }
    }

    /// Appends a record, and returns its number. Tries until `until`, and then ends the appender. The body of a large record becomes an object first.
    ///
    /// # Cancel safety
    /// After a dropped future the appender accepts no other record.
    pub(super) async fn append(
        &self,
        appender: &mut Appender,
        mut record: RunRecord,
        until: Moment,
    ) -> Result<u64, AppendEnd> {
        let largest = self.fleet.client.max_payload().saturating_sub(HEADERS);
        let mut message = encode(&record.meta, &record.body);
        while message.len() > largest && record.meta.object.is_none() {
            match self.fleet.put_object(&record.body).await {
                Ok(object) => {
                    record.meta.object = Some(object);
                    message = encode(&record.meta, &[]);
                }
                Err(_) => {
                    let again = now() + crate::times::RECONNECT;
                    self.fleet.sleep_until(again.min(until)).await;
                    if self.is_over(until) {
                        let _ended = appender.step(AppendInput::GiveUp, now());
                        return Err(AppendEnd::GaveUp);
                    }
                }
            }
        }
        let message = Bytes::from(message);
        let (id, objects) = (record.id, record.meta.objects().join(","));
        let mut outputs = VecDeque::from(appender.step(AppendInput::Append(id), now()));
        // An appender has an output until it is done or has ended.
        while let Some(output) = outputs.pop_front() {
            let input = match output {
                AppendOutput::Done { seq, .. } => return Ok(seq),
                AppendOutput::Ended(end) => return Err(end),
                AppendOutput::Busy { .. } => AppendInput::GiveUp,
                _ if self.is_over(until) => AppendInput::GiveUp,
                AppendOutput::Publish { call, expect, .. } => {
                    let answer = self.publish(id, &objects, message.clone(), expect).await;
                    AppendInput::Answer { call, answer }
                }
                AppendOutput::ReadLast { call } => {
                    let answer = match self.last().await {
                        Ok(last) => AppendAnswer::Last(last.map(|last| last.facts)),
                        Err(_) => AppendAnswer::ReadFailed,
                    };
                    AppendInput::Answer { call, answer }
                }
                AppendOutput::WaitUntil(at) => {
                    self.fleet.sleep_until(at.min(until)).await;
                    AppendInput::Time
                }
            };
            outputs.extend(appender.step(input, now()));
        }
        Err(AppendEnd::GaveUp)
    }

    fn is_over(&self, until: Moment) -> bool {
        now() >= until || self.fleet.gate.is_shutdown()
    }

    async fn publish(
        &self,
        id: RecordId,
        objects: &str,
        message: Bytes,
        expect: u64,
    ) -> AppendAnswer {
        let publish = PublishMessage::build()
            .payload(message)
            .header(OBJECTS, objects)
            .message_id(format!("{:032x}", id.bits()))
            .expected_last_subject_sequence(expect);
        let answered = self.fleet.publish(self.subject.clone(), publish).await;
        match answered {
            Ok(ack) if ack.duplicate => AppendAnswer::Duplicate,
            Ok(ack) => AppendAnswer::Stored(ack.sequence),
            Err(e) => match e.kind() {
                PublishErrorKind::WrongLastSequence => AppendAnswer::WrongLast,
                PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => AppendAnswer::NoAnswer,
                _ => AppendAnswer::NotReady,
            },
        }
    }
}

/// Returns the error of an append that ended.
pub(super) fn append_error(run: &RunId, end: AppendEnd, time: std::time::Duration) -> Error {
    use super::error::Kind;
    let run = run.to_string();
    match end {
        AppendEnd::Fenced { by } => Kind::Fenced { run, by }.into(),
        AppendEnd::Damaged { found } => {
            let found = found.map_or("none".to_owned(), |seq| seq.to_string());
            let why = format!("its last record is {found}, and earlier ones are missing");
            Kind::Damaged { run, why }.into()
        }
        AppendEnd::GaveUp => Kind::Unconfirmed { run, time }.into(),
    }
}
