//! The two traits that a driver implements, and what it is told: all that a conversation knows of any agent.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use crate::{
    Capabilities, Capability, Decision, Error, Message, Observation, Permissions, ProcessName,
    Queued, StopReport,
};

/// A boxed future, so that drivers can be trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which of the agent's own conversations a connection goes on with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionChoice {
    /// A new one.
    #[default]
    Fresh,
    /// The one with the agent's own id. Needs [`Capability::Resume`].
    Resume(String),
    /// A new one that begins as a copy of the one with this id, which stays as it is. Needs [`Capability::Fork`].
    Fork(String),
}

/// What becomes of an input that comes while a turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InputPolicy {
    /// It is handed to the agent at once, which folds it into its turn, queues it or merges it with others, and says which.
    Push,
    /// The agent takes messages within its turn only where its connection says so by [`Event::Polled`](crate::Event::Polled), for example between two
    /// calls of the model: all that waits then is one message of the same turn.
    Poll,
    /// It waits for the turn's end, where all that waits becomes one turn.
    #[default]
    AfterTurn,
}

/// What comes of a change that an agent was asked for. It ends, within a bound, when the agent has answered, for which its connection must be
/// [read](Connection::next).
///
/// # Errors
///
/// [`Error::is_refused`] when the agent does not make the change, or does not answer in time, [`Error::is_gone`] when it ends before.
///
/// # Cancel safety
///
/// Dropping it gives the answer up, not the change.
pub type Changing = BoxFuture<'static, Result<(), Error>>;

/// The code that speaks one agent's protocol. The [crate's documentation](crate#writing-a-driver) says how to write one.
///
/// A driver is cheap and holds configuration only; what runs hangs on the [`Connection`]s that it opens.
pub trait Driver: fmt::Debug + Send + Sync {
    /// Returns the agent's short name, as a user would type it.
    fn name(&self) -> &str;

    /// Returns what this agent can do.
    fn capabilities(&self) -> Capabilities;

    /// Returns what becomes of an input that comes while a turn runs. By default, who can be steered is pushed, and any other agent gets it after the
    /// turn.
    fn input_policy(&self) -> InputPolicy {
        if self.capabilities().has(Capability::Steer) {
            InputPolicy::Push
        } else {
            InputPolicy::AfterTurn
        }
    }

    /// Opens a connection. A session that is in use is refused at once: the conversation asks again.
    ///
    /// # Errors
    ///
    /// When the agent can't be started, or can't do what `session` asks. With [`Error::is_held`] nothing was started; the conversation asks again
    /// after 50 ms, and for 3 s where [`Error::is_releasing`] is true.
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
    /// Waits, for seconds at most, until it is known that the agent could start, or could not. By default that is known at once.
    ///
    /// Apart from [`Driver::connect`], so that there is something to stop while it lasts.
    ///
    /// # Errors
    ///
    /// [`Error::is_start`] when the agent could not start.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    fn ready(&mut self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    /// Hands a message to the agent without waiting for a reply.
    ///
    /// While a turn runs, an agent with [`Capability::Steer`] takes it into that turn or queues it behind; the events say which.
    ///
    /// # Errors
    ///
    /// - [`Error::is_full`] when the agent does not read: it is asked again.
    /// - [`Error::is_gone`] when its process ended: the message is for the next agent.
    /// - [`Error::is_unsupported`] when it takes no (further) message in its present state: it is asked again at the end of its turn, and after 10 s if no
    ///   turn runs. When it takes none even then, that is told.
    /// - [`Error::is_start`] or [`Error::is_held`] when it is started by its first message and could not be: the connection is ended, and counts as a start
    ///   in vain.
    /// - Any other error is final, unless a turn runs.
    ///
    /// With each of them nothing was recorded or sent.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: after a drop the message may or may not have reached the agent.
    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>>;

    /// Waits for what comes next; `None` when nothing further can come. Then it is handed no message any more.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost.
    fn next(&mut self) -> BoxFuture<'_, Option<Observation>>;

    /// Asks the agent to end its turn and to stay; the turn is over when its [`Event::TurnCompleted`](crate::Event::TurnCompleted) comes. Does nothing
    /// when no turn runs.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] when the agent can't be interrupted.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: asking twice is harmless.
    fn interrupt(&mut self, queued: Queued) -> BoxFuture<'_, Result<(), Error>>;

    /// Answers an [`Event::PermissionAsked`](crate::Event::PermissionAsked). An ask that was withdrawn, or answered before, is left alone.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] when the agent never asks.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe, as for [`send`](Self::send).
    fn answer(&mut self, ask: &str, decision: Decision) -> BoxFuture<'_, Result<(), Error>> {
        let (_, _) = (ask, decision);
        Box::pin(async { Err(Error::unsupported("", "be answered", "it asks nothing")) })
    }

    /// Asks for a change of what the agent may do from now on, without waiting for what comes of it.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] when that can't be changed while it runs.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe, as for [`send`](Self::send).
    fn set_permissions(
        &mut self,
        permissions: Permissions,
    ) -> BoxFuture<'_, Result<Changing, Error>> {
        let _ = permissions;
        let mend = "say it when the agent is started";
        Box::pin(async move { Err(Error::unsupported("", "change its permissions", mend)) })
    }

    /// Asks for another model, by the agent's own name for it, from its next call on; `None` is the agent's default. What comes of it is not waited for.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] when that can't be changed while it runs.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe, as for [`send`](Self::send).
    fn set_model(&mut self, model: Option<String>) -> BoxFuture<'_, Result<Changing, Error>> {
        drop(model);
        let mend = "say it when the agent is started";
        Box::pin(async move { Err(Error::unsupported("", "change its model", mend)) })
    }

    /// Stops every process of the tree where it stands (`true`), or lets them go on (`false`).
    ///
    /// # Errors
    ///
    /// When whoever keeps the tree takes no order any more.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: saying it twice is harmless.
    fn freeze(&mut self, frozen: bool) -> BoxFuture<'_, Result<(), Error>> {
        let _ = frozen;
        Box::pin(async { Ok(()) })
    }

    /// Ends the agent itself, politely and within a bound of seconds, when no turn runs; what it left running stays. Does nothing when it has ended.
    ///
    /// It begins at once: whoever calls it has waited for what the agent runs in the background. What is said meanwhile comes with [`next`](Self::next).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: called again, it goes on where it was. Between two calls anything else may be asked.
    fn close(&mut self) -> BoxFuture<'_, ()>;

    /// Lists the processes of this connection that are alive, apart from the agent itself.
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
    /// Dropping the future leaves the stop where it is, and what is left is ended when the connection is dropped. Called again, it goes on; of several
    /// budgets, each counted from its call, the one that ends first counts.
    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, StopReport>;
}
