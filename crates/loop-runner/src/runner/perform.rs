//! Carries out the effects of the machine.

use agent_duplex::{
    Capability, Conversation, Driver, Input, Permissions, ProcessName, SessionChoice, StopReport,
};
use agent_subprocess::{Context, Marker, StopPolicy};
use loop_state::{
    AskPolicy, AttemptInput, AttemptMachine, AttemptOptions, Brief, Command, Effect, Event, Glance,
    Happening, Notice, Reminder, SteerState, TurnOutcome,
};
use rlm_store::deadline::Hurry;
use rlm_store::processes::{MARKER, gone};
use rlm_store::survivors::{REPORT, scope_in, scratch};
use rlm_store::transcript::Transcript;
use rlm_store::{PhaseSettings, state_dir};
use std::time::Duration;
use tokio::time::Instant;

use crate::news::News;
use crate::runner::Runner;
use crate::runner::parts::attempt::Attempt;
use crate::{Awaited, Error, prompt};

/// How long a git status stays valid while nothing of the run works in the working tree.
const SEEN: Duration = Duration::from_millis(500);

impl Runner {
    /// Carries out one effect and returns the machine inputs that result at once.
    pub(super) async fn perform(&mut self, effect: Effect) -> Result<Vec<Happening>, Error> {
        match effect {
            Effect::Save => {
                self.refresh_saved(false).await;
                self.work_tree.keep_state(&self.saved.run)?;
                self.save_now().await?;
                self.heal().await?;
                self.ensure_socket();
                self.notify_begun();
            }
            Effect::SealPhase { phase } => {
                self.refresh_saved(true).await;
                let changed = self.changed().await;
                let name = phase.clone();
                self.work_tree.keep_state(&self.saved.run)?;
                let is_sealed = self.journal.save_phase(phase, &self.saved, changed).await?;
                self.heal().await?;
                if !is_sealed {
                    self.tell(News::Warning(format!(
                        "the disk is full: phase `{name}` is saved, but has no checkpoint file"
                    )));
                }
            }
            Effect::StopBy(deadline) => self.stop_by(deadline),
            Effect::StartAttempt(brief) => {
                self.agent_io.idle_look = None;
                let happening = self.start_attempt(&brief).await?;
                return Ok(happening.into_iter().collect());
            }
            Effect::StopAttempt { why, at_once } => {
                return Ok(self.halt_turn(why, at_once));
            }
            // The code that receives the requests carries this out.
            Effect::AwaitStop(_) => {}
            Effect::Deliver(id) => return Ok(self.step_attempt(AttemptInput::Deliver(id))),
            Effect::InterruptTurn => return Ok(self.interrupt_turn()),
            Effect::GoOn => return Ok(self.go_on()),
            Effect::RunGate(index) => {
                let text = self.phase().gates[index as usize].clone();
                self.run_command(Command::Gate(index), text);
            }
            Effect::RunCheck => {
                let text = self
                    .phase()
                    .until
                    .clone()
                    .expect("the machine requests only a configured check");
                self.run_command(Command::Check, text);
            }
            Effect::StopCheck => {
                let budget = self.budget();
                if let Some(check) = &self.agent_io.check {
                    check.halt().within(budget);
                }
            }
            Effect::TimeOutCheck(limit) => {
                if let Some(check) = &self.agent_io.check {
                    check.time_out(limit);
                }
            }
            Effect::EndLeftovers => {
                return Ok(self.begin_settling().into_iter().collect());
            }
            Effect::PauseAt(boundary) => {
                return Ok(self.step_attempt(AttemptInput::PauseAt(boundary)));
            }
            Effect::PauseReason(reason) => {
                self.tell(News::PauseReason(reason.clone()));
                self.saved.pause_reason = Some(reason);
            }
            Effect::Refuse(why) => self.tell(News::Rejected(why)),
            Effect::Announce(Notice::Stopping) => {
                let (budget, awaited) = (self.budget(), self.awaited());
                self.show_awaited(awaited);
                self.tell(News::Stopping { budget, awaited });
            }
            Effect::Announce(notice) => {
                let recorded = match notice {
                    Notice::Steer {
                        id,
                        state: SteerState::Recorded,
                    } => Some(id),
                    _ => None,
                };
                if let Notice::AttemptStarted { .. } = notice {
                    self.tell_phase();
                }
                let steers = &self.machine.head().steers;
                if let Some(said) = recorded.and_then(|id| steers.iter().find(|it| it.id == id)) {
                    let (id, text) = (said.id, said.text.clone());
                    self.tell(News::Said { id, text });
                }
                self.tell(News::Run(notice));
                if let (Some(id), true) = (recorded, self.machine.keeps_steers()) {
                    self.tell(News::NextPrompt(id));
                }
            }
            Effect::Remind(Reminder::Silent { silent, of }) => {
                self.tell(News::Silent { silent, of });
            }
            Effect::Remind(Reminder::Waiting { until, left }) => {
                self.tell(News::StillWaiting { until, left });
            }
            Effect::Warn(warning) => self.warn(warning),
            // The event loop carries this out.
            Effect::Finish => {}
            _ => {}
        }
        Ok(Vec::new())
    }

    /// Reads the git status as required, and records the result.
    async fn refresh_saved(&mut self, sealed: bool) {
        self.saved.advance(self.machine.head());
        let head = &self.saved.machine;
        // A rule that changed during the run counts as a rule of the settings.
        self.saved.settings.follow(&head.rules);
        if !self.machine.is_held() {
            self.saved.pause_reason = None;
        }
        let glance = self.machine.glance(sealed);
        if glance != Glance::Skipped {
            let patient = glance == Glance::Awaited;
            let git = self.work_tree.project().git();
            let is_idle = self.agent_io.attempt.is_none()
                && self.agent_io.check.is_none()
                && self.agent_io.commands.is_none()
                && self.agent_io.settling.is_none();
            let now = Instant::now();
            let is_seen = |at| now.duration_since(at) < SEEN;
            if is_idle && !patient && self.agent_io.idle_look.is_some_and(is_seen) {
                let seen = git.last_glance();
                (self.saved.git_commit, self.saved.git_changed) = (seen.commit, seen.changed);
                return;
            }
            self.agent_io.idle_look = is_idle.then_some(now);
            tokio::select! {
                biased;
                seen = git.glance(patient) => {
                    (self.saved.git_commit, self.saved.git_changed) = (seen.commit, seen.changed);
                }
                // Keep the last status.
                () = self.requests.end_wanted() => {}
            }
        }
    }

    /// Returns the uncommitted files; `None` if git fails, or a press comes first.
    pub(super) async fn changed(&mut self) -> Option<Vec<String>> {
        tokio::select! {
            biased;
            changed = self.work_tree.project().git().changed() => changed,
            () = self.requests.end_wanted() => None,
        }
    }

    /// Reports the phase that begins or resumes, if there are several.
    fn tell_phase(&mut self) {
        let head = self.machine.head();
        let (at, of) = (head.phase, head.rules.phases.len());
        if of > 1 && self.told.phase.replace(at) != Some(at) {
            let name = head.phase_rules().name.clone();
            let (number, of) = (at + 1, u32::try_from(of).unwrap_or(u32::MAX));
            self.tell(News::Phase { name, number, of });
        }
    }

    pub(super) fn phase(&self) -> &PhaseSettings {
        &self.saved.settings.phases[self.phase_index()]
    }

    /// Creates a driver for the current attempt.
    pub(super) fn driver(&self) -> Result<Box<dyn Driver>, Error> {
        self.agent_io.drivers.make(self.phase(), self.context(""))
    }

    /// Starts the agent with its prompt. A failed start is not an error of the loop: the machine decides what follows.
    async fn start_attempt(&mut self, brief: &Brief) -> Result<Option<Happening>, Error> {
        let not_started =
            |why: String| Ok(Some(Happening::TurnEnded(TurnOutcome::NotStarted(why))));
        self.refresh_prompt().await?;
        let driver = match self.driver() {
            Ok(driver) => driver,
            Err(e) => return not_started(e.to_string()),
        };
        // Before the agent starts, so that its first changes count as its own.
        let can = driver.capabilities();
        let understands = can.has(Capability::Tools);
        let changed = match brief.cut.is_some() {
            true => self.changed().await,
            false => None,
        };
        let footprint = match understands {
            true => self.footprint().await,
            false => None,
        };
        if self.requests.is_end_wanted() || self.options.gate.is_shutdown() {
            self.agent_io.withheld = true;
            return Ok(None);
        }
        let settings = &self.saved.settings;
        let before =
            { self.phase_index().checked_sub(1) }.map(|it| settings.phases[it].name.as_str());
        let own = &self.prompts[self.phase_index()];
        let text = prompt::compose(brief, self.phase(), before, own, changed.as_deref());
        let transcript = self.begin_transcript(brief, &text);
        self.tidy(brief.iteration, brief.attempt).await;
        let session = brief.session.clone();
        let session = session.map_or(SessionChoice::Fresh, SessionChoice::Resume);
        let (conversation, primary) = Conversation::new(driver, Default::default());
        if let Err(e) = conversation.send(Input::new(text)) {
            return not_started(e.to_string());
        }
        let starting = conversation.clone();
        let starting = tokio::spawn(async move { starting.start(session).await });
        self.ends.ended.clear();
        let interruptible = can.has(Capability::Interrupt);
        let machine = AttemptMachine::new(AttemptOptions {
            understands,
            interruptible,
            steerable: interruptible && can.has(Capability::Steer),
            patience: self.phase().background_wait,
            promise: self.phase().promise.clone(),
            footprint,
            asks: match self.phase().permissions {
                Permissions::Ask => AskPolicy::Person,
                Permissions::All => AskPolicy::Allow,
                Permissions::Edits | Permissions::Deny => AskPolicy::Deny,
            },
            terminal: self.options.interactive,
        });
        let mut attempt = Attempt::new(conversation, primary, transcript, machine);
        attempt.tasks.starting = Some(starting);
        self.agent_io.attempt = Some(attempt);
        for steer in &brief.steers {
            self.tell(News::InPrompt(steer.id));
        }
        Ok(None)
    }

    /// Creates the attempt's transcript, with the prompt as its first record. If that fails, the attempt runs without one.
    fn begin_transcript(&mut self, brief: &Brief, text: &str) -> Option<Transcript> {
        let run_dir = self.work_tree.project().run_dir(&self.saved.run);
        let at = self.clock.now();
        let made = Transcript::create(&run_dir, brief.iteration, brief.attempt)
            .and_then(|mut transcript| transcript.note(at, "prompt", text).map(|()| transcript));
        let made = made.and_then(|mut transcript| {
            if let Some(before) = &brief.predecessor {
                let name = self.phase().agent.name();
                let what = format!("{name} continues the work of {before} in its own session");
                transcript.note(at, "note", &what)?;
            }
            Ok(transcript)
        });
        made.map_err(|e| {
            self.tell(News::Warning(format!(
                "can't create a transcript for this attempt: {e}"
            )));
        })
        .ok()
    }

    /// Returns the context that every process of the current attempt carries: its identity, its marker, and a share of the working tree's lock.
    ///
    /// `role` distinguishes the commands of the loop from the agent, whose leftovers may run at the same time.
    pub(super) fn context(&self, role: &str) -> Context {
        let head = self.machine.head();
        let member = format!("{}.{}{}", head.iteration, head.attempt, role);
        let identity = [
            ("RLM_RUN_ID", self.saved.run.to_string()),
            ("RLM_PHASE", self.phase().name.clone()),
            ("RLM_ITERATION", head.iteration.to_string()),
            ("RLM_ATTEMPT", head.attempt.to_string()),
            ("RLM_EPOCH", self.journal.epoch().to_string()),
        ];
        let run_dir = self.work_tree.project().run_dir(&self.saved.run);
        Context {
            cwd: self.saved.settings.directory.clone(),
            env: identity
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            marker: Some(Marker {
                variable: MARKER.into(),
                scope: scope_in(self.work_tree.project().tree(), &self.saved.scope),
                member,
            }),
            hold: Some(self.work_tree.lock()),
            scratch: scratch(self.work_tree.project(), &self.saved.run),
            // Somebody may have just removed the state. Until it is repaired, only a sweep finds the survivors.
            survivors_file: state_dir::is_dir(&run_dir).then(|| run_dir.join(REPORT)),
            stop: self.stop_policy(),
        }
    }

    fn stop_policy(&self) -> StopPolicy {
        StopPolicy {
            budget: self.options.stop_budget,
            ..StopPolicy::default()
        }
    }

    /// Reports the end of retained leftovers; returns how many were ended.
    pub(super) fn tell_kept_ended(
        &mut self,
        (alive, report): (Vec<ProcessName>, StopReport),
    ) -> usize {
        let processes = gone(alive, &report.survivors);
        let ended = processes.len();
        if !processes.is_empty() {
            let why = "retained for later attempts".into();
            self.tell(News::Ended { why, processes });
        }
        self.ends.ended.extend(report.ended);
        self.ends.proven &= report.proven;
        self.note_survivors(report.survivors);
        ended
    }

    /// Returns the shared deadlines of everything that runs.
    pub(super) fn hurries(&self) -> Vec<Hurry> {
        let check = self.agent_io.check.iter().map(|check| check.halt());
        let settling = self
            .agent_io
            .settling
            .iter()
            .map(|settling| settling.hurry());
        let attempt = self.agent_io.attempt.iter().map(|attempt| &attempt.hurry);
        let all = check.chain(settling).chain(attempt);
        all.chain(self.agent_io.kept.halts()).cloned().collect()
    }

    /// Ends everything, however the run ended. A request to stop moves the deadline; each other request gets the end as its answer.
    pub(super) async fn end_everything(&mut self) {
        self.sign(Happening::Ending);
        let hurries = self.hurries();
        let within = |budget| hurries.iter().for_each(|hurry| hurry.within(budget));
        within(self.budget());
        // From here on only stop requests are taken; the cleanup needs no others.
        let mut requests = std::mem::take(&mut self.requests);
        let (mut machine, mut clock) = (self.machine.clone(), self.clock.clone());
        let listens = async {
            loop {
                let Some(what) = requests.next().await.what.while_ending() else {
                    continue;
                };
                let at = clock.now();
                if !machine.step(Event { at, what }).is_empty() {
                    within(machine.budget(at));
                }
            }
        };
        tokio::select! {
            () = self.end_all() => {}
            () = listens => {}
        }
        (self.machine, self.requests) = (machine, requests);
    }

    async fn end_all(&mut self) {
        let budget = self.budget();
        let waits = self.awaited();
        self.show_end(budget, waits);
        if let Some(check) = &mut self.agent_io.check {
            let end = check.ended().await;
            self.agent_io.check = None;
            self.note_survivors(end.survivors);
        }
        if let Some(settling) = &mut self.agent_io.settling {
            let end = settling.ended().await;
            self.settled(end).await;
        }
        if self.agent_io.attempt.is_some() {
            self.stop_tree().await;
            self.agent_io.attempt = None;
        }
        if self.agent_io.kept.halts().next().is_some() {
            self.show_end(budget, Some(Awaited::Leftovers));
        }
        while let Some(end) = self.agent_io.kept.end_oldest(budget).await {
            self.tell_kept_ended(end);
        }
        self.show_end(budget, Some(Awaited::Git));
        self.end_looks(budget).await;
    }
}
