//! A full sample of each line of the control socket.

use std::borrow::Cow;
use std::time::Duration;

use agent_duplex::{Ask, Line, ProcessName, Stream};
use agent_subprocess::ProcessId;
use loop_state::{CheckResult, Command, Head, Limits, Notice, PhaseRules, Rules, Timestamp};
use rlm_store::RunState;
use serde::Serialize;
use serde_json::Value;

use super::super::{Answer, Doing, Ended, Query, Standing, Told, answer, line};
use crate::news::News;
use crate::shutdown::{Awaited, Shutdown};
use crate::view::{AgentView, View};

const SECOND: Duration = Duration::from_secs(1);

fn doings() -> [Doing; 6] {
    // A new variant doesn't compile here until it is in the list.
    let known = |it| match it {
        Doing::Begin | Doing::Turn | Doing::Gate(_) | Doing::Check | Doing::End | Doing::Finish => {
            it
        }
    };
    [
        Doing::Begin,
        Doing::Turn,
        Doing::Gate(1),
        Doing::Check,
        Doing::End,
        Doing::Finish,
    ]
    .map(known)
}

fn awaited() -> [Awaited; 8] {
    // A new variant doesn't compile here until it is in the list.
    let known = |it| match it {
        Awaited::Save
        | Awaited::Agent { .. }
        | Awaited::Gate { .. }
        | Awaited::Check
        | Awaited::Commit
        | Awaited::Leftovers
        | Awaited::Git
        | Awaited::Notify => it,
    };
    [
        Awaited::Save,
        Awaited::Agent { pid: Some(7) },
        Awaited::Gate { gate: 1 },
        Awaited::Check,
        Awaited::Commit,
        Awaited::Leftovers,
        Awaited::Git,
        Awaited::Notify,
    ]
    .map(known)
}

fn shutdown() -> Shutdown {
    Shutdown {
        awaited: Some(Awaited::Check),
        since: Timestamp(1),
        until: Timestamp(2),
    }
}

fn answers() -> Vec<Answer> {
    let why = || "no".to_owned();
    let standing = Standing {
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
        session: Some("s1".into()),
        turned_ms: 5,
        doing: Some(Doing::Gate(1)),
        shutdown: Some(shutdown()),
        agent_alive: true,
        held_for: Some(2),
        tools: vec!["ls".into()],
        asks: vec!["rm".into()],
    };
    let ended = Ended {
        reason: "stopped".into(),
        ended: 5,
        survivors: vec![agent_subprocess::ProcessName {
            pid: 9,
            name: "sh".into(),
        }],
        proven: true,
    };
    let all = vec![
        Answer::Recorded {
            steer: Some(3),
            budget_ms: Some(8000),
        },
        Answer::Delivered,
        Answer::NextPrompt,
        Answer::InEffect,
        Answer::Rejected { why: why() },
        Answer::Refused { why: why() },
        Answer::Unsupported { what: why() },
        Answer::Malformed { why: why() },
        Answer::Busy,
        Answer::Status(Box::new(standing)),
        Answer::Ended(ended),
    ];
    // A new variant doesn't compile here until it is in the list.
    let known = |it: &Answer| match it {
        Answer::Recorded { .. }
        | Answer::Delivered
        | Answer::NextPrompt
        | Answer::InEffect
        | Answer::Rejected { .. }
        | Answer::Refused { .. }
        | Answer::Unsupported { .. }
        | Answer::Malformed { .. }
        | Answer::Busy
        | Answer::Status(_)
        | Answer::Ended(_) => true,
        Answer::Unknown => false,
    };
    assert!(all.iter().all(known));
    all
}

fn news() -> Vec<News> {
    let processes = || {
        vec![ProcessName {
            pid: 9,
            name: "sh".into(),
        }]
    };
    let all = vec![
        News::Run(Notice::Fresh),
        News::Phase {
            name: "plan".into(),
            number: 1,
            of: 2,
        },
        News::AgentStarted { pid: 7 },
        News::Output {
            stream: Stream::Stderr,
            line: Line {
                bytes: "a".into(),
                omitted: 3,
            },
        },
        News::Agent(agent_duplex::Event::Polled),
        News::GoesOn,
        News::NextPrompt(1),
        News::InPrompt(1),
        News::Said {
            id: 1,
            text: "use tabs".into(),
        },
        News::Rejected(Cow::Borrowed("no")),
        News::PauseReason("lunch".into()),
        News::CommandStarted {
            command: Command::Gate(1),
            text: "make".into(),
        },
        News::CommandEnded {
            command: Command::Check,
            result: CheckResult::Failed("no".into()),
            took: SECOND,
        },
        News::Committed {
            iteration: 1,
            commit: "1234".into(),
            left_out: vec!["a".into()],
        },
        News::EndingTurn {
            why: "steer".into(),
            budget: SECOND,
        },
        News::Silent {
            silent: SECOND,
            of: SECOND,
        },
        News::Holding {
            tasks: 1,
            patience: SECOND,
        },
        News::StillWaiting {
            until: Timestamp(1),
            left: SECOND,
        },
        News::Stopping {
            budget: SECOND,
            awaited: Some(Awaited::Check),
        },
        News::StopWaiting {
            awaited: Awaited::Check,
            left: SECOND,
        },
        News::Ended {
            why: Cow::Borrowed("leftovers"),
            processes: processes(),
        },
        News::Survivors(processes()),
        News::Warning("odd".into()),
        News::Missed(4),
    ];
    // A new variant doesn't compile here until it is in the list.
    let known = |it: &News| match it {
        News::Run(_)
        | News::Phase { .. }
        | News::AgentStarted { .. }
        | News::Output { .. }
        | News::Agent(_)
        | News::GoesOn
        | News::NextPrompt(_)
        | News::InPrompt(_)
        | News::Said { .. }
        | News::Rejected(_)
        | News::PauseReason(_)
        | News::CommandStarted { .. }
        | News::CommandEnded { .. }
        | News::Committed { .. }
        | News::EndingTurn { .. }
        | News::Silent { .. }
        | News::Holding { .. }
        | News::StillWaiting { .. }
        | News::Stopping { .. }
        | News::StopWaiting { .. }
        | News::Ended { .. }
        | News::Survivors(_)
        | News::Warning(_)
        | News::Missed(_) => true,
    };
    assert!(all.iter().all(known));
    all
}

fn view() -> Told {
    let phase = PhaseRules {
        name: "main".into(),
        limits: Limits {
            max_iterations: Some(1),
            ..Limits::default()
        },
        ..PhaseRules::default()
    };
    let rules = Rules {
        phases: vec![phase],
        ..Rules::default()
    };
    Told::View(Box::new(View {
        head: Head::new(rules).unwrap(),
        agent: AgentView {
            alive: true,
            held_for: Some(1),
            interruptible: true,
            steerable: true,
            tools: vec!["ls".into()],
            asks: vec![Ask {
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
fn told(message: &impl Serialize) -> String {
    let mut value: Value = serde_json::from_slice(&line(message)).unwrap();
    if let Some(head) = value.get_mut("head") {
        *head = Value::Null;
    }
    value.to_string()
}

/// A new, changed or removed key or variant needs a decision, because programs of other versions read these lines.
#[test]
fn each_line_has_this_form() {
    let mut lines = vec![
        told(&Query::Status),
        told(&Query::Attach { attended: true }),
    ];
    for sent in answers() {
        let text = line(&sent);
        assert_eq!(answer(&text).as_ref(), Ok(&sent));
        lines.push(told(&sent));
    }
    lines.push(told(&view()));
    for news in news() {
        let sent = told(&Told::News {
            at: Timestamp(1),
            news: Box::new(news),
        });
        let read: Told = serde_json::from_str(&sent).unwrap();
        assert_eq!(told(&read), sent);
        lines.push(sent);
    }
    lines.push(serde_json::to_string(&(doings(), awaited())).unwrap());
    insta::assert_snapshot!(lines.join("\n"));
}
