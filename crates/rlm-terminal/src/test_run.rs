//! Runs for tests: a head and an agent, without a runner.

use std::time::Duration;

use loop_runner::{AgentView, StopProgress};
use loop_state::{
    Head, IterationStep, PhaseLimits, PhaseRules, Rules, RunLimits, SessionPolicy, Timestamp,
};

use super::run_snapshot::RunSnapshot;

pub(crate) struct TestRun {
    pub(crate) head: Head,
    pub(crate) agent: AgentView,
    pub(crate) shutdown: Option<StopProgress>,
}

impl TestRun {
    pub(crate) fn snapshot(&self) -> RunSnapshot<'_> {
        RunSnapshot {
            head: &self.head,
            agent: &self.agent,
            shutdown: self.shutdown,
            attached: false,
        }
    }
}

/// Returns a run of three phases whose first phase has finished.
pub(crate) fn pipeline(step: IterationStep) -> TestRun {
    let mut run = at(step);
    let phase = run.head.rules.phases.remove(0);
    run.head.rules.phases = ["plan", "build", "check"]
        .map(|name| PhaseRules {
            name: name.into(),
            ..phase.clone()
        })
        .into();
    run.head.phase = 1;
    run.head.iteration = 0;
    run
}

/// Returns a run in its third iteration.
pub(crate) fn at(step: IterationStep) -> TestRun {
    let phase = PhaseRules {
        name: "main".into(),
        required_checks: 1,
        has_check: true,
        has_promise: false,
        session: SessionPolicy::Fresh,
        limits: PhaseLimits {
            max_iterations: Some(100),
            ..PhaseLimits::default()
        },
        ..PhaseRules::default()
    };
    let rules = Rules {
        phases: vec![phase],
        limits: RunLimits {
            max_duration: None,
            max_failures: 3,
            sleep: Duration::from_secs(10),
            ..RunLimits::default()
        },
        ..Rules::default()
    };
    let mut head = Head::new(rules).unwrap();
    head.iteration = 3;
    head.attempt = 1;
    head.step = step;
    (head.started_at, head.taken_at) = (Timestamp::from_millis(1), Timestamp::from_millis(1));
    TestRun {
        head,
        agent: AgentView::default(),
        shutdown: None,
    }
}
