//! Notifications: queues them for the channels, and records whether each was acknowledged.

use loop_state::{TimedInput, Timestamp, times};
use rlm_store::NotificationRecord;
use rlm_store::deadline::sleep_until;
use tokio::time::{Instant, timeout};

use crate::hook::{self, Delivery, Hook, HookEvent, HookEventKind, HookInput, HookQueue};
use crate::run_event::RunEvent;
use crate::runner::Runner;
use crate::{Awaited, Error, RunOutcome};

impl Runner {
    /// Adds a channel for notifications of events of the run. A channel gets each event after the event is saved.
    ///
    /// At the end of the run, the last deliveries have 10 s; after a stop, 3 s within the stop budget; after an abort, no time.
    #[must_use]
    pub fn with_hook(mut self, hook: Hook) -> Self {
        self.hooks.push(HookQueue::new(hook));
        self
    }

    /// Queues a notification for this event in each channel that reports it.
    pub(super) fn notify(&mut self, at: Timestamp, what: HookEventKind<'_>) {
        for index in 0..self.hooks.len() {
            if let Some(input) = self.input_for(index, at, what) {
                let context = self.context(&format!("-notify{index}"));
                self.hooks[index].push(context, input);
            }
        }
    }

    /// Counts the notifications for an event that can't be sent any more.
    fn note_unsent(&mut self, at: Timestamp, what: HookEventKind<'_>) {
        for index in 0..self.hooks.len() {
            if self.input_for(index, at, what).is_some() {
                self.hooks[index].note_dropped(1);
            }
        }
    }

    /// Returns the content of a notification for an event, if the channel reports it.
    fn input_for(&self, index: usize, at: Timestamp, what: HookEventKind<'_>) -> Option<HookInput> {
        self.hooks[index].input_for(HookEvent {
            run: &self.saved.run,
            head: self.machine.head(),
            at,
            kind: what,
            missed: 0,
        })
    }

    /// Queues a notification for the start or resume of the run, after it is saved.
    pub(super) fn notify_begun(&mut self) {
        if self.machine.has_begun() && !std::mem::replace(&mut self.reported.begun, true) {
            let resumed = matches!(self.first, loop_state::MachineInput::Resumed(_));
            let at = self.clock.now();
            self.notify(at, HookEventKind::Started { resumed });
        }
    }

    /// Records the end of a delivery; the caller saves it.
    pub(super) fn notified(&mut self, index: usize, delivery: Delivery) {
        let queue = &mut self.hooks[index];
        let channel = queue.channel().to_owned();
        let warning = queue.failure_warning(&delivery);
        let Delivery {
            event,
            tries,
            result,
            processes,
        } = delivery;
        self.saved.notifications.add(NotificationRecord {
            at: self.clock.now(),
            event,
            channel,
            tries,
            result,
        });
        if let Some(warning) = warning {
            self.emit(RunEvent::Warning(warning));
        }
        if !processes.leftovers.is_empty() {
            self.emit(RunEvent::ProcessesEnded {
                why: "left running by a notify command".into(),
                run: None,
                processes: processes.leftovers,
            });
        }
        self.ended_processes.proven &= processes.proven;
        self.note_survivors(processes.survivors);
    }

    /// Saves the results of notifications within a time limit, because the next save can be hours away. A failure is only a warning: the next save
    /// has the results too, and reports its own failure.
    pub(super) async fn save_notifications(&mut self) {
        for hook in &mut self.hooks {
            let dropped = &mut self.saved.notifications.dropped;
            *dropped = dropped.saturating_add(hook.take_dropped());
        }
        self.saved.advance(self.machine.head());
        let state_dir = self.work_tree.check_state_dir(&self.saved.run);
        let saved = async {
            state_dir?;
            self.journal.save(&self.saved).await
        };
        let why = match timeout(times::NOTIFY_SAVE, saved).await {
            Ok(Ok(())) => return,
            Ok(Err(e)) => e.to_string(),
            Err(_) => format!("it took longer than {:?}", times::NOTIFY_SAVE),
        };
        self.emit(RunEvent::Warning(format!(
            "the results of notifications are not saved: {why}"
        )));
    }

    /// Queues notifications for the end of the run, and waits for them with a time limit. A request to stop ends the wait.
    pub(super) async fn notify_end(&mut self, result: Result<&RunOutcome, &Error>) {
        if self.hooks.is_empty() {
            return;
        }
        let before = self.saved.notifications.clone();
        let now = self.clock.now();
        let left = self.machine.deadline().last_call(now, times::NOTIFY_CALL);
        for hook in &mut self.hooks {
            if !self.machine.keeps_notify_calls() {
                hook.clear();
            }
            hook.end_retries();
        }
        let at = self.clock.now();
        match left.is_zero() {
            false => self.notify(at, HookEventKind::Ended(result)),
            true => self.note_unsent(at, HookEventKind::Ended(result)),
        }
        self.show_end(left, Some(Awaited::Notify));
        let by = Instant::now() + left;
        let mut is_late = false;
        while self.hooks.iter().any(HookQueue::is_running) {
            tokio::select! {
                biased;
                // Dropping the reply of the request reports the end of the run.
                request = self.requests.next(), if !is_late => {
                    let effects = request.control.while_ending().map(|what| {
                        let at = self.clock.now();
                        self.machine.step(TimedInput { at, what })
                    });
                    is_late = effects.is_some_and(|it| !it.is_empty());
                }
                () = sleep_until(by), if !is_late => is_late = true,
                (index, end) = hook::next_delivery(&mut self.hooks) => {
                    self.notified(index, end);
                    continue;
                }
            }
            if is_late {
                for hook in &mut self.hooks {
                    hook.clear();
                    hook.halt();
                }
            }
        }
        if self.saved.notifications != before || self.hooks.iter().any(HookQueue::has_dropped) {
            self.save_notifications().await;
        }
    }
}
