//! Tests of turns as a conversation sees them: interrupts that keep the process, and messages that are never lost or taken twice.

use super::*;
use agent_duplex::{
    Completion, Conversation, ConversationEvent, ConversationOptions, Input, Primary, Published,
    QueuedMessages,
};
use std::collections::BTreeSet;

async fn converse(scene: &Scene, functions: &str) -> (Conversation, Primary) {
    let driver = Box::new(driver(scene, functions));
    let (conversation, primary) =
        Conversation::with_primary(driver, ConversationOptions::default().with_manual_start());
    conversation.start(SessionChoice::Fresh).await.unwrap();
    (conversation, primary)
}

async fn read(
    primary: &mut Primary,
    enough: impl Fn(&ConversationEvent) -> bool,
) -> Vec<ConversationEvent> {
    let mut all = Vec::new();
    while let Some(Published { event: what, .. }) = timeout(DEADLINE, primary.next()).await.unwrap()
    {
        all.push(what);
        if all.last().is_some_and(&enough) {
            return all;
        }
    }
    panic!("the event never came: {all:?}");
}

fn says(what: &ConversationEvent, wanted: impl Fn(&Event) -> bool) -> bool {
    matches!(what, ConversationEvent::Observed(seen) if seen.events.iter().any(wanted))
}

fn completion(all: &[ConversationEvent]) -> Completion {
    match all.last() {
        Some(ConversationEvent::Completed(completion)) => completion.clone(),
        other => panic!("expected a completion: {other:?}"),
    }
}

#[tokio::test]
async fn l89a_l89b_interrupt_keeps_the_process_and_the_queued_message() {
    let scene = Scene::new();
    // The agent accepts a message into its turn, and forgets it.
    let functions = r#"
    on_steer() { ok '"turnId":"1"'; }
    work() { delta half; [ "$n" = 1 ] || completed completed; }"#;
    let (conversation, mut primary) = converse(&scene, functions).await;
    conversation.send(Input::new("one")).unwrap();
    let delta = |what: &ConversationEvent| says(what, |event| matches!(event, Event::TextDelta(_)));
    read(&mut primary, delta).await;
    let second = conversation.send(Input::new("two")).unwrap();
    read(&mut primary, |what| {
        says(what, |event| matches!(event, Event::Input { .. }))
    })
    .await;
    let interrupted = tokio::spawn(conversation.interrupt(QueuedMessages::Keep));
    let is_end = |what: &ConversationEvent| matches!(what, ConversationEvent::Completed(_));
    let first = completion(&read(&mut primary, is_end).await);
    assert_eq!(
        (first.end.reason, first.pending),
        (EndReason::Interrupted, 1)
    );
    let all = read(&mut primary, is_end).await;
    assert_eq!(completion(&all).end.reason, EndReason::Completed);
    let assigned = all.iter().find_map(|what| match what {
        ConversationEvent::Assigned(assignment) => Some(assignment.clone()),
        _ => None,
    });
    let assigned = assigned.unwrap();
    assert_eq!((assigned.generation, assigned.inputs.len()), (1, 1));
    assert_eq!(assigned.inputs[0].receipt, second.id);
    interrupted.await.unwrap().unwrap();
    conversation.stop(DEADLINE).await;
    scene.assert_no_process_left();
}

#[tokio::test]
async fn l84d_no_message_is_lost_or_taken_twice() {
    let scene = Scene::new();
    // Every third turn ends immediately. The others take one message or none, and end after they refused one.
    let functions = r#"
    work() { delta "$n"; case $((n % 3)) in 0) completed completed ;; esac; }
    on_steer() { case $((n % 3))$took in
      1) ok '"turnId":"'"$n"'"'; taken; took=x ;;
      *) no 'no active turn to steer'; took=; completed completed ;;
    esac; }"#;
    let (conversation, mut primary) = converse(&scene, functions).await;
    let mut sent = BTreeSet::new();
    let mut taken = Vec::new();
    for n in 0..50 {
        sent.insert(conversation.send(Input::new(format!("{n}"))).unwrap().id);
        if n % 7 == 0 {
            let all = read(&mut primary, |what| {
                matches!(what, ConversationEvent::Observed(_))
            })
            .await;
            taken.extend(all);
        }
    }
    let count = |all: &[ConversationEvent]| {
        let inputs = all.iter().filter_map(|what| match what {
            ConversationEvent::Assigned(assignment) => Some(assignment.inputs.clone()),
            _ => None,
        });
        let ids = inputs.flatten().map(|input| input.receipt);
        ids.collect::<Vec<_>>()
    };
    while count(&taken).len() < sent.len() {
        taken.extend(
            read(&mut primary, |what| {
                matches!(what, ConversationEvent::Assigned(_))
            })
            .await,
        );
    }
    let assigned = count(&taken);
    assert_eq!(assigned.iter().copied().collect::<BTreeSet<_>>(), sent);
    assert_eq!(assigned.len(), sent.len());
    drop(primary);
    conversation.stop(DEADLINE).await;
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p25b_streamed_message_is_reported_once() {
    let scene = Scene::new();
    let script = r#"work() {
      delta "all of it"
      tell item/completed '"turnId":"'"$n"'","item":{"type":"agentMessage","id":"m","text":"all of it"}'
      completed completed
    }"#;
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("go on")).await.unwrap();
    let (events, _) = turn(&mut *connection).await;
    let messages = events
        .into_iter()
        .filter(|event| matches!(event, Event::Message { .. }));
    let whole = Event::Message {
        text: "all of it".to_owned(),
        partial: false,
    };
    assert_eq!(messages.collect::<Vec<_>>(), [whole]);
    drop(connection.stop(DEADLINE).await);
    scene.assert_no_process_left();
}

#[tokio::test]
async fn image_is_checked_and_its_path_sent() {
    let scene = Scene::new();
    let script = r#"work() { printf '%s\n' "$line" >> heard; completed completed; }"#;
    let mut connection = connect(&scene, script).await;
    let message = scene.message_with_image("What is it?");
    connection.send(message.clone()).await.unwrap();
    turn(&mut *connection).await;
    std::fs::write(scene.path("image.png"), "no image").unwrap();
    let error = connection.send(message).await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    connection.send(Message::new("no image")).await.unwrap();
    turn(&mut *connection).await;
    let heard = std::fs::read_to_string(scene.path("heard")).unwrap();
    let heard: Vec<serde_json::Value> = { heard.lines() }
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let path = scene.path("image.png");
    let image = serde_json::json!({"type": "localImage", "path": path.to_str().unwrap()});
    assert_eq!(heard[0]["params"]["input"][1], image);
    assert_eq!(heard[1]["params"]["input"].as_array().unwrap().len(), 1);
    drop(connection.stop(DEADLINE).await);
    scene.assert_no_process_left();
}
