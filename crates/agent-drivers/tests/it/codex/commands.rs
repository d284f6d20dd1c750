//! Tests that an interrupt ends the commands of its turn, and nothing else.

use super::*;
use agent_duplex::QueuedMessages;
use std::time::Duration;

/// The commands of a turn: a child in its own session with a child of its own, a process that lost its parent, and one that ignores SIGTERM. The
/// other two processes are not commands: a server in the agent's session, and a process that the server started in another session.
const WORK: &str = r#"
export CODEX_THREAD_ID=t
quiet setsid sh -c 'sleep 621; exit 0'
quiet setsid sh -c 'setsid sleep 622 & exit 0'
quiet setsid sh -c 'trap "" TERM; sleep 623; sleep 624'
unset CODEX_THREAD_ID
quiet sleep 631
quiet sh -c 'setsid sleep 632; exit 0'
"#;

const COMMANDS: [&str; 3] = ["621", "622", "623"];
const SERVERS: [&str; 2] = ["631", "632"];

fn sleeps(scene: &Scene, argument: &str) -> bool {
    let line = format!("sleep\0{argument}\0");
    let mut members = scene.members().into_iter();
    members.any(|process| {
        let path = format!("/proc/{}/cmdline", process.pid);
        std::fs::read(path).is_ok_and(|l| l == line.as_bytes())
    })
}

#[tokio::test]
async fn x101j_commands_of_an_interrupted_turn_are_ended_and_named() {
    let scene = Scene::new();
    let functions = format!("work() {{ {WORK} tool; delta half; }}");
    let mut agent = connect(&scene, &functions).await;
    agent.send(Message::new("work")).await.unwrap();
    until(&mut *agent, |event| matches!(event, Event::TextDelta(_))).await;
    for argument in COMMANDS.into_iter().chain(SERVERS) {
        scene.wait_for_program("sleep", argument);
    }
    agent.interrupt(QueuedMessages::Keep).await.unwrap();
    let (events, end) = turn(&mut *agent).await;
    assert_eq!(end.reason, EndReason::Interrupted);
    // All commands have ended when the end of the turn is reported.
    for argument in COMMANDS {
        assert!(
            !sleeps(&scene, argument),
            "{argument} is still running: {events:?}"
        );
    }
    assert!(!sleeps(&scene, "624"), "no new command may start meanwhile");
    for argument in SERVERS {
        assert!(
            sleeps(&scene, argument),
            "{argument} is not a command and must stay: {events:?}"
        );
    }
    let warnings = warnings(&events);
    let [warning] = warnings[..] else {
        panic!("expected one warning: {warnings:?}");
    };
    assert!(warning.starts_with("ended commands"), "{warning}");
    // The shell can start its next command before the shell is ended; then that command is ended and named too.
    let named = warning.matches(" sleep").count();
    assert!((3..=4).contains(&named), "{warning}");
    assert!(!warning.contains("still running"), "{warning}");
    let partial = |event: &Event| matches!(event, Event::Message { partial: true, .. });
    assert!(events.iter().any(partial), "{events:?}");
    let report = agent.stop(DEADLINE).await;
    assert!(report.proven && report.survivors.is_empty(), "{report:?}");
    scene.assert_no_process_left();
}

#[tokio::test]
async fn x127a_commands_of_an_earlier_turn_survive() {
    let scene = Scene::new();
    let functions = r#"work() {
      tool; quiet setsid sleep "64$n"
      [ "$n" = 2 ] || completed completed
    }"#;
    let mut agent = connect(&scene, functions).await;
    agent.send(Message::new("one")).await.unwrap();
    let (events, end) = turn(&mut *agent).await;
    assert_eq!(end.reason, EndReason::Completed);
    assert!(events.contains(&Event::BackgroundTasks(1)), "{events:?}");
    scene.wait_for_program("sleep", "641");
    // The start time of a process has a resolution of a hundredth of a second.
    let began = std::time::Instant::now();
    crate::scene::wait_for("the clock", || began.elapsed().as_millis() > 50);
    agent.send(Message::new("two")).await.unwrap();
    until(&mut *agent, |event| {
        matches!(event, Event::ToolStarted { .. })
    })
    .await;
    scene.wait_for_program("sleep", "642");
    agent.interrupt(QueuedMessages::Keep).await.unwrap();
    let (events, _) = turn(&mut *agent).await;
    assert!(
        !sleeps(&scene, "642") && sleeps(&scene, "641"),
        "{events:?}"
    );
    // The next turn works as usual.
    agent.send(Message::new("three")).await.unwrap();
    let (_, end) = turn(&mut *agent).await;
    assert_eq!(end.reason, EndReason::Completed);
    agent.stop(DEADLINE).await;
    scene.assert_no_process_left();
}

/// Reads until the agent has written the end of the interrupted turn, which the driver does not report yet.
async fn until_cleaning(scene: &Scene, agent: &mut dyn Connection) {
    let moment = Duration::from_millis(50);
    let begun = std::time::Instant::now();
    let mut is_written = false;
    while !std::mem::replace(&mut is_written, scene.path("interrupted").exists()) {
        assert!(begun.elapsed() < DEADLINE);
        if let Ok(seen) = timeout(moment, agent.next()).await {
            let seen = seen.expect("the agent is alive").events;
            let is_end = |event: &Event| matches!(event, Event::TurnCompleted(_));
            assert!(!seen.iter().any(is_end), "{seen:?}");
        }
    }
}

/// Functions for a command that takes time to end.
const STUBBORN: &str = r#"
on_interrupt() { ok; completed interrupted; : > interrupted; }
stubborn() { CODEX_THREAD_ID=t quiet setsid sh -c 'trap "" TERM; sleep 661; sleep 662'; }
"#;

#[tokio::test]
async fn x101j_message_waits_for_the_end_of_old_commands() {
    let scene = Scene::new();
    let functions = format!(
        r#"{STUBBORN}
    work() {{
      if [ "$n" = 1 ]; then stubborn; delta half; else
        tool; CODEX_THREAD_ID=t quiet setsid sleep 663; completed completed; fi; }}"#
    );
    let mut agent = connect(&scene, &functions).await;
    agent.send(Message::new("one")).await.unwrap();
    until(&mut *agent, |event| matches!(event, Event::TextDelta(_))).await;
    scene.wait_for_program("sleep", "661");
    agent.interrupt(QueuedMessages::Keep).await.unwrap();
    until_cleaning(&scene, &mut *agent).await;
    agent.send(Message::new("two")).await.unwrap();
    // No turn runs, and a queued message is not interrupted.
    agent.interrupt(QueuedMessages::Keep).await.unwrap();
    let (events, end) = turn(&mut *agent).await;
    assert_eq!(end.reason, EndReason::Interrupted);
    for argument in ["661", "662"] {
        assert!(
            !sleeps(&scene, argument),
            "{argument} is still running: {events:?}"
        );
    }
    let (events, end) = turn(&mut *agent).await;
    assert_eq!(end.reason, EndReason::Completed, "{events:?}");
    scene.wait_for_program("sleep", "663");
    agent.stop(DEADLINE).await;
    scene.assert_no_process_left();
}

#[tokio::test]
async fn x101j_stop_during_command_cleanup_begins_no_turn() {
    let scene = Scene::new();
    // The agent accepts a message into its turn, and forgets it.
    let functions = format!(
        r#"{STUBBORN}
    on_steer() {{ ok '"turnId":"1"'; }}
    work() {{ echo begun >> log; stubborn; delta half; }}"#
    );
    let mut agent = connect(&scene, &functions).await;
    agent.send(Message::new("one")).await.unwrap();
    until(&mut *agent, |event| matches!(event, Event::TextDelta(_))).await;
    agent.send(Message::new("two")).await.unwrap();
    until(&mut *agent, |event| matches!(event, Event::Input { .. })).await;
    scene.wait_for_program("sleep", "661");
    agent.interrupt(QueuedMessages::Keep).await.unwrap();
    until_cleaning(&scene, &mut *agent).await;
    let report = agent.stop(DEADLINE).await;
    assert!(report.proven && report.survivors.is_empty(), "{report:?}");
    let log = std::fs::read_to_string(scene.path("log")).unwrap();
    assert_eq!(log, "begun\n");
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p23a_interrupt_of_a_turn_that_never_begins_ends_the_process() {
    let scene = Scene::new();
    let functions = r#"on_start() { ok '"turn":{"id":"1"}'; : > started; }"#;
    let mut agent = connect(&scene, functions).await;
    agent.send(Message::new("work")).await.unwrap();
    crate::scene::wait_for("the turn", || scene.path("started").exists());
    agent.interrupt(QueuedMessages::Keep).await.unwrap();
    let (_, end) = turn(&mut *agent).await;
    assert_eq!(end.reason, EndReason::Interrupted);
    assert!(end.exit.is_some(), "{end:?}");
    agent.stop(DEADLINE).await;
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p23a_ignored_interrupt_ends_the_process() {
    let scene = Scene::new();
    let functions = "trap 'exit 7' INT; work() { delta half; }; on_interrupt() { ok; }";
    let mut agent = connect(&scene, functions).await;
    agent.send(Message::new("work")).await.unwrap();
    until(&mut *agent, |event| matches!(event, Event::TextDelta(_))).await;
    agent.interrupt(QueuedMessages::Keep).await.unwrap();
    let (events, end) = turn(&mut *agent).await;
    assert_eq!(end.reason, EndReason::Interrupted);
    assert!(end.exit.is_some(), "{end:?}");
    let warnings = warnings(&events);
    assert!(
        warnings
            .iter()
            .any(|warning| warning.ends_with("sent SIGINT")),
        "{warnings:?}"
    );
    let gone = agent.send(Message::new("more")).await.unwrap_err();
    assert!(gone.is_gone(), "{gone}");
    agent.stop(DEADLINE).await;
    scene.assert_no_process_left();
}
