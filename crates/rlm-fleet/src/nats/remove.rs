//! The removal of a run that has ended: its records, its requests, its transcripts, and the objects that no other run names.

use std::collections::{BTreeMap, BTreeSet};

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::object_store::DeleteErrorKind;
use futures_core::Stream as _;
use rlm_store::RunId;

use super::clock::now;
use super::error::{Error, Kind};
use super::fleet::Fleet;
use super::journal::{OBJECTS, RunJournal, RunRecord, append_error};
use super::names::run_of;
use crate::RecordKind;
use crate::append::Appender;
use crate::times::SUBMIT;

/// The number of removed things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The records of the run, with the record of its removal.
    pub records: u64,
    /// The objects that only this run named.
    pub objects: u64,
}

/// The runs that name each object.
type References = BTreeMap<String, BTreeSet<RunId>>;

impl Fleet {
    /// Removes a run that has ended or is parked: its records, its requests, its transcripts, and the objects that no other run names. Afterwards its
    /// name is free.
    ///
    /// A record of the removal comes first, so a process that still works on the run appends nothing more. A removal that was interrupted can be
    /// repeated.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if the fleet has no such run, [`Error::is_newer`] if a newer version saved it, [`Error::is_usage`] if it has not ended, [`Error::is_fenced`] if somebody changed it at the
    /// same moment, [`Error::is_unavailable`] if the server does not answer.
    ///
    /// # Cancel safety
    /// After a dropped future a part of the run can be removed. Repeat the call.
    pub async fn remove(&self, run: &RunId) -> Result<Removed, Error> {
        let journal = RunJournal::new(self, run).await?;
        let last = self.last_known(run).await?;
        let (mut references, mut seen) = (References::new(), 0);
        // Before the record of the removal, because a user that may not remove runs may not read this either.
        self.add_references(&mut references, &mut seen).await?;
        let mut end = last.facts.seq;
        match last.facts.kind {
            RecordKind::Remove => {}
            _ if last.is_over() => {
                let (kind, epoch) = (RecordKind::Remove, last.facts.epoch + 1);
                let record = RunRecord::after(&last, epoch, kind, last.facts.stalled);
                let mut appender = Appender::new(end, epoch);
                let appended = journal.append(&mut appender, record, now() + SUBMIT).await;
                end = appended.map_err(|e| append_error(run, e, SUBMIT))?;
            }
            _ => {
                let run = run.to_string();
                return Err(Kind::NotOver { run }.into());
            }
        }
        self.add_references(&mut references, &mut seen).await?;
        let own: Vec<String> = { references.iter() }
            .filter(|(_, runs)| runs.contains(run))
            .map(|(object, _)| object.clone())
            .collect();
        let mut removed = Removed::default();
        for object in own {
            // A run that was submitted meanwhile can name it too.
            self.add_references(&mut references, &mut seen).await?;
            let others = references[&object].len() - 1;
            if others == 0 {
                removed.objects += u64::from(self.delete_object(&object).await?);
            }
            self.add_references(&mut references, &mut seen).await?;
            let late = references[&object].iter().filter(|other| *other != run);
            let late: Vec<&str> = late.map(RunId::as_str).collect();
            if others == 0 && !late.is_empty() {
                let (run, others) = (run.to_string(), late.join(", "));
                return Err(Kind::RemovedShared { run, others }.into());
            }
        }
        // A later run of the same name must not have them.
        self.remove_requests(run).await?;
        self.remove_transcripts(run).await?;
        let purge = journal
            .stream
            .purge()
            .sequence(end + 1)
            .filter(&journal.subject);
        let purged = purge
            .await
            .map_err(|e| Error::unavailable("remove the records", e))?;
        removed.records = purged.purged;
        Ok(removed)
    }

    /// Reads which runs name which objects, in the records after the number `seen`.
    async fn add_references(
        &self,
        references: &mut References,
        seen: &mut u64,
    ) -> Result<(), Error> {
        let failed = |e: async_nats::Error| Error::unavailable("read the names of objects", e);
        let stream = self.stream(self.names.runs()).await?;
        let config = pull::OrderedConfig {
            filter_subject: self.names.all_runs(),
            headers_only: true,
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: *seen + 1,
            },
            ..pull::OrderedConfig::default()
        };
        let consumer = stream.create_consumer(config).await;
        let consumer = consumer.map_err(|e| failed(e.into()))?;
        let mut pending = consumer.cached_info().num_pending;
        let messages = consumer.messages().await;
        let mut messages = Box::pin(messages.map_err(|e| failed(e.into()))?);
        while pending > 0 {
            let next = std::future::poll_fn(|cx| messages.as_mut().poll_next(cx)).await;
            let Some(message) = next else {
                return Err(failed("the server sends no more".into()));
            };
            let message = message.map_err(|e| failed(e.into()))?;
            let info = message.info().map_err(failed)?;
            (pending, *seen) = (info.pending, info.stream_sequence);
            let Some(run) = run_of(&message.subject) else {
                continue;
            };
            let names = message.headers.as_ref().and_then(|it| it.get(OBJECTS));
            let names = names.map_or("", |names| names.as_str());
            for name in names.split(',').filter(|name| !name.is_empty()) {
                let runs = references.entry(name.to_owned()).or_default();
                runs.insert(run.clone());
            }
        }
        Ok(())
    }

    /// Deletes an object. Returns whether it was there.
    async fn delete_object(&self, name: &str) -> Result<bool, Error> {
        let store = self.objects().await?;
        match store.delete(name).await {
            Ok(()) => {}
            Err(e) if e.kind() == DeleteErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(Error::unavailable("remove an object", e)),
        }
        // The deletion leaves a message. With it, the next `put` of the same bytes would remove chunks, and only an operator may do that.
        let (stream, subject) = self.names.object(name);
        let stream = self.stream(stream).await?;
        let purged = stream.purge().filter(subject).await;
        purged.map_err(|e| Error::unavailable("remove an object", e))?;
        Ok(true)
    }
}
