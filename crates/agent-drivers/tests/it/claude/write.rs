//! Tests of writing: complete lines, with limited memory and time, whatever the agent does.

use super::*;
use agent_duplex::{Part, Stream};
use std::time::Duration;

#[tokio::test]
async fn l96a_l96b_l96c_l96d_l96e_lines_pass_unchanged_in_both_directions() {
    let scene = Scene::new();
    // The shell reads byte by byte, so other programs read long input.
    let script = r#"
read -r line; on_initialize; head -n 1 > heard
say '{"type":"system","subtype":"init"}'; say '{"type":"system","subtype":"status","status":"requesting"}'
printf '{"type":"assistant","message":{"content":[{"type":"text","text":"'; head -c 10000000 /dev/zero | tr '\0' x; printf '"}]}}\n'
say '{"type":"tomorrow","really":[1]}'; say 'noise'; say ''; printf '\377\n'
result completed
on_user() { printf '%s\n' "$line" >> heard; begin; result completed; }
on_other() { printf '%s\n' "$line" >> heard; }"#;
    let mut connection = connect(&scene, script).await;
    let text = "\u{feff}one\ntwo\r\n\n\u{2028}three\0\u{2029} ".repeat(400_000);
    connection.send(Message::new(&*text)).await.unwrap();
    let (mut raws, mut answer) = (Vec::new(), 0);
    loop {
        let seen = next(&mut *connection).await.unwrap();
        if let (Some((Stream::Stdout, line)), [] | [Event::PlainLine]) =
            (&seen.raw, &seen.events[..])
        {
            raws.push(line.bytes.clone());
        }
        for event in &seen.events {
            if let Event::Message { text, .. } = event {
                answer = text.len();
            }
        }
        if matches!(seen.events.last(), Some(Event::TurnCompleted(_))) {
            break;
        }
    }
    assert_eq!(answer, 10_000_000);
    let odd: [&[u8]; 4] = [
        br#"{"type":"tomorrow","really":[1]}"#,
        b"noise",
        b"",
        b"\xff",
    ];
    assert!(
        odd.iter().all(|odd| raws.iter().any(|raw| raw == odd)),
        "unknown lines must pass unchanged"
    );
    connection.send(Message::new("")).await.unwrap();
    turn(&mut *connection).await;
    let heard = std::fs::read_to_string(scene.path("heard")).unwrap();
    assert!(heard.len() > 10_000_000 && heard.starts_with('{'));
    let lines: Vec<&str> = heard.lines().collect();
    assert_eq!(lines.len(), 2, "each message must be one line");
    assert!(
        !heard.contains(['\r', '\u{2028}', '\u{2029}']),
        "some readers take these characters for the end of a line"
    );
    let line: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(line["message"]["content"], *text);
}

#[tokio::test]
async fn p8a_p8b_agent_that_does_not_read_fills_a_bounded_queue() {
    let scene = Scene::new();
    let script = r#"on_user() { begin; while :; do delta on; sleep 0.1; done; }"#;
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("go on")).await.unwrap();
    let text = "x".repeat(8 << 20);
    let mut sent = 0;
    let error = loop {
        match timeout(DEADLINE, connection.send(Message::new(&*text)))
            .await
            .unwrap()
        {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 10, "the queue must have a limit");
    };
    assert!(error.is_full() && sent > 1, "{sent} {error}");
    // The agent's output is still read, and the agent ends as usual.
    until(&mut *connection, |e| matches!(e, Event::TextDelta(_))).await;
    let report = connection.stop(Duration::from_secs(4)).await;
    assert!(report.survivors.is_empty(), "{report}");
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p9a_closed_input_is_reported() {
    let scene = Scene::new();
    let script = "on_user() { begin; result completed; exec <&-; sleep 619; }";
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("hello")).await.unwrap();
    turn(&mut *connection).await;
    scene.wait_for_program("sleep", "619");
    let error = connection.send(Message::new("more")).await.unwrap_err();
    assert!(
        error.is_gone() && error.to_string().contains("closed its input"),
        "{error}"
    );
    let report = connection.stop(Duration::from_secs(4)).await;
    assert!(report.survivors.is_empty(), "{report}");
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p2b_p13b_line_of_seventeen_megabytes_arrives_whole() {
    let scene = Scene::new();
    let script = r#"on_user() { begin
printf '{"type":"tomorrow","x":"'; head -c 17000000 /dev/zero | tr '\0' x; printf '"}\n'
result completed; }"#;
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("go")).await.unwrap();
    let line = loop {
        let seen = next(&mut *connection).await.unwrap();
        if let Some((_, line)) = seen.raw
            && line.bytes.len() > 1000
        {
            break line;
        }
    };
    assert_eq!((line.bytes.len(), line.omitted), (17_000_026, 0));
    assert_eq!(turn(&mut *connection).await.1.reason, EndReason::Completed);
}

#[tokio::test]
async fn p4c_p5_complete_last_line_without_newline_counts() {
    for (part, reason) in [
        ("cat last", EndReason::Completed),
        ("head -c 20 last", EndReason::Died),
    ] {
        let scene = Scene::new();
        let script = format!(
            "on_user() {{ begin; result completed >last; printf %s \"$({part})\"; exit 0; }}"
        );
        let mut connection = connect(&scene, &script).await;
        connection.send(Message::new("hello")).await.unwrap();
        let (_, end) = turn(&mut *connection).await;
        assert_eq!(end.reason, reason, "{end:?}");
    }
}

#[tokio::test]
async fn image_is_read_when_it_is_sent_or_nothing_is_sent() {
    let scene = Scene::new();
    // The shell reads byte by byte, so another program reads the long line.
    let script = r#"
read -r line; on_initialize; head -n 1 > heard
say '{"type":"system","subtype":"init"}'; say '{"type":"system","subtype":"status","status":"requesting"}'; result completed
on_user() { printf '%s\n' "$line" >> heard; begin; result completed; }"#;
    let mut connection = connect(&scene, script).await;
    let message = scene.message_with_image("What is it?");
    let png = std::fs::read(scene.path("image.png")).unwrap();
    // The service accepts 5 MiB of base64, which is 3.75 MiB of image.
    let most = 3_932_160;
    for (size, is_valid) in [(most + 1, false), (0, false), (most, true)] {
        let mut bytes = png.clone();
        bytes.resize(size, 0);
        std::fs::write(scene.path("image.png"), bytes).unwrap();
        let sent = connection.send(message.clone()).await;
        assert_eq!(sent.is_ok(), is_valid, "{sent:?}");
        assert!(sent.is_ok() || sent.is_err_and(|e| e.is_invalid()));
    }
    turn(&mut *connection).await;
    // Each of these five images fits, but together they have more than 16 MiB.
    let mut many = Message::new("Compare them.");
    many.parts = vec![Part::Image(scene.path("image.png")); 5];
    let error = connection.send(many).await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    let mut file = Message::new("Read it.");
    file.parts = vec![Part::File(scene.path("image.png"))];
    let error = connection.send(file).await.unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    connection.send(Message::new("no image")).await.unwrap();
    turn(&mut *connection).await;
    let heard = std::fs::read_to_string(scene.path("heard")).unwrap();
    let heard: Vec<serde_json::Value> = { heard.lines() }
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let content = |n: usize| &heard[n]["message"]["content"];
    let blocks = content(0).as_array().unwrap();
    assert_eq!(blocks[0]["text"], "What is it?");
    let data = blocks[1]["source"]["data"].as_str().unwrap();
    assert!(data.starts_with("iVBORw0KGgo"), "the PNG must be sent");
    assert_eq!((heard.len(), data.len()), (2, 5 << 20));
    assert_eq!(content(1), "no image");
    drop(connection.stop(DEADLINE).await);
    scene.assert_no_process_left();
}
