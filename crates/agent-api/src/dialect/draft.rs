//! The response of a model while it arrives: parts by key, with limits. All dialects share it, so that limits and interrupts act the same.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind};
use crate::history::{
    Arguments, AssistantMessage, AssistantPart, AssistantText, CallProblem, Completeness, Thinking,
    ThinkingProof, ToolCall,
};
use crate::json::JsonObject;

/// The limits of one response. A response beyond a limit is an error, so a hostile or broken server can't fill the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// The largest event of the stream, in bytes.
    pub event_bytes: usize,
    /// The largest response, in bytes of all its parts, including ids, names and proofs.
    pub response_bytes: usize,
    /// The largest arguments of one call, in bytes.
    pub argument_bytes: usize,
    /// The largest number of calls in one response.
    pub calls: usize,
}

impl Default for ResponseLimits {
    /// 8 MiB for an event, 4 MiB for a response, 1 MiB for the arguments of a call, 64 calls.
    fn default() -> Self {
        Self {
            event_bytes: 8 << 20,
            response_bytes: 4 << 20,
            argument_bytes: 1 << 20,
            calls: 64,
        }
    }
}

/// A part of the text or the thinking of a response, as it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta {
    /// Text for the user.
    Text(String),
    /// Thinking, or a summary of it.
    Thinking(String),
}

#[derive(Clone, Debug)]
pub(super) struct Draft {
    limits: ResponseLimits,
    tools: Vec<String>,
    /// The parts in the order of their keys.
    parts: BTreeMap<u64, DraftPart>,
    /// The bytes of all parts so far.
    bytes: usize,
    calls: usize,
}

#[derive(Clone, Debug)]
pub(super) struct DraftPart {
    pub(super) content: DraftContent,
    pub(super) state: PartState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartState {
    Open,
    Complete,
}

#[derive(Clone, Debug)]
pub(super) enum DraftContent {
    Text(AssistantText),
    Thinking(Thinking),
    Call {
        id: String,
        name: String,
        arguments: String,
    },
}

impl Draft {
    pub(super) fn new(tools: Vec<String>, limits: ResponseLimits) -> Self {
        Self {
            limits,
            tools,
            parts: BTreeMap::new(),
            bytes: 0,
            calls: 0,
        }
    }

    /// Adds a part, or replaces the part with this key.
    pub(super) fn insert(&mut self, key: u64, part: DraftPart) -> Result<(), Error> {
        let old = self.parts.remove(&key);
        if let Some(old) = &old {
            self.bytes = self.bytes.saturating_sub(old.content.bytes());
            self.calls -= usize::from(old.content.is_call());
        }
        if part.content.is_call() {
            if self.calls == self.limits.calls {
                let message = format!("the response has more than {} tool calls", self.calls);
                return Err(Error::new(ErrorKind::TooManyCalls, message));
            }
            self.calls += 1;
        }
        let bytes = part.content.bytes();
        self.reserve(bytes)?;
        if let DraftContent::Call { arguments, .. } = &part.content {
            self.check_arguments(arguments.len())?;
        }
        self.parts.insert(key, part);
        // A part without content has a cost too.
        match self.parts.len() > MAX_PARTS {
            true => Err(Error::malformed(format!("more than {MAX_PARTS} parts"))),
            false => Ok(()),
        }
    }

    pub(super) fn get(&mut self, key: u64) -> Option<&mut DraftPart> {
        self.parts.get_mut(&key)
    }

    pub(super) fn has(&self, key: u64) -> bool {
        self.parts.contains_key(&key)
    }

    pub(super) fn last_key(&self) -> Option<u64> {
        self.parts.keys().next_back().copied()
    }

    pub(super) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// Returns a rough number of the tokens so far, for servers that report them only at the end.
    pub(super) fn estimated_tokens(&self) -> u64 {
        u64::try_from(self.bytes / 4).unwrap_or(u64::MAX)
    }

    /// Appends to the text, the thinking or the arguments of a part, whichever it has.
    pub(super) fn push(&mut self, key: u64, piece: &str) -> Result<(), Error> {
        self.reserve(piece.len())?;
        let limit = self.limits.argument_bytes;
        let Some(part) = self.parts.get_mut(&key) else {
            return Err(Error::malformed("a piece of a part that was not started"));
        };
        if part.state == PartState::Complete {
            return Err(Error::malformed("a piece of a part that has ended"));
        }
        match &mut part.content {
            DraftContent::Text(text) => text.text.push_str(piece),
            DraftContent::Thinking(thinking) => thinking.text.push_str(piece),
            DraftContent::Call { arguments, .. } => {
                if arguments.len() + piece.len() > limit {
                    return Err(Error::too_large("the arguments of a tool call", limit));
                }
                arguments.push_str(piece);
            }
        }
        Ok(())
    }

    /// Counts bytes of the response that the caller stores in a part itself.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes > self.limits.response_bytes {
            true => Err(Error::too_large("the response", self.limits.response_bytes)),
            false => Ok(()),
        }
    }

    pub(super) fn check_all_complete(&self) -> Result<(), Error> {
        match { self.parts.values() }.all(|part| part.state == PartState::Complete) {
            true => Ok(()),
            false => Err(Error::malformed(
                "the response ends before one of its parts",
            )),
        }
    }

    /// Returns the whole response.
    pub(super) fn finish(self) -> AssistantMessage {
        let tools = self.tools;
        let parts = self.parts.into_values();
        AssistantMessage {
            parts: parts.map(|part| finished(part.content, &tools)).collect(),
            ..AssistantMessage::default()
        }
    }

    /// Returns the part of the response that may be kept after an interrupt; `None` if nothing may.
    ///
    /// Half a call and thinking without its proof are discarded. It keeps encrypted reasoning only if a complete part follows, and
    /// signed thinking only if any part does.
    pub(super) fn interrupt(self) -> Option<AssistantMessage> {
        let mut kept = Vec::new();
        // The parts behind the current one, from the end: whether there is any, and whether one is complete.
        let (mut any, mut complete) = (false, false);
        for part in self.parts.into_values().rev() {
            let is_complete = part.state == PartState::Complete;
            let keep = match &part.content {
                DraftContent::Text(text) => !text.text.trim().is_empty(),
                DraftContent::Call { .. } => is_complete,
                DraftContent::Thinking(thinking) => match &thinking.proof {
                    ThinkingProof::None => false,
                    ThinkingProof::Signature(_) | ThinkingProof::Redacted(_) => is_complete && any,
                    ThinkingProof::Encrypted { .. } => is_complete && complete,
                },
            };
            if keep {
                any = true;
                complete |= is_complete;
                kept.push(finished(part.content, &self.tools));
            }
        }
        kept.reverse();
        (!kept.is_empty()).then_some(AssistantMessage {
            parts: kept,
            completeness: Completeness::Partial,
            context_tokens: None,
        })
    }

    fn check_arguments(&self, bytes: usize) -> Result<(), Error> {
        let limit = self.limits.argument_bytes;
        match bytes > limit {
            true => Err(Error::too_large("the arguments of a tool call", limit)),
            false => Ok(()),
        }
    }
}

/// The largest number of parts of a response.
const MAX_PARTS: usize = 10_000;

impl DraftPart {
    pub(super) fn open(content: DraftContent) -> Self {
        let state = PartState::Open;
        Self { content, state }
    }

    pub(super) fn complete(content: DraftContent) -> Self {
        let state = PartState::Complete;
        Self { content, state }
    }
}

impl DraftContent {
    fn is_call(&self) -> bool {
        matches!(self, Self::Call { .. })
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.text.len() + text.phase.as_ref().map_or(0, String::len),
            Self::Thinking(thinking) => {
                let proof = match &thinking.proof {
                    ThinkingProof::None => 0,
                    ThinkingProof::Signature(text) | ThinkingProof::Redacted(text) => text.len(),
                    ThinkingProof::Encrypted {
                        id,
                        summary,
                        content,
                    } => id.len() + content.len() + summary.iter().map(String::len).sum::<usize>(),
                };
                thinking.text.len() + proof
            }
            Self::Call {
                id,
                name,
                arguments,
            } => id.len() + name.len() + arguments.len(),
        }
    }
}

fn finished(content: DraftContent, tools: &[String]) -> AssistantPart {
    match content {
        DraftContent::Text(text) => AssistantPart::Text(text),
        DraftContent::Thinking(thinking) => AssistantPart::Thinking(thinking),
        DraftContent::Call {
            id,
            name,
            arguments,
        } => {
            let arguments = checked(arguments, tools.contains(&name));
            AssistantPart::ToolCall(ToolCall {
                id,
                name,
                arguments,
            })
        }
    }
}

/// Checks the arguments of a call as far as this is possible without the schema of the tool.
fn checked(raw: String, is_known: bool) -> Arguments {
    if !is_known {
        let problem = CallProblem::UnknownTool;
        return Arguments::Invalid { raw, problem };
    }
    // For a tool without parameters, models omit the arguments.
    if raw.trim().is_empty() {
        return Arguments::Object(JsonObject::empty());
    }
    match JsonObject::parse(&raw) {
        Ok(object) => Arguments::Object(object),
        Err(error) => {
            let problem = CallProblem::NotAnObject(error.to_string());
            Arguments::Invalid { raw, problem }
        }
    }
}
