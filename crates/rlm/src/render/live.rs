//! The progress of a request to a live run, and the list of live runs.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use loop_runner::StopProgress;
use loop_runner::control::{Activity, ProcessHealth, Response, Status};
use loop_state::{PauseAfter, Request, StopTiming};
use rlm_store::{Holder, RunEntry, RunHead, RunId, RunState};
use rlm_terminal::style::{GOOD, styled};
use rlm_terminal::table::{Cell, Column, table};
use rlm_text::duration::{self, approximate, show};
use rlm_text::escape::plain;
use rlm_text::time::utc;
use rlm_text::{count, money};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::hint::program_command;
use crate::hint::quoted;
use crate::render::event::whole;
use crate::render::lines;
use crate::render::status::{live_activity, progress, titled};

/// One step of the progress of a request.
#[derive(Debug, Serialize)]
pub(crate) struct RequestProgress<'a> {
    pub(crate) run: &'a RunId,
    #[serde(skip)]
    pub(crate) request: &'a Request,
    #[serde(flatten)]
    pub(crate) answer: &'a Response,
}

impl fmt::Display for RequestProgress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (run, rlm) = (self.run, program_command());
        match (self.request, self.answer) {
            (
                _,
                Response::Recorded {
                    steer: Some(id), ..
                },
            ) => write!(f, "steer {id}: recorded"),
            (
                _,
                Response::Recorded {
                    budget_ms: Some(budget),
                    ..
                },
            ) => {
                let budget = whole(std::time::Duration::from_millis(*budget));
                write!(f, "{run}: recorded; stopping (up to {})", show(budget))
            }
            (Request::Set(change), Response::Recorded { .. }) => {
                write!(f, "{run}: recorded: {}", change)
            }
            (Request::Set(change), Response::Applied) => {
                write!(f, "{run}: in effect: {}", change)
            }
            (
                Request::Stop {
                    when: StopTiming::AfterIteration,
                },
                Response::Recorded { .. },
            ) => {
                write!(
                    f,
                    "{run}: recorded; it will stop when the iteration is complete"
                )
            }
            (
                Request::Pause {
                    after: PauseAfter::Tool,
                    ..
                },
                Response::Recorded { .. },
            ) => write!(
                f,
                "{run}: recorded; it will pause when no tool runs, or at the latest when the iteration is complete"
            ),
            (_, Response::Recorded { .. }) => {
                write!(
                    f,
                    "{run}: recorded; it will pause when the iteration is complete"
                )
            }
            (Request::Steer { .. }, Response::Delivered) => f.write_str("delivered to the agent"),
            (_, Response::Delivered) => write!(f, "{run}: delivered; the agent is ending its turn"),
            (_, Response::NextPrompt) => f.write_str("queued: sent after this turn"),
            (Request::Steer { .. }, Response::Applied) => {
                write!(f, "{}", styled(GOOD, "seen by the agent"))
            }
            (Request::Interrupt, Response::Applied) => write!(
                f,
                "{run}: interrupted; the session waits: {rlm} steer {run} TEXT, or {rlm} resume {run}"
            ),
            (Request::Pause { .. }, Response::Applied) => {
                write!(f, "{run}: paused; to continue: {rlm} resume {run}")
            }
            (_, Response::Applied) => write!(f, "{run}: continues"),
            (_, Response::RunEnded(ended)) => write!(f, "{run}: ended: {}", plain(&ended.reason)),
            // The other responses are reported as failures.
            _ => Ok(()),
        }
    }
}

/// A live run.
#[derive(Debug, Serialize)]
pub(crate) struct Live {
    run: RunId,
    title: Option<String>,
    project: String,
    state: RunState,
    iteration: Option<u32>,
    pid: Option<u32>,
    since: Option<String>,
    age_s: Option<u64>,
    pause_reason: Option<String>,
    cost_usd: Option<f64>,
    /// The tokens of the run; `None` if its agents report none.
    tokens: Option<u64>,
    /// Whether its process responds.
    responds: bool,
    #[serde(skip)]
    head: Option<RunHead>,
    /// The process or step that its stop waits for, with the remaining seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_awaits: Option<Value>,
    /// The problem of its process, if there is one.
    #[serde(skip)]
    problem: Option<String>,
    /// The status that it reports.
    #[serde(flatten, serialize_with = "more")]
    status: Option<Status>,
}

/// Writes the fields of the status that the line doesn't have yet, so that no field occurs twice.
fn more<S: Serializer>(reported: &Option<Status>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut more = json!(reported);
    if let Some(fields) = more.as_object_mut() {
        fields.retain(|name, _| {
            !["run", "state", "iteration", "activity", "shutdown"].contains(&name.as_str())
        });
    }
    match more {
        Value::Object(fields) => fields.serialize(serializer),
        _ => Map::new().serialize(serializer),
    }
}

impl Live {
    pub(crate) fn of(
        project: &Path,
        entry: &RunEntry,
        holder: Option<&Holder>,
        life: &ProcessHealth,
        now: jiff::Timestamp,
    ) -> Self {
        let now =
            loop_state::Timestamp::from_millis(u64::try_from(now.as_millisecond()).unwrap_or(0));
        let head = entry.head.as_ref().ok();
        // The reported status is newer than the saved state.
        let status = life.status();
        let iteration = status.map(|status| status.iteration);
        Self {
            run: entry.id.clone(),
            title: head.and_then(|head| head.settings.title.clone()),
            project: project.display().to_string(),
            state: status.map_or(entry.state, |status| status.state),
            iteration: iteration.or_else(|| head.map(|head| head.machine.iteration)),
            pid: holder.map(|holder| holder.process.pid),
            since: holder.map(|holder| utc(holder.since)),
            age_s: holder.map(|holder| now.since(holder.since).as_secs()),
            pause_reason: head.and_then(|head| head.pause_reason.clone()),
            cost_usd: head.and_then(|head| money::cost_usd(head.machine.usage)),
            tokens: { head.map(|head| head.machine.usage.tokens()) }.filter(|tokens| *tokens > 0),
            responds: status.is_some(),
            stop_awaits: status.and_then(|status| stop_waiting(status.shutdown?, now)),
            problem: problem(life),
            head: head.cloned(),
            status: status.cloned(),
        }
    }
}

/// Returns the process or step that a stop waits for, as JSON.
fn stop_waiting(shutdown: StopProgress, now: loop_state::Timestamp) -> Option<Value> {
    let left = shutdown.left(now).as_secs();
    Some(json!({"waits_for": shutdown.awaited?, "left_s": left}))
}

impl Live {
    /// The columns of `rlm ps`; for several projects there is one more, with the project.
    const COLUMNS: [Column; 9] = [
        column("RUN", 0),
        column("STATE", 0),
        column("PHASE", 3),
        column("ITER", 0),
        column("AGE", 1),
        column("PID", 4),
        column("USD", 2),
        column("TOKENS", 5),
        column("NOW", 0),
    ];

    /// Lists runs, one line each, below a heading.
    pub(crate) fn list(all: &[Self], with_project: bool, columns: Option<usize>) -> String {
        let mut heads = Self::COLUMNS.to_vec();
        let mut rows: Vec<_> = all.iter().map(Self::row).collect();
        if with_project {
            heads.insert(8, column("PROJECT", 0));
            for (row, live) in rows.iter_mut().zip(all) {
                row.insert(8, Cell::new(plain(&quoted(&live.project))));
            }
        }
        table(&heads, &rows, columns)
    }

    fn row(&self) -> Vec<Cell> {
        let word = |number: Option<String>| Cell::new(number.unwrap_or_default());
        let age = |secs| approximate(std::time::Duration::from_secs(secs));
        let phase = self.status.as_ref().filter(|status| status.phases > 1);
        vec![
            Cell::new(plain(self.run.as_str())),
            Cell::styled(lines::state(self.state), lines::of_state(self.state)),
            word(phase.map(|status| plain(&status.phase).replace(' ', "_"))),
            word(self.iteration.map(|it| progress(it, self.max_iterations()))),
            word(self.age_s.map(age)),
            word(self.pid.map(|pid| pid.to_string())),
            word(self.cost_usd.map(|usd| format!("{usd:.2}"))),
            word(self.tokens_short()),
            Cell::new(plain(&titled(self.title.as_deref(), &self.now()))),
        ]
    }

    fn tokens_short(&self) -> Option<String> {
        money::tokens_short(self.head.as_ref()?.machine.usage)
    }

    fn max_iterations(&self) -> Option<u32> {
        let head = self.head.as_ref()?;
        head.machine.phase_rules().limits.max_iterations
    }

    /// Returns what the run does or waits for.
    fn now(&self) -> String {
        let mut now: Vec<String> = self.problem.iter().cloned().collect();
        match &self.status {
            None => {}
            Some(reported) => {
                if reported.stopping {
                    now.push(match reported.shutdown.and_then(|it| it.awaited) {
                        Some(awaited) => format!("stopping: waiting for {awaited}"),
                        None => "stopping".to_owned(),
                    });
                } else if reported.pausing {
                    now.push("will pause".to_owned());
                }
                if let Some(ask) = reported.permission_requests.first() {
                    now.push(format!("asks: {ask}"));
                } else if let Some(tool) = reported.tools.first() {
                    now.push(tool.clone());
                }
                // The tool or the question says more than that the agent works.
                let is_told = !now.is_empty() && reported.activity == Some(Activity::Turn);
                if let Some(head) = self.head.as_ref().filter(|_| !is_told) {
                    now.extend(live_activity(self.state, head, Some(reported)));
                }
                if reported.steers_waiting > 0 {
                    let steers = count(reported.steers_waiting, "steer", "steers");
                    now.push(format!("{steers} for the next prompt"));
                }
            }
        }
        if let Some(reason) = &self.pause_reason {
            now.push(format!("reason: {reason}"));
        }
        now.join("; ")
    }
}

pub(super) const fn column(name: &'static str, spare: u8) -> Column {
    Column { name, spare }
}

/// Returns the problem of a live run's process, if there is one.
pub(crate) fn problem(life: &ProcessHealth) -> Option<String> {
    match life {
        ProcessHealth::LoopStuck(_, age) => {
            let age = duration::show(Duration::from_secs(age.as_secs()));
            Some(format!("hangs: its loop made no progress for {age}"))
        }
        ProcessHealth::Suspended(_) => Some("is suspended".to_owned()),
        ProcessHealth::Unresponsive(timeout) => {
            let timeout = duration::show(*timeout);
            Some(format!("did not respond within {timeout}: it hangs"))
        }
        ProcessHealth::OtherVersion(_) => Some("is driven by another version of rlm".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use loop_runner::control::EndReport;

    use super::*;

    #[test]
    fn s19c_live_run_is_one_object_without_duplicate_fields() {
        let entry = RunEntry {
            loss: None,
            id: "r1".parse().unwrap(),
            state: RunState::Running,
            head: Err("just begun".into()),
            notes: Vec::new(),
            last_at: loop_state::Timestamp::default(),
        };
        let reported = serde_json::json!({
            "run": "r1", "state": "paused", "process": {"pid": 7, "start_time": 9}, "phase": "main", "phase_number": 1, "phases": 1, "iteration": 2, "attempt": 1,
            "iterations_complete": 2, "pausing": false, "stopping": false, "steers_waiting": 0, "attended": true, "session": null,
            "last_tick_ms": 0, "agent_alive": false, "tools": [], "permission_requests": [],
        });
        let now = jiff::Timestamp::UNIX_EPOCH;
        for status in [Some(serde_json::from_value(reported).unwrap()), None] {
            let is_responding = status.is_some();
            let silent = ProcessHealth::Unresponsive(std::time::Duration::from_secs(2));
            let life = status.map_or(silent, |status| ProcessHealth::Responding(Box::new(status)));
            let live = Live::of(Path::new("/srv/app"), &entry, None, &life, now);
            let text = serde_json::to_string(&live).unwrap();
            let fields: Map<String, Value> = serde_json::from_str(&text).unwrap();
            for name in fields.keys() {
                let times = text.matches(&format!("\"{name}\":")).count();
                // The process object has a pid too.
                assert_eq!(
                    times,
                    if name == "pid" && is_responding { 2 } else { 1 },
                    "{name}: {text}"
                );
            }
            let state = if is_responding { "paused" } else { "running" };
            assert_eq!(
                (&fields["state"], &fields["responds"]),
                (&state.into(), &is_responding.into())
            );
        }
    }

    #[test]
    fn request_progress_is_shown_in_words() {
        let run: RunId = "r1".parse().unwrap();
        let recorded = |steer, budget_ms| Response::Recorded { steer, budget_ms };
        let stop = |after| Request::Stop { when: after };
        let steer = Request::Steer {
            text: "x".into(),
            now: false,
        };
        let pause = Request::Pause {
            reason: None,
            after: PauseAfter::Iteration,
        };
        let ended: EndReport = serde_json::from_str(
            r#"{"reason":"failed: \u001b]0;mine\u0007","ended_processes":0,"survivors":[],"proven":true}"#,
        )
        .unwrap();
        let cases = [
            (&steer, recorded(Some(3), None)),
            (&steer, Response::Delivered),
            (&steer, Response::NextPrompt),
            (&steer, Response::Applied),
            (&Request::Interrupt, Response::Delivered),
            (&Request::Interrupt, Response::Applied),
            (&pause, recorded(None, None)),
            (&pause, Response::Applied),
            (&stop(StopTiming::Now), recorded(None, Some(8000))),
            (&stop(StopTiming::AfterIteration), recorded(None, None)),
            (&stop(StopTiming::Now), Response::RunEnded(ended)),
            (&Request::Continue, Response::Applied),
        ];
        let lines = cases.map(|(request, answer)| {
            let progress = RequestProgress {
                run: &run,
                request,
                answer: &answer,
            };
            anstream::adapter::strip_str(&progress.to_string()).to_string()
        });
        insta::assert_snapshot!(lines.join("\n"));
    }
}
