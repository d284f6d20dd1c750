//! One tool call: the permission, the saved intent, the effect, and the saved result.

use std::sync::Arc;

use agent_duplex::{
    Decision, EndReason, Event, PermissionRequest, Permissions, ToolOutcome as ReportedOutcome,
};
use tokio::time::timeout;

use super::link::Halt;
use super::turn::{Turn, failed};
use crate::history::{Item, ToolCall, ToolOutcome, ToolResult, ToolStarted};
use crate::json::JsonObject;
use crate::repeat_guard::Repetition;
use crate::text;
use crate::times;
use crate::tool::{Access, FileChange, Prepared, Tool, ToolContext, ToolOutput};

/// The longest reported result of a tool, in bytes. The model gets all of it.
const REPORTED: usize = 4_096;
/// The longest summary of a call, in characters.
const SUMMARY: usize = 400;

impl Turn<'_> {
    /// Returns the next call without a result.
    pub(super) fn next_call(&self) -> Option<ToolCall> {
        let mut open = self.session.history().open_calls();
        open.next().map(|(call, _)| call.clone())
    }

    /// Runs a call, and saves its result.
    pub(super) async fn run_call(&mut self, call: ToolCall) -> Result<(), Halt> {
        self.link.thawed().await?;
        let repetition = self.guard.record(&call);
        if let Repetition::Stuck(count) = repetition {
            let detail = format!("the model made the same call {count} times in a row");
            return Err(Halt::Ended(failed(EndReason::Failed, detail)));
        }
        let ran = match self.tools.find(&call) {
            Ok((tool, arguments)) => {
                let event = Event::ToolStarted {
                    id: call.id.clone(),
                    name: text::one_line(&call.name, SUMMARY),
                    summary: text::one_line(&tool.summary(arguments), SUMMARY),
                };
                self.link.report(event).await;
                self.permitted(&call, tool, arguments).await
            }
            Err(output) => {
                let event = Event::ToolStarted {
                    id: call.id.clone(),
                    name: text::one_line(&call.name, SUMMARY),
                    summary: text::one_line(call.raw_arguments(), SUMMARY),
                };
                self.link.report(event).await;
                Ok((ReportedOutcome::Failed, output))
            }
        };
        let (outcome, mut output) = match ran {
            Ok(ran) => ran,
            Err(halt) => {
                let event = Event::ToolFinished {
                    id: call.id,
                    outcome: ReportedOutcome::Interrupted,
                    text: String::new(),
                };
                self.link.report(event).await;
                return Err(halt);
            }
        };
        if let Repetition::Warn(count) = repetition {
            output.text.push_str(&format!(
                "\n\nThis is the same call for the {count}th time in a row. Do something else, or say why you can't continue."
            ));
        }
        let event = Event::ToolFinished {
            id: call.id.clone(),
            outcome,
            text: text::start(&output.text, REPORTED).to_owned(),
        };
        let result = ToolResult {
            call_id: call.id,
            outcome: match outcome {
                ReportedOutcome::Succeeded => ToolOutcome::Ok,
                _ => ToolOutcome::Error,
            },
            text: output.text,
        };
        self.change(|history| history.push_result(result))?;
        let saved = self.save().await;
        self.link.report(event).await;
        saved
    }

    /// Asks for the permission if it is needed, and runs the call.
    async fn permitted(
        &mut self,
        call: &ToolCall,
        tool: &Arc<dyn Tool>,
        arguments: &JsonObject,
    ) -> Result<(ReportedOutcome, ToolOutput), Halt> {
        let mut context = self.context.for_next_call();
        let access = {
            // It looks at files, which can block.
            let (tool, arguments, context) = (Arc::clone(tool), arguments.clone(), context.clone());
            let asked = tokio::task::spawn_blocking(move || tool.access(&arguments, &context));
            let unknown = |_| Access::Anything {
                reason: "the tool failed to say what it needs".to_owned(),
            };
            self.link.during(asked).await?.unwrap_or_else(unknown)
        };
        context.judged = Some(access.clone());
        let permissions = *self.link.permissions.borrow();
        if let Some(reason) = question(permissions, &access) {
            let request = PermissionRequest {
                id: call.id.clone(),
                tool: call.name.clone(),
                summary: text::one_line(&tool.summary(arguments), SUMMARY),
                reason,
            };
            self.link.report(Event::PermissionRequested(request)).await;
            if let Decision::Deny { message } = self
                .answer(&call.id, |now| question(now, &access).is_some())
                .await?
            {
                let denied = match message.is_empty() {
                    true => "the user denied this call".to_owned(),
                    false => format!("the user denied this call: {message}"),
                };
                return Ok((ReportedOutcome::Denied, ToolOutput::failed(denied)));
            }
        }
        let output = self
            .effect(call, tool, (arguments, &access), &context)
            .await?;
        let outcome = match output.is_error {
            true => ReportedOutcome::Failed,
            false => ReportedOutcome::Succeeded,
        };
        Ok((outcome, output))
    }

    /// Saves the intent, and then runs the tool.
    async fn effect(
        &mut self,
        call: &ToolCall,
        tool: &Arc<dyn Tool>,
        (arguments, access): (&JsonObject, &Access),
        context: &ToolContext,
    ) -> Result<ToolOutput, Halt> {
        let prepared = self.link.during(tool.prepare(arguments, context)).await?;
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(output) => return Ok(output),
        };
        let change = match &prepared {
            Prepared::Change(change)
                if *access == Access::Edits && !change.is_inside(&context.directory) =>
            {
                let text = "the path leads out of the working directory now; call the tool again";
                return Ok(ToolOutput::failed(text));
            }
            Prepared::Change(change) => Some(change.intent(&context.directory)),
            Prepared::Run => None,
        };
        self.link.thawed().await?;
        let started = ToolStarted {
            call_id: call.id.clone(),
            change,
        };
        self.change(|history| history.append(Item::ToolStarted(started)))?;
        if let Err(halt) = self.save().await {
            let not_run = ToolResult {
                text: "not run: the session could not be saved".to_owned(),
                ..ToolResult::not_run(call.id.clone())
            };
            self.change(|history| history.push_result(not_run))?;
            return Err(halt);
        }
        match prepared {
            Prepared::Change(change) => self.make(call, change, context).await,
            Prepared::Run => {
                let mut running = tool.run(arguments, context);
                match self.link.during(&mut running).await {
                    Ok(output) => Ok(output),
                    Err(halt) => {
                        context.cancel.cancel();
                        // After this time the future is dropped, which kills its processes.
                        let _ended = timeout(times::TOOL_END, running).await;
                        Err(halt)
                    }
                }
            }
        }
    }

    /// Makes the change of a file.
    async fn make(
        &mut self,
        call: &ToolCall,
        change: FileChange,
        context: &ToolContext,
    ) -> Result<ToolOutput, Halt> {
        // If this future is dropped, the session stays locked until the change has ended.
        let (lock, cancel) = (self.session.lock(), context.cancel.clone());
        let mut making = tokio::task::spawn_blocking(move || {
            let made = change.make_unless(&cancel);
            drop(lock);
            made
        });
        let output = |made: Result<Result<String, String>, _>| match made {
            Ok(Ok(done)) => ToolOutput::ok(done),
            Ok(Err(why)) => ToolOutput::failed(why),
            Err(_) => ToolOutput::failed("the change failed; read the file again"),
        };
        let halt = match self.link.during(&mut making).await {
            Ok(made) => return Ok(output(made)),
            Err(halt) => halt,
        };
        context.cancel.cancel();
        let result = match timeout(times::TOOL_END, making).await.map(output) {
            Ok(output) => ToolResult {
                call_id: call.id.clone(),
                outcome: match output.is_error {
                    true => ToolOutcome::Error,
                    false => ToolOutcome::Ok,
                },
                text: output.text,
            },
            Err(_elapsed) => ToolResult::unknown(call.id.clone()),
        };
        self.change(|history| history.push_result(result))?;
        Err(halt)
    }
}

/// Returns the reason of a permission request; `None` if nobody needs to be asked.
fn question(permissions: Permissions, access: &Access) -> Option<String> {
    match (permissions, access) {
        (Permissions::All, _) | (_, Access::Reads) | (Permissions::Edits, Access::Edits) => None,
        (_, Access::Edits) => Some(String::new()),
        (_, Access::Anything { reason }) => Some(reason.clone()),
    }
}
