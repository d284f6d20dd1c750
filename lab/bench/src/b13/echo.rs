//! An agent in the same process that costs almost nothing, so that the bench measures only the conversation.

use std::collections::VecDeque;
use std::time::Duration;

use agent_duplex::{
    BoxFuture, Capabilities, Capability, Connection, Driver, EndReason, Error, Event, Message,
    Observation, ProcessName, QueuedMessages, SessionChoice, StopReport, StopStage,
};

/// Completes a turn for each message. If `steered`, it accepts the next message before it reports this turn.
#[derive(Debug)]
pub(super) struct Echo {
    pub(super) steered: bool,
}

impl Driver for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn capabilities(&self) -> Capabilities {
        if self.steered {
            Capabilities::none().with(Capability::Steer)
        } else {
            Capabilities::none()
        }
    }

    fn connect(&self, _: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async { Ok(Box::new(Answers::default()) as Box<dyn Connection>) })
    }
}

/// The pending observations.
#[derive(Debug, Default)]
struct Answers(VecDeque<Observation>);

impl Connection for Answers {
    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>> {
        let inputs = vec![message.id];
        let events = vec![
            Event::TurnStarted { inputs },
            Event::Message {
                text: message.text,
                partial: false,
            },
            Event::TurnCompleted(EndReason::Completed.into()),
        ];
        self.0.push_back(Observation { raw: None, events });
        Box::pin(async { Ok(()) })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Observation>> {
        Box::pin(async {
            match self.0.pop_front() {
                Some(answer) => Some(answer),
                // The next message wakes the task that waits here.
                None => std::future::pending().await,
            }
        })
    }

    fn interrupt(&mut self, _: QueuedMessages) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn leftovers(&mut self) -> BoxFuture<'_, Vec<ProcessName>> {
        Box::pin(async { Vec::new() })
    }

    fn stop(&mut self, _: Duration) -> BoxFuture<'_, StopReport> {
        Box::pin(async {
            self.0.clear();
            StopReport {
                stage: StopStage::AlreadyEnded,
                ended: Vec::new(),
                survivors: Vec::new(),
                proven: true,
            }
        })
    }
}
