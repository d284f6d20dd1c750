//! Loops that do not stop. The score must be red for each of them; otherwise its zeros would mean nothing.

use std::time::Duration;

use rlm_survivors::{Role, Verdict, Way};

use crate::{SUBJECT, plan, stopped};

/// A process that is alive at this time would be alive for ten minutes.
const PATIENCE: Duration = Duration::from_secs(1);
const SHELL_LOOP: &str = "while :; do {agent}; done";

/// Returns the roles of the survivors, each once.
fn left(command: &str, way: Way) -> Vec<Role> {
    match stopped(&plan(command, PATIENCE), way) {
        Verdict::Ended { left, .. } => {
            let mut roles: Vec<Role> = left.into_iter().map(|survivor| survivor.role).collect();
            roles.dedup();
            roles
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn x101h_control_a_shell_loop_leaves_what_has_left_the_terminal() {
    assert_eq!(
        left(SHELL_LOOP, Way::OnePress),
        [Role::Setsid, Role::Daemon]
    );
}

#[test]
fn x101h_control_a_group_kill_leaves_what_has_left_the_group() {
    let command = format!("SURVIVORS_SUBJECT=killpg {SUBJECT} {{agent}}");
    assert_eq!(left(&command, Way::Term), [Role::Setsid, Role::Daemon]);
}

#[test]
fn x102f_control_a_shell_loop_leaves_everything() {
    let all = &Role::ALL[..5];
    assert_eq!(left(SHELL_LOOP, Way::Kill), all);
}

#[test]
fn x102f_control_without_a_guard_a_kill_leaves_every_kind() {
    let command =
        format!("SURVIVORS_SUBJECT=unguarded {SUBJECT} run --no-input --once -p x -- {{agent}}");
    let left = left(&command, Way::Kill);
    assert!(
        Role::ALL[..4].iter().all(|role| left.contains(role)),
        "{left:?}"
    );
}

#[test]
fn a_tool_that_ignores_a_stop_is_no_zero() {
    // Bash runs a trap when the command before it has ended.
    let verdict = stopped(&plan("trap : TERM; {agent}; {agent}", PATIENCE), Way::Term);
    let Verdict::Ignored { left } = verdict else {
        panic!("{verdict:?}");
    };
    assert!(
        left.iter().any(|survivor| survivor.role == Role::Agent),
        "{left:?}"
    );
}

#[test]
fn a_tool_that_is_gone_before_the_stop_is_scored_by_what_it_left() {
    let all_are_there = "[ $(ls ../agent/record/child-* | wc -l) -ge 4 ]";
    let command = format!("{{agent}} & until {all_are_there}; do sleep 0.05; done 2>/dev/null");
    for way in [Way::Term, Way::Kill] {
        assert_eq!(left(&command, way), &Role::ALL[..5], "{way:?}");
    }
}

#[test]
fn a_tool_that_never_starts_the_agent_is_no_zero() {
    let verdict = stopped(&plan("echo no {agent}", PATIENCE), Way::Kill);
    let Verdict::NeverReady { why } = verdict else {
        panic!("{verdict:?}");
    };
    assert!(why.contains("its last lines: no /"), "{why}");
}

#[test]
fn h7_control_a_loop_with_git_leaves_what_a_filter_started() {
    let command = "while :; do {agent}; git status; done";
    assert_eq!(left(command, Way::GitFilter), [Role::Other]);
}

#[test]
fn w3_control_a_loop_leaves_what_a_killed_parent_of_the_agent_held() {
    let command = "while :; do bash -c '{agent}; true'; done";
    assert_eq!(left(command, Way::KilledGuard), Role::ALL);
}

#[test]
fn control_a_loop_does_not_name_what_it_cannot_end() {
    let stopped = stopped(&plan(SHELL_LOOP, PATIENCE), Way::SetuidChild);
    match stopped {
        Verdict::Skipped { why } => println!("skipped: {why}"),
        Verdict::Ended { left, .. } => {
            assert!(left.iter().any(|it| it.role == Role::Other), "{left:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tool_without_git_or_a_guard_is_no_zero() {
    for way in [Way::GitFilter, Way::KilledGuard] {
        let verdict = stopped(&plan(SHELL_LOOP, PATIENCE), way);
        assert!(matches!(verdict, Verdict::Skipped { .. }), "{verdict:?}");
    }
}
