//! Responses that are no stream of events.

use std::time::{Duration, SystemTime};

use agent_api::{Error, ErrorKind, HttpResponse, Reset, Retry};
use insta::assert_snapshot;
use proptest::prelude::*;

/// The status, the headers and the body of a response.
type Case<'a> = (u16, &'a [(&'a str, &'a str)], &'a str);

const KEY: &str = "secret-key-0123456789";

fn error(status: u16, headers: &[(&str, &str)], body: &str) -> Error {
    Error::from_response(&HttpResponse {
        status,
        headers,
        body: body.as_bytes(),
        key: Some(KEY),
    })
}

#[test]
fn each_failure_has_one_clear_message() {
    let json = [("content-type", "application/json")];
    let html = [("Content-Type", "text/html; charset=utf-8")];
    let cases: &[Case<'_>] = &[
        (
            401,
            &json,
            r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key secret-key-0123456789"}}"#,
        ),
        (
            401,
            &json,
            r#"{"error":{"message":"Incorrect API key provided: sk-abc***6789","type":"invalid_request_error","code":"invalid_api_key"}}"#,
        ),
        (
            403,
            &json,
            r#"{"type":"error","error":{"type":"permission_error","message":"no"}}"#,
        ),
        (
            402,
            &json,
            r#"{"type":"error","error":{"type":"billing_error","message":"pay"}}"#,
        ),
        (
            429,
            &json,
            r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        ),
        (
            400,
            &json,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API."}}"#,
        ),
        (
            404,
            &json,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-x"}}"#,
        ),
        (
            404,
            &json,
            r#"{"error":{"message":"The model `gpt-x` does not exist","type":"invalid_request_error","code":"model_not_found"}}"#,
        ),
        (
            400,
            &json,
            r#"{"error":{"message":"The requested model 'gpt-x' does not exist.","type":"invalid_request_error","code":"model_not_found"}}"#,
        ),
        (
            404,
            &json,
            r#"{"error":{"message":"model \"qwen3\" not found, try pulling it first","type":"api_error"}}"#,
        ),
        (
            404,
            &json,
            r#"{"error":{"message":"Invalid URL (POST /v1/foo)","type":"invalid_request_error","code":null}}"#,
        ),
        (404, &json, r#"{"detail":"Not Found"}"#),
        (404, &[], "404 page not found"),
        (405, &json, r#"{"detail":"Method Not Allowed"}"#),
        (404, &html, "<html><body>Not Found</body></html>"),
        (200, &[], "\n<!DOCTYPE html><title>Login</title>"),
        (502, &html, "<html>Bad gateway</html>"),
        (200, &json, r#"{"id":"chatcmpl-1","choices":[]}"#),
        (
            200,
            &json,
            r#"{"error":{"message":"overloaded","type":"server_error"}}"#,
        ),
        (
            429,
            &json,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"too many tokens"}}"#,
        ),
        (
            529,
            &json,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        ),
        (
            503,
            &json,
            r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#,
        ),
        (
            500,
            &json,
            r#"{"type":"error","error":{"type":"api_error","message":"Internal\nserver \u001b[31merror"}}"#,
        ),
        (504, &[], ""),
        (408, &[], ""),
        (
            400,
            &json,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
        ),
        (
            400,
            &json,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"}}"#,
        ),
        (
            400,
            &json,
            r#"{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
        ),
        (
            400,
            &json,
            r#"{"object":"error","message":"This model's maximum context length is 8192 tokens.","type":"BadRequestError","code":400}"#,
        ),
        (
            400,
            &json,
            r#"{"error":{"code":400,"message":"request (9412 tokens) exceeds the available context size (8192 tokens)","type":"exceed_context_size_error"}}"#,
        ),
        (
            413,
            &json,
            r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
        ),
        (413, &[], ""),
        (
            400,
            &json,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"temperature: must be at most 1 (key secret-key-0123456789, sk-ant-api03-abcdef)"}}"#,
        ),
        (422, &json, r#"{"detail":"Unprocessable"}"#),
        (
            301,
            &[(
                "Location",
                "https://user:secret-key-0123456789@api.example.com:8443/v1?key=secret-key-0123456789",
            )],
            "",
        ),
        (308, &[("location", "/elsewhere")], ""),
        (307, &[("location", "https://\u{1b}[31m/")], ""),
    ];
    let mut all = String::new();
    for (status, headers, body) in cases {
        let error = error(*status, headers, body);
        let retry = match error.retry() {
            Retry::Never => "never",
            Retry::AfterCompaction => "after compaction",
            Retry::Later(_) => "later",
            _ => unreachable!(),
        };
        let message = error.to_string();
        assert!(
            !message.contains("secret") && !message.contains("sk-"),
            "{message}"
        );
        assert!(!message.contains(char::is_control), "{message:?}");
        all.push_str(&format!("{:?} ({retry}): {message}\n", error.kind()));
    }
    assert_snapshot!(all);
}

#[test]
fn reset_times_come_from_headers() {
    let reset = |headers: &[(&str, &str)]| match error(429, headers, "").kind() {
        ErrorKind::RateLimited(reset) => reset,
        kind => panic!("{kind:?}"),
    };
    let after = |milliseconds| Some(Reset::After(Duration::from_millis(milliseconds)));
    let at = |seconds| {
        Some(Reset::At(
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        ))
    };
    assert_eq!(reset(&[]), None);
    assert_eq!(reset(&[("Retry-After", "30")]), after(30_000));
    assert_eq!(reset(&[("retry-after", "1.5")]), after(1_500));
    assert_eq!(
        reset(&[("retry-after-ms", "250"), ("retry-after", "1")]),
        after(250)
    );
    assert_eq!(
        reset(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")]),
        at(784_111_777)
    );
    for nonsense in [
        "-1",
        "NaN",
        "inf",
        "1e300",
        "soon",
        "",
        "99999999999999999999999",
    ] {
        assert_eq!(reset(&[("retry-after", nonsense)]), None, "{nonsense}");
    }
    // Only a limit that is used up counts, and of those the last one.
    let messages = [
        ("anthropic-ratelimit-requests-remaining", "0"),
        ("anthropic-ratelimit-requests-reset", "1994-11-06T08:49:37Z"),
        ("anthropic-ratelimit-input-tokens-remaining", "0"),
        (
            "anthropic-ratelimit-input-tokens-reset",
            "1994-11-06T08:50:37Z",
        ),
        ("anthropic-ratelimit-output-tokens-remaining", "5"),
        (
            "anthropic-ratelimit-output-tokens-reset",
            "1994-11-06T09:49:37Z",
        ),
    ];
    assert_eq!(reset(&messages), at(784_111_837));
    let openai = [
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "20ms"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ];
    assert_eq!(reset(&openai), after(360_000));
    let overloaded = error(529, &[("retry-after", "7")], "").retry();
    assert_eq!(overloaded, Retry::Later(after(7_000)));
}

proptest! {
    #[test]
    fn any_response_has_a_bounded_message_without_the_key(
        status in any::<u16>(), name in "(retry-after)|(location)|(content-type)|(anthropic-ratelimit-tokens-reset)",
        value in any::<String>(), body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            any::<String>().prop_map(|text| format!(r#"{{"error":{{"message":{},"type":"x"}}}}"#, serde_json::to_string(&format!("{text}{KEY}{text}")).unwrap()).into_bytes()),
        ],
    ) {
        let value = format!("{value}{KEY}");
        let headers = [(name.as_str(), value.as_str()), ("authorization", KEY)];
        let error = Error::from_response(&HttpResponse { status, headers: &headers, body: &body, key: Some(KEY) });
        let message = error.to_string();
        prop_assert!(!message.contains(KEY), "{}", message);
        prop_assert!(message.chars().count() < 600);
        prop_assert!(!message.contains(char::is_control));
    }
}
