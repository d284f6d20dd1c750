//! The scripted model answers like the services whose protocols it implements. A plain TCP client sends the requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use rlm_tests::model::{FakeModel, Outcome};
use rlm_tests::wait_for;
use serde_json::{Value, json};

use crate::{FAKE_MODEL, LONG};

/// Sends one request, and returns the head and the body of the response, with its chunks joined.
fn ask(port: u16, method: &str, path: &str, body: &str) -> (String, String) {
    let mut answer = String::new();
    send(port, method, path, body)
        .read_to_string(&mut answer)
        .unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    if !head.contains("chunked") {
        return (head.into(), body.into());
    }
    let mut joined = String::new();
    let mut rest = body;
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        joined.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    (head.into(), joined)
}

fn send(port: u16, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let head = format!(
        "{method} {path}?beta=true HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .unwrap();
    // No further request, so the response ends with the connection.
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    stream
}

fn say(model: &FakeModel, said: &str, replies: &[Value], stream: bool) -> (String, String) {
    ask(
        model.port(),
        "POST",
        "/v1/messages",
        &message(said, replies, stream),
    )
}

fn message(said: &str, replies: &[Value], stream: bool) -> String {
    let mut messages = vec![json!({"role": "user", "content": said})];
    for reply in replies {
        messages.push(json!({"role": "assistant", "content": reply}));
        messages.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "out"}]}));
    }
    json!({"model": "m", "max_tokens": 100, "stream": stream, "tools": [{"name": "Bash"}], "messages": messages}).to_string()
}

#[test]
fn a_streamed_turn_has_all_its_events_in_order() {
    let model = FakeModel::start("");
    let (head, events) = say(&model, "[[sh date]] [[text hello, world]]", &[], true);
    assert!(
        head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"),
        "{head}"
    );
    let tokens = regular(&events);
    insta::assert_snapshot!(tokens, @r#"
    {"message":{"content":[],"id":"msg_fake000001","model":"m","role":"assistant","stop_reason":null,"stop_sequence":null,"type":"message","usage":null},"type":"message_start"}
    {"content_block":{"id":"toolu_fake000001","input":{},"name":"Bash","type":"tool_use"},"index":0,"type":"content_block_start"}
    {"delta":{"partial_json":"{\"command\":\"date\",\"description\":\"Run a command\"}","type":"input_json_delta"},"index":0,"type":"content_block_delta"}
    {"index":0,"type":"content_block_stop"}
    {"delta":{"stop_reason":"tool_use","stop_sequence":null},"type":"message_delta","usage":{"output_tokens":1}}
    {"type":"message_stop"}
    "#);

    let (_, events) = say(
        &model,
        "[[sh date]] [[text hello, world]]",
        &[json!("so")],
        true,
    );
    insta::assert_snapshot!(regular(&events), @r#"
    {"message":{"content":[],"id":"msg_fake000002","model":"m","role":"assistant","stop_reason":null,"stop_sequence":null,"type":"message","usage":null},"type":"message_start"}
    {"content_block":{"text":"","type":"text"},"index":0,"type":"content_block_start"}
    {"delta":{"text":"hello, world","type":"text_delta"},"index":0,"type":"content_block_delta"}
    {"index":0,"type":"content_block_stop"}
    {"delta":{"stop_reason":"end_turn","stop_sequence":null},"type":"message_delta","usage":{"output_tokens":2}}
    {"type":"message_stop"}
    "#);
}

#[test]
fn a_streamed_response_has_all_its_events_in_order() {
    let model = FakeModel::start("");
    let said = json!({"role": "user", "content": "[[sh date]] [[text hello]]"});
    let called = json!({"type": "function_call", "name": "exec_command", "arguments": "{}"});
    let result = json!({"type": "function_call_output", "output": "out"});
    let shell = json!({"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {}}}});
    let respond = |input: &[&Value]| {
        let body = json!({"model": "m", "stream": true, "tools": [shell], "input": input});
        ask(model.port(), "POST", "/v1/responses", &body.to_string()).1
    };
    insta::assert_snapshot!(regular(&respond(&[&said])), @r#"
    {"response":{"created_at":1767225600,"id":"resp_fake000001","model":"m","object":"response","output":[],"status":"in_progress"},"type":"response.created"}
    {"item":{"arguments":"{\"cmd\":\"date\"}","call_id":"call_fake000001","id":"fc_fake000001","name":"exec_command","status":"completed","type":"function_call"},"output_index":0,"type":"response.output_item.done"}
    {"response":{"created_at":1767225600,"id":"resp_fake000001","model":"m","object":"response","output":[{"arguments":"{\"cmd\":\"date\"}","call_id":"call_fake000001","id":"fc_fake000001","name":"exec_command","status":"completed","type":"function_call"}],"status":"completed","usage":null},"type":"response.completed"}
    "#);
    insta::assert_snapshot!(regular(&respond(&[&said, &called, &result])), @r#"
    {"response":{"created_at":1767225600,"id":"resp_fake000002","model":"m","object":"response","output":[],"status":"in_progress"},"type":"response.created"}
    {"item":{"content":[],"id":"msg_fake000002","role":"assistant","status":"in_progress","type":"message"},"output_index":0,"type":"response.output_item.added"}
    {"content_index":0,"delta":"hello","item_id":"msg_fake000002","output_index":0,"type":"response.output_text.delta"}
    {"item":{"content":[{"annotations":[],"text":"hello","type":"output_text"}],"id":"msg_fake000002","role":"assistant","status":"completed","type":"message"},"output_index":0,"type":"response.output_item.done"}
    {"response":{"created_at":1767225600,"id":"resp_fake000002","model":"m","object":"response","output":[{"content":[{"annotations":[],"text":"hello","type":"output_text"}],"id":"msg_fake000002","role":"assistant","status":"completed","type":"message"}],"status":"completed","usage":null},"type":"response.completed"}
    "#);
}

/// Returns one line per event, without the values that depend on the length of the request.
fn regular(events: &str) -> String {
    let data = events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let mut lines = String::new();
    for data in data {
        let mut event: Value = serde_json::from_str(data).unwrap();
        if event["type"] == "message_start" {
            event["message"]["usage"] = Value::Null;
        }
        if event["type"] == "response.completed" {
            event["response"]["usage"] = Value::Null;
        }
        lines.push_str(&format!("{event}\n"));
    }
    lines
}

#[test]
fn a_plain_turn_is_one_message() {
    let model = FakeModel::start("[[text by default]]");
    let (_, body) = say(&model, "[[tool Read {\"list\": [1]}]]", &[], false);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&body["stop_reason"], &body["content"][0]["input"]),
        (&json!("tool_use"), &json!({"list": [1]}))
    );

    let reply_to = |said: &str, replies: &[Value]| -> Value {
        let (_, body) = say(&model, said, replies, false);
        serde_json::from_str::<Value>(&body).unwrap()["content"][0]["text"].clone()
    };
    assert_eq!(reply_to("no directives", &[]), "by default");
    assert_eq!(reply_to("no directives", &[json!("one")]), "All done.");
    let told: Vec<_> = model
        .requests()
        .into_iter()
        .map(|request| (request.reply, request.step, request.outcome))
        .collect();
    let sent = Some(Outcome::Sent);
    assert_eq!(
        told,
        [
            ("tool".into(), 0, sent),
            ("text".into(), 0, sent),
            ("text".into(), 1, sent)
        ]
    );
}

#[test]
fn long_text_has_the_scripted_size() {
    let model = FakeModel::start("");
    let (_, body) = say(&model, "[[big 1500000]]", &[], false);
    let message: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        message["content"][0]["text"].as_str().unwrap().len(),
        1_500_000
    );
}

#[test]
fn next_step_follows_the_counted_failures() {
    let model = FakeModel::start("");
    let said = "[[status 429 7 2]] [[drop 2]] [[text fine]]";
    let heads: Vec<String> = (0..2).map(|_| say(&model, said, &[], true).0).collect();
    assert!(
        heads
            .iter()
            .all(|head| head.starts_with("HTTP/1.1 429") && head.contains("retry-after: 7")),
        "{heads:?}"
    );
    let (_, broken) = say(&model, said, &[], true);
    assert!(
        broken.contains("tok1") && !broken.contains("message_stop"),
        "{broken}"
    );
    let (_, whole) = say(&model, said, &[], true);
    assert!(
        whole.contains("fine") && whole.contains("message_stop"),
        "{whole}"
    );
    assert!(
        say(&model, "[[status 401]]", &[], true)
            .1
            .contains("authentication_error")
    );
}

#[test]
fn other_paths_of_the_api_answer() {
    let model = FakeModel::start("");
    assert!(
        ask(model.port(), "HEAD", "/", "")
            .0
            .starts_with("HTTP/1.1 200")
    );
    assert!(
        ask(model.port(), "GET", "/v1/models", "")
            .1
            .contains("claude-fake-1")
    );
    assert!(
        ask(model.port(), "POST", "/v1/messages/count_tokens", "{}")
            .1
            .contains("input_tokens")
    );
    assert!(
        ask(model.port(), "GET", "/else", "")
            .0
            .starts_with("HTTP/1.1 404")
    );
    assert!(model.requests().is_empty());
}

#[test]
fn client_disconnect_ends_a_hanging_reply() {
    let model = FakeModel::start("[[hang 600]]");
    let body = message("x", &[], true);
    let mut stream = TcpStream::connect(("127.0.0.1", model.port())).unwrap();
    write!(
        stream,
        "POST /v1/messages HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    wait_for("the request", LONG, || model.requests().pop());
    drop(stream);
    wait_for("the detected disconnect", LONG, || {
        (model.requests()[0].outcome == Some(Outcome::ClientGone)).then_some(())
    });

    let mut stream = TcpStream::connect(("127.0.0.1", model.port())).unwrap();
    write!(
        stream,
        "POST /v1/messages HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    wait_for("the request", LONG, || model.requests().get(1).cloned());
    stream.set_read_timeout(Some(LONG)).unwrap();
    drop(model);
    stream
        .read_to_end(&mut Vec::new())
        .expect("it ends although the reply doesn't");
}

#[test]
fn the_program_names_its_port_logs_and_ends_with_its_stdin() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut child = Command::new(FAKE_MODEL)
        .args(["--default", "[[text hi]]", "--log"])
        .arg(&log)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut first,
    )
    .unwrap();
    ask(
        first.trim().parse().unwrap(),
        "POST",
        "/v1/messages",
        &message("x", &[], true),
    );
    drop(child.stdin.take());
    wait_for("the end of the model", LONG, || child.try_wait().unwrap());
    let log = fs_err::read_to_string(log).unwrap();
    let ends = log
        .lines()
        .filter(|line| line.contains(r#""outcome":"sent""#))
        .count();
    assert_eq!((log.lines().count(), ends), (2, 1), "{log}");
}
