//! `rlm` itself, once for each way.

use std::path::Path;
use std::time::Duration;

use rlm_survivors::{Plan, RunResult, StopMethod, StopMoment};

use crate::{LONG, SUBJECT, plan, stopped};

fn expect_nothing_left(plan: &Plan, way: StopMethod) -> String {
    match stopped(plan, way) {
        RunResult::Ended { left, status, .. } if left.is_empty() => status,
        other => panic!("{}: {other:?}", way.name()),
    }
}

fn ours(moment: StopMoment) -> Plan {
    Plan {
        moment,
        ..plan(&Plan::ours(Path::new(SUBJECT), moment), LONG)
    }
}

#[test]
fn x101a_x101b_x101c_nothing_outlives_a_stop() {
    for (way, status) in [
        (StopMethod::OnePress, "SIGINT"),
        (StopMethod::Term, "SIGTERM"),
        (StopMethod::HangUp, "SIGHUP"),
    ] {
        assert_eq!(expect_nothing_left(&ours(StopMoment::Turn), way), status);
    }
}

#[test]
fn x103h_three_presses_end_every_process_that_ignores_signals() {
    let plan = Plan {
        stubborn: true,
        ..ours(StopMoment::Turn)
    };
    assert_eq!(
        expect_nothing_left(&plan, StopMethod::ThreePresses),
        "SIGINT"
    );
}

#[test]
fn x102a_nothing_outlives_a_kill() {
    for moment in [StopMoment::Turn, StopMoment::Gate] {
        expect_nothing_left(&ours(moment), StopMethod::Kill);
    }
}

#[test]
fn x101g_nothing_outlives_a_press_during_start_required_check_or_sleep() {
    for moment in [StopMoment::Start, StopMoment::Gate, StopMoment::Sleep] {
        expect_nothing_left(&ours(moment), StopMethod::OnePress);
    }
}

#[test]
fn h7_git_filter_processes_end_with_a_stop() {
    let status = expect_nothing_left(&ours(StopMoment::Turn), StopMethod::GitFilter);
    assert_eq!(status, "SIGTERM");
}

#[test]
fn w3_nothing_outlives_a_killed_guard_and_a_stop() {
    expect_nothing_left(&ours(StopMoment::Turn), StopMethod::KilledGuard);
}

#[test]
fn child_that_became_root_is_named_and_causes_exit_8() {
    match stopped(&ours(StopMoment::Turn), StopMethod::SetuidChild) {
        RunResult::Skipped { why } => println!("skipped: {why}"),
        RunResult::Named { status, left, .. } => {
            assert_eq!((status.as_str(), left.len()), ("8", 1), "{left:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn agent_is_also_found_by_its_name() {
    let plan = Plan {
        agent_name: "some-agent".into(),
        ..plan("exec some-agent --print 'a prompt'", Duration::from_secs(1))
    };
    let verdict = stopped(&plan, StopMethod::Kill);
    assert!(
        matches!(&verdict, RunResult::Ended { left, .. } if !left.is_empty()),
        "{verdict:?}"
    );
}
