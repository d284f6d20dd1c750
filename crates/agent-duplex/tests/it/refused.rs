//! Inputs that an idle agent does not accept: the conversation tries again, or the execution that follows the input gets the reason.

use std::time::Duration;

use agent_duplex::scripted::{Latch, Script, ScriptedCall, ScriptedDriver};
use agent_duplex::{
    Capabilities, ConversationEvent, ConversationOptions, EndReason, Error, Event, Execution,
    Input, InputState, Lifecycle, RestartPolicy, SessionChoice,
};

use tokio::time::Instant;

use crate::support::{TestConversation, delta, resumable, soon};

const BUDGET: Duration = Duration::from_secs(8);

fn missing() -> Error {
    Error::start("the program is missing; install it", None)
}

fn cannot() -> Error {
    Error::unsupported("scripted", "take more", "start it again")
}

async fn executes(talk: &mut TestConversation, text: &str) -> Execution {
    let execution = soon(talk.conversation.execute(Input::new(text))).await;
    let execution = execution.expect("an agent runs");
    talk.audit.accepted(execution.receipt());
    execution
}

/// Reads to the end, and returns the reason why the input was dropped.
async fn dropped(mut execution: Execution) -> String {
    let mut dropped = None;
    while let Some(published) = soon(execution.next()).await {
        let ConversationEvent::Observed(seen) = published.expect("the reader is fast enough").event
        else {
            panic!("the input was in a turn");
        };
        dropped = seen.events.into_iter().find_map(|event| match event {
            Event::Input {
                state: InputState::Dropped(why),
                ..
            } => Some(why),
            _ => None,
        });
    }
    assert!(execution.completion().is_none());
    dropped.expect("the reason is reported")
}

#[tokio::test]
async fn x123a_execution_with_refused_input_ends_with_the_cause() {
    let errors: [fn() -> Error; 3] = [
        missing,
        || Error::session_in_use("another process has it", None),
        || Error::refused("no"),
    ];
    for error in errors {
        let driver = ScriptedDriver::new(Capabilities::none())
            .with_repeating_script(Script::new().refuses_all_messages(error));
        let mut talk = TestConversation::with(driver);
        for nth in 1..=2 {
            let execution = executes(&mut talk, "go").await;
            assert_eq!(dropped(execution).await, error().to_string());
            soon(talk.conversation.wait_until_idle()).await.unwrap();
            // An agent that could not start is started again for another input; a running agent only gets another try.
            let starts = if error().is_refused() { 1 } else { nth };
            assert_eq!(talk.driver.sessions().len(), starts);
        }
    }
}

#[tokio::test]
async fn p44c_agents_that_fail_to_start_for_their_first_input_are_counted() {
    let policy = RestartPolicy::default().with_waits(Duration::ZERO, Duration::ZERO);
    let options = ConversationOptions::default().with_restart(policy);
    let driver = ScriptedDriver::new(resumable())
        .with_repeating_script(Script::new().refuses_all_messages(missing));
    let mut talk = TestConversation::limited(driver, options);
    let execution = executes(&mut talk, "go").await;
    let why = dropped(execution).await;
    assert!(
        why.contains("3 times in a row") && why.contains(&missing().to_string()),
        "{why}"
    );
    soon(talk.conversation.wait_until_idle()).await.unwrap();
    talk.becomes(Lifecycle::CrashLoop).await;
    assert_eq!(talk.driver.sessions().len(), 3);
    let refused = soon(talk.conversation.execute(Input::new("again"))).await;
    assert!(refused.unwrap_err().is_crash_loop());
}

#[tokio::test]
async fn failed_start_for_first_input_ends_the_agent_and_requeues_the_input() {
    let answers = Script::new().message().end(EndReason::Completed);
    let driver = ScriptedDriver::new(Capabilities::none())
        .with_script(Script::new().refuses_all_messages(missing));
    let mut talk = TestConversation::with(driver.with_script(answers));
    talk.start().await;
    talk.becomes(Lifecycle::Ready).await;
    talk.send("go");
    talk.becomes(Lifecycle::Idle).await;
    assert!(talk.driver.calls().contains(&ScriptedCall::Stopped));
    assert_eq!(talk.conversation.pending().len(), 1);
    talk.start().await;
    assert_eq!(talk.completed().await.pending, 0);
}

#[tokio::test(start_paused = true)]
async fn x123a_idle_agent_that_takes_no_input_gets_time_to_exit() {
    let gate = Latch::new();
    let once = Script::new().message().refuses(Some(cannot)).begin();
    let once = once.end(EndReason::Completed).observe(delta("late"));
    let answers = Script::new().message().begin().end(EndReason::Completed);
    let driver = ScriptedDriver::new(resumable()).with_script(once.wait_for_latch(&gate).ends());
    let mut talk = TestConversation::restarting(driver.with_script(answers));
    talk.send("one");
    talk.completed().await;
    let mut execution = executes(&mut talk, "two").await;
    tokio::time::advance(Duration::from_secs(9)).await;
    soon(talk.conversation.leftovers()).await;
    gate.open();
    while soon(execution.next()).await.is_some() {}
    assert!(execution.completion().is_some());
    assert_eq!(talk.driver.messages(), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn x123a_idle_agent_that_never_takes_input_is_reported() {
    let driver =
        ScriptedDriver::new(resumable()).with_script(Script::new().refuses_all_messages(cannot));
    let mut talk = TestConversation::with(driver);
    let execution = executes(&mut talk, "go").await;
    assert_eq!(dropped(execution).await, cannot().to_string());
    assert_eq!(talk.warned().await, cannot().to_string());
    // The next input gets the same reason immediately.
    let execution = executes(&mut talk, "again").await;
    assert_eq!(dropped(execution).await, cannot().to_string());
    talk.send("for the next agent");
    assert_eq!(talk.warned().await, cannot().to_string());
    assert_eq!(talk.conversation.pending().len(), 1);
    soon(talk.conversation.stop(Duration::ZERO)).await;
    talk.read_all().await;
}

fn releasing() -> Error {
    Error::releasing("an ended agent had it", None)
}

#[tokio::test(start_paused = true)]
async fn p46_session_of_a_dead_agent_is_awaited() {
    let fails = |error: fn() -> Error| Script::new().fails(error);
    let driver = ScriptedDriver::new(resumable());
    let driver = (0..9).fold(driver, |driver, _| driver.with_script(fails(releasing)));
    let talk = TestConversation::with(driver.with_script(Script::new()));
    let start = || talk.conversation.start(SessionChoice::Resume("s".into()));
    soon(start()).await.unwrap();
    assert_eq!(talk.driver.sessions().len(), 10);
    drop(soon(talk.conversation.stop(BUDGET)).await);

    let waits = |error: fn() -> Error| async move {
        let driver = ScriptedDriver::new(resumable()).with_repeating_script(fails(error));
        let talk = TestConversation::with(driver);
        let begun = Instant::now();
        let error = soon(talk.conversation.start(SessionChoice::Resume("s".into()))).await;
        assert!(error.unwrap_err().is_session_in_use());
        begun.elapsed().as_millis() / 50
    };
    // A process that only checks a lock holds it for a moment; a running agent holds it for long.
    assert_eq!(
        waits(|| Error::session_in_use("another process has it", None)).await,
        1
    );
    assert_eq!(waits(releasing).await, 60);
}

#[tokio::test(start_paused = true)]
async fn p46_a_stop_ends_the_wait_for_a_session_at_once() {
    let driver =
        ScriptedDriver::new(resumable()).with_repeating_script(Script::new().fails(releasing));
    let talk = TestConversation::with(driver);
    let begun = Instant::now();
    let (started, report) = tokio::join!(
        talk.conversation.start(SessionChoice::Resume("s".into())),
        async {
            tokio::time::advance(Duration::from_secs(1)).await;
            talk.conversation.stop(BUDGET).await
        }
    );
    assert!(started.unwrap_err().is_gone());
    assert!(report.proven, "{report}");
    assert!(begun.elapsed() < Duration::from_secs(2));
}
