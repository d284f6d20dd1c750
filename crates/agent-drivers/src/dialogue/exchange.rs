//! The shared code of all connections: reading, waiting, escalating and ending are the same for each protocol.

use super::{
    AgentLink, EndMethod, EndSequence, EscalatingTimeout, ProcessEvent, StopState, TimeoutStep,
    last_line, signal, stop, wait_for_event,
};
use crate::convert::{exit_status, observation};
use crate::times;
use agent_duplex::{
    Capabilities, Decision, Error, Event, ExitStatus, Line, Message, Observation, PendingChange,
    Permissions, StopReport, StopStage,
};
use agent_subprocess::{Exit, Output, Signal, Stream, WriteError};
use std::fmt;
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// A connection to an agent that exchanges lines of JSON. The first methods are those that each protocol implements; the provided methods follow.
pub(crate) trait Dialogue: fmt::Debug + Send + Sized + 'static {
    /// The time for a turn to end after an interrupt, before each escalation.
    const INTERRUPT: &'static [Duration];
    /// The methods of ending the agent alone, the gentlest first, each with its time.
    const END_METHODS: &'static [(EndMethod, Duration)];

    fn link(&self) -> &AgentLink;
    fn link_mut(&mut self) -> &mut AgentLink;

    /// Initializes the conversation once, and waits until the agent accepts messages, or has failed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    fn begin(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns the capabilities of the running agent, if they can be fewer than those of its driver.
    fn capabilities(&self) -> Option<Capabilities> {
        None
    }

    fn send(&mut self, message: Message) -> impl Future<Output = Result<(), Error>> + Send;

    fn answer(
        &mut self,
        ask: &str,
        decision: &Decision,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    fn set_permissions(
        &mut self,
        permissions: Permissions,
    ) -> impl Future<Output = Result<PendingChange, Error>> + Send;

    fn set_model(
        &mut self,
        model: Option<String>,
    ) -> impl Future<Output = Result<PendingChange, Error>> + Send;

    /// Queues a complete line of standard output, with its events.
    fn handle_line(&mut self, line: Line);

    /// Writes the request to end the turn; returns `false` if it is lost.
    fn interrupt_turn(&mut self, drop_queued: bool) -> bool;

    fn is_interrupting(&self) -> bool;

    /// Whether a turn, or a part of one, is running.
    fn is_busy(&self) -> bool;

    fn note_ending(&mut self);

    /// Requests the end of the agent by its own protocol.
    fn request_end(&mut self);

    /// Whether the agent is still handling the request to end, so that a longer wait can help.
    fn is_end_pending(&self) -> bool;

    /// Returns the deadline of the next expected answer.
    fn next_answer_deadline(&mut self) -> Option<Instant>;

    /// Queues the events of answers that are overdue.
    fn expire_requests(&mut self);

    /// Restarts the time limits of all answers.
    fn restart_timeouts(&mut self);

    /// Handles the end of the process, and returns its events.
    fn exited(&mut self, exit: ExitStatus, output_tail: String) -> Vec<Event>;

    /// Returns the error of a failed start, if the agent ended before any conversation.
    fn failed_start(&self, how: &str, output_tail: &str) -> Option<Error>;

    /// Does one step of pending background work besides reading; returns `false` if there is none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    fn do_background_step(&mut self) -> impl Future<Output = bool> + Send {
        async { false }
    }

    /// Whether lines that were already read can be handled one after another, without a check of time limits or background work in between.
    fn is_reading_only(&self) -> bool {
        false
    }

    /// Escalates an interrupt for the `n`th time: returns the signal to send, or does something else and returns `None`.
    fn escalate_interrupt(&mut self, n: usize) -> Option<Signal> {
        Some(if n == 0 {
            Signal::Interrupt
        } else {
            Signal::Kill
        })
    }

    /// Sends the last request before the process tree is ended.
    fn send_last_request(&mut self, _budget: Duration) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Releases resources that only a living agent needs.
    fn release(&mut self) {}

    fn queue_observation(&mut self, seen: Observation) {
        self.link_mut().queue.push(seen);
    }

    fn queue_events(&mut self, events: Vec<Event>) {
        self.queue_observation(Observation { raw: None, events });
    }

    /// Queues a line without waiting for the write; returns `false` if the line is lost.
    fn push(&mut self, line: Vec<u8>) -> bool {
        let pushed = self.link_mut().writer.push(line);
        if matches!(pushed, Err(WriteError::PipeFull)) {
            let warning = "the agent doesn't read its input; a request to it is lost";
            self.queue_observation(Event::Warning(warning.to_owned()).into());
        }
        pushed.is_ok()
    }

    /// Applies the outcome of one of the driver's messages: queues its events and writes its lines; returns `false` if a line is lost.
    fn apply_outcome(&mut self, outcome: super::LineOutcome) -> bool {
        self.queue_events(outcome.events);
        outcome.lines.into_iter().all(|line| self.push(line))
    }

    fn write(&mut self, line: Vec<u8>) -> impl Future<Output = Result<(), Error>> + Send {
        async move {
            match self.link_mut().writer.write(line).await {
                Ok(()) => Ok(()),
                Err(WriteError::PipeFull) => Err(self.full()),
                Err(WriteError::Closed) => Err(self.gone().await),
            }
        }
    }

    fn full(&self) -> Error {
        Error::full(format!("the {} agent", self.link().name))
    }

    /// Returns the error that explains why the agent accepts no more input.
    fn gone(&mut self) -> impl Future<Output = Error> + Send {
        async {
            let agent = &mut self.link_mut().agent;
            let exit = timeout(times::EXIT, agent.wait()).await;
            let how = exit.map_or("it closed its input".to_owned(), |exit| exit.to_string());
            // The reason may stand in lines that were not taken yet. A flood would keep `timeout_at` from ever checking the clock.
            let until = Instant::now() + times::EXIT;
            while Instant::now() < until
                && let Ok(Some(output)) =
                    timeout_at(until, self.link_mut().agent.next_output()).await
            {
                self.take(output);
            }
            let tail = self.link().output_tail();
            let failed = self.failed_start(&how, &tail);
            failed.unwrap_or_else(|| Error::agent_gone(format!("{how}{}", last_line(&tail))))
        }
    }

    /// Waits for one event and queues its meaning; returns `false` when no further event can come.
    ///
    /// # Cancel safety
    /// Cancel safe.
    fn step(&mut self) -> impl Future<Output = bool> + Send {
        async {
            if self.link().has_reported_exit {
                return false;
            } else if self.do_background_step().await {
                return true;
            }
            // Time limits don't count while the agent is frozen.
            let is_counted = !self.link().frozen;
            let due = self.link().wait_state.due().filter(|_| is_counted);
            let late = if is_counted {
                self.next_answer_deadline()
            } else {
                None
            };
            // Most of the time nothing is awaited, so the clock is not read for each line.
            if late.is_some_and(|late| late <= Instant::now()) {
                self.expire_requests();
                return true;
            }
            if due.is_some_and(EscalatingTimeout::is_exhausted) {
                self.escalate();
                return true;
            }
            let escalate_at = due.and_then(EscalatingTimeout::until);
            let until = escalate_at.into_iter().chain(late).min();
            let link = self.link_mut();
            match wait_for_event(&mut link.agent, link.wait_state.awaits_exit(), until).await {
                ProcessEvent::Output(output) => self.take(output),
                ProcessEvent::OutputEnded => link.wait_state.await_exit(),
                ProcessEvent::Exit(exit) => self.end_of_process(exit),
                // The next step handles what is overdue.
                ProcessEvent::TimedOut
                    if escalate_at.is_none_or(|until| until > Instant::now()) => {}
                ProcessEvent::TimedOut => self.escalate(),
            }
            true
        }
    }

    /// Returns a queued observation, or the next one from lines that were already read.
    fn take_read(&mut self) -> Option<Observation> {
        loop {
            let may_take_more = self.is_reading_only();
            let link = self.link_mut();
            let taken = link.queue.take();
            if taken.is_some()
                || !may_take_more
                || link.has_reported_exit
                || link.wait_state.due().is_some()
            {
                return taken;
            }
            let output = link.agent.try_next_output()?;
            self.take(output);
        }
    }

    /// Queues events until `enough` holds, the process has ended or the time is up.
    fn pump(
        &mut self,
        until: Instant,
        enough: impl Fn(&Self) -> bool + Send,
    ) -> impl Future<Output = ()> + Send {
        async move {
            // An agent that writes without pause would keep `timeout_at` from ever checking the clock.
            while !self.link().has_reported_exit && !enough(self) && Instant::now() < until {
                if timeout_at(until, self.step()).await.is_err() {
                    return;
                }
            }
        }
    }

    fn take(&mut self, output: Output) {
        self.link_mut().wait_state.read(output.line.bytes.len());
        let is_whole = output.line.truncated.is_none();
        let is_stdout = output.stream == Stream::Stdout;
        let mut seen = observation(output);
        if is_stdout
            && is_whole
            && let Some((_, line)) = seen.raw.take()
        {
            match is_message(&line.bytes) {
                true => self.handle_line(line),
                false => self.queue_plain_line(line),
            }
        } else {
            if is_stdout {
                let warning = "a line of the agent was too long to parse";
                seen.events.push(Event::Warning(warning.to_owned()));
            }
            self.queue_observation(seen);
        }
        self.watch();
    }

    fn queue_plain_line(&mut self, line: Line) {
        self.link_mut().plain_lines.push(&line.bytes);
        self.queue_observation(Observation {
            raw: Some((agent_duplex::Stream::Stdout, line)),
            events: vec![Event::PlainLine],
        });
    }

    fn end_of_process(&mut self, exit: Exit) {
        self.link_mut().has_reported_exit = true;
        self.release();
        // The exit status is unknown only if the guard was killed, and then the agent was killed with it.
        let exit =
            exit_status(exit).unwrap_or(ExitStatus::Signal(rustix::process::Signal::KILL.as_raw()));
        let tail = self.link().output_tail();
        let events = self.exited(exit, tail);
        self.queue_events(events);
        self.watch();
    }

    /// Starts or ends the wait for the end of an interrupted turn.
    fn watch(&mut self) {
        let is_interrupting = self.is_interrupting();
        self.link_mut()
            .wait_state
            .watch(is_interrupting, Self::INTERRUPT);
    }

    /// Requests the end of the turn; returns `false` if that is useless because the agent doesn't read.
    fn request_interrupt(&mut self, drop_queued: bool) -> bool {
        let is_requested = self.link().has_reported_exit || self.interrupt_turn(drop_queued);
        self.watch();
        is_requested
    }

    /// Escalates to the next step after a time limit. If the agent ignores interrupts, the driver ends its process; the session can be resumed later.
    fn escalate(&mut self) {
        let (to_send, why) = match self.link_mut().wait_state.next_step() {
            Some(TimeoutStep::Interrupted(n)) => match self.escalate_interrupt(n) {
                Some(signal) => (
                    signal,
                    "the agent did not end its turn within 3 s of an interrupt",
                ),
                None => return,
            },
            Some(TimeoutStep::Silent(n)) => {
                let signal = if n == 0 {
                    Signal::Terminate
                } else {
                    Signal::Kill
                };
                (signal, "the agent did not exit in time")
            }
            None => return,
        };
        let sent_signal = signal(&mut self.link_mut().agent, to_send, why);
        self.queue_observation(sent_signal.into());
    }

    /// Ends the agent, but not its leftovers.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call continues with the method that was used last.
    fn end_agent(&mut self) -> impl Future<Output = ()> + Send {
        async {
            while !self.link().has_reported_exit && self.link().stopped.is_none() {
                let before = self.link().ending;
                if let Some(sequence) = before
                    && sequence.is_waiting()
                {
                    let is_own = sequence.method() == EndMethod::Own;
                    let is_served = move |this: &Self| is_own && !this.is_end_pending();
                    if !is_served(self) {
                        self.pump(sequence.until, is_served).await;
                        continue;
                    }
                }
                let Some(next) = EndSequence::after(before, Self::END_METHODS) else {
                    return;
                };
                match next.method() {
                    EndMethod::Own => self.request_end(),
                    EndMethod::CloseInput => self.link_mut().agent.close_stdin(),
                    // If the signal can't be sent, a later stop ends the agent.
                    EndMethod::Signal(signal) => drop(self.link_mut().agent.signal(signal)),
                }
                self.link_mut().ending = Some(next);
            }
        }
    }

    /// Ends everything: first the turn by the agent's own protocol, so that no output of the turn is lost, then the agent and its process tree.
    fn end(&mut self, budget: Duration) -> impl Future<Output = StopReport> + Send {
        async move {
            let link = self.link_mut();
            let is_alive = !link.agent.has_exited();
            let stopping = StopState::begin_or_continue(&mut link.stopping, budget, is_alive);
            self.note_ending();
            if stopping.was_alive && !self.link().frozen && self.request_interrupt(true) {
                self.pump(stopping.polite_until, |this| !this.is_busy())
                    .await;
            }
            let mut stage = StopStage::Interrupt;
            if !self.link_mut().agent.has_exited() {
                stage = StopStage::CloseInput;
                self.send_last_request(budget).await;
            }
            let link = self.link_mut();
            let done = (stopping.was_alive, stage);
            let (agent, policy) = (&mut link.agent, &link.policy);
            stop(agent, policy, stopping.left(), done, &link.program).await
        }
    }
}

/// Returns whether a line can be a message of the protocol, which is a JSON object or a list of them.
fn is_message(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    let line = line.strip_prefix(b"[").unwrap_or(line);
    line.trim_ascii_start()
        .first()
        .is_none_or(|first| *first == b'{')
}
