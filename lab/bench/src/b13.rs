//! B13: many producers send, many subscribers read the events, and an agent in the same process completes a turn for each message at once.

mod echo;

use std::time::{Duration, Instant};

use agent_duplex::{Conversation, ConversationEvent, ConversationOptions, Input, SessionChoice};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;

use crate::harness::{
    Bench, Outcome, Plan, Progress, Result, Role, Series, Turn, in_turn, workers,
};
use echo::Echo;

pub(crate) const BENCH: Bench = Bench {
    id: "b13",
    title: "inputs from many senders to many readers",
    run,
    measured: None,
};

const OURS: &str = "conversation";
const STEERED: &str = "conversation, one message per input";
const FLOOR: &str = "mpsc + broadcast";
const PRODUCERS: usize = 10;
const SUBSCRIBERS: usize = 10;
/// The largest number of sends that wait.
const INBOX: usize = 1000;

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    const SIZES: [(usize, &str); 3] = [(1_000, "1,000"), (10_000, "10,000"), (100_000, "100,000")];
    let sizes = plan.scale.pick(&SIZES[..], &SIZES[..], &[(100, "100")]);
    let rounds = plan.scale.pick([31, 15, 9], [11, 5, 3], [1, 0, 0]);
    let runtime = workers()?;
    for ((count, label), rounds) in sizes.iter().copied().zip(rounds) {
        let progress = Progress::of(format!("b13 {label}"));
        let turns = vec![
            Turn::new(OURS, Role::Ours, |_| {
                runtime.block_on(conversation(count, false)).map(Some)
            }),
            Turn::new(STEERED, Role::Ours, |_| {
                runtime.block_on(conversation(count, true)).map(Some)
            }),
            Turn::new(FLOOR, Role::Floor, |_| {
                runtime.block_on(channels(count)).map(Some)
            }),
        ];
        let times = in_turn(0..rounds, turns, &progress)?;
        let series =
            Series::new("all sent and seen by all", "ms", times).sized(count as f64, label);
        for name in [OURS, STEERED] {
            let over = series.paired(name, FLOOR);
            outcome
                .at_most(&format!("{name}, {label}"), over, 2.5, "× floor")
                .about(series.title(), name);
        }
        outcome.series.push(series);
    }
    outcome.notes.push(format!(
        "{PRODUCERS} producers, {SUBSCRIBERS} subscribers and one primary; at most {INBOX} sends wait; inputs that wait together are one \
         message, except with a steered agent, where each input is its own message"
    ));
    Ok(())
}

fn share(count: usize, producer: usize) -> usize {
    count / PRODUCERS + usize::from(producer < count % PRODUCERS)
}

/// Measures the floor: a task receives the inputs and sends each to all subscribers; the end of `send` is the receipt.
async fn channels(count: usize) -> Result<f64> {
    let (sender, mut taken) = mpsc::channel::<Input>(INBOX);
    // The channel is large enough that a slow reader misses nothing.
    let (told, _) = broadcast::channel::<Input>(count.next_power_of_two());
    let mut tasks = JoinSet::new();
    for _ in 0..SUBSCRIBERS {
        let mut subscriber = told.subscribe();
        tasks.spawn(async move {
            for _ in 0..count {
                std::hint::black_box(subscriber.recv().await?);
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        });
    }
    let begun = Instant::now();
    for producer in 0..PRODUCERS {
        let sender = sender.clone();
        tasks.spawn(async move {
            for _ in 0..share(count, producer) {
                sender
                    .send(Input::new("go"))
                    .await
                    .map_err(|_| "no task receives the input")?;
            }
            Ok(())
        });
    }
    drop(sender);
    tasks.spawn(async move {
        while let Some(input) = taken.recv().await {
            told.send(input).map_err(|_| "there is no subscriber")?;
        }
        Ok(())
    });
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

async fn conversation(count: usize, steered: bool) -> Result<f64> {
    let mut options = ConversationOptions::default().with_manual_start();
    options.inbox_capacity = INBOX;
    let (conversation, mut primary) =
        Conversation::with_primary(Box::new(Echo { steered }), options);
    let mut tasks = JoinSet::new();
    for _ in 0..SUBSCRIBERS {
        // The subscription is large enough that a slow reader misses nothing: a turn has three events, its assignment, its message and its
        // completion.
        let mut subscription = conversation.subscribe(4 * count + 100);
        tasks.spawn(async move {
            let mut seen = 0;
            while seen < count {
                let published = subscription
                    .next_shared()
                    .await
                    .ok_or("the conversation ended too soon")??;
                if let ConversationEvent::Assigned(assignment) = &published.event {
                    seen += assignment.inputs.len();
                }
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        });
    }
    conversation.start(SessionChoice::Fresh).await?;
    let begun = Instant::now();
    for producer in 0..PRODUCERS {
        let conversation = conversation.clone();
        tasks.spawn(async move {
            for _ in 0..share(count, producer) {
                let input = Input::new("go");
                loop {
                    match conversation.send(input.clone()) {
                        Ok(receipt) => break drop(std::hint::black_box(receipt)),
                        Err(error) if error.is_full() => tokio::task::yield_now().await,
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Ok(())
        });
    }
    tasks.spawn(async move {
        let mut seen = 0;
        while seen < count {
            if let ConversationEvent::Assigned(assignment) = &primary
                .next_shared()
                .await
                .ok_or("the conversation ended too soon")?
                .event
            {
                seen += assignment.inputs.len();
            }
        }
        Ok(())
    });
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let took = begun.elapsed().as_secs_f64() * 1e3;
    conversation.stop(Duration::from_secs(1)).await;
    Ok(took)
}
