//! Run events of many kinds, as people and as programs see them.

use super::*;
use agent_duplex::Line;
use loop_state::{CheckOutcome, ProcessTreeOutcome, ReviewPoint, RuleChange};

fn samples() -> Vec<RunEvent> {
    let line = |bytes: &'static [u8]| Line {
        bytes: bytes.into(),
        omitted: 0,
    };
    let process = |pid, name: &str| ProcessName {
        pid,
        name: name.into(),
    };
    vec![
        RunEvent::Update(RunUpdate::AttemptStarted {
            iteration: 2,
            attempt: 1,
            is_retry: false,
        }),
        RunEvent::Update(RunUpdate::AttemptStarted {
            iteration: 2,
            attempt: 3,
            is_retry: true,
        }),
        RunEvent::Phase {
            name: "build".into(),
            number: 2,
            count: 3,
        },
        RunEvent::AgentStarted { pid: 42 },
        RunEvent::Output {
            stream: Stream::Stdout,
            line: line(b"work\x1b[2J done"),
        },
        RunEvent::Output {
            stream: Stream::Stderr,
            line: line(b"oh \xff"),
        },
        RunEvent::CommandStarted {
            command: LoopCommand::Check,
            text: "make\ntest".into(),
        },
        RunEvent::CommandEnded {
            command: LoopCommand::RequiredCheck(0),
            result: CheckResult::Failed("1\n2\n3\n4\n5\n6\n7\n8\n9\n(exit status 1)".into()),
            took: Duration::from_millis(1234),
        },
        RunEvent::CommandEnded {
            command: LoopCommand::Check,
            result: CheckResult::Passed,
            took: Duration::ZERO,
        },
        RunEvent::CommandEnded {
            command: LoopCommand::Check,
            result: CheckResult::Stopped,
            took: Duration::ZERO,
        },
        RunEvent::EndingTurn {
            why: "no output for 2s".into(),
            budget: Duration::from_secs(8),
        },
        RunEvent::AgentSilent {
            silent: Duration::from_secs(600),
            of: Duration::from_secs(900),
        },
        RunEvent::AwaitingTasks {
            tasks: 2,
            timeout: Duration::from_secs(30),
        },
        RunEvent::ProcessesEnded {
            why: "left alive by an earlier process".into(),
            run: Some("r0".parse().unwrap()),
            processes: vec![process(6, "sleep")],
        },
        RunEvent::ProcessesEnded {
            why: "left running by the agent".into(),
            run: None,
            processes: vec![process(7, "sleep"), process(8, "node")],
        },
        RunEvent::InPrompt(3),
        RunEvent::Survivors(vec![process(9, "su\x1b[31m")]),
        RunEvent::IterationChanges {
            iteration: 2,
            files: 0,
            added: 0,
            removed: 0,
            summary: None,
        },
        RunEvent::IterationChanges {
            iteration: 2,
            files: 2,
            added: 30,
            removed: 4,
            summary: Some("I moved\u{1b}[31m the parser".into()),
        },
        RunEvent::Update(RunUpdate::IterationEnded {
            iteration: 2,
            failure: None,
            leftovers: ProcessTreeOutcome {
                ended: 2,
                survivors: 0,
            },
            usage: UsageTotal {
                input_tokens: 1200,
                output_tokens: 34,
                cost_microusd: 123_456,
            },
            took: Duration::from_millis(192_700),
            check: Some(CheckOutcome::Failed),
        }),
        RunEvent::Update(RunUpdate::IterationEnded {
            iteration: 2,
            failure: Some("exit status 1".into()),
            leftovers: ProcessTreeOutcome::default(),
            usage: UsageTotal::default(),
            took: Duration::from_millis(9900),
            check: None,
        }),
        RunEvent::Update(RunUpdate::Sleeping {
            until: Timestamp::from_millis(1_000_000_010_000),
        }),
        RunEvent::Update(RunUpdate::Waiting {
            why: WaitCause::RateLimit,
            until: Timestamp::from_millis(1_000_000_010_000),
            what: Some("usage limit\x1b[2J reached".into()),
        }),
        RunEvent::Update(RunUpdate::Waiting {
            why: WaitCause::Retry,
            until: Timestamp::from_millis(1_000_000_010_000),
            what: None,
        }),
        RunEvent::StillWaiting {
            until: Timestamp::from_millis(1_000_000_010_000),
            left: Duration::from_millis(12_000_400),
        },
        RunEvent::Update(RunUpdate::Review(ReviewPoint::Phase)),
        RunEvent::Update(RunUpdate::Review(ReviewPoint::Batch)),
        RunEvent::Update(RunUpdate::Reviewed(ReviewDecision::StartOver)),
        RunEvent::Update(RunUpdate::RuleChanged(RuleChange::MaxIterations(Some(9)))),
        RunEvent::Update(RunUpdate::PhaseRuleChanged {
            phase: "build".into(),
            change: RuleChange::CheckTimeout(Duration::from_secs(60)),
        }),
        RunEvent::Stopping {
            budget: Duration::from_secs(8),
            awaited: Some(Awaited::Agent { pid: Some(7) }),
        },
        RunEvent::Stopping {
            budget: Duration::ZERO,
            awaited: Some(Awaited::Check),
        },
        RunEvent::Stopping {
            budget: Duration::from_secs(8),
            awaited: None,
        },
        RunEvent::StopAwaits {
            awaited: Awaited::RequiredCheck { required_check: 2 },
            left: Duration::from_secs(7),
        },
        RunEvent::StopAwaits {
            awaited: Awaited::Commit,
            left: Duration::from_secs(1),
        },
        RunEvent::PauseReason("lunch\x1b[2J".into()),
        RunEvent::Paused {
            reason: Some("lunch\x1b[2J".into()),
        },
        RunEvent::Paused { reason: None },
        RunEvent::Warning("the prompt file is missing".into()),
        RunEvent::EventsMissed(12),
    ]
}

#[test]
fn text_output_snapshot() {
    let lines: Vec<String> = samples()
        .iter()
        .map(|n| anstream::adapter::strip_str(&text(n, &TimeZone::UTC)).to_string())
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn json_output_snapshot() {
    let lines: Vec<String> = samples()
        .iter()
        .map(|n| {
            json(Timestamp::from_millis(1_000_000_000_123), n)
                .unwrap()
                .to_string()
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}
