//! The connection of a conversation to its agent, which runs as a task of the same program.

use std::sync::Arc;
use std::time::Duration;

use agent_duplex::{
    BoxFuture, Connection, Decision, Error, Event, Message, Observation, PendingChange,
    Permissions, ProcessName, QueuedMessages, StopReport, StopStage,
};
use agent_subprocess::StopStage as Stage;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::link::{COMMANDS, Command, Link, OBSERVATIONS};
use crate::tool::Stops;

/// The side of the caller.
#[derive(Debug)]
pub(super) struct ApiConnection {
    /// `None` after a stop.
    commands: Option<mpsc::Sender<Command>>,
    observations: mpsc::Receiver<Observation>,
    permissions: watch::Sender<Permissions>,
    model: watch::Sender<String>,
    default_model: String,
    frozen: watch::Sender<bool>,
    /// Whether the agent waits for messages until the next read.
    accepts_messages: bool,
    task: Task,
    stops: Arc<Stops>,
    report: Option<StopReport>,
}

/// The task of the agent. Dropping it ends the task, and with it each tool that runs.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ApiConnection {
    /// Starts the task that `run` returns for its end of the connection.
    pub(super) fn start<F: Future<Output = ()> + Send + 'static>(
        model: String,
        permissions: Permissions,
        frozen: watch::Sender<bool>,
        stops: Arc<Stops>,
        run: impl FnOnce(Link) -> F,
    ) -> Self {
        let (commands, received) = mpsc::channel(COMMANDS);
        let (sender, observations) = mpsc::channel(OBSERVATIONS);
        let permissions = watch::Sender::new(permissions);
        let default_model = model.clone();
        let model = watch::Sender::new(model);
        let link = Link {
            commands: received,
            observations: sender,
            permissions: permissions.subscribe(),
            model: model.subscribe(),
            frozen: frozen.subscribe(),
        };
        let task = Task(tokio::spawn(run(link)));
        Self {
            commands: Some(commands),
            observations,
            permissions,
            model,
            default_model,
            frozen,
            accepts_messages: false,
            task,
            stops,
            report: None,
        }
    }

    async fn command(&self, command: Command) -> Result<(), Error> {
        let gone = || Error::agent_gone("the agent was stopped");
        let commands = self.commands.as_ref().ok_or_else(gone)?;
        commands.send(command).await.map_err(|_| gone())
    }
}

impl Connection for ApiConnection {
    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let (taken, answer) = oneshot::channel();
            self.command(Command::Message { message, taken }).await?;
            let gone = |_| Error::agent_gone("the agent ended before it had the message");
            answer.await.map_err(gone)?
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Observation>> {
        Box::pin(async {
            if let (true, Some(commands)) = (self.accepts_messages, &self.commands) {
                if let Ok(permit) = commands.reserve().await {
                    permit.send(Command::Continue);
                }
                self.accepts_messages = false;
            }
            let observation = self.observations.recv().await?;
            self.accepts_messages = observation.events.contains(&Event::AcceptsMessages);
            Some(observation)
        })
    }

    fn interrupt(&mut self, _: QueuedMessages) -> BoxFuture<'_, Result<(), Error>> {
        // The agent queues no message: the conversation does.
        Box::pin(self.command(Command::Interrupt))
    }

    fn answer(&mut self, ask: &str, decision: Decision) -> BoxFuture<'_, Result<(), Error>> {
        let ask = ask.to_owned();
        Box::pin(self.command(Command::Answer { ask, decision }))
    }

    fn set_permissions(
        &mut self,
        permissions: Permissions,
    ) -> BoxFuture<'_, Result<PendingChange, Error>> {
        self.permissions.send_replace(permissions);
        Box::pin(async { Ok(done()) })
    }

    fn set_model(&mut self, model: Option<String>) -> BoxFuture<'_, Result<PendingChange, Error>> {
        let model = model.unwrap_or_else(|| self.default_model.clone());
        self.model.send_replace(model);
        Box::pin(async { Ok(done()) })
    }

    fn freeze(&mut self, frozen: bool) -> BoxFuture<'_, Result<(), Error>> {
        self.frozen.send_replace(frozen);
        Box::pin(async { Ok(()) })
    }

    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, StopReport> {
        Box::pin(async move {
            if let Some(report) = &self.report {
                return report.clone();
            }
            self.commands = None;
            self.frozen.send_replace(false);
            // The task may wait for room for an observation that nobody will read.
            self.observations.close();
            let has_ended = timeout(budget, &mut self.task.0).await.is_ok();
            if !has_ended {
                self.task.0.abort();
            }
            let is_proven = has_ended && !self.stops.is_unproven();
            let report = stop_report(&self.stops.reports(), is_proven);
            self.report = Some(report.clone());
            report
        })
    }
}

/// Returns a change that has happened.
fn done() -> PendingChange {
    Box::pin(async { Ok(()) })
}

/// Makes one report of the ends of all process trees. `is_proven` is whether they name all processes.
fn stop_report(reports: &[(agent_subprocess::StopReport, bool)], is_proven: bool) -> StopReport {
    let mut all = StopReport::without_processes();
    all.proven = is_proven;
    for (report, is_proven) in reports {
        all.stage = all.stage.max(match report.stage {
            Stage::AlreadyEnded => StopStage::AlreadyEnded,
            Stage::Interrupt => StopStage::Interrupt,
            Stage::CloseInput => StopStage::CloseInput,
            Stage::Terminate => StopStage::Terminate,
            Stage::Kill => StopStage::Kill,
        });
        all.proven &= is_proven;
        all.ended.extend(report.ended.iter().map(name));
        all.survivors.extend(report.survivors.iter().map(name));
    }
    all
}

fn name(process: &agent_subprocess::ProcessName) -> ProcessName {
    ProcessName {
        pid: process.pid,
        name: process.name.clone(),
    }
}
