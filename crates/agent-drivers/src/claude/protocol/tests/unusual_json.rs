//! Tests of valid but unusual JSON.

use super::delivery::{status, with_messages};
use super::*;

/// The replacement for half a surrogate pair.
const REPLACEMENT: &str = "\u{fffd}";

/// Begins a turn.
fn begun() -> Session {
    let (mut session, [_]) = with_messages();
    hear(&mut session, &status());
    session
}

fn said(line: &str) -> Vec<Event> {
    begun().handle_line(line.as_bytes()).events
}

fn message(text: &str) -> Vec<Event> {
    let (text, partial) = (text.to_owned(), false);
    vec![Event::Message { text, partial }]
}

#[test]
fn lone_surrogate_is_replaced_and_the_text_stays() {
    // Programs that cut texts by UTF-16 leave halves of surrogate pairs.
    let line =
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"done \ud83d"}]}}"#;
    assert_eq!(said(line), message(&format!("done {REPLACEMENT}")));
    let line = r#"{"type":"assistant","message":{"content":"\udc00 \ud83d\ude00 done"}}"#;
    assert_eq!(
        said(line),
        message(&format!("{REPLACEMENT} \u{1f600} done"))
    );
    let line = r#"{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"a\ud83d"}}}"#;
    assert_eq!(said(line), [Event::TextDelta(format!("a{REPLACEMENT}"))]);

    let mut session = begun();
    for (line, expected) in [
        (
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Bash","input":{"command":"echo \ud83d"}}]}}"#,
            Event::ToolStarted {
                id: "t".to_owned(),
                name: "Bash".to_owned(),
                summary: format!("echo {REPLACEMENT}"),
            },
        ),
        (
            r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"cut off here \ud83d"}]}}"#,
            Event::ToolFinished {
                id: "t".to_owned(),
                outcome: ToolOutcome::Succeeded,
                text: format!("cut off here {REPLACEMENT}"),
            },
        ),
    ] {
        assert_eq!(session.handle_line(line.as_bytes()).events, [expected]);
    }
}

#[test]
fn last_duplicate_field_wins_in_any_spelling() {
    let line = r#"{"type":"user","typ\u0065":"assistant","message":{"content":"a"},"messag\u0065":{"content":"b"}}"#;
    assert_eq!(said(line), message("b"));
    let line = r#"{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}},"parent_tool_use_id":null,"parent_tool_use_id":"apart"}"#;
    assert_eq!(said(line), []);
    // The shown input is the input that the agent runs.
    let line = r#"{"type":"control_request","request_id":"a","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls","comm\u0061nd":"rm -r x"}}}"#;
    let mut session = begun();
    let events = session.handle_line(line.as_bytes()).events;
    let [Event::PermissionRequested(ask)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(ask.summary, "rm -r x");
    let answer = session.answer("a", &Decision::Allow).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let input = &answer["response"]["response"]["updatedInput"];
    assert_eq!(input["command"], "rm -r x");
}

#[test]
fn line_is_exactly_one_object() {
    let line = r#"{"type":"assistant","message":{"content":"a"}}"#;
    assert_eq!(said(&format!(" {line}\t\r")), message("a"));
    for more in ["x", "}", ",", line] {
        assert_eq!(said(&format!("{line} {more}")), []);
    }
    let line = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"a"}]x}}"#;
    assert_eq!(said(line), [], "a list with more after it is invalid");
}

#[test]
fn deep_nesting_and_large_numbers_are_harmless() {
    let deep = format!("{}1{}", "[".repeat(300_000), "]".repeat(300_000));
    let line = format!(
        r#"{{"type":"assistant","deep":{deep},"message":{{"deep":{deep},"content":"a"}}}}"#
    );
    assert_eq!(said(&line), message("a"));
    let deep = format!("{}1{}", r#"{"a":"#.repeat(300_000), "}".repeat(300_000));
    let line = format!(r#"{{"type":"assistant","deep":{deep},"message":{{"content":"a"}}}}"#);
    assert_eq!(said(&line), message("a"));
    for number in ["1e999", "-1", "18446744073709551616", "0.5", "\"7\""] {
        let line = format!(
            r#"{{"type":"system","subtype":"api_retry","attempt":{number},"max_retries":{number},"retry_delay_ms":{number},"error_status":{number}}}"#
        );
        assert!(
            matches!(said(&line)[..], [Event::Retrying { .. }]),
            "{line}"
        );
        let line = format!(
            r#"{{"type":"rate_limit_event","rate_limit_info":{{"status":"rejected","resetsAt":{number}}}}}"#
        );
        assert!(matches!(said(&line)[..], [Event::RateLimited { .. }]));
        let line = format!(
            r#"{{"type":"result","subtype":"success","total_cost_usd":{number},"usage":{{"input_tokens":{number},"output_tokens":{number}}}}}"#
        );
        assert!(matches!(said(&line).last(), Some(Event::TurnCompleted(_))));
    }
}
