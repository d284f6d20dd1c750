//! The end of an agent, and the end of the conversation.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::command::{answer, halted_before, unless_halted};
use super::{Actor, next};
use crate::stop::FOREVER;
use crate::times;
use crate::{Lifecycle, StopReport};

/// Whether the primary must have room for the last output of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Any,
    /// Without room, the rest of the output is dropped.
    Some,
    /// The actor waits for room.
    Awaited,
}

impl Actor {
    /// Returns whether the agent is being closed, or will be.
    pub(super) fn is_closing(&self) -> bool {
        self.finishing || !self.closing.is_empty()
    }

    /// Schedules the close of the agent: when it has nothing to do any more, or at the earliest time limit of all closes.
    pub(super) fn close_soon(&mut self, patience: Duration) {
        let patience = patience.min(FOREVER);
        let close_by = Instant::now() + patience;
        if !self.is_closing() || close_by < self.close_by {
            (self.close_by, self.patience) = (close_by, patience);
        }
    }

    /// Returns whether the agent must close now: a close was requested, and the agent does nothing that is worth waiting for.
    pub(super) fn closes(&mut self) -> bool {
        if !self.reading {
            self.close_over();
        }
        if !self.is_closing() || self.frozen {
            return false;
        }
        let busy = {
            let state = self.shared.lock();
            state.ledger.in_turn() || state.ledger.has_background()
        };
        self.closed |= !busy || self.close_by <= Instant::now();
        self.closed
    }

    pub(super) fn close_over(&mut self) {
        self.finishing = false;
        for done in self.closing.drain(..) {
            answer(done, ());
        }
    }

    /// Returns whether the agent is known to get no more inputs. Waiting inputs are for the next agent.
    pub(super) fn is_leaving(&self) -> bool {
        self.closed
            || self.dies_by.is_some()
            || (self.is_closing() && !self.shared.lock().ledger.in_turn())
    }

    pub(super) async fn stop(&mut self, mut end_by: Instant) {
        self.show(Lifecycle::Stopping);
        self.interrupts.close();
        drop(drain(&mut self.commands));
        self.finishing = false;
        self.closing.clear();
        self.ensuring.clear();
        self.successor = None;
        if let Some(connection) = self.connection.as_mut() {
            let stopped = loop {
                let left = end_by.saturating_duration_since(Instant::now());
                tokio::select! {
                    biased;
                    stopped = timeout(left + times::STOP_MARGIN, connection.stop(left)) => break stopped,
                    sooner = halted_before(&mut self.halt, end_by) => end_by = sooner,
                }
            };
            match stopped {
                Ok(report) => self.account(report),
                Err(_) => {
                    self.connection = None;
                    self.reading = false;
                    self.earlier.proven = false;
                }
            }
        }
        self.settle().await;
        if self.keeps.is_on() {
            // A caller can end the process as soon as it has the report.
            let _words = self.last_words(Room::Some).await;
        }
        self.report.send_replace(Some(self.earlier.clone()));
        let _words = self.last_words(Room::Awaited).await;
    }

    /// Ends the agent of a conversation whose handles were all dropped.
    pub(super) async fn abandon(&mut self) {
        self.connection = None;
        self.settle().await;
        self.seen(true).await;
    }

    /// Reads the output that the agent wrote before it was ended; returns `None` if the conversation is halted in the meantime.
    pub(super) async fn last_words(&mut self, room: Room) -> Option<()> {
        let mut patience = times::LAST_WORDS;
        while self.reading {
            match room {
                Room::Some if !self.shared.primary.has_room() => break,
                Room::Awaited => self.shared.primary.room().await,
                Room::Any | Room::Some => {}
            }
            let since = Instant::now();
            let words = timeout(patience, next(&mut self.connection));
            let seen = if self.stopping {
                words.await
            } else {
                unless_halted(&mut self.halt, words).await?
            };
            patience = patience.saturating_sub(since.elapsed());
            let seen = seen.ok().flatten();
            let gone = seen.is_none();
            self.heard.extend(seen);
            self.seen(gone).await;
        }
        Some(())
    }

    pub(super) fn account(&mut self, report: StopReport) {
        self.earlier.stage = report.stage;
        self.earlier.ended.extend(report.ended);
        self.earlier.survivors.extend(report.survivors);
        self.earlier.proven &= report.proven;
    }
}

/// Closes a channel and returns its contents.
fn drain<T>(channel: &mut mpsc::Receiver<T>) -> Vec<T> {
    channel.close();
    std::iter::from_fn(|| channel.try_recv().ok()).collect()
}

/// Publishes the missing events to the readers at every end of the actor: a stop, the drop of all handles, a panic of a driver, a shutdown of the
/// runtime.
impl Drop for Actor {
    fn drop(&mut self) {
        drop(self.connection.take());
        self.keeps.publish_rest();
        let told = self.noted(true);
        let told = self.keeps.tell_later(told);
        self.keeps.publish(told);
        drop(drain(&mut self.commands));
        let interrupts = drain(&mut self.interrupts).into_iter();
        self.interrupting
            .extend(interrupts.map(|interrupt| interrupt.done));
        self.turn_over();
        self.show(Lifecycle::Ended);
        self.shared.lock().close();
    }
}
