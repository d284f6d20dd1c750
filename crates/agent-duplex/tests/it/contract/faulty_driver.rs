//! A scripted driver with one fault.

use std::time::Duration;

use agent_duplex::scripted::ScriptedDriver;
use agent_duplex::{
    BoxFuture, Capabilities, Connection, Decision, Driver, Error, InputPolicy, Message,
    Observation, ProcessName, QueuedMessages, SessionChoice, StopReport,
};

/// The fault of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriverFault {
    No,
    /// Interrupts are rejected with a wrong error.
    FailsInterrupt,
    /// Interrupts are rejected as unsupported.
    CantBeInterrupted,
    /// Answers are rejected as unsupported.
    CantBeAnswered,
    /// Each stop reports something else.
    ChangesStopReport,
    /// A stop leaves a process.
    Leaks,
}

#[derive(Clone, Debug)]
pub(super) struct FaultyDriver(pub(super) ScriptedDriver, pub(super) DriverFault);

impl Driver for FaultyDriver {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn input_policy(&self) -> InputPolicy {
        self.0.input_policy()
    }

    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            let inner = self.0.connect(session).await?;
            let bend = self.1;
            Ok(Box::new(BentConnection {
                inner,
                bend,
                stops: 0,
            }) as Box<dyn Connection>)
        })
    }
}

#[derive(Debug)]
struct BentConnection {
    inner: Box<dyn Connection>,
    bend: DriverFault,
    stops: u32,
}

impl Connection for BentConnection {
    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.send(message)
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Observation>> {
        self.inner.next()
    }

    fn interrupt(&mut self, queued: QueuedMessages) -> BoxFuture<'_, Result<(), Error>> {
        match self.bend {
            DriverFault::FailsInterrupt => Box::pin(async { Err(Error::full("it")) }),
            DriverFault::CantBeInterrupted => {
                Box::pin(async { Err(Error::unsupported("bent", "be interrupted", "stop it")) })
            }
            _ => self.inner.interrupt(queued),
        }
    }

    fn answer(&mut self, ask: &str, decision: Decision) -> BoxFuture<'_, Result<(), Error>> {
        match self.bend {
            DriverFault::CantBeAnswered => Box::pin(async {
                Err(Error::unsupported("bent", "be answered", "it asks nothing"))
            }),
            _ => self.inner.answer(ask, decision),
        }
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }

    fn leftovers(&mut self) -> BoxFuture<'_, Vec<ProcessName>> {
        self.inner.leftovers()
    }

    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, StopReport> {
        Box::pin(async move {
            self.stops += 1;
            let mut report = self.inner.stop(budget).await;
            let name = "left".to_owned();
            match self.bend {
                DriverFault::ChangesStopReport => report.ended.push(ProcessName {
                    pid: self.stops,
                    name,
                }),
                DriverFault::Leaks => report.survivors.push(ProcessName { pid: 1, name }),
                _ => {}
            }
            report
        })
    }
}
