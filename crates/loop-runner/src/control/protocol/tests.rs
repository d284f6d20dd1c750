//! The lines of the protocol as text: older ones, newer ones, and rejected ones.

mod lines;

use super::*;
use loop_state::{Again, PauseAfter, RuleChange, When};
use proptest::prelude::*;

fn any_request() -> impl Strategy<Value = Request> {
    let stop = |iteration| Request::Stop {
        after: match iteration {
            true => When::AfterIteration,
            false => When::Now,
        },
    };
    prop_oneof![
        Just(Request::Skip),
        Just(Request::Again { what: Again::Phase }),
        proptest::option::of(any::<u32>())
            .prop_map(|time| time.map(u64::from).map(Duration::from_millis))
            .prop_map(|time| Request::Set(RuleChange::IdleTimeout(time))),
        any::<u32>().prop_map(|max| Request::Set(RuleChange::MaxFailures(max))),
        Just(Request::Interrupt),
        Just(Request::Fresh),
        Just(Request::Abort),
        "\\PC{1,40}".prop_map(|text| Request::Prompt { phase: 0, text }),
        ("\\PC{0,20}", any::<bool>()).prop_map(|(ask, allow)| Request::Answer {
            ask,
            allow,
            message: String::new()
        }),
        Just(Request::Continue),
        any::<bool>().prop_map(stop),
        proptest::option::of("\\PC{0,40}").prop_map(|reason| Request::Pause {
            reason,
            after: PauseAfter::Iteration
        }),
        "[^\\s]\\PC{0,40}".prop_map(|text| Request::Review(Verdict::Revise(text))),
        ("[^\\s]\\PC{0,40}", any::<bool>()).prop_map(|(text, now)| Request::Steer { text, now }),
    ]
}

proptest! {
    #[test]
    fn a_request_is_one_line_and_is_read_again(asked in any_request()) {
        let text = line(&asked);
        prop_assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
        prop_assert_eq!(message(&text), Ok(Message::from(asked)));
    }

    /// Each line is a request, or gets a short response that names the error.
    #[test]
    fn x117h_whatever_comes_is_answered(text in "(\\PC|[\u{0}-\u{1f}]){0,60}", field in "\\PC{0,60}", number in any::<i64>()) {
        let object = |v: Value, name: &str| serde_json::json!({"v": v, "request": name, "text": field, "after": number}).to_string();
        for text in [text.clone(), object(1.into(), &field), object(number.into(), "stop"), object(1.into(), "pause")] {
            if let Err(refusal) = message(text.as_bytes()) {
                prop_assert!(refusal.is_last());
                let told = line(&refusal);
                prop_assert!(told.len() < 2000);
                prop_assert_eq!(answer(&told), Ok(refusal));
            }
        }
    }
}

#[test]
fn the_lines_of_version_1() {
    let text = |line: Vec<u8>| String::from_utf8(line).unwrap();
    let steer = Request::Steer {
        text: "use tabs".into(),
        now: true,
    };
    let ended = Ended {
        reason: "stopped by a person".into(),
        ended: 5,
        survivors: Vec::new(),
        proven: true,
    };
    let recorded = |steer, budget_ms| Answer::Recorded { steer, budget_ms };
    insta::assert_snapshot!(
        [
            text(line(&Query::Status)),
            text(line(&Request::Stop { after: When::AfterIteration })),
            text(line(&Request::Pause { reason: Some("lunch".into()), after: PauseAfter::Iteration })),
            text(line(&steer)),
            text(line(&Request::Set(RuleChange::MaxIterations(None)))),
            text(line(&Request::Set(RuleChange::Sleep(Duration::from_secs(2))))),
            text(line(&Request::Answer { ask: "a1".into(), allow: true, message: String::new() })),
            text(line(&Request::Review(Verdict::StartOver))),
            text(line(&recorded(Some(3), None))),
            text(line(&recorded(None, Some(8000)))),
            text(line(&Answer::NextPrompt)),
            text(line(&Answer::Ended(ended))),
        ]
        .concat(),
        @r#"
    {"v":1,"request":"status"}
    {"v":1,"request":"stop","after":"iteration"}
    {"v":1,"request":"pause","reason":"lunch","after":"iteration"}
    {"v":1,"request":"steer","text":"use tabs","now":true}
    {"v":1,"request":"set","key":"max-iterations","value":null}
    {"v":1,"request":"set","key":"sleep","value":2000}
    {"v":1,"request":"answer","ask":"a1","allow":true,"message":""}
    {"v":1,"request":"review","verdict":"start_over"}
    {"v":1,"answer":"recorded","steer":3}
    {"v":1,"answer":"recorded","budget_ms":8000}
    {"v":1,"answer":"next_prompt"}
    {"v":1,"answer":"ended","reason":"stopped by a person","ended":5,"survivors":[],"proven":true}
    "#
    );
}

#[test]
fn what_is_not_built_is_said_to_be_unsupported() {
    let lines = [
        r#"{"v":1,"request":"set","key":"max-happiness","value":5}"#,
        r#"{"v":1,"request":"set","key":"sleep","value":18446744073709551615}"#,
        r#"{"v":1,"request":"forward"}"#,
        r#"{"v":2,"request":"status"}"#,
        r#"{"v":1,"request":"pause","after":"lunch"}"#,
        r#"{"v":1,"request":"steer","text":" "}"#,
        r#"{"v":1,"request":"review","verdict":"revise"}"#,
        r#"{"v":1,"request":"review","verdict":"exit","text":"now"}"#,
        r#"{"request":"status"}"#,
        r#"{"v":1}"#,
        "stop",
    ];
    let told = lines.map(|line| message(line.as_bytes()).unwrap_err());
    insta::assert_debug_snapshot!(told);
    let newer = answer(br#"{"v":1,"answer":"forwarded","to":"elsewhere"}"#);
    assert_eq!(newer, Ok(Answer::Unknown));
    assert!(
        answer(br#"{"v":2,"answer":"busy"}"#)
            .unwrap_err()
            .contains("version 1")
    );
}
