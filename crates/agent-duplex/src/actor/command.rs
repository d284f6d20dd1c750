//! What the handles ask for.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Actor, unless_halted};
use crate::shared::Shared;
use crate::{Decision, Error, Permissions, ProcessName, Queued, SessionChoice};

/// How long closing waits for the end of a turn and of what runs in the background.
const CLOSING: Duration = Duration::from_secs(30);

pub(super) type Done<T> = oneshot::Sender<T>;

#[derive(Debug)]
pub(crate) enum Command {
    Start {
        session: SessionChoice,
        done: Done<Result<(), Error>>,
    },
    Answer {
        ask: String,
        decision: Decision,
        done: Done<Result<(), Error>>,
    },
    Permissions {
        permissions: Permissions,
        done: Done<Result<(), Error>>,
    },
    Model {
        model: Option<String>,
        done: Done<Result<(), Error>>,
    },
    Freeze {
        frozen: bool,
        done: Done<Result<(), Error>>,
    },
    Close {
        done: Done<()>,
    },
    Leftovers {
        done: Done<Vec<ProcessName>>,
    },
}

#[derive(Debug)]
pub(crate) struct Interrupt {
    pub(crate) queued: Queued,
    pub(crate) done: Done<Result<(), Error>>,
}

impl Actor {
    pub(super) async fn obey(&mut self, command: Command) {
        match command {
            Command::Start { .. } if !self.closing.is_empty() => self.succeed(command),
            Command::Start { session, done } => {
                if let Some(started) = self.start(session).await {
                    answer(done, started);
                }
            }
            Command::Answer {
                ask,
                decision,
                done,
            } => {
                let open = self.shared.lock().ledger.is_unanswered(&ask);
                let Some(connection) = self.connection.as_mut().filter(|_| open) else {
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
                let changing = connection.set_permissions(permissions);
                reply(done, unless_halted(&mut self.halt, changing).await);
            }
            Command::Model { model, done } => {
                let Some(connection) = self.connection.as_mut().filter(|_| self.reading) else {
                    return answer(done, Err(Error::gone("none runs; start it")));
                };
                let changing = connection.set_model(model);
                reply(done, unless_halted(&mut self.halt, changing).await);
            }
            Command::Freeze { frozen, done } => match self.connection.as_mut() {
                Some(connection) => {
                    let freezing = connection.freeze(frozen);
                    let freezing = unless_halted(&mut self.halt, freezing).await;
                    let frozen = frozen && matches!(freezing, Some(Ok(())));
                    if std::mem::replace(&mut self.frozen, frozen) {
                        // The time in which it stood still was not its own.
                        self.close_by = Instant::now() + CLOSING;
                    }
                    reply(done, freezing);
                }
                None => answer(done, Ok(())),
            },
            Command::Close { done } => {
                if self.closing.is_empty() {
                    self.close_by = Instant::now() + CLOSING;
                }
                self.closing.push(done);
            }
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

    pub(super) async fn interrupt(&mut self, interrupt: Interrupt) {
        let busy = self.shared.lock().ledger.is_busy();
        let Some(connection) = self.connection.as_mut().filter(|_| busy) else {
            return idle(&self.shared, interrupt);
        };
        let Interrupt { queued, done } = interrupt;
        let asked = unless_halted(&mut self.halt, connection.interrupt(queued)).await;
        if let Some(Err(e)) = asked {
            return answer(done, Err(e));
        }
        if queued == Queued::Drop {
            drop_waiting(&self.shared);
        }
        self.interrupting.retain(|waiting| !waiting.is_closed());
        self.interrupting.push(done);
        if !self.shared.lock().ledger.in_turn() {
            self.turn_over();
        }
    }
}

/// Obeys an interrupt when the agent does nothing.
pub(super) fn idle(shared: &Shared, interrupt: Interrupt) {
    if interrupt.queued == Queued::Drop {
        drop_waiting(shared);
    }
    answer(interrupt.done, Ok(()));
}

fn drop_waiting(shared: &Shared) {
    let mut state = shared.lock();
    for what in state.ledger.drop_waiting("the turn was interrupted") {
        state.publish(what);
    }
}

fn reply<T>(done: Done<T>, answered: Option<T>) {
    if let Some(answered) = answered {
        answer(done, answered);
    }
}

pub(super) fn answer<T>(done: Done<T>, answer: T) {
    // Who asked may have stopped waiting.
    let _nobody = done.send(answer);
}
