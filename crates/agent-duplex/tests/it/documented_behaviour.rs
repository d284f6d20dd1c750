//! Expectations of a new user after reading the documentation.

use std::time::Duration;

use agent_duplex::scripted::{Latch, Script, ScriptedDriver};
use agent_duplex::{
    Conversation, ConversationEvent, ConversationOptions, EndReason, Error, Event, ExitStatus,
    Input, Lifecycle, MemoryPersistence, Persistence, RestartPolicy, SessionChoice, TurnEnd,
};
use tokio::task::JoinHandle;

use crate::support::{TestConversation, delta, restarting, resumable, soon, warning};

fn answers() -> Script {
    Script::new()
        .message()
        .begin()
        .report_message("done")
        .end(EndReason::Completed)
}

fn drained(conversation: &Conversation) -> JoinHandle<Result<(), Error>> {
    let conversation = conversation.clone();
    tokio::spawn(async move { conversation.wait_until_idle().await })
}

#[tokio::test]
async fn l85c_inputs_of_an_unfinished_turn_are_recovered_once() {
    let mut memory = MemoryPersistence::new();
    let script = Script::new().message().begin().observe(delta("half"));
    let driver = ScriptedDriver::new(resumable()).with_script(script);
    let (mut talk, _) = TestConversation::stored(driver, restarting(), memory.clone()).await;
    let receipt = talk.conversation.accept(Input::new("one"));
    let receipt = soon(receipt).await.unwrap();
    talk.audit.accepted(&receipt);
    talk.observed(delta("half")).await;
    let recovered = memory.recover().unwrap();
    let [cut] = &recovered.interrupted[..] else {
        panic!("{recovered:?}");
    };
    assert_eq!((cut.turn.to_string(), cut.inputs.len()), ("1".into(), 1));
    let (kept, input) = &cut.inputs[0];
    assert_eq!((kept.id, input.text.as_str()), (receipt.id, "one"));
    assert_eq!(memory.recover().unwrap().interrupted, []);
}

#[tokio::test(start_paused = true)]
async fn l92a_session_is_resumable_from_the_first_output() {
    for piece in [delta("let"), Event::ThinkingDelta("hm".into())] {
        let begun = Script::new().session("s").message().begin().observe(piece);
        let driver = ScriptedDriver::new(resumable()).with_script(begun.ends());
        let mut talk = TestConversation::restarting(driver.with_script(answers()));
        talk.send("one");
        talk.completed().await;
        talk.send("two");
        talk.completed().await;
        let resumed = SessionChoice::Resume("s".into());
        assert_eq!(talk.driver.sessions(), [SessionChoice::Fresh, resumed]);
    }
}

#[tokio::test(start_paused = true)]
async fn p44c_crash_loop_state_has_a_cause() {
    let missing: fn() -> Error = || Error::start("no such agent", None);
    let dies: fn(&[agent_duplex::Message]) -> agent_duplex::Observation = |_| {
        let end = TurnEnd {
            detail: "out of memory".into(),
            exit: Some(ExitStatus::Signal(9)),
            ..EndReason::Died.into()
        };
        Event::TurnCompleted(end).into()
    };
    let exits = || Script::new().observe(Event::Exited(ExitStatus::Code(3)));
    let scripts = [
        Script::new().fails(missing),
        Script::new().message().begin().make(dies).ends(),
        exits()
            .refuses_all_messages(|| Error::agent_gone("it crashed"))
            .ends(),
        exits().refuses(Some(|| Error::full("its pipe"))).ends(),
        Script::new()
            .fails_after_connect(missing)
            .report_after_stop(Event::Exited(ExitStatus::Code(3))),
    ];
    let mut texts = Vec::new();
    for script in scripts {
        let policy = RestartPolicy::default()
            .with_max_starts(1)
            .with_waits(Duration::ZERO, Duration::ZERO);
        let options = ConversationOptions::default().with_restart(policy);
        let driver = ScriptedDriver::new(resumable()).with_script(script);
        let mut talk = TestConversation::limited(driver.with_script(answers()), options);
        talk.send("one");
        talk.becomes(Lifecycle::CrashLoop).await;
        let refused = talk.conversation.send(Input::new("two")).unwrap_err();
        assert!(refused.is_crash_loop());
        texts.push(refused.to_string());
        assert_eq!(talk.read.iter().filter_map(warning).count(), 1);
        talk.start().await;
        talk.becomes(Lifecycle::Ready).await;
    }
    insta::assert_snapshot!(texts.join("\n"), @r"
    the agent was started once without completing a turn (no such agent); fix the cause, then start the agent
    the agent was started once without completing a turn (the agent ended before its turn did: out of memory (killed by signal 9)); fix the cause, then start the agent
    the agent was started once without completing a turn (the agent is gone: it crashed); fix the cause, then start the agent
    the agent was started once without completing a turn (the agent ended before its turn did (exit status 3)); fix the cause, then start the agent
    the agent was started once without completing a turn (no such agent); fix the cause, then start the agent
    ");
}

#[tokio::test]
async fn an_agent_that_died_is_not_reported_as_ready() {
    let dies = answers().message().begin().end(EndReason::Died);
    let gate = Latch::new();
    let mut talk = TestConversation::with(
        ScriptedDriver::new(resumable()).with_script(dies.wait_for_latch(&gate).ends()),
    );
    talk.start().await;
    talk.send("one");
    talk.completed().await;
    talk.becomes(Lifecycle::Ready).await;
    talk.send("two");
    assert_eq!(talk.completed().await.end.reason, EndReason::Died);
    gate.open();
    talk.send("three");
    let next = talk.read_until(|what| matches!(what, ConversationEvent::Lifecycle(_)));
    assert_eq!(next.await, ConversationEvent::Lifecycle(Lifecycle::Idle));
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.driver.messages(), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn driver_that_continues_after_a_death_gets_its_inputs_later() {
    let goes_on = Script::new().message().begin().end(EndReason::Died);
    let goes_on = goes_on.message().begin().end(EndReason::Completed);
    let mut talk = TestConversation::with(ScriptedDriver::new(resumable()).with_script(goes_on));
    talk.start().await;
    talk.send("one");
    talk.completed().await;
    talk.send("two");
    assert_eq!(talk.completed().await.end.reason, EndReason::Completed);
}

#[tokio::test]
async fn all_inputs_can_be_awaited() {
    let gate = Latch::new();
    let script = answers().message().begin().wait_for_latch(&gate);
    let script = script.end(EndReason::Completed);
    let mut talk = TestConversation::with(ScriptedDriver::new(resumable()).with_script(script));
    soon(talk.conversation.wait_until_idle()).await.unwrap();
    talk.send("one");
    let done = drained(&talk.conversation);
    talk.start().await;
    soon(done).await.unwrap().unwrap();
    assert_eq!(talk.completed().await.turn.to_string(), "1");
    talk.send("two");
    let done = drained(&talk.conversation);
    talk.becomes(Lifecycle::InTurn).await;
    soon(talk.conversation.leftovers()).await;
    assert!(!done.is_finished());
    gate.open();
    soon(done).await.unwrap().unwrap();
    talk.completed().await;
    soon(talk.conversation.pause_delivery(true)).await.unwrap();
    talk.send("three");
    let done = drained(&talk.conversation);
    soon(talk.conversation.stop(Duration::ZERO)).await;
    assert!(soon(done).await.unwrap().unwrap_err().is_gone());
}

#[tokio::test(start_paused = true)]
async fn inputs_after_crash_loop_are_not_awaited() {
    let missing: fn() -> Error = || Error::start("no such agent", None);
    let driver =
        ScriptedDriver::new(resumable()).with_repeating_script(Script::new().fails(missing));
    let mut talk = TestConversation::restarting(driver);
    talk.send("one");
    let waited = talk.conversation.wait_until_idle().await;
    assert!(waited.unwrap_err().is_crash_loop());
}

#[tokio::test]
async fn l85c_inputs_executed_in_a_stored_conversation_are_durable() {
    let mut memory = MemoryPersistence::new();
    let driver = ScriptedDriver::new(resumable()).with_repeating_script(answers());
    let (talk, _) = TestConversation::stored(driver, restarting(), memory.clone()).await;
    let mut execution = soon(talk.conversation.execute(Input::new("one")))
        .await
        .unwrap();
    assert!(execution.receipt().durable);
    while soon(execution.next()).await.is_some() {}
    assert_eq!(
        execution.completion().unwrap().end.reason,
        EndReason::Completed
    );
    memory.recover().unwrap();
    let fenced = soon(talk.conversation.execute(Input::new("two"))).await;
    assert!(fenced.unwrap_err().is_persistence());
}

#[tokio::test(start_paused = true)]
async fn p44c_silent_agents_are_restarted_and_given_up() {
    let dies = Script::new().message().ends().accepts_after_end();
    let driver = ScriptedDriver::new(resumable()).with_repeating_script(dies);
    let mut talk = TestConversation::restarting(driver);
    for nth in 1..=3 {
        talk.send("go");
        let completion = talk.completed().await;
        assert_eq!(completion.end.reason, EndReason::Died);
        assert_eq!(talk.driver.sessions().len(), nth);
    }
    talk.becomes(Lifecycle::CrashLoop).await;
    assert_eq!(talk.driver.messages().len(), 3);
}
