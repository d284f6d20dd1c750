//! The live connection: an agent's process, and the waits that its protocol needs.

use super::failure;
use super::protocol::{Session, mode};
use crate::dialogue::{AgentLink, Change, Dialogue, EndMethod, Timeouts};
use crate::parts;
use crate::session_locks::Lease;
use crate::times;
use agent_duplex::{
    Capabilities, Capability, Decision, Error, Event, ExitStatus, Line, Message, Observation,
    PendingChange, Permissions, Stream,
};
use agent_subprocess::{ScratchFile, Signal};
use std::future::ready;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// The time to wait for the first output of an agent that perhaps fails to start.
const FIRST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(3);

/// The parts of messages that the agent takes.
const PARTS: Capabilities = Capabilities::none().with(Capability::Images);

/// The largest image file, in bytes: the service accepts 5 MiB of base64. The agent would repeat a larger image in each later turn of its session, and
/// each of these turns would fail.
const MAX_IMAGE: u64 = (5 << 20) / 4 * 3;

/// The state that a connection has besides the process.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) session: String,
    /// Whether the session existed before.
    pub(super) is_resumed: bool,
    /// Whether [`Permissions::All`] can be set while the agent runs; only a flag at its start allows that.
    pub(super) may_allow_all: bool,
    pub(super) timeouts: Timeouts,
    /// The private files, removed when the agent has ended.
    pub(super) files: Vec<ScratchFile>,
    pub(super) lease: Option<Lease>,
}

/// A running agent.
#[derive(Debug)]
pub(super) struct ClaudeConnection {
    link: AgentLink,
    session: Session,
    may_allow_all: bool,
    /// The time limit of a change.
    answer: Duration,
    files: Vec<ScratchFile>,
    lease: Option<Lease>,
    /// A change that waits for its answer.
    change: Change,
}

impl ClaudeConnection {
    pub(super) fn new(link: AgentLink, setup: Setup) -> Self {
        ClaudeConnection {
            link,
            session: Session::new(setup.session, setup.is_resumed, setup.timeouts),
            may_allow_all: setup.may_allow_all,
            answer: setup.timeouts.other_requests,
            files: setup.files,
            lease: setup.lease,
            change: Change::default(),
        }
    }
}

impl Dialogue for ClaudeConnection {
    const INTERRUPT: &'static [Duration] = &times::CLAUDE_INTERRUPT;
    const END_METHODS: &'static [(EndMethod, Duration)] = &[
        (EndMethod::Own, times::CLAUDE_END),
        (EndMethod::CloseInput, times::CLAUDE_CLOSED_INPUT),
        (EndMethod::Signal(Signal::Terminate), times::TERMINATE),
        (EndMethod::Signal(Signal::Kill), times::KILL),
    ];

    fn link(&self) -> &AgentLink {
        &self.link
    }

    fn link_mut(&mut self) -> &mut AgentLink {
        &mut self.link
    }

    /// Waits for the agent's first output: an agent that can't start exits soon, without any output. If the agent is slow or never answers, it gets
    /// its first message anyway.
    async fn begin(&mut self) -> Result<(), Error> {
        if self.link.begin_initialization() {
            let line = self.session.initialize();
            self.push(line);
            if let Some(line) = self.session.query_earlier_usage() {
                self.push(line);
            }
        }
        self.pump(Instant::now() + FIRST_OUTPUT_TIMEOUT, |this| {
            this.session.has_output()
        })
        .await;
        if self.link.has_reported_exit && !self.session.has_output() {
            return Err(self.gone().await);
        }
        Ok(())
    }

    async fn send(&mut self, message: Message) -> Result<(), Error> {
        if !self.link.is_initialized {
            self.begin().await?;
        }
        if self.session.is_leaving() {
            return Err(Error::agent_gone("it is being ended"));
        } else if let Some(events) = self.session.failure_for(&message) {
            self.queue_events(events);
            return Ok(());
        } else if self.link.has_reported_exit || self.link.agent.has_exited() {
            return Err(self.gone().await);
        }
        let parts = parts::check(&message, self.link.name, PARTS, MAX_IMAGE).await?;
        self.write(Session::message(&message, &parts)).await?;
        self.session.sent(&message);
        Ok(())
    }

    async fn answer(&mut self, ask: &str, decision: &Decision) -> Result<(), Error> {
        if let Some(line) = self.session.answer(ask, decision) {
            self.write(line).await?;
            self.session.answer_sent(ask, decision);
        }
        Ok(())
    }

    async fn set_permissions(&mut self, permissions: Permissions) -> Result<PendingChange, Error> {
        if permissions == Permissions::All && !self.may_allow_all {
            let (what, hint) = (
                "switch to all permissions while it runs",
                "start it with all permissions",
            );
            return Err(Error::unsupported(self.link.name, what, hint));
        }
        let line = self.session.set_mode(mode(permissions));
        self.write(line).await?;
        Ok(Box::pin(ready(Ok(()))))
    }

    async fn set_model(&mut self, model: Option<String>) -> Result<PendingChange, Error> {
        if self.session.is_leaving() || self.link.has_reported_exit {
            return Err(Error::agent_gone("it is being ended, or has ended"));
        }
        let line = self.session.set_model(model.as_deref());
        self.write(line).await?;
        // The agent asks its service whether the model exists.
        Ok(self.change.begin(self.answer))
    }

    fn handle_line(&mut self, line: Line) {
        let outcome = self.session.handle_line(&line.bytes);
        let is_asking = self.session.is_asking();
        self.change
            .resolve(is_asking, || self.session.model_answer());
        if outcome.is_keep_alive {
            return;
        }
        let mut seen = Observation::output(Stream::Stdout, line);
        seen.events = outcome.events;
        for line in outcome.lines {
            self.push(line);
        }
        self.queue_observation(seen);
    }

    fn interrupt_turn(&mut self, drop_queued: bool) -> bool {
        let line = self.session.interrupt(drop_queued);
        line.is_none_or(|line| self.push(line))
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

    fn request_end(&mut self) {
        let line = self.session.end_session();
        self.push(line);
    }

    fn is_end_pending(&self) -> bool {
        true
    }

    fn next_answer_deadline(&mut self) -> Option<Instant> {
        self.session
            .has_pending_requests()
            .then(Instant::now)
            .and_then(|now| self.session.next_answer_deadline(now))
    }

    fn is_reading_only(&self) -> bool {
        !self.session.has_pending_requests()
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
        let failed = || failure::at_start(&self.link.program, how, stderr);
        (!self.session.has_output()).then(failed)
    }

    fn escalate_interrupt(&mut self, n: usize) -> Option<Signal> {
        if n > 0 && self.session.is_refused() {
            // The agent can't end the turn, because it retries its request to a service that rejects its login.
            let events = self.session.give_up();
            self.queue_events(events);
            self.watch();
            return None;
        }
        Some(if n == 0 {
            Signal::Interrupt
        } else {
            Signal::Kill
        })
    }

    async fn send_last_request(&mut self, budget: Duration) {
        let mut line = self.session.stop_tasks();
        line.extend(self.session.end_session());
        if let Ok(written) = self.link.writer.push(line) {
            // The caller closes the input next, whether the request is written or not.
            let _late = timeout(times::CLAUDE_REQUEST.min(budget / 16), written).await;
        }
    }

    /// Removes the private files, and releases the lease of the session.
    fn release(&mut self) {
        self.files.clear();
        self.lease.iter_mut().for_each(Lease::release);
    }
}
