//! The one task that holds the connection: it reads the agent, hands inputs on and obeys the handles.

mod command;
mod end;
mod start;

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::conversation::nothing_stopped;
use crate::shared::Shared;
use crate::{
    Capability, Connection, Driver, EndReason, Error, Event, Lifecycle, Observation, StopReport,
    What,
};
pub(crate) use command::{Command, Interrupt};
use command::{Done, answer};

/// Until when everything has to be ended; the other side is dropped with the last handle.
type Halt = watch::Receiver<Option<Instant>>;

#[derive(Debug)]
pub(crate) struct Actor {
    shared: Arc<Shared>,
    driver: Box<dyn Driver>,
    commands: mpsc::Receiver<Command>,
    interrupts: mpsc::Receiver<Interrupt>,
    halt: Halt,
    report: watch::Sender<Option<StopReport>>,
    connection: Option<Box<dyn Connection>>,
    /// Whether the connection may have something to say.
    reading: bool,
    /// Whether the agent refused an input; it is asked again at the end of its turn, and when there is another input.
    refused: bool,
    /// Whether the agent was told to close; it gets no input any more.
    closed: bool,
    /// Whether the agent was stopped where it stands.
    frozen: bool,
    /// Those who wait for the end of the turn that they interrupted.
    interrupting: Vec<Done<Result<(), Error>>>,
    /// Those who wait for the agent to be closed.
    closing: Vec<Done<()>>,
    /// Until when closing waits for what the agent has to do.
    close_by: Instant,
    /// The start of another agent, which waits for the one that is being closed.
    successor: Option<Command>,
    /// What came of the connections before this one.
    earlier: StopReport,
    /// How a turn ended that its connection does not account for.
    owed: EndReason,
}

impl Actor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        driver: Box<dyn Driver>,
        commands: mpsc::Receiver<Command>,
        interrupts: mpsc::Receiver<Interrupt>,
        halt: Halt,
        report: watch::Sender<Option<StopReport>>,
    ) -> Self {
        Self {
            shared,
            driver,
            commands,
            interrupts,
            halt,
            report,
            connection: None,
            reading: false,
            refused: false,
            closed: false,
            frozen: false,
            interrupting: Vec::new(),
            closing: Vec::new(),
            close_by: Instant::now(),
            successor: None,
            earlier: nothing_stopped(true),
            owed: EndReason::Died,
        }
    }

    pub(crate) async fn run(mut self) {
        let end_by = loop {
            let close = self.closes();
            if self.closing.is_empty()
                && let Some(start) = self.successor.take()
            {
                self.obey(start).await;
            }
            // Who refused has said so, or has been complained of.
            let _refused = self.deliver().await;
            self.show(self.lifecycle());
            let room = self.shared.primary.has_room();
            let waits = !self.closing.is_empty() && !close && !self.frozen;
            // A command that comes meanwhile is obeyed at once: both may be left and taken up again.
            tokio::select! {
                biased;
                end_by = halted(&mut self.halt) => break end_by,
                Some(interrupt) = self.interrupts.recv() => self.interrupt(interrupt).await,
                Some(command) = self.commands.recv() => self.obey(command).await,
                () = self.shared.arrived.notified() => {}
                () = until(self.close_by), if waits => {}
                did = close_or_next(&mut self.connection, close), if close || (self.reading && room) => match did {
                    Did::Close => self.close_over(),
                    Did::Say(seen) => self.seen(seen),
                },
                () = self.shared.primary.room(), if self.reading && !room => {}
            }
        };
        self.owed = EndReason::Interrupted;
        if let Some(end_by) = end_by {
            self.stop(end_by).await;
        }
    }

    /// Hands on what may be handed on now.
    async fn deliver(&mut self) -> Result<(), Error> {
        let steer = self.driver.capabilities().has(Capability::Steer);
        self.refused &= !std::mem::take(&mut self.shared.lock().arrived);
        while !self.refused && !self.is_leaving() && self.interrupting.is_empty() {
            let Some(connection) = self.connection.as_mut() else {
                break;
            };
            let message = self.shared.lock().ledger.offer(steer, Uuid::new_v4());
            let Some(message) = message else {
                break;
            };
            match unless_halted(&mut self.halt, connection.send(message)).await {
                Some(Ok(())) => {
                    self.reading = true;
                    let told = self.shared.lock().ledger.handed_on();
                    self.publish(told);
                }
                Some(Err(e)) => {
                    self.refused = true;
                    self.shared.lock().ledger.kept_back();
                    if !e.is_unsupported() && !e.is_gone() {
                        let warning = Event::Warning(format!("an input has to wait: {e}"));
                        self.publish(vec![What::Observed(warning.into())]);
                    }
                    return Err(e);
                }
                None => {
                    self.shared.lock().ledger.kept_back();
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes what the agent did; `None` when it has nothing more to say.
    fn seen(&mut self, seen: Option<Observation>) {
        let told = match seen {
            Some(seen) => self.shared.lock().ledger.observe(seen),
            None => {
                self.reading = false;
                self.shared.lock().ledger.connection_ended(self.owed)
            }
        };
        let over = told.iter().any(|what| matches!(what, What::Completed(_)));
        self.publish(told);
        if over {
            self.refused = false;
            self.turn_over();
        }
    }

    fn turn_over(&mut self) {
        for done in self.interrupting.drain(..) {
            answer(done, Ok(()));
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        if !self.shared.lock().ledger.in_turn() {
            if self.reading && !self.is_leaving() {
                Lifecycle::Ready
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

    fn publish(&self, told: Vec<What>) {
        let mut state = self.shared.lock();
        for what in told {
            state.publish(what);
        }
    }
}

/// Waits until the conversation is to end; with `None`, because nobody holds it any more.
async fn halted(halt: &mut Halt) -> Option<Instant> {
    halt.wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|end_by| *end_by)
}

/// Does what a connection is asked for; `None`, and not to its end, when the conversation is halted.
async fn unless_halted<T>(halt: &mut Halt, deed: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        _ = halted(halt) => None,
        done = deed => Some(done),
    }
}

async fn until(at: Instant) {
    // There is nothing to wait for but the time.
    let _elapsed = timeout_at(at, std::future::pending::<()>()).await;
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
