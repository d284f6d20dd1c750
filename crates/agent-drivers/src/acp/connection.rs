//! The live connection: an agent's process, and the waits that its protocol needs.

use super::protocol::Session;
use crate::SessionLocks;
use crate::dialogue::{AgentLink, Change, Dialogue, EndMethod, last_line};
use crate::parts::{self, MAX_IMAGE};
use crate::session_locks::{Lease, Refusal};
use crate::times;
use agent_duplex::{
    Capabilities, Capability, Decision, Error, Event, ExitStatus, Line, Message, Observation,
    PendingChange, Permissions, Stream,
};
use agent_subprocess::Signal;
use std::future::ready;
use std::time::Duration;
use tokio::time::Instant;

/// The state that a connection has besides the process and the session.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) lease: Option<Lease>,
    pub(super) locks: Option<SessionLocks>,
    /// The time limit of a change.
    pub(super) answer: Duration,
    /// The capabilities that the driver declares.
    pub(super) declared: Capabilities,
}

/// A running agent.
#[derive(Debug)]
pub(super) struct AcpConnection {
    link: AgentLink,
    session: Session,
    lease: Option<Lease>,
    locks: Option<SessionLocks>,
    answer: Duration,
    declared: Capabilities,
    /// A change that waits for its answer.
    change: Change,
}

impl AcpConnection {
    pub(super) fn new(link: AgentLink, session: Session, setup: Setup) -> Self {
        AcpConnection {
            link,
            session,
            lease: setup.lease,
            locks: setup.locks,
            answer: setup.answer,
            declared: setup.declared,
            change: Change::default(),
        }
    }

    /// Requests a change. The returned future waits for the answer only if the agent must accept the change.
    async fn ask_change(&mut self, line: Option<Vec<u8>>) -> Result<PendingChange, Error> {
        let is_asked = line.is_some();
        if let Some(line) = line {
            self.write(line).await?;
        }
        Ok(match is_asked && self.session.is_asking() {
            true => self.change.begin(self.answer),
            false => Box::pin(ready(Ok(()))),
        })
    }

    /// Locks the session, once its id is known.
    fn lock(&mut self) -> Option<Event> {
        let id = self.session.id()?;
        let locks = self.locks.take();
        let locks = locks.filter(|_| self.lease.is_none())?;
        match locks.take(id) {
            Ok(lease) => {
                self.lease = Some(lease);
                None
            }
            Err(Refusal::Held { by, .. }) => Some(Event::Warning(by.to_string())),
            Err(Refusal::Io(e)) => {
                Some(Event::Warning(format!("the session can't be locked: {e}")))
            }
        }
    }
}

impl Dialogue for AcpConnection {
    const INTERRUPT: &'static [Duration] = &times::ACP_INTERRUPT;
    const END_METHODS: &'static [(EndMethod, Duration)] = &[
        (EndMethod::Own, times::ACP_END),
        (EndMethod::CloseInput, times::ACP_CLOSED_INPUT),
        (EndMethod::Signal(Signal::Terminate), times::TERMINATE),
        (EndMethod::Signal(Signal::Kill), times::KILL),
    ];

    fn link(&self) -> &AgentLink {
        &self.link
    }

    fn link_mut(&mut self) -> &mut AgentLink {
        &mut self.link
    }

    fn capabilities(&self) -> Option<Capabilities> {
        Some(match self.session.takes_images() {
            true => self.declared,
            false => self.declared.without(Capability::Images),
        })
    }

    async fn begin(&mut self) -> Result<(), Error> {
        if self.link.begin_initialization() {
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

    async fn send(&mut self, message: Message) -> Result<(), Error> {
        self.begin().await?;
        if self.session.is_leaving() {
            return Err(Error::agent_gone("it is being ended"));
        } else if let Some(events) = self.session.failure_for(&message) {
            self.queue_events(events);
            self.link.schedule_end();
            return Ok(());
        } else if self.link.has_reported_exit || self.link.agent.has_exited() {
            return Err(self.gone().await);
        } else if self.session.is_turn_expected() {
            let hint = "wait for the end of the turn";
            let what = "take a message while a turn runs";
            return Err(Error::unsupported(self.link.name, what, hint));
        }
        let takes = self.capabilities().unwrap_or(self.declared);
        let parts = parts::check(&message, self.link.name, takes, MAX_IMAGE).await?;
        let (request, line) = self.session.prompt(&message, &parts);
        self.write(line).await?;
        let event = self.session.sent(&message, request);
        self.queue_observation(event.into());
        Ok(())
    }

    async fn answer(&mut self, ask: &str, decision: &Decision) -> Result<(), Error> {
        if let Some(line) = self.session.answer(ask, decision) {
            self.write(line).await?;
            let events = self.session.answer_sent(ask, decision);
            self.queue_events(events);
        }
        Ok(())
    }

    async fn set_permissions(&mut self, permissions: Permissions) -> Result<PendingChange, Error> {
        self.begin().await?;
        let line = self.session.set_permissions(permissions)?;
        self.ask_change(line).await
    }

    async fn set_model(&mut self, model: Option<String>) -> Result<PendingChange, Error> {
        self.begin().await?;
        if self.session.is_leaving() || self.link.has_reported_exit {
            return Err(Error::agent_gone("it is being ended, or has ended"));
        }
        let line = self.session.set_model(model)?;
        self.ask_change(line).await
    }

    fn handle_line(&mut self, line: Line) {
        let was_opening = self.session.is_opening();
        let outcome = self.session.handle_line(&line.bytes);
        let is_asking = self.session.is_asking();
        self.change
            .resolve(is_asking, || self.session.change_answer());
        let mut seen = Observation::output(Stream::Stdout, line);
        seen.events = outcome.events;
        for line in outcome.lines {
            self.push(line);
        }
        if was_opening {
            seen.events.extend(self.lock());
        }
        self.queue_observation(seen);
    }

    fn interrupt_turn(&mut self, _drop_queued: bool) -> bool {
        let outcome = self.session.interrupt();
        self.apply_outcome(outcome)
    }

    fn is_interrupting(&self) -> bool {
        self.session.is_interrupting()
    }

    fn is_busy(&self) -> bool {
        self.session.is_turn_expected()
    }

    fn note_ending(&mut self) {
        self.session.note_ending();
    }

    /// Closes the session, if the agent supports that. The wait for the end continues with the next method as soon as the agent has answered.
    fn request_end(&mut self) {
        if let Some(line) = self.session.close() {
            self.push(line);
        }
    }

    fn is_end_pending(&self) -> bool {
        self.session.is_closing()
    }

    fn next_answer_deadline(&mut self) -> Option<Instant> {
        self.session.next_answer_deadline(Instant::now())
    }

    fn expire_requests(&mut self) {
        let events = self.session.expire_requests(Instant::now());
        self.queue_events(events);
    }

    fn restart_timeouts(&mut self) {
        self.session.restart_timeouts();
    }

    fn exited(&mut self, exit: ExitStatus, stderr: String) -> Vec<Event> {
        self.change.forget();
        self.session.exited(exit, stderr)
    }

    fn failed_start(&self, how: &str, stderr: &str) -> Option<Error> {
        if !self.session.is_opening() {
            return None;
        }
        let (program, detail) = (&self.link.program, last_line(stderr));
        let what = format!("`{program}` exited before it opened a session ({how}){detail}");
        let hint = "run it by hand, and check that it supports the Agent Client Protocol";
        Some(Error::start(format!("{what}; {hint}"), None))
    }

    fn escalate_interrupt(&mut self, n: usize) -> Option<Signal> {
        match n {
            0 => {
                let line = self.session.cancel();
                self.push(line);
                None
            }
            1 => Some(Signal::Interrupt),
            _ => Some(Signal::Kill),
        }
    }

    /// Releases the lease of the session.
    fn release(&mut self) {
        self.lease.iter_mut().for_each(Lease::release);
    }
}
