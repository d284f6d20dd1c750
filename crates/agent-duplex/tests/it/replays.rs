//! Readers that come late: they get the turn from its start, and each event once.

use std::time::Duration;

use agent_duplex::scripted::{Latch, Script, ScriptedDriver};
use agent_duplex::{
    ConversationEvent, ConversationOptions, EndReason, Event, Line, Observation, Stream,
    Subscription,
};
use bytes::Bytes;
use proptest::prelude::*;

use crate::support::{TestConversation, delta, soon, steered};

fn line(bytes: usize) -> Observation {
    Observation::output(
        Stream::Stdout,
        Line {
            bytes: Bytes::from(vec![b'x'; bytes]),
            omitted: 0,
        },
    )
}

/// Returns an agent whose turn reports these observations, waits for the latch, and reports one more.
fn gated(things: impl IntoIterator<Item = Observation>, gate: &Latch) -> ScriptedDriver {
    let mut script = Script::new().message().begin();
    for thing in things {
        script = script.observe(thing);
    }
    let script = script
        .observe(delta("before"))
        .wait_for_latch(gate)
        .observe(delta("after"));
    let script = script.end(EndReason::Completed).message().begin();
    let script = script.report_message("again").end(EndReason::Completed);
    ScriptedDriver::new(steered()).with_script(script)
}

/// An event and its sequence number.
type Numbered = (u64, ConversationEvent);

async fn read_all(mut subscription: Subscription) -> Vec<Numbered> {
    let mut read = Vec::new();
    while let Some(next) = soon(subscription.next()).await {
        let published = next.expect("the reader is fast enough");
        read.push((published.sequence, published.event));
    }
    read
}

/// Plays two turns. Returns the events of a reader that subscribed at the latch of the first turn, and the events of the primary.
async fn late(
    things: impl IntoIterator<Item = Observation>,
    capacity: usize,
) -> (Vec<Numbered>, Vec<Numbered>) {
    let gate = Latch::new();
    let options = ConversationOptions::default()
        .with_manual_start()
        .with_backlog(100_000);
    let mut talk = TestConversation::limited(gated(things, &gate), options);
    talk.send("first");
    talk.start().await;
    talk.observed(delta("before")).await;
    let late = talk.conversation.replay(capacity);
    gate.open();
    talk.completed().await;
    let after = talk.conversation.replay(capacity);
    talk.send("second");
    talk.completed().await;
    soon(talk.conversation.stop(Duration::ZERO)).await;
    talk.read_all().await;
    let all: Vec<_> = (1..).zip(talk.read.iter().cloned()).collect();
    let after = read_all(after).await;
    let completed = all
        .iter()
        .position(|(_, event)| matches!(event, ConversationEvent::Completed(_)))
        .expect("the first turn has ended");
    assert!(
        after
            .first()
            .is_some_and(|(sequence, _)| *sequence > all[completed].0)
    );
    assert!(all.ends_with(&after));
    (read_all(late).await, all)
}

fn begins_with_the_turn(late: &[Numbered], all: &[Numbered]) {
    let assigned = |(_, event): &Numbered| matches!(event, ConversationEvent::Assigned(_));
    let begin = all.iter().position(assigned).expect("a turn was assigned");
    assert_eq!(late, &all[begin..]);
}

#[tokio::test]
async fn l88a_p12_late_reader_gets_each_event_of_the_turn_once() {
    // The replay has more events than this reader may leave unread.
    let (read, all) = late((0..50).map(|i| delta(&i.to_string()).into()), 20).await;
    begins_with_the_turn(&read, &all);
}

#[tokio::test]
async fn l88b_replay_of_too_many_events_is_skipped_and_reported_first() {
    let most = 10_000;
    // Three of the events are the assignment, the lifecycle, and the event right before the latch.
    let (read, all) = late((0..most - 3).map(|_| line(0)), 100).await;
    let begin = all.len() - read.len();
    assert!(matches!(all[begin].1, ConversationEvent::Assigned(_)));
    begins_with_the_turn(&read, &all);
    let (read, all) = late((0..most - 2).map(|_| line(0)), 100).await;
    truncated(&read, &all);
}

#[tokio::test]
async fn l88b_replay_of_too_many_bytes_is_skipped_and_reported_first() {
    let mib = 1 << 20;
    let (read, all) = late((0..7).map(|_| line(mib)), 100).await;
    begins_with_the_turn(&read, &all);
    let (read, all) = late((0..9).map(|_| line(mib)), 100).await;
    truncated(&read, &all);
    // Texts count like lines.
    let text = |_| {
        Observation::from(Event::Message {
            text: "x".repeat(mib),
            partial: false,
        })
    };
    let (read, all) = late((0..9).map(text), 100).await;
    truncated(&read, &all);
}

/// The left-out part ends at the reported sequence number, and no later event is missing.
fn truncated(read: &[Numbered], all: &[Numbered]) {
    assert_eq!(read[0].1, ConversationEvent::ReplayTruncated);
    let left_out = usize::try_from(read[0].0).expect("the number is small");
    assert_eq!(
        all[left_out - 1].1,
        ConversationEvent::Observed(delta("before").into())
    );
    assert_eq!(read[1..], all[left_out..]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]
    /// Whenever a reader subscribes, its replay and the later events are together equal to the events of the primary since the start of the turn.
    #[test]
    fn l88a_late_reader_misses_and_repeats_nothing(
        turns in proptest::collection::vec(0usize..6, 1..5),
        at in 0usize..40,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut script = Script::new();
            for (turn, things) in turns.iter().enumerate() {
                script = script.message().begin();
                for i in 0..*things {
                    script = script.observe(delta(&format!("{turn}.{i}")));
                }
                script = script.end(EndReason::Completed);
            }
            // The backlog keeps the agent almost in step with the reader.
            let options = ConversationOptions::default().with_manual_start().with_backlog(1);
            let driver = ScriptedDriver::new(steered()).with_script(script);
            let mut talk = TestConversation::limited(driver, options);
            talk.start().await;
            let mut late = None;
            for _ in &turns {
                talk.send("go");
                while !matches!(talk.read.last(), Some(ConversationEvent::Completed(_))) || talk.audit.pending() > 0 {
                    if talk.read.len() == at {
                        late = Some(talk.conversation.replay(1000));
                    }
                    talk.read().await;
                }
            }
            soon(talk.conversation.stop(Duration::ZERO)).await;
            talk.read_all().await;
            if let Some(late) = late {
                let read = read_all(late).await;
                let begin = usize::try_from(read[0].0).unwrap() - 1;
                let whats: Vec<_> = read.iter().map(|(_, event)| event.clone()).collect();
                assert_eq!(whats, talk.read[begin..]);
                let earlier = &talk.read[..begin];
                let count = |what: fn(&ConversationEvent) -> bool| earlier.iter().filter(|w| what(w)).count();
                let begun = count(|what| matches!(what, ConversationEvent::Assigned(a) if !a.injected));
                let over = count(|what| matches!(what, ConversationEvent::Completed(_)));
                assert_eq!(begun, over, "the replay starts within a turn");
            }
        });
    }
}
