//! Deaths, stops and drops: each turn and each reader ends exactly once.

use std::time::Duration;

use agent_duplex::scripted::{Latch, Script, ScriptedCall, ScriptedDriver};
use agent_duplex::{
    BoxFuture, Capabilities, Connection, Conversation, ConversationEvent, ConversationOptions,
    Driver, EndReason, Error, Event, ExitStatus, Input, Lifecycle, ProcessName, SessionChoice,
    StopReport, StopStage, TurnEnd,
};

use tokio::time::Instant;

use crate::support::{TestConversation, delta, soon, steered};

const BUDGET: Duration = Duration::from_secs(8);

#[tokio::test]
async fn l81d_l91a_l91b_l91c_death_in_a_turn_completes_the_turn_as_died() {
    let end = TurnEnd {
        exit: Some(ExitStatus::Code(0)),
        output_tail: "out of luck\n".into(),
        ..EndReason::Died.into()
    };
    let script = Script::new().message().begin().observe(delta("hal"));
    let script = script.observe(Event::TurnCompleted(end.clone())).ends();
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    talk.send("go");
    talk.start().await;
    assert_eq!(talk.completed().await.end, end);
    talk.becomes(Lifecycle::Idle).await;
}

#[tokio::test]
async fn l91a_l91b_l91c_death_without_driver_report_is_a_death() {
    let script = Script::new().message().begin().message();
    let script = script.observe(Event::Exited(ExitStatus::Signal(9))).ends();
    let resumed = Script::new().message().end(EndReason::Completed);
    let driver = ScriptedDriver::new(steered())
        .with_script(script)
        .with_script(resumed);
    let mut talk = TestConversation::with(driver);
    talk.send("one");
    talk.start().await;
    talk.send("two");
    let completion = talk.completed().await;
    assert_eq!(completion.end.reason, EndReason::Died);
    assert_eq!(completion.end.exit, Some(ExitStatus::Signal(9)));
    assert_eq!(completion.pending, 1);
    talk.becomes(Lifecycle::Idle).await;
    // The next agent gets the inputs that are in no turn, and not the inputs of a turn.
    let session = SessionChoice::Resume("s".into());
    soon(talk.conversation.start(session.clone()))
        .await
        .unwrap();
    assert_eq!(talk.completed().await.pending, 0);
    assert_eq!(talk.driver.messages(), ["one", "two", "two"]);
    assert!(
        talk.driver
            .calls()
            .contains(&ScriptedCall::Connected(session))
    );
    let generation = talk.read.iter().rev().find_map(|what| match what {
        ConversationEvent::Assigned(assignment) => Some((assignment.generation, assignment.parent)),
        _ => None,
    });
    assert_eq!(generation, Some((2, Some(completion.turn))));
}

#[tokio::test]
async fn l81d_l98a_l98b_l98c_stop_ends_all_streams_once_and_all_callers_await_it() {
    let gate = Latch::new();
    let script = Script::new().message().begin().observe(delta("hal"));
    let script = script.leaves_process(7, "sleep").delays_stop(&gate);
    let script = script
        .report_after_stop(delta("f"))
        .report_after_stop(delta(" a"));
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    let mut subscription = talk.conversation.subscribe(100);
    talk.send("go");
    talk.start().await;
    talk.observed(delta("hal")).await;
    let callers: Vec<_> = (0..10)
        .map(|_| {
            let conversation = talk.conversation.clone();
            tokio::spawn(async move { conversation.stop(BUDGET).await })
        })
        .collect();
    soon(
        talk.driver
            .wait_for_calls(|calls| calls.contains(&ScriptedCall::Stopped)),
    )
    .await;
    assert_eq!(talk.conversation.lifecycle(), Lifecycle::Stopping);
    assert!(
        talk.conversation
            .send(Input::new("late"))
            .unwrap_err()
            .is_gone()
    );
    assert!(callers.iter().all(|caller| !caller.is_finished()));
    gate.open();
    let report = soon(talk.conversation.stop(BUDGET)).await;
    assert_eq!(report.stage, StopStage::Terminate);
    assert_eq!(report.to_string(), "all processes ended");
    for caller in callers {
        assert_eq!(soon(caller).await.unwrap(), report);
    }
    let completion = talk.completed().await;
    assert_eq!(completion.end.reason, EndReason::Interrupted);
    talk.read_all().await;
    let before = talk
        .read
        .iter()
        .filter(|what| matches!(what, ConversationEvent::Observed(_)));
    assert_eq!(before.count(), 3, "{:?}", talk.read);
    while soon(subscription.next()).await.is_some() {}
    assert_eq!(soon(talk.conversation.stop(BUDGET)).await, report);
    let stops = talk.driver.calls();
    assert_eq!(
        stops
            .iter()
            .filter(|call| **call == ScriptedCall::Stopped)
            .count(),
        1
    );
    assert!(
        soon(talk.conversation.start(SessionChoice::Fresh))
            .await
            .unwrap_err()
            .is_gone()
    );
}

#[tokio::test]
async fn l98a_l98d_a_driver_that_panics_ends_the_agent_and_all_streams() {
    let script = Script::new().message().begin().panics();
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    let mut subscription = talk.conversation.subscribe(100);
    talk.send("go");
    talk.start().await;
    let completion = talk.completed().await;
    assert_eq!(completion.end.reason, EndReason::Died);
    talk.read_all().await;
    while soon(subscription.next()).await.is_some() {}
    assert_eq!(talk.driver.calls().last(), Some(&ScriptedCall::Dropped));
    assert!(!soon(talk.conversation.stop(BUDGET)).await.proven);
    assert!(
        talk.conversation
            .send(Input::new("late"))
            .unwrap_err()
            .is_gone()
    );
}

#[test]
fn l98a_l98d_a_runtime_that_is_shut_down_ends_the_agent_and_all_streams() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let script = Script::new().message().begin().observe(delta("x"));
    let mut talk = runtime.block_on(async {
        let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
        talk.send("go");
        talk.start().await;
        talk.observed(delta("x")).await;
        talk
    });
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    other.block_on(async {
        talk.completed().await;
        talk.read_all().await;
        assert!(!soon(talk.conversation.stop(BUDGET)).await.proven);
    });
    assert_eq!(talk.driver.calls().last(), Some(&ScriptedCall::Dropped));
}

#[tokio::test]
async fn l98a_l98d_p41a_dropping_the_last_handle_ends_its_processes() {
    let script = Script::new().message().begin().observe(delta("x"));
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    talk.send("go");
    talk.start().await;
    talk.observed(delta("x")).await;
    let clone = talk.conversation.clone();
    let TestConversation {
        conversation,
        mut primary,
        driver,
        ..
    } = talk;
    drop(conversation);
    soon(clone.freeze(false)).await.unwrap();
    // A waiting interrupt keeps nothing alive.
    let interrupt = clone.interrupt(agent_duplex::QueuedMessages::Keep);
    drop(clone);
    let mut last = Vec::new();
    while let Some(published) = soon(primary.next()).await {
        last.push(published.event);
    }
    let [
        ..,
        ConversationEvent::Completed(completion),
        ConversationEvent::Lifecycle(Lifecycle::Ended),
    ] = &last[..]
    else {
        panic!("{last:?}")
    };
    assert_eq!(completion.end.reason, EndReason::Interrupted);
    assert_eq!(driver.calls().last(), Some(&ScriptedCall::Dropped));
    soon(interrupt).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_a_connection_in_progress() {
    let gate = Latch::new();
    let script = Script::new().connecting(&gate).leaves_process(7, "sleep");
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    let conversation = talk.conversation.clone();
    let start = tokio::spawn(async move { conversation.start(SessionChoice::Fresh).await });
    talk.becomes(Lifecycle::Starting).await;
    // An interrupt does nothing because no turn runs, and does not wait for the start.
    soon(
        talk.conversation
            .interrupt(agent_duplex::QueuedMessages::Keep),
    )
    .await
    .unwrap();
    let conversation = talk.conversation.clone();
    let stop = tokio::spawn(async move { conversation.stop(BUDGET).await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    tokio::time::advance(BUDGET / 8).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    gate.open();
    let report = soon(stop).await.unwrap();
    assert_eq!(
        (report.to_string().as_str(), report.proven),
        ("all processes ended", true)
    );
    assert!(soon(start).await.unwrap().unwrap_err().is_gone());
    talk.read_all().await;
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_a_connection_for_bounded_time() {
    let script = Script::new().connecting(&Latch::new());
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    let conversation = talk.conversation.clone();
    let start = tokio::spawn(async move { conversation.start(SessionChoice::Fresh).await });
    talk.becomes(Lifecycle::Starting).await;
    let before = Instant::now();
    assert!(!talk.conversation.stop(BUDGET).await.proven);
    assert!(before.elapsed() <= BUDGET);
    assert!(start.await.unwrap().unwrap_err().is_gone());
    talk.read_all().await;
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_a_driver_for_bounded_time() {
    let script = Script::new()
        .message()
        .begin()
        .ignores_stop_budget(&Latch::new());
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    talk.send("go");
    talk.start().await;
    let before = Instant::now();
    assert!(!talk.conversation.stop(BUDGET).await.proven);
    assert!(before.elapsed() <= BUDGET * 3);
    talk.read_all().await;
    assert_eq!(talk.driver.calls().last(), Some(&ScriptedCall::Dropped));
}

/// The first stop has a budget of a day. It is tested with an agent that still starts, and with an agent that delays its stop.
#[tokio::test(start_paused = true)]
async fn l90g_second_stop_with_less_time_shortens_the_first() {
    let day = Duration::from_secs(24 * 3600);
    let starting = Script::new().connecting(&Latch::new());
    let ending = Script::new().message().begin().delays_stop(&Latch::new());
    for (script, stage) in [
        (starting, StopStage::AlreadyEnded),
        (ending, StopStage::Kill),
    ] {
        let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
        talk.send("go");
        let starts = talk.conversation.clone();
        tokio::spawn(async move { starts.start(SessionChoice::Fresh).await });
        let is_up = [Lifecycle::Starting, Lifecycle::InTurn][usize::from(stage == StopStage::Kill)];
        talk.becomes(is_up).await;
        let before = Instant::now();
        let first = talk.conversation.clone();
        let first = tokio::spawn(async move { first.stop(day).await });
        tokio::time::advance(Duration::from_secs(1)).await;
        let report = talk.conversation.stop(BUDGET).await;
        // A later stop with more time changes nothing.
        assert_eq!(talk.conversation.stop(day).await, report);
        assert_eq!(first.await.unwrap(), report);
        assert_eq!(report.stage, stage);
        assert!(before.elapsed() <= BUDGET * 2, "{:?}", before.elapsed());
        talk.read_all().await;
    }
}

#[tokio::test]
async fn a_stop_does_not_wait_for_an_agent_that_takes_no_input() {
    let script = Script::new()
        .message()
        .begin()
        .busy(&Latch::new())
        .observe(delta("x"));
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    talk.send("go");
    talk.start().await;
    talk.observed(delta("x")).await;
    talk.send("stuck");
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    soon(talk.conversation.stop(BUDGET)).await;
    talk.read_all().await;
    assert_eq!(talk.audit.completed(), 1);
    assert_eq!(talk.conversation.pending()[0].text, "stuck");
}

#[tokio::test(start_paused = true)]
async fn last_output_is_awaited_for_bounded_time_and_only_for_readers() {
    let options = agent_duplex::ConversationOptions::default()
        .with_manual_start()
        .with_backlog(1);
    let mut script = Script::new().message().begin().observe(delta("x"));
    for i in 0..100 {
        script = script.report_after_stop(delta(&i.to_string()));
    }
    let mut talk =
        TestConversation::limited(ScriptedDriver::new(steered()).with_script(script), options);
    let mut along = talk.conversation.subscribe(10_000);
    talk.send("go");
    talk.start().await;
    talk.observed(delta("x")).await;
    soon(talk.conversation.stop(BUDGET)).await;
    tokio::time::advance(Duration::from_secs(60)).await;
    let mut published = 0;
    while let Ok(Some(_)) = tokio::time::timeout(Duration::ZERO, along.next()).await {
        published += 1;
    }
    assert!(published < 20, "{published}");
    talk.read_all().await;
    let words = talk
        .read
        .iter()
        .filter(|what| matches!(what, ConversationEvent::Observed(_)));
    assert_eq!(words.count(), 101);
}

/// A driver that stops its conversation while an agent starts.
#[derive(Clone, Debug, Default)]
struct Halts(std::sync::Arc<std::sync::OnceLock<Conversation>>);

impl Driver for Halts {
    fn name(&self) -> &str {
        "halts"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }

    fn connect(&self, _: SessionChoice) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        Box::pin(async move {
            let conversation = self.0.get().expect("the conversation was set");
            let mut stop = std::pin::pin!(conversation.stop(BUDGET));
            // The stop is requested here, and no other task runs before the actor sees it.
            std::future::poll_fn(|context| {
                let _asked = stop.as_mut().poll(context);
                std::task::Poll::Ready(())
            })
            .await;
            Err(lost_start())
        })
    }
}

/// The error for an agent that possibly ran for a moment.
fn lost_start() -> Error {
    let process = |pid, name: &str| {
        vec![ProcessName {
            pid,
            name: name.into(),
        }]
    };
    let report = StopReport {
        stage: StopStage::Kill,
        ended: process(1, "ended"),
        survivors: process(2, "left"),
        proven: false,
    };
    Error::lost_start("its guard ended", None, report)
}

#[tokio::test]
async fn report_of_a_stop_has_the_processes_of_each_lost_start() {
    let script = || Script::new().fails(lost_start);
    let driver = ScriptedDriver::new(steered()).with_script(script());
    let talk = TestConversation::with(driver.with_script(script()));
    for _ in 0..2 {
        let started = soon(talk.conversation.start(SessionChoice::Fresh)).await;
        assert!(started.unwrap_err().is_start_failure());
    }
    let report = soon(talk.conversation.stop(BUDGET)).await;
    assert_eq!(
        report.to_string(),
        "2 of 4 left: 2 (left), 2 (left) (not proven)"
    );

    // The stop comes during the start.
    let driver = Halts::default();
    let options = ConversationOptions::default().with_manual_start();
    let (conversation, primary) = Conversation::with_primary(Box::new(driver.clone()), options);
    drop(primary);
    driver.0.set(conversation.clone()).unwrap();
    let started = soon(conversation.start(SessionChoice::Fresh)).await;
    assert!(started.is_err());
    let report = soon(conversation.stop(BUDGET)).await;
    assert_eq!(report.to_string(), "1 of 2 left: 2 (left) (not proven)");
}

#[tokio::test]
async fn l98c_stop_answers_callers_blocked_on_a_full_queue() {
    let driver = Halts::default();
    let options = ConversationOptions::default().with_manual_start();
    let (conversation, primary) = Conversation::with_primary(Box::new(driver.clone()), options);
    drop(primary);
    driver.0.set(conversation.clone()).unwrap();
    let starts = conversation.clone();
    let start = tokio::spawn(async move { starts.start(SessionChoice::Fresh).await });
    let asks = (0..200).map(|_| {
        let conversation = conversation.clone();
        tokio::spawn(async move { conversation.pause_delivery(true).await })
    });
    let asks: Vec<_> = asks.collect();
    assert!(soon(start).await.unwrap().is_err());
    for ask in asks {
        assert!(soon(ask).await.unwrap().unwrap_err().is_gone());
    }
}
