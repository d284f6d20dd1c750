//! The live connection: an agent's process, and the waits that its protocol needs.

mod cleaning;

use super::opening::is_held;
use super::protocol::{LOG_IN, Session};
use crate::converse::{Dialogue, Link, Means, last_line};
use crate::times;
use agent_duplex::{
    Changing, Decision, Error, Event, ExitStatus, Line, Message, Observation, Permissions, Stream,
};
use agent_subprocess::Signal;
use cleaning::Cleaning;
use std::future::ready;
use std::time::Duration;
use tokio::time::Instant;

/// The time to wait until the conversation is open. If the agent takes longer, it gets its first message when the conversation is open.
const OPEN: Duration = Duration::from_secs(10);

/// A running agent.
#[derive(Debug)]
pub(super) struct CodexConnection {
    link: Link,
    session: Session,
    /// The earliest possible start of the running turn, in clock ticks since boot.
    since: u64,
    /// The end of an interrupted turn, which waits for the end of its commands.
    cleaning: Option<Cleaning>,
}

impl CodexConnection {
    pub(super) fn new(link: Link, session: Session) -> Self {
        CodexConnection {
            link,
            session,
            since: cleaning::now(),
            cleaning: None,
        }
    }
}

impl Dialogue for CodexConnection {
    const INTERRUPT: &'static [Duration] = &times::CODEX_INTERRUPT;
    /// The protocol's own request is an interrupt, because closing the input in a turn would lose the turn's end.
    const POLITELY: &'static [(Means, Duration)] = &[
        (Means::Own, times::INTERRUPT),
        (Means::CloseInput, times::CODEX_CLOSED_INPUT),
        (Means::Signal(Signal::Terminate), times::TERMINATE),
        (Means::Signal(Signal::Kill), times::KILL),
    ];

    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    /// Waits until the conversation is open. If the agent takes longer, it gets its first message when the conversation is open.
    async fn begin(&mut self) -> Result<(), Error> {
        if self.link.introduce() {
            let line = self.session.initialize();
            self.push(line);
        }
        self.pump(Instant::now() + OPEN, |this| this.session.is_settled())
            .await;
        match self.session.refusal() {
            Some(why) if is_held(why) => Err(Error::held(why, None)),
            Some(why) => Err(Error::start(why, None)),
            None if self.link.over && !self.session.is_settled() => Err(self.gone().await),
            None => Ok(()),
        }
    }

    async fn send(&mut self, message: Message) -> Result<(), Error> {
        if !self.link.introduced {
            self.begin().await?;
        }
        if self.session.is_leaving() {
            return Err(Error::gone("it is being ended"));
        } else if self.session.has_failed() {
            let heard = self.session.say(&message);
            self.follow(heard);
            return Ok(());
        } else if self.link.over || self.link.agent.has_exited() {
            return Err(self.gone().await);
        }
        if !self.link.writer.has_room(message.text.len()) || !self.session.has_room() {
            return Err(self.full());
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
    }

    async fn answer(&mut self, ask: &str, decision: &Decision) -> Result<(), Error> {
        if let Some(line) = self.session.answer(ask, decision) {
            self.write(line).await?;
            self.session.answer_sent(ask);
        }
        Ok(())
    }

    async fn set_permissions(&mut self, permissions: Permissions) -> Result<Changing, Error> {
        self.session.set_permissions(permissions);
        Ok(Box::pin(ready(Ok(()))))
    }

    async fn set_model(&mut self, model: Option<String>) -> Result<Changing, Error> {
        if self.session.is_leaving() || self.link.over {
            return Err(Error::gone("it is being ended, or has ended"));
        }
        self.session.set_model(model);
        Ok(Box::pin(ready(Ok(()))))
    }

    fn hear(&mut self, line: Line) {
        let heard = self.session.hear(&line.bytes);
        self.settle(Observation::output(Stream::Stdout, line), heard);
    }

    fn interrupt_turn(&mut self, drop_queued: bool) -> bool {
        let heard = self.session.interrupt(drop_queued);
        self.follow(heard)
    }

    fn is_interrupting(&self) -> bool {
        self.session.is_interrupting()
    }

    fn is_busy(&self) -> bool {
        self.session.is_busy() || self.cleaning.is_some()
    }

    fn leave(&mut self) {
        self.session.leave();
        if self.link.stopping.is_some() {
            self.stop_cleaning();
        }
    }

    fn take_leave(&mut self) {
        self.leave();
        self.ask_interrupt(true);
    }

    fn is_taking_leave(&self) -> bool {
        self.is_busy()
    }

    fn answers_due(&mut self) -> Option<Instant> {
        self.session.answers_due(Instant::now())
    }

    fn expire(&mut self) {
        let heard = self.session.expire(Instant::now());
        self.follow(heard);
    }

    fn renew(&mut self) {
        self.session.renew();
    }

    fn exited(&mut self, exit: ExitStatus, stderr: String) -> Vec<Event> {
        self.session.exited(exit, stderr)
    }

    fn failed_start(&self, how: &str, stderr: &str) -> Option<Error> {
        if self.session.spoke() {
            return None;
        }
        let (program, said) = (&self.link.program, last_line(stderr));
        let mend = match said.to_ascii_lowercase().contains("not logged in") {
            true => LOG_IN,
            false => "run it by hand to see why",
        };
        let what = format!("`{program}` exited immediately ({how}){said}; {mend}");
        Some(Error::start(what, None))
    }

    async fn work(&mut self) -> bool {
        self.clean().await
    }

    fn keep(&mut self, seen: Observation) {
        let is_end = |event: &Event| matches!(event, Event::TurnCompleted(_));
        if self.session.has_failed() && seen.events.iter().any(is_end) {
            // The caller now knows that there is no conversation.
            self.link.dismiss();
        }
        self.link.kept.keep(seen);
    }
}
