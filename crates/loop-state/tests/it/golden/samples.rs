//! Heads and events with something in every field, and every variant of everything.

use std::time::Duration;

use loop_state::*;

pub(super) fn rules() -> Rules {
    let phase = |name: &str, session, limits| PhaseRules {
        name: name.into(),
        gates: 2,
        until: true,
        promise: true,
        session,
        limits,
        check_timeout: None,
        reports_cost: true,
        reports_tokens: true,
    };
    Rules {
        phases: vec![
            phase(
                "plan",
                SessionPolicy::Continue,
                Limits {
                    max_iterations: Some(3),
                    iteration_timeout: Some(Duration::from_millis(3_600_500)),
                    idle_timeout: None,
                },
            ),
            phase(
                "implement",
                SessionPolicy::Fresh,
                Limits {
                    max_iterations: Some(100),
                    iteration_timeout: Some(Duration::from_secs(3600)),
                    idle_timeout: Some(Duration::from_secs(900)),
                },
            ),
        ],
        max_duration: Some(Duration::from_secs(86_400)),
        max_failures: 3,
        sleep: Duration::from_secs(10),
        autonomy: Autonomy::Batch(5),
        max_cost_microusd: Some(5_000_000),
        max_tokens: Some(1_000_000),
        wait_on_limit: Duration::from_secs(3600),
    }
}

/// A head with something in every field.
pub(super) fn full() -> Head {
    let t = |n: u64| Timestamp(1_790_000_000_000 + n);
    let mut h = Head::new(rules()).unwrap();
    h.phase = 1;
    h.iteration = 7;
    h.attempt = 12;
    h.highest_attempt = 12;
    h.first_attempt = 11;
    h.step = Step::Turn { since: t(500) };
    h.failure = Some("it took longer than 3600s".into());
    h.cut = Some(Cut {
        attempt: 11,
        cause: CutCause::Crash,
    });
    h.feedback = Some(Feedback {
        source: FeedbackSource::Gate(1),
        text: "1 test failed".into(),
    });
    h.steers = vec![
        Steer {
            id: 1,
            at: t(1),
            text: "mind the docs".into(),
            state: SteerState::Seen,
        },
        Steer {
            id: 2,
            at: t(2),
            text: "and the \u{fc}mlauts".into(),
            state: SteerState::Delivered,
        },
        Steer {
            id: 3,
            at: t(3),
            text: "later".into(),
            state: SteerState::Recorded,
        },
    ];
    h.session = Some("5c0ffee5".into());
    h.prompted = true;
    h.parent = Some(Lineage {
        run: "r-1".into(),
        iteration: 4,
        seq: 99,
    });
    h.said = Some("half of it works".into());
    let failure = Failure {
        iteration: 2,
        at: t(90),
        what: "exit status 1".into(),
    };
    h.errors = vec![failure.clone()];
    h.finished = vec![Finished {
        name: "plan".into(),
        at: t(100),
        iterations: 3,
        evidence: Some(Evidence::Claim),
        result: Some("the plan".into()),
        usage: Usage::default(),
        errors: vec![failure],
    }];
    h.attended = true;
    h.unreviewed = 4;
    h.waits = Waits {
        tries: 2,
        limits: 1,
        limit_ms: 60_000,
    };
    h.continues = true;
    h.fresh = true;
    h.claimed = true;
    h.idled = true;
    h.pausing = true;
    h.again = Some(Again::Iteration);
    h.stopping = Some(StopRequest {
        by: StopCause::Person,
        when: When::AfterIteration,
    });
    h.halting = true;
    h.streaks = Streaks {
        unrun: 0,
        failures: 1,
        gates: 2,
        crashes: 1,
        idle: 2,
    };
    h.counts = Counts {
        iterations: 8,
        attempts: 12,
        failed: 2,
        cuts: 3,
        steers: 3,
        denied: 4,
        processes: 2,
    };
    h.usage = Usage {
        input_tokens: 123_456,
        output_tokens: 7_890,
        cost_microusd: 1_234_567,
    };
    h.last = Some(Last {
        iteration: 6,
        at: t(400),
        failure: Some("gate 1 failed".into()),
        usage: Usage::default(),
    });
    h.started_at = t(0);
    h.taken_at = t(300);
    h.last_at = t(600);
    h.taken_attempts = 9;
    h.active_ms = 5_000;
    h
}

pub(super) fn heads() -> Vec<Head> {
    let t = |n: u64| Timestamp(1_790_000_000_000 + n);
    let mut heads = vec![Head::new(rules()).unwrap(), full()];
    for step in [
        Step::Ready,
        Step::Interrupted { since: t(1) },
        Step::Gate { index: 1 },
        Step::Check,
        Step::Recheck { gate: 2 },
        Step::Settling { then: Then::Next },
        Step::Settling {
            then: Then::Done(Evidence::Claim),
        },
        Step::Settling {
            then: Then::Again(Again::Phase),
        },
        Step::Settling {
            then: Then::End(StopReason::Stopped(StopCause::Terminated)),
        },
        Step::Sleeping { until: t(9) },
        Step::Paused { since: t(9) },
        Step::Waiting {
            since: t(9),
            until: t(99),
            why: Wait::Limit,
        },
        Step::Waiting {
            since: t(9),
            until: t(99),
            why: Wait::Retry,
        },
        Step::Review {
            since: t(9),
            of: Occasion::Phase,
        },
        Step::Review {
            since: t(9),
            of: Occasion::Batch,
        },
    ] {
        heads.push(Head { step, ..full() });
    }
    for reason in [
        StopReason::Done(Evidence::Check),
        StopReason::Planned,
        StopReason::Failed("log in".into()),
        StopReason::LastFailed(3, "exit status 1".into()),
        StopReason::IterationLimit(100),
        StopReason::TimeLimit(Duration::from_secs(86_400)),
        StopReason::Budget(Budget::Cost {
            limit: 5_000_000,
            used: 5_000_001,
        }),
        StopReason::Budget(Budget::Tokens {
            limit: 10,
            used: 20,
        }),
        StopReason::RateLimit {
            until: t(9_000),
            cap: Duration::from_secs(3600),
        },
        StopReason::Stuck(Streak::Failures, 3),
        StopReason::Stuck(Streak::Gates, 3),
        StopReason::Stuck(Streak::Crashes, 3),
        StopReason::Stuck(Streak::Idle, 3),
        StopReason::Stopped(StopCause::HungUp),
        StopReason::Held("session `s` is open in pid 7".into()),
    ] {
        heads.push(Head {
            step: Step::Ready,
            end: Some(End { at: t(700), reason }),
            ..full()
        });
    }
    for cause in [
        CutCause::Stop,
        CutCause::TimeLimit,
        CutCause::Restart,
        CutCause::Agent,
        CutCause::Budget,
        CutCause::RateLimit,
        CutCause::Transient,
    ] {
        heads.push(Head {
            cut: Some(Cut { attempt: 11, cause }),
            feedback: Some(Feedback {
                source: FeedbackSource::Check,
                text: String::new(),
            }),
            ..full()
        });
    }
    for autonomy in [Autonomy::Checkpoint, Autonomy::Full] {
        heads.push(Head {
            rules: Rules {
                autonomy,
                ..rules()
            },
            ..full()
        });
    }
    heads
}

pub(super) fn events() -> Vec<Event> {
    let stop = |by, when| Happening::StopRequested(StopRequest { by, when });
    let turn = Happening::TurnEnded;
    [
        Happening::Started,
        Happening::Resumed(Resume::default()),
        Happening::Resumed(Resume {
            rules: Some(rules()),
            from: Some(2),
            used_attempts: Some(5),
            reached: None,
            attended: true,
            predecessor: None,
            feedback: None,
        }),
        turn(TurnOutcome::Completed),
        turn(TurnOutcome::Claimed),
        turn(TurnOutcome::Interrupted),
        turn(TurnOutcome::Failed("exit status 1".into())),
        turn(TurnOutcome::Stopped),
        turn(TurnOutcome::Transient("not JSON".into())),
        turn(TurnOutcome::RateLimited {
            reset: Some(Timestamp(1_790_000_009_000)),
            why: "limit".into(),
        }),
        turn(TurnOutcome::RateLimited {
            reset: None,
            why: "limit".into(),
        }),
        turn(TurnOutcome::Hopeless("log in".into())),
        turn(TurnOutcome::SessionLost),
        turn(TurnOutcome::NotStarted("not found".into())),
        turn(TurnOutcome::SessionHeld("by pid 7".into())),
        Happening::GateEnded(CheckResult::Passed),
        Happening::GateEnded(CheckResult::Failed("red".into())),
        Happening::CheckEnded(CheckResult::Stopped),
        Happening::Settled(Tree {
            ended: 2,
            survivors: 1,
        }),
        Happening::TimeUp(Timer::Iteration),
        Happening::TimeUp(Timer::Idle),
        Happening::TimeUp(Timer::Sleep),
        Happening::TimeUp(Timer::Run),
        Happening::TimeUp(Timer::Limit),
        Happening::TimeUp(Timer::Retry),
        stop(StopCause::Person, When::Now),
        stop(StopCause::Terminated, When::AfterIteration),
        stop(StopCause::HungUp, When::Now),
        Happening::SteerAdded {
            text: "mind the docs".into(),
            now: true,
        },
        Happening::SteerMoved {
            id: 1,
            state: SteerState::Delivered,
        },
        Happening::InterruptRequested,
        Happening::PauseRequested,
        Happening::ContinueRequested,
        Happening::SleepSkipped,
        Happening::Attended(true),
        Happening::Reviewed(Verdict::Continue),
        Happening::Reviewed(Verdict::Revise("smaller".into())),
        Happening::Reviewed(Verdict::StartOver),
        Happening::Reviewed(Verdict::Exit),
        Happening::RuleSet(RuleChange::MaxIterations(Some(9))),
        Happening::RuleSet(RuleChange::IterationTimeout(Some(Duration::from_secs(1)))),
        Happening::RuleSet(RuleChange::IdleTimeout(None)),
        Happening::RuleSet(RuleChange::MaxDuration(Some(Duration::from_secs(1)))),
        Happening::RuleSet(RuleChange::MaxFailures(0)),
        Happening::RuleSet(RuleChange::Sleep(Duration::ZERO)),
        Happening::RuleSet(RuleChange::Autonomy(Autonomy::Checkpoint)),
        Happening::RuleSet(RuleChange::MaxCost(Some(1))),
        Happening::RuleSet(RuleChange::MaxTokens(None)),
        Happening::RuleSet(RuleChange::WaitOnLimit(Duration::ZERO)),
        Happening::Said("done so far".into()),
        Happening::AgainRequested(Again::Iteration),
        Happening::AgainRequested(Again::Phase),
        Happening::FreshRequested,
        Happening::SessionKnown("5c0ffee5".into()),
        Happening::Prompted,
        Happening::Used(Usage {
            input_tokens: 10,
            output_tokens: 20,
            cost_microusd: 30,
        }),
        Happening::NothingDone,
        Happening::Denied,
        Happening::Thawed(Duration::from_millis(1500)),
    ]
    .into_iter()
    .enumerate()
    .map(|(i, what)| Event {
        at: Timestamp(1_790_000_000_000 + i as u64),
        what,
    })
    .collect()
}
