//! The pure core of an agent over raw model APIs: a conversation becomes the body of a request, and the bytes of a stream become an answer.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod budget;
mod compaction;
mod decoder;
mod dialect;
mod error;
mod history;
mod json;
mod repeat_guard;
mod response;
mod sse;
mod text;
mod usage;

pub use budget::{Budget, Exceeded, Prices};
pub use compaction::{CompactionPlan, CompactionSettings};
pub use decoder::Decoder;
pub use dialect::{
    Answer, AnswerLimits, CacheMarks, ChatLimit, ChatThinking, Delta, Dialect, Reasoning,
    RequestSettings, StopReason, ToolDefinition,
};
pub use error::{Error, ErrorKind, Reset, Retry};
pub use history::{
    Arguments, AssistantMessage, AssistantPart, AssistantText, CallProblem, CallState,
    Completeness, History, Item, Summary, Thinking, ThinkingProof, ToolCall, ToolOutcome,
    ToolResult, ToolStarted, UserText,
};
pub use json::{JsonObject, NotAnObject};
pub use repeat_guard::{RepeatGuard, Repetition};
pub use response::HttpResponse;
pub use sse::{SseEvent, SseParser};
pub use usage::Usage;
