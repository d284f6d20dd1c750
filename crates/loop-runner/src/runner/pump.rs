//! The event loop: waits for an input, passes it to the machine, and carries out the effects.

use std::time::Duration;

use cancellable_sleep::SleepGate;
use loop_state::{AttemptInput, Effect, Event, Happening, Inbox, StopReason, Timer, Timestamp};
use rlm_store::deadline::until;
use tokio::time::{Instant, timeout};

use crate::Error;
use crate::check::CheckEnd;
use crate::control::{Mark, Reply, Wish};
use crate::hook::Hooks;
use crate::runner::Runner;
use crate::runner::parts::attempt::{Attempt, Woken};
use crate::runner::parts::settling::Settled;

/// The input that ended a wait.
enum Wakeup {
    Wish(Wish),
    Agent(Woken),
    Check(CheckEnd),
    Settled(Option<Box<Settled>>),
    Notified(CheckEnd),
    Refused(String),
    Time,
}

impl Runner {
    pub(super) async fn pump(&mut self) -> Result<StopReason, Error> {
        let mut inbox = Inbox::default();
        self.hear_all(&mut inbox).await?;
        self.heed_shutdown(&mut inbox).await?;
        inbox.begin(self.first.clone(), self.options.interactive);
        loop {
            self.beat().await;
            if let Some(thawed) = self.jumped() {
                inbox.thaw(thawed);
            }
            let (what, reply) = match inbox.take() {
                Some(next) => next,
                None => {
                    self.show_awaited(self.awaited());
                    self.next(&mut inbox).await?;
                    self.heed_shutdown(&mut inbox).await?;
                    continue;
                }
            };
            let event = Event {
                at: self.clock.now(),
                what,
            };
            let effects = self.machine.step(event.clone());
            let refusal = effects.iter().find_map(|effect| match effect {
                Effect::Refuse(why) => Some(why.clone()),
                _ => None,
            });
            if refusal.is_none() && !event.what.is_transient() {
                self.journal.note(event);
            }
            let is_over = effects.contains(&Effect::Finish);
            for effect in effects {
                let at_once = self.perform(effect).await?;
                inbox.follow(at_once, Vec::new);
            }
            self.refresh_view();
            reply.send(refusal.map_or(Ok(Mark::from(&self.machine)), Err));
            if let Some(reason) = self.machine.head().stop_reason().filter(|_| is_over) {
                return Ok(reason);
            }
            self.hear_all(&mut inbox).await?;
            self.heed_shutdown(&mut inbox).await?;
        }
    }

    /// Reports a shutdown of the program to the machine, and accepts only a stop request while the machine waits for one.
    async fn heed_shutdown(&mut self, inbox: &mut Inbox<Reply>) -> Result<(), Error> {
        if !self.options.gate.is_shutdown() {
            return Ok(());
        }
        let (at, what) = (self.clock.now(), Happening::ShutDown);
        for effect in self.machine.step(Event { at, what }) {
            if let Effect::AwaitStop(within) = effect {
                let is_told = timeout(within, self.requests.end_wanted()).await.is_ok();
                self.hear_all(inbox).await?;
                if !is_told {
                    inbox.shut_down(Happening::TimeUp(Timer::Shutdown));
                }
            }
        }
        Ok(())
    }

    async fn hear_all(&mut self, inbox: &mut Inbox<Reply>) -> Result<(), Error> {
        while let Some(wish) = self.requests.try_next() {
            if let Some((what, reply)) = self.hear(wish).await? {
                inbox.request(what, reply);
            }
        }
        Ok(())
    }

    /// Waits for a machine input; queues nothing for other events.
    async fn next(&mut self, inbox: &mut Inbox<Reply>) -> Result<(), Error> {
        let now = self.clock.now();
        if let Some(due) = self.machine.due(now) {
            let changed = self.reloaded();
            inbox.time_up(due, changed);
            return Ok(());
        }
        if let Some(due) = self.machine.reminder_due(now) {
            inbox.follow(vec![due], Vec::new);
            return Ok(());
        }
        let happened: Vec<Happening> = match self.wakeup(now).await {
            Wakeup::Wish(wish) => {
                if let Some((what, reply)) = self.hear(wish).await? {
                    inbox.request(what, reply);
                }
                return Ok(());
            }
            Wakeup::Agent(Woken::Started(started)) => self.agent_started(started),
            Wakeup::Agent(Woken::Closed) => self.step_attempt(AttemptInput::Closed),
            Wakeup::Agent(Woken::Ended(report)) => self.tree_ended(report),
            Wakeup::Agent(Woken::Published(published)) => self.agent_did(published).await,
            Wakeup::Check(end) => vec![self.check_ended(end)],
            Wakeup::Settled(end) => vec![self.settled(end).await],
            Wakeup::Notified(end) => {
                self.notified(end);
                Vec::new()
            }
            Wakeup::Refused(what) => {
                self.tell_refused(what);
                Vec::new()
            }
            Wakeup::Time => {
                self.notice_removal().await?;
                self.time_passed()
            }
        };
        inbox.follow(happened, || self.reloaded());
        Ok(())
    }

    /// Time comes before the agent, so that a flood of output can't delay a deadline.
    async fn wakeup(&mut self, now: Timestamp) -> Wakeup {
        let wait = self.wait_from(now);
        let gate = &self.options.gate;
        let (attempt, check) = (&mut self.agent_io.attempt, &mut self.agent_io.check);
        let settling = &mut self.agent_io.settling;
        let notifies = self.hooks.as_ref().is_some_and(Hooks::is_running);
        let hooks = &mut self.hooks;
        let is_open = self.control.socket.is_some();
        let socket = &mut self.control.socket;
        tokio::select! {
            biased;
            wish = self.requests.next() => Wakeup::Wish(wish),
            () = rest(gate, wait) => Wakeup::Time,
            end = async { check.as_mut().expect("a check runs").ended().await }, if check.is_some() => Wakeup::Check(end),
            end = async { settling.as_mut().expect("a cleanup runs").ended().await }, if settling.is_some() => Wakeup::Settled(end),
            end = async { hooks.as_mut().expect("a hook runs").ended().await }, if notifies => Wakeup::Notified(end),
            refused = async { socket.as_mut().expect("the socket is open").refused().await }, if is_open => Wakeup::Refused(refused),
            event = async { attempt.as_mut().expect("an attempt runs").wake().await },
                if attempt.as_ref().is_some_and(Attempt::may_speak) => Wakeup::Agent(event),
        }
    }
}

/// Waits for work. If the sleep gate was already shut, only the waits of the stop remain, which have their own ends.
async fn rest(gate: &SleepGate, wait: Duration) {
    match gate.is_shutdown() {
        true => until(Instant::now() + wait).await,
        // The caller checks for a shutdown next.
        false => drop(gate.sleep(wait).await),
    }
}
