//! Tests of a close: its waits, and the commands that work in the meantime.

use std::time::Duration;

use agent_duplex::scripted::{Latch, Script, ScriptedCall, ScriptedDriver};
use agent_duplex::{
    Conversation, Decision, EndReason, Event, ExitStatus, Lifecycle, PermissionRequest,
    Permissions, QueuedMessages, SessionChoice,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::{TestConversation, delta, soon, steered};

const BUDGET: Duration = Duration::from_secs(8);

fn close(conversation: &Conversation) -> JoinHandle<()> {
    let conversation = conversation.clone();
    tokio::spawn(async move { conversation.close().await })
}

/// Returns an agent that has finished its turn and runs a background task.
fn with_a_task() -> Script {
    let script = Script::new().message().begin();
    let script = script.observe(Event::BackgroundTasks(1));
    script.end(EndReason::Completed)
}

async fn after_its_turn(driver: ScriptedDriver) -> TestConversation {
    let mut talk = TestConversation::with(driver);
    talk.send("go");
    talk.start().await;
    talk.completed().await;
    talk
}

impl TestConversation {
    fn closes(&self) -> usize {
        let calls = self.driver.calls();
        calls
            .iter()
            .filter(|call| **call == ScriptedCall::Closed)
            .count()
    }
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_a_turn_for_bounded_time() {
    let script = Script::new().message().begin().observe(delta("x"));
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    talk.send("go");
    talk.start().await;
    talk.observed(delta("x")).await;
    talk.conversation.close().await;
    let completion = talk.completed().await;
    let end = completion.end.to_string();
    let told =
        "the turn was interrupted: the agent was closed before its turn ended (exit status 0)";
    assert_eq!(end, told);
    talk.becomes(Lifecycle::Idle).await;
}

#[tokio::test]
async fn close_waits_for_the_turn_and_keeps_queued_inputs() {
    let gate = Latch::new();
    let script = Script::new()
        .message()
        .wait_for_latch(&gate)
        .end(EndReason::Completed);
    let again = Script::new().message().end(EndReason::Completed);
    let driver = ScriptedDriver::new(agent_duplex::Capabilities::none());
    let mut talk = TestConversation::with(
        driver
            .with_script(script.leaves_process(7, "server"))
            .with_script(again),
    );
    talk.send("go");
    talk.start().await;
    talk.becomes(Lifecycle::InTurn).await;
    talk.send("later");
    let conversation = talk.conversation.clone();
    let close = tokio::spawn(async move { conversation.close().await });
    assert_eq!(
        soon(talk.conversation.leftovers()).await[0].to_string(),
        "7 (server)"
    );
    assert!(!talk.driver.calls().contains(&ScriptedCall::Closed));
    gate.open();
    soon(close).await.unwrap();
    talk.observed(Event::Exited(ExitStatus::Code(0))).await;
    assert_eq!(talk.conversation.pending().len(), 1);
    assert!(
        soon(talk.conversation.set_permissions(Permissions::All))
            .await
            .unwrap_err()
            .is_gone()
    );
    talk.start().await;
    talk.completed().await;
    let report = soon(talk.conversation.stop(Duration::ZERO)).await;
    assert_eq!(report.to_string(), "all processes ended");
}

#[tokio::test]
async fn x114b_background_tasks_are_awaited_and_answered() {
    let ask = Event::PermissionRequested(PermissionRequest {
        id: "a".into(),
        tool: "Bash".into(),
        summary: "make".into(),
        reason: "a task in the background".into(),
    });
    let (gate, over) = (Latch::new(), Latch::new());
    let script = with_a_task()
        .wait_for_latch(&gate)
        .observe(ask.clone())
        .answered();
    let script = script
        .wait_for_latch(&over)
        .observe(Event::BackgroundTasks(0));
    let driver = ScriptedDriver::new(steered()).with_script(script.leaves_process(7, "server"));
    let mut talk = after_its_turn(driver).await;
    let close = close(&talk.conversation);
    talk.becomes(Lifecycle::Idle).await;
    talk.send("later");
    soon(talk.conversation.freeze(true)).await.unwrap();
    soon(talk.conversation.freeze(false)).await.unwrap();
    assert_eq!(soon(talk.conversation.leftovers()).await.len(), 1);
    gate.open();
    talk.observed(ask).await;
    soon(talk.conversation.answer("a", Decision::Allow))
        .await
        .unwrap();
    talk.audit.answered("a");
    let answered = ScriptedCall::Answered("a".into(), Decision::Allow);
    assert_eq!(talk.driver.calls().last(), Some(&answered));
    assert!(!close.is_finished());
    over.open();
    soon(close).await.unwrap();
    talk.observed(Event::Exited(ExitStatus::Code(0))).await;
    assert_eq!(talk.driver.messages(), ["go"]);
    assert_eq!(talk.conversation.pending()[0].text, "later");
    assert_eq!(talk.driver.calls().last(), Some(&ScriptedCall::Closed));
}

#[tokio::test]
async fn x114b_turn_started_by_a_background_task_is_awaited() {
    let (gate, end) = (Latch::new(), Latch::new());
    let script = with_a_task().wait_for_latch(&gate);
    let script = script.observe(Event::TurnStarted { inputs: vec![] });
    let script = script
        .observe(Event::BackgroundTasks(0))
        .wait_for_latch(&end);
    let driver = ScriptedDriver::new(steered()).with_script(script.end(EndReason::Completed));
    let mut talk = after_its_turn(driver).await;
    let close = close(&talk.conversation);
    gate.open();
    talk.observed(Event::BackgroundTasks(0)).await;
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.closes(), 0);
    end.open();
    soon(close).await.unwrap();
    talk.completed().await;
    assert_eq!(talk.closes(), 1);
}

#[tokio::test(start_paused = true)]
async fn x114c_background_tasks_are_awaited_for_bounded_time() {
    let driver = ScriptedDriver::new(steered()).with_script(with_a_task());
    let mut talk = after_its_turn(driver).await;
    let before = Instant::now();
    talk.conversation.close().await;
    assert_eq!(before.elapsed().as_secs(), 30);
    talk.observed(Event::Exited(ExitStatus::Code(0))).await;
}

#[tokio::test(start_paused = true)]
async fn x114c_shortest_close_timeout_wins() {
    let driver = ScriptedDriver::new(steered()).with_script(with_a_task());
    let mut talk = after_its_turn(driver).await;
    let patient = close(&talk.conversation);
    talk.becomes(Lifecycle::Idle).await;
    let since = Instant::now();
    talk.conversation.close_within(Duration::from_secs(3)).await;
    patient.await.unwrap();
    // If the limits were added, the close would take longer.
    assert_eq!(since.elapsed().as_secs(), 3);
}

#[tokio::test]
async fn x114b_closing_agent_still_gets_answers() {
    let gate = Latch::new();
    let script = Script::new().message().begin().end(EndReason::Completed);
    let script = script.delays_close(&gate).leaves_process(7, "server");
    let mut talk = after_its_turn(ScriptedDriver::new(steered()).with_script(script)).await;
    let close = close(&talk.conversation);
    soon(
        talk.driver
            .wait_for_calls(|calls| calls.contains(&ScriptedCall::Closed)),
    )
    .await;
    soon(talk.conversation.interrupt(QueuedMessages::Keep))
        .await
        .unwrap();
    soon(talk.conversation.freeze(true)).await.unwrap();
    soon(talk.conversation.freeze(false)).await.unwrap();
    assert_eq!(soon(talk.conversation.leftovers()).await.len(), 1);
    assert!(!close.is_finished());
    gate.open();
    soon(close).await.unwrap();
    talk.observed(Event::Exited(ExitStatus::Code(0))).await;
    assert_eq!(talk.closes(), 1, "the same close continues");
}

#[tokio::test]
async fn stop_does_not_wait_for_a_close() {
    let scripts = [
        with_a_task(),
        Script::new()
            .message()
            .begin()
            .end(EndReason::Completed)
            .delays_close(&Latch::new()),
    ];
    for script in scripts {
        let driver = ScriptedDriver::new(steered()).with_script(script);
        let mut talk = after_its_turn(driver).await;
        let close = close(&talk.conversation);
        talk.becomes(Lifecycle::Idle).await;
        soon(talk.conversation.stop(BUDGET)).await;
        soon(close).await.unwrap();
        talk.read_all().await;
    }
}

#[tokio::test(start_paused = true)]
async fn suspended_agent_is_closed_after_it_continues() {
    let gate = Latch::new();
    let script = with_a_task()
        .wait_for_latch(&gate)
        .observe(Event::BackgroundTasks(0));
    let driver = ScriptedDriver::new(steered()).with_script(script);
    let mut talk = after_its_turn(driver).await;
    talk.conversation.freeze(true).await.unwrap();
    let close = close(&talk.conversation);
    talk.becomes(Lifecycle::Idle).await;
    tokio::time::advance(Duration::from_secs(600)).await;
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.closes(), 0);
    // After the thaw, the time limit of the close begins again.
    talk.conversation.freeze(false).await.unwrap();
    tokio::time::advance(Duration::from_secs(20)).await;
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.closes(), 0);
    gate.open();
    close.await.unwrap();
    assert_eq!(talk.closes(), 1);
}

#[tokio::test]
async fn start_waits_for_the_closing_agent() {
    let gate = Latch::new();
    let script = with_a_task()
        .wait_for_latch(&gate)
        .observe(Event::BackgroundTasks(0));
    let next = Script::new().message().end(EndReason::Completed);
    let driver = ScriptedDriver::new(steered())
        .with_script(script)
        .with_script(next);
    let mut talk = after_its_turn(driver).await;
    let close = close(&talk.conversation);
    talk.becomes(Lifecycle::Idle).await;
    talk.send("then");
    let conversation = talk.conversation.clone();
    let start = tokio::spawn(async move { conversation.start(SessionChoice::Fresh).await });
    soon(talk.conversation.leftovers()).await;
    let again = soon(talk.conversation.start(SessionChoice::Fresh)).await;
    assert!(
        again.unwrap_err().is_start_failure(),
        "only one start may wait"
    );
    assert_eq!(talk.driver.messages(), ["go"]);
    gate.open();
    soon(close).await.unwrap();
    soon(start).await.unwrap().unwrap();
    talk.completed().await;
    assert_eq!(talk.driver.messages(), ["go", "then"]);
}
