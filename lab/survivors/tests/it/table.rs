//! The output for made-up scores.

use std::time::Duration;

use rlm_survivors::{Role, Row, Run, RunResult, Score, StopMethod, Survivor};

fn ended(status: &str, tool: u64, all: Option<u64>, left: &[Role]) -> RunResult {
    let survivor = |(number, role): (usize, &Role)| Survivor {
        role: *role,
        pid: 4242 + i32::try_from(number).unwrap(),
        name: "survivors-agent".into(),
        zombie: number == 1,
    };
    RunResult::Ended {
        status: status.into(),
        tool_gone: Duration::from_millis(tool),
        all_gone: all.map(Duration::from_millis),
        left: left.iter().enumerate().map(survivor).collect(),
    }
}

fn score(verdicts: impl Fn(StopMethod) -> Vec<RunResult>) -> Score {
    let runs = |way| {
        let verdicts = verdicts(way).into_iter().enumerate();
        verdicts.map(move |(number, verdict)| Run {
            way,
            number,
            verdict,
        })
    };
    Score::of(
        &StopMethod::ALL,
        StopMethod::ALL.into_iter().flat_map(runs).collect(),
    )
}

#[test]
fn all_zeros() {
    let score = score(|_| {
        let clean = |ms| ended("SIGINT", ms, Some(ms + 10), &[]);
        vec![clean(300), clean(40), clean(50)]
    });
    assert!(score.is_clean());
    insta::assert_snapshot!(score.table(false));
}

#[test]
fn every_kind_of_failure() {
    let score = score(|way| match way {
        StopMethod::OnePress => vec![
            ended("0", 20, None, &[Role::Setsid, Role::Daemon]),
            ended("130", 30, Some(31), &[]),
            RunResult::Ignored { left: ended_left() },
        ],
        StopMethod::ThreePresses => vec![RunResult::Ignored { left: vec![] }; 2],
        StopMethod::Term => vec![
            ended("SIGTERM", 1, None, &[Role::Other; 10]),
            RunResult::NeverReady {
                why: "the tool printed nothing".into(),
            },
        ],
        StopMethod::HangUp => vec![],
        StopMethod::Kill => vec![ended("SIGKILL", 1, Some(2500), &[])],
        StopMethod::GitFilter => vec![ended("SIGTERM", 1, None, &[Role::Other])],
        StopMethod::KilledGuard => vec![RunResult::Skipped {
            why: "no guard".into(),
        }],
        StopMethod::SetuidChild => vec![RunResult::Named {
            status: "8".into(),
            tool_gone: Duration::from_millis(900),
            left: ended_left(),
        }],
    });
    assert!(!score.is_clean());
    let clean: Vec<bool> = score.rows.iter().map(Row::is_clean).collect();
    assert_eq!(clean, [false, false, false, false, true, false, true, true]);
    insta::assert_snapshot!(score.table(false));
    let coloured = score.table(true);
    assert!(
        coloured.contains("\x1b[31m     1/2\x1b[0m")
            && coloured.contains("\x1b[32m     0/1\x1b[0m"),
        "{coloured}"
    );
}

fn ended_left() -> Vec<Survivor> {
    vec![Survivor {
        role: Role::Agent,
        pid: 7,
        name: "survivors-agent".into(),
        zombie: false,
    }]
}
