//! Restarts of agents: their session, their inputs, and the end of restarts after too many failures.

use std::time::Duration;

use agent_duplex::scripted::{Call, Gate, Script, ScriptedDriver};
use agent_duplex::{
    Ask, Capabilities, ConversationOptions, Decision, EndReason, Error, Event, Input, InputState,
    Lifecycle, LostSession, Mode, Queued, RestartPolicy, SessionChoice, What,
};

use crate::talk::{Talk, delta, resumable, soon, steered, warning};

const BUDGET: Duration = Duration::from_secs(8);

fn answers() -> Script {
    Script::new()
        .session("s")
        .message()
        .begin()
        .say("done")
        .end(EndReason::Completed)
}

/// Returns an agent that ends before it accepts a message.
fn crashes() -> Script {
    Script::new().deaf(|| Error::gone("it crashed"))
}

fn resumed(id: &str) -> SessionChoice {
    SessionChoice::Resume(id.into())
}

#[tokio::test]
async fn l92a_l92b_p44a_an_input_to_an_agent_that_is_gone_starts_the_next_in_its_session() {
    let again = answers().message().begin().end(EndReason::Completed);
    let driver = ScriptedDriver::new(resumable())
        .plays(answers().over())
        .plays(again);
    let mut talk = Talk::restarting(driver);
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
async fn l92a_l92b_an_input_after_a_close_starts_the_next_agent_and_a_waiting_one_does_not() {
    let driver = ScriptedDriver::new(resumable())
        .plays(answers())
        .plays(answers());
    let mut talk = Talk::restarting(driver);
    talk.send("one");
    talk.completed().await;
    soon(talk.conversation.hold(true)).await.unwrap();
    talk.send("two");
    soon(talk.conversation.close()).await;
    soon(talk.conversation.hold(false)).await.unwrap();
    talk.becomes(Lifecycle::Idle).await;
    soon(talk.conversation.leftovers()).await;
    assert_eq!(talk.driver.sessions().len(), 1);
    talk.send("three");
    talk.completed().await;
    assert_eq!(talk.driver.messages(), ["one", "two\n\nthree"]);
    assert_eq!(talk.driver.sessions()[1], resumed("s"));
}

#[tokio::test]
async fn p44a_a_session_that_the_agent_only_named_is_not_resumed() {
    let named = Script::new().session("s").message().over();
    let driver = ScriptedDriver::new(resumable())
        .plays(named)
        .plays(answers().over())
        .plays(Script::new().session("t").message().over())
        .repeats(answers());
    let mut talk = Talk::restarting(driver);
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
async fn p44d_what_was_handed_on_is_never_handed_on_again() {
    let script = Script::new().message().begin().message().message().over();
    let driver = ScriptedDriver::new(steered())
        .plays(script)
        .plays(answers());
    let mut talk = Talk::restarting(driver);
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
async fn p44c_an_agent_that_only_crashes_is_given_up_until_somebody_starts_it() {
    let driver = ScriptedDriver::new(resumable()).repeats(crashes());
    let mut talk = Talk::restarting(driver);
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
async fn p44c_turns_that_end_in_crashes_count_as_well_and_each_has_its_end() {
    let driver = ScriptedDriver::new(resumable()).repeats(Script::new().message().over());
    let mut talk = Talk::restarting(driver);
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
async fn p44c_an_agent_that_can_not_be_started_is_told_and_given_up_as_well() {
    let missing: fn() -> Error = || Error::start("the program is missing; install it", None);
    let driver = ScriptedDriver::new(resumable()).repeats(Script::new().fails(missing));
    let mut talk = Talk::restarting(driver);
    let executed = talk.conversation.execute(Input::new("zero"));
    assert!(executed.await.unwrap_err().is_start());
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
async fn p44b_in_a_pause_everything_is_obeyed() {
    for deed in 0..4 {
        let driver = ScriptedDriver::new(resumable()).plays(crashes());
        let mut talk = Talk::restarting(driver.plays(answers()));
        talk.send("one");
        talk.warned().await;
        match deed {
            0 => drop(soon(talk.conversation.stop(BUDGET)).await),
            1 => soon(talk.conversation.close()).await,
            2 => soon(talk.conversation.interrupt(Queued::Drop))
                .await
                .unwrap(),
            _ => soon(talk.conversation.hold(true)).await.unwrap(),
        }
        tokio::time::advance(Duration::from_secs(1000)).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(talk.driver.sessions().len(), 1, "after deed {deed}");
        if deed == 3 {
            soon(talk.conversation.hold(false)).await.unwrap();
            talk.completed().await;
        }
    }
}

#[tokio::test]
async fn p45_a_session_that_is_lost_fails_or_is_forgotten() {
    for lost_session in [LostSession::Fail, LostSession::Fresh] {
        let lost = || {
            Script::new()
                .message()
                .end(EndReason::SessionNotFound)
                .over()
        };
        let policy = RestartPolicy::default().with_lost_session(lost_session);
        let options = ConversationOptions::default().with_restart(policy);
        let driver = ScriptedDriver::new(resumable()).plays(lost()).plays(lost());
        let mut talk = Talk::limited(driver.plays(lost()).plays(lost()), options);
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
async fn p44c_who_is_not_logged_in_is_not_started_for_what_waits() {
    let gate = Gate::new();
    let once: fn() -> Error = || Error::unsupported("scripted", "take more", "start it again");
    let out = Script::new()
        .message()
        .refuses(Some(once))
        .gate(&gate)
        .end(EndReason::NotLoggedIn)
        .over();
    let driver = ScriptedDriver::new(Capabilities::none())
        .plays(out)
        .plays(answers());
    let mut talk = Talk::restarting(driver);
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
async fn p47b_an_answer_to_a_dead_agent_does_not_reach_the_next_one() {
    let ask = |id: &str| Ask {
        id: id.into(),
        tool: "Bash".into(),
        summary: "make".into(),
        reason: String::new(),
    };
    let asked = |id: &str| Event::PermissionAsked(ask(id));
    let asks = || Script::new().message().begin().observe(asked("1"));
    let driver = ScriptedDriver::new(steered()).plays(asks().over());
    let mut talk = Talk::restarting(driver.plays(asks().answered().observe(delta("x"))));
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
    let answers: Vec<&Call> = calls
        .iter()
        .filter(|c| matches!(c, Call::Answered(..)))
        .collect();
    assert_eq!(answers, [&Call::Answered("1".into(), deny)]);
}

#[tokio::test]
async fn p47a_nothing_that_an_agent_still_says_is_in_the_turns_of_the_next_one() {
    let gate = Gate::new();
    let ask = Event::PermissionAsked(Ask {
        id: "1".into(),
        tool: "Bash".into(),
        summary: "make".into(),
        reason: String::new(),
    });
    let first = Script::new().message().begin().gate(&gate);
    let first = first.end(EndReason::Completed);
    let first = first.last_words(Event::TurnStarted { inputs: vec![] });
    let first = first.last_words(delta("late")).last_words(ask);
    let driver = ScriptedDriver::new(resumable()).plays(first);
    let options = ConversationOptions::default().with_mode(Mode::OneShot);
    let mut talk = Talk::limited(driver.plays(answers()), options);
    talk.send("one");
    talk.becomes(Lifecycle::InTurn).await;
    talk.send("two");
    gate.open();
    for _ in 0..3 {
        talk.completed().await;
    }
    let told = talk.read.iter().filter_map(|what| match what {
        What::Assigned(a) => Some(format!("turn {} of agent {}", a.turn, a.generation)),
        What::Completed(c) => Some(c.end.reason.to_string()),
        What::Observed(seen) => Some(match &seen.events[..] {
            [Event::TextDelta(text)] => text.clone(),
            [Event::PermissionAsked(_)] => "asked".into(),
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
async fn p44c_an_agent_that_is_never_ready_is_given_up_as_well() {
    let broken: fn() -> Error = || Error::start("it does not speak; update it", None);
    let driver = ScriptedDriver::new(resumable()).repeats(Script::new().unready(broken));
    let mut talk = Talk::restarting(driver);
    talk.send("one");
    talk.warns("3 times in a row").await;
    let calls = talk.driver.calls();
    let stopped = calls.iter().filter(|call| **call == Call::Stopped);
    assert_eq!((talk.driver.sessions().len(), stopped.count()), (3, 3));
}

#[tokio::test]
async fn l84c_an_agent_that_polls_takes_waiting_inputs_as_one_message_of_its_turn() {
    let gates = [Gate::new(), Gate::new()];
    let script = Script::new().message().begin().gate(&gates[0]);
    let script = script.observe(delta("x")).observe(Event::Polled).message();
    let script = script
        .observe(delta("y"))
        .gate(&gates[1])
        .end(EndReason::Completed);
    let script = script.message().begin().end(EndReason::Completed);
    let driver = ScriptedDriver::new(steered()).plays(script);
    let mut talk = Talk::with(driver.takes(agent_duplex::InputPolicy::Poll));
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
    let polled =
        |what: &What| matches!(what, What::Observed(seen) if seen.events.contains(&Event::Polled));
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
        .input(5, InputState::Taken);
    let mut talk = Talk::with(ScriptedDriver::new(steered()).plays(script));
    talk.start().await;
    let mut texts = Vec::new();
    for parents in [&[""][..], &[""], &["1"], &["2", "1", ""], &[""]] {
        talk.becomes(Lifecycle::Ready).await;
        soon(talk.conversation.hold(true)).await.unwrap();
        for parent in parents {
            let input = Input::new("go").from_parent(parent).unwrap();
            talk.audit.accepted(&talk.conversation.send(input).unwrap());
        }
        soon(talk.conversation.hold(false)).await.unwrap();
        let assigned = talk
            .read_until(|what| matches!(what, What::Assigned(_)))
            .await;
        texts.push(described(&assigned));
    }
    let warnings = talk.read.iter().filter_map(warning).collect::<Vec<_>>();
    assert_eq!(warnings.len(), 1);
    talk.becomes(Lifecycle::InTurn).await;
    let input = Input::new("go").from_parent("1").unwrap();
    talk.audit.accepted(&talk.conversation.send(input).unwrap());
    let assigned = talk
        .read_until(|what| matches!(what, What::Assigned(_)))
        .await;
    texts.push(described(&assigned));
    texts.push(warnings[0].clone());
    texts.push(talk.warned().await);
    let invalid = Input::new("go").from_parent("none").unwrap_err();
    assert!(invalid.is_invalid());
    texts.push(invalid.to_string());
    insta::assert_snapshot!(texts.join("\n"), @r#"
    turn 1
    turn 2 after 1
    turn 3 after 1 forked
    turn 4 after 2 forked
    turn 5 after 4
    turn 5 after 4 injected
    turn 4 does not continue turn 1, although one of its inputs requests it: its parent was chosen before
    turn 5 does not continue turn 1, although one of its inputs requests it: its parent was chosen before
    invalid turn "none"; turns count from 1
    "#);
}

fn described(what: &What) -> String {
    let What::Assigned(a) = what else {
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
