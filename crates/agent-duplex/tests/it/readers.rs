//! Readers that are too slow: a primary makes the conversation stop reading from the agent, and a subscriber is dropped.

use std::time::Duration;

use agent_duplex::scripted::{Script, ScriptedCall, ScriptedDriver};
use agent_duplex::{
    ConversationOptions, EndReason, Input, Lagged, Lifecycle, Published, QueuedMessages,
    Subscription,
};

use crate::support::{TestConversation, delta, soon, steered};

const MANY: usize = 500;

/// Returns an agent that reports a lot in one turn.
fn chatty() -> ScriptedDriver {
    let mut script = Script::new().message().begin();
    for i in 0..MANY {
        script = script.observe(delta(&i.to_string()));
    }
    ScriptedDriver::new(steered()).with_script(script.end(EndReason::Completed))
}

async fn read_all(subscription: &mut Subscription) -> (Vec<Published>, Option<Lagged>) {
    let mut read = Vec::new();
    while let Some(next) = soon(subscription.next()).await {
        match next {
            Ok(published) => read.push(published),
            Err(dropped) => {
                assert!(soon(subscription.next()).await.is_none());
                return (read, Some(dropped));
            }
        }
    }
    (read, None)
}

#[tokio::test]
async fn l87a_l87b_l87c_p10a_p11a_stalled_subscriber_is_dropped_with_its_position() {
    let mut talk = TestConversation::with(chatty());
    let mut first = talk.conversation.subscribe(10_000);
    let mut second = talk.conversation.subscribe(10_000);
    let mut stalled = talk.conversation.subscribe(20);
    talk.send("go");
    talk.start().await;
    talk.completed().await;
    soon(talk.conversation.stop(Duration::ZERO)).await;
    talk.read_all().await;
    let (first, lost) = read_all(&mut first).await;
    assert_eq!(lost, None);
    assert_eq!(first.len(), talk.read.len());
    let whats: Vec<_> = first.iter().map(|published| &published.event).collect();
    assert!(whats.iter().copied().eq(&talk.read));
    assert_eq!(read_all(&mut second).await, (first.clone(), None));
    let (beginning, lost) = read_all(&mut stalled).await;
    assert_eq!(beginning, first[..20]);
    assert_eq!(lost.map(|lost| lost.last), Some(20));
}

#[tokio::test]
async fn l87a_reading_subscriber_is_not_dropped() {
    let options = ConversationOptions::default()
        .with_manual_start()
        .with_backlog(10);
    let mut talk = TestConversation::limited(chatty(), options);
    let mut subscription = talk.conversation.subscribe(20);
    talk.send("go");
    let conversation = talk.conversation.clone();
    let reader = tokio::spawn(async move { read_all(&mut subscription).await });
    talk.start().await;
    // The backlog limits how far the agent gets ahead of the primary. This subscriber reads as often as the primary, so the limit holds for it too.
    talk.completed().await;
    soon(conversation.stop(Duration::ZERO)).await;
    talk.read_all().await;
    let (read, lost) = soon(reader).await.unwrap();
    assert_eq!(lost, None);
    assert_eq!(read.len(), talk.read.len());
}

#[tokio::test]
async fn p11b_slow_primary_loses_nothing_and_blocks_the_agent() {
    let options = ConversationOptions::default()
        .with_manual_start()
        .with_backlog(10);
    let mut talk = TestConversation::limited(chatty(), options);
    let mut ahead = talk.conversation.subscribe(10_000);
    talk.send("go");
    talk.start().await;
    // The primary does not read: the conversation reads the agent until the backlog is full, no matter how often it gets to run.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    soon(talk.conversation.leftovers()).await;
    let mut published = 0;
    while let Ok(Some(_)) = tokio::time::timeout(Duration::ZERO, ahead.next()).await {
        published += 1;
    }
    assert!((10..20).contains(&published), "{published}");
    talk.completed().await;
    let deltas = talk.read.len();
    assert!(deltas >= MANY, "{deltas}");
}

#[tokio::test]
async fn p10b_commands_work_while_the_primary_is_blocked() {
    let options = ConversationOptions::default()
        .with_manual_start()
        .with_backlog(1);
    let mut talk = TestConversation::limited(chatty(), options);
    talk.send("go");
    talk.start().await;
    talk.send("steered");
    soon(talk.driver.wait_for_calls(|calls| calls.len() == 3)).await;
    let interrupt = talk.conversation.interrupt(QueuedMessages::Keep);
    let wanted = ScriptedCall::Interrupted(QueuedMessages::Keep);
    soon(
        talk.driver
            .wait_for_calls(|calls| calls.last() == Some(&wanted)),
    )
    .await;
    soon(talk.conversation.freeze(true)).await.unwrap();
    assert_eq!(talk.conversation.lifecycle(), Lifecycle::Interrupting);
    soon(talk.conversation.stop(Duration::ZERO)).await;
    assert!(
        talk.conversation
            .send(Input::new("late"))
            .unwrap_err()
            .is_gone()
    );
    talk.read_all().await;
    soon(interrupt).await.unwrap();
    assert_eq!(talk.audit.completed(), 1);
}

#[tokio::test]
async fn a_subscription_after_the_end_ends() {
    let talk = TestConversation::with(ScriptedDriver::new(steered()));
    let mut before = talk.conversation.subscribe(10);
    soon(talk.conversation.stop(Duration::ZERO)).await;
    let (read, lost) = read_all(&mut before).await;
    assert_eq!((read.len(), lost), (2, None));
    let mut after = talk.conversation.subscribe(10);
    assert!(soon(after.next()).await.is_none());
}
