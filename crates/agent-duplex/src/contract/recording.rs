//! A driver that records all calls and reports.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::record::{DriverCall, ScenarioRecord};
use super::rules::DriverRules;
use crate::{
    BoxFuture, Capabilities, Connection, Decision, Driver, Error, InputPolicy, Message,
    Observation, PendingChange, Permissions, ProcessName, QueuedMessages, SessionChoice,
    StopReport,
};

/// A driver with a record of its calls and reports.
#[derive(Debug)]
pub(super) struct RecordingDriver {
    inner: Box<dyn Driver>,
    record: ScenarioRecord,
    connections: AtomicUsize,
}

impl RecordingDriver {
    pub(super) fn new(inner: Box<dyn Driver>, record: ScenarioRecord) -> Self {
        let rules = DriverRules::new(inner.capabilities(), inner.input_policy());
        if let Err(fault) = rules.declared() {
            record.change(|seen| seen.failures.push(fault));
        }
        Self {
            inner,
            record,
            connections: AtomicUsize::new(0),
        }
    }
}

impl Driver for RecordingDriver {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn input_policy(&self) -> InputPolicy {
        self.inner.input_policy()
    }

    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let noted = (number, DriverCall::Connected(session.clone()));
        self.record.change(|seen| seen.calls.push(noted));
        let connecting = self.inner.connect(session);
        Box::pin(async move {
            let inner = connecting.await?;
            Ok(Box::new(RecordingConnection {
                inner,
                record: self.record.clone(),
                rules: DriverRules::new(self.capabilities(), self.input_policy()),
                number,
            }) as Box<dyn Connection>)
        })
    }
}

#[derive(Debug)]
struct RecordingConnection {
    inner: Box<dyn Connection>,
    record: ScenarioRecord,
    rules: DriverRules,
    number: usize,
}

impl RecordingConnection {
    fn saw(&mut self, seen: Option<&Observation>) {
        let (number, rules) = (self.number, &mut self.rules);
        self.record.change(|record| {
            let Some(seen) = seen else {
                return record.calls.push((number, DriverCall::Ended));
            };
            record.observations += 1;
            for event in &seen.events {
                record
                    .calls
                    .push((number, DriverCall::Event(event.clone())));
                if let Err(fault) = rules.check_event(event) {
                    record.failures.push(fault);
                }
            }
        });
    }
}

impl Connection for RecordingConnection {
    fn ready(&mut self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.ready()
    }

    fn capabilities(&self) -> Option<Capabilities> {
        self.inner.capabilities()
    }

    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let busy = !self.rules.idle();
            let id = message.id;
            self.inner.send(message).await?;
            self.rules.sent(id);
            let noted = (self.number, DriverCall::Sent { busy });
            self.record.change(|seen| seen.calls.push(noted));
            Ok(())
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Observation>> {
        Box::pin(async move {
            let seen = self.inner.next().await;
            self.saw(seen.as_ref());
            seen
        })
    }

    fn interrupt(&mut self, queued: QueuedMessages) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.interrupt(queued)
    }

    fn answer(&mut self, ask: &str, decision: Decision) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.answer(ask, decision)
    }

    fn set_permissions(
        &mut self,
        permissions: Permissions,
    ) -> BoxFuture<'_, Result<PendingChange, Error>> {
        self.inner.set_permissions(permissions)
    }

    fn set_model(&mut self, model: Option<String>) -> BoxFuture<'_, Result<PendingChange, Error>> {
        self.inner.set_model(model)
    }

    fn freeze(&mut self, frozen: bool) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.freeze(frozen)
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }

    fn leftovers(&mut self) -> BoxFuture<'_, Vec<ProcessName>> {
        self.inner.leftovers()
    }

    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, StopReport> {
        Box::pin(async move {
            let report = self.inner.stop(budget).await;
            let again = self.inner.stop(budget).await;
            if again != report {
                let fault = format!("a stop reported {report:?}, and then {again:?}");
                self.record.change(|seen| seen.failures.push(fault));
            }
            report
        })
    }
}
