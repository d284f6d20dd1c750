//! `rlm` itself, once for each way.

use std::path::Path;
use std::time::Duration;

use rlm_survivors::{Moment, Plan, Verdict, Way};

use crate::{LONG, SUBJECT, plan, stopped};

fn expect_nothing_left(plan: &Plan, way: Way) -> String {
    match stopped(plan, way) {
        Verdict::Ended { left, status, .. } if left.is_empty() => status,
        other => panic!("{}: {other:?}", way.name()),
    }
}

fn ours(moment: Moment) -> Plan {
    Plan {
        moment,
        ..plan(&Plan::ours(Path::new(SUBJECT), moment), LONG)
    }
}

#[test]
fn x101a_x101b_x101c_nothing_outlives_a_stop() {
    for (way, status) in [
        (Way::OnePress, "SIGINT"),
        (Way::Term, "SIGTERM"),
        (Way::HangUp, "SIGHUP"),
    ] {
        assert_eq!(expect_nothing_left(&ours(Moment::Turn), way), status);
    }
}

#[test]
fn x103h_nothing_outlives_three_presses_that_all_else_ignores() {
    let plan = Plan {
        stubborn: true,
        ..ours(Moment::Turn)
    };
    assert_eq!(expect_nothing_left(&plan, Way::ThreePresses), "SIGINT");
}

#[test]
fn x102a_nothing_outlives_a_kill() {
    for moment in [Moment::Turn, Moment::Gate] {
        expect_nothing_left(&ours(moment), Way::Kill);
    }
}

#[test]
fn x101g_nothing_outlives_a_press_in_the_start_a_gate_or_the_sleep() {
    for moment in [Moment::Start, Moment::Gate, Moment::Sleep] {
        expect_nothing_left(&ours(moment), Way::OnePress);
    }
}

#[test]
fn h7_nothing_of_a_git_filter_outlives_a_stop() {
    let status = expect_nothing_left(&ours(Moment::Turn), Way::GitFilter);
    assert_eq!(status, "SIGTERM");
}

#[test]
fn w3_nothing_outlives_a_killed_guard_and_a_stop() {
    expect_nothing_left(&ours(Moment::Turn), Way::KilledGuard);
}

#[test]
fn a_child_that_became_root_is_named_and_is_exit_8() {
    match stopped(&ours(Moment::Turn), Way::SetuidChild) {
        Verdict::Skipped { why } => println!("skipped: {why}"),
        Verdict::Named { status, left, .. } => {
            assert_eq!((status.as_str(), left.len()), ("8", 1), "{left:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_agent_is_found_by_its_name_too() {
    let plan = Plan {
        agent_name: "some-agent".into(),
        ..plan("exec some-agent --print 'a prompt'", Duration::from_secs(1))
    };
    let verdict = stopped(&plan, Way::Kill);
    assert!(
        matches!(&verdict, Verdict::Ended { left, .. } if !left.is_empty()),
        "{verdict:?}"
    );
}
