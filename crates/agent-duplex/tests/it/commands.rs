//! Interrupts, answers, closes, and futures that are dropped before they finish.

use std::time::Duration;

use agent_duplex::scripted::{Latch, Script, ScriptedCall, ScriptedDriver};
use agent_duplex::{
    Capabilities, ConversationEvent, ConversationOptions, Decision, EndReason, Error, Event, Input,
    InputState, Lifecycle, MemoryPersistence, PermissionRequest, QueuedMessages, SessionChoice,
};

use crate::support::{TestConversation, delta, resumable, soon, steered, warning};

#[tokio::test]
async fn p21a_p21b_interrupt_completes_when_the_turn_ends() {
    let gate = Latch::new();
    let script = Script::new().message().begin().observe(delta("x"));
    let script = script
        .interrupted()
        .observe(delta("y"))
        .wait_for_latch(&gate);
    let script = script.end(EndReason::Interrupted).message().begin();
    let script = script.end(EndReason::Completed);
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    talk.send("go");
    talk.start().await;
    talk.observed(delta("x")).await;
    let interrupt = tokio::spawn(talk.conversation.interrupt(QueuedMessages::Keep));
    let twice = tokio::spawn(talk.conversation.interrupt(QueuedMessages::Keep));
    talk.observed(delta("y")).await;
    // An input that comes now waits for the end of the turn, so that the interrupt does not affect it.
    talk.send("instead");
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.driver.messages(), ["go"]);
    assert!(!interrupt.is_finished());
    assert_eq!(talk.conversation.lifecycle(), Lifecycle::Interrupting);
    gate.open();
    soon(interrupt).await.unwrap().unwrap();
    soon(twice).await.unwrap().unwrap();
    assert_eq!(talk.completed().await.pending, 1);
    assert_eq!(talk.completed().await.end.reason, EndReason::Completed);
    assert_eq!(talk.driver.messages(), ["go", "instead"]);
}

#[tokio::test]
async fn p22_interrupt_without_a_turn_returns_at_once_and_drops_queue() {
    let mut talk =
        TestConversation::with(ScriptedDriver::new(steered()).with_script(Script::new()));
    let receipt = talk.send("never mind");
    soon(talk.conversation.interrupt(QueuedMessages::Drop))
        .await
        .unwrap();
    let why = "the turn was interrupted".to_owned();
    let dropped = Event::Input {
        id: receipt.id,
        state: InputState::Dropped(why),
    };
    talk.observed(dropped).await;
    talk.start().await;
    soon(talk.conversation.interrupt(QueuedMessages::Keep))
        .await
        .unwrap();
    assert!(talk.conversation.pending().is_empty());
    assert_eq!(
        talk.driver.calls(),
        [ScriptedCall::Connected(SessionChoice::Fresh)]
    );
}

#[tokio::test]
async fn p47b_permission_request_is_answered_once_and_never_for_a_dead_agent() {
    let ask = |id: &str| {
        Event::PermissionRequested(PermissionRequest {
            id: id.into(),
            tool: "Bash".into(),
            summary: "make".into(),
            reason: String::new(),
        })
    };
    let script = Script::new().message().begin();
    let script = script.observe(ask("a")).observe(ask("b")).answered().ends();
    let next = Script::new();
    let driver = ScriptedDriver::new(steered())
        .with_script(script)
        .with_script(next);
    let mut talk = TestConversation::with(driver);
    talk.send("go");
    talk.start().await;
    talk.observed(ask("b")).await;
    for _ in 0..2 {
        soon(talk.conversation.answer("a", Decision::Allow))
            .await
            .unwrap();
    }
    talk.audit.answered("a");
    let withdrawn = Event::PermissionWithdrawn { id: "b".into() };
    talk.observed(withdrawn).await;
    talk.completed().await;
    talk.becomes(Lifecycle::Idle).await;
    talk.start().await;
    soon(talk.conversation.answer("b", Decision::Allow))
        .await
        .unwrap();
    let answers = talk
        .driver
        .calls()
        .into_iter()
        .filter(|call| matches!(call, ScriptedCall::Answered(..)));
    let answers: Vec<ScriptedCall> = answers.collect();
    assert_eq!(
        answers,
        [ScriptedCall::Answered("a".into(), Decision::Allow)]
    );
}

#[tokio::test]
async fn permission_request_that_outlives_its_turn_can_be_answered() {
    let ask = Event::PermissionRequested(PermissionRequest {
        id: "a".into(),
        tool: "Bash".into(),
        summary: "make".into(),
        reason: "a task in the background".into(),
    });
    for again in [false, true] {
        let mut script = Script::new().message().begin().observe(ask.clone());
        script = script.end(EndReason::Completed);
        if again {
            script = script.observe(ask.clone());
        }
        let driver = ScriptedDriver::new(steered()).with_script(script.answered());
        let mut talk = TestConversation::with(driver);
        talk.send("go");
        talk.start().await;
        talk.completed().await;
        if again {
            talk.observed(ask.clone()).await;
        }
        soon(talk.conversation.answer("a", Decision::Allow))
            .await
            .unwrap();
        let calls = talk.driver.calls();
        assert_eq!(
            calls.last(),
            Some(&ScriptedCall::Answered("a".into(), Decision::Allow))
        );
    }
}

#[tokio::test]
async fn agent_that_does_not_read_is_reported_and_retried() {
    let full: fn() -> Error = || Error::full("the agent");
    let script = Script::new()
        .message()
        .begin()
        .refuses(Some(full))
        .observe(delta("x"));
    let script = script
        .interrupted()
        .refuses(None)
        .end(EndReason::Interrupted)
        .message();
    let script = script.begin().end(EndReason::Completed);
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    talk.send("go");
    talk.start().await;
    talk.observed(delta("x")).await;
    talk.send("more");
    let warned = |what: &ConversationEvent| matches!(what, ConversationEvent::Observed(seen) if matches!(seen.events[..], [Event::Warning(_)]));
    talk.read_until(warned).await;
    let interrupt = tokio::spawn(talk.conversation.interrupt(QueuedMessages::Keep));
    talk.completed().await;
    soon(interrupt).await.unwrap().unwrap();
    talk.completed().await;
    assert_eq!(talk.read.iter().filter(|what| warned(what)).count(), 1);
    assert_eq!(talk.driver.messages(), ["go", "more"]);
}

#[tokio::test(start_paused = true)]
async fn agent_that_did_not_read_between_turns_is_retried() {
    let full: fn() -> Error = || Error::full("the agent");
    let gate = Latch::new();
    let script = Script::new()
        .refuses_all_messages(full)
        .wait_for_latch(&gate)
        .refuses(None);
    let script = script.message().begin();
    let script = script.end(EndReason::Completed);
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    talk.start().await;
    talk.becomes(Lifecycle::Ready).await;
    talk.send("go");
    let warned = |what: &ConversationEvent| matches!(what, ConversationEvent::Observed(seen) if matches!(seen.events[..], [Event::Warning(_)]));
    talk.read_until(warned).await;
    tokio::time::advance(Duration::from_secs(3)).await;
    soon(talk.conversation.leftovers()).await;
    gate.open();
    talk.completed().await;
    assert_eq!(talk.read.iter().filter(|what| warned(what)).count(), 1);
    assert_eq!(talk.driver.messages(), ["go"]);
}

#[tokio::test]
async fn slow_model_change_blocks_neither_output_nor_interrupt() {
    let (model, more) = (Latch::new(), Latch::new());
    let script = Script::new().message().begin().delays_model_change(&model);
    let script = script
        .wait_for_latch(&more)
        .observe(delta("x"))
        .interrupted();
    let script = script.end(EndReason::Interrupted);
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    talk.send("go");
    talk.start().await;
    talk.becomes(Lifecycle::InTurn).await;
    let conversation = talk.conversation.clone();
    let change = tokio::spawn(async move { conversation.set_model(None).await });
    while talk.driver.calls().last() != Some(&ScriptedCall::ModelSet(None)) {
        tokio::task::yield_now().await;
    }
    more.open();
    talk.observed(delta("x")).await;
    let interrupt = tokio::spawn(talk.conversation.interrupt(QueuedMessages::Keep));
    assert_eq!(talk.completed().await.end.reason, EndReason::Interrupted);
    soon(interrupt).await.unwrap().unwrap();
    assert!(!change.is_finished());
    model.open();
    soon(change).await.unwrap().unwrap();
}

/// Polls a future a number of times, and drops it.
async fn give_up<T>(future: impl Future<Output = T>, polls: usize) {
    let mut future = std::pin::pin!(future);
    for _ in 0..polls {
        let once = std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx)));
        if once.await.is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn p42_dropped_futures_undo_and_break_nothing() {
    for polls in 0..12 {
        let script = Script::new()
            .message()
            .begin()
            .observe(delta("x"))
            .interrupted();
        let script = script
            .end(EndReason::Interrupted)
            .message()
            .begin()
            .observe(delta("y"));
        let mut talk = TestConversation::with(
            ScriptedDriver::new(steered()).with_script(script.leaves_process(7, "sleep")),
        );
        talk.send("go");
        let conversation = talk.conversation.clone();
        give_up(conversation.start(SessionChoice::Fresh), polls).await;
        if polls == 0 {
            talk.start().await;
        }
        give_up(async { talk.observed(delta("x")).await }, polls).await;
        give_up(conversation.interrupt(QueuedMessages::Keep), polls).await;
        give_up(conversation.answer("a", Decision::Allow), polls).await;
        give_up(conversation.freeze(true), polls).await;
        give_up(conversation.freeze(false), polls).await;
        give_up(conversation.leftovers(), polls).await;
        talk.send("then");
        talk.observed(delta("y")).await;
        give_up(conversation.close(), polls).await;
        give_up(conversation.stop(Duration::from_secs(8)), polls).await;
        let report = soon(conversation.stop(Duration::from_secs(8))).await;
        assert_eq!(report.to_string(), "all processes ended");
        drop(conversation);
        talk.read_all().await;
        assert_eq!(talk.audit.completed(), 2, "after {polls} polls");
        assert_eq!(talk.driver.messages(), ["go", "then"]);
    }
}

/// A host that suspends itself freezes the conversation first. An agent that starts after that would run during the suspension.
#[tokio::test]
async fn x126a_frozen_conversation_starts_no_agent_and_delivers_no_input() {
    let turn = |script: Script| script.message().end(EndReason::Completed);
    let driver = ScriptedDriver::new(steered()).with_script(turn(turn(Script::new())));
    let mut talk = TestConversation::with(driver);
    soon(talk.conversation.freeze(true)).await.unwrap();
    talk.send("first");
    let conversation = talk.conversation.clone();
    let start = tokio::spawn(async move { conversation.start(SessionChoice::Fresh).await });
    // The actor handles its commands in their order.
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.driver.calls(), []);
    soon(talk.conversation.freeze(false)).await.unwrap();
    soon(start).await.unwrap().unwrap();
    talk.completed().await;
    soon(talk.conversation.freeze(true)).await.unwrap();
    talk.send("second");
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.driver.messages(), ["first"]);
    soon(talk.conversation.freeze(false)).await.unwrap();
    talk.completed().await;
    assert_eq!(talk.driver.messages(), ["first", "second"]);
}

#[tokio::test]
async fn p42_stored_input_is_accepted_once() {
    for polls in 0..8 {
        let turn = |script: Script| script.message().begin().end(EndReason::Completed);
        let script = turn(turn(turn(Script::new())));
        let driver = ScriptedDriver::new(Capabilities::none()).with_script(script);
        let options = ConversationOptions::default().with_manual_start();
        let (talk, _) = TestConversation::stored(driver, options, MemoryPersistence::new()).await;
        let conversation = &talk.conversation;
        let input = Input::new("once");
        give_up(conversation.pause_delivery(true), polls).await;
        give_up(conversation.accept(input.clone()), polls).await;
        give_up(conversation.accept(input.clone()), polls).await;
        let receipt = soon(conversation.accept(input)).await.unwrap();
        assert!(receipt.durable);
        soon(conversation.pause_delivery(false)).await.unwrap();
        give_up(conversation.execute(Input::new("perhaps")), polls).await;
        let mut execution = soon(conversation.execute(Input::new("last")))
            .await
            .unwrap();
        while let Some(next) = soon(execution.next()).await {
            next.unwrap();
        }
        assert!(execution.completion().is_some(), "after {polls} polls");
        let messages = talk.driver.messages().join("\n\n");
        let once = messages.split("\n\n").filter(|text| *text == "once");
        assert_eq!(once.count(), 1, "{messages}");
    }
}

#[tokio::test(start_paused = true)]
async fn p23b_interrupt_that_ends_the_process_keeps_the_session() {
    let answer = Script::new()
        .session("s")
        .message()
        .begin()
        .report_message("done");
    let answer = answer.end(EndReason::Completed);
    let ended = answer.message().begin().observe(delta("x")).interrupted();
    let ended = ended.end(EndReason::Interrupted).ends();
    let next = Script::new().message().begin().end(EndReason::Completed);
    let driver = ScriptedDriver::new(resumable())
        .with_script(ended)
        .with_script(next);
    let mut talk = TestConversation::restarting(driver);
    talk.send("one");
    talk.completed().await;
    talk.send("two");
    talk.observed(delta("x")).await;
    soon(talk.conversation.interrupt(QueuedMessages::Keep))
        .await
        .unwrap();
    assert_eq!(talk.completed().await.end.reason, EndReason::Interrupted);
    talk.becomes(Lifecycle::Idle).await;
    talk.send("three");
    assert_eq!(talk.completed().await.end.reason, EndReason::Completed);
    let sessions = [SessionChoice::Fresh, SessionChoice::Resume("s".into())];
    assert_eq!(talk.driver.sessions(), sessions);
}

#[tokio::test(start_paused = true)]
async fn p23c_next_agent_after_a_killing_interrupt_reports_context_retention() {
    let cases = [
        (resumable(), "resumes session s: the context is kept"),
        (steered(), "starts a new session: the context is lost"),
    ];
    for (capabilities, expected) in cases {
        let ended = Script::new().session("s").message().begin();
        let ended = ended.end(EndReason::Completed).message().begin();
        let ended = ended.observe(delta("x")).interrupted();
        let ended = ended.end(EndReason::Interrupted).ends();
        let next = Script::new().message().begin().end(EndReason::Completed);
        let driver = ScriptedDriver::new(capabilities)
            .with_script(ended)
            .with_script(next);
        let mut talk = TestConversation::restarting(driver);
        talk.send("one");
        talk.completed().await;
        talk.send("two");
        talk.observed(delta("x")).await;
        soon(talk.conversation.interrupt(QueuedMessages::Keep))
            .await
            .unwrap();
        talk.completed().await;
        talk.becomes(Lifecycle::Idle).await;
        talk.send("three");
        assert_eq!(
            talk.warned().await,
            format!("the interrupt ended the agent; the next one {expected}")
        );
        talk.completed().await;
    }
}

/// The process stays, and so does its context. The process ends later by itself.
#[tokio::test(start_paused = true)]
async fn p23c_context_retention_is_not_reported_if_the_process_stays() {
    let script = Script::new().message().begin().observe(delta("x"));
    let script = script.interrupted().end(EndReason::Interrupted);
    let script = script.message().begin().end(EndReason::Completed).ends();
    let next = Script::new().message().begin().end(EndReason::Completed);
    let driver = ScriptedDriver::new(resumable())
        .with_script(script)
        .with_script(next);
    let mut talk = TestConversation::restarting(driver);
    talk.send("one");
    talk.observed(delta("x")).await;
    soon(talk.conversation.interrupt(QueuedMessages::Keep))
        .await
        .unwrap();
    for text in ["two", "three"] {
        talk.completed().await;
        talk.send(text);
    }
    talk.completed().await;
    assert_eq!(talk.driver.sessions().len(), 2);
    assert!(talk.read.iter().all(|what| warning(what).is_none()));
}
