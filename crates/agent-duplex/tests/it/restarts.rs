//! Restarts of agents: their session, their inputs, and the end of restarts after too many failures.

use std::time::Duration;

use agent_duplex::scripted::{Latch, Script, ScriptedCall, ScriptedDriver};
use agent_duplex::{
    Capabilities, ConversationEvent, ConversationOptions, Decision, EndReason, Error, Event, Input,
    InputState, Lifecycle, LostSession, Mode, PermissionRequest, QueuedMessages, RestartPolicy,
    SessionChoice,
};

use crate::support::{TestConversation, delta, resumable, soon, steered, warning};

const BUDGET: Duration = Duration::from_secs(8);

fn answers() -> Script {
    Script::new()
        .session("s")
        .message()
        .begin()
        .report_message("done")
        .end(EndReason::Completed)
}

/// Returns an agent that ends before it accepts a message.
fn crashes() -> Script {
    Script::new().refuses_all_messages(|| Error::agent_gone("it crashed"))
}

fn resumed(id: &str) -> SessionChoice {
    SessionChoice::Resume(id.into())
}

#[tokio::test]
async fn l92a_l92b_p44a_input_to_a_dead_agent_starts_the_next_in_its_session() {
    let again = answers().message().begin().end(EndReason::Completed);
    let driver = ScriptedDriver::new(resumable())
        .with_script(answers().ends())
        .with_script(again);
    let mut talk = TestConversation::restarting(driver);
    talk.send("one");
    talk.completed().await;
    talk.becomes(Lifecycle::Idle).await;
    talk.send("two");
    assert_eq!(talk.completed().await.end.reason, EndReason::Completed);
    talk.send("three");
    talk.completed().await;
    let sessions = talk.driver.sessions();
    assert_eq!(sessions, [SessionChoice::Fresh, resumed("s")]);
    assert_eq!(talk.driver.messages(), ["one", "two", "three"]);
}

#[tokio::test]
async fn l92a_l92b_new_input_after_close_starts_an_agent_and_a_queued_one_does_not() {
    let driver = ScriptedDriver::new(resumable())
        .with_script(answers())
        .with_script(answers());
    let mut talk = TestConversation::restarting(driver);
    talk.send("one");
    talk.completed().await;
    soon(talk.conversation.pause_delivery(true)).await.unwrap();
    talk.send("two");
    soon(talk.conversation.close()).await;
    soon(talk.conversation.pause_delivery(false)).await.unwrap();
    talk.becomes(Lifecycle::Idle).await;
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.driver.sessions().len(), 1);
    talk.send("three");
    talk.completed().await;
    assert_eq!(talk.driver.messages(), ["one", "two\n\nthree"]);
    assert_eq!(talk.driver.sessions()[1], resumed("s"));
}

#[tokio::test]
async fn p44c_completed_turn_forgets_the_failures_before_it() {
    let dies = || Script::new().message().begin().ends();
    let driver = ScriptedDriver::new(resumable())
        .with_script(dies())
        .with_script(answers().ends())
        .with_script(dies())
        .with_script(answers());
    let policy = RestartPolicy::default().with_max_starts(2);
    let policy = policy.with_waits(Duration::ZERO, Duration::ZERO);
    let options = ConversationOptions::default().with_restart(policy);
    let mut talk = TestConversation::limited(driver, options);
    for reason in [
        EndReason::Died,
        EndReason::Completed,
        EndReason::Died,
        EndReason::Completed,
    ] {
        talk.send("go");
        assert_eq!(talk.completed().await.end.reason, reason);
        if talk.driver.sessions().len() < 4 {
            talk.becomes(Lifecycle::Idle).await;
        }
    }
}

#[tokio::test]
async fn p44a_session_without_a_turn_is_not_resumed() {
    let named = Script::new().session("s").message().ends();
    let driver = ScriptedDriver::new(resumable())
        .with_script(named)
        .with_script(answers().ends())
        .with_script(Script::new().session("t").message().ends())
        .with_repeating_script(answers());
    let mut talk = TestConversation::restarting(driver);
    let died = [EndReason::Died, EndReason::Completed, EndReason::Died];
    for reason in died {
        talk.send("go");
        assert_eq!(talk.completed().await.end.reason, reason);
        talk.becomes(Lifecycle::Idle).await;
    }
    talk.send("go");
    talk.completed().await;
    use SessionChoice::Fresh;
    let sessions = [Fresh, Fresh, resumed("s"), resumed("s")];
    assert_eq!(talk.driver.sessions(), sessions);
}

#[tokio::test]
async fn p44d_delivered_input_is_never_delivered_again() {
    let script = Script::new().message().begin().message().message().ends();
    let driver = ScriptedDriver::new(steered())
        .with_script(script)
        .with_script(answers());
    let mut talk = TestConversation::restarting(driver);
    talk.send("one");
    talk.becomes(Lifecycle::InTurn).await;
    talk.send("two");
    talk.send("three");
    let completion = talk.completed().await;
    assert_eq!(
        (completion.end.reason, completion.pending),
        (EndReason::Died, 0)
    );
    talk.send("four");
    talk.completed().await;
    assert_eq!(talk.driver.messages(), ["one", "two", "three", "four"]);
    let turns = [("1", 1, false), ("1", 2, true), ("2", 1, false)];
    let turns = turns.map(|(turn, inputs, injected)| (turn.to_owned(), inputs, injected));
    assert_eq!(talk.assignments(), turns);
}

#[tokio::test(start_paused = true)]
async fn p44c_crashing_agent_is_given_up_until_an_explicit_start() {
    let driver = ScriptedDriver::new(resumable()).with_repeating_script(crashes());
    let mut talk = TestConversation::restarting(driver);
    talk.send("one");
    talk.warns("3 times in a row").await;
    talk.becomes(Lifecycle::CrashLoop).await;
    assert_eq!(talk.driver.sessions().len(), 3);
    assert_eq!(talk.conversation.pending().len(), 1);
    let refused = talk.conversation.send(Input::new("two")).unwrap_err();
    assert!(refused.is_crash_loop(), "{refused}");
    assert!(
        soon(talk.conversation.accept(Input::new("two")))
            .await
            .unwrap_err()
            .is_crash_loop()
    );
    assert!(
        soon(talk.conversation.execute(Input::new("two")))
            .await
            .unwrap_err()
            .is_crash_loop()
    );
    tokio::time::advance(Duration::from_secs(1000)).await;
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.driver.sessions().len(), 3);
    assert_eq!(talk.conversation.pending().len(), 1);
    let started = soon(talk.conversation.start(SessionChoice::Fresh)).await;
    assert!(started.unwrap_err().is_gone());
    talk.send("two");
    talk.warns("3 times in a row").await;
    assert_eq!(talk.driver.sessions().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn p44c_turns_that_crash_are_counted_and_completed() {
    let driver =
        ScriptedDriver::new(resumable()).with_repeating_script(Script::new().message().ends());
    let mut talk = TestConversation::restarting(driver);
    for nth in 1..=3 {
        talk.send("go");
        let completion = talk.completed().await;
        let told = (completion.turn.to_string(), completion.end.reason);
        assert_eq!(told, (nth.to_string(), EndReason::Died));
    }
    talk.warns("3 times in a row").await;
    let refused = talk.conversation.send(Input::new("go")).unwrap_err();
    assert!(refused.is_crash_loop(), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn p44c_unstartable_agent_is_reported_and_given_up() {
    let missing: fn() -> Error = || Error::start("the program is missing; install it", None);
    let driver =
        ScriptedDriver::new(resumable()).with_repeating_script(Script::new().fails(missing));
    let mut talk = TestConversation::restarting(driver);
    let executed = talk.conversation.execute(Input::new("zero"));
    assert!(executed.await.unwrap_err().is_start_failure());
    talk.send("one");
    let mut warned = Vec::new();
    for _ in 0..2 {
        warned.push(talk.warned().await);
    }
    insta::assert_snapshot!(warned.join("\n"), @r"
    the agent could not be started: the program is missing; install it
    the agent was started 3 times in a row without completing a turn (the program is missing; install it); fix the cause, then start the agent
    ");
    talk.becomes(Lifecycle::CrashLoop).await;
    assert_eq!(talk.conversation.pending().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn p44b_commands_work_during_a_pause() {
    for action in 0..4 {
        let driver = ScriptedDriver::new(resumable()).with_script(crashes());
        let mut talk = TestConversation::restarting(driver.with_script(answers()));
        talk.send("one");
        talk.warned().await;
        match action {
            0 => drop(soon(talk.conversation.stop(BUDGET)).await),
            1 => soon(talk.conversation.close()).await,
            2 => soon(talk.conversation.interrupt(QueuedMessages::Drop))
                .await
                .unwrap(),
            _ => soon(talk.conversation.pause_delivery(true)).await.unwrap(),
        }
        tokio::time::advance(Duration::from_secs(1000)).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(talk.driver.sessions().len(), 1, "after action {action}");
        if action == 3 {
            soon(talk.conversation.pause_delivery(false)).await.unwrap();
            talk.completed().await;
        }
    }
}

#[tokio::test]
async fn p45_lost_session_fails_or_is_replaced() {
    for lost_session in [LostSession::Fail, LostSession::Fresh] {
        let lost = || {
            Script::new()
                .message()
                .end(EndReason::SessionNotFound)
                .ends()
        };
        let policy = RestartPolicy::default().with_lost_session(lost_session);
        let options = ConversationOptions::default().with_restart(policy);
        let driver = ScriptedDriver::new(resumable())
            .with_script(lost())
            .with_script(lost());
        let mut talk =
            TestConversation::limited(driver.with_script(lost()).with_script(lost()), options);
        soon(talk.conversation.start(resumed("s"))).await.unwrap();
        talk.send("one");
        for _ in 0..3 {
            let reason = talk.completed().await.end.reason;
            assert_eq!(reason, EndReason::SessionNotFound);
            talk.becomes(Lifecycle::Idle).await;
            if lost_session == LostSession::Fresh {
                assert!(talk.read.iter().any(|what| warning(what).is_some()));
                break;
            }
            talk.send("again");
        }
        talk.send("last");
        talk.completed().await;
        let next = match lost_session {
            LostSession::Fail => resumed("s"),
            LostSession::Fresh => SessionChoice::Fresh,
        };
        assert_eq!(talk.driver.sessions().pop(), Some(next));
    }
}

#[tokio::test(start_paused = true)]
async fn p44c_logged_out_agent_is_not_restarted_for_queued_inputs() {
    let gate = Latch::new();
    let once: fn() -> Error = || Error::unsupported("scripted", "take more", "start it again");
    let out = Script::new()
        .message()
        .refuses(Some(once))
        .wait_for_latch(&gate)
        .end(EndReason::NotLoggedIn)
        .ends();
    let driver = ScriptedDriver::new(Capabilities::none())
        .with_script(out)
        .with_script(answers());
    let mut talk = TestConversation::restarting(driver);
    talk.send("one");
    talk.becomes(Lifecycle::InTurn).await;
    talk.send("two");
    soon(talk.conversation.leftovers()).await;
    gate.open();
    talk.completed().await;
    talk.becomes(Lifecycle::Idle).await;
    tokio::time::advance(Duration::from_secs(1000)).await;
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.driver.sessions().len(), 1);
    talk.send("three");
    talk.completed().await;
    assert_eq!(talk.driver.messages(), ["one", "two\n\nthree"]);
}

#[tokio::test]
async fn p47b_answer_for_a_dead_agent_does_not_reach_the_next() {
    let ask = |id: &str| PermissionRequest {
        id: id.into(),
        tool: "Bash".into(),
        summary: "make".into(),
        reason: String::new(),
    };
    let asked = |id: &str| Event::PermissionRequested(ask(id));
    let asks = || Script::new().message().begin().observe(asked("1"));
    let driver = ScriptedDriver::new(steered()).with_script(asks().ends());
    let mut talk =
        TestConversation::restarting(driver.with_script(asks().answered().observe(delta("x"))));
    talk.send("one");
    talk.observed(asked("1")).await;
    talk.completed().await;
    talk.send("two");
    talk.observed(asked("2/1")).await;
    soon(talk.conversation.answer("1", Decision::Allow))
        .await
        .unwrap();
    let deny = Decision::Deny {
        message: "no".into(),
    };
    soon(talk.conversation.answer("2/1", deny.clone()))
        .await
        .unwrap();
    talk.audit.answered("2/1");
    talk.observed(delta("x")).await;
    let calls = talk.driver.calls();
    let answers: Vec<&ScriptedCall> = calls
        .iter()
        .filter(|c| matches!(c, ScriptedCall::Answered(..)))
        .collect();
    assert_eq!(answers, [&ScriptedCall::Answered("1".into(), deny)]);
}

#[tokio::test]
async fn p47a_late_output_of_an_agent_is_not_in_turns_of_the_next() {
    let gate = Latch::new();
    let ask = Event::PermissionRequested(PermissionRequest {
        id: "1".into(),
        tool: "Bash".into(),
        summary: "make".into(),
        reason: String::new(),
    });
    let first = Script::new().message().begin().wait_for_latch(&gate);
    let first = first.end(EndReason::Completed);
    let first = first.report_after_stop(Event::TurnStarted { inputs: vec![] });
    let first = first
        .report_after_stop(delta("late"))
        .report_after_stop(ask);
    let driver = ScriptedDriver::new(resumable()).with_script(first);
    let options = ConversationOptions::default().with_mode(Mode::OneShot);
    let mut talk = TestConversation::limited(driver.with_script(answers()), options);
    talk.send("one");
    talk.becomes(Lifecycle::InTurn).await;
    talk.send("two");
    gate.open();
    for _ in 0..3 {
        talk.completed().await;
    }
    let told = talk.read.iter().filter_map(|what| match what {
        ConversationEvent::Assigned(a) => {
            Some(format!("turn {} of agent {}", a.turn, a.generation))
        }
        ConversationEvent::Completed(c) => Some(c.end.reason.to_string()),
        ConversationEvent::Observed(seen) => Some(match &seen.events[..] {
            [Event::TextDelta(text)] => text.clone(),
            [Event::PermissionRequested(_)] => "asked".into(),
            [Event::PermissionWithdrawn { .. }] => "withdrawn".into(),
            _ => return None,
        }),
        _ => None,
    });
    insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"), @r"
    turn 1 of agent 1
    the turn was completed
    turn 2 of agent 1
    late
    asked
    withdrawn
    the turn was interrupted
    turn 3 of agent 2
    the turn was completed
    ");
}

#[tokio::test(start_paused = true)]
async fn p44c_agent_that_is_never_ready_is_given_up() {
    let broken: fn() -> Error = || Error::start("it does not speak; update it", None);
    let driver = ScriptedDriver::new(resumable())
        .with_repeating_script(Script::new().fails_after_connect(broken));
    let mut talk = TestConversation::restarting(driver);
    talk.send("one");
    talk.warns("3 times in a row").await;
    let calls = talk.driver.calls();
    let stopped = calls.iter().filter(|call| **call == ScriptedCall::Stopped);
    assert_eq!((talk.driver.sessions().len(), stopped.count()), (3, 3));
}

#[tokio::test]
async fn l84c_an_agent_that_polls_takes_waiting_inputs_as_one_message_of_its_turn() {
    let gates = [Latch::new(), Latch::new()];
    let script = Script::new().message().begin().wait_for_latch(&gates[0]);
    let script = script
        .observe(delta("x"))
        .observe(Event::AcceptsMessages)
        .message();
    let script = script
        .observe(delta("y"))
        .wait_for_latch(&gates[1])
        .end(EndReason::Completed);
    let script = script.message().begin().end(EndReason::Completed);
    let driver = ScriptedDriver::new(steered()).with_script(script);
    let mut talk =
        TestConversation::with(driver.with_input_policy(agent_duplex::InputPolicy::Poll));
    talk.send("go");
    talk.start().await;
    talk.becomes(Lifecycle::InTurn).await;
    talk.send("one");
    talk.send("two");
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.driver.messages(), ["go"]);
    gates[0].open();
    talk.observed(delta("y")).await;
    talk.send("three");
    talk.send("four");
    soon(talk.conversation.leftovers()).await;
    gates[1].open();
    assert_eq!(talk.completed().await.pending, 2);
    talk.completed().await;
    assert_eq!(
        talk.driver.messages(),
        ["go", "one\n\ntwo", "three\n\nfour"]
    );
    let turns = [("1", 1, false), ("1", 2, true), ("2", 2, false)];
    let turns = turns.map(|(turn, inputs, injected)| (turn.to_owned(), inputs, injected));
    assert_eq!(talk.assignments(), turns);
    let polled = |what: &ConversationEvent| matches!(what, ConversationEvent::Observed(seen) if seen.events.contains(&Event::AcceptsMessages));
    assert!(!talk.read.iter().any(polled));
}

#[tokio::test]
async fn l99b_l99c_an_input_chooses_the_turn_to_continue_from() {
    let mut script = Script::new();
    for _ in 0..4 {
        script = script.message().begin().end(EndReason::Completed);
    }
    let script = script
        .message()
        .begin()
        .message()
        .input(5, InputState::InTurn);
    let mut talk = TestConversation::with(ScriptedDriver::new(steered()).with_script(script));
    talk.start().await;
    let mut texts = Vec::new();
    for parents in [&[""][..], &[""], &["1"], &["2", "1", ""], &[""]] {
        talk.becomes(Lifecycle::Ready).await;
        soon(talk.conversation.pause_delivery(true)).await.unwrap();
        for parent in parents {
            let input = Input::new("go").continuing_turn(parent).unwrap();
            talk.audit.accepted(&talk.conversation.send(input).unwrap());
        }
        soon(talk.conversation.pause_delivery(false)).await.unwrap();
        let assigned = talk
            .read_until(|what| matches!(what, ConversationEvent::Assigned(_)))
            .await;
        texts.push(described(&assigned));
    }
    let warnings = talk.read.iter().filter_map(warning).collect::<Vec<_>>();
    assert_eq!(warnings.len(), 1);
    talk.becomes(Lifecycle::InTurn).await;
    let input = Input::new("go").continuing_turn("1").unwrap();
    talk.audit.accepted(&talk.conversation.send(input).unwrap());
    let assigned = talk
        .read_until(|what| matches!(what, ConversationEvent::Assigned(_)))
        .await;
    texts.push(described(&assigned));
    texts.push(warnings[0].clone());
    texts.push(talk.warned().await);
    let invalid = Input::new("go").continuing_turn("none").unwrap_err();
    assert!(invalid.is_invalid());
    texts.push(invalid.to_string());
    insta::assert_snapshot!(texts.join("\n"), @r#"
    turn 1
    turn 2 after 1
    turn 3 after 1 forked
    turn 4 after 2 forked
    turn 5 after 4
    turn 5 after 4 injected
    turn 4 does not continue turn 1, although one of its inputs requests this: an earlier input chose another parent
    turn 5 does not continue turn 1, although one of its inputs requests this: an earlier input chose another parent
    invalid turn "none"; turns count from 1
    "#);
}

fn described(what: &ConversationEvent) -> String {
    let ConversationEvent::Assigned(a) = what else {
        unreachable!()
    };
    let parent = a
        .parent
        .map(|parent| format!(" after {parent}"))
        .unwrap_or_default();
    let how = [(a.forked, " forked"), (a.injected, " injected")];
    let how = how
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, how)| *how)
        .collect::<String>();
    format!("turn {}{parent}{how}", a.turn)
}
