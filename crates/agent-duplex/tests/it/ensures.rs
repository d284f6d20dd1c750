//! Callers that wait for an agent get an answer, no matter which caller starts the agent and which events come in between.

use std::time::Duration;

use agent_duplex::scripted::{Gate, Script, ScriptedDriver};
use agent_duplex::{
    Conversation, EndReason, Error, Execution, Input, Lifecycle, MemoryPersistence, Mode,
    Persistence, SessionChoice,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::talk::{Talk, restarting, resumable, soon};

fn execute(conversation: &Conversation) -> JoinHandle<Result<Execution, Error>> {
    let conversation = conversation.clone();
    tokio::spawn(async move { conversation.execute(Input::new("mine")).await })
}

fn answers() -> Script {
    let script = Script::new().session("s").message().begin();
    script.say("done").end(EndReason::Completed)
}

#[tokio::test(start_paused = true)]
async fn x123a_an_execution_that_waits_in_a_pause_takes_the_agent_that_somebody_starts() {
    let crashes = Script::new().deaf(|| Error::gone("it crashed"));
    let driver = ScriptedDriver::new(resumable()).plays(crashes);
    let mut talk = Talk::restarting(driver.plays(answers()));
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
async fn x123a_an_execution_takes_the_agent_that_follows_the_one_that_is_closed() {
    let gate = Gate::new();
    let driver = ScriptedDriver::new(resumable()).plays(answers().closing(&gate));
    let mut talk = Talk::with(driver.plays(answers()));
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
async fn p44c_an_execution_that_waits_is_told_when_agents_are_given_up() {
    let gate = Gate::new();
    let fails = Script::new().message().begin().end(EndReason::Failed);
    let mut options = restarting();
    options.mode = Mode::OneShot;
    let policy = options.restart.as_mut().unwrap();
    (policy.most, policy.first_wait) = (1, Duration::ZERO);
    let driver = ScriptedDriver::new(resumable()).plays(fails.closing(&gate));
    let mut talk = Talk::limited(driver, options);
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
async fn p44b_agents_of_one_shot_that_fail_are_started_again_after_pauses() {
    let gates = [Gate::new(), Gate::new(), Gate::new()];
    let fails = |gate: &Gate| {
        let script = Script::new().message().begin().gate(gate);
        script.end(EndReason::Failed)
    };
    let mut options = restarting();
    options.mode = Mode::OneShot;
    options.restart.as_mut().unwrap().first_wait = Duration::from_secs(6);
    let driver = gates.iter().map(fails);
    let driver = driver.fold(ScriptedDriver::new(resumable()), ScriptedDriver::plays);
    let mut talk = Talk::limited(driver, options);
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
async fn l92b_an_agent_that_is_gone_is_handed_nothing_even_if_it_seems_to_take_it() {
    let dies = Script::new().message().over().held_open();
    let driver = ScriptedDriver::new(resumable()).plays(dies);
    let mut talk = Talk::with(driver.plays(answers()));
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
async fn x123a_an_execution_that_is_held_ends_when_nothing_can_be_kept() {
    let mut memory = MemoryPersistence::new();
    let driver = ScriptedDriver::new(resumable()).plays(answers());
    let (talk, _) = Talk::kept(driver, restarting(), memory.clone()).await;
    soon(talk.conversation.hold(true)).await.unwrap();
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
async fn p44b_a_pause_may_be_longer_than_clocks_count() {
    let mut options = restarting();
    let policy = options.restart.as_mut().unwrap();
    (policy.first_wait, policy.longest_wait) = (Duration::MAX, Duration::MAX);
    let crashes = Script::new().deaf(|| Error::gone("it crashed"));
    let driver = ScriptedDriver::new(resumable()).repeats(crashes);
    let mut talk = Talk::limited(driver, options);
    talk.send("one");
    talk.warned().await;
    tokio::time::advance(Duration::from_secs(1000)).await;
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.driver.sessions().len(), 1);
}
