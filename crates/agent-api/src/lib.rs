//! The pure core of an agent over raw model APIs: a conversation becomes the body of a request, and the bytes of a stream become an answer.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod dialect;
mod error;
mod history;
mod json;

pub use dialect::{
    CacheMarks, ChatLimit, ChatThinking, Dialect, Reasoning, RequestSettings, ToolDefinition,
};
pub use error::{Error, ErrorKind, Reset, Retry};
pub use history::{
    Arguments, AssistantMessage, AssistantPart, AssistantText, CallProblem, CallState,
    Completeness, History, Item, Summary, Thinking, ThinkingProof, ToolCall, ToolOutcome,
    ToolResult, ToolStarted, UserText,
};
pub use json::{JsonObject, NotAnObject};
