//! The lines of the protocol as text: older ones, newer ones, and rejected ones.

mod lines;

use super::*;
use loop_state::{PauseAfter, RedoScope, RuleChange, StopTiming};
use proptest::prelude::*;

fn any_request() -> impl Strategy<Value = Request> {
    let stop = |iteration| Request::Stop {
        when: match iteration {
            true => StopTiming::AfterIteration,
            false => StopTiming::Now,
        },
    };
    prop_oneof![
        Just(Request::Skip),
        Just(Request::Redo {
            what: RedoScope::Phase
        }),
        proptest::option::of(any::<u32>())
            .prop_map(|time| time.map(u64::from).map(Duration::from_millis))
            .prop_map(|time| Request::Set(RuleChange::IdleTimeout(time))),
        any::<u32>().prop_map(|max| Request::Set(RuleChange::MaxFailures(max))),
        Just(Request::Interrupt),
        Just(Request::FreshSession),
        Just(Request::Abort),
        "\\PC{1,40}".prop_map(|text| Request::Prompt { phase: 0, text }),
        ("\\PC{0,20}", any::<bool>()).prop_map(|(ask, allow)| Request::Answer {
            permission_request: ask,
            allow,
            message: String::new()
        }),
        Just(Request::Continue),
        any::<bool>().prop_map(stop),
        proptest::option::of("\\PC{0,40}").prop_map(|reason| Request::Pause {
            reason,
            after: PauseAfter::Iteration
        }),
        "[^\\s]\\PC{0,40}".prop_map(|text| Request::Review(ReviewDecision::Revise(text))),
        ("[^\\s]\\PC{0,40}", any::<bool>()).prop_map(|(text, now)| Request::Steer { text, now }),
    ]
}

proptest! {
    #[test]
    fn request_is_one_line_and_round_trips(asked in any_request()) {
        let text = line(&asked);
        prop_assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
        prop_assert_eq!(parse_message(&text), Ok(ControlMessage::from(asked)));
    }

    /// Each line is a request, or gets a short response that names the error.
    #[test]
    fn x117h_any_line_gets_a_response(text in "(\\PC|[\u{0}-\u{1f}]){0,60}", field in "\\PC{0,60}", number in any::<i64>()) {
        let object = |v: Value, name: &str| serde_json::json!({"v": v, "request": name, "text": field, "after": number, "when": number}).to_string();
        for text in [text.clone(), object(1.into(), &field), object(number.into(), "stop"), object(1.into(), "pause")] {
            if let Err(refusal) = parse_message(text.as_bytes()) {
                prop_assert!(refusal.is_last());
                let told = line(&refusal);
                prop_assert!(told.len() < 2000);
                prop_assert_eq!(parse_response(&told), Ok(refusal));
            }
        }
    }
}

#[test]
fn protocol_version_1_snapshot() {
    let text = |line: Vec<u8>| {
        let own = rlm_store::program_title();
        String::from_utf8(line).unwrap().replace(own, "rlm 0.1.0")
    };
    let steer = Request::Steer {
        text: "use tabs".into(),
        now: true,
    };
    let ended = EndReport {
        reason: "stopped by a person".into(),
        ended_processes: 5,
        survivors: Vec::new(),
        proven: true,
    };
    let recorded = |steer, budget_ms| Response::Recorded { steer, budget_ms };
    insta::assert_snapshot!(
        [
            text(line(&ControlQuery::Status)),
            text(line(&Request::Stop { when: StopTiming::AfterIteration })),
            text(line(&Request::Pause { reason: Some("lunch".into()), after: PauseAfter::Iteration })),
            text(line(&steer)),
            text(line(&Request::Set(RuleChange::MaxIterations(None)))),
            text(line(&Request::Set(RuleChange::Sleep(Duration::from_secs(2))))),
            text(line(&Request::Answer { permission_request: "a1".into(), allow: true, message: String::new() })),
            text(line(&Request::Review(ReviewDecision::StartOver))),
            text(line(&recorded(Some(3), None))),
            text(line(&recorded(None, Some(8000)))),
            text(line(&Response::NextPrompt)),
            text(line(&Response::RunEnded(ended))),
        ]
        .concat(),
        @r#"
    {"v":1,"program":"rlm 0.1.0","request":"status"}
    {"v":1,"program":"rlm 0.1.0","request":"stop","when":"iteration"}
    {"v":1,"program":"rlm 0.1.0","request":"pause","reason":"lunch","after":"iteration"}
    {"v":1,"program":"rlm 0.1.0","request":"steer","text":"use tabs","now":true}
    {"v":1,"program":"rlm 0.1.0","request":"set","key":"max-iterations","value":null}
    {"v":1,"program":"rlm 0.1.0","request":"set","key":"sleep","value":2000}
    {"v":1,"program":"rlm 0.1.0","request":"answer","permission_request":"a1","allow":true,"message":""}
    {"v":1,"program":"rlm 0.1.0","request":"review","decision":"start_over"}
    {"v":1,"program":"rlm 0.1.0","response":"recorded","steer":3}
    {"v":1,"program":"rlm 0.1.0","response":"recorded","budget_ms":8000}
    {"v":1,"program":"rlm 0.1.0","response":"next_prompt"}
    {"v":1,"program":"rlm 0.1.0","response":"run_ended","reason":"stopped by a person","ended_processes":5,"survivors":[],"proven":true}
    "#
    );
}

#[test]
fn unknown_request_is_unsupported() {
    let lines = [
        r#"{"v":1,"request":"set","key":"max-happiness","value":5}"#,
        r#"{"v":1,"request":"set","key":"sleep","value":18446744073709551615}"#,
        r#"{"v":1,"request":"forward"}"#,
        r#"{"v":2,"request":"status"}"#,
        r#"{"v":1,"request":"pause","after":"lunch"}"#,
        r#"{"v":1,"request":"steer","text":" "}"#,
        r#"{"v":1,"request":"review","decision":"revise"}"#,
        r#"{"v":1,"request":"review","decision":"exit","text":"now"}"#,
        r#"{"request":"status"}"#,
        r#"{"v":1}"#,
        "stop",
    ];
    let told = lines.map(|line| parse_message(line.as_bytes()).unwrap_err());
    insta::assert_debug_snapshot!(told);
    let newer = parse_response(br#"{"v":1,"response":"forwarded","to":"elsewhere"}"#);
    assert_eq!(newer, Ok(Response::Unknown));
    let refused = [
        &br#"{"v":2,"response":"busy"}"#[..],
        br#"{"response":"busy"}"#,
    ]
    .map(|line| parse_response(line).unwrap_err());
    insta::assert_snapshot!(refused.join("\n"), @"
    the run supports version 2 of control requests, this program version 1
    the run doesn't report its version of control requests; this program supports version 1
    ");
}
