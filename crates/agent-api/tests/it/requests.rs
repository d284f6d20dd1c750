//! The bodies of requests, as golden snapshots.

use agent_api::{
    Arguments, AssistantPart, AssistantText, CallProblem, ChatLimit, ChatThinking, Completeness,
    Dialect, ErrorKind, History, Item, RequestSettings, Summary, Thinking, ThinkingMode,
    ThinkingProof, ToolCall, ToolOutcome, ToolResult,
};
use insta::assert_snapshot;
use serde_json::Value;

use crate::support::{call, message, result, text};
use crate::wire::{DIALECTS, settings};

/// Returns a history with every kind of item and part.
fn history() -> History {
    let thinking = |text: &str, proof| {
        AssistantPart::Thinking(Thinking {
            text: text.into(),
            proof,
        })
    };
    let mut history = History::new();
    history
        .append(Item::Summary(Summary {
            text: "The parser works.".into(),
            files: vec!["src/parser.rs".into(), "README.md".into()],
        }))
        .unwrap();
    history.push_user("Fix the \"tests\"\nplease ✓").unwrap();
    let invalid = AssistantPart::ToolCall(ToolCall {
        id: "call_3".into(),
        name: "rm -rf \u{1b}".into(),
        arguments: Arguments::Invalid {
            raw: r#"{"a":"#.into(),
            problem: CallProblem::UnknownTool,
        },
    });
    let assistant = message([
        thinking("Signed.", ThinkingProof::Signature("EqQB".into())),
        thinking("", ThinkingProof::Redacted("EmwK".into())),
        thinking(
            "**Plan**",
            ThinkingProof::Encrypted {
                id: "rs_1".into(),
                summary: vec!["**Plan**".into()],
                content: "gAAA".into(),
            },
        ),
        thinking("Plain.", ThinkingProof::None),
        AssistantPart::Text(AssistantText {
            text: "I look.".into(),
            phase: Some("commentary".into()),
        }),
        AssistantPart::ToolCall(call("call_1", "bash", r#"{"b": 1.0, "a": "\u00e9"}"#)),
        AssistantPart::ToolCall(call("call_2", "read", r#"{"path":"x"}"#)),
        invalid,
    ]);
    history.push_assistant(assistant).unwrap();
    history.push_started("call_1").unwrap();
    history
        .push_result(result("call_1", ToolOutcome::Ok, "out"))
        .unwrap();
    history.push_started("call_2").unwrap();
    history.push_result(ToolResult::unknown("call_2")).unwrap();
    history
        .push_result(result(
            "call_3",
            ToolOutcome::Error,
            "there is no tool with this name",
        ))
        .unwrap();
    let mut partial = message([
        thinking("Signed.", ThinkingProof::Signature("EqQB".into())),
        text("I wa"),
    ]);
    partial.completeness = Completeness::Partial;
    history.push_assistant(partial).unwrap();
    history.push_user("Stop that.").unwrap();
    // A message that only has thinking, or nothing visible, is not sent.
    history
        .push_assistant(message([
            text(" \n"),
            thinking("Hm.", ThinkingProof::Signature("EqQB".into())),
        ]))
        .unwrap();
    history.push_user("Well?").unwrap();
    history
}

/// Returns the body as indented JSON in the order of its bytes: one line for each element.
fn lines(dialect: Dialect, settings: &RequestSettings) -> String {
    let body = dialect.request(&history(), settings).unwrap();
    let body = String::from_utf8(body).unwrap();
    assert!(serde_json::from_str::<Value>(&body).is_ok());
    body.replace("},{", "},\n  {")
        .replace(":[{", ":[\n  {")
        .replace("}],", "}],\n")
}

#[test]
fn messages_request() {
    let settings = RequestSettings {
        thinking: ThinkingMode::Effort("high".into()),
        ..settings()
    };
    assert_snapshot!(lines(Dialect::Messages, &settings));
}

#[test]
fn responses_request() {
    let settings = RequestSettings {
        thinking: ThinkingMode::Effort("high".into()),
        ..settings()
    };
    assert_snapshot!(lines(Dialect::Responses, &settings));
}

#[test]
fn chat_request() {
    let settings = RequestSettings {
        thinking: ThinkingMode::Effort("high".into()),
        ..settings()
    };
    assert_snapshot!(lines(Dialect::Chat, &settings));
}

#[test]
fn minimal_requests() {
    let mut history = History::new();
    history.push_user("hi").unwrap();
    let settings = RequestSettings {
        max_output_tokens: Some(100),
        ..RequestSettings::new("m")
    };
    let all = DIALECTS
        .map(|dialect| String::from_utf8(dialect.request(&history, &settings).unwrap()).unwrap());
    assert_snapshot!(all.join("\n"));
}

#[test]
fn settings_change_a_request() {
    let mut history = History::new();
    history.push_user("hi").unwrap();
    let head = |dialect: Dialect, settings: RequestSettings| {
        let body = String::from_utf8(dialect.request(&history, &settings).unwrap()).unwrap();
        body.split(r#""messages""#)
            .next()
            .unwrap()
            .split(r#""input""#)
            .next()
            .unwrap()
            .to_owned()
    };
    let base = || RequestSettings {
        max_output_tokens: Some(100),
        ..RequestSettings::new("m")
    };
    let all = [
        head(
            Dialect::Messages,
            RequestSettings {
                thinking: ThinkingMode::Budget(2_048),
                ..base()
            },
        ),
        head(
            Dialect::Responses,
            RequestSettings {
                thinking: ThinkingMode::None,
                max_output_tokens: None,
                ..base()
            },
        ),
        head(
            Dialect::Chat,
            RequestSettings {
                chat_limit: ChatLimit::MaxTokens,
                ..base()
            },
        ),
        head(
            Dialect::Chat,
            RequestSettings {
                max_output_tokens: None,
                ..base()
            },
        ),
    ];
    assert_snapshot!(all.join("\n"));
    let body = lines(
        Dialect::Chat,
        &RequestSettings {
            chat_thinking: ChatThinking::SendBack,
            ..settings()
        },
    );
    assert!(
        body.contains(r#""reasoning_content":"Signed.\n\n**Plan**\n\nPlain.""#),
        "{body}"
    );
}

#[test]
fn settings_that_a_dialect_lacks_are_refused() {
    let mut history = History::new();
    history.push_user("hi").unwrap();
    let kind = |dialect: Dialect, settings: &RequestSettings| {
        dialect.request(&history, settings).unwrap_err().kind()
    };
    assert_eq!(
        kind(Dialect::Messages, &RequestSettings::new("m")),
        ErrorKind::Settings
    );
    let budget = RequestSettings {
        thinking: ThinkingMode::Budget(2_048),
        ..settings()
    };
    assert_eq!(kind(Dialect::Responses, &budget), ErrorKind::Settings);
    assert_eq!(kind(Dialect::Chat, &budget), ErrorKind::Settings);
    let empty = History::new();
    for dialect in DIALECTS {
        assert_eq!(
            dialect.request(&empty, &settings()).unwrap_err().kind(),
            ErrorKind::History
        );
    }
}
