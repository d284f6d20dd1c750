//! The two traits that a driver implements, and their parameters. A conversation knows nothing else about an agent.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use crate::{
    Capabilities, Capability, Decision, Error, Message, Observation, Permissions, ProcessName,
    QueuedMessages, StopReport, times,
};

/// A boxed future, which makes drivers usable as trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The session of the agent that a connection uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionChoice {
    /// A new session.
    #[default]
    Fresh,
    /// The session with the agent's own id. Needs [`Capability::Resume`].
    Resume(String),
    /// A new session that starts as a copy of the session with this id, which doesn't change. Needs [`Capability::Fork`].
    Fork(String),
    /// A new session with this id, which the caller chose. The start fails if a session has this id already. Needs [`Capability::DurableSession`];
    /// another agent starts a new session with an id of its own.
    Create(String),
}

/// The treatment of an input that arrives while a turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InputPolicy {
    /// The conversation delivers the input immediately. The agent adds it to the turn, queues it or merges it with others, and reports the choice.
    Push,
    /// The agent accepts a message during a turn only after the connection reports [`Event::AcceptsMessages`](crate::Event::AcceptsMessages), for
    /// example between two calls of the model. All inputs that wait then become one message of the same turn.
    Poll,
    /// The input waits for the end of the turn; then all waiting inputs become one turn.
    #[default]
    AfterTurn,
}

/// The result of a change that was requested from an agent. The future resolves, within a bound, when the agent has answered; its connection must be
/// [read](Connection::next) for this.
///
/// # Errors
///
/// [`Error::is_refused`] if the agent does not make the change or does not answer in time, [`Error::is_gone`] if it ends before.
///
/// # Cancel safety
///
/// Dropping it drops only the result; the change still happens.
pub type PendingChange = BoxFuture<'static, Result<(), Error>>;

/// The code that speaks the protocol of one agent. The [crate's documentation](crate#writing-a-driver) explains how to write one.
///
/// A driver is cheap and only contains configuration; the [`Connection`]s that it opens own the processes.
pub trait Driver: fmt::Debug + Send + Sync {
    /// Returns the short name of the agent, as a user types it.
    fn name(&self) -> &str;

    /// Returns the capabilities of this agent; none by default.
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }

    /// Returns the treatment of an input that arrives while a turn runs. By default, an agent with [`Capability::Steer`] gets it immediately, and any
    /// other agent after the turn.
    fn input_policy(&self) -> InputPolicy {
        if self.capabilities().has(Capability::Steer) {
            InputPolicy::Push
        } else {
            InputPolicy::AfterTurn
        }
    }

    /// Opens a connection. It fails immediately if the session is in use: the conversation tries again.
    ///
    /// # Errors
    ///
    /// Fails if the agent can't be started, or doesn't support `session`. With [`Error::is_session_in_use`] nothing was started; the conversation
    /// tries again once after 50 ms, or every 50 ms for 3 s if [`Error::is_releasing`] is true.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it has finished, everything that it started is ended.
    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>>;
}

/// One live connection to an agent, usually a process.
///
/// The caller calls its methods one at a time. Dropping a connection ends everything that it started, without a report; call [`stop`](Self::stop) for
/// a report.
pub trait Connection: fmt::Debug + Send {
    /// Waits, for seconds at most, until it is known whether the agent could start. By default this is known immediately.
    ///
    /// It is separate from [`Driver::connect`], so that the connection can be stopped during this wait.
    ///
    /// # Errors
    ///
    /// [`Error::is_start_failure`] if the agent could not start.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    fn ready(&mut self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    /// Returns the capabilities of the agent that runs, after [`ready`](Self::ready), if they can be fewer than those of its driver; `None` by
    /// default. The conversation uses them for the [parts](crate::Part) of inputs.
    fn capabilities(&self) -> Option<Capabilities> {
        None
    }

    /// Sends a message to the agent without waiting for a reply. The files of its parts are read now.
    ///
    /// While a turn runs, an agent with [`Capability::Steer`] adds the message to that turn or queues it for a later one; its events report the
    /// choice.
    ///
    /// # Errors
    ///
    /// - [`Error::is_full`] if the agent does not read: the conversation tries again.
    /// - [`Error::is_gone`] if the process of the agent ended: the message is for the next agent.
    /// - [`Error::is_unsupported`] if the agent accepts no (further) message in its present state: the conversation tries again at the end of the
    ///   turn, and after 10 s if no turn runs. If the agent accepts none even then, the conversation reports it.
    /// - [`Error::is_start_failure`] or [`Error::is_session_in_use`] if the first message starts the agent and the start failed: the connection ends,
    ///   and counts as a failed start.
    /// - [`Error::is_invalid`] if a file of the message can't be sent: the conversation drops the input with this reason.
    /// - Any other error is final, unless a turn runs.
    ///
    /// With each of these errors, nothing was recorded or sent.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: after a drop, it is unknown whether the agent got the message.
    fn send(&mut self, message: Message) -> BoxFuture<'_, Result<(), Error>>;

    /// Waits for the next observation; returns `None` if no output can follow. After that, the connection gets no more messages.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no observation is lost.
    fn next(&mut self) -> BoxFuture<'_, Option<Observation>>;

    /// Asks the agent to end its turn without exiting. The turn ends with its [`Event::TurnCompleted`](crate::Event::TurnCompleted). Does nothing if
    /// no turn runs. By default the agent can't be interrupted.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] if the agent can't be interrupted.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a second request is harmless.
    fn interrupt(&mut self, queued: QueuedMessages) -> BoxFuture<'_, Result<(), Error>> {
        let _ = queued;
        Box::pin(async {
            Err(Error::unsupported(
                "running",
                "be interrupted",
                "stop the agent",
            ))
        })
    }

    /// Answers an [`Event::PermissionRequested`](crate::Event::PermissionRequested). Does nothing if the request was withdrawn or already answered.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] if the agent never asks.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe, as for [`send`](Self::send).
    fn answer(&mut self, ask: &str, decision: Decision) -> BoxFuture<'_, Result<(), Error>> {
        let (_, _) = (ask, decision);
        Box::pin(async {
            Err(Error::unsupported(
                "running",
                "be answered",
                "it never asks",
            ))
        })
    }

    /// Requests a change of the agent's permissions, without waiting for the result.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] if they can't be changed while the agent runs.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe, as for [`send`](Self::send).
    fn set_permissions(
        &mut self,
        permissions: Permissions,
    ) -> BoxFuture<'_, Result<PendingChange, Error>> {
        let _ = permissions;
        let hint = "set them when you start the agent";
        Box::pin(async move {
            Err(Error::unsupported(
                "running",
                "change its permissions",
                hint,
            ))
        })
    }

    /// Requests another model from the next call on, by the agent's own name for it; `None` is the agent's default. Does not wait for the result.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] if the model can't be changed while the agent runs.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe, as for [`send`](Self::send).
    fn set_model(&mut self, model: Option<String>) -> BoxFuture<'_, Result<PendingChange, Error>> {
        drop(model);
        let hint = "set it when you start the agent";
        Box::pin(async move { Err(Error::unsupported("running", "change its model", hint)) })
    }

    /// Freezes (`true`) or thaws (`false`) every process of the process tree.
    ///
    /// # Errors
    ///
    /// Fails if the owner of the process tree accepts no more commands.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a second call is harmless.
    fn freeze(&mut self, frozen: bool) -> BoxFuture<'_, Result<(), Error>> {
        let _ = frozen;
        Box::pin(async { Ok(()) })
    }

    /// Ends the agent itself, gently and within seconds, if no turn runs. The leftovers of the agent stay alive. Does nothing if the agent has ended.
    ///
    /// It does not wait for background tasks: the caller has already done so. [`next`](Self::next) returns the output in the meantime. By default it
    /// calls [`stop`](Self::stop), with 8 s.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: another call continues where the last one was. Any other method may be called between two calls.
    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.stop(times::LEFTOVER_BUDGET).await;
        })
    }

    /// Lists the living processes of this connection without the agent itself. By default there are none.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    fn leftovers(&mut self) -> BoxFuture<'_, Vec<ProcessName>> {
        Box::pin(async { Vec::new() })
    }

    /// Ends everything that this connection started, within `budget`, and returns the result.
    ///
    /// A stop never fails. The method may be called again; the second report is the same as the first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the stop in its current stage; dropping the connection ends the remaining processes. Another call continues the
    /// stop. Each budget counts from its own call; the one that ends first applies.
    fn stop(&mut self, budget: Duration) -> BoxFuture<'_, StopReport>;
}
