//! The crate as somebody uses it for the first time: with a driver of 20 lines, the default options, and no reader.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use agent_duplex::scripted::{Script, ScriptedDriver};
use agent_duplex::{
    Capabilities, Conversation, ConversationEvent, ConversationOptions, Driver as _, EndReason,
    Event, Input, Line, Observation, Published, QueuedMessages, SessionChoice, Stream,
};

use crate::examples::driver::Echo;
use crate::support::soon;

fn echo() -> Conversation {
    Conversation::new(Box::new(Echo), ConversationOptions::default())
}

fn scripted(script: Script) -> Conversation {
    let driver = ScriptedDriver::new(Capabilities::none()).with_script(script);
    Conversation::new(Box::new(driver), ConversationOptions::default())
}

#[tokio::test]
async fn k2c_question_gets_the_whole_answer() {
    let script = Script::new().message().begin();
    let script = script.report_message("One.").report_message("Two.");
    let conversation = scripted(script.end(EndReason::MaxTokens));
    let answer = soon(conversation.ask("Count.")).await.unwrap();
    assert_eq!(answer.text, "One.\n\nTwo.");
    assert_eq!(answer.end.reason, EndReason::MaxTokens);
}

#[tokio::test]
async fn answer_of_a_plain_command_is_its_output() {
    let line = |stream, text: &str| {
        let bytes = text.to_owned().into();
        Observation::output(stream, Line { bytes, omitted: 0 })
    };
    let script = Script::new().message().begin();
    let script = script.observe(line(Stream::Stdout, "one"));
    let script = script.observe(line(Stream::Stderr, "lost"));
    let script = script.observe(line(Stream::Stdout, "two"));
    let conversation = scripted(script.end(EndReason::Completed));
    let answer = soon(conversation.ask("Count.")).await.unwrap();
    assert_eq!(answer.text, "one\ntwo");
}

/// The turn of an agent with a protocol has no message, and its lines are no answer. An answer that is too long is cut.
#[tokio::test]
async fn answer_has_no_protocol_lines_and_a_limit() {
    let line = |text: String| {
        let bytes = text.into();
        Observation::output(Stream::Stdout, Line { bytes, omitted: 0 })
    };
    let turn = |script: Script| script.message().begin();
    let mut meaningful = line("{\"a\": 1}".into());
    meaningful.events.push(Event::TextDelta("half".into()));
    let script = turn(Script::new())
        .observe(line("{}".into()))
        .observe(meaningful);
    let script = script.observe(line("{}".into())).end(EndReason::Died);
    let answer = soon(scripted(script).ask("Anybody?")).await.unwrap();
    assert_eq!(answer.text, "");

    let mut script = turn(Script::new());
    for _ in 0..17 {
        script = script.report_message(&"é".repeat(1 << 19));
    }
    let script = script.end(EndReason::Completed);
    let answer = soon(scripted(script).ask("Everything.")).await.unwrap();
    assert!((16 << 20) - 2 <= answer.text.len() && answer.text.len() <= 16 << 20);
}

#[tokio::test]
async fn question_whose_conversation_ends_is_an_error() {
    let conversation = scripted(Script::new().message().begin());
    let asked = conversation.clone();
    let question = tokio::spawn(async move { asked.ask("Anybody?").await });
    let mut reader = conversation.replay(100);
    while let Some(Ok(published)) = soon(reader.next()).await {
        if matches!(published.event, ConversationEvent::Assigned(_)) {
            break;
        }
    }
    soon(conversation.stop(Duration::ZERO)).await;
    // The stop ends the running turn, so the question has an end.
    let answer = soon(question).await.unwrap().unwrap();
    assert_eq!(answer.end.reason, EndReason::Interrupted);
    let gone = soon(conversation.ask("Still there?")).await.unwrap_err();
    assert!(gone.is_gone(), "{gone}");
}

#[tokio::test]
async fn k2a_conversation_without_readers_never_waits_for_one() {
    let conversation = echo();
    for number in 0..3000 {
        conversation.send(Input::new(format!("{number}"))).unwrap();
        soon(conversation.wait_until_idle()).await.unwrap();
    }
}

#[tokio::test]
async fn k2b_first_input_starts_the_agent() {
    let conversation = echo();
    let mut reader = conversation.subscribe(100);
    conversation.send(Input::new("hello")).unwrap();
    soon(conversation.wait_until_idle()).await.unwrap();
    let mut completed = false;
    while !completed {
        let published = soon(reader.next()).await.unwrap().unwrap();
        completed = matches!(published.event, ConversationEvent::Completed(_));
    }
}

#[tokio::test]
async fn k2d_missing_abilities_have_a_default() {
    let mut connection = Echo.connect(SessionChoice::Fresh).await.unwrap();
    let interrupted = connection.interrupt(QueuedMessages::Keep).await;
    let refused = interrupted.unwrap_err();
    assert!(refused.is_unsupported());
    assert_eq!(
        refused.to_string(),
        "the running agent can't be interrupted; stop the agent"
    );
    let conversation = echo();
    soon(conversation.ask("hello")).await.unwrap();
    assert_eq!(soon(conversation.leftovers()).await, []);
    soon(conversation.close()).await;
    assert!(soon(conversation.stop(Duration::ZERO)).await.proven);
}

/// Waits for the next item of a stream, as each crate for streams does.
async fn next<S: futures_core::Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    soon(poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx))).await
}

#[tokio::test]
async fn k2e_readers_are_streams_and_events_name_their_conversation() {
    let options = ConversationOptions::default();
    let (conversation, mut primary) = Conversation::with_primary(Box::new(Echo), options);
    let mut subscription = conversation.subscribe(100);
    let mut execution = conversation.execute(Input::new("hello")).await.unwrap();
    let mut turn: Vec<Published> = Vec::new();
    while let Some(published) = next(&mut execution).await {
        turn.push(published.unwrap());
    }
    assert_eq!(
        execution.completion().unwrap().end.reason,
        EndReason::Completed
    );
    soon(conversation.stop(Duration::ZERO)).await;
    let (mut all, mut subscribed) = (Vec::new(), Vec::new());
    while let Some(published) = next(&mut primary).await {
        assert_eq!(published.conversation, conversation.id());
        all.push(published);
    }
    while let Some(published) = next(&mut subscription).await {
        subscribed.push(published.unwrap());
    }
    assert_eq!(all, subscribed);
    assert!(turn.len() >= 3 && turn.iter().all(|it| all.contains(it)));
    assert_ne!(echo().id(), conversation.id());
}
