//! One run taken by this process.

use std::sync::Arc;
use std::time::Duration;

use loop_state::{Happening, Head, Machine, StopReason};
use rlm_store::journal::Journal;
use rlm_store::{Loss, RunHead, Settings, WorkTree, runs};
use tokio::sync::{mpsc, watch};

use crate::Error;
use crate::clock::Clock;
use crate::control::{Control, Wishes};
use crate::countdown::count_down;
use crate::feed::{self, NewsReceiver, NewsSender};
use crate::heartbeat::Heartbeat;
use crate::heartbeat::Pulse;
use crate::hook::{Happened, Hooks};
use crate::news::News;
use crate::options::Options;
use crate::options::Outcome;
use crate::view::{AgentView, View};
pub use parts::DriverFactory;
use parts::attempt::Attempt;
use parts::beginning::Reload;
pub use parts::beginning::Reloaded;
use parts::settling::Kept;
use parts::{AgentIo, Drivers, Ends, Tidying, Told, Watched, beginning};

// The modules in reading order. But for the first, each has methods of the run: it knows `Runner`, and this file takes nothing from it.
//   parts               what the run owns; it knows no run
//   preview             what a run would begin, or go on, with
//   pump, perform       the loop around the machine, and the machine's effects
//   stopping, attempt   how a turn and the run end; what the agent does
//   commands, commit    checks and the notify command; the trace of a turn, the commit
//   person, changes     what people, the agent's questions and the configuration change
//   time, upkeep        how long the run may wait, its signs of life; what is ended, put back and made smaller beside it
mod attempt;
mod changes;
mod commands;
mod commit;
mod parts;
mod perform;
mod person;
pub(crate) mod preview;
mod pump;
mod stopping;
#[cfg(test)]
mod tests;
mod time;
mod upkeep;

/// One run, taken by this process.
#[derive(Debug)]
pub struct Runner {
    work_tree: WorkTree,
    options: Options,
    machine: Machine,
    /// The requests of people; none come before the run is carried out.
    requests: Wishes,
    /// What is saved beside the machine's head; its `machine` field is filled in at each save.
    saved: RunHead,
    journal: Journal,
    /// The last prompt text read of each phase; the ones that are kept.
    prompts: Vec<String>,
    first: Happening,
    /// What a damage took, in words.
    loss: Option<String>,
    clock: Clock,
    news: NewsSender,
    agent_io: AgentIo,
    control: Watched,
    told: Told,
    ends: Ends,
    reload: Reload,
    heartbeat: Option<Heartbeat>,
    hooks: Option<Hooks>,
    tidying: Tidying,
}

impl Runner {
    /// Makes a new run.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] when the settings make no run, the prompt can't be read or the run exists.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future lets the working tree go. There is no run then, and another one may be made under its name; or, when its first save had
    /// begun, there is one that was not started, for [`open`](Self::open).
    pub async fn create(
        work_tree: WorkTree,
        mut settings: Settings,
        options: Options,
    ) -> Result<(Self, NewsReceiver), Error> {
        let (project, run) = (work_tree.project(), work_tree.run().clone());
        let machine = Head::new(settings.rules()).map_err(rlm_store::Error::rules)?;
        settings.check_names()?;
        if runs::exists(project, &run) {
            return Err(rlm_store::Error::run_exists(run).into());
        }
        Self::refuse_unfit(project, &settings).await?;
        let prompts = beginning::first_prompts(&run, &settings)?;
        let (mut journal, _) = Journal::open(project, &run, true)?;
        let mut blobs = Vec::new();
        for (phase, text) in settings.phases.iter_mut().zip(&prompts) {
            blobs.push(beginning::keep_prompt(&mut journal, phase, text).await?);
        }
        let mut saved = RunHead::new(run, machine, settings);
        saved.prompts = blobs;
        // Saved before anything can be asked to stop: a run that a press ends at once can be resumed.
        journal.save(&saved).await?;
        let first = Happening::Started;
        let (mut runner, receiver) = Self::new(work_tree, options, saved, journal, prompts, first);
        runner.remove_orphans(0);
        Ok((runner, receiver))
    }

    /// Takes up a saved run. `settings` replace the saved ones; `from` is the iteration to go back to.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_found`] when nothing is saved, [`Error::is_held`] when another process works on it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future lets the run and the working tree go. What is saved of the run stays as it was; damaged files of it are set aside by then, and
    /// a prompt that `settings` bring may lie beside it, where it does no harm.
    pub async fn open(
        work_tree: WorkTree,
        settings: Option<Settings>,
        from: Option<u32>,
        options: Options,
    ) -> Result<(Self, NewsReceiver), Error> {
        let (project, run) = (work_tree.project(), work_tree.run().clone());
        project.run(&run)?;
        let (mut journal, loaded) = Journal::open(project, &run, false)?;
        let Some(mut saved) = loaded.head else {
            return Err(runs::nothing_saved(project, &run).into());
        };
        match saved.moved.take() {
            Some(moved) if !options.take_back => {
                return Err(rlm_store::Error::moved(&run, &moved.to).into());
            }
            _ => {}
        }
        let run_dir = project.run_dir(&run);
        let loss = Loss::of(&run_dir, &saved.machine, loaded.seq, &loaded.report);
        let loss = loss.map(|loss| loss.set_aside(&run, &loaded.report));
        if let Some(loss) = loss.clone() {
            loss.remember(&mut saved.losses);
        }
        let unsaid = Self::refuse_unfit_again(project, &mut saved, settings.as_ref()).await?;
        let first = beginning::first(project, &mut saved, settings, from, options.interactive)?;
        let RunHead {
            settings, prompts, ..
        } = &mut saved;
        beginning::keep_new_prompts(&mut journal, settings, prompts).await?;
        let prompts = project.prompts(&saved)?;
        let (mut runner, receiver) = Self::new(work_tree, options, saved, journal, prompts, first);
        runner.remove_orphans(loaded.report.removed_temps);
        runner.loss = loss.map(|loss| format!("the state is damaged: {loss}"));
        for what in runner.loss.clone().into_iter().chain(unsaid) {
            runner.tell(News::Warning(what));
        }
        Ok((runner, receiver))
    }

    fn new(
        mut work_tree: WorkTree,
        options: Options,
        saved: RunHead,
        journal: Journal,
        prompts: Vec<String>,
        first: Happening,
    ) -> (Self, NewsReceiver) {
        let (news, receiver) = feed::channel();
        let looks = Self::own_looks(&mut work_tree, &saved.scope);
        let view = View {
            head: saved.machine.clone(),
            agent: AgentView::default(),
            shutdown: None,
        };
        let (view, _) = watch::channel(Arc::new(view));
        let tidying = Tidying::new(
            work_tree.project().run_dir(&saved.run),
            saved.settings.max_transcripts(),
            first != Happening::Started,
        );
        let machine = Machine::from(saved.machine.clone());
        let runner = Self {
            work_tree,
            machine: machine.with_stop_budget(options.stop_budget),
            requests: Wishes::default(),
            options,
            saved,
            journal,
            prompts,
            first,
            loss: None,
            clock: Clock::default(),
            news,
            agent_io: AgentIo {
                drivers: Drivers::default(),
                attempt: None,
                withheld: false,
                check: None,
                commands: None,
                settling: None,
                kept: Kept::default(),
                looks,
                idle_look: None,
            },
            control: Watched {
                view,
                shutdown: watch::channel(None).0,
                socket: None,
                pulse: Pulse::default(),
            },
            told: Told::default(),
            ends: Ends {
                ended: Vec::new(),
                survivors: Vec::new(),
                proven: true,
            },
            reload: Reload::default(),
            heartbeat: None,
            hooks: None,
            tidying,
        };
        (runner, receiver)
    }

    /// Returns what is saved of the run, with the settings that this process uses.
    #[must_use]
    pub fn head(&self) -> &RunHead {
        &self.saved
    }

    /// Returns what this process could not go on from because the state was damaged; it is told as a warning too.
    #[must_use]
    pub fn loss(&self) -> Option<&str> {
        self.loss.as_deref()
    }

    /// Returns the text of each phase's prompt as it was last read.
    #[must_use]
    pub fn prompts(&self) -> &[String] {
        &self.prompts
    }

    /// Returns a look at the run that stays up to date.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<View>> {
        self.control.view.subscribe()
    }

    /// Runs to an end: of the run, or by a stop. When it returns, what the run had started is ended, or named in the [`Outcome`].
    ///
    /// `drivers` is asked for each attempt, and again where one goes on in another process of the agent. `control` is what this process wants of the
    /// run, such as a stop at a signal; where all its senders are dropped that is nothing any more, and the run goes on.
    ///
    /// # Errors
    ///
    /// When the state can't be saved: then nothing further was done, and all that ran was ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends what runs; the run is then left as by a crash and can be resumed.
    pub async fn run(
        mut self,
        drivers: DriverFactory,
        control: mpsc::Receiver<Control>,
    ) -> Result<Outcome, Error> {
        self.agent_io.drivers = Drivers::new(drivers);
        self.requests = Wishes::new(control, self.open_socket());
        let countdown = count_down(self.control.shutdown.subscribe(), self.news.clone());
        tokio::select! {
            biased;
            result = self.run_to_end() => result,
            never = countdown => match never {},
        }
    }

    async fn run_to_end(mut self) -> Result<Outcome, Error> {
        self.sweep_before().await;
        let result = self.pump().await;
        self.end_everything().await;
        self.end_tidying().await;
        let outcome = result.map(|reason| self.outcome(reason));
        self.notify_end(outcome.as_ref()).await;
        // What nobody took any more is answered with the end.
        self.requests = Wishes::default();
        let result = outcome.map(|outcome| self.outcome(outcome.reason));
        self.close_socket(&result).await;
        let reason = result.as_ref();
        let reason = reason.map_or_else(ToString::to_string, |it| it.reason.to_string());
        self.last_beat(&reason).await;
        result
    }

    fn outcome(&self, reason: StopReason) -> Outcome {
        Outcome {
            reason,
            ended: self.ends.ended.clone(),
            survivors: self.ends.survivors.clone(),
            proven: self.ends.proven,
            usage: self.machine.head().usage,
            uncommitted: self.saved.uncommitted.clone(),
        }
    }

    /// Lets those who watch see how things stand.
    fn refresh_view(&self) {
        let view = View {
            head: self.machine.head().clone(),
            agent: self
                .agent_io
                .attempt
                .as_ref()
                .map(Attempt::view)
                .unwrap_or_default(),
            shutdown: *self.control.shutdown.borrow(),
        };
        self.control.view.send_replace(Arc::new(view));
    }

    /// How long something that is to end now may take.
    fn budget(&mut self) -> Duration {
        self.machine.budget(self.clock.now())
    }

    fn tell(&mut self, news: News) {
        let at = self.clock.now();
        self.notify(at, Happened::News(&news));
        self.news.send(at, news);
    }
}
