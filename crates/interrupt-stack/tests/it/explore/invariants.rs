//! The invariants that must hold after each step of any history, each with a name, a sentence and a check.

use interrupt_stack::{
    Cause, HandlerId, PressSource,
    ladder::{LadderEffect, Press, Resolution},
};

use super::{
    facts::{COOLDOWN, DEBOUNCE, Facts, SHUTDOWN, TAKE},
    sabotage::Machine,
    step::Step,
};

/// A step, with the states before and after it.
pub(super) struct Moment<'a> {
    pub(super) step: Step,
    pub(super) before: &'a Facts,
    pub(super) after: &'a Facts,
    /// The machine after the step.
    pub(super) machine: &'a Machine,
    pub(super) now: u64,
    /// The time before the step.
    pub(super) earlier: u64,
    /// The effects with their times.
    pub(super) effects: &'a [(u64, LadderEffect)],
    /// The result of `take`.
    pub(super) got: Option<Press>,
}

type Invariant = (&'static str, &'static str, fn(&Moment) -> bool);

/// All invariants: name, sentence, check.
pub(super) const INVARIANTS: &[Invariant] = &[
    (
        "accepted_press_has_an_effect",
        "a press that is not part of the previous press notifies a handler, begins shutdown or exits",
        accepted_press_has_an_effect,
    ),
    (
        "no_press_is_lost_or_counted_twice",
        "each press is counted once, a press within the debounce is not counted, and a notice contains the data of its press",
        no_press_is_lost_or_counted_twice,
    ),
    (
        "first_press_goes_to_the_topmost",
        "if no notice is open and no press stays counted, a press goes to the topmost handler, or begins shutdown if there is none",
        first_press_goes_to_the_topmost,
    ),
    (
        "press_on_an_open_notice_escalates",
        "a press while a notice is open begins shutdown, whether the notice is taken or not, and however late the press comes",
        press_on_an_open_notice_escalates,
    ),
    (
        "handled_resets_at_once",
        "after `handled` the next press is a first one",
        handled_resets_at_once,
    ),
    (
        "cooldown_runs_from_the_drop",
        "a press within the cooldown after an unanswered drop begins shutdown, and a later press is a first one",
        cooldown_runs_from_the_drop,
    ),
    (
        "press_in_shutdown_exits",
        "in shutdown, the next press is a hard exit",
        press_in_shutdown_exits,
    ),
    (
        "decline_goes_strictly_below",
        "a decline notifies the next handler below, or begins shutdown if there is none",
        decline_goes_strictly_below,
    ),
    (
        "escalate_begins_shutdown",
        "`escalate` begins shutdown at once",
        escalate_begins_shutdown,
    ),
    (
        "dropped_handler_passes_its_notice_down",
        "dropping a handler whose notice is untaken passes the notice down, and dropping any other handler changes nothing",
        dropped_handler_passes_its_notice_down,
    ),
    (
        "taken_notice_never_times_out",
        "time alone never changes a taken notice",
        taken_notice_never_times_out,
    ),
    (
        "untaken_notice_walks_down",
        "a notice untaken for the take time-out goes to the next handler below, and stays with the lowest",
        untaken_notice_walks_down,
    ),
    (
        "time_alone_never_shuts_down",
        "before shutdown, time alone neither begins a shutdown nor exits",
        time_alone_never_shuts_down,
    ),
    (
        "shutdown_deadline_exits_once_by_the_cause",
        "a shutdown that reaches its deadline becomes a hard exit by its cause, once and not earlier",
        shutdown_deadline_exits_once_by_the_cause,
    ),
    (
        "terminate_passes_the_stack",
        "SIGTERM and SIGHUP begin shutdown without asking a handler, and change nothing after it has begun",
        terminate_passes_the_stack,
    ),
    (
        "shutdown_is_for_ever",
        "a shutdown keeps its cause, notifies no handler and does not begin again",
        shutdown_is_for_ever,
    ),
    (
        "request_asks_its_handler_alone",
        "a request notifies its own handler at once if no notice is open, and no handler otherwise",
        request_asks_its_handler_alone,
    ),
    (
        "untaken_request_stays",
        "a request stays with its handler without a time limit",
        untaken_request_stays,
    ),
    (
        "request_leaves_no_trace",
        "unless a request is answered with `escalate`, the next press has the same effect as before the request",
        request_leaves_no_trace,
    ),
    (
        "waiting_request_has_its_turn",
        "a request waits only while a notice is open; then the request of the innermost handler is next",
        waiting_request_has_its_turn,
    ),
    (
        "stopped_time_is_not_counted",
        "after a stop of the process an unanswered drop is forgotten, take time-out and shutdown deadline start again, and nothing else changes",
        stopped_time_is_not_counted,
    ),
    (
        "notice_is_handed_out_once",
        "only the notified handler gets the notice, and only once",
        notice_is_handed_out_once,
    ),
    (
        "late_answer_changes_nothing",
        "an answer to a notice that is no longer open has no effect",
        late_answer_changes_nothing,
    ),
    (
        "three_presses_end_it",
        "from every state, three unanswered presses end the process",
        three_presses_end_it,
    ),
];

fn pressed(m: &Moment) -> Option<LadderEffect> {
    let accepted = matches!(m.step, Step::Press(_)) && m.before.accepts(m.now);
    accepted.then(|| m.effects[0].1)
}

fn topmost(m: &Moment) -> LadderEffect {
    let top = m.before.alive.last();
    top.map_or(LadderEffect::BeginShutdown(Cause::Press), |top| {
        LadderEffect::Notify(*top)
    })
}

fn below(m: &Moment, id: HandlerId) -> LadderEffect {
    let below = m.before.below(id);
    below.map_or(
        LadderEffect::BeginShutdown(Cause::Press),
        LadderEffect::Notify,
    )
}

/// Returns the first time from now on at which a press is a new press.
fn next_possible(m: &Moment) -> u64 {
    m.now
        .max(m.after.last_press.map_or(0, |last| last + DEBOUNCE))
}

/// Returns the effect that the next press would have.
fn next_press(m: &Moment) -> LadderEffect {
    m.machine
        .clone()
        .press(PressSource::Signal, next_possible(m))
}

fn is_request(m: &Moment) -> bool {
    m.before.open.is_some_and(|open| open.is_request())
}

/// Returns the effect of the next waiting request, when no notice is open any more.
fn next_request(m: &Moment) -> Option<LadderEffect> {
    let alive = |id: &&HandlerId| m.after.alive.contains(id);
    let innermost = m.before.requested.iter().rfind(alive);
    innermost.copied().map(LadderEffect::Notify)
}

fn only_effect(m: &Moment) -> Option<LadderEffect> {
    m.effects.first().map(|(_, effect)| *effect)
}

fn accepted_press_has_an_effect(m: &Moment) -> bool {
    pressed(m).is_none_or(|effect| {
        matches!(
            effect,
            LadderEffect::Notify(_) | LadderEffect::BeginShutdown(_) | LadderEffect::HardExit(_)
        )
    })
}

fn no_press_is_lost_or_counted_twice(m: &Moment) -> bool {
    let part_of_another = matches!(m.step, Step::Press(_)) && pressed(m).is_none();
    m.machine.presses() == m.after.accepted
        && (!part_of_another || only_effect(m) == Some(LadderEffect::Debounced))
        && m.got.is_none_or(|got| {
            let press = m.before.open.expect("the taken notice was open").press;
            (got.number, got.source, m.machine.ms(got.at)) == (press.number, press.source, press.at)
        })
}

fn first_press_goes_to_the_topmost(m: &Moment) -> bool {
    let b = m.before;
    let first = b.open.is_none() && b.dropped.is_none() && b.shutdown.is_none();
    !first || pressed(m).is_none_or(|effect| effect == topmost(m))
}

fn press_on_an_open_notice_escalates(m: &Moment) -> bool {
    m.before.open.is_none()
        || pressed(m).is_none_or(|effect| effect == LadderEffect::BeginShutdown(Cause::Press))
}

fn handled_resets_at_once(m: &Moment) -> bool {
    let answered = m.step == Step::Resolve(Resolution::Handled) && m.before.open.is_some();
    !answered || is_request(m) || m.after.open.is_some() || next_press(m) == topmost(m)
}

fn cooldown_runs_from_the_drop(m: &Moment) -> bool {
    let (Some(at), Some(effect), None) = (m.before.dropped, pressed(m), m.before.open) else {
        return true;
    };
    let counted = m.now - at < COOLDOWN;
    effect
        == if counted {
            LadderEffect::BeginShutdown(Cause::Press)
        } else {
            topmost(m)
        }
}

fn press_in_shutdown_exits(m: &Moment) -> bool {
    m.before.shutdown.is_none()
        || pressed(m).is_none_or(|effect| effect == LadderEffect::HardExit(Cause::Press))
}

fn decline_goes_strictly_below(m: &Moment) -> bool {
    match (m.step, m.before.open) {
        (Step::Resolve(Resolution::Declined), Some(open)) if !open.is_request() => {
            only_effect(m) == Some(below(m, open.handler))
        }
        _ => true,
    }
}

fn escalate_begins_shutdown(m: &Moment) -> bool {
    let escalated = m.step == Step::Resolve(Resolution::Escalated) && m.before.open.is_some();
    !escalated || only_effect(m) == Some(LadderEffect::BeginShutdown(Cause::Press))
}

fn dropped_handler_passes_its_notice_down(m: &Moment) -> bool {
    let Step::Drop(place) = m.step else {
        return true;
    };
    let id = m.before.alive[place];
    let its = m
        .before
        .open
        .filter(|open| open.handler == id && !open.taken);
    if its.is_some_and(|open| open.is_request()) {
        return only_effect(m) == next_request(m); // a request isn't passed down
    }
    only_effect(m) == its.map(|_| below(m, id))
}

fn taken_notice_never_times_out(m: &Moment) -> bool {
    let taken = m.before.open.is_some_and(|open| open.taken);
    !taken || !matches!(m.step, Step::Tick(_)) || m.effects.is_empty()
}

fn untaken_notice_walks_down(m: &Moment) -> bool {
    let Some(open) = m
        .before
        .open
        .filter(|open| !open.taken && !open.is_request())
    else {
        return true;
    };
    let Step::Tick(_) = m.step else { return true };
    let (mut handler, mut since) = (open.handler, open.since);
    for &(at, effect) in m.effects {
        if at < since + TAKE || Some(effect) != m.before.below(handler).map(LadderEffect::Notify) {
            return false;
        }
        (handler, since) = (m.before.below(handler).expect("it was just notified"), at);
    }
    // A handler with another one below keeps the notice no longer than the take time-out.
    m.before.below(handler).is_none() || m.now < since + TAKE
}

fn time_alone_never_shuts_down(m: &Moment) -> bool {
    let ends = |(_, effect): &(_, _)| {
        matches!(
            effect,
            LadderEffect::BeginShutdown(_) | LadderEffect::HardExit(_)
        )
    };
    !matches!(m.step, Step::Tick(_)) || m.before.shutdown.is_some() || !m.effects.iter().any(ends)
}

fn shutdown_deadline_exits_once_by_the_cause(m: &Moment) -> bool {
    let (Some((cause, at)), Step::Tick(_)) = (m.before.shutdown, m.step) else {
        return true;
    };
    let due = at + SHUTDOWN;
    let (earlier, now) = (m.earlier, m.now);
    if earlier < due && due <= now {
        m.effects.len() == 1
            && m.effects[0].0 >= due
            && m.effects[0].1 == LadderEffect::HardExit(cause)
    } else {
        m.effects.is_empty()
    }
}

fn terminate_passes_the_stack(m: &Moment) -> bool {
    let Step::Terminate(cause) = m.step else {
        return true;
    };
    let begins = m.before.shutdown.is_none();
    only_effect(m) == begins.then_some(LadderEffect::BeginShutdown(cause))
}

fn shutdown_is_for_ever(m: &Moment) -> bool {
    let again = |(_, effect): &(_, _)| {
        matches!(
            effect,
            LadderEffect::BeginShutdown(_) | LadderEffect::Notify(_)
        )
    };
    let first = m.after.shutdown.map(|(cause, _)| cause);
    m.machine.cause() == first
        && (m.before.shutdown.is_none() || !m.effects.iter().any(again) && m.got.is_none())
}

fn request_asks_its_handler_alone(m: &Moment) -> bool {
    let Step::Request(place) = m.step else {
        return true;
    };
    let at_once = m.before.open.is_none() && m.before.shutdown.is_none();
    only_effect(m) == at_once.then_some(LadderEffect::Notify(m.before.alive[place]))
}

fn untaken_request_stays(m: &Moment) -> bool {
    !is_request(m) || !matches!(m.step, Step::Tick(_)) || m.effects.is_empty()
}

fn request_leaves_no_trace(m: &Moment) -> bool {
    let over = match m.step {
        Step::Resolve(answer) => answer != Resolution::Escalated,
        Step::Drop(_) => true,
        _ => false,
    };
    !over || !is_request(m) || m.after.open.is_some() || {
        let at = next_possible(m);
        let counted = m
            .before
            .dropped
            .is_some_and(|dropped| at - dropped < COOLDOWN);
        let top = m.after.alive.last().filter(|_| !counted);
        let first = top.map_or(LadderEffect::BeginShutdown(Cause::Press), |top| {
            LadderEffect::Notify(*top)
        });
        next_press(m) == first
    }
}

fn waiting_request_has_its_turn(m: &Moment) -> bool {
    let closed = match m.step {
        Step::Resolve(Resolution::Handled | Resolution::Dropped) => m.before.open.is_some(),
        Step::Resolve(Resolution::Declined) => is_request(m),
        _ => false,
    };
    (!closed || only_effect(m) == next_request(m))
        && (m.after.requested.is_empty() || m.after.open.is_some() || m.after.shutdown.is_some())
}

fn stopped_time_is_not_counted(m: &Moment) -> bool {
    if m.step != Step::Resumed {
        return true;
    }
    let is_idle = m.before.open.is_none() && m.before.shutdown.is_none();
    let deadline = match (m.before.shutdown, m.before.open) {
        (Some((_, at)), _) if m.now < at + SHUTDOWN => Some(m.now + SHUTDOWN),
        (None, Some(open)) if !open.taken && !open.is_request() => Some(m.now + TAKE),
        _ => None,
    };
    let lowest = m
        .before
        .open
        .is_some_and(|open| m.before.below(open.handler).is_none());
    (m.machine.next_deadline() == deadline || lowest) && (!is_idle || next_press(m) == topmost(m))
}

fn notice_is_handed_out_once(m: &Moment) -> bool {
    let turn = m
        .after
        .open
        .filter(|open| !open.taken)
        .map(|open| open.handler);
    m.after.alive.iter().all(|id| {
        let mut machine = m.machine.clone();
        let (first, second) = (machine.take(*id, m.now), machine.take(*id, m.now));
        first.is_some() == (turn == Some(*id)) && second.is_none()
    })
}

fn late_answer_changes_nothing(m: &Moment) -> bool {
    let late = matches!(m.step, Step::Resolve(_)) && m.before.open.is_none();
    !late || m.effects.is_empty() && m.machine.cause() == m.before.shutdown.map(|(cause, _)| cause)
}

fn three_presses_end_it(m: &Moment) -> bool {
    let mut machine = m.machine.clone();
    let mut press = |n: u64| machine.press(PressSource::Signal, m.now + n * 3_600_000);
    let effects = [press(1), press(2), press(3)];
    effects.contains(&LadderEffect::HardExit(Cause::Press))
}
