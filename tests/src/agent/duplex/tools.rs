//! Tools: announced, run for real if they are commands, subject to permission requests, and reported.

use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

use fs_err as fs;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::children;
use super::super::log::MessageState;
use super::session::SessionEntry;
use super::turn::{Question, Tool};
use super::wire::tool_input;
use super::{Agent, EarlyEnd, end_group};

/// The maximum number of bytes stored of a tool's output.
const OUTPUT: usize = 30_000;

impl Agent {
    pub(super) fn begin_tool(&mut self, name: &str, summary: &str) -> Result<(), EarlyEnd> {
        if self.turn().tool.is_some() {
            self.end_tool("", false)?;
        }
        let id = format!("toolu_fake{:06}_{}", self.wire.calls + 1, self.start);
        let input = tool_input(name, summary);
        self.begin_message(&json!({"type": "tool_use", "id": id, "name": name, "input": {}}));
        self.wire
            .delta(&json!({"type": "input_json_delta", "partial_json": input.to_string()}));
        let block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
        self.wire.assistant(&block, &Value::Null);
        self.wire.end(Some("tool_use"), 1);
        self.turn().tool = Some(Tool {
            id,
            name: name.into(),
            input,
        });
        Ok(())
    }

    /// Reports the tool's result. Messages that arrived during the tool join the turn here.
    pub(super) fn end_tool(&mut self, text: &str, failed: bool) -> Result<(), EarlyEnd> {
        self.report_tool(text, failed)?;
        self.catch_up()?;
        let folded: Vec<usize> = self.queue.drain(..).collect();
        for place in &folded {
            self.take(*place)?;
        }
        for place in &folded {
            self.note(*place, MessageState::Folded(self.turns))?;
            self.wire.lifecycle(&self.known[*place].id, "started");
        }
        let ids = self.ids(&folded);
        self.wire.taken.extend(ids);
        self.turn().folded.extend(folded);
        Ok(())
    }

    pub(super) fn report_tool(&mut self, text: &str, failed: bool) -> io::Result<()> {
        let tool = self.turn().tool.take();
        let tool = tool.ok_or_else(|| io::Error::other("tool-end, but no tool runs"))?;
        self.wire.user(
            &json!({"type": "tool_result", "tool_use_id": tool.id, "content": text, "is_error": failed}),
        );
        self.session.remember(SessionEntry::Tool(text.into()))
    }

    /// Runs a command as the CLI does: in its own session.
    pub(super) fn shell(&mut self, line: &str) -> Result<(), EarlyEnd> {
        self.children += 1;
        let output = self
            .dir
            .join(format!("run-{:06}-{:03}.out", self.start, self.children));
        let file = fs::File::create(&output)?.into_file();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]).env("CLAUDECODE", "1");
        command
            .stdin(Stdio::null())
            .stderr(file.try_clone()?)
            .stdout(file);
        crate::os::own_session(&mut command);
        let mut child: Child = command.spawn()?;
        self.tool.store(child.id().cast_signed(), Ordering::Release);
        let far = Instant::now() + children::LIFE;
        let waited = self.wait(far, |_| Ok(child.try_wait()?.is_some()));
        if waited.is_err() {
            end_group(child.id().cast_signed());
        }
        let status = child.wait()?;
        self.tool.store(0, Ordering::Release);
        waited?;
        let text = fs::read(&output)?;
        let text = String::from_utf8_lossy(&text[..text.len().min(OUTPUT)]).into_owned();
        self.end_tool(text.trim_end(), !status.success())
    }

    /// Sends a permission request if the permission mode doesn't decide about the call. Performs a permitted call: a command really runs.
    pub(super) fn ask(&mut self, name: &str, summary: &str) -> Result<(), EarlyEnd> {
        self.begin_tool(name, summary)?;
        let edits = ["Edit", "Write"].contains(&name);
        let verdict = match self.mode.as_str() {
            "bypassPermissions" => Ok(()),
            "acceptEdits" if edits => Ok(()),
            "dontAsk" => Err("Permission to use this tool has been denied.".to_owned()),
            _ if !self.options.asks => {
                let message = "This command requires approval";
                self.wire.line_of_session(
                    json!({"type": "system", "subtype": "permission_denied", "tool_name": name, "message": message}),
                );
                Err(message.into())
            }
            _ => self.answer_to(name, summary)?,
        };
        match verdict {
            Ok(()) if name == "Bash" => self.shell(summary),
            Ok(()) => self.end_tool("done", false),
            Err(message) => {
                self.deny();
                self.end_tool(&message, true)
            }
        }
    }

    fn answer_to(&mut self, name: &str, summary: &str) -> Result<Result<(), String>, EarlyEnd> {
        let id = match self.plan.numbers_asks {
            true => format!("ask-{}", self.wire.calls),
            false => Uuid::new_v4().to_string(),
        };
        let tool = self.turn().tool.as_ref().expect("a call was begun");
        let request = json!({
            "subtype": "can_use_tool", "tool_name": name, "display_name": name, "input": tool.input, "description": "Run a command",
            "permission_suggestions": [], "tool_use_id": tool.id,
        });
        self.turn().ask = Some(Question {
            id: id.clone(),
            summary: summary.into(),
            answer: None,
        });
        self.wire
            .line(&json!({"type": "control_request", "request_id": id, "request": request}));
        let far = Instant::now() + children::LIFE;
        let waited = self.wait(far, |agent| {
            let ask = agent.turn.as_ref().and_then(|turn| turn.ask.as_ref());
            Ok(agent.ended || ask.is_none_or(|ask| ask.answer.is_some()))
        });
        let answer = self.turn().ask.take().and_then(|ask| ask.answer);
        if waited.is_err() {
            self.deny();
        }
        waited?;
        match answer {
            Some((answer, _)) if answer.behavior == "allow" => Ok(Ok(())),
            Some((answer, false)) => Ok(Err(answer.message)),
            Some((_, true)) => {
                self.deny();
                Err(EarlyEnd::Interrupted)
            }
            None => Ok(Err("Stream closed".into())),
        }
    }

    fn deny(&mut self) {
        let turn = self.turn();
        let tool = turn.tool.as_ref().expect("a call was begun");
        let denial =
            json!({"tool_name": tool.name, "tool_use_id": tool.id, "tool_input": tool.input});
        turn.denials.push(denial);
    }
}
