//! Tests of the end of an agent: between turns, and with everything that it started.

use super::*;
use agent_duplex::{
    Conversation, ConversationEvent, ConversationOptions, Decision, ExitStatus, Input, Permissions,
    Primary, StopStage,
};
use std::time::Duration;

async fn closed(functions: &str) -> (Scene, Vec<Event>) {
    let scene = Scene::new();
    let mut connection = connect(&scene, functions).await;
    connection.send(Message::new("hello")).await.unwrap();
    turn(&mut *connection).await;
    timeout(DEADLINE, connection.close()).await.unwrap();
    let leftovers = connection.leftovers().await;
    assert!(
        leftovers.iter().all(|left| left.name == "sleep"),
        "{leftovers:?}"
    );
    let rest = rest(&mut *connection).await;
    drop(connection.stop(Duration::from_secs(4)).await);
    scene.assert_no_process_left();
    (scene, rest)
}

#[tokio::test]
async fn x114a_agent_is_ended_by_the_gentlest_working_stage() {
    let (asked, eof, term, kill) = tokio::join!(
        closed(""),
        closed("on_end() { :; }"),
        closed("on_end() { while :; do sleep 0.1; done; }"),
        closed("trap '' TERM; on_end() { while :; do sleep 0.1; done; }"),
    );
    assert_eq!(asked.1, [Event::Exited(ExitStatus::Code(0))]);
    assert_eq!(eof.1, [Event::Exited(ExitStatus::Code(0))]);
    assert_eq!(term.1, [Event::Exited(ExitStatus::Signal(libc::SIGTERM))]);
    assert_eq!(kill.1, [Event::Exited(ExitStatus::Signal(libc::SIGKILL))]);
}

/// A frozen agent can't answer an interrupt, so a stop would only lose time with it.
#[tokio::test]
async fn frozen_agent_is_stopped_without_an_interrupt() {
    let scene = Scene::new();
    let script = "trap '' TERM; on_user() { begin; delta end; }
on_interrupt() { echo interrupt >> order; }
on_end() { echo end >> order; ok; exit 0; }";
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("go on")).await.unwrap();
    let begin = until(&mut *connection, |e| matches!(e, Event::TextDelta(_))).await;
    let Event::Started { pid } = begin[0] else {
        panic!("{begin:?}")
    };
    connection.freeze(true).await.unwrap();
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    crate::scene::wait_for("the agent is frozen", || stat().contains(") T "));
    connection.stop(Duration::from_secs(4)).await;
    let order = std::fs::read_to_string(scene.path("order")).unwrap();
    assert_eq!(order, "end\n");
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p30_x114b_background_tasks_are_awaited_and_may_ask() {
    let scene = Scene::new();
    let script = r#"
tasks() { say '{"type":"system","subtype":"background_tasks_changed","tasks":['$1']}'; }
on_user() { begin; tasks '{"task_id":"b"}'; result completed; }
on_other() { case $line in
  *set_permission_mode*) ok; say '{"type":"control_request","request_id":"a1","request":{"subtype":"can_use_tool","tool_name":"Bash","agent_id":"b","input":{"command":"make"}}}' ;;
  *'"a1"'*) echo answered >> order; tasks ;;
esac; }
on_end() { echo end >> order; ok; exit 0; }"#;
    let driver = Box::new(driver(&scene, script));
    let (conversation, mut primary) =
        Conversation::with_primary(driver, ConversationOptions::default().with_manual_start());
    conversation.send(Input::new("hello")).unwrap();
    conversation.start(SessionChoice::Fresh).await.unwrap();
    let mut events = published(&mut primary, |what| {
        matches!(what, ConversationEvent::Completed(_))
    })
    .await;
    let close = tokio::spawn({
        let conversation = conversation.clone();
        async move { conversation.close().await }
    });
    // The agent asks only now. A close that does not wait would already have ended the agent.
    let permissions = conversation.set_permissions(Permissions::Deny).await;
    permissions.unwrap();
    let asked = |what: &ConversationEvent| matches!(what, ConversationEvent::Observed(seen) if matches!(seen.events[..], [Event::PermissionRequested(_)]));
    events.extend(published(&mut primary, asked).await);
    conversation.freeze(true).await.unwrap();
    conversation.freeze(false).await.unwrap();
    assert!(conversation.leftovers().await.is_empty());
    conversation.answer("a1", Decision::Allow).await.unwrap();
    timeout(DEADLINE, close).await.unwrap().unwrap();
    let order = std::fs::read_to_string(scene.path("order")).unwrap();
    assert_eq!(order, "answered\nend\n");
    conversation.stop(Duration::from_secs(4)).await;
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p30_x114b_turn_after_a_background_task_is_awaited() {
    let scene = Scene::new();
    let script = r#"
tasks() { say '{"type":"system","subtype":"background_tasks_changed","tasks":['$1']}'; }
on_user() { begin; tasks '{"task_id":"b"}'; result completed; }
on_other() { ok; say '{"type":"system","subtype":"task_notification","task_id":"b","status":"completed"}'; tasks; ( sleep 0.3; begin; echo looked >> order; result completed ) & }
on_end() { echo end >> order; ok; exit 0; }"#;
    let driver = Box::new(driver(&scene, script));
    let (conversation, mut primary) =
        Conversation::with_primary(driver, ConversationOptions::default().with_manual_start());
    conversation.send(Input::new("hello")).unwrap();
    conversation.start(SessionChoice::Fresh).await.unwrap();
    published(&mut primary, |what| {
        matches!(what, ConversationEvent::Completed(_))
    })
    .await;
    let close = tokio::spawn({
        let conversation = conversation.clone();
        async move { conversation.close().await }
    });
    // The task of the agent ends only now.
    let permissions = conversation.set_permissions(Permissions::Deny).await;
    permissions.unwrap();
    published(&mut primary, |what| {
        matches!(what, ConversationEvent::Completed(_))
    })
    .await;
    timeout(DEADLINE, close).await.unwrap().unwrap();
    let order = std::fs::read_to_string(scene.path("order")).unwrap();
    assert_eq!(order, "looked\nend\n");
    conversation.stop(Duration::from_secs(4)).await;
    scene.assert_no_process_left();
}

/// Reads until an event for which `last` holds.
async fn published(
    primary: &mut Primary,
    last: impl Fn(&ConversationEvent) -> bool,
) -> Vec<ConversationEvent> {
    let mut all = Vec::new();
    while let Some(published) = timeout(DEADLINE, primary.next()).await.unwrap() {
        all.push(published.event);
        if all.last().is_some_and(&last) {
            return all;
        }
    }
    panic!("the event never came: {all:?}");
}

#[tokio::test]
async fn x114a_close_waits_for_no_task_and_resumes_after_a_drop() {
    let scene = Scene::new();
    let script = r#"
trap '' TERM
on_user() { begin; say '{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_id":"b"}]}'; result completed; }
on_end() { echo end >> order; while :; do sleep 0.1; done; }"#;
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("hello")).await.unwrap();
    turn(&mut *connection).await;
    let glance = Duration::from_millis(20);
    let start = std::time::Instant::now();
    while timeout(glance, connection.close()).await.is_err() {
        assert!(start.elapsed() < DEADLINE, "the end must continue");
        connection.leftovers().await;
        connection.answer("nothing", Decision::Allow).await.unwrap();
    }
    let order = std::fs::read_to_string(scene.path("order")).unwrap();
    assert_eq!(order, "end\n", "each method must be used once");
    assert_eq!(
        rest(&mut *connection).await,
        [Event::Exited(ExitStatus::Signal(libc::SIGKILL))]
    );
    // The guard exits a moment later, when it has seen that no process is left.
    connection.stop(Duration::from_secs(4)).await;
    scene.assert_no_process_left();
}

#[tokio::test]
async fn x114a_close_spares_leftovers() {
    let scene = Scene::new();
    let script = "on_user() { begin; setsid sleep 620 >/dev/null 2>&1 & result completed; }";
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("hello")).await.unwrap();
    turn(&mut *connection).await;
    scene.wait_for_program("sleep", "620");
    connection.close().await;
    assert_eq!(rest(&mut *connection).await.len(), 1);
    assert_eq!(connection.leftovers().await.len(), 1);
    let report = connection.stop(DEADLINE).await;
    assert_eq!(report.to_string(), "all processes ended");
    scene.assert_no_process_left();
}

#[tokio::test]
async fn stop_interrupts_the_turn_first_and_keeps_its_text() {
    let scene = Scene::new();
    let script = r#"on_user() { begin; delta half; setsid sleep 621 & }
on_interrupt() { echo interrupt >> order; ok '"still_queued":[]'; result aborted_tools; }
on_end() { echo end >> order; ok; exit 0; }"#;
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("hello")).await.unwrap();
    until(&mut *connection, |e| matches!(e, Event::TextDelta(_))).await;
    scene.wait_for_program("sleep", "621");
    let report = connection.stop(Duration::from_secs(8)).await;
    assert_eq!(
        connection.stop(Duration::from_secs(8)).await,
        report,
        "a second stop must return the same report"
    );
    let order = std::fs::read_to_string(scene.path("order")).unwrap();
    assert_eq!(order, "interrupt\nend\n");
    assert!(
        report.proven && report.survivors.is_empty() && report.ended.len() >= 2,
        "{report:?}"
    );
    let (events, end) = turn(&mut *connection).await;
    assert_eq!(end.reason, EndReason::Interrupted);
    let kept = Event::Message {
        text: "half".to_owned(),
        partial: true,
    };
    assert!(events.contains(&kept), "{events:?}");
    assert_eq!(
        rest(&mut *connection).await,
        [Event::Exited(ExitStatus::Code(0))]
    );
    assert!(
        connection
            .send(Message::new("more"))
            .await
            .unwrap_err()
            .is_gone()
    );
    connection.stop(Duration::from_secs(4)).await;
    scene.assert_no_process_left();
}

#[tokio::test]
async fn l90e_l90f_stop_reports_the_stage_that_worked() {
    tokio::join!(
        idle_agent_ends_by_each_stage(),
        turn_ends_by_the_interrupt(),
        stop_kills_agent_that_ignores_everything(),
    );
}

async fn idle_agent_ends_by_each_stage() {
    let idle = |functions: &'static str| async move {
        let scene = Scene::new();
        let mut connection = connect(&scene, functions).await;
        let report = connection.stop(Duration::from_secs(4)).await;
        assert_eq!(report.survivors, []);
        assert!(
            report.ended.iter().any(|ended| ended.name == "sh"),
            "{report:?}"
        );
        scene.assert_no_process_left();
        report.stage
    };
    let (asked, eof, term, kill) = tokio::join!(
        idle(""),
        idle("on_end() { :; }"),
        idle("on_end() { while :; do sleep 0.1; done; }"),
        idle("trap '' TERM; on_end() { while :; do sleep 0.1; done; }"),
    );
    let expected = [
        StopStage::CloseInput,
        StopStage::CloseInput,
        StopStage::Terminate,
        StopStage::Kill,
    ];
    assert_eq!([asked, eof, term, kill], expected);
}

async fn turn_ends_by_the_interrupt() {
    let scene = Scene::new();
    let script = "on_user() { begin; delta half; }; on_interrupt() { exit 0; }";
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("hello")).await.unwrap();
    until(&mut *connection, |e| matches!(e, Event::TextDelta(_))).await;
    let report = connection.stop(Duration::from_secs(8)).await;
    assert_eq!(report.stage, StopStage::Interrupt);
    assert_eq!(report.to_string(), "all processes ended");
    let (_, end) = turn(&mut *connection).await;
    assert_eq!(end.reason, EndReason::Interrupted);
}

/// Stops an agent that ignores everything, in a turn that has not ended.
async fn stop_kills_agent_that_ignores_everything() {
    let scene = Scene::new();
    let script = "trap '' TERM INT; on_user() { begin; delta half; while :; do sleep 0.1; done; }";
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("hello")).await.unwrap();
    connection.send(Message::new("never read")).await.unwrap();
    until(&mut *connection, |e| matches!(e, Event::TextDelta(_))).await;
    let report = connection.stop(Duration::from_secs(3)).await;
    assert_eq!((report.stage, report.survivors.len()), (StopStage::Kill, 0));
    let (_, end) = turn(&mut *connection).await;
    assert_eq!(end.reason, EndReason::Interrupted);
    assert_eq!(end.exit, Some(ExitStatus::Signal(libc::SIGKILL)));
    assert_eq!(rest(&mut *connection).await, []);
    scene.assert_no_process_left();
}
