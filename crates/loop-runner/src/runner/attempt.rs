//! The agent's events during an attempt, and the execution of the attempt machine's effects.

use std::io;
use std::time::Duration;

use agent_duplex::{
    Assignment, Completion, ConversationEvent, EndReason, Event, InputState, Observation,
    Published, QueuedMessages, Stream,
};
use loop_state::{
    AgentTurnEnd, AttemptEffect, AttemptInput, AttemptMachine, MachineInput, SteerState,
    StepContext, Timestamp, TurnOutcome, UsageTotal, times,
};
use rlm_store::transcript::Transcript;
use tokio::time::Instant;

use crate::run_event::RunEvent;
use crate::runner::Runner;
use crate::runner::stopping::{describe, failure, timestamp};

impl Runner {
    /// Handles the start of the agent, or its failure.
    pub(super) fn agent_started(
        &mut self,
        started: Result<(), agent_duplex::Error>,
    ) -> Vec<MachineInput> {
        let Err(e) = started else {
            return self.step_attempt(AttemptInput::Started);
        };
        // The agent possibly ran for a moment.
        if let Some(lost) = e.lost_processes() {
            self.count_ended(Some(lost.clone()));
        }
        let why = e.to_string();
        self.write_end(&why);
        let inputs = self.step_attempt(AttemptInput::NotStarted(match e.is_session_in_use() {
            true => TurnOutcome::SessionInUse(why),
            false => TurnOutcome::NotStarted(why),
        }));
        if !inputs.is_empty() {
            self.processes.attempt = None;
            self.refresh_view();
        }
        inputs
    }

    /// Handles an event of the agent; `None` means that its conversation ended.
    pub(super) async fn handle_agent_event(
        &mut self,
        published: Option<Published>,
    ) -> Vec<MachineInput> {
        let Some(attempt) = &mut self.processes.attempt else {
            return Vec::new();
        };
        let Some(published) = published else {
            attempt.primary = None;
            let inputs = self.step_attempt(AttemptInput::ConversationEnded);
            self.refresh_view();
            return inputs;
        };
        if attempt.machine.awaits_answer() && is_answer(&published.event) {
            // Save before reporting the first answer: if the agent visibly answered a prompt, a resume doesn't send it again.
            attempt.first_answer = Some(published);
            return self.step_attempt(AttemptInput::Answered);
        }
        match published.event {
            ConversationEvent::Assigned(assignment) => self.handle_assignment(&assignment),
            ConversationEvent::Observed(observation) => self.handle_observation(observation).await,
            ConversationEvent::Completed(completion) => self.completed(completion).await,
            _ => Vec::new(),
        }
    }

    fn handle_assignment(&mut self, assignment: &Assignment) -> Vec<MachineInput> {
        let Some(attempt) = &mut self.processes.attempt else {
            return Vec::new();
        };
        if !assignment.injected {
            // An attempt can have several turns, and each of them reports its own position.
            self.reported.session_saved = false;
        }
        let steers = assignment.inputs.iter();
        let steers = steers.filter_map(|input| attempt.receipts.remove(&input.receipt));
        let input = AttemptInput::TurnBegan {
            is_injected: assignment.injected,
            has_inputs: !assignment.inputs.is_empty(),
            steers: steers.collect(),
        };
        let inputs = self.step_attempt(input);
        let at = self.clock.now();
        self.update_activity(at, MachineInput::AgentActive);
        self.update_busy(at);
        self.refresh_view();
        inputs
    }

    /// Handles one line of the agent. A flood brings a hundred thousand lines a second, so this reads the clock as rarely as possible.
    async fn handle_observation(&mut self, observation: Observation) -> Vec<MachineInput> {
        let at = self.clock.now();
        self.update_activity(at, MachineInput::AgentActive);
        let Some(attempt) = &mut self.processes.attempt else {
            return Vec::new();
        };
        let parses_output = attempt.machine.options().parses_output;
        let is_plain = observation.events.contains(&Event::PlainLine);
        self.write_transcript(|transcript| match &observation.raw {
            Some((stream, line)) if !parses_output || is_plain => {
                transcript.output(at, *stream, line)
            }
            _ => transcript.observed(at, &observation),
        });
        if let Some((stream, line)) = observation.raw
            && (!parses_output || is_plain || stream == Stream::Stderr)
        {
            if stream == Stream::Stdout {
                let line = AttemptInput::Line(line.bytes.to_vec());
                let _none = self.step_attempt(line);
            }
            self.emit_at(at, RunEvent::Output { stream, line });
        }
        let mut inputs = Vec::new();
        for event in observation.events {
            inputs.extend(self.event(event).await);
        }
        self.update_busy(at);
        inputs.extend(self.step_attempt(AttemptInput::EventsProcessed));
        inputs
    }

    /// Reports to the run's machine whether the agent waits for something.
    pub(super) fn update_busy(&mut self, at: Timestamp) {
        let Some(attempt) = &self.processes.attempt else {
            return;
        };
        let busy = attempt.machine.is_busy();
        self.update_activity(at, MachineInput::AgentBusy(busy));
    }

    /// Passes to the run's machine an input that concerns only the live agent. Such an input is not saved and has no effects.
    pub(super) fn update_activity(&mut self, at: Timestamp, what: MachineInput) {
        let _none = self.machine.step(loop_state::TimedInput { at, what });
    }

    async fn event(&mut self, event: Event) -> Vec<MachineInput> {
        let Some(attempt) = self.processes.attempt.as_mut() else {
            return Vec::new();
        };
        let mut inputs = Vec::new();
        match &event {
            Event::Started { pid } => {
                attempt.reports.pid = Some(*pid);
                self.emit(RunEvent::AgentStarted { pid: *pid });
                self.refresh_view();
                return inputs;
            }
            Event::Exited(_) => inputs = self.step_attempt(AttemptInput::Exited),
            Event::BackgroundTasks(tasks) => {
                inputs = self.step_attempt(AttemptInput::BackgroundTasks(*tasks));
            }
            // Each process of the agent reports this; a person needs it once.
            Event::Identified { .. } if self.reported.identified.as_ref() == Some(&event) => {
                return inputs;
            }
            Event::Identified { .. } => self.reported.identified = Some(event.clone()),
            Event::Session { id } => return vec![MachineInput::SessionKnown(id.clone())],
            Event::SessionSaved { position } => {
                let position = *position;
                self.reported.session_saved = true;
                return vec![MachineInput::SessionSaved { position }];
            }
            Event::UsageReported(used) => {
                return vec![MachineInput::UsageReported(UsageTotal {
                    input_tokens: used.input_tokens,
                    output_tokens: used.output_tokens,
                    cost_microusd: used.cost_microusd,
                })];
            }
            Event::Input { id, state } => {
                if let InputState::Dropped(_) = state
                    && let Some(steer) = attempt.receipts.remove(id)
                {
                    inputs = self.step_attempt(AttemptInput::Dropped(steer));
                }
                return inputs;
            }
            Event::Message { text, partial } => {
                let (text, partial) = (text.clone(), *partial);
                inputs = self.step_attempt(AttemptInput::Message { text, partial });
            }
            Event::ToolStarted { id, name, summary } => {
                let (id, activity) = (id.clone(), format!("{name}: {summary}"));
                inputs = self.step_attempt(AttemptInput::ToolStarted { id, activity });
            }
            Event::ToolFinished { id, .. } => {
                // A pause can wait until no tool runs.
                inputs = self.step_attempt(AttemptInput::ToolFinished(id.clone()));
            }
            Event::RateLimited {
                rejected: true,
                resets_at,
                ..
            } => {
                let until = resets_at.and_then(timestamp);
                inputs = self.step_attempt(AttemptInput::Limited(until));
            }
            // This wait can be longer than the idle timeout.
            Event::Retrying { delay, .. } => {
                let at = self.clock.now();
                self.update_activity(at, MachineInput::AgentRetrying(*delay));
            }
            Event::PermissionRequested(ask) => {
                attempt.reports.asks.push(ask.clone());
                let effects = self.decide(AttemptInput::Asked(ask.id.clone()));
                return self.carry_out_asks(effects).await;
            }
            Event::PermissionWithdrawn { id } => {
                attempt.reports.asks.retain(|ask| ask.id != *id);
                inputs = self.step_attempt(AttemptInput::AskWithdrawn(id.clone()));
            }
            Event::PermissionDenied { .. } => {
                self.emit(RunEvent::Agent(event));
                return vec![MachineInput::PermissionDenied];
            }
            // The line itself is reported as output.
            Event::PlainLine => return inputs,
            Event::TextDelta(_) | Event::ThinkingDelta(_) => {
                self.emit(RunEvent::Agent(event));
                return inputs;
            }
            _ => {}
        }
        self.emit(RunEvent::Agent(event));
        let at = self.clock.now();
        self.update_busy(at);
        self.refresh_view();
        inputs
    }

    /// Writes to the transcript. If that fails, reports a warning and ends the transcript; the run continues.
    pub(super) fn write_transcript(
        &mut self,
        write: impl FnOnce(&mut Transcript) -> io::Result<()>,
    ) {
        let transcript = self
            .processes
            .attempt
            .as_mut()
            .and_then(|attempt| attempt.transcript.as_mut());
        let Some(Err(e)) = transcript.map(write) else {
            return;
        };
        if let Some(attempt) = &mut self.processes.attempt {
            attempt.transcript = None;
        }
        self.emit(RunEvent::Warning(format!(
            "can't write the rest of this attempt's transcript: {e}"
        )));
    }

    /// Passes an input to the attempt machine and returns its effects.
    pub(super) fn decide(&mut self, input: AttemptInput) -> Vec<AttemptEffect> {
        let at = self.clock.now();
        let context = StepContext {
            head: self.machine.head(),
            now: Instant::now().into_std(),
            at,
            budget: self.machine.budget(at),
            frozen: self.machine.is_frozen(),
        };
        match &mut self.processes.attempt {
            Some(attempt) => attempt.machine.step(context, input),
            None => AttemptMachine::absent(&input),
        }
    }

    /// Passes an input to the attempt machine and carries out its effects.
    pub(super) fn step_attempt(&mut self, input: AttemptInput) -> Vec<MachineInput> {
        let effects = self.decide(input).into_iter();
        effects.flat_map(|effect| self.carry_out(effect)).collect()
    }

    /// Carries out one effect, and returns the resulting machine inputs.
    pub(super) fn carry_out(&mut self, effect: AttemptEffect) -> Vec<MachineInput> {
        match effect {
            AttemptEffect::ReportPrompted => return vec![MachineInput::PromptReceived],
            AttemptEffect::ReportNoProgress => return vec![MachineInput::NoProgress],
            AttemptEffect::KeepMessage(text) => self.processes.message = Some(text),
            AttemptEffect::ReportResult(result) => {
                return vec![MachineInput::ResultReported(result)];
            }
            AttemptEffect::SteerDelivered(id) => {
                let state = SteerState::Delivered;
                return vec![MachineInput::SteerAdvanced { id, state }];
            }
            AttemptEffect::NextPrompt(steer) => self.emit(RunEvent::SteerNextTurn(steer)),
            AttemptEffect::Send {
                steer,
                again: false,
            } => {
                let input = match self.send_steer(steer) {
                    Ok(()) => AttemptInput::Sent {
                        steer,
                        again: false,
                    },
                    Err(_) => AttemptInput::Dropped(steer),
                };
                return self.step_attempt(input);
            }
            AttemptEffect::ReportSteersSeen(steers) => {
                let state = SteerState::Seen;
                let advanced = |id| MachineInput::SteerAdvanced { id, state };
                return steers.into_iter().map(advanced).collect();
            }
            AttemptEffect::Report(outcome) => return vec![MachineInput::TurnEnded(outcome)],
            AttemptEffect::Interrupt { drop_queued } => {
                let queued = match drop_queued {
                    true => QueuedMessages::Drop,
                    false => QueuedMessages::Keep,
                };
                if let Some(attempt) = &self.processes.attempt {
                    drop(attempt.conversation.interrupt(queued));
                }
            }
            AttemptEffect::CloseWhenIdle => self.release(),
            AttemptEffect::Close { tasks } => self.give_up_tasks(tasks),
            AttemptEffect::End { by } => self.start_stopping_tree(Instant::from_std(by)),
            AttemptEffect::ReportInterruptOverdue => {
                let limit = times::INTERRUPTED_TURN;
                self.emit(RunEvent::Warning(format!(
                    "the agent did not end its turn within {limit:?} after the interrupt; ending the agent; its session can be continued"
                )));
            }
            AttemptEffect::ReportContinued => self.emit(RunEvent::TurnContinued),
            AttemptEffect::AwaitingTasks { tasks } => {
                let timeout = self.phase().background_task_timeout;
                self.emit(RunEvent::AwaitingTasks { tasks, timeout });
            }
            AttemptEffect::RecordTurnEnd {
                outcome,
                agent_began: own,
                ..
            } => self.note_end(&outcome, own),
            // `continue_turn`, `completed`, `requested` and `carry_out_asks` handle these effects themselves.
            AttemptEffect::Start { .. }
            | AttemptEffect::Send { again: true, .. }
            | AttemptEffect::SendContinue
            | AttemptEffect::ShowAsk(_)
            | AttemptEffect::AnswerAsk { .. }
            | AttemptEffect::RefuseAnswer
            | AttemptEffect::ExamineWorkingTree => {}
        }
        Vec::new()
    }

    /// Closes the agent, because it is not needed any more. Its leftovers are handled after the required checks and the check.
    fn release(&self) {
        let timeout = self.phase().background_task_timeout;
        if let Some(attempt) = &self.processes.attempt {
            let conversation = attempt.conversation.clone();
            tokio::spawn(async move { conversation.close_within(timeout).await });
        }
    }

    /// Closes an agent whose background tasks reported nothing. Unfinished work is no evidence, so the required checks and the check wait until the
    /// agent has ended.
    fn give_up_tasks(&mut self, tasks: u32) {
        let timeout = self.phase().background_task_timeout;
        let Some(attempt) = &mut self.processes.attempt else {
            return;
        };
        let tasks = match tasks {
            1 => "1 task".to_owned(),
            several => format!("{several} tasks"),
        };
        let conversation = attempt.conversation.clone();
        let close = async move { conversation.close_within(Duration::ZERO).await };
        attempt.tasks.closing = Some(tokio::spawn(close));
        self.emit(RunEvent::Warning(format!(
            "no report from {tasks} in the background for {timeout:?}; ending the agent"
        )));
        self.refresh_view();
    }

    /// Begins to end the process tree of the attempt, in parallel.
    fn start_stopping_tree(&mut self, by: Instant) {
        if let Some(attempt) = &mut self.processes.attempt {
            let conversation = attempt.conversation.clone();
            let mut deadline = attempt.deadline.subscribe();
            attempt.tasks.ending = Some(tokio::spawn(async move {
                crate::deadline::stop(&mut deadline, &conversation, by).await
            }));
        }
    }

    /// Writes to the transcript how a turn ended, or why it did not begin.
    fn write_end(&mut self, text: &str) {
        let at = self.clock.now();
        self.write_transcript(|transcript| {
            transcript.note(at, "end", text)?;
            transcript.flush()
        });
    }

    fn note_end(&mut self, outcome: &TurnOutcome, own: bool) {
        let text = match outcome {
            TurnOutcome::Completed | TurnOutcome::PromiseMade => "completed",
            TurnOutcome::Interrupted => "interrupted",
            outcome => failure(outcome).unwrap_or("stopped"),
        };
        self.write_end(text);
        if let (true, Some(why)) = (own, failure(outcome)) {
            self.emit(RunEvent::Warning(format!(
                "a turn that the agent started by itself failed ({why}); the result of the previous turn still counts"
            )));
        }
    }

    pub(super) async fn completed(&mut self, completion: Completion) -> Vec<MachineInput> {
        let end = completion.end;
        let input = AttemptInput::TurnEnded {
            how: kind(end.reason),
            why: describe(&end),
            exited: end.exit.is_some(),
            detail: end.detail,
            pending: completion.pending > 0,
        };
        let mut inputs = Vec::new();
        for effect in self.decide(input) {
            if effect == AttemptEffect::ExamineWorkingTree {
                let fingerprint = self.fingerprint().await;
                let stop_requested = self.requests.is_stop_requested();
                inputs.extend(self.step_attempt(AttemptInput::WorkingTreeExamined {
                    fingerprint,
                    stop_requested,
                }));
            }
            inputs.extend(self.carry_out(effect));
        }
        let at = self.clock.now();
        self.update_busy(at);
        self.refresh_view();
        inputs
    }
}

fn is_answer(what: &ConversationEvent) -> bool {
    let ConversationEvent::Observed(observation) = what else {
        return false;
    };
    observation.events.iter().any(|event| {
        matches!(
            event,
            Event::TextDelta(_)
                | Event::ThinkingDelta(_)
                | Event::Message { .. }
                | Event::ToolStarted { .. }
        )
    })
}

/// Returns how a turn ended, in the terms of the rules, which don't distinguish most kinds of failure.
fn kind(reason: EndReason) -> AgentTurnEnd {
    match reason {
        EndReason::Completed => AgentTurnEnd::Completed,
        EndReason::Interrupted => AgentTurnEnd::Interrupted,
        EndReason::Died => AgentTurnEnd::Died,
        EndReason::NotLoggedIn => AgentTurnEnd::NotLoggedIn,
        EndReason::SessionNotFound => AgentTurnEnd::SessionNotFound,
        EndReason::RateLimited => AgentTurnEnd::RateLimited,
        // The run waits for a full disk as for a service.
        EndReason::ServiceFailed | EndReason::TemporaryFailure => AgentTurnEnd::ServiceFailed,
        EndReason::ProtocolError => AgentTurnEnd::ProtocolError,
        _ => AgentTurnEnd::Failed,
    }
}
