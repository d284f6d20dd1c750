//! Callers that wait for an agent get an answer, no matter which caller starts the agent and which events come in between.

use std::time::Duration;

use agent_duplex::scripted::{Latch, Script, ScriptedDriver};
use agent_duplex::{
    Conversation, EndReason, Error, Execution, Input, Lifecycle, MemoryPersistence, Mode,
    Persistence, SessionChoice,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::{TestConversation, restarting, resumable, soon};

fn execute(conversation: &Conversation) -> JoinHandle<Result<Execution, Error>> {
    let conversation = conversation.clone();
    tokio::spawn(async move { conversation.execute(Input::new("mine")).await })
}

fn answers() -> Script {
    let script = Script::new().session("s").message().begin();
    script.report_message("done").end(EndReason::Completed)
}

#[tokio::test(start_paused = true)]
async fn x123a_execution_waiting_in_a_pause_uses_the_next_started_agent() {
    let crashes = Script::new().refuses_all_messages(|| Error::agent_gone("it crashed"));
    let driver = ScriptedDriver::new(resumable()).with_script(crashes);
    let mut talk = TestConversation::restarting(driver.with_script(answers()));
    talk.send("one");
    talk.warned().await;
    let execution = execute(&talk.conversation);
    tokio::task::yield_now().await;
    soon(talk.conversation.leftovers()).await;
    talk.start().await;
    assert!(soon(execution).await.unwrap().is_ok());
    assert_eq!(talk.driver.sessions().len(), 2);
}

#[tokio::test]
async fn x123a_execution_uses_the_agent_after_the_closing_one() {
    let gate = Latch::new();
    let driver = ScriptedDriver::new(resumable()).with_script(answers().delays_close(&gate));
    let mut talk = TestConversation::with(driver.with_script(answers()));
    talk.send("one");
    talk.start().await;
    talk.completed().await;
    let conversation = talk.conversation.clone();
    let close = tokio::spawn(async move { conversation.close().await });
    tokio::task::yield_now().await;
    let execution = execute(&talk.conversation);
    tokio::task::yield_now().await;
    let conversation = talk.conversation.clone();
    let start = tokio::spawn(async move { conversation.start(SessionChoice::Fresh).await });
    tokio::task::yield_now().await;
    soon(talk.conversation.leftovers()).await;
    gate.open();
    soon(close).await.unwrap();
    soon(start).await.unwrap().unwrap();
    let mut execution = soon(execution).await.unwrap().unwrap();
    while soon(execution.next()).await.is_some() {}
    assert!(execution.completion().is_some());
}

#[tokio::test]
async fn p44c_waiting_execution_fails_when_agents_are_given_up() {
    let gate = Latch::new();
    let fails = Script::new().message().begin().end(EndReason::Failed);
    let mut options = restarting();
    options.mode = Mode::OneShot;
    let policy = options.restart.as_mut().unwrap();
    (policy.max_starts, policy.first_wait) = (1, Duration::ZERO);
    let driver = ScriptedDriver::new(resumable()).with_script(fails.delays_close(&gate));
    let mut talk = TestConversation::limited(driver, options);
    talk.send("one");
    talk.completed().await;
    let execution = execute(&talk.conversation);
    tokio::task::yield_now().await;
    soon(talk.conversation.leftovers()).await;
    gate.open();
    let refused = soon(execution).await.unwrap().unwrap_err();
    assert!(refused.is_crash_loop(), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn p44b_failed_one_shot_agents_restart_after_pauses() {
    let gates = [Latch::new(), Latch::new(), Latch::new()];
    let fails = |gate: &Latch| {
        let script = Script::new().message().begin().wait_for_latch(gate);
        script.end(EndReason::Failed)
    };
    let mut options = restarting();
    options.mode = Mode::OneShot;
    options.restart.as_mut().unwrap().first_wait = Duration::from_secs(6);
    let driver = gates.iter().map(fails);
    let driver = driver.fold(
        ScriptedDriver::new(resumable()),
        ScriptedDriver::with_script,
    );
    let mut talk = TestConversation::limited(driver, options);
    let began = Instant::now();
    let mut started = Vec::new();
    talk.send("go");
    for (n, gate) in gates.iter().enumerate() {
        talk.becomes(Lifecycle::Starting).await;
        started.push(began.elapsed().as_secs());
        talk.becomes(Lifecycle::InTurn).await;
        if n < 2 {
            talk.send("next");
        }
        gate.open();
        talk.completed().await;
    }
    let pauses = [started[1] - started[0], started[2] - started[1]];
    assert!(pauses[0] >= 6 && pauses[1] >= 12, "{pauses:?}");
    talk.warns("3 times in a row").await;
}

#[tokio::test]
async fn l92b_dead_agent_takes_no_input() {
    let dies = Script::new().message().ends().accepts_after_end();
    let driver = ScriptedDriver::new(resumable()).with_script(dies);
    let mut talk = TestConversation::with(driver.with_script(answers()));
    talk.send("one");
    talk.start().await;
    assert_eq!(talk.completed().await.end.reason, EndReason::Died);
    talk.becomes(Lifecycle::Idle).await;
    talk.send("two");
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.driver.messages(), ["one"]);
    assert_eq!(talk.conversation.pending().len(), 1);
    talk.start().await;
    assert_eq!(talk.completed().await.end.reason, EndReason::Completed);
    assert_eq!(talk.driver.messages(), ["one", "two"]);
}

#[tokio::test]
async fn x123a_held_execution_ends_when_storage_fails() {
    let mut memory = MemoryPersistence::new();
    let driver = ScriptedDriver::new(resumable()).with_script(answers());
    let (talk, _) = TestConversation::stored(driver, restarting(), memory.clone()).await;
    soon(talk.conversation.pause_delivery(true)).await.unwrap();
    let executed = talk.conversation.execute(Input::new("mine"));
    let mut execution = soon(executed).await.unwrap();
    soon(talk.conversation.accept(Input::new("kept")))
        .await
        .unwrap();
    memory.recover().unwrap();
    let fenced = soon(talk.conversation.accept(Input::new("lost"))).await;
    assert!(fenced.unwrap_err().is_persistence());
    while soon(execution.next()).await.is_some() {}
    assert!(execution.completion().is_none());
}

#[tokio::test(start_paused = true)]
async fn p44b_pause_beyond_the_clock_range_is_accepted() {
    let mut options = restarting();
    let policy = options.restart.as_mut().unwrap();
    (policy.first_wait, policy.max_wait) = (Duration::MAX, Duration::MAX);
    let crashes = Script::new().refuses_all_messages(|| Error::agent_gone("it crashed"));
    let driver = ScriptedDriver::new(resumable()).with_repeating_script(crashes);
    let mut talk = TestConversation::limited(driver, options);
    talk.send("one");
    talk.warned().await;
    tokio::time::advance(Duration::from_secs(1000)).await;
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.driver.sessions().len(), 1);
}
