//! The actor's side of the persistence thread: events are stored before they are published.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::command::{Halt, Interrupt, answer, unless_halted};
use crate::persistence::Keeper;
use crate::shared::Shared;
use crate::{
    EndReason, Error, Event, InputState, Observation, Queued, Record, SessionChoice, TurnEnd,
    TurnId, What, times,
};

/// The maximum number of message records to post without waiting for the store.
const UNAWAITED: usize = 64;

/// The actor's end of the persistence thread.
#[derive(Debug)]
pub(crate) struct Keeps {
    shared: Arc<Shared>,
    keeper: Option<Arc<Keeper>>,
    /// The session that is stored as the one to continue.
    session: Option<String>,
    /// The turns that were assigned and are not completed; the agent's output belongs to the last one.
    running: Vec<TurnId>,
    unawaited: usize,
    /// The events to publish once they are stored: a halt came first.
    untold: Vec<What>,
}

impl Keeps {
    pub(crate) fn new(
        shared: Arc<Shared>,
        keeper: Option<Arc<Keeper>>,
        session: Option<String>,
    ) -> Self {
        Self {
            shared,
            keeper,
            session,
            running: Vec::new(),
            unawaited: 0,
            untold: Vec::new(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.keeper.is_some()
    }

    /// Posts records, without waiting for the store.
    pub(super) fn post(&self, records: Vec<Record>) {
        let (Some(keeper), false) = (&self.keeper, records.is_empty()) else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        keeper.post(records, move |kept| {
            kept.err()
                .into_iter()
                .for_each(|fault| shared.failed(fault));
        });
    }

    /// Posts the records of events to publish, in a place that can't wait for the store.
    pub(super) fn tell_later(&mut self, told: Vec<What>) -> Vec<What> {
        let records = self.records(&told);
        self.post(records);
        told
    }

    /// Posts records, and returns the receiver for the result.
    fn ask(&mut self, records: Vec<Record>) -> Option<oneshot::Receiver<Result<(), Error>>> {
        let keeper = self.keeper.as_ref()?;
        self.unawaited = 0;
        let (done, kept) = oneshot::channel();
        keeper.post(records, move |result| {
            // The send fails if the actor has ended.
            let _nobody = done.send(result);
        });
        Some(kept)
    }

    fn records(&mut self, told: &[What]) -> Vec<Record> {
        if self.keeper.is_none() {
            return Vec::new();
        }
        let mut records: Vec<Record> = Vec::new();
        for what in told {
            match what {
                What::Assigned(assignment) => {
                    if !assignment.injected {
                        self.running.push(assignment.turn);
                    }
                    records.push(Record::Assigned(assignment.clone()));
                }
                What::Completed(completion) => {
                    self.running.retain(|turn| *turn != completion.turn);
                    records.push(Record::Completed {
                        turn: completion.turn,
                        reason: completion.end.reason,
                        detail: completion.end.detail.clone(),
                    });
                }
                What::Observed(seen) => self.observed(seen, &mut records),
                What::Lifecycle(_) | What::ReplayTruncated => {}
            }
        }
        let session = match self.shared.lock().ledger.session() {
            SessionChoice::Resume(id) => Some(id.clone()),
            _ => None,
        };
        if self.session != session {
            self.session.clone_from(&session);
            records.push(Record::Session { id: session });
        }
        records
    }

    fn observed(&self, seen: &Observation, records: &mut Vec<Record>) {
        for event in &seen.events {
            match event {
                Event::Input {
                    id,
                    state: InputState::Dropped(_),
                } => records.push(Record::Dropped { receipt: *id }),
                Event::Message { text, partial } => records.push(Record::Message {
                    turn: self.running.last().copied(),
                    text: text.clone(),
                    partial: *partial,
                }),
                _ => {}
            }
        }
    }

    fn failed(&self, told: &mut [What]) {
        let fault = self.shared.lock().fault.as_ref().map(ToString::to_string);
        let Some(fault) = fault else {
            return;
        };
        for what in told {
            if let What::Completed(completion) = what {
                completion.end = failure(&fault);
            }
        }
    }

    /// Stores events, and then publishes them. Without a `halt` the conversation is ending, and the wait has a time limit.
    pub(super) async fn tell(&mut self, told: Vec<What>, halt: Option<&mut Halt>) {
        let records = self.records(&told);
        let messages = records
            .iter()
            .all(|record| matches!(record, Record::Message { .. }));
        self.unawaited += records.len();
        let kept = if records.is_empty() || (messages && self.unawaited < UNAWAITED) {
            self.post(records);
            // Earlier events must be published first.
            (halt.is_none() || self.untold.is_empty()).then_some(())
        } else {
            self.keep(records, halt).await
        };
        self.untold.extend(told);
        if kept.is_some() {
            self.publish_rest();
        }
    }

    /// Stores records; returns `None` if the conversation is halted before the result is known. Records a persistence fault.
    pub(super) async fn keep(
        &mut self,
        records: Vec<Record>,
        halt: Option<&mut Halt>,
    ) -> Option<()> {
        let failed = self.shared.lock().fault.is_some();
        let Some(kept) = self.ask(records).filter(|_| !failed) else {
            return Some(());
        };
        let kept = match halt {
            Some(halt) => unless_halted(halt, kept).await?,
            None => timeout(times::KEEPING, kept)
                .await
                .unwrap_or_else(|_| Ok(Err(late()))),
        };
        if let Err(fault) = kept.unwrap_or_else(|_| Err(late())) {
            self.shared.failed(fault);
        }
        Some(())
    }

    /// Drops the waiting inputs.
    pub(super) async fn drop_waiting(&mut self, halt: &mut Halt) {
        let why = "the turn was interrupted";
        let told = self.shared.lock().ledger.drop_waiting(why);
        self.tell(told, Some(halt)).await;
    }

    /// Handles an interrupt of an idle agent.
    pub(super) async fn idle(&mut self, halt: &mut Halt, interrupt: Interrupt) {
        if interrupt.queued == Queued::Drop {
            self.drop_waiting(halt).await;
        }
        answer(interrupt.done, Ok(()));
    }

    pub(super) fn publish(&self, mut told: Vec<What>) {
        self.failed(&mut told);
        self.shared.lock().publish_all(told);
    }

    /// Publishes the events that waited for the store, stored or not.
    pub(super) fn publish_rest(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        self.publish(untold);
    }
}

/// Returns the end of a turn whose conversation can't be stored.
pub(super) fn failure(fault: &str) -> TurnEnd {
    TurnEnd {
        detail: fault.to_owned(),
        ..EndReason::Failed.into()
    }
}

fn late() -> Error {
    let text = "a record was not stored in time; check the storage";
    Error::persistence(text, None)
}
