//! Agents that follow a script, for tests of programs with conversations.
//!
//! A [`Script`] lists, step by step, the events that the agent waits for and the events that it reports; a [`Latch`] holds a step back until the test
//! opens it, so no test depends on time. Each start of an agent plays the next script of its [`ScriptedDriver`], or the one that
//! [repeats](ScriptedDriver::with_repeating_script); [`calls`](ScriptedDriver::calls) returns the calls that the agents got. So a test can play an
//! agent that dies at any point, doesn't start, refuses an input, doesn't read, asks for permission, hangs in a close or a stop, or reports events
//! even after its end. [`Script::replaying`] plays recorded observations again. A [`ContractChecker`] checks the published events against the promises of a conversation.
//!
//! # Examples
//!
//! ```
//! use agent_duplex::scripted::{Script, ScriptedDriver};
//! use agent_duplex::{Capabilities, Conversation, ConversationOptions, EndReason, Input, SessionChoice, ConversationEvent};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), agent_duplex::Error> {
//! let script = Script::new().message().begin().report_message("hello").end(EndReason::Completed);
//! let driver = ScriptedDriver::new(Capabilities::none()).with_script(script);
//! let (conversation, mut primary) = Conversation::with_primary(Box::new(driver), ConversationOptions::default().with_manual_start());
//! conversation.send(Input::new("hi"))?;
//! conversation.start(SessionChoice::Fresh).await?;
//! while let Some(published) = primary.next().await {
//!     if let ConversationEvent::Completed(completion) = published.event {
//!         assert_eq!(completion.end.reason, EndReason::Completed);
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! An agent that dies in its first turn, and the next agent in the same session:
//!
//! ```
//! use agent_duplex::scripted::{Script, ScriptedDriver};
//! use agent_duplex::{
//!     Capabilities, Capability, Conversation, ConversationOptions, EndReason, Input, RestartPolicy, SessionChoice,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), agent_duplex::Error> {
//! let dies = Script::new().session("s").message().begin().report_message("let me").ends();
//! let answers = Script::new().message().begin().report_message("here").end(EndReason::Completed);
//! let capabilities = Capabilities::none().with(Capability::Resume);
//! let driver = ScriptedDriver::new(capabilities).with_script(dies).with_repeating_script(answers);
//! let mut options = ConversationOptions::default().with_manual_start();
//! options.restart = Some(RestartPolicy::default());
//! let (conversation, _primary) = Conversation::with_primary(Box::new(driver.clone()), options);
//! for text in ["look", "look again"] {
//!     let mut execution = conversation.execute(Input::new(text)).await?; // the second time after a pause of a second
//!     while execution.next().await.is_some() {}
//! }
//! assert_eq!(driver.sessions(), [SessionChoice::Fresh, SessionChoice::Resume("s".into())]);
//! assert_eq!(driver.messages(), ["look", "look again"]);
//! # Ok(())
//! # }
//! ```

mod connection;
mod contract_checker;
mod replay;
mod script;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::{
    BoxFuture, Capabilities, Capability, Connection, Decision, Driver, Error, InputPolicy, Message,
    Permissions, QueuedMessages, SessionChoice,
};
use connection::ScriptedConnection;
pub use contract_checker::ContractChecker;
pub use script::{Latch, Script};

/// A driver whose agents play scripts, one for each connection. Clones share scripts and calls.
#[derive(Clone, Debug)]
pub struct ScriptedDriver {
    capabilities: Capabilities,
    policy: Option<InputPolicy>,
    repeats: Option<Script>,
    scripts: Arc<Mutex<VecDeque<Script>>>,
    calls: watch::Sender<Vec<ScriptedCall>>,
}

/// A call that a scripted driver or one of its agents got.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScriptedCall {
    /// A connection was opened.
    Connected(SessionChoice),
    /// A message was sent, and the agent accepted it.
    Sent(Message),
    /// An interrupt of the turn was requested.
    Interrupted(QueuedMessages),
    /// A permission request was answered.
    Answered(String, Decision),
    /// The permissions were changed.
    PermissionsSet(Permissions),
    /// The model was changed.
    ModelSet(Option<String>),
    /// The agent was frozen or thawed.
    Frozen(bool),
    /// The agent was asked to end by itself.
    Closed,
    /// The agent was stopped.
    Stopped,
    /// The connection was dropped.
    Dropped,
}

impl ScriptedDriver {
    /// Creates a driver whose agents have these capabilities.
    #[must_use]
    pub fn new(capabilities: Capabilities) -> Self {
        Self {
            capabilities,
            policy: None,
            repeats: None,
            scripts: Arc::default(),
            calls: watch::Sender::new(Vec::new()),
        }
    }

    /// Adds the script of the next connection. Without a script a connection can't be opened, unless there is one that
    /// [repeats](Self::with_repeating_script).
    #[must_use]
    pub fn with_script(self, script: Script) -> Self {
        self.scripts().push_back(script);
        self
    }

    /// Sets the script for every connection without another script.
    #[must_use]
    pub fn with_repeating_script(mut self, script: Script) -> Self {
        self.repeats = Some(script);
        self
    }

    /// Sets the treatment of inputs during a turn, instead of the default for its capabilities.
    #[must_use]
    pub fn with_input_policy(mut self, policy: InputPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    fn scripts(&self) -> MutexGuard<'_, VecDeque<Script>> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all calls so far, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<ScriptedCall> {
        self.calls.borrow().clone()
    }

    /// Returns the sessions in which agents were started so far.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionChoice> {
        let session = |call: &ScriptedCall| match call {
            ScriptedCall::Connected(session) => Some(session.clone()),
            _ => None,
        };
        self.calls.borrow().iter().filter_map(session).collect()
    }

    /// Returns the texts of all messages that were accepted so far.
    #[must_use]
    pub fn messages(&self) -> Vec<String> {
        let text = |call: &ScriptedCall| match call {
            ScriptedCall::Sent(message) => Some(message.text.clone()),
            _ => None,
        };
        self.calls.borrow().iter().filter_map(text).collect()
    }

    /// Waits until the calls fulfil a condition.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn wait_for_calls(&self, wanted: impl Fn(&[ScriptedCall]) -> bool) {
        let mut calls = self.calls.subscribe();
        // The sender lives as long as `self`.
        let _told = calls.wait_for(|calls| wanted(calls)).await;
    }
}

impl Driver for ScriptedDriver {
    fn name(&self) -> &str {
        "scripted"
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn input_policy(&self) -> InputPolicy {
        let steer = self.capabilities.has(Capability::Steer);
        let usual = if steer {
            InputPolicy::Push
        } else {
            InputPolicy::AfterTurn
        };
        self.policy.unwrap_or(usual)
    }

    fn connect(&self, session: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            self.calls
                .send_modify(|calls| calls.push(ScriptedCall::Connected(session)));
            let script = self.scripts().pop_front();
            let script = script.or_else(|| self.repeats.clone());
            let Some(script) = script else {
                return Err(Error::start("no script is left; add one", None));
            };
            let connection = ScriptedConnection::new(script, self.calls.clone());
            connection.connecting().await?;
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }
}
