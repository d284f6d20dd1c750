//! The state of a run, for `rlm status`.

use std::fmt;

use agent_duplex::Permissions;
use loop_runner::control::{Activity, ProcessHealth, Status};
use loop_state::{CheckOutcome, IterationStep, LastCheck, Timestamp, WaitCause};
use rlm_report::{delivery, uncommitted};
use rlm_store::{
    Committed, DeliveryResult, NotificationRecord, RunEntry, RunHead, RunState, Uncommitted,
    Worktree,
};
use rlm_terminal::style::{BOLD, styled};
use rlm_terminal::table::{Cell, Column, table};
use rlm_terminal::{ReviewPrompt, attempt_label, background};
use rlm_text::duration::approximate;
use rlm_text::escape::plain;
use rlm_text::time::utc;
use rlm_text::{count, money};
use serde::Serialize;

use crate::agents;
use crate::hint::{self, program_command, resume_hint};
use crate::render::banner::permission_text;
use crate::render::lines;
use crate::render::live::{column, problem};
use crate::render::{Phases, RedoQuestion};

/// The status of one run, for text and JSON.
#[derive(Debug, Serialize)]
pub(crate) struct RunStatusView {
    run: String,
    state: RunState,
    title: Option<String>,
    #[serde(flatten)]
    detail: Option<Detail>,
    /// Notes about damage, and about the state that is used instead.
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Detail {
    #[serde(flatten)]
    phases: Phases,
    iteration: u32,
    attempt: u32,
    #[serde(skip)]
    is_retry: bool,
    /// Whether a process has worked on the run.
    #[serde(skip)]
    begun: bool,
    iterations_complete: u32,
    /// The number of complete iterations that failed. Each phase counts at most [`MAX_ERRORS`](loop_state::MAX_ERRORS).
    iterations_failed: usize,
    attempts: u32,
    unfinished_attempts: u32,
    last_outcome: Option<String>,
    last_check: Option<LastCheck>,
    #[serde(skip)]
    check: Option<String>,
    /// The largest number of iterations of this phase.
    max_iterations: Option<u32>,
    /// The current activity of the run, or the reason why it waits.
    now: Option<String>,
    /// A command for the user, and its effect.
    next: Option<String>,
    reason: Option<String>,
    pause_reason: Option<String>,
    /// The place and time of its transfer.
    transferred_to: Option<String>,
    transferred_at: Option<String>,
    /// The run that it was forked from, and the iteration after which it continues.
    forked_from: Option<String>,
    forked_at: Option<u32>,
    started_at: String,
    saved_at: String,
    age_s: u64,
    /// The seconds since the last save.
    #[serde(skip)]
    saved_s: u64,
    directory: String,
    git_commit: Option<String>,
    /// The number of uncommitted files at the last save.
    git_changed: Option<u32>,
    /// The last commit of the run.
    committed: Option<Committed>,
    /// The changes that should have been committed but are not.
    uncommitted: Option<Uncommitted>,
    worktree: Option<Worktree>,
    agent: String,
    /// The previous agent, with its last attempt.
    previous_agent: Option<String>,
    permissions: Permissions,
    /// Whether a person can answer the questions of the run.
    attended: bool,
    denied: u32,
    session: Option<String>,
    input_tokens: u64,
    output_tokens: u64,
    #[serde(skip)]
    tokens_short: Option<String>,
    cost_usd: Option<f64>,
    max_cost_usd: Option<f64>,
    /// The time at which a rate limit ends, or at which `rlm` tries again.
    waits_until: Option<String>,
    max_tokens: Option<u64>,
    #[serde(skip)]
    cost: Option<String>,
    steers_waiting: usize,
    /// The last notifications, oldest first.
    notifications: Vec<NotificationView>,
    /// The number of notifications that were never sent.
    notifications_dropped: u32,
    /// The failed last notification of each channel.
    #[serde(skip)]
    failed_notifications: Vec<String>,
}

/// One notification and its result.
#[derive(Debug, Serialize)]
struct NotificationView {
    at: String,
    event: String,
    channel: String,
    tries: u32,
    delivered: bool,
    /// The acknowledgement, or the reason why there is none.
    answer: String,
}

impl From<&NotificationRecord> for NotificationView {
    fn from(record: &NotificationRecord) -> Self {
        let (delivered, answer) = match &record.result {
            DeliveryResult::Delivered(text) => (true, text),
            DeliveryResult::Failed(why) => (false, why),
        };
        Self {
            at: utc(record.at),
            event: record.event.clone(),
            channel: record.channel.clone(),
            tries: record.tries,
            delivered,
            answer: answer.clone(),
        }
    }
}

impl RunStatusView {
    /// `life` is the report of a live run's process.
    pub(crate) fn of(run: &RunEntry, life: Option<&ProcessHealth>, now: jiff::Timestamp) -> Self {
        let mut notes = run.notes.clone();
        let detail = match &run.head {
            Ok(head) => {
                let m = &head.machine;
                let phase = &head.settings.phases[m.phase as usize];
                let now = Timestamp::from_millis(u64::try_from(now.as_millisecond()).unwrap_or(0));
                Some(Detail {
                    phases: Phases::from(m),
                    // Before the first attempt there is no iteration, only perhaps a check.
                    iteration: m.iteration.min(m.counts.attempts),
                    attempt: m.attempt,
                    is_retry: m.is_retry(),
                    begun: m.counts.processes > 0,
                    iterations_complete: m.iterations_complete(),
                    iterations_failed: m.iterations_failed(),
                    attempts: m.counts.attempts,
                    unfinished_attempts: m.counts.unfinished_attempts,
                    last_outcome: last_outcome(m),
                    last_check: m.last_check,
                    check: checked(m),
                    max_iterations: phase.limits.max_iterations,
                    now: doing(run, head, life, Some(now)),
                    next: next(run, head, life),
                    reason: reason(run.state, m),
                    pause_reason: head.pause_reason.clone(),
                    transferred_to: head.transfer.as_ref().map(|moved| moved.to.clone()),
                    transferred_at: head.transfer.as_ref().map(|moved| utc(moved.at)),
                    forked_from: m.parent.as_ref().map(|it| it.run.clone()),
                    forked_at: m.parent.as_ref().map(|it| it.iteration),
                    started_at: utc(m.started_at),
                    saved_at: utc(m.last_at),
                    age_s: now.since(m.started_at).as_secs(),
                    saved_s: now.since(m.last_at).as_secs(),
                    directory: head.settings.directory.display().to_string(),
                    git_commit: head.git_commit.clone(),
                    git_changed: head.git_changed,
                    committed: head.committed.clone(),
                    uncommitted: head.uncommitted.clone(),
                    worktree: head.settings.worktree.clone(),
                    agent: format!("{}: {}", agents::name(&phase.agent), permission_text(phase)),
                    previous_agent: m.handover.as_ref().map(|handover| {
                        format!("{}, up to attempt {}", handover.from, handover.attempt)
                    }),
                    permissions: phase.permissions,
                    attended: { life.and_then(ProcessHealth::status) }
                        .map_or(m.attended, |it| it.attended),
                    denied: m.counts.denied,
                    session: m.session.clone(),
                    input_tokens: m.usage.input_tokens,
                    output_tokens: m.usage.output_tokens,
                    tokens_short: money::tokens_short(m.usage),
                    cost_usd: money::cost_usd(m.usage),
                    max_cost_usd: m
                        .rules
                        .limits
                        .max_cost_microusd
                        .map(|micro| micro as f64 / 1e6),
                    max_tokens: m.rules.limits.max_tokens,
                    waits_until: match (&m.step, &m.end) {
                        (IterationStep::Waiting { until, .. }, None) => Some(utc(*until)),
                        _ => None,
                    },
                    cost: cost(m),
                    steers_waiting: m.unseen_steers().count(),
                    notifications: { head.notifications.last.iter() }
                        .map(NotificationView::from)
                        .collect(),
                    notifications_dropped: head.notifications.dropped,
                    failed_notifications: head.notifications.failing().map(delivery).collect(),
                })
            }
            Err(why) => {
                notes.push(why.clone());
                None
            }
        };
        Self {
            run: run.id.to_string(),
            state: run.state,
            title: { run.head.as_ref().ok() }.and_then(|head| head.settings.title.clone()),
            detail,
            notes,
        }
    }
}

/// Returns how the last iteration ended.
pub(super) fn last_outcome(m: &loop_state::Head) -> Option<String> {
    let last = m.last_iteration.as_ref()?;
    Some(match &last.failure {
        Some(why) => format!("iteration {} failed: {why}", last.iteration),
        None => format!("iteration {} complete", last.iteration),
    })
}

/// Returns how the last check ended, with its phase if that was an earlier one.
pub(super) fn checked(m: &loop_state::Head) -> Option<String> {
    let check = m.last_check?;
    let outcome = match check.outcome {
        CheckOutcome::Passed => "passed",
        CheckOutcome::Failed => "failed",
        CheckOutcome::NotRun => "could not be run",
    };
    let earlier =
        { m.finished_phases.get(check.phase as usize) }.filter(|_| check.phase != m.phase);
    let phase = earlier.map_or_else(String::new, |it| format!("phase {}, ", it.name));
    Some(match check.iteration {
        0 => format!("{outcome} (before the first iteration)"),
        iteration => format!("{outcome} ({phase}iteration {iteration})"),
    })
}

/// Returns the reported usage, and the rest of the budgets.
pub(super) fn cost(m: &loop_state::Head) -> Option<String> {
    let parts = [
        money::usage_text(m.usage),
        money::budget_left(&m.rules, m.usage),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Returns the stop reason. After a hard exit none is saved, but the requested stop is.
fn reason(state: RunState, m: &loop_state::Head) -> Option<String> {
    let saved = m.end.as_ref().map(|end| end.reason.to_string());
    let stopping = m.stopping.filter(|_| state == RunState::Stopped);
    saved.or_else(|| {
        let by = stopping?.by;
        Some(format!(
            "stopped {by}, immediately; the guards ended the agent's processes"
        ))
    })
}

/// The texts of a page about the run.
#[cfg(feature = "view")]
impl RunStatusView {
    pub(crate) fn agent(&self) -> Option<&str> {
        Some(&self.detail.as_ref()?.agent)
    }

    pub(crate) fn last_outcome(&self) -> Option<&str> {
        self.detail.as_ref()?.last_outcome.as_deref()
    }

    pub(crate) fn next(&self) -> Option<&str> {
        self.detail.as_ref()?.next.as_deref()
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        self.detail.as_ref()?.reason.as_deref()
    }

    pub(crate) fn last_check(&self) -> Option<&str> {
        self.detail.as_ref()?.check.as_deref()
    }
}

impl Detail {
    /// Returns what the run does, or what the user can do next.
    fn activity(&self) -> Option<String> {
        self.now.clone().or_else(|| self.next.clone())
    }

    fn ages(&self) -> String {
        let age = |secs| approximate(std::time::Duration::from_secs(secs));
        let (age, saved) = (age(self.age_s), age(self.saved_s));
        format!("{age}, saved {saved} ago ({})", self.saved_at)
    }
}

impl RunStatusView {
    const COLUMNS: [Column; 8] = [
        column("RUN", 0),
        column("STATE", 0),
        column("PHASE", 3),
        column("ITER", 0),
        column("SAVED", 1),
        column("USD", 2),
        column("TOKENS", 4),
        column("NOW", 0),
    ];

    /// Lists runs, one line each, below a heading.
    pub(crate) fn list(all: &[Self], columns: Option<usize>) -> String {
        let rows: Vec<_> = all.iter().map(Self::row).collect();
        table(&Self::COLUMNS, &rows, columns)
    }

    fn row(&self) -> Vec<Cell> {
        let detail = self.detail.as_ref();
        let word = |word: Option<String>| Cell::new(word.unwrap_or_default());
        let now = detail.and_then(|d| match (&d.reason, &d.pause_reason) {
            (Some(reason), _) if self.state == RunState::Ended => Some(reason.clone()),
            (_, Some(reason)) => d.activity().map(|now| format!("{now}; reason: {reason}")),
            _ => d.activity(),
        });
        let now = now.or_else(|| self.notes.first().cloned());
        vec![
            Cell::new(plain(&self.run)),
            Cell::styled(lines::state(self.state), lines::of_state(self.state)),
            word(detail.and_then(|d| d.phases.name())),
            word(detail.map(|d| progress(d.iteration, d.max_iterations))),
            word(
                { detail.filter(|d| d.begun) }
                    .map(|d| approximate(std::time::Duration::from_secs(d.saved_s))),
            ),
            word(detail.and_then(|d| Some(format!("{:.2}", d.cost_usd?)))),
            word(detail.and_then(|d| d.tokens_short.clone())),
            Cell::new(plain(&titled(
                self.title.as_deref(),
                &now.unwrap_or_default(),
            ))),
        ]
    }
}

/// Returns the number of the iteration and, if there is a limit, of how many.
pub(crate) fn progress(iteration: u32, max: Option<u32>) -> String {
    max.map_or_else(|| iteration.to_string(), |max| format!("{iteration}/{max}"))
}

/// Adds the title of a run before its activity.
pub(crate) fn titled(title: Option<&str>, now: &str) -> String {
    title.map_or_else(|| now.to_owned(), |title| format!("{title}: {now}"))
}

/// Returns the git status: the commit of the working tree, and the number of changed files.
fn git(d: &Detail) -> Option<String> {
    let commit = d.git_commit.as_ref()?;
    Some(match d.git_changed.unwrap_or(0) {
        0 => commit.clone(),
        changed => format!(
            "{commit}, {} not committed",
            count(changed as usize, "changed file", "changed files")
        ),
    })
}

/// Returns the place and the time of the export, for a transferred run.
fn transferred(d: &Detail) -> Option<String> {
    let (to, at) = (d.transferred_to.as_ref()?, d.transferred_at.as_ref()?);
    let to = if to == "-" { "standard output" } else { to };
    Some(format!("to {to}, at {at}"))
}

fn forked(d: &Detail) -> Option<String> {
    let (run, at) = (d.forked_from.as_ref()?, d.forked_at?);
    Some(format!("continues after iteration {at} of {run}"))
}

/// Returns what the run does or waits for, and since when if `at` is the present time; `None` if no process works on it.
pub(crate) fn doing(
    run: &RunEntry,
    head: &RunHead,
    life: Option<&ProcessHealth>,
    at: Option<Timestamp>,
) -> Option<String> {
    if let Some(trouble) = life.and_then(problem) {
        return Some(format!("its process {trouble}"));
    }
    let status = life.and_then(ProcessHealth::status);
    // The reported status is newer than the saved state.
    let state = status.map_or(run.state, |it| it.state);
    let now = live_activity(state, head, status)?;
    let since = match head.machine.step {
        IterationStep::Turn { since }
        | IterationStep::Interrupted { since }
        | IterationStep::Paused { since }
        | IterationStep::Review { since, .. } => Some(since),
        _ => None,
    };
    let since = at.zip(since).map_or_else(String::new, |(at, since)| {
        format!(", for {}", approximate(at.since(since)))
    });
    Some(now + &since + pending_request(run, &head.machine))
}

/// Returns what a live run does or waits for.
pub(crate) fn live_activity(
    state: RunState,
    head: &RunHead,
    status: Option<&Status>,
) -> Option<String> {
    let m = &head.machine;
    let doing = status.map_or_else(|| Activity::of(m), |it| it.activity);
    let tasks = status.and_then(|it| it.awaited_tasks);
    Some(match (state, &m.step) {
        (RunState::Paused, IterationStep::Interrupted { .. }) => {
            "the agent was interrupted and waits for you".into()
        }
        (RunState::Paused, IterationStep::Review { point, .. }) => {
            format!("the {point} is finished and waits for your approval")
        }
        (RunState::Paused, _) => "waits for you".into(),
        (RunState::Running, _) if doing.is_some() => match (doing, tasks) {
            (Some(Activity::Turn), Some(tasks)) => {
                format!("the turn ended; the agent waits for {}", background(tasks))
            }
            (doing, _) => activity_text(head, doing.unwrap_or(Activity::Starting)),
        },
        (RunState::Running, IterationStep::Sleeping { until }) => {
            format!("sleeps; iteration {} at {}", m.iteration + 1, utc(*until))
        }
        (RunState::Running, IterationStep::Waiting { until, why, .. }) => {
            let why = match why {
                WaitCause::RateLimit => "waits for the service",
                _ => "waits after a failure",
            };
            format!("{why}; iteration {} again at {}", m.iteration, utc(*until))
        }
        (RunState::Running, _) => "starting".into(),
        (RunState::Transferred, _) => "continues elsewhere".into(),
        _ => return None,
    })
}

/// Returns what the user can do next; `None` if there is nothing to do.
fn next(run: &RunEntry, head: &RunHead, life: Option<&ProcessHealth>) -> Option<String> {
    let (m, id, rlm) = (&head.machine, &run.id, program_command());
    if let Some(ProcessHealth::Suspended(process)) = life {
        return Some(hint::continues(process.pid));
    }
    if life.and_then(problem).is_some() {
        return Some(format!("{rlm} stop {id} --force: ends the run"));
    }
    // The reported status is newer than the saved state.
    let status = life.and_then(ProcessHealth::status);
    let state = status.map_or(run.state, |it| it.state);
    let point = m.resume_point();
    let (at, is_unfinished) = (point.iteration, point.is_unfinished);
    let is_final = m.end.as_ref().is_some_and(|end| end.reason.is_final());
    if let (Some(redo), false) = (
        RedoQuestion::of(run),
        is_final || run.state == RunState::Transferred,
    ) {
        return Some(redo.next());
    }
    let question = || {
        let review = ReviewPrompt::of(m).map(ReviewPrompt::question);
        review.unwrap_or_default()
    };
    Some(match (state, &m.step) {
        (RunState::Paused, IterationStep::Interrupted { .. }) => {
            format!("{rlm} steer {id} TEXT, or {rlm} resume {id}")
        }
        (RunState::Paused, IterationStep::Review { .. }) => {
            format!(
                "{}; to continue: {rlm} resume {id}; to revise: {rlm} steer {id} TEXT",
                question()
            )
        }
        (RunState::Paused, _) => format!("{rlm} resume {id}"),
        (RunState::Running, _) => return None,
        (RunState::Transferred, _) => {
            format!("{rlm} resume {id} --force: continues it here instead")
        }
        (RunState::Ended, _) => return resume_hint(id, &m.end.as_ref()?.reason),
        (_, IterationStep::Review { .. }) => format!("{rlm} resume {id}: {}", question()),
        _ if is_unfinished => format!("{rlm} resume {id}: iteration {at} again (unfinished)"),
        _ if m.is_checking() => format!(
            "{rlm} resume {id}: the required checks and the check of iteration {at}, whose turn ended"
        ),
        _ => format!("{rlm} resume {id}: iteration {at}"),
    })
}

/// Returns what a run does now.
pub(crate) fn activity_text(head: &RunHead, doing: Activity) -> String {
    let phase = &head.settings.phases[head.machine.phase as usize];
    match doing {
        Activity::Turn => "the agent works".into(),
        Activity::RequiredCheck(index) => {
            let text = phase.required_checks.get(index as usize);
            let text = text.map(|text| format!(": {text}")).unwrap_or_default();
            format!("required check {} runs{text}", index + 1)
        }
        Activity::Check => {
            let text = phase.check.as_ref();
            let text = text.map(|text| format!(": {text}")).unwrap_or_default();
            format!("the check runs{text}")
        }
        Activity::Finishing if head.settings.commit => {
            "finishes the iteration and commits (git hooks run)".into()
        }
        Activity::Finishing => "finishes the iteration".into(),
        Activity::EndingLeftovers => "ends processes that the agent left running".into(),
        _ => "starting".into(),
    }
}

/// Returns the request for the end of the iteration, if there is one.
fn pending_request(run: &RunEntry, m: &loop_state::Head) -> &'static str {
    match run.state {
        RunState::Running if m.stopping.is_some() => "; it is stopping",
        RunState::Running if m.pausing => "; it will pause when the iteration is complete",
        _ => "",
    }
}

impl fmt::Display for RunStatusView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = styled(lines::of_state(self.state), lines::state(self.state));
        write!(f, "{}  {state}", styled(BOLD, plain(&self.run)))?;
        if let Some(d) = &self.detail {
            write!(
                f,
                "{}, iteration {}{}{}, {} complete",
                d.phases.position_text(),
                d.iteration,
                d.max_iterations
                    .map_or_else(String::new, |max| format!(" of {max}")),
                attempt_label(d.is_retry, d.attempt),
                count(d.iterations_complete as usize, "iteration", "iterations")
            )?;
            if d.iterations_failed > 0 {
                write!(f, " ({} of them failed)", d.iterations_failed)?;
            }
            let rows = [
                ("title", self.title.clone()),
                ("reason", d.reason.clone()),
                ("export", transferred(d)),
                ("fork", forked(d)),
                ("because", d.pause_reason.clone()),
                ("last", d.last_outcome.clone()),
                ("check", d.check.clone()),
                ("now", d.now.clone()),
                ("next", d.next.clone()),
                ("agent", Some(d.agent.clone())),
                ("before", d.previous_agent.clone()),
                (
                    "denied",
                    (d.denied > 0).then(|| count(d.denied as usize, "request", "requests")),
                ),
                ("session", d.session.clone()),
                (
                    "steers",
                    (d.steers_waiting > 0)
                        .then(|| format!("{} for the next prompt", d.steers_waiting)),
                ),
                ("cost", d.cost.clone()),
                ("age", d.begun.then(|| d.ages())),
                ("git", git(d)),
                ("commits", d.uncommitted.as_ref().map(uncommitted)),
                (
                    "tree",
                    d.worktree
                        .as_ref()
                        .map(|own| format!("its own worktree, branch {}", own.branch)),
                ),
                ("in", Some(d.directory.clone())),
            ];
            for (name, value) in rows {
                if let Some(value) = value {
                    write!(f, "\n  {name:<7} {}", plain(&value))?;
                }
            }
        }
        let dropped = self.detail.as_ref().map_or(0, |d| d.notifications_dropped);
        if dropped > 0 {
            let dropped = count(dropped as usize, "notification", "notifications");
            write!(
                f,
                "\n  notify  {dropped} not sent: the channel was too slow, or the run was aborted"
            )?;
        }
        let failed = self.detail.iter().flat_map(|d| &d.failed_notifications);
        for notification in failed {
            let test = format!(
                "to test the channels: {} doctor --notify",
                program_command()
            );
            write!(f, "\n  notify  {}; {test}", plain(notification))?;
        }
        let over = self.detail.iter().flat_map(|d| d.phases.finished_lines());
        for line in over {
            write!(f, "\n  done    {line}")?;
        }
        for note in &self.notes {
            write!(f, "\n  note    {}", plain(note))?;
        }
        Ok(())
    }
}
