//! The interface of a tool.

use std::fmt;

use agent_duplex::BoxFuture;

use super::access::Access;
use super::context::ToolContext;
use super::file_change::FileChange;
use crate::dialect::ToolDefinition;
use crate::json::JsonObject;
use crate::text::one_line;

/// The longest summary of a call, in characters.
const MAX_SUMMARY: usize = 400;

/// A tool that a model can call.
///
/// The agent only checks that the arguments are a JSON object. A tool returns [`ToolOutput::failed`] for wrong arguments, and the model tries again.
///
/// ```
/// use agent_api::{BoxFuture, JsonObject, Tool, ToolContext, ToolDefinition, ToolOutput};
///
/// #[derive(Debug)]
/// struct Reverse;
///
/// impl Tool for Reverse {
///     fn definition(&self) -> ToolDefinition {
///         let schema = r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}"#;
///         ToolDefinition {
///             name: "reverse".into(),
///             description: "Reverses a text.".into(),
///             schema: JsonObject::parse(schema).expect("the schema is an object"),
///         }
///     }
///
///     fn run<'a>(&'a self, arguments: &'a JsonObject, _: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
///         Box::pin(async {
///             match arguments.string("text") {
///                 Some(text) => ToolOutput::ok(text.chars().rev().collect::<String>()),
///                 None => ToolOutput::failed("`text` is missing"),
///             }
///         })
///     }
/// }
/// ```
pub trait Tool: fmt::Debug + Send + Sync {
    /// Returns the name, the description and the schema of the arguments. The agent calls it once; a session needs the same definition each time.
    fn definition(&self) -> ToolDefinition;

    /// Returns the access that a call needs, which decides whether the user is asked for permission. The default is [`Access::Anything`].
    fn access(&self, arguments: &JsonObject, context: &ToolContext) -> Access {
        let (_, _) = (arguments, context);
        Access::Anything {
            reason: String::new(),
        }
    }

    /// Returns the action of a call on one line, for people: the command, the file. By default these are the arguments.
    fn summary(&self, arguments: &JsonObject) -> String {
        one_line(arguments.as_str(), MAX_SUMMARY)
    }

    /// Returns whether a call changes nothing, so that it can be repeated after a crash. The default is `false`.
    fn only_reads(&self) -> bool {
        false
    }

    /// Prepares a call without any effect. A tool that changes one file returns the change. The agent then saves the digests of the old and the new
    /// contents, makes the change itself, and can tell after a crash whether it was made. By default the agent calls [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// The result of the call, if it can't run.
    fn prepare<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolOutput>> {
        let (_, _) = (arguments, context);
        Box::pin(async { Ok(Prepared::Run) })
    }

    /// Runs a call.
    ///
    /// After [`ToolContext::cancel`], it must end what it started, and return within 8 s.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future must end everything that it started.
    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput>;
}

/// A call that can run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Prepared {
    /// The agent calls [`Tool::run`].
    Run,
    /// The agent makes this change. It does not call [`Tool::run`].
    Change(FileChange),
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text for the model.
    pub text: String,
    /// Whether the call failed.
    pub is_error: bool,
}

impl ToolOutput {
    /// Creates the result of a call that succeeded.
    #[must_use]
    pub fn ok(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_error: false,
        }
    }

    /// Creates the result of a call that failed. The text says what the model can do next.
    #[must_use]
    pub fn failed(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_error: true,
        }
    }
}

/// Returns one argument as the summary of a call, or all arguments if it is missing.
pub(super) fn summary_of(name: &str, arguments: &JsonObject) -> String {
    match arguments.string(name) {
        Some(text) => one_line(&text, MAX_SUMMARY),
        None => one_line(arguments.as_str(), MAX_SUMMARY),
    }
}

/// Prepares a change and makes it, for a caller that saves no intent.
pub(super) async fn make_prepared(
    tool: &dyn Tool,
    arguments: &JsonObject,
    context: &ToolContext,
) -> ToolOutput {
    let change = match tool.prepare(arguments, context).await {
        Ok(Prepared::Change(change)) => change,
        Ok(Prepared::Run) => return ToolOutput::failed("the call has no change"),
        Err(failed) => return failed,
    };
    if context.cancel.is_cancelled() {
        return super::files::interrupted();
    }
    match tokio::task::spawn_blocking(|| change.make()).await {
        Ok(Ok(done)) => ToolOutput::ok(done),
        Ok(Err(reason)) => ToolOutput::failed(reason),
        Err(_panic) => ToolOutput::failed("the tool failed"),
    }
}
