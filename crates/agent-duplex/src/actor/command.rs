//! What the handles ask for, and how the actor does it, one command at a time.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::keeps::Keeps;
use super::{Actor, Halt, unless_halted};
use crate::{Changing, Decision, Error, Permissions, ProcessName, Queued, SessionChoice};

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
    Hold {
        held: bool,
        done: Done<()>,
    },
    Close {
        patience: Duration,
        done: Done<()>,
    },
    /// Answered when an agent runs.
    Ensure {
        done: Done<Result<(), Error>>,
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

    pub(super) async fn interrupt(&mut self, interrupt: Interrupt) {
        let busy = self.shared.lock().ledger.is_busy();
        let Some(connection) = self.connection.as_mut().filter(|_| busy) else {
            return idle(&mut self.keeps, &mut self.halt, interrupt).await;
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
}

/// Obeys an interrupt when the agent does nothing.
pub(super) async fn idle(keeps: &mut Keeps, halt: &mut Halt, interrupt: Interrupt) {
    if interrupt.queued == Queued::Drop {
        keeps.drop_waiting(halt).await;
    }
    answer(interrupt.done, Ok(()));
}

fn reply<T>(done: Done<T>, answered: Option<T>) {
    if let Some(answered) = answered {
        answer(done, answered);
    }
}

/// Answers when it is known what came of a change. The agent is read meanwhile, and everything else is obeyed.
fn follow(mut done: Done<Result<(), Error>>, asked: Option<Result<Changing, Error>>) {
    match asked {
        Some(Ok(changing)) => drop(tokio::spawn(async move {
            tokio::select! {
                () = done.closed() => {}
                changed = changing => answer(done, changed),
            }
        })),
        Some(Err(e)) => answer(done, Err(e)),
        None => {}
    }
}

pub(super) fn answer<T>(done: Done<T>, answer: T) {
    // Who asked may have stopped waiting.
    let _nobody = done.send(answer);
}
