//! Loops that do not stop. The score must be red for each of them; otherwise its zeros would mean nothing.

use std::time::Duration;

use rlm_survivors::{Role, RunResult, StopMethod};

use crate::{SUBJECT, plan, stopped};

/// The time limit after a stop. A process that is still alive then would stay alive for ten minutes.
const TIME_LIMIT: Duration = Duration::from_secs(1);
const SHELL_LOOP: &str = "while :; do {agent}; done";

/// Returns the roles of the survivors, each once.
fn left(command: &str, way: StopMethod) -> Vec<Role> {
    match stopped(&plan(command, TIME_LIMIT), way) {
        RunResult::Ended { left, .. } => {
            let mut roles: Vec<Role> = left.into_iter().map(|survivor| survivor.role).collect();
            roles.dedup();
            roles
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn x101h_control_shell_loop_leaves_processes_without_terminal() {
    assert_eq!(
        left(SHELL_LOOP, StopMethod::OnePress),
        [Role::Setsid, Role::Daemon]
    );
}

#[test]
fn x101h_control_group_kill_leaves_processes_outside_the_group() {
    let command = format!("SURVIVORS_SUBJECT=killpg {SUBJECT} {{agent}}");
    assert_eq!(
        left(&command, StopMethod::Term),
        [Role::Setsid, Role::Daemon]
    );
}

#[test]
fn x102f_control_shell_loop_leaves_every_process() {
    let all = &Role::ALL[..5];
    assert_eq!(left(SHELL_LOOP, StopMethod::Kill), all);
}

#[test]
fn x102f_control_without_a_guard_a_kill_leaves_every_kind() {
    let command =
        format!("SURVIVORS_SUBJECT=unguarded {SUBJECT} run --no-input --once -p x -- {{agent}}");
    let left = left(&command, StopMethod::Kill);
    assert!(
        Role::ALL[..4].iter().all(|role| left.contains(role)),
        "{left:?}"
    );
}

#[test]
fn tool_that_ignores_stop_does_not_score_zero() {
    // Bash runs a trap when the command before it has ended.
    let verdict = stopped(
        &plan("trap : TERM; {agent}; {agent}", TIME_LIMIT),
        StopMethod::Term,
    );
    let RunResult::Ignored { left } = verdict else {
        panic!("{verdict:?}");
    };
    assert!(
        left.iter().any(|survivor| survivor.role == Role::Agent),
        "{left:?}"
    );
}

#[test]
fn tool_that_exits_before_stop_is_scored_by_its_survivors() {
    let all_are_there = "[ $(ls ../agent/record/child-* | wc -l) -ge 4 ]";
    let command = format!("{{agent}} & until {all_are_there}; do sleep 0.05; done 2>/dev/null");
    for way in [StopMethod::Term, StopMethod::Kill] {
        assert_eq!(left(&command, way), &Role::ALL[..5], "{way:?}");
    }
}

#[test]
fn tool_that_never_starts_the_agent_does_not_score_zero() {
    let verdict = stopped(&plan("echo no {agent}", TIME_LIMIT), StopMethod::Kill);
    let RunResult::NeverReady { why } = verdict else {
        panic!("{verdict:?}");
    };
    assert!(why.contains("its last lines: no /"), "{why}");
}

#[test]
fn h7_control_loop_with_git_leaves_processes_of_a_filter() {
    let command = "while :; do {agent}; git status; done";
    assert_eq!(left(command, StopMethod::GitFilter), [Role::Other]);
}

#[test]
fn w3_control_loop_leaves_children_of_a_killed_parent() {
    let command = "while :; do bash -c '{agent}; true'; done";
    assert_eq!(left(command, StopMethod::KilledGuard), Role::ALL);
}

#[test]
fn control_loop_does_not_name_processes_that_it_cannot_end() {
    let stopped = stopped(&plan(SHELL_LOOP, TIME_LIMIT), StopMethod::SetuidChild);
    match stopped {
        RunResult::Skipped { why } => println!("skipped: {why}"),
        RunResult::Ended { left, .. } => {
            assert!(left.iter().any(|it| it.role == Role::Other), "{left:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn tool_without_git_or_guard_does_not_score_zero() {
    for way in [StopMethod::GitFilter, StopMethod::KilledGuard] {
        let verdict = stopped(&plan(SHELL_LOOP, TIME_LIMIT), way);
        assert!(matches!(verdict, RunResult::Skipped { .. }), "{verdict:?}");
    }
}
