//! The connection that plays a script: it decides when a step is due, and runs it.

use std::future::ready;
use std::time::Duration;

use tokio::sync::watch;

use super::ScriptedCall;
use super::script::{Latch, Script, Step};
use crate::{
    BoxFuture, Capabilities, Connection, Decision, Error, Event, ExitStatus, Message, Observation,
    PendingChange, Permissions, ProcessName, QueuedMessages, StopReport, StopStage,
};

#[derive(Debug)]
pub(super) struct ScriptedConnection {
    script: Script,
    calls: watch::Sender<Vec<ScriptedCall>>,
    messages: Vec<Message>,
    interrupts: usize,
    answers: usize,
    /// The numbers of messages, interrupts and answers that earlier steps waited for.
    awaited: WaitedFor,
    /// The number of messages whose turn was reported.
    begun: usize,
    busy: Option<Latch>,
    over: bool,
    closing: bool,
    stopping: bool,
    stopped: Option<StopReport>,
}

#[derive(Debug, Default)]
struct WaitedFor {
    messages: usize,
    interrupts: usize,
    answers: usize,
}

impl ScriptedConnection {
    pub(super) fn new(script: Script, calls: watch::Sender<Vec<ScriptedCall>>) -> Self {
        Self {
            script,
            calls,
            messages: Vec::new(),
            interrupts: 0,
            answers: 0,
            awaited: WaitedFor::default(),
            begun: 0,
            busy: None,
            over: false,
            closing: false,
            stopping: false,
            stopped: None,
        }
    }

    pub(super) async fn connecting(&self) -> Result<(), Error> {
        if let Some(gate) = &self.script.connecting {
            gate.opened().await;
        }
        self.script.fails.map_or(Ok(()), |fails| Err(fails()))
    }

    fn note(&self, call: ScriptedCall) {
        self.calls.send_modify(|calls| calls.push(call));
    }

    /// Runs the first step if it is due; otherwise waits. Only a call on this connection can make a step due, and the caller drops this wait to make
    /// the call.
    async fn step(&mut self) -> Option<Observation> {
        let step = match self.script.steps.front() {
            None if self.stopping => {
                self.over = true;
                return None;
            }
            None => return std::future::pending().await,
            Some(step) => step.clone(),
        };
        let due = match &step {
            Step::Message => self.messages.len() > self.awaited.messages,
            Step::Interrupted => self.interrupts > self.awaited.interrupts,
            Step::Answered => self.answers > self.awaited.answers,
            Step::Latch(gate) => {
                gate.opened().await;
                true
            }
            _ => true,
        };
        if !due {
            return std::future::pending().await;
        }
        self.script.steps.pop_front();
        match step {
            Step::Emit(seen) => return Some(seen),
            Step::Make(make) => return Some(make(&self.messages)),
            Step::Begin => {
                let messages = &self.messages[self.begun..self.awaited.messages];
                let inputs = messages.iter().map(|message| message.id).collect();
                self.begun = self.awaited.messages;
                return Some(Event::TurnStarted { inputs }.into());
            }
            Step::Message => self.awaited.messages += 1,
            Step::Interrupted => self.awaited.interrupts += 1,
            Step::Answered => self.awaited.answers += 1,
            Step::Latch(_) => {}
            Step::Busy(gate) => self.busy = Some(gate),
            Step::Refuse(with) => self.script.refuses = with,
            Step::Panic => panic!("on purpose"),
            Step::Over => self.over = true,
        }
        None
    }
}

impl Connection for ScriptedConnection {
    fn ready(&mut self) -> BoxFuture<'_, Result<(), Error>> {
        let ready = self.script.unready.map_or(Ok(()), |unready| Err(unready()));
        Box::pin(async { ready })
    }

    fn capabilities(&self) -> Option<Capabilities> {
        self.script.capabilities
    }

    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            if let Some(gate) = &self.busy {
                gate.opened().await;
            }
            if let Some(refuses) = self.script.refuses {
                return Err(refuses());
            } else if self.over && !self.script.held_open {
                return Err(Error::agent_gone("its script has ended"));
            }
            self.note(ScriptedCall::Sent(message.clone()));
            self.messages.push(message);
            Ok(())
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Observation>> {
        Box::pin(async move {
            while !self.over {
                if let Some(seen) = self.step().await {
                    return Some(seen);
                }
            }
            None
        })
    }

    fn interrupt(&mut self, queued: QueuedMessages) -> BoxFuture<'_, Result<(), Error>> {
        self.note(ScriptedCall::Interrupted(queued));
        self.interrupts += 1;
        Box::pin(async { Ok(()) })
    }

    fn answer(&mut self, ask: &str, decision: Decision) -> BoxFuture<'_, Result<(), Error>> {
        self.note(ScriptedCall::Answered(ask.to_owned(), decision));
        self.answers += 1;
        Box::pin(async { Ok(()) })
    }

    fn set_permissions(
        &mut self,
        permissions: Permissions,
    ) -> BoxFuture<'_, Result<PendingChange, Error>> {
        self.note(ScriptedCall::PermissionsSet(permissions));
        Box::pin(async { Ok(Box::pin(ready(Ok(()))) as PendingChange) })
    }

    fn set_model(&mut self, model: Option<String>) -> BoxFuture<'_, Result<PendingChange, Error>> {
        self.note(ScriptedCall::ModelSet(model));
        let gate = self.script.modelling.clone();
        Box::pin(async {
            Ok(Box::pin(async {
                if let Some(gate) = gate {
                    gate.opened().await;
                }
                Ok(())
            }) as PendingChange)
        })
    }

    fn freeze(&mut self, frozen: bool) -> BoxFuture<'_, Result<(), Error>> {
        self.note(ScriptedCall::Frozen(frozen));
        Box::pin(async { Ok(()) })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        if !std::mem::replace(&mut self.closing, true) {
            self.note(ScriptedCall::Closed);
            let exited = Event::Exited(ExitStatus::Code(0));
            self.script.steps = [Step::Emit(exited.into()), Step::Over].into();
            let closing = self.script.closing.clone().map(Step::Latch);
            closing
                .into_iter()
                .for_each(|gate| self.script.steps.push_front(gate));
        }
        let gate = self.script.closing.clone();
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.opened().await;
            }
        })
    }

    fn leftovers(&mut self) -> BoxFuture<'_, Vec<ProcessName>> {
        let leftovers = self.script.leftovers.clone();
        Box::pin(async { leftovers })
    }

    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, StopReport> {
        if !std::mem::replace(&mut self.stopping, true) {
            self.note(ScriptedCall::Stopped);
            self.over = false;
            self.script.steps = self.script.last_words.drain(..).map(Step::Emit).collect();
        }
        let mut stage = StopStage::Terminate;
        Box::pin(async move {
            if let Some(gate) = &self.script.hangs {
                gate.opened().await;
            }
            if let Some(gate) = &self.script.stopping
                && tokio::time::timeout(budget, gate.opened()).await.is_err()
            {
                stage = StopStage::Kill;
            }
            let report = StopReport {
                stage,
                ended: std::mem::take(&mut self.script.leftovers),
                survivors: Vec::new(),
                proven: true,
            };
            self.stopped.get_or_insert(report).clone()
        })
    }
}

impl Drop for ScriptedConnection {
    fn drop(&mut self) {
        self.note(ScriptedCall::Dropped);
    }
}
