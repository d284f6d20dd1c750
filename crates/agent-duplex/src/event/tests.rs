//! The serialised form of events for other programs.

use super::*;
use crate::EndReason;

const ID: Uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);

/// Returns each event once, and each variant of its fields.
fn all() -> Vec<Event> {
    let id = || "t1".to_owned();
    let input = |state| Event::Input { id: ID, state };
    let finished = |outcome| Event::ToolFinished {
        id: id(),
        outcome,
        text: "ok".into(),
    };
    let completed = |reason| {
        Event::TurnCompleted(TurnEnd {
            reason,
            detail: "login".into(),
            exit: Some(ExitStatus::Code(1)),
            output_tail: "no".into(),
        })
    };
    let mut all = vec![
        Event::Started { pid: 7 },
        Event::Exited(ExitStatus::Code(1)),
        Event::Exited(ExitStatus::Signal(9)),
        Event::Session { id: id() },
        Event::Identified {
            agent: "claude 2".into(),
            model: "opus".into(),
        },
        input(InputState::Queued),
        input(InputState::InTurn),
        input(InputState::Dropped("late".into())),
        Event::TurnStarted { inputs: vec![ID] },
        Event::TextDelta("Do".into()),
        Event::ThinkingDelta("Hm".into()),
        Event::Message {
            text: "Done".into(),
            partial: true,
        },
        Event::AcceptsMessages,
        Event::ToolStarted {
            id: id(),
            name: "Bash".into(),
            summary: "ls".into(),
        },
        Event::ToolProgress { id: id() },
        finished(ToolOutcome::Succeeded),
        finished(ToolOutcome::Failed),
        finished(ToolOutcome::Denied),
        finished(ToolOutcome::Interrupted),
        Event::PermissionRequested(PermissionRequest {
            id: id(),
            tool: "Bash".into(),
            summary: "ls".into(),
            reason: "outside".into(),
        }),
        Event::PermissionWithdrawn { id: id() },
        Event::PermissionDenied {
            tool: "Bash".into(),
            message: "no".into(),
        },
        Event::UsageReported(Usage {
            input_tokens: 4,
            cached_input_tokens: 1,
            output_tokens: 2,
            cost_microusd: 3,
        }),
        Event::RateLimited {
            rejected: true,
            resets_at: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1500)),
            limit: "five_hour".into(),
        },
        Event::Retrying {
            attempt: 1,
            max_attempts: 10,
            delay: Duration::from_millis(1500),
            status: Some(529),
            error: "overloaded".into(),
        },
        Event::BackgroundTasks(2),
        Event::ContextReset {
            reason: "compacted".into(),
        },
        Event::InterruptAcknowledged { queued: vec![ID] },
        Event::PlainLine,
        Event::Warning("odd".into()),
    ];
    let reasons = [
        EndReason::Completed,
        EndReason::Interrupted,
        EndReason::Failed,
        EndReason::Died,
        EndReason::MaxTokens,
        EndReason::MaxTurns,
        EndReason::BudgetExhausted,
        EndReason::Refused,
        EndReason::RateLimited,
        EndReason::ServiceFailed,
        EndReason::TemporaryFailure,
        EndReason::NotLoggedIn,
        EndReason::SessionNotFound,
        EndReason::ContextOverflow,
        EndReason::ProtocolError,
    ];
    all.extend(reasons.map(completed));
    all
}

/// Adding, changing or removing a key or a variant needs a decision: programs that watch a run read these lines.
#[test]
fn each_event_has_this_form() {
    let lines = all().into_iter().map(|event| {
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
        line
    });
    let mut text: Vec<String> = lines.collect();
    for stream in [Stream::Stdout, Stream::Stderr] {
        let line = Line {
            bytes: Bytes::from_static(b"a\xff"),
            omitted: 3,
        };
        text.push(serde_json::to_string(&(stream, line)).unwrap());
    }
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn name_of_each_tool_outcome_reads_back() {
    for outcome in ToolOutcome::ALL {
        assert_eq!(ToolOutcome::from_name(outcome.name()), Some(outcome));
    }
    assert_eq!(ToolOutcome::from_name("Done"), None);
}
