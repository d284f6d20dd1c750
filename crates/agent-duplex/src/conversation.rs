//! The handle that callers hold: it turns calls into commands for the actor, which alone touches the connection.

mod send;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::actor::{Actor, Channels, Command, Interrupt, Keeps};
use crate::ledger::Terms;
use crate::persistence::Keeper;
use crate::shared::Shared;
use crate::stop::FOREVER;
use crate::subscription::Queue;
use crate::{
    Capabilities, Capability, ConversationOptions, Decision, Driver, Error, InputPolicy, Lifecycle,
    Mode, Permissions, Persistence, Primary, ProcessName, Queued, Recovered, RestartPolicy,
    SessionChoice, StopReport, Subscription, times,
};

/// How many commands, and how many interrupts, wait at most while the agent's end is busy with one.
const COMMANDS: usize = 64;

/// A conversation with one agent over one connection at a time.
///
/// Clones are handles on the same one. Dropping the last handle ends what it started, without a report; the futures and the readers that it gave away
/// keep nothing alive. When the agent is gone, [`start`](Self::start) opens the next connection of the same conversation, or the conversation does so
/// itself when there are inputs, if [`ConversationOptions::restart`] says how.
#[derive(Clone, Debug)]
pub struct Conversation(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    keeper: Option<Arc<Keeper>>,
    capabilities: Capabilities,
    commands: mpsc::Sender<Command>,
    interrupts: mpsc::Sender<Interrupt>,
    halt: watch::Sender<Option<Instant>>,
    report: watch::Receiver<Option<StopReport>>,
}

impl Conversation {
    /// Makes a conversation with the agent of `driver`, and its lossless reader.
    ///
    /// Nothing is started yet. Inputs that are sent before [`start`](Self::start) become one turn. With a [`RestartPolicy`] the first input starts an
    /// agent, and a `start` after it says that one runs already: call it before, if at all, to choose the session.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime. The runtime needs its timer.
    pub fn new(driver: Box<dyn Driver>, options: ConversationOptions) -> (Self, Primary) {
        Self::begin(driver, &options, None, Recovered::default())
    }

    /// Goes on with a conversation that is kept, or begins one.
    ///
    /// What waits in it is delivered to the first agent, which is started at once if [`ConversationOptions::restart`] says how. Turns that never ended
    /// are in [`Recovered::interrupted`]; what was handed on in them is not handed on again.
    ///
    /// # Errors
    ///
    /// [`Error::is_persistence`] when what is kept can't be read.
    ///
    /// # Panics
    ///
    /// As for [`new`](Self::new).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future opens nothing, but what is kept may still be recovered: whoever opens it meanwhile may be taken over by that.
    pub async fn open(
        driver: Box<dyn Driver>,
        options: ConversationOptions,
        persistence: Box<dyn Persistence>,
    ) -> Result<(Self, Primary, Recovered), Error> {
        let (keeper, recovered) = Keeper::open(persistence).await?;
        let (conversation, primary) =
            Self::begin(driver, &options, Some(keeper), recovered.clone());
        Ok((conversation, primary, recovered))
    }

    fn begin(
        driver: Box<dyn Driver>,
        options: &ConversationOptions,
        keeper: Option<Arc<Keeper>>,
        recovered: Recovered,
    ) -> (Self, Primary) {
        let capabilities = driver.capabilities();
        let one_shot = options.mode == Mode::OneShot;
        let restart = options.restart.or(one_shot.then(RestartPolicy::default));
        let terms = Terms {
            capacity: options.inbox,
            policy: if one_shot {
                InputPolicy::AfterTurn
            } else {
                driver.input_policy()
            },
            resumes: capabilities.has(Capability::Resume),
            redelivers: restart.is_none() && keeper.is_none(),
        };
        let session = recovered.session.clone();
        let shared = Shared::new(options.backlog, restart, terms, recovered);
        let (commands, obeyed) = mpsc::channel(COMMANDS);
        let (interrupts, interrupted) = mpsc::channel(COMMANDS);
        let (halt, halted) = watch::channel(None);
        let (reported, report) = watch::channel(None);
        let primary = Primary(Arc::clone(&shared.primary));
        let channels = Channels {
            commands: obeyed,
            interrupts: interrupted,
            halt: halted,
            report: reported,
        };
        let keeps = Keeps::new(Arc::clone(&shared), keeper.clone(), session);
        let actor = Actor::new(Arc::clone(&shared), driver, channels, keeps, options.mode);
        tokio::spawn(actor.run());
        let handle = Handle {
            shared,
            keeper,
            capabilities,
            commands,
            interrupts,
            halt,
            report,
        };
        (Self(Arc::new(handle)), primary)
    }

    /// Connects, and delivers what waits in the inbox.
    ///
    /// After an agent ended by itself this starts the next one; what the last one left running is ended before, and is in the report of
    /// [`stop`](Self::stop). Whatever came of earlier starts is forgotten: it is tried at once, and inputs are taken again, also after a crash loop.
    ///
    /// # Errors
    ///
    /// When the agent can't be started, can't do what `session` asks, or did not take the inputs that waited (they wait on then); [`Error::is_start`]
    /// also when an agent runs already; [`Error::is_persistence`] when the conversation can't be kept any more; [`Error::is_gone`] when it is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the answer up, not the start.
    pub async fn start(&self, session: SessionChoice) -> Result<(), Error> {
        self.ask(|done| Command::Start { session, done }).await?
    }

    /// Tells the agent to end its turn and to stay. The request is made at once; the future waits until the agent took notice *and* the turn has ended,
    /// or until it is known that none runs.
    ///
    /// With [`Queued::Drop`] the inputs that wait in the inbox are dropped too. A turn's end is seen by reading the agent, and that goes no further than
    /// the [`Primary`]'s backlog: read it while you wait for this.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] when the agent can't be interrupted, [`Error::is_full`] when too many requests wait, [`Error::is_gone`] when the
    /// conversation is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes nothing back.
    pub fn interrupt(
        &self,
        queued: Queued,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (done, answer) = oneshot::channel();
        let asked = self.0.interrupts.try_send(Interrupt { queued, done });
        let report = self.0.report.clone();
        async move {
            asked.map_err(|e| match e {
                mpsc::error::TrySendError::Full(_) => Error::full("the conversation"),
                mpsc::error::TrySendError::Closed(_) => Error::over(),
            })?;
            answered(answer, report).await?
        }
    }

    /// Answers an ask. One that was answered before, was withdrawn or belongs to an agent that has ended is left alone.
    ///
    /// # Errors
    ///
    /// [`Error::is_gone`] when the agent or the conversation ended meanwhile, [`Error::is_full`] when the agent does not read.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it has waited does nothing; later it takes nothing back.
    pub async fn answer(&self, ask: &str, decision: Decision) -> Result<(), Error> {
        let ask = ask.to_owned();
        self.ask(|done| Command::Answer {
            ask,
            decision,
            done,
        })
        .await?
    }

    /// Changes what the agent may do from now on.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] when that can't be changed while it runs, [`Error::is_gone`] when none runs.
    ///
    /// # Cancel safety
    ///
    /// As for [`answer`](Self::answer).
    pub async fn set_permissions(&self, permissions: Permissions) -> Result<(), Error> {
        self.ask(|done| Command::Permissions { permissions, done })
            .await?
    }

    /// Changes the model, by the agent's own name for it, from its next call on; `None` is the agent's default.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] when that can't be changed while it runs, [`Error::is_refused`] when the agent does not take this model,
    /// [`Error::is_gone`] when none runs.
    ///
    /// # Cancel safety
    ///
    /// As for [`answer`](Self::answer).
    pub async fn set_model(&self, model: Option<String>) -> Result<(), Error> {
        self.ask(|done| Command::Model { model, done }).await?
    }

    /// Stops every process of the agent's tree where it stands (`true`), or lets them go on (`false`). Does nothing when none runs.
    ///
    /// # Errors
    ///
    /// When whoever keeps the tree takes no order any more; [`Error::is_gone`] when the conversation is over.
    ///
    /// # Cancel safety
    ///
    /// As for [`answer`](Self::answer).
    pub async fn freeze(&self, frozen: bool) -> Result<(), Error> {
        self.ask(|done| Command::Freeze { frozen, done }).await?
    }

    /// Hands nothing on from now on (`true`), or again what waits (`false`). The agent and its session stay, and a turn that runs goes on; nothing is
    /// started by itself.
    ///
    /// # Errors
    ///
    /// [`Error::is_gone`] when the conversation is over.
    ///
    /// # Cancel safety
    ///
    /// As for [`answer`](Self::answer).
    pub async fn hold(&self, held: bool) -> Result<(), Error> {
        self.ask(|done| Command::Hold { held, done }).await
    }

    /// Ends the agent politely: after the turn that runs and the tasks that it reports in the background, if they take no more than 30 s, and then within
    /// its driver's bound of seconds. The time in which it is [frozen](Self::freeze) does not count. Does nothing when none runs.
    ///
    /// A turn that takes longer ends as [`Interrupted`](crate::EndReason::Interrupted), and its detail says so. An [ask](crate::Ask) that is open is no
    /// end of waiting: somebody may still answer it; answer it with a denial when nobody will.
    ///
    /// Inputs that are in no turn yet are not waited for: wait for [`drained`](Self::drained) before, if they are to be answered. They stay
    /// [pending](Self::pending) for the next agent, which [`start`](Self::start) starts, or the next input if agents are started by themselves.
    /// What the agent left running stays as well, until there is a next agent or a [`stop`](Self::stop).
    ///
    /// Meanwhile the agent is read and everything else is obeyed, so that a task in the background gets its asks answered; only a
    /// [`start`](Self::start) waits. The ends of turns and tasks are seen only as far as the [`Primary`] is read.
    ///
    /// # Cancel safety
    ///
    /// As for [`answer`](Self::answer).
    pub async fn close(&self) {
        self.close_within(times::CLOSING).await;
    }

    /// Ends the agent as [`close`](Self::close) does, with another patience than 30 s. Of several closes the least patience counts.
    ///
    /// # Cancel safety
    ///
    /// As for [`answer`](Self::answer).
    pub async fn close_within(&self, patience: Duration) {
        // When the conversation is over, so is the agent.
        let _over = { self.ask(|done| Command::Close { patience, done }) }.await;
    }

    /// Lists the processes that the agent started and that are alive, apart from the agent itself. None after a stop: its report has the survivors.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn leftovers(&self) -> Vec<ProcessName> {
        self.ask(|done| Command::Leftovers { done })
            .await
            .unwrap_or_default()
    }

    /// Ends the conversation and everything that it started, within `budget`, and says what came of it.
    ///
    /// The turn that runs is completed as interrupted, unless the agent says otherwise with its last words, and every reader comes to its end once it
    /// has read what there is. Concurrent and later callers get the same report; of their budgets the one counts that ends first, so that a stop which is
    /// under way is hurried by another one. A driver that takes 10 s more than that is not waited for, and the report is not proven.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the report up, not the stop.
    pub async fn stop(&self, budget: Duration) -> StopReport {
        let now = Instant::now();
        let end_by = now.checked_add(budget).unwrap_or(now + FOREVER);
        self.0.halt.send_if_modified(|halt| {
            let sooner = halt.is_none_or(|before| end_by < before);
            if sooner {
                *halt = Some(end_by);
            }
            sooner
        });
        let mut report = self.0.report.clone();
        let reported = report.wait_for(Option::is_some).await;
        reported
            .ok()
            .and_then(|report| report.clone())
            // Whoever was to report is gone with its connection, whose drop ended everything unseen.
            .unwrap_or_else(|| StopReport::nothing(false))
    }

    /// Returns what the agent can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.0.capabilities
    }

    /// Returns where the conversation stands.
    #[must_use]
    pub fn lifecycle(&self) -> Lifecycle {
        self.0.shared.lock().lifecycle
    }

    /// Reads along from now on. The subscription holds up to `capacity` unread things; with more, it is dropped and told so.
    pub fn subscribe(&self, capacity: usize) -> Subscription {
        let queue = Queue::new(capacity);
        self.0.shared.lock().add(&queue);
        Subscription(queue)
    }

    /// Reads along from the beginning of the turn that runs, each thing once; from now on when none runs.
    ///
    /// What is replayed does not count as unread. When that would be over 10,000 things or 8 MiB of lines and texts, all of it is left out, and
    /// [`What::ReplayTruncated`](crate::What::ReplayTruncated) comes first. From there on it is as for [`subscribe`](Self::subscribe).
    pub fn replay(&self, capacity: usize) -> Subscription {
        Subscription(self.0.shared.lock().replay(capacity))
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Error> {
        let (done, answer) = oneshot::channel();
        let sent = self.0.commands.send(command(done)).await;
        sent.map_err(|_| Error::over())?;
        answered(answer, self.0.report.clone()).await
    }
}

/// Waits for an answer of the actor, or for its end, with which its end of the report is gone: what is put into a channel just when that is closed may
/// stay in it.
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
    answer.ok_or_else(Error::over)
}
