//! Receipts, assignments, completions: the progress of an input, with any behaviour of the agent during a turn.

use agent_duplex::scripted::{Latch, Script, ScriptedDriver};
use agent_duplex::{
    Capabilities, Conversation, ConversationEvent, ConversationOptions, EndReason, Error, Event,
    Input, InputState, Lifecycle, SessionChoice,
};

use crate::support::{TestConversation, delta, soon, steered};

#[tokio::test]
async fn l80a_l80b_l80c_receipts_are_unique_and_report_a_repeated_input() {
    let talk = TestConversation::with(ScriptedDriver::new(steered()));
    let input = Input::new("go on");
    let first = talk.conversation.send(input.clone()).unwrap();
    let second = talk.conversation.send(input).unwrap();
    assert_eq!(first.input_id, second.input_id);
    assert_ne!(first.id, second.id);
    assert_eq!((first.duplicate, second.duplicate), (false, true));
    assert!(first.at <= second.at);
    assert_eq!(talk.conversation.pending().len(), 2);
}

#[tokio::test]
async fn l82a_l82b_inputs_before_the_start_are_one_turn_in_order() {
    let script = Script::new().message().begin().end(EndReason::Completed);
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    let receipts = ["one", "two", "three"].map(|text| talk.send(text));
    talk.start().await;
    let completion = talk.completed().await;
    assert_eq!(completion.pending, 0);
    assert_eq!(talk.driver.messages(), ["one\n\ntwo\n\nthree"]);
    let ConversationEvent::Assigned(assignment) = &talk.read[1] else {
        panic!("{:?}", talk.read)
    };
    let assigned: Vec<_> = assignment.inputs.iter().map(|i| i.receipt).collect();
    assert_eq!(assigned, receipts.map(|r| r.id));
    assert_eq!((assignment.generation, assignment.parent), (1, None));
}

#[tokio::test]
async fn l81a_l81b_turns_are_assigned_and_completed_in_order() {
    let turn = |script: Script| {
        script
            .message()
            .report_message("done")
            .end(EndReason::Completed)
    };
    let script = turn(turn(Script::new()));
    let mut talk =
        TestConversation::with(ScriptedDriver::new(Capabilities::none()).with_script(script));
    talk.start().await;
    talk.becomes(Lifecycle::Ready).await;
    talk.send("one");
    let first = talk.completed().await;
    talk.send("two");
    talk.completed().await;
    talk.becomes(Lifecycle::Ready).await;
    let kinds: Vec<String> = talk.read.iter().map(kind).collect();
    insta::assert_snapshot!(kinds.join("\n"), @r"
    starting
    ready
    assigned 1
    in a turn
    observed
    completed 1
    ready
    assigned 2
    in a turn
    observed
    completed 2
    ready
    ");
    let parent = talk.read.iter().rev().find_map(|what| match what {
        ConversationEvent::Assigned(assignment) => assignment.parent,
        _ => None,
    });
    assert_eq!(parent, Some(first.turn));
}

fn kind(what: &ConversationEvent) -> String {
    match what {
        ConversationEvent::Assigned(assignment) => format!("assigned {}", assignment.turn),
        ConversationEvent::Completed(completion) => format!("completed {}", completion.turn),
        ConversationEvent::Lifecycle(lifecycle) => lifecycle.to_string(),
        _ => "observed".into(),
    }
}

#[tokio::test]
async fn l83a_l83b_full_inbox_refuses_an_input_and_records_nothing() {
    let script = Script::new().message().end(EndReason::Completed);
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    for i in 0..100 {
        talk.send(&i.to_string());
    }
    let error = talk.conversation.send(Input::new("over")).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert_eq!(talk.conversation.pending().len(), 100);
    talk.start().await;
    talk.completed().await;
    assert!(talk.driver.messages()[0].ends_with("98\n\n99"));
    talk.send("there is room again");
}

#[tokio::test]
async fn l83a_l83b_inbox_has_the_configured_capacity() {
    let options = ConversationOptions::default()
        .with_manual_start()
        .with_inbox(2);
    let mut talk = TestConversation::limited(ScriptedDriver::new(steered()), options);
    talk.send("one");
    talk.send("two");
    let error = talk.conversation.send(Input::new("over")).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert_eq!(talk.conversation.pending().len(), 2);
}

#[tokio::test]
async fn l84b_inputs_during_a_turn_reach_a_steerable_agent_at_once() {
    let mut script = Script::new().message().begin();
    for _ in 0..50 {
        script = script.message();
    }
    for number in 1..=50 {
        script = script.input(number, InputState::InTurn);
    }
    let script = script.end(EndReason::Completed);
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    talk.send("go");
    talk.start().await;
    for i in 0..50 {
        talk.send(&i.to_string());
    }
    assert_eq!(talk.completed().await.pending, 0);
    let texts: Vec<String> = (0..50).map(|i| i.to_string()).collect();
    assert_eq!(talk.driver.messages()[1..], texts);
    let assigned = talk.assignments();
    assert_eq!(assigned[0], ("1".into(), 1, false));
    assert_eq!(assigned[1..], vec![("1".to_owned(), 1, true); 50]);
}

#[tokio::test]
async fn l84c_l86a_l86b_inputs_wait_for_the_end_of_an_unsteerable_turn() {
    let gate = Latch::new();
    let script = Script::new()
        .message()
        .observe(delta("x"))
        .wait_for_latch(&gate);
    let script = script.end(EndReason::Completed).message();
    let script = script.end(EndReason::Completed);
    let mut talk =
        TestConversation::with(ScriptedDriver::new(Capabilities::none()).with_script(script));
    talk.send("go");
    talk.start().await;
    talk.observed(delta("x")).await;
    talk.send("one");
    talk.send("two");
    assert_eq!(talk.driver.messages(), ["go"]);
    gate.open();
    assert_eq!(talk.completed().await.pending, 2);
    assert_eq!(talk.completed().await.pending, 0);
    assert_eq!(talk.driver.messages(), ["go", "one\n\ntwo"]);
}

#[tokio::test]
async fn l86a_l86b_queued_input_is_pending_until_its_turn() {
    let script = Script::new().message().begin().message();
    let script = script.input(1, InputState::Queued);
    let script = script.end(EndReason::Completed).begin();
    let script = script.end(EndReason::Completed);
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    talk.send("go");
    talk.start().await;
    let receipt = talk.send("and then");
    let queued = Event::Input {
        id: receipt.id,
        state: InputState::Queued,
    };
    talk.observed(queued).await;
    assert_eq!(talk.completed().await.pending, 1);
    assert_eq!(talk.completed().await.pending, 0);
    assert_eq!(
        talk.assignments(),
        [("1".into(), 1, false), ("2".into(), 1, false)]
    );
}

#[tokio::test]
async fn one_shot_agent_leaves_other_inputs_pending() {
    let once: fn() -> Error = || Error::unsupported("scripted", "take more", "start it again");
    let gate = Latch::new();
    let script = Script::new()
        .message()
        .refuses(Some(once))
        .wait_for_latch(&gate);
    let script = script.end(EndReason::Completed).ends();
    let next = Script::new().message().end(EndReason::Completed);
    let driver = ScriptedDriver::new(Capabilities::none())
        .with_script(script)
        .with_script(next);
    let mut talk = TestConversation::with(driver);
    talk.start().await;
    talk.becomes(Lifecycle::Ready).await;
    talk.send("one");
    talk.becomes(Lifecycle::InTurn).await;
    talk.send("two");
    gate.open();
    assert_eq!(talk.completed().await.pending, 1);
    talk.becomes(Lifecycle::Idle).await;
    talk.start().await;
    assert_eq!(talk.completed().await.pending, 0);
    assert_eq!(talk.driver.messages(), ["one", "two"]);
    let warned = talk.read.iter().any(
        |what| matches!(what, ConversationEvent::Observed(seen) if matches!(seen.events[..], [Event::Warning(_)])),
    );
    assert!(!warned);
}

#[tokio::test]
async fn start_with_refused_inputs_fails_and_requeues_them() {
    let missing: fn() -> Error = || Error::start("the program is missing; install it", None);
    let driver = ScriptedDriver::new(Capabilities::none())
        .with_script(Script::new().refuses_all_messages(missing))
        .with_script(Script::new().fails(missing))
        .with_script(Script::new().message().end(EndReason::Completed));
    let mut talk = TestConversation::with(driver);
    talk.send("go");
    for _ in 0..2 {
        let started = soon(talk.conversation.start(SessionChoice::Fresh)).await;
        assert!(started.unwrap_err().is_start_failure());
        assert_eq!(talk.conversation.pending().len(), 1);
    }
    talk.start().await;
    assert_eq!(talk.completed().await.pending, 0);
    let again = soon(talk.conversation.start(SessionChoice::Fresh)).await;
    assert!(again.unwrap_err().is_start_failure());
}

#[tokio::test]
async fn l85a_next_conversation_delivers_inputs_queued_at_a_stop() {
    let script = Script::new().message().observe(delta("x"));
    let mut talk =
        TestConversation::with(ScriptedDriver::new(Capabilities::none()).with_script(script));
    talk.send("go");
    talk.start().await;
    talk.observed(delta("x")).await;
    talk.send("one");
    talk.send("two");
    soon(talk.conversation.stop(std::time::Duration::ZERO)).await;
    talk.read_all().await;
    let script = Script::new().message().end(EndReason::Completed);
    let driver = ScriptedDriver::new(Capabilities::none()).with_script(script);
    let mut next = TestConversation::with(driver);
    for input in talk.conversation.pending() {
        next.send(&input.text);
    }
    next.start().await;
    next.completed().await;
    assert_eq!(next.driver.messages(), ["one\n\ntwo"]);
}

#[tokio::test]
async fn a_conversation_needs_no_reader() {
    let script = Script::new().message().end(EndReason::Completed).message();
    let driver = ScriptedDriver::new(Capabilities::none()).with_script(script);
    let options = ConversationOptions::default().with_manual_start();
    let (conversation, primary) = Conversation::with_primary(Box::new(driver.clone()), options);
    drop(primary);
    conversation.send(Input::new("one")).unwrap();
    soon(conversation.start(SessionChoice::Fresh))
        .await
        .unwrap();
    conversation.send(Input::new("two")).unwrap();
    soon(driver.wait_for_calls(|calls| calls.len() == 3)).await;
    assert_eq!(driver.messages(), ["one", "two"]);
}
