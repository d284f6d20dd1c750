//! Compactions of long histories.

use agent_api::{
    AssistantPart, CompactionPlan, CompactionSettings, Dialect, ErrorKind, History, Item,
    ToolOutcome,
};
use insta::assert_snapshot;
use proptest::prelude::*;

use crate::support::{a_step, apply, call, message, result, text};
use crate::wire::{DIALECTS, settings};

const LIMITS: CompactionSettings = CompactionSettings {
    window: 100_000,
    reserve: 16_000,
    keep_recent: 20_000,
    overhead: 3_000,
};

/// Appends turns: a user message, and calls with output of `output` bytes each.
fn work(history: &mut History, from: usize, turns: usize, output: usize) {
    for turn in from..from + turns {
        history.push_user(format!("task {turn}")).unwrap();
        for step in 0..4 {
            let id = format!("call_{turn}_{step}");
            let arguments = format!(r#"{{"path":"src/file_{turn}.rs"}}"#);
            let parts = [
                text(&"thought ".repeat(50)),
                AssistantPart::ToolCall(call(&id, "read", &arguments)),
            ];
            history.push_assistant(message(parts)).unwrap();
            history.push_started(id.clone()).unwrap();
            history
                .push_result(result(&id, ToolOutcome::Ok, &"x".repeat(output)))
                .unwrap();
        }
        history.push_assistant(message([text("done")])).unwrap();
    }
    history
        .push_user(format!("next after {}", from + turns))
        .unwrap();
}

fn users(history: &History) -> Vec<&str> {
    let users = history.items().iter().filter_map(|item| match item {
        Item::User(user) => Some(user.text.as_str()),
        _ => None,
    });
    users.collect()
}

/// Returns the latest items whose bytes are within the tokens that stay.
fn recent(history: &History, tokens: usize) -> Vec<Item> {
    let mut bytes = 0;
    let mut kept: Vec<Item> = { history.items().iter().rev() }
        .take_while(|item| {
            bytes += serde_json::to_string(item).unwrap().len();
            bytes <= tokens * 4
        })
        .cloned()
        .collect();
    kept.reverse();
    kept
}

#[test]
fn long_history_is_compacted_twice() {
    let mut history = History::new();
    work(&mut history, 0, 50, 8_000);
    assert!(
        LIMITS.estimate(&history) > 400_000,
        "{}",
        LIMITS.estimate(&history)
    );
    assert!(LIMITS.is_due(&history));
    for round in 0..2 {
        let plan = LIMITS.plan(&history).unwrap().unwrap();
        assert!(plan.needs_summary() || plan.tokens_after() <= 42_000);
        let summary = format!("summary {round}");
        let compacted = plan.apply(&history, Some(&summary)).unwrap();
        assert!(
            LIMITS.estimate(&compacted) <= 42_000,
            "{}",
            LIMITS.estimate(&compacted)
        );
        assert!(LIMITS.estimate(&compacted) <= plan.tokens_after());
        assert_eq!(users(&compacted), users(&history));
        let recent = recent(&history, 20_000);
        assert!(recent.len() > 20 && compacted.items().ends_with(&recent));
        compacted.check_ready().unwrap();
        for dialect in DIALECTS {
            dialect.request(&compacted, &settings()).unwrap();
        }
        history = compacted;
        work(&mut history, 50 + 50 * round, 50, 8_000);
        assert!(LIMITS.is_due(&history));
    }
}

#[test]
fn old_output_goes_before_a_summary_is_needed() {
    let mut history = History::new();
    // Output is nearly everything.
    work(&mut history, 0, 20, 18_000);
    let plan = LIMITS.plan(&history).unwrap().unwrap();
    assert!(!plan.needs_summary());
    assert_eq!(plan.tokens_before(), LIMITS.estimate(&history));
    let compacted = plan.apply(&history, None).unwrap();
    assert_eq!(compacted.items().len(), history.items().len());
    assert_eq!(LIMITS.estimate(&compacted), plan.tokens_after());
    let emptied = compacted.items().iter().filter(|item| match item {
        Item::ToolResult(result) => result.text.starts_with("[output removed"),
        _ => false,
    });
    assert!(emptied.count() > 70);
    // The next plan needs a summary: there is no old output left.
    let next = LIMITS.plan(&compacted).unwrap().unwrap();
    assert!(next.needs_summary());
    assert!(compacted != next.apply(&compacted, Some("so")).unwrap());
}

#[test]
fn summary_carries_files_of_both_compactions() {
    let small = CompactionSettings {
        window: 0,
        keep_recent: 300,
        ..LIMITS
    };
    let mut history = History::new();
    work(&mut history, 0, 3, 100);
    let plan = small.plan(&history).unwrap().unwrap();
    let first = plan.apply(&history, Some(" It works. \n")).unwrap();
    let files = |history: &History| {
        { history.items().iter() }
            .find_map(|item| match item {
                Item::Summary(summary) => Some(summary.files.clone()),
                _ => None,
            })
            .unwrap()
    };
    assert_eq!(
        files(&first),
        ["src/file_0.rs", "src/file_1.rs", "src/file_2.rs"]
    );
    let mut history = first;
    work(&mut history, 3, 2, 100);
    let plan = small.plan(&history).unwrap().unwrap();
    let second = plan.apply(&history, Some("All of it works.")).unwrap();
    assert_eq!(
        files(&second),
        [
            "src/file_0.rs",
            "src/file_1.rs",
            "src/file_2.rs",
            "src/file_3.rs",
            "src/file_4.rs"
        ]
    );
    let summaries = second
        .items()
        .iter()
        .filter(|item| matches!(item, Item::Summary(_)));
    assert_eq!(summaries.count(), 1);
    let body = Dialect::Chat.request(&second, &settings()).unwrap();
    let body = String::from_utf8(body).unwrap();
    assert!(
        body.contains("All of it works.\\n\\nFiles touched so far:\\nsrc/file_0.rs\\n"),
        "{body}"
    );
}

#[test]
fn prompt_for_a_summary_is_bounded() {
    let mut history = History::new();
    work(&mut history, 0, 2, 5_000);
    let small = CompactionSettings {
        keep_recent: 300,
        window: 2_000,
        ..LIMITS
    };
    let plan = small.plan(&history).unwrap().unwrap();
    let prompt = plan.summary_prompt(&history, 40_000);
    assert!(prompt.len() <= 40_000);
    assert!(
        prompt.contains("User: task 0\n")
            && prompt.contains("Tool call: read {\"path\":\"src/file_1.rs\"}")
    );
    assert!(prompt.contains("[3000 bytes omitted]"));
    for limit in [0, 100, 1_000, 2_000] {
        let short = plan.summary_prompt(&history, limit);
        assert!(short.len() <= limit.max(1_000), "{limit}: {}", short.len());
    }
    let mut other = History::new();
    other.push_user("go").unwrap();
    other
        .push_assistant(message([
            text("hello"),
            AssistantPart::ToolCall(call("a", "read", r#"{"path":"a.rs"}"#)),
        ]))
        .unwrap();
    other
        .push_result(result("a", ToolOutcome::Error, "no such file"))
        .unwrap();
    other.push_assistant(message([text("I see.")])).unwrap();
    other.push_user("on").unwrap();
    let plan = CompactionSettings {
        keep_recent: 1,
        window: 0,
        reserve: 0,
        overhead: 0,
    }
    .plan(&other)
    .unwrap()
    .unwrap();
    assert_snapshot!(plan.summary_prompt(&other, 10_000));
}

#[test]
fn estimate_is_the_servers_number_and_a_quarter_of_later_bytes() {
    let mut history = History::new();
    history.push_user("x".repeat(4_000)).unwrap();
    assert_eq!(LIMITS.estimate(&history), 4_000);
    let mut assistant = message([text(&"x".repeat(4_000))]);
    assistant.context_tokens = Some(777);
    history.push_assistant(assistant).unwrap();
    assert_eq!(LIMITS.estimate(&history), 777);
    history.push_user("x".repeat(400)).unwrap();
    assert_eq!(LIMITS.estimate(&history), 877);
    // After a compaction, the server's number is about a history that is gone.
    let all = CompactionSettings {
        keep_recent: 1,
        ..LIMITS
    };
    let plan = all.plan(&history).unwrap().unwrap();
    let compacted = plan.apply(&history, Some("s")).unwrap();
    assert_eq!(LIMITS.estimate(&compacted), 3_000 + 1_000 + 1 + 100);
}

#[test]
fn servers_number_of_a_kept_message_is_forgotten() {
    let mut history = History::new();
    for round in 1..4 {
        history.push_user("on").unwrap();
        let mut assistant = message([text(&"x".repeat(4_000))]);
        assistant.context_tokens = Some(90_000 * round);
        history.push_assistant(assistant).unwrap();
    }
    history.push_user("on").unwrap();
    assert!(LIMITS.is_due(&history));
    let limits = CompactionSettings {
        keep_recent: 1_500,
        ..LIMITS
    };
    let plan = limits.plan(&history).unwrap().unwrap();
    let compacted = plan.apply(&history, Some("s")).unwrap();
    let messages = compacted.items().iter();
    let messages = messages.filter(|item| matches!(item, Item::Assistant(_)));
    assert_eq!(messages.count(), 2);
    assert!(LIMITS.estimate(&compacted) <= plan.tokens_after());
    assert!(!LIMITS.is_due(&compacted));
}

#[test]
fn plans_are_refused_when_they_do_not_fit() {
    let mut history = History::new();
    work(&mut history, 0, 50, 8_000);
    let plan = LIMITS.plan(&history).unwrap().unwrap();
    assert_eq!(
        plan.apply(&History::new(), Some("s")).unwrap_err().kind(),
        ErrorKind::History
    );
    if plan.needs_summary() {
        assert!(plan.apply(&history, None).is_err());
        assert!(plan.apply(&history, Some(" ")).is_err());
    }
    let saved = serde_json::to_string(&plan).unwrap();
    assert_eq!(
        serde_json::from_str::<CompactionPlan>(&saved).unwrap(),
        plan
    );
    history
        .push_assistant(message([AssistantPart::ToolCall(call("z", "read", "{}"))]))
        .unwrap();
    assert!(LIMITS.plan(&history).is_err(), "a call has no result");
    let mut short = History::new();
    short.push_user("x".repeat(1_000_000)).unwrap();
    assert_eq!(LIMITS.plan(&short).unwrap(), None, "the user's texts stay");
}

#[test]
fn small_windows_have_small_reserves() {
    let small = CompactionSettings::for_window(8_192);
    assert_eq!(
        (small.reserve, small.keep_recent, small.limit()),
        (2_048, 2_048, 6_144)
    );
    let large = CompactionSettings::for_window(200_000);
    assert_eq!(
        (large.reserve, large.keep_recent, large.limit()),
        (16_000, 20_000, 184_000)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_compaction_keeps_the_rules(
        steps in prop::collection::vec(a_step(), 0..60), keep_recent in 0..60_u64, window in 0..300_u64,
    ) {
        let limits = CompactionSettings { window, reserve: 0, keep_recent, overhead: 0 };
        let mut history = History::new();
        for step in steps {
            apply(&mut history, step);
        }
        history.close_calls_after_interrupt();
        let mut rounds = 0;
        while let Some(plan) = limits.plan(&history).unwrap() {
            let compacted = plan.apply(&history, Some("so far")).unwrap();
            prop_assert_eq!(users(&compacted), users(&history));
            // Restoring checks the rules of the history.
            let restored = History::from_items(compacted.items().to_vec()).unwrap();
            prop_assert_eq!(&restored, &compacted);
            if compacted.check_ready().is_ok() {
                for dialect in DIALECTS {
                    dialect.request(&compacted, &settings()).unwrap();
                }
            }
            history = compacted;
            rounds += 1;
            prop_assert!(rounds < 5, "a compaction has nothing to do after the last one");
        }
    }
}
