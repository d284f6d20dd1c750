//! The `Connection` of all drivers for lines of JSON; the `Dialogue` in it is the part that differs.

use super::{Dialogue, EndSequence};
use crate::convert::{freeze, names};
use agent_duplex::{
    BoxFuture, Capabilities, Connection, Decision, Error, Message, Observation, PendingChange,
    Permissions, ProcessName, QueuedMessages, StopReport,
};
use std::time::Duration;

/// A dialogue, wrapped as the connection that a driver returns.
#[derive(Debug)]
pub(crate) struct DialogueConnection<D>(pub(crate) D);

impl<D: Dialogue> Connection for DialogueConnection<D> {
    fn ready(&mut self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.0.begin())
    }

    fn capabilities(&self) -> Option<Capabilities> {
        self.0.capabilities()
    }

    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.0.send(message))
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Observation>> {
        Box::pin(async move {
            if let Some(seen) = self.0.take_read() {
                return Some(seen);
            }
            // In a box, because this future is large and rarely needed: most lines were already read together with an earlier line.
            let waiting = Box::pin(async {
                loop {
                    let taken = self.0.link_mut().queue.take();
                    if taken.is_some() || !self.0.step().await {
                        return taken.or_else(|| self.0.link_mut().queue.take());
                    }
                }
            });
            waiting.await
        })
    }

    fn interrupt(&mut self, queued: QueuedMessages) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.0.request_interrupt(queued == QueuedMessages::Drop);
            Ok(())
        })
    }

    fn answer(&mut self, ask: &str, decision: Decision) -> BoxFuture<'_, Result<(), Error>> {
        let ask = ask.to_owned();
        Box::pin(async move { self.0.answer(&ask, &decision).await })
    }

    fn set_permissions(
        &mut self,
        permissions: Permissions,
    ) -> BoxFuture<'_, Result<PendingChange, Error>> {
        Box::pin(self.0.set_permissions(permissions))
    }

    fn set_model(&mut self, model: Option<String>) -> BoxFuture<'_, Result<PendingChange, Error>> {
        Box::pin(self.0.set_model(model))
    }

    fn freeze(&mut self, frozen: bool) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let link = self.0.link_mut();
            freeze(&mut link.agent, frozen)?;
            link.frozen = frozen;
            link.wait_state.renew();
            link.ending.iter_mut().for_each(EndSequence::renew);
            self.0.restart_timeouts();
            Ok(())
        })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.end_agent())
    }

    fn leftovers(&mut self) -> BoxFuture<'_, Vec<ProcessName>> {
        Box::pin(async { names(self.0.link_mut().agent.leftovers().await) })
    }

    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, StopReport> {
        Box::pin(async move {
            if self.0.link().stopped.is_none() {
                let report = self.0.end(budget).await;
                self.0.link_mut().stopped = Some(report);
                self.0.release();
            }
            let stopped = self.0.link().stopped.clone();
            stopped.expect("`stopped` was just set")
        })
    }
}
