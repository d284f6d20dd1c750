//! Builds a timeline by a replay of events. This module does no I/O.

use loop_state::{
    CheckResult, Effect, Head, IterationStep, LoopCommand as Which, Machine, MachineInput,
    RunUpdate, SteerState, StopRequest, TimedInput, Timestamp, UnfinishedCause, UsageTotal,
    WaitCause as WaitKind, first_bytes, last_bytes,
};

use super::{
    AttemptSpan, CommandRun, PhaseSpan, ProcessEnd, RunProcess, SteerRecord, Timeline,
    TimelineEvent, TimelineEventKind, WaitSpan, WaitedFor,
};
use crate::{AttemptOutcome, RunHead, RunState};

/// The largest number of bytes of output and failures that a timeline has in full.
const MAX_OUTPUT: usize = 4 << 20;
/// Above that limit, the number of bytes that stay of each older output.
const CLIPPED: usize = 400;
/// The largest number of bytes of one steer.
const MAX_STEER: usize = 4096;

/// Replays the events of a run. `oldest` is the oldest stored state of the run.
pub(super) fn timeline(
    head: RunHead,
    state: RunState,
    events: &[TimedInput],
    oldest: Option<Head>,
) -> Timeline {
    let (first, skip) = match &head.origin {
        Some(origin) => (Some(origin.head.clone()), origin.events),
        None => (Head::new(head.machine.rules.clone()).ok(), 0),
    };
    let own = events.get(usize::try_from(skip).unwrap_or(usize::MAX)..);
    let own = own.unwrap_or_default();
    let mut unknown = Vec::new();
    let mut folds = first
        .into_iter()
        .map(|first| TimelineBuilder::of(first, own));
    let fold = match folds.next() {
        Some(fold) if fold.ends_like(&head.machine) => fold,
        other => match oldest {
            Some(oldest) if oldest.counts.processes > 0 => {
                let at = oldest.last_at;
                let later = own.partition_point(|event| event.at <= at);
                let before = oldest.counts.attempts.saturating_sub(1);
                let late = TimelineBuilder::of(oldest, &own[later..]);
                match other.filter(|_| !late.ends_like(&head.machine)) {
                    Some(fold) => {
                        unknown.push(INEXACT.to_owned());
                        fold
                    }
                    None => {
                        unknown.push(begins_late(before));
                        late
                    }
                }
            }
            _ => {
                unknown.push(INEXACT.to_owned());
                other.unwrap_or_else(|| TimelineBuilder::of(head.machine.clone(), &[]))
            }
        },
    };
    fold.finish(head, state, unknown)
}

const INEXACT: &str = "the stored events don't lead to the stored state, so data was lost: the outcomes of attempts may be wrong here";

fn begins_late(before: u32) -> String {
    format!(
        "the stored events don't lead from the beginning to the stored state, so data was lost: the first {before} attempts are missing here"
    )
}

/// The parts of a state before an event.
struct Previous {
    step: IterationStep,
    usage: UsageTotal,
    unfinished_attempts: u32,
    denied: u32,
    steers: u32,
    processes: u32,
    is_over: bool,
    last_at: Timestamp,
    stopping: Option<StopRequest>,
    is_redo_requested: bool,
}

struct TimelineBuilder {
    machine: Machine,
    phases: Vec<PhaseSpan>,
    attempts: Vec<AttemptSpan>,
    waits: Vec<WaitSpan>,
    processes: Vec<RunProcess>,
    steers: Vec<SteerRecord>,
    events: Vec<TimelineEvent>,
    /// The attempts that count, by index.
    counting: Vec<usize>,
    /// The unseen steers, by index.
    unseen: Vec<usize>,
    /// Whether the last wait has not ended.
    waiting: bool,
    command_since: Timestamp,
    /// The bytes of stored output, and the first attempt with complete output.
    output: usize,
    whole_from: usize,
}

impl TimelineBuilder {
    fn of(head: Head, events: &[TimedInput]) -> Self {
        let mut fold = Self {
            phases: Vec::new(),
            attempts: Vec::new(),
            waits: Vec::new(),
            processes: Vec::new(),
            steers: Vec::new(),
            events: Vec::new(),
            counting: Vec::new(),
            unseen: Vec::new(),
            waiting: false,
            command_since: Timestamp::default(),
            output: 0,
            whole_from: 0,
            machine: Machine::from(head),
        };
        fold.begin();
        for event in events {
            fold.take(event);
        }
        fold
    }

    /// Begins with the open attempt and the open wait of a state that is not the first one of the run.
    fn begin(&mut self) {
        let head = self.machine.head().clone();
        if head.counts.processes == 0 || head.parent.is_some() && head.counts.attempts == 0 {
            return;
        }
        self.process(head.taken_at, None, None);
        if let Some(end) = &head.end {
            self.close(end.at, &ProcessEnd::Ended(end.reason.to_string()));
        }
        if head.attempt > 0
            && matches!(
                head.step,
                IterationStep::Turn { .. } | IterationStep::Interrupted { .. }
            )
        {
            self.attempt(head.last_at, head.continues_session);
        }
        self.wait(head.last_at);
    }

    /// Returns whether the replayed state equals the saved one, as far as a timeline shows.
    fn ends_like(&self, saved: &Head) -> bool {
        let shown = |head: &Head| {
            let at = (head.phase, head.iteration, head.attempt);
            (at, head.counts, head.usage, head.end.is_some())
        };
        shown(self.machine.head()) == shown(saved)
    }

    fn take(&mut self, event: &TimedInput) {
        let (at, head) = (event.at, self.machine.head());
        let before = Previous {
            step: head.step.clone(),
            usage: head.usage,
            unfinished_attempts: head.counts.unfinished_attempts,
            denied: head.counts.denied,
            steers: head.counts.steers,
            processes: head.counts.processes,
            is_over: head.end.is_some(),
            last_at: head.last_at,
            stopping: head.stopping,
            is_redo_requested: head.redo.is_some(),
        };
        let effects = self.machine.step(event.clone());
        if self.machine.head().counts.processes > before.processes {
            if !before.is_over {
                self.close(before.last_at, &ProcessEnd::Died);
            }
            let (from, predecessor) = match &event.what {
                MachineInput::Resumed(resume) => {
                    (resume.from_iteration, resume.previous_agent.clone())
                }
                _ => (None, None),
            };
            self.process(at, from, predecessor);
            if matches!(&event.what, MachineInput::Resumed(resume) if resume.highest_used_attempt.is_some())
            {
                self.moment(at, TimelineEventKind::DataLost);
            }
        }
        self.command(&before, &event.what, at);
        self.turn(&before, &event.what, at);
        self.used(&before);
        self.record_steers(&before, at);
        if let MachineInput::Thawed(time) = event.what {
            let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            self.moment(at, TimelineEventKind::Suspended(time));
        }
        for effect in &effects {
            match effect {
                Effect::RunRequiredCheck(_) | Effect::RunCheck => self.command_since = at,
                Effect::SavePhase { .. } => self.phase_over(),
                Effect::StartAttempt(brief) => self.started(brief.session.is_some(), event),
                Effect::Emit(update) => self.record_update(update, event),
                _ => {}
            }
        }
        self.wait(at);
        self.trim_output();
    }

    /// Ends the open parts of a process.
    fn close(&mut self, at: Timestamp, how: &ProcessEnd) {
        if let Some(process) = self.processes.last_mut().filter(|it| it.ended.is_none()) {
            process.ended = Some(at);
            process.end = how.clone();
        }
        if std::mem::take(&mut self.waiting)
            && let Some(wait) = self.waits.last_mut()
        {
            wait.ended = Some(at);
        }
    }

    fn process(&mut self, at: Timestamp, from: Option<u32>, predecessor: Option<String>) {
        self.processes.push(RunProcess {
            number: self.machine.head().counts.processes,
            began: at,
            ended: None,
            end: ProcessEnd::Live,
            from,
            predecessor,
        });
    }

    /// Records the result of a required check or the check.
    fn command(&mut self, before: &Previous, what: &MachineInput, at: Timestamp) {
        let gates = self.machine.head().phase_rules().required_checks;
        let (which, is_recheck) = match (what, &before.step) {
            (MachineInput::RequiredCheckEnded(_), IterationStep::RequiredCheck { index }) => {
                (Which::RequiredCheck(*index), false)
            }
            (MachineInput::RequiredCheckEnded(_), IterationStep::Recheck { index }) => {
                (Which::RequiredCheck(*index), true)
            }
            (MachineInput::CheckEnded(_), IterationStep::Check) => (Which::Check, false),
            (MachineInput::CheckEnded(_), IterationStep::Recheck { index }) if *index >= gates => {
                (Which::Check, true)
            }
            _ => return,
        };
        let (MachineInput::RequiredCheckEnded(result) | MachineInput::CheckEnded(result)) = what
        else {
            return;
        };
        let began = self.command_since;
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.commands.push(CommandRun {
                command: which,
                began,
                ended: at,
                result: result.clone(),
                left_out: 0,
                is_recheck,
            });
            if let CheckResult::Failed(text) | CheckResult::NotRun(text) = result {
                self.output += text.len();
            }
        }
    }

    /// Records the messages of people, and their progress.
    fn record_steers(&mut self, before: &Previous, at: Timestamp) {
        let head = self.machine.head();
        if head.counts.steers == before.steers && self.unseen.is_empty() {
            return;
        }
        for steer in head.steers.iter().filter(|steer| steer.id > before.steers) {
            self.unseen.push(self.steers.len());
            self.steers.push(SteerRecord {
                id: steer.id,
                at: steer.at,
                text: first_bytes(&steer.text, MAX_STEER).to_owned(),
                state: SteerState::Recorded,
                state_at: steer.at,
            });
        }
        let steers = &mut self.steers;
        self.unseen.retain(|index| {
            let record = &mut steers[*index];
            let now = head.steers.iter().find(|steer| steer.id == record.id);
            let state = now.map_or(SteerState::Seen, |steer| steer.state);
            if state != record.state {
                (record.state, record.state_at) = (state, at);
            }
            now.is_some()
        });
    }

    fn record_update(&mut self, update: &RunUpdate, event: &TimedInput) {
        let at = event.at;
        let what = match update {
            RunUpdate::IterationEnded {
                failure, leftovers, ..
            } => {
                if let Some(attempt) = self.attempts.last_mut() {
                    attempt.outcome = failure
                        .clone()
                        .map_or(AttemptOutcome::Complete, AttemptOutcome::Failed);
                    attempt.ended = Some(at);
                    attempt.leftovers = leftovers.ended;
                    attempt.survivors = leftovers.survivors;
                    self.output += failure.as_ref().map_or(0, String::len);
                }
                return;
            }
            RunUpdate::Ended(reason) => {
                return self.close(at, &ProcessEnd::Ended(reason.to_string()));
            }
            RunUpdate::Waiting { what, .. } => {
                self.wait(at);
                if let Some(wait) = self.waits.last_mut().filter(|_| self.waiting) {
                    wait.message.clone_from(what);
                }
                return;
            }
            RunUpdate::Interrupted => TimelineEventKind::Interrupted,
            RunUpdate::Continued => TimelineEventKind::Continued,
            RunUpdate::Pausing => TimelineEventKind::Pausing,
            RunUpdate::StoppingAfterIteration | RunUpdate::Stopping => {
                let Some(stop) = event.what.stop() else {
                    return;
                };
                TimelineEventKind::Stopping(stop)
            }
            RunUpdate::Redoing(again) => TimelineEventKind::Redone(*again),
            RunUpdate::Reviewed(decision) => TimelineEventKind::Reviewed(decision.clone()),
            RunUpdate::RuleChanged(change) | RunUpdate::PhaseRuleChanged { change, .. } => {
                TimelineEventKind::RuleChanged(*change)
            }
            RunUpdate::NoProgress { in_a_row } => TimelineEventKind::NoProgress(*in_a_row),
            RunUpdate::SessionLost => TimelineEventKind::SessionLost,
            _ => return,
        };
        self.moment(at, what);
    }

    fn moment(&mut self, at: Timestamp, what: TimelineEventKind) {
        self.events.push(TimelineEvent { at, kind: what });
    }

    /// Updates the waits.
    fn wait(&mut self, at: Timestamp) {
        let head = self.machine.head();
        let waits = match &head.step {
            _ if head.end.is_some() => None,
            IterationStep::Sleeping { until } => Some((WaitedFor::Sleep, Some(*until))),
            IterationStep::Waiting { until, why, .. } => Some(match why {
                WaitKind::RateLimit => (WaitedFor::RateLimit, Some(*until)),
                _ => (WaitedFor::Retry, Some(*until)),
            }),
            IterationStep::Paused { .. } => Some((WaitedFor::Pause, None)),
            IterationStep::Review { point: of, .. } => Some((WaitedFor::Review(*of), None)),
            IterationStep::Interrupted { .. } => Some((WaitedFor::Interrupt, None)),
            _ => None,
        };
        // A wait that ends at once does not count.
        let waits = waits.filter(|(_, until)| until.is_none_or(|until| until > at));
        let present = self.waits.last().filter(|_| self.waiting);
        if waits == present.map(|wait| (wait.cause, wait.until)) {
            return;
        }
        if self.waiting
            && let Some(wait) = self.waits.last_mut()
        {
            wait.ended = Some(at);
        }
        self.waiting = waits.is_some();
        self.waits.extend(waits.map(|(why, until)| WaitSpan {
            cause: why,
            began: at,
            until,
            ended: None,
            message: None,
        }));
    }

    /// Shortens the output of the oldest commands if the total is too large.
    fn trim_output(&mut self) {
        while self.output > MAX_OUTPUT && self.whole_from + 1 < self.attempts.len() {
            let attempt = &mut self.attempts[self.whole_from];
            self.whole_from += 1;
            for command in &mut attempt.commands {
                if let CheckResult::Failed(text) | CheckResult::NotRun(text) = &mut command.result {
                    let all = text.len();
                    *text = last_bytes(text, CLIPPED).to_owned();
                    command.left_out = all - text.len();
                    self.output -= all;
                }
            }
            if let AttemptOutcome::Failed(why) = &mut attempt.outcome {
                self.output -= why.len();
                *why = last_bytes(why, CLIPPED).to_owned();
            }
        }
    }

    /// Completes the timeline with the current state.
    fn finish(mut self, head: RunHead, state: RunState, unknown: Vec<String>) -> Timeline {
        let saved = &head.machine;
        let is_live = matches!(state, RunState::Running | RunState::Paused);
        if !is_live && saved.end.is_none() {
            self.close(saved.last_at, &ProcessEnd::Died);
            let at_work = matches!(
                saved.step,
                IterationStep::Turn { .. } | IterationStep::Interrupted { .. }
            );
            if let Some(attempt) = self.attempts.last_mut().filter(|_| at_work) {
                let cause = match saved.stopping {
                    Some(_) => UnfinishedCause::Stop,
                    None => UnfinishedCause::ProcessDied,
                };
                attempt.outcome = AttemptOutcome::Unfinished(Some(cause));
                attempt.turn_ended = Some(saved.last_at);
                attempt.ended = attempt.turn_ended;
            }
        }
        // The journal doesn't have them: they change nothing in the machine.
        for record in &head.notifications.last {
            let later = self.events.iter().rev().take_while(|it| it.at > record.at);
            let place = self.events.len() - later.count();
            let kind = TimelineEventKind::Notified(record.clone());
            let at = record.at;
            self.events.insert(place, TimelineEvent { at, kind });
        }
        Timeline {
            state,
            phases: self.phases,
            attempts: self.attempts,
            waits: self.waits,
            processes: self.processes,
            steers: self.steers,
            events: self.events,
            unknown,
            head,
        }
    }
}

impl TimelineBuilder {
    /// Records the end of a turn.
    fn turn(&mut self, before: &Previous, what: &MachineInput, at: Timestamp) {
        let head = self.machine.head();
        let was_at_work = matches!(
            before.step,
            IterationStep::Turn { .. } | IterationStep::Interrupted { .. }
        );
        let Some(attempt) = self.attempts.last_mut().filter(|_| was_at_work) else {
            return;
        };
        let resumed = matches!(what, MachineInput::Resumed(_));
        let ended = if resumed { before.last_at } else { at };
        if head.counts.unfinished_attempts > before.unfinished_attempts {
            // If somebody returned to an earlier state at the same time, the head no longer has the cause.
            let cause =
                head.unfinished
                    .map(|unfinished| unfinished.cause)
                    .or(match before.stopping {
                        _ if before.is_redo_requested || !resumed => Some(UnfinishedCause::Redo),
                        Some(_) => Some(UnfinishedCause::Stop),
                        None => Some(UnfinishedCause::ProcessDied),
                    });
            attempt.outcome = AttemptOutcome::Unfinished(cause);
            attempt.turn_ended = Some(ended);
            attempt.ended = Some(ended);
        } else if matches!(what, MachineInput::TurnEnded(_))
            && !matches!(head.step, IterationStep::Interrupted { .. })
        {
            attempt.turn_ended = Some(at);
            attempt.no_progress = head.made_no_progress;
            attempt.outcome = match &head.end {
                Some(_) => AttemptOutcome::Unfinished(Some(UnfinishedCause::AgentUnusable)),
                None => AttemptOutcome::Checking,
            };
            if head.end.is_some() {
                attempt.ended = Some(at);
            }
        }
    }

    fn used(&mut self, before: &Previous) {
        let head = self.machine.head();
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.denied += head.counts.denied - before.denied.min(head.counts.denied);
            if head.usage != before.usage {
                let more = |now: u64, before: u64| now.saturating_sub(before);
                let (now, was) = (head.usage, before.usage);
                let phase = self.phases.last_mut().map(|phase| &mut phase.usage);
                for usage in [Some(&mut attempt.usage), phase].into_iter().flatten() {
                    usage.input_tokens += more(now.input_tokens, was.input_tokens);
                    usage.output_tokens += more(now.output_tokens, was.output_tokens);
                    usage.cost_microusd += more(now.cost_microusd, was.cost_microusd);
                }
            }
        }
    }

    fn started(&mut self, continues: bool, event: &TimedInput) {
        let head = self.machine.head();
        if let Some(last) = self.attempts.last_mut()
            && matches!(
                last.outcome,
                AttemptOutcome::Open | AttemptOutcome::Checking
            )
        {
            // This attempt is neither unfinished nor complete: its session was lost, or its checks did not end.
            let again = matches!(event.what, MachineInput::LeftoversEnded(_));
            last.outcome = AttemptOutcome::Unfinished(again.then_some(UnfinishedCause::Redo));
            last.ended = Some(event.at);
        }
        let knows_all_attempts = !matches!(&event.what, MachineInput::Resumed(resume) if resume.highest_used_attempt.is_some() && resume.from_iteration.is_none());
        let present = (head.phase, head.iteration);
        let first_attempt = head.first_attempt;
        let mut discarded = 0;
        while let Some(index) = self.counting.last() {
            let other = &mut self.attempts[*index];
            let place = (other.phase, other.iteration);
            let is_complete = matches!(
                other.outcome,
                AttemptOutcome::Complete | AttemptOutcome::Failed(_)
            );
            let is_old = knows_all_attempts && other.attempt < first_attempt;
            if place < present || (place == present && !is_complete && !is_old) {
                break;
            }
            other.discarded = true;
            discarded += 1;
            self.counting.pop();
        }
        if discarded > 0 {
            let (phase, from) = present;
            let what = TimelineEventKind::Discarded {
                phase,
                from,
                attempts: discarded,
            };
            self.moment(event.at, what);
        }
        self.attempt(event.at, continues);
    }

    /// Begins an attempt, and its phase if the attempt is the first one there.
    fn attempt(&mut self, at: Timestamp, continues: bool) {
        let head = self.machine.head();
        let is_there = |phase: &PhaseSpan| phase.index == head.phase && phase.ended.is_none();
        if !self.phases.last().is_some_and(is_there) {
            let again = self.phases.iter_mut().filter(|it| it.index >= head.phase);
            again.for_each(|phase| phase.discarded = true);
            self.phases.push(PhaseSpan {
                index: head.phase,
                name: head.phase_rules().name.clone(),
                began: at,
                ended: None,
                iterations: 0,
                evidence: None,
                result: None,
                usage: UsageTotal::default(),
                discarded: false,
            });
        }
        self.counting.push(self.attempts.len());
        self.attempts.push(AttemptSpan {
            phase: head.phase,
            iteration: head.iteration,
            attempt: head.attempt,
            process: head.counts.processes,
            began: at,
            turn_ended: None,
            ended: None,
            outcome: AttemptOutcome::Open,
            discarded: false,
            continues,
            usage: UsageTotal::default(),
            denied: 0,
            no_progress: false,
            leftovers: 0,
            survivors: 0,
            commands: Vec::new(),
            commit: None,
        });
    }

    fn phase_over(&mut self) {
        let finished = self.machine.head().finished_phases.last();
        if let (Some(phase), Some(finished)) = (self.phases.last_mut(), finished) {
            phase.ended = Some(finished.at);
            phase.iterations = finished.iterations;
            phase.evidence = finished.evidence;
            phase.result.clone_from(&finished.result);
        }
    }
}
