//! Conversations and their generators, which several tests share.

use agent_api::{
    Arguments, AssistantMessage, AssistantPart, AssistantText, CallProblem, Completeness, History,
    JsonObject, Thinking, ThinkingProof, ToolCall, ToolOutcome, ToolResult,
};
use proptest::prelude::*;

pub(crate) fn object(text: &str) -> JsonObject {
    JsonObject::parse(text).unwrap()
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: Arguments::Object(object(arguments)),
    }
}

pub(crate) fn message(parts: impl IntoIterator<Item = AssistantPart>) -> AssistantMessage {
    AssistantMessage {
        parts: parts.into_iter().collect(),
        ..AssistantMessage::default()
    }
}

pub(crate) fn text(text: &str) -> AssistantPart {
    AssistantPart::Text(AssistantText {
        text: text.into(),
        phase: None,
    })
}

pub(crate) fn result(id: &str, outcome: ToolOutcome, text: &str) -> ToolResult {
    ToolResult {
        call_id: id.into(),
        outcome,
        text: text.into(),
    }
}

/// A step of a random conversation.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    User(String),
    Assistant(AssistantMessage),
    /// Starts the open calls, and appends their results in this order.
    Results(Vec<(ToolOutcome, String)>),
    Interrupt,
    Crash,
}

/// Applies a step if the history permits it.
pub(crate) fn apply(history: &mut History, step: Step) {
    match step {
        Step::User(text) => drop(history.push_user(text)),
        Step::Assistant(message) => drop(history.push_assistant(message)),
        Step::Results(results) => {
            for (outcome, text) in results {
                let open = history.open_calls().last().map(|(call, _)| call.id.clone());
                if let Some(id) = open {
                    history.push_started(id.clone()).unwrap();
                    history.push_result(result(&id, outcome, &text)).unwrap();
                }
            }
        }
        Step::Interrupt => history.close_calls_after_interrupt(),
        Step::Crash => history.close_calls_after_crash(),
    }
}

fn a_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,20}",
        any::<String>().prop_map(|it| it.chars().take(20).collect()),
        Just(r#"","cache_control":{"type":"ephemeral"}}]}"#.to_owned()),
        Just("\u{1b}[31m\u{0}\u{2028}\u{202e}".to_owned()),
    ]
}

fn some_arguments() -> impl Strategy<Value = Arguments> {
    prop_oneof![
        a_text().prop_map(|text| {
            let command = proptest_json(&text);
            Arguments::Object(object(&format!(r#"{{ "command" : {command} }}"#)))
        }),
        a_text().prop_map(|raw| Arguments::Invalid {
            raw,
            problem: CallProblem::UnknownTool,
        }),
    ]
}

fn proptest_json(text: &str) -> String {
    let mut json = String::from("\"");
    for unit in text.encode_utf16() {
        json.push_str(&format!("\\u{unit:04x}"));
    }
    json.push('"');
    json
}

fn a_part() -> impl Strategy<Value = AssistantPart> {
    let proof = prop_oneof![
        Just(ThinkingProof::None),
        "[a-z]{0,8}".prop_map(ThinkingProof::Signature),
        "[a-z]{0,8}".prop_map(ThinkingProof::Redacted),
        ("[a-z]{0,8}", prop::collection::vec(a_text(), 0..3)).prop_map(|(id, summary)| {
            ThinkingProof::Encrypted {
                id,
                summary,
                content: "encrypted".into(),
            }
        }),
    ];
    let phase = prop::option::of(Just("commentary".to_owned()));
    prop_oneof![
        (a_text(), phase)
            .prop_map(|(text, phase)| AssistantPart::Text(AssistantText { text, phase })),
        (a_text(), proof)
            .prop_map(|(text, proof)| AssistantPart::Thinking(Thinking { text, proof })),
        (
            "([a-z]{1,3})|(.{0,80})",
            "(bash)|(.{0,70})",
            some_arguments()
        )
            .prop_map(|(id, name, arguments)| AssistantPart::ToolCall(ToolCall {
                id,
                name,
                arguments
            })),
    ]
}

pub(crate) fn a_message() -> impl Strategy<Value = AssistantMessage> {
    let completeness = prop_oneof![Just(Completeness::Complete), Just(Completeness::Partial)];
    let parts = prop::collection::vec(a_part(), 0..5);
    let tokens = prop::option::of(0..1_000_000_u64);
    (parts, completeness, tokens).prop_map(|(parts, completeness, context_tokens)| {
        AssistantMessage {
            parts,
            completeness,
            context_tokens,
        }
    })
}

fn an_outcome() -> impl Strategy<Value = ToolOutcome> {
    prop::sample::select(vec![
        ToolOutcome::Ok,
        ToolOutcome::Error,
        ToolOutcome::Interrupted,
        ToolOutcome::Unknown,
    ])
}

pub(crate) fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => a_text().prop_map(Step::User),
        5 => a_message().prop_map(Step::Assistant),
        5 => prop::collection::vec((an_outcome(), a_text()), 0..6).prop_map(Step::Results),
        1 => Just(Step::Interrupt),
        1 => Just(Step::Crash),
    ]
}
