//! The invariants that hold after each step of any machine, for any input. Each invariant is a separate function, so that a failing test names it.

use loop_state::{
    Autonomy, Effect, Head, IterationStep, MAX_ERRORS, MAX_PHASES, MAX_STEER_BYTES, MAX_STEERS,
    MAX_TEXT, MachineInput, RunUpdate, StopTiming, TimedInput, TurnOutcome, WaitCause,
};

/// One step of a machine.
pub(crate) struct MachineStep<'a> {
    pub(crate) before: &'a Head,
    pub(crate) event: &'a TimedInput,
    pub(crate) effects: &'a [Effect],
    pub(crate) after: &'a Head,
}

pub(crate) type Invariant = fn(&MachineStep<'_>) -> bool;

/// All invariants, with their names.
pub(crate) const INVARIANTS: [(&str, Invariant); 17] = [
    ("totals only grow", totals_only_grow),
    ("attempts are never reused", attempts_are_never_reused),
    ("a run that has ended does nothing", ended_run_does_nothing),
    (
        "nothing is started or reported before it is saved",
        saved_first,
    ),
    (
        "a run finishes when it has a stop reason",
        finish_is_the_end,
    ),
    ("an agent works only in a turn", work_is_a_turn),
    (
        "no agent starts when the run must stop now",
        stopping_begins_nothing,
    ),
    (
        "nothing begins when the budget is used up",
        spent_begins_nothing,
    ),
    ("a used-up budget is always noticed", spent_is_noticed),
    ("no rate-limit wait exceeds its limit", waits_hold_the_cap),
    (
        "waits and retries don't count as failures",
        waits_are_no_failures,
    ),
    (
        "a review is only open if a person can answer",
        review_needs_a_person,
    ),
    (
        "full autonomy never asks for a review",
        full_autonomy_never_reviews,
    ),
    (
        "a checkpoint is always a boundary",
        checkpoints_are_boundaries,
    ),
    (
        "phases finish in order and are recorded",
        phases_leave_traces,
    ),
    ("checks that can't run end the run", unrun_ends),
    ("everything is bounded", all_is_bounded),
];

/// Returns the names of the invariants that the step broke.
pub(crate) fn broken(seen: &MachineStep<'_>) -> Vec<&'static str> {
    let broken = INVARIANTS.iter().filter(|(_, invariant)| !invariant(seen));
    broken.map(|(name, _)| *name).collect()
}

fn is_resumed(seen: &MachineStep<'_>) -> bool {
    matches!(seen.event.what, MachineInput::Resumed(_))
}

fn starts(seen: &MachineStep<'_>) -> Option<(u32, u32, u32)> {
    seen.effects.iter().find_map(|effect| match effect {
        Effect::StartAttempt(brief) => Some((brief.phase, brief.iteration, brief.attempt)),
        _ => None,
    })
}

fn stopping_begins_nothing(seen: &MachineStep<'_>) -> bool {
    let stops = { seen.before.stopping }.is_some_and(|request| request.when == StopTiming::Now);
    !stops || is_resumed(seen) || starts(seen).is_none()
}

fn totals_only_grow(seen: &MachineStep<'_>) -> bool {
    let totals = |head: &Head| {
        let c = head.counts;
        let u = head.usage;
        let counts = [
            c.iterations,
            c.attempts,
            c.failed,
            c.unfinished_attempts,
            c.steers,
            c.denied,
        ];
        let rest = [c.processes, head.highest_attempt, head.first_attempt];
        let mut all: Vec<u64> = counts.into_iter().chain(rest).map(u64::from).collect();
        all.extend([
            u.input_tokens,
            u.output_tokens,
            u.cost_microusd,
            head.active_ms,
        ]);
        all
    };
    let (before, after) = (totals(seen.before), totals(seen.after));
    before
        .iter()
        .zip(&after)
        .all(|(before, after)| before <= after)
}

fn attempts_are_never_reused(seen: &MachineStep<'_>) -> bool {
    let Some((_, iteration, attempt)) = starts(seen) else {
        return true;
    };
    let before = seen.before;
    // Iteration numbers only increase until iterations are numbered again. Then the attempt numbers start above all used ones.
    let later = iteration > before.iteration && attempt >= seen.after.first_attempt;
    let again = iteration == before.iteration && attempt > before.attempt;
    let anew = attempt > before.highest_attempt;
    (later && seen.after.first_attempt == before.first_attempt) || again || anew
}

fn does_nothing(seen: &MachineStep<'_>) -> bool {
    seen.effects
        .iter()
        .all(|it| matches!(it, Effect::RejectRequest(_) | Effect::StopBy(_)))
}

fn ended_run_does_nothing(seen: &MachineStep<'_>) -> bool {
    let over = seen.before.end.is_some() && !is_resumed(seen);
    !over || (does_nothing(seen) && seen.before == seen.after)
}

fn saved_first(seen: &MachineStep<'_>) -> bool {
    // If the run had already ended, its end is reported from the saved state.
    let mut saved = is_resumed(seen) && seen.before.end.is_some();
    seen.effects.iter().all(|effect| match effect {
        Effect::Save | Effect::SavePhase { .. } => {
            saved = true;
            true
        }
        Effect::StartAttempt(_) | Effect::ContinueTurn | Effect::Deliver(_) | Effect::Emit(_) => {
            saved
        }
        _ => true,
    })
}

fn finish_is_the_end(seen: &MachineStep<'_>) -> bool {
    let finishes = seen.effects.contains(&Effect::EndRun);
    let told = seen.effects.iter().any(|effect| match effect {
        Effect::Emit(RunUpdate::Ended(reason)) => seen
            .after
            .end
            .as_ref()
            .is_some_and(|end| end.reason == *reason),
        _ => false,
    });
    let over = seen.after.end.is_some() && !does_nothing(seen);
    finishes == over && told == finishes && !(over && seen.after.is_stopping_step)
}

fn work_is_a_turn(seen: &MachineStep<'_>) -> bool {
    let works = starts(seen).is_some() || seen.effects.contains(&Effect::ContinueTurn);
    !works || (matches!(seen.after.step, IterationStep::Turn { .. }) && seen.after.end.is_none())
}

fn spent_begins_nothing(seen: &MachineStep<'_>) -> bool {
    let works = starts(seen).is_some() || seen.effects.contains(&Effect::ContinueTurn);
    !works || seen.after.spent_budget().is_none()
}

fn spent_is_noticed(seen: &MachineStep<'_>) -> bool {
    let works = matches!(
        seen.after.step,
        IterationStep::Turn { .. } | IterationStep::Interrupted { .. }
    );
    let live = seen.after.end.is_none() && seen.after.counts.processes > 0;
    !(live && works && seen.after.spent_budget().is_some()) || seen.after.is_stopping_step
}

fn waits_hold_the_cap(seen: &MachineStep<'_>) -> bool {
    let IterationStep::Waiting { since, until, why } = seen.after.step else {
        return true;
    };
    let cap = seen.after.rules.limits.wait_on_limit.as_millis() as u64;
    let wait = until.since(since).as_millis() as u64;
    match why {
        WaitCause::RateLimit => {
            seen.after.end.is_some() || seen.after.retries.rate_limit_wait_ms + wait <= cap
        }
        // The random part adds at most a fifth.
        _ => wait <= 19_200 && seen.after.retries.transient_failures < 4,
    }
}

/// If no check of this phase ever ran, no iteration begins after the allowed number of checks in a row that could not run.
fn unrun_ends(seen: &MachineStep<'_>) -> bool {
    let (max, before) = (seen.before.rules.limits.max_failures, seen.before);
    let is_stuck = max > 0 && before.streaks.checks_not_run >= max && !before.check_has_run;
    let settled = matches!(seen.event.what, MachineInput::LeftoversEnded(_));
    let goes_on = seen.after.phase == before.phase && seen.after.iteration > before.iteration;
    !(is_stuck && settled && goes_on)
}

fn waits_are_no_failures(seen: &MachineStep<'_>) -> bool {
    let mends = matches!(
        seen.event.what,
        MachineInput::TurnEnded(TurnOutcome::ServiceUnavailable { .. } | TurnOutcome::Transient(_))
    );
    let waits = matches!(seen.after.step, IterationStep::Waiting { .. })
        && seen.before.step != seen.after.step;
    if !mends || !waits {
        return true;
    }
    let same = |head: &Head| {
        let (c, s) = (head.counts, head.streaks);
        let counts = [
            c.iterations,
            c.failed,
            c.attempts,
            head.iterations_since_review,
        ];
        let streaks = [
            s.failures,
            s.required_checks,
            s.no_progress,
            s.checks_not_run,
        ];
        (
            head.phase,
            head.iteration,
            head.attempt,
            counts,
            streaks,
            head.feedback.clone(),
        )
    };
    let cut = seen.after.unfinished.map(|cut| cut.attempt);
    same(seen.before) == same(seen.after)
        && seen.after.counts.unfinished_attempts == seen.before.counts.unfinished_attempts + 1
        && cut == Some(seen.before.attempt)
        && seen.after.steers.len() == seen.before.steers.len()
}

fn review_needs_a_person(seen: &MachineStep<'_>) -> bool {
    let open = matches!(seen.after.step, IterationStep::Review { .. }) && seen.after.end.is_none();
    !open || seen.after.attended
}

fn full_autonomy_never_reviews(seen: &MachineStep<'_>) -> bool {
    let asks = |effect: &Effect| matches!(effect, Effect::Emit(RunUpdate::Review(_)));
    seen.after.rules.autonomy != Autonomy::Full || !seen.effects.iter().any(asks)
}

fn checkpoints_are_boundaries(seen: &MachineStep<'_>) -> bool {
    let is_seal = |effect: &Effect| matches!(effect, Effect::SavePhase { .. });
    let seals = seen.effects.iter().filter(|effect| is_seal(effect)).count();
    let first = seen.effects.first().is_some_and(is_seal);
    let boundary = seen.after.iteration == 0 || seen.after.end.is_some();
    seals == 0 || (seals == 1 && first && boundary && starts(seen).is_none())
}

fn phases_leave_traces(seen: &MachineStep<'_>) -> bool {
    let (phase, finished) = (seen.after.phase as usize, seen.after.finished_phases.len());
    let grown = seen.after.phase > seen.before.phase;
    let sealed = matches!(seen.effects.first(), Some(Effect::SavePhase { .. }));
    // The current phase is only known to be finished if the run has ended.
    let is_over = seen.after.end.is_some() && finished == phase + 1;
    phase < seen.after.rules.phases.len()
        && (finished == phase || is_over)
        && (!grown || (seen.after.phase == seen.before.phase + 1 && sealed))
}

fn all_is_bounded(seen: &MachineStep<'_>) -> bool {
    let head = seen.after;
    let said: usize = head.steers.iter().map(|steer| steer.text.len()).sum();
    let last = head
        .last_iteration
        .as_ref()
        .and_then(|last| last.failure.as_ref());
    let one = [&head.session, &head.failure, &head.last_message];
    let texts = { one.into_iter().flatten() }
        .chain(last)
        .chain(head.feedback.as_ref().map(|it| &it.text))
        .chain(head.handover.as_ref().map(|it| &it.from))
        .chain(head.errors.iter().map(|it| &it.what))
        .chain(
            head.finished_phases
                .iter()
                .filter_map(|it| it.result.as_ref()),
        )
        .map(String::len);
    head.steers.len() <= MAX_STEERS
        && said <= MAX_STEER_BYTES
        && head.errors.len() <= MAX_ERRORS
        && head.finished_phases.len() <= MAX_PHASES
        && texts.max().unwrap_or_default() <= MAX_TEXT
        && seen.effects.len() <= 8
}
