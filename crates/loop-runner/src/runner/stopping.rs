//! The end of a turn, the cleanup after an attempt, and the waits of a stop.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agent_duplex::{EndReason, StopReport, TurnEnd};
use loop_state::{
    AgentState, AttemptInput, MachineInput, ProcessTreeOutcome, SteerState, StopTiming, TimedInput,
    Timestamp, TurnOutcome,
};
use rlm_store::journal::Journal;
use rlm_store::processes::without_survivors;
use rlm_store::transcript::Transcript;
use rlm_store::{Leftovers, RunHead, sessions};
use tokio::sync::watch;

use crate::run_event::RunEvent;
use crate::runner::Runner;
use crate::runner::parts::attempt::AttemptHandles;
use crate::runner::parts::cleanup::{AttemptCleanup, CleanupOutcome};
use crate::runner::parts::first_input;
use crate::{Awaited, Error, StopProgress, View};

impl Runner {
    /// Flushes due records, and reports the passed time to the attempt machine.
    pub(super) fn time_passed(&mut self) -> Vec<MachineInput> {
        let now = self.clock.now();
        let flush_at = self
            .processes
            .attempt
            .as_ref()
            .and_then(AttemptHandles::flush_at);
        if flush_at.is_some_and(|at| at <= now) {
            self.write_transcript(Transcript::flush);
        }
        self.step_attempt(AttemptInput::TimePassed)
    }

    /// Interrupts the turn for a person; the session stays open.
    ///
    /// If only background tasks run, ends the wait for them, unless an input is queued that begins a turn.
    pub(super) fn interrupt_turn(&mut self) -> Vec<MachineInput> {
        self.step_attempt(AttemptInput::Interrupt)
    }

    /// Asks the agent to end its turn.
    pub(super) fn halt_turn(&mut self, why: Option<String>, at_once: bool) -> Vec<MachineInput> {
        if std::mem::take(&mut self.processes.withheld) {
            return vec![MachineInput::TurnEnded(TurnOutcome::Stopped)];
        }
        let budget = self.budget();
        if let Some(why) = why {
            self.emit(RunEvent::EndingTurn { why, budget });
        }
        self.step_attempt(AttemptInput::Stop {
            skip_interrupt: at_once,
        })
    }

    /// Adds the position of the agent's session, and the steers in it, before the end of a turn. An agent that is stopped can't report them, and the
    /// machine needs them before the next attempt begins.
    pub(super) async fn with_saved_session(
        &mut self,
        mut inputs: Vec<MachineInput>,
    ) -> Vec<MachineInput> {
        let is_end = |input: &MachineInput| matches!(input, MachineInput::TurnEnded(_));
        let Some(end) = inputs.iter().position(is_end) else {
            return inputs;
        };
        let is_reported = std::mem::take(&mut self.reported.session_saved);
        // Such an agent has not opened a session.
        let is_unopened = matches!(
            &inputs[end],
            MachineInput::TurnEnded(
                TurnOutcome::NotStarted(_)
                    | TurnOutcome::SessionInUse(_)
                    | TurnOutcome::SessionLost
            )
        );
        let head = self.machine.head();
        let stopping = head.stopping.map(|request| request.when);
        let is_stopping = stopping == Some(StopTiming::Now);
        // A stop leaves an unfinished attempt, also if a limit has begun to end the turn. Its resume reads the position itself, so that the stop doesn't
        // take longer.
        if is_reported || is_unopened || is_stopping || !self.phase().agent.has_durable_sessions() {
            return inputs;
        }
        let Some(id) = head.session.clone() else {
            return inputs;
        };
        let run_dir = self.work_tree.project().run_dir(&self.saved.run);
        let session = tokio::task::spawn_blocking(move || sessions::read(&run_dir, &id));
        let session = tokio::select! {
            biased;
            session = session => session.ok().flatten(),
            () = self.requests.stop_requested() => None,
        };
        let Some(session) = session else {
            return inputs;
        };
        let steers = first_input::steers_in(&session, self.machine.head()).into_iter();
        let state = SteerState::Seen;
        let seen = steers.map(|id| MachineInput::SteerAdvanced { id, state });
        let position = session.position;
        let saved = [MachineInput::SessionSaved { position }].into_iter();
        inputs.splice(end..end, saved.chain(seen));
        inputs
    }

    /// Handles the end of the attempt's process tree.
    pub(super) fn process_tree_ended(&mut self, report: Option<StopReport>) -> Vec<MachineInput> {
        self.count_ended(report);
        let inputs = self.step_attempt(AttemptInput::TreeGone);
        self.refresh_view();
        inputs
    }

    /// Ends the process tree of the attempt, and waits for it.
    pub(super) async fn stop_process_tree(&mut self) {
        // Nothing waits for the turn any more.
        let _ignored = self.step_attempt(AttemptInput::End);
        let attempt = self.processes.attempt.as_mut();
        if let Some(ending) = attempt.and_then(|attempt| attempt.tasks.ending.take()) {
            let report = ending.await.ok();
            let _ignored = self.process_tree_ended(report);
        }
    }

    pub(super) fn count_ended(&mut self, report: Option<StopReport>) {
        let Some(report) = report else {
            self.ended_processes.proven = false;
            return;
        };
        self.ended_processes.ended.extend(report.ended);
        self.ended_processes.proven &= report.proven;
        self.note_survivors(report.survivors);
    }

    /// Returns the part that a stop of the run waits for.
    pub(super) fn awaited(&self) -> Option<Awaited> {
        let check = self
            .processes
            .check
            .as_ref()
            .map(|check| check.command.into());
        let cleanup = || {
            self.processes
                .cleanup
                .as_ref()
                .map(|cleanup| cleanup.awaited())
        };
        let attempt = self
            .processes
            .attempt
            .as_ref()
            .filter(|it| it.machine.agent() != AgentState::Gone);
        let agent = || {
            attempt.map(|attempt| Awaited::Agent {
                pid: attempt.reports.pid,
            })
        };
        check.or_else(cleanup).or_else(agent)
    }

    /// Publishes the awaited part, if the run is stopping.
    pub(super) fn note_awaited(&mut self, awaited: Option<Awaited>) {
        if let Some(by) = self.machine.deadline().by() {
            let now = self.clock.now();
            note(&self.control.shutdown, &self.control.view, by, awaited, now);
        }
    }

    /// Publishes the part that the end of the run waits for, also without a stop.
    pub(super) fn show_end(&mut self, budget: Duration, awaited: Option<Awaited>) {
        let now = self.clock.now();
        let by = self.machine.deadline().by().unwrap_or(now + budget);
        note(&self.control.shutdown, &self.control.view, by, awaited, now);
    }

    /// Saves the run, as [`save_by`](Self::save_by) does.
    pub(super) async fn save_now(&mut self) -> Result<(), Error> {
        self.save_by(Journal::save).await
    }

    /// Saves the run by a call of its journal. A stop that is requested meanwhile begins at once, so that its countdown does not wait for the save. A
    /// save can take long: the replica of a run can be away for a while.
    pub(super) async fn save_by<T>(
        &mut self,
        save: impl AsyncFnOnce(&mut Journal, &RunHead) -> Result<T, rlm_store::Error>,
    ) -> Result<T, Error> {
        self.note_awaited(Some(Awaited::Save));
        let saved = {
            let save = save(&mut self.journal, &self.saved);
            tokio::pin!(save);
            tokio::select! {
                biased;
                saved = &mut save => saved,
                () = self.requests.stop_requested() => {
                    let at = self.clock.now();
                    let what = self.requests.announced_stop();
                    // The effects are carried out when the request is processed.
                    let _later = self.machine.step(TimedInput { at, what });
                    let by = self.machine.deadline().by().unwrap_or(at);
                    note(&self.control.shutdown, &self.control.view, by, Some(Awaited::Save), at);
                    save.await
                }
            }
        };
        self.note_awaited(self.awaited());
        Ok(saved?)
    }

    /// Begins to end the attempt's leftovers, or to retain them. Returns the machine input if there is nothing to end.
    pub(super) fn start_cleanup(&mut self) -> Option<MachineInput> {
        let budget = self.budget();
        let (commit, comparison) = (self.pending_commit(), self.pending_comparison());
        let attempt = self.processes.attempt.take();
        if attempt.is_none() && commit.is_none() {
            return Some(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()));
        }
        self.processes.unchanged_since = None;
        let keep =
            self.saved.settings.leftovers == Leftovers::Retain && self.machine.keeps_leftovers();
        let cleanup = AttemptCleanup::begin(attempt, commit, comparison, keep, budget);
        if let Some(left) = self.machine.ends_within(self.clock.now()) {
            cleanup.deadline().tighten_to(left);
        }
        self.processes.cleanup = Some(cleanup);
        None
    }

    pub(super) async fn cleanup_ended(
        &mut self,
        outcome: Option<Box<CleanupOutcome>>,
    ) -> MachineInput {
        self.processes.cleanup = None;
        let before = self.ended_processes.survivors.len();
        let mut ended = 0;
        let (mut tree, commit, compared) =
            outcome.map_or((None, None, None), |it| (it.tree, it.commit, it.compared));
        if let Some(compared) = compared {
            let transcript = tree.as_mut().and_then(|it| it.attempt.transcript.as_mut());
            self.compared(compared, transcript);
        }
        if let Some(tree) = tree {
            match tree.report {
                None => {
                    let budget = self.budget();
                    let oldest = self.processes.retained.keep(tree.attempt, budget).await;
                    for end in oldest {
                        ended += self.report_retained_ended(end);
                    }
                }
                Some(report) => {
                    let processes = without_survivors(tree.leftovers, &report.survivors);
                    ended = processes.len();
                    if !processes.is_empty() {
                        self.emit(RunEvent::ProcessesEnded {
                            why: "left running by the agent".into(),
                            run: None,
                            processes,
                        });
                    }
                    if tree.attempt.machine.agent() != AgentState::Gone {
                        self.ended_processes.ended.extend(report.ended);
                        self.ended_processes.proven &= report.proven;
                    }
                    self.note_survivors(report.survivors);
                }
            }
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let leftovers_ended = MachineInput::LeftoversEnded(ProcessTreeOutcome {
            ended: count(ended),
            survivors: count(self.ended_processes.survivors.len() - before),
        });
        if let Some(commit) = commit {
            self.committed(commit, &leftovers_ended);
        }
        leftovers_ended
    }
}

/// Returns how a turn failed, unless it succeeded or was ended from outside.
pub(super) fn failure(outcome: &TurnOutcome) -> Option<&str> {
    match outcome {
        TurnOutcome::SessionLost => Some("the session does not exist"),
        TurnOutcome::Failed(why)
        | TurnOutcome::Transient(why)
        | TurnOutcome::ServiceUnavailable { why, .. }
        | TurnOutcome::AgentUnusable(why)
        | TurnOutcome::SessionInUse(why)
        | TurnOutcome::NotStarted(why) => Some(why),
        _ => None,
    }
}

/// Converts a time from the service; `None` if it is before 1970.
pub(super) fn timestamp(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis())
        .ok()
        .map(Timestamp::from_millis)
}

/// Returns how a turn failed, with the agent's last error message.
pub(super) fn describe(end: &TurnEnd) -> String {
    let mut text = match (end.reason, end.exit) {
        (EndReason::Interrupted, _) => "the agent was interrupted".to_owned(),
        (reason, _) if !end.detail.is_empty() => format!("{reason}: {}", end.detail),
        (EndReason::Failed | EndReason::Died, Some(exit)) => format!("the agent ended: {exit}"),
        (EndReason::Died, None) => {
            "the agent ended without reporting the end of its turn".to_owned()
        }
        (reason, _) => reason.to_string(),
    };
    let lines = end.output_tail.lines().rev();
    if let Some(last) = lines
        .map(str::trim)
        .find(|line| line.contains(char::is_alphanumeric))
    {
        let last: String = last.chars().take(200).collect();
        text.push_str(&format!(" ({last})"));
    }
    text
}

/// Publishes the progress of the stop to the countdown and the viewers. The view of the saved state does not change.
fn note(
    shutdown: &watch::Sender<Option<StopProgress>>,
    view: &watch::Sender<Arc<View>>,
    by: Timestamp,
    awaited: Option<Awaited>,
    now: Timestamp,
) {
    let before = *shutdown.borrow();
    let stop = Some(StopProgress::now(before, by, awaited, now));
    if stop != before {
        shutdown.send_replace(stop);
        view.send_modify(|view| Arc::make_mut(view).shutdown = stop);
    }
}
