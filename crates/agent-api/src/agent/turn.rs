//! One turn: call the model, run its tools, take new messages, until the model calls no tool.
//!
//! Each effect comes after the save of its intent, and each report of a result after the save of that result.

use agent_duplex::{Decision, EndReason, Event, Message, Permissions, TurnEnd};

use super::link::{Command, Halt, Link};
use super::options::AgentOptions;
use super::session::Session;
use super::toolbox::Toolbox;
use crate::dialect::StopReason;
use crate::history::{AssistantMessage, Completeness, History, ToolResult};
use crate::http::ModelClient;
use crate::repeat_guard::RepeatGuard;
#[cfg(feature = "mcp")]
use crate::tool::RunningServers;
use crate::tool::ToolContext;

/// A running turn.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) options: &'a AgentOptions,
    pub(super) client: &'a ModelClient,
    pub(super) tools: &'a Toolbox,
    #[cfg(feature = "mcp")]
    pub(super) servers: &'a mut Option<RunningServers>,
    pub(super) context: &'a ToolContext,
    pub(super) session: &'a mut Session,
    pub(super) link: &'a mut Link,
    pub(super) guard: RepeatGuard,
    /// The calls of the model so far.
    pub(super) calls: u32,
    /// The responses that were discarded because they exceed a limit.
    pub(super) discarded_responses: u32,
}

impl Turn<'_> {
    /// Runs the turn to its end, and saves it. If `started` is an error, nothing runs. `Err` means that the connection is closed.
    pub(super) async fn run(&mut self, started: Result<(), Halt>) -> Result<TurnEnd, ()> {
        let ran = match started {
            Ok(()) => self.steps().await,
            Err(halt) => Err(halt),
        };
        let halt = match ran {
            Ok(end) | Err(Halt::Ended(end)) => Halt::Ended(end),
            Err(halt) => halt,
        };
        let is_failure = matches!(&halt, Halt::Ended(_));
        let answered = self.session.change(|history| {
            match is_failure {
                true => close_calls_not_run(history)?,
                false => history.close_calls_after_interrupt(),
            }
            Ok(())
        });
        let saved = self.session.save().await;
        let unsaved = { answered.map_err(|error| error.to_string()) }
            .and(saved)
            .err();
        let end = match halt {
            Halt::Ended(end) => end,
            Halt::Interrupted => {
                let queued = Vec::new();
                self.link
                    .report(Event::InterruptAcknowledged { queued })
                    .await;
                EndReason::Interrupted.into()
            }
            Halt::Closed => return Err(()),
        };
        Ok(match unsaved {
            Some(detail) => failed(EndReason::Failed, detail),
            None => end,
        })
    }

    async fn steps(&mut self) -> Result<TurnEnd, Halt> {
        if let Some((message, stop)) = self.session.final_message() {
            // The message was sent again after a crash, and its turn had ended before.
            let partial = message.completeness == Completeness::Partial;
            let ended = match (partial, stop) {
                (true, _) => EndReason::Interrupted.into(),
                (false, Some(stop)) => end(stop.clone()),
                (false, None) => EndReason::Completed.into(),
            };
            let text = message.text();
            self.link.report(Event::Message { text, partial }).await;
            return Ok(ended);
        }
        loop {
            #[cfg(feature = "mcp")]
            self.report_ended_servers().await;
            let Some((message, stop)) = self.ask_model().await? else {
                continue;
            };
            let has_calls = message.calls().next().is_some();
            self.keep(message, Some(stop.clone())).await?;
            if !has_calls {
                return Ok(end(stop));
            }
            while let Some(call) = self.next_call() {
                self.run_call(call).await?;
            }
            self.take_messages().await?;
        }
    }

    /// Appends a message of the model to the history, and saves it.
    pub(super) async fn keep(
        &mut self,
        message: AssistantMessage,
        stop: Option<StopReason>,
    ) -> Result<(), Halt> {
        if !message.parts.is_empty() {
            { self.session.push_assistant(message, stop) }.map_err(|error| invalid(&error))?;
        }
        self.save().await
    }

    /// Takes the messages that wait, into this turn.
    async fn take_messages(&mut self) -> Result<(), Halt> {
        self.link.report(Event::AcceptsMessages).await;
        loop {
            match self.link.commands.recv().await {
                Some(Command::Continue) => return Ok(()),
                Some(Command::Message { message, taken }) => {
                    let saved = take_message(self.session, message).await;
                    let failure = saved.as_ref().err().map(ToString::to_string);
                    // The caller can be gone; the message is saved anyway.
                    let _gone = taken.send(saved);
                    if let Some(why) = failure {
                        return Err(Halt::Ended(failed(EndReason::Failed, why)));
                    }
                }
                Some(Command::Interrupt) => return Err(Halt::Interrupted),
                Some(Command::Answer { .. }) => {}
                None => return Err(Halt::Closed),
            }
        }
    }

    /// Waits for the answer to a permission request. A change of the permissions can answer it too: `is_needed` says whether the question remains.
    pub(super) async fn answer(
        &mut self,
        ask: &str,
        is_needed: impl Fn(Permissions) -> bool,
    ) -> Result<Decision, Halt> {
        let mut permissions = self.link.permissions.clone();
        loop {
            if !is_needed(*permissions.borrow_and_update()) {
                let id = ask.to_owned();
                self.link.report(Event::PermissionWithdrawn { id }).await;
                return Ok(Decision::Allow);
            }
            tokio::select! {
                command = self.link.commands.recv() => match command {
                    Some(Command::Answer { ask: id, decision }) if id == ask => return Ok(decision),
                    Some(Command::Answer { .. } | Command::Continue) => {}
                    Some(Command::Message { taken, .. }) => super::link::refuse(taken),
                    Some(Command::Interrupt) => return Err(Halt::Interrupted),
                    None => return Err(Halt::Closed),
                },
                Ok(()) = permissions.changed() => {}
            }
        }
    }

    pub(super) fn change(
        &mut self,
        change: impl FnOnce(&mut History) -> Result<(), crate::Error>,
    ) -> Result<(), Halt> {
        { self.session.change(change) }.map_err(|error| invalid(&error))
    }

    pub(super) async fn save(&mut self) -> Result<(), Halt> {
        { self.session.save().await }
            .map_err(|detail| Halt::Ended(failed(EndReason::Failed, detail)))
    }
}

/// Appends a message of the caller to the session, and saves it.
///
/// # Errors
///
/// Fails if the history refuses the message, or if the save fails.
pub(super) async fn take_message(
    session: &mut Session,
    message: Message,
) -> Result<(), agent_duplex::Error> {
    { session.message(message) }
        .map_err(|error| agent_duplex::Error::invalid(error.to_string()))?;
    session.save().await.map_err(|why| {
        // The conversation sends the message again, under another id.
        session.give_up(&why);
        agent_duplex::Error::start(why, None)
    })
}

/// Adds a result to each call that is open at the end of the turn.
fn close_calls_not_run(history: &mut History) -> Result<(), crate::Error> {
    let open: Vec<_> = { history.open_calls() }
        .map(|(call, state)| (call.id.clone(), state))
        .collect();
    for (id, state) in open {
        history.push_result(match state {
            crate::history::CallState::Requested => ToolResult {
                text: "not run: the turn ended before this call started".to_owned(),
                ..ToolResult::not_run(id)
            },
            crate::history::CallState::Started => ToolResult::unknown(id),
        })?;
    }
    Ok(())
}

/// Returns the end of a turn after the last response of the model.
fn end(stop: StopReason) -> TurnEnd {
    match stop {
        StopReason::MaxTokens => EndReason::MaxTokens.into(),
        StopReason::Refused => EndReason::Refused.into(),
        StopReason::ContextFull => EndReason::ContextOverflow.into(),
        StopReason::EndOfTurn | StopReason::ToolCalls => EndReason::Completed.into(),
        StopReason::Other(name) => failed(
            EndReason::Failed,
            format!("the server stopped the model: {name}"),
        ),
    }
}

/// Returns the end of a turn whose history would be invalid.
fn invalid(error: &crate::Error) -> Halt {
    Halt::Ended(failed(EndReason::ProtocolError, error.to_string()))
}

pub(super) fn failed(reason: EndReason, detail: impl Into<String>) -> TurnEnd {
    TurnEnd {
        detail: detail.into(),
        ..reason.into()
    }
}
