//! The live connection: an agent's process, and the waits that its protocol needs.

mod cleanup;

use super::open_request::is_session_in_use;
use super::protocol::{LOG_IN, Session};
use crate::dialogue::{AgentLink, Dialogue, EndMethod, last_line};
use crate::parts::{self, MAX_IMAGE};
use crate::times;
use agent_duplex::{
    Capabilities, Capability, Decision, Error, Event, ExitStatus, Line, Message, Observation,
    PendingChange, Permissions, Stream,
};
use agent_subprocess::Signal;
use cleanup::CommandCleanup;
use std::future::ready;
use std::time::Duration;
use tokio::time::Instant;

/// The time to wait until the conversation is open. If the agent takes longer, it gets its first message when the conversation is open.
const OPEN: Duration = Duration::from_secs(10);

/// The parts of messages that the agent takes.
const PARTS: Capabilities = Capabilities::none().with(Capability::Images);

/// A running agent.
#[derive(Debug)]
pub(super) struct CodexConnection {
    link: AgentLink,
    session: Session,
    /// The earliest possible start of the running turn, in clock ticks since boot.
    since: u64,
    /// The end of an interrupted turn. It is held back until the commands of the turn have ended.
    cleanup: Option<CommandCleanup>,
}

impl CodexConnection {
    pub(super) fn new(link: AgentLink, session: Session) -> Self {
        CodexConnection {
            link,
            session,
            since: cleanup::now(),
            cleanup: None,
        }
    }
}

impl Dialogue for CodexConnection {
    const INTERRUPT: &'static [Duration] = &times::CODEX_INTERRUPT;
    /// The first method is an interrupt, because closing the input during a turn would lose the end of the turn.
    const END_METHODS: &'static [(EndMethod, Duration)] = &[
        (EndMethod::Own, times::INTERRUPT),
        (EndMethod::CloseInput, times::CODEX_CLOSED_INPUT),
        (EndMethod::Signal(Signal::Terminate), times::TERMINATE),
        (EndMethod::Signal(Signal::Kill), times::KILL),
    ];

    fn link(&self) -> &AgentLink {
        &self.link
    }

    fn link_mut(&mut self) -> &mut AgentLink {
        &mut self.link
    }

    /// Waits until the conversation is open. If the agent takes longer, it gets its first message when the conversation is open.
    async fn begin(&mut self) -> Result<(), Error> {
        if self.link.begin_initialization() {
            let line = self.session.initialize();
            self.push(line);
        }
        self.pump(Instant::now() + OPEN, |this| this.session.is_settled())
            .await;
        match self.session.refusal() {
            Some(why) if is_session_in_use(why) => Err(Error::session_in_use(why, None)),
            Some(why) => Err(Error::start(why, None)),
            None if self.link.has_reported_exit && !self.session.is_settled() => {
                Err(self.gone().await)
            }
            None => Ok(()),
        }
    }

    async fn send(&mut self, message: Message) -> Result<(), Error> {
        if !self.link.is_initialized {
            self.begin().await?;
        }
        if self.session.is_leaving() {
            return Err(Error::agent_gone("it is being ended"));
        } else if self.session.has_failed() {
            let outcome = self.session.send(&message, &[]);
            self.apply_outcome(outcome);
            return Ok(());
        } else if self.link.has_reported_exit || self.link.agent.has_exited() {
            return Err(self.gone().await);
        }
        let parts = parts::check(&message, self.link.name, PARTS, MAX_IMAGE).await?;
        parts::check_utf8(&parts)?;
        let size = message.text.len() + parts::text_size(&parts);
        if !self.link.writer.has_room(size) || !self.session.has_room() {
            return Err(self.full());
        }
        self.note_start();
        let outcome = self.session.send(&message, &parts);
        for line in outcome.lines {
            let written = self.write(line).await;
            if written.is_err() {
                self.session.take_back(message.id);
                return written;
            }
        }
        Ok(())
    }

    async fn answer(&mut self, ask: &str, decision: &Decision) -> Result<(), Error> {
        if let Some(line) = self.session.answer(ask, decision) {
            self.write(line).await?;
            self.session.answer_sent(ask);
        }
        Ok(())
    }

    async fn set_permissions(&mut self, permissions: Permissions) -> Result<PendingChange, Error> {
        self.session.set_permissions(permissions);
        Ok(Box::pin(ready(Ok(()))))
    }

    async fn set_model(&mut self, model: Option<String>) -> Result<PendingChange, Error> {
        if self.session.is_leaving() || self.link.has_reported_exit {
            return Err(Error::agent_gone("it is being ended, or has ended"));
        }
        self.session.set_model(model);
        Ok(Box::pin(ready(Ok(()))))
    }

    fn handle_line(&mut self, line: Line) {
        let outcome = self.session.handle_line(&line.bytes);
        self.publish_or_defer(Observation::output(Stream::Stdout, line), outcome);
    }

    fn interrupt_turn(&mut self, drop_queued: bool) -> bool {
        let outcome = self.session.interrupt(drop_queued);
        self.apply_outcome(outcome)
    }

    fn is_interrupting(&self) -> bool {
        self.session.is_interrupting()
    }

    fn is_busy(&self) -> bool {
        self.session.is_busy() || self.cleanup.is_some()
    }

    fn note_ending(&mut self) {
        self.session.note_ending();
        if self.link.stopping.is_some() {
            self.cancel_cleanup();
        }
    }

    fn request_end(&mut self) {
        self.note_ending();
        self.request_interrupt(true);
    }

    fn is_end_pending(&self) -> bool {
        self.is_busy()
    }

    fn next_answer_deadline(&mut self) -> Option<Instant> {
        self.session.next_answer_deadline(Instant::now())
    }

    fn expire_requests(&mut self) {
        let outcome = self.session.expire_requests(Instant::now());
        self.apply_outcome(outcome);
    }

    fn restart_timeouts(&mut self) {
        self.session.restart_timeouts();
    }

    fn exited(&mut self, exit: ExitStatus, stderr: String) -> Vec<Event> {
        self.session.exited(exit, stderr)
    }

    fn failed_start(&self, how: &str, stderr: &str) -> Option<Error> {
        if self.session.has_output() {
            return None;
        }
        let (program, detail) = (&self.link.program, last_line(stderr));
        let hint = match detail.to_ascii_lowercase().contains("not logged in") {
            true => LOG_IN,
            false => "run it by hand to see why",
        };
        let what = format!("`{program}` exited immediately ({how}){detail}; {hint}");
        Some(Error::start(what, None))
    }

    async fn do_background_step(&mut self) -> bool {
        self.clean_up_step().await
    }

    fn queue_observation(&mut self, seen: Observation) {
        let is_end = |event: &Event| matches!(event, Event::TurnCompleted(_));
        if self.session.has_failed() && seen.events.iter().any(is_end) {
            // The caller now knows that there is no conversation.
            self.link.schedule_end();
        }
        self.link.queue.push(seen);
    }
}
