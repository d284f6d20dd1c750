//! The event loop: waits for an input, passes it to the machine, and carries out the effects.

use std::time::Duration;

use cancellable_sleep::SleepGate;
use loop_state::{
    AttemptInput, Attendance, Effect, Inbox, MachineInput, RunUpdate, StopReason, TimedInput,
    Timer, Timestamp, times,
};
use rlm_store::deadline::sleep_until;
use tokio::time::{Instant, timeout};

use crate::Error;
use crate::check::CheckOutcome;
use crate::control::{QueuedRequest, ReplySender, RunPosition};
use crate::hook::{self, Delivery, HookQueue};
use crate::runner::Runner;
use crate::runner::parts::attempt::{AgentWakeup, AttemptHandles};
use crate::runner::parts::cleanup::CleanupOutcome;

/// The input that ended a wait.
enum Wakeup {
    Request(QueuedRequest),
    Agent(AgentWakeup),
    Check(CheckOutcome),
    CleanupEnded(Option<Box<CleanupOutcome>>),
    Notified(usize, Delivery),
    InhibitorEnded(CheckOutcome),
    RequestRefused(String),
    TimePassed,
}

impl Runner {
    pub(super) async fn run_event_loop(&mut self) -> Result<StopReason, Error> {
        let mut inbox = Inbox::default();
        self.accept_requests(&mut inbox).await?;
        self.apply_shutdown(&mut inbox).await?;
        let attendance = match self.options.interactive {
            true => Attendance::Attended,
            false => Attendance::Unattended,
        };
        inbox.begin(self.first.clone(), attendance);
        // A stop before the beginning drops other requests, and a recorded request must not be lost.
        if let (Some(socket), Some(remote)) = (&self.control.socket, self.control.remote.take()) {
            socket.serve_remote(remote);
        }
        loop {
            self.beat().await;
            let now = self.clock.now();
            if let Some(thawed) = self.clock_jump() {
                inbox.thaw(thawed);
            }
            self.await_suspension(&mut inbox).await?;
            let (what, reply) = match inbox.take() {
                Some(next) => next,
                None => {
                    self.note_awaited(self.awaited());
                    self.discard_unused_guard();
                    self.next(&mut inbox, now).await?;
                    self.apply_shutdown(&mut inbox).await?;
                    continue;
                }
            };
            let event = TimedInput {
                at: self.clock.now(),
                what,
            };
            let effects = self.machine.step(event.clone());
            if effects.iter().any(is_redo) {
                self.saved.clear_items();
            }
            let refusal = effects.iter().find_map(|effect| match effect {
                Effect::RejectRequest(why) => Some(why.clone()),
                _ => None,
            });
            if refusal.is_none() && !event.what.is_transient() {
                self.journal.note(event);
            }
            let is_over = effects.contains(&Effect::EndRun);
            let is_saved = effects.contains(&Effect::Save);
            if let Some(number) = reply.number() {
                self.saved.last_request = number;
            }
            if Effect::starts_after_save(&effects) {
                self.prepare_guard(&effects);
            }
            for effect in effects {
                let at_once = self.perform(effect).await?;
                let at_once = self.with_saved_session(at_once).await;
                inbox.follow(at_once, Vec::new);
            }
            if reply.number().is_some() && !is_saved && !is_over {
                // Otherwise the successor of a crashed worker would apply the request again.
                self.perform(Effect::Save).await?;
            }
            self.refresh_view();
            reply.send(refusal.map_or(Ok(RunPosition::from(&self.machine)), Err));
            if let Some(reason) = self.machine.head().stop_reason().filter(|_| is_over) {
                return Ok(reason);
            }
            self.accept_requests(&mut inbox).await?;
            self.apply_shutdown(&mut inbox).await?;
        }
    }

    /// After ^Z, waits until the program has suspended itself: what the run started now would run during the suspension. Only a person's request, a
    /// shutdown or the time ends this wait.
    async fn await_suspension(&mut self, inbox: &mut Inbox<ReplySender>) -> Result<(), Error> {
        while let Some(frozen) = self.machine.frozen_for(self.clock.now())
            && let Some(left) = times::FREEZE_TIMEOUT
                .checked_sub(frozen)
                .filter(|it| !it.is_zero())
            && !self.options.gate.is_shutdown()
            && !self.requests.is_stop_requested()
        {
            let request = tokio::select! {
                biased;
                request = self.requests.next() => request,
                () = sleep(&self.options.gate, left) => return Ok(()),
            };
            if let Some((what, reply)) = self.accept_request(request).await? {
                inbox.request(what, reply);
            }
        }
        Ok(())
    }

    /// Starts the guard of the agent or command that follows a save, so that both happen at the same time.
    fn prepare_guard(&self, effects: &[Effect]) {
        let is_stopping = self.requests.is_stop_requested() || self.options.gate.is_shutdown();
        // The process suspends itself next, and the guard would wait as long.
        let is_frozen = self.machine.is_frozen();
        let is_agent = |effect: &Effect| matches!(effect, Effect::StartAttempt(_));
        let has_program = self.phase().agent.has_program() || !effects.iter().any(is_agent);
        if !is_stopping && !is_frozen && has_program {
            self.processes.warm_guard.want();
        }
    }

    /// Ends the guard if the agent or the command was not started after all: no guard waits while the run waits.
    fn discard_unused_guard(&self) {
        let processes = &self.processes;
        let has_user = processes.attempt.is_some() || processes.check.is_some();
        if !has_user && processes.cleanup.is_none() {
            drop(processes.warm_guard.discard());
        }
    }

    /// Reports a shutdown of the program to the machine, and accepts only a stop request while the machine waits for one.
    async fn apply_shutdown(&mut self, inbox: &mut Inbox<ReplySender>) -> Result<(), Error> {
        if !self.options.gate.is_shutdown() {
            return Ok(());
        }
        let (at, what) = (self.clock.now(), MachineInput::ShutDown);
        for effect in self.machine.step(TimedInput { at, what }) {
            if let Effect::AwaitStop(within) = effect {
                let has_request = timeout(within, self.requests.stop_requested())
                    .await
                    .is_ok();
                self.accept_requests(inbox).await?;
                if !has_request {
                    inbox.shut_down(MachineInput::TimerExpired(Timer::Shutdown));
                }
            }
        }
        Ok(())
    }

    async fn accept_requests(&mut self, inbox: &mut Inbox<ReplySender>) -> Result<(), Error> {
        while let Some(request) = self.requests.try_next() {
            if let Some((what, reply)) = self.accept_request(request).await? {
                inbox.request(what, reply);
            }
        }
        Ok(())
    }

    /// Waits for a machine input; queues nothing for other events.
    async fn next(&mut self, inbox: &mut Inbox<ReplySender>, now: Timestamp) -> Result<(), Error> {
        if let Some(due) = self.machine.due_input(now) {
            let changed = self.reloaded();
            inbox.time_up(due, changed);
            return Ok(());
        }
        if let Some(due) = self.machine.reminder_due(now) {
            inbox.follow(vec![due], Vec::new);
            return Ok(());
        }
        let inputs: Vec<MachineInput> = match self.wakeup(now).await {
            Wakeup::Request(request) => {
                if let Some((what, reply)) = self.accept_request(request).await? {
                    inbox.request(what, reply);
                }
                return Ok(());
            }
            Wakeup::Agent(AgentWakeup::Started(started)) => self.agent_started(started),
            Wakeup::Agent(AgentWakeup::Closed) => self.step_attempt(AttemptInput::Closed),
            Wakeup::Agent(AgentWakeup::Ended(report)) => self.process_tree_ended(report),
            Wakeup::Agent(AgentWakeup::Published(published)) => {
                self.handle_agent_event(published).await
            }
            Wakeup::Check(end) => vec![self.check_ended(end)],
            Wakeup::CleanupEnded(end) => vec![self.cleanup_ended(end).await],
            Wakeup::Notified(index, end) => {
                self.notified(index, end);
                self.save_notifications().await;
                Vec::new()
            }
            Wakeup::InhibitorEnded(end) => {
                self.inhibitor_ended(end);
                Vec::new()
            }
            Wakeup::RequestRefused(what) => {
                self.report_refused(what);
                Vec::new()
            }
            Wakeup::TimePassed => {
                self.save_after_removal().await?;
                self.time_passed()
            }
        };
        let inputs = self.with_saved_session(inputs).await;
        inbox.follow(inputs, || self.reloaded());
        Ok(())
    }

    /// Waits for the next event. Checks the time before the agent's output, so that a flood of output can't delay a deadline.
    async fn wakeup(&mut self, now: Timestamp) -> Wakeup {
        let wait = self.wait_from(now);
        let gate = &self.options.gate;
        let (attempt, check) = (&mut self.processes.attempt, &mut self.processes.check);
        let cleanup = &mut self.processes.cleanup;
        let notifies = self.hooks.iter().any(HookQueue::is_running);
        let hooks = &mut self.hooks;
        let inhibitor = &mut self.processes.inhibitor;
        let is_open = self.control.socket.is_some();
        let socket = &mut self.control.socket;
        tokio::select! {
            biased;
            request = self.requests.next() => Wakeup::Request(request),
            () = sleep(gate, wait) => Wakeup::TimePassed,
            end = async { check.as_mut().expect("a check runs").ended().await }, if check.is_some() => Wakeup::Check(end),
            end = async { cleanup.as_mut().expect("a cleanup runs").ended().await }, if cleanup.is_some() => Wakeup::CleanupEnded(end),
            (index, end) = hook::next_delivery(hooks), if notifies => Wakeup::Notified(index, end),
            end = async { inhibitor.as_mut().expect("an inhibitor runs").ended().await }, if inhibitor.is_some() => Wakeup::InhibitorEnded(end),
            refused = async { socket.as_mut().expect("the socket is open").refused().await }, if is_open => Wakeup::RequestRefused(refused),
            event = async { attempt.as_mut().expect("an attempt runs").wake().await },
                if attempt.as_ref().is_some_and(AttemptHandles::may_publish) => Wakeup::Agent(event),
        }
    }
}

/// Returns whether an effect reports that an iteration runs again from its beginning.
fn is_redo(effect: &Effect) -> bool {
    matches!(effect, Effect::Emit(RunUpdate::Redoing(_)))
}

/// Sleeps for `wait`, or until a shutdown of the sleep gate. After the shutdown, only the waits of the stop remain; the gate doesn't end them.
async fn sleep(gate: &SleepGate, wait: Duration) {
    match gate.is_shutdown() {
        true => sleep_until(Instant::now() + wait).await,
        // The caller checks for a shutdown next.
        false => drop(gate.sleep(wait).await),
    }
}
