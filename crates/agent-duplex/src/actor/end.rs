//! How an agent is ended, and with it the conversation.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::command::answer;
use super::{Actor, next};
use crate::{Lifecycle, StopReport};

/// How long the agent is listened to after a stop, the time apart in which nobody reads.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How much longer than its budget a stop may take. A driver that needs more is not waited for: its connection is dropped, which ends what it started.
const GRACE: Duration = Duration::from_secs(10);

impl Actor {
    /// Returns whether the agent is to close now: that is wanted, and nothing that it does is worth waiting for.
    pub(super) fn closes(&mut self) -> bool {
        if !self.reading {
            self.close_over();
        }
        if self.closing.is_empty() || self.frozen {
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
        for done in self.closing.drain(..) {
            answer(done, ());
        }
    }

    /// Returns whether the agent gets no input any more. What waits is for another one.
    pub(super) fn is_leaving(&self) -> bool {
        self.closed || (!self.closing.is_empty() && !self.shared.lock().ledger.in_turn())
    }

    pub(super) async fn stop(&mut self, end_by: Instant) {
        self.show(Lifecycle::Stopping);
        self.commands.close();
        self.interrupts.close();
        while self.commands.try_recv().is_ok() {}
        self.closing.clear();
        self.successor = None;
        if let Some(connection) = self.connection.as_mut() {
            let left = end_by.saturating_duration_since(Instant::now());
            match timeout(left + GRACE, connection.stop(left)).await {
                Ok(report) => self.account(report),
                Err(_) => {
                    self.connection = None;
                    self.reading = false;
                    self.earlier.proven = false;
                }
            }
        }
        self.report.send_replace(Some(self.earlier.clone()));
        self.last_words(true).await;
    }

    /// Reads what the agent had said before it was ended; `patiently`, as the primary has room for it.
    pub(super) async fn last_words(&mut self, patiently: bool) {
        let mut patience = LAST_WORDS;
        while self.reading {
            if patiently {
                self.shared.primary.room().await;
            }
            let since = Instant::now();
            let seen = timeout(patience, next(&mut self.connection)).await;
            patience = patience.saturating_sub(since.elapsed());
            self.seen(seen.ok().flatten());
        }
    }

    pub(super) fn account(&mut self, report: StopReport) {
        self.earlier.stage = report.stage;
        self.earlier.ended.extend(report.ended);
        self.earlier.survivors.extend(report.survivors);
        self.earlier.proven &= report.proven;
    }
}

/// However the actor ends (stopped, its handles dropped, a driver that panics, a runtime that is shut down), its readers get what they are owed.
impl Drop for Actor {
    fn drop(&mut self) {
        drop(self.connection.take());
        self.seen(None);
        while let Ok(interrupt) = self.interrupts.try_recv() {
            self.interrupting.push(interrupt.done);
        }
        self.turn_over();
        self.show(Lifecycle::Ended);
        self.shared.lock().close();
    }
}
