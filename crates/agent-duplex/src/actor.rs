//! The one task that holds the connection: it reads the agent, hands inputs on and obeys the handles.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use crate::conversation::{Shared, nothing_stopped};
use crate::{
    Capability, Connection, Decision, Driver, EndReason, Error, Event, Lifecycle, Observation,
    Permissions, ProcessName, Queued, SessionChoice, StopReport, What,
};

/// How long the agent is listened to after a stop, the time apart in which nobody reads.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long closing waits for the end of a turn.
const CLOSING: Duration = Duration::from_secs(30);
/// The budget for ending what an agent left behind before the next one is started: the usual one of a stop.
const RETIRE: Duration = Duration::from_secs(8);

type Done<T> = oneshot::Sender<T>;
/// Until when everything has to be ended; the other side is dropped with the last handle.
type Halt = watch::Receiver<Option<Instant>>;

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
    /// Those who wait for the end of the turn that they interrupted.
    interrupting: Vec<Done<Result<(), Error>>>,
    /// Those who wait for the agent to be closed.
    closing: Vec<Done<()>>,
    close_by: Instant,
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
            interrupting: Vec::new(),
            closing: Vec::new(),
            close_by: Instant::now(),
            earlier: nothing_stopped(true),
            owed: EndReason::Died,
        }
    }

    pub(crate) async fn run(mut self) {
        let end_by = loop {
            self.close().await;
            // Who refused has said so, or has been complained of.
            let _refused = self.deliver().await;
            self.show(self.lifecycle());
            let room = self.shared.primary.has_room();
            tokio::select! {
                biased;
                end_by = halted(&mut self.halt) => break end_by,
                Some(interrupt) = self.interrupts.recv() => self.interrupt(interrupt).await,
                Some(command) = self.commands.recv() => self.obey(command).await,
                () = self.shared.arrived.notified() => {}
                () = until(self.close_by), if !self.closing.is_empty() => {}
                seen = next(&mut self.connection), if self.reading && room => self.seen(seen),
                () = self.shared.primary.room(), if self.reading && !room => {}
            }
        };
        self.owed = EndReason::Interrupted;
        if let Some(end_by) = end_by {
            self.stop(end_by).await;
        }
    }

    async fn obey(&mut self, command: Command) {
        match command {
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
            Command::Freeze { frozen, done } => match self.connection.as_mut() {
                Some(connection) => {
                    let freezing = connection.freeze(frozen);
                    reply(done, unless_halted(&mut self.halt, freezing).await);
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

    /// Starts an agent; `None` when the conversation is halted meanwhile.
    async fn start(&mut self, session: SessionChoice) -> Option<Result<(), Error>> {
        if self.reading && !self.closed {
            let what = "an agent runs in this conversation already; close or stop it first";
            return Some(Err(Error::start(what, None)));
        }
        self.retire().await?;
        self.show(Lifecycle::Starting);
        let resumed = session != SessionChoice::Fresh;
        let connection = match self.connect(session).await? {
            Ok(connection) => connection,
            Err(e) => return Some(Err(e)),
        };
        self.connection = Some(connection);
        self.reading = true;
        self.refused = false;
        self.closed = false;
        self.shared.lock().ledger.connected(resumed);
        let delivered = self.deliver().await;
        if delivered.is_err() {
            self.retire().await?;
        }
        Some(delivered)
    }

    /// Opens a connection. A stop lets it come about within a quarter of the budget: then what was started can be ended with a report.
    async fn connect(
        &mut self,
        session: SessionChoice,
    ) -> Option<Result<Box<dyn Connection>, Error>> {
        let connecting = self.driver.connect(session);
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                biased;
                end_by = halted(&mut self.halt) => {
                    let budget = end_by?.saturating_duration_since(Instant::now());
                    match timeout(budget / 4, &mut connecting).await {
                        Ok(connected) => self.connection = connected.ok(),
                        Err(_) => self.earlier.proven = false,
                    }
                    self.reading = self.connection.is_some();
                    return None;
                }
                Some(interrupt) = self.interrupts.recv() => idle(&self.shared, interrupt),
                connected = &mut connecting => return Some(connected),
            }
        }
    }

    /// Ends the connection of an agent that is gone, with whatever that left behind; `None` when the conversation is halted meanwhile.
    async fn retire(&mut self) -> Option<()> {
        if let Some(connection) = self.connection.as_mut() {
            let report = unless_halted(&mut self.halt, connection.stop(RETIRE)).await?;
            self.account(report);
            let mut halt = self.halt.clone();
            unless_halted(&mut halt, self.last_words(false)).await?;
            self.connection = None;
        }
        Some(())
    }

    /// Hands on what may be handed on now.
    async fn deliver(&mut self) -> Result<(), Error> {
        let steer = self.driver.capabilities().has(Capability::Steer);
        self.refused &= !std::mem::take(&mut self.shared.lock().arrived);
        while !self.refused && !self.closed && self.interrupting.is_empty() {
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

    async fn interrupt(&mut self, interrupt: Interrupt) {
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

    /// Closes the agent, if that is wanted and no turn is worth waiting for.
    async fn close(&mut self) {
        let wait = self.shared.lock().ledger.in_turn() && Instant::now() < self.close_by;
        if self.closing.is_empty() || wait {
            return;
        }
        if let Some(connection) = self.connection.as_mut().filter(|_| self.reading) {
            self.closed = true;
            let closing = connection.close();
            tokio::pin!(closing);
            loop {
                tokio::select! {
                    biased;
                    _ = halted(&mut self.halt) => return,
                    Some(interrupt) = self.interrupts.recv() => idle(&self.shared, interrupt),
                    () = &mut closing => break,
                }
            }
        }
        for done in self.closing.drain(..) {
            answer(done, ());
        }
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

    async fn stop(&mut self, end_by: Instant) {
        self.show(Lifecycle::Stopping);
        self.commands.close();
        self.interrupts.close();
        while self.commands.try_recv().is_ok() {}
        self.closing.clear();
        if let Some(connection) = self.connection.as_mut() {
            let left = end_by.saturating_duration_since(Instant::now());
            let report = connection.stop(left).await;
            self.account(report);
        }
        self.report.send_replace(Some(self.earlier.clone()));
        self.last_words(true).await;
    }

    /// Reads what the agent had said before it was ended; `patiently`, as the primary has room for it.
    async fn last_words(&mut self, patiently: bool) {
        let mut patience = LAST_WORDS;
        while self.reading {
            if patiently {
                self.shared.primary.room().await;
            }
            let since = Instant::now();
            let seen = timeout(patience, next(&mut self.connection)).await;
            patience = patience.saturating_sub(since.elapsed());
            self.seen(seen.ok().flatten());
        }
    }

    fn account(&mut self, report: StopReport) {
        self.earlier.stage = report.stage;
        self.earlier.ended.extend(report.ended);
        self.earlier.survivors.extend(report.survivors);
        self.earlier.proven &= report.proven;
    }

    fn lifecycle(&self) -> Lifecycle {
        if !self.shared.lock().ledger.in_turn() {
            if self.reading && !self.closed {
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
            state.publish(&self.shared.primary, What::Lifecycle(lifecycle));
        }
    }

    fn publish(&self, told: Vec<What>) {
        let mut state = self.shared.lock();
        for what in told {
            state.publish(&self.shared.primary, what);
        }
    }
}

/// However the actor ends (stopped, its handles dropped, a driver that panics, a runtime that is shut down), its readers get what they are owed.
impl Drop for Actor {
    fn drop(&mut self) {
        drop(self.connection.take());
        self.seen(None);
        while let Ok(interrupt) = self.interrupts.try_recv() {
            self.interrupting.push(interrupt.done);
        }
        self.turn_over();
        self.show(Lifecycle::Ended);
        self.shared.lock().close(&self.shared.primary);
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

async fn next(connection: &mut Option<Box<dyn Connection>>) -> Option<Observation> {
    connection.as_mut()?.next().await
}

/// Obeys an interrupt when the agent does nothing.
fn idle(shared: &Shared, interrupt: Interrupt) {
    if interrupt.queued == Queued::Drop {
        drop_waiting(shared);
    }
    answer(interrupt.done, Ok(()));
}

fn drop_waiting(shared: &Shared) {
    let mut state = shared.lock();
    for what in state.ledger.drop_waiting("the turn was interrupted") {
        state.publish(&shared.primary, what);
    }
}

fn reply<T>(done: Done<T>, answered: Option<T>) {
    if let Some(answered) = answered {
        answer(done, answered);
    }
}

fn answer<T>(done: Done<T>, answer: T) {
    // Who asked may have stopped waiting.
    let _nobody = done.send(answer);
}
