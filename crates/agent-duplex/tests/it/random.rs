//! Any driver, and any order of the callers' actions: the promises are kept.

mod any;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_duplex::scripted::{ContractChecker, ScriptedCall, ScriptedDriver};
use agent_duplex::{
    Capabilities, Capability, Conversation, ConversationEvent, ConversationOptions, Error, Event,
    Input, InputPolicy, InputState, Lifecycle, MemoryPersistence, PersistedRecord, Persistence,
    Primary, Receipt, RecoveredConversation, RestartPolicy,
};
use proptest::prelude::*;
use tokio::task::JoinHandle;

use self::any::{Step, TestAction, World, any_deed, any_script, any_world, script};
use crate::support::soon;

/// A store in memory that fails after some appends.
#[derive(Debug)]
struct Failing {
    inner: MemoryPersistence,
    left: Arc<AtomicUsize>,
}

impl Persistence for Failing {
    fn recover(&mut self) -> Result<RecoveredConversation, Error> {
        self.inner.recover()
    }

    fn append(&mut self, records: &[PersistedRecord]) -> Result<(), Error> {
        let less = |left: usize| left.checked_sub(1);
        match self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
        {
            Ok(_) => self.inner.append(records),
            Err(_) => Err(Error::persistence(
                "the disk is full; free some space",
                None,
            )),
        }
    }
}

/// A conversation with random actions, and their results.
struct Play {
    conversation: Conversation,
    primary: Primary,
    driver: ScriptedDriver,
    read: Vec<ConversationEvent>,
    receipts: Arc<Mutex<Vec<(String, Receipt)>>>,
    texts: usize,
    answers: bool,
    tasks: Vec<JoinHandle<()>>,
}

impl Play {
    async fn new(world: &World, scripts: Vec<Vec<Step>>, memory: &Failing) -> Self {
        let capabilities = [
            (Capability::Resume, world.resumes),
            (Capability::Steer, world.policy == InputPolicy::Push),
            (Capability::Interrupt, true),
        ];
        let capabilities = capabilities.into_iter().filter(|(_, can)| *can);
        let capabilities = capabilities.fold(Capabilities::none(), |set, (can, _)| set.with(can));
        let driver = ScriptedDriver::new(capabilities).with_input_policy(world.policy);
        let driver = scripts
            .into_iter()
            .fold(driver, |driver, steps| driver.with_script(script(steps)));
        let mut options = ConversationOptions::default().with_manual_start();
        options.backlog_capacity = world.backlog;
        options.mode = world.mode;
        options.restart = world.restarts.map(|most| {
            let mut policy = RestartPolicy::default();
            (policy.max_starts, policy.first_wait) = (most, Duration::from_millis(1));
            policy
        });
        let agent = Box::new(driver.clone());
        let (conversation, primary) = if world.kept.is_some() {
            let memory = Failing {
                inner: memory.inner.clone(),
                left: Arc::clone(&memory.left),
            };
            let opened = Conversation::open_with_primary(agent, options, Box::new(memory)).await;
            let (conversation, primary, _) = opened.expect("a store in memory can be read");
            (conversation, primary)
        } else {
            Conversation::with_primary(agent, options)
        };
        Self {
            conversation,
            primary,
            driver,
            read: Vec::new(),
            receipts: Arc::default(),
            texts: 0,
            answers: false,
            tasks: Vec::new(),
        }
    }

    fn input(&mut self) -> Input {
        self.texts += 1;
        let mut input = Input::new(self.texts.to_string());
        input.id = input.text.clone();
        input
    }

    fn spawn(&mut self, action: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(tokio::spawn(action));
    }

    async fn read(&mut self) -> bool {
        let next = soon(self.primary.next()).await;
        self.read.extend(next.map(|published| published.event));
        !matches!(
            self.read.last(),
            None | Some(ConversationEvent::Lifecycle(Lifecycle::Ended))
        )
    }

    async fn act(&mut self, action: TestAction) {
        let conversation = self.conversation.clone();
        let receipts = Arc::clone(&self.receipts);
        let took = move |text: String, receipt: Receipt| {
            if !receipt.duplicate {
                receipts
                    .lock()
                    .expect("no task panics with the lock")
                    .push((text, receipt));
            }
        };
        match action {
            TestAction::Send(parent) => {
                let parent =
                    [String::new(), parent.to_string()][usize::from(parent.min(1))].clone();
                let input = self
                    .input()
                    .continuing_turn(&parent)
                    .expect("the parent is a turn number");
                let text = input.text.clone();
                if let Ok(receipt) = conversation.send(input) {
                    took(text, receipt);
                }
            }
            TestAction::Accept(again) => {
                let mut input = self.input();
                if again {
                    // An input that was accepted before, if there is one.
                    let known = self
                        .receipts
                        .lock()
                        .expect("no task panics with the lock")
                        .first()
                        .cloned();
                    input.id = known.map_or(input.id, |(text, _)| text);
                }
                let text = input.text.clone();
                self.spawn(async move {
                    if let Ok(receipt) = conversation.accept(input).await {
                        took(text, receipt);
                    }
                });
            }
            TestAction::Execute => {
                let input = self.input();
                let text = input.text.clone();
                self.spawn(async move {
                    let Ok(mut execution) = conversation.execute(input).await else {
                        return;
                    };
                    took(text, execution.receipt().clone());
                    let mut assigned = false;
                    while let Some(next) = execution.next().await {
                        let what = next.expect("the reader has room").event;
                        assigned |= matches!(what, ConversationEvent::Assigned(_));
                    }
                    assert_eq!(assigned, execution.completion().is_some());
                });
            }
            TestAction::Start(session) => self.spawn(async move {
                let _refused = conversation.start(session).await;
            }),
            TestAction::Interrupt(queued) => {
                let interrupt = conversation.interrupt(queued);
                self.spawn(async move {
                    let _refused = interrupt.await;
                });
            }
            TestAction::Hold(held) => self.spawn(async move {
                let _over = conversation.pause_delivery(held).await;
            }),
            TestAction::Read(times) => {
                for _ in 0..times {
                    let next = tokio::time::timeout(Duration::ZERO, self.read());
                    if !matches!(next.await, Ok(true)) {
                        break;
                    }
                }
            }
            TestAction::Yield(times) => {
                for _ in 0..times {
                    tokio::task::yield_now().await;
                }
            }
            TestAction::Close => self.spawn(async move { conversation.close().await }),
            TestAction::Freeze(frozen) => self.spawn(async move {
                let _refused = conversation.freeze(frozen).await;
            }),
            TestAction::Answer => {
                self.answers = true;
                self.spawn(async move {
                    let allow = agent_duplex::Decision::Allow;
                    let _over = conversation.answer("t", allow).await;
                });
            }
            TestAction::Leftovers => self.spawn(async move {
                conversation.leftovers().await;
            }),
            TestAction::Stop => self.spawn(async move {
                conversation.stop(Duration::ZERO).await;
            }),
        }
    }

    /// Ends the conversation, and checks it against the promises.
    async fn end(&mut self, world: &World) {
        let conversation = self.conversation.clone();
        soon(conversation.stop(Duration::ZERO)).await;
        while self.read().await {}
        assert_eq!(conversation.lifecycle(), Lifecycle::Ended);
        for task in self.tasks.drain(..) {
            soon(task).await.expect("no task panics");
        }
        let receipts = self.receipts.lock().expect("no task panics with the lock");
        let mut audit = ContractChecker::new();
        receipts
            .iter()
            .for_each(|(_, receipt)| audit.accepted(receipt));
        let mut read = self.read.clone();
        if self.answers {
            // An answer removes a permission request without an event.
            read.iter_mut().for_each(forget_asks);
        }
        if world.kept.is_some() {
            // A caller that got a persistence error has no receipt of an input that was dropped in the meantime.
            read.iter_mut()
                .for_each(|what| forget_unknown(what, &receipts));
        }
        read.iter().for_each(|what| audit.observe(what));
        assert_eq!(audit.running(), 0);
        // No input is lost or delivered twice: an input was dropped, waits, or was delivered. Only an input that an agent never accepted was
        // delivered again.
        let pending = conversation.pending();
        assert_eq!(pending.len(), audit.pending());
        let messages = self.driver.messages();
        let handed: Vec<&str> = messages.iter().flat_map(|m| m.split("\n\n")).collect();
        let connections = self.driver.sessions().len();
        let most = if world.redelivers() { connections } else { 1 };
        for (text, receipt) in receipts.iter() {
            let waits = pending.iter().any(|input| input.text == *text);
            let times = handed.iter().filter(|handed| *handed == text).count();
            assert!(times <= most, "{text} was delivered {times} times");
            let dropped = self.read.iter().any(|what| drops(what, receipt));
            // It is unknown whether a message that was on its way at a stop arrived.
            let taken = self.read.iter().any(|what| assigns(what, receipt));
            assert!(waits || times > 0 || dropped || taken, "{text} is lost");
        }
        let calls = self.driver.calls();
        let dropped = calls
            .iter()
            .filter(|call| **call == ScriptedCall::Dropped)
            .count();
        assert_eq!(connections.min(3), dropped);
    }
}

fn forget_asks(what: &mut ConversationEvent) {
    if let ConversationEvent::Observed(seen) = what {
        seen.events.retain(|event| {
            !matches!(
                event,
                Event::PermissionRequested(_) | Event::PermissionWithdrawn { .. }
            )
        });
    }
}

fn forget_unknown(what: &mut ConversationEvent, receipts: &[(String, Receipt)]) {
    if let ConversationEvent::Observed(seen) = what {
        let known = |id| receipts.iter().any(|(_, receipt)| receipt.id == id);
        seen.events
            .retain(|event| !matches!(event, Event::Input { id, .. } if !known(*id)));
    }
}

fn assigns(what: &ConversationEvent, receipt: &Receipt) -> bool {
    let ConversationEvent::Assigned(assignment) = what else {
        return false;
    };
    assignment
        .inputs
        .iter()
        .any(|input| input.receipt == receipt.id)
}

fn drops(what: &ConversationEvent, receipt: &Receipt) -> bool {
    let ConversationEvent::Observed(seen) = what else {
        return false;
    };
    seen.events.iter().any(|event| {
        matches!(event, Event::Input { id, state: InputState::Dropped(_) } if *id == receipt.id)
    })
}

async fn play(world: World, scripts: Vec<Vec<Step>>, deeds: Vec<TestAction>) {
    let inner = MemoryPersistence::new();
    let memory = Failing {
        inner: inner.clone(),
        left: Arc::new(AtomicUsize::new(world.kept.unwrap_or_default())),
    };
    let mut play = Play::new(&world, scripts, &memory).await;
    let mut subscription = play.conversation.subscribe(100_000);
    for action in deeds {
        play.act(action).await;
    }
    play.end(&world).await;
    let mut along = Vec::new();
    while let Some(published) = soon(subscription.next()).await {
        along.push(published.expect("the reader has room").event);
    }
    assert_eq!(along, play.read);
    if world.kept.is_some() {
        recovers(play, &memory, inner).await;
    }
}

/// Checks the records for a later conversation against the promises and the calls.
async fn recovers(play: Play, memory: &Failing, mut inner: MemoryPersistence) {
    let receipts = play
        .receipts
        .lock()
        .expect("no task panics with the lock")
        .clone();
    let pending = play.conversation.pending();
    let (read, driver) = (play.read, play.driver);
    // The persistence thread stores the remaining records before it ends.
    drop((play.conversation, play.primary));
    let over = async {
        while Arc::strong_count(&memory.left) > 1 {
            tokio::task::yield_now().await;
        }
    };
    soon(over).await;
    let failed = memory.left.load(Ordering::Relaxed) == 0;
    let recovered = inner.recover().expect("the store can be read");
    let waits: Vec<&str> = recovered
        .pending
        .iter()
        .map(|(_, i)| i.text.as_str())
        .collect();
    let messages = driver.messages();
    let handed: Vec<&str> = messages.iter().flat_map(|m| m.split("\n\n")).collect();
    assert!(waits.iter().all(|text| !handed.contains(text)));
    for (text, receipt) in receipts.iter().filter(|(_, receipt)| receipt.durable) {
        let dropped = read.iter().any(|what| drops(what, receipt));
        let there = waits.contains(&text.as_str()) || handed.contains(&text.as_str());
        let taken = read.iter().any(|what| assigns(what, receipt));
        // After a failure, the store can't record that an agent rejected the message.
        let told = failed && !recovered.interrupted.is_empty();
        assert!(
            there || dropped || taken || told,
            "{text} was acknowledged and is lost"
        );
        assert!(
            recovered
                .accepted
                .iter()
                .any(|known| known.id == receipt.id)
        );
    }
    if !failed {
        let pending: Vec<&str> = pending.iter().map(|input| input.text.as_str()).collect();
        assert_eq!(waits, pending);
        assert_eq!(recovered.interrupted, []);
    }
    assert_eq!(
        inner.recover().expect("the store can be read").interrupted,
        []
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn l81a_l81c_l81d_l93a_l93b_p55a_any_agent_and_any_order_keep_the_invariants(
        world in any_world(),
        scripts in proptest::collection::vec(any_script(), 3),
        deeds in proptest::collection::vec(any_deed(), 0..40),
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(play(world, scripts, deeds));
    }

    // The persistence thread is a real thread, so this test can't use paused time.
    #[test]
    fn l81a_l81c_l100c_acknowledged_inputs_are_stored_and_delivered_once(
        mut world in any_world(),
        kept in prop_oneof![Just(1000), 0usize..12],
        scripts in proptest::collection::vec(any_script(), 3),
        deeds in proptest::collection::vec(any_deed(), 0..40),
    ) {
        world.kept = Some(kept);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        runtime.block_on(play(world, scripts, deeds));
    }
}
