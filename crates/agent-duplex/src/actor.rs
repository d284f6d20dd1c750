//! The one task that holds the connection: it reads the agent, hands inputs on and obeys the handles.

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

/// How much the agent may have said before its readers are told.
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
    /// Whether the connection may have something to say.
    reading: bool,
    /// What it said and nobody was told yet.
    heard: Vec<Observation>,
    /// Whether the agent refused an input; it is asked again at the end of its turn, and when there is another input.
    refused: bool,
    /// When one that did not read is asked again, unless something else comes first.
    again_at: Option<Instant>,
    /// Until when an agent that does nothing and can take no input may end, before it is said that it takes none.
    leaves_by: Option<Instant>,
    /// Whether the agent was told to close; it gets no input any more.
    closed: bool,
    /// Whether the agent was stopped where it stands.
    frozen: bool,
    /// Whether nothing is handed on.
    held: bool,
    /// Whether the agent is closed because its one turn is over.
    finishing: bool,
    /// Whether the last turn of the agent was interrupted.
    interrupted: bool,
    /// Whether an interrupt ended the last agent and not only its turn.
    ended_by_interrupt: bool,
    /// Until when an agent that died in its turn may say that it has nothing more to say; it gets no input meanwhile.
    dies_by: Option<Instant>,
    /// Whether everything is being ended; what is still to be done is done within bounds.
    stopping: bool,
    /// Those who wait for the end of the turn that they interrupted.
    interrupting: Vec<Done<Result<(), Error>>>,
    /// Those who wait for the agent to be closed.
    closing: Vec<Done<()>>,
    /// Until when closing waits for what the agent has to do.
    close_by: Instant,
    /// How long that was from the beginning, and is again after it stood still.
    patience: Duration,
    /// Those who wait for an agent that runs.
    ensuring: Vec<Done<Result<(), Error>>>,
    /// The start of another agent, which waits for the one that is being closed.
    successor: Option<Command>,
    /// What came of the connections before this one.
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
            // A command that comes meanwhile is obeyed at once: both may be left and taken up again.
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
                    return answer(done, Err(Error::gone("none runs; start it")));
                };
                let asking = connection.set_permissions(permissions);
                follow(done, unless_halted(&mut self.halt, asking).await);
            }
            Command::Model { model, done } => {
                let Some(connection) = self.connection.as_mut().filter(|_| self.reading) else {
                    return answer(done, Err(Error::gone("none runs; start it")));
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
                        // The time in which it stood still was not its own.
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
                let closed = Err(Error::gone("it was closed before it was started"));
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

    /// Takes what the agent did, and what else it has said by now as long as that lets it: readers are told, and woken, once.
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
                // There is more, and readers that nobody waits for are to get their turn.
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

    /// Tells what was heard of the agent; `gone` when it has nothing more to say.
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
            let text = "the session does not exist any more; the next agent begins a new one";
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

    /// Keeps what is to be told, and tells it.
    async fn tell(&mut self, told: Vec<What>) {
        let halt = (!self.stopping).then_some(&mut self.halt);
        self.keeps.tell(told, halt).await;
    }

    /// Keeps records; `None` when the conversation is halted before it is known whether they are kept. A fault is noted.
    async fn keep(&mut self, records: Vec<Record>) -> Option<()> {
        let halt = (!self.stopping).then_some(&mut self.halt);
        self.keeps.keep(records, halt).await
    }

    /// Waits for what has to be kept, and tells what waits for that.
    async fn settle(&mut self) {
        self.keep(Vec::new()).await;
        self.keeps.publish_rest();
    }

    /// Ends the agent of a conversation that can't be kept.
    async fn fail_stop(&mut self) {
        let fault = self.shared.lock().fault.clone();
        let Some(fault) = fault else {
            return;
        };
        self.answer_ensuring(&Err(fault));
        // Halted, it is ended all the same.
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

/// Waits until `at`. It takes no deadline and no token: each caller races it against a halt in its `select!`.
async fn until(at: Instant) {
    let _elapsed = timeout_at(at, std::future::pending::<()>()).await;
}

/// Waits until an agent is to be started, as [`until`].
async fn due(next: Next) {
    if let Next::At(at) = next {
        until(at).await;
    }
}

/// Who was closed in its turn did not die: it was told to end.
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
        detail: "the agent was closed before it was over".into(),
        ..EndReason::Interrupted.into()
    }
}

fn ended_by(what: &What, reason: EndReason) -> bool {
    matches!(what, What::Completed(completion) if completion.end.reason == reason)
}

/// What the agent did.
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
