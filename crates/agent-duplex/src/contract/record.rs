//! The record of a scenario, on both sides of the conversation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use uuid::Uuid;

use crate::scripted::ContractChecker;
use crate::{
    Assignment, Completion, ConversationEvent, Event, Published, SessionChoice, TurnId, Usage,
};

/// The number of recorded calls to show if the contract is broken.
const SHOWN: usize = 12;
/// The maximum length of a shown call.
const LINE: usize = 200;

/// The record of one conversation; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ScenarioRecord(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Recorded>,
    more: Notify,
}

/// The events so far.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) published: Vec<Arc<Published>>,
    pub(super) assignments: Vec<Assignment>,
    pub(super) completions: Vec<Completion>,
    pub(super) checker: ContractChecker,
    /// The calls and reports of the driver, each with the number of its connection.
    pub(super) calls: Vec<(usize, DriverCall)>,
    /// The number of observations of the driver, with or without events.
    pub(super) observations: usize,
    pub(super) failures: Vec<String>,
    /// Whether the reader of the conversation has ended.
    pub(super) is_over: bool,
}

/// A call or a report between the conversation and the driver.
#[derive(Clone, Debug)]
pub(super) enum DriverCall {
    Connected(SessionChoice),
    /// A message was accepted; `busy` if a turn ran.
    Sent {
        busy: bool,
    },
    Event(Event),
    /// The output of the connection ended.
    Ended,
}

impl ScenarioRecord {
    pub(super) fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the record and wakes the waiting callers.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Recorded) -> T) -> T {
        let changed = change(&mut self.lock());
        self.0.more.notify_waiters();
        changed
    }

    /// Waits until `find` returns a value. Cancel safe.
    pub(super) async fn find<T>(&self, mut find: impl FnMut(&Recorded) -> Option<T>) -> T {
        loop {
            let more = self.0.more.notified();
            tokio::pin!(more);
            more.as_mut().enable();
            if let Some(found) = find(&self.lock()) {
                return found;
            }
            more.await;
        }
    }
}

impl Recorded {
    pub(super) fn publish(&mut self, published: Arc<Published>) {
        let expected = self.published.last().map_or(1, |last| last.sequence + 1);
        if published.sequence != expected {
            let got = published.sequence;
            self.failures.push(format!(
                "event {got} was published, but event {expected} was expected"
            ));
        }
        if let Err(broken) = self.checker.check(&published.event) {
            self.failures.push(broken);
        }
        match &published.event {
            ConversationEvent::Assigned(assignment) => self.assignments.push(assignment.clone()),
            ConversationEvent::Completed(completion) => self.completions.push(completion.clone()),
            _ => {}
        }
        self.published.push(published);
    }

    /// Returns the turn of an input.
    pub(super) fn turn_of(&self, receipt: Uuid) -> Option<TurnId> {
        let mine = |a: &&Assignment| a.inputs.iter().any(|input| input.receipt == receipt);
        self.assignments.iter().find(mine).map(|a| a.turn)
    }

    /// Returns the number of the connection on which a turn ran.
    pub(super) fn generation(&self, turn: TurnId) -> Option<u32> {
        let mut all = self.assignments.iter();
        all.find(|a| a.turn == turn).map(|a| a.generation)
    }

    pub(super) fn completion(&self, turn: TurnId) -> Option<&Completion> {
        self.completions.iter().find(|c| c.turn == turn)
    }

    /// Returns the events of the conversation about a turn so far.
    pub(super) fn of_turn(&self, turn: TurnId) -> impl Iterator<Item = &ConversationEvent> {
        let all = self.published.iter().map(|published| &published.event);
        let all = all.skip_while(
            move |what| !matches!(what, ConversationEvent::Assigned(a) if a.turn == turn),
        );
        let mut over = false;
        all.take_while(move |what| {
            let take = !over;
            over |= matches!(what, ConversationEvent::Completed(c) if c.turn == turn);
            take
        })
    }

    /// Returns the events of a turn so far.
    pub(super) fn events(&self, turn: TurnId) -> impl Iterator<Item = &Event> {
        self.of_turn(turn)
            .filter_map(|what| match what {
                ConversationEvent::Observed(seen) => Some(&seen.events),
                _ => None,
            })
            .flatten()
    }

    pub(super) fn sessions(&self) -> Vec<SessionChoice> {
        let session = |(_, noted): &(usize, DriverCall)| match noted {
            DriverCall::Connected(session) => Some(session.clone()),
            _ => None,
        };
        self.calls.iter().filter_map(session).collect()
    }

    /// Returns the id of the session that the agent named last.
    pub(super) fn session(&self) -> Option<&str> {
        self.calls.iter().rev().find_map(|(_, noted)| match noted {
            DriverCall::Event(Event::Session { id }) => Some(id.as_str()),
            _ => None,
        })
    }

    /// Returns the total usage, if the driver reported any.
    pub(super) fn used(&self) -> Option<Usage> {
        let mut all = None;
        for (_, noted) in &self.calls {
            if let DriverCall::Event(Event::UsageReported(used)) = noted {
                *all.get_or_insert_default() += *used;
            }
        }
        all
    }

    /// Returns the pid of the last connection.
    pub(super) fn pid(&self) -> Option<u32> {
        self.calls.iter().rev().find_map(|(_, noted)| match noted {
            DriverCall::Event(Event::Started { pid }) => Some(*pid),
            _ => None,
        })
    }

    pub(super) fn last_connection_ended(&self) -> bool {
        let last = |(_, noted): &&(usize, DriverCall)| {
            matches!(noted, DriverCall::Connected(_) | DriverCall::Ended)
        };
        let last = self.calls.iter().rev().find(last);
        matches!(last, Some((_, DriverCall::Ended)))
    }

    /// Returns whether the driver reports output of a turn after the last turn that it ended.
    pub(super) fn reports_after_turn_end(&self) -> bool {
        let events = { self.calls.iter().rev() }.map_while(|(_, noted)| match noted {
            DriverCall::Event(Event::TurnCompleted(_)) => None,
            noted => Some(noted),
        });
        let mut talk = events.filter(|noted| {
            matches!(
                noted,
                DriverCall::Event(
                    Event::TextDelta(_) | Event::Message { .. } | Event::ToolStarted { .. }
                )
            )
        });
        talk.next().is_some()
    }

    /// Appends to a failure the next fault, and the last calls and reports of the driver.
    pub(super) fn explain(&self, mut what: String) -> String {
        if let Some(fault) = self.failures.iter().find(|fault| **fault != what) {
            what.push_str("; and ");
            what.push_str(fault);
        }
        let last = self.calls.len().saturating_sub(SHOWN);
        for (connection, noted) in &self.calls[last..] {
            let line = match noted {
                DriverCall::Event(event) => format!("\n    {connection}: {event:?}"),
                noted => format!("\n    {connection}: {noted:?}"),
            };
            what.extend(line.chars().take(LINE));
        }
        what
    }
}
