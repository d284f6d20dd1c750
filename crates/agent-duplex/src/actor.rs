//! The one task that owns the connection: it reads the agent, delivers inputs and handles commands.

mod command;
mod deliver;
mod persist;
mod start;
mod stop;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

pub(crate) use command::{Channels, Command, Interrupt};
use command::{
    ReplySender, StopDeadline, answer, follow, reply, run_unless_stopped, wait_for_stop,
};
pub(crate) use persist::PersistenceClient;

use crate::history;
use crate::restart::NextStart;
use crate::shared::Shared;
use crate::{
    Connection, ConversationEvent, Driver, EndReason, Error, Event, Lifecycle, LostSession, Mode,
    Observation, PersistedRecord, QueuedMessages, SessionChoice, StopReport, TurnEnd, times,
};

/// The maximum number of observations to read before publishing them.
const MAX_BATCH: usize = 64;
/// The maximum number of bytes to read before publishing them.
const MAX_BATCH_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Actor {
    shared: Arc<Shared>,
    driver: Box<dyn Driver>,
    mode: Mode,
    commands: mpsc::Receiver<Command>,
    interrupts: mpsc::Receiver<Interrupt>,
    stop_deadline: StopDeadline,
    report: watch::Sender<Option<StopReport>>,
    persistence: PersistenceClient,
    connection: Option<Box<dyn Connection>>,
    /// Whether more output can come from the connection.
    may_read: bool,
    /// The observations that were read and not published yet.
    unpublished: Vec<Observation>,
    /// Whether the agent refused an input. The actor tries again at the end of the turn, and when there is another input.
    is_input_refused: bool,
    /// The time of the next try with an agent that did not read or accepted no input, unless something else comes first.
    retry_at: Option<Instant>,
    /// The time until which the actor waits for the exit of an idle agent that accepts no input. After that, the actor reports the refusal.
    exit_deadline: Option<Instant>,
    /// Whether the agent was asked to close; it gets no more inputs.
    closed: bool,
    /// Whether the conversation is frozen: the agent is, and no input is delivered and no agent starts.
    frozen: bool,
    /// Whether the delivery of inputs is paused.
    is_delivery_paused: bool,
    /// Whether the actor closes the agent because its one turn has ended.
    finishing: bool,
    /// Whether the last turn of the agent was interrupted.
    interrupted: bool,
    /// Whether an interrupt ended the last agent, and not only its turn.
    was_killed_by_interrupt: bool,
    /// The time until which the actor waits for the end of the output of an agent that died in its turn. Until then the agent gets no input.
    death_deadline: Option<Instant>,
    /// Whether the conversation is stopping; the remaining work has time limits.
    stopping: bool,
    /// Callers that wait for the end of the turn that they interrupted.
    interrupt_waiters: Vec<ReplySender<Result<(), Error>>>,
    /// Callers that wait for the close of the agent.
    close_waiters: Vec<ReplySender<()>>,
    /// The time until which a close waits for the agent's work.
    close_deadline: Instant,
    /// The time that a close may take. This time starts again when the agent is thawed.
    close_timeout: Duration,
    /// Callers that wait for a running agent.
    start_waiters: Vec<ReplySender<Result<(), Error>>>,
    /// The start of another agent, which waits for the close of the current one.
    next_start: Option<Command>,
    /// The merged stop reports of the earlier connections.
    earlier_report: StopReport,
}

impl Actor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        driver: Box<dyn Driver>,
        channels: Channels,
        client: PersistenceClient,
        mode: Mode,
    ) -> Self {
        Self {
            shared,
            driver,
            mode,
            commands: channels.commands,
            interrupts: channels.interrupts,
            stop_deadline: channels.stop_deadline,
            report: channels.report,
            persistence: client,
            connection: None,
            may_read: false,
            unpublished: Vec::new(),
            is_input_refused: false,
            retry_at: None,
            exit_deadline: None,
            closed: false,
            frozen: false,
            is_delivery_paused: false,
            finishing: false,
            interrupted: false,
            was_killed_by_interrupt: false,
            death_deadline: None,
            stopping: false,
            interrupt_waiters: Vec::new(),
            close_waiters: Vec::new(),
            close_deadline: Instant::now(),
            close_timeout: times::CLOSE_TIMEOUT,
            start_waiters: Vec::new(),
            next_start: None,
            earlier_report: StopReport::nothing(true),
        }
    }

    pub(crate) async fn run(mut self) {
        let end_by = loop {
            self.stop_on_persistence_failure().await;
            let close = self.is_close_due();
            if !self.is_closing()
                && !self.frozen
                && let Some(start) = self.next_start.take()
            {
                self.handle_command(start).await;
            }
            self.start_again().await;
            if let Err(e) = self.deliver().await {
                self.retry_later(&e).await;
            }
            self.drop_followed().await;
            self.publish_lifecycle(self.lifecycle());
            let room = self.shared.primary.has_room();
            let waits = self.is_closing() && !close && !self.frozen;
            let next = self.next_start();
            let again = self
                .retry_at
                .filter(|_| self.is_input_refused && self.may_read);
            // Commands interrupt the wait for output and the close: both futures can be dropped and started again.
            tokio::select! {
                biased;
                end_by = wait_for_stop(&mut self.stop_deadline) => break end_by,
                Some(interrupt) = self.interrupts.recv() => self.interrupt(interrupt).await,
                Some(command) = self.commands.recv() => self.handle_command(command).await,
                () = self.shared.input_notify.notified() => {}
                () = deadline(self.close_deadline), if waits => {}
                () = deadline(self.death_deadline.unwrap_or(self.close_deadline)), if self.death_deadline.is_some() => self.death_deadline = None,
                () = deadline(again.unwrap_or(self.close_deadline)), if again.is_some() => self.is_input_refused = false,
                () = wait_for_restart(next), if next != NextStart::Never => {}
                did = close_or_next(&mut self.connection, close), if close || (self.may_read && room) => match did {
                    AgentAction::Close => self.finish_close(),
                    AgentAction::Output(seen) => self.read_on(seen).await,
                },
                () = self.shared.primary.room(), if self.may_read && !room => {}
            }
        };
        self.stopping = true;
        match end_by {
            Some(end_by) => self.stop(end_by).await,
            None => self.stop_unowned().await,
        }
    }

    async fn handle_command(&mut self, command: Command) {
        match command {
            Command::Start { .. } if self.is_closing() || self.frozen => {
                self.schedule_start(command);
            }
            Command::Start { session, done } => {
                self.shared.lock().starts.reset();
                if let Some(started) = self.start(session).await {
                    answer(done, started);
                }
            }
            Command::Answer {
                ask,
                decision,
                done,
            } => {
                let open = self.shared.lock().ledger.unanswered(&ask);
                let (Some(connection), Some(ask)) = (self.connection.as_mut(), open) else {
                    return answer(done, Ok(()));
                };
                let result =
                    run_unless_stopped(&mut self.stop_deadline, connection.answer(&ask, decision))
                        .await;
                if let Some(Ok(())) = result {
                    self.shared.lock().ledger.answered(&ask);
                }
                reply(done, result);
            }
            Command::Permissions { permissions, done } => {
                let Some(connection) = self.connection.as_mut().filter(|_| self.may_read) else {
                    return answer(done, Err(Error::agent_gone("no agent runs; start one")));
                };
                let asking = connection.set_permissions(permissions);
                follow(
                    done,
                    run_unless_stopped(&mut self.stop_deadline, asking).await,
                );
            }
            Command::Model { model, done } => {
                let Some(connection) = self.connection.as_mut().filter(|_| self.may_read) else {
                    return answer(done, Err(Error::agent_gone("no agent runs; start one")));
                };
                let asking = connection.set_model(model);
                follow(
                    done,
                    run_unless_stopped(&mut self.stop_deadline, asking).await,
                );
            }
            Command::Freeze { frozen, done } => {
                if std::mem::replace(&mut self.frozen, frozen) {
                    // A close gets its whole time again after a thaw.
                    self.close_deadline = Instant::now() + self.close_timeout;
                }
                match self.connection.as_mut() {
                    Some(connection) => {
                        let freezing = connection.freeze(frozen);
                        let freezing = run_unless_stopped(&mut self.stop_deadline, freezing).await;
                        reply(done, freezing);
                    }
                    None => answer(done, Ok(())),
                }
            }
            Command::PauseDelivery {
                is_delivery_paused: is_paused,
                done,
            } => {
                self.is_delivery_paused = is_paused;
                answer(done, ());
            }
            Command::Close {
                close_timeout,
                done,
            } => {
                self.shared.lock().starts.wait_for_input();
                let closed = Err(Error::agent_gone("closed before it was started"));
                self.notify_start_waiters(&closed);
                self.schedule_close(close_timeout);
                self.close_waiters.push(done);
            }
            Command::EnsureRunning { done } => self.ensure_running(done),
            Command::Leftovers { done } => match self.connection.as_mut() {
                Some(connection) => {
                    reply(
                        done,
                        run_unless_stopped(&mut self.stop_deadline, connection.leftovers()).await,
                    );
                }
                None => answer(done, Vec::new()),
            },
        }
    }

    async fn interrupt(&mut self, interrupt: Interrupt) {
        let busy = self.shared.lock().ledger.is_busy();
        let Some(connection) = self.connection.as_mut().filter(|_| busy) else {
            return self
                .persistence
                .idle(&mut self.stop_deadline, interrupt)
                .await;
        };
        let Interrupt { queued, done } = interrupt;
        let result =
            run_unless_stopped(&mut self.stop_deadline, connection.interrupt(queued)).await;
        if let Some(Err(e)) = result {
            return answer(done, Err(e));
        }
        if queued == QueuedMessages::Drop {
            self.persistence.drop_waiting(&mut self.stop_deadline).await;
        }
        self.interrupt_waiters
            .retain(|waiting| !waiting.is_closed());
        self.interrupt_waiters.push(done);
        if !self.shared.lock().ledger.in_turn() {
            self.notify_interrupt_waiters();
        }
    }

    /// Publishes an observation. Before that, reads more output if it is available and may be read in advance, so that each reader is woken only
    /// once.
    async fn read_on(&mut self, mut seen: Option<Observation>) {
        let most = self.shared.primary.has_room_for().min(MAX_BATCH);
        let mut bytes = 0;
        while let Some(next_one) = seen.take() {
            let may_continue = next_one.events.iter().all(Event::may_batch);
            bytes += history::bytes(&next_one);
            self.unpublished.push(next_one);
            if !may_continue {
                return self.publish_read(false).await;
            } else if self.unpublished.len() >= most || bytes >= MAX_BATCH_BYTES {
                self.publish_read(false).await;
                // There is more output, and the subscribers must get a chance to read.
                return tokio::task::yield_now().await;
            }
            seen = tokio::select! {
                biased;
                seen = next(&mut self.connection) => seen,
                () = std::future::ready(()) => return self.publish_read(false).await,
            };
        }
        self.publish_read(true).await;
    }

    /// Publishes the observations that were read; `gone` is true if the agent's output has ended.
    async fn publish_read(&mut self, gone: bool) {
        let events = self.take_events(gone);
        let over = events
            .iter()
            .any(|what| matches!(what, ConversationEvent::Completed(_)));
        let lost = self.shared.lock().starts.lost_session() == LostSession::Fresh
            && events
                .iter()
                .any(|what| ended_by(what, EndReason::SessionNotFound));
        if lost {
            self.shared.lock().ledger.set_session(SessionChoice::Fresh);
        }
        let died = events.iter().any(|what| ended_by(what, EndReason::Died));
        if died {
            self.death_deadline = Some(Instant::now() + times::DEATH_GRACE);
        }
        self.store_and_publish(events).await;
        if lost {
            let text = "the session no longer exists; the next agent starts a new one";
            self.warn(text.to_owned()).await;
        }
        if over {
            self.is_input_refused = false;
            self.exit_deadline = None;
            self.notify_interrupt_waiters();
            if self.mode == Mode::OneShot && !self.shared.lock().ledger.in_turn() {
                self.schedule_close(times::CLOSE_TIMEOUT);
                self.finishing = true;
            }
        }
        if gone {
            self.ended().await;
        }
    }

    fn take_events(&mut self, gone: bool) -> Vec<ConversationEvent> {
        let mut state = self.shared.lock();
        let mut events = Vec::new();
        for mut seen in self.unpublished.drain(..) {
            if self.closed {
                seen.events.iter_mut().for_each(mark_as_closed);
            }
            for event in &seen.events {
                if let Event::Exited(status) = event {
                    state.starts.exited(*status);
                }
            }
            events.append(&mut state.ledger.observe(seen));
        }
        if gone {
            self.may_read = false;
            let owed = match &state.persistence_error {
                Some(fault) => persist::failure(&fault.to_string()),
                None if self.stopping => EndReason::Interrupted.into(),
                None if self.closed => closed(),
                None => TurnEnd::from(EndReason::Died),
            };
            events.append(&mut state.ledger.connection_ended(owed));
        }
        for what in &events {
            if let ConversationEvent::Completed(completion) = what {
                state.starts.turn(&completion.end);
                self.interrupted = completion.end.reason == EndReason::Interrupted;
            }
        }
        if gone {
            self.was_killed_by_interrupt = self.interrupted && !self.closed && !self.finishing;
        }
        events
    }

    /// Stores events, and then publishes them.
    async fn store_and_publish(&mut self, events: Vec<ConversationEvent>) {
        let stop_deadline = (!self.stopping).then_some(&mut self.stop_deadline);
        self.persistence
            .store_and_publish(events, stop_deadline)
            .await;
    }

    /// Stores records; returns `None` if the conversation is stopped before the result is known. An error of the store is recorded in [`Shared`].
    async fn store(&mut self, records: Vec<PersistedRecord>) -> Option<()> {
        let stop_deadline = (!self.stopping).then_some(&mut self.stop_deadline);
        self.persistence.store(records, stop_deadline).await
    }

    /// Waits until everything is stored, and publishes the events that wait for it.
    async fn flush_persistence(&mut self) {
        self.store(Vec::new()).await;
        self.persistence.publish_unpublished();
    }

    /// Ends the agent of a conversation that can't be stored.
    async fn stop_on_persistence_failure(&mut self) {
        let fault = self.shared.lock().persistence_error.clone();
        let Some(fault) = fault else {
            return;
        };
        self.notify_start_waiters(&Err(fault));
        // If a stop interrupts this call, the stop ends the agent.
        let _stopped = self.end_dead_connection().await;
    }

    fn notify_interrupt_waiters(&mut self) {
        for done in self.interrupt_waiters.drain(..) {
            answer(done, Ok(()));
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        let (in_turn, gives_up) = {
            let state = self.shared.lock();
            (state.ledger.in_turn(), state.starts.refusal().is_some())
        };
        if !in_turn {
            if self.may_read && !self.is_leaving() {
                Lifecycle::Ready
            } else if gives_up && !self.may_read {
                Lifecycle::CrashLoop
            } else {
                Lifecycle::Idle
            }
        } else if self.interrupt_waiters.is_empty() {
            Lifecycle::InTurn
        } else {
            Lifecycle::Interrupting
        }
    }

    fn publish_lifecycle(&self, lifecycle: Lifecycle) {
        let mut state = self.shared.lock();
        if state.lifecycle != lifecycle {
            state.lifecycle = lifecycle;
            state.publish(ConversationEvent::Lifecycle(lifecycle));
        }
    }
}

/// Waits until `at`. Each caller races this wait against a stop in its `select!`.
async fn deadline(at: Instant) {
    let _elapsed = timeout_at(at, std::future::pending::<()>()).await;
}

/// Waits until the next start of an agent is due.
async fn wait_for_restart(next: NextStart) {
    if let NextStart::At(at) = next {
        deadline(at).await;
    }
}

/// Changes the reason of a turn from died to interrupted, because the conversation closed the agent during the turn.
fn mark_as_closed(event: &mut Event) {
    if let Event::TurnCompleted(end) = event
        && end.reason == EndReason::Died
    {
        let TurnEnd { reason, detail, .. } = closed();
        (end.reason, end.detail) = (reason, detail);
    }
}

fn closed() -> TurnEnd {
    TurnEnd {
        detail: "the agent was closed before its turn ended".into(),
        ..EndReason::Interrupted.into()
    }
}

fn ended_by(what: &ConversationEvent, reason: EndReason) -> bool {
    matches!(what, ConversationEvent::Completed(completion) if completion.end.reason == reason)
}

/// The result of a wait for the agent.
enum AgentAction {
    Close,
    Output(Option<Observation>),
}

async fn close_or_next(connection: &mut Option<Box<dyn Connection>>, close: bool) -> AgentAction {
    match connection {
        Some(connection) if close => {
            connection.close().await;
            AgentAction::Close
        }
        _ => AgentAction::Output(next(connection).await),
    }
}

async fn next(connection: &mut Option<Box<dyn Connection>>) -> Option<Observation> {
    connection.as_mut()?.next().await
}
