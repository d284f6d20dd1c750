//! Renders the timeline of a run for programs, with the names of the schema instead of those of the Rust types.

use loop_state::{
    CheckResult, Evidence, ReviewPoint, SteerState, StopCause, StopReason, StopTiming, Timestamp,
};
use rlm_store::timeline::{
    AttemptSpan, ProcessEnd, Timeline, TimelineEventKind, WaitSpan, WaitedFor,
};
use rlm_store::{AttemptOutcome, DeliveryResult};
use rlm_text::money;
use rlm_text::time::utc;
use serde_json::{Value, json};

use crate::words::delivery;

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
    let attempt = |it: &AttemptSpan| {
        json!({
            "phase": name(it.phase), "iteration": it.iteration, "attempt": it.attempt, "process": it.process,
            "began_at": utc(it.began), "turn_ended_at": it.turn_ended.map(utc), "ended_at": it.ended.map(utc),
            "outcome": match it.outcome {
                AttemptOutcome::Complete => "complete",
                AttemptOutcome::Failed(_) => "failed",
                AttemptOutcome::Unfinished(_) => "unfinished",
                AttemptOutcome::Checking => "checking",
                _ => "running",
            },
            "reason": match &it.outcome { AttemptOutcome::Failed(why) => Some(why), _ => None },
            "unfinished_cause": match it.outcome { AttemptOutcome::Unfinished(cause) => cause, _ => None },
            "discarded": it.discarded, "continues_session": it.continues, "usage": money::usage_json(it.usage),
            "denied": it.denied, "no_progress": it.no_progress, "leftovers_ended": it.leftovers, "survivors": it.survivors,
            "commands": it.commands.iter().map(|it| json!({
                "command": match it.command {
                    loop_state::LoopCommand::RequiredCheck(index) => format!("gate {}", index + 1),
                    loop_state::LoopCommand::Check => "check".to_owned(),
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
        "active_ms": timeline.active_ms(), "iterations_complete": m.iterations_complete(), "usage": money::usage_json(m.usage),
        "phases": timeline.phases.iter().map(|it| json!({
            "phase": it.name, "number": it.index + 1, "began_at": utc(it.began), "ended_at": it.ended.map(utc),
            "iterations": it.iterations, "evidence": it.evidence, "result": it.result,
            "usage": money::usage_json(it.usage), "discarded": it.discarded,
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
                "from": it.from, "previous_agent": it.predecessor,
            })
        }).collect::<Value>(),
        "steers": timeline.steers.iter().map(|it| json!({
            "id": it.id, "at": utc(it.at), "text": it.text, "state_at": utc(it.state_at), "state": steer_state(timeline, it.state),
        })).collect::<Value>(),
        "events": timeline.events.iter().map(|it| moment(it.at, &it.kind)).collect::<Value>(),
        "end": m.end.as_ref().map(|end| json!({
            "at": utc(end.at), "reason": end.reason.to_string(), "exit_code": exit_code,
            "evidence": match end.reason {
                StopReason::Done(it) => Some(it),
                StopReason::AlreadyDone => Some(Evidence::Check),
                _ => None,
            },
        })),
        "unknown": timeline.unknown,
    })
}

/// Returns the progress of a message. A command doesn't report what it reads: such a message was in a prompt.
fn steer_state(timeline: &Timeline, state: SteerState) -> Value {
    match state {
        SteerState::Seen if !timeline.reports_reading() => json!("in_prompt"),
        state => json!(state),
    }
}

fn wait(wait: &WaitSpan) -> Value {
    json!({
        "for": match wait.cause {
            WaitedFor::Sleep => "sleep",
            WaitedFor::RateLimit => "rate_limit",
            WaitedFor::Retry => "retry",
            WaitedFor::Review(ReviewPoint::Phase) => "review_phase",
            WaitedFor::Review(_) => "review_batch",
            WaitedFor::Interrupt => "interrupt",
            _ => "pause",
        },
        "began_at": utc(wait.began), "until": wait.until.map(utc), "ended_at": wait.ended.map(utc), "what": wait.message,
    })
}

fn moment(at: Timestamp, what: &TimelineEventKind) -> Value {
    let (what, detail) = match what {
        TimelineEventKind::Interrupted => ("interrupted", Value::Null),
        TimelineEventKind::Continued => ("continued", Value::Null),
        TimelineEventKind::Pausing => ("pausing", Value::Null),
        TimelineEventKind::Stopping(stop) => {
            let by = match stop.by {
                StopCause::Person => "person",
                StopCause::Terminated => "sigterm",
                StopCause::HungUp => "sighup",
                _ => "unknown",
            };
            (
                match stop.when {
                    StopTiming::AfterIteration => "stopping_after_iteration",
                    StopTiming::Now => "stopping",
                },
                by.into(),
            )
        }
        TimelineEventKind::Redone(again) => ("redone", json!(again)),
        TimelineEventKind::Reviewed(verdict) => ("reviewed", json!(verdict)["decision"].take()),
        TimelineEventKind::RuleChanged(change) => ("rule_changed", change.to_string().into()),
        TimelineEventKind::NoProgress(in_a_row) => ("no_progress", in_a_row.to_string().into()),
        TimelineEventKind::SessionLost => ("session_lost", Value::Null),
        TimelineEventKind::DataLost => ("data_lost", Value::Null),
        TimelineEventKind::Suspended(ms) => ("suspended", format!("{ms} ms").into()),
        TimelineEventKind::Notified(record) => (
            match record.result {
                DeliveryResult::Delivered(_) => "notified",
                DeliveryResult::Failed(_) => "notify_failed",
            },
            delivery(record).into(),
        ),
        TimelineEventKind::Discarded { from, attempts, .. } => (
            "discarded",
            format!("{attempts} attempts, from iteration {from} on").into(),
        ),
    };
    json!({"at": utc(at), "what": what, "detail": detail})
}
