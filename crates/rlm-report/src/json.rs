//! Renders the timeline of a run for programs, with the names of the schema instead of those of the Rust types.

use loop_state::{CheckResult, Occasion, StopCause, StopReason, Timestamp, When};
use rlm_store::Fate;
use rlm_store::timeline::{Attempt, ProcessEnd, Timeline, Wait, WaitFor, What};
use rlm_text::money;
use rlm_text::time::utc;
use serde_json::{Value, json};

/// Returns the timeline as JSON, as described in `docs/schema`; `exit_code` is the exit code of the run's end.
#[must_use]
pub fn json(timeline: &Timeline, exit_code: Option<u8>) -> Value {
    let head = &timeline.head;
    let m = &head.machine;
    let name = |phase: u32| {
        head.settings
            .phases
            .get(phase as usize)
            .map(|phase| &phase.name)
    };
    let attempt = |it: &Attempt| {
        json!({
            "phase": name(it.phase), "iteration": it.iteration, "attempt": it.attempt, "process": it.process,
            "began_at": utc(it.began), "turn_ended_at": it.turn_ended.map(utc), "ended_at": it.ended.map(utc),
            "outcome": match it.fate {
                Fate::Complete => "complete",
                Fate::Failed(_) => "failed",
                Fate::Cut(_) => "cut",
                Fate::Judging => "judging",
                _ => "open",
            },
            "why": match &it.fate { Fate::Failed(why) => Some(why), _ => None },
            "cut_by": match it.fate { Fate::Cut(cause) => cause, _ => None },
            "discarded": it.discarded, "continues": it.continues, "usage": money::json(it.usage),
            "denied": it.denied, "nothing_done": it.idle, "leftovers_ended": it.leftovers, "survivors": it.survivors,
            "commands": it.commands.iter().map(|it| json!({
                "command": match it.command {
                    loop_state::Command::Gate(index) => format!("gate {}", index + 1),
                    loop_state::Command::Check => "check".to_owned(),
                },
                "began_at": utc(it.began), "ended_at": utc(it.ended),
                "outcome": match it.result { CheckResult::Passed => "passed", CheckResult::Failed(_) => "failed", CheckResult::NotRun(_) => "not_run", _ => "stopped" },
                "output": match &it.result { CheckResult::Failed(text) | CheckResult::NotRun(text) => text.as_str(), _ => "" },
                "omitted": it.left_out, "recheck": it.is_recheck,
            })).collect::<Value>(),
            "commit": it.commit,
        })
    };
    json!({
        "run": head.run, "state": timeline.state, "began_at": utc(timeline.began()), "until": utc(timeline.until()),
        "active_ms": timeline.active_ms(), "iterations_complete": m.iterations_complete(), "usage": money::json(m.usage),
        "phases": timeline.phases.iter().map(|it| json!({
            "phase": it.name, "number": it.index + 1, "began_at": utc(it.began), "ended_at": it.ended.map(utc),
            "iterations": it.iterations, "evidence": it.evidence, "result": it.result,
            "usage": money::json(it.usage), "discarded": it.discarded,
        })).collect::<Value>(),
        "attempts": timeline.attempts.iter().map(attempt).collect::<Value>(),
        "waits": timeline.waits.iter().map(wait).collect::<Value>(),
        "processes": timeline.processes.iter().map(|it| {
            let (end, reason) = match &it.end {
                ProcessEnd::Died => ("died", None),
                ProcessEnd::Ended(reason) => ("ended", Some(reason)),
                _ => ("live", None),
            };
            json!({
                "number": it.number, "began_at": utc(it.began), "ended_at": it.ended.map(utc), "end": end, "reason": reason,
                "from": it.from, "agent_before": it.predecessor,
            })
        }).collect::<Value>(),
        "steers": timeline.steers.iter().map(|it| json!({
            "id": it.id, "at": utc(it.at), "text": it.text, "state_at": utc(it.state_at), "state": it.state,
        })).collect::<Value>(),
        "moments": timeline.moments.iter().map(|it| moment(it.at, &it.what)).collect::<Value>(),
        "end": m.end.as_ref().map(|end| json!({
            "at": utc(end.at), "reason": end.reason.to_string(), "exit_code": exit_code,
            "evidence": match end.reason { StopReason::Done(it) => Some(it), _ => None },
        })),
        "unknown": timeline.unknown,
    })
}

fn wait(wait: &Wait) -> Value {
    json!({
        "for": match wait.why {
            WaitFor::Sleep => "sleep",
            WaitFor::Limit => "rate_limit",
            WaitFor::Retry => "retry",
            WaitFor::Review(Occasion::Phase) => "review_phase",
            WaitFor::Review(_) => "review_batch",
            WaitFor::Interrupt => "interrupt",
            _ => "pause",
        },
        "began_at": utc(wait.began), "until": wait.until.map(utc), "ended_at": wait.ended.map(utc), "what": wait.what,
    })
}

fn moment(at: Timestamp, what: &What) -> Value {
    let (what, detail) = match what {
        What::Interrupted => ("interrupted", Value::Null),
        What::Continued => ("continued", Value::Null),
        What::Pausing => ("pausing", Value::Null),
        What::Stopping(stop) => {
            let by = match stop.by {
                StopCause::Person => "person",
                StopCause::Terminated => "sigterm",
                StopCause::HungUp => "sighup",
                _ => "unknown",
            };
            (
                match stop.when {
                    When::AfterIteration => "stopping_later",
                    When::Now => "stopping",
                },
                by.into(),
            )
        }
        What::Again(again) => ("again", json!(again)),
        What::Reviewed(verdict) => ("reviewed", json!(verdict)["verdict"].take()),
        What::RuleSet(change) => ("rule_set", change.to_string().into()),
        What::NothingDone(in_a_row) => ("nothing_done", in_a_row.to_string().into()),
        What::SessionLost => ("session_lost", Value::Null),
        What::StateLost => ("state_lost", Value::Null),
        What::StoodStill(ms) => ("stood_still", format!("{ms} ms").into()),
        What::Discarded { from, attempts, .. } => (
            "discarded",
            format!("{attempts} attempts, from iteration {from} on").into(),
        ),
    };
    json!({"at": utc(at), "what": what, "detail": detail})
}
