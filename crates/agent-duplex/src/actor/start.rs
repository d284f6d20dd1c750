//! The start of an agent: the first one, or the next one.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::command::{
    Command, ReplySender, answer, run_unless_stopped, wait_for_earlier_stop, wait_for_stop,
};
use super::stop::PrimaryRoom;
use super::{Actor, deadline};
use crate::restart::NextStart;
use crate::times;
use crate::{Connection, ConversationEvent, Error, Event, Lifecycle, SessionChoice};

/// The time to wait until the remaining processes of an ended agent release its session.
const RELEASE: Duration = Duration::from_secs(3);
/// The interval between two tries for a session. A process that only checks whether a lock file can be removed holds the lock for less.
const POLL: Duration = Duration::from_millis(50);

impl Actor {
    /// Starts an agent; returns `None` if the conversation is stopped in the meantime.
    pub(super) async fn start(&mut self, session: SessionChoice) -> Option<Result<(), Error>> {
        if self.may_read && !self.closed {
            return Some(Err(runs_already()));
        }
        let fault = self.shared.lock().persistence_error.clone();
        if let Some(fault) = fault {
            return Some(Err(fault));
        }
        self.end_dead_connection().await?;
        self.publish_lifecycle(Lifecycle::Starting);
        {
            let mut state = self.shared.lock();
            state.starts.started();
            state.ledger.set_session(session.clone());
        }
        let started = self.try_start(session).await?;
        if let Err(e) = &started {
            self.not_started(e).await?;
        }
        Some(started)
    }

    /// Ends the processes of an agent that could not be started; returns `None` if the conversation is stopped in the meantime.
    pub(super) async fn not_started(&mut self, e: &Error) -> Option<()> {
        self.shared.lock().starts.failed(e);
        self.earlier_report.add_lost(e);
        self.end_dead_connection().await?;
        self.ended().await;
        Some(())
    }

    async fn try_start(&mut self, session: SessionChoice) -> Option<Result<(), Error>> {
        self.connection = match self.connect_released(session).await? {
            Ok(connection) => Some(connection),
            Err(e) => return Some(Err(e)),
        };
        self.may_read = true;
        self.is_input_refused = false;
        self.retry_at = None;
        self.exit_deadline = None;
        self.closed = false;
        self.finishing = false;
        self.interrupted = false;
        self.was_killed_by_interrupt = false;
        self.death_deadline = None;
        self.shared.lock().ledger.connected();
        if let Err(e) = self.ready().await? {
            return Some(Err(e));
        }
        let capabilities = { self.connection.as_ref() }.and_then(|agent| agent.capabilities());
        let capabilities = capabilities.unwrap_or_else(|| self.driver.capabilities());
        self.shared.lock().agent.capabilities = capabilities;
        Some(self.deliver().await)
    }

    /// Starts an agent automatically, if one is needed now.
    pub(super) async fn start_again(&mut self) {
        if self.next_start() != NextStart::Now {
            return self.notify_if_running();
        }
        // The last output of the previous agent can show that its own start failed, or can name another session.
        if self.end_dead_connection().await.is_none() || self.next_start() != NextStart::Now {
            return self.notify_if_running();
        }
        let session = self.shared.lock().ledger.session().clone();
        let context = self.was_killed_by_interrupt.then(|| context(&session));
        let Some(started) = self.start(session).await else {
            return;
        };
        if let (Some(context), Ok(())) = (context, &started) {
            self.warn(context).await;
        }
        // Waiting callers get this error as their answer, and a crash loop publishes its own warning.
        let is_reported =
            !self.start_waiters.is_empty() || self.shared.lock().starts.refusal().is_some();
        if let Err(e) = &started
            && !is_reported
        {
            let text = format!("the agent could not be started: {e}");
            self.warn(text).await;
        }
        self.notify_start_waiters(&started);
    }

    /// Returns when an agent must be started automatically.
    pub(super) fn next_start(&self) -> NextStart {
        let state = self.shared.lock();
        let is_requested = !self.start_waiters.is_empty();
        let wanted = is_requested || (state.ledger.has_waiting() && !self.is_delivery_paused);
        let may_not = self.frozen || self.is_closing() || state.persistence_error.is_some();
        if !wanted || may_not || self.runs() {
            return NextStart::Never;
        }
        state.starts.next(Instant::now(), is_requested)
    }

    /// Returns whether there is an agent that can accept inputs.
    fn runs(&self) -> bool {
        self.may_read && !self.closed
    }

    /// Ensures that an agent runs, for a caller that waits for it.
    pub(super) fn ensure_running(&mut self, done: ReplySender<Result<(), Error>>) {
        let refusal = self.shared.lock().refusal();
        if let Some(refusal) = refusal {
            answer(done, Err(refusal));
        } else if self.runs() && !self.is_closing() {
            answer(done, Ok(()));
        } else {
            self.start_waiters.retain(|waiting| !waiting.is_closed());
            self.start_waiters.push(done);
        }
    }

    pub(super) fn notify_start_waiters(&mut self, started: &Result<(), Error>) {
        for done in self.start_waiters.drain(..) {
            answer(done, started.clone());
        }
    }

    /// Answers the callers that wait for an agent if another caller has started one, or if the conversation gives up.
    fn notify_if_running(&mut self) {
        let refusal = self.shared.lock().starts.refusal();
        if self.runs() && !self.is_closing() {
            self.notify_start_waiters(&Ok(()));
        } else if let Some(refusal) = refusal {
            self.notify_start_waiters(&Err(refusal));
        }
    }

    /// Drops the inputs that an execution follows if no agent will start for them.
    pub(super) async fn drop_followed(&mut self) {
        let waits = self.runs()
            || self.is_closing()
            || self.frozen
            || self.is_delivery_paused
            || !self.start_waiters.is_empty();
        let events = {
            let mut state = self.shared.lock();
            let next = state.starts.next(Instant::now(), false);
            if state.persistence_error.is_none() && (waits || next != NextStart::Never) {
                return;
            }
            let refusal = state.refusal().unwrap_or_else(|| {
                Error::agent_gone("no agent runs, and none starts automatically")
            });
            state.ledger.drop_followed(&refusal)
        };
        if !events.is_empty() {
            self.store_and_publish(events).await;
        }
    }

    /// Handles the end of an agent, or a failed start.
    pub(super) async fn ended(&mut self) {
        if self.stopping {
            return;
        }
        let refusal = {
            let mut state = self.shared.lock();
            let opened = state.starts.ended(Instant::now());
            opened.then(|| state.starts.refusal()).flatten()
        };
        if let Some(refusal) = refusal {
            self.warn(refusal.to_string()).await;
        }
    }

    pub(super) async fn warn(&mut self, text: String) {
        self.store_and_publish(vec![ConversationEvent::Observed(
            Event::Warning(text).into(),
        )])
        .await;
    }

    /// Postpones a start until the agent that is being closed has ended, and the conversation is not frozen.
    pub(super) fn schedule_start(&mut self, start: Command) {
        if self.next_start.is_none() {
            self.next_start = Some(start);
        } else if let Command::Start { done, .. } = start {
            answer(done, Err(runs_already()));
        }
    }

    /// Opens a connection, and waits a short time for a session that is about to be released. A stop ends this wait immediately, because no agent was
    /// started yet.
    async fn connect_released(
        &mut self,
        session: SessionChoice,
    ) -> Option<Result<Box<dyn Connection>, Error>> {
        let begun = Instant::now();
        loop {
            let connected = self.connect(session.clone()).await?;
            let limit = match &connected {
                Err(e) if e.is_releasing() => RELEASE,
                Err(e) if e.is_session_in_use() => POLL,
                _ => return Some(connected),
            };
            if begun.elapsed() >= limit {
                return Some(connected);
            }
            self.wait(Instant::now() + POLL).await?;
        }
    }

    /// Waits until `at` and handles interrupts in the meantime; returns `None` if the conversation is stopped before.
    async fn wait(&mut self, at: Instant) -> Option<()> {
        let due = deadline(at);
        tokio::pin!(due);
        loop {
            tokio::select! {
                biased;
                _ = wait_for_stop(&mut self.stop_deadline) => return None,
                Some(interrupt) = self.interrupts.recv() => self.persistence.idle(&mut self.stop_deadline, interrupt).await,
                () = &mut due => return Some(()),
            }
        }
    }

    /// Opens a connection. A stop waits for the result for a quarter of its budget, so that the started processes can be ended with a report.
    async fn connect(
        &mut self,
        session: SessionChoice,
    ) -> Option<Result<Box<dyn Connection>, Error>> {
        let connecting = self.driver.connect(session);
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                biased;
                end_by = wait_for_stop(&mut self.stop_deadline) => {
                    let mut end_by = end_by?;
                    let connected = loop {
                        let budget = end_by.saturating_duration_since(Instant::now());
                        tokio::select! {
                            biased;
                            connected = timeout(budget / 4, &mut connecting) => break connected,
                            sooner = wait_for_earlier_stop(&mut self.stop_deadline, end_by) => end_by = sooner,
                        }
                    };
                    match connected {
                        Ok(Ok(connected)) => self.connection = Some(connected),
                        Ok(Err(e)) => self.earlier_report.add_lost(&e),
                        Err(_) => self.earlier_report.proven = false,
                    }
                    self.may_read = self.connection.is_some();
                    return None;
                }
                Some(interrupt) = self.interrupts.recv() => self.persistence.idle(&mut self.stop_deadline, interrupt).await,
                connected = &mut connecting => return Some(connected),
            }
        }
    }

    /// Waits until it is known whether the agent could start; returns `None` if the conversation is stopped in the meantime. In that case the caller
    /// has to stop the connection.
    async fn ready(&mut self) -> Option<Result<(), Error>> {
        let ready = self.connection.as_mut()?.ready();
        tokio::pin!(ready);
        loop {
            tokio::select! {
                biased;
                _ = wait_for_stop(&mut self.stop_deadline) => return None,
                Some(interrupt) = self.interrupts.recv() => self.persistence.idle(&mut self.stop_deadline, interrupt).await,
                ready = &mut ready => return Some(ready),
            }
        }
    }

    /// Ends the connection of an agent that is gone, together with its leftovers; returns `None` if the conversation is stopped in the meantime.
    pub(super) async fn end_dead_connection(&mut self) -> Option<()> {
        if let Some(connection) = self.connection.as_mut() {
            let report = run_unless_stopped(
                &mut self.stop_deadline,
                connection.stop(times::LEFTOVER_BUDGET),
            )
            .await?;
            self.earlier_report.add(report);
            self.drain_output(PrimaryRoom::Ignored).await?;
            self.connection = None;
            self.finish_close();
        }
        Some(())
    }
}

/// Returns a warning that states whether the agent after an interrupted one has the context of the session.
fn context(session: &SessionChoice) -> String {
    let next = match session {
        SessionChoice::Resume(id) => format!("resumes session {id}: the context is kept"),
        SessionChoice::Fork(id) => format!("forks session {id}: the context is kept"),
        SessionChoice::Fresh | SessionChoice::Create(_) => {
            "starts a new session: the context is lost".to_owned()
        }
    };
    format!("the interrupt ended the agent; the next one {next}")
}

fn runs_already() -> Error {
    let what = "an agent already runs in this conversation; close or stop it first";
    Error::start(what, None)
}
