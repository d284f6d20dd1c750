use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use crate::{Capabilities, Error, Event, Input, ProcessName, Receipt, StopReport};

/// A boxed future, so that drivers can be trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which of the agent's own conversations a connection goes on with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionChoice {
    /// A new one.
    #[default]
    Fresh,
    /// The one with the agent's own id. Needs [`Capability::Resume`](crate::Capability::Resume).
    Resume(String),
}

/// The code that speaks one agent's protocol.
///
/// A driver is cheap and holds configuration only; what runs hangs on the [`Connection`]s that it opens.
pub trait Driver: fmt::Debug + Send + Sync {
    /// Returns the agent's short name, as a user would type it.
    fn name(&self) -> &str;

    /// Returns what this agent can do.
    fn capabilities(&self) -> Capabilities;

    /// Opens a connection.
    ///
    /// # Errors
    ///
    /// When the agent can't be started, or can't do what `session` asks.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is done ends whatever it had started.
    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>>;
}

/// One live end of a conversation, usually a process.
///
/// Its methods are called one at a time. Dropping a connection ends what it had started, without a report; call [`stop`](Self::stop) for one.
pub trait Connection: fmt::Debug + Send {
    /// Hands an input to the agent and returns its receipt without waiting for a reply.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] when the agent takes no (further) input in its present state. Then nothing was recorded or sent.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: after a drop the input may or may not have reached the agent.
    fn send(&mut self, input: Input) -> BoxFuture<'_, Result<Receipt, Error>>;

    /// Waits for the next event; `None` when no further event can come.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    fn next(&mut self) -> BoxFuture<'_, Option<Event>>;

    /// Asks the agent to end its turn and to stay; the turn is over when its [`Event::TurnCompleted`] comes.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] when the agent can't be interrupted.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: asking twice is harmless.
    fn interrupt(&mut self) -> BoxFuture<'_, Result<(), Error>>;

    /// Lists the processes of this connection that are alive after its turn ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    fn leftovers(&mut self) -> BoxFuture<'_, Vec<ProcessName>>;

    /// Ends everything that this connection started, within `budget`, and says what came of it.
    ///
    /// Never fails and may be called again; the second report is the first one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the report up, not the stop: what is left is ended when the connection is dropped.
    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, StopReport>;
}
