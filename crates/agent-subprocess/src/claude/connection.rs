//! The live end: an agent's process, and the waits that its protocol needs.

mod ending;
mod patience;

use super::driver::NAME;
use super::failure;
use super::protocol::{Session, mode, one_line};
use super::writer::{Unwritten, Writer};
use crate::duplex::{exit_status, freeze, names, observation};
use crate::{Agent, Exit, Output, StopPolicy, Stream};
use agent_duplex::{
    BoxFuture, Connection, Decision, Error, Event, ExitStatus, Message, Observation, Permissions,
    ProcessName, Queued, StopReport,
};
use patience::Patience;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// How long to wait for the first word of an agent that may be failing to start.
const FIRST_WORD: Duration = Duration::from_secs(3);
/// How long to wait for the exit of a process that closed its input.
const EXIT: Duration = Duration::from_millis(500);
/// How many bytes of lines are kept that nobody took while an agent was being ended.
const KEPT: usize = 32 << 20;

/// A running agent.
#[derive(Debug)]
pub(super) struct ClaudeConnection {
    agent: Agent,
    program: String,
    writer: Writer,
    session: Session,
    policy: StopPolicy,
    /// Whether everything may be permitted while it runs; that must be said at the start.
    may_all: bool,
    /// What waits to be taken, and how large its lines are.
    ready: VecDeque<Observation>,
    kept: usize,
    /// Whether the agent said anything on standard output.
    spoke: bool,
    frozen: bool,
    /// What a turn may take that was interrupted.
    interrupted: Option<Patience>,
    /// What the process may take whose outputs are at their end.
    silent: Option<Patience>,
    /// Whether the end of the process was reported.
    over: bool,
    /// When a stop began, and whether the agent was alive then.
    stopping: Option<(Instant, bool)>,
    stopped: Option<StopReport>,
}

impl ClaudeConnection {
    pub(super) fn new(
        mut agent: Agent,
        program: String,
        session: String,
        policy: StopPolicy,
        may_all: bool,
    ) -> Self {
        let stdin = agent.take_stdin().expect("it was started with a pipe");
        let pid = agent.pid();
        let begin = Observation {
            raw: None,
            events: vec![
                Event::Started { pid },
                Event::Session {
                    id: session.clone(),
                },
            ],
        };
        ClaudeConnection {
            agent,
            program,
            writer: Writer::new(stdin),
            session: Session::new(session),
            policy,
            may_all,
            ready: VecDeque::from([begin]),
            kept: 0,
            spoke: false,
            frozen: false,
            interrupted: None,
            silent: None,
            over: false,
            stopping: None,
            stopped: None,
        }
    }

    /// Introduces us, and waits until the agent said a word: what can't start says so within moments, and only by its
    /// exit. An agent that takes its time, or never answers, gets its first message all the same.
    pub(super) async fn begin(&mut self) -> Result<(), Error> {
        let line = self.session.initialize();
        self.push(line);
        self.pump(Instant::now() + FIRST_WORD, |connection| connection.spoke)
            .await;
        if self.over && !self.spoke {
            return Err(self.gone().await);
        }
        Ok(())
    }

    /// Waits for one thing to happen and keeps what it means; `false` when nothing can happen any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn step(&mut self) -> bool {
        if self.over {
            return false;
        }
        let due = self.due();
        if due.is_some_and(|due| due.is_exhausted()) {
            self.lose_patience();
            return true;
        }
        let (agent, silent) = (&mut self.agent, self.silent.is_some());
        let something = async {
            if silent {
                return Seen::Exit(agent.wait().await);
            }
            agent
                .next_output()
                .await
                .map_or(Seen::Silence, Seen::Output)
        };
        let seen = match due.and_then(Patience::until) {
            Some(until) => timeout_at(until, something).await.ok(),
            None => Some(something.await),
        };
        match seen {
            Some(Seen::Output(output)) => self.take(output),
            Some(Seen::Silence) => self.silent = Some(Patience::with_silence()),
            Some(Seen::Exit(exit)) => self.exited(exit),
            None => self.lose_patience(),
        }
        true
    }

    /// Keeps what happens until `enough` holds, the process ended or time is up.
    async fn pump(&mut self, until: Instant, enough: impl Fn(&Self) -> bool) {
        // Who never stops writing would never let a timeout look at the clock.
        while !self.over && !enough(self) && Instant::now() < until {
            if timeout_at(until, self.step()).await.is_err() {
                return;
            }
        }
    }

    fn take(&mut self, output: Output) {
        let size = output.line.bytes.len();
        for patience in [&mut self.interrupted, &mut self.silent]
            .into_iter()
            .flatten()
        {
            patience.read(size);
        }
        let is_whole = output.line.truncated.is_none();
        let is_stdout = output.stream == Stream::Stdout;
        let mut seen = observation(output);
        if let (Some((_, line)), true) = (&seen.raw, is_stdout) {
            self.spoke = true;
            if is_whole {
                let heard = self.session.hear(&line.bytes);
                seen.events = heard.events;
                heard.lines.into_iter().for_each(|line| self.push(line));
            } else {
                let warning = "a line of the agent's was too long to be understood";
                seen.events.push(Event::Warning(warning.to_owned()));
            }
        }
        self.keep(seen);
        self.watch();
    }

    fn exited(&mut self, exit: Exit) {
        self.over = true;
        // Nobody can tell how only when the guard was killed, and then the agent was killed with it.
        let exit = exit_status(exit).unwrap_or(ExitStatus::Signal(libc::SIGKILL));
        let events = self.session.exited(exit, self.agent.stderr_tail());
        self.keep(Observation { raw: None, events });
        self.watch();
    }

    fn keep(&mut self, mut seen: Observation) {
        let size = |seen: &Observation| seen.raw.as_ref().map_or(0, |(_, line)| line.bytes.len());
        if self.kept + size(&seen) > KEPT {
            seen.raw = None;
            let is_piece = |e: &Event| matches!(e, Event::TextDelta(_) | Event::ThinkingDelta(_));
            seen.events.retain(|event| !is_piece(event));
        }
        if seen != Observation::default() {
            self.kept += size(&seen);
            self.ready.push_back(seen);
        }
    }

    fn taken(&mut self) -> Option<Observation> {
        let seen = self.ready.pop_front()?;
        self.kept -= seen.raw.as_ref().map_or(0, |(_, line)| line.bytes.len());
        Some(seen)
    }

    /// Queues a line that nobody waits for.
    fn push(&mut self, line: Vec<u8>) {
        if matches!(self.writer.push(line), Err(Unwritten::Full)) {
            let warning = "the agent does not read: an answer to it is lost";
            self.keep(Event::Warning(warning.to_owned()).into());
        }
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
        if !self.spoke {
            return failure::at_start(&self.program, &how, &stderr);
        }
        match stderr.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(last) => Error::gone(format!("{how}, saying: {}", one_line(last, 300))),
            None => Error::gone(how),
        }
    }
}

enum Seen {
    Output(Output),
    Silence,
    Exit(Exit),
}

impl Connection for ClaudeConnection {
    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
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
                let taken = self.taken();
                if taken.is_some() || !self.step().await {
                    return taken.or_else(|| self.taken());
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

    fn set_permissions(&mut self, permissions: Permissions) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            if permissions == Permissions::All && !self.may_all {
                let mend = "start it with all permissions";
                return Err(Error::unsupported(
                    NAME,
                    "be permitted everything now",
                    mend,
                ));
            }
            let line = self.session.set_mode(mode(permissions));
            self.write(line).await
        })
    }

    fn freeze(&mut self, frozen: bool) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            freeze(&mut self.agent, frozen)?;
            self.frozen = frozen;
            for patience in [&mut self.interrupted, &mut self.silent]
                .into_iter()
                .flatten()
            {
                patience.renew();
            }
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
