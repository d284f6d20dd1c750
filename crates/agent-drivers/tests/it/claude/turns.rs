//! Tests of turns: their beginning, steers, interrupts, and ends.

use super::*;
use agent_duplex::{Decision, ExitStatus, InputState, Permissions, QueuedMessages, ToolOutcome};
use std::time::Duration;

fn delta(text: &str) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::TextDelta(delta) if delta == text)
}

#[tokio::test]
async fn process_runs_many_turns_and_names_its_session_first() {
    let scene = Scene::new();
    let mut connection = connect(&scene, "").await;
    let begin = next(&mut *connection).await.unwrap();
    let [Event::Started { pid }, Event::Session { id }] = &begin.events[..] else {
        panic!("{begin:?}");
    };
    assert!(*pid > 0 && id.parse::<uuid::Uuid>().is_ok());
    for _ in 0..3 {
        let message = Message::new("hello");
        connection.send(message.clone()).await.unwrap();
        let (events, end) = turn(&mut *connection).await;
        let inputs = vec![message.id];
        let started = Event::TurnStarted { inputs };
        assert!(events.contains(&started), "{events:?}");
        assert_eq!(end.reason, EndReason::Completed);
    }
    drop(connection.stop(DEADLINE).await);
    scene.assert_no_process_left();
}

#[tokio::test]
async fn p21b_p22_l89a_l89b_l89d_an_interrupt_ends_the_turn_and_the_process_continues() {
    let scene = Scene::new();
    let script = "on_user() { begin; delta one; delta \" pid $$\"; delta end; }";
    let mut connection = connect(&scene, script).await;
    let mut pids = Vec::new();
    for _ in 0..2 {
        connection.send(Message::new("go on")).await.unwrap();
        until(&mut *connection, delta("end")).await;
        connection.interrupt(QueuedMessages::Keep).await.unwrap();
        connection.interrupt(QueuedMessages::Keep).await.unwrap();
        let (events, end) = turn(&mut *connection).await;
        let is_taken = |e: &&Event| matches!(e, Event::InterruptAcknowledged { .. });
        let taken = events.iter().filter(is_taken).count();
        assert_eq!(
            taken, 1,
            "two interrupts must have one acknowledgement: {events:?}"
        );
        assert_eq!(end.reason, EndReason::Interrupted);
        assert!(!events.iter().any(|e| matches!(e, Event::TextDelta(_))));
        let half = events.iter().find_map(|event| match event {
            Event::Message {
                text,
                partial: true,
            } => Some(text.clone()),
            _ => None,
        });
        pids.push(half.unwrap());
    }
    assert!(
        pids[0].starts_with("one pid ") && pids[0] == pids[1],
        "{pids:?}"
    );
    // No turn runs, so the interrupt does nothing.
    connection.interrupt(QueuedMessages::Keep).await.unwrap();
    drop(connection.stop(DEADLINE).await);
    let rest = rest(&mut *connection).await;
    assert!(
        !rest
            .iter()
            .any(|e| matches!(e, Event::InterruptAcknowledged { .. })),
        "{rest:?}"
    );
}

#[tokio::test]
async fn p19a_p26a_p26b_x109a_message_is_tracked_until_delivered_or_dropped() {
    let scene = Scene::new();
    let script = r#"
turns=0
fate() { say '{"type":"command_lifecycle","command_uuid":"'"$1"'","state":"'$2'"}'; }
on_user() {
  turns=$((turns + 1))
  case $turns in
    1) begin ;;
    2) fate "$(field uuid)" queued; fate "$(field uuid)" started ;;
    3) fate "$(field uuid)" queued; result completed; begin ;;
    4) kept=$(field uuid); fate "$kept" queued ;;
  esac
}
on_interrupt() { ok '"still_queued":[],"cancelled":["'$kept'"]'; fate "$kept" cancelled; result aborted_tools; }
"#;
    let mut connection = connect(&scene, script).await;
    let [first, joins, follows, dropped] = ["1", "2", "3", "4"].map(Message::new);
    for message in [&first, &joins, &follows, &dropped] {
        connection.send(message.clone()).await.unwrap();
    }
    let is_queued = |e: &Event| matches!(e, Event::Input { id, state: InputState::Queued } if *id == dropped.id);
    let mut events = until(&mut *connection, is_queued).await;
    connection.interrupt(QueuedMessages::Drop).await.unwrap();
    events.extend(turn(&mut *connection).await.0);
    let is_ours = |e: &Event| {
        matches!(
            e,
            Event::Input { .. } | Event::TurnStarted { .. } | Event::TurnCompleted(_)
        )
    };
    events.retain(is_ours);
    let input = |message: &Message, state| Event::Input {
        id: message.id,
        state,
    };
    let began = |message: &Message| Event::TurnStarted {
        inputs: vec![message.id],
    };
    let ended = |reason: EndReason| Event::TurnCompleted(reason.into());
    let expected = [
        began(&first),
        input(&joins, InputState::Queued),
        input(&joins, InputState::InTurn),
        input(&follows, InputState::Queued),
        ended(EndReason::Completed),
        began(&follows),
        input(&dropped, InputState::Queued),
        input(&dropped, InputState::Dropped("cancelled".to_owned())),
        ended(EndReason::Interrupted),
    ];
    assert_eq!(events, expected);
}

/// The cases run in parallel, because each takes some seconds.
#[tokio::test]
async fn p23a_agent_that_misses_deadline_gets_signal() {
    tokio::join!(
        ignored_interrupt(),
        ignored_signal(),
        frozen_agent_gets_no_signal(),
        closed_output(),
        retries_after_refusal_end_the_turn(),
    );
}

async fn ignored_interrupt() {
    let scene = Scene::new();
    let script = r"trap 'result aborted_streaming; exit 0' INT
on_user() { begin; delta end; while :; do sleep 0.05; done; }";
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("go on")).await.unwrap();
    until(&mut *connection, delta("end")).await;
    connection.interrupt(QueuedMessages::Keep).await.unwrap();
    let (events, end) = turn(&mut *connection).await;
    let is_told = |e: &Event| matches!(e, Event::Warning(text) if text.contains("SIGINT"));
    assert!(events.iter().any(is_told), "{events:?}");
    assert_eq!(end.reason, EndReason::Interrupted);
    assert_eq!(
        rest(&mut *connection).await,
        [Event::Exited(ExitStatus::Code(0))]
    );
}

async fn ignored_signal() {
    let scene = Scene::new();
    // A program whose only thread is blocked ignores SIGINT in this way.
    let script = "trap '' INT; on_user() { begin; delta end; while :; do sleep 0.05; done; }";
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("go on")).await.unwrap();
    until(&mut *connection, delta("end")).await;
    connection.interrupt(QueuedMessages::Keep).await.unwrap();
    let (events, end) = turn(&mut *connection).await;
    let is_told = |e: &Event| matches!(e, Event::Warning(text) if text.contains("SIGKILL"));
    assert!(events.iter().any(is_told), "{events:?}");
    let killed = Some(ExitStatus::Signal(libc::SIGKILL));
    assert_eq!((end.reason, end.exit), (EndReason::Interrupted, killed));
}

async fn frozen_agent_gets_no_signal() {
    let scene = Scene::new();
    let mut connection = connect(&scene, "on_user() { begin; delta end; }").await;
    connection.send(Message::new("go on")).await.unwrap();
    let begin = until(&mut *connection, delta("end")).await;
    let Event::Started { pid } = begin[0] else {
        panic!("{begin:?}")
    };
    connection.freeze(true).await.unwrap();
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    crate::scene::wait_for("the agent is frozen", || stat().contains(") T "));
    connection.interrupt(QueuedMessages::Keep).await.unwrap();
    // This is longer than the time limit of an interrupt.
    let early = timeout(Duration::from_secs(4), connection.next()).await;
    assert!(early.is_err(), "{early:?}");
    connection.freeze(false).await.unwrap();
    let (events, end) = turn(&mut *connection).await;
    assert!(
        !events.iter().any(|e| matches!(e, Event::Warning(_))),
        "{events:?}"
    );
    assert_eq!(end.reason, EndReason::Interrupted);
}

/// A launcher writes its errors as text, to either stream.
#[tokio::test]
async fn text_of_a_dying_agent_is_reported_from_both_streams() {
    let scene = Scene::new();
    let script = "on_user() { begin; echo 'Contact your admin.'; exit 1; }";
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("hello")).await.unwrap();
    let (events, end) = turn(&mut *connection).await;
    assert!(events.contains(&Event::PlainLine), "{events:?}");
    assert_eq!(end.output_tail, "Contact your admin.\n");
    let error = connection.send(Message::new("more")).await.unwrap_err();
    assert!(error.to_string().contains("Contact your admin"), "{error}");
}

/// The agent ends after its turn, and nothing has read its last words when the next message is sent.
#[tokio::test]
async fn unread_output_of_a_gone_agent_is_reported_with_the_next_message() {
    let scene = Scene::new();
    let script = "on_user() { begin; result completed; echo 'Contact your admin.'; exit 1; }";
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("hello")).await.unwrap();
    assert_eq!(turn(&mut *connection).await.1.reason, EndReason::Completed);
    crate::scene::wait_for("the agent has ended", || scene.members().is_empty());
    let error = connection.send(Message::new("more")).await.unwrap_err();
    assert!(error.to_string().contains("Contact your admin"), "{error}");
    let rest = rest(&mut *connection).await;
    assert!(rest.contains(&Event::PlainLine), "{rest:?}");
}

#[tokio::test]
async fn l91a_l91b_l91c_p25b_p6b_death_in_a_turn_leaves_no_open_item_and_no_success() {
    for (death, exit) in [
        ("exit 3", ExitStatus::Code(3)),
        ("exit 0", ExitStatus::Code(0)),
        ("kill -SEGV $$", ExitStatus::Signal(libc::SIGSEGV)),
    ] {
        let scene = Scene::new();
        let script = format!("on_user() {{ begin; delta half; tool; echo oops >&2; {death}; }}");
        let mut connection = connect(&scene, &script).await;
        connection.send(Message::new("hello")).await.unwrap();
        let (events, end) = turn(&mut *connection).await;
        let seen = (end.reason, end.exit, end.output_tail.as_str());
        assert_eq!(seen, (EndReason::Died, Some(exit), "oops\n"));
        let open = &events[events.len() - 3..events.len() - 1];
        let [
            Event::Message {
                text,
                partial: true,
            },
            Event::ToolFinished { id, outcome, .. },
        ] = open
        else {
            panic!("{events:?}");
        };
        assert_eq!(
            (&**text, &**id, *outcome),
            ("half", "t1", ToolOutcome::Interrupted)
        );
        assert_eq!(next(&mut *connection).await, None);
        let error = connection.send(Message::new("more")).await.unwrap_err();
        assert!(
            error.is_gone() && error.to_string().contains("oops"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn exit_of_idle_agent_is_reported_as_exit() {
    let scene = Scene::new();
    let mut connection = connect(&scene, "on_user() { begin; result completed; exit 7; }").await;
    connection.send(Message::new("hello")).await.unwrap();
    assert_eq!(turn(&mut *connection).await.1.reason, EndReason::Completed);
    assert_eq!(
        rest(&mut *connection).await,
        [Event::Exited(ExitStatus::Code(7))]
    );
    let error = connection.send(Message::new("more")).await.unwrap_err();
    assert!(
        error.is_gone() && error.to_string().contains("exit status 7"),
        "{error}"
    );
}

async fn closed_output() {
    let scene = Scene::new();
    let script = "on_user() { begin; exec >&- 2>&-; sleep 617; }";
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("hello")).await.unwrap();
    let (events, end) = turn(&mut *connection).await;
    let is_told = |e: &Event| matches!(e, Event::Warning(text) if text.contains("SIGTERM"));
    assert!(events.iter().any(is_told), "{events:?}");
    assert_eq!(
        (end.reason, end.exit),
        (EndReason::Died, Some(ExitStatus::Signal(libc::SIGTERM)))
    );
}

const REFUSED: &str = r#"
on_user() { begin; for n in 1 2; do
  say '{"type":"system","subtype":"api_retry","attempt":'$n',"max_retries":10,"retry_delay_ms":500,"error_status":401,"error":"authentication_failed"}'
done; }
"#;

#[tokio::test]
async fn failed_authentication_is_not_retried_for_minutes() {
    let scene = Scene::new();
    let mut connection = connect(&scene, REFUSED).await;
    connection.send(Message::new("hello")).await.unwrap();
    let (_, end) = turn(&mut *connection).await;
    assert_eq!(end.reason, EndReason::NotLoggedIn);
    assert!(end.detail.contains("ANTHROPIC_API_KEY"), "{end:?}");
}

async fn retries_after_refusal_end_the_turn() {
    let scene = Scene::new();
    let script = format!("{REFUSED}\ntrap '' INT\non_interrupt() {{ :; }}");
    let mut connection = connect(&scene, &script).await;
    connection.send(Message::new("hello")).await.unwrap();
    let (_, end) = turn(&mut *connection).await;
    assert_eq!(end.reason, EndReason::NotLoggedIn);
    drop(connection.stop(Duration::from_secs(2)).await);
    let rest = rest(&mut *connection).await;
    assert!(
        matches!(rest[..], [Event::Exited(_)]),
        "the turn must have ended before: {rest:?}"
    );
}

#[tokio::test]
async fn p17a_p17b_p18_permission_requests_are_answered_withdrawn_or_refused() {
    let scene = Scene::new();
    let script = r#"
ask() { say '{"type":"control_request","request_id":"'$1'","request":{"subtype":"can_use_tool","tool_name":"Bash","tool_use_id":"t1","decision_reason":"because","input":{"command":"make  x","n":1e2}}}'; }
on_user() { begin; tool; ask a1; }
on_other() {
  printf '%s\n' "$line" >> heard
  case $line in
    *'"a1"'*) ask a2 ;;
    *'"a2"'*) say '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"no"}]}}'
      ask a3; say '{"type":"control_cancel_request","request_id":"a3"}'
      say '{"type":"control_request","request_id":"a4","request":{"subtype":"mcp_message"}}' ;;
    *'"a4"'*) result completed ;;
  esac
}
"#;
    let mut connection = connect(&scene, script).await;
    connection.send(Message::new("hello")).await.unwrap();
    let is_asked = |e: &Event| matches!(e, Event::PermissionRequested(_));
    let asked = until(&mut *connection, is_asked).await.pop();
    let Some(Event::PermissionRequested(ask)) = asked else {
        panic!("{asked:?}")
    };
    let shown = [&ask.id, &ask.tool, &ask.summary, &ask.reason];
    assert_eq!(shown, ["a1", "Bash", "make x", "because"]);
    connection.answer("a1", Decision::Allow).await.unwrap();
    until(&mut *connection, is_asked).await;
    let message = "not \"now\"".to_owned();
    connection
        .answer("a2", Decision::Deny { message })
        .await
        .unwrap();
    let (events, _) = turn(&mut *connection).await;
    let is_denied = |e: &Event| {
        matches!(
            e,
            Event::ToolFinished {
                outcome: ToolOutcome::Denied,
                ..
            }
        )
    };
    assert!(events.iter().any(is_denied), "{events:?}");
    assert!(events.contains(&Event::PermissionWithdrawn {
        id: "a3".to_owned()
    }));
    // Answers to withdrawn, answered and unknown requests are ignored.
    for ask in ["a3", "a1", "a9"] {
        connection.answer(ask, Decision::Allow).await.unwrap();
    }
    let deny = connection.set_permissions(Permissions::Deny).await;
    deny.unwrap().await.unwrap();
    let all = connection.set_permissions(Permissions::All).await;
    assert!(all.err().unwrap().is_unsupported());
    connection.close().await;
    let heard = std::fs::read_to_string(scene.path("heard")).unwrap();
    let heard = without_ids(&heard);
    insta::assert_snapshot!(heard, @r#"
    {"type":"control_response","response":{"subtype":"success","request_id":"a1","response":{"behavior":"allow","updatedInput":{"command":"make  x","n":1e2}}}}
    {"response":{"request_id":"a2","response":{"behavior":"deny","message":"not \"now\""},"subtype":"success"},"type":"control_response"}
    {"response":{"error":"unsupported control request: mcp_message","request_id":"a4","subtype":"error"},"type":"control_response"}
    {"request":{"mode":"default","subtype":"set_permission_mode"},"request_id":"ID","type":"control_request"}
    "#);
}

/// Replaces the random part in the ids of the driver's requests.
fn without_ids(heard: &str) -> String {
    let is_random = |word: &str| word.len() > 32 && word.as_bytes()[32] == b'-';
    let words: Vec<&str> = heard.split('"').collect();
    let words = words
        .iter()
        .map(|word| if is_random(word) { "ID" } else { word });
    words.collect::<Vec<_>>().join("\"")
}
