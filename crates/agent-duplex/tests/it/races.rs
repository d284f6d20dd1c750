//! Everything at once, on many threads: nothing hangs and nothing is lost.

use std::time::Duration;

use agent_duplex::scripted::{ContractChecker, Latch, Script, ScriptedDriver};
use agent_duplex::{
    Conversation, ConversationEvent, ConversationOptions, EndReason, Input, MemoryPersistence,
    Mode, QueuedMessages, RestartPolicy, SessionChoice,
};
use tokio::task::JoinHandle;

use crate::support::{TestConversation, resumable, soon};

/// A random number generator with a fixed seed, so that each run is the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Starts a task that does one action after the latch is open; the task returns its receipts.
fn racer(
    talk: &TestConversation,
    action: u64,
    gate: &Latch,
    name: String,
) -> JoinHandle<Vec<agent_duplex::Receipt>> {
    let (conversation, gate) = (talk.conversation.clone(), gate.clone());
    tokio::spawn(async move {
        gate.opened().await;
        let mut receipts = Vec::new();
        match action {
            0 => drop(conversation.start(SessionChoice::Fresh).await),
            1 => drop(conversation.stop(Duration::ZERO).await),
            2 => conversation.close().await,
            3 => {
                // A start that follows a close.
                conversation.close().await;
                drop(conversation.start(SessionChoice::Resume("s".into())).await);
            }
            4 => drop(conversation.interrupt(QueuedMessages::Keep).await),
            5 => {
                drop(conversation.pause_delivery(true).await);
                tokio::task::yield_now().await;
                drop(conversation.pause_delivery(false).await);
            }
            6 => {
                if let Ok(mut execution) = conversation.execute(Input::new(name)).await {
                    receipts.push(execution.receipt().clone());
                    let mut assigned = false;
                    while let Some(Ok(published)) = execution.next().await {
                        assigned |= matches!(published.event, ConversationEvent::Assigned(_));
                    }
                    assert_eq!(assigned, execution.completion().is_some());
                }
            }
            7 => {
                // Requested, but not waited for.
                drop(conversation.interrupt(QueuedMessages::Keep));
                let asked = tokio::time::timeout(Duration::ZERO, conversation.close());
                drop(asked.await);
            }
            8 => receipts.extend(conversation.accept(Input::new(name)).await),
            _ => {
                for i in 0..5 {
                    receipts.extend(conversation.send(Input::new(format!("{name}.{i}"))));
                }
            }
        }
        receipts
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn l93a_l93b_p55a_no_race_hangs_or_loses_an_input() {
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for round in 0..1000 {
        let answers = || {
            let script = Script::new()
                .session("s")
                .message()
                .begin()
                .report_message("x");
            script.end(EndReason::Completed).message()
        };
        let driver = ScriptedDriver::new(resumable()).with_repeating_script(match dice.roll(3) {
            0 => answers().ends(),
            1 => Script::new().message().ends(),
            _ => answers().begin().end(EndReason::Completed).message(),
        });
        let mut options = ConversationOptions::default().with_manual_start();
        if dice.roll(2) == 0 {
            let mut policy = RestartPolicy::default();
            policy.first_wait = Duration::from_micros(10);
            options.restart = Some(policy);
        }
        if dice.roll(4) == 0 {
            options.mode = Mode::OneShot;
        }
        let redelivers = options.restart.is_none() && options.mode == Mode::Interactive;
        let kept = dice.roll(4) == 0;
        let talk = if kept {
            TestConversation::stored(driver, options, MemoryPersistence::new())
                .await
                .0
        } else {
            TestConversation::limited(driver, options)
        };
        let gate = Latch::new();
        let stops = dice.roll(4) > 0;
        let racers: Vec<_> = (0..6)
            .map(|n| {
                // A task that waits for the end of a turn keeps its handle of the conversation.
                let action = match dice.roll(12) {
                    2..=4 | 6 | 7 if !stops => 9,
                    action => action,
                };
                racer(&talk, action, &gate, format!("{round}.{n}"))
            })
            .collect();
        let TestConversation {
            conversation,
            mut primary,
            driver,
            ..
        } = talk;
        let reads = tokio::spawn(async move {
            let mut read = Vec::new();
            while let Some(published) = primary.next().await {
                read.push(published.event);
            }
            read
        });
        gate.open();
        // Without a stop, the conversation ends with its last handle.
        let last = stops.then_some(conversation);
        if let Some(conversation) = &last {
            for _ in 0..dice.roll(50) {
                tokio::task::yield_now().await;
            }
            soon(conversation.stop(Duration::ZERO)).await;
        }
        let mut audit = ContractChecker::new();
        for racer in racers {
            let receipts = soon(racer).await.unwrap();
            receipts.iter().for_each(|receipt| audit.accepted(receipt));
        }
        let read = soon(reads).await.unwrap();
        read.iter().for_each(|what| audit.observe(what));
        assert_eq!(audit.running(), 0);
        if let Some(conversation) = last {
            assert_eq!(conversation.pending().len(), audit.pending());
        }
        if !redelivers || kept {
            let messages = driver.messages();
            let mut handed: Vec<&str> = messages.iter().flat_map(|m| m.split("\n\n")).collect();
            let all = handed.len();
            handed.sort_unstable();
            handed.dedup();
            assert_eq!(handed.len(), all, "an input was delivered twice");
        }
    }
}

/// A message that is sent while a channel closes can stay in the channel.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn l98c_call_during_the_end_is_answered() {
    for _ in 0..10_000 {
        let driver = ScriptedDriver::new(resumable());
        let options = ConversationOptions::default().with_manual_start();
        let (conversation, primary) = Conversation::with_primary(Box::new(driver), options);
        drop(primary);
        let asks: Vec<_> = (0..3)
            .map(|_| {
                let conversation = conversation.clone();
                tokio::spawn(async move {
                    while conversation.pause_delivery(true).await.is_ok() {
                        let _over = conversation.interrupt(QueuedMessages::Keep).await;
                    }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        soon(conversation.stop(Duration::ZERO)).await;
        for ask in asks {
            soon(ask).await.unwrap();
        }
    }
}
