//! The history of a conversation: its order, its bounds, and the number of events that are missing.

use std::time::Duration;

use agent_duplex::scripted::{Latch, Script, ScriptedDriver};
use agent_duplex::{
    ConversationEvent, ConversationOptions, EndReason, History, Line, Observation, Stream,
};
use bytes::Bytes;

use crate::support::{TestConversation, delta, soon, steered};

const MOST: usize = 10_000;
const MIB: usize = 1 << 20;

fn line(bytes: usize) -> Observation {
    let bytes = Bytes::from(vec![b'x'; bytes]);
    Observation::output(Stream::Stdout, Line { bytes, omitted: 0 })
}

/// Plays one turn with these observations, and then a turn with one message.
async fn two_turns(things: impl IntoIterator<Item = Observation>) -> TestConversation {
    let script = turn(Script::new(), things).message().begin();
    play(script.report_message("again").end(EndReason::Completed)).await
}

/// Adds a turn with these observations.
fn turn(script: Script, things: impl IntoIterator<Item = Observation>) -> Script {
    let begun = script.message().begin();
    let seen = things.into_iter().fold(begun, Script::observe);
    seen.end(EndReason::Completed)
}

/// Plays a script of two turns, and reads all events.
async fn play(script: Script) -> TestConversation {
    let driver = ScriptedDriver::new(steered()).with_script(script);
    let options = ConversationOptions::default().with_manual_start();
    let mut talk = TestConversation::limited(driver, options.with_backlog(100_000));
    talk.send("first");
    talk.start().await;
    talk.completed().await;
    talk.send("second");
    talk.completed().await;
    soon(talk.conversation.stop(Duration::ZERO)).await;
    talk.read_all().await;
    talk
}

/// Checks that the history is the end of what the primary has read, and returns the number of its events.
fn checked(history: &History, talk: &TestConversation) -> usize {
    let omitted = usize::try_from(history.omitted).expect("the number is small");
    let events = history.events.iter().map(|published| &published.event);
    assert!(events.eq(&talk.read[omitted..]));
    for (published, sequence) in history.events.iter().zip(history.omitted + 1..) {
        assert_eq!(published.sequence, sequence);
        assert_eq!(published.conversation, talk.conversation.id());
    }
    history.events.len()
}

#[tokio::test]
async fn k2f_history_has_all_turns_in_order_even_after_the_end() {
    let talk = two_turns([delta("one").into()]).await;
    let history = talk.conversation.history();
    assert_eq!(history.omitted, 0);
    assert_eq!(checked(&history, &talk), talk.read.len());
}

#[tokio::test]
async fn history_of_a_new_conversation_is_empty() {
    let talk = TestConversation::with(ScriptedDriver::new(steered()));
    let history = talk.conversation.history();
    assert_eq!((history.omitted, history.events.len()), (0, 0));
}

#[tokio::test]
async fn history_keeps_the_latest_events_and_counts_the_others() {
    let talk = two_turns((0..MOST).map(|i| delta(&i.to_string()).into())).await;
    let history = talk.conversation.history();
    assert_eq!(checked(&history, &talk), MOST);
    assert!(history.omitted > 0);
}

/// Returns the number of lines in the history.
fn lines(history: &History) -> usize {
    let lines = history.events.iter().filter(|published| {
        matches!(&published.event, ConversationEvent::Observed(seen) if seen.raw.is_some())
    });
    lines.count()
}

#[tokio::test]
async fn history_keeps_the_latest_8_mib() {
    let lines_of_turn = || (0..5).map(|_| line(MIB));
    let script = turn(Script::new(), lines_of_turn());
    let talk = play(turn(script, lines_of_turn())).await;
    let history = talk.conversation.history();
    checked(&history, &talk);
    assert_eq!(lines(&history), 8);
}

#[tokio::test]
async fn flood_in_one_turn_keeps_the_latest_mib() {
    let talk = two_turns((0..40).map(|_| line(MIB / 4))).await;
    let history = talk.conversation.history();
    checked(&history, &talk);
    assert_eq!(lines(&history), 4);
}

#[tokio::test]
async fn event_that_exceeds_the_limit_alone_is_omitted_with_the_earlier_ones() {
    let talk = two_turns([line(9 * MIB)]).await;
    let history = talk.conversation.history();
    checked(&history, &talk);
    let large = talk
        .read
        .iter()
        .position(|event| matches!(event, ConversationEvent::Observed(seen) if seen.raw.is_some()));
    assert_eq!(large.map(|at| at as u64 + 1), Some(history.omitted));
}

#[tokio::test]
async fn replay_is_whole_although_the_turn_before_exceeded_the_history() {
    let latch = Latch::new();
    let mut script = Script::new().message().begin();
    for i in 0..MOST {
        script = script.observe(delta(&i.to_string()));
    }
    let script = script.end(EndReason::Completed).message().begin();
    let script = script.observe(delta("now")).wait_for_latch(&latch);
    let driver = ScriptedDriver::new(steered()).with_script(script.end(EndReason::Completed));
    let options = ConversationOptions::default().with_manual_start();
    let mut talk = TestConversation::limited(driver, options.with_backlog(100_000));
    talk.send("first");
    talk.start().await;
    talk.completed().await;
    talk.send("second");
    talk.observed(delta("now")).await;
    let mut late = talk.conversation.replay(10);
    latch.open();
    let first = soon(late.next()).await.expect("the turn runs");
    let first = first.expect("the reader is fast enough").event;
    assert!(matches!(first, ConversationEvent::Assigned(_)), "{first:?}");
}
