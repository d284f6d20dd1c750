//! Hostile models and servers: every response is bounded, and nothing panics.

use std::fmt::Write as _;

use agent_api::{
    Arguments, CallProblem, Decoder, Delta, Dialect, ErrorKind, History, ResponseLimits,
};
use proptest::prelude::*;

use crate::wire::{DIALECTS, TOOLS, decode, decoder, recording, settings, split};

/// Returns the events of a stream that calls tools with these arguments, each in one piece of at most a kilobyte or so.
fn stream_with_calls(dialect: Dialect, calls: &[(&str, &str)]) -> String {
    let mut stream = String::new();
    let mut event = |data: String| writeln!(stream, "data: {data}\n").unwrap();
    let pieces = |text: &str| -> Vec<String> {
        let chars: Vec<char> = text.chars().collect();
        let pieces = chars.chunks(60_000).map(|it| it.iter().collect::<String>());
        pieces
            .map(|it| serde_json::to_string(&it).unwrap())
            .collect()
    };
    if dialect == Dialect::Messages {
        event(
            r#"{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}"#
                .into(),
        );
    }
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let name = serde_json::to_string(name).unwrap();
        match dialect {
            Dialect::Messages => {
                event(format!(
                    r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","id":"c{index}","name":{name},"input":{{}}}}}}"#
                ));
                for piece in pieces(arguments) {
                    event(format!(
                        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":{piece}}}}}"#
                    ));
                }
                event(format!(
                    r#"{{"type":"content_block_stop","index":{index}}}"#
                ));
            }
            Dialect::Responses => {
                event(format!(
                    r#"{{"type":"response.output_item.added","output_index":{index},"item":{{"type":"function_call","call_id":"c{index}","name":{name},"arguments":""}}}}"#
                ));
                for piece in pieces(arguments) {
                    event(format!(
                        r#"{{"type":"response.function_call_arguments.delta","output_index":{index},"delta":{piece}}}"#
                    ));
                }
                let whole = serde_json::to_string(arguments).unwrap();
                event(format!(
                    r#"{{"type":"response.output_item.done","output_index":{index},"item":{{"type":"function_call","call_id":"c{index}","name":{name},"arguments":{whole}}}}}"#
                ));
            }
            _ => {
                event(format!(
                    r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{index},"id":"c{index}","function":{{"name":{name},"arguments":""}}}}]}}}}]}}"#
                ));
                for piece in pieces(arguments) {
                    event(format!(
                        r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{index},"function":{{"arguments":{piece}}}}}]}}}}]}}"#
                    ));
                }
            }
        }
    }
    match dialect {
        Dialect::Messages => {
            event(r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}}"#.into());
            event(r#"{"type":"message_stop"}"#.into());
        }
        Dialect::Responses => event(r#"{"type":"response.completed","response":{"output":[],"usage":{"input_tokens":1,"output_tokens":5}}}"#.into()),
        _ => {
            event(r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#.into());
            event("[DONE]".into());
        }
    }
    stream
}

#[test]
fn ten_megabytes_of_arguments_are_an_error() {
    let huge = format!("{{\"command\":\"{}\"}}", "x".repeat(10 << 20));
    for dialect in DIALECTS {
        let stream = stream_with_calls(dialect, &[("bash", &huge)]);
        let error = decode(dialect, stream.as_bytes().chunks(65_536))
            .0
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{dialect:?}");
        assert!(error.to_string().len() < 200);
        // The same bytes in one event.
        let line = format!("data: {}\n\n", huge);
        let error = decode(dialect, [line.as_bytes()]).0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{dialect:?}");
    }
}

#[test]
fn arguments_have_a_smaller_limit_than_the_response() {
    let limits = ResponseLimits {
        argument_bytes: 1_000,
        ..ResponseLimits::default()
    };
    let small = format!("{{\"a\":\"{}\"}}", "x".repeat(900));
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(1_000));
    for dialect in DIALECTS {
        for (arguments, is_allowed) in [(&small, true), (&large, false)] {
            let stream = stream_with_calls(dialect, &[("bash", arguments), ("bash", arguments)]);
            let mut decoder = Decoder::new(dialect, TOOLS, limits);
            let outcome = decoder.push(stream.as_bytes(), &mut Vec::new());
            assert_eq!(outcome.is_ok(), is_allowed, "{dialect:?}");
            let message =
                "the arguments of a tool call: more than 1000 bytes; ask the model for less";
            assert!(outcome.is_ok() || outcome.unwrap_err().to_string() == message);
        }
    }
}

#[test]
fn text_without_end_is_an_error() {
    for dialect in DIALECTS {
        let stream = recording(dialect);
        let piece = stream
            .split_inclusive("\n\n")
            .find(|event| event.contains("I look"))
            .unwrap();
        let start = &stream[..stream.find(piece).unwrap()];
        let (mut decoder, mut deltas) = (decoder(dialect), Vec::new());
        decoder.push(start.as_bytes(), &mut deltas).unwrap();
        let piece = piece.replace("I look", &"I look".repeat(10_000));
        let ended = (0..1_000).any(|_| {
            deltas.clear();
            decoder.push(piece.as_bytes(), &mut deltas).is_err()
        });
        assert!(ended, "{dialect:?}");
        // The error stays, and what had arrived can be kept.
        assert_eq!(
            decoder.push(b"x", &mut deltas).unwrap_err().kind(),
            ErrorKind::TooLarge
        );
        let kept = decoder.interrupt().unwrap().text();
        assert!(kept.len() <= ResponseLimits::default().response_bytes);
    }
}

#[test]
fn a_thousand_parallel_calls_are_an_error() {
    for dialect in DIALECTS {
        let stream = stream_with_calls(dialect, &[("bash", "{}"); 1_000]);
        let error = decode(dialect, [stream.as_bytes()]).0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooManyCalls, "{dialect:?}");
        let stream = stream_with_calls(dialect, &[("bash", "{}"); 64]);
        let response = decode(dialect, [stream.as_bytes()]).0.unwrap();
        assert_eq!(response.message.calls().count(), 64, "{dialect:?}");
    }
}

#[test]
fn broken_arguments_and_unknown_tools_are_kept_as_invalid() {
    let deep = "[".repeat(500_000);
    let calls = [
        ("bash", r#"{"command":"ls"#),
        ("bash", "[1]"),
        ("bash", "rm -rf /"),
        ("bash", r#"{"a":"\ud800"}"#),
        ("bash", deep.as_str()),
        ("sudo \u{1b}[2J\u{202e}", r#"{"command":"ls"}"#),
        ("", ""),
        ("bash", ""),
    ];
    for dialect in DIALECTS {
        let stream = stream_with_calls(dialect, &calls);
        let response = decode(dialect, [stream.as_bytes()]).0.unwrap();
        let found: Vec<_> = response.message.calls().collect();
        assert_eq!(found.len(), calls.len());
        for (index, (call, (name, raw))) in found.iter().zip(&calls).enumerate() {
            assert_eq!(call.name, *name);
            match &call.arguments {
                Arguments::Invalid { raw: kept, problem } => {
                    assert_eq!(kept, raw);
                    let is_unknown = *problem == CallProblem::UnknownTool;
                    assert_eq!(is_unknown, index == 5 || index == 6, "{dialect:?} {index}");
                }
                arguments => {
                    assert_eq!(index, 7, "{dialect:?} {arguments:?}");
                    assert_eq!(call.raw_arguments(), "{}");
                }
            }
        }
        // The history with such calls is valid in all dialects.
        let mut history = History::new();
        history.push_user("go").unwrap();
        history.push_assistant(response.message).unwrap();
        history.close_calls_after_interrupt();
        for other in DIALECTS {
            let body = other.request(&history, &settings()).unwrap();
            assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
            assert!(!body.contains(&0x1b));
        }
    }
}

/// Plays any bytes, and checks the results that every stream has.
fn play(dialect: Dialect, bytes: &[u8], cuts: &[usize]) {
    let limits = ResponseLimits {
        event_bytes: 4_000,
        response_bytes: 2_000,
        argument_bytes: 1_000,
        calls: 3,
    };
    let mut outcomes = Vec::new();
    for chunks in [vec![bytes], split(bytes, cuts)] {
        let (mut decoder, mut deltas) = (Decoder::new(dialect, TOOLS, limits), Vec::new());
        for chunk in chunks {
            drop(decoder.push(chunk, &mut deltas));
            let _ = decoder.usage_so_far();
        }
        let interrupted = decoder.clone().interrupt();
        let response = decoder.finish();
        for message in interrupted
            .iter()
            .chain(response.iter().map(|it| &it.message))
        {
            assert!(message.calls().count() <= 3);
            assert!(message.text().len() <= 2_000);
            let mut history = History::new();
            history.push_user("go").unwrap();
            history.push_assistant(message.clone()).unwrap();
            history.close_calls_after_interrupt();
            history.push_user("on").unwrap();
            for other in DIALECTS {
                let body = other.request(&history, &settings()).unwrap();
                assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
            }
        }
        outcomes.push((interrupted, response, deltas));
    }
    let chunked = outcomes.pop();
    assert_eq!(chunked, outcomes.pop(), "the chunks matter");
    let deltas: Vec<Delta> = chunked.map(|it| it.2).unwrap_or_default();
    assert!(
        deltas
            .iter()
            .all(|delta| *delta != Delta::Text(String::new()))
    );
}

/// Returns a recording whose events are dropped, repeated, swapped, or changed at a byte.
fn mutated() -> impl Strategy<Value = (Dialect, Vec<u8>)> {
    let edits = prop::collection::vec(
        (
            0..4_u8,
            any::<prop::sample::Index>(),
            any::<prop::sample::Index>(),
            any::<u8>(),
        ),
        0..6,
    );
    (prop::sample::select(DIALECTS.to_vec()), edits).prop_map(|(dialect, edits)| {
        let mut events: Vec<Vec<u8>> = { recording(dialect).split_inclusive("\n\n") }
            .map(|event| event.as_bytes().to_vec())
            .collect();
        for (kind, one, other, byte) in edits {
            if events.is_empty() {
                break;
            }
            let (one, other) = (one.index(events.len()), other.index(events.len()));
            match kind {
                0 => drop(events.remove(one)),
                1 => events.insert(other, events[one].clone()),
                2 => events.swap(one, other),
                _ => {
                    let at = usize::from(byte) % events[one].len();
                    events[one][at] = byte.wrapping_mul(31);
                }
            }
        }
        (dialect, events.concat())
    })
}

/// Returns an event whose fields have the right names and any values.
fn an_event() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.completed",
        "response.incomplete",
        "response.function_call_arguments.delta",
        "response.reasoning_summary_part.added",
    ]);
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("0".to_owned()),
        Just("1".to_owned()),
        Just("18446744073709551615".to_owned()),
        Just("-1".to_owned()),
        Just("\"\"".to_owned()),
        Just("\"text\"".to_owned()),
        Just("\"message\"".to_owned()),
        Just("\"function_call\"".to_owned()),
        Just("\"reasoning\"".to_owned()),
        Just("\"tool_use\"".to_owned()),
        Just("\"text_delta\"".to_owned()),
        Just("\"input_json_delta\"".to_owned()),
        Just("\"signature_delta\"".to_owned()),
        Just("\"thinking\"".to_owned()),
        Just("\"stop\"".to_owned()),
        Just("{}".to_owned()),
        Just("[]".to_owned()),
    ];
    let key = prop::sample::select(vec![
        "index",
        "type",
        "delta",
        "content_block",
        "text",
        "id",
        "call_id",
        "name",
        "input",
        "arguments",
        "partial_json",
        "signature",
        "stop_reason",
        "usage",
        "output_tokens",
        "output_index",
        "summary_index",
        "item",
        "content",
        "summary",
        "encrypted_content",
        "output",
        "response",
        "choices",
        "finish_reason",
        "tool_calls",
        "function",
        "reasoning_content",
        "message",
        "code",
    ]);
    let value = leaf.prop_recursive(4, 24, 5, move |inner| {
        let fields = prop::collection::vec((key.clone(), inner.clone()), 0..5).prop_map(|fields| {
            let fields: Vec<_> = fields
                .iter()
                .map(|(key, value)| format!("\"{key}\":{value}"))
                .collect();
            format!("{{{}}}", fields.join(","))
        });
        prop_oneof![
            fields,
            prop::collection::vec(inner, 0..3).prop_map(|items| format!("[{}]", items.join(",")))
        ]
    });
    let pairs = prop::collection::vec(
        (
            prop::sample::select(vec![
                "index",
                "output_index",
                "delta",
                "content_block",
                "item",
                "usage",
                "response",
                "choices",
                "message",
                "error",
                "summary_index",
            ]),
            value,
        ),
        0..5,
    );
    (name, pairs).prop_map(|(name, pairs)| {
        let mut event = format!("data: {{\"type\":\"{name}\"");
        for (key, value) in pairs {
            event.push_str(&format!(",\"{key}\":{value}"));
        }
        event.push_str("}\n\n");
        event
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn mutated_streams_are_bounded((dialect, bytes) in mutated(), cuts in prop::collection::vec(any::<usize>(), 0..20)) {
        play(dialect, &bytes, &cuts);
    }

    #[test]
    fn random_events_are_bounded(
        dialect in prop::sample::select(DIALECTS.to_vec()), events in prop::collection::vec(an_event(), 0..20), cuts in prop::collection::vec(any::<usize>(), 0..20),
    ) {
        let start = "data: {\"type\":\"message_start\",\"message\":{}}\n\n";
        play(dialect, format!("{start}{}", events.concat()).as_bytes(), &cuts);
    }

    #[test]
    fn random_bytes_are_bounded(
        dialect in prop::sample::select(DIALECTS.to_vec()), bytes in prop::collection::vec(any::<u8>(), 0..500), cuts in prop::collection::vec(any::<usize>(), 0..20),
    ) {
        play(dialect, &bytes, &cuts);
    }
}
