//! The live end: an agent's process, and the waits that its protocol needs.

mod ending;
mod patience;
mod reading;

use super::driver::NAME;
use super::failure;
use super::protocol::{Session, mode};
use crate::converse::{Change, Kept, Leaving, Stopping, Timeouts, Waits, last_line};
use crate::duplex::{freeze, names};
use crate::scratch::ScratchFile;
use crate::session_locks::Lease;
use crate::writer::{Unwritten, Writer};
use crate::{Agent, StopPolicy};
use agent_duplex::{
    BoxFuture, Changing, Connection, Decision, Error, Event, Message, Observation, Permissions,
    ProcessName, Queued, StopReport,
};
use ending::Means;
use std::future::ready;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long to wait for the first word of an agent that may be failing to start.
const FIRST_WORD: Duration = Duration::from_secs(3);
/// How long to wait for the exit of a process that closed its input.
const EXIT: Duration = Duration::from_millis(500);

/// What a connection knows of its agent besides the process.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) program: String,
    pub(super) session: String,
    /// Whether the session was there before.
    pub(super) has_past: bool,
    pub(super) policy: StopPolicy,
    /// Whether everything may be permitted while it runs; that must be said at the start.
    pub(super) may_all: bool,
    pub(super) timeouts: Timeouts,
    /// Removed when the agent has ended.
    pub(super) files: Vec<ScratchFile>,
    pub(super) lease: Option<Lease>,
}

/// A running agent.
#[derive(Debug)]
pub(super) struct ClaudeConnection {
    agent: Agent,
    setup: Setup,
    writer: Writer,
    session: Session,
    /// What waits to be taken.
    kept: Kept,
    frozen: bool,
    /// What the agent is waited for.
    waits: Waits,
    /// What the agent may take to end that was asked to.
    leaving: Option<Leaving<Means>>,
    /// A change that waits for its answer.
    change: Change,
    /// Whether the end of the process was reported.
    over: bool,
    /// The stop of everything, once one has begun.
    stopping: Option<Stopping>,
    stopped: Option<StopReport>,
    /// Whether we have introduced ourselves.
    introduced: bool,
}

impl ClaudeConnection {
    pub(super) fn new(mut agent: Agent, setup: Setup) -> Self {
        let stdin = agent.take_stdin().expect("it was started with a pipe");
        let pid = agent.pid();
        let mut kept = Kept::default();
        let id = setup.session.clone();
        let events = vec![Event::Started { pid }, Event::Session { id }];
        kept.keep(Observation { raw: None, events });
        ClaudeConnection {
            agent,
            writer: Writer::new(stdin),
            session: Session::new(setup.session.clone(), setup.has_past, setup.timeouts),
            setup,
            kept,
            frozen: false,
            waits: Waits::default(),
            leaving: None,
            change: Change::default(),
            over: false,
            stopping: None,
            stopped: None,
            introduced: false,
        }
    }

    /// Introduces us, and waits until the agent said a word: what can't start says so within moments, and only by its
    /// exit. An agent that takes its time, or never answers, gets its first message all the same.
    async fn begin(&mut self) -> Result<(), Error> {
        if !std::mem::replace(&mut self.introduced, true) {
            let line = self.session.initialize();
            self.push(line);
            if let Some(line) = self.session.ask_past() {
                self.push(line);
            }
        }
        self.pump(Instant::now() + FIRST_WORD, |connection| {
            connection.session.spoke()
        })
        .await;
        if self.over && !self.session.spoke() {
            return Err(self.gone().await);
        }
        Ok(())
    }

    /// Queues a line that nobody waits for; `false` if it is lost.
    fn push(&mut self, line: Vec<u8>) -> bool {
        let pushed = self.writer.push(line);
        if matches!(pushed, Err(Unwritten::Full)) {
            let warning = "the agent does not read: what it should do or know is lost";
            self.keep(Event::Warning(warning.to_owned()).into());
        }
        pushed.is_ok()
    }

    async fn write(&mut self, line: Vec<u8>) -> Result<(), Error> {
        match self.writer.write(line).await {
            Ok(()) => Ok(()),
            Err(Unwritten::Full) => Err(Error::full(format!("the {NAME} agent"))),
            Err(Unwritten::Closed) => Err(self.gone().await),
        }
    }

    /// Says why the agent takes nothing any more.
    async fn gone(&mut self) -> Error {
        let exit = timeout(EXIT, self.agent.wait()).await;
        let how = exit.map_or("it closed its input".to_owned(), |exit| exit.to_string());
        let stderr = self.agent.stderr_tail();
        if !self.session.spoke() {
            return failure::at_start(&self.setup.program, &how, &stderr);
        }
        Error::gone(format!("{how}{}", last_line(&stderr)))
    }
}

impl Connection for ClaudeConnection {
    fn ready(&mut self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.begin())
    }

    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            if !self.introduced {
                self.begin().await?;
            }
            if self.session.is_leaving() {
                return Err(Error::gone("it was asked to end"));
            } else if let Some(events) = self.session.fail(&message) {
                self.keep(Observation { raw: None, events });
                return Ok(());
            } else if self.over || self.agent.has_exited() {
                return Err(self.gone().await);
            }
            self.write(Session::message(&message)).await?;
            self.session.sent(&message);
            Ok(())
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Observation>> {
        Box::pin(async move {
            loop {
                let taken = self.kept.take();
                if taken.is_some() || !self.step().await {
                    return taken.or_else(|| self.kept.take());
                }
            }
        })
    }

    fn interrupt(&mut self, queued: Queued) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.ask_interrupt(queued == Queued::Drop);
            Ok(())
        })
    }

    fn answer(&mut self, ask: &str, decision: Decision) -> BoxFuture<'_, Result<(), Error>> {
        let ask = ask.to_owned();
        Box::pin(async move {
            if let Some(line) = self.session.answer(&ask, &decision) {
                self.write(line).await?;
                self.session.answer_sent(&ask, &decision);
            }
            Ok(())
        })
    }

    fn set_permissions(
        &mut self,
        permissions: Permissions,
    ) -> BoxFuture<'_, Result<Changing, Error>> {
        Box::pin(async move {
            if permissions == Permissions::All && !self.setup.may_all {
                let mend = "start it with all permissions";
                return Err(Error::unsupported(
                    NAME,
                    "be permitted everything now",
                    mend,
                ));
            }
            let line = self.session.set_mode(mode(permissions));
            self.write(line).await?;
            Ok(Box::pin(ready(Ok(()))) as Changing)
        })
    }

    fn set_model(&mut self, model: Option<String>) -> BoxFuture<'_, Result<Changing, Error>> {
        Box::pin(async move {
            if self.session.is_leaving() || self.over {
                return Err(Error::gone("it was asked to end, or has ended"));
            }
            let line = self.session.set_model(model.as_deref());
            self.write(line).await?;
            // The agent asks the service whether there is such a model.
            Ok(self.change.begin(self.setup.timeouts.others))
        })
    }

    fn freeze(&mut self, frozen: bool) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            freeze(&mut self.agent, frozen)?;
            self.frozen = frozen;
            self.session.renew();
            self.waits.renew();
            self.leaving.iter_mut().for_each(Leaving::renew);
            Ok(())
        })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.end_politely())
    }

    fn leftovers(&mut self) -> BoxFuture<'_, Vec<ProcessName>> {
        Box::pin(async { names(self.agent.leftovers().await) })
    }

    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, StopReport> {
        Box::pin(async move {
            if self.stopped.is_none() {
                self.stopped = Some(self.end(budget).await);
                self.release();
            }
            self.stopped.clone().expect("it was just set")
        })
    }
}
