//! What is written, as version 2; versions 0 and 1 had fewer fields and cases, and are read by the same types. Never change or remove anything here; a field
//! that is added needs a default. It is long because it is one form: all that is ever written.

use std::time::Duration;

use super::mirror::{Other, saved};
use crate::Timestamp;
use crate::rules::WAIT_ON_LIMIT;

fn wait_on_limit() -> Duration {
    WAIT_ON_LIMIT
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Usage {
    fn is_nothing(&self) -> bool {
        self.input_tokens == 0 && self.output_tokens == 0 && self.cost_microusd == 0
    }
}

saved! {
    struct Head {
        rules: Rules,
        #[serde(default)]
        parent: Option<Lineage>,
        phase: u32,
        iteration: u32,
        attempt: u32,
        highest_attempt: u32,
        first_attempt: u32,
        step: Step,
        #[serde(default)]
        failure: Option<String>,
        #[serde(default)]
        cut: Option<Cut>,
        #[serde(default)]
        feedback: Option<Feedback>,
        #[serde(default)]
        steers: Vec<Steer>,
        #[serde(default)]
        session: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        briefed: Vec<u32>,
        #[serde(default)]
        prompted: bool,
        #[serde(default)]
        continues: bool,
        #[serde(default)]
        fresh: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        handover: Option<Handover>,
        #[serde(default)]
        claimed: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        checked: bool,
        #[serde(default)]
        idled: bool,
        #[serde(default)]
        said: Option<String>,
        #[serde(default)]
        errors: Vec<Failure>,
        #[serde(default)]
        finished: Vec<Finished>,
        #[serde(default)]
        attended: bool,
        #[serde(default)]
        unreviewed: u32,
        #[serde(default)]
        pausing: bool,
        #[serde(default)]
        again: Option<Again>,
        #[serde(default)]
        stopping: Option<StopRequest>,
        #[serde(default)]
        halting: bool,
        #[serde(default)]
        streaks: Streaks,
        #[serde(default)]
        waits: Waits,
        #[serde(default)]
        counts: Counts,
        #[serde(default)]
        usage: Usage,
        #[serde(default, skip_serializing_if = "Usage::is_nothing")]
        iteration_usage: Usage,
        #[serde(default)]
        last: Option<Last>,
        started_at: Timestamp,
        taken_at: Timestamp,
        last_at: Timestamp,
        #[serde(default)]
        taken_attempts: u32,
        #[serde(default)]
        active_ms: u64,
        #[serde(default)]
        end: Option<End>,
    }

    struct Rules {
        phases: Vec<PhaseRules>,
        #[serde(default)]
        max_duration: Option<Duration>,
        max_failures: u32,
        sleep: Duration,
        #[serde(default)]
        autonomy: Autonomy,
        #[serde(default)]
        max_cost_microusd: Option<u64>,
        #[serde(default)]
        max_tokens: Option<u64>,
        #[serde(default = "wait_on_limit")]
        wait_on_limit: Duration,
    }

    struct PhaseRules {
        name: String,
        #[serde(default)]
        gates: u32,
        #[serde(default)]
        until: bool,
        #[serde(default)]
        promise: bool,
        #[serde(default)]
        session: SessionPolicy,
        limits: Limits,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        check_timeout: Option<Duration>,
        #[serde(default)]
        reports_cost: bool,
        #[serde(default)]
        reports_tokens: bool,
    }

    #[derive(Default)]
    enum Autonomy {
        Checkpoint,
        Batch(size: u32),
        #[default]
        Full,
    }

    #[derive(Default)]
    #[serde(rename_all = "lowercase")]
    enum SessionPolicy {
        #[default]
        Fresh,
        Continue,
    }

    #[derive(Default)]
    struct Limits {
        #[serde(default)]
        max_iterations: Option<u32>,
        #[serde(default)]
        iteration_timeout: Option<Duration>,
        #[serde(default)]
        idle_timeout: Option<Duration>,
    }

    struct Handover {
        from: String,
        attempt: u32,
        #[serde(default)]
        told: bool,
    }

    struct Lineage {
        run: String,
        iteration: u32,
        seq: u64,
    }

    enum Step {
        Ready,
        Turn { since: Timestamp },
        Interrupted { since: Timestamp },
        Gate { index: u32 },
        Check,
        Recheck { gate: u32 },
        Settling { then: Then },
        Sleeping { until: Timestamp },
        Waiting { since: Timestamp, until: Timestamp, why: Wait },
        Paused { since: Timestamp },
        Review { since: Timestamp, of: Occasion },
    }

    enum Wait {
        Limit,
        Retry,
    }

    enum Occasion {
        Phase,
        Batch,
    }

    enum Again {
        Iteration,
        Phase,
    }

    enum Then {
        Next,
        Done(evidence: Evidence),
        Again(again: Again),
        End(reason: StopReason),
    }

    struct Cut {
        attempt: u32,
        cause: CutCause,
    }

    enum CutCause {
        Crash,
        Stop,
        TimeLimit,
        Budget,
        Restart,
        Agent,
        RateLimit,
        Transient,
    }

    struct Feedback {
        source: FeedbackSource,
        text: String,
    }

    enum FeedbackSource {
        Gate(index: u32),
        Check,
    }

    struct Steer {
        #[serde(default)]
        id: u32,
        at: Timestamp,
        text: String,
        #[serde(default)]
        state: SteerState,
    }

    #[derive(Default)]
    enum SteerState {
        #[default]
        Recorded,
        Delivered,
        Seen,
    }

    struct Failure {
        iteration: u32,
        at: Timestamp,
        what: String,
    }

    struct Finished {
        name: String,
        at: Timestamp,
        iterations: u32,
        #[serde(default)]
        evidence: Option<Evidence>,
        #[serde(default)]
        result: Option<String>,
        #[serde(default, skip_serializing_if = "Usage::is_nothing")]
        usage: Usage,
        #[serde(default)]
        errors: Vec<Failure>,
    }

    #[derive(Default)]
    struct Streaks {
        failures: u32,
        gates: u32,
        crashes: u32,
        #[serde(default)]
        idle: u32,
        #[serde(default, skip_serializing_if = "is_zero")]
        unrun: u32,
    }

    #[derive(Default)]
    struct Waits {
        tries: u32,
        limits: u32,
        limit_ms: u64,
    }

    #[derive(Default)]
    struct Counts {
        iterations: u32,
        attempts: u32,
        failed: u32,
        cuts: u32,
        #[serde(default)]
        steers: u32,
        #[serde(default)]
        denied: u32,
        processes: u32,
    }

    #[derive(Default)]
    struct Usage {
        input_tokens: u64,
        output_tokens: u64,
        cost_microusd: u64,
    }

    struct Last {
        iteration: u32,
        at: Timestamp,
        #[serde(default)]
        failure: Option<String>,
        #[serde(default, skip_serializing_if = "Usage::is_nothing")]
        usage: Usage,
    }

    struct End {
        at: Timestamp,
        reason: StopReason,
    }

    enum StopReason {
        Done(evidence: Evidence),
        Planned,
        Failed(why: String),
        LastFailed(iteration: u32, why: String),
        IterationLimit(limit: u32),
        TimeLimit(limit: Duration),
        Budget(budget: Budget),
        RateLimit { until: Timestamp, cap: Duration },
        Stuck(streak: Streak, count: u32),
        Stopped(by: StopCause),
        Held(what: String),
    }

    enum Budget {
        Cost { limit: u64, used: u64 },
        Tokens { limit: u64, used: u64 },
    }

    enum Evidence {
        Check,
        Claim,
    }

    enum Streak {
        Failures,
        Gates,
        Crashes,
        Idle,
        Unrun,
    }

    enum StopCause {
        Person,
        Terminated,
        HungUp,
    }

    enum When {
        Now,
        AfterIteration,
    }

    struct StopRequest {
        by: StopCause,
        when: When,
    }

    struct Event {
        at: Timestamp,
        what: Happening,
    }

    enum Happening {
        Started,
        Resumed(resume: Resume),
        TurnEnded(outcome: TurnOutcome),
        GateEnded(result: CheckResult),
        CheckEnded(result: CheckResult),
        Settled(tree: Tree),
        TimeUp(timer: Timer),
        StopRequested(request: StopRequest),
        SteerAdded { text: String, now: bool },
        SteerMoved { id: u32, state: SteerState },
        InterruptRequested,
        PauseRequested,
        ContinueRequested,
        SleepSkipped,
        Attended(attended: bool),
        Reviewed(verdict: Verdict),
        RuleSet(change: RuleChange),
        PhaseRuleSet { phase: u32, change: RuleChange },
        AgainRequested(again: Again),
        FreshRequested,
        SessionKnown(id: String),
        Said(text: String),
        Prompted,
        Used(usage: Usage),
        NothingDone,
        Denied,
        Thawed(time: Duration),
    }

    #[derive(Default)]
    struct Resume {
        #[serde(default)]
        rules: Option<Rules>,
        #[serde(default)]
        from: Option<u32>,
        #[serde(default)]
        used_attempts: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reached: Option<u32>,
        #[serde(default)]
        attended: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        predecessor: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        feedback: Option<String>,
    }

    enum Verdict {
        Continue,
        Revise(text: String),
        StartOver,
        Exit,
    }

    enum RuleChange {
        MaxIterations(max: Option<u32>),
        IterationTimeout(time: Option<Duration>),
        IdleTimeout(time: Option<Duration>),
        CheckTimeout(time: Duration),
        MaxDuration(max: Option<Duration>),
        MaxFailures(max: u32),
        Sleep(time: Duration),
        Autonomy(autonomy: Autonomy),
        MaxCost(max: Option<u64>),
        MaxTokens(max: Option<u64>),
        WaitOnLimit(time: Duration),
    }

    enum TurnOutcome {
        Completed,
        Claimed,
        Interrupted,
        Failed(why: String),
        Transient(why: String),
        RateLimited { reset: Option<Timestamp>, why: String },
        Stopped,
        Hopeless(why: String),
        SessionLost,
        NotStarted(why: String),
        SessionHeld(why: String),
    }

    enum CheckResult {
        Passed,
        Failed(text: String),
        Stopped,
        NotRun(text: String),
    }

    enum Notice {
        AttemptStarted { iteration: u32, attempt: u32, again: bool },
        IterationEnded { iteration: u32, failure: Option<String>, leftovers: Tree, usage: Usage },
        PhaseEnded { name: String, usage: Usage },
        Sleeping { until: Timestamp },
        Waiting { why: Wait, until: Timestamp, what: Option<String> },
        Review(of: Occasion),
        Reviewed(verdict: Verdict),
        RuleSet(change: RuleChange),
        PhaseRuleSet { phase: String, change: RuleChange },
        Steer { id: u32, state: SteerState },
        NothingDone { in_a_row: u32 },
        SessionLost,
        Interrupted,
        Pausing,
        Paused,
        Continued,
        Again(again: Again),
        Fresh,
        StoppingLater,
        Stopping,
        Ended(reason: StopReason),
    }

    struct Tree {
        ended: u32,
        survivors: u32,
    }

    enum Timer {
        Iteration,
        Idle,
        Sleep,
        Limit,
        Retry,
        Run,
    }
}
