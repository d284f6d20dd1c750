//! The one task that owns the connection: it reads the agent, delivers inputs and handles commands.

mod command;
mod end;
mod hand;
mod keeps;
mod start;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

pub(crate) use command::{Channels, Command, Interrupt};
use command::{Done, Halt, answer, follow, halted, reply, unless_halted};
pub(crate) use keeps::Keeps;

use crate::replay;
use crate::shared::Shared;
use crate::starts::Next;
use crate::{
    Connection, Driver, EndReason, Error, Event, Lifecycle, LostSession, Mode, Observation, Queued,
    Record, SessionChoice, StopReport, TurnEnd, What, times,
};

/// The maximum number of observations, and of bytes, to read before publishing them.
const TOGETHER: usize = 64;
const TOGETHER_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Actor {
    shared: Arc<Shared>,
    driver: Box<dyn Driver>,
    mode: Mode,
    commands: mpsc::Receiver<Command>,
    interrupts: mpsc::Receiver<Interrupt>,
    halt: Halt,
    report: watch::Sender<Option<StopReport>>,
    keeps: Keeps,
    connection: Option<Box<dyn Connection>>,
    /// Whether more output can come from the connection.
    reading: bool,
    /// The observations that were read and not published yet.
    heard: Vec<Observation>,
    /// Whether the agent refused an input. The actor tries again at the end of the turn, and when there is another input.
    refused: bool,
    /// The time of the next try with an agent that did not read, unless something else comes first.
    again_at: Option<Instant>,
    /// The time until which an idle agent that accepts no input may exit, before the actor reports that it accepts none.
    leaves_by: Option<Instant>,
    /// Whether the agent was asked to close; it gets no more inputs.
    closed: bool,
    /// Whether the agent is frozen.
    frozen: bool,
    /// Whether the delivery of inputs is paused.
    held: bool,
    /// Whether the actor closes the agent because its one turn has ended.
    finishing: bool,
    /// Whether the last turn of the agent was interrupted.
    interrupted: bool,
    /// Whether an interrupt ended the last agent, and not only its turn.
    ended_by_interrupt: bool,
    /// The time until which an agent that died in its turn may report the end of its output; it gets no input before.
    dies_by: Option<Instant>,
    /// Whether the conversation is stopping; the remaining work has time limits.
    stopping: bool,
    /// Callers that wait for the end of the turn that they interrupted.
    interrupting: Vec<Done<Result<(), Error>>>,
    /// Callers that wait for the close of the agent.
    closing: Vec<Done<()>>,
    /// The time until which a close waits for the agent's work.
    close_by: Instant,
    /// The time limit of a close from its start; it starts again when the agent is thawed.
    patience: Duration,
    /// Callers that wait for a running agent.
    ensuring: Vec<Done<Result<(), Error>>>,
    /// The start of another agent, which waits for the close of the current one.
    successor: Option<Command>,
    /// The merged stop reports of the earlier connections.
    earlier: StopReport,
}

impl Actor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        driver: Box<dyn Driver>,
        channels: Channels,
        keeps: Keeps,
        mode: Mode,
    ) -> Self {
        Self {
            shared,
            driver,
            mode,
            commands: channels.commands,
            interrupts: channels.interrupts,
            halt: channels.halt,
            report: channels.report,
            keeps,
            connection: None,
            reading: false,
            heard: Vec::new(),
            refused: false,
            again_at: None,
            leaves_by: None,
            closed: false,
            frozen: false,
            held: false,
            finishing: false,
            interrupted: false,
            ended_by_interrupt: false,
            dies_by: None,
            stopping: false,
            interrupting: Vec::new(),
            closing: Vec::new(),
            close_by: Instant::now(),
            patience: times::CLOSING,
            ensuring: Vec::new(),
            successor: None,
            earlier: StopReport::nothing(true),
        }
    }

    pub(crate) async fn run(mut self) {
        let end_by = loop {
            self.fail_stop().await;
            let close = self.closes();
            if !self.is_closing()
                && let Some(start) = self.successor.take()
            {
                self.obey(start).await;
            }
            self.start_again().await;
            if let Err(e) = self.deliver().await {
                self.turned_down(&e).await;
            }
            self.give_up().await;
            self.show(self.lifecycle());
            let room = self.shared.primary.has_room();
            let waits = self.is_closing() && !close && !self.frozen;
            let next = self.next_start();
            let again = self.again_at.filter(|_| self.refused && self.reading);
            // The actor handles a command immediately: both waits can be dropped and started again.
            tokio::select! {
                biased;
                end_by = halted(&mut self.halt) => break end_by,
                Some(interrupt) = self.interrupts.recv() => self.interrupt(interrupt).await,
                Some(command) = self.commands.recv() => self.obey(command).await,
                () = self.shared.arrived.notified() => {}
                () = until(self.close_by), if waits => {}
                () = until(self.dies_by.unwrap_or(self.close_by)), if self.dies_by.is_some() => self.dies_by = None,
                () = until(again.unwrap_or(self.close_by)), if again.is_some() => self.refused = false,
                () = due(next), if next != Next::Never => {}
                did = close_or_next(&mut self.connection, close), if close || (self.reading && room) => match did {
                    Did::Close => self.close_over(),
                    Did::Say(seen) => self.read_on(seen).await,
                },
                () = self.shared.primary.room(), if self.reading && !room => {}
            }
        };
        self.stopping = true;
        match end_by {
            Some(end_by) => self.stop(end_by).await,
            None => self.abandon().await,
        }
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Start { .. } if self.is_closing() => self.succeed(command),
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
                let asked = unless_halted(&mut self.halt, connection.answer(&ask, decision)).await;
                if let Some(Ok(())) = asked {
                    self.shared.lock().ledger.answered(&ask);
                }
                reply(done, asked);
            }
            Command::Permissions { permissions, done } => {
                let Some(connection) = self.connection.as_mut().filter(|_| self.reading) else {
                    return answer(done, Err(Error::gone("no agent runs; start one")));
                };
                let asking = connection.set_permissions(permissions);
                follow(done, unless_halted(&mut self.halt, asking).await);
            }
            Command::Model { model, done } => {
                let Some(connection) = self.connection.as_mut().filter(|_| self.reading) else {
                    return answer(done, Err(Error::gone("no agent runs; start one")));
                };
                let asking = connection.set_model(model);
                follow(done, unless_halted(&mut self.halt, asking).await);
            }
            Command::Freeze { frozen, done } => match self.connection.as_mut() {
                Some(connection) => {
                    let freezing = connection.freeze(frozen);
                    let freezing = unless_halted(&mut self.halt, freezing).await;
                    let frozen = frozen && matches!(freezing, Some(Ok(())));
                    if std::mem::replace(&mut self.frozen, frozen) {
                        // The time in which the agent was frozen does not count.
                        self.close_by = Instant::now() + self.patience;
                    }
                    reply(done, freezing);
                }
                None => answer(done, Ok(())),
            },
            Command::Hold { held, done } => {
                self.held = held;
                answer(done, ());
            }
            Command::Close { patience, done } => {
                self.shared.lock().starts.rest();
                let closed = Err(Error::gone("closed before it was started"));
                self.answer_ensuring(&closed);
                self.close_soon(patience);
                self.closing.push(done);
            }
            Command::Ensure { done } => self.ensure(done),
            Command::Leftovers { done } => match self.connection.as_mut() {
                Some(connection) => {
                    reply(
                        done,
                        unless_halted(&mut self.halt, connection.leftovers()).await,
                    );
                }
                None => answer(done, Vec::new()),
            },
        }
    }

    async fn interrupt(&mut self, interrupt: Interrupt) {
        let busy = self.shared.lock().ledger.is_busy();
        let Some(connection) = self.connection.as_mut().filter(|_| busy) else {
            return self.keeps.idle(&mut self.halt, interrupt).await;
        };
        let Interrupt { queued, done } = interrupt;
        let asked = unless_halted(&mut self.halt, connection.interrupt(queued)).await;
        if let Some(Err(e)) = asked {
            return answer(done, Err(e));
        }
        if queued == Queued::Drop {
            self.keeps.drop_waiting(&mut self.halt).await;
        }
        self.interrupting.retain(|waiting| !waiting.is_closed());
        self.interrupting.push(done);
        if !self.shared.lock().ledger.in_turn() {
            self.turn_over();
        }
    }

    /// Publishes an observation together with the further output that is available and may be read in advance, so that each reader is woken once.
    async fn read_on(&mut self, mut seen: Option<Observation>) {
        let most = self.shared.primary.has_room_for().min(TOGETHER);
        let mut bytes = 0;
        while let Some(next_one) = seen.take() {
            let goes_on = next_one.events.iter().all(Event::lets_read_on);
            bytes += replay::bytes(&next_one);
            self.heard.push(next_one);
            if !goes_on {
                return self.seen(false).await;
            } else if self.heard.len() >= most || bytes >= TOGETHER_BYTES {
                self.seen(false).await;
                // There is more output, and the subscribers must get their turn to read.
                return tokio::task::yield_now().await;
            }
            seen = tokio::select! {
                biased;
                seen = next(&mut self.connection) => seen,
                () = std::future::ready(()) => return self.seen(false).await,
            };
        }
        self.seen(true).await;
    }

    /// Publishes the observations that were read; `gone` if the agent's output has ended.
    async fn seen(&mut self, gone: bool) {
        let told = self.noted(gone);
        let over = told.iter().any(|what| matches!(what, What::Completed(_)));
        let lost = self.shared.lock().starts.lost_session() == LostSession::Fresh
            && told
                .iter()
                .any(|what| ended_by(what, EndReason::SessionNotFound));
        if lost {
            self.shared.lock().ledger.chosen(SessionChoice::Fresh);
        }
        let died = told.iter().any(|what| ended_by(what, EndReason::Died));
        if died {
            self.dies_by = Some(Instant::now() + times::DYING);
        }
        self.tell(told).await;
        if lost {
            let text = "the session no longer exists; the next agent starts a new one";
            self.warn(text.to_owned()).await;
        }
        if over {
            self.refused = false;
            self.leaves_by = None;
            self.turn_over();
            if self.mode == Mode::OneShot && !self.shared.lock().ledger.in_turn() {
                self.close_soon(times::CLOSING);
                self.finishing = true;
            }
        }
        if gone {
            self.ended().await;
        }
    }

    fn noted(&mut self, gone: bool) -> Vec<What> {
        let mut state = self.shared.lock();
        let mut told = Vec::new();
        for mut seen in self.heard.drain(..) {
            if self.closed {
                seen.events.iter_mut().for_each(cut);
            }
            for event in &seen.events {
                if let Event::Exited(status) = event {
                    state.starts.exited(*status);
                }
            }
            told.append(&mut state.ledger.observe(seen));
        }
        if gone {
            self.reading = false;
            let owed = match &state.fault {
                Some(fault) => keeps::failure(&fault.to_string()),
                None if self.stopping => EndReason::Interrupted.into(),
                None if self.closed => closed(),
                None => TurnEnd::from(EndReason::Died),
            };
            told.append(&mut state.ledger.connection_ended(owed));
        }
        for what in &told {
            if let What::Completed(completion) = what {
                state.starts.turn(&completion.end);
                self.interrupted = completion.end.reason == EndReason::Interrupted;
            }
        }
        if gone {
            self.ended_by_interrupt = self.interrupted && !self.closed && !self.finishing;
        }
        told
    }

    /// Stores events, and then publishes them.
    async fn tell(&mut self, told: Vec<What>) {
        let halt = (!self.stopping).then_some(&mut self.halt);
        self.keeps.tell(told, halt).await;
    }

    /// Stores records; returns `None` if the conversation is halted before the result is known. Records a persistence fault.
    async fn keep(&mut self, records: Vec<Record>) -> Option<()> {
        let halt = (!self.stopping).then_some(&mut self.halt);
        self.keeps.keep(records, halt).await
    }

    /// Waits until everything is stored, and publishes the events that wait for it.
    async fn settle(&mut self) {
        self.keep(Vec::new()).await;
        self.keeps.publish_rest();
    }

    /// Ends the agent of a conversation that can't be stored.
    async fn fail_stop(&mut self) {
        let fault = self.shared.lock().fault.clone();
        let Some(fault) = fault else {
            return;
        };
        self.answer_ensuring(&Err(fault));
        // If the conversation is halted, the agent is ended as well.
        let _halted = self.retire().await;
    }

    fn turn_over(&mut self) {
        for done in self.interrupting.drain(..) {
            answer(done, Ok(()));
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        let (in_turn, gives_up) = {
            let state = self.shared.lock();
            (state.ledger.in_turn(), state.starts.refusal().is_some())
        };
        if !in_turn {
            if self.reading && !self.is_leaving() {
                Lifecycle::Ready
            } else if gives_up && !self.reading {
                Lifecycle::CrashLoop
            } else {
                Lifecycle::Idle
            }
        } else if self.interrupting.is_empty() {
            Lifecycle::InTurn
        } else {
            Lifecycle::Interrupting
        }
    }

    fn show(&self, lifecycle: Lifecycle) {
        let mut state = self.shared.lock();
        if state.lifecycle != lifecycle {
            state.lifecycle = lifecycle;
            state.publish(What::Lifecycle(lifecycle));
        }
    }
}

/// Waits until `at`. It has no deadline and no token: each caller races it against a halt in its `select!`.
async fn until(at: Instant) {
    let _elapsed = timeout_at(at, std::future::pending::<()>()).await;
}

/// Waits until the next start of an agent is due, as [`until`] does.
async fn due(next: Next) {
    if let Next::At(at) = next {
        until(at).await;
    }
}

/// Marks the end of a turn as closed: the agent did not die, but was closed during its turn.
fn cut(event: &mut Event) {
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

fn ended_by(what: &What, reason: EndReason) -> bool {
    matches!(what, What::Completed(completion) if completion.end.reason == reason)
}

/// The result of a wait for the agent.
enum Did {
    Close,
    Say(Option<Observation>),
}

async fn close_or_next(connection: &mut Option<Box<dyn Connection>>, close: bool) -> Did {
    match connection {
        Some(connection) if close => {
            connection.close().await;
            Did::Close
        }
        _ => Did::Say(next(connection).await),
    }
}

async fn next(connection: &mut Option<Box<dyn Connection>>) -> Option<Observation> {
    connection.as_mut()?.next().await
}
