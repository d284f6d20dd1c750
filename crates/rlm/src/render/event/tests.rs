//! Run events of many kinds, as people and as programs see them.

use super::*;
use agent_duplex::Line;
use loop_state::{Occasion, RuleChange, Tree};

fn samples() -> Vec<News> {
    let line = |bytes: &'static [u8]| Line {
        bytes: bytes.into(),
        omitted: 0,
    };
    let process = |pid, name: &str| ProcessName {
        pid,
        name: name.into(),
    };
    vec![
        News::Run(Notice::AttemptStarted {
            iteration: 2,
            attempt: 1,
            again: false,
        }),
        News::Run(Notice::AttemptStarted {
            iteration: 2,
            attempt: 3,
            again: true,
        }),
        News::Phase {
            name: "build".into(),
            number: 2,
            of: 3,
        },
        News::AgentStarted { pid: 42 },
        News::Output {
            stream: Stream::Stdout,
            line: line(b"work\x1b[2J done"),
        },
        News::Output {
            stream: Stream::Stderr,
            line: line(b"oh \xff"),
        },
        News::CommandStarted {
            command: Command::Check,
            text: "make\ntest".into(),
        },
        News::CommandEnded {
            command: Command::Gate(0),
            result: CheckResult::Failed("1\n2\n3\n4\n5\n6\n7\n8\n9\n(exit status 1)".into()),
            took: Duration::from_millis(1234),
        },
        News::CommandEnded {
            command: Command::Check,
            result: CheckResult::Passed,
            took: Duration::ZERO,
        },
        News::CommandEnded {
            command: Command::Check,
            result: CheckResult::Stopped,
            took: Duration::ZERO,
        },
        News::EndingTurn {
            why: "no output for 2s".into(),
            budget: Duration::from_secs(8),
        },
        News::Silent {
            silent: Duration::from_secs(600),
            of: Duration::from_secs(900),
        },
        News::Holding {
            tasks: 2,
            patience: Duration::from_secs(30),
        },
        News::Ended {
            why: "left running by the agent".into(),
            processes: vec![process(7, "sleep"), process(8, "node")],
        },
        News::InPrompt(3),
        News::Survivors(vec![process(9, "su\x1b[31m")]),
        News::Run(Notice::IterationEnded {
            iteration: 2,
            failure: None,
            leftovers: Tree {
                ended: 2,
                survivors: 0,
            },
            usage: Usage {
                input_tokens: 1200,
                output_tokens: 34,
                cost_microusd: 123_456,
            },
        }),
        News::Run(Notice::IterationEnded {
            iteration: 2,
            failure: Some("exit status 1".into()),
            leftovers: Tree::default(),
            usage: Usage::default(),
        }),
        News::Run(Notice::Sleeping {
            until: Timestamp(1_000_000_010_000),
        }),
        News::Run(Notice::Waiting {
            why: Wait::Limit,
            until: Timestamp(1_000_000_010_000),
            what: Some("usage limit\x1b[2J reached".into()),
        }),
        News::Run(Notice::Waiting {
            why: Wait::Retry,
            until: Timestamp(1_000_000_010_000),
            what: None,
        }),
        News::StillWaiting {
            until: Timestamp(1_000_000_010_000),
            left: Duration::from_millis(12_000_400),
        },
        News::Run(Notice::Review(Occasion::Phase)),
        News::Run(Notice::Review(Occasion::Batch)),
        News::Run(Notice::Reviewed(Verdict::StartOver)),
        News::Run(Notice::RuleSet(RuleChange::MaxIterations(Some(9)))),
        News::Run(Notice::PhaseRuleSet {
            phase: "build".into(),
            change: RuleChange::CheckTimeout(Duration::from_secs(60)),
        }),
        News::Stopping {
            budget: Duration::from_secs(8),
            awaited: Some(Awaited::Agent { pid: Some(7) }),
        },
        News::Stopping {
            budget: Duration::ZERO,
            awaited: Some(Awaited::Check),
        },
        News::Stopping {
            budget: Duration::from_secs(8),
            awaited: None,
        },
        News::StopWaiting {
            awaited: Awaited::Gate { gate: 2 },
            left: Duration::from_secs(7),
        },
        News::StopWaiting {
            awaited: Awaited::Commit,
            left: Duration::from_secs(1),
        },
        News::PauseReason("lunch\x1b[2J".into()),
        News::Warning("the prompt file is missing".into()),
        News::Missed(12),
    ]
}

#[test]
fn what_people_see() {
    let lines: Vec<String> = samples()
        .iter()
        .map(|n| anstream::adapter::strip_str(&text(n, &TimeZone::UTC)).to_string())
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn what_programs_see() {
    let lines: Vec<String> = samples()
        .iter()
        .map(|n| json(Timestamp(1_000_000_000_123), n).unwrap().to_string())
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}
