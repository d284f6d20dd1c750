//! The requests of people during a run, and the permission requests of the agent.

use std::borrow::Cow;

use agent_duplex::{
    Conversation, ConversationOptions, Decision, Input, PermissionRequest, Permissions,
    SessionChoice,
};
use loop_state::{
    AskAnswer, AttemptEffect, AttemptInput, Denial, Effect, MachineInput, Request, StopDeadline,
    TimedInput, TurnOutcome,
};
use rlm_store::ItemError;
use serde_json::Value;
use tokio::time::Instant;

use crate::RunControl;
use crate::control::{QueuedRequest, ReplySender, RunPosition};
use crate::error::Error;
use crate::prompt;
use crate::run_event::RunEvent;
use crate::runner::Runner;
use crate::runner::parts::attempt::{deny, freeze};
use crate::runner::parts::first_input;

/// The machine input of a message, or the reason for its rejection.
type Interpretation = Result<Option<MachineInput>, Cow<'static, str>>;

impl Runner {
    /// Handles a message and returns its machine input.
    pub(super) async fn accept_request(
        &mut self,
        queued: QueuedRequest,
    ) -> Result<Option<(MachineInput, ReplySender)>, Error> {
        let QueuedRequest {
            control: what,
            reply,
        } = queued;
        let interpreted = self.interpret(what).await?;
        if let (Ok(None) | Err(_), Some(number)) = (&interpreted, reply.number()) {
            // The machine does not see this request, so it saves nothing.
            self.saved.last_request = number;
            self.perform(Effect::Save).await?;
        }
        Ok(match interpreted {
            Ok(Some(what)) => return Ok(Some((what, reply))),
            Ok(None) => {
                reply.send(Ok(RunPosition::from(&self.machine)));
                None
            }
            Err(why) => {
                self.emit(RunEvent::RequestRejected(why.clone()));
                reply.send(Err(why));
                None
            }
        })
    }

    /// Returns the machine input of a message. The deadline of a stop begins when the stop arrives, even if earlier requests are carried out first.
    async fn interpret(&mut self, message: RunControl) -> Result<Interpretation, Error> {
        Ok(Ok(Some(match message {
            RunControl::Stop(request) => {
                let what = MachineInput::StopRequested(request);
                self.announce_stop(&what);
                what
            }
            RunControl::Attended(attended) => self.attended(attended).await,
            RunControl::Freeze { frozen, done } => {
                let thawed = self.freeze(frozen).await;
                // The receiver has possibly stopped waiting.
                let _gone = done.send(());
                return Ok(Ok(thawed));
            }
            RunControl::SaveItem { key, value, saved } => {
                let result = self.save_item(key, value).await?;
                // The receiver has possibly stopped waiting.
                let _gone = saved.send(result);
                return Ok(Ok(None));
            }
            RunControl::Request(request) => return self.requested(request).await,
        })))
    }

    /// Saves an item of the current iteration.
    async fn save_item(
        &mut self,
        key: String,
        value: Value,
    ) -> Result<Result<(), ItemError>, Error> {
        let head = self.machine.head();
        if let Err(refused) = self.saved.set_item(head, key, value) {
            return Ok(Err(refused));
        }
        self.perform(Effect::Save).await?;
        Ok(Ok(()))
    }

    /// Handles a person's request from any terminal. The machine decides about it; a request that does not concern the run's state is carried out at
    /// once.
    async fn requested(&mut self, request: Request) -> Result<Interpretation, Error> {
        match request {
            Request::Answer {
                permission_request: ask,
                allow,
                message,
            } => {
                let effects = self.decide(AttemptInput::AskAnswered {
                    ask,
                    allow,
                    message,
                });
                if effects.contains(&AttemptEffect::RefuseAnswer) {
                    return Ok(Err("the agent withdrew this permission request".into()));
                }
                return Ok(Ok(self.carry_out_asks(effects).await.pop()));
            }
            Request::Prompt { phase, text } => {
                let replaced = self.replace_prompt(phase as usize, text).await?;
                return Ok(replaced.map(|()| None).map_err(Cow::from));
            }
            _ => {}
        }
        let what = MachineInput::Requested(request);
        self.announce_stop(&what);
        let attempt = self.processes.attempt.as_ref();
        let interruptible = attempt.is_none_or(|it| it.machine.options().interruptible);
        let at = self.clock.now();
        self.update_activity(at, MachineInput::AgentInterruptible(interruptible));
        Ok(Ok(Some(what)))
    }

    /// Passes a person's message to a resumed run: the next prompt contains the message. If a phase waits for a review, the message revises the
    /// phase.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] if the text is empty, if the text and the waiting steers together are too long, or if the run is new: a new run gets only
    /// its prompt.
    pub fn with_feedback(mut self, text: String) -> Result<Self, Error> {
        first_input::with_feedback(&mut self.first, self.machine.head(), text)?;
        Ok(self)
    }

    /// Starts the deadline of a queued request.
    fn announce_stop(&mut self, request: &MachineInput) {
        let Some(what) = request.foreseen() else {
            return;
        };
        let at = self.clock.now();
        for effect in self.machine.step(TimedInput { at, what }) {
            if let Effect::StopBy(deadline) = effect {
                self.stop_by(deadline);
            }
        }
    }

    /// Moves the deadline of everything that is being ended.
    pub(super) fn stop_by(&mut self, deadline: StopDeadline) {
        let budget = self.budget();
        if deadline.is_abort() {
            // The abort ends the turn at once; `by` is the deadline of the process tree.
            let by = Instant::now().into_std() + budget;
            let _none = self.step_attempt(AttemptInput::Abort { by });
            self.deadlines().iter().for_each(|it| it.tighten_to(budget));
        } else if let Some(cleanup) = &self.processes.cleanup {
            cleanup.deadline().tighten_to(budget);
        }
        self.note_awaited(self.awaited());
    }

    /// Sends the agent a steer.
    pub(super) fn send_steer(&mut self, id: u32) -> Result<(), String> {
        let at = self.clock.now();
        let steers = &self.machine.head().steers;
        let steer = steers.iter().find(|steer| steer.id == id);
        let (Some(steer), Some(attempt)) = (steer, &mut self.processes.attempt) else {
            return Err("the attempt has ended".into());
        };
        let text = steer.text.clone();
        let input = Input::new(prompt::format_steer(&text)).with_id(first_input::steer_input(id));
        let receipt = attempt.conversation.send(input);
        let receipt = receipt.map_err(|e| e.to_string())?;
        attempt.receipts.insert(receipt.id, id);
        self.write_transcript(|transcript| transcript.note(at, "steer", &text));
        Ok(())
    }

    /// Continues in the session of an interrupted turn, in the same process if it is alive.
    pub(super) fn continue_turn(&mut self) -> Vec<MachineInput> {
        let mut inputs = Vec::new();
        for effect in self.decide(AttemptInput::Continue) {
            let done = match effect {
                AttemptEffect::Start { replace, session } => self.reconnect(replace, session),
                AttemptEffect::Send { steer, again } => self.send_steer(steer).map(|()| {
                    inputs.extend(self.step_attempt(AttemptInput::Sent { steer, again }));
                }),
                AttemptEffect::SendContinue => self.send_continue(),
                effect => {
                    inputs.extend(self.carry_out(effect));
                    Ok(())
                }
            };
            if let Err(why) = done {
                let failed = AttemptInput::NotStarted(TurnOutcome::Failed(why));
                return self.step_attempt(failed);
            }
        }
        self.refresh_view();
        inputs
    }

    fn send_continue(&mut self) -> Result<(), String> {
        let attempt = self.processes.attempt.as_ref();
        let attempt = attempt.ok_or("the attempt has ended")?;
        let sent = attempt
            .conversation
            .send(Input::new(prompt::CONTINUE_MESSAGE));
        sent.map(|_| ()).map_err(|e| e.to_string())
    }

    /// Starts a new process in the session of the current attempt, without waiting for it. The conversation delivers queued messages after the start.
    fn reconnect(&mut self, replace: bool, session: String) -> Result<(), String> {
        let driver = self.driver().map_err(|e| e.to_string())?;
        let attempt = self.processes.attempt.as_mut();
        let attempt = attempt.ok_or("the attempt has ended")?;
        if replace {
            let (conversation, primary) = Conversation::with_primary(
                driver,
                ConversationOptions::default().with_manual_start(),
            );
            attempt.replace(conversation, primary);
        }
        let conversation = attempt.conversation.clone();
        let session = SessionChoice::Resume(session);
        attempt.tasks.starting = Some(tokio::spawn(
            async move { conversation.start(session).await },
        ));
        Ok(())
    }

    /// Suspends or resumes all processes of the run. After a resume, returns the machine input with the duration of the suspension.
    async fn freeze(&mut self, frozen: bool) -> Option<MachineInput> {
        let guard = frozen.then(|| self.processes.warm_guard.discard());
        if let Some(check) = &self.processes.check {
            check.freeze(frozen).await;
        }
        if let Some(cleanup) = &self.processes.cleanup {
            cleanup.freeze(frozen).await;
        }
        if let Some(attempt) = &self.processes.attempt {
            freeze(&attempt.conversation, frozen).await;
        }
        if let Some(guard) = guard {
            // A guard whose start hangs must not delay the suspension.
            let _ended_or_late =
                tokio::time::timeout(loop_state::times::FREEZE_TIMEOUT, guard).await;
        }
        let now = self.clock.now();
        let before = self.machine.frozen_for(now);
        self.update_activity(now, MachineInput::Frozen(frozen));
        if frozen {
            return None;
        }
        let frozen = before?;
        let _part_of_frozen = self.clock.take_jump();
        // This input only moves deadlines.
        let _none = self.step_attempt(AttemptInput::Thawed(frozen));
        Some(MachineInput::Thawed(frozen))
    }

    /// Handles the arrival or departure of a person.
    async fn attended(&mut self, attended: bool) -> MachineInput {
        let effects = self.decide(AttemptInput::Attended(attended));
        // These denials are reported, but not counted.
        let _uncounted = self.carry_out_asks(effects).await;
        MachineInput::Attended(attended)
    }

    /// Shows the agent's permission requests to a person and answers them, as the attempt machine decides.
    pub(super) async fn carry_out_asks(
        &mut self,
        effects: Vec<AttemptEffect>,
    ) -> Vec<MachineInput> {
        let mut inputs = Vec::new();
        for effect in effects {
            match effect {
                AttemptEffect::ShowAsk(id) => {
                    if let Some(ask) = self.permission_request(&id).cloned() {
                        self.emit(RunEvent::Agent(agent_duplex::Event::PermissionRequested(
                            ask,
                        )));
                    }
                    self.refresh_view();
                }
                AttemptEffect::AnswerAsk { ask, answer } => {
                    inputs.extend(self.answer(&ask, answer).await);
                }
                effect => inputs.extend(self.carry_out(effect)),
            }
        }
        inputs
    }

    fn permission_request(&self, id: &str) -> Option<&PermissionRequest> {
        let attempt = self.processes.attempt.as_ref()?;
        attempt.reports.asks.iter().find(|ask| ask.id == id)
    }

    /// Answers a permission request; counts a denial.
    async fn answer(&mut self, id: &str, answer: AskAnswer) -> Option<MachineInput> {
        let decision = match answer {
            AskAnswer::Allow => Decision::Allow,
            AskAnswer::Deny(Denial::Person(message)) => Decision::Deny { message },
            AskAnswer::Deny(Denial::Unattended) => deny("no person is attached"),
            AskAnswer::Deny(Denial::Left) => deny("no person is attached any more"),
            AskAnswer::Deny(Denial::Policy) => deny(match self.phase().permissions {
                Permissions::Edits => "only file edits are allowed in this loop",
                _ => "this loop allows nothing that needs a permission",
            }),
        };
        let ask = self.permission_request(id)?.clone();
        let attempt = self.processes.attempt.as_mut()?;
        attempt.reports.asks.retain(|open| open.id != ask.id);
        let denied = match &decision {
            Decision::Deny { message } => Some(message.clone()),
            _ => None,
        };
        if let Err(e) = attempt.conversation.answer(&ask.id, decision).await {
            self.emit(RunEvent::Warning(format!(
                "can't send the answer to the agent: {e}"
            )));
        }
        let at = self.clock.now();
        self.update_activity(at, MachineInput::AgentActive);
        self.update_busy(at);
        self.refresh_view();
        let message = denied?;
        let tool = format!("{}: {}", ask.tool, ask.summary);
        self.emit(RunEvent::Agent(agent_duplex::Event::PermissionDenied {
            tool,
            message,
        }));
        Some(MachineInput::PermissionDenied)
    }
}
