//! The items of a conversation as plain data. Their saved form is stable: a field or a variant is only added, with a default.

use serde::{Deserialize, Serialize};

use crate::json::JsonObject;

/// One item of a [`History`](super::History).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Item {
    /// A message of the user.
    User(UserMessage),
    /// A message of the model.
    Assistant(AssistantMessage),
    /// The intent to run a tool. It is saved before the tool runs, and the model doesn't see it.
    ToolStarted(ToolStarted),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// The text that replaces older items after a compaction.
    Summary(Summary),
}

/// A message of the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserMessage {
    /// The text, which is not only white space.
    pub text: String,
}

/// A message of the model, whole or interrupted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// The parts in the order in which the model wrote them.
    pub parts: Vec<AssistantPart>,
    /// Whether the model finished the message.
    #[serde(default)]
    pub completeness: Completeness,
    /// The tokens of the conversation up to and including this message, as the server counted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
}

/// Whether the model finished a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completeness {
    /// The stream had its final event.
    #[default]
    Complete,
    /// An interrupt dropped the stream. The message has the text that had arrived.
    Partial,
}

/// A part of a message of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AssistantPart {
    /// Text for the user.
    Text(AssistantText),
    /// Thinking, and its proof for the server.
    Thinking(Thinking),
    /// A call of a tool.
    ToolCall(ToolCall),
}

/// Text for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssistantText {
    /// The text.
    pub text: String,
    /// The label that a Responses server gives the text (`commentary`, `final_answer`), and expects back unchanged in the next request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

/// Thinking of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thinking {
    /// The readable text, or a summary of it; it may be empty.
    pub text: String,
    /// The part that the server expects back unchanged in the next request.
    pub proof: ThinkingProof,
}

/// The part of a model's thinking that the server expects back unchanged in the next request. A server of another dialect can't read it, so it isn't sent there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThinkingProof {
    /// None: the text is all there is.
    None,
    /// The signature of a Messages server over the text.
    Signature(String),
    /// The encrypted thinking of a Messages server that hides the text.
    Redacted(String),
    /// The reasoning item of a Responses server.
    Encrypted {
        /// The server's id of the item; empty if it gave none.
        id: String,
        /// The parts of the summary. [`Thinking::text`] has them for people.
        summary: Vec<String>,
        /// The encrypted reasoning.
        content: String,
    },
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id of the call, unique in its history.
    pub id: String,
    /// The name of the tool, as the model wrote it. It can contain anything: escape it before you print it.
    pub name: String,
    /// The arguments.
    pub arguments: Arguments,
}

/// The arguments of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Arguments {
    /// An object, which the tool still has to check against its schema.
    Object(JsonObject),
    /// The call can't run. It gets an error result.
    Invalid {
        /// The arguments as the model wrote them.
        raw: String,
        /// The reason.
        problem: CallProblem,
    },
}

/// The reason why a call can't run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallProblem {
    /// There is no tool with this name.
    UnknownTool,
    /// The arguments are not a JSON object, with the message of the parser.
    NotAnObject(String),
}

/// The intent to run a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStarted {
    /// The id of the call.
    pub call_id: String,
    /// The change of a file that the call makes, if that is all it does. After a crash the file shows whether the change was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<FileIntent>,
}

/// The intent to change one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIntent {
    /// The file: relative to the working directory if it is inside.
    pub path: String,
    /// The SHA-256 digest of the contents before, in hexadecimal; `None` if there was no file.
    pub before: Option<String>,
    /// The SHA-256 digest of the contents after, in hexadecimal.
    pub after: String,
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: String,
    /// How the call ended.
    pub outcome: ToolOutcome,
    /// The text for the model.
    pub text: String,
}

/// The way in which a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolOutcome {
    /// The tool succeeded.
    Ok,
    /// The tool failed, or the call was invalid or not permitted.
    Error,
    /// The user interrupted the call, or a crash prevented it before the tool began.
    Interrupted,
    /// A crash came between intent and result: the tool may have run.
    Unknown,
}

/// The text that replaces older items after a compaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The summary, written by the model.
    pub text: String,
    /// The files that the replaced items touched, the latest last.
    pub files: Vec<String>,
}

impl AssistantMessage {
    /// Returns the tool calls in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            AssistantPart::ToolCall(call) => Some(call),
            AssistantPart::Text(_) | AssistantPart::Thinking(_) => None,
        })
    }

    /// Returns the text for the user, without thinking.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            AssistantPart::Text(text) => Some(text.text.as_str()),
            AssistantPart::ToolCall(_) | AssistantPart::Thinking(_) => None,
        });
        texts.collect()
    }
}

impl ToolCall {
    /// Returns the arguments as the model wrote them.
    #[must_use]
    pub fn raw_arguments(&self) -> &str {
        match &self.arguments {
            Arguments::Object(object) => object.as_str(),
            Arguments::Invalid { raw, .. } => raw,
        }
    }
}

impl ToolResult {
    /// Creates the result of a call that could not begin because the user interrupted the turn.
    #[must_use]
    pub fn interrupted(call_id: impl Into<String>) -> Self {
        Self {
            call_id: call_id.into(),
            outcome: ToolOutcome::Interrupted,
            text: "interrupted by the user".to_owned(),
        }
    }

    /// Creates the result of a call that the user interrupted after its intent was saved.
    #[must_use]
    pub fn interrupted_in_run(call_id: impl Into<String>) -> Self {
        Self {
            text: "interrupted by the user while the tool ran. The call may have had its effect, or a part of it. Check that before you run it again."
                .to_owned(),
            ..Self::interrupted(call_id)
        }
    }

    /// Creates the result of a call whose intent is saved, but whose result is not.
    #[must_use]
    pub fn unknown(call_id: impl Into<String>) -> Self {
        Self {
            call_id: call_id.into(),
            outcome: ToolOutcome::Unknown,
            text: "outcome unknown: the agent was restarted during this call, and the tool may have run. \
                   Check its effects before you run it again."
                .to_owned(),
        }
    }

    /// Creates the result of a call that a crash prevented before the tool began.
    #[must_use]
    pub fn not_run(call_id: impl Into<String>) -> Self {
        Self {
            call_id: call_id.into(),
            outcome: ToolOutcome::Interrupted,
            text: "not run: the agent was restarted before the tool began".to_owned(),
        }
    }
}
