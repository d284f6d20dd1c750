//! Carries out the effects of the machine.

use std::sync::Arc;
use std::time::Duration;

use agent_duplex::{
    Capability, Conversation, ConversationOptions, Driver, Input, Permissions, ProcessName,
    SessionChoice, StopReport,
};
use agent_subprocess::{Containment, Marker, ProcessContext, StopPolicy};
use loop_state::{
    AskPolicy, AttemptInput, AttemptMachine, AttemptOptions, Effect, GitStatusWait, LoopCommand,
    MachineInput, PromptContext, Reminder, RunUpdate, SaveKind, SteerState, TimedInput,
    TurnOutcome,
};
use rlm_store::deadline::Deadline;
use rlm_store::journal::Journal;
use rlm_store::processes::without_survivors;
use rlm_store::sweep::{REPORT, scope_in, scratch};
use rlm_store::transcript::Transcript;
use rlm_store::{PhaseSettings, RunHead, marker_variable, state_dir, variable};
use tokio::time::Instant;

use crate::run_event::RunEvent;
use crate::runner::Runner;
use crate::runner::parts::attempt::AttemptHandles;
use crate::{Awaited, Error, prompt};

/// The time for which a git status stays valid while no process of the run works in the working tree.
const STATUS_MAX_AGE: Duration = Duration::from_millis(500);

impl Runner {
    /// Carries out one effect and returns the machine inputs that result at once.
    pub(super) async fn perform(&mut self, effect: Effect) -> Result<Vec<MachineInput>, Error> {
        match effect {
            Effect::Save => {
                self.update_saved_facts(SaveKind::Progress).await;
                self.work_tree.check_state_dir(&self.saved.run)?;
                self.save_now().await?;
                self.publish_items();
                self.repair().await?;
                self.restore_socket();
                self.notify_begun();
            }
            Effect::SavePhase { phase } => {
                self.update_saved_facts(SaveKind::FinishedPhase).await;
                let changed = self.uncommitted_files().await;
                let name = phase.clone();
                self.work_tree.check_state_dir(&self.saved.run)?;
                let save = async |journal: &mut Journal, head: &RunHead| {
                    journal.save_phase(phase, head, changed).await
                };
                let has_checkpoint = self.save_by(save).await?;
                self.repair().await?;
                if !has_checkpoint {
                    self.emit(RunEvent::Warning(format!(
                        "the disk is full: phase `{name}` is saved, but has no checkpoint file"
                    )));
                }
            }
            Effect::StopBy(deadline) => self.stop_by(deadline),
            Effect::StartAttempt(brief) => {
                self.processes.message = None;
                let input = self.start_attempt(&brief).await?;
                return Ok(input.into_iter().collect());
            }
            Effect::StopAttempt { why, at_once } => {
                return Ok(self.halt_turn(why, at_once));
            }
            // `apply_shutdown` carries this out.
            Effect::AwaitStop(_) => {}
            Effect::Deliver(id) => return Ok(self.step_attempt(AttemptInput::Deliver(id))),
            Effect::InterruptTurn => return Ok(self.interrupt_turn()),
            Effect::ContinueTurn => return Ok(self.continue_turn()),
            Effect::RunRequiredCheck(index) => {
                let text = self.phase().required_checks[index as usize].clone();
                self.run_command(LoopCommand::RequiredCheck(index), text);
            }
            Effect::RunCheck => {
                let text = self
                    .phase()
                    .check
                    .clone()
                    .expect("the machine requests only a configured check");
                self.run_command(LoopCommand::Check, text);
            }
            Effect::StopCheck => {
                let budget = self.budget();
                if let Some(check) = &self.processes.check {
                    check.deadline().tighten_to(budget);
                }
            }
            Effect::TimeOutCheck(limit) => {
                if let Some(check) = &self.processes.check {
                    check.time_out(limit);
                }
            }
            Effect::EndLeftovers => {
                return Ok(self.start_cleanup().into_iter().collect());
            }
            Effect::PauseAt(boundary) => {
                return Ok(self.step_attempt(AttemptInput::PauseAt(boundary)));
            }
            Effect::SavePauseReason(reason) => {
                self.emit(RunEvent::PauseReason(reason.clone()));
                self.saved.pause_reason = Some(reason);
            }
            Effect::RejectRequest(why) => self.emit(RunEvent::RequestRejected(why)),
            Effect::Emit(RunUpdate::Stopping) => {
                let (budget, awaited) = (self.budget(), self.awaited());
                self.note_awaited(awaited);
                self.emit(RunEvent::Stopping { budget, awaited });
            }
            Effect::Emit(RunUpdate::Paused) => {
                let reason = self.saved.pause_reason.clone();
                self.emit(RunEvent::Paused { reason });
            }
            Effect::Emit(notice) => {
                let recorded = match notice {
                    RunUpdate::SteerAdvanced {
                        id,
                        state: SteerState::Recorded,
                    } => Some(id),
                    _ => None,
                };
                if let RunUpdate::AttemptStarted { .. } = notice {
                    self.report_phase();
                }
                let steers = &self.machine.head().steers;
                if let Some(steer) = recorded.and_then(|id| steers.iter().find(|it| it.id == id)) {
                    let (id, text) = (steer.id, steer.text.clone());
                    self.emit(RunEvent::SteerRecorded { id, text });
                }
                self.emit(RunEvent::Update(notice));
                if let (Some(id), true) = (recorded, self.machine.keeps_steers()) {
                    self.emit(RunEvent::SteerNextTurn(id));
                }
            }
            Effect::Remind(Reminder::Silent { silent, of }) => {
                self.emit(RunEvent::AgentSilent { silent, of });
            }
            Effect::Remind(Reminder::Waiting { until, left }) => {
                self.emit(RunEvent::StillWaiting { until, left });
            }
            Effect::Warn(warning) => self.warn(warning),
            // The event loop carries this out.
            Effect::EndRun => {}
            _ => {}
        }
        Ok(Vec::new())
    }

    /// Shows the items to the program. The items of an earlier iteration are gone before anything of the next one starts.
    fn publish_items(&self) {
        let items = self.saved.items().values();
        self.control.items.send_if_modified(|shown| {
            let is_new = **shown != *items;
            if is_new {
                *shown = Arc::new(items.clone());
            }
            is_new
        });
    }

    /// Updates the values that a save contains: the machine's head, its rules and, if the machine requires it, the git status.
    async fn update_saved_facts(&mut self, save: SaveKind) {
        self.saved.advance(self.machine.head());
        let head = &self.saved.machine;
        // A rule that changed during the run counts as a rule of the settings.
        self.saved.settings.apply_rules(&head.rules);
        if !self.machine.is_pausing_or_paused() {
            self.saved.pause_reason = None;
        }
        let status_use = self.machine.git_status_wait(save);
        if status_use != GitStatusWait::Skipped {
            let must_wait = status_use == GitStatusWait::Awaited;
            let git = self.work_tree.project().git();
            let is_idle = self.processes.attempt.is_none()
                && self.processes.check.is_none()
                && self.processes.commands.is_none()
                && self.processes.cleanup.is_none();
            let now = Instant::now();
            if is_idle && !must_wait && self.recently_unchanged(now).is_some() {
                let status = git.last_status();
                (self.saved.git_commit, self.saved.git_changed) = (status.commit, status.changed);
                return;
            }
            self.processes.unchanged_since = is_idle.then_some(now);
            tokio::select! {
                biased;
                status = git.status(must_wait) => {
                    (self.saved.git_commit, self.saved.git_changed) = (status.commit, status.changed);
                }
                // Keep the last status.
                () = self.requests.stop_requested() => {}
            }
        }
    }

    /// Returns since when nothing of the run has worked in the working tree, if a git status from then is still valid.
    pub(super) fn recently_unchanged(&self, now: Instant) -> Option<Instant> {
        let since = self.processes.unchanged_since;
        since.filter(|since| now.duration_since(*since) < STATUS_MAX_AGE)
    }

    /// Returns the uncommitted files; `None` if git fails, or a stop is requested first.
    pub(super) async fn uncommitted_files(&mut self) -> Option<Vec<String>> {
        tokio::select! {
            biased;
            changed = self.work_tree.project().git().changed() => changed,
            () = self.requests.stop_requested() => None,
        }
    }

    /// Reports the phase that begins or resumes, if the run has several phases.
    fn report_phase(&mut self) {
        let head = self.machine.head();
        let (at, of) = (head.phase, head.rules.phases.len());
        if of > 1 && self.reported.phase.replace(at) != Some(at) {
            let name = head.phase_rules().name.clone();
            let (number, of) = (at + 1, u32::try_from(of).unwrap_or(u32::MAX));
            self.emit(RunEvent::Phase {
                name,
                number,
                count: of,
            });
        }
    }

    pub(super) fn phase(&self) -> &PhaseSettings {
        &self.saved.settings.phases[self.phase_index()]
    }

    /// Creates a driver for the current attempt.
    pub(super) fn driver(&self) -> Result<Box<dyn Driver>, Error> {
        let context = self.context_with_guard("");
        self.processes.drivers.make(self.phase(), context)
    }

    /// Starts the agent with its prompt. A failed start is not an error of the loop: the machine decides what follows.
    async fn start_attempt(
        &mut self,
        brief: &PromptContext,
    ) -> Result<Option<MachineInput>, Error> {
        let not_started =
            |why: String| Ok(Some(MachineInput::TurnEnded(TurnOutcome::NotStarted(why))));
        self.refresh_prompt().await?;
        let driver = match self.driver() {
            Ok(driver) => driver,
            Err(e) => return not_started(e.to_string()),
        };
        // Look at the working tree before the agent starts, so that the first changes of the agent count as its work.
        let can = driver.capabilities();
        let parses_output = can.has(Capability::Tools);
        let changed = match brief.unfinished.is_some() {
            true => self.uncommitted_files().await,
            false => None,
        };
        let fingerprint = match parses_output {
            true => self.fingerprint().await,
            false => None,
        };
        self.take_first_snapshot().await;
        self.processes.unchanged_since = None;
        if self.requests.is_stop_requested() || self.options.gate.is_shutdown() {
            self.processes.withheld = true;
            return Ok(None);
        }
        let settings = &self.saved.settings;
        let before =
            { self.phase_index().checked_sub(1) }.map(|it| settings.phases[it].name.as_str());
        let own = &self.prompts[self.phase_index()];
        let text = prompt::build_prompt(brief, self.phase(), before, own, changed.as_deref());
        let transcript = self.begin_transcript(brief, &text);
        self.prune_transcripts(brief.iteration, brief.attempt).await;
        let session = match (&brief.session, &brief.new_session) {
            (Some(id), _) => SessionChoice::Resume(id.clone()),
            (None, Some(id)) => SessionChoice::Create(id.clone()),
            (None, None) => SessionChoice::Fresh,
        };
        let (conversation, primary) =
            Conversation::with_primary(driver, ConversationOptions::default().with_manual_start());
        if let Err(e) = conversation.send(Input::new(text)) {
            return not_started(e.to_string());
        }
        let starting = conversation.clone();
        let starting = tokio::spawn(async move { starting.start(session).await });
        self.ended_processes.ended.clear();
        let interruptible = can.has(Capability::Interrupt);
        let machine = AttemptMachine::new(AttemptOptions {
            parses_output,
            interruptible,
            steerable: interruptible && can.has(Capability::Steer),
            task_timeout: self.phase().background_task_timeout,
            promise: self.phase().promise.clone(),
            fingerprint,
            asks: match self.phase().permissions {
                Permissions::Ask => AskPolicy::Person,
                Permissions::All => AskPolicy::Allow,
                Permissions::Edits | Permissions::Deny => AskPolicy::Deny,
            },
            terminal: self.options.interactive,
        });
        let mut attempt = AttemptHandles::new(conversation, primary, transcript, machine);
        attempt.tasks.starting = Some(starting);
        self.processes.attempt = Some(attempt);
        for steer in &brief.steers {
            self.emit(RunEvent::InPrompt(steer.id));
        }
        Ok(None)
    }

    /// Creates the attempt's transcript, with the prompt as its first record. If that fails, the attempt runs without one.
    fn begin_transcript(&mut self, brief: &PromptContext, text: &str) -> Option<Transcript> {
        let run_dir = self.work_tree.project().run_dir(&self.saved.run);
        let at = self.clock.now();
        let made = Transcript::create(&run_dir, brief.iteration, brief.attempt)
            .and_then(|mut transcript| transcript.note(at, "prompt", text).map(|()| transcript));
        let made = made.and_then(|mut transcript| {
            if let Some(before) = &brief.previous_agent {
                let name = self.phase().agent.name();
                let what = format!("{name} continues the work of {before} in its own session");
                transcript.note(at, "note", &what)?;
            }
            Ok(transcript)
        });
        made.map_err(|e| {
            self.emit(RunEvent::Warning(format!(
                "can't create a transcript for this attempt: {e}"
            )));
        })
        .ok()
    }

    /// Returns the context that every process of the current attempt gets: the identity of the attempt, its marker, and a share of the working tree's
    /// lock.
    ///
    /// `role` distinguishes the commands of the loop from the agent, whose leftovers can run at the same time.
    pub(super) fn context(&self, role: &str) -> ProcessContext {
        let head = self.machine.head();
        let member = format!("{}.{}{}", head.iteration, head.attempt, role);
        let identity = [
            ("RUN_ID", self.saved.run.to_string()),
            ("PHASE", self.phase().name.clone()),
            ("ITERATION", head.iteration.to_string()),
            ("ATTEMPT", head.attempt.to_string()),
            ("EPOCH", self.journal.epoch().to_string()),
        ];
        let run_dir = self.work_tree.project().run_dir(&self.saved.run);
        ProcessContext {
            cwd: self.saved.settings.directory.clone(),
            env: identity
                .into_iter()
                .map(|(name, value)| (variable(name).into(), value.into()))
                .collect(),
            marker: Some(Marker {
                variable: marker_variable().into(),
                scope: scope_in(self.work_tree.project().tree(), &self.saved.scope),
                member,
            }),
            hold: Some(self.work_tree.lock()),
            scratch: scratch(self.work_tree.project(), &self.saved.run),
            // Somebody has possibly just removed the state. Until it is repaired, only a sweep finds the survivors.
            survivors_file: state_dir::is_dir(&run_dir).then(|| run_dir.join(REPORT)),
            stop: self.stop_policy(),
            // Each report states whether there was a guard.
            containment: Containment::Auto,
            warm_guard: None,
        }
    }

    /// Returns the context of an agent or a command, whose guard possibly waits already.
    pub(super) fn context_with_guard(&self, role: &str) -> ProcessContext {
        ProcessContext {
            warm_guard: Some(self.processes.warm_guard.clone()),
            ..self.context(role)
        }
    }

    fn stop_policy(&self) -> StopPolicy {
        StopPolicy {
            budget: self.options.stop_budget,
            ..StopPolicy::default()
        }
    }

    /// Reports the end of retained leftovers; returns how many were ended.
    pub(super) fn report_retained_ended(
        &mut self,
        (alive, report): (Vec<ProcessName>, StopReport),
    ) -> usize {
        let processes = without_survivors(alive, &report.survivors);
        let ended = processes.len();
        if !processes.is_empty() {
            let why = "retained for later attempts".into();
            let run = None;
            self.emit(RunEvent::ProcessesEnded {
                why,
                run,
                processes,
            });
        }
        self.ended_processes.ended.extend(report.ended);
        self.ended_processes.proven &= report.proven;
        self.note_survivors(report.survivors);
        ended
    }

    /// Returns the shared deadlines of everything that runs.
    pub(super) fn deadlines(&self) -> Vec<Deadline> {
        let check = self.processes.check.iter().map(|check| check.deadline());
        let cleanup = self
            .processes
            .cleanup
            .iter()
            .map(|cleanup| cleanup.deadline());
        let attempt = self
            .processes
            .attempt
            .iter()
            .map(|attempt| &attempt.deadline);
        let all = check.chain(cleanup).chain(attempt);
        all.chain(self.processes.retained.deadlines())
            .cloned()
            .collect()
    }

    /// Ends all processes of the run, whatever the stop reason is. A stop request moves the deadline earlier; the response to each other request is
    /// the end of the run.
    pub(super) async fn stop_everything(&mut self) {
        let at = self.clock.now();
        self.update_activity(at, MachineInput::Ending);
        let deadlines = self.deadlines();
        let within = |budget| {
            deadlines
                .iter()
                .for_each(|deadline| deadline.tighten_to(budget))
        };
        within(self.budget());
        // From here on, the run accepts only stop requests; the cleanup needs no others.
        let mut requests = std::mem::take(&mut self.requests);
        let (mut machine, mut clock) = (self.machine.clone(), self.clock.clone());
        let take_stops = async {
            loop {
                let Some(what) = requests.next().await.control.while_ending() else {
                    continue;
                };
                let at = clock.now();
                if !machine.step(TimedInput { at, what }).is_empty() {
                    within(machine.budget(at));
                }
            }
        };
        tokio::select! {
            () = self.stop_all() => {}
            () = take_stops => {}
        }
        (self.machine, self.requests) = (machine, requests);
    }

    async fn stop_all(&mut self) {
        // The end of the run waits for the end of the guard.
        drop(self.processes.warm_guard.discard());
        let budget = self.budget();
        let waits = self.awaited();
        self.show_end(budget, waits);
        if let Some(check) = &mut self.processes.check {
            let end = check.ended().await;
            self.processes.check = None;
            self.ended_processes.proven &= end.proven;
            self.note_survivors(end.survivors);
        }
        if let Some(cleanup) = &mut self.processes.cleanup {
            let end = cleanup.ended().await;
            self.cleanup_ended(end).await;
        }
        if self.processes.attempt.is_some() {
            self.stop_process_tree().await;
            self.processes.attempt = None;
        }
        if self.processes.retained.deadlines().next().is_some() {
            self.show_end(budget, Some(Awaited::Leftovers));
        }
        while let Some(end) = self.processes.retained.stop_oldest(budget).await {
            self.report_retained_ended(end);
        }
        self.show_end(budget, Some(Awaited::Git));
        self.stop_git_processes(budget).await;
    }
}
