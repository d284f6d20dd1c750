//! The controls of the judgement: storms on a fleet with a mistake.

use std::time::Duration;

use rlm_storm::{Fault, Finding};

use crate::{plan, storm};

/// Plays a storm of four faults on a fleet with mistakes, up to a finding of this kind, and returns whether there is one.
fn finds(
    fault: Fault,
    mistakes: &str,
    (iterations, millis): (u32, u64),
    kind: fn(&Finding) -> bool,
) -> Option<bool> {
    let mut plan = plan(vec![(fault, 4)])?;
    plan.mistakes = mistakes.into();
    plan.ends_at = kind;
    plan.iterations = iterations;
    let works = Duration::from_millis(millis);
    plan.agent_works = (works, works + works / 4);
    Some(storm(&plan).findings.iter().any(kind))
}

/// A frozen worker can do nothing about its agent.
#[test]
#[ignore = "takes half a minute: cargo xtask nightly --only fleet-storm"]
fn f3_judge_sees_two_agents_of_a_run_if_the_guard_has_no_kill_time() {
    let is_overlap = |it: &Finding| matches!(it, Finding::Overlap { .. });
    let found = finds(Fault::FreezeWorker, "NeverKill", (2, 9000), is_overlap);
    assert_ne!(found, Some(false));
}

/// The next owner begins without the work of the first iteration. So this work is lost, and the second iteration began twice, on different work.
#[test]
fn f2_judge_sees_a_lost_iteration_if_a_save_sends_no_commits() {
    let is_lost = |it: &Finding| matches!(it, Finding::Lost { .. });
    let found = finds(Fault::KillWorker, "SaveWithoutCommits", (3, 900), is_lost);
    assert_ne!(found, Some(false));
}
