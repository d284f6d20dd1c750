//! Inputs with images and files: which of them an agent gets, and what happens to the others.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use agent_duplex::scripted::{Latch, Script, ScriptedCall, ScriptedDriver};
use agent_duplex::{
    Capabilities, Capability, Conversation, ConversationEvent, ConversationOptions, EndReason,
    Error, Event, Input, InputState, MemoryPersistence, Part,
};

use crate::support::{TestConversation, soon, steered};

fn seeing() -> Capabilities {
    Capabilities::none().with(Capability::Images)
}

fn picture() -> Input {
    Input::new("What is this?").with_image("/pictures/cat.png")
}

fn unreadable() -> Error {
    Error::invalid("/pictures/cat.png can't be sent: it is empty")
}

fn answers(turns: usize) -> Script {
    (0..turns).fold(Script::new(), |script, turn| {
        let script = script.message().begin().report_message(&turn.to_string());
        script.end(EndReason::Completed)
    })
}

fn conversation(driver: &ScriptedDriver) -> Conversation {
    Conversation::new(Box::new(driver.clone()), ConversationOptions::default())
}

/// Returns the parts of the messages that the agents got.
fn parts(driver: &ScriptedDriver) -> Vec<(String, Vec<Part>)> {
    let sent = driver.calls().into_iter().filter_map(|call| match call {
        ScriptedCall::Sent(message) => Some((message.text, message.parts)),
        _ => None,
    });
    sent.collect()
}

fn is_dropped(event: &ConversationEvent) -> bool {
    let ConversationEvent::Observed(seen) = event else {
        return false;
    };
    let state = |event: &Event| matches!(event, Event::Input { state: InputState::Dropped(why), .. } if !why.is_empty());
    seen.events.iter().any(state)
}

#[tokio::test]
async fn text_alone_is_an_input() {
    let driver = ScriptedDriver::new(Capabilities::none()).with_script(answers(3));
    let conversation = conversation(&driver);
    soon(conversation.ask("one")).await.unwrap();
    conversation.send(String::from("two")).unwrap();
    soon(conversation.wait_until_idle()).await.unwrap();
    soon(conversation.accept(&String::from("three")))
        .await
        .unwrap();
    soon(conversation.wait_until_idle()).await.unwrap();
    assert_eq!(driver.messages(), ["one", "two", "three"]);
}

#[tokio::test]
async fn agent_gets_the_parts_in_order() {
    let both = seeing().with(Capability::Files);
    let driver = ScriptedDriver::new(both).with_script(answers(1));
    let input = Input::new("Is").with_image("/a.png").with_text("like");
    let input = input.with_image("/b.png").with_file("/c.txt");
    soon(conversation(&driver).ask(input)).await.unwrap();
    let expected = vec![
        Part::Image("/a.png".into()),
        Part::Text("like".to_owned()),
        Part::Image("/b.png".into()),
        Part::File("/c.txt".into()),
    ];
    assert_eq!(parts(&driver), [("Is".to_owned(), expected)]);
}

#[tokio::test]
async fn relative_path_is_relative_to_the_directory_of_its_input() {
    let input = Input::new("").with_image("cat.png");
    let path = std::env::current_dir().unwrap().join("cat.png");
    assert_eq!(input.parts, [Part::Image(path)]);
}

#[tokio::test]
async fn k2g_part_that_the_agent_cannot_take_is_refused_before_anything_happens() {
    let driver = ScriptedDriver::new(Capabilities::none()).with_script(answers(1));
    let talk = conversation(&driver);
    let file = || Input::new("Read it.").with_file("/notes.txt");
    let errors = [
        talk.send(picture()).unwrap_err(),
        soon(talk.accept(picture())).await.unwrap_err(),
        soon(talk.execute(picture())).await.unwrap_err(),
        soon(talk.ask(file())).await.unwrap_err(),
    ];
    assert!(errors.iter().all(Error::is_unsupported));
    insta::assert_snapshot!(format!("{}\n{}", errors[0], errors[3]), @"
    the scripted agent can't take images; send only the text
    the scripted agent can't take files; send only the text, and write the path of the file in it
    ");
    assert_eq!((driver.calls(), talk.pending()), (Vec::new(), Vec::new()));
    // The caller can send the text.
    soon(talk.ask(picture().text)).await.unwrap();
    assert_eq!(driver.messages(), ["What is this?"]);
}

#[tokio::test]
async fn input_has_at_most_20_parts_after_its_text() {
    let driver = ScriptedDriver::new(seeing()).with_repeating_script(answers(1));
    let talk = conversation(&driver);
    let input = |parts| (0..parts).fold(Input::new("Look."), |input, _| input.with_image("/a.png"));
    assert!(talk.send(input(21)).unwrap_err().is_invalid());
    assert_eq!(talk.pending(), []);
    talk.send(input(20)).unwrap();
}

#[tokio::test]
async fn input_with_parts_is_a_message_of_its_own() {
    let driver = ScriptedDriver::new(seeing()).with_script(answers(3));
    let mut talk = TestConversation::with(driver);
    for input in ["a".into(), "b".into(), picture(), "c".into(), "d".into()] {
        let receipt = talk.conversation.send(input).unwrap();
        talk.audit.accepted(&receipt);
    }
    talk.start().await;
    for pending in [3, 2, 0] {
        assert_eq!(talk.completed().await.pending, pending);
    }
    assert_eq!(
        talk.driver.messages(),
        ["a\n\nb", "What is this?", "c\n\nd"]
    );
    assert_eq!(parts(&talk.driver)[1].1, picture().parts);
}

/// Returns an agent that can send no file until the latch is open.
fn without_files(latch: &Latch) -> ScriptedDriver {
    let script = Script::new().refuses_all_messages(unreadable);
    let script = script.wait_for_latch(latch).refuses(None);
    let script = script.observe(Event::Warning("ready".to_owned()));
    let script = script.message().begin().end(EndReason::Completed);
    ScriptedDriver::new(steered().with(Capability::Images)).with_script(script)
}

#[tokio::test]
async fn input_whose_file_cannot_be_sent_is_dropped_and_the_next_one_delivered() {
    let latch = Latch::new();
    let driver = without_files(&latch);
    let mut talk = TestConversation::with(driver);
    talk.start().await;
    let receipt = talk.conversation.send(picture()).unwrap();
    talk.audit.accepted(&receipt);
    talk.read_until(is_dropped).await;
    assert_eq!(talk.conversation.pending(), []);
    latch.open();
    talk.warns("ready").await;
    talk.send("without");
    talk.completed().await;
    assert_eq!(talk.driver.messages(), ["without"]);
}

#[tokio::test]
async fn caller_gets_the_error_of_the_file() {
    let driver = without_files(&Latch::new());
    let talk = conversation(&driver);
    let error = soon(talk.ask(picture())).await.unwrap_err();
    assert!(error.is_invalid());
    assert_eq!(error.to_string(), unreadable().to_string());
    let mut execution = soon(talk.execute(picture())).await.unwrap();
    assert!(execution.refusal().is_none());
    while soon(execution.next()).await.is_some() {}
    assert!(execution.refusal().is_some_and(Error::is_invalid));
    soon(talk.wait_until_idle()).await.unwrap();
}

#[tokio::test]
async fn running_agent_can_take_less_than_its_driver_declares() {
    let driver = ScriptedDriver::new(seeing());
    let driver = driver.with_script(answers(1).agent_capabilities(Capabilities::none()));
    let mut talk = TestConversation::with(driver);
    assert!(talk.conversation.capabilities().has(Capability::Images));
    let receipt = talk.conversation.send(picture()).unwrap();
    talk.audit.accepted(&receipt);
    talk.start().await;
    talk.read_until(is_dropped).await;
    assert!(!talk.conversation.capabilities().has(Capability::Images));
    let error = talk.conversation.send(picture()).unwrap_err();
    assert!(error.is_unsupported());
    talk.send("text");
    talk.completed().await;
    assert_eq!(talk.driver.messages(), ["text"]);
}

#[tokio::test]
async fn parts_of_a_stored_input_reach_a_later_agent() {
    let store = MemoryPersistence::new();
    let driver = ScriptedDriver::new(seeing()).with_script(answers(1));
    let manual = || ConversationOptions::default().with_manual_start();
    let (talk, _) = TestConversation::stored(driver.clone(), manual(), store.clone()).await;
    assert!(
        soon(talk.conversation.accept(picture()))
            .await
            .unwrap()
            .durable
    );
    let unnamed = Input::new("").with_image(OsStr::from_bytes(b"/\xff.png"));
    let error = soon(talk.conversation.accept(unnamed)).await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    soon(talk.conversation.stop(Duration::ZERO)).await;
    let (mut talk, recovered) = TestConversation::stored(driver, manual(), store.clone()).await;
    assert_eq!(recovered.pending[0].1.parts, picture().parts);
    talk.start().await;
    talk.completed().await;
    assert_eq!(parts(&talk.driver)[0].1, picture().parts);
    soon(talk.conversation.stop(Duration::ZERO)).await;
}

#[tokio::test]
async fn dropped_input_is_not_recovered() {
    let store = MemoryPersistence::new();
    let driver = without_files(&Latch::new());
    let manual = || ConversationOptions::default().with_manual_start();
    let (talk, _) = TestConversation::stored(driver.clone(), manual(), store.clone()).await;
    assert!(
        soon(talk.conversation.ask(picture()))
            .await
            .unwrap_err()
            .is_invalid()
    );
    soon(talk.conversation.stop(Duration::ZERO)).await;
    let (_talk, recovered) = TestConversation::stored(driver, manual(), store).await;
    assert_eq!(
        (recovered.pending.len(), recovered.interrupted.len()),
        (0, 0)
    );
    assert_eq!(recovered.accepted.len(), 1);
}
