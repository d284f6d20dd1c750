//! An agent over raw model APIs: its pure core, and with the feature `agent` its tools, its durable session and its loop.
//!
//! Without features, the crate has no I/O, no clock and no threads: a conversation becomes the body of a request, and the bytes of a stream become a response.
//! Your program sends the request and reads the stream; the crate knows the formats of three APIs ([`Dialect`]), and keeps the conversation valid in all of them
//! ([`History`]). With the feature `agent`, `ApiAgent` does all of this as a driver for a conversation of `agent-duplex`; the README shows it.
//!
//! ```
//! use agent_api::{Decoder, Dialect, History, RequestSettings, ResponseLimits, StopReason};
//!
//! let mut history = History::new();
//! history.push_user("Say hello.")?;
//! let settings = RequestSettings { max_output_tokens: Some(1_024), ..RequestSettings::new("some-model") };
//! let body = Dialect::Chat.request(&history, &settings)?;
//! assert!(body.starts_with(br#"{"model":"some-model","stream":true"#));
//!
//! // Your program sends the body, and gets a stream like this one:
//! let stream = concat!(
//!     "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello!\"},\"finish_reason\":null}]}\n\n",
//!     "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
//!     "data: [DONE]\n\n",
//! );
//! let mut decoder = Decoder::new(Dialect::Chat, [], ResponseLimits::default());
//! let mut deltas = Vec::new();
//! for chunk in stream.as_bytes().chunks(10) {
//!     decoder.push(chunk, &mut deltas)?;
//! }
//! let response = decoder.finish()?;
//! assert_eq!((response.message.text().as_str(), response.stop), ("Hello!", StopReason::EndOfTurn));
//! history.push_assistant(response.message)?;
//! # Ok::<(), agent_api::Error>(())
//! ```
//!
//! # A turn
//!
//! 1. [`Dialect::request`] writes the body. It fails if the history is not [ready](History::check_ready).
//! 2. If the response is no stream of events, [`Error::from_response`] explains it, and [`Error::retry`] says whether to try again.
//! 3. [`Decoder::push`] turns bytes into [`Delta`]s. At the end, [`Decoder::finish`] returns the [`ModelResponse`]; a stream without its final event is an error.
//! 4. [`History::push_assistant`] appends the message. For each of the [open calls](History::open_calls), the program appends the intent
//!    ([`History::push_started`]) and saves it, runs the tool, and appends the result ([`History::push_result`]).
//! 5. Without open calls, the next request can follow, or the next message of the user.
//!
//! After an interrupt, append [`Decoder::interrupt`] to the history and call [`History::close_calls_after_interrupt`]. After a crash, restore the history from
//! its saved items, and call [`History::close_calls_after_crash`]: a call that may have run is reported to the model, and never runs again.
//!
//! # Beside the turn
//!
//! - [`CompactionSettings`] decides when a history is too long, and plans what is removed; [`CompactionPlan::apply`] returns the shorter history.
//! - [`RepeatGuard`] detects a model that repeats one call, and [`Budget`] limits tokens and money.
//!
//! # Limits
//!
//! The crate supports text, thinking and function calls; it has no images, no documents and no tools that run on the server. A message of a model can contain
//! any characters: escape it before you print it.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

// The modules in reading order; each uses only those above it:
//   text, json, usage     short texts, JSON objects that keep their bytes, tokens of a call
//   error, response       the error type; the meaning of a response that isn't a stream
//   history               the conversation and its rules
//   sse                   bytes to events
//   dialect               history to request, events to response, for each API
//   decoder               bytes to response
//   compaction            the decision to shorten a history, and the plan
//   repeat_guard, budget  repeated calls in a turn; tokens and money of a session
//   http                  the client of a model server, and that of a webhook
//   times, tool           the times in which a tool ends; the interface of tools, and the tools
//   agent                 the session on disk, the loop, the driver
#[cfg(feature = "agent")]
mod agent;
mod budget;
mod compaction;
mod decoder;
mod dialect;
mod error;
mod history;
#[cfg(feature = "http")]
mod http;
mod json;
mod repeat_guard;
mod response;
mod sse;
mod text;
#[cfg(feature = "agent")]
mod times;
#[cfg(feature = "agent")]
mod tool;
mod usage;

#[cfg(feature = "agent")]
#[cfg_attr(docsrs, doc(cfg(feature = "agent")))]
pub use agent::{AgentOptions, ApiAgent, CallPurpose, Middleware, ModelCall, Next};
#[cfg(feature = "agent")]
#[cfg_attr(docsrs, doc(cfg(feature = "agent")))]
pub use agent_duplex::BoxFuture;
pub use budget::{Budget, Exceeded, Prices};
pub use compaction::{CompactionPlan, CompactionSettings};
pub use decoder::Decoder;
pub use dialect::{
    CacheBreakpoints, ChatLimit, ChatThinking, Delta, Dialect, ModelResponse, RequestSettings,
    ResponseLimits, StopReason, ThinkingMode, ToolDefinition,
};
pub use error::{Error, ErrorKind, Reset, Retry};
pub use history::{
    Arguments, AssistantMessage, AssistantPart, AssistantText, CallProblem, CallState,
    Completeness, FileIntent, History, Item, Summary, Thinking, ThinkingProof, ToolCall,
    ToolOutcome, ToolResult, ToolStarted, UserMessage,
};
#[cfg(feature = "http")]
#[cfg_attr(docsrs, doc(cfg(feature = "http")))]
pub use http::{Endpoint, Key, ModelClient, ModelStream, WebhookClient};
pub use json::{JsonObject, NotAnObject};
pub use repeat_guard::{RepeatGuard, Repetition};
pub use response::HttpResponse;
pub use sse::{SseEvent, SseParser};
#[cfg(feature = "schemars")]
#[cfg_attr(docsrs, doc(cfg(feature = "schemars")))]
pub use tool::FunctionTool;
#[cfg(feature = "mcp")]
#[cfg_attr(docsrs, doc(cfg(feature = "mcp")))]
pub use tool::McpServer;
#[cfg(feature = "agent")]
#[cfg_attr(docsrs, doc(cfg(feature = "agent")))]
pub use tool::{
    Access, Bash, FileChange, Prepared, ResolvedPath, Tool, ToolContext, ToolOutput,
    WorkingDirectory, coding_tools,
};
pub use usage::Usage;

#[cfg(all(doctest, feature = "agent"))]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
