//! The live status line.

use std::time::Duration;

use loop_state::{Head, Step, Timestamp, Wait, When};

use super::rows::{cut, width};
use super::scene::Scene;
use crate::duration::show;
use crate::money;
use crate::render::{background, plain, tried};

const SEPARATOR: &str = " · ";
/// The widest name of a running tool.
const MAX_TOOL: usize = 48;

/// Says on one line of at most `columns` columns where the run stands and what comes next.
pub(crate) fn line(run: &str, scene: Scene<'_>, now: Timestamp, columns: usize) -> String {
    let head = scene.head;
    let phase = head.rules.phases.get(head.phase as usize);
    let of = phase.and_then(|phase| phase.limits.max_iterations);
    let phase = phase.map_or("", |phase| &phase.name);
    let of = of.map(|of| format!("/{of}")).unwrap_or_default();
    let attempt = head.attempt > head.first_attempt;
    let (keys, press) = match (scene.is_ending(), scene.waits()) {
        (true, _) => ("", "Ctrl-C: end at once"),
        (_, true) => ("/continue: go on", "Ctrl-C: menu"),
        _ => ("Enter: steer", "Ctrl-C: menu"),
    };
    // What is said, and how early it is left out where there is little room.
    let mut parts = vec![
        (
            6,
            of_phases(head).map_or_else(String::new, |of| format!("{} {of}", plain(phase))),
        ),
        (
            7,
            match head.iteration {
                0 => String::new(),
                n => format!("iteration {n}{of}"),
            },
        ),
        (
            4,
            if attempt {
                format!("attempt {}", head.attempt)
            } else {
                String::new()
            },
        ),
        (9, stands(scene, now)),
        (8, wishes(scene).to_owned()),
        (6, money::short(head)),
        (2, total(head, now)),
        (1, plain(run)),
        (if scene.waits() { 8 } else { 3 }, keys.to_owned()),
        (5, press.to_owned()),
    ];
    parts.retain(|(_, text)| !text.is_empty());
    loop {
        let texts: Vec<&str> = parts.iter().map(|(_, text)| text.as_str()).collect();
        let text = texts.join(SEPARATOR);
        let least = parts.iter().map(|(weight, _)| *weight).min();
        if width(&text) <= columns || parts.len() <= 1 {
            return cut(&text, columns);
        }
        parts.retain(|(weight, _)| Some(*weight) != least);
    }
}

/// Says at some length where the run stands, for `/status`.
pub(crate) fn report(run: &str, scene: Scene<'_>, now: Timestamp) -> Vec<String> {
    let head = scene.head;
    let mut lines = vec![format!(
        "run {}: iteration {}{}, {} complete, {}",
        plain(run),
        head.iteration,
        tried(head.is_tried_again(), head.attempt),
        head.iterations_complete(),
        total(head, now)
    )];
    if let Some(of) = of_phases(head) {
        lines.push(format!(
            "  phase    {} {of}",
            plain(&head.phase_rules().name)
        ));
    }
    let wishes = match wishes(scene) {
        "" => String::new(),
        wish => format!(", {wish}"),
    };
    lines.push(format!("  now      {}{wishes}", stands(scene, now)));
    if let Some(session) = &head.session {
        lines.push(format!("  session  {}", plain(session)));
    }
    if let Some(last) = &head.last {
        let how = last.failure.as_deref().unwrap_or("complete");
        lines.push(format!(
            "  last     iteration {}: {}",
            last.iteration,
            cut(&plain(how), 100)
        ));
    }
    let used = head.usage;
    if let Some(told) = money::used(used) {
        let left = money::left(&head.rules, used).map(|left| format!("; {left}"));
        lines.push(format!("  used     {told}{}", left.unwrap_or_default()));
    }
    for steer in head.steers.iter().rev().take(5).rev() {
        let text = cut(&plain(&steer.text), 60);
        let state = format!("{:?}", steer.state).to_lowercase();
        lines.push(format!("  steer {}  {state}: {text}", steer.id));
    }
    for ask in &scene.agent.asks {
        lines.push(format!(
            "  asks     {}: {}",
            plain(&ask.tool),
            cut(&plain(&ask.summary), 80)
        ));
    }
    lines
}

/// Which of its phases a run is in, if it has several.
fn of_phases(head: &Head) -> Option<String> {
    let all = head.rules.phases.len();
    (all > 1).then(|| format!("{}/{all}", head.phase + 1))
}

/// What happens now.
fn stands(scene: Scene<'_>, now: Timestamp) -> String {
    let head = scene.head;
    let since = |at: Timestamp| seconds(now.since(at));
    // A wait of 6.2 s is over in the seventh second.
    let left = |until: Timestamp| {
        let left = until.since(now).as_millis().div_ceil(1000);
        show(Duration::from_secs(left as u64))
    };
    if scene.is_ending() {
        return "stopping".into();
    }
    match &head.step {
        Step::Turn { since: at } => match (scene.agent.held_for, scene.agent.tools.last()) {
            (Some(tasks), _) => format!("waits for {} {}", background(tasks), since(*at)),
            (_, Some(tool)) => format!("{} {}", cut(&plain(tool), MAX_TOOL), since(*at)),
            _ if scene.agent.alive => format!("agent works {}", since(*at)),
            _ => format!("agent starts {}", since(*at)),
        },
        Step::Interrupted { since: at } => format!("interrupted {}", since(*at)),
        Step::Paused { since: at } => format!("paused {}", since(*at)),
        Step::Review { since: at, .. } => format!("waits for your word {}", since(*at)),
        Step::Sleeping { until } => format!("next in {}", left(*until)),
        Step::Waiting { until, why, .. } => match why {
            Wait::Limit => format!("waits for the service, goes on in {}", left(*until)),
            _ => format!("tries again in {}", left(*until)),
        },
        Step::Gate { index } => format!("gate {} runs", index + 1),
        Step::Check => "check runs".into(),
        Step::Recheck { gate } if *gate < gates(scene) => format!("gate {} runs", gate + 1),
        Step::Recheck { .. } => "check runs".into(),
        Step::Settling { .. } => "ending what was left running".into(),
        _ => "starting".into(),
    }
}

fn gates(scene: Scene<'_>) -> u32 {
    let phase = scene.head.rules.phases.get(scene.head.phase as usize);
    phase.map_or(0, |phase| phase.gates)
}

/// What was asked for and is still to come.
fn wishes(scene: Scene<'_>) -> &'static str {
    let head = scene.head;
    match head.stopping {
        Some(stop) if stop.when == When::AfterIteration => "then stop",
        _ if head.pausing => "then pause",
        _ => "",
    }
}

/// How long the run has been going; nothing before it has begun.
fn total(head: &Head, now: Timestamp) -> String {
    match head.started_at {
        Timestamp(0) => String::new(),
        at => format!("{} in all", seconds(now.since(at))),
    }
}

fn seconds(time: Duration) -> String {
    show(Duration::from_secs(time.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::stage::{at, pipeline};
    use loop_state::Occasion;
    use proptest::prelude::*;

    const RUN: &str = "20260101-120000-ab12";

    #[test]
    fn it_says_where_the_run_stands_at_any_width() {
        let mut stand = at(Step::Turn {
            since: Timestamp(60_000),
        });
        stand.agent.alive = true;
        stand.agent.tools = vec!["Bash: cargo test".into()];
        stand.head.attempt = 2;
        stand.head.usage.cost_microusd = 1_234_567;
        let now = Timestamp(125_000);
        let widths = [120, 100, 80, 60, 40, 20, 7];
        let lines = widths.map(|columns| line(RUN, stand.scene(), now, columns));
        insta::assert_snapshot!(lines.join("\n"), @"
        iteration 3/100 · attempt 2 · Bash: cargo test 1m5s · 1.23 USD · 2m4s in all · Enter: steer · Ctrl-C: menu
        iteration 3/100 · attempt 2 · Bash: cargo test 1m5s · 1.23 USD · Enter: steer · Ctrl-C: menu
        iteration 3/100 · attempt 2 · Bash: cargo test 1m5s · 1.23 USD · Ctrl-C: menu
        iteration 3/100 · Bash: cargo test 1m5s · 1.23 USD
        iteration 3/100 · Bash: cargo test 1m5s
        Bash: cargo test 1m…
        Bash: …
        ");
    }

    #[test]
    fn x119_it_says_in_which_phase() {
        let (since, of) = (Timestamp(60_000), Occasion::Phase);
        let stand = pipeline(Step::Review { since, of });
        let line = |columns| line(RUN, stand.scene(), Timestamp(61_000), columns);
        insta::assert_snapshot!([120, 60].map(line).join("\n"), @"
        build 2/3 · waits for your word 1s · 1m in all · 20260101-120000-ab12 · /continue: go on · Ctrl-C: menu
        build 2/3 · waits for your word 1s · /continue: go on
        ");
    }

    #[test]
    fn every_step_has_words() {
        let t = Timestamp(60_000);
        let steps = [
            Step::Ready,
            Step::Turn { since: t },
            Step::Interrupted { since: t },
            Step::Gate { index: 0 },
            Step::Check,
            Step::Recheck { gate: 0 },
            Step::Recheck { gate: 1 },
            Step::Sleeping {
                until: Timestamp(66_200),
            },
            Step::Paused { since: t },
        ];
        let lines = steps.map(|step| line(RUN, at(step).scene(), t, 60));
        insta::assert_snapshot!(lines.join("\n"), @"
        iteration 3/100 · starting · Enter: steer · Ctrl-C: menu
        iteration 3/100 · agent starts 0s · Ctrl-C: menu
        iteration 3/100 · interrupted 0s · /continue: go on
        iteration 3/100 · gate 1 runs · Enter: steer · Ctrl-C: menu
        iteration 3/100 · check runs · Enter: steer · Ctrl-C: menu
        iteration 3/100 · gate 1 runs · Enter: steer · Ctrl-C: menu
        iteration 3/100 · check runs · Enter: steer · Ctrl-C: menu
        iteration 3/100 · next in 7s · Enter: steer · Ctrl-C: menu
        iteration 3/100 · paused 0s · /continue: go on
        ");
    }

    proptest! {
        /// A tool may be called anything, and the line fits.
        #[test]
        fn it_fits(tool in "\\PC{0,80}|日{0,40}", columns in 0usize..120, now in any::<u64>()) {
            let mut stand = at(Step::Turn { since: Timestamp(5) });
            stand.agent.tools = vec![tool];
            let line = line(RUN, stand.scene(), Timestamp(now), columns);
            prop_assert!(width(&line) <= columns, "{line:?}");
            prop_assert!(!line.chars().any(char::is_control));
        }
    }
}
