//! The end of an agent, and the end of the conversation.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::command::{answer, run_unless_stopped, wait_for_earlier_stop};
use super::{Actor, next};
use crate::Lifecycle;
use crate::stop::FOREVER;
use crate::times;

/// Whether the primary must have room for the last output of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrimaryRoom {
    Ignored,
    /// Without room, the rest of the output is dropped.
    DropIfFull,
    /// The actor waits for room.
    WaitIfFull,
}

impl Actor {
    /// Returns whether the agent is being closed, or will be.
    pub(super) fn is_closing(&self) -> bool {
        self.finishing || !self.close_waiters.is_empty()
    }

    /// Schedules the close of the agent: when its work is finished, or at the earliest time limit of all closes.
    pub(super) fn schedule_close(&mut self, time_limit: Duration) {
        let time_limit = time_limit.min(FOREVER);
        let close_by = Instant::now() + time_limit;
        if !self.is_closing() || close_by < self.close_deadline {
            (self.close_deadline, self.close_timeout) = (close_by, time_limit);
        }
    }

    /// Returns whether the agent must close now: a close was requested, and the agent has no turn and no background task, or the time limit is
    /// reached.
    pub(super) fn is_close_due(&mut self) -> bool {
        if !self.may_read {
            self.finish_close();
        }
        if !self.is_closing() || self.frozen {
            return false;
        }
        let busy = {
            let state = self.shared.lock();
            state.ledger.in_turn() || state.ledger.has_background()
        };
        self.closed |= !busy || self.close_deadline <= Instant::now();
        self.closed
    }

    pub(super) fn finish_close(&mut self) {
        self.finishing = false;
        for done in self.close_waiters.drain(..) {
            answer(done, ());
        }
    }

    /// Returns whether the agent is known to get no more inputs. Waiting inputs are for the next agent.
    pub(super) fn is_leaving(&self) -> bool {
        self.closed
            || self.death_deadline.is_some()
            || (self.is_closing() && !self.shared.lock().ledger.in_turn())
    }

    pub(super) async fn stop(&mut self, mut end_by: Instant) {
        self.publish_lifecycle(Lifecycle::Stopping);
        self.interrupts.close();
        drop(drain(&mut self.commands));
        self.finishing = false;
        self.close_waiters.clear();
        self.start_waiters.clear();
        self.next_start = None;
        if let Some(connection) = self.connection.as_mut() {
            let stopped = loop {
                let left = end_by.saturating_duration_since(Instant::now());
                tokio::select! {
                    biased;
                    stopped = timeout(left + times::STOP_MARGIN, connection.stop(left)) => break stopped,
                    sooner = wait_for_earlier_stop(&mut self.stop_deadline, end_by) => end_by = sooner,
                }
            };
            match stopped {
                Ok(report) => self.earlier_report.add(report),
                Err(_) => {
                    self.connection = None;
                    self.may_read = false;
                    self.earlier_report.proven = false;
                }
            }
        }
        self.flush_persistence().await;
        if self.persistence.is_enabled() {
            // The caller can exit as soon as it has the report, so publish the last output first.
            let _stopped = self.drain_output(PrimaryRoom::DropIfFull).await;
        }
        self.report.send_replace(Some(self.earlier_report.clone()));
        let _stopped = self.drain_output(PrimaryRoom::WaitIfFull).await;
    }

    /// Ends the agent of a conversation whose handles were all dropped.
    pub(super) async fn stop_unowned(&mut self) {
        self.connection = None;
        self.flush_persistence().await;
        self.publish_read(true).await;
    }

    /// Reads the output that the agent wrote before it was ended; returns `None` if the conversation is stopped in the meantime.
    pub(super) async fn drain_output(&mut self, room: PrimaryRoom) -> Option<()> {
        let mut time_limit = times::DRAIN_TIMEOUT;
        while self.may_read {
            match room {
                PrimaryRoom::DropIfFull if !self.shared.primary.has_room() => break,
                PrimaryRoom::WaitIfFull => self.shared.primary.room().await,
                PrimaryRoom::Ignored | PrimaryRoom::DropIfFull => {}
            }
            let since = Instant::now();
            let output = timeout(time_limit, next(&mut self.connection));
            let seen = if self.stopping {
                output.await
            } else {
                run_unless_stopped(&mut self.stop_deadline, output).await?
            };
            time_limit = time_limit.saturating_sub(since.elapsed());
            let seen = seen.ok().flatten();
            let gone = seen.is_none();
            self.unpublished.extend(seen);
            self.publish_read(gone).await;
        }
        Some(())
    }
}

/// Closes a channel and returns its contents.
fn drain<T>(channel: &mut mpsc::Receiver<T>) -> Vec<T> {
    channel.close();
    std::iter::from_fn(|| channel.try_recv().ok()).collect()
}

/// Publishes the missing events to the readers when the actor ends: after a stop, the drop of all handles, a panic of a driver, or a shutdown of the
/// runtime.
impl Drop for Actor {
    fn drop(&mut self) {
        drop(self.connection.take());
        self.persistence.publish_unpublished();
        let events = self.take_events(true);
        let events = self.persistence.persist_later(events);
        self.persistence.publish(events);
        drop(drain(&mut self.commands));
        let interrupts = drain(&mut self.interrupts).into_iter();
        self.interrupt_waiters
            .extend(interrupts.map(|interrupt| interrupt.done));
        self.notify_interrupt_waiters();
        self.publish_lifecycle(Lifecycle::Ended);
        self.shared.lock().close();
    }
}
