//! Middleware: code of the caller around each call of the model.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use agent_duplex::BoxFuture;

use crate::dialect::{ModelResponse, RequestSettings};
use crate::error::Error;
use crate::history::History;

/// Code around each call of the model.
///
/// It can change the call before [`Next::run`] and the response after it, respond without a call of the model, call the model again, or fail. An agent
/// runs its middleware in the order of [`AgentOptions::middleware`](crate::AgentOptions::middleware), the outermost first. If the agent tries a call
/// again, all of it runs again.
///
/// Readers have already seen the text while it was written. If you change a response, only the saved conversation changes. If you change the start of a
/// request, the server can't use its cache.
///
/// ```
/// use agent_api::{BoxFuture, Error, Middleware, ModelCall, ModelResponse, Next};
///
/// /// Prints what each call costs.
/// #[derive(Debug)]
/// struct Log;
///
/// impl Middleware for Log {
///     fn call<'a>(&'a self, call: ModelCall<'a>, next: Next<'a>) -> BoxFuture<'a, Result<ModelResponse, Error>> {
///         Box::pin(async move {
///             let items = call.history.items().len();
///             let response = next.run(call).await?;
///             println!("{items} items: {:?}", response.usage);
///             Ok(response)
///         })
///     }
/// }
/// ```
pub trait Middleware: fmt::Debug + Send + Sync {
    /// Responds to a call, usually by [`Next::run`].
    ///
    /// # Errors
    ///
    /// [`Error::retry`] decides whether the agent tries the call again.
    ///
    /// # Cancel safety
    ///
    /// An interrupt drops the future.
    fn call<'a>(
        &'a self,
        call: ModelCall<'a>,
        next: Next<'a>,
    ) -> BoxFuture<'a, Result<ModelResponse, Error>>;
}

/// One call of the model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelCall<'a> {
    /// The purpose of the call.
    pub purpose: CallPurpose,
    /// The settings of the request: model, system prompt, tools.
    pub settings: RequestSettings,
    /// The conversation. A change of it applies to this call only.
    pub history: Cow<'a, History>,
}

/// The purpose of a call of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallPurpose {
    /// Continues the turn.
    Turn,
    /// Writes the summary that replaces old parts of the conversation.
    Summary,
}

/// The rest of the middleware, and the model at its end.
#[derive(Clone, Copy)]
pub struct Next<'a> {
    rest: &'a [Arc<dyn Middleware>],
    model: &'a dyn Model,
}

/// The model at the end of the middleware.
pub(crate) trait Model: Send + Sync {
    fn respond<'a>(&'a self, call: ModelCall<'a>) -> BoxFuture<'a, Result<ModelResponse, Error>>;
}

impl<'a> Next<'a> {
    pub(crate) fn new(rest: &'a [Arc<dyn Middleware>], model: &'a dyn Model) -> Self {
        Self { rest, model }
    }

    /// Runs the rest of the middleware, and the model at its end.
    ///
    /// # Errors
    ///
    /// The errors of the rest of the middleware, and of the call of the model.
    pub fn run(self, call: ModelCall<'a>) -> BoxFuture<'a, Result<ModelResponse, Error>> {
        match self.rest.split_first() {
            Some((first, rest)) => first.call(call, Self { rest, ..self }),
            None => self.model.respond(call),
        }
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next")
            .field("rest", &self.rest)
            .finish_non_exhaustive()
    }
}
