//! What becomes of a request to a live run, and which runs are live.

use std::fmt;
use std::path::Path;

use loop_runner::control::{Answer, PauseAfter, Request, Standing, StopAfter};
use loop_runner::{Holder, RunEntry, RunId, RunState};
use loop_state::RuleChange;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::duration::show;
use crate::render::event::{count, utc, whole};
use crate::render::{GOOD, background, plain, rlm, styled};

/// One step of what becomes of a request.
#[derive(Debug, Serialize)]
pub(crate) struct Told<'a> {
    pub(crate) run: &'a RunId,
    #[serde(skip)]
    pub(crate) request: &'a Request,
    #[serde(flatten)]
    pub(crate) answer: &'a Answer,
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (run, rlm) = (self.run, rlm());
        match (self.request, self.answer) {
            (
                _,
                Answer::Recorded {
                    steer: Some(id), ..
                },
            ) => write!(f, "steer {id}: recorded"),
            (
                _,
                Answer::Recorded {
                    budget_ms: Some(budget),
                    ..
                },
            ) => {
                let budget = whole(std::time::Duration::from_millis(*budget));
                write!(f, "{run}: recorded; what runs has {} to end", show(budget))
            }
            (Request::Set(change), Answer::Recorded { .. }) => {
                write!(f, "{run}: recorded: {}", RuleChange::from(*change))
            }
            (Request::Set(change), Answer::InEffect) => {
                write!(f, "{run}: in effect: {}", RuleChange::from(*change))
            }
            (
                Request::Stop {
                    after: StopAfter::Iteration,
                },
                Answer::Recorded { .. },
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
                Answer::Recorded { .. },
            ) => write!(
                f,
                "{run}: recorded; it will pause when no tool runs any more, at the latest when the iteration is complete"
            ),
            (_, Answer::Recorded { .. }) => {
                write!(
                    f,
                    "{run}: recorded; it will pause when the iteration is complete"
                )
            }
            (Request::Steer { .. }, Answer::Delivered) => f.write_str("delivered to the agent"),
            (_, Answer::Delivered) => write!(f, "{run}: delivered; the agent is ending its turn"),
            (_, Answer::NextPrompt) => f.write_str(
                "the agent can't take it now; it comes after this turn or with the next prompt",
            ),
            (Request::Steer { .. }, Answer::InEffect) => {
                write!(f, "{}", styled(GOOD, "seen by the agent"))
            }
            (Request::Interrupt, Answer::InEffect) => write!(
                f,
                "{run}: interrupted; the session waits: {rlm} steer {run} TEXT, or {rlm} resume {run}"
            ),
            (Request::Pause { .. }, Answer::InEffect) => {
                write!(f, "{run}: paused; go on with: {rlm} resume {run}")
            }
            (_, Answer::InEffect) => write!(f, "{run}: goes on"),
            (_, Answer::Ended(ended)) => write!(f, "{run}: over: {}", plain(&ended.reason)),
            // The others are told as failures.
            _ => Ok(()),
        }
    }
}

/// A run that a process has.
#[derive(Debug, Serialize)]
pub(crate) struct Live {
    run: RunId,
    project: String,
    /// Whether it is said of which project it is.
    #[serde(skip)]
    names_project: bool,
    state: RunState,
    iteration: Option<u32>,
    pid: Option<u32>,
    since: Option<String>,
    age_s: Option<u64>,
    pause_reason: Option<String>,
    /// Whether its process answers.
    answers: bool,
    /// What it says of itself.
    #[serde(flatten, serialize_with = "more")]
    standing: Option<Standing>,
}

/// What it says beyond the fields that are there anyway: none may come twice.
fn more<S: Serializer>(standing: &Option<Standing>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut more = json!(standing);
    if let Some(fields) = more.as_object_mut() {
        fields.retain(|name, _| !["run", "state", "iteration"].contains(&name.as_str()));
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
        standing: Option<Standing>,
        now: jiff::Timestamp,
    ) -> Self {
        let now = loop_state::Timestamp(u64::try_from(now.as_millisecond()).unwrap_or(0));
        let head = entry.head.as_ref().ok();
        // It knows better than what was read before it was asked.
        let said = standing.as_ref();
        let iteration = said.map(|said| said.iteration);
        Self {
            run: entry.id.clone(),
            project: project.display().to_string(),
            names_project: false,
            state: said.map_or(entry.state, |said| said.state),
            iteration: iteration.or_else(|| head.map(|head| head.machine.iteration)),
            pid: holder.map(|holder| holder.process.pid),
            since: holder.map(|holder| utc(holder.since)),
            age_s: holder.map(|holder| now.since(holder.since).as_secs()),
            pause_reason: head.and_then(|head| head.pause_reason.clone()),
            answers: standing.is_some(),
            standing,
        }
    }
}

impl Live {
    /// Says of which project it is.
    pub(crate) fn with_project(self) -> Self {
        let names_project = true;
        Self {
            names_project,
            ..self
        }
    }
}

impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = format!("{:?}", self.state).to_lowercase();
        write!(f, "{}  {state}", plain(self.run.as_str()))?;
        let said = self.standing.as_ref().filter(|said| said.phases > 1);
        if let Some(said) = said {
            let phase = plain(&said.phase);
            write!(
                f,
                ", phase {phase} ({} of {})",
                said.phase_number, said.phases
            )?;
        }
        if let Some(iteration) = self.iteration {
            write!(f, ", iteration {iteration}")?;
        }
        if let (Some(pid), Some(age)) = (self.pid, self.age_s) {
            let age = show(std::time::Duration::from_secs(age));
            write!(f, "  pid {pid}, since {age}")?;
        }
        match &self.standing {
            None => f.write_str("  does not answer")?,
            Some(standing) => {
                if let Some(ask) = standing.asks.first() {
                    write!(f, "  asks: {}", plain(ask))?;
                } else if let Some(tool) = standing.tools.first() {
                    write!(f, "  {}", plain(tool))?;
                }
                if let Some(tasks) = standing.held_for {
                    write!(f, "  waits for {}", background(tasks))?;
                }
                if let Some(of) = &standing.review {
                    write!(f, "  the {} is over: it waits for your word", plain(of))?;
                }
                if standing.stopping {
                    f.write_str("  (stopping)")?;
                } else if standing.pausing {
                    f.write_str("  (will pause)")?;
                }
                if standing.steers_waiting > 0 {
                    let steers = count(standing.steers_waiting, "steer", "steers");
                    write!(f, "  {steers} for the next prompt")?;
                }
            }
        }
        if let Some(reason) = &self.pause_reason {
            write!(f, "  because: {}", plain(reason))?;
        }
        match self.names_project {
            true => write!(f, "  in {}", plain(&self.project)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use loop_runner::control::{Ended, PauseAfter};

    use super::*;

    #[test]
    fn s19_a_live_run_is_one_object_in_which_nothing_comes_twice() {
        let entry = RunEntry {
            id: "r1".parse().unwrap(),
            state: RunState::Running,
            head: Err("just begun".into()),
            notes: Vec::new(),
        };
        let standing = serde_json::json!({
            "run": "r1", "state": "paused", "process": {"pid": 7, "start_time": 9}, "phase": "main", "iteration": 2, "attempt": 1,
            "iterations_complete": 2, "pausing": false, "stopping": false, "steers_waiting": 0, "session": null,
            "agent_alive": false, "tools": [], "asks": [],
        });
        let now = jiff::Timestamp::UNIX_EPOCH;
        for said in [Some(serde_json::from_value(standing).unwrap()), None] {
            let is_said = said.is_some();
            let live = Live::of(Path::new("/srv/app"), &entry, None, said, now);
            let text = serde_json::to_string(&live).unwrap();
            let fields: Map<String, Value> = serde_json::from_str(&text).unwrap();
            for name in fields.keys() {
                let times = text.matches(&format!("\"{name}\":")).count();
                // The process has a number of its own in it.
                assert_eq!(
                    times,
                    if name == "pid" && is_said { 2 } else { 1 },
                    "{name}: {text}"
                );
            }
            let state = if is_said { "paused" } else { "running" };
            assert_eq!(
                (&fields["state"], &fields["answers"]),
                (&state.into(), &is_said.into())
            );
        }
    }

    #[test]
    fn what_becomes_of_a_request_in_words() {
        let run: RunId = "r1".parse().unwrap();
        let recorded = |steer, budget_ms| Answer::Recorded { steer, budget_ms };
        let stop = |after| Request::Stop { after };
        let steer = Request::Steer {
            text: "x".into(),
            now: false,
        };
        let pause = Request::Pause {
            reason: None,
            after: PauseAfter::Iteration,
        };
        let ended: Ended = serde_json::from_str(
            r#"{"reason":"failed: \u001b]0;mine\u0007","ended":0,"survivors":[],"proven":true}"#,
        )
        .unwrap();
        let told = [
            (&steer, recorded(Some(3), None)),
            (&steer, Answer::Delivered),
            (&steer, Answer::NextPrompt),
            (&steer, Answer::InEffect),
            (&Request::Interrupt, Answer::Delivered),
            (&Request::Interrupt, Answer::InEffect),
            (&pause, recorded(None, None)),
            (&pause, Answer::InEffect),
            (&stop(StopAfter::Now), recorded(None, Some(8000))),
            (&stop(StopAfter::Iteration), recorded(None, None)),
            (&stop(StopAfter::Now), Answer::Ended(ended)),
            (&Request::Continue, Answer::InEffect),
        ];
        let lines = told.map(|(request, answer)| {
            let told = Told {
                run: &run,
                request,
                answer: &answer,
            };
            anstream::adapter::strip_str(&told.to_string()).to_string()
        });
        insta::assert_snapshot!(lines.join("\n"));
    }
}
