//! Streams of the three dialects: whole responses, cuts, chunkings, interrupts and errors that a server reports.

use agent_api::{
    AssistantPart, Completeness, Delta, Dialect, ErrorKind, Retry, StopReason, ThinkingProof, Usage,
};
use insta::{assert_debug_snapshot, assert_snapshot};
use proptest::prelude::*;

use crate::wire::{DIALECTS, decode, decoder, recording, split};

fn joined(deltas: &[Delta]) -> (String, String) {
    let (mut text, mut thinking) = (String::new(), String::new());
    for delta in deltas {
        match delta {
            Delta::Text(piece) => text.push_str(piece),
            Delta::Thinking(piece) => thinking.push_str(piece),
            _ => unreachable!(),
        }
    }
    (text, thinking)
}

#[test]
fn messages_stream_becomes_a_response() {
    let (response, deltas) = decode(Dialect::Messages, [recording(Dialect::Messages).as_bytes()]);
    assert_debug_snapshot!((response.unwrap(), deltas));
}

#[test]
fn responses_stream_becomes_a_response() {
    let stream = recording(Dialect::Responses).as_bytes();
    let (response, deltas) = decode(Dialect::Responses, [stream]);
    assert_debug_snapshot!((response.unwrap(), deltas));
}

#[test]
fn chat_stream_becomes_a_response() {
    let (response, deltas) = decode(Dialect::Chat, [recording(Dialect::Chat).as_bytes()]);
    assert_debug_snapshot!((response.unwrap(), deltas));
}

#[test]
fn stream_cut_at_every_byte_is_an_error_or_the_same_response() {
    for dialect in DIALECTS {
        let stream = recording(dialect).as_bytes();
        let (whole, all) = decode(dialect, [stream]);
        let whole = whole.unwrap();
        let mut responses = 0;
        for end in 0..stream.len() {
            let (cut, deltas) = decode(dialect, [&stream[..end]]);
            assert!(all.starts_with(&deltas), "{dialect:?} {end}");
            match cut {
                Ok(response) => {
                    responses += 1;
                    assert_eq!(response, whole, "{dialect:?} {end}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Truncated, "{dialect:?} {end}");
                    assert_eq!(error.retry(), Retry::Later(None));
                }
            }
        }
        // Only the last line end may be missing.
        assert_eq!(responses, 0, "{dialect:?}");
    }
}

#[test]
fn stream_without_an_event_in_its_middle_is_never_a_longer_response() {
    for dialect in DIALECTS {
        let stream = recording(dialect);
        let whole = decode(dialect, [stream.as_bytes()]).0.unwrap();
        // The events that end the response: its stop reason, and the final event.
        let count = match dialect {
            Dialect::Messages => 2,
            Dialect::Responses => 1,
            _ => 3,
        };
        let events: Vec<&str> = stream.split_inclusive("\n\n").collect();
        let last_events = events[events.len() - count..].concat();
        // The first half and then the last events: the server lost its middle.
        for end in 0..stream.len() {
            if !stream.is_char_boundary(end) {
                continue;
            }
            let broken = format!("{}\n\n{last_events}", &stream[..end]);
            if let (Ok(response), _) = decode(dialect, [broken.as_bytes()]) {
                let parts = &response.message.parts;
                assert!(
                    parts.len() <= whole.message.parts.len(),
                    "{dialect:?} {end}"
                );
                // No half of a part passes for a whole one in the dialects that mark the ends of parts.
                if dialect != Dialect::Chat {
                    assert_eq!(
                        parts[..],
                        whole.message.parts[..parts.len()],
                        "{dialect:?} {end}"
                    );
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn response_is_independent_of_chunking(
        dialect in prop::sample::select(DIALECTS.to_vec()), cuts in prop::collection::vec(0..3_000_usize, 0..200),
    ) {
        let stream = recording(dialect).as_bytes();
        prop_assert_eq!(decode(dialect, [stream]), decode(dialect, split(stream, &cuts)));
    }
}

#[test]
fn deltas_are_the_text_of_the_response() {
    for dialect in DIALECTS {
        let (response, deltas) = decode(dialect, [recording(dialect).as_bytes()]);
        let response = response.unwrap();
        let thinking = response.message.parts.iter().filter_map(|part| match part {
            AssistantPart::Thinking(thinking) => Some(thinking.text.as_str()),
            _ => None,
        });
        let whole = (response.message.text(), thinking.collect::<String>());
        assert_eq!(joined(&deltas), whole, "{dialect:?}");
        assert_eq!(response.message.context_tokens, Some(2_449));
    }
}

#[test]
fn interrupt_keeps_text_and_whole_calls_only() {
    let mut all = Vec::new();
    for dialect in DIALECTS {
        let stream = recording(dialect).as_bytes();
        let mut kept = Vec::new();
        for end in 0..=stream.len() {
            let (mut decoder, mut deltas) = (decoder(dialect), Vec::new());
            decoder.push(&stream[..end], &mut deltas).unwrap();
            let Some(message) = decoder.interrupt() else {
                assert_eq!(joined(&deltas).0, "", "{dialect:?} {end}: text is lost");
                continue;
            };
            assert_eq!(message.completeness, Completeness::Partial);
            assert_eq!(message.text(), joined(&deltas).0, "{dialect:?} {end}");
            for part in &message.parts {
                match part {
                    AssistantPart::ToolCall(call) => {
                        let arguments = call.raw_arguments();
                        assert!(arguments.ends_with('}'), "{dialect:?} {end}: half a call");
                    }
                    AssistantPart::Thinking(thinking) => {
                        assert_ne!(thinking.proof, ThinkingProof::None);
                    }
                    _ => {}
                }
            }
            let kinds = message.parts.iter().map(|part| match part {
                AssistantPart::Text(_) => "text",
                AssistantPart::Thinking(_) => "thinking",
                AssistantPart::ToolCall(_) => "call",
                _ => "other",
            });
            let kinds = kinds.collect::<Vec<_>>().join(" ");
            if kept.last() != Some(&kinds) {
                kept.push(kinds);
            }
        }
        all.push((dialect, kept));
    }
    assert_debug_snapshot!(all);
}

/// Returns the error of a stream that begins as recorded, and then reports an error.
fn reported(dialect: Dialect, event: &str) -> String {
    let stream = recording(dialect);
    let start = match dialect {
        Dialect::Chat => "",
        _ => &stream[..=stream.find("\n\n").unwrap() + 1],
    };
    let stream = format!("{start}{event}\n\n");
    let error = decode(dialect, [stream.as_bytes()]).0.unwrap_err();
    format!("{:?}: {error}", error.kind())
}

#[test]
fn errors_inside_of_streams_have_their_kind() {
    let cases = [
        (
            Dialect::Messages,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        ),
        (
            Dialect::Messages,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}"#,
        ),
        (
            Dialect::Messages,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
        ),
        (Dialect::Messages, r#"{"type":"error"}"#),
        (
            Dialect::Responses,
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"The model failed"}}}"#,
        ),
        (
            Dialect::Responses,
            r#"{"type":"error","code":"rate_limit_exceeded","message":"slow down","param":null,"sequence_number":1}"#,
        ),
        (
            Dialect::Responses,
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}}}"#,
        ),
        (
            Dialect::Chat,
            r#"{"error":{"message":"the server had an error","type":"server_error","code":null}}"#,
        ),
        (Dialect::Chat, r#"{"error":"out of memory"}"#),
        (
            Dialect::Chat,
            r#"{"error":{"code":400,"message":"request (9412 tokens) exceeds the available context size (8192 tokens)","type":"exceed_context_size_error"}}"#,
        ),
    ];
    let all = cases.map(|(dialect, data)| reported(dialect, &format!("data: {data}")));
    assert_snapshot!(all.join("\n"));
}

#[test]
fn stop_reasons_are_translated() {
    let messages = |reason: &str| {
        let stream = recording(Dialect::Messages).replace(
            "\"tool_use\",\"stop_seq",
            &format!("\"{reason}\",\"stop_seq"),
        );
        decode(Dialect::Messages, [stream.as_bytes()])
            .0
            .unwrap()
            .stop
    };
    assert_eq!(messages("end_turn"), StopReason::EndOfTurn);
    assert_eq!(messages("max_tokens"), StopReason::MaxTokens);
    assert_eq!(messages("refusal"), StopReason::Refused);
    assert_eq!(
        messages("model_context_window_exceeded"),
        StopReason::ContextFull
    );
    assert_eq!(
        messages("new\\u001breason"),
        StopReason::Other("new\u{fffd}reason".into())
    );
    let chat = |reason: &str| {
        let stream = recording(Dialect::Chat).replace(
            "\"finish_reason\":\"tool_calls\"",
            &format!("\"finish_reason\":\"{reason}\""),
        );
        decode(Dialect::Chat, [stream.as_bytes()]).0.unwrap().stop
    };
    assert_eq!(chat("length"), StopReason::MaxTokens);
    assert_eq!(chat("content_filter"), StopReason::Refused);
    // Some servers report a normal end in spite of calls.
    assert_eq!(chat("stop"), StopReason::ToolCalls);
    let responses = |reason: &str| {
        let end = format!(
            r#"{{"type":"response.incomplete","response":{{"status":"incomplete","incomplete_details":{{"reason":"{reason}"}},"output":[]}}}}"#
        );
        let stream = recording(Dialect::Responses);
        let stream = &stream[..stream.find("event: response.completed").unwrap()];
        let stream = format!("{stream}data: {end}\n\n");
        decode(Dialect::Responses, [stream.as_bytes()])
            .0
            .unwrap()
            .stop
    };
    assert_eq!(responses("max_output_tokens"), StopReason::MaxTokens);
    assert_eq!(responses("content_filter"), StopReason::Refused);
}

#[test]
fn responses_server_without_pieces_gives_the_same_response() {
    let stream = recording(Dialect::Responses);
    let (whole, all) = decode(Dialect::Responses, [stream.as_bytes()]);
    let is_piece = |event: &str| event.contains(".delta") || event.contains("part.added");
    let only_items: String = { stream.split_inclusive("\n\n") }
        .filter(|event| !is_piece(event))
        .collect();
    let (response, deltas) = decode(Dialect::Responses, [only_items.as_bytes()]);
    assert_eq!((&response, joined(&deltas)), (&whole, joined(&all)));
    let only_end: String = { stream.split_inclusive("\n\n") }
        .filter(|event| event.contains("response.completed"))
        .collect();
    let (response, deltas) = decode(Dialect::Responses, [only_end.as_bytes()]);
    assert_eq!((response, joined(&deltas)), (whole, joined(&all)));
}

#[test]
fn chat_servers_may_differ() {
    let decode = |chunks: &[&str]| {
        let stream: String = chunks.iter().map(|it| format!("data: {it}\n\n")).collect();
        decode(Dialect::Chat, [stream.as_bytes()]).0
    };
    // Calls without index, and arguments as an object.
    let response = decode(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"bash","arguments":{"command":"ls"}}},{"id":"b","function":{"name":"read","arguments":"{}"}}]}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"choices":null,"usage":{"prompt_tokens":5,"completion_tokens":2}}"#,
        "[DONE]",
    ])
    .unwrap();
    let calls: Vec<_> = response
        .message
        .calls()
        .map(|call| (call.id.as_str(), call.raw_arguments()))
        .collect();
    assert_eq!(calls, [("a", r#"{"command":"ls"}"#), ("b", "{}")]);
    assert_eq!(response.usage.map(|it| it.total()), Some(7));
    // No usage at all.
    let response = decode(&[
        r#"{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ])
    .unwrap();
    assert_eq!(
        (response.usage, response.message.context_tokens),
        (None, None)
    );
    // The end without a reason, and text after the end, are no responses.
    assert!(decode(&[r#"{"choices":[{"delta":{"content":"hi"}}]}"#, "[DONE]"]).is_err());
    assert!(
        decode(&[
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{"content":"hi"}}]}"#,
            "[DONE]"
        ])
        .is_err()
    );
}

#[test]
fn usage_grows_during_the_stream() {
    let stream = recording(Dialect::Messages);
    let (mut decoder, mut deltas) = (decoder(Dialect::Messages), Vec::new());
    assert_eq!(decoder.usage_so_far(), Usage::default());
    let at = stream
        .find("event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":2}")
        .unwrap();
    decoder.push(&stream.as_bytes()[..at], &mut deltas).unwrap();
    let usage = decoder.usage_so_far();
    assert_eq!(
        (
            usage.input_tokens,
            usage.cached_input_tokens,
            usage.cache_write_tokens
        ),
        (2_360, 2_048, 300)
    );
    assert!((10..40).contains(&usage.output_tokens), "{usage:?}");
    decoder.push(&stream.as_bytes()[at..], &mut deltas).unwrap();
    assert!(decoder.is_complete());
    assert_eq!(decoder.usage_so_far().output_tokens, 89);
}

#[test]
fn bytes_after_the_final_event_are_ignored() {
    for dialect in DIALECTS {
        let stream = recording(dialect);
        let longer = format!("{stream}data: not JSON\n\n");
        assert_eq!(
            decode(dialect, [stream.as_bytes()]),
            decode(dialect, [longer.as_bytes()])
        );
    }
}
