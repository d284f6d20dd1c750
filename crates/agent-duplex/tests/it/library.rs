//! Typical uses of a conversation: one prompt and its answer, an agent for one turn, a pause.

use std::time::Duration;

use agent_duplex::scripted::{Latch, Script, ScriptedCall, ScriptedDriver};
use agent_duplex::{
    Capabilities, ConversationEvent, ConversationOptions, EndReason, Error, Event, Execution,
    Input, InputState, Lifecycle, Mode, QueuedMessages, SessionChoice,
};

use crate::support::{TestConversation, delta, resumable, soon, steered};

async fn texts(execution: &mut Execution) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(published) = soon(execution.next()).await {
        texts.push(match published.expect("the reader is fast enough").event {
            ConversationEvent::Assigned(assignment) => format!("assigned {}", assignment.turn),
            ConversationEvent::Completed(completion) => completion.end.reason.to_string(),
            ConversationEvent::Observed(seen) => format!("{:?}", seen.events),
            what => format!("{what:?}"),
        });
    }
    texts
}

fn turn(script: Script, text: &str) -> Script {
    script
        .message()
        .begin()
        .report_message(text)
        .end(EndReason::Completed)
}

#[tokio::test]
async fn x123a_execution_streams_its_turn() {
    let script = turn(turn(Script::new().session("s"), "one"), "two").ends();
    let driver = ScriptedDriver::new(resumable()).with_script(script);
    let talk = TestConversation::with(driver.with_script(turn(Script::new(), "three")));
    for text in ["one", "two", "three"] {
        let mut execution = soon(talk.conversation.execute(Input::new(text)))
            .await
            .unwrap();
        assert!(execution.completion().is_none());
        let read = texts(&mut execution).await;
        assert!(read[0].starts_with("assigned"), "{read:?}");
        assert!(read.iter().any(|read| read.contains(text)), "{read:?}");
        assert_eq!(read.last().unwrap(), "the turn was completed");
        let completion = execution.completion().expect("the completion was read");
        assert_eq!(completion.end.reason, EndReason::Completed);
        assert!(!execution.receipt().durable);
        if text == "two" {
            // The agent is gone; the next execution starts another agent in its session.
            while talk.conversation.lifecycle() != Lifecycle::Idle {
                tokio::task::yield_now().await;
            }
        }
    }
    let sessions = [SessionChoice::Fresh, SessionChoice::Resume("s".into())];
    assert_eq!(talk.driver.sessions(), sessions);
}

#[tokio::test]
async fn x123a_execution_during_a_turn_waits_for_its_own_turn() {
    let gate = Latch::new();
    let script = Script::new()
        .message()
        .begin()
        .wait_for_latch(&gate)
        .end(EndReason::Completed);
    let script = turn(script, "mine");
    let mut talk =
        TestConversation::with(ScriptedDriver::new(Capabilities::none()).with_script(script));
    talk.send("go");
    talk.start().await;
    let mut execution = soon(talk.conversation.execute(Input::new("then")))
        .await
        .unwrap();
    gate.open();
    let read = texts(&mut execution).await;
    assert_eq!(read[0], "assigned 2");
    assert!(read.iter().any(|read| read.contains("mine")));
}

#[tokio::test]
async fn x123a_execution_ends_with_any_fate_of_its_agent() {
    // The agent dies in the turn, or before it got the input, or everything is stopped.
    let died = Script::new().message().begin().ends();
    let talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(died));
    let mut execution = soon(talk.conversation.execute(Input::new("go")))
        .await
        .unwrap();
    texts(&mut execution).await;
    let completion = execution.completion().expect("the completion was read");
    assert_eq!(completion.end.reason, EndReason::Died);

    let gate = Latch::new();
    let died = Script::new().message().begin().wait_for_latch(&gate).ends();
    let mut talk =
        TestConversation::with(ScriptedDriver::new(Capabilities::none()).with_script(died));
    talk.send("go");
    talk.start().await;
    let mut execution = soon(talk.conversation.execute(Input::new("then")))
        .await
        .unwrap();
    gate.open();
    let read = texts(&mut execution).await;
    assert_eq!(read.len(), 1, "{read:?}");
    assert!(read[0].contains("no agent runs"), "{read:?}");
    assert!(execution.completion().is_none());
    assert!(talk.conversation.pending().is_empty());

    let talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(Script::new()));
    soon(talk.conversation.pause_delivery(true)).await.unwrap();
    let mut execution = soon(talk.conversation.execute(Input::new("go")))
        .await
        .unwrap();
    soon(talk.conversation.stop(Duration::ZERO)).await;
    assert!(texts(&mut execution).await.is_empty());
    let over = soon(talk.conversation.execute(Input::new("go"))).await;
    assert!(over.unwrap_err().is_gone());
}

#[tokio::test]
async fn x123b_one_shot_agent_is_closed_after_its_turn() {
    let gate = Latch::new();
    let driver = ScriptedDriver::new(resumable())
        .with_script(turn(
            Script::new().session("s").wait_for_latch(&gate),
            "one",
        ))
        .with_script(turn(Script::new().session("s"), "two"));
    let options = ConversationOptions::default().with_mode(Mode::OneShot);
    let mut talk = TestConversation::limited(driver, options);
    talk.send("one");
    // Even an agent that can be steered gets only one message.
    talk.becomes(Lifecycle::InTurn).await;
    talk.send("two");
    gate.open();
    for pending in [1, 0] {
        assert_eq!(talk.completed().await.pending, pending);
    }
    soon(
        talk.driver.wait_for_calls(|calls| {
            calls.iter().filter(|c| **c == ScriptedCall::Closed).count() == 2
        }),
    )
    .await;
    assert_eq!(talk.driver.messages(), ["one", "two"]);
    let sessions = [SessionChoice::Fresh, SessionChoice::Resume("s".into())];
    assert_eq!(talk.driver.sessions(), sessions);
}

#[tokio::test]
async fn x123c_paused_delivery_keeps_agent_and_session() {
    let script = Script::new()
        .message()
        .begin()
        .observe(delta("x"))
        .interrupted();
    let script = turn(script.end(EndReason::Interrupted), "then");
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    talk.send("go");
    talk.start().await;
    talk.observed(delta("x")).await;
    soon(talk.conversation.pause_delivery(true)).await.unwrap();
    talk.send("then");
    let interrupt = tokio::spawn(talk.conversation.interrupt(QueuedMessages::Keep));
    assert_eq!(talk.completed().await.pending, 1);
    soon(interrupt).await.unwrap().unwrap();
    talk.becomes(Lifecycle::Ready).await;
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.driver.messages(), ["go"]);
    soon(talk.conversation.pause_delivery(false)).await.unwrap();
    assert_eq!(talk.completed().await.end.reason, EndReason::Completed);
    assert_eq!(talk.driver.messages(), ["go", "then"]);
    assert_eq!(talk.driver.sessions().len(), 1);
}

#[tokio::test]
async fn x123d_the_model_is_changed_while_the_agent_runs() {
    let talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(Script::new()));
    let none = soon(talk.conversation.set_model(None)).await;
    assert!(none.unwrap_err().is_gone());
    talk.start().await;
    let model = Some("small".to_owned());
    soon(talk.conversation.set_model(model.clone()))
        .await
        .unwrap();
    assert_eq!(
        talk.driver.calls().pop(),
        Some(ScriptedCall::ModelSet(model))
    );
}

#[tokio::test]
async fn dropped_execution_reports_it() {
    let talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(Script::new()));
    soon(talk.conversation.pause_delivery(true)).await.unwrap();
    let mut execution = soon(talk.conversation.execute(Input::new("go")))
        .await
        .unwrap();
    soon(talk.conversation.interrupt(QueuedMessages::Drop))
        .await
        .unwrap();
    let seen = soon(execution.next()).await.unwrap().unwrap().event;
    let dropped = |event: &Event| {
        matches!(
            event,
            Event::Input {
                state: InputState::Dropped(_),
                ..
            }
        )
    };
    assert!(
        matches!(seen, ConversationEvent::Observed(seen) if matches!(&seen.events[..], [event] if dropped(event)))
    );
    assert!(soon(execution.next()).await.is_none());
}

#[tokio::test]
async fn x123f_a_scripted_driver_plays_its_scripts_in_order() {
    let missing: fn() -> Error = || Error::start("no such agent", None);
    let dies = turn(Script::new().session("s"), "one");
    let driver = ScriptedDriver::new(resumable()).with_script(dies.message().begin().ends());
    let mut talk = TestConversation::with(driver.with_script(Script::new().fails(missing)));
    talk.send("one");
    talk.start().await;
    assert_eq!(talk.completed().await.end.reason, EndReason::Completed);
    talk.send("two");
    assert_eq!(talk.completed().await.end.reason, EndReason::Died);
    talk.becomes(Lifecycle::Idle).await;
    let refused = soon(talk.conversation.start(SessionChoice::Fresh)).await;
    assert!(refused.unwrap_err().is_start_failure());
    assert_eq!(talk.driver.messages(), ["one", "two"]);
    assert_eq!(talk.driver.sessions().len(), 2);
}
