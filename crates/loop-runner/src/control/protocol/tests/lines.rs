//! A full sample of each line of the control socket.

use std::borrow::Cow;
use std::time::Duration;

use agent_duplex::{Line, PermissionRequest, ProcessName, Stream};
use agent_subprocess::ProcessId;
use loop_state::{
    CheckResult, Head, LoopCommand, PhaseLimits, PhaseRules, Rules, RunUpdate, Timestamp,
};
use rlm_store::RunState;
use serde::Serialize;
use serde_json::Value;

use super::super::{
    Activity, AttachMessage, ControlQuery, EndReport, Response, Status, line, parse_response,
};
use crate::run_event::RunEvent;
use crate::stop_progress::{Awaited, StopProgress};
use crate::view::{AgentView, View};

const SECOND: Duration = Duration::from_secs(1);

fn activities() -> [Activity; 6] {
    // A new variant doesn't compile here until it is in the list.
    let known = |it| match it {
        Activity::Starting
        | Activity::Turn
        | Activity::RequiredCheck(_)
        | Activity::Check
        | Activity::EndingLeftovers
        | Activity::Finishing => it,
    };
    [
        Activity::Starting,
        Activity::Turn,
        Activity::RequiredCheck(1),
        Activity::Check,
        Activity::EndingLeftovers,
        Activity::Finishing,
    ]
    .map(known)
}

fn awaited() -> [Awaited; 8] {
    // A new variant doesn't compile here until it is in the list.
    let known = |it| match it {
        Awaited::Save
        | Awaited::Agent { .. }
        | Awaited::RequiredCheck { .. }
        | Awaited::Check
        | Awaited::Commit
        | Awaited::Leftovers
        | Awaited::Git
        | Awaited::Notify => it,
    };
    [
        Awaited::Save,
        Awaited::Agent { pid: Some(7) },
        Awaited::RequiredCheck { required_check: 1 },
        Awaited::Check,
        Awaited::Commit,
        Awaited::Leftovers,
        Awaited::Git,
        Awaited::Notify,
    ]
    .map(known)
}

fn shutdown() -> StopProgress {
    StopProgress {
        awaited: Some(Awaited::Check),
        since: Timestamp::from_millis(1),
        until: Timestamp::from_millis(2),
    }
}

fn answers() -> Vec<Response> {
    let why = || "no".to_owned();
    let status = Status {
        run: "r1".parse().unwrap(),
        state: RunState::Paused,
        process: ProcessId {
            pid: 7,
            start_time: 8,
        },
        phase: "plan".into(),
        phase_number: 1,
        phases: 2,
        review: Some("phase".into()),
        iteration: 3,
        attempt: 4,
        iterations_complete: 2,
        pausing: true,
        stopping: true,
        steers_waiting: 1,
        attended: true,
        session: Some("s1".into()),
        last_tick_ms: 5,
        activity: Some(Activity::RequiredCheck(1)),
        shutdown: Some(shutdown()),
        agent_alive: true,
        awaited_tasks: Some(2),
        tools: vec!["ls".into()],
        permission_requests: vec!["rm".into()],
    };
    let ended = EndReport {
        reason: "stopped".into(),
        ended_processes: 5,
        survivors: vec![agent_subprocess::ProcessName {
            pid: 9,
            name: "sh".into(),
        }],
        proven: true,
    };
    let all = vec![
        Response::Recorded {
            steer: Some(3),
            budget_ms: Some(8000),
        },
        Response::Delivered,
        Response::NextPrompt,
        Response::Applied,
        Response::Rejected { reason: why() },
        Response::Refused { reason: why() },
        Response::Unsupported { what: why() },
        Response::Malformed { reason: why() },
        Response::Busy,
        Response::Status(Box::new(status)),
        Response::RunEnded(ended),
    ];
    // A new variant doesn't compile here until it is in the list.
    let known = |it: &Response| match it {
        Response::Recorded { .. }
        | Response::Delivered
        | Response::NextPrompt
        | Response::Applied
        | Response::Rejected { .. }
        | Response::Refused { .. }
        | Response::Unsupported { .. }
        | Response::Malformed { .. }
        | Response::Busy
        | Response::Status(_)
        | Response::RunEnded(_) => true,
        Response::Unknown => false,
    };
    assert!(all.iter().all(known));
    all
}

fn run_events() -> Vec<RunEvent> {
    let processes = || {
        vec![ProcessName {
            pid: 9,
            name: "sh".into(),
        }]
    };
    let all = vec![
        RunEvent::Update(RunUpdate::FreshSession),
        RunEvent::Phase {
            name: "plan".into(),
            number: 1,
            count: 2,
        },
        RunEvent::AgentStarted { pid: 7 },
        RunEvent::Output {
            stream: Stream::Stderr,
            line: Line {
                bytes: "a".into(),
                omitted: 3,
            },
        },
        RunEvent::Agent(agent_duplex::Event::AcceptsMessages),
        RunEvent::TurnContinued,
        RunEvent::SteerNextTurn(1),
        RunEvent::InPrompt(1),
        RunEvent::SteerRecorded {
            id: 1,
            text: "use tabs".into(),
        },
        RunEvent::RequestRejected(Cow::Borrowed("no")),
        RunEvent::PauseReason("lunch".into()),
        RunEvent::Paused {
            reason: Some("lunch".into()),
        },
        RunEvent::CommandStarted {
            command: LoopCommand::RequiredCheck(1),
            text: "make".into(),
        },
        RunEvent::CommandEnded {
            command: LoopCommand::Check,
            result: CheckResult::Failed("no".into()),
            took: SECOND,
        },
        RunEvent::IterationChanges {
            iteration: 1,
            files: 2,
            added: 3,
            removed: 4,
            summary: Some("I did it".into()),
        },
        RunEvent::IterationCommitted {
            iteration: 1,
            commit: "1234".into(),
            left_out: vec!["a".into()],
        },
        RunEvent::EndingTurn {
            why: "steer".into(),
            budget: SECOND,
        },
        RunEvent::AgentSilent {
            silent: SECOND,
            of: SECOND,
        },
        RunEvent::AwaitingTasks {
            tasks: 1,
            timeout: SECOND,
        },
        RunEvent::StillWaiting {
            until: Timestamp::from_millis(1),
            left: SECOND,
        },
        RunEvent::Stopping {
            budget: SECOND,
            awaited: Some(Awaited::Check),
        },
        RunEvent::StopAwaits {
            awaited: Awaited::Check,
            left: SECOND,
        },
        RunEvent::ProcessesEnded {
            run: Some("r0".parse().unwrap()),
            why: Cow::Borrowed("leftovers"),
            processes: processes(),
        },
        RunEvent::Survivors(processes()),
        RunEvent::Warning("odd".into()),
        RunEvent::EventsMissed(4),
    ];
    // A new variant doesn't compile here until it is in the list.
    let known = |it: &RunEvent| match it {
        RunEvent::Update(_)
        | RunEvent::Phase { .. }
        | RunEvent::AgentStarted { .. }
        | RunEvent::Output { .. }
        | RunEvent::Agent(_)
        | RunEvent::TurnContinued
        | RunEvent::SteerNextTurn(_)
        | RunEvent::InPrompt(_)
        | RunEvent::SteerRecorded { .. }
        | RunEvent::RequestRejected(_)
        | RunEvent::PauseReason(_)
        | RunEvent::Paused { .. }
        | RunEvent::CommandStarted { .. }
        | RunEvent::CommandEnded { .. }
        | RunEvent::IterationChanges { .. }
        | RunEvent::IterationCommitted { .. }
        | RunEvent::EndingTurn { .. }
        | RunEvent::AgentSilent { .. }
        | RunEvent::AwaitingTasks { .. }
        | RunEvent::StillWaiting { .. }
        | RunEvent::Stopping { .. }
        | RunEvent::StopAwaits { .. }
        | RunEvent::ProcessesEnded { .. }
        | RunEvent::Survivors(_)
        | RunEvent::Warning(_)
        | RunEvent::EventsMissed(_) => true,
    };
    assert!(all.iter().all(known));
    all
}

fn view() -> AttachMessage {
    let phase = PhaseRules {
        name: "main".into(),
        limits: PhaseLimits {
            max_iterations: Some(1),
            ..PhaseLimits::default()
        },
        ..PhaseRules::default()
    };
    let rules = Rules {
        phases: vec![phase],
        ..Rules::default()
    };
    AttachMessage::View(Box::new(View {
        head: Head::new(rules).unwrap(),
        pause_reason: Some("lunch".into()),
        agent: AgentView {
            alive: true,
            awaited_tasks: Some(1),
            interruptible: true,
            steerable: true,
            tools: vec!["ls".into()],
            permission_requests: vec![PermissionRequest {
                id: "a1".into(),
                tool: "Bash".into(),
                summary: "rm".into(),
                reason: "outside".into(),
            }],
        },
        shutdown: Some(shutdown()),
    }))
}

/// Returns the line of a message, without the saved head, which another snapshot covers.
fn line_without_head(message: &impl Serialize) -> String {
    let mut value: Value = serde_json::from_slice(&line(message)).unwrap();
    if let Some(head) = value.get_mut("head") {
        *head = Value::Null;
    }
    // The version of this crate changes with each release.
    value["program"] = "rlm 0.1.0".into();
    value.to_string()
}

/// A new, changed or removed key or variant needs a decision, because programs of other versions read these lines.
#[test]
fn each_line_has_this_form() {
    let mut lines = vec![
        line_without_head(&ControlQuery::Status),
        line_without_head(&ControlQuery::Attach { attended: true }),
    ];
    for sent in answers() {
        let text = line(&sent);
        assert_eq!(parse_response(&text).as_ref(), Ok(&sent));
        lines.push(line_without_head(&sent));
    }
    lines.push(line_without_head(&view()));
    for event in run_events() {
        let sent = line_without_head(&AttachMessage::Event {
            at: Timestamp::from_millis(1),
            event: Box::new(event),
        });
        let read: AttachMessage = serde_json::from_str(&sent).unwrap();
        assert_eq!(line_without_head(&read), sent);
        lines.push(sent);
    }
    lines.push(serde_json::to_string(&(activities(), awaited())).unwrap());
    insta::assert_snapshot!(lines.join("\n"));
}
