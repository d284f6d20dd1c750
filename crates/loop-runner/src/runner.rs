//! A run that this process works on.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent_subprocess::WarmGuard;
use loop_state::{Head, Machine, MachineInput, StopReason, Timestamp};
use rlm_store::journal::Journal;
use rlm_store::sweep::scope_in;
use rlm_store::{DataLoss, Project, RemoteMessage, RunHead, Settings, WorkingTreeLock, runs};
use tokio::sync::{mpsc, watch};

use crate::Error;
use crate::RunControl;
use crate::clock::Clock;
use crate::control::RequestQueue;
use crate::countdown::run_countdown;
use crate::event_channel::{self, RunEventReceiver, RunEventSender};
use crate::heartbeat::{Heartbeat, LastTick};
use crate::hook::{HookEventKind, HookQueue};
use crate::items::IterationItems;
use crate::options::{RunOutcome, RunnerOptions};
use crate::run_event::RunEvent;
use crate::view::{AgentView, View};
use parts::attempt::AttemptHandles;
use parts::cleanup::RetainedLeftovers;
use parts::first_input::Reload;
pub use parts::first_input::Reloaded;
pub use parts::{DriverFactory, drivers};
use parts::{
    Drivers, EndedProcesses, LiveView, Reported, RunProcesses, TranscriptPruning, first_input,
};

// The modules in reading order. Each module except `parts` adds methods to `Runner`.
//   parts                 the parts that the run owns; they don't use `Runner`
//   preview               shows how a run would begin or resume
//   event_loop, effects   the loop around the machine, and the machine's effects
//   stopping, attempt     the end of a turn and of the run; the agent's events
//   commands, notify      checks; the channels of notifications
//   commit                changes of a turn, the commit
//   requests, changes     requests and permission requests; changes of the configuration
//   time, upkeep          timers, heartbeat and reports of silence; cleanup, repair and pruning
mod attempt;
mod changes;
mod commands;
mod commit;
mod effects;
mod event_loop;
mod notify;
mod parts;
pub(crate) mod preview;
mod requests;
mod stopping;
#[cfg(test)]
mod tests;
mod time;
mod upkeep;

/// A run that this process works on.
#[derive(Debug)]
pub struct Runner {
    work_tree: WorkingTreeLock,
    options: RunnerOptions,
    machine: Machine,
    /// The queued requests; empty until the run starts.
    requests: RequestQueue,
    /// The state that the runner saves beside the machine's head; each save fills in its `machine` field.
    saved: RunHead,
    journal: Journal,
    /// The prompt text of each phase, as last read and stored.
    prompts: Vec<String>,
    first: MachineInput,
    /// The data loss, as a message.
    data_loss: Option<String>,
    clock: Clock,
    events: RunEventSender,
    processes: RunProcesses,
    control: LiveView,
    reported: Reported,
    ended_processes: EndedProcesses,
    reload: Reload,
    heartbeat: Option<Heartbeat>,
    hooks: Vec<HookQueue>,
    /// Whether the computer must not go to sleep while the run lives.
    keeps_awake: bool,
    /// Whether this process created the run. Then no earlier process of the run has left anything.
    is_new: bool,
    transcript_pruning: TranscriptPruning,
}

impl Runner {
    /// Creates a run.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] when the settings are invalid, the prompt can't be read or the run exists.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the working tree. Normally the run then doesn't exist, and its name is free. If its first save had already begun,
    /// the run exists, and [`open`](Self::open) can open it.
    pub fn create(
        work_tree: WorkingTreeLock,
        settings: Settings,
        options: RunnerOptions,
    ) -> impl Future<Output = Result<(Self, RunEventReceiver), Error>> + Send {
        compiled_here(Self::create_run(work_tree, settings, options))
    }

    async fn create_run(
        work_tree: WorkingTreeLock,
        settings: Settings,
        options: RunnerOptions,
    ) -> Result<(Self, RunEventReceiver), Error> {
        let (project, run) = (work_tree.project(), work_tree.run().clone());
        let machine = Head::new(settings.rules()).map_err(rlm_store::Error::rules)?;
        settings.check_names()?;
        if runs::exists(project, &run) {
            return Err(rlm_store::Error::run_exists(run).into());
        }
        Self::refuse_uncommittable(project, &settings).await?;
        let prompts = first_input::first_prompts(&run, &settings)?;
        let mut saved = RunHead::new(run, machine, settings);
        let warm_guard = warm_guard(project, &saved);
        // The first agent or check starts after two saves, which take longer than the start of its guard.
        if saved.settings.phases[0].agent.has_program() {
            warm_guard.want();
        }
        let journal = match Self::first_save(project, &mut saved, &prompts).await {
            Ok(journal) => journal,
            Err(e) => {
                warm_guard.close().await;
                return Err(e);
            }
        };
        let first = MachineInput::Started;
        let (mut runner, receiver) = Self::new(work_tree, options, saved, journal, prompts, first);
        runner.processes.warm_guard = warm_guard;
        runner.is_new = true;
        runner.remove_orphans(0);
        Ok((runner, receiver))
    }

    /// Saves a new run that other machines work on, so that `Project::pack_state` of `rlm-store` can pack it. `root` is the top of the project that the
    /// paths of the settings are below.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] when the settings are invalid, a prompt can't be read or the run exists.
    ///
    /// # Cancel safety
    ///
    /// As [`create`](Self::create).
    pub async fn save_new(
        work_tree: &WorkingTreeLock,
        settings: Settings,
        root: PathBuf,
    ) -> Result<RunHead, Error> {
        let (project, run) = (work_tree.project(), work_tree.run().clone());
        let machine = Head::new(settings.rules()).map_err(rlm_store::Error::rules)?;
        settings.check_names()?;
        if runs::exists(project, &run) {
            return Err(rlm_store::Error::run_exists(run).into());
        }
        let prompts = first_input::first_prompts(&run, &settings)?;
        let mut saved = RunHead::new(run, machine, settings);
        saved.root = Some(root);
        Self::first_save(project, &mut saved, &prompts).await?;
        Ok(saved)
    }

    /// Saves a new run before a press can stop it: a run that a press ends at once can be resumed.
    async fn first_save(
        project: &Project,
        saved: &mut RunHead,
        prompts: &[String],
    ) -> Result<Journal, Error> {
        let (mut journal, _) = Journal::open(project, &saved.run, true)?;
        for (phase, text) in saved.settings.phases.iter_mut().zip(prompts) {
            let stored = first_input::store_prompt(&mut journal, phase, text).await?;
            saved.prompts.push(stored);
        }
        journal.save(saved).await?;
        Ok(journal)
    }

    /// Opens a saved run, with its saved settings and where it stopped, unless the options say otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] when nothing is saved, [`Error::is_held`] when another process works on it, [`Error::is_usage`] when the run belongs to
    /// a fleet and the options have no claim.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the run and the working tree. The saved state stays as it was. Damaged files are possibly set aside already, and
    /// a prompt of the new settings is possibly stored already, which does no harm.
    pub fn open(
        work_tree: WorkingTreeLock,
        options: RunnerOptions,
    ) -> impl Future<Output = Result<(Self, RunEventReceiver), Error>> + Send {
        compiled_here(Self::open_run(work_tree, options))
    }

    async fn open_run(
        work_tree: WorkingTreeLock,
        mut options: RunnerOptions,
    ) -> Result<(Self, RunEventReceiver), Error> {
        let (mut settings, from) = (options.new_settings.take(), options.from_iteration);
        let (project, run) = (work_tree.project(), work_tree.run().clone());
        project.existing(&run)?;
        let (mut journal, loaded) = match &options.claim {
            Some(claim) => Journal::open_replicated(project, &run, claim.replica.clone())?,
            None => Journal::open(project, &run, false)?,
        };
        let Some(mut saved) = loaded.head else {
            return Err(runs::nothing_saved(project, &run).into());
        };
        if let Some(claim) = &options.claim {
            saved.move_to(project, &claim.root);
            settings = claim.changed_settings(&saved)?.or(settings);
        }
        match saved.transfer.take() {
            // A claim proves that the run is in the fleet again.
            Some(moved) if !options.take_back && options.claim.is_none() => {
                return Err(rlm_store::Error::transferred(&run, &moved.to).into());
            }
            _ => {}
        }
        let run_dir = project.run_dir(&run);
        let loss = DataLoss::detect(&run_dir, &saved.machine, loaded.seq, &loaded.report);
        let loss = loss.map(|loss| loss.set_aside(&run, &loaded.report));
        if let Some(loss) = loss.clone() {
            loss.record(&mut saved.losses);
        }
        let uncommitted =
            Self::refuse_uncommittable_resume(project, &mut saved, settings.as_ref()).await?;
        let mut first =
            first_input::first(project, &mut saved, settings, from, options.interactive)?;
        if let (MachineInput::Resumed(resume), Some(claim)) = (&mut first, &options.claim) {
            resume.taken_over = claim.taken_over;
        }
        if from.is_some() {
            saved.clear_items();
        }
        let RunHead {
            settings, prompts, ..
        } = &mut saved;
        first_input::store_new_prompts(&mut journal, settings, prompts).await?;
        let prompts = project.prompts(&saved)?;
        let (mut runner, receiver) = Self::new(work_tree, options, saved, journal, prompts, first);
        runner.remove_orphans(loaded.report.removed_temps);
        runner.data_loss = loss.map(|loss| format!("the state is damaged: {loss}"));
        for what in runner.data_loss.clone().into_iter().chain(uncommitted) {
            runner.emit(RunEvent::Warning(what));
        }
        Ok((runner, receiver))
    }

    /// Gives a run of a fleet the messages of other machines.
    #[must_use]
    pub fn with_remote_messages(mut self, messages: mpsc::Receiver<RemoteMessage>) -> Self {
        self.control.remote = Some(messages);
        self
    }

    fn new(
        mut work_tree: WorkingTreeLock,
        options: RunnerOptions,
        saved: RunHead,
        journal: Journal,
        prompts: Vec<String>,
        first: MachineInput,
    ) -> (Self, RunEventReceiver) {
        let (events, receiver) = event_channel::channel();
        let warm_guard = warm_guard(work_tree.project(), &saved);
        let git_processes = Self::own_git_processes(&mut work_tree, &saved.scope);
        let view = View {
            head: saved.machine.clone(),
            pause_reason: saved.pause_reason.clone(),
            agent: AgentView::default(),
            shutdown: None,
        };
        let (view, _) = watch::channel(Arc::new(view));
        let (items, _) = watch::channel(Arc::new(saved.items().values().clone()));
        let transcript_pruning = TranscriptPruning::new(
            work_tree.project().run_dir(&saved.run),
            saved.settings.max_transcripts(),
            first != MachineInput::Started,
        );
        let machine = Machine::from(saved.machine.clone());
        let runner = Self {
            work_tree,
            machine: machine.with_stop_budget(options.stop_budget),
            requests: RequestQueue::default(),
            options,
            saved,
            journal,
            prompts,
            first,
            data_loss: None,
            clock: Clock::default(),
            events,
            processes: RunProcesses {
                drivers: Drivers::default(),
                attempt: None,
                withheld: false,
                check: None,
                commands: None,
                cleanup: None,
                retained: RetainedLeftovers::default(),
                git_processes,
                warm_guard,
                inhibitor: None,
                message: None,
                unchanged_since: None,
            },
            control: LiveView {
                view,
                items,
                shutdown: watch::channel(None).0,
                socket: None,
                remote: None,
                last_tick: LastTick::default(),
            },
            reported: Reported::default(),
            ended_processes: EndedProcesses {
                ended: Vec::new(),
                survivors: Vec::new(),
                proven: true,
            },
            reload: Reload::default(),
            heartbeat: None,
            hooks: Vec::new(),
            keeps_awake: false,
            is_new: false,
            transcript_pruning,
        };
        (runner, receiver)
    }

    /// Returns the saved state of the run, with the settings that this process uses.
    #[must_use]
    pub fn head(&self) -> &RunHead {
        &self.saved
    }

    /// Returns the data that this process could not restore because the state was damaged; a warning reports it too.
    #[must_use]
    pub fn loss(&self) -> Option<&str> {
        self.data_loss.as_deref()
    }

    /// Returns the last read prompt text of each phase.
    #[must_use]
    pub fn prompts(&self) -> &[String] {
        &self.prompts
    }

    /// Returns a view of the run that stays up to date.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<View>> {
        self.control.view.subscribe()
    }

    /// Returns the items of the current iteration, for a program or a driver that saves its own progress. `control` is a sender of the channel that
    /// [`run`](Self::run) gets.
    #[must_use]
    pub fn items(&self, control: &mpsc::Sender<RunControl>) -> IterationItems {
        IterationItems::new(control.clone(), self.control.items.subscribe())
    }

    /// Runs until the run ends or stops. When this returns, everything that the run started is ended, or the [`RunOutcome`] names it.
    ///
    /// The runner calls `drivers` for each attempt, and again when an attempt continues in another process of the agent. `control` has the requests
    /// of this process, such as a stop at a signal; if all its senders are dropped, the run continues without such requests.
    ///
    /// # Errors
    ///
    /// Returns an error when the state can't be saved. In that case the run does nothing more, and all its processes are ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends all processes of the run; the run can be resumed as after a crash.
    pub fn run(
        mut self,
        drivers: DriverFactory,
        control: mpsc::Receiver<RunControl>,
    ) -> impl Future<Output = Result<RunOutcome, Error>> + Send {
        compiled_here(async move {
            self.processes.drivers = Drivers::new(drivers);
            self.requests = RequestQueue::new(control, self.open_socket());
            let countdown = run_countdown(self.control.shutdown.subscribe(), self.events.clone());
            tokio::select! {
                biased;
                result = self.run_to_end() => result,
                never = countdown => match never {},
            }
        })
    }

    async fn run_to_end(mut self) -> Result<RunOutcome, Error> {
        self.sweep_earlier_processes().await;
        self.keep_awake();
        let result = self.run_event_loop().await;
        self.stop_everything().await;
        // The run reports its end after its last guard is reaped.
        self.processes.warm_guard.close().await;
        self.stop_pruning().await;
        let outcome = result.map(|reason| self.outcome(reason));
        self.notify_end(outcome.as_ref()).await;
        self.allow_sleep().await;
        // Dropping the queue reports the end of the run to the clients whose requests were never processed.
        self.requests = RequestQueue::default();
        let result = outcome.map(|outcome| self.outcome(outcome.reason));
        self.close_socket(&result).await;
        let reason = result.as_ref();
        let reason = reason.map_or_else(ToString::to_string, |it| it.reason.to_string());
        self.write_last_heartbeat(&reason).await;
        result
    }

    fn outcome(&self, reason: StopReason) -> RunOutcome {
        RunOutcome {
            reason,
            ended: self.ended_processes.ended.clone(),
            survivors: self.ended_processes.survivors.clone(),
            proven: self.ended_processes.proven,
            usage: self.machine.head().usage,
            uncommitted: self.saved.uncommitted.clone(),
        }
    }

    /// Publishes the current view.
    fn refresh_view(&self) {
        let view = View {
            head: self.machine.head().clone(),
            pause_reason: self.saved.pause_reason.clone(),
            agent: self
                .processes
                .attempt
                .as_ref()
                .map(AttemptHandles::view)
                .unwrap_or_default(),
            shutdown: *self.control.shutdown.borrow(),
        };
        self.control.view.send_replace(Arc::new(view));
    }

    /// Returns the time left for something that must end now.
    fn budget(&mut self) -> Duration {
        self.machine.budget(self.clock.now())
    }

    fn emit(&mut self, event: RunEvent) {
        let at = self.clock.now();
        self.emit_at(at, event);
    }

    fn emit_at(&mut self, at: Timestamp, event: RunEvent) {
        self.notify(at, HookEventKind::Event(&event));
        self.events.send(at, event);
    }
}

/// Creates the place of the guard that starts before its program is needed.
fn warm_guard(project: &Project, saved: &RunHead) -> WarmGuard {
    WarmGuard::new(&scope_in(project.tree(), &saved.scope))
}

/// Boxes a future, so that its code is generated in this crate. The code of an `async fn`, and of all that it awaits, is otherwise generated again in each
/// crate that awaits it; for a run, that took three seconds a program.
fn compiled_here<'a, T>(
    future: impl Future<Output = T> + Send + 'a,
) -> Pin<Box<dyn Future<Output = T> + Send + 'a>> {
    Box::pin(future)
}
