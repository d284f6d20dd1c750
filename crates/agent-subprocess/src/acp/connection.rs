//! The live end: an agent's process, and the waits that its protocol needs.

mod ending;
mod patience;
mod reading;

use super::protocol::{Heard, Session};
use crate::converse::{Change, Kept, Leaving, Stopping, Waits, last_line};
use crate::duplex::{freeze, names};
use crate::session_locks::Lease;
use crate::writer::{Unwritten, Writer};
use crate::{Agent, SessionLocks, StopPolicy};
use agent_duplex::{
    BoxFuture, Changing, Connection, Decision, Error, Event, Message, Observation, Permissions,
    ProcessName, Queued, StopReport,
};
use ending::Means;
use std::future::ready;
use std::time::Duration;
use tokio::time::timeout;

/// How long to wait for the exit of a process that closed its input.
const EXIT: Duration = Duration::from_millis(500);

/// What a connection knows of its agent besides the process.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    pub(super) program: String,
    pub(super) policy: StopPolicy,
    pub(super) lease: Option<Lease>,
    pub(super) locks: Option<SessionLocks>,
    /// How long a change may take.
    pub(super) answer: Duration,
}

/// A running agent.
#[derive(Debug)]
pub(super) struct AcpConnection {
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

impl AcpConnection {
    pub(super) fn new(mut agent: Agent, session: Session, setup: Setup) -> Self {
        let stdin = agent.take_stdin().expect("it was started with a pipe");
        let mut kept = Kept::default();
        kept.keep(Event::Started { pid: agent.pid() }.into());
        AcpConnection {
            agent,
            writer: Writer::new(stdin),
            session,
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

    /// Introduces us and waits until the session is open, or can't be.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn begin(&mut self) -> Result<(), Error> {
        if !std::mem::replace(&mut self.introduced, true) {
            let line = self.session.initialize();
            self.push(line);
        }
        while self.session.is_opening() && self.step().await {}
        match self.session.refusal() {
            Some(error) => Err(error),
            None if self.session.is_opening() => Err(self.gone().await),
            None => Ok(()),
        }
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
            Err(Unwritten::Full) => Err(Error::full(format!("the {} agent", self.setup.name))),
            Err(Unwritten::Closed) => Err(self.gone().await),
        }
    }

    /// Keeps what came of something, and writes what it wants written; `false` if that is lost.
    fn heard(&mut self, heard: Heard) -> bool {
        let (raw, events) = (None, heard.events);
        self.keep(Observation { raw, events });
        let mut pushed = true;
        for line in heard.lines {
            pushed &= self.push(line);
        }
        self.watch();
        pushed
    }

    /// Asks for a change. What comes of it is waited for if that matters.
    async fn ask_change(&mut self, line: Option<Vec<u8>>) -> Result<Changing, Error> {
        let is_asked = line.is_some();
        if let Some(line) = line {
            self.write(line).await?;
        }
        Ok(match is_asked && self.session.is_asking() {
            true => self.change.begin(self.setup.answer),
            false => Box::pin(ready(Ok(()))),
        })
    }

    /// Says why the agent takes nothing any more.
    async fn gone(&mut self) -> Error {
        let exit = timeout(EXIT, self.agent.wait()).await;
        let how = exit.map_or("it closed its input".to_owned(), |exit| exit.to_string());
        let said = last_line(&self.agent.stderr_tail());
        if self.session.is_opening() {
            let program = &self.setup.program;
            let what = format!("`{program}` ended before it opened a session ({how}){said}");
            let mend = "try it by hand, and whether it speaks the Agent Client Protocol";
            return Error::start(format!("{what}; {mend}"), None);
        }
        Error::gone(format!("{how}{said}"))
    }
}

impl Connection for AcpConnection {
    fn ready(&mut self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.begin())
    }

    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.begin().await?;
            if self.session.is_leaving() {
                return Err(Error::gone("it was asked to end"));
            } else if let Some(events) = self.session.fail(&message) {
                self.keep(Observation { raw: None, events });
                // It is of no use any more.
                self.agent.close_stdin();
                self.waits.expect_end();
                return Ok(());
            } else if self.over || self.agent.has_exited() {
                return Err(self.gone().await);
            } else if self.session.owes_turn() {
                let mend = "wait for the end of the turn";
                let what = "take a message while a turn runs";
                return Err(Error::unsupported(self.setup.name, what, mend));
            }
            let (request, line) = self.session.prompt(&message);
            self.write(line).await?;
            let event = self.session.sent(&message, request);
            self.keep(event.into());
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

    fn interrupt(&mut self, _queued: Queued) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.ask_interrupt();
            Ok(())
        })
    }

    fn answer(&mut self, ask: &str, decision: Decision) -> BoxFuture<'_, Result<(), Error>> {
        let ask = ask.to_owned();
        Box::pin(async move {
            if let Some(line) = self.session.answer(&ask, &decision) {
                self.write(line).await?;
                let events = self.session.answer_sent(&ask, &decision);
                self.keep(Observation { raw: None, events });
            }
            Ok(())
        })
    }

    fn set_permissions(
        &mut self,
        permissions: Permissions,
    ) -> BoxFuture<'_, Result<Changing, Error>> {
        Box::pin(async move {
            self.begin().await?;
            let line = self.session.set_permissions(permissions)?;
            self.ask_change(line).await
        })
    }

    fn set_model(&mut self, model: Option<String>) -> BoxFuture<'_, Result<Changing, Error>> {
        Box::pin(async move {
            self.begin().await?;
            if self.session.is_leaving() || self.over {
                return Err(Error::gone("it was asked to end, or has ended"));
            }
            let line = self.session.set_model(model)?;
            self.ask_change(line).await
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
