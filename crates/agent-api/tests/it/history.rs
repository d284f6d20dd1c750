//! The rules of a conversation and its saved form.

use agent_api::{
    Arguments, AssistantPart, AssistantText, CallProblem, CallState, Completeness, ErrorKind,
    History, Item, Summary, Thinking, ThinkingProof, ToolCall, ToolOutcome, ToolResult,
};
use insta::{assert_debug_snapshot, assert_snapshot};
use proptest::prelude::*;

use crate::support::{a_step, apply, call, message, result, text};

/// Returns a history in which the model has requested these calls.
fn with_calls(ids: &[&str]) -> History {
    let mut history = History::new();
    history.push_user("go").unwrap();
    let calls = ids
        .iter()
        .map(|id| AssistantPart::ToolCall(call(id, "bash", "{}")));
    history.push_assistant(message(calls)).unwrap();
    history
}

fn open(history: &History) -> Vec<(String, CallState)> {
    let calls = history.open_calls();
    calls
        .map(|(call, state)| (call.id.clone(), state))
        .collect()
}

#[test]
fn nothing_comes_between_a_call_and_its_result() {
    let mut history = with_calls(&["a", "b"]);
    assert_eq!(
        history.push_user("wait").unwrap_err().kind(),
        ErrorKind::History
    );
    assert!(history.push_assistant(message([text("and")])).is_err());
    assert!(history.check_ready().is_err());
    let summary = Summary {
        text: "s".into(),
        files: Vec::new(),
    };
    assert!(history.append(Item::Summary(summary)).is_err());
    history
        .push_result(result("b", ToolOutcome::Ok, ""))
        .unwrap();
    assert!(history.push_user("wait").is_err());
    history
        .push_result(result("a", ToolOutcome::Error, ""))
        .unwrap();
    history.check_ready().unwrap();
    history.push_user("on").unwrap();
}

#[test]
fn each_call_has_exactly_one_result() {
    let mut history = with_calls(&["a"]);
    assert!(
        history
            .push_result(result("b", ToolOutcome::Ok, ""))
            .is_err()
    );
    history.push_started("a").unwrap();
    assert!(history.push_started("a").is_err(), "a tool starts once");
    history
        .push_result(result("a", ToolOutcome::Ok, ""))
        .unwrap();
    assert!(
        history
            .push_result(result("a", ToolOutcome::Ok, ""))
            .is_err()
    );
    assert!(history.push_started("a").is_err());
    assert_eq!(history.items().len(), 4);
}

#[test]
fn model_responds_only_to_the_user_or_results() {
    let mut history = History::new();
    assert!(history.check_ready().is_err());
    assert!(history.push_assistant(message([text("hi")])).is_err());
    assert!(history.push_user(" \n").is_err());
    history.push_user("go").unwrap();
    history.push_assistant(message([text("hi")])).unwrap();
    assert!(history.push_assistant(message([text("and")])).is_err());
    assert!(history.check_ready().is_err());
}

#[test]
fn interrupt_closes_open_calls() {
    let mut history = with_calls(&["a", "b", "c"]);
    history.push_started("a").unwrap();
    history
        .push_result(result("a", ToolOutcome::Ok, "done"))
        .unwrap();
    history.push_started("b").unwrap();
    let started = ("b".to_owned(), CallState::Started);
    assert_eq!(
        open(&history),
        [started, ("c".to_owned(), CallState::Requested)]
    );
    history.close_calls_after_interrupt();
    history.push_user("on").unwrap();
    assert_debug_snapshot!(&history.items()[5..]);
}

#[test]
fn crash_reports_a_started_call_as_unknown() {
    let mut saved = with_calls(&["a", "b"]);
    saved.push_started("a").unwrap();
    let mut restored = History::from_items(saved.items().to_vec()).unwrap();
    assert_eq!(restored, saved);
    restored.close_calls_after_crash();
    assert_debug_snapshot!(&restored.items()[3..]);
    restored.check_ready().unwrap();
    // The same crash again changes nothing.
    let before = restored.clone();
    restored.close_calls_after_crash();
    assert_eq!(restored, before);
}

#[test]
fn ids_that_a_server_would_refuse_are_replaced() {
    let mut history = with_calls(&["a", "a", "", "b c", "call_1_0"]);
    let ids: Vec<_> = open(&history).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["a", "call_1_0", "call_1_1", "call_1_2", "call_1_3"]);
    history.close_calls_after_interrupt();
    history
        .push_assistant(message([AssistantPart::ToolCall(call("a", "bash", "{}"))]))
        .unwrap();
    assert_eq!(open(&history)[0].0, "call_7_0");
}

#[test]
fn saved_form_is_stable() {
    let thinking = |proof| {
        AssistantPart::Thinking(Thinking {
            text: "hm".into(),
            proof,
        })
    };
    let mut assistant = message([
        thinking(ThinkingProof::None),
        thinking(ThinkingProof::Signature("sig".into())),
        thinking(ThinkingProof::Redacted("data".into())),
        thinking(ThinkingProof::Encrypted {
            id: "rs_1".into(),
            summary: vec!["hm".into()],
            content: "gAAA".into(),
        }),
        text("hello"),
        AssistantPart::Text(AssistantText {
            text: "so".into(),
            phase: Some("commentary".into()),
        }),
        AssistantPart::ToolCall(call("a", "bash", r#"{ "command": "ls" }"#)),
        AssistantPart::ToolCall(ToolCall {
            id: "b".into(),
            name: "none".into(),
            arguments: Arguments::Invalid {
                raw: "{".into(),
                problem: CallProblem::UnknownTool,
            },
        }),
        AssistantPart::ToolCall(ToolCall {
            id: "c".into(),
            name: "bash".into(),
            arguments: Arguments::Invalid {
                raw: "{".into(),
                problem: CallProblem::NotAnObject("EOF".into()),
            },
        }),
    ]);
    assistant.context_tokens = Some(1_234);
    let mut history = History::new();
    history.push_user("go").unwrap();
    history.push_assistant(assistant).unwrap();
    history.push_started("a").unwrap();
    history
        .push_result(result("a", ToolOutcome::Ok, "out"))
        .unwrap();
    history
        .push_result(result("b", ToolOutcome::Error, "no such tool"))
        .unwrap();
    history.push_result(ToolResult::unknown("c")).unwrap();
    history.push_user("on").unwrap();
    let mut partial = message([text("I wa")]);
    partial.completeness = Completeness::Partial;
    history.push_assistant(partial).unwrap();
    history
        .append(Item::Summary(Summary {
            text: "s".into(),
            files: vec!["a.rs".into()],
        }))
        .unwrap();
    let lines = history
        .items()
        .iter()
        .map(|item| serde_json::to_string(item).unwrap());
    assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn saved_items_of_the_first_version_are_readable() {
    // Fields with a default are missing, and an unknown field is skipped.
    let old = [
        r#"{"user":{"text":"go","later":1}}"#,
        r#"{"assistant":{"parts":[{"text":{"text":"hi"}},{"tool_call":{"id":"a","name":"bash","arguments":{"object":"{}"}}}]}}"#,
        r#"{"tool_started":{"call_id":"a"}}"#,
        r#"{"tool_result":{"call_id":"a","outcome":"interrupted","text":""}}"#,
    ];
    let items = old.map(|line| serde_json::from_str::<Item>(line).unwrap());
    assert_eq!(History::from_items(items).unwrap().items().len(), 4);
    let no_object = r#"{"tool_call":{"id":"a","name":"bash","arguments":{"object":"[]"}}}"#;
    assert!(serde_json::from_str::<AssistantPart>(no_object).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn random_steps_keep_the_rules(steps in prop::collection::vec(a_step(), 0..40)) {
        let mut history = History::new();
        for step in steps {
            let before = history.items().to_vec();
            apply(&mut history, step);
            prop_assert!(history.items().starts_with(&before), "append-only");
        }
        // The saved items restore the same history.
        let saved: Vec<String> = { history.items().iter() }
            .map(|item| serde_json::to_string(item).unwrap())
            .collect();
        let items = saved.iter().map(|line| serde_json::from_str::<Item>(line).unwrap());
        prop_assert_eq!(&History::from_items(items).unwrap(), &history);
        // The rules, stated independently of the code that enforces them.
        let (mut open, mut ids) = (Vec::new(), std::collections::BTreeSet::new());
        for item in history.items() {
            match item {
                Item::User(user) => {
                    prop_assert!(open.is_empty());
                    prop_assert!(!user.text.trim().is_empty());
                }
                Item::Assistant(message) => {
                    prop_assert!(open.is_empty());
                    for call in message.calls() {
                        prop_assert!(ids.insert(call.id.clone()), "an id is unique");
                        open.push(call.id.clone());
                    }
                }
                Item::ToolStarted(started) => prop_assert!(open.contains(&started.call_id)),
                Item::ToolResult(result) => {
                    let at = open.iter().position(|id| *id == result.call_id);
                    prop_assert!(at.is_some());
                    open.remove(at.unwrap());
                }
                _ => prop_assert!(open.is_empty()),
            }
        }
        prop_assert_eq!(history.open_calls().count(), open.len());
    }
}
