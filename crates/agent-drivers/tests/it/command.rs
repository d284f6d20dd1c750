//! Tests of the `command` driver: any program as an agent for one turn.

use crate::scene::{DEADLINE, Scene, is_gone};
use agent_drivers::command::CommandDriver;
use agent_duplex::{
    Connection, Conversation, ConversationEvent, ConversationOptions, Driver as _, EndReason,
    Event, ExitStatus, Input, Message, Mode, QueuedMessages, RestartPolicy, SessionChoice,
    StopStage, TurnEnd,
};
use agent_subprocess::ProcessContext;
use std::time::{Duration, SystemTime};

fn driver(scene: &Scene, argv: &[&str]) -> CommandDriver {
    let context = ProcessContext {
        env: vec![("GREETING".into(), "hello".into())],
        marker: Some(scene.marker.clone()),
        ..ProcessContext::new(scene.directory.path(), scene.path("scratch"))
    };
    CommandDriver::new(argv.iter().map(Into::into).collect(), context)
}

async fn connect(scene: &Scene, argv: &[&str]) -> Box<dyn Connection> {
    driver(scene, argv)
        .connect(SessionChoice::Fresh)
        .await
        .unwrap()
}

/// Reads a turn to its end, and checks that it begins and ends once.
async fn turn(connection: &mut dyn Connection) -> (Vec<String>, TurnEnd) {
    let mut lines = Vec::new();
    let begin = connection.next().await.unwrap();
    assert!(matches!(begin.events[..], [Event::Started { pid }] if pid > 0));
    loop {
        let seen = connection.next().await;
        let seen = seen.expect("the turn must end with its completion");
        lines.extend(
            seen.raw
                .map(|(_, line)| String::from_utf8_lossy(&line.bytes).into_owned()),
        );
        match &seen.events[..] {
            [] => {}
            [Event::TurnCompleted(end)] => {
                assert!(
                    connection.next().await.is_none(),
                    "no event may follow the end of the turn"
                );
                return (lines, end.clone());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn p50_prompt_arrives_on_standard_input() {
    let scene = Scene::new();
    let mut connection = connect(&scene, &["sh", "-c", "echo $GREETING; cat; echo oops >&2"]).await;
    let message = Message::new("the prompt\nof two lines");
    connection.send(message.clone()).await.unwrap();
    let (mut lines, end) = turn(&mut *connection).await;
    lines.sort();
    assert_eq!(lines, ["hello", "of two lines", "oops", "the prompt"]);
    let expected = (EndReason::Completed, Some(ExitStatus::Code(0)), "oops\n");
    assert_eq!((end.reason, end.exit, end.output_tail.as_str()), expected);
    assert!(connection.send(message).await.unwrap_err().is_unsupported());
    let report = connection.stop(Duration::from_secs(8)).await;
    assert_eq!(
        (report.stage, report.to_string().as_str()),
        (StopStage::AlreadyEnded, "nothing was left")
    );
}

/// Returns the events between the start and the end of a turn, and the end.
async fn end_of(script: &str) -> (Vec<Event>, TurnEnd) {
    let scene = Scene::new();
    let mut connection = connect(&scene, &["sh", "-c", script]).await;
    connection.send(Message::new("work")).await.unwrap();
    let mut events = Vec::new();
    while let Some(seen) = connection.next().await {
        events.extend(seen.events);
    }
    let Some(Event::TurnCompleted(end)) = events.pop() else {
        panic!("the turn must end with its completion: {events:?}");
    };
    (events.split_off(1), end)
}

#[tokio::test]
async fn x107a_limit_in_the_last_line_of_a_failed_program_is_reported_with_its_end() {
    let until = SystemTime::UNIX_EPOCH + Duration::from_secs(1_760_000_000);
    let text = "Claude AI usage limit reached|1760000000";
    let (events, end) = end_of(&format!("echo work; echo '{text}'; exit 1")).await;
    let limit = Event::RateLimited {
        rejected: true,
        resets_at: Some(until),
        limit: text.into(),
    };
    assert_eq!(events, [limit]);
    assert_eq!(
        (end.reason, end.detail.as_str()),
        (EndReason::RateLimited, text)
    );
    let (events, end) = end_of("echo 'API Error: 529 {}' >&2; exit 1").await;
    assert_eq!((events, end.reason), (vec![], EndReason::ServiceFailed));
    assert_eq!(
        end_of("exit 75").await.1.reason,
        EndReason::TemporaryFailure
    );
}

#[tokio::test]
async fn x107h_words_about_limits_are_no_limit_of_a_successful_or_killed_program() {
    let text = "echo 'Claude AI usage limit reached'";
    for (end, reason) in [
        ("exit 0", EndReason::Completed),
        ("kill -9 $$", EndReason::Died),
        ("echo and more; exit 1", EndReason::Failed),
    ] {
        let (events, ended) = end_of(&format!("{text}; {end}")).await;
        assert_eq!((events, ended.reason), (vec![], reason), "{end}");
    }
}

#[tokio::test]
async fn image_is_refused_and_the_text_alone_accepted() {
    let scene = Scene::new();
    let mut connection = connect(&scene, &["cat"]).await;
    let message = scene.message_with_image("What is it?");
    let error = connection.send(message).await.unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    connection.send(Message::new("text")).await.unwrap();
    assert_eq!(turn(&mut *connection).await.0, ["text"]);
    drop(connection.stop(DEADLINE).await);
    scene.assert_no_process_left();
}

#[tokio::test]
async fn prompt_arrives_by_private_file_or_argument_on_request() {
    let scene = Scene::new();
    let script = r#"stat -c %a "$1" "$(dirname "$1")"; cat "$1"; echo; echo "$2"; cat"#;
    let mut connection = connect(
        &scene,
        &["sh", "-c", script, "sh", "{prompt_file}", "say: {prompt}"],
    )
    .await;
    connection
        .send(Message::new("a {prompt_file} b"))
        .await
        .unwrap();
    let (lines, end) = turn(&mut *connection).await;
    assert_eq!(
        lines,
        ["600", "700", "a {prompt_file} b", "say: a {prompt_file} b"]
    );
    assert_eq!(end.reason, EndReason::Completed);
    assert_eq!(
        std::fs::read_dir(scene.path("scratch")).unwrap().count(),
        0,
        "the file must be removed at the end"
    );
}

#[tokio::test]
async fn p43a_turn_end_is_reported_with_its_reason() {
    let cases = [
        ("exit 0", EndReason::Completed),
        ("exit 9", EndReason::Failed),
        ("kill -SEGV $$", EndReason::Died),
    ];
    for (script, reason) in cases {
        let scene = Scene::new();
        let mut connection = connect(&scene, &["sh", "-c", script]).await;
        connection
            .send(Message::new(&*"p".repeat(4 << 20)))
            .await
            .unwrap();
        assert_eq!(turn(&mut *connection).await.1.reason, reason);
    }
}

#[tokio::test]
async fn p43c_only_gemini_exit_codes_map_to_reasons() {
    let cases = [
        ("gemini", 42, EndReason::Failed, "refused its input"),
        ("gemini", 53, EndReason::MaxTurns, "exit status 53"),
        ("gemini", 1, EndReason::Failed, ""),
        ("other", 53, EndReason::Failed, ""),
    ];
    for (name, code, reason, detail) in cases {
        let scene = Scene::new();
        let program = scene.path(name);
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let exit = format!("exit {code}");
        let argv = [program.to_str().unwrap(), "-c", &exit];
        let mut connection = connect(&scene, &argv).await;
        connection.send(Message::new("")).await.unwrap();
        let (_, end) = turn(&mut *connection).await;
        let found = (end.reason, end.exit);
        assert_eq!(found, (reason, Some(ExitStatus::Code(code))), "{name}");
        assert!(end.detail.contains(detail), "{name}: {end:?}");
        assert_eq!(end.detail.is_empty(), detail.is_empty(), "{name}: {end:?}");
    }
}

#[tokio::test]
async fn s5a_s5c_an_interrupt_ends_the_turn_and_a_stop_everything_else() {
    let scene = Scene::new();
    // Like a real agent, it answers SIGINT with its partial text and exit code 0, and leaves a tool behind.
    let script = "setsid sleep 660 >/dev/null 2>&1 & trap 'echo partial; exit 0' INT; echo ready; while :; do sleep 0.05; done";
    let mut connection = connect(&scene, &["sh", "-c", script]).await;
    connection.send(Message::new("")).await.unwrap();
    loop {
        if let Some((_, line)) = connection.next().await.and_then(|seen| seen.raw)
            && line.bytes == "ready"
        {
            break;
        }
    }
    scene.wait_for_program("sleep", "660");
    connection.interrupt(QueuedMessages::Drop).await.unwrap();
    let mut events = Vec::new();
    while let Some(event) = connection.next().await {
        events.push(event);
    }
    assert!(
        matches!(&events[0].raw, Some((_, line)) if line.bytes == "partial"),
        "{events:?}"
    );
    let Some([Event::TurnCompleted(end)]) = events.last().map(|seen| &seen.events[..]) else {
        panic!("{events:?}")
    };
    assert_eq!(
        (end.reason, end.exit),
        (EndReason::Interrupted, Some(ExitStatus::Code(0)))
    );

    let leftovers = connection.leftovers().await;
    assert_eq!(leftovers.len(), 1, "{leftovers:?}");
    let before = scene.members();
    let report = connection.stop(Duration::from_secs(8)).await;
    assert_eq!((report.stage, report.proven), (StopStage::Terminate, true));
    // The processes that the interrupt ended are in the report too.
    assert!(
        report.ended.contains(&leftovers[0]) && report.ended.len() >= 2,
        "{report:?}"
    );
    assert!(
        report.to_string().starts_with("all processes ended"),
        "{report}"
    );
    assert!(before.iter().all(is_gone));
    assert_eq!(
        connection.stop(Duration::ZERO).await,
        report,
        "a second stop must return the same report"
    );
    scene.assert_no_process_left();
}

#[tokio::test]
async fn a_stopped_turn_is_completed_as_interrupted() {
    let scene = Scene::new();
    let mut connection = connect(&scene, &["sleep", "670"]).await;
    connection.send(Message::new("")).await.unwrap();
    let report = connection.stop(Duration::from_secs(8)).await;
    assert_eq!(
        (report.stage, report.to_string().as_str()),
        (StopStage::Interrupt, "all processes ended")
    );
    let (lines, end) = turn(&mut *connection).await;
    assert_eq!(
        (lines.len(), end.reason, end.exit),
        (0, EndReason::Interrupted, Some(ExitStatus::Signal(2)))
    );
}

#[tokio::test]
async fn unsupported_calls_return_unsupported() {
    let scene = Scene::new();
    let resume = SessionChoice::Resume("7".to_owned());
    assert!(
        driver(&scene, &["true"])
            .connect(resume)
            .await
            .unwrap_err()
            .is_unsupported()
    );
    assert!(
        driver(&scene, &[])
            .connect(SessionChoice::Fresh)
            .await
            .unwrap_err()
            .is_start_failure()
    );
    let mut connection = connect(&scene, &["./no-such-agent"]).await;
    let error = connection.send(Message::new("")).await.unwrap_err();
    let text = error
        .to_string()
        .replace(scene.directory.path().to_str().unwrap(), "FOLDER");
    insta::assert_snapshot!(text, @"`./no-such-agent` does not exist: check the path (relative to FOLDER)");
    assert_eq!(
        connection.stop(Duration::ZERO).await.stage,
        StopStage::AlreadyEnded
    );
    assert!(
        connection
            .send(Message::new(""))
            .await
            .unwrap_err()
            .is_unsupported()
    );
    assert!(connection.next().await.is_none());
}

#[tokio::test]
async fn connection_waits_for_its_message_and_ends_if_closed_without_one() {
    let scene = Scene::new();
    let driver = driver(&scene, &["cat"]);
    let (conversation, mut primary) = Conversation::with_primary(
        Box::new(driver.clone()),
        ConversationOptions::default().with_manual_start(),
    );
    conversation.start(SessionChoice::Fresh).await.unwrap();
    conversation.send(Input::new("late")).unwrap();
    let completed = async {
        while let Some(published) = primary.next().await {
            if let ConversationEvent::Completed(completion) = published.event {
                return Some(completion.end.reason);
            }
        }
        None
    };
    let completed = tokio::time::timeout(DEADLINE, completed).await.unwrap();
    assert_eq!(completed, Some(EndReason::Completed));
    conversation.stop(DEADLINE).await;
    let mut connection = driver.connect(SessionChoice::Fresh).await.unwrap();
    connection.close().await;
    assert!(connection.next().await.is_none());
    let late = connection.send(Message::new("too late")).await;
    assert!(late.unwrap_err().is_unsupported());
}

#[tokio::test]
async fn x123a_execution_of_a_missing_program_ends_with_the_cause() {
    let scene = Scene::new();
    for options in [
        ConversationOptions::default().with_manual_start(),
        ConversationOptions::default().with_restart(RestartPolicy::default().with_max_starts(1)),
        ConversationOptions::default()
            .with_restart(RestartPolicy::default().with_max_starts(1))
            .with_mode(Mode::OneShot),
    ] {
        let driver = driver(&scene, &["./no-such-agent"]);
        let (conversation, primary) = Conversation::with_primary(Box::new(driver), options);
        drop(primary);
        let mut execution = conversation.execute(Input::new("go")).await.unwrap();
        let mut told = String::new();
        let read = async {
            while let Some(published) = execution.next().await {
                told = format!("{:?}", published.unwrap().event);
            }
        };
        tokio::time::timeout(DEADLINE, read).await.unwrap();
        assert!(told.contains("`./no-such-agent` does not exist"), "{told}");
        assert!(execution.completion().is_none());
        let drained = tokio::time::timeout(DEADLINE, conversation.wait_until_idle());
        drained.await.unwrap().unwrap();
        conversation.stop(DEADLINE).await;
    }
}
