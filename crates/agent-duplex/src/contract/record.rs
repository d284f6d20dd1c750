//! The record of a scenario, on both sides of the conversation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use uuid::Uuid;

use crate::scripted::Audit;
use crate::{Assignment, Completion, Event, Published, SessionChoice, TurnId, Usage, What};

/// The number of recorded calls to show if the contract is broken, and the maximum length of each.
const SHOWN: usize = 12;
const LINE: usize = 200;

/// The record of one conversation; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Record(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    more: Notify,
}

/// The events so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) published: Vec<Arc<Published>>,
    pub(super) assignments: Vec<Assignment>,
    pub(super) completions: Vec<Completion>,
    pub(super) audit: Audit,
    /// The calls and reports of the driver, each with the number of its connection.
    pub(super) tape: Vec<(usize, Noted)>,
    /// The number of observations of the driver, with or without events.
    pub(super) observations: usize,
    pub(super) faults: Vec<String>,
    /// Whether the reader of the conversation has ended.
    pub(super) over: bool,
}

/// A call or a report between the conversation and the driver.
#[derive(Clone, Debug)]
pub(super) enum Noted {
    Connected(SessionChoice),
    /// A message was accepted; `busy` if a turn ran.
    Sent {
        busy: bool,
    },
    Event(Event),
    /// The output of the connection ended.
    Ended,
}

impl Record {
    pub(super) fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the record and wakes the waiting callers.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        let changed = change(&mut self.lock());
        self.0.more.notify_waiters();
        changed
    }

    /// Waits until `find` returns a value. Cancel safe.
    pub(super) async fn find<T>(&self, mut find: impl FnMut(&Seen) -> Option<T>) -> T {
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

impl Seen {
    pub(super) fn publish(&mut self, published: Arc<Published>) {
        let expected = self.published.last().map_or(1, |last| last.sequence + 1);
        if published.sequence != expected {
            let got = published.sequence;
            self.faults.push(format!(
                "event {got} was published, but event {expected} was expected"
            ));
        }
        if let Err(broken) = self.audit.check(&published.what) {
            self.faults.push(broken);
        }
        match &published.what {
            What::Assigned(assignment) => self.assignments.push(assignment.clone()),
            What::Completed(completion) => self.completions.push(completion.clone()),
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
    pub(super) fn of_turn(&self, turn: TurnId) -> impl Iterator<Item = &What> {
        let all = self.published.iter().map(|published| &published.what);
        let all = all.skip_while(move |what| !matches!(what, What::Assigned(a) if a.turn == turn));
        let mut over = false;
        all.take_while(move |what| {
            let take = !over;
            over |= matches!(what, What::Completed(c) if c.turn == turn);
            take
        })
    }

    /// Returns the events of a turn so far.
    pub(super) fn events(&self, turn: TurnId) -> impl Iterator<Item = &Event> {
        self.of_turn(turn)
            .filter_map(|what| match what {
                What::Observed(seen) => Some(&seen.events),
                _ => None,
            })
            .flatten()
    }

    pub(super) fn sessions(&self) -> Vec<SessionChoice> {
        let session = |(_, noted): &(usize, Noted)| match noted {
            Noted::Connected(session) => Some(session.clone()),
            _ => None,
        };
        self.tape.iter().filter_map(session).collect()
    }

    /// Returns the id of the session that the agent named last.
    pub(super) fn session(&self) -> Option<&str> {
        self.tape.iter().rev().find_map(|(_, noted)| match noted {
            Noted::Event(Event::Session { id }) => Some(id.as_str()),
            _ => None,
        })
    }

    /// Returns the total usage, if the driver reported any.
    pub(super) fn used(&self) -> Option<Usage> {
        let mut all = None;
        for (_, noted) in &self.tape {
            if let Noted::Event(Event::Used(used)) = noted {
                *all.get_or_insert_default() += *used;
            }
        }
        all
    }

    /// Returns the pid of the last connection.
    pub(super) fn pid(&self) -> Option<u32> {
        self.tape.iter().rev().find_map(|(_, noted)| match noted {
            Noted::Event(Event::Started { pid }) => Some(*pid),
            _ => None,
        })
    }

    pub(super) fn last_connection_ended(&self) -> bool {
        let last =
            |(_, noted): &&(usize, Noted)| matches!(noted, Noted::Connected(_) | Noted::Ended);
        let last = self.tape.iter().rev().find(last);
        matches!(last, Some((_, Noted::Ended)))
    }

    /// Returns whether the driver reports output of a turn after the last turn that it ended.
    pub(super) fn talks_on(&self) -> bool {
        let events = { self.tape.iter().rev() }.map_while(|(_, noted)| match noted {
            Noted::Event(Event::TurnCompleted(_)) => None,
            noted => Some(noted),
        });
        let mut talk = events.filter(|noted| {
            matches!(
                noted,
                Noted::Event(
                    Event::TextDelta(_) | Event::Message { .. } | Event::ToolStarted { .. }
                )
            )
        });
        talk.next().is_some()
    }

    /// Appends to a failure the next fault, and the last calls and reports of the driver.
    pub(super) fn explain(&self, mut what: String) -> String {
        if let Some(fault) = self.faults.iter().find(|fault| **fault != what) {
            what.push_str("; and ");
            what.push_str(fault);
        }
        let last = self.tape.len().saturating_sub(SHOWN);
        for (connection, noted) in &self.tape[last..] {
            let line = match noted {
                Noted::Event(event) => format!("\n    {connection}: {event:?}"),
                noted => format!("\n    {connection}: {noted:?}"),
            };
            what.extend(line.chars().take(LINE));
        }
        what
    }
}
