//! Tests of the parts of the pages: what they show, and that each text is escaped.

mod accessibility;

use std::sync::Arc;

use agent_duplex::PermissionRequest;
use loop_state::UsageTotal;
use proptest::prelude::*;

use super::*;
use crate::pages::list::{Filter, ListRows, Order};
use crate::program::RunTexts;
use crate::row::{ReachedLimit, StepKind};

fn row(run: &str, state: RunState, attention: Option<Attention>) -> Arc<RunRow> {
    Arc::new(RunRow {
        key: format!("{run}-0123456789abcdef"),
        run: run.parse().unwrap(),
        root: "/home/me/shop".into(),
        state,
        title: Some("Make the tests <pass>".into()),
        branch: Some("rlm/r1".into()),
        phase: None,
        commits: true,
        iteration: 3,
        attempt: 1,
        max_iterations: Some(20),
        usage: UsageTotal {
            cost_microusd: 1_250_000,
            ..UsageTotal::default()
        },
        started_at: None,
        last_at: now(),
        since: None,
        texts: RunTexts {
            agent: "claude: may edit files".into(),
            now: Some("the agent works".into()),
            next: Some("rlm resume r1: iteration 3".into()),
            reason: Some("done: the check passed".into()),
            last_outcome: Some("iteration 2 failed: the agent ended: exit status 3 (boom)".into()),
            last_check: Some("failed (iteration 2)".into()),
        },
        attention,
        step: StepKind::Turn,
        unread_messages: 0,
        notes: vec!["the state is damaged".into()],
    })
}

fn now() -> Timestamp {
    Timestamp::from_millis(1_000_000)
}

fn context(role: Role) -> PageContext {
    PageContext {
        role,
        form_secret: "SECRET".into(),
        nonce: "NONCE".into(),
        is_public: false,
    }
}

fn terms(program: &str) -> run::RunTerms {
    run::RunTerms {
        program: program.into(),
        limits: vec!["max-iterations", "max-cost"],
    }
}

fn ask() -> Attention {
    Attention::Permissions(vec![PermissionRequest {
        id: "a1\"".into(),
        tool: "Bash".into(),
        summary: "rm -r target </pre>".into(),
        reason: String::new(),
    }])
}

/// Removes the points in time, which depend on the zone.
fn without_times(html: &str) -> String {
    let mut parts = html.split("<time");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += part.split_once("</time>").map_or("", |(_, rest)| rest);
    }
    text
}

#[test]
fn parts_of_the_pages_snapshot() {
    let running = row("r1", RunState::Running, Some(ask()));
    let ended = row("r2", RunState::Ended, None);
    let (filter, operator) = (Filter::default(), context(Role::Operator));
    let rows = ListRows::new(vec![Arc::clone(&running), ended], &filter, now());
    let mut parts = rows.parts(&filter, &[("/gone".into(), "it is gone".into())]);
    parts.extend(inbox::parts(&[Arc::clone(&running)], &operator, &|_| {
        terms("rlm")
    }));
    parts.extend(run::parts(
        &running,
        &operator,
        &terms("rlm -C /home/me/shop"),
    ));
    let stopped = row("r3", RunState::Stopped, None);
    parts.extend(run::parts(&stopped, &operator, &terms("rlm")).split_off(4));
    let texts = parts.iter().map(|part| without_times(&part.html));
    insta::assert_snapshot!(texts.collect::<Vec<_>>().join("\n\n"));
}

#[test]
fn v19_viewer_sees_no_form_that_acts() {
    for (state, attention) in [
        (RunState::Running, Some(ask())),
        (RunState::Paused, Some(Attention::Review("phase".into()))),
        (RunState::Stopped, None),
        (RunState::Ended, Some(Attention::Limit(ReachedLimit::Cost))),
    ] {
        let row = row("r1", state, attention);
        let viewer = context(Role::Viewer);
        let mut parts = run::parts(&row, &viewer, &terms("rlm"));
        parts.extend(inbox::parts(&[Arc::clone(&row)], &viewer, &|_| {
            terms("rlm")
        }));
        for part in parts {
            assert!(!part.html.contains("<form"), "{}", part.html);
        }
    }
}

#[test]
fn inbox_resumes_a_run_and_selects_the_limit_that_ended_it() {
    let entry = |state, attention| {
        let row = row("r1", state, Some(attention));
        let parts = inbox::parts(&[row], &context(Role::Operator), &|_| terms("rlm"));
        parts[0].html.clone()
    };
    let has =
        |html: &str| ["resume", "resume-with"].map(|it| html.contains(&format!("value=\"{it}\"")));
    let cost = entry(RunState::Ended, Attention::Limit(ReachedLimit::Cost));
    assert_eq!(has(&cost), [false, true], "{cost}");
    assert!(
        cost.contains("<option value=\"max-cost\" selected>"),
        "{cost}"
    );
    assert_eq!(cost.matches(" selected").count(), 1, "{cost}");
    let waits = entry(
        RunState::Ended,
        Attention::Limit(ReachedLimit::WaitForRateLimit),
    );
    assert_eq!(has(&waits), [true, true], "{waits}");
    for state in [RunState::Ended, RunState::Crashed] {
        let failed = entry(state, Attention::Failed);
        assert_eq!(has(&failed), [true, false], "{failed}");
    }
    let running = entry(RunState::Running, ask());
    assert_eq!(has(&running), [false, false], "{running}");
}

#[test]
fn v20_times_in_a_text_are_shown_and_other_words_stay() {
    let text = "sleeps; iteration 2 at 2026-11-28T22:47:45.335Z; then é Z <b>";
    let html = with_times(text).into_string();
    assert!(
        html.contains("sleeps; iteration 2 at <time datetime=\"2026-11-28T"),
        "{html}"
    );
    assert!(html.contains("</time>; then é Z &lt;b&gt;"), "{html}");
    let none = "2026-13-99T99:99:99.999Z ZZZZ";
    assert_eq!(with_times(none).into_string(), none);
}

proptest! {
    /// The texts of a run come from agents and users.
    #[test]
    fn v9_v20_each_text_of_a_run_is_escaped(text in "[<>\"'&a-zé\u{0}-\u{1f}\u{202e}\u{5d0}]{0,60}") {
        let mut hostile = (*row("r1", RunState::Running, Some(ask()))).clone();
        hostile.title = Some(text.clone());
        hostile.branch = Some(text.clone());
        hostile.root = text.clone().into();
        hostile.texts = RunTexts {
            agent: text.clone(),
            now: Some(text.clone()),
            next: Some(text.clone()),
            reason: Some(text.clone()),
            last_outcome: Some(text.clone()),
            last_check: Some(text.clone()),
        };
        hostile.notes = vec![text.clone()];
        let (row, context, filter) = (Arc::new(hostile), context(Role::Operator), Filter::default());
        let rows = ListRows::new(vec![Arc::clone(&row)], &filter, now());
        let mut parts = rows.parts(&filter, &[]);
        parts.extend(inbox::parts(&[Arc::clone(&row)], &context, &|_| terms("rlm")));
        parts.extend(run::parts(&row, &context, &terms("rlm")));
        let plain = (*self::row("r1", RunState::Running, Some(ask()))).clone();
        let plain = Arc::new(RunRow { title: Some("t".into()), ..plain });
        let is_odd = |c: char| (c < ' ' && c != '\n' && c != '\t') || c == '\u{202e}';
        for part in parts {
            prop_assert!(!part.html.contains(is_odd), "{}", part.html);
        }
        // The text changes no tag: there are as many as for a plain text.
        let tags = |row: &RunRow| {
            let parts = run::parts(row, &context, &terms("rlm"));
            parts.iter().map(|part| part.html.matches('<').count()).sum::<usize>()
        };
        let same = RunRow { texts: RunTexts { agent: "t".into(), now: Some("t".into()), next: Some("t".into()), reason: Some("t".into()), last_outcome: Some("t".into()), last_check: Some("t".into()) }, branch: Some("t".into()), notes: vec!["t".into()], ..(*plain).clone() };
        prop_assert_eq!(tags(&row), tags(&same));
    }
}

#[test]
fn list_has_the_chosen_order() {
    let named = |run: &str, title: &str, cost, started| {
        let mut row = (*row(run, RunState::Ended, None)).clone();
        row.title = Some(title.into());
        row.usage.cost_microusd = cost;
        row.started_at = Some(Timestamp::from_millis(started));
        Arc::new(row)
    };
    let all = [
        named("a", "beta", 5, 1),
        named("b", "Alpha", 9, 2),
        named("c", "gamma", 5, 3),
    ];
    for (order, expected) in [
        (Order::Active, "abc"),
        (Order::Started, "cba"),
        (Order::Cost, "bac"),
        (Order::Title, "bac"),
    ] {
        let filter = Filter {
            order,
            ..Filter::default()
        };
        let rows = ListRows::new(all.to_vec(), &filter, now()).rows;
        let found: String = rows.iter().map(|row| row.run.as_str()).collect();
        assert_eq!(found, expected, "{order:?}");
        // The links to further rows keep the order.
        let name = format!("order={}", format!("{order:?}").to_lowercase());
        assert!(filter.query(0).contains(&name), "{order:?}");
    }
}
