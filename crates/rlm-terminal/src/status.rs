//! The live status line, which is shorter on narrow screens, and the longer answer to `/status`.

use std::time::Duration;

use loop_runner::StopProgress;
use loop_state::{Head, IterationStep, StopTiming, Timestamp, WaitCause, times};
use rlm_text::duration::show;
use rlm_text::escape::plain;
use rlm_text::money;

use super::bar::{self, NearestLimit};
use super::rows::{cut, width};
use super::run_snapshot::RunSnapshot;

const SEPARATOR: &str = " · ";
/// The maximum number of columns of the name of a running tool.
const MAX_TOOL: usize = 48;
/// The same limit on a narrow screen.
const SHORT_TOOL: usize = 24;
/// The shortest form of the status line.
const MOST_TERSE: u32 = 9;

/// Returns one line of at most `columns` columns with the status of the run and its next step.
pub(crate) fn line(run: &str, snapshot: RunSnapshot<'_>, now: Timestamp, columns: usize) -> String {
    let line = |terseness| parts(run, snapshot, now, terseness).join(SEPARATOR);
    let lines = (0..=MOST_TERSE).map(line);
    let fits = lines.into_iter().find(|line| width(line) <= columns);
    fits.unwrap_or_else(|| cut(&line(MOST_TERSE), columns))
}

/// Returns the parts of the status line. A higher `terseness` gives fewer and shorter parts.
fn parts(run: &str, snapshot: RunSnapshot<'_>, now: Timestamp, terseness: u32) -> Vec<String> {
    let head = snapshot.head;
    let phase = head.rules.phases.get(head.phase as usize);
    let of = phase.and_then(|phase| phase.limits.max_iterations);
    let of = of.map(|of| format!("/{of}")).unwrap_or_default();
    let nearest = bar::nearest_limit(head, now).filter(|_| terseness < 4 && !snapshot.is_ending());
    let with_bar = |of: NearestLimit, text: String| match nearest {
        Some((end, share))
            if end == of
                && !text.is_empty()
                && (of == NearestLimit::Wait || bar::is_begun(share)) =>
        {
            format!("{text} {}", bar::bar(share))
        }
        _ => text,
    };
    let iteration = match head.iteration {
        0 => String::new(),
        n => format!("iteration {n}{of}"),
    };
    let attempt = match head.is_retry() {
        true => format!("attempt {}", head.attempt),
        false => String::new(),
    };
    let phases = of_phases(head).zip(phase);
    let phases = phases.map(|(of, phase)| format!("{} {of}", plain(&phase.name)));
    let longest = if terseness < 4 { MAX_TOOL } else { SHORT_TOOL };
    let state = match terseness {
        MOST_TERSE => short_state_text(snapshot, now),
        _ => with_bar(NearestLimit::Wait, state_text(snapshot, now, longest)),
    };
    let pending = pending_text(snapshot);
    let then = match pending {
        "" => next_text(snapshot),
        _ => String::new(),
    };
    let (keys, press) = match (snapshot.is_ending(), snapshot.awaits_person()) {
        (true, _) => ("", "Ctrl-C: exit now"),
        (_, true) => ("/continue: resume", "Ctrl-C: menu"),
        _ => ("Enter: steer", "Ctrl-C: menu"),
    };
    // While the run stops, the only time on the line is the countdown.
    let total = match snapshot.is_ending() {
        true => String::new(),
        false => with_bar(NearestLimit::Time, total(head, now)),
    };
    let total_until = if head.rules.limits.max_duration.is_some() {
        5
    } else {
        2
    };
    // Each part, with the lowest terseness that leaves the part out.
    let parts = [
        (6, phases.unwrap_or_default()),
        (7, with_bar(NearestLimit::Iterations, iteration)),
        (4, attempt),
        (u32::MAX, state),
        (8, pending.to_owned()),
        (3, then),
        (6, with_bar(NearestLimit::Cost, money::cost_short(head))),
        (total_until, total),
        (1, plain(run)),
        (
            if snapshot.awaits_person() { 8 } else { 3 },
            keys.to_owned(),
        ),
        (5, press.to_owned()),
    ];
    let shown = parts.into_iter();
    let shown = shown.filter(|(until, text)| terseness < *until && !text.is_empty());
    shown.map(|(_, text)| text).collect()
}

/// Returns the status of the run in several lines, for `/status`.
pub(crate) fn report(run: &str, snapshot: RunSnapshot<'_>, now: Timestamp) -> Vec<String> {
    let head = snapshot.head;
    let mut lines = vec![format!(
        "run {}: iteration {}{}, {} complete, {}",
        plain(run),
        head.iteration,
        attempt_label(head.is_retry(), head.attempt),
        head.iterations_complete(),
        total(head, now)
    )];
    if let Some(of) = of_phases(head) {
        lines.push(format!(
            "  phase    {} {of}",
            plain(&head.phase_rules().name)
        ));
    }
    let pending_part = match pending_text(snapshot) {
        "" => String::new(),
        pending => format!(", {pending}"),
    };
    lines.push(format!(
        "  now      {}{pending_part}",
        state_text(snapshot, now, MAX_TOOL)
    ));
    if let Some(session) = &head.session {
        lines.push(format!("  session  {}", plain(session)));
    }
    if let Some(last) = &head.last_iteration {
        let how = last.failure.as_deref().unwrap_or("complete");
        lines.push(format!(
            "  last     iteration {}: {}",
            last.iteration,
            cut(&plain(how), 100)
        ));
    }
    let used = head.usage;
    if let Some(told) = money::usage_text(used) {
        let left = money::budget_left(&head.rules, used).map(|left| format!("; {left}"));
        lines.push(format!("  used     {told}{}", left.unwrap_or_default()));
    }
    for steer in head.steers.iter().rev().take(5).rev() {
        let text = cut(&plain(&steer.text), 60);
        let state = format!("{:?}", steer.state).to_lowercase();
        lines.push(format!("  steer {}  {state}: {text}", steer.id));
    }
    for ask in &snapshot.agent.permission_requests {
        lines.push(format!(
            "  asks     {}: {}",
            plain(&ask.tool),
            cut(&plain(&ask.summary), 80)
        ));
    }
    lines
}

/// Returns a text with the number of an agent's background tasks.
#[must_use]
pub fn background(tasks: u32) -> String {
    match tasks {
        0 => "no background task".to_owned(),
        1 => "1 background task".to_owned(),
        several => format!("{several} background tasks"),
    }
}

/// Returns a text with the number of an attempt, if it is not the first attempt of its iteration.
#[must_use]
pub fn attempt_label(again: bool, attempt: u32) -> String {
    match again {
        true => format!(", attempt {attempt}"),
        false => String::new(),
    }
}

/// Returns the number of the run's phase and the number of all phases, if it has several.
fn of_phases(head: &Head) -> Option<String> {
    let all = head.rules.phases.len();
    (all > 1).then(|| format!("{}/{all}", head.phase + 1))
}

/// Returns the current activity of the run. The name of a tool takes at most `longest` columns.
fn state_text(snapshot: RunSnapshot<'_>, now: Timestamp, longest: usize) -> String {
    let head = snapshot.head;
    let since = |at: Timestamp| since(now, at);
    let left = |until: Timestamp| left(now, until);
    if snapshot.is_ending() {
        return stopping(snapshot.shutdown, now);
    }
    match &head.step {
        IterationStep::Turn { since: at } => {
            match (snapshot.agent.awaited_tasks, snapshot.agent.tools.last()) {
                (Some(tasks), _) => format!("waits for {} {}", background(tasks), since(*at)),
                (_, Some(tool)) => format!("{} {}", cut(&plain(tool), longest), since(*at)),
                _ if snapshot.agent.alive || head.has_prompt => {
                    format!("agent works {}", since(*at))
                }
                _ => format!("agent starts {}", since(*at)),
            }
        }
        IterationStep::Interrupted { since: at } => format!("interrupted {}", since(*at)),
        IterationStep::Paused { since: at } => format!("paused {}", since(*at)),
        IterationStep::Review { since: at, .. } => {
            format!("waits for your approval {}", since(*at))
        }
        IterationStep::Sleeping { until } => format!("next iteration in {}", left(*until)),
        IterationStep::Waiting { until, why, .. } => match why {
            WaitCause::RateLimit => format!("rate limit, continues in {}", left(*until)),
            _ => format!("retries in {}", left(*until)),
        },
        IterationStep::RequiredCheck { index } => format!("required check {} running", index + 1),
        IterationStep::Check => "check running".into(),
        IterationStep::Recheck { index } if *index < gates(snapshot) => {
            format!("required check {} running", index + 1)
        }
        IterationStep::Recheck { .. } => "check running".into(),
        IterationStep::EndingLeftovers { .. } => "finishing the iteration".into(),
        _ => "starting".into(),
    }
}

/// Returns the process or step that a stop waits for, and after its first second also the time left.
fn stopping(shutdown: Option<StopProgress>, now: Timestamp) -> String {
    let Some((shutdown, awaited)) = shutdown.and_then(|it| Some((it, it.awaited?))) else {
        return "stopping".into();
    };
    match is_counted(shutdown, now) {
        true => format!(
            "stopping: waiting for {awaited}, {} left",
            left(now, shutdown.until)
        ),
        false => format!("stopping: waiting for {awaited}"),
    }
}

fn is_counted(shutdown: StopProgress, now: Timestamp) -> bool {
    now.since(shutdown.since) >= times::COUNTDOWN_STEP
}

/// Returns the current activity in few columns.
fn short_state_text(snapshot: RunSnapshot<'_>, now: Timestamp) -> String {
    match snapshot.head.step {
        _ if snapshot.is_ending() => match snapshot.shutdown.filter(|it| is_counted(*it, now)) {
            Some(shutdown) => format!("stopping {}", left(now, shutdown.until)),
            None => "stopping".into(),
        },
        IterationStep::Turn { since: at } => format!("work {}", since(now, at)),
        IterationStep::Interrupted { .. } => "interrupted".into(),
        IterationStep::Paused { .. } => "paused".into(),
        IterationStep::Review { .. } => "approve?".into(),
        IterationStep::Sleeping { until } => format!("next {}", left(now, until)),
        IterationStep::Waiting { until, .. } => format!("wait {}", left(now, until)),
        IterationStep::RequiredCheck { .. } | IterationStep::Recheck { .. } => "checking".into(),
        IterationStep::Check => "check".into(),
        IterationStep::EndingLeftovers { .. } => "finishing".into(),
        _ => "starting".into(),
    }
}

/// Returns the next step, if it is certain.
fn next_text(snapshot: RunSnapshot<'_>) -> String {
    let Some(phase) = snapshot.head.rules.phases.get(snapshot.head.phase as usize) else {
        return String::new();
    };
    let from = match snapshot.head.step {
        IterationStep::Turn { .. } if !snapshot.is_ending() => 0,
        IterationStep::RequiredCheck { index } => index + 1,
        _ => return String::new(),
    };
    match (
        from < phase.required_checks,
        phase.has_check && !phase.has_promise,
    ) {
        (true, _) => format!("then required check {}", from + 1),
        (_, true) => "then the check".into(),
        _ => String::new(),
    }
}

fn gates(snapshot: RunSnapshot<'_>) -> u32 {
    let phase = snapshot.head.rules.phases.get(snapshot.head.phase as usize);
    phase.map_or(0, |phase| phase.required_checks)
}

/// Returns the request that the run has not carried out yet.
fn pending_text(snapshot: RunSnapshot<'_>) -> &'static str {
    let head = snapshot.head;
    match head.stopping {
        Some(stop) if stop.when == StopTiming::AfterIteration => "then stop",
        _ if head.pausing => "then pause",
        _ => "",
    }
}

/// Returns the active time of the run, without the time in which it was stopped, and its limit if there is one. Empty before the run has begun.
fn total(head: &Head, now: Timestamp) -> String {
    let active = about(bar::active(head, now));
    match (head.taken_at, head.rules.limits.max_duration) {
        (at, _) if at == Timestamp::default() => String::new(),
        (_, Some(most)) => format!("{active} of {}", show(most)),
        _ => format!("{active} in all"),
    }
}

fn since(now: Timestamp, at: Timestamp) -> String {
    about(now.since(at))
}

/// Returns the time left. Like elapsed time, it is rounded to whole seconds of the clock, so that both change at the same moment.
fn left(now: Timestamp, until: Timestamp) -> String {
    let whole =
        Duration::from_secs((until.as_millis() / 1000).saturating_sub(now.as_millis() / 1000));
    let step = step(whole);
    about(Duration::from_secs(whole.as_secs().next_multiple_of(step)))
}

/// Formats a time in steps that get coarser as the time gets longer, so that a long wait doesn't change the screen every second.
fn about(time: Duration) -> String {
    let seconds = time.as_secs();
    show(Duration::from_secs(seconds - seconds % step(time)))
}

/// Returns the seconds from one change of a displayed time to the next.
fn step(time: Duration) -> u64 {
    match time.as_secs() {
        ..60 => 1,
        60..600 => 10,
        600..86_400 => 60,
        _ => 3600,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_run::{at, pipeline};
    use loop_state::ReviewPoint;
    use proptest::prelude::*;

    const RUN: &str = "20260101-120000-ab12";

    #[test]
    fn status_line_fits_narrow_screens_by_leaving_parts_out() {
        let since = Timestamp::from_millis(60_000);
        let turn = || at(IterationStep::Turn { since });
        let mut works = turn();
        works.agent.alive = true;
        let mut tool = turn();
        tool.agent.tools = vec!["Bash: cargo test --workspace --all-features".into()];
        tool.head.attempt = 2;
        tool.head.usage.cost_microusd = 1_234_567;
        tool.head.rules.limits.max_cost_microusd = Some(5_000_000);
        let mut late = at(IterationStep::Turn { since });
        late.head.iteration = 80;
        late.agent.awaited_tasks = Some(2);
        late.head.pausing = true;
        let mut timed = at(IterationStep::Check);
        timed.head.rules.limits.max_duration = Some(Duration::from_secs(240));
        let sleeps = at(IterationStep::Sleeping {
            until: Timestamp::from_millis(129_500),
        });
        let limited = at(IterationStep::Waiting {
            since,
            until: Timestamp::from_millis(3_660_000),
            why: WaitCause::RateLimit,
        });
        let mut wide = turn();
        wide.agent.tools = vec!["書く: 日本語のファイル 👨‍👩‍👧 ❤️ e\u{301}".into()];
        let state = [works, tool, late, timed, sleeps, limited, wide];
        let blocks = state.map(|run| {
            let line = |columns| {
                line(
                    RUN,
                    run.snapshot(),
                    Timestamp::from_millis(125_000),
                    columns,
                )
            };
            [200, 120, 80, 40, 20, 8].map(line).join("\n")
        });
        insta::assert_snapshot!(blocks.join("\n\n"));
    }

    #[test]
    fn x119d_status_shows_the_phase() {
        let (since, of) = (Timestamp::from_millis(60_000), ReviewPoint::Phase);
        let run = pipeline(IterationStep::Review { since, point: of });
        let line = |columns| line(RUN, run.snapshot(), Timestamp::from_millis(61_000), columns);
        insta::assert_snapshot!([120, 60].map(line).join("\n"));
    }

    #[test]
    fn every_step_has_a_text() {
        let t = Timestamp::from_millis(60_000);
        let steps = [
            IterationStep::Ready,
            IterationStep::Turn { since: t },
            IterationStep::Interrupted { since: t },
            IterationStep::RequiredCheck { index: 0 },
            IterationStep::Check,
            IterationStep::Recheck { index: 0 },
            IterationStep::Recheck { index: 1 },
            IterationStep::Sleeping {
                until: Timestamp::from_millis(66_200),
            },
            IterationStep::Paused { since: t },
        ];
        let lines = steps.map(|step| line(RUN, at(step).snapshot(), t, 60));
        insta::assert_snapshot!(lines.join("\n"));
    }

    proptest! {
        /// The line fits, whatever the name of the tool.
        #[test]
        fn status_fits_its_width(tool in "\\PC{0,80}|日{0,40}", columns in 0usize..120, now in any::<u64>()) {
            let mut run = at(IterationStep::Turn { since: Timestamp::from_millis(5) });
            run.agent.tools = vec![tool];
            let line = line(RUN, run.snapshot(), Timestamp::from_millis(now), columns);
            prop_assert!(width(&line) <= columns, "{line:?}");
            prop_assert!(!line.chars().any(char::is_control));
        }
    }
}
