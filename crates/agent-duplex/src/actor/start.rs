//! How an agent is started, after another one or as the first.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::command::{answer, idle};
use super::{Actor, Command, halted, unless_halted};
use crate::{Connection, Error, Lifecycle, SessionChoice};

/// The budget for ending what an agent left behind before the next one is started: the usual one of a stop.
const RETIRE: Duration = Duration::from_secs(8);

impl Actor {
    /// Starts an agent; `None` when the conversation is halted meanwhile.
    pub(super) async fn start(&mut self, session: SessionChoice) -> Option<Result<(), Error>> {
        if self.reading && !self.closed {
            return Some(Err(runs_already()));
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
        self.frozen = false;
        self.shared.lock().ledger.connected(resumed);
        if let Err(e) = self.ready().await? {
            self.retire().await?;
            return Some(Err(e));
        }
        let delivered = self.deliver().await;
        if delivered.is_err() {
            self.retire().await?;
        }
        Some(delivered)
    }

    /// Puts a start off until the agent that is being closed has ended.
    pub(super) fn succeed(&mut self, start: Command) {
        if self.successor.is_none() {
            self.successor = Some(start);
        } else if let Command::Start { done, .. } = start {
            answer(done, Err(runs_already()));
        }
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

    /// Waits until the agent could start; `None` when the conversation is halted meanwhile, and then there is something to stop.
    async fn ready(&mut self) -> Option<Result<(), Error>> {
        let ready = self.connection.as_mut()?.ready();
        tokio::pin!(ready);
        loop {
            tokio::select! {
                biased;
                _ = halted(&mut self.halt) => return None,
                Some(interrupt) = self.interrupts.recv() => idle(&self.shared, interrupt),
                ready = &mut ready => return Some(ready),
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
}

fn runs_already() -> Error {
    let what = "an agent runs in this conversation already; close or stop it first";
    Error::start(what, None)
}
