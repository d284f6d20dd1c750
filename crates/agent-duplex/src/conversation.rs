//! The handle for callers: it turns calls into commands for the actor. Only the actor uses the connection.

mod send;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use uuid::Uuid;

use crate::actor::{Actor, Channels, Command, Interrupt, PersistenceClient};
use crate::ledger::LedgerConfig;
use crate::persistence::PersistenceThread;
use crate::shared::{AgentFacts, Shared};
use crate::stop::FOREVER;
use crate::subscription::Queue;
use crate::{
    Capabilities, Capability, ConversationOptions, Decision, Driver, Error, History, InputPolicy,
    Lifecycle, Mode, Permissions, Persistence, Primary, ProcessName, QueuedMessages,
    RecoveredConversation, RestartPolicy, SessionChoice, StopReport, Subscription, times,
};

/// The maximum number of commands, and of interrupts, that wait while the actor is busy with one.
const COMMANDS: usize = 64;

/// A conversation with one agent over one connection at a time.
///
/// Clones are handles of the same conversation. Dropping the last handle ends everything that the conversation started, without a report; futures and
/// readers that it returned keep nothing alive. When the agent is gone, the next input or [`start`](Self::start) opens the next connection of the same
/// conversation.
#[derive(Clone, Debug)]
pub struct Conversation(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    persistence_thread: Option<Arc<PersistenceThread>>,
    commands: mpsc::Sender<Command>,
    interrupts: mpsc::Sender<Interrupt>,
    stop_deadline: watch::Sender<Option<Instant>>,
    report: watch::Receiver<Option<StopReport>>,
}

impl Conversation {
    /// Creates a conversation with the agent of `driver`. Read it by [`ask`](Self::ask), [`execute`](Self::execute) or [`subscribe`](Self::subscribe).
    ///
    /// Nothing is started yet. The first input starts an agent, and a later [`start`](Self::start) fails because an agent already runs: to choose the
    /// session, call `start` first. With [`ConversationOptions::with_manual_start`], inputs that are sent before `start` become one turn.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime. The runtime needs its timer.
    pub fn new(driver: Box<dyn Driver>, options: ConversationOptions) -> Self {
        // Without the primary, the conversation waits for no reader.
        Self::with_primary(driver, options).0
    }

    /// Creates a conversation as [`new`](Self::new) does, and the one reader that it waits for.
    ///
    /// **Read the primary, or drop it.** While its backlog is full, the conversation doesn't read the agent, so the agent waits too.
    ///
    /// # Panics
    ///
    /// As for [`new`](Self::new).
    pub fn with_primary(driver: Box<dyn Driver>, options: ConversationOptions) -> (Self, Primary) {
        Self::begin(driver, &options, None, RecoveredConversation::default())
    }

    /// Continues a stored conversation, or starts one.
    ///
    /// Its waiting inputs are delivered to the first agent, which starts immediately unless the caller [starts agents](ConversationOptions::with_manual_start).
    /// [`RecoveredConversation::interrupted`] contains the turns that never ended; the inputs that were delivered in them are not delivered again.
    ///
    /// # Errors
    ///
    /// [`Error::is_persistence`] if the stored conversation can't be read.
    ///
    /// # Panics
    ///
    /// As for [`new`](Self::new).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing is opened, but the recovery can still continue: it can take over the store from a caller that opens the
    /// conversation in the meantime.
    pub async fn open(
        driver: Box<dyn Driver>,
        options: ConversationOptions,
        persistence: Box<dyn Persistence>,
    ) -> Result<(Self, RecoveredConversation), Error> {
        let opened = Self::open_with_primary(driver, options, persistence).await?;
        let (conversation, _, recovered) = opened;
        Ok((conversation, recovered))
    }

    /// Continues a stored conversation as [`open`](Self::open) does, and returns the one reader that it waits for, as
    /// [`with_primary`](Self::with_primary) does.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    ///
    /// # Panics
    ///
    /// As for [`new`](Self::new).
    ///
    /// # Cancel safety
    ///
    /// As for [`open`](Self::open).
    pub async fn open_with_primary(
        driver: Box<dyn Driver>,
        options: ConversationOptions,
        persistence: Box<dyn Persistence>,
    ) -> Result<(Self, Primary, RecoveredConversation), Error> {
        let (persistence_thread, recovered) = PersistenceThread::open(persistence).await?;
        let (conversation, primary) = Self::begin(
            driver,
            &options,
            Some(persistence_thread),
            recovered.clone(),
        );
        Ok((conversation, primary, recovered))
    }

    fn begin(
        driver: Box<dyn Driver>,
        options: &ConversationOptions,
        persistence_thread: Option<Arc<PersistenceThread>>,
        recovered: RecoveredConversation,
    ) -> (Self, Primary) {
        let capabilities = driver.capabilities();
        let one_shot = options.mode == Mode::OneShot;
        let restart = options.restart.or(one_shot.then(RestartPolicy::default));
        let terms = LedgerConfig {
            capacity: options.inbox_capacity,
            policy: if one_shot {
                InputPolicy::AfterTurn
            } else {
                driver.input_policy()
            },
            can_resume: capabilities.has(Capability::Resume),
            may_redeliver: restart.is_none() && persistence_thread.is_none(),
        };
        let session = recovered.session.clone();
        let agent = AgentFacts {
            name: driver.name().to_owned(),
            capabilities,
        };
        let shared = Shared::new(agent, options.backlog_capacity, restart, terms, recovered);
        let (commands, obeyed) = mpsc::channel(COMMANDS);
        let (interrupts, interrupted) = mpsc::channel(COMMANDS);
        let (stop_sender, stop_deadline) = watch::channel(None);
        let (reported, report) = watch::channel(None);
        let primary = Primary(Arc::clone(&shared.primary));
        let channels = Channels {
            commands: obeyed,
            interrupts: interrupted,
            stop_deadline,
            report: reported,
        };
        let keeps =
            PersistenceClient::new(Arc::clone(&shared), persistence_thread.clone(), session);
        let actor = Actor::new(Arc::clone(&shared), driver, channels, keeps, options.mode);
        tokio::spawn(actor.run());
        let handle = Handle {
            shared,
            persistence_thread,
            commands,
            interrupts,
            stop_deadline: stop_sender,
            report,
        };
        (Self(Arc::new(handle)), primary)
    }

    /// Connects, and delivers the inputs that wait in the inbox.
    ///
    /// After an agent ended by itself, this starts the next one. It first ends the leftovers of the last agent; the report of [`stop`](Self::stop)
    /// contains them. The results of earlier starts are forgotten: the start happens immediately, and inputs are accepted again, even after a crash
    /// loop.
    ///
    /// # Errors
    ///
    /// Fails if the agent can't be started, doesn't support `session`, or did not accept the waiting inputs (they continue to wait then).
    /// [`Error::is_start_failure`] is true if the agent could not start or if an agent already runs; [`Error::is_persistence`] if the conversation
    /// can't be stored any more; [`Error::is_gone`] if it has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops only the result; the start continues.
    pub async fn start(&self, session: SessionChoice) -> Result<(), Error> {
        self.command(|done| Command::Start { session, done })
            .await?
    }

    /// Asks the agent to end its turn without exiting. The request is made immediately. The future waits until the agent has acknowledged it *and*
    /// the turn has ended, or until it is certain that no turn runs.
    ///
    /// With [`QueuedMessages::Drop`] the inputs that wait in the inbox are dropped too. The conversation sees the end of a turn only by reading the
    /// agent, and it stops reading while the backlog of the [`Primary`] is full: read the primary while you wait for this future.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] if the agent can't be interrupted, [`Error::is_full`] if too many requests wait, [`Error::is_gone`] if the
    /// conversation has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not cancel the request.
    pub fn interrupt(
        &self,
        queued: QueuedMessages,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (done, answer) = oneshot::channel();
        let asked = self.0.interrupts.try_send(Interrupt { queued, done });
        let report = self.0.report.clone();
        async move {
            asked.map_err(|e| match e {
                mpsc::error::TrySendError::Full(_) => Error::full("the conversation"),
                mpsc::error::TrySendError::Closed(_) => Error::conversation_over(),
            })?;
            answered(answer, report).await?
        }
    }

    /// Answers a permission request. Does nothing if the request was already answered, was withdrawn, or belongs to an agent that has ended.
    ///
    /// # Errors
    ///
    /// [`Error::is_gone`] if the agent or the conversation ended in the meantime, [`Error::is_full`] if the agent does not read.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before its first wait does nothing; a later drop does not cancel the request.
    pub async fn answer(&self, ask: &str, decision: Decision) -> Result<(), Error> {
        let ask = ask.to_owned();
        self.command(|done| Command::Answer {
            ask,
            decision,
            done,
        })
        .await?
    }

    /// Changes the permissions of the agent from now on.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] if they can't be changed while the agent runs, [`Error::is_gone`] if no agent runs.
    ///
    /// # Cancel safety
    ///
    /// As for [`answer`](Self::answer).
    pub async fn set_permissions(&self, permissions: Permissions) -> Result<(), Error> {
        self.command(|done| Command::Permissions { permissions, done })
            .await?
    }

    /// Changes the model from its next call on, by the agent's own name for it; `None` is the agent's default.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] if the model can't be changed while the agent runs, [`Error::is_refused`] if the agent rejects this model,
    /// [`Error::is_gone`] if no agent runs.
    ///
    /// # Cancel safety
    ///
    /// As for [`answer`](Self::answer).
    pub async fn set_model(&self, model: Option<String>) -> Result<(), Error> {
        self.command(|done| Command::Model { model, done }).await?
    }

    /// Freezes (`true`) or thaws (`false`) every process of the agent's process tree. While frozen, no input is delivered, and no agent starts.
    ///
    /// If an agent is being started, this waits for the start.
    ///
    /// # Errors
    ///
    /// Fails if the owner of the process tree accepts no more commands: then the agent does not change, but the delivery and the starts do;
    /// [`Error::is_gone`] if the conversation has ended.
    ///
    /// # Cancel safety
    ///
    /// As for [`answer`](Self::answer).
    pub async fn freeze(&self, frozen: bool) -> Result<(), Error> {
        self.command(|done| Command::Freeze { frozen, done })
            .await?
    }

    /// Pauses (`true`) or resumes (`false`) the delivery of inputs. The agent and its session stay, and a running turn continues. While the delivery
    /// is paused, no agent starts automatically.
    ///
    /// # Errors
    ///
    /// [`Error::is_gone`] if the conversation has ended.
    ///
    /// # Cancel safety
    ///
    /// As for [`answer`](Self::answer).
    pub async fn pause_delivery(&self, is_paused: bool) -> Result<(), Error> {
        self.command(|done| Command::PauseDelivery {
            is_delivery_paused: is_paused,
            done,
        })
        .await
    }

    /// Ends the agent gently. The close first waits for the running turn and for the background tasks that the agent reports, for 30 s at most. Then
    /// it waits for the end of the agent, as long as the driver allows. If the agent was [frozen](Self::freeze), the 30 s start again when it is
    /// thawed. Does nothing if no agent runs.
    ///
    /// A turn that takes longer ends as [`Interrupted`](crate::EndReason::Interrupted), with the reason in its detail. An open [permission
    /// request](crate::PermissionRequest) does not shorten the wait, because a caller can still answer it; deny it if nobody will.
    ///
    /// The close does not wait for inputs that are in no turn yet: wait for [`wait_until_idle`](Self::wait_until_idle) first if they must be
    /// answered. These inputs stay [pending](Self::pending) for the next agent. [`start`](Self::start) starts that agent, or the next input does if
    /// agents start automatically. The leftovers of the agent stay alive until the next agent starts or until a [`stop`](Self::stop).
    ///
    /// Meanwhile the conversation reads the agent and handles everything else, so that a background task gets answers to its permission requests.
    /// Only a call of [`start`](Self::start) waits for the close. The conversation sees the ends of turns and tasks only as far as the [`Primary`] is
    /// read.
    ///
    /// # Cancel safety
    ///
    /// As for [`answer`](Self::answer).
    pub async fn close(&self) {
        self.close_within(times::CLOSE_TIMEOUT).await;
    }

    /// Ends the agent as [`close`](Self::close) does, with this limit instead of 30 s. If several closes run, the earliest limit applies.
    ///
    /// # Cancel safety
    ///
    /// As for [`answer`](Self::answer).
    pub async fn close_within(&self, close_timeout: Duration) {
        // An error means that the conversation has ended, and the agent with it.
        let _over = {
            self.command(|done| Command::Close {
                close_timeout,
                done,
            })
        }
        .await;
    }

    /// Lists the living processes that the agent started, without the agent itself. The list is empty after a stop: its report contains the
    /// survivors.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn leftovers(&self) -> Vec<ProcessName> {
        self.command(|done| Command::Leftovers { done })
            .await
            .unwrap_or_default()
    }

    /// Ends the conversation and everything that it started, within `budget`, and returns the result.
    ///
    /// The running turn is completed as interrupted, unless the last output of the agent reports another end. Every reader ends after its unread
    /// events. Concurrent and later callers get the same report. If there are several budgets, the one that ends first applies, so a second stop can
    /// make a running stop faster. If a driver takes 10 s longer than the budget, the conversation stops waiting for it, and the report is not
    /// proven.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops only the report; the stop continues.
    pub async fn stop(&self, budget: Duration) -> StopReport {
        let now = Instant::now();
        let end_by = now.checked_add(budget).unwrap_or(now + FOREVER);
        self.0.stop_deadline.send_if_modified(|deadline| {
            let sooner = deadline.is_none_or(|before| end_by < before);
            if sooner {
                *deadline = Some(end_by);
            }
            sooner
        });
        let mut report = self.0.report.clone();
        let reported = report.wait_for(Option::is_some).await;
        reported
            .ok()
            .and_then(|report| report.clone())
            // The actor ended without a report. The drop of its connection ended the processes, but nothing checked the result.
            .unwrap_or_else(|| StopReport::nothing(false))
    }

    /// Returns the id of this conversation, which each of its events contains. It is random, and new for each process.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.0.shared.lock().conversation
    }

    /// Returns what the agent can do: what its driver declares, or less if the agent that was started last reported this.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.0.shared.lock().agent.capabilities
    }

    /// Returns the state of the conversation.
    #[must_use]
    pub fn lifecycle(&self) -> Lifecycle {
        self.0.shared.lock().lifecycle
    }

    /// Subscribes to all events from now on. The subscription holds up to `capacity` unread events; if there are more, it ends with an error.
    pub fn subscribe(&self, capacity: usize) -> Subscription {
        let queue = Queue::new(capacity);
        self.0.shared.lock().add(&queue);
        Subscription(queue)
    }

    /// Subscribes to all events since the start of the running turn, each event once; from now on if no turn runs.
    ///
    /// Replayed events don't count as unread. If there are more than 10,000 of them, or more than 8 MiB of lines and texts, all of them are left out,
    /// and [`ConversationEvent::ReplayTruncated`](crate::ConversationEvent::ReplayTruncated) comes first. After that, the subscription is the same as
    /// that of [`subscribe`](Self::subscribe).
    pub fn replay(&self, capacity: usize) -> Subscription {
        Subscription(self.0.shared.lock().replay(capacity))
    }

    /// Returns the latest events of this conversation: at most 10,000, with at most 8 MiB of lines and texts. While the
    /// running turn alone has more than that, at most 1 MiB.
    ///
    /// They are in the order in which all readers get them. Older events are missing: [`History::omitted`] is their number, and 0 means that the
    /// history is complete. Events that an earlier process published are never included. For those, a [stored](Self::open) conversation has the
    /// agent's messages in its store, for example in `SqlitePersistence::messages`.
    ///
    /// To continue with later events without a gap, [subscribe](Self::subscribe) first, and skip the events of the subscription that the history
    /// contains: their sequence numbers are not greater than the last one of the history. The history can be read even after the end of the
    /// conversation.
    ///
    /// # Examples
    ///
    /// ```
    /// # use agent_duplex::scripted::{Script, ScriptedDriver};
    /// # use agent_duplex::{Capabilities, Conversation, ConversationOptions, EndReason, Error};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let script = Script::new().message().begin().report_message("It is a parser.");
    /// # let script = script.end(EndReason::Completed);
    /// # let driver = ScriptedDriver::new(Capabilities::none()).with_script(script);
    /// let conversation = Conversation::new(Box::new(driver), ConversationOptions::default());
    /// conversation.ask("What does this project do?").await?;
    /// let history = conversation.history();
    /// assert_eq!(history.omitted, 0);
    /// for published in &history.events {
    ///     println!("{}: {:?}", published.sequence, published.event);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn history(&self) -> History {
        self.0.shared.lock().history()
    }

    async fn command<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Error> {
        let (done, answer) = oneshot::channel();
        let sent = self.0.commands.send(command(done)).await;
        sent.map_err(|_| Error::conversation_over())?;
        answered(answer, self.0.report.clone()).await
    }
}

/// Waits for an answer of the actor, or for the end of the actor. The actor has ended if it dropped the sender of `report`. The closed channel of
/// `answer` is not enough: a command that is sent while its channel closes can stay in that channel, and then nothing drops the sender of `answer`.
async fn answered<T>(
    answer: oneshot::Receiver<T>,
    mut report: watch::Receiver<Option<StopReport>>,
) -> Result<T, Error> {
    let ended = async { while report.changed().await.is_ok() {} };
    let answer = tokio::select! {
        biased;
        answer = answer => answer.ok(),
        () = ended => None,
    };
    answer.ok_or_else(Error::conversation_over)
}
