//! The live end: an agent's process, and the waits that its protocol needs.

mod cleaning;
mod ending;
mod patience;
mod reading;

use super::driver::NAME;
use super::opening::{Opening, is_held};
use super::protocol::{Heard, LOG_IN, Session};
use crate::converse::{Kept, Leaving, Stopping, Timeouts, Waits, last_line};
use crate::duplex::{freeze, names};
use crate::writer::{Unwritten, Writer};
use crate::{Agent, StopPolicy};
use agent_duplex::{
    BoxFuture, Changing, Connection, Decision, Error, Event, Message, Observation, Permissions,
    ProcessName, Queued, StopReport,
};
use cleaning::Cleaning;
use ending::Means;
use std::future::ready;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long to wait for the conversation; an agent that takes longer gets its first message when it is open.
const OPEN: Duration = Duration::from_secs(10);
/// How long to wait for the exit of a process that closed its input.
const EXIT: Duration = Duration::from_millis(500);

/// What a connection knows of its agent besides the process.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) program: String,
    pub(super) policy: StopPolicy,
    pub(super) permissions: Permissions,
    pub(super) timeouts: Timeouts,
    pub(super) opening: Opening,
}

/// A running agent.
#[derive(Debug)]
pub(super) struct CodexConnection {
    agent: Agent,
    program: String,
    policy: StopPolicy,
    writer: Writer,
    session: Session,
    /// What waits to be taken.
    kept: Kept,
    frozen: bool,
    /// When the turn that runs began at the earliest, in clock ticks since boot.
    since: u64,
    /// The end of an interrupted turn, which waits for that of its commands.
    cleaning: Option<Cleaning>,
    /// What the agent is waited for.
    waits: Waits,
    /// What the agent may take to end that was asked to.
    leaving: Option<Leaving<Means>>,
    /// Whether the end of the process was reported.
    over: bool,
    /// The stop of everything, once one has begun.
    stopping: Option<Stopping>,
    stopped: Option<StopReport>,
    /// Whether we have introduced ourselves.
    introduced: bool,
}

impl CodexConnection {
    pub(super) fn new(mut agent: Agent, setup: Setup) -> Self {
        let stdin = agent.take_stdin().expect("it was started with a pipe");
        let mut kept = Kept::default();
        kept.keep(Event::Started { pid: agent.pid() }.into());
        CodexConnection {
            agent,
            program: setup.program,
            policy: setup.policy,
            writer: Writer::new(stdin),
            session: Session::new(setup.opening, setup.permissions, setup.timeouts),
            kept,
            frozen: false,
            since: cleaning::now(),
            cleaning: None,
            waits: Waits::default(),
            leaving: None,
            over: false,
            stopping: None,
            stopped: None,
            introduced: false,
        }
    }

    /// Introduces us, and waits until the conversation is open. An agent that takes its time gets its first message when it
    /// is.
    async fn begin(&mut self) -> Result<(), Error> {
        if !std::mem::replace(&mut self.introduced, true) {
            let line = self.session.initialize();
            self.push(line);
        }
        self.pump(Instant::now() + OPEN, |connection| {
            connection.session.is_settled()
        })
        .await;
        match self.session.refusal() {
            Some(why) if is_held(why) => Err(Error::held(why, None)),
            Some(why) => Err(Error::start(why, None)),
            None if self.over && !self.session.is_settled() => Err(self.gone().await),
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
            Err(Unwritten::Full) => Err(Error::full(format!("the {NAME} agent"))),
            Err(Unwritten::Closed) => Err(self.gone().await),
        }
    }

    /// Keeps what came of something that we said, and writes what follows from it; `false` if a line is lost.
    fn follow(&mut self, heard: Heard) -> bool {
        let events = heard.events;
        self.keep(Observation { raw: None, events });
        heard.lines.into_iter().all(|line| self.push(line))
    }

    /// Ends an agent that is of no use any more, because somebody was told that there is no conversation.
    fn dismiss(&mut self) {
        self.agent.close_stdin();
        self.waits.expect_end();
    }

    /// Says why the agent takes nothing any more.
    async fn gone(&mut self) -> Error {
        let exit = timeout(EXIT, self.agent.wait()).await;
        let how = exit.map_or("it closed its input".to_owned(), |exit| exit.to_string());
        let said = last_line(&self.agent.stderr_tail());
        if self.session.spoke() {
            return Error::gone(format!("{how}{said}"));
        }
        let program = &self.program;
        let mend = match said.to_ascii_lowercase().contains("not logged in") {
            true => LOG_IN,
            false => "try it by hand",
        };
        let what = format!("`{program}` ended at once ({how}){said}; {mend}");
        Error::start(what, None)
    }
}

impl Connection for CodexConnection {
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
            } else if self.session.has_failed() {
                let heard = self.session.say(&message);
                self.follow(heard);
                return Ok(());
            } else if self.over || self.agent.has_exited() {
                return Err(self.gone().await);
            }
            let has_room = self.writer.has_room(message.text.len()) && self.session.has_room();
            if !has_room {
                return Err(Error::full(format!("the {NAME} agent")));
            }
            self.note_start();
            let heard = self.session.say(&message);
            for line in heard.lines {
                let written = self.write(line).await;
                if written.is_err() {
                    self.session.unsay(message.id);
                    return written;
                }
            }
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
                self.session.answer_sent(&ask);
            }
            Ok(())
        })
    }

    fn set_permissions(
        &mut self,
        permissions: Permissions,
    ) -> BoxFuture<'_, Result<Changing, Error>> {
        Box::pin(async move {
            self.session.set_permissions(permissions);
            Ok(Box::pin(ready(Ok(()))) as Changing)
        })
    }

    fn set_model(&mut self, model: Option<String>) -> BoxFuture<'_, Result<Changing, Error>> {
        Box::pin(async move {
            if self.session.is_leaving() || self.over {
                return Err(Error::gone("it was asked to end, or has ended"));
            }
            self.session.set_model(model);
            Ok(Box::pin(ready(Ok(()))) as Changing)
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
            }
            self.stopped.clone().expect("it was just set")
        })
    }
}
