//! The actor's side of the persistence thread: events are stored before they are published.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::command::{Interrupt, StopDeadline, answer, run_unless_stopped};
use crate::persistence::PersistenceThread;
use crate::shared::Shared;
use crate::{
    ConversationEvent, EndReason, Error, Event, InputState, Observation, PersistedRecord,
    QueuedMessages, SessionChoice, TurnEnd, TurnId, times,
};

/// The maximum number of message records to post without waiting for the store.
const MAX_UNCONFIRMED: usize = 64;

/// The actor's end of the persistence thread.
#[derive(Debug)]
pub(crate) struct PersistenceClient {
    shared: Arc<Shared>,
    persistence_thread: Option<Arc<PersistenceThread>>,
    /// The session that is stored as the one to continue.
    session: Option<String>,
    /// The turns that were assigned and are not completed; the agent's output belongs to the last one.
    running: Vec<TurnId>,
    unconfirmed: usize,
    /// The events that were being stored when a stop came. They are published after the next wait for the store.
    unpublished: Vec<ConversationEvent>,
}

impl PersistenceClient {
    pub(crate) fn new(
        shared: Arc<Shared>,
        persistence_thread: Option<Arc<PersistenceThread>>,
        session: Option<String>,
    ) -> Self {
        Self {
            shared,
            persistence_thread,
            session,
            running: Vec::new(),
            unconfirmed: 0,
            unpublished: Vec::new(),
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.persistence_thread.is_some()
    }

    /// Posts records, without waiting for the store.
    pub(super) fn post(&self, records: Vec<PersistedRecord>) {
        let (Some(persistence_thread), false) = (&self.persistence_thread, records.is_empty())
        else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        persistence_thread.post(records, move |stored| {
            stored
                .err()
                .into_iter()
                .for_each(|fault| shared.record_persistence_error(fault));
        });
    }

    /// Posts the records of events to publish, in a place that can't wait for the store.
    pub(super) fn persist_later(
        &mut self,
        events: Vec<ConversationEvent>,
    ) -> Vec<ConversationEvent> {
        let records = self.records(&events);
        self.post(records);
        events
    }

    /// Posts records, and returns the receiver for the result.
    fn ask(
        &mut self,
        records: Vec<PersistedRecord>,
    ) -> Option<oneshot::Receiver<Result<(), Error>>> {
        let persistence_thread = self.persistence_thread.as_ref()?;
        self.unconfirmed = 0;
        let (done, stored) = oneshot::channel();
        persistence_thread.post(records, move |result| {
            // The send fails if the actor has ended.
            let _nobody = done.send(result);
        });
        Some(stored)
    }

    fn records(&mut self, events: &[ConversationEvent]) -> Vec<PersistedRecord> {
        if self.persistence_thread.is_none() {
            return Vec::new();
        }
        let mut records: Vec<PersistedRecord> = Vec::new();
        for what in events {
            match what {
                ConversationEvent::Assigned(assignment) => {
                    if !assignment.injected {
                        self.running.push(assignment.turn);
                    }
                    records.push(PersistedRecord::Assigned(assignment.clone()));
                }
                ConversationEvent::Completed(completion) => {
                    self.running.retain(|turn| *turn != completion.turn);
                    records.push(PersistedRecord::Completed {
                        turn: completion.turn,
                        reason: completion.end.reason,
                        detail: completion.end.detail.clone(),
                    });
                }
                ConversationEvent::Observed(seen) => self.observed(seen, &mut records),
                ConversationEvent::Lifecycle(_) | ConversationEvent::ReplayTruncated => {}
            }
        }
        // An agent that could not create a session has not named it, so no later agent may continue it.
        let session = match self.shared.lock().ledger.session() {
            SessionChoice::Resume(id) => Some(id.clone()),
            _ => None,
        };
        if self.session != session {
            self.session.clone_from(&session);
            records.push(PersistedRecord::Session { id: session });
        }
        records
    }

    fn observed(&self, seen: &Observation, records: &mut Vec<PersistedRecord>) {
        for event in &seen.events {
            match event {
                Event::Input {
                    id,
                    state: InputState::Dropped(_),
                } => records.push(PersistedRecord::Dropped { receipt: *id }),
                Event::Message { text, partial } => records.push(PersistedRecord::Message {
                    turn: self.running.last().copied(),
                    text: text.clone(),
                    partial: *partial,
                }),
                _ => {}
            }
        }
    }

    fn failed(&self, events: &mut [ConversationEvent]) {
        let fault = self
            .shared
            .lock()
            .persistence_error
            .as_ref()
            .map(ToString::to_string);
        let Some(fault) = fault else {
            return;
        };
        for what in events {
            if let ConversationEvent::Completed(completion) = what {
                completion.end = failure(&fault);
            }
        }
    }

    /// Stores events, and then publishes them. If `stop_deadline` is `None`, the conversation is already ending, and the wait has a
    /// time limit.
    pub(super) async fn store_and_publish(
        &mut self,
        events: Vec<ConversationEvent>,
        stop_deadline: Option<&mut StopDeadline>,
    ) {
        let records = self.records(&events);
        let messages = records
            .iter()
            .all(|record| matches!(record, PersistedRecord::Message { .. }));
        self.unconfirmed += records.len();
        let stored = if records.is_empty() || (messages && self.unconfirmed < MAX_UNCONFIRMED) {
            self.post(records);
            // Earlier events must be published first.
            (stop_deadline.is_none() || self.unpublished.is_empty()).then_some(())
        } else {
            self.store(records, stop_deadline).await
        };
        self.unpublished.extend(events);
        if stored.is_some() {
            self.publish_unpublished();
        }
    }

    /// Stores records; returns `None` if the conversation is stopped before the result is known. An error of the store is recorded in [`Shared`].
    pub(super) async fn store(
        &mut self,
        records: Vec<PersistedRecord>,
        stop_deadline: Option<&mut StopDeadline>,
    ) -> Option<()> {
        let failed = self.shared.lock().persistence_error.is_some();
        let Some(stored) = self.ask(records).filter(|_| !failed) else {
            return Some(());
        };
        let stored = match stop_deadline {
            Some(stop_deadline) => run_unless_stopped(stop_deadline, stored).await?,
            None => timeout(times::PERSIST_TIMEOUT, stored)
                .await
                .unwrap_or_else(|_| Ok(Err(late_failure()))),
        };
        if let Err(fault) = stored.unwrap_or_else(|_| Err(late_failure())) {
            self.shared.record_persistence_error(fault);
        }
        Some(())
    }

    /// Drops the waiting inputs.
    pub(super) async fn drop_waiting(&mut self, stop_deadline: &mut StopDeadline) {
        let why = "the turn was interrupted";
        let events = self.shared.lock().ledger.drop_waiting(why);
        self.store_and_publish(events, Some(stop_deadline)).await;
    }

    /// Handles an interrupt of an idle agent.
    pub(super) async fn idle(&mut self, stop_deadline: &mut StopDeadline, interrupt: Interrupt) {
        if interrupt.queued == QueuedMessages::Drop {
            self.drop_waiting(stop_deadline).await;
        }
        answer(interrupt.done, Ok(()));
    }

    pub(super) fn publish(&self, mut events: Vec<ConversationEvent>) {
        self.failed(&mut events);
        self.shared.lock().publish_all(events);
    }

    /// Publishes the events that waited for the store, stored or not.
    pub(super) fn publish_unpublished(&mut self) {
        let events = std::mem::take(&mut self.unpublished);
        self.publish(events);
    }
}

/// Returns the end of a turn whose conversation can't be stored.
pub(super) fn failure(fault: &str) -> TurnEnd {
    TurnEnd {
        detail: fault.to_owned(),
        ..EndReason::Failed.into()
    }
}

fn late_failure() -> Error {
    let text = "a record was not stored in time; check the storage";
    Error::persistence(text, None)
}
